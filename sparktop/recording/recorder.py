"""Writes recordings: the calls that change a store are collected, and written to a file once a second.

A recording has one file or more, its parts. A file consists of Zstandard frames; each begins with a head, the
state of the store that is needed to play from there.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparktop.errors import OutputError
from sparktop.model.engine import EngineSample
from sparktop.model.instant import Instant
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import Watch
from sparktop.model.text import clean, reason_of
from sparktop.recording.frames import (
    EMPTY_LAST_BLOCK,
    MAGIC,
    FrameReader,
    FrameWriter,
    Record,
    RecordError,
    RecordKind,
    encode,
    is_meant_as_recording,
)
from sparktop.store.store import Call, Change

if TYPE_CHECKING:
    from sparktop.model.sweep import SweepView
    from sparktop.recording.records import Head
    from sparktop.store import Store


_log = logging.getLogger(__name__)

FLUSH_S = 1.0
"""Seconds between two writes to the disk."""
EARLY_BYTES = 4 << 20
"""When this many bytes of pages wait, they are encoded at once, not only when the second is over: pages of
500 servers are 33 MB a second."""
_PIECE_BYTES = 1 << 20
"""Bytes of records that are compressed together."""
FRAME_S = 60.0
"""Seconds of readings in a frame."""
MAX_FRAME_BYTES = 256 << 20
"""Bytes of records of a frame, before compression."""
MAX_WAITING_BYTES = 64 << 20
"""Bytes of metrics pages that may wait for a slow disk; beyond them the oldest items are dropped."""
MAX_WAITING_ITEMS = 100_000
"""Calls that may wait, as for `MAX_WAITING_BYTES`."""
MOST_PART_BYTES = 1 << 30
"""Bytes after which a new file begins."""
RETRY_S = 10.0
"""Seconds between two tries to write after an error."""
END_S = 3.0
"""Seconds that `stop` waits for the thread."""
FEW_BACKENDS = 16
_FEW_LEVEL, _MANY_LEVEL = 6, 3
"""Compression levels of recordings of up to `FEW_BACKENDS` servers, and of more."""

_NO_CHANGE_OF_HEAD = frozenset({Change.ACCEPT, Change.JUDGE, Change.NOTE, Change.MEASURE_SELF})
"""Calls after which the next head is as before; others are kept for it even if they are dropped."""


Item = Call | Snapshot | Callable[[Instant], "Record | None"]
"""A call of the store, a snapshot for the head of the next frame, or a function that makes another record."""


class Recorder:
    """Writes every call that changes a store to a recording; `write` returns at once.

    A problem with the disk is passed to `on_problem` as one line when it begins, and so is its end. Writing
    is tried again until the disk works.
    """

    def __init__(
        self,
        watch: Watch,
        *,
        next_path: Callable[[Instant], Path],
        part_s: float | None = None,
        on_problem: Callable[[str], None] = lambda _: None,
        on_part: Callable[[Path], None] = lambda _: None,
        on_written: Callable[[Instant], None] = lambda _: None,
    ) -> None:
        """Prepare to record a store that watches `watch`; nothing is written before `start`.

        `next_path` returns the path of the file that begins at an instant. A new file begins after `part_s`
        seconds (None: no limit) or `MOST_PART_BYTES` bytes. `on_part` receives the path of each file when it
        has been opened, `on_written` the time of the newest record each time records have been written. They
        and `on_problem` are called in the recorder's thread.
        """
        self._watch = watch
        self._next_path = next_path
        self._part_s = part_s
        self._on_problem, self._on_part, self._on_written = on_problem, on_part, on_written
        self._snapshot: Callable[[], Snapshot] | None = None
        self._items: deque[tuple[Instant, Item]] = deque()
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._dropped = 0
        self._missed: list[Item] = []
        """Calls that were dropped before they were written, and that may change the head."""
        self._snapshot_at: float | None = None
        self._wake, self._stopping = threading.Event(), False
        self._reason = ""
        self._thread: threading.Thread | None = None
        self._head: Head | None = None
        self._file: RecordingFile | None = None
        self._frame: FrameWriter | None = None
        self._frame_bytes = 0
        self._part_at = 0.0
        self._failed_at: float | None = None
        self.problem: str | None = None
        """Why nothing can be written at present; None while that works."""
        self._has_logged = False
        self._last = Instant(0.0, datetime.fromtimestamp(0, UTC))
        """Time of the newest record."""

    def start(self, store: Store) -> None:
        """Start the thread that encodes and writes the calls of `store`; the recorder must be its journal."""
        from sparktop.recording.records import first_head

        self._head = first_head(self._watch, store)
        self._snapshot = store.snapshot
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def stop(self, reason: str) -> None:
        """Write the remaining records and the reason of the end; wait at most `END_S` seconds for this."""
        self._reason, self._stopping = reason, True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(END_S)

    def write(self, instant: Instant, call: Call) -> None:
        """Record a call; called by the store before the call takes effect."""
        # A frame begins with a snapshot of the store: at most one in `FRAME_S`, taken with a judgement.
        is_due = self._snapshot_at is None or instant.at - self._snapshot_at >= FRAME_S
        if call.change is Change.JUDGE and is_due and self._snapshot is not None:
            self._snapshot_at = instant.at
            self._enqueue(instant, self._snapshot())
        self._enqueue(instant, call)

    def mark(self, instant: Instant, word: str) -> None:
        """Record a mark that the user has set; `word` is the user's text for it."""
        fields = {"word": clean(word, 200)}
        self._enqueue(instant, lambda instant: Record(RecordKind.MARK, instant, fields=fields))

    def sweep(self, instant: Instant, view: SweepView | None) -> None:
        """Record the view of a sweep that the overview screen shows from now on; None for no sweep."""
        from sparktop.recording.records import record_of_sweep

        self._enqueue(instant, lambda instant: record_of_sweep(instant, view))

    def _enqueue(self, instant: Instant, item: Item) -> None:
        with self._lock:
            self._items.append((instant, item))
            bytes_before = self._waiting_bytes
            self._waiting_bytes += _page_bytes(item)
            if bytes_before < EARLY_BYTES <= self._waiting_bytes:
                self._wake.set()
            while len(self._items) > MAX_WAITING_ITEMS or self._waiting_bytes > MAX_WAITING_BYTES:
                oldest = self._items.popleft()[1]
                self._waiting_bytes -= _page_bytes(oldest)
                self._dropped += 1
                if isinstance(oldest, Call) and oldest.change not in _NO_CHANGE_OF_HEAD:
                    self._missed.append(oldest)

    def _update_head(self, items: Iterable[Item]) -> None:
        """Update the head by the calls in `items`, which are never written, for the next frame's head."""
        for item in items:
            if isinstance(item, Call) and self._head is not None:
                self._head = self._head.after(item)

    def _run(self) -> None:
        due = time.monotonic() + FLUSH_S
        while True:
            self._wake.wait(max(0.0, due - time.monotonic()))
            self._wake.clear()
            is_due, stopping = time.monotonic() >= due, self._stopping
            try:
                self._flush(stopping=stopping, sync=is_due or stopping)
            except Exception:  # noqa: BLE001 - nothing else handles it; the program must go on
                _log.exception("the recorder failed")
                self._pause("an error in sparktop; its log has more")
            if stopping:
                break
            if is_due:
                due = max(due + FLUSH_S, time.monotonic())  # no pause is added to the time that writing takes
        if self._file is not None:
            self._file.close()

    def _flush(self, *, stopping: bool, sync: bool) -> None:
        waits = self._failed_at is not None and time.monotonic() - self._failed_at < RETRY_S
        if waits and not stopping:
            return
        with self._lock:
            items, dropped, missed = list(self._items), self._dropped, self._missed
            self._items.clear()
            self._waiting_bytes, self._dropped, self._missed = 0, 0, []
        self._update_head(missed)
        if not items and not (stopping and self._frame is not None):
            self._count_dropped(dropped)
            return
        try:
            self._write_items(items, dropped, stopping=stopping, sync=sync)
        except Exception as error:
            self._count_dropped(dropped + len(items))
            # Those that were encoded have updated the head already; a second time changes nothing.
            self._update_head(item for _, item in items)
            if not isinstance(error, OSError | OutputError):
                raise
            self._pause(reason_of(error))
            return
        if self._failed_at is not None:
            self._failed_at = self.problem = None
            self._on_problem("recording goes on")
        self._on_written(self._last)

    def _count_dropped(self, items: int) -> None:
        with self._lock:
            self._dropped += items

    def _pause(self, reason: str) -> None:
        self.problem = reason
        if self._failed_at is None:
            self._on_problem(f"recording pauses: {reason}; next try in {RETRY_S:.0f} s")
        self._failed_at = time.monotonic()
        self._frame = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write_items(
        self, items: list[tuple[Instant, Item]], dropped: int, *, stopping: bool, sync: bool
    ) -> None:
        """Encode and write `items`; begin a new frame or file where the time or size limit is reached.

        `dropped` is the number of items dropped since the previous write. `stopping` adds the record of
        the end. With `sync`, wait until all is on the disk.
        """
        self._last = items[-1][0] if items else self._last
        first = items[0][0] if items else self._last
        if self._file is not None and self._file.is_gone():
            self._file.close()
            self._file = self._frame = None
        blocks, plain = bytearray(), bytearray()
        for instant, item in items:
            if isinstance(item, Snapshot) or self._frame is None or self._frame_bytes > MAX_FRAME_BYTES:
                blocks += self._end_frame(plain)
                plain.clear()
                if self._is_part_due(instant) and blocks and self._file is not None:
                    self._file.append(bytes(blocks), frame_open=False, sync=True)
                    blocks.clear()
                blocks += self._begin_frame(instant, item)
            if dropped:
                plain += encode(Record(RecordKind.LAG, first, fields={"dropped": dropped}))
                dropped = 0
            plain += self._encode_item(instant, item)
            if len(plain) >= _PIECE_BYTES:
                blocks += self._compress(bytes(plain))
                plain.clear()
        if self._file is None:  # deleted meanwhile, and nothing new to write
            return
        if stopping:
            if dropped:
                plain += encode(Record(RecordKind.LAG, first, fields={"dropped": dropped}))
            plain += encode(Record(RecordKind.END, self._last, fields={"reason": self._reason}))
        blocks += self._end_frame(plain) if stopping else self._compress(bytes(plain))
        self._file.append(bytes(blocks), frame_open=self._frame is not None, sync=sync)

    def _compress(self, text: bytes) -> bytes:
        assert self._frame is not None  # noqa: S101 - only within a frame
        self._frame_bytes += len(text)
        return self._frame.add(text) if text else b""

    def _end_frame(self, text: bytes | bytearray) -> bytes:
        """Add `text` to the open frame and end it; return the bytes to write, empty if no frame is open."""
        if self._frame is None:
            return b""
        ended = self._compress(bytes(text)) + self._frame.end()
        self._frame = None
        return ended

    def _begin_frame(self, instant: Instant, item: Item) -> bytes:
        """Begin a frame, perhaps in a new file; return the bytes of its head to write."""
        from sparktop.recording.records import announcements, record_of_head

        assert self._head is not None  # noqa: S101 - set when the thread starts
        if isinstance(item, Snapshot):
            self._head = replace(self._head, announced=announcements(item))
        if self._file is None or self._is_part_due(instant):
            if self._file is not None:
                self._file.close()
                self._file = None  # the next one may fail to open
            self._file = RecordingFile(self._next_path(instant))
            self._part_at = instant.at
            self._on_part(self._file.path)
        few = len(self._watch.backends) <= FEW_BACKENDS
        self._frame = FrameWriter(_FEW_LEVEL if few else _MANY_LEVEL, small=few)
        self._frame_bytes = 0
        return self._compress(encode(record_of_head(instant, self._head)))

    def _is_part_due(self, instant: Instant) -> bool:
        if self._file is None:
            return False
        is_old = self._part_s is not None and instant.at - self._part_at >= self._part_s
        return is_old or self._file.length >= MOST_PART_BYTES

    def _encode_item(self, instant: Instant, item: Item) -> bytes:
        """Return the bytes of the record of `item`; empty if it has none that can be encoded."""
        try:
            record = self._record_of_item(instant, item)
            return b"" if record is None else encode(record)
        except (RecordError, ValueError):  # too large, or text or a number that JSON cannot express
            self._count_dropped(1)
            if not self._has_logged:
                _log.exception("a record cannot be written; the same for later ones is not logged")
                self._has_logged = True
            return b""

    def _record_of_item(self, instant: Instant, item: Item) -> Record | None:
        from sparktop.recording.records import record_of

        if isinstance(item, Snapshot):
            return None
        if not isinstance(item, Call):
            return item(instant)
        assert self._head is not None  # noqa: S101 - set when the thread starts
        self._head = self._head.after(item)
        return record_of(instant, item)


