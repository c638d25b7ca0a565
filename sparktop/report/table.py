"""Tables of words and figures: what the pages for people have in common."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a column holds."""

    NAME = "name"
    """Text from outside: a page must escape it."""
    WORD = "word"
    """Words of ours."""
    FIGURE = "figure"
    """Aligned right."""


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column."""

    title: str
    kind: Kind = Kind.FIGURE


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of clean one-line cells under a title; what is unknown is "–"."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
