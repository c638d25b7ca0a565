"""Temporary files for what is kept but rarely read: old pictures and the histories that they show."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from sparktop.recording.recorder import require_room

PART_BYTES = 16 << 20
"""Bytes after which the next file begins."""


class _Part:
    """A file without a name, which is gone as soon as nothing in it is needed, or the process ends."""

    __slots__ = ("descriptor", "size")

    def __init__(self, folder: Path) -> None:
        self.size = 0
        with tempfile.TemporaryFile(dir=folder) as file:
            self.descriptor = os.dup(file.fileno())

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):  # False if the file could not be created
            os.close(self.descriptor)


class Stored:
    """Bytes in a file."""

    __slots__ = ("_at", "_part", "_size")

    def __init__(self, part: _Part, at: int, size: int) -> None:
        """Refer to `size` bytes from the offset `at` on."""
        self._part, self._at, self._size = part, at, size

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        """Return the bytes from `start` to `stop`, by default all of them.

        Raises:
            OSError: they cannot be read.
        """
        wanted = (self._size if stop is None else stop) - start
        data = os.pread(self._part.descriptor, wanted, self._at + start)
        if len(data) < wanted:
            raise OSError(errno.EIO, "the temporary file is too short")
        return data


class Spool:
    """Stores bytes in temporary files in a folder."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`, in which the first file is created with the first bytes."""
        self._folder = folder
        self._part: _Part | None = None

    def store(self, data: bytes) -> Stored:
        """Write `data` to a file.

        Raises:
            OSError: it cannot be written, or the disk is nearly full.
        """
        part = self._part
        if part is None or part.size >= PART_BYTES:
            part = self._part = _Part(self._folder)
        require_room(part.descriptor)
        view, at = memoryview(data), part.size
        while view:
            written = os.pwrite(part.descriptor, view, part.size)
            view, part.size = view[written:], part.size + written
        return Stored(part, at, len(data))
