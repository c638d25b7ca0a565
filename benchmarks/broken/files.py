"""Experiments with damaged, poisoned and hostile files, read by every reader of recordings."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import random
import resource
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from broken.shared import Row, records, rehearsed
from msgspec.structs import replace

from sparktop.cli import main as sparktop
from sparktop.errors import SparktopError
from sparktop.recording.frames import MAGIC, FrameWriter, Kind, Record, RecordError, encode
from sparktop.recording.player import Recording
from sparktop.recording.replay import Replay
from sparktop.report.json_snapshot import to_json

MOST_S, MOST_MIB = 20.0, 200.0
"""CPU seconds that a reader may use for one file, and MiB of memory that all of them may add."""
Json = object
HOSTILE: tuple[Json, ...] = (None, True, -1, 1e308, 10**30, "", "\x1b[31m[red]x[/]\u202e", "a" * 5000, [], {})


def mutated(value: Json, dice: random.Random, depth: int = 0) -> Json:
    """Return `value` with one part removed, replaced or nested deeply."""
    if isinstance(value, dict) and value and dice.random() < 0.8:
        key = dice.choice(list(value))
        if dice.random() < 0.2:
            return {name: one for name, one in value.items() if name != key}
        return {**value, key: mutated(value[key], dice, depth + 1)}
    if isinstance(value, list) and value and dice.random() < 0.8:
        index = dice.randrange(len(value))
        return [*value[:index], mutated(value[index], dice, depth + 1), *value[index + 1 :]]
    deep: Json = 0
    for _ in range(dice.choice((0, 0, 50, 900))):
        deep = [deep]
    return deep or dice.choice(HOSTILE)


def poisoned(record: Record, dice: random.Random) -> Record:
    """Return a record with another body, fields, source, kind or time."""
    try:
        match dice.randrange(5):
            case 0 if record.kind == Kind.PAGE:
                at = dice.randrange(len(record.body))
                return replace(record, body=record.body[:at] + dice.randbytes(20) + record.body[at + 20 :])
            case 0 | 1 if record.body and record.kind != Kind.PAGE:
                return replace(record, body=json.dumps(mutated(json.loads(record.body), dice)).encode())
            case 2:
                return replace(record, source=dice.choice((None, "backend:", "node:\x1b[31m", "x")))
            case 3:
                return replace(record, kind=dice.choice((*Kind, "unknown")))
        instant = dataclasses.replace(
            record.instant, at=record.instant.at + dice.choice((-1e9, -5.0, 5.0, 1e9))
        )
        return replace(record, instant=instant)
    except (ValueError, RecursionError):
        return record


def broken(made: list[Record], dice: random.Random) -> bytes:
    """Return the bytes of a recording with several poisoned records, or with changed bytes."""
    frame, data, rate = FrameWriter(1), b"", dice.choice((0.0, 0.02, 0.3))
    for record in made:
        try:
            data += frame.add(encode(poisoned(record, dice) if dice.random() < rate else record))
        except (RecordError, ValueError, OverflowError):
            continue
    data += frame.end()
    for _ in range(dice.choice((0, 1, 8)) if rate else dice.choice((1, 8))):
        at, count = dice.randrange(len(data)), dice.randrange(1, 60)
        data = data[:at] + dice.choice((b"", bytes(count), dice.randbytes(count), MAGIC)) + data[at + count :]
    return data


def replayed(path: Path) -> None:
    """Replay a recording as the screen does: seek the end, then the start, and make a snapshot of each."""
    recording = Recording([path])
    replay = Replay(recording)
    for moment in (recording.end, recording.frames[0].instant.wall):
        replay.go(moment)
        while replay.busy:
            replay.work(1.0)
        text = json.dumps(to_json(replay.snapshot()))
        assert "\\u001b" not in text  # noqa: S101 - a finding
        replay.bar()
    recording.close()


def commanded(*words: str) -> None:
    """Run a command of sparktop in this process, and discard its output."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = sparktop(list(words))
    assert code in {0, 1, 2, 3}, code  # noqa: S101 - a finding


READERS: dict[str, Callable[[Path], object]] = {
    "replay": replayed,
    "dump jsonl": lambda path: commanded("dump", str(path)),
    "dump openmetrics": lambda path: commanded("dump", "--format", "openmetrics", str(path)),
    "snapshot --from": lambda path: commanded("snapshot", "--from", str(path)),
    "record --check": lambda path: commanded("record", "--check", str(path)),
}


