"""What agents do, as rows or as columns of numbers."""

from __future__ import annotations

from sparktop.model.activity import Activities
from sparktop.panels.parts.text import row_text, row_width
from sparktop.panels.sweep.live import conversations_rows


def few() -> Activities:
    """Return two agents over 8 slots: one decodes and then runs a tool, the other waits and is computed."""
    each = ("ddddtttt", "wwwwpppd")
    counts = ((1, 0, 1, 0, 0),) * 4 + ((0, 1, 0, 1, 0),) * 3 + ((1, 0, 0, 1, 0),)
    return Activities(0.25, counts, each, queue_known=True)


def many(number: int) -> Activities:
    """Return as many agents over 2000 slots: half of them think, the others are decoded."""
    return Activities(0.25, ((number // 2, 0, 0, 0, number - number // 2),) * 2000)


def test_a_row_for_each_says_what_it_does_now_and_what_it_did() -> None:
    """The newest slot is at the right edge, and the first row counts the agents by activity."""
    rows = [row_text(row) for row in conversations_rows(few(), 80, 3)]
    words = " ".join(rows[0].split())
    assert words == "agents last 2 s ━ 1 decode ─ 0 prefill ┄ 0 waiting t. 1 tool · 0 think"
    assert rows[1].startswith("agent 1  tool")
    assert rows[1].endswith(4 * "━━━━" + "t..." + 3 * "....")
    assert rows[2].startswith("agent 2  decode")
    assert rows[2].endswith(4 * "┄┄┄┄" + 4 * "───" + 4 * "━")


def test_agents_without_room_are_columns_of_numbers() -> None:
    """A hundred agents fit into five rows: half of each column thinks."""
    rows = [row_text(row) for row in conversations_rows(many(100), 80, 6)]
    assert rows[0].startswith("agents last 63 s ")
    assert rows[2].startswith("how many do what ")
    assert [row[-1] for row in rows[1:5]] == ["·", "·", "━", "━"]
    assert "100┤" in rows[1]
    assert rows[5].split() == ["−60", "s", "−40", "s", "−20", "s", "now"]


def test_every_size_is_filled_exactly() -> None:
    """No size breaks the picture, and its rows are as wide as asked."""
    for activities in (few(), many(100), Activities(0.25, ())):
        for width in (10, 24, 60, 80, 200):
            for height in range(1, 8):
                rows = conversations_rows(activities, width, height)
                assert [row_width(row) for row in rows] == [width] * height
