"""Measure opening, seeking and playing the recording of a day: wall and CPU seconds, and memory.

Usage: python benchmarks/replaying.py [--hours N] [--file FILE] [--seconds S]

Two simulated servers and two nodes are recorded for an hour of virtual time, and the hour is copied with
later times until the file has N hours (24: about 110 MB, which takes some minutes). `--file` keeps the file,
or uses an existing one. Then the file is opened; 20 random moments are sought, each up to its first picture;
two hours are played as fast as possible while the memory is printed; and the screen plays S seconds at 64×.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sparktop.model.instant import Instant
from sparktop.recording.frames import FrameWriter, Kind, Record, encode
from sparktop.recording.player import Recording
from sparktop.recording.recorder import Recorder
from sparktop.recording.replay import Replay
from sparktop.store.journal import Journals
from sparktop.ui.replay import SLICE_S, ReplayApp
from stage.rehearsal import Rehearsal

HOUR_S = 3600
SEEKS = 20
_LEVEL = 6
_PLAYED_HOURS = 2.0


def record_hour(path: Path) -> None:
    """Record an hour of the rehearsal, slowly enough for the recorder's queue."""
    journal = Journals()
    live = Rehearsal(nodes=2, journal=journal)
    recorder = Recorder(live.watch, next_path=lambda _: path)
    journal.add(recorder)
    recorder.start(live.store)
    for _ in range(HOUR_S // 100):
        live.play(100.0)
    recorder.stop("quit")


def later(record: Record, seconds: float) -> Record:
    """Return a record with all its times `seconds` later."""
    instant = Instant(record.instant.at + seconds, record.instant.wall + timedelta(seconds=seconds))
    fields, body = dict(record.fields), record.body
    if "at" in fields:
        fields["at"] = float(str(fields["at"])) + seconds
    if record.kind in {Kind.NODE, Kind.ROUTER, Kind.FAIL}:
        read = json.loads(body)
        body = json.dumps({**read, "at": read["at"] + seconds}, separators=(",", ":")).encode()
    if record.kind == Kind.HEAD:
        read = json.loads(body)
        body = json.dumps({**read, "events": [_later_event(one, seconds) for one in read["events"]]}).encode()
    return replace(record, instant=instant, fields=fields, body=body)


def _later_event(event: dict[str, Any], seconds: float) -> dict[str, Any]:
    at = datetime.fromisoformat(event["at"]) + timedelta(seconds=seconds)
    return {**event, "at": at.isoformat(), "at_s": event["at_s"] and event["at_s"] + seconds}


def make(path: Path, hours: int) -> None:
    """Write a recording of `hours` hours."""
    with tempfile.TemporaryDirectory() as folder:
        hour = Path(folder) / "hour.rec.zst"
        record_hour(hour)
        recording = Recording([hour])
        with path.open("wb") as file:
            for index in range(hours):
                _copy(recording, file.write, index * HOUR_S)
        recording.close()


def _copy(recording: Recording, write: Callable[[bytes], object], seconds: float) -> None:
    frame, second, text = FrameWriter(_LEVEL), -1, b""
    for record in recording.records(recording.frames[0]):
        if record.kind == Kind.END:
            continue
        if record.kind == Kind.HEAD:
            write(frame.add(text) + frame.end() if text else b"")
            frame, text = FrameWriter(_LEVEL), b""
        text += encode(later(record, seconds))
        if record.kind == Kind.HEAD or int(record.instant.at) != second:
            write(frame.add(text))
            second, text = int(record.instant.at), b""
    write(frame.add(text) + frame.end())


@dataclass(frozen=True, slots=True)
class Cost:
    """The time that some work took."""

    wall_s: float
    cpu_s: float
    slice_s: float = 0.0
    """CPU seconds of the longest slice: wall seconds of a slice also depend on what else runs."""


class Watch:
    """A stopwatch for wall and CPU seconds."""

    def __init__(self) -> None:
        """Start now."""
        self.began = time.perf_counter(), time.process_time()

    def cost(self, slice_s: float = 0.0) -> Cost:
        """Return the time since the start."""
        return Cost(time.perf_counter() - self.began[0], time.process_time() - self.began[1], slice_s)


def slice_cpu_s(replay: Replay) -> float:
    """Do a slice of work; return its CPU seconds."""
    began = time.process_time()
    replay.work(SLICE_S)
    return time.process_time() - began


def until_shown(replay: Replay) -> Cost:
    """Work until another picture is shown; return the time."""
    watch, before, longest = Watch(), replay.picture(), 0.0
    while replay.busy and replay.picture() is before:
        longest = max(longest, slice_cpu_s(replay))
    return watch.cost(longest)


def resident_mib() -> float:
    """Return the resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def show(name: str, costs: list[Cost]) -> None:
    """Print p50 and p95 of the costs."""
    at = [len(costs) // 2, min(len(costs) - 1, round(0.95 * (len(costs) - 1)))]
    for words, values in (
        ("wall", sorted(one.wall_s for one in costs)),
        ("CPU", sorted(one.cpu_s for one in costs)),
    ):
        print(f"{name:<34} {words:<5} p50 {values[at[0]]:6.3f} s   p95 {values[at[1]]:6.3f} s")
    print(f"{name:<34} longest slice {max(one.slice_s for one in costs) * 1000:.0f} ms CPU")


def measure_seeks(path: Path) -> None:
    """Measure and print the time for opening and seeking."""
    watch = Watch()
    recording = Recording([path])
    opened = watch.cost()
    replay = Replay(recording)
    first = until_shown(replay)
    print(f"{path.stat().st_size / 1e6:.0f} MB, {len(recording.frames):,} frames")
    print(f"open: wall {opened.wall_s:.3f} s, CPU {opened.cpu_s:.3f} s")
    print(f"first picture after that: wall {first.wall_s:.3f} s, CPU {first.cpu_s:.3f} s")
    dice = random.Random(7)  # noqa: S311 - dice of a benchmark
    begin, costs = recording.frames[0].instant.wall, []
    for _ in range(SEEKS):
        replay.go(begin + (recording.end - begin) * dice.random())
        costs.append(until_shown(replay))
    show("seek to a random moment", costs)
    watch = Watch()
    longest = 0.0
    while replay.busy:
        longest = max(longest, slice_cpu_s(replay))
    whole = watch.cost()
    print(f"the 15 min before it: CPU {whole.cpu_s:.2f} s in slices, the longest {longest * 1000:.0f} ms CPU")
    recording.close()


def measure_memory(path: Path) -> None:
    """Play `_PLAYED_HOURS` and print the memory meanwhile."""
    recording = Recording([path])
    clock = [0.0]
    replay = Replay(recording, clock=lambda: clock[0])
    replay.to_start()
    while replay.busy:
        replay.work(SLICE_S)
    begin = recording.frames[0].instant.wall
    replay.speed = 64
    replay.play()
    watch, next_s = Watch(), 0.0
    while (passed_s := (replay.snapshot().taken_at - begin).total_seconds()) < _PLAYED_HOURS * HOUR_S:
        if passed_s >= next_s:
            print(
                f"  played {passed_s / 60:5.0f} min: {resident_mib():6.1f} MiB, {len(replay.past)} pictures"
            )
            next_s += HOUR_S / 4
        clock[0] += 0.25
        replay.work(SLICE_S)
        if not replay.busy:
            break
    cost = watch.cost()
    print(
        f"played {passed_s:.0f} s: CPU {cost.cpu_s:.1f} s, at most {passed_s / cost.cpu_s:.0f}× on one core"
    )
    recording.close()


async def measure_screen(path: Path, seconds: float) -> None:
    """Measure and print the speed and the CPU time of the screen at 64×."""
    recording = Recording([path])
    replay = Replay(recording, speed=64)
    middle = recording.frames[len(recording.frames) // 2].instant.wall
    replay.go(middle)
    while replay.busy:
        replay.work(SLICE_S)
    async with ReplayApp(replay).run_test(size=(120, 36)) as pilot:
        await pilot.pause(0.5)
        await pilot.press("space")
        watch, before = Watch(), replay.snapshot().taken_at
        await pilot.pause(seconds)
        cost = watch.cost()
        played_s = (replay.snapshot().taken_at - before).total_seconds()
        print(
            f"screen of 120x36 at 64×: {played_s / cost.wall_s:.1f}× reached, "
            f"{100 * cost.cpu_s / cost.wall_s:.0f} % of a core"
        )
    recording.close()


def main() -> int:
    """Create the file if it does not exist, and run the measurements."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path: Path = arguments.file or Path(folder) / "day.rec.zst"
        if not path.exists():
            watch = Watch()
            make(path, arguments.hours)
            cost = watch.cost()
            print(f"made in {cost.wall_s:.0f} s, CPU {cost.cpu_s:.0f} s")
        print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        measure_seeks(path)
        measure_memory(path)
        asyncio.run(measure_screen(path, arguments.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
