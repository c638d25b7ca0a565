"""The type of tables that HTML and Markdown reports are made from."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Kind(Enum):
    """The kinds of content that a table column can have."""

    NAME = "name"
    """Text from outside, which a report must escape."""
    WORD = "word"
    """Labels from sparktop's own fixed vocabulary, such as a state."""
    FIGURE = "figure"
    """Numbers, aligned right."""


class Column(Struct, frozen=True):
    """The title of a table column and what the column contains."""

    title: str
    kind: Kind = Kind.FIGURE


class Table(Struct, frozen=True):
    """A title, columns, and rows of one-line cells without control characters; an unknown value is "–"."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
