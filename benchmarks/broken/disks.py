"""Experiments with full, small and read-only disks, deleted folders, and several programs at once."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from broken.shared import (
    Row,
    cluster,
    environment,
    records,
    rehearsed,
    size,
    started,
    wait_for,
    wait_for_bytes,
)
from ptybench import PtyProgram

from sparktop.recording import recorder as recording_file
from sparktop.recording.flight import is_network
from sparktop.recording.recorder import Recorder
from sparktop.recording.rescue import check
from stage.rehearsal import Rehearsal

MIB = 1 << 20
SMALL = "size=700k"
"""Size of the tmpfs that is filled."""
WRITER = """
import sys, time
from pathlib import Path
from sparktop.model.instant import Instant
from sparktop.model.targets import Watch
from sparktop.recording import recorder
from sparktop.recording.recorder import RecordingFile
from sparktop.recording.flight import part_path
from sparktop.store import Store
recorder.FLUSH_S, recorder.FRAME_S = 0.02, 0.1
count, problems = 0, []
def next_path(instant):
    global count
    count += 1
    path = part_path(Path(sys.argv[1]), instant)
    return path.with_name(f"{path.name.partition('.')[0]}-{count:04}.rec.zst")
journal = recorder.Recorder(Watch(), next_path=next_path, part_s=0.3, on_problem=problems.append)
store = Store(Watch(), journal=journal)
journal.start(store)
gone, plain = 0, RecordingFile.append
def append(file, data, *, frame_open):
    global gone
    plain(file, data, frame_open=frame_open)
    gone += file.is_gone()
RecordingFile.append = append
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    store.note("bench", "a note")
    store.judge()
    time.sleep(0.01)
journal.stop("quit")
print(count, gone, len(problems))
"""
RETAINER = """
import sys, time
from datetime import UTC, datetime
from pathlib import Path
from sparktop.recording.flight import retain
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    retain(Path(sys.argv[1]), 100, datetime.now(UTC))
"""


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a small tmpfs; yield its path; unmount it at the end of the block."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", SMALL, "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(path: Path) -> None:
    """Write to a file until its disk is full."""
    with path.open("wb") as file, contextlib.suppress(OSError):
        while True:
            os.write(file.fileno(), bytes(4_096))


def full(folder: Path, *, short: bool) -> Iterator[Row]:
    """Fill the disk while a rehearsal is recorded, free it again, and read what was written."""
    limits = recording_file.MIN_FREE_BYTES, recording_file.MIN_FREE_SHARE
    recording_file.MIN_FREE_BYTES, recording_file.MIN_FREE_SHARE = 0, 0.0  # pause only on a full disk
    with small_disk(folder) as disk:
        runs = [filled(disk, 5.0 + run) for run in range(2 if short else 10)]
    recording_file.MIN_FREE_BYTES, recording_file.MIN_FREE_SHARE = limits
    yield Row(
        "full disk (tmpfs), freed later",
        len(runs),
        "undamaged, two lines, goes on, the gap counted",
        f"{sum(runs)} so",
        all(runs),
    )


def filled(disk: Path, seconds: float) -> bool:
    """Fill the disk after `seconds` of a rehearsal and free it; return whether the file is as expected."""
    path, problems = disk / "full.rec.zst", list[str]()
    watch = Rehearsal(nodes=2).watch
    recorder = Recorder(watch, next_path=lambda _: path, on_problem=problems.append)
    live = Rehearsal(nodes=2, journal=recorder)
    recorder.start(live.store)
    live.play(seconds)
    wait_for_bytes(path, 1_000)
    fill(disk / "filler")
    wait_for(lambda: live.play(1) and problems)
    before = records(path)
    (disk / "filler").unlink()
    wait_for(lambda: live.play(1) and len(problems) > 1)
    recorder.stop("quit")
    after = records(path)
    whole = check(path).is_whole and sum(one.kind == "lag" for one in after) == 1
    path.unlink()
    return whole and after[: len(before)] == before and len(after) > len(before) and len(problems) == 2


def refused(folder: Path, *, short: bool) -> Iterator[Row]:
    """Record to a disk with less free space than the limit and to a read-only one; run the screen as well."""
    del short
    with cluster(folder) as config, small_disk(folder) as disk:
        child = started(config, disk / "a.rec.zst", "--seconds", "3")
        _, words = child.communicate(timeout=60)
        lines = words.decode().splitlines()
        told = [line for line in lines if "the disk is nearly full" in line]
        yield Row(
            "disk with less room than is kept free",
            1,
            "one line, exit code 0, no file left",
            f"{len(told)} line, exit code {child.returncode}, {len(list(disk.glob('*.zst')))} files",
            len(told) == 1 and not list(disk.glob("*.zst")),
        )
        yield from screens(config, disk)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        child = started(config, disk / "b.rec.zst")
        _, words = child.communicate(timeout=60)
        told = [line for line in words.decode().splitlines() if "Read-only file system" in line]
        yield Row(
            "read-only folder",
            1,
            "one line, exit code 1",
            f"{len(told)} line, exit code {child.returncode}",
            child.returncode == 1 and len(told) == 1,
        )


def screens(config: Path, disk: Path) -> Iterator[Row]:
    """Run the screen's flight recorder on a full disk, and delete its folder while it records."""
    command = (sys.executable, "-m", "sparktop", "--config", str(config))
    with PtyProgram(command, env=environment(disk)) as program:
        program.wait_for(("spark-b",), 60.0)
        program.press("e")
        said = program.wait_for(("recording pauses: the disk is nearly full",), 60.0)
        drawn = program.measure(5.0).bytes_per_s
    yield Row(
        "full disk under the screen's flight recorder",
        1,
        "one line, the screen goes on",
        f"{'the line' if said else 'no line'}, {drawn / 1e3:.1f} kB/s drawn",
        said is not None and drawn > 100,
    )
    home = config.parent / "home"
    with PtyProgram(command, env=environment(home)) as program:
        flight = home / "sparktop" / "flight"
        program.wait_for(("spark-b",), 60.0)
        program.idle(5.0)
        shutil.rmtree(flight)
        program.idle(15.0)
        again = sum(size(path) for path in flight.glob("*.rec.zst"))
        drawn = program.measure(5.0).bytes_per_s
    yield Row(
        "folder deleted under the screen's flight recorder",
        1,
        "made again, the screen goes on",
        f"{again:,} bytes in it 15 s later, {drawn / 1e3:.1f} kB/s drawn",
        again > 0 and drawn > 100,
    )


