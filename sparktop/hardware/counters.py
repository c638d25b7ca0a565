"""Counters that only grow, turned into rates."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class CounterRates(Generic[Key]):
    """Keeps the reading before and gives what each counter grew by per second since then."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._values: Mapping[Key, int] = {}

    def step(self, values: Mapping[Key, int], now: float) -> dict[Key, float | None]:
        """Give the rate of every counter in `values`, read at `now` (seconds).

        None for a counter that was not there before or went back (a restart, a wrap), and for all when no
        time has passed: a rate is never negative and never invented.
        """
        elapsed_s = None if self._at is None else now - self._at
        if elapsed_s == 0:
            return dict.fromkeys(values)
        before, self._values, self._at = self._values, dict(values), now
        if elapsed_s is None or elapsed_s < 0:
            return dict.fromkeys(values)
        rates: dict[Key, float | None] = {}
        for key, value in values.items():
            grown = value - before.get(key, value + 1)
            rates[key] = grown / elapsed_s if grown >= 0 else None
        return rates