def _page_bytes(item: Item) -> int:
    """Return the size in bytes of the metrics page that `item` carries; 0 if it carries none."""
    if not isinstance(item, Call) or item.change is not Change.ACCEPT:
        return 0
    reading = item.arguments[1]
    return len(reading.page) if isinstance(reading, EngineSample) and reading.page is not None else 0


MIN_FREE_BYTES = 1 << 30
MIN_FREE_SHARE = 0.02
"""Writing pauses while the disk has less room than the larger of these: others need it too."""
_MIB = 1 << 20
_LOCK_TRIES, _LOCK_PAUSE_S = 10, 0.02
"""How often a lock is tried, and seconds in between: a fifth of a second together."""
_CLOSED = -1
"""Descriptor of a file that is closed: its old number may already be that of another file."""


class RecordingFile:
    """An open file to which one process appends blocks: locked, and kept readable whatever happens."""

    def __init__(self, path: Path) -> None:
        """Create the file (mode 0600), or open an existing recording and append to it.

        A torn end of an existing recording is cut off first.

        Raises:
            OutputError: the file is something else, another process writes to it, or it cannot be opened.
        """
        self.path = path
        self._is_new = not path.exists()
        for _ in range(_LOCK_TRIES):
            self._descriptor = _open_or_create(path)
            try:
                self.length = self._find_end()
                """Length of the file in bytes, up to the end of its last completely written block."""
            except OSError as error:
                os.close(self._descriptor)
                raise OutputError(f"{clean(path, 300)}: cannot be read: {reason_of(error)}") from None
            except BaseException:
                os.close(self._descriptor)
                raise
            if not self.is_gone():  # deleted by another process before it was locked
                break
            os.close(self._descriptor)
        else:
            raise OutputError(f"{clean(path, 300)}: another process deletes this recording")
        self._frame_open = False

    def check_room(self) -> None:
        """Check, before anything is measured, that there is room to write.

        Raises:
            OutputError: the disk is nearly full.
        """
        try:
            require_room(self._descriptor)
        except OSError as error:
            raise OutputError(f"{clean(self.path, 300)}: cannot be written: {reason_of(error)}") from None

    def append(self, data: bytes, *, frame_open: bool, sync: bool = True) -> None:
        """Append complete Zstandard blocks; with `sync`, wait until they are on the disk.

        `frame_open` is whether the frame of the last block continues in later blocks.

        Raises:
            OSError: not everything could be written, or the disk is nearly full; the file ends with the last
                complete block, and its frame is ended.
        """
        try:
            require_room(self._descriptor)
            _write_all(self._descriptor, data, self.length)
            if sync:
                os.fdatasync(self._descriptor)
        except OSError:
            self.end_frame()
            raise
        self.length += len(data)
        self._frame_open = frame_open

    def end_frame(self) -> None:
        """Cut off an incomplete block at the end of the file and end the open frame; ignore disk errors."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, self.length)
            if self._frame_open:
                _write_all(self._descriptor, EMPTY_LAST_BLOCK, self.length)
                self.length += len(EMPTY_LAST_BLOCK)
                self._frame_open = False

    def is_gone(self) -> bool:
        """Return whether the path no longer leads to this file: deleted, moved or replaced."""
        try:
            return not os.path.samestat(self.path.stat(), os.fstat(self._descriptor))
        except OSError:
            return True

    def close(self) -> None:
        """End the frame and close the file; delete it if it was created here and nothing was written.

        A second call does nothing.
        """
        self.end_frame()
        with suppress(OSError):
            if self._is_new and not self.length and not self.is_gone():
                self.path.unlink()
        with suppress(OSError):
            os.close(self._descriptor)
        self._descriptor = _CLOSED

    def _find_end(self) -> int:
        """Return the offset at which to append, after cutting off a torn end of an earlier recording."""
        if not _lock_file(self._descriptor):
            raise OutputError(f"{clean(self.path, 300)}: another process writes this recording")
        size = os.fstat(self._descriptor).st_size
        if size == 0:
            return 0
        if os.pread(self._descriptor, len(MAGIC), 0) != MAGIC:
            raise OutputError(f"{clean(self.path, 300)} does not begin as a recording: choose another name")
        reader = FrameReader(self._descriptor)
        for _ in reader.records(max(reader.frames(), default=0)):
            pass
        self.length, self._frame_open = reader.good_end, reader.open_frame
        self.end_frame()
        return self.length


def is_recording(path: Path) -> bool:
    """Return whether a file is a recording, perhaps a damaged one; False if it cannot be read."""
    try:
        if not path.is_file():  # opening a pipe would wait
            return False
        with path.open("rb") as file:
            return is_meant_as_recording(path.name, file.read(len(MAGIC)))
    except (OSError, ValueError):
        return False


def _open_or_create(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise OutputError(f"{clean(path, 300)}: cannot be written: {reason_of(error)}") from None
    if not os.path.isfile(f"/proc/self/fd/{descriptor}"):  # noqa: PTH113 - a descriptor, not a path
        os.close(descriptor)
        raise OutputError(f"{clean(path, 300)}: a recording needs a regular file")
    with suppress(OSError):  # a new name in a folder is on the disk only after this
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return descriptor


def _lock_file(descriptor: int) -> bool:
    """Lock the file; return False if another process holds the lock.

    Tries for a fifth of a second, because a process that tests whether the file is being written holds the
    lock for a moment. Return True also where the file system has no locks.
    """
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # File systems without locks refuse with another error: then nothing guards against two writers.
            if error.errno not in {errno.EAGAIN, errno.EACCES}:
                return True
            time.sleep(_LOCK_PAUSE_S)
        else:
            return True
    return False


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def require_room(descriptor: int) -> None:
    """Check the free space of the disk with an open file.

    Raises:
        OSError: there is less than is left to others.
    """
    disk = os.fstatvfs(descriptor)
    free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    least_free_bytes = max(MIN_FREE_BYTES, MIN_FREE_SHARE * size)
    if free < least_free_bytes:
        room = f"{free / _MIB:,.0f} MiB are free, and {least_free_bytes / _MIB:,.0f} are left to others"
        raise OSError(errno.ENOSPC, f"the disk is nearly full: {room}")
