"""Numbers as people type them: on the command line, in the fields of a screen."""

from __future__ import annotations

import math
import re

from sparktop.errors import UsageError
from sparktop.model.text import clean

_BETWEEN = re.compile(r"\s*,\s*|\s+")


def number(text: str, least: float, most: float, unit: str = "") -> float:
    """Read a number from `least` to `most`.

    Raises:
        UsageError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise UsageError(f"must be {least:g} to {most:g}{unit}, not '{clean(text, 40)}'")
    return value


def whole_number(text: str, least: int, most: int) -> int:
    """Read a whole number from `least` to `most`.

    Raises:
        UsageError: it is none.
    """
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise UsageError(f"must be a whole number, {least} to {most}, not '{clean(text, 40)}'")
    return value


def whole_numbers(text: str, least: int, most: int) -> tuple[int, ...]:
    """Read whole numbers with commas or spaces between them, each once, in the order typed.

    Raises:
        UsageError: one of them is none, or there is none at all.
    """
    parts = _BETWEEN.split(text.strip())
    return tuple(dict.fromkeys(whole_number(part, least, most) for part in parts))
