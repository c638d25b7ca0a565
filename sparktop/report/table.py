"""Tables of words and figures, shared by the HTML and Markdown reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """Content of a column."""

    NAME = "name"
    """Text from outside, which a page must escape."""
    WORD = "word"
    """Words of sparktop's own."""
    FIGURE = "figure"
    """Numbers, aligned right."""


@dataclass(frozen=True, slots=True)
class Column:
    """Title and kind of a column."""

    title: str
    kind: Kind = Kind.FIGURE


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of clean one-line cells under a title; an unknown value is "–"."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
