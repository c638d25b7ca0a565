"""Computes round numbers for the upper ends of axes, which short spikes do not raise."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence

from msgspec import Struct

_STEPS = ("1", "1.5", "2", "2.5", "3", "4", "5", "6", "8", "10")
_MOST_TEXT = "1e308"
CLIPPED = 1.2
"""A value above this many times the upper end of its scale is marked as clipped."""
_SPIKE_SHARE = 0.02
"""Largest share of a graph's time slots that a spike takes: the scale follows the 98th percentile."""
_SPIKE_FROM = 20
"""Least number of known values of which one can be called a spike."""
_SPIKE_HEIGHT = 1.5
"""A spike is at least this many times as high as everything else."""


class Top(Struct, frozen=True):
    """The upper end of a scale, and the highest value where it lies above that end."""

    end: float
    highest: float | None = None
    """None unless graphs on this scale clip a spike."""


def nice_ceiling(value: float | None, minimum: float = 1.0) -> float:
    """Return the smallest round number that is at least `value` and at least `minimum`.

    Round numbers are 1, 1.5, 2, 2.5, 3, 4, 5, 6 or 8 times a power of ten. If `value` is None or NaN, only
    `minimum` counts. The result never exceeds the largest float.
    """
    least = minimum if math.isfinite(minimum) and minimum > 0 else 1.0
    wanted = least if value is None or math.isnan(value) else max(value, least)
    if wanted > float(_MOST_TEXT):
        return sys.float_info.max
    exponent = math.floor(math.log10(wanted))
    # Parsed from text, because products such as 10.0 ** -1 * 2.5 miss the nearest float.
    tops = (float(f"{step}e{power}") for power in (exponent - 1, exponent, exponent + 1) for step in _STEPS)
    return next(top for top in tops if top >= wanted)


def top_without_spikes(lines: Iterable[Sequence[float | None]], minimum: float = 1.0) -> Top:
    """Return the common upper end of the scale of several graphs, each given by its values by time slot.

    A graph's highest 2 % of slots, and one more for a spike that lies across the edge of two slots, do not
    raise the scale if everything else is much lower. The two newest slots always count: what they show may
    last.
    """
    highest = lasting = 0.0
    for values in lines:
        known = sorted([value for value in values if value is not None and value > 0])
        if not known:
            continue
        filled = len(values) - values.count(None)
        spike = max(2, int(_SPIKE_SHARE * filled) + 1) if filled >= _SPIKE_FROM else 0
        rest = known[: len(known) - spike]
        newest = (value for value in values[-2:] if value is not None)
        lasting = max((lasting, *rest[-1:], *newest))
        highest = max(highest, known[-1])
    if highest <= _SPIKE_HEIGHT * max(lasting, minimum):
        return Top(nice_ceiling(highest, minimum))
    end = nice_ceiling(lasting, minimum)
    return Top(end, highest) if highest > CLIPPED * end else Top(nice_ceiling(highest, minimum))


def widest_top(tops: Sequence[Top], minimum: float) -> Top:
    """Return the largest of several upper ends, and the highest value above it, if any."""
    end = max((top.end for top in tops), default=minimum)
    above = [top.highest for top in tops if top.highest is not None and top.highest > end]
    return Top(end, max(above, default=None))
