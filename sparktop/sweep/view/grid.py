"""Stores metrics of a running sweep in a grid of equal time slots, which is the time axis of its curves.

A slot lasts a tenth of a second at first, as long as the bins in which tokens are reported. When the grid
is full, neighbouring slots are merged in pairs, so a sweep of any length has at most `MOST_SLOTS` slots,
and adding an event always costs the same. All columns of a grid share its slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from sparktop.model.sweep_view import Slots

FIRST_STEP_S = 0.1
MOST_SLOTS = 1024
MOST_POINTS = 6
"""Number of values that a crowded slot is reduced to: more would not look denser on the screen."""
_HAIR = 1e-6
"""Tolerance as a share of a slot's length, because times on the edge of a slot may have rounding errors."""


class _Folding(Protocol):
    def fold(self) -> None:
        """Merge neighbouring slots in pairs, so that the column has half as many slots."""


_Column = TypeVar("_Column", bound=_Folding)


class TimeGrid:
    """Equal time slots from a start time on, and the columns of values that share these slots."""

    def __init__(self, start_at: float, *, most: int = MOST_SLOTS) -> None:
        """Start the grid at `start_at`, in monotonic seconds; earlier values are added to the first slot.

        `most` is the maximum number of slots.
        """
        self.start_at = math.floor(start_at / FIRST_STEP_S + _HAIR) * FIRST_STEP_S
        self.step_s = FIRST_STEP_S
        self._most = most
        self._columns: list[_Folding] = []

    def column(self, make: Callable[[], _Column]) -> _Column:
        """Create a column of values with `make`, add it to the grid and return it.

        When the grid merges neighbouring time slots, the values of the column are merged, too.
        """
        made = make()
        self._columns.append(made)
        return made

    def slot(self, at: float) -> int:
        """Return the index of the time slot that contains `at`, in monotonic seconds.

        If `at` is after the end of the grid, neighbouring slots are merged in pairs until the grid
        contains it.
        """
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
    """A column of amounts, such as tokens, that are summed within each time slot."""

    def __init__(self) -> None:
        """Start without amounts."""
        self._sums: list[float] = []

    def add(self, slot: int, amount: float) -> None:
        """Add an amount to the time slot with the index `slot`."""
        sums = self._sums
        if slot >= len(sums):
            sums.extend([0.0] * (slot + 1 - len(sums)))
        sums[slot] += amount

    def rates(self, count: int, step_s: float) -> Slots:
        """Return the amount per second in each of the first `count` slots; 0 in slots without an amount.

        `step_s` is the length of a slot in seconds.
        """
        sums = self._sums[:count]
        return (*(amount / step_s for amount in sums), *([0.0] * (count - len(sums))))

    def fold(self) -> None:
        """Merge neighbouring slots in pairs."""
        sums = self._sums
        self._sums = [sum(sums[index : index + 2]) for index in range(0, len(sums), 2)]


class Readings:
    """A column of sampled values: the mean of the samples in each time slot; None where there is none."""

    def __init__(self) -> None:
        """Start without samples."""
        self._values: list[float | None] = []
        self._hits: list[int] = []

    def add(self, slot: int, value: float | None, hold_slots: int) -> None:
        """Add a sample to the time slot with the index `slot`; a `value` of None is a failed sample.

        The empty slots since the previous sample get that sample's value if they are fewer than
        `hold_slots`; otherwise they stay empty.
        """
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
        """Return the value of each of the first `count` slots.

        Up to `hold_slots` slots after the newest sample repeat its value; further slots are None.
        """
        values = self._values[:count]
        missing = count - len(values)
        held = min(missing, hold_slots) if values else 0
        last = values[-1] if values else None
        return (*values, *([last] * held), *([None] * (missing - held)))

    def fold(self) -> None:
        """Merge neighbouring slots in pairs."""
        values, hits = self._values, self._hits
        self._values = [_mean(values[index : index + 2]) for index in range(0, len(values), 2)]
        self._hits = [sum(hits[index : index + 2]) for index in range(0, len(hits), 2)]


class States:
    """A column for a value that is valid until it changes, such as the requested concurrency."""

    def __init__(self) -> None:
        """Start without a value."""
        self._values: list[float | None] = []
        self._now: float | None = None

    def put(self, slot: int, value: float | None) -> None:
        """Set the value that is valid from the slot with the index `slot` on; None for no value.

        Of several values set in one slot, the last is kept.
        """
        values = self._values
        if slot >= len(values):
            values.extend([self._now] * (slot + 1 - len(values)))
        values[slot] = value
        self._now = value

    def slots(self, count: int) -> Slots:
        """Return the value that is valid in each of the first `count` slots; None where no value is."""
        values = self._values[:count]
        return (*values, *([self._now] * (count - len(values))))

    def fold(self) -> None:
        """Merge neighbouring slots in pairs."""
        values = self._values
        self._values = [
            values[min(index + 1, len(values) - 1)]
            if values[min(index + 1, len(values) - 1)] is not None
            else values[index]
            for index in range(0, len(values), 2)
        ]


class Points:
    """A column that keeps all values in each time slot; an evenly spaced selection where there are many."""

    def __init__(self) -> None:
        """Start without values."""
        self._slots: list[tuple[float, ...]] = []

    def add(self, slot: int, value: float) -> None:
        """Add a value to the time slot with the index `slot`."""
        slots = self._slots
        if slot >= len(slots):
            slots.extend([()] * (slot + 1 - len(slots)))
        slots[slot] = _thinned((*slots[slot], value))

    def slots(self, count: int) -> tuple[tuple[float, ...], ...]:
        """Return the values in each of the first `count` slots; an empty tuple for slots without values."""
        known = self._slots[:count]
        return (*known, *([()] * (count - len(known))))

    def fold(self) -> None:
        """Merge neighbouring slots in pairs."""
        slots = self._slots
        self._slots = [
            _thinned(tuple(value for one in slots[index : index + 2] for value in one))
            for index in range(0, len(slots), 2)
        ]


def _thinned(values: tuple[float, ...]) -> tuple[float, ...]:
    """Reduce more than 2 x `MOST_POINTS` values to `MOST_POINTS` of them; return fewer values unchanged.

    The values that remain are at equal distances in sorted order, including minimum and maximum.
    """
    if len(values) <= 2 * MOST_POINTS:
        return values
    ordered = sorted(values)
    last = len(ordered) - 1
    return tuple(ordered[round(index * last / (MOST_POINTS - 1))] for index in range(MOST_POINTS))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
