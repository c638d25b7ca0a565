"""Parsers for counts and times that users type on the command line or in fields of a screen.

In counts, k stands for 1,024, M, G and T for its powers. Times are seconds unless they have units. A range is
written 1..8 or 1-8.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from sparktop.errors import UsageError
from sparktop.model.text import clean

# The separators of a list: "1,2 4".
_BETWEEN = re.compile(r"\s*,\s*|\s+")
# "1..8", "1-8": the first and the last of a range; "1e-3" is none.
_RANGE = re.compile(r"(?P<first>.*?)\s*(?:\.\.|…|–|(?<=[^eE])-)\s*(?P<last>.*)", re.DOTALL)
# "32k", "1.5M": a number and its unit.
_COUNT = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?)", re.ASCII | re.IGNORECASE)
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# "90s", "1.5 min", "2h": a number and its unit of time.
_TIME = re.compile(
    r"(\d{1,12}(?:\.\d{0,9})?|\.\d{1,9})\s*"
    r"(ms|s(?:ecs?|econds?)?|m(?:ins?|inutes?)?|h(?:ours?)?|d(?:ays?)?)(?![a-z])\s*",
    re.ASCII | re.IGNORECASE,
)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def number(text: str, least: float, most: float, unit: str = "") -> float:
    """Parse a number from `least` to `most`, such as "2.5" or "4k"; `unit` follows the limits in an error.

    Raises:
        UsageError: the text is not such a number.
    """
    value = _float(text)
    value = _count(text) if math.isnan(value) else value
    if not least <= value <= most:
        raise UsageError(f"must be {least:,.10g} to {most:,.10g}{unit}, not '{clean(text, 40)}'")
    return value


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _count(text: str) -> float:
    match = _COUNT.fullmatch(text.strip())
    return math.nan if match is None else float(match[1]) * _FACTORS[match[2].lower()]


def seconds(text: str, least: float, most: float) -> float:
    """Parse a time from `least` to `most` seconds, such as "90", "10s", "2m" or "1h 30m".

    Raises:
        UsageError: the text is not such a time.
    """
    value = _float(text)
    if math.isnan(value):
        duration = duration_s(text.strip())
        value = math.nan if duration is None else duration
    if not least <= value <= most:
        raise UsageError(
            f"must be {least:,.10g} to {most:,.10g} seconds (units: ms, s, m, h), not '{clean(text, 40)}'"
        )
    return value


def duration_s(text: str) -> float | None:
    """Return a time with units, such as "500ms", "1m30s" or "2 hours", in seconds; None for another text."""
    total, at = 0.0, 0
    while (part := _TIME.match(text, at)) is not None:
        unit = part[2].lower()
        total += float(part[1]) * (0.001 if unit == "ms" else _SECONDS[unit[0]])
        at = part.end()
    return total if at and at == len(text) else None


def split_range(text: str) -> tuple[str, str | None]:
    """Return the ends of a range such as "1..8" or "1-8"; (the text, None) for a text that is no range."""
    match = _RANGE.fullmatch(text.strip())
    return (text.strip(), None) if match is None else (match["first"], match["last"])


def whole_number(text: str, least: int, most: int) -> int:
    """Parse an integer from `least` to `most`, such as "4096" or "4k".

    Raises:
        UsageError: the text is not such an integer.
    """
    value = _count(text)
    if not (least <= value <= most and value == int(value)):
        counted = f" ({value:,.0f})" if value > most and not text.strip().isdigit() else ""  # "10m"
        example = " such as 4k" if math.isnan(value) and most > _FACTORS["k"] else ""
        span = f"{example}, {least:,} to {most:,}"
        raise UsageError(f"must be a whole number{span}, not '{clean(text, 40)}'{counted}")
    return int(value)


def whole_numbers(text: str, least: int, most: int) -> tuple[int, ...]:
    """Parse integers separated by commas or spaces, without repetitions, in the order typed.

    A range such as "1..8" stands for its first end, doubled up to its last: 1, 2, 4 and 8.

    Raises:
        UsageError: a part is not an integer from `least` to `most` nor a range of these, or there is none.
    """
    return tuple(
        dict.fromkeys(value for part in _parts(text) for value in _doubling_numbers(part, least, most))
    )


def _parts(text: str) -> list[str]:
    spaced = re.sub(r"\s*(\.\.|…|–|-)\s*", r"\1", text.strip())
    return _BETWEEN.split(spaced)


def _doubling_numbers(text: str, least: int, most: int) -> Iterator[int]:
    first, end = split_range(text)
    if end is not None and "" in {first, end}:
        raise UsageError(f"a range has two ends, as in 1..8, not '{clean(text, 40)}'")
    value = whole_number(first, least, most)
    yield value
    if end is None:
        return
    last = whole_number(end, least, most)
    if not 0 < value <= last:
        raise UsageError(f"a range goes up from 1 or more, as in 1..8, not '{clean(text, 40)}'")
    while (value := 2 * value) < last:
        yield value
    yield last


def climbing_numbers(text: str, least: int, most: int) -> tuple[tuple[int, ...], int | None]:
    """Parse integers as `whole_numbers` does, and an upper limit after the last one, such as "1,4,16..256".

    Return (the integers, the limit); the limit is None if the text has none.

    Raises:
        UsageError: a part is not an integer from `least` to `most`, or the limit is below an integer.
    """
    *before, last = _parts(text.strip())
    end, limit_text = split_range(last)
    before += [end] if end else []
    numbers = tuple(dict.fromkeys(value for part in before for value in _doubling_numbers(part, least, most)))
    if limit_text is None:
        return numbers, None
    limit = whole_number(limit_text, least, most)
    if not numbers or limit < max(numbers):
        raise UsageError(f"the limit after '..' must be {max(numbers, default=least)} or more, not {limit}")
    return numbers, limit


def number_or_more(text: str, least: int, most: int) -> tuple[int, bool]:
    """Parse an integer from `least` to `most`, or one with a plus sign after it, such as "3+".

    Return (the integer, whether the plus sign is there).

    Raises:
        UsageError: the text is neither.
    """
    bare = text.strip()
    try:
        return whole_number(bare.removesuffix("+"), least, most), bare.endswith("+")
    except UsageError:
        words = f"""must be a whole number from {least:,} to {most:,}, or 3+ for "at least 3", not """
        raise UsageError(f"{words}'{clean(text, 40)}'") from None
