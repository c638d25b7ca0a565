"""Converts tables of keys to Textual bindings."""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding

from sparktop.config.keys import KEYS, Key
from sparktop.panels.parts.rows import Row

_DIGITS = str.maketrans("¹²³⁴", "1234")


def bindings(table: Sequence[Key]) -> list[Binding]:
    """Return the keys of `table` as Textual bindings.

    Only the key of the command palette takes precedence over keys of the focused widget.
    """
    return [
        Binding(",".join(key.keys), key.action, key.help, show=False, priority=key.name == "palette")
        for key in table
        if key.keys
    ]


def with_moved_keys(rows: list[Row], table: Sequence[Key]) -> list[Row]:
    """Return rows of the board with the keys in `table` where panels name the usual keys.

    A key whose name is longer than one cell is left out, so that no text moves.
    """
    now = {key.name: key.shown for key in table}
    moved = {key.shown: now.get(key.name, "") for key in KEYS if now.get(key.name) != key.shown}
    if not moved:
        return rows

    def shown(text: str) -> str:
        new = moved.get(text.translate(_DIGITS), text) if len(text) == 1 else text
        return new if len(new) == len(text) else " " * len(text)

    return [[(shown(text) if role == "key" else text, role) for text, role in row] for row in rows]
