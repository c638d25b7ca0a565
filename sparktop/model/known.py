"""Means, sums and extremes of values of which some are unknown (None): None only where all are."""

from __future__ import annotations

from collections.abc import Iterable


def known_values(values: Iterable[float | None]) -> list[float]:
    """Return the values that are known, in their order."""
    return [value for value in values if value is not None]


def known_mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values."""
    known = known_values(values)
    return sum(known) / len(known) if known else None


def known_sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values."""
    known = known_values(values)
    return sum(known) if known else None


def known_max(values: Iterable[float | None]) -> float | None:
    """Return the highest of the known values."""
    return max(known_values(values), default=None)


def known_min(values: Iterable[float | None]) -> float | None:
    """Return the lowest of the known values."""
    return min(known_values(values), default=None)
