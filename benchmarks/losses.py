"""Measure what recordings lose to killed programs, torn ends, full disks and hostile files.

Recordings of the simulated cluster are broken in four ways. A kill leaves what was written; the end of a
file is cut, zeroed, followed by NUL bytes or flipped at every byte of its last records; a small tmpfs is
filled and freed (needs root); records are poisoned, and each file is read by every reader.

usage: losses.py [--runs 100] [--only EXPERIMENT …] [--write]
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tables

from sparktop.cli import main as sparktop
from sparktop.demo.command import DemoCluster, as_toml, make_watch
from sparktop.demo.scenario import DemoPlan
from sparktop.errors import SparktopError
from sparktop.recording import recorder as recording_file
from sparktop.recording.frames import FrameReader, FrameWriter, Record, RecordError, RecordKind, encode
from sparktop.recording.player import Recording
from sparktop.recording.recorder import Recorder
from sparktop.recording.replay import Replay
from sparktop.recording.rescue import check
from sparktop.report.json_snapshot import to_json
from stage.rehearsal import Rehearsal

ROOT = Path(__file__).resolve().parent.parent
INTERVAL_S = 0.25
"""Longest time between two records, so that the age of the last one is the time lost."""
MOST_S = 20.0
"""CPU seconds that a reader may use for one file."""
HOSTILE: tuple[object, ...] = (None, True, -1, 1e308, 10**30, "\x1b[31m[red]x[/]\u202e", "a" * 5000, [], {})
Row = tuple[str, int, str, str, bool]
"""(experiment, runs, wanted, seen, whether it is so)."""


def records(path: Path) -> list[Record]:
    """Return the readable records of a file."""
    with path.open("rb") as file:
        return [record for record, _ in FrameReader(file.fileno()).records()]


def rehearsed(path: Path, seconds: float) -> list[Record]:
    """Record two servers, two machines and a router in virtual time; return the records."""
    recorder = Recorder(Rehearsal(nodes=2).watch, next_path=lambda _: path)
    live = Rehearsal(nodes=2, journal=recorder)
    recorder.start(live.store)
    live.play(seconds)
    recorder.stop("quit")
    return records(path)


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until `condition()` is true, for at most `seconds`."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)


def kills(folder: Path, runs: int) -> Iterator[Row]:
    """Kill recorders at random moments, each of which continues the file of the one before."""
    dice, lost = random.Random(1), list[float]()  # noqa: S311 - dice, no secret
    path, config, size = folder / "killed.rec.zst", folder / "sparktop.toml", 0
    words = ["record", "--config", str(config), "--append", "-o", str(path)]
    env = {**os.environ, "XDG_STATE_HOME": str(folder), "PYTHONPATH": str(ROOT)}
    with DemoCluster(DemoPlan(backends=2, seed=0)) as running:
        config.write_text(as_toml(make_watch(running, interval_s=INTERVAL_S)))
        for _ in range(max(1, runs // 10)):
            child = subprocess.Popen([sys.executable, "-m", "sparktop", *words], env=env)
            until(lambda least=size + 2_000: path.exists() and path.stat().st_size > least)  # type: ignore[misc]  # bound now
            time.sleep(dice.uniform(0.0, 1.5))
            killed_at = time.time()
            child.kill()
            child.wait()
            size = path.stat().st_size
            lost.append(killed_at - records(path)[-1].instant.wall.timestamp())
    whole = check(path).is_whole or bool(check(path).torn_bytes)
    seen = f"median {statistics.median(lost):.2f} s, worst {max(lost):.2f} s"
    holds = whole and max(lost) <= 2 * (1.0 + INTERVAL_S)
    yield "kill -9 of `sparktop record`", len(lost), f"the last second (± {INTERVAL_S} s)", seen, holds


def tails(folder: Path, _runs: int) -> Iterator[Row]:
    """Damage the end of a file at every byte of its last records."""
    frame, ends, data, made = FrameWriter(6), list[int](), b"", rehearsed(folder / "whole", 8.0)
    for record in made:
        data += frame.add(encode(record))
        ends.append(len(data))
    damages: dict[str, Callable[[int], bytes]] = {
        "cut": lambda at: data[:at],
        "zeroed": lambda at: data[:at] + bytes(len(data) - at),
        "followed by NULs": lambda at: data[:at] + bytes(4_096),
        "flipped": lambda at: data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :],
    }
    wrong = runs = 0
    for damage in damages.values():
        for at in range(ends[-9], len(data)):
            (folder / "tail").write_bytes(damage(at))
            found = records(folder / "tail")
            wrong += found != made[: len(found)] or len(found) < sum(end <= at for end in ends)
            runs += 1
    name = f"{', '.join(damages)} at every byte of the last records"
    yield name, runs, "every complete record before the byte, no false one", f"{wrong} wrong", not wrong


def full(folder: Path, runs: int) -> Iterator[Row]:
    """Fill the disk while a rehearsal is recorded, free it again, and read what was written."""
    recording_file.MIN_FREE_BYTES, recording_file.MIN_FREE_SHARE = 0, 0.0  # pause only on a full disk
    (disk := folder / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(disk)], check=True)
    try:
        right = [_filled(disk, 5.0 + run) for run in range(max(1, runs // 10))]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    wanted = "undamaged, two lines, goes on, the gap counted"
    yield "full disk (tmpfs), freed later", len(right), wanted, f"{sum(right)} so", all(right)


def _filled(disk: Path, seconds: float) -> bool:
    """Fill the disk after `seconds` of a rehearsal and free it; return whether the file is as expected."""
    path, filler, problems = disk / "full.rec.zst", disk / "filler", list[str]()
    recorder = Recorder(Rehearsal(nodes=2).watch, next_path=lambda _: path, on_problem=problems.append)
    live = Rehearsal(nodes=2, journal=recorder)
    recorder.start(live.store)
    live.play(seconds)
    until(lambda: path.exists() and path.stat().st_size > 1_000)
    with filler.open("wb") as file, contextlib.suppress(OSError):
        while True:
            os.write(file.fileno(), bytes(4_096))
    until(lambda: live.play(1) and problems)
    before = records(path)
    filler.unlink()
    until(lambda: live.play(1) and len(problems) > 1)
    recorder.stop("quit")
    after = records(path)
    whole = check(path).is_whole and sum(one.kind == "lag" for one in after) == 1
    path.unlink()
    return whole and len(after) > len(before) and after[: len(before)] == before and len(problems) == 2


def hostile(folder: Path, runs: int) -> Iterator[Row]:
    """Read files with damaged and poisoned records with every reader."""
    made, slowest, crashes = rehearsed(folder / "whole", 5.0), 0.0, Counter[str]()
    path = folder / "broken"
    for seed in range(runs):
        path.write_bytes(_broken(made, random.Random(seed)))  # noqa: S311 - dice, no secret
        for name, read in READERS.items():
            began = time.process_time()
            try:
                read(path)
            except SparktopError:
                pass
            except Exception as error:  # noqa: BLE001 - a finding
                crashes[name] += 1
                print(f"{name}, seed {seed}: {type(error).__name__} {error}"[:200], file=sys.stderr)
            slowest = max(slowest, time.process_time() - began)
    name = f"damaged and poisoned files, each by {len(READERS)} readers"
    seen = f"{crashes.total()} crashes, slowest {slowest:.1f} s of CPU"
    holds = not crashes and slowest < MOST_S
    yield name, runs, "no crash, no escape sequence, bounded time", seen, holds


def _broken(made: list[Record], dice: random.Random) -> bytes:
    """Return the bytes of a recording with several poisoned records, and with changed bytes."""
    frame, data, rate = FrameWriter(1), b"", dice.choice((0.0, 0.02, 0.3))
    for record in made:
        with contextlib.suppress(RecordError, ValueError, OverflowError, RecursionError):
            data += frame.add(encode(_poisoned(record, dice) if dice.random() < rate else record))
    data += frame.end()
    for _ in range(dice.choice((0, 1, 8)) if rate else dice.choice((1, 8))):
        at, count = dice.randrange(len(data)), dice.randrange(1, 60)
        data = data[:at] + dice.choice((b"", bytes(count), dice.randbytes(count))) + data[at + count :]
    return data


def _poisoned(record: Record, dice: random.Random) -> Record:
    """Return a record with another body, source or kind."""
    if record.kind == RecordKind.PAGE:
        at = dice.randrange(len(record.body) + 1)
        return replace(record, body=record.body[:at] + dice.randbytes(20) + record.body[at + 20 :])
    if record.body and dice.random() < 0.6:
        return replace(record, body=json.dumps(_mutated(json.loads(record.body), dice)).encode())
    if dice.random() < 0.5:
        return replace(record, source=dice.choice((None, "backend:", "node:\x1b[31m", "x")))
    return replace(record, kind=dice.choice((*RecordKind, "unknown")))


def _mutated(value: object, dice: random.Random) -> object:
    """Return `value` with one part removed, replaced or nested deeply."""
    if isinstance(value, dict) and value and dice.random() < 0.8:
        key = dice.choice(list(value))
        if dice.random() < 0.2:
            return {name: one for name, one in value.items() if name != key}
        return {**value, key: _mutated(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.8:
        index = dice.randrange(len(value))
        return [*value[:index], _mutated(value[index], dice), *value[index + 1 :]]
    deep: object = dice.choice(HOSTILE)
    for _ in range(dice.choice((0, 0, 50, 900))):
        deep = [deep]
    return deep


def _replayed(path: Path) -> None:
    """Replay a recording as the screen does: seek the end, then the start, and make a snapshot of each."""
    recording = Recording([path])
    replay = Replay(recording)
    for moment in (recording.end, recording.frames[0].instant.wall):
        replay.go(moment)
        while replay.busy:
            replay.work(1.0)
        assert "\\u001b" not in json.dumps(to_json(replay.snapshot()))  # noqa: S101 - a finding
        replay.bar()
    recording.close()


def _commanded(*words: str) -> None:
    """Run a command of sparktop in this process, and discard its output."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")  # results are written as bytes
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert sparktop(list(words)) in {0, 1, 2, 3}  # noqa: S101 - a finding


READERS: dict[str, Callable[[Path], object]] = {
    "replay": _replayed,
    "dump jsonl": lambda path: _commanded("dump", str(path)),
    "dump openmetrics": lambda path: _commanded("dump", "--format", "openmetrics", str(path)),
    "snapshot --from": lambda path: _commanded("snapshot", "--from", str(path)),
    "record --check": lambda path: _commanded("record", "--check", str(path)),
}
EXPERIMENTS = {"kills": kills, "tails": tails, "full": full, "hostile": hostile}


def main() -> int:
    """Run the experiments and print their table; return 1 if a row is not as expected, else 0."""
    parser = tables.options(__doc__, runs=100)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    options = parser.parse_args()
    rows: list[Row] = []
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix=f"losses-{name}-") as folder:
            rows += EXPERIMENTS[name](Path(folder), options.runs)
    cells = [(*row[:-1], "✓" if row[-1] else "**✗**") for row in rows]
    heads = ("experiment", "runs", "wanted", "seen", "")
    tables.publish("losses.py", tables.table(heads, cells), write=options.write)
    return int(not all(row[-1] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
