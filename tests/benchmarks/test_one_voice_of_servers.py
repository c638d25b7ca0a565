"""No two texts about a server at one moment name different figures or verdicts for the same thing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import random

import stuck

from sparktop.analysis.verdict import verdict
from sparktop.model.snapshot import BackendState, Snapshot

_SECONDS = re.compile(r"(?:no progress|nothing has moved) for (\d+) s")
_NAMES = ("hang B", "blocked", "dead rank", "huge step", "compiled", "asleep", "KV wait", "clients gone")
_WELL = {BackendState.BUSY, BackendState.BORED, BackendState.IDLE}


def texts_of(snapshot: Snapshot) -> list[str]:
    """Return every text that says something about the server now; events are about their own moment."""
    (view,) = snapshot.backends
    alerts = [alert.message for alert in snapshot.alerts]
    progress = [view.progress.sentence] if view.progress is not None else []
    return [verdict(snapshot).words, view.state_rule, *alerts, *progress]


@pytest.mark.long
@pytest.mark.parametrize("name", _NAMES)
def test_texts_of_one_moment_agree(name: str) -> None:
    """Seconds without progress, numbers of requests and the word of a hang are the same in all texts."""
    phase = next(one for one in stuck.PHASES if name in one.name)
    run = stuck.Run(phase, 11)
    list(run.play(25))
    run.befall(phase.draw(random.Random(3)), 140)  # noqa: S311 - no secret
    for _ in run.play(170):
        snapshot = run.store.snapshot()
        (view,) = snapshot.backends
        texts, top = texts_of(snapshot), verdict(snapshot)
        seconds = {int(found) for text in texts for found in _SECONDS.findall(text)}
        assert seconds <= {round(view.progress.seconds)} if view.progress else not seconds, texts
        for word, value in (("running", view.running), ("waiting", view.waiting)):
            assert {float(n) for text in texts for n in re.findall(rf"(\d+) {word}", text)} <= {value}, texts
        stuck_alert = next((one for one in snapshot.alerts if one.id.endswith(":stuck")), None)
        if stuck_alert is not None and view.ok:
            assert stuck_alert.message.startswith(f"{view.state.value} with"), texts
        assert not top.words.startswith("all well") or view.state in _WELL, texts
        if view.state in {BackendState.STUCK, BackendState.SUSPECT}:
            assert top.severity is not None, texts
