"""Estimates how fast free memory changes, and how long it will last at this rate.

Successive memory readings depend on each other, so a significance test for independent points finds a trend
in most memory that does not drift. Therefore the test uses *steps*: the differences between the means of
successive time slots of some seconds. Memory without a drift depends on its past most strongly as a random
walk; even then steps are independent except for neighbours, whose correlation is 1/4 because they share a
slot (H. Working, Econometrica 28, 1960). Steps of other memory without a drift cancel each other, so a limit
that suits the random walk is conservative for them. A trend is claimed where the sum of the steps is at least
`CLAIM_T` standard errors from 0; the standard error includes the covariance of neighbours where this is
positive (W. K. Newey and K. D. West, Econometrica 55, 1987). `benchmarks/truths/headroom.py` measures
how often this limit claims a trend correctly and wrongly.

A single jump is only one of many steps, so loading a model is not a trend. Windows of several lengths are
tried, the shortest first: a fast leak shows within a minute, a slow leak only with long time slots, where
noise is lower.

There are two more conditions for a trend. The newest third of the steps must continue at half the slope or
more. And the series must not have fallen (or risen) as far before and come back, as with a cache that is
filled and dropped repeatedly.

The slope itself is the median of the slopes between all pairs of time slots (Theil and Sen).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, groupby, pairwise
from statistics import median

from msgspec.structs import replace

from sparktop.model.node import GIB
from sparktop.model.series import Series
from sparktop.model.snapshot import Headroom

SLOT_S = 5.0
"""Length of the shortest time slot in seconds."""
WINDOWS = ((1, 12), (1, 24), (2, 24), (4, 24))
"""Windows that are tried in this order, as (length of a time slot in shortest slots, number of slots): one,
two, four and eight minutes."""
LEAST_STEPS = 7
"""With fewer steps, no trend is claimed."""
CLAIM_T = 3.3
"""A trend is claimed when the sum of the steps is at least this many standard errors from 0."""
PLENTY = 0.25
"""Above this share of the machine's memory, free memory is plenty: a fall must have lasted for a while."""
BEGIN_S = 60.0
"""The first seconds of a fall of plenty of memory do not count: programs that start take many GiB within a
minute and stop then."""
EXPECTED = 2.0
"""A fall of plenty of memory is expected to go on for this multiple of the time after `BEGIN_S`."""
_PAUSE_S = 30.0
"""A fall without a trend for longer than this is a new one afterwards."""
_SLOT_INTERVALS = 1.25
"""A time slot lasts at least this many sampling intervals, so that slow sampling leaves no slot empty."""
_GOES_ON = 0.5
"""The slope of the newest third of the steps is at least this share of the slope of the window."""
_CAME_BACK = 0.25
"""How close an earlier value must come to the window's first or last value to count as equal, as a share of
the window's change."""
_MeanPoint = tuple[float, float]


def trend(
    series: Series, end: float, interval_s: float = 1.0, *, begin: float = -math.inf
) -> Headroom | None:
    """Return the slope of free memory (`series`, in GiB) up to the time `end`; None after too few samples.

    The slope in the result is None where it may be noise. `interval_s` is the time between two samples: slow
    sampling needs longer time slots. What was before the time `begin` does not count.
    """
    shortest_s, seen = max(SLOT_S, _SLOT_INTERVALS * interval_s), None
    for scale, slots in WINDOWS:
        slot_s = scale * shortest_s
        stretches = _slot_means(series.since(max(begin, end - slots * slot_s)), slot_s)
        result = _significant_trend(stretches)
        seen = result or seen
        if result is not None and result.slope_bytes_per_s is not None:
            return Headroom(window_s=result.window_s) if _has_come_back(series, stretches) else result
    return seen


class Fall:
    """How long free memory has been falling."""

    def __init__(self) -> None:
        """Start without a fall."""
        self._since: float | None = None
        self._last = -math.inf

    def note(self, at: float, newest: Headroom | None) -> None:
        """Note the trend `newest` of the time `at` (monotonic seconds), None where it is not known."""
        slope = None if newest is None else newest.slope_bytes_per_s
        if newest is not None and slope is not None and slope < 0:
            if self._since is None or at - self._last > _PAUSE_S:
                self._since = at - (newest.window_s or 0.0)
            self._last = at
        elif at - self._last > _PAUSE_S or slope is not None:
            self._since = None

    def reaches(self, seconds: float) -> bool:
        """Return whether the fall has lasted long enough to expect that it goes on for `seconds`."""
        lasted_s = 0.0 if self._since is None else self._last - self._since
        return seconds <= EXPECTED * (lasted_s - BEGIN_S)


