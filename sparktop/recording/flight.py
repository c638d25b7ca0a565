"""The flight recorder's files, how the previous run ended, and incidents: the minutes around alerts, kept.

Each viewer writes files of its own, ten minutes long. The oldest files are deleted where all files together
exceed a number of bytes; incidents are copies of their frames, which stay.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue

from msgspec import Struct

from sparktop.errors import OutputError
from sparktop.files import BaseFolder, folder_of
from sparktop.model.event import Event, Phase, Severity
from sparktop.model.instant import Instant
from sparktop.model.text import clean, reason_of
from sparktop.recording.frames import SUFFIX, FrameReader, FrameWriter, Record, RecordKind, encode

PART_S = 600.0
"""Seconds of a file."""
LEAST_KEPT_S = 1800.0
"""Seconds that are kept even beyond the bytes asked for, but within `MOST_TIMES` times as many bytes."""
MOST_TIMES = 4
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "lustre", "9p", "ceph", "fuse.glusterfs"})
"""Types of network file systems."""


def flight_folder(env: Mapping[str, str]) -> Path:
    """Return the folder of the flight recorder, which need not exist.

    It is `$XDG_STATE_HOME/sparktop/flight`. On a network file system, where each sync would wait for the
    network, it is below /var/tmp instead.
    """
    folder = folder_of(env, BaseFolder.STATE) / "flight"
    return Path(f"/var/tmp/sparktop-{os.getuid()}/flight") if is_network(folder) else folder  # noqa: S108 - mode 0700


def is_network(path: Path) -> bool:
    """Return whether a path lies on a network file system; False where that cannot be found out."""
    import psutil  # late: the first picture needs none of it

    real_path = f"{os.path.realpath(path)}/"
    try:
        mounts = psutil.disk_partitions(all=True)
    except OSError:
        return False
    above = [mount for mount in mounts if real_path.startswith(f"{mount.mountpoint.rstrip('/')}/")]
    # Of several mounts at one point the last hides the others.
    nearest = max(reversed(above), key=lambda mount: len(mount.mountpoint), default=None)
    return nearest is not None and nearest.fstype in _NETWORK


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
    with _try_lock(folder / ".lock") as is_locked:
        if not is_locked:
            return
        sizes = [(path, info) for path in parts(folder) if (info := _stat_or_none(path)) is not None]
        total = sum(info.st_size for _, info in sizes)
        for path, info in sizes:
            is_recent = now.timestamp() - info.st_mtime < LEAST_KEPT_S
            if total <= most_bytes or (is_recent and total <= MOST_TIMES * most_bytes):
                return
            with _try_lock(path) as is_unused, suppress(OSError):
                if is_unused:
                    path.unlink()
                    total -= info.st_size


def _stat_or_none(path: Path) -> os.stat_result | None:
    try:
        return path.stat(follow_symlinks=False)
    except OSError:
        return None


def is_written(path: Path) -> bool:
    """Return whether a process writes the file at present."""
    with _try_lock(path) as is_locked:
        return not is_locked


@contextmanager
def _try_lock(path: Path) -> Iterator[bool]:
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


def last_end(folder: Path, boot_id: str) -> tuple[Path, datetime, bool] | None:
    """Return how the newest other run of sparktop ended, if it ended unexpectedly.

    Return (its file, wall time of its last record, whether the machine has not restarted since: then the
    program was killed, else the machine went down).
    Return None if it ended normally or still runs, or if it left no file that can be read.
    """
    suffix = f"-{os.getpid()}{SUFFIX}"
    path = next((path for path in reversed(parts(folder)) if not path.name.endswith(suffix)), None)
    if path is None or is_written(path):
        return None
    from sparktop.errors import UsageError  # late, like the next: most runs find no such file
    from sparktop.recording.player import Recording

    try:
        recording = Recording([path])
    except UsageError:
        return None
    last = None
    for record in recording.records(recording.frames[-1]):
        last = record
    boot = recording.frames[-1].boot_id
    recording.close()
    if last is None or last.kind == RecordKind.END:
        return None
    return path, last.instant.wall, boot == boot_id


# Incidents: copies of the minutes around chosen alerts, kept when the recorded files are deleted later.


BEFORE_S, AFTER_S = 600.0, 120.0
"""Seconds before and after the beginning of an alert that its copy holds."""
SAME_S = 600.0
"""An alert that begins again within these seconds belongs to the incident that is saved already."""
TOGETHER_S = 30.0
"""Other alerts that begin within these seconds belong to the same incident: a dead node takes its server
along."""
FOUND_S = 60.0
"""An alert of the first minute of a recording is a state that was found, not an incident: there is nothing
before it to show."""
MOST_COPIES = 10
MOST_BYTES = 200_000_000
"""Bytes of all copies together; the oldest copies are deleted first."""
_PARTS = 16
"""Newest files of the recorder from which an incident is copied."""
_END_LEVEL = 1
"""Compression level of the record that ends a copy."""
_STAMP = "%Y%m%dT%H%M%SZ"
_STAMP_LENGTH = 16
"""How the name of a copy begins: the time of its alert in UTC, and the characters of that."""
_NAME_LENGTH = 40
"""Most characters of a subject in the name of a copy."""


def incident_folder(flight: Path) -> Path:
    """Return the folder of the incidents, beside the folder `flight` of the flight recorder."""
    return flight.with_name("incidents")


class Incidents:
    """Saves the minutes before and after each chosen alert as a recording of its own.

    All methods but `on_event` are called in the recorder's thread, or after this thread has ended. Copies
    are written in threads of their own, so that recording continues meanwhile.
    """

    def __init__(self, folder: Path, kinds: Collection[str], report: Callable[[str, Severity], None]) -> None:
        """Prepare to save the alerts whose kind is in `kinds` (such as "unreachable") in `folder`.

        `report` receives one line for each incident, saved or not; it is called in another thread.
        """
        self._folder, self._kinds, self._report = folder, frozenset(kinds), report
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._parts: deque[Path] = deque(maxlen=_PARTS)
        self._waiting: list[Event] = []
        self._begun_s: dict[str, float] = {}
        """Monotonic time at which each incident began, by the id of its alert."""
        self._first_s: float | None = None
        self._newest: Instant | None = None
        """Time of the newest record in the recorder's files."""
        self._copying: list[threading.Thread] = []

    def on_event(self, event: Event) -> None:
        """Accept an event of the store; return at once. Events that begin no chosen alert are ignored."""
        if event.kind in self._kinds and event.phase is not Phase.END and event.at_s is not None:
            self._events.put(event)

    def on_part(self, path: Path) -> None:
        """Accept the path of a file that the recorder has begun."""
        self._parts.append(path)

    def on_written(self, instant: Instant) -> None:
        """Begin to copy the incidents of more than `AFTER_S` seconds before `instant`.

        All records up to `instant` must be in the recorder's files.
        """
        self._first_s = instant.at if self._first_s is None else self._first_s
        self._newest = instant
        self._take_events()
        for event in [waiting for waiting in self._waiting if instant.at - (waiting.at_s or 0.0) >= AFTER_S]:
            self._waiting.remove(event)
            incident = (event, list(self._parts), instant)
            copying = threading.Thread(target=self._save, args=incident, daemon=True)
            copying.start()
            self._copying.append(copying)

    def finish(self) -> None:
        """Save all incidents that still wait, and return when all copies are written."""
        self._take_events()
        for copying in self._copying:
            copying.join()
        while self._waiting and self._newest is not None:
            self._save(self._waiting.pop(0), list(self._parts), self._newest)

    def _take_events(self) -> None:
        """Move each new event to the waiting incidents, unless it belongs to an incident known already."""
        while not self._events.empty():
            event = self._events.get_nowait()
            at_s, begun_s = event.at_s or 0.0, self._begun_s.get(event.about or "", -math.inf)
            is_state = self._first_s is None or at_s - self._first_s < FOUND_S
            is_along = any(at_s - (other.at_s or 0.0) < TOGETHER_S for other in self._waiting)
            if not (is_state or is_along or at_s - begun_s < SAME_S):
                self._begun_s[event.about or ""] = at_s
                self._waiting.append(event)

    def _save(self, event: Event, sources: Iterable[Path], until: Instant) -> None:
        title = f"{clean(event.subject, 60)} {event.kind}"
        try:
            path = self._copy(event, sources, until)
        except (OSError, OutputError) as error:
            self._report(f"incident not saved: {title}: {reason_of(error)}", Severity.WARNING)
            return
        if path is not None:
            self._report(f"incident saved: {title}: sparktop replay {clean(path, 300)}", Severity.INFO)

    def _copy(self, event: Event, sources: Iterable[Path], until: Instant) -> Path | None:
        """Write the copy and return its path; None if another viewer has saved the same incident.

        Raises:
            OSError, OutputError: there is nothing to copy, or it cannot be written.
        """
        make_folder(self._folder)
        with _wait_for_lock(self._folder / ".lock"):
            words = re.sub(r"[^A-Za-z0-9._-]+", "-", event.subject)[:_NAME_LENGTH].strip("-.")
            name = f"{words or 'unnamed'}-{event.kind}{SUFFIX}"
            if any(_is_of_incident(part.name, name, event.at) for part in parts(self._folder)):
                return None
            frames = _newest_within_limit(frames_since((event.at_s or 0.0) - BEFORE_S, sources))
            if not frames:
                raise OutputError("the recorder's files have no readable frame of it")
            _make_room(self._folder, sum(frame.length for frame in frames))
            path = self._folder / f"{event.at.astimezone(UTC).strftime(_STAMP)}-{name}"
            _write_copy(path, frames, until)
            return path


