"""Shared parts of the experiments on broken recordings: table rows, recorders, and records to break."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sparktop.demo.command import DemoCluster, as_toml, make_watch
from sparktop.demo.scenario import SCENARIOS
from sparktop.model.instant import Instant
from sparktop.recording.frames import FrameReader, Record
from sparktop.recording.recorder import Recorder
from sparktop.store.store import Call
from stage.rehearsal import Rehearsal

ROOT = Path(__file__).resolve().parent.parent.parent
INTERVAL_S = 0.25
"""Longest time between two records, so that the age of the last one is the time lost."""
Child = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table."""

    experiment: str
    runs: int
    wanted: str
    seen: str
    holds: bool


def worst(seconds: list[float]) -> str:
    """Return the median and the largest of several losses, in words."""
    return f"median {statistics.median(seconds):.2f} s, worst {max(seconds):.2f} s"


@contextmanager
def cluster(folder: Path) -> Iterator[Path]:
    """Run two simulated servers, two machines and a router; yield a configuration that watches them."""
    with DemoCluster(backends=2, seed=0) as running:
        config = folder / "sparktop.toml"
        config.write_text(as_toml(make_watch(running, interval_s=INTERVAL_S)))
        yield config


def started(config: Path, output: Path, *more: str, wrapper: tuple[str, ...] = ("-m", "sparktop")) -> Child:
    """Start a recorder of the servers and machines in `config`, which appends to `output`."""
    words = [
        sys.executable,
        *wrapper,
        "record",
        "--config",
        str(config),
        "--append",
        "-o",
        str(output),
        *more,
    ]
    return subprocess.Popen(words, stderr=subprocess.PIPE, env=environment(config.parent))


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a program whose files are below `folder`."""
    return {**os.environ, "XDG_STATE_HOME": str(folder), "PYTHONPATH": str(ROOT)}


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    """Wait until `condition()` is true, for at most `seconds`; return whether it became true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def wait_for_bytes(path: Path, least: int) -> None:
    """Wait up to a minute until a file has more than `least` bytes."""
    wait_for(lambda: size(path) > least)


def size(path: Path) -> int:
    """Return the length of a file in bytes; 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0


def records(path: Path) -> list[Record]:
    """Return the readable records of a file."""
    with path.open("rb") as file:
        return [located.record for located in FrameReader(file.fileno()).records()]


def rehearsed(path: Path, seconds: float, *, step_s: float = 0.0) -> Rehearsal:
    """Record two servers, two machines and a router in virtual time; return the rehearsal.

    `step_s` is how far the wall clock jumps in the middle.
    """
    scenario = SCENARIOS["oscillation"]
    recorder = Recorder(Rehearsal(nodes=2, scenario=scenario).watch, next_path=lambda _: path)
    journal = SteppedClock(recorder, seconds / 2, step_s)
    live = Rehearsal(nodes=2, scenario=scenario, journal=journal)
    recorder.start(live.store)
    live.play(seconds)
    recorder.stop("quit")
    return live


@dataclass(frozen=True, slots=True)
class SteppedClock:
    """A journal between a store and its recorder whose wall clock jumps by `step_s` at the time `at`."""

    recorder: Recorder
    at: float
    step_s: float

    def write(self, instant: Instant, call: Call) -> None:
        """Pass a call on to the recorder, with the stepped wall-clock time."""
        step = timedelta(seconds=self.step_s if instant.at > self.at else 0.0)
        self.recorder.write(Instant(instant.at, instant.wall + step), call)
