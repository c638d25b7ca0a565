"""Reads machines through the real nvidia-ml-py, in a process with the shim in its library path.

Standard input is JSON: the steps of each machine by name, [[seconds, state], ...]. Standard output is JSON:
by name, for each step, the reading and its drawing in panel and detail. The library is closed between two
machines.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from msgspec import to_builtins

from sparktop.hardware.machine import Machine
from sparktop.model.node import NodeSample
from sparktop.model.snapshot import NodeView
from sparktop.panels.machine.detail import node_detail
from sparktop.panels.machine.panel import node_panel
from sparktop.panels.parts.graph import TimeAxis, TimeWindow
from sparktop.panels.parts.text import row_text

AXIS = TimeAxis(130.0, 1.0)
WINDOW = TimeWindow(130.0, 76.0)


class StoppedClock:
    """A clock that returns the time that was set."""

    now = 0.0

    def read(self) -> float:
        """Return the time in seconds."""
        return self.now


def drawn(sample: NodeSample, driver: str | None) -> dict[str, object]:
    """Return the reading and both of its pictures as text."""
    view = NodeView("n", "local", sample)
    panel = [row_text(row) for row in node_panel(view, 118, 12, WINDOW, 100.0)]
    detail = [row_text(row) for row in node_detail(view, (), 118, 60, AXIS)[0]]
    return {
        "gpus": [to_builtins(gpu) for gpu in sample.gpus],
        "gpus_lost": [to_builtins(gpu) for gpu in sample.gpus_lost],
        "note": sample.gpu_note,
        "unified": sample.memory.unified,
        "processes_bytes": sample.memory.gpu_processes_bytes,
        "total_bytes": sample.memory.total_bytes,
        "driver": driver,
        "panel": "\n".join(panel),
        "detail": "\n".join(detail),
    }


def main() -> None:
    root, state_file = Path(sys.argv[1]), Path(os.environ["NVML_SHIM_STATE"])
    clock = StoppedClock()
    found: dict[str, list[dict[str, object]]] = {}
    for name, steps in json.load(sys.stdin).items():
        machine = Machine(root, clock=clock.read)
        found[name] = []
        for seconds, state in steps:
            state_file.write_text(state, encoding="utf-8")
            clock.now = seconds
            sample = machine.read()
            found[name].append(drawn(sample, machine.identity.driver if machine.identity else None))
        machine.close()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
