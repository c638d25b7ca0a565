"""Records the load of simulated backends over virtual time; computes its imbalance and its period."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean

from stage.clients import RoutedDestination, VirtualTime

_LOOKED_AT = 16
"""Number of backends examined for a period, evenly chosen: of a thousand equal ones, a few suffice."""
_REBOUND = 0.3
"""Least autocorrelation at a lag that counts as a period."""
_AS_CLEAR = 0.8
"""Share of the highest peak that an earlier peak must reach to be the period."""
_FEWEST_CYCLES = 4.0


class LoadTrace:
    """The requests in flight on every backend, sampled at equal intervals of virtual time.

    `loads[i]` has the number of requests per backend at the time `times_s[i]`.
    """

    def __init__(
        self, time: VirtualTime, way: RoutedDestination, *, until_s: float, every_s: float = 0.25
    ) -> None:
        """Record a sample now, and then every `every_s` seconds up to the model time `until_s`."""
        self.every_s = every_s
        self.times_s: list[float] = []
        self.loads: list[tuple[int, ...]] = []
        self._time = time
        self._way = way
        self._start_s = time.now_s
        self._until_s = until_s
        self._sample()

    def _sample(self) -> None:
        self.times_s.append(self._time.now_s)
        self.loads.append(tuple(self._way.loads))
        at = self._start_s + len(self.times_s) * self.every_s
        if at <= self._until_s:
            self._time.call_at(at, self._sample)

    def since(self, at: float) -> list[tuple[int, ...]]:
        """Return the rows of `loads` that were sampled at the time `at` or later."""
        return [row for time_s, row in zip(self.times_s, self.loads, strict=True) if time_s >= at]


def imbalance(rows: Sequence[Sequence[int]]) -> float | None:
    """Return the coefficient of variation of the loads among backends, averaged over `rows`.

    A row has one load per backend. The result is 0 if loads are equal; with two backends, it is 1 if one of
    them has all load. Rows whose loads are all 0 are skipped. None if no row remains.
    """
    found = [sqrt(fmean((load - mean) ** 2 for load in row)) / mean for row in rows if (mean := fmean(row))]
    return fmean(found) if found else None


def period_s(rows: Sequence[Sequence[int]], every_s: float) -> float | None:
    """Return the period in seconds with which load swings between backends; None if load does not swing.

    `rows` has the load per backend at intervals of `every_s` seconds. The autocorrelation of each backend's
    difference from the mean load is averaged over the backends. After falling below zero, this average must
    exceed 0.3 at the period, and `rows` must span at least four periods.
    """
    size, backends = len(rows), len(rows[0]) if rows else 0
    chosen = range(0, backends, max(1, backends // _LOOKED_AT))
    means = [fmean(row) for row in rows]
    apart = [[row[backend] - mean for row, mean in zip(rows, means, strict=True)] for backend in chosen]
    for column in apart:
        centre = fmean(column)
        column[:] = [value - centre for value in column]
    power = sum(value * value for column in apart for value in column) / size if size else 0.0
    if not power:
        return None
    correlation = [
        sum(a * b for column in apart for a, b in zip(column, column[lag:], strict=False))
        / ((size - lag) * power)
        for lag in range(int(size / _FEWEST_CYCLES))
    ]
    below = next((lag for lag, value in enumerate(correlation) if value < 0), None)
    if below is None:
        return None
    peaks = [
        lag
        for lag in range(below + 1, len(correlation) - 1)
        if correlation[lag - 1] <= correlation[lag] >= correlation[lag + 1]
    ]
    clearest = max((correlation[lag] for lag in peaks), default=0.0)
    if clearest < _REBOUND:
        return None
    # A steady swing also returns after two periods, so the first peak that is nearly as high is taken.
    start = next(lag for lag in peaks if correlation[lag] >= _AS_CLEAR * clearest)
    end = next(
        (lag for lag in range(start, len(correlation)) if correlation[lag] < _AS_CLEAR * clearest),
        len(correlation),
    )
    return max(range(start, end), key=correlation.__getitem__) * every_s