def readers(folder: Path, *, short: bool) -> Iterator[Row]:
    """Read files with damaged and poisoned records with every reader."""
    rehearsed(folder / "whole", 5.0)
    made, count = records(folder / "whole"), 20 if short else 2_000
    before, slowest, crashes = peak_mib(), 0.0, Counter[str]()
    for seed in range(count):
        dice = random.Random(seed)  # noqa: S311 - dice, no secret
        (path := folder / "broken").write_bytes(broken(made, dice))
        for name in READERS:
            slowest = max(slowest, timed(name, path, f"seed {seed}", crashes))
    yield Row(
        f"damaged and poisoned files, each by {len(READERS)} readers",
        count,
        "no crash, no escape sequence, bounded time and memory",
        f"{crashes.total()} crashes, slowest {slowest:.1f} s of CPU, memory +{peak_mib() - before:.0f} MiB",
        not crashes and slowest < MOST_S and peak_mib() - before < MOST_MIB,
    )


def peak_mib() -> float:
    """Return the largest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def bombs(mib: float) -> dict[str, bytes]:
    """Return contents of files, by name, that cost far more than their size if they are read carelessly."""
    count = int(mib * (1 << 20))
    header = MAGIC + bytes([0, (22 - 10) << 3])

    def block(content: bytes, kind: int = 0, size: int | None = None) -> bytes:
        return ((len(content) if size is None else size) << 3 | kind << 1).to_bytes(3, "little") + content

    head = b'{"k":"page","m":1.0,"w":1.0,"n":4000000,"c":1}\n'
    deep = b'{"k":' + b"[" * 60_000 + b"]" * 5_000 + b"\n"
    return {
        "nothing but frame beginnings": MAGIC * (count // 4),
        "a record in blocks of one byte": header + block(head) + block(b"x") * (count // 4),
        "blocks of repeated bytes": header + block(head) + block(b"x", 1, 128 << 10) * (count // 4),
        "a window of a GiB": MAGIC + bytes([0, (30 - 10) << 3]) + block(b"abcd") + bytes(count),
        "a deep head": header + block(deep) + bytes(count),
        "NUL bytes": bytes(count),
        "nothing": b"",
    }


OTHERS = ("/dev/zero", "/dev/urandom", "/dev/null", "/proc/self/mem", "/proc/self/environ", "/tmp")  # noqa: S108 - it is read


def traps(folder: Path, *, short: bool) -> dict[str, Path]:
    """Create the files of `bombs`, alone and after a good recording, and special files; return all paths."""
    whole, paths = folder / "whole", {name: Path(name) for name in OTHERS}
    rehearsed(whole, 5.0)
    for index, (name, data) in enumerate(bombs(0.05 if short else 1.0).items()):
        for place, start in (("alone", b""), ("after a recording", whole.read_bytes())):
            paths[f"{name}, {place}"] = folder / f"{index}{place}"
            paths[f"{name}, {place}"].write_bytes(start + data)
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "dangling").symlink_to(folder / "none")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(folder / "socket"))
    return paths | {name: folder / name for name in ("pipe", "loop", "dangling", "socket")}


def hostile(folder: Path, *, short: bool) -> Iterator[Row]:
    """Read the files of `traps` with every reader."""
    before, slowest, crashes = peak_mib(), 0.0, Counter[str]()
    paths = traps(folder, short=short)
    for name, path in paths.items():
        for reader in READERS:
            slowest = max(slowest, timed(reader, path, name, crashes))
    yield Row(
        f"files of {'50 kB' if short else '1 MiB'} made to cost much; pipes, devices, links, sockets",
        len(paths) * len(READERS),
        "no crash, bounded time and memory",
        f"{crashes.total()} crashes, slowest {slowest:.1f} s of CPU, memory +{peak_mib() - before:.0f} MiB",
        not crashes and slowest < MOST_S and peak_mib() - before < MOST_MIB,
    )


def timed(reader: str, path: Path, name: str, crashes: Counter[str]) -> float:
    """Read a file with a reader and return the CPU seconds used; count and print a crash."""
    began = time.process_time()
    try:
        READERS[reader](path)
    except SparktopError:
        pass
    except Exception as error:  # noqa: BLE001 - a finding
        crashes[name] += 1
        print(f"{reader}, {name}: {type(error).__name__} {error}"[:200], file=sys.stderr)
    took = time.process_time() - began
    if took > MOST_S / 4:
        print(f"{reader}, {name}: {took:.1f} s", file=sys.stderr)
    return took
