"""What agents do, as rows or as columns of numbers."""

from __future__ import annotations

from sparktop.model.activity import Activities
from sparktop.panels.parts.text import row_text, row_width
from sparktop.panels.sweep.live import GUTTER, conversations_height, conversations_rows


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


def test_rows_have_a_time_axis_of_their_own() -> None:
    """It ends now, as they do; the graphs above have another one."""
    rows = [row_text(row) for row in conversations_rows(few(), 80, 4)]
    assert rows[3].endswith("now")
    assert rows[3].index("−1 s") == 80 - 16 - 2


def test_the_last_cell_is_now() -> None:
    """It shows what the numbers above count, not what was done most in its slots."""
    each = ("t" * 399 + "p",)
    counts = (*((0, 0, 0, 1, 0),) * 399, (0, 1, 0, 0, 0))
    for activities in (Activities(0.25, counts, each), Activities(0.25, counts)):
        rows = [row_text(row) for row in conversations_rows(activities, 80, 4)]
        assert "1 prefill" in rows[0]
        assert [row[-1] for row in rows[1:3]].count("─") == (1 if activities.each else 2)
        assert rows[1][-2] == "."


def test_agents_without_room_are_columns_of_numbers() -> None:
    """A hundred agents fit into five rows: half of each column thinks."""
    rows = [row_text(row) for row in conversations_rows(many(100), 80, 6)]
    assert rows[0].startswith("agents last 63 s ")
    assert rows[2].startswith("how many do what ")
    assert [row[-1] for row in rows[1:5]] == ["·", "·", "━", "━"]
    assert "100┤" in rows[1]
    assert rows[5].split() == ["−60", "s", "−40", "s", "−20", "s", "now"]


def test_a_wide_screen_is_filled_by_the_newest_slots() -> None:
    """Of 384 slots, 179 cells show the last 358 in twos; four in each would leave half of the room empty."""
    lanes = Activities(0.25, ((1, 0, 0, 0, 0),) * 384, ("d" * 384,))
    rows = [row_text(row) for row in conversations_rows(lanes, 196, 2)]
    assert "last 90 s" in rows[0]
    assert rows[1].count("━") == 196 - GUTTER


def test_every_size_is_filled_exactly() -> None:
    """No size breaks the picture, and its rows are as wide as asked."""
    for activities in (few(), many(100), Activities(0.25, ())):
        for width in (10, 24, 60, 80, 200):
            for height in range(1, 8):
                rows = conversations_rows(activities, width, height)
                assert [row_width(row) for row in rows] == [width] * height


def test_rows_are_no_more_than_needed() -> None:
    """Few agents leave room for the graphs; many take what they get."""
    assert conversations_height(few(), 10) == 4
    assert conversations_height(few(), 2) == 2
    assert conversations_height(many(100), 10) == 10
