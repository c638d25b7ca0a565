"""Findings of rules: their alerts and events, and every form in which they are shown."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pkgutil import resolve_name

import pytest
from msgspec.structs import replace

from sparktop.analysis.summary import verdict
from sparktop.events import event_document
from sparktop.model.engine import LaneSample
from sparktop.model.event import Finding, FindingKind, Phase, Severity, Sure
from sparktop.model.snapshot import Situation
from sparktop.model.targets import BackendTarget, Watch
from sparktop.panels.parts.figures import finding_note, findings_section
from sparktop.panels.parts.text import row_text, shorten_piece
from sparktop.report import text_snapshot
from sparktop.report.json_snapshot import to_json
from sparktop.report.text_snapshot import render as text_of
from sparktop.store import SourceKey
from sparktop.store import store as store_module
from sparktop.store.findings import CurrentFindings
from tests.store.conftest import World, page

FINDING = Finding(
    FindingKind.PREFIX_UNUSED,
    "b",
    "prefix cache never hits: 0 of 48,210 prompt tokens",
    fix="a smaller block",
    sure=Sure.LIKELY,
    severity=Severity.WARNING,
    evidence=(("block", "2,096 tokens; prompts have 812"),),
    values={"queried_tokens": 48210.0},
)
SAID = "prefix cache never hits: 0 of 48,210 prompt tokens (likely)"


class Told:
    """A rule that finds what it is told to."""

    def __init__(self) -> None:
        """Find nothing at first."""
        self.now: tuple[Finding, ...] = (FINDING,)

    def look(self, now: Situation) -> Iterable[Finding]:
        """Return the findings about servers that are watched."""
        return [one for one in self.now if one.subject in now.backends]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """The only rule of every store that is made from now on."""
    rule = Told()
    monkeypatch.setattr(store_module, "CurrentFindings", lambda: CurrentFindings((rule,)))
    return rule


def test_a_finding_is_an_alert_until_it_ends(told: Told) -> None:
    """It begins once, keeps its figures, ends with its kind's name, and leaves nothing."""
    world = World()
    world.tokens(1000, 0.0)
    for second in range(3):
        world.at = 1001 + second
        world.store.judge()
    (alert,) = world.store.snapshot().alerts
    assert (alert.id, alert.message) == ("backend:b:prefix-unused", SAID)
    assert alert.values == FINDING.values
    told.now = ()
    world.at += 1
    world.store.judge()
    snapshot = world.store.snapshot()
    assert snapshot.alerts == ()
    assert snapshot.backends[0].findings == ()
    about = [one.phase for one in snapshot.events if one.kind == "prefix-unused"]
    assert about == [Phase.BEGIN, Phase.END]


def test_a_finding_in_every_form(told: Told) -> None:
    """Board, detail, top line, event, hook, text, Markdown and JSON say the line and how sure it is."""
    world = World()
    world.tokens(1000, 0.0)
    world.store.judge()
    snapshot = world.store.snapshot()
    (backend,) = snapshot.backends
    note = finding_note(backend.findings)
    assert SAID in row_text(note)
    assert row_text(shorten_piece(note, 44)) == " ▲ prefix cache never hits (likely) enter "
    (section,) = findings_section(backend.findings, 40)
    drawn = " ".join(row_text(row).strip() for row in section.rows)
    assert "2,096 tokens; prompts have 812" in drawn
    assert "(likely) → a smaller block" in drawn
    top = verdict(snapshot)
    assert (top.words, top.hint, top.key) == (f"b: {SAID}", "a smaller block", "enter")
    (begun,) = (event for event in snapshot.events if event.kind == "prefix-unused")
    assert json.loads(event_document(begun, simulated=False))["message"] == SAID
    for text in (text_of(snapshot, 100), text_snapshot.markdown(snapshot)):
        assert all(words in " ".join(text.split()) for words in (FINDING.said, f"→ {FINDING.fix}"))
    shown = json.loads(json.dumps(to_json(snapshot)))["backends"][0]["findings"]
    assert [(one["kind"], one["sure"], one["evidence"]) for one in shown] == [
        ("prefix-unused", "likely", [["block", "2,096 tokens; prompts have 812"]])
    ]
    told.now = (Finding(FindingKind.YARDSTICKS, "b", "62 % of its own best"),)
    world.store.judge()
    assert world.store.snapshot().alerts == ()


def test_of_too_many_findings_the_most_severe_stay(told: Told) -> None:
    """A critical one is kept, and raises its alert, also where the rules found it last."""
    fact = Finding(FindingKind.YARDSTICKS, "b", "a fact")
    facts = (replace(fact, key=f"{number}") for number in range(80))
    told.now = (*facts, replace(FINDING, severity=Severity.CRITICAL))
    world = World()
    world.tokens(1000, 0.0)
    world.store.judge()
    snapshot = world.store.snapshot()
    assert len(snapshot.backends[0].findings) == 64
    assert [alert.severity for alert in snapshot.alerts] == [Severity.CRITICAL]


@pytest.mark.parametrize(
    ("broken", "alert_id"),
    [
        ("sparktop.store.store.judge_dead_rank", "backend:b:not-judged"),
        ("sparktop.store.standstills.Standstills._remember_gpu_work", "backend:b:not-judged"),
        ("sparktop.store.balance.GroupBalances._judge_group", "balance:m:not-judged"),
        ("sparktop.store.limits.ServerLimits.judge_due", "rules:servers:not-judged"),
        ("tests.store.test_findings.Told.look", "rules:machines:not-judged"),
    ],
)
def test_a_rule_that_fails_ends_no_other(
    told: Told, monkeypatch: pytest.MonkeyPatch, broken: str, alert_id: str
) -> None:
    """The first line says that judging fails while it does; every other rule judges."""
    assert told.now
    targets = (BackendTarget("b", "http://b:8000"), BackendTarget("c", "http://c:8000"))
    world, fails, ids = World(Watch(backends=targets)), [True], []
    module, _, name = broken.rpartition(".")
    rule = resolve_name(broken)

    def overflow(*arguments: object, **more: object) -> object:
        about_other = SourceKey.backend("c") in arguments or "c" in arguments
        if fails[0] and not about_other:
            raise OverflowError
        return rule(*arguments, **more)

    monkeypatch.setattr(resolve_name(module), name, overflow)
    for fails[0] in (True, False):
        for _ in range(6):
            world.at += 1
            for target in targets:
                lane = LaneSample("0", running=1.0, generation_tokens=world.at)
                world.store.accept(SourceKey.backend(target.name), page(world.at, lane))
            world.store.judge()
        ids.append({alert.id for alert in world.store.snapshot().alerts})
    found = {"backend:b:prefix-unused"}
    stopped = found if alert_id.startswith("rules:") else set()
    assert ids == [(found - stopped) | {alert_id}, found]
