"""Figures of a running sweep in equal time slots: when the grid is full, two slots become one.

So a sweep of any length is a thousand slots at most, taking in an event costs the same at any time, and
nothing is ever read twice. The first slots are a tenth of a second: the bins in which tokens are told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from sparktop.model.sweep_view import Slots

FIRST_STEP_S = 0.1
MOST_SLOTS = 1024
MOST_POINTS = 6
"""Points kept in a slot: what lies between them is as dense on the screen."""
_HAIR = 1e-6
"""Of a slot: times that are slot edges lie a rounding error beside them."""


class _Folding(Protocol):
    def fold(self) -> None:
        """Make one slot of two."""


_Column = TypeVar("_Column", bound=_Folding)


class TimeGrid:
    """The slots, and the columns that have them in common."""

    def __init__(self, start_at: float, *, most: int = MOST_SLOTS) -> None:
        """Begin at a time; what comes from before it counts for the first slot."""
        self.start_at = math.floor(start_at / FIRST_STEP_S + _HAIR) * FIRST_STEP_S
        self.step_s = FIRST_STEP_S
        self._most = most
        self._columns: list[_Folding] = []

    def column(self, make: Callable[[], _Column]) -> _Column:
        """Make a column that folds with all others."""
        made = make()
        self._columns.append(made)
        return made

    def slot(self, at: float) -> int:
        """Give the slot of a time; the grid gets coarser until there is one."""
        place = self._place(at)
        while place >= self._most:
            self.step_s *= 2
            for column in self._columns:
                column.fold()
            place = self._place(at)
        return place

    def _place(self, at: float) -> int:
        return max(0, math.floor((at - self.start_at) / self.step_s + _HAIR))


class Amounts:
    """Things that add up in each slot."""

    def __init__(self) -> None:
        """Begin with none."""
        self._sums: list[float] = []

    def add(self, slot: int, amount: float) -> None:
        """Add to a slot."""
        sums = self._sums
        if slot >= len(sums):
            sums.extend([0.0] * (slot + 1 - len(sums)))
        sums[slot] += amount

    def rates(self, count: int, step_s: float) -> Slots:
        """Give the first `count` slots as things a second; nothing told is nothing come."""
        sums = self._sums[:count]
        return (*(amount / step_s for amount in sums), *([0.0] * (count - len(sums))))

    def fold(self) -> None:
        """Make one slot of two."""
        sums = self._sums
        self._sums = [sum(sums[index : index + 2]) for index in range(0, len(sums), 2)]


class Readings:
    """Values that somebody reads now and then: the mean of a slot, and gaps where a reading is missing."""

    def __init__(self) -> None:
        """Begin with none."""
        self._values: list[float | None] = []
        self._hits: list[int] = []

    def add(self, slot: int, value: float | None, hold_slots: int) -> None:
        """Enter a reading; the one before it holds up to here unless it is more than `hold_slots` ago."""
        values, hits = self._values, self._hits
        missing = slot - len(values)
        if missing >= 0:
            last = values[-1] if values and missing < hold_slots and value is not None else None
            values.extend([last] * missing)
            hits.extend([0] * missing)
            values.append(value)
            hits.append(int(value is not None))
        elif value is not None:
            before, count = values[slot], hits[slot]
            values[slot] = value if before is None or not count else (before * count + value) / (count + 1)
            hits[slot] = count + 1

    def slots(self, count: int, hold_slots: int = 0) -> Slots:
        """Give the first `count` slots; the newest reading holds for so many slots."""
        values = self._values[:count]
        missing = count - len(values)
        held = min(missing, hold_slots) if values else 0
        last = values[-1] if values else None
        return (*values, *([last] * held), *([None] * (missing - held)))

    def fold(self) -> None:
        """Make one slot of two."""
        values, hits = self._values, self._hits
        self._values = [_mean(values[index : index + 2]) for index in range(0, len(values), 2)]
        self._hits = [sum(hits[index : index + 2]) for index in range(0, len(hits), 2)]


class States:
    """A value that holds until it changes."""

    def __init__(self) -> None:
        """Begin with no value."""
        self._values: list[float | None] = []
        self._now: float | None = None

    def put(self, slot: int, value: float | None) -> None:
        """Change it; of several values in one slot the last one is kept."""
        values = self._values
        if slot >= len(values):
            values.extend([self._now] * (slot + 1 - len(values)))
        values[slot] = value
        self._now = value

    def slots(self, count: int) -> Slots:
        """Give the first `count` slots."""
        values = self._values[:count]
        return (*values, *([self._now] * (count - len(values))))

    def fold(self) -> None:
        """Make one slot of two."""
        values = self._values
        self._values = [
            values[min(index + 1, len(values) - 1)]
            if values[min(index + 1, len(values) - 1)] is not None
            else values[index]
            for index in range(0, len(values), 2)
        ]


class Points:
    """Single values in each slot, thinned out evenly from least to most where they are many."""

    def __init__(self) -> None:
        """Begin with none."""
        self._slots: list[tuple[float, ...]] = []

    def add(self, slot: int, value: float) -> None:
        """Enter a value."""
        slots = self._slots
        if slot >= len(slots):
            slots.extend([()] * (slot + 1 - len(slots)))
        slots[slot] = _thinned((*slots[slot], value))

    def slots(self, count: int) -> tuple[tuple[float, ...], ...]:
        """Give the first `count` slots."""
        known = self._slots[:count]
        return (*known, *([()] * (count - len(known))))

    def fold(self) -> None:
        """Make one slot of two."""
        slots = self._slots
        self._slots = [
            _thinned(tuple(value for one in slots[index : index + 2] for value in one))
            for index in range(0, len(slots), 2)
        ]


def _thinned(values: tuple[float, ...]) -> tuple[float, ...]:
    """Keep `MOST_POINTS` values spread over all, the least and the most among them."""
    if len(values) <= 2 * MOST_POINTS:
        return values
    ordered = sorted(values)
    last = len(ordered) - 1
    return tuple(ordered[round(index * last / (MOST_POINTS - 1))] for index in range(MOST_POINTS))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
