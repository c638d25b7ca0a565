"""What is red on the board has an alert, in the demo's scenarios and with a server that stops answering."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import SCENARIOS
from sparktop.model.balance import BalanceWord
from sparktop.model.event import Alert, Severity
from sparktop.model.snapshot import BackendState, Snapshot
from sparktop.panels.board.bars import header_row
from sparktop.panels.board.events import events_panel
from sparktop.panels.board.scene import Scene
from sparktop.panels.board.view import Preset, View
from sparktop.panels.group.verdict import word_run
from sparktop.panels.parts.figures import STATE_ROLES, WORD_ROLES, alert_role
from sparktop.panels.parts.text import Row
from stage.rehearsal import Outage, Rehearsal

pytestmark = pytest.mark.long

CASES = {
    "oscillation": 75,
    "cooldown": 75,
    "hot": 120,
    "memory": 60,
    "pd-fault": 90,
    "kv-starved": 60,
    "swap-storm": 60,
    "faulty": 90,
    "outage": 90,
    "hang-a": 175,
}
"""Seconds to play by scenario; in "outage", a server stops answering after 40 s."""
SEEN_S = 5
"""A single failed poll, and a verdict of one window, is red before its alert begins: for less than this."""
EDGES = set("─│╭╮╰╯┌┐╞╡ ")


def red(rows: list[Row]) -> set[str]:
    """Return the texts in the role "bad", without frames."""
    found = {text for row in rows for text, role in row if role == "bad"}
    return {text.strip() for text in found if not set(text) <= EDGES}


def red_panels(shown: Snapshot) -> set[tuple[str, str]]:
    """Return kind and name of the panels with red text, in any view; lists have the name ""."""
    scenes = [Scene(shown, 120, 60, View(preset=preset)) for preset in (Preset.WATCH, Preset.COMPACT)]
    panels = [panel for scene in scenes for panel in scene.draw() if panel.key.kind != "events"]
    return {(panel.key.kind, panel.key.name) for panel in panels if red(panel.rows)}


@pytest.mark.parametrize("name", CASES)
def test_what_stays_red_is_in_the_alert_count(name: str) -> None:
    """A panel that is red twice in a row has an alert about its source; a red header has at least one."""
    outage = Outage(0, 40.0) if name == "outage" else None
    live = Rehearsal(nodes=2, scenario=SCENARIOS.get(name), outage=outage)
    before: set[tuple[str, str]] = set()
    for _ in range(0, CASES[name], SEEN_S):
        shown = live.play(SEEN_S).snapshot()
        subjects = {alert.subject for alert in shown.alerts}
        now = red_panels(shown)
        behind = {one.name: set(one.backends) for one in shown.routers}
        for kind, source in now & before:
            about = {source, *(behind[source] if kind == "router" else ())}
            assert about & subjects or (not source and subjects), (kind, source, shown.taken_at)
        assert shown.alerts or not red([header_row(shown, 120)])
        before = now


def test_a_router_to_a_backend_that_is_perhaps_stuck_is_not_red() -> None:
    """While the backend's alert is a warning, the router's line about it has the colour of a warning."""
    live = Rehearsal(nodes=2, scenario=SCENARIOS["hang-a"])
    severities = set()
    for _ in range(0, 175, SEEN_S):
        shown = live.play(SEEN_S).snapshot()
        critical = any(alert.severity is Severity.CRITICAL for alert in shown.alerts)
        severities |= {alert.severity for alert in shown.alerts}
        assert critical or "router" not in {kind for kind, _ in red_panels(shown)}, shown.taken_at
    assert severities == {Severity.WARNING, Severity.CRITICAL}


def test_a_verdict_that_is_not_announced_is_not_red() -> None:
    """From the first window with a verdict to its alert, the verdict has the colour of a warning."""
    live = Rehearsal(nodes=2, scenario=SCENARIOS["oscillation"])
    for _ in range(75):
        shown = live.play(1.0).snapshot()
        groups = {group for kind, group in red_panels(shown) if kind == "balance"}
        assert groups <= {alert.subject for alert in shown.alerts}, shown.taken_at


@pytest.mark.parametrize("word", [BalanceWord.OSCILLATING, BalanceWord.STARVED, BalanceWord.UNEVEN])
def test_header_list_and_panel_give_a_verdict_one_colour(word: BalanceWord) -> None:
    """The header and the list of alerts have the colour that the verdict has in its panel."""
    shown = Rehearsal(nodes=2, scenario=SCENARIOS["oscillation"]).play(60).snapshot()
    group = replace(shown.balance[0], word=word, word_now=word, router="proxy", also=())
    alert = Alert(f"balance:{group.group}:{word.value}", Severity.WARNING, group.group, "why", shown.taken_at)
    scene = replace(shown, balance=(group,), alerts=(alert,), events=())
    listed = next(role for text, role in events_panel(scene, 80, 5)[1] if text == "why")
    header = next(role for text, role in header_row(scene, 120) if word.value in text)
    assert {listed, header} == {word_run(group)[1]} == {WORD_ROLES[word]}


@pytest.mark.parametrize("state", [BackendState.KV_FULL, BackendState.PREEMPTING])
def test_a_warning_about_a_state_has_the_colour_of_the_state(state: BackendState) -> None:
    """It has the colour of the state in the backend's frame; others are amber, critical alerts red."""
    name = {BackendState.KV_FULL: "kv-full", BackendState.PREEMPTING: "preempting"}[state]
    assert alert_role(f"backend:a:{name}", Severity.WARNING) == STATE_ROLES[state]
    assert alert_role("backend:a:slow-steps", Severity.WARNING) == "warn"
    assert alert_role("node:a:thermal/0", Severity.CRITICAL) == "bad"
