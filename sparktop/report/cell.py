"""Formats values as cells of report tables: short text without padding; an unknown value is "–"."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from sparktop.graphics import numbers
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.figures import Figure
from sparktop.model.router import Sum
from sparktop.model.snapshot import Quantile
from sparktop.model.text import clean


def time_of(time: datetime) -> str:
    """Format a time of day in UTC as "14:05:09"."""
    return f"{time.astimezone(UTC):%H:%M:%S}"


def name(text: str | None, limit: int = 200) -> str:
    """Return text from outside, such as a name, as one line without control characters; "–" for None or "".

    Text longer than `limit` characters is cut.
    """
    return clean(text or "", limit) or UNKNOWN


def quantile(value: Quantile | None) -> str:
    """Format a quantile in seconds: "12.3 ms", "–" for None.

    "< 10 ms" if only a bound is known, "1 to 2.5 s" in a wide bucket.
    """
    if value is None:
        return UNKNOWN
    if value.bucket_s:
        low_s, high_s = value.bucket_s
        return f"{low_s:g} to {high_s:g} s" if high_s >= 1 else f"{low_s * 1000:g} to {high_s * 1000:g} ms"
    sign = value.bound_sign
    return f"{sign} {duration(value.seconds)}".strip()


def duration(seconds: float | None) -> str:
    """Format a duration in seconds with a fitting unit, such as "9.4 ms" or "1.23 s"; "–" for None."""
    return numbers.duration(seconds, 9).strip()


def seconds(value: float) -> str:
    """Return a number of seconds without unit, with one decimal below 9.5."""
    return f"{value:.1f}" if value < 9.5 else f"{value:.0f}"  # noqa: PLR2004 - where two digits begin


def rate(value: float | None) -> str:
    """Format a rate per second without unit, such as "12.3" or "1.23M"; "–" for None."""
    return numbers.rate(value, 8).strip()


def count(value: float | None) -> str:
    """Format a count: all digits up to 9,999, then such as "12.3k"; "–" for None."""
    return numbers.count(value, 8).strip()


def total(summed: Sum, text_of: Callable[[float | None], str]) -> str:
    """Format a sum with `text_of`; "≥" stands before one that lacks unknown values."""
    return f"{summed.sign}{text_of(summed.value)}"


def whole(value: int | None) -> str:
    """Format an integer with all its digits; "–" for None."""
    return UNKNOWN if value is None else f"{value:,}"


def percent(value: float | None) -> str:
    """Format a percentage (0 to 100) as "42 %"; "–" for None."""
    return numbers.percent(value, 5).strip()


def data(value: float | None) -> str:
    """Format a number of bytes in units of 1024, such as "121.5 GiB"; "–" for None."""
    return numbers.data(value, 10).strip()


def with_unit(value: float | None, unit: str) -> str:
    """Format a value as an integer and its unit, such as "280 W"; "–" for None."""
    text = numbers.count(value, 6).strip()
    return text if text == UNKNOWN else f"{text} {unit}"


def ago(age_s: float | None, unknown: str = UNKNOWN) -> str:
    """Format an age as "12 s ago"; `unknown` for None."""
    return unknown if age_s is None else f"{numbers.age(age_s)} ago"


def time_or_unknown(time: datetime | None) -> str:
    """Format a time of day as `time_of`; "–" for None."""
    return UNKNOWN if time is None else time_of(time)


def whole_ms(value: float | None) -> str:
    """Format milliseconds without decimals: "12 ms"; "–" for None."""
    return UNKNOWN if value is None else f"{value:.0f} ms"


def figure(measured: Figure, view: object) -> str:
    """Format a figure of a view with its unit, unless its title has that."""
    forms = {"%": percent, "s": duration, "bytes": data, "requests": count}
    return forms.get(measured.unit, rate)(measured.value(view))
