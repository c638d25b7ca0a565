"""The row of keys at the bottom, drawn again each second."""

from __future__ import annotations

from sparktop.config.keys import KEYS
from sparktop.panels.board.bars import footer_row
from sparktop.ui.keys import KeyRow


def test_a_row_kept_is_the_row_drawn_anew_and_can_be_clicked() -> None:
    """Keys, widths and pages in turn: each row and its places are those that a first drawing has."""
    row = KeyRow()
    few, many = [("q", "quit"), ("?", "help")], [(key.shown, key.footer) for key in KEYS if key.footer]
    more = next(key.shown for key in KEYS if key.name == "more-keys")
    for keys, width in [(many, 200), (many, 200), (many, 60), (many, 60), (few, 60), (many, 200)]:
        row.spots = []  # as a terminal that is too small leaves them
        drawn, spots = footer_row(keys, width, more=more)
        assert (row.draw(list(keys), width, KEYS), row.spots) == (drawn, spots)
    row.page = 1
    assert row.draw(many, 60, KEYS) == footer_row(many, 60, page=1, more=more)[0]
