"""Recent snapshots, kept in memory so that the screen can show a past moment."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from sparktop.model.countdown import Countdown
from sparktop.model.event import Event
from sparktop.model.snapshot import Snapshot
from sparktop.values import dataclass

if TYPE_CHECKING:  # a start without a sweep needs none of it
    from sparktop.model.sweep_view import SweepView

    Band = SweepView | Countdown | None
    """The sweep's panel on the board."""

RECENT_S = 300.0
"""Snapshots of the last 5 minutes are kept one a second."""
KEPT_S = 1800.0
"""Older ones are kept one in `SPARSE_S`, up to this age."""
SPARSE_S = 5.0
MOST = 600
"""The most snapshots kept."""
BUDGET_BYTES = 32 << 20
SOURCE_BYTES = 4_000
"""About what a snapshot costs for each source, because snapshots share their histories (measured)."""
_MOST_EVENTS = 1_000


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


def picture_of(snapshot: Snapshot, band: Callable[[], Band]) -> Picture:
    """Return a picture with `snapshot`, and with the view of a sweep if the screen's sweep panel shows one.

    `band` returns what that panel shows: a view, a countdown to a sweep (which is not stored) or None.
    """
    sweep = band()
    return Picture(snapshot, None if isinstance(sweep, Countdown) else sweep)


class Past:
    """Keeps the pictures of about the last half hour: one per second of the last minutes, fewer before.

    With many sources pictures are farther apart, so that they take about `BUDGET_BYTES` at most.
    """

    def __init__(self) -> None:
        """Start without pictures."""
        self._recent: deque[Picture] = deque()
        self._sparse: deque[Picture] = deque()
        self._events: dict[tuple[datetime, str, str], Event] = {}
        self._factor = 1.0
        """By how much pictures are farther apart, so that many sources stay within the budget."""

    def __len__(self) -> int:
        return len(self._recent) + len(self._sparse)

    @property
    def pictures(self) -> list[Picture]:
        """All pictures, oldest first."""
        return [*self._sparse, *self._recent]

    @property
    def oldest(self) -> Picture | None:
        """The oldest picture; None before the first."""
        return next(iter(self._sparse or self._recent), None)

    @property
    def newest(self) -> Picture | None:
        """The newest picture; None before the first."""
        return self._recent[-1] if self._recent else None

    @property
    def events(self) -> list[Event]:
        """The events since the oldest picture, in order of time."""
        oldest = self.oldest
        if oldest is None:
            return []
        return sorted((one for one in self._events.values() if one.at >= oldest.wall), key=lambda one: one.at)

    def clear(self) -> None:
        """Forget everything."""
        self._recent.clear()
        self._sparse.clear()
        self._events.clear()

    def add(self, snapshot: Snapshot, band: Callable[[], Band] = lambda: None) -> None:
        """Add a picture of `snapshot`, unless the newest picture is of the same second.

        With many sources, there is one picture per longer time slot instead of one per second. `band` returns
        what the screen's sweep panel shows.
        """
        sources = len(snapshot.backends) + len(snapshot.nodes) + len(snapshot.routers)
        self._factor = max(1.0, MOST * SOURCE_BYTES * sources / BUDGET_BYTES)
        newest = self.newest
        if newest is not None and not self._is_later(newest, snapshot.at, 1.0):
            return
        self._recent.append(picture_of(snapshot, band))
        self._collect(snapshot)
        self._thin(snapshot.at)

    def _is_later(self, picture: Picture, at: float, apart_s: float) -> bool:
        """Return whether `at` is in a later time slot than `picture`.

        Slots last `apart_s` seconds, or longer if many sources are watched.
        """
        step = apart_s * self._factor
        return at // step > picture.at // step

    def _thin(self, at: float) -> None:
        while self._recent and self._recent[0].at < at - RECENT_S:
            old = self._recent.popleft()
            if not self._sparse or self._is_later(self._sparse[-1], old.at, SPARSE_S):
                self._sparse.append(old)
        while self._sparse and self._sparse[0].at < at - KEPT_S:
            self._sparse.popleft()
        while len(self) > MOST:
            (self._sparse or self._recent).popleft()

    def _collect(self, snapshot: Snapshot) -> None:
        for event in snapshot.events:
            self._events[event.at, event.subject, event.about or event.message] = event
        if len(self._events) > _MOST_EVENTS:
            kept = sorted(self._events, key=lambda key: key[0])[-_MOST_EVENTS // 2 :]
            self._events = {key: self._events[key] for key in kept}

    def at(self, at: float) -> Picture | None:
        """Return the last picture at or before a monotonic time, else the oldest; None if there is none."""
        pictures = self.pictures
        index = bisect_right(pictures, at, key=lambda one: one.at)
        return pictures[max(0, index - 1)] if pictures else None

    def at_wall(self, wall: datetime) -> Picture | None:
        """Return the last picture taken at or before a time, else the oldest; None if there is none."""
        earlier = [one for one in self.pictures if one.wall <= wall]
        return earlier[-1] if earlier else self.oldest

    def stepped(self, at: float, seconds: float) -> Picture | None:
        """Return the picture nearest to the time `at` + `seconds`, of those that are later than `at`.

        A negative `seconds` steps back, to a picture before `at`. If there is none in this direction, return
        the newest picture (stepping back: the oldest); None if there are no pictures at all.
        """
        pictures = self.pictures
        ahead = [one for one in pictures if (one.at > at if seconds > 0 else one.at < at)]
        nearest = min(ahead, key=lambda one: abs(one.at - at - seconds), default=None)
        return nearest or (pictures[-1 if seconds > 0 else 0] if pictures else None)

    def beside_event(self, at: float, direction: int) -> Picture | None:
        """Return the first picture that shows the next event after the time `at` (monotonic seconds).

        With `direction` -1 instead of 1, it is the previous event, before `at`. Return None if there is no
        such event.
        """
        pictures = self.pictures
        walls = [one.wall for one in pictures]
        first = [bisect_left(walls, event.at) for event in self.events]
        found = [pictures[index] for index in first if index < len(pictures)]
        if direction > 0:
            return next((one for one in found if one.at > at), None)
        return next((one for one in reversed(found) if one.at < at), None)
