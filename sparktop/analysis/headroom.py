"""Where the memory goes: how fast headroom changes, and how long it lasts at that pace.

The slope is the median of the slopes between all pairs of points (Theil and Sen). It is told only where 0 is
outside of its 99 % confidence interval, which comes from the variance of Kendall's S (P. K. Sen, J. Am. Stat.
Assoc. 63, 1968); pairs across a gap do not count, and the variances of the stretches between gaps add up
(Hirsch, Slack and Smith, Water Resources Research 18, 1982). And it is told only where near pairs show it as
well: a model that is loaded moves the far pairs all alike, as a trend does, but few of the near ones. A
least-squares line would take that one jump for a trend.

The points are means over a few seconds: 24 of them have 276 pairs, where four samples a second would have
115,000 in two minutes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sparktop.model.series import Series
from sparktop.model.snapshot import Headroom

SLOTS = 24
"""Points that the slope is taken from, at most."""
SLOT_S = 5.0
"""Seconds that make one point; with `SLOTS` the last two minutes."""
_SLOT_INTERVALS = 1.25
"""A slot is at least this many intervals long: no slot may be empty only because samples come seldom."""
_GIB = 2**30
_NEAR = 6
"""Points this far apart at most make a near pair."""
_AGREES = 0.5
"""The median slope of near pairs is at least this share of that of all pairs."""
_CONFIDENCE_Z = 2.576
"""99 % of a normal distribution lie within this many standard deviations."""

_Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Trend:
    """How a series changes, in its unit a second."""

    slope: float
    low: float
    """The confidence interval; it does not hold 0."""
    high: float
    window_s: float
    """From the first point to the last."""


def trend(series: Series, end: float, interval_s: float = 1.0) -> Trend | None:
    """Give how `series` changed up to `end`; None where that cannot be told from noise.

    `interval_s` is the time between two samples: with slow sampling the window has to be longer.
    """
    slot_s = max(SLOT_S, _SLOT_INTERVALS * interval_s)
    stretches = _stretches(series.since(end - SLOTS * slot_s), slot_s)
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for stretch in stretches
        for index, later in enumerate(stretch)
        for earlier in stretch[:index]
    )
    # Ties are not taken off the variance: that would only make the interval narrower.
    variance = sum(len(one) * (len(one) - 1) * (2 * len(one) + 5) / 18 for one in stretches)
    outside = math.floor((len(slopes) - _CONFIDENCE_Z * math.sqrt(variance)) / 2)
    if outside < 1:  # too few points for any interval at all
        return None
    slope, low, high = median(slopes), slopes[outside - 1], slopes[-outside]
    if low <= 0 <= high or _near_slope(stretches) / slope < _AGREES:
        return None
    return Trend(slope, low, high, stretches[-1][-1][0] - stretches[0][0][0])


def _near_slope(stretches: Sequence[Sequence[_Point]]) -> float:
    """Give the median slope between points that are not far apart."""
    return median(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for stretch in stretches
        for index, later in enumerate(stretch)
        for earlier in stretch[max(0, index - _NEAR) : index]
    )


def _stretches(series: Series, slot_s: float) -> list[list[_Point]]:
    """Give mean time and mean value of each slot, in stretches that a missing sample or slot parts."""
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
    """Give how headroom (a trend in GiB) changes and when it reaches `limit_bytes`, the critical limit."""
    limit = None if limit_bytes is None else round(limit_bytes)
    if found is None:
        return Headroom(limit_bytes=limit)
    until_limit_s = None
    if limit_bytes is not None and left_gib is not None and found.slope < 0:
        until_limit_s = max(0.0, (left_gib - limit_bytes / _GIB) / -found.slope)
    return Headroom(found.slope * _GIB, found.window_s, until_limit_s, limit)