def together(folder: Path, *, short: bool) -> Iterator[Row]:
    """Record with two programs to one file, to one folder from which a third deletes, and up to a limit."""
    with cluster(folder) as config:
        yield two_writers(config, folder / "one.rec.zst")
        yield limited(config, folder / "limit.rec.zst", folder / "one.rec.zst")
    (shared := folder / "shared").mkdir()
    words = ("5" if short else "30",)
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(shared), *words], stdout=subprocess.PIPE, env=environment(folder)
        )
        for code in (WRITER, WRITER, RETAINER)
    ]
    outputs = [[int(word) for word in child.communicate()[0].split()] for child in children]
    begun, gone, refused_ = (sum(column) for column in zip(*outputs[:2], strict=True))
    left = list(shared.glob("*.rec.zst"))
    damaged = sum(not check(path).is_whole for path in left)
    yield Row(
        "files of two flight recorders in one folder, the oldest deleted by a third program",
        begun,
        "none is deleted while it is written, none is damaged",
        f"{gone} deleted, {refused_} refused, {damaged} damaged; {begun - len(left)} closed ones deleted",
        not gone and not refused_ and not damaged,
    )


def two_writers(config: Path, path: Path) -> Row:
    """Start a second recorder on the file of a running one."""
    one = started(config, path)
    wait_for_bytes(path, 1_000)
    two = started(config, path)
    _, words = two.communicate(timeout=60)
    one.terminate()
    one.wait(20)
    return Row(
        "two writers on one file",
        1,
        "the second is refused, the first undamaged",
        f"exit code {two.returncode}: {words.decode().strip().rpartition(': ')[2]}",
        two.returncode == 1 and check(path).is_whole,
    )


def limited(config: Path, path: Path, more: Path) -> Row:
    """Continue a recording that is nearly at its limit of 1 MiB, filled up with copies of the file `more`."""
    rehearsed(path, 8.0)
    while size(path) < MIB - 30_000:
        path.write_bytes(path.read_bytes() + more.read_bytes())
    started(config, path, "--max-bytes", "1M", "--seconds", "120").communicate(timeout=150)
    end = [one for one in records(path) if one.kind == "end"][-1]
    over = size(path) - MIB
    return Row(
        "--max-bytes 1M",
        1,
        "ends within a second's bytes",
        f"{over:+,} bytes, {end.fields['reason']}",
        0 <= over < 60_000 and end.fields["reason"] == "size is reached",
    )


def mounts(folder: Path, *, short: bool) -> Iterator[Row]:
    """Check that network file systems are recognized in mountinfo; a real one cannot be mounted here."""
    del short
    kinds = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "lustre", "9p", "ceph", "fuse.glusterfs")
    table, seen = folder / "mountinfo", 0
    for kind in (*kinds, "ext4", "btrfs", "zfs", "tmpfs"):
        table.write_text(
            f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n41 22 0:36 / /home\\040x rw - {kind} host:/x rw\n"
        )
        seen += is_network(Path("/home x/me/.local/state"), table) == (kind in kinds)
    yield Row(
        "kinds of network file systems in mountinfo", 13, "9 known, 4 local", f"{seen} of 13", seen == 13
    )
