"""The table of keys as Textual wants it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding

from sparktop.config.keys import Key


def bindings(table: Sequence[Key]) -> list[Binding]:
    """Give the table as Textual bindings; the palette's works everywhere."""
    return [
        Binding(",".join(key.keys), key.action, key.help, show=False, priority=key.name == "palette")
        for key in table
    ]
