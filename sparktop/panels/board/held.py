"""An order by live values that holds for some seconds: rows that jump every second cannot be read."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

HOLD_S = 5.0
"""Least seconds between two changes of an order by live values."""


def keeping_place(order: list[str], before: Sequence[str], held: str | None) -> list[str]:
    """Return `order` with the row `held` moved back to its place in the order `before`."""
    if held is None or held not in before:
        return order
    others = [name for name in order if name != held]
    place = before.index(held)
    return [*others[:place], held, *others[place:]]


class HeldOrder:
    """The order of some rows, which changes at most every `HOLD_S` seconds."""

    def __init__(self) -> None:
        """Start without rows: the first call of `of` takes the order that it is given."""
        self._names: list[str] = []
        self._chosen: Hashable = None
        self._at: float | None = None
        self._ordered_at = 0.0

    def of(self, at: float, names: Sequence[str], chosen: Hashable, held: str | None) -> list[str]:
        """Return `names`, which are in their present order, in the order to show at the time `at` in s.

        Rows that are new stand last until the order changes. The row `held` keeps its place then. What the
        user has `chosen` to see, such as a filter, changes the order at once, and so does an earlier time.
        """
        if self._at is None or at < self._at or chosen != self._chosen:
            self._names, self._ordered_at = list(names), at
        elif at - self._ordered_at >= HOLD_S:
            known = set(names)
            before = [name for name in self._names if name in known]
            self._names, self._ordered_at = keeping_place(list(names), before, held), at
        else:
            present, placed = set(names), set(self._names)
            kept = [name for name in self._names if name in present]
            self._names = [*kept, *(name for name in names if name not in placed)]
        self._at, self._chosen = at, chosen
        return self._names
