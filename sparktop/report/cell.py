"""One cell of a table: a figure or a word, never wider than it must be; what is unknown is "–"."""

from __future__ import annotations

from datetime import UTC, datetime

from sparktop.graphics import numbers
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.snapshot import Quantile
from sparktop.model.text import clean


def time_of(time: datetime) -> str:
    """Give a time of day in UTC, to the second."""
    return f"{time.astimezone(UTC):%H:%M:%S}"


def name(text: str | None, limit: int = 200) -> str:
    """Give text from outside as one clean line."""
    return clean(text or "", limit) or UNKNOWN


def quantile(known: Quantile | None) -> str:
    """Give a quantile, or the bound that is known of it."""
    if known is None:
        return UNKNOWN
    sign = "<" if known.below else ">" if known.above else ""
    return f"{sign} {duration(known.seconds)}".strip()


def duration(seconds: float | None) -> str:
    """Give a latency."""
    return numbers.duration(seconds, 9).strip()


def seconds(value: float) -> str:
    """Return a time span in seconds, with one decimal below 9.5 s."""
    return f"{value:.1f}" if value < 9.5 else f"{value:.0f}"  # noqa: PLR2004 - where two digits begin


def rate(value: float | None) -> str:
    """Give things a second."""
    return numbers.rate(value, 8).strip()


def count(value: float | None) -> str:
    """Give a number of things."""
    return numbers.count(value, 8).strip()


def whole(value: int | None) -> str:
    """Give a whole number with all its digits."""
    return UNKNOWN if value is None else str(value)


def percent(value: float | None) -> str:
    """Give a percentage."""
    return numbers.percent(value, 5).strip()


def data(value: float | None) -> str:
    """Give an amount of bytes."""
    return numbers.data(value, 10).strip()


def with_unit(value: float | None, unit: str) -> str:
    """Give a whole number with its unit."""
    shown = numbers.count(value, 6).strip()
    return shown if shown == UNKNOWN else f"{shown} {unit}"
