"""Durations as text: one spelling for exact ones, and one for the range in which an estimate lies."""

from __future__ import annotations

import math

from sparktop.graphics import numbers

_MINUTE_S, _HOUR_S = 60, 3600
_HOURS_FROM_S = 5400
"""From here on, the upper end of a range is written with hours."""


def duration_words(seconds: float | None) -> str:
    """Format a duration to the second: "24 s", "3 min 5 s", from an hour on "1 h 2 min"; "–" if unknown."""
    if seconds is None:
        return numbers.UNKNOWN
    total_s = round(seconds)
    if total_s >= _HOUR_S:
        return numbers.age(total_s)
    minutes, left_s = divmod(total_s, _MINUTE_S)
    if not minutes:
        return f"{total_s} s"
    return f"{minutes} min {left_s} s" if left_s else f"{minutes} min"


def range_words(least_s: float, most_s: float) -> str:
    """Format a range of durations, rounded outwards: "20 to 35 s", "40 s to 2 min", "2 to 4 min".

    Return a single duration if both ends round to the same one.
    """
    if most_s <= _MINUTE_S:
        low, high = max(0, math.floor(least_s / 5) * 5), max(5, math.ceil(most_s / 5) * 5)
        return f"{low} to {high} s" if low else f"up to {high} s"
    if most_s < _HOURS_FROM_S:
        high = math.ceil(most_s / _MINUTE_S)
        if least_s < _MINUTE_S:
            low = math.floor(least_s / 10) * 10
            return f"{low} s to {high} min" if low else f"up to {high} min"
        low = math.floor(least_s / _MINUTE_S)
        return f"{low} to {high} min" if low < high else f"{high} min"
    step_s = 600
    low_s, high_s = math.floor(least_s / step_s) * step_s, math.ceil(most_s / step_s) * step_s
    low_words, high_words = duration_words(low_s), duration_words(high_s)
    if not low_s:
        return f"up to {high_words}"
    return high_words if low_words == high_words else f"{low_words} to {high_words}"
