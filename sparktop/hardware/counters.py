"""Rates of counters that only grow, apart from resets and wrap-arounds."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

_WIDTHS = (32, 64)
"""Widths, in bits, of the counters that the kernel and its drivers keep."""


class CounterRates(Generic[Key]):
    """Computes the increase per second of each counter since the previous call of `step`."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._values: Mapping[Key, int] = {}

    def step(
        self, values: Mapping[Key, int], now: float, most_per_s: Mapping[Key, float] | None = None
    ) -> dict[Key, float | None]:
        """Return the increase per second of every counter in `values`, which were read at `now` (seconds).

        None for a counter that is new or fell; None for all counters in the first call, or if no time has
        passed. `most_per_s` has the highest possible increase per second of some counters. If such a counter
        fell, it may have wrapped around instead of being reset: see `wrapped`.
        """
        elapsed_s = None if self._at is None else now - self._at
        if elapsed_s == 0:
            return dict.fromkeys(values)
        before, self._values, self._at = self._values, dict(values), now
        if elapsed_s is None or elapsed_s < 0:
            return dict.fromkeys(values)
        rates: dict[Key, float | None] = {}
        for key, value in values.items():
            grown: int | None = value - before.get(key, value + 1)
            if grown is not None and grown < 0:
                most = (most_per_s or {}).get(key)
                known = most is not None and key in before
                grown = wrapped(before[key], value, most * elapsed_s) if known and most is not None else None
            rates[key] = None if grown is None else grown / elapsed_s
        return rates


def wrapped(before: int, after: int, most: float) -> int | None:
    """Return the increase of a counter that wrapped around at 32 or 64 bits; None if it was reset instead.

    A counter that fell from `before` to `after` was either reset or wrapped around. A wrap-around is assumed
    only if the increase is at most `most`, the largest possible increase in the elapsed time. If `most` is
    more than half of the counter's range, the two cases cannot be distinguished, and None is returned.
    """
    for bits in _WIDTHS:
        if before < 1 << bits:
            grown = after - before + (1 << bits)
            return grown if 0 <= grown <= most < 1 << (bits - 1) else None
    return None
