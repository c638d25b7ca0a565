"""Parsers for numbers that users type on the command line or in fields of a screen."""

from __future__ import annotations

import math
import re

from sparktop.errors import UsageError
from sparktop.model.text import clean

_K = 1024
_BETWEEN = re.compile(r"\s*,\s*|\s+")


def number(text: str, least: float, most: float, unit: str = "") -> float:
    """Parse a number from `least` to `most`; `unit` follows the limits in the error message.

    Raises:
        UsageError: the text is not such a number.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise UsageError(f"must be {least:g} to {most:g}{unit}, not '{clean(text, 40)}'")
    return value


def whole_number(text: str, least: int, most: int) -> int:
    """Parse an integer from `least` to `most`.

    Raises:
        UsageError: the text is not such an integer.
    """
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise UsageError(f"must be a whole number, {least} to {most}, not '{clean(text, 40)}'")
    return value


def whole_numbers(text: str, least: int, most: int) -> tuple[int, ...]:
    """Parse integers separated by commas or spaces, without repetitions, in the order typed.

    Raises:
        UsageError: a part is not an integer from `least` to `most`, or there is none.
    """
    parts = _BETWEEN.split(text.strip())
    return tuple(dict.fromkeys(whole_number(part, least, most) for part in parts))


def token_counts(text: str, least: int, most: int) -> tuple[int, ...]:
    """Parse numbers of tokens separated by commas or spaces, such as "0,4k,16k"; k stands for 1,024.

    Raises:
        UsageError: a part is not a number from `least` to `most`, or there is none.
    """
    found = []
    for part in _BETWEEN.split(text.strip()):
        thousands = part[-1:] in {"k", "K"}
        try:
            value = whole_number(part[:-1] if thousands else part, 0, most) * (_K if thousands else 1)
        except UsageError:
            value = least - 1
        if not least <= value <= most:
            raise UsageError(
                f"must be tokens from {least:,} to {most:,}, as in 4096 or 4k, not '{clean(part, 40)}'"
            )
        found.append(value)
    return tuple(dict.fromkeys(found))


def climbing_numbers(text: str, least: int, most: int) -> tuple[tuple[int, ...], int | None]:
    """Parse integers as `whole_numbers` does, and an upper limit after the last one, such as "1,4,16..256".

    Return (the integers, the limit); the limit is None if the text has none.

    Raises:
        UsageError: a part is not an integer from `least` to `most`, or the limit is below an integer.
    """
    listed, dots, end = text.replace("…", "..").partition("..")
    numbers = whole_numbers(listed.rstrip(" ,"), least, most)
    if not dots:
        return numbers, None
    limit = whole_number(end.strip(), least, most)
    if limit < max(numbers):
        raise UsageError(f"the limit after '..' must be {max(numbers)} or more, not {limit}")
    return numbers, limit


def number_or_more(text: str, least: int, most: int) -> tuple[int, bool]:
    """Parse an integer from `least` to `most`, or one with a plus sign after it, such as "3+".

    Return (the integer, whether the plus sign is there).

    Raises:
        UsageError: the text is neither.
    """
    bare = text.strip()
    return whole_number(bare.removesuffix("+"), least, most), bare.endswith("+")
