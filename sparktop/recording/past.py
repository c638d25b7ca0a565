"""Recent snapshots, kept compressed in memory, so that the screen can show a past moment.

`Past` keeps those of the last half hour, all but the newest as `PictureChunk`s of compressed bytes.
"""

from __future__ import annotations

import pickle
import zlib
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from copyreg import dispatch_table
from datetime import datetime
from io import BytesIO
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from sparktop.model.event import Event
from sparktop.model.instant import Countdown
from sparktop.model.router import Fleet
from sparktop.model.series import Block
from sparktop.model.snapshot import Snapshot

if TYPE_CHECKING:
    from sparktop.model.sweep import SweepView  # most sessions have no sweep


class PastPicture(Struct, frozen=True, eq=False):
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


class PictureStamp(Struct, frozen=True):
    """What is known of a compressed picture without reading it: times as in `PastPicture`, and its load."""

    at: float
    wall: datetime
    generation_tps: float | None


class PictureChunk:
    """Successive pictures as compressed bytes: a tenth of what the objects take.

    The pages of their histories are not among these bytes: they stay shared with other pictures. So do the
    answers of a Prometheus, each compressed once: it answers every 15 s, with figures of 10,000 servers.
    """

    __slots__ = ("_data", "_fleets", "_pages", "stamps")

    def __init__(self, pictures: Iterable[PastPicture]) -> None:
        """Compress `pictures`, oldest first, at least one."""
        kept = [*pictures]
        self.stamps = tuple(
            PictureStamp(picture.at, picture.wall, picture.generation_tps) for picture in kept
        )
        buffer = BytesIO()
        pickler = _Pickler(buffer)
        pickler.dump(kept)
        self._pages, self._fleets = tuple(pickler.pages), tuple(packed for _, packed in pickler.fleets)
        _newest[:] = pickler.fleets
        self._data = zlib.compress(buffer.getbuffer(), 1)

    def pictures(self) -> list[PastPicture]:
        """Return copies of the pictures."""
        data = zlib.decompress(self._data)
        pictures: list[PastPicture] = _Unpickler(data, self._pages, self._fleets).load()
        return pictures


def _page_reference(index: int) -> Block:
    """Stand for a page in the bytes of a chunk; `_Unpickler` calls another function in its place."""
    raise LookupError(index)


def _fleet_reference(index: int) -> Fleet:
    """Stand for an answer of a Prometheus, as `_page_reference` for a page."""
    raise LookupError(index)


_newest: list[tuple[Fleet, bytes]] = []
"""The answers in the newest chunk, each with its compressed bytes."""


_Reduced = tuple[Callable[..., Any], tuple[Any, ...]]
"""(function, its arguments) that make an object again, as `pickle` reduces it."""


class _Pickler(pickle.Pickler):
    """Writes pictures without the pages of their histories, and without answers of a Prometheus.

    These are collected in `pages` and `fleets`.
    """

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.pages = pages = list[Block]()

        def refer(page: Block) -> _Reduced:  # no method: what refers to this pickler would keep the pictures
            pages.append(page)
            return _page_reference, (len(pages) - 1,)

        self.fleets = fleets = list[tuple[Fleet, bytes]]()

        def refer_fleet(fleet: Fleet) -> _Reduced:
            packed = next((packed for answer, packed in _newest if answer is fleet), None)
            packed = packed or zlib.compress(pickle.dumps(fleet, pickle.HIGHEST_PROTOCOL), 1)
            fleets.append((fleet, packed))
            return _fleet_reference, (len(fleets) - 1,)

        # Not persistent_id, which is called for every number.
        self.dispatch_table = {**dispatch_table, Block: refer, Fleet: refer_fleet}


class _Unpickler(pickle.Unpickler):
    """Reads pictures whose histories are in `pages`, and answers of a Prometheus in `fleets`."""

    def __init__(self, data: bytes, pages: Sequence[Block], fleets: Sequence[bytes]) -> None:
        super().__init__(BytesIO(data))
        self._pages = pages
        self._fleets = fleets

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - classes and functions of all kinds
        """Return what the bytes refer to by name: a class, or what stands behind one of our two references.

        Behind `_page_reference` are the pages themselves, behind `_fleet_reference` is a function which reads
        the bytes of an answer.
        """
        if module == __name__ and name == _page_reference.__name__:
            return self._pages.__getitem__
        if module == __name__ and name == _fleet_reference.__name__:
            return lambda index: pickle.loads(zlib.decompress(self._fleets[index]))  # noqa: S301 - written here
        return super().find_class(module, name)


