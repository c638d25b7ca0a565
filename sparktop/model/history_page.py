"""Pages of time series: successive points of all series of a table, packed or moved out of memory."""

from __future__ import annotations

import math
import zlib
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Protocol

_FLOAT_BYTES = 8
_UNPACKED = 512
"""Packed columns that are kept unpacked after they were read: those that a screen shows."""
_REPEATED = 0.6
"""A column is compressed if at most this share of its values differ: others would hardly take less."""
_BEFORE_ALL, _MISSING = array("d", [-math.inf]).tobytes(), array("d", [math.nan]).tobytes()
"""Time and value of a point that cannot be read."""


class Stored(Protocol):
    """Bytes outside memory."""

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop`.

        Raises:
            OSError: they cannot be read.
        """
        ...


class _Moved:
    """The columns of a page outside memory, each of which is read when it is needed.

    If that fails, the page has no point: all times are before any other, and all values missing.
    """

    __slots__ = ("_codes", "_ends", "_stored", "length")

    def __init__(
        self, columns: Sequence[array[float] | bytes], length: int, store: Callable[[bytes], Stored]
    ) -> None:
        parts = [one if isinstance(one, bytes) else one.tobytes() for one in columns]
        self._codes = "".join(" " if isinstance(one, bytes) else one.typecode for one in columns)
        self._ends = array("I", accumulate(map(len, parts)))
        self.length = length
        self._stored = store(b"".join(parts))

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, place: int) -> array[float] | bytes:
        try:
            data = self._stored.read(self._ends[place - 1] if place else 0, self._ends[place])
        except OSError:
            return _constant(_MISSING if place else _BEFORE_ALL, self.length)
        code = self._codes[place]
        return data if code == " " else array(code, data)


class Page:
    """Successive points of all series of a table: an array of times, and an array of values per series.

    Only the newest page of a table grows. All others are packed without loss, and can be moved out of memory
    once their table has dropped them.
    """

    __slots__ = ("_columns", "is_dropped")

    def __init__(self, arrays: Sequence[array[float]]) -> None:
        """Use these arrays, first the times in monotonic seconds; all have equal lengths."""
        self._columns: list[array[float] | bytes] | _Moved = [*arrays]
        self.is_dropped = False
        """Whether the table has dropped the page, so that only old series need it."""

    def __len__(self) -> int:
        columns = self._columns
        return columns.length if isinstance(columns, _Moved) else len(columns[0])

    def column(self, place: int) -> array[float]:
        """Return the times (place 0), or the values of the series with this place in the table."""
        column = self._columns[place]
        return _unpacked(column) if isinstance(column, bytes) else column

    @property
    def arrays(self) -> list[array[float]]:
        """The array of times and the arrays of values, in the order of the table's names."""
        return [self.column(place) for place in range(len(self._columns))]

    @property
    def times(self) -> array[float]:
        """The times of the points in monotonic seconds, ascending."""
        return self.column(0)

    def is_gap(self, row: int) -> bool:
        """Return whether every series has a gap at this point."""
        return all(math.isnan(column[row]) for column in self.arrays[1:])

    def pack(self) -> None:
        """Store the values in fewer bytes, about a third; no point may be appended any more.

        The times stay as they are, because every reader searches in them.
        """
        columns = self._columns
        if not isinstance(columns, _Moved):
            self._columns = [columns[0][:], *map(_packed, columns[1:])]

    def move(self, store: Callable[[bytes], Stored]) -> None:
        """Move a page that its table has dropped out of memory; do nothing if it has been moved before.

        `store` writes bytes and returns what reads them. This may be called in any thread.

        Raises:
            OSError: as `store` raises it; the page stays as it was.
        """
        columns = self._columns
        if self.is_dropped and not isinstance(columns, _Moved):
            self._columns = _Moved([columns[0], *map(_stored_form, columns[1:])], len(columns[0]), store)


def _packed(column: array[float] | bytes) -> array[float] | bytes:
    """Return a column in fewer bytes: shared if constant, in single precision if exact, or compressed."""
    if isinstance(column, bytes) or column.typecode != "d":
        return column  # packed before
    raw = column.tobytes()
    if _is_constant(raw):
        return _constant(raw[:_FLOAT_BYTES], len(column))
    single = array("f", column)
    if array("d", single).tobytes() == raw:
        return single
    if len(set(array("q", raw))) > _REPEATED * len(column):
        return column[:]
    return _compressed(raw)


def _stored_form(column: array[float] | bytes) -> array[float] | bytes:
    """Return a column as it is written to a file: as `_packed`, and compressed if it is constant."""
    packed = _packed(column)
    if isinstance(packed, bytes) or packed.typecode != "d":
        return packed
    raw = packed.tobytes()
    return _compressed(raw) if _is_constant(raw) else packed


def _is_constant(raw: bytes) -> bool:
    return raw == raw[:_FLOAT_BYTES] * (len(raw) // _FLOAT_BYTES)


def _compressed(raw: bytes) -> bytes:
    # Equal bytes of neighbouring numbers side by side compress to half of what whole numbers do.
    return zlib.compress(b"".join(raw[place::_FLOAT_BYTES] for place in range(_FLOAT_BYTES)), 1)


@lru_cache(_UNPACKED)
def _constant(raw: bytes, length: int) -> array[float]:
    return array("d", raw * length)


@lru_cache(_UNPACKED)
def _unpacked(data: bytes) -> array[float]:
    """Return a compressed column."""
    shuffled = zlib.decompress(data)
    raw, length = bytearray(len(shuffled)), len(shuffled) // _FLOAT_BYTES
    for place in range(_FLOAT_BYTES):
        raw[place::_FLOAT_BYTES] = shuffled[place * length : (place + 1) * length]
    return array("d", bytes(raw))
