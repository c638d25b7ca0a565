"""A stuck engine whose ranks NCCL reports as apart: a replay shows and judges it as the live run did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparktop.demo.scenario import SCENARIOS
from sparktop.model.ranks import RanksReading
from sparktop.model.snapshot import BackendState, Snapshot
from sparktop.recording.player import Player, Recording
from sparktop.recording.recorder import Recorder
from sparktop.report.json_snapshot import to_json
from sparktop.store import SourceKey
from sparktop.store.store import Journals
from stage.rehearsal import Rehearsal
from tests.hardware.ras.examples import answer

pytestmark = [pytest.mark.outside, pytest.mark.long]

ASKED = (62, 67, 72)
"""Seconds at which NCCL answers; the engine has stood still since second 45."""
SECONDS = 80


def comparable(snapshot: Snapshot) -> dict[str, Any]:
    """Return the JSON of a snapshot without what describes the viewer itself."""
    return {name: value for name, value in to_json(snapshot).items() if name not in {"self", "sparktop"}}


def test_a_replay_shows_the_ranks_as_the_live_run_did(tmp_path: Path) -> None:
    """Each second's snapshot is the live one: events, verdict, state and its JSON."""
    journals = Journals()
    live = Rehearsal(nodes=4, scenario=SCENARIOS["hang-a"], journal=journals)
    path = tmp_path / "stuck.rec.zst"
    recorder = Recorder(live.watch, next_path=lambda _: path)
    journals.add(recorder)
    recorder.start(live.store)
    shown: list[Snapshot] = []
    for second in range(SECONDS):
        live.play(1.0)
        if second in ASKED:
            name, at = live.watch.backends[0].name, live.store.snapshot().at
            for reading in (
                RanksReading(at, "spark-a"),
                RanksReading(at, "spark-a", answer("lags-by-one")),
            ):
                live.store.accept(SourceKey.backend(name), reading)
        shown.append(live.store.snapshot())
    recorder.stop("quit")
    assert shown[60].backends[0].state is not BackendState.STUCK
    last = shown[-1].backends[0]
    assert (last.state, last.ranks is not None) == (BackendState.STUCK, True)
    player = Player(Recording([path]))
    for one in shown:
        player.play(one.taken_at)
        assert comparable(player.snapshot()) == comparable(one)
    assert player.unreadable == 0