SPEEDS = (1, 2, 4, 8, 16, 32, 64)
"""How many times as fast as it was the past can be played."""


def next_speed(speed: int, step: int) -> int:
    """Return the next higher (`step` 1) or lower (-1) of `SPEEDS`; the highest and the lowest stay."""
    beyond = [other for other in SPEEDS if (other > speed if step > 0 else other < speed)]
    return (beyond or [speed])[0 if step > 0 else -1]


Band: TypeAlias = "SweepView | Countdown | None"
"""The sweep's panel on the board."""

RECENT_S = 300.0
"""Snapshots of the last 5 minutes are kept one a second."""
KEPT_S = 1800.0
"""Older ones are kept one in `SPARSE_S`, up to this age."""
SPARSE_S = 5.0
FEW_SOURCES, FEW_SCRAPED = 6, 256
"""Of more sources, or more that Prometheus servers scrape, each snapshot is compressed when the next one
comes, and all are equally far apart."""
MINUTE_S = 60.0
"""Older than `RECENT_S`, the snapshots of this time become fewer, and are compressed, together."""
BUDGET_BYTES = 32 << 20
"""About the most that compressed snapshots take."""
SOURCE_BYTES = 1_200
"""About what a compressed snapshot takes for each source (measured)."""
_MOST_EVENTS = 1_000
"""Events of earlier snapshots that are kept; of more, the newer half stays."""


def picture_of(snapshot: Snapshot, band: Callable[[], Band]) -> PastPicture:
    """Return a picture with `snapshot`, and with the view of a sweep if the screen's sweep panel shows one.

    `band` returns what that panel shows: a view, a countdown to a sweep (which is not stored) or None.
    """
    sweep = band()
    return PastPicture(snapshot, None if isinstance(sweep, Countdown) else sweep)


