"""Counters that only grow, turned into rates."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

_WIDTHS = (32, 64)
"""Bits of the counters that the kernel and its drivers keep."""


class CounterRates(Generic[Key]):
    """Keeps the reading before and gives what each counter grew by per second since then."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._values: Mapping[Key, int] = {}

    def step(
        self, values: Mapping[Key, int], now: float, most_per_s: Mapping[Key, float] | None = None
    ) -> dict[Key, float | None]:
        """Give the rate of every counter in `values`, read at `now` (seconds).

        None for a counter that was not there before or went back, and for all when no time has passed: a
        rate is never negative and never invented. A counter in `most_per_s`, which tells how fast it can
        grow, may have passed its width's end: see `wrapped`.
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
    """Give what a counter grew by that passed its width's end, at most `most`; None where it was set back.

    A counter that went back either began anew or is as wide as the reading before was near to a width's end.
    Only the second leaves a growth that fits into the time. Where more than half of the width can pass
    between two readings, nobody can tell, and how often it wrapped neither.
    """
    for bits in _WIDTHS:
        if before < 1 << bits:
            grown = after - before + (1 << bits)
            return grown if 0 <= grown <= most < 1 << (bits - 1) else None
    return None
