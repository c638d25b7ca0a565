"""Width of text in terminal cells, text fitted to an exact width, and bars that are one row high."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from textwrap import wrap
from typing import Literal

ELLIPSIS = "…"
"""Marks where text was cut."""

# Hangul vowels and finals combine with the syllable before them; skin tones with the emoji before them.
_JOINING = (("\u1160", "\u11ff"), ("\ud7b0", "\ud7fb"), ("\U0001f3fb", "\U0001f3ff"))
_NARROW = re.compile("[ -~·–…\u2500-\u25fc\u2800-\u28ff]*")
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


@lru_cache(maxsize=4096)
def is_narrow(text: str) -> bool:
    """Return whether each character of `text` takes one cell, so that a cell is found by its index."""
    return _NARROW.fullmatch(text) is not None or all(_char_width(char) == 1 for char in text)


def fit(text: str, width: int, align: Literal["left", "right", "center"] = "left") -> str:
    """Return `text` in exactly `width` cells: padded with spaces, or cut at the right and ended with "…".

    A space replaces a wide character of which only the first cell would fit.
    """
    if width <= 0:
        return ""
    spare = width - cell_width(text)
    if spare < 0:
        return _cut_text(text, width)
    if align == "right":
        return " " * spare + text
    if align == "center":
        return " " * (spare // 2) + text + " " * (spare - spare // 2)
    return text + " " * spare


def _cut_text(text: str, width: int) -> str:
    room = width - 1
    if text.isascii() and text.isprintable():
        return text[:room] + ELLIPSIS
    kept_chars: list[str] = []
    for char in text:
        cells = _char_width(char)
        if cells > room:
            break
        kept_chars.append(char)
        room -= cells
    return "".join(kept_chars) + " " * room + ELLIPSIS


def wrap_cells(text: str, width: int, indents: tuple[str, str] = ("", "")) -> list[str]:
    """Wrap a text at spaces into lines of at most `width` cells; a longer word is split.

    `indents` stand before the first line and before all others.
    """
    first, others = indents
    if not is_narrow(text):
        # A second character stands for the second cell of a wide one; as a word may be split between the two,
        # a cell is left for that.
        text = "".join(char.rjust(_char_width(char), _SECOND_CELL) for char in text)
        width -= 1
    lines = wrap(text, width, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
    return [line.replace(_SECOND_CELL, "") for line in lines]


_SECOND_CELL = "\0"
"""A control character, which no drawn text has."""
EMPTY = "·"
"""Character of the unfilled part of a bar."""
UNKNOWN_BAR = "–"
"""Character of a bar whose value is unknown."""
_PARTS = " ▏▎▍▌▋▊▉"
_LEVELS = "▁▂▃▄▅▆▇█"


def bar(fraction: float | None, width: int) -> tuple[str, str]:
    """Return the filled and the empty part of a bar of `width` cells, exact to an eighth of a cell.

    `fraction` is clipped to 0 to 1. If it is above 0, at least an eighth of a cell is filled. If it is None,
    the filled part is "" and the empty part consists of dashes.
    """
    if width <= 0:
        return "", ""
    if fraction is None or math.isnan(fraction):
        return "", UNKNOWN_BAR * width
    share = min(1.0, max(0.0, fraction))
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    whole_cells, eighth = divmod(eighths, 8)
    filled = "█" * whole_cells + (_PARTS[eighth] if eighth else "")
    return filled, EMPTY * (width - len(filled))


def segments(parts: Sequence[float], total: float, width: int) -> list[int]:
    """Return the width in cells of each part of a stacked bar, and last that of the remaining bar.

    The remaining bar shows what the parts leave of `total`. The widths add up to `width` exactly
    (largest-remainder method). A part above 0 gets at least one cell; if there are more such parts than
    cells, only the largest get one. If the parts add up to more than `total`, they fill the bar in
    proportion.
    """
    sizes = [part if part > 0 and math.isfinite(part) else 0.0 for part in parts]
    largest = max([*sizes, total if math.isfinite(total) else 0.0], default=0.0)
    if width <= 0 or largest <= 0:
        return [0] * len(sizes) + [max(0, width)]
    # Relative to the largest, because sums of huge numbers would overflow.
    shares = [size / largest for size in sizes]
    limit = total / largest if math.isfinite(total) else 0.0
    shares.append(max(0.0, limit - sum(shares)))
    unit = width / sum(shares)
    widths = [int(share * unit) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (widths[i] - shares[i] * unit, i))
    for index in by_remainder[: width - sum(widths)]:
        widths[index] += 1
    _give_each_a_cell(widths, shares)
    return widths


def _give_each_a_cell(widths: list[int], shares: Sequence[float]) -> None:
    """Change `widths` so that each part of the bar whose share is above 0 has at least one cell.

    `widths` has the cells of each part, and as its last element the cells that no part fills. A part without
    a cell gets one from the widest element. If no element has two cells, the part gets one of the unfilled
    cells. If there are none, the smallest parts stay without a cell.
    """
    rest_index = len(widths) - 1
    hidden = [index for index in range(rest_index) if shares[index] > 0 and not widths[index]]
    for index in sorted(hidden, key=lambda i: -shares[i]):
        donor = max(range(len(widths)), key=lambda i: (widths[i], i))
        if widths[donor] > 1:
            widths[donor] -= 1
        elif widths[rest_index]:
            widths[rest_index] -= 1
        else:
            return
        widths[index] = 1


def sparkrow(values: Sequence[float | None], width: int, top: float) -> str:
    """Return a row of `width` vertical bars, one cell for each of the newest values, the newest at the right.

    Values are clipped to 0…`top`. 0 has the lowest bar, and None is a space. If there are fewer values than
    cells, the row begins with spaces.
    """
    if width <= 0:
        return ""
    cells = [_level_char(value, top) for value in values[-width:]]
    return "".join(cells).rjust(width)


def _level_char(value: float | None, top: float) -> str:
    if value is None or math.isnan(value):
        return " "
    if value <= 0 or not top > 0:
        return _LEVELS[0]
    return _LEVELS[-1] if value >= top else _LEVELS[int(value / top * len(_LEVELS))]
