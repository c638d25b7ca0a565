"""The table of keys as Textual bindings."""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding

from sparktop.config.keys import Key


def bindings(table: Sequence[Key]) -> list[Binding]:
    """Return the table as Textual bindings; that of the command palette has priority over widgets."""
    return [
        Binding(",".join(key.keys), key.action, key.help, show=False, priority=key.name == "palette")
        for key in table
    ]