class FrameBytes(Struct, frozen=True):
    """The bytes of one frame of a file."""

    path: Path
    offset: int
    length: int
    is_open: bool
    """Whether the end of the frame is not written yet."""


def frames_since(begin_s: float, sources: Iterable[Path]) -> Iterator[FrameBytes]:
    """Yield the frames with records from the monotonic time `begin_s` on, newest first.

    `sources` are files of one recorder, oldest first; files that cannot be read are left out. Frames
    written before the machine's last start are left out, too, because its monotonic clock started again then:
    the id of their boot differs or, where no id could be read, time goes backwards.
    """
    later_s, later_boot = math.inf, None
    for path in reversed(list(sources)):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            reader = FrameReader(descriptor)
            offsets = list(reader.frames())
            if offsets:
                deque(reader.records(offsets[-1]), maxlen=0)  # reads the last frame, to learn where it ends
            end, is_open = reader.good_end, reader.open_frame
            for offset in reversed(offsets):
                at_s, boot = later_s, later_boot
                if (first_record := reader.first(offset)) is not None:
                    at_s, boot = first_record.instant.at, first_record.fields.get("boot_id")
                if at_s > later_s or boot != (later_boot or boot):
                    return
                yield FrameBytes(path, offset, end - offset, is_open)
                if at_s <= begin_s:
                    return
                end, is_open, later_s, later_boot = offset, False, at_s, boot
        finally:
            os.close(descriptor)


