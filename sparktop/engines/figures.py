"""Functions that reduce all samples of one metric name to one value: a count, a share, requests by reason.

A counter that is negative, infinite or NaN is unknown (None), and so is any sum that includes such a counter.
A share outside 0 to 1 and the value of a metric without samples are unknown too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

from sparktop.engines.exposition import Family, Labels, number, without
from sparktop.model.text import clean

Reading: TypeAlias = Callable[[Family], object]
"""Reduces the samples of a metric name in one engine core (lane) to the value of a `LaneSample` field."""

_T = TypeVar("_T")
_MAX_REASONS = 32
_TOLERANCE = 1e-4
"""A share may be this much below 0 or above 1, because of rounding."""


def total(family: Family) -> float | None:
    """Return the sum of a counter's samples; None when one of them is invalid or there are no samples."""
    added = 0.0
    for value in family.values():
        if not 0 <= value < math.inf:
            return None
        added += value
    return added if family else None


def total_or_none(family: Family) -> float | None:
    """Return the sum of a counter's samples, or None if it is invalid or 0.

    A server without the counted feature reports 0.
    """
    return total(family) or None


def scaled(factor: float) -> Callable[[Family], float | None]:
    """Return a function that sums a counter's samples and multiplies the sum by `factor`."""

    def read(family: Family) -> float | None:
        added = total(family)
        return None if added is None else factor * added

    return read


def requests(family: Family) -> float | None:
    """Return the sum of a gauge that counts requests over its samples; None if a sample is invalid.

    If samples differ only in the label `pid`, they are the same gauge reported by several processes, and only
    the highest is counted.
    """
    if total(family) is None:
        return None
    highest: Family = {}
    for labels, value in family.items():
        key = without(labels, "pid")
        highest[key] = max(value, highest.get(key, 0.0))
    return sum(highest.values())


def share(family: Family) -> float | None:
    """Return the highest of a gauge's values, which are fractions, in percent (0 to 100).

    None if a value is outside 0 to 1, or if there are no samples.
    """
    if not all(-_TOLERANCE <= value <= 1 + _TOLERANCE for value in family.values()):
        return None
    return min(max(0.0, *family.values()), 1.0) * 100 if family else None


def share_or_none(family: Family) -> float | None:
    """Return the highest of a gauge's values in percent, or None if it is invalid or 0.

    A server without the measured feature reports 0.
    """
    return share(family) or None


def finished(family: Family) -> Mapping[str, float]:
    """Return the number of finished requests by reason; reasons with an invalid count are left out."""
    by_reason: dict[str, Family] = {}
    for labels, value in family.items():
        reason = label(labels, "finished_reason") or "unknown"
        if reason in by_reason or len(by_reason) < _MAX_REASONS:
            by_reason.setdefault(reason, {})[labels] = value
    totals = {clean(reason, 40): total(part) for reason, part in sorted(by_reason.items())}
    return {reason: count for reason, count in totals.items() if count is not None}


def only(
    name: str, *values: str | None, combine: Callable[[Family], float | None]
) -> Callable[[Family], float | None]:
    """Return a function that applies `combine` to the samples whose label `name` is one of `values`.

    A None in `values` selects the samples without this label.
    """
    return lambda family: combine(where(family, name, *values))


def where(family: Mapping[Labels, _T], name: str, *values: str | None) -> dict[Labels, _T]:
    """Return the samples whose label `name` is one of `values`; None selects samples without this label."""
    return {labels: value for labels, value in family.items() if label(labels, name) in values}


def label(labels: Labels, wanted: str) -> str | None:
    """Return the value of the label `wanted`; None when the label is absent."""
    for name, value in labels:
        if name == wanted:
            return value
    return None


def positive(text: str | None) -> float | None:
    """Parse a finite number above 0; None for other text."""
    value = number(text or "")
    return value if 0 < value < math.inf else None


def start_time(family: Family) -> float | None:
    """Return the earliest process start (Unix time) among the samples; None when no sample is valid."""
    started = [value for value in family.values() if 0 < value < math.inf]
    return min(started, default=None)
