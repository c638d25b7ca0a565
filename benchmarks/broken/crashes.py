"""Experiments with killed recorders, power cuts and torn ends: what a recording loses."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from broken.shared import INTERVAL_S, Row, cluster, records, rehearsed, size, started, wait_for_bytes, worst

from sparktop.recording.frames import FrameWriter, encode
from sparktop.recording.rescue import check

SYNCED = """
import os, sys, time
def synced(descriptor, plain=os.fdatasync):
    length = os.fstat(descriptor).st_size
    plain(descriptor)
    with open(sys.argv[1], "a") as log:
        print(time.time(), length, file=log)
os.fdatasync = synced
from sparktop.cli import main
sys.exit(main(sys.argv[2:]))
"""


def kills(folder: Path, *, short: bool) -> Iterator[Row]:
    """Kill recorders at random moments, five at a time; each continues the file of the previous one."""
    dice, lost = random.Random(1), list[float]()  # noqa: S311 - dice, no secret
    rounds, files = (1 if short else 10), [folder / f"kill{index}.rec.zst" for index in range(5)]
    with cluster(folder) as config:
        for _ in range(rounds):
            before = [size(path) for path in files]
            children = [started(config, path) for path in files]
            for child, path, least in zip(children, files, before, strict=True):
                wait_for_bytes(path, least + 2_000)
                time.sleep(dice.uniform(0.0, 1.5))
                killed_at = time.time()
                child.kill()
                child.wait()
                lost.append(killed_at - records(path)[-1].instant.wall.timestamp())
    damaged = sum(not check(path).is_whole for path in files if check(path).torn_bytes == 0)
    limit = 1.0 + INTERVAL_S
    yield Row(
        "kill -9 of `sparktop record`, five on two cores at once",
        len(lost),
        f"the last second (± a poll of {INTERVAL_S} s)",
        f"{worst(lost)}, {sum(one > limit for one in lost)} over, {damaged} files damaged",
        max(lost) <= 2 * limit and not damaged,
    )


def power(folder: Path, *, short: bool) -> Iterator[Row]:
    """Keep what was synced of a recording at random moments; the rest is missing, NUL or random bytes."""
    path, log = folder / "power.rec.zst", folder / "synced.log"
    with cluster(folder) as config:
        child = started(config, path, wrapper=("-c", SYNCED, str(log)))
        wait_for_bytes(path, 2_000)
        time.sleep(8.0 if short else 75.0)
        child.kill()
        child.wait()
    data = path.read_bytes()
    synced = [
        (float(at), int(length)) for at, length in (line.split() for line in log.read_text().splitlines())
    ]
    dice, runs = random.Random(2), 20 if short else 50  # noqa: S311 - dice, no secret
    for name, tail in (("gone", 0), ("NUL bytes", 1), ("other bytes", 2)):
        lost, false = list[float](), 0
        whole = {encode(one) for one in records(path)}
        for _ in range(runs):
            moment = dice.uniform(synced[0][0], synced[-1][0])
            kept = max(length for at, length in synced if at <= moment)
            missing = min(len(data) - kept, 4_096)
            rest = (b"", bytes(missing), dice.randbytes(missing))[tail]
            (cut := folder / "cut").write_bytes(data[:kept] + rest)
            found = records(cut)
            false += sum(encode(one) not in whole for one in found)
            lost.append(moment - found[-1].instant.wall.timestamp())
        yield Row(
            f"power cut: what was not synced is {name}",
            runs,
            "at most 2 s lost, no false record",
            f"{worst(lost)}, {false} false",
            max(lost) <= 2.0 and not false,
        )


def tails(folder: Path, *, short: bool) -> Iterator[Row]:
    """Damage the end of a file at every byte of its last records: cut, zeroed, followed by NULs, flipped."""
    whole = folder / "whole"
    rehearsed(whole, 8.0)
    frame, ends, data, made = FrameWriter(6), list[int](), b"", records(whole)
    for record in made:
        data += frame.add(encode(record))
        ends.append(len(data))
    first = ends[-2 if short else -9]
    damages: dict[str, Callable[[int], bytes]] = {
        "cut": lambda at: data[:at],
        "zeroed": lambda at: data[:at] + bytes(len(data) - at),
        "followed by NULs": lambda at: data[:at] + bytes(4_096),
        "flipped": lambda at: data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :],
    }
    wrong = runs = 0
    for damage in damages.values():
        for at in range(first, len(data)):
            (folder / "tail").write_bytes(damage(at))
            found = records(folder / "tail")
            wrong += found != made[: len(found)] or len(found) < sum(end <= at for end in ends)
            runs += 1
    yield Row(
        f"{', '.join(damages)} at every byte of the last records",
        runs,
        "every complete record before the byte, no false one",
        f"{wrong} wrong",
        not wrong,
    )