def _significant_trend(stretches: Sequence[Sequence[_MeanPoint]]) -> Headroom | None:
    """Return the trend of a series; None with too few steps.

    It has no slope unless that is significant and still goes on. Each of `stretches` is a list of (mean time,
    mean value) of successive time slots, without a gap.
    """
    runs = [
        [
            (later_at - earlier_at, later - earlier)
            for (earlier_at, earlier), (later_at, later) in pairwise(stretch)
        ]
        for stretch in stretches
    ]
    steps = [step for run in runs for step in run]
    if len(steps) < LEAST_STEPS:
        return None
    noise = Headroom(window_s=stretches[-1][-1][0] - stretches[0][0][0])
    change = sum(step_change for _, step_change in steps)
    pace = change / sum(step_s for step_s, _ in steps)
    deviations = [[step_change - pace * step_s for step_s, step_change in run] for run in runs]
    if not change or abs(change) < CLAIM_T * _standard_error(deviations):
        return noise
    slope = median(
        (later - earlier) / (later_at - earlier_at)
        for stretch in stretches
        for (earlier_at, earlier), (later_at, later) in combinations(stretch, 2)
    )
    newest = steps[-max(1, len(steps) // 3) :]
    newest_pace = sum(step_change for _, step_change in newest) / sum(step_s for step_s, _ in newest)
    if slope * change <= 0 or newest_pace / slope < _GOES_ON:
        return noise
    return replace(noise, slope_bytes_per_s=slope * GIB)


def _standard_error(deviations: Sequence[Sequence[float]]) -> float:
    """Return the standard error of the sum of steps, from how each deviates from their mean pace.

    `deviations` are lists of successive steps: neighbours that deviate alike add to the error.
    """
    squares = sum(deviation * deviation for run in deviations for deviation in run)
    neighbour_products = sum(one * other for run in deviations for one, other in pairwise(run))
    count = sum(map(len, deviations))
    return math.sqrt((squares + max(0.0, 2 * neighbour_products)) * count / (count - 1))


def _has_come_back(series: Series, stretches: Sequence[Sequence[_MeanPoint]]) -> bool:
    """Return whether the series made the same change before the first of `stretches`, and then reversed it.

    `stretches` are lists of (mean time, mean value) of successive time slots, in the order of time.
    """
    (began_at, began), (_, ended) = stretches[0][0], stretches[-1][-1]
    change = ended - began
    near_begin, near_end = began + _CAME_BACK * change, began + (1 - _CAME_BACK) * change
    sign = math.copysign(1.0, change)
    was_near_begin = False
    for time, value in series:
        if time >= began_at:
            return False
        if value is None:
            continue
        was_near_begin = was_near_begin or sign * (value - near_begin) <= 0
        if was_near_begin and sign * (value - near_end) >= 0:
            return True
    return False


def _slot_means(series: Series, slot_s: float) -> list[list[_MeanPoint]]:
    """Return the (mean time, mean value) of time slots as lists; a list ends where a sample is missing."""
    stretches: list[list[_MeanPoint]] = []
    last_slot = None
    for slot, group in groupby(series, lambda point: None if point[1] is None else point[0] // slot_s):
        if slot is None:
            last_slot = None
            continue
        if last_slot is None or slot - last_slot > 1:
            stretches.append([])
        points = [(time, value) for time, value in group if value is not None]
        mean_time, mean = (sum(values) / len(points) for values in zip(*points, strict=True))
        stretches[-1].append((mean_time, mean))
        last_slot = slot
    return stretches


def headroom(current: Headroom | None, left_gib: float | None, limit_bytes: float | None) -> Headroom:
    """Return how long free memory will last, from its trend `current`, as `trend` returns it.

    The seconds until the limit are given only for a falling trend, if both the free memory `left_gib` and
    the critical limit are known. If `current` is None, the result has the limit only.
    """
    current = current or Headroom()
    slope = current.slope_bytes_per_s or 0.0
    limit = None if limit_bytes is None else round(limit_bytes)
    until_limit_s = None
    if limit_bytes is not None and left_gib is not None and slope < 0:
        until_limit_s = max(0.0, (left_gib * GIB - limit_bytes) / -slope)
    return replace(current, until_limit_s=until_limit_s, limit_bytes=limit)
