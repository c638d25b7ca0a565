"""Tables of keys, and their conversion to Textual bindings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_letters

from textual.binding import Binding

from sparktop.config.keys import KEYS, Key, keys_with, preset_keys, without_yielded
from sparktop.graphics.cells import cell_width
from sparktop.model.targets import Watch
from sparktop.panels.board.bars import footer_row
from sparktop.panels.parts.text import Row

_WORD = f"{ascii_letters}()?"
"""Characters beside a key that a click on its word may meet."""
_SCROLLS = frozenset({"page-down", "page-up"})
"""Names of keys that come and go with the height of the board, as the arrows do: they do not turn the row
back to its first page."""
_DIGITS = str.maketrans("¹²³⁴", "1234")


def key_table(keys: Mapping[str, str], watch: Watch | None) -> tuple[Key, ...]:
    """Return the table of keys, with the keys by action name in `keys` and those of the presets in `watch`.

    They were checked with the configuration.
    """
    presets = [] if watch is None else [(preset.name, preset.key) for preset in watch.sweeps]
    return without_yielded((*keys_with(keys), *preset_keys(presets)))


def bindings(table: Sequence[Key]) -> list[Binding]:
    """Return the keys of `table` as Textual bindings.

    Only the key of the command palette takes precedence over keys of the focused widget.
    """
    return [
        Binding(",".join(key.keys), key.action, key.help, show=False, priority=key.name == "palette")
        for key in table
        if key.keys
    ]


class KeyRow:
    """The row of keys at the bottom of the overview: a page of them, and where each can be clicked."""

    def __init__(self) -> None:
        """Begin with the first keys."""
        self.page = 0
        self.spots: list[tuple[int, int, str]] = []
        """(first cell, cell after the last, key) of each key of the row."""
        self._keys: list[str] = []

    def draw(self, keys: Sequence[tuple[str, str]], width: int, table: Sequence[Key]) -> Row:
        """Return the row of `keys`, (key, what it does), in `width` cells: the first page if they changed.

        Of the keys `table`, the one that shows more keys stands last where not all fit.
        """
        scrolls = {"↓", "↑", *(key.shown for key in table if key.name in _SCROLLS)}
        names = [key for key, _ in keys if key not in scrolls]
        if names != self._keys:
            self._keys, self.page = names, 0
        more = next((key.shown for key in table if key.name == "more-keys"), "")
        row, self.spots = footer_row(keys, width, page=self.page, more=more)
        return row


def with_moved_keys(rows: list[Row], table: Sequence[Key]) -> list[Row]:
    """Return rows of the board with the keys in `table` where panels name the usual keys.

    A key whose name is longer than one cell is left out, so that no text moves.
    """
    now = {key.name: key.shown for key in table}
    moved = {key.shown: now.get(key.name, "") for key in KEYS if now.get(key.name) != key.shown}
    if not moved:
        return rows

    def moved_key(text: str) -> str:
        new = moved.get(text.translate(_DIGITS), text) if len(text) == 1 else text
        return new if len(new) == len(text) else " " * len(text)

    return [[(moved_key(text) if role == "key" else text, role) for text, role in row] for row in rows]


def clicked_key(rows: Sequence[Row], key_ranges: Sequence[tuple[int, int, str]], x: int, y: int) -> str:
    """Return the key that is drawn at column `x` of row `y`, as the table of keys names it; "" for none.

    In the last row, `key_ranges` has the cells [first, end) of each key with its word. Elsewhere, keys are
    drawn in the role "key". The letters around a key belong to it, as in "why?"; those beside a digit do not.
    """
    if y == len(rows) - 1:
        return next((key for first, end, key in key_ranges if first <= x < end), "")
    end = 0
    row = rows[y] if y < len(rows) else []
    for index, (text, role) in enumerate(row):
        start, end = end, end + cell_width(text)
        if role != "key":
            continue
        key, before, after = text.strip().translate(_DIGITS), 0, 0
        if not key.isdigit():
            left = row[index - 1][0] if index else ""
            right = row[index + 1][0] if index + 1 < len(row) else ""
            before = len(left) - len(left.rstrip(_WORD))
            after = len(right) - len(right.lstrip(_WORD))
        if start - before <= x < end + after:
            return key
    return ""
