"""Pictures of a minute, compressed: what going back in time needs of memory."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from copyreg import dispatch_table
from dataclasses import fields, is_dataclass
from datetime import datetime
from io import BytesIO
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sparktop.model.fleet import Fleet
from sparktop.model.history_page import Page
from sparktop.model.snapshot import Snapshot
from sparktop.recording.spool import Spool, Stored

if TYPE_CHECKING:  # a start without a sweep needs none of it
    from sparktop.model.sweep import SweepView


class Picture(Struct, frozen=True, eq=False):
    """All that the screen showed at a moment."""

    snapshot: Snapshot
    sweep: SweepView | None = None
    """The sweep of that moment, running or finished."""

    @property
    def at(self) -> float:
        """Time of the snapshot in monotonic seconds."""
        return self.snapshot.at

    @property
    def wall(self) -> datetime:
        """Time of the snapshot in UTC."""
        return self.snapshot.taken_at

    @property
    def generation_tps(self) -> float | None:
        """Tokens generated per second by all backends; None if that is not known."""
        return self.snapshot.totals.generation_tps.value


class Stamp(Struct, frozen=True):
    """What is known of a compressed picture without reading it: times as in `Picture`, and its load."""

    at: float
    wall: datetime
    generation_tps: float | None


class _Packed:
    """Compressed bytes, in memory or in a temporary file."""

    __slots__ = ("_data",)

    def __init__(self, data: memoryview) -> None:
        self._data: bytes | Stored = zlib.compress(data, 1)

    def read(self) -> bytes:
        """Return the bytes, decompressed.

        Raises:
            OSError: they cannot be read from the file.
        """
        data = self._data
        return zlib.decompress(data if isinstance(data, bytes) else data.read())

    def move(self, spool: Spool) -> None:
        """Move the bytes to a temporary file, unless they are in one.

        Raises:
            OSError: it cannot be written.
        """
        data = self._data
        if isinstance(data, bytes):
            self._data = spool.store(data)


class Chapter:
    """Successive pictures as compressed bytes: a tenth of what the objects take.

    The pages of their histories are not among these bytes: they stay shared with other pictures. So do the
    answers of a Prometheus, each compressed once: it answers every 15 s, with figures of 10,000 servers.
    """

    __slots__ = ("_data", "_fleets", "_pages", "is_moved", "stamps")

    def __init__(self, pictures: Iterable[Picture]) -> None:
        """Compress `pictures`, oldest first, at least one."""
        kept = [*pictures]
        self.stamps = tuple(Stamp(one.at, one.wall, one.generation_tps) for one in kept)
        self.is_moved = False
        """Whether what only old pictures need is in temporary files, as far as it was old at the last call of
        `move`."""
        buffer = BytesIO()
        pickler = _Pickler(buffer)
        pickler.dump(kept)
        self._pages, self._fleets = tuple(pickler.pages), tuple(packed for _, packed in pickler.fleets)
        _newest[:] = pickler.fleets
        self._data = _Packed(buffer.getbuffer())

    def pictures(self) -> list[Picture]:
        """Return copies of the pictures.

        Raises:
            OSError: they were moved to a file, and cannot be read from it.
        """
        found: list[Picture] = _Unpickler(self._data.read(), self._pages, self._fleets).load()
        return found

    def move(self, spool: Spool) -> None:
        """Move all that only old pictures need to temporary files. This may be called in any thread.

        Raises:
            OSError: they cannot be written; what was not moved stays in memory.
        """
        try:
            self._data.move(spool)
            for packed in self._fleets:
                packed.move(spool)
            for page in self._pages:
                page.move(spool.store)
        except OSError:
            self.is_moved = False
            raise
        self.is_moved = True


def _page(place: int) -> Page:
    """Stand for a page in the bytes of a chapter; `_Unpickler` calls another function in its place."""
    raise LookupError(place)


def _fleet(place: int) -> Fleet:
    """Stand for an answer of a Prometheus, as `_page` for a page."""
    raise LookupError(place)


_newest: list[tuple[Fleet, _Packed]] = []
"""The answers in the newest chapter, each with its compressed bytes."""


def _packed(fleet: Fleet) -> _Packed:
    """Return an answer as compressed bytes, the same for the same one."""
    known = next((packed for one, packed in _newest if one is fleet), None)
    if known is not None:
        return known
    buffer = BytesIO()
    pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(fleet)
    return _Packed(buffer.getbuffer())


_Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


class _Reducers(dict[type, Callable[[Any], Any]]):
    """Functions by class that return (function, arguments) with which a value can be made again.

    For a dataclass these are its class and its fields, which takes less time and space than the usual way.
    """

    def __missing__(self, cls: type) -> Callable[[Any], _Reduced]:
        """Return the function for a dataclass.

        Raises:
            KeyError: the class is not a dataclass; its values are written in the usual way.
        """
        if not is_dataclass(cls):
            raise KeyError(cls)
        names = [one.name for one in fields(cls)]
        single = attrgetter(names[0])
        read = attrgetter(*names) if len(names) > 1 else lambda value: (single(value),)
        self[cls] = lambda value: (cls, read(value))
        return self[cls]


_REDUCERS = _Reducers(dispatch_table)
_REDUCERS[MappingProxyType] = lambda mapping: (_read_only, (dict(mapping),))


def _read_only(mapping: Mapping[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(mapping)


class _Pickler(pickle.Pickler):
    """Writes pictures without the pages of their histories, and without answers of a Prometheus.

    These are collected in `pages` and `fleets`.
    """

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.pages = pages = list[Page]()

        def refer(page: Page) -> _Reduced:  # no method: what refers to this pickler would keep the pictures
            pages.append(page)
            return _page, (len(pages) - 1,)

        self.fleets = fleets = list[tuple[Fleet, _Packed]]()

        def refer_fleet(fleet: Fleet) -> _Reduced:
            fleets.append((fleet, _packed(fleet)))
            return _fleet, (len(fleets) - 1,)

        # Not persistent_id, which is called for every number.
        self.dispatch_table = _Reducers(_REDUCERS)
        self.dispatch_table[Page] = refer
        self.dispatch_table[Fleet] = refer_fleet


class _Unpickler(pickle.Unpickler):
    """Reads pictures whose histories are in `pages`, and answers of a Prometheus in `fleets`."""

    def __init__(self, data: bytes, pages: Sequence[Page], fleets: Sequence[_Packed]) -> None:
        super().__init__(BytesIO(data))
        self._pages = pages
        self._fleets = fleets

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - classes and functions of all kinds
        """Return what the bytes refer to by name: a class, or in place of `_page` the pages themselves.

        In place of `_fleet` that is a function which reads the bytes of an answer.
        """
        if module == __name__ and name == _page.__name__:
            return self._pages.__getitem__
        if module == __name__ and name == _fleet.__name__:
            return lambda place: pickle.loads(self._fleets[place].read())  # noqa: S301 - written here
        return super().find_class(module, name)
