"""Formatting of table cells: numbers and words without padding; an unknown value is "–"."""

from __future__ import annotations

from datetime import UTC, datetime

from sparktop.graphics import numbers
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.snapshot import Quantile
from sparktop.model.text import clean


def time_of(time: datetime) -> str:
    """Format a time of day in UTC, to the second."""
    return f"{time.astimezone(UTC):%H:%M:%S}"


def name(text: str | None, limit: int = 200) -> str:
    """Return text from outside as one clean line; "–" for None or empty text."""
    return clean(text or "", limit) or UNKNOWN


def quantile(known: Quantile | None) -> str:
    """Format a quantile, or the bound known of it ("< 10 ms"); "–" for None."""
    if known is None:
        return UNKNOWN
    sign = "<" if known.below else ">" if known.above else ""
    return f"{sign} {duration(known.seconds)}".strip()


def duration(seconds: float | None) -> str:
    """Format a latency."""
    return numbers.duration(seconds, 9).strip()


def seconds(value: float) -> str:
    """Return a time span in seconds, with one decimal below 9.5 s."""
    return f"{value:.1f}" if value < 9.5 else f"{value:.0f}"  # noqa: PLR2004 - where two digits begin


def rate(value: float | None) -> str:
    """Format a rate per second."""
    return numbers.rate(value, 8).strip()


def count(value: float | None) -> str:
    """Format a count."""
    return numbers.count(value, 8).strip()


def whole(value: int | None) -> str:
    """Format an integer with all its digits."""
    return UNKNOWN if value is None else str(value)


def percent(value: float | None) -> str:
    """Format a percentage."""
    return numbers.percent(value, 5).strip()


def data(value: float | None) -> str:
    """Format an amount of bytes."""
    return numbers.data(value, 10).strip()


def with_unit(value: float | None, unit: str) -> str:
    """Format an integer with its unit; an unknown value has no unit."""
    shown = numbers.count(value, 6).strip()
    return shown if shown == UNKNOWN else f"{shown} {unit}"
