"""Thresholds that change while a recording is written hold in its replay from the same moment on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparktop.model.event import Alert
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import NodeThresholds, StateThresholds, Thresholds
from sparktop.recording.player import Player, Recording
from sparktop.recording.recorder import Recorder
from sparktop.report.json_snapshot import to_json
from sparktop.store.store import Journals
from stage.rehearsal import Rehearsal

pytestmark = [pytest.mark.outside, pytest.mark.long]

STRICT = Thresholds(StateThresholds(busy_share=0.05, window_s=20.0), NodeThresholds(headroom_warn_gib=64.0))
CHANGES = {20: STRICT, 40: Thresholds(), 60: STRICT}
"""Thresholds by the second at which they are set."""
SECONDS = 80


def comparable(snapshot: Snapshot) -> dict[str, Any]:
    """Return the JSON of a snapshot without what describes the viewer itself."""
    return {name: value for name, value in to_json(snapshot).items() if name not in {"self", "sparktop"}}


def headroom(snapshot: Snapshot) -> list[Alert]:
    return [alert for alert in snapshot.alerts if "headroom" in (alert.id or "")]


class Tape:
    """A recorded run in which the thresholds change, with the live snapshot of each second."""

    def __init__(self, folder: Path) -> None:
        """Play and record; a second recording begins after the first change."""
        journals = Journals()
        live = Rehearsal(nodes=2, journal=journals)
        self.paths = [folder / "first.rec.zst", folder / "second.rec.zst"]
        first, second_path = self.paths
        recorders = [
            Recorder(live.watch, next_path=lambda _: first),
            Recorder(live.watch, next_path=lambda _: second_path),
        ]
        self.live: list[Snapshot] = []
        for second in range(SECONDS):
            if second in {0, 30}:
                journals.add(recorders[second // 30])
                recorders[second // 30].start(live.store)
            if second in CHANGES:
                live.store.set_thresholds(CHANGES[second])
            self.live.append(live.play(1.0).snapshot())
        for recorder in recorders:
            recorder.stop("quit")


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Tape:
    """A recorded run of 80 s."""
    return Tape(tmp_path_factory.mktemp("thresholds"))


def test_a_replay_judges_as_the_live_run_did(tape: Tape) -> None:
    """Each second's snapshot is the live one, played from the start and after a jump."""
    recording = Recording([tape.paths[0]])
    player = Player(recording)
    for live in tape.live:
        player.play(live.taken_at)
        assert comparable(player.snapshot()) == comparable(live)
    assert player.unreadable == 0
    for second in (25, 45, 70):
        jumped = Player(recording)
        jumped.seek(tape.live[second].taken_at)
        assert comparable(jumped.snapshot()) == comparable(tape.live[second])
