"""What the samples of one name come to: a count, a share, requests by reason.

A counter below 0, infinite or no number is unknown, and so is a sum with such a part; a share out of 0 to 1
likewise. An empty family is unknown too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

from sparktop.engines.exposition import Family, Labels, number, without
from sparktop.model.text import clean

Reading: TypeAlias = Callable[[Family], object]
"""Turns one lane's samples of a name into the value of a field."""

_MAX_REASONS = 32
_TOLERANCE = 1e-4
"""How far beyond 0 and 1 rounding may carry a share."""


def total(family: Family) -> float | None:
    """Add up a counter; None when a part of it is unknown."""
    added = 0.0
    for value in family.values():
        if not 0 <= value < math.inf:
            return None
        added += value
    return added if family else None


def total_or_none(family: Family) -> float | None:
    """Add up a counter that a server without the feature shows as 0."""
    return total(family) or None


def requests(family: Family) -> float | None:
    """Add up a gauge of requests, once for all processes that show it."""
    if total(family) is None:
        return None
    highest: Family = {}
    for labels, value in family.items():
        key = without(labels, "pid")
        highest[key] = max(value, highest.get(key, 0.0))
    return sum(highest.values())


def share(family: Family) -> float | None:
    """Give the highest share in percent."""
    if not all(-_TOLERANCE <= value <= 1 + _TOLERANCE for value in family.values()):
        return None
    return min(max(0.0, *family.values()), 1.0) * 100 if family else None


def share_or_none(family: Family) -> float | None:
    """Give the highest share in percent, of a gauge that a server without the feature shows as 0."""
    return share(family) or None


def finished(family: Family) -> Mapping[str, float]:
    """Add up finished requests by reason; a reason whose count is unknown is left out."""
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
    """Make a reading of those samples only that `where` gives."""
    return lambda family: combine(where(family, name, *values))


def where(family: Family, name: str, *values: str | None) -> Family:
    """Give the samples whose label `name` is one of `values`; None: without that label."""
    return {labels: value for labels, value in family.items() if label(labels, name) in values}


def label(labels: Labels, wanted: str) -> str | None:
    """Give the value of a label; None where there is no such label."""
    for name, value in labels:
        if name == wanted:
            return value
    return None


def positive(text: str | None) -> float | None:
    """Give a finite number above 0; None for anything else."""
    value = number(text or "")
    return value if 0 < value < math.inf else None


def start_time(family: Family) -> float | None:
    """Give the earliest start (Unix time) that `process_start_time_seconds` tells."""
    started = [value for value in family.values() if 0 < value < math.inf]
    return min(started, default=None)