def _newest_within_limit(frames: Iterable[FrameBytes]) -> list[FrameBytes]:
    """Return the newest of `frames` (newest first) within `MOST_BYTES`, oldest first."""
    newest: list[FrameBytes] = []
    size = 0
    for frame in frames:
        size += frame.length
        if size > MOST_BYTES:
            break
        newest.append(frame)
    return newest[::-1]


def _write_copy(path: Path, frames: Iterable[FrameBytes], until: Instant) -> None:
    """Write a new file with these frames and a record of the end at `until`; delete it if that fails.

    Raises:
        OSError, OutputError: it cannot be written, or the disk is nearly full.
    """
    from sparktop.recording.recorder import RecordingFile

    end = Record(RecordKind.END, until, fields={"reason": "end of the incident"})
    writer = FrameWriter(_END_LEVEL)
    end_frame = writer.add(encode(end)) + writer.end()
    file = RecordingFile(path)
    try:
        for frame in frames:
            with frame.path.open("rb") as source:
                source.seek(frame.offset)
                file.append(source.read(frame.length), frame_open=frame.is_open)
        file.end_frame()
        file.append(end_frame, frame_open=False)
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise
    finally:
        file.close()


def _make_room(folder: Path, wanted: int) -> None:
    """Delete the oldest copies until one more with `wanted` bytes is within the limits."""
    copies = [(path, path.stat(follow_symlinks=False).st_size) for path in parts(folder)]
    while copies and (len(copies) >= MOST_COPIES or sum(size for _, size in copies) + wanted > MOST_BYTES):
        oldest, _ = copies.pop(0)
        oldest.unlink()


def _is_of_incident(existing: str, name: str, at: datetime) -> bool:
    """Return whether the file name `existing` is of an incident `name` that began within `SAME_S` of `at`.

    `name` is the part of a file's name after the time: "spark-a-unreachable.rec.zst".
    """
    try:
        began = datetime.strptime(existing[:_STAMP_LENGTH], _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return False
    return existing[_STAMP_LENGTH + 1 :] == name and abs(at - began) < timedelta(seconds=SAME_S)


@contextmanager
def _wait_for_lock(path: Path) -> Iterator[None]:
    """Hold the lock of the folder, for which viewers of the same user wait, during a `with` block."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
