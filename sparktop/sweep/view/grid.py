"""Figures of a running sweep in equal time slots; when the grid is full, slots are merged in pairs.

A sweep of any length has at most a thousand slots, adding an event always costs the same, and no event is
read twice. The first slots last a tenth of a second, as long as the bins in which tokens are reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from sparktop.model.sweep_view import Slots

FIRST_STEP_S = 0.1
MOST_SLOTS = 1024
MOST_POINTS = 6
"""Maximum points kept in a slot: more of them would look no denser on the screen."""
_HAIR = 1e-6
"""Tolerance as a share of a slot: times on a slot edge may be off by a rounding error."""


class _Folding(Protocol):
    def fold(self) -> None:
        """Merge slots in pairs."""


_Column = TypeVar("_Column", bound=_Folding)


class TimeGrid:
    """The time slots, and the columns of values that share them."""

    def __init__(self, start_at: float, *, most: int = MOST_SLOTS) -> None:
        """Start the grid at a time; earlier values are added to the first slot."""
        self.start_at = math.floor(start_at / FIRST_STEP_S + _HAIR) * FIRST_STEP_S
        self.step_s = FIRST_STEP_S
        self._most = most
        self._columns: list[_Folding] = []

    def column(self, make: Callable[[], _Column]) -> _Column:
        """Return a new column, which is folded together with all others."""
        made = make()
        self._columns.append(made)
        return made

    def slot(self, at: float) -> int:
        """Return the slot index of a time; double the slots' length until the time is inside the grid."""
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
    """Amounts that are summed within each slot."""

    def __init__(self) -> None:
        """Start without amounts."""
        self._sums: list[float] = []

    def add(self, slot: int, amount: float) -> None:
        """Add an amount to a slot."""
        sums = self._sums
        if slot >= len(sums):
            sums.extend([0.0] * (slot + 1 - len(sums)))
        sums[slot] += amount

    def rates(self, count: int, step_s: float) -> Slots:
        """Return the first `count` slots as amounts per second; slots without an amount are 0."""
        sums = self._sums[:count]
        return (*(amount / step_s for amount in sums), *([0.0] * (count - len(sums))))

    def fold(self) -> None:
        """Merge slots in pairs."""
        sums = self._sums
        self._sums = [sum(sums[index : index + 2]) for index in range(0, len(sums), 2)]


class Readings:
    """Values sampled now and then: the mean of each slot, with gaps where samples are missing."""

    def __init__(self) -> None:
        """Start without samples."""
        self._values: list[float | None] = []
        self._hits: list[int] = []

    def add(self, slot: int, value: float | None, hold_slots: int) -> None:
        """Enter a sample; fill back to the previous one unless it is `hold_slots` or more ago."""
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
        """Return the first `count` slots; the newest sample holds for up to `hold_slots` further slots."""
        values = self._values[:count]
        missing = count - len(values)
        held = min(missing, hold_slots) if values else 0
        last = values[-1] if values else None
        return (*values, *([last] * held), *([None] * (missing - held)))

    def fold(self) -> None:
        """Merge slots in pairs."""
        values, hits = self._values, self._hits
        self._values = [_mean(values[index : index + 2]) for index in range(0, len(values), 2)]
        self._hits = [sum(hits[index : index + 2]) for index in range(0, len(hits), 2)]


class States:
    """A value that stays in force until it changes."""

    def __init__(self) -> None:
        """Start without a value."""
        self._values: list[float | None] = []
        self._now: float | None = None

    def put(self, slot: int, value: float | None) -> None:
        """Set the value from a slot on; of several values in a slot the last one is kept."""
        values = self._values
        if slot >= len(values):
            values.extend([self._now] * (slot + 1 - len(values)))
        values[slot] = value
        self._now = value

    def slots(self, count: int) -> Slots:
        """Return the value in each of the first `count` slots."""
        values = self._values[:count]
        return (*values, *([self._now] * (count - len(values))))

    def fold(self) -> None:
        """Merge slots in pairs."""
        values = self._values
        self._values = [
            values[min(index + 1, len(values) - 1)]
            if values[min(index + 1, len(values) - 1)] is not None
            else values[index]
            for index in range(0, len(values), 2)
        ]


class Points:
    """Individual values in each slot, thinned out evenly between least and greatest when there are many."""

    def __init__(self) -> None:
        """Start without values."""
        self._slots: list[tuple[float, ...]] = []

    def add(self, slot: int, value: float) -> None:
        """Add a value to a slot."""
        slots = self._slots
        if slot >= len(slots):
            slots.extend([()] * (slot + 1 - len(slots)))
        slots[slot] = _thinned((*slots[slot], value))

    def slots(self, count: int) -> tuple[tuple[float, ...], ...]:
        """Return the values in each of the first `count` slots."""
        known = self._slots[:count]
        return (*known, *([()] * (count - len(known))))

    def fold(self) -> None:
        """Merge slots in pairs."""
        slots = self._slots
        self._slots = [
            _thinned(tuple(value for one in slots[index : index + 2] for value in one))
            for index in range(0, len(slots), 2)
        ]


def _thinned(values: tuple[float, ...]) -> tuple[float, ...]:
    """Return at most `MOST_POINTS` values at even ranks, including the least and the greatest.

    Up to twice as many are returned unchanged.
    """
    if len(values) <= 2 * MOST_POINTS:
        return values
    ordered = sorted(values)
    last = len(ordered) - 1
    return tuple(ordered[round(index * last / (MOST_POINTS - 1))] for index in range(MOST_POINTS))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
