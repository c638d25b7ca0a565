"""Servers of one model that no known router joins: their loads are described, and nothing warns."""

from __future__ import annotations

import json

import pytest

from sparktop.model.balance import BalanceWord as Is
from sparktop.model.snapshot import Snapshot
from sparktop.panels.group.panel import balance_band, evidence_screen
from sparktop.panels.parts.graph import TimeWindow
from sparktop.panels.parts.text import row_text
from sparktop.report import markdown
from sparktop.report.json_snapshot import to_json
from sparktop.report.text_snapshot import render
from tests.store.fed_traces import Look, Pair

pytestmark = pytest.mark.long

TURN_S, LOAD, LIFE_S = 30.0, 8.0, 12.0


def owners(seconds: float, hz: float = 2.0) -> list[Look]:
    """Return two owners' loads: each has 8 requests on its own server for 30 s, then the other one has."""
    tokens = [0.0, 0.0]
    made: list[Look] = []
    for step in range(int(seconds * hz)):
        busy = int(step / hz / TURN_S) % 2
        tokens[busy] += LOAD * 64.0 / LIFE_S / hz
        loads = (LOAD * (busy == 0), LOAD * (busy == 1))
        made.append(Look(step / hz, loads, (0.0, 0.0), (tokens[0], tokens[1])))
    return made


@pytest.fixture(scope="module")
def taking_turns() -> list[Snapshot]:
    """Play ten minutes of the two owners to a store that knows no router."""
    return [*Pair(router=None).play(owners(600), life_s=LIFE_S, snapshot_every_s=5.0)]


def test_owners_that_take_turns_raise_no_alarm(taking_turns: list[Snapshot]) -> None:
    """Ten minutes of opposite loads without a router give a description, no bad verdict, alert or event."""
    words = {one.word for seen in taking_turns for one in seen.balance}
    assert words == {Is.UNKNOWN, Is.UNEVEN}
    assert {seen.alerts for seen in taking_turns} == {()}
    assert taking_turns[-1].events == ()


def test_the_same_loads_behind_a_router_are_a_swing() -> None:
    """With a known router the very same loads are an oscillation, with an alert."""
    seen = [*Pair().play(owners(200), life_s=LIFE_S, snapshot_every_s=5.0)][-1]
    (found,) = seen.balance
    assert (found.word, found.router, found.bad) == (Is.OSCILLATING, "proxy", True)
    assert [one.id for one in seen.alerts] == ["balance:proxy:oscillating"]


def test_every_form_says_that_no_router_is_known(taking_turns: list[Snapshot]) -> None:
    """JSON, text, Markdown, the band and the evidence agree: a description without a warning."""
    seen = taking_turns[-1]
    (found,) = json.loads(json.dumps(to_json(seen)))["balance"]
    assert (found["verdict"], found["router"], found["hint"]) == ("uneven", None, None)
    assert "balance of m: uneven · no router known" in render(seen, 100)
    row = next(line for line in markdown.render(seen).splitlines() if "uneven" in line)
    assert [cell.strip() for cell in row.split("|")[1:4]] == ["`m`", "`none`", "uneven"]
    band = [row_text(row) for row in balance_band(seen.balance[0], seen, 80, 4, TimeWindow(seen.at, 60.0))]
    assert "│ uneven since " in band[1]
    assert "no router known" in band[1] + band[2]
    evidence = [row_text(row) for row in evidence_screen(seen.balance[0], seen, 80, 22)]
    turns = next(row for row in evidence if "Do they fill and empty in turns?" in row)
    assert turns.startswith("│ ✓ ")
