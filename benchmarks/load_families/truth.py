"""The truth about a simulated run: actual and possible throughput, swings, and starved backends."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from load_families.engine import Backend, Clock, Speed

EVERY_S = 0.25
"""Seconds between two samples of the loads of all backends, taken at the same moment."""


class Ledger:
    """Integrates the throughput of the actual loads and of the best split of the same number of requests."""

    def __init__(self, clock: Clock, backends: Sequence[Backend]) -> None:
        """Follow `backends` from now on."""
        self._clock, self._backends = clock, backends
        self._made = self._best = self._since_s = 0.0
        self._tables: dict[tuple[int, ...], list[float]] = {}
        self.times_s: list[float] = []
        self.loads: list[tuple[int, ...]] = []
        self.waiting: list[tuple[int, ...]] = []
        self._sums: list[tuple[float, float]] = []
        for backend in backends:
            backend.before_change = self._pass
        clock.at(0.0, self._note)

    def _pass(self) -> None:
        """Add the time since the last change of any load."""
        now = self._clock.now_s
        span = now - self._since_s
        if span <= 0:
            return
        self._since_s = now
        up = tuple(index for index, one in enumerate(self._backends) if one.up)
        total = 0
        for index in up:
            one = self._backends[index]
            total += one.load
            self._made += span * one.speed.tokens_per_s(one.load)
        self._best += span * self._best_of(up, total)

    def _best_of(self, up: tuple[int, ...], total: int) -> float:
        """Return the throughput of the best split of `total` requests over the backends `up`."""
        table = self._tables.get(up)
        if table is None or len(table) <= total:
            speeds = [self._backends[index].speed for index in up]
            table = self._tables[up] = best_split(speeds, max(2 * total, 64))
        return table[total]

    def _note(self) -> None:
        self._pass()
        self.times_s.append(self._clock.now_s)
        self.loads.append(tuple(one.load for one in self._backends))
        self.waiting.append(tuple(len(one.waiting) for one in self._backends))
        self._sums.append((self._made, self._best))
        self._clock.after(EVERY_S, self._note)

    def lost_percent(self, begin_s: float, end_s: float) -> float | None:
        """Return the throughput lost between two times, in percent of the best split's; None if idle."""
        first, last = self._between(begin_s, end_s)
        made = self._sums[last][0] - self._sums[first][0]
        best = self._sums[last][1] - self._sums[first][1]
        return 100 * (1 - made / best) if best > 0 else None

    def swing(self, begin_s: float, end_s: float) -> float:
        """Return the largest standard deviation of a backend's load minus its share, over the mean share."""
        first, last = self._between(begin_s, end_s)
        rows = [row for row in self.loads[first : last + 1] if sum(row)]
        if not rows:
            return 0.0
        shares = [sum(row) / len(row) for row in rows]
        widest = 0.0
        for index in range(len(rows[0])):
            apart = [row[index] - share for row, share in zip(rows, shares, strict=True)]
            mean = sum(apart) / len(apart)
            widest = max(widest, math.sqrt(sum((one - mean) ** 2 for one in apart) / len(apart)))
        return widest / (sum(shares) / len(shares))

    def starved_share(self, begin_s: float, end_s: float) -> float:
        """Return the share of time with one backend nearly empty and another queueing or at over 1.5 shares.

        Only times with at least 8 requests per backend, and at least 16 in total, count.
        """
        first, last = self._between(begin_s, end_s)
        hungry = loaded = 0
        for row, queue in zip(self.loads[first : last + 1], self.waiting[first : last + 1], strict=True):
            mean = sum(row) / len(row)
            if sum(row) >= max(16, 8 * len(row)):
                loaded += 1
                full = max(row) > 1.5 * mean or any(queue)
                hungry += full and min(row) <= max(1, 0.1 * mean)
        return hungry / loaded if loaded else 0.0

    def mean_total(self, begin_s: float, end_s: float) -> float:
        """Return the mean number of requests in the group between two times."""
        first, last = self._between(begin_s, end_s)
        return sum(map(sum, self.loads[first : last + 1])) / (last - first + 1)

    def _between(self, begin_s: float, end_s: float) -> tuple[int, int]:
        last = max(0, min(len(self.times_s), bisect_left(self.times_s, end_s)) - 1)
        return min(last, bisect_left(self.times_s, begin_s)), last


def best_split(speeds: Sequence[Speed], most: int) -> list[float]:
    """Return the highest possible throughput with 0 to `most` requests.

    The curves are concave, so each further request adds the largest remaining gain.
    """
    curves = [[speed.tokens_per_s(load) for load in range(most + 1)] for speed in speeds]
    gains = sorted((later - earlier for curve in curves for earlier, later in pairwise(curve)), reverse=True)
    table = [0.0]
    for gain in gains[:most]:
        table.append(table[-1] + gain)
    return table
