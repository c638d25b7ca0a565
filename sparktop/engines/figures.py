"""Functions that reduce all samples of one metric name to one value: a count, a share, requests by reason.

A counter that is negative, infinite or NaN is unknown (None), and so is any sum that includes such a counter.
A share outside 0 to 1 and the value of a metric without samples are unknown too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from sparktop.engines.exposition import Family, Labels, Places, number, without
from sparktop.model.engine import UNKNOWN_REASON
from sparktop.model.text import clean

Reading: TypeAlias = Callable[[Family], object]
"""Reduces the samples of a metric name in one engine core (lane) to the value of a `LaneSample` field."""

_T = TypeVar("_T")
_MAX_REASONS = 32
_TOLERANCE = 5e-3
"""A share may be this much below 0 or above 1: engines count used and free blocks at different times."""


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
    totals = {reason: total(part) for reason, part in _by_reason(family)}
    return {reason: count for reason, count in totals.items() if count is not None}


def _by_reason(family: Mapping[Labels, _T]) -> list[tuple[str, dict[Labels, _T]]]:
    """Return (clean reason why requests finished, its samples), sorted by reason."""
    by_reason: dict[str, dict[Labels, _T]] = {}
    for labels, value in family.items():
        reason = label(labels, "finished_reason") or UNKNOWN_REASON
        if reason in by_reason or len(by_reason) < _MAX_REASONS:
            by_reason.setdefault(reason, {})[labels] = value
    return [(clean(reason, 40), part) for reason, part in sorted(by_reason.items())]


class _Only:
    """Applies a function to the samples whose label has one of some values."""

    def __init__(
        self, name: str, values: tuple[str | None, ...], combine: Callable[[Family], float | None]
    ) -> None:
        """Select samples by their label `name`."""
        self.combine = combine
        self._name = name
        self._values = values

    def __call__(self, family: Family) -> float | None:
        """Return what `combine` returns for the selected samples."""
        return self.combine(self.kept(family))

    def kept(self, family: Mapping[Labels, _T]) -> dict[Labels, _T]:
        """Return the selected samples."""
        return where(family, self._name, *self._values)


def only(
    name: str, *values: str | None, combine: Callable[[Family], float | None]
) -> Callable[[Family], float | None]:
    """Return a function that applies `combine` to the samples whose label `name` is one of `values`.

    A None in `values` selects the samples without this label.
    """
    return _Only(name, values, combine)


def bound(combine: Reading, places: Places) -> Callable[[Sequence[float]], object]:
    """Return a function that applies `combine` to the values of a page that have these indices.

    What follows from labels is computed here, once for all pages of a server.
    """
    if isinstance(combine, _Only):
        return bound(combine.combine, combine.kept(places))
    if combine is finished:
        return _bound_finished(places)
    of_one = _OF_ONE.get(combine)
    if of_one is not None and len(places) == 1:
        (index,) = places.values()
        return lambda values: of_one(values[index])
    return lambda values: combine({labels: values[index] for labels, index in places.items()})


def _bound_finished(places: Places) -> Callable[[Sequence[float]], Mapping[str, float]]:
    parts = {reason: bound(total, part) for reason, part in _by_reason(places)}

    def read(values: Sequence[float]) -> Mapping[str, float]:
        totals = {reason: count(values) for reason, count in parts.items()}
        return {reason: count for reason, count in totals.items() if isinstance(count, float)}

    return read


def _total_of_one(value: float) -> float | None:
    return 0.0 + value if 0 <= value < math.inf else None  # 0.0 also for -0.0, as in a sum


def _share_of_one(value: float) -> float | None:
    return min(max(0.0, value), 1.0) * 100 if -_TOLERANCE <= value <= 1 + _TOLERANCE else None


_OF_ONE: Mapping[Reading, Callable[[float], float | None]] = {
    total: _total_of_one,
    total_or_none: lambda value: _total_of_one(value) or None,
    requests: _total_of_one,
    share: _share_of_one,
    share_or_none: lambda value: _share_of_one(value) or None,
}
"""What these functions return for a single sample, from its value."""


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
