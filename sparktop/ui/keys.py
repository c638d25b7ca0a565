"""Converts tables of keys to Textual bindings."""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding

from sparktop.config.keys import Key


def bindings(table: Sequence[Key]) -> list[Binding]:
    """Return the keys of `table` as Textual bindings.

    Only the key of the command palette takes precedence over keys of the focused widget.
    """
    return [
        Binding(",".join(key.keys), key.action, key.help, show=False, priority=key.name == "palette")
        for key in table
        if key.keys
    ]
