"""Lanes of servers in a group: the group keeps its one row, a bad verdict stands on the server's panel."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import verdict
from sparktop.model.balance import Balance, BalanceWord, leading
from sparktop.model.event import Alert, Severity
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import MOST_GROUPS
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.board.view import Preset, View
from stage.rehearsal import START, Rehearsal

SIZES = [(80, 24), (120, 36), (200, 50)]
SWINGS = Balance(
    "spark-a lanes",
    ("spark-a/0", "spark-a/1"),
    word=BalanceWord.OSCILLATING,
    word_now=BalanceWord.OSCILLATING,
    router="spark-a",
    period_s=6.0,
    lanes_of="spark-a",
    within="m",
)
ALERT = Alert("balance:spark-a lanes:oscillating", Severity.WARNING, "spark-a lanes", "oscillating", START)


def shown(group: BalanceWord, lanes: Balance = SWINGS) -> Snapshot:
    taken = Rehearsal(lanes=2, nodes=2).play(20).snapshot()
    first, *others = taken.backends
    return replace(
        taken,
        backends=(replace(first, lanes_balance=lanes), *others),
        balance=(Balance("m", ("spark-a", "spark-b"), word=group, word_now=group, router="proxy"), lanes),
        alerts=(ALERT,),
    )


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_board_has_one_row_for_the_group_and_the_lanes_on_their_panel(width: int, height: int) -> None:
    """Lanes have no panel of their own; the edge of their server's panel names the swing in full."""
    scene = Scene(shown(BalanceWord.BALANCED), width, height)
    drawn = scene.draw()
    assert [one.key.name for one in drawn if one.key.kind == "balance"] == ["m"]
    rows = ["".join(text for text, _ in row) for row in flatten(drawn, width, height)]
    assert sum("▲ lanes oscillating, every 6 s" in row for row in rows) == 1


@pytest.mark.parametrize(
    ("group", "lanes", "first"),
    [
        (BalanceWord.BALANCED, BalanceWord.OSCILLATING, True),
        (BalanceWord.UNEVEN, BalanceWord.STARVED, True),
        (BalanceWord.UNKNOWN, BalanceWord.STARVED, True),
        (BalanceWord.OSCILLATING, BalanceWord.STARVED, False),
        (BalanceWord.STARVED, BalanceWord.STARVED, False),
        (BalanceWord.BALANCED, BalanceWord.UNEVEN, False),
        (BalanceWord.BALANCED, BalanceWord.BALANCED, False),
    ],
)
def test_lanes_lead_only_where_they_are_worse(group: BalanceWord, lanes: BalanceWord, *, first: bool) -> None:
    """Oscillating or starved lanes precede a milder verdict on their servers; other lanes never do."""
    groups = (Balance("m", ("spark-a", "spark-b"), word=group), replace(SWINGS, word=lanes))
    assert [one.group for one in leading(groups)] == (["m", "spark-a lanes"] if first else ["m"])


def test_the_header_names_the_lanes_unless_their_servers_are_worse() -> None:
    """If the group oscillates, it is the verdict in the header; the lanes' alert stays in the count."""
    calm = verdict(shown(BalanceWord.BALANCED))
    assert (calm.words, calm.short) == (
        "spark-a lanes are oscillating, every 6 s",
        "lanes oscillating every 6 s",
    )
    assert "lanes" not in verdict(shown(BalanceWord.OSCILLATING)).words


def test_of_many_groups_the_worst_are_listed() -> None:
    """Dozens of groups do not fill the board: those with a bad verdict come first."""
    names = [f"model-{number:02d}" for number in range(60)]
    words = {"model-41": BalanceWord.OSCILLATING, "model-07": BalanceWord.STARVED}
    groups = tuple(Balance(name, ("a", "b"), word=words.get(name, BalanceWord.UNKNOWN)) for name in names)
    snapshot = replace(Rehearsal(backends=2).play(3).snapshot(), balance=groups)
    scene = Scene(snapshot, 120, 36, View(Preset.WALL))
    keys = scene.keys()
    listed = [key.name for key in keys if key.kind == "balance"]
    assert len(listed) == MOST_GROUPS
    assert set(listed[:2]) == set(words)
    text = "\n".join("".join(part for part, _ in row) for drawn in scene.draw() for row in drawn.rows)
    assert "worst 8 of 60 groups" in text