class Past:
    """Keeps the pictures of about the last half hour: one per second of the last minutes, fewer before.

    All but those of the last minutes are compressed, and read when one of them is shown. With more than
    `FEW_SOURCES` all but the newest are, and with many sources they are farther apart, so that they take
    about `BUDGET_BYTES` at most.
    """

    def __init__(self) -> None:
        """Start without pictures."""
        self._sparse: deque[PictureChunk] = deque()
        self._recent: deque[PastPicture] = deque()
        self._read: tuple[PictureChunk, list[PastPicture]] | None = None
        """The chunk that was read last, and its pictures."""
        self._events: dict[tuple[datetime, str, str], Event] = {}
        self._least_apart_s = 1.0
        """Seconds between two pictures, so that those of many sources stay within the budget."""

    def __len__(self) -> int:
        return len(self.stamps)

    @property
    def stamps(self) -> list[PictureStamp | PastPicture]:
        """Time and load of every picture, oldest first."""
        return [*chain.from_iterable(chunk.stamps for chunk in self._sparse), *self._recent]

    def pictures_between(self, start: datetime, before: float) -> Iterator[PastPicture]:
        """Yield the pictures from the time `start` on that are earlier than `before` in monotonic seconds.

        This may be called in another thread than that which adds pictures.
        """
        sparse, recent = [*self._sparse], [*self._recent]
        needed = (chunk for chunk in sparse if chunk.stamps[-1].wall >= start and chunk.stamps[0].at < before)
        for picture in chain(chain.from_iterable(map(PictureChunk.pictures, needed)), recent):
            if picture.wall >= start and picture.at < before:
                yield picture

    @property
    def oldest(self) -> PictureStamp | PastPicture | None:
        """Time and load of the oldest picture; None before the first."""
        return self._sparse[0].stamps[0] if self._sparse else next(iter(self._recent), None)

    @property
    def newest(self) -> PastPicture | None:
        """The newest picture; None before the first."""
        return self._recent[-1] if self._recent else None

    @property
    def events(self) -> list[Event]:
        """The events since the oldest picture, in order of time."""
        oldest = self.oldest
        if oldest is None:
            return []
        return sorted(
            (event for event in self._events.values() if event.at >= oldest.wall), key=lambda event: event.at
        )

    def clear(self) -> None:
        """Forget everything."""
        self._recent.clear()
        self._sparse.clear()
        self._events.clear()
        self._read = None

    def add(self, snapshot: Snapshot, band: Callable[[], Band] = lambda: None) -> None:
        """Add a picture of `snapshot`, unless the newest picture is of the same second.

        With many sources, there is one picture per longer time slot instead of one per second. `band` returns
        what the screen's sweep panel shows.
        """
        sources = len(snapshot.backends) + len(snapshot.nodes) + len(snapshot.routers)
        self._least_apart_s = max(1.0, KEPT_S * SOURCE_BYTES * sources / BUDGET_BYTES)
        fleets = [view.fleet for view in snapshot.fleets if view.fleet is not None]
        scraped = sum(len(fleet.servers) + len(fleet.nodes) for fleet in fleets)
        newest = self.newest
        if newest is not None and not self._is_later(newest, snapshot.at, 1.0):
            return
        if (sources > FEW_SOURCES or scraped > FEW_SCRAPED) and self._recent:
            self._sparse.append(PictureChunk(self._recent))
            self._recent.clear()
        self._recent.append(picture_of(snapshot, band))
        for event in snapshot.events:
            self._events[event.at, event.subject, event.about or event.message] = event
        if len(self._events) > _MOST_EVENTS:
            newest_events = sorted(self._events, key=lambda key: key[0])[-_MOST_EVENTS // 2 :]
            self._events = {key: self._events[key] for key in newest_events}
        self._compress_old(snapshot.at)

    def _is_later(self, picture: PictureStamp | PastPicture, at: float, apart_s: float) -> bool:
        """Return whether `at` is in a later time slot than `picture`.

        Slots last `apart_s` seconds, or longer if many sources are watched.
        """
        step = max(apart_s, self._least_apart_s)
        return at // step > picture.at // step

    def _compress_old(self, at: float) -> None:
        """Compress the pictures older than `RECENT_S`, a minute of them at a time; drop the oldest."""
        if self._recent[0].at < at - RECENT_S - MINUTE_S:
            last: PictureStamp | PastPicture | None = self._sparse[-1].stamps[-1] if self._sparse else None
            pictures: list[PastPicture] = []
            while self._recent[0].at < at - RECENT_S:
                picture = self._recent.popleft()
                if last is None or self._is_later(last, picture.at, SPARSE_S):
                    pictures.append(picture)
                    last = picture
            if pictures:
                self._sparse.append(PictureChunk(pictures))
        while self._sparse and self._sparse[0].stamps[-1].at < at - KEPT_S:
            self._sparse.popleft()

    def _picture_at(self, index: int) -> PastPicture | None:
        """Return the picture at a place in `stamps`; None if there are no pictures."""
        for chunk in self._sparse:
            if index < len(chunk.stamps):
                if self._read is None or self._read[0] is not chunk:
                    self._read = chunk, chunk.pictures()
                return self._read[1][index]
            index -= len(chunk.stamps)
        return self._recent[index] if self._recent else None

    def at(self, at: float) -> PastPicture | None:
        """Return the last picture at or before a monotonic time, else the oldest; None if there is none."""
        return self._picture_at(max(0, bisect_right(self.stamps, at, key=lambda stamp: stamp.at) - 1))

    def at_wall(self, wall: datetime) -> PastPicture | None:
        """Return the last picture taken at or before a time, else the oldest; None if there is none."""
        earlier = [index for index, stamp in enumerate(self.stamps) if stamp.wall <= wall]
        return self._picture_at(earlier[-1] if earlier else 0)

    def picture_after_step(self, at: float, seconds: float) -> PastPicture | None:
        """Return the picture nearest to the time `at` + `seconds`, of those that are later than `at`.

        A negative `seconds` steps back, to a picture before `at`. If there is none in this direction, return
        the newest picture (stepping back: the oldest); None if there are no pictures at all.
        """
        times = [stamp.at for stamp in self.stamps]
        if seconds > 0:
            ahead, end = range(bisect_right(times, at), len(times)), max(0, len(times) - 1)
        else:
            ahead, end = range(bisect_left(times, at)), 0
        return self._picture_at(min(ahead, key=lambda index: abs(times[index] - at - seconds), default=end))

    def beside_event(self, at: float, direction: int) -> PastPicture | None:
        """Return the first picture that shows the next event after the time `at` (monotonic seconds).

        With `direction` -1 instead of 1, it is the previous event, before `at`. Return None if there is no
        such event.
        """
        stamps = self.stamps
        walls = [stamp.wall for stamp in stamps]
        places = [bisect_left(walls, event.at) for event in self.events]
        if direction < 0:
            places.reverse()
        candidates = (index for index in places if index < len(stamps))
        nearest = next((index for index in candidates if direction * (stamps[index].at - at) > 0), None)
        return None if nearest is None else self._picture_at(nearest)
