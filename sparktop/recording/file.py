"""The file of a recording while it is written: locked, appended to, and kept readable whatever happens."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from sparktop.errors import OutputError
from sparktop.model.text import clean
from sparktop.recording.frames import EMPTY_LAST_BLOCK, MAGIC, FrameReader

MIN_FREE_BYTES = 1 << 30
MIN_FREE_SHARE = 0.02
"""Writing pauses while the disk has less room than the larger of these: others need it too."""
_MIB = 1 << 20
_LOCK_TRIES, _LOCK_PAUSE_S = 10, 0.02


class RecordingFile:
    """An open file to which one process appends blocks."""

    def __init__(self, path: Path) -> None:
        """Create the file (mode 0600), or open an existing recording and append to it.

        A torn end of an existing recording is cut off first.

        Raises:
            OutputError: the file is something else, another process writes to it, or it cannot be opened.
        """
        self.path = path
        self._is_new = not path.exists()
        for _ in range(_LOCK_TRIES):
            self._descriptor = _open(path)
            try:
                self._good_end = self._resume()
            except OutputError:
                os.close(self._descriptor)
                raise
            if not self.is_gone():  # deleted by another process before it was locked
                break
            os.close(self._descriptor)
        else:
            raise OutputError(f"{clean(path, 300)}: another process deletes this recording")
        self._frame_open = False

    @property
    def length(self) -> int:
        """Length of the file in bytes, up to the end of its last completely written block."""
        return self._good_end

    def check_room(self) -> None:
        """Check, before anything is measured, that there is room to write.

        Raises:
            OutputError: the disk is nearly full.
        """
        try:
            require_room(self._descriptor)
        except OSError as error:
            raise OutputError(
                f"{clean(self.path, 300)}: cannot be written: {clean(error.strerror)}"
            ) from None

    def append(self, data: bytes, *, frame_open: bool, sync: bool = True) -> None:
        """Append complete Zstandard blocks; with `sync`, wait until they are on the disk.

        `frame_open` is whether the frame of the last block continues in later blocks.

        Raises:
            OSError: not everything could be written, or the disk is nearly full; the file ends with the last
                complete block, and its frame is ended.
        """
        try:
            require_room(self._descriptor)
            _write(self._descriptor, data, self._good_end)
            if sync:
                os.fdatasync(self._descriptor)
        except OSError:
            self.end_frame()
            raise
        self._good_end += len(data)
        self._frame_open = frame_open

    def end_frame(self) -> None:
        """Cut off an incomplete block at the end of the file and end the open frame; ignore disk errors."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._good_end)
            if self._frame_open:
                _write(self._descriptor, EMPTY_LAST_BLOCK, self._good_end)
                self._good_end += len(EMPTY_LAST_BLOCK)
                self._frame_open = False

    def is_gone(self) -> bool:
        """Return whether the path no longer leads to this file: deleted, moved or replaced."""
        try:
            there, own = self.path.stat(), os.fstat(self._descriptor)
        except OSError:
            return True
        return (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino)

    def close(self) -> None:
        """End the frame and close the file; delete it if it was created here and nothing was written."""
        self.end_frame()
        with suppress(OSError):
            if self._is_new and not self._good_end and not self.is_gone():
                self.path.unlink()
        with suppress(OSError):
            os.close(self._descriptor)

    def _resume(self) -> int:
        """Return the offset at which to append, after cutting off a torn end of an earlier recording."""
        if not _is_locked(self._descriptor):
            raise OutputError(f"{clean(self.path, 300)}: another process writes this recording")
        size = os.fstat(self._descriptor).st_size
        if size == 0:
            return 0
        if os.pread(self._descriptor, len(MAGIC), 0) != MAGIC:
            raise OutputError(f"{clean(self.path, 300)} exists and is not a recording: choose another name")
        reader = FrameReader(self._descriptor)
        for _ in reader.records(_last_frame(reader)):
            pass
        self._good_end, self._frame_open = reader.good_end, reader.open_frame
        self.end_frame()
        return self._good_end


def is_recording(path: Path) -> bool:
    """Return whether a file begins like a recording; False if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return False
    try:
        return os.pread(descriptor, len(MAGIC), 0) == MAGIC
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _last_frame(reader: FrameReader) -> int:
    last = 0
    for offset in reader.frames():
        last = offset
    return last


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise OutputError(f"{clean(path, 300)}: cannot be written: {clean(error.strerror)}") from None
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


def _is_locked(descriptor: int) -> bool:
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


def _write(descriptor: int, data: bytes, offset: int) -> None:
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
    left = max(MIN_FREE_BYTES, MIN_FREE_SHARE * size)
    if free < left:
        room = f"{free / _MIB:,.0f} MiB are free, and {left / _MIB:,.0f} are left to others"
        raise OSError(errno.ENOSPC, f"the disk is nearly full: {room}")
