"""Arranges text in rows: short pieces one after the other, and sentences wrapped at spaces."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sparktop.graphics.cells import cell_width, fit
from sparktop.model.text import with_units_joined
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.rows import Row, Run, row_width

_JOINED = "\0"
"""Stands for a space at which no line may end."""


def flowed(pieces: Sequence[Row], width: int) -> list[Row]:
    """Join pieces of text with " · ", on as many rows of `width` cells as needed; no piece is split."""
    rows: list[Row] = []
    for piece in pieces:
        if rows and row_width(rows[-1]) + 3 + row_width(piece) <= width:
            rows[-1] += [label(" · "), *piece]
        else:
            rows.append(list(piece))
    return rows


@lru_cache(maxsize=128)
def wrapped(text: str, width: int) -> tuple[str, ...]:
    """Wrap a sentence at spaces into lines of at most `width` cells; a longer word is cut with "…".

    A number and its unit stay in one line.
    """
    lines: list[str] = []
    for joined in with_units_joined(text, _JOINED).split():
        word = joined.replace(_JOINED, " ")
        if lines and cell_width(lines[-1]) + 1 + cell_width(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word if cell_width(word) <= width else fit(word, width))
    return tuple(lines)


def sentence_rows(mark: Run, text: str, role: str, width: int) -> list[Row]:
    """Return `text`, wrapped into rows behind `mark` (such as a bullet); further rows are indented."""
    indent = row_width([mark])
    lines = wrapped(text, max(8, width - indent))
    return [[mark if not index else label(" " * indent), (line, role)] for index, line in enumerate(lines)]
