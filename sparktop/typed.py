"""Parsers for numbers that users type on the command line or in fields of a screen."""

from __future__ import annotations

import math
import re

from sparktop.errors import UsageError
from sparktop.model.text import clean

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
