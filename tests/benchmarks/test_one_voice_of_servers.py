"""No two texts about a server at one moment name different figures or verdicts for the same thing."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import random

import stuck

from sparktop.analysis.summary import verdict
from sparktop.model.event import Phase
from sparktop.model.snapshot import BackendState, Snapshot
from sparktop.panels.board.bars import header_row
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.board.view import View
from sparktop.panels.parts.graph import TimeWindow
from sparktop.panels.parts.text import row_text
from sparktop.panels.server.detail import backend_detail
from sparktop.report.json_snapshot import to_json
from sparktop.report.text_snapshot import render

_EVERY_S = 7
"""Seconds between two moments at which everything is drawn."""
_SECONDS = re.compile(r"(?:no progress|nothing has moved) for (\d+) s")
_NAMES = ("hang B", "blocked", "dead rank", "huge step", "compiled", "asleep", "KV wait", "clients gone")
_WELL = {BackendState.BUSY, BackendState.BORED, BackendState.IDLE}


def texts_of(snapshot: Snapshot) -> list[str]:
    """Return every text that says something about the server now; events are about their own moment."""
    (view,) = snapshot.backends
    alerts = [alert.message for alert in snapshot.alerts]
    progress = [view.progress.sentence] if view.progress is not None else []
    return [verdict(snapshot).words, view.state_rule, *alerts, *progress]


def forms_of(snapshot: Snapshot) -> dict[str, str]:
    """Return what each form that a user meets says of one moment, by its name: screen, report and JSON."""
    (view,) = snapshot.backends
    forms = {"top line": row_text(header_row(snapshot, 200))}
    for width, height in ((80, 22), (120, 34)):
        scene = Scene(snapshot, width, height, View())
        rows = flatten(scene.draw(), width, scene.layout.height)
        forms[f"board {width}"] = "\n".join(map(row_text, rows))
    axis = TimeWindow(snapshot.at, 120.0).axis(60)
    forms["detail"] = "\n".join(map(row_text, backend_detail(view, {}, 120, 40, axis)))
    forms["text"] = render(replace(snapshot, events=()), 200)
    now = {key: value for key, value in to_json(snapshot).items() if key != "events"}
    forms["json"] = json.dumps(now, ensure_ascii=False, default=str)
    return forms


def check_forms(snapshot: Snapshot) -> None:
    """Screen, detail, report and JSON name the same state, seconds and requests of the server."""
    (view,) = snapshot.backends
    stood = {round(view.progress.seconds)} if view.progress else set()
    for form, text in forms_of(snapshot).items():
        assert {int(found) for found in _SECONDS.findall(text)} <= stood, (form, text)
        for word, value in (("run", view.running), ("wait", view.waiting)):
            counts = re.findall(rf"(?<![⣿⡪])\b{word} +(\d+)\b", text)
            counts += re.findall(rf"\b(\d+) {word}(?:n?ing)\b", text)
            assert {float(count) for count in counts} <= {value}, (form, word, text)
        if form != "top line":
            assert (view.state.value if form == "json" else view.state_word) in text, (form, text)
    shown = to_json(snapshot)["backends"]
    assert isinstance(shown, list)
    running = view.running if view.ok else None
    assert (shown[0]["state"], shown[0]["running"]) == (view.state.value, running)


def check_texts(snapshot: Snapshot) -> None:
    """Seconds without progress, numbers of requests and the word of a hang are the same in all texts."""
    (view,) = snapshot.backends
    texts, top = texts_of(snapshot), verdict(snapshot)
    seconds = {int(found) for text in texts for found in _SECONDS.findall(text)}
    assert seconds <= {round(view.progress.seconds)} if view.progress else not seconds, texts
    for word, value in (("running", view.running), ("waiting", view.waiting)):
        assert {float(n) for text in texts for n in re.findall(rf"(\d+) {word}", text)} <= {value}, texts
    stuck_alert = next((one for one in snapshot.alerts if one.id.endswith(":stuck")), None)
    if stuck_alert is not None and view.ok:
        words = "may be stuck" if view.state is BackendState.SUSPECT else view.state.value
        assert stuck_alert.message.startswith(f"{words} with"), texts
    for alert in snapshot.alerts:
        begun = [one for one in snapshot.events if one.about == alert.id and one.phase is Phase.BEGIN]
        assert {one.since for one in begun[-1:]} <= {alert.since}, "an alert and its event have one time"
    shown = [one.since for one in snapshot.events_beside_alerts]
    assert shown == sorted(shown), "the list of events is in the order of the times that it names"
    assert not top.words.startswith("all well") or view.state in _WELL, texts
    if view.state in {BackendState.STUCK, BackendState.SUSPECT}:
        assert top.severity is not None, texts


@pytest.mark.long
@pytest.mark.parametrize("name", _NAMES)
def test_texts_and_drawn_forms_of_one_moment_agree(name: str) -> None:
    """While a server hangs, sleeps or waits, every text and every seventh second every form says the same."""
    phase = next(one for one in stuck.PHASES if name in one.name)
    run = stuck.Run(phase, 11)
    list(run.play(25))
    run.befall(random.Random(3), 140)  # noqa: S311 - no secret
    for second, _ in enumerate(run.play(170)):
        snapshot = run.store.snapshot()
        check_texts(snapshot)
        if second % _EVERY_S == 0:
            check_forms(snapshot)
