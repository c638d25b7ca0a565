"""The files of the flight recorder, which records in the background; and how the previous run ended.

Each viewer writes files of its own, ten minutes long. The oldest files are deleted where all files together
exceed a number of bytes.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from sparktop.files import Place, folder_of
from sparktop.model.instant import Instant
from sparktop.recording.record import Kind

SUFFIX = ".rec.zst"
PART_S = 600.0
LEAST_KEPT_S = 1800.0
"""Seconds that are kept even beyond the bytes asked for, but within `MOST_TIMES` times as many bytes."""
MOST_TIMES = 4
_ESCAPED = re.compile(r"\\([0-7]{3})")
"""How mountinfo writes white space and backslashes: with their octal code."""
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "lustre", "9p", "ceph", "fuse.glusterfs"})


def flight_folder(env: Mapping[str, str]) -> Path:
    """Return the folder of the flight recorder, which need not exist.

    It is `$XDG_STATE_HOME/sparktop/flight`. On a network file system, where each sync would wait for the
    network, it is below /var/tmp instead.
    """
    folder = folder_of(env, Place.STATE) / "flight"
    return Path(f"/var/tmp/sparktop-{os.getuid()}/flight") if is_network(folder) else folder  # noqa: S108 - mode 0700


def is_network(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Return whether a path lies on a network file system; False where that cannot be found out."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    place, best, kind = os.path.realpath(path), "", ""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) <= 4 or not rest:  # noqa: PLR2004 - the mount point
            continue
        mount = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4])
        if _is_below(place, mount) and len(mount) >= len(best):
            best, kind = mount, rest[0]
    return kind in _NETWORK


def _is_below(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")


def make_folder(folder: Path) -> None:
    """Create the folder, readable by its user only.

    Raises:
        OSError: it cannot be created, or it or the folder above it belongs to another user.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The owner of the folder above, which anybody can create in /var/tmp, could exchange this folder.
    if {folder.stat().st_uid, folder.parent.lstat().st_uid} != {os.getuid()}:
        raise PermissionError(1, "the folder belongs to another user", str(folder))


def part_path(folder: Path, instant: Instant) -> Path:
    """Return the path of a new file of this process whose recording begins at `instant`."""
    return folder / f"{instant.wall:%Y%m%dT%H%M%S}-{os.getpid()}{SUFFIX}"


def parts(folder: Path) -> list[Path]:
    """Return the flight recorder's files, oldest first; empty where the folder cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))
    except OSError:
        return []


def retain(folder: Path, most_bytes: int, now: datetime) -> None:
    """Delete the oldest files until all files together have at most `most_bytes`.

    Files of the last half hour are deleted only while all files together have more than
    `MOST_TIMES` times `most_bytes`. A file that a process still writes is not deleted. Do nothing if the
    folder's lock cannot be taken.
    """
    with _held(folder / ".lock") as held:
        if not held:
            return
        sizes = [(path, info) for path in parts(folder) if (info := _stat(path)) is not None]
        total = sum(info.st_size for _, info in sizes)
        for path, info in sizes:
            is_recent = now.timestamp() - info.st_mtime < LEAST_KEPT_S
            if total <= most_bytes or (is_recent and total <= MOST_TIMES * most_bytes):
                return
            with _held(path) as is_unused, suppress(OSError):
                if is_unused:
                    path.unlink()
                    total -= info.st_size


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat(follow_symlinks=False)
    except OSError:
        return None


def is_written(path: Path) -> bool:
    """Return whether a process writes the file at present."""
    with _held(path) as held:
        return not held


@contextmanager
def _held(path: Path) -> Iterator[bool]:
    """Try to lock a file for the duration of a `with` block; yield whether this process got the lock."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if path.name == ".lock" else 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


class Ended(Struct, frozen=True):
    """The unexpected end of an earlier run of sparktop: it was killed, or the machine went down."""

    path: Path
    at: datetime
    """Wall time of its last record."""
    same_boot: bool
    """True: the machine has not restarted since, so the program was killed. False: the machine went down."""


def last_end(folder: Path, boot_id: str) -> Ended | None:
    """Return how the newest other run of sparktop ended, if it ended unexpectedly.

    Return None if it ended normally or still runs, or if it left no file that can be read.
    """
    from sparktop.errors import UsageError
    from sparktop.recording.player import Recording

    own = f"-{os.getpid()}{SUFFIX}"
    path = next((one for one in reversed(parts(folder)) if not one.name.endswith(own)), None)
    if path is None or is_written(path):
        return None
    try:
        recording = Recording([path])
    except UsageError:
        return None
    last = None
    for record in recording.records(recording.frames[-1]):
        last = record
    boot = recording.frames[-1].boot_id
    recording.close()
    if last is None or last.kind == Kind.END:
        return None
    return Ended(path, last.instant.wall, boot == boot_id)
