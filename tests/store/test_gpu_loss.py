"""A GPU that disappears: critical, named on every surface, an event when it goes and when it comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from sparktop.hardware.machine import Machine
from sparktop.model.event import Severity
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import NodeTarget, Watch
from sparktop.panels.machine.detail import node_detail
from sparktop.panels.machine.panel import node_panel
from sparktop.panels.parts.graph import TimeAxis, TimeWindow
from sparktop.panels.parts.text import row_text
from sparktop.report import html, markdown, text_snapshot
from sparktop.report.json_snapshot import to_json
from sparktop.sources.decode import decode, place
from sparktop.sources.replies import encode, make_reply
from sparktop.store import SourceKey
from tests.hardware.fake_driver import FakeDriver, h100, h200, mig_slice, refuse

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import
MakeWorld = Callable[..., World]
NODE = SourceKey.node("n")
AXIS, WINDOW = TimeAxis(1100.0, 1.0), TimeWindow(1100.0, 76.0)


def eight(**changes: Any) -> FakeDriver:  # noqa: ANN401 - answers of the driver
    """Return the driver of a machine with eight H200."""
    return FakeDriver(
        *(h200(nvmlDeviceGetUUID=f"GPU-{index}", **changes) for index in range(8)), driver="580.95"
    )


class Watched:
    """A machine whose samples go into a store, over the wire where an agent reads it."""

    def __init__(self, make_world: MakeWorld, driver: FakeDriver, via: str = "local") -> None:
        self.world = make_world(Watch(nodes=(NodeTarget("n", via=via),)))
        self._machine = Machine(Path("/nonexistent"), nvml=driver, clock=lambda: float(self.world.at))
        self._via = via

    def look(self, at: float) -> Snapshot:
        """Read the machine at a time; return the snapshot after it."""
        self.world.at = at
        sample: NodeSample | None = self._machine.read()
        assert sample is not None
        if self._via != "local":
            sample = place(decode(encode(make_reply(NodeIdentity(), (sample,), at))), at)
            assert sample is not None
        self.world.store.accept(NODE, sample)
        picture: Snapshot = self.world.snapshot()
        return picture


def alerts(picture: Snapshot) -> list[tuple[str, Severity]]:
    return [(alert.id, alert.severity) for alert in picture.alerts if "gpu" in alert.id]


def events(picture: Snapshot) -> list[tuple[Severity, str]]:
    return [(event.severity, event.message) for event in picture.events]


@pytest.mark.parametrize("via", ["local", "agent"])
def test_one_of_eight_that_is_lost_is_critical_and_named(make_world: MakeWorld, via: str) -> None:
    """Alert and event come with the next sample; once the driver has it again, an event ends the alert."""
    driver = eight()
    watched = Watched(make_world, driver, via)
    assert alerts(watched.look(1000)) == []
    driver.lost = {3}
    picture = watched.look(1002)
    assert alerts(picture) == [("node:n:gpu-lost", Severity.CRITICAL)]
    (lost,) = picture.nodes[0].gpus_lost
    assert (lost.index, lost.name, lost.uuid) == (3, "NVIDIA H200", "GPU-3")
    assert "GPU 3 (NVIDIA H200, GPU-3) is lost" in picture.alerts[0].message
    assert [severity for severity, _ in events(watched.look(1004))] == [Severity.CRITICAL]
    driver.lost = set()
    picture = watched.look(1040)
    assert (alerts(picture), picture.nodes[0].gpus_lost) == ([], ())
    assert events(picture)[-1] == (
        Severity.INFO,
        "GPU 3 (NVIDIA H200, GPU-3) answers again after 38 s",
    )


def test_every_surface_names_it(make_world: MakeWorld) -> None:
    """Panel, detail, text, Markdown, HTML and JSON say which GPU is missing: none lists seven in silence."""
    driver = eight()
    watched = Watched(make_world, driver)
    watched.look(1000)
    driver.lost = {3}
    picture = watched.look(1002)
    view = picture.nodes[0]
    surfaces = {
        "panel": "\n".join(row_text(row) for row in node_panel(view, 78, 8, WINDOW, 100.0)),
        "wide panel": "\n".join(row_text(row) for row in node_panel(view, 118, 10, WINDOW, 100.0)),
        "detail": "\n".join(row_text(row) for row in node_detail(view, (), 118, 40, AXIS)),
        "text": text_snapshot.render(picture, 100),
        "md": markdown.render(picture),
        "html": html.render(picture, ""),
    }
    assert [name for name, text in surfaces.items() if "GPU 3" not in text] == []
    assert " 3 lost NVIDIA H200: the driver lost it" in surfaces["detail"]
    assert "7 of 8 x NVIDIA H200" in surfaces["text"]
    (node,) = json.loads(json.dumps(to_json(picture)))["nodes"]
    assert [(one["index"], one["uuid"]) for one in node["gpus_lost"]] == [(3, "GPU-3")]
    assert len(node["gpus"]) == 7


def test_a_driver_that_renumbers_what_is_left_still_lacks_one(make_world: MakeWorld) -> None:
    """After a reboot the driver lists seven as 0 to 6: the UUID says which one is missing."""
    whole, rest = eight(), eight()
    rest.gpus.pop(3)
    watched = Watched(make_world, whole)
    watched.look(1000)
    sample = Machine(Path("/nonexistent"), nvml=rest, clock=lambda: 1060.0).read()
    watched.world.at = 1060.0
    watched.world.store.accept(NODE, sample)
    picture = watched.world.snapshot()
    assert [(one.index, one.uuid) for one in picture.nodes[0].gpus_lost] == [(3, "GPU-3")]
    assert "does not list it" in picture.alerts[0].message


def test_a_driver_restart_is_not_eight_lost_gpus(make_world: MakeWorld) -> None:
    """All gone at once are a warning with the driver's words, later critical, and an event for each."""
    driver = eight()
    watched = Watched(make_world, driver)
    watched.look(1000)
    driver.failing = {"nvmlDeviceGetUtilizationRates": refuse(9)}
    driver.init_error = refuse(9)
    first = watched.look(1002)
    assert alerts(first) == [("node:n:gpus-gone", Severity.WARNING)]
    assert "none of its 8 GPUs answers" in first.alerts[0].message
    assert alerts(watched.look(1034)) == [("node:n:gpus-gone", Severity.WARNING)]
    assert alerts(watched.look(1066)) == [("node:n:gpus-gone", Severity.CRITICAL)]
    driver.failing, driver.init_error = {}, None
    picture = watched.look(1098)
    assert (alerts(picture), picture.nodes[0].gpus_lost) == ([], ())
    assert [severity for severity, _ in events(picture)] == [
        Severity.WARNING,
        Severity.CRITICAL,
        Severity.INFO,
    ]
    assert picture.events[-1].message == "the GPUs answer again after 1 min"


def test_splitting_a_gpu_anew_is_no_loss(make_world: MakeWorld) -> None:
    """MIG instances come and go; their GPU stays."""
    driver = FakeDriver(h100(mig_slice((7, 0)), mig_slice((8, 0))), h200())
    watched = Watched(make_world, driver)
    watched.look(1000)
    driver.gpus[0] = h100(None, mig_slice((9, 0)))
    for at in (1040, 1080):
        picture = watched.look(at)
        assert (alerts(picture), events(picture)) == ([], [])
