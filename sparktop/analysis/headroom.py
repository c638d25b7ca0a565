"""The trend of free memory: how fast headroom changes, and how long it lasts at that pace.

Memory readings depend on earlier ones, so a test for independent points finds a trend in most drift-free
memory. Therefore the test uses the steps between means over slots of some seconds. The steps of a random
walk, the most persistent memory without a drift, are independent but for neighbours (means over slots share a
part, correlation 1/4: H. Working, Econometrica 28, 1960). Steps of less persistent memory cancel, so a limit
that is right for the walk is conservative for the rest. A trend is claimed where the sum of the steps is
`CLAIM_T` of its standard errors from 0; the covariance of neighbours counts where it is positive (W. K. Newey
and K. D. West, Econometrica 55, 1987). `benchmarks/headroom.py` measures the false and the true claims of the
limit.

One jump is one step of many, so loading a model is not a trend. Windows of several lengths are tried, the
shortest first: a fast leak shows within a minute, a slow one only in long slots, whose noise is lower.

Two more conditions: the newest third of the steps continues at half the pace or more, and the series did not
fall (or rise) as far before and come back, as with a cache that is filled and dropped repeatedly.

The slope itself is the median of the slopes between all pairs of slots (Theil and Sen).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from sparktop.model.series import Series
from sparktop.model.snapshot import Headroom

SLOT_S = 5.0
"""Length of the shortest slot in seconds."""
WINDOWS = ((1, 12), (1, 24), (2, 24), (4, 24))
"""Windows that are tried, as (slot length in shortest slots, number of slots): one, two, four and eight
minutes."""
LEAST_STEPS = 7
"""With fewer steps, no trend is claimed."""
CLAIM_T = 3.3
"""A trend is claimed when the sum of the steps is at least this many standard errors from 0."""
_SLOT_INTERVALS = 1.25
"""A slot spans at least this many intervals, so that slow sampling leaves no slot empty."""
_GIB = 2**30
_GOES_ON = 0.5
"""The newest steps have at least this share of the slope."""
_CAME_BACK = 0.25
"""Share of a fall by which an earlier value may miss the window's ends and still count as having been
there."""
_Z99 = 2.576
"""99 % of a normal distribution lie within this many standard deviations."""

_Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Trend:
    """The rate of change of a series, in its unit per second."""

    slope: float
    low: float
    """Lower end of the 99 % interval, which does not contain 0."""
    high: float
    window_s: float
    """Seconds from the first point to the last."""


def trend(series: Series, end: float, interval_s: float = 1.0) -> Trend | None:
    """Return the trend of `series` up to `end`; None where drift-free memory changes as much.

    `interval_s` is the time between two samples: slow sampling needs longer slots.
    """
    shortest_s = max(SLOT_S, _SLOT_INTERVALS * interval_s)
    for scale, slots in WINDOWS:
        slot_s = scale * shortest_s
        stretches = _stretches(series.since(end - slots * slot_s), slot_s)
        found = _claimed(stretches)
        if found is not None:
            return None if _came_back(series, stretches) else found
    return None


def _claimed(stretches: Sequence[Sequence[_Point]]) -> Trend | None:
    """Return the trend of slots whose steps add up to more than chance would; None for others."""
    runs = [
        [(later[0] - earlier[0], later[1] - earlier[1]) for earlier, later in pairwise(one)]
        for one in stretches
    ]
    steps = [step for run in runs for step in run]
    if len(steps) < LEAST_STEPS:
        return None
    span_s, change = sum(step[0] for step in steps), sum(step[1] for step in steps)
    pace = change / span_s
    excess = [[step[1] - pace * step[0] for step in run] for run in runs]
    alone = sum(one * one for run in excess for one in run)
    together = sum(one * other for run in excess for one, other in pairwise(run))
    error = math.sqrt((alone + max(0.0, 2 * together)) * len(steps) / (len(steps) - 1))
    if not change or abs(change) < CLAIM_T * error:
        return None
    slope = median(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for one in stretches
        for index, later in enumerate(one)
        for earlier in one[:index]
    )
    newest = steps[-max(1, len(steps) // 3) :]
    if (
        slope * change <= 0
        or sum(step[1] for step in newest) / sum(step[0] for step in newest) / slope < _GOES_ON
    ):
        return None
    reach = min(_Z99 * error / span_s, abs(slope) * (1 - 1e-9))
    return Trend(slope, slope - reach, slope + reach, stretches[-1][-1][0] - stretches[0][0][0])


def _came_back(series: Series, stretches: Sequence[Sequence[_Point]]) -> bool:
    """Return whether the series went as far before the window and came back to where that begins."""
    began_at, began = stretches[0][0]
    change = stretches[-1][-1][1] - began
    high, low = began + _CAME_BACK * change, began + (1 - _CAME_BACK) * change
    sign = math.copysign(1.0, change)
    been_high = False
    for time, value in series:
        if time >= began_at:
            return False
        if value is None:
            continue
        # `sign` mirrors a rise into a fall: `high` is where the window began, `low` where it ends.
        been_high = been_high or sign * (value - high) <= 0
        if been_high and sign * (value - low) >= 0:
            return True
    return False


def _stretches(series: Series, slot_s: float) -> list[list[_Point]]:
    """Return (mean time, mean value) of each slot, in stretches between missing samples or slots."""
    stretches: list[list[_Point]] = []
    times = values = 0.0
    count, slot, broken = 0, -math.inf, True
    for time, value in series:
        here = time // slot_s
        if count and (value is None or here != slot):
            _add(stretches, (times / count, values / count), new=broken)
            times, values, count, broken = 0.0, 0.0, 0, value is None or here - slot > 1
        if value is None:
            broken = True
            continue
        times, values, count, slot = times + time, values + value, count + 1, here
    if count:
        _add(stretches, (times / count, values / count), new=broken)
    return stretches


def _add(stretches: list[list[_Point]], point: _Point, *, new: bool) -> None:
    if new:
        stretches.append([point])
    else:
        stretches[-1].append(point)


def headroom(found: Trend | None, left_gib: float | None, limit_bytes: float | None) -> Headroom:
    """Return the change of headroom (a trend in GiB) and when it reaches the critical `limit_bytes`."""
    limit = None if limit_bytes is None else round(limit_bytes)
    if found is None:
        return Headroom(limit_bytes=limit)
    until_limit_s = None
    if limit_bytes is not None and left_gib is not None and found.slope < 0:
        until_limit_s = max(0.0, (left_gib - limit_bytes / _GIB) / -found.slope)
    return Headroom(found.slope * _GIB, found.window_s, until_limit_s, limit)
