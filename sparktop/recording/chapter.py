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

from sparktop.model.series import Page
from sparktop.model.snapshot import Snapshot
from sparktop.values import dataclass

if TYPE_CHECKING:  # a start without a sweep needs none of it
    from sparktop.model.sweep_view import SweepView


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
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
        return self.snapshot.totals.generation_tps


@dataclass(frozen=True, slots=True)
class Stamp:
    """What is known of a compressed picture without reading it: times as in `Picture`, and its load."""

    at: float
    wall: datetime
    generation_tps: float | None


class Chapter:
    """Successive pictures as compressed bytes: a tenth of what the objects take.

    The pages of their histories are not among these bytes: they stay shared with other pictures.
    """

    __slots__ = ("_data", "_pages", "stamps")

    def __init__(self, pictures: Iterable[Picture]) -> None:
        """Compress `pictures`, oldest first, at least one."""
        kept = [*pictures]
        self.stamps = tuple(Stamp(one.at, one.wall, one.generation_tps) for one in kept)
        buffer = BytesIO()
        pickler = _Pickler(buffer)
        pickler.dump(kept)
        self._pages = tuple(pickler.pages)
        self._data = zlib.compress(buffer.getbuffer(), 1)

    def pictures(self) -> list[Picture]:
        """Return copies of the pictures."""
        found: list[Picture] = _Unpickler(zlib.decompress(self._data), self._pages).load()
        return found


def _page(place: int) -> Page:
    """Stand for a page in the bytes of a chapter; `_Unpickler` calls another function in its place."""
    raise LookupError(place)


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
    """Writes pictures without the pages of their histories, which are collected in `pages`."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.pages = pages = list[Page]()

        def refer(page: Page) -> _Reduced:  # no method: what refers to this pickler would keep the pictures
            pages.append(page)
            return _page, (len(pages) - 1,)

        # Not persistent_id, which is called for every number.
        self.dispatch_table = _Reducers(_REDUCERS)
        self.dispatch_table[Page] = refer


class _Unpickler(pickle.Unpickler):
    """Reads pictures whose histories are in `pages`."""

    def __init__(self, data: bytes, pages: Sequence[Page]) -> None:
        super().__init__(BytesIO(data))
        self._pages = pages

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - classes and functions of all kinds
        """Return what the bytes refer to by name: a class, or in place of `_page` the pages themselves."""
        if module == __name__ and name == _page.__name__:
            return self._pages.__getitem__
        return super().find_class(module, name)
