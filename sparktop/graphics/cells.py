"""Width of text in terminal cells, and text fitted to an exact width."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Literal

ELLIPSIS = "…"
"""Marks where text was cut."""

# Hangul vowels and finals combine with the syllable before them; skin tones with the emoji before them.
_JOINING = (("\u1160", "\u11ff"), ("\ud7b0", "\ud7fb"), ("\U0001f3fb", "\U0001f3ff"))
_NARROW = re.compile("[ -~·–…─-◼⠀-⣿]*")
"""Matches text whose characters each take one cell: ASCII, lines, blocks, braille."""


@lru_cache(maxsize=2048)
def _char_width(char: str) -> int:
    category = unicodedata.category(char)
    if category[0] == "M" or category in {"Cc", "Cf"} or any(a <= char <= b for a, b in _JOINING):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


@lru_cache(maxsize=4096)
def cell_width(text: str) -> int:
    """Return the width of `text` in terminal cells.

    Wide East Asian characters and emoji take 2 cells, combining marks 0. Widths follow Unicode's East Asian
    Width (UAX #11), with "ambiguous" as 1.
    """
    # Fast path for nearly all drawn text: checking each character costs five times as much. Most texts are
    # drawn again and again, so that their widths are kept.
    return len(text) if _NARROW.fullmatch(text) else sum(map(_char_width, text))


def is_plain(text: str) -> bool:
    """Return whether each character of `text` certainly takes one cell: ASCII, lines, blocks, braille."""
    return _NARROW.fullmatch(text) is not None


def fit(text: str, width: int, align: Literal["left", "right", "center"] = "left") -> str:
    """Return `text` in exactly `width` cells: padded with spaces, or cut at the right and ended with "…".

    A space replaces a wide character of which only the first cell would fit.
    """
    if width <= 0:
        return ""
    spare = width - cell_width(text)
    if spare < 0:
        return _cut(text, width)
    if align == "right":
        return " " * spare + text
    if align == "center":
        return " " * (spare // 2) + text + " " * (spare - spare // 2)
    return text + " " * spare


def fit_name(name: str, width: int) -> str:
    """Return the name of a source in exactly `width` cells, as `fit` does.

    Of a name with a suffix, such as "spark-a@before", the beginning is cut off instead of the end, because
    its counterpart "spark-a@after" differs at the end.
    """
    if "@" not in name or cell_width(name) <= width:
        return fit(name, width)
    while cell_width(name) > width:
        name = name[1:]
    return fit(name, width)


def _cut(text: str, width: int) -> str:
    room = width - 1
    if text.isascii() and text.isprintable():
        return text[:room] + ELLIPSIS
    kept: list[str] = []
    for char in text:
        cells = _char_width(char)
        if cells > room:
            break
        kept.append(char)
        room -= cells
    return "".join(kept) + " " * room + ELLIPSIS
