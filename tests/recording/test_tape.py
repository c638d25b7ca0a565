"""A recording played back: every snapshot, verdict, alert and event as it was."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from sparktop.demo.scenario import SCENARIOS, Scenario
from sparktop.model.snapshot import Snapshot
from sparktop.recording.player import Player, Recording
from sparktop.recording.recorder import Recorder
from sparktop.report.json_snapshot import to_json
from stage.rehearsal import Outage, Rehearsal

pytestmark = [pytest.mark.outside, pytest.mark.long]

MOMENTS = 100
STEP_S = 3.0


class Tape:
    """A rehearsal that was recorded, with the snapshots of the live run."""

    def __init__(self, path: Path, outage: Outage | None, scenario: Scenario | None) -> None:
        """Play `MOMENTS` steps and keep a snapshot after each."""
        live = Rehearsal(nodes=2, outage=outage, scenario=scenario)
        self.recorder = Recorder(live.watch, next_path=lambda _: path)
        live = Rehearsal(nodes=2, journal=self.recorder, outage=outage, scenario=scenario)
        self.recorder.start(live.store)
        self.snapshots = []
        for moment in range(MOMENTS):
            live.play(STEP_S)
            if moment == MOMENTS // 2:
                live.store.note("discovery", "a note without values")
            self.snapshots.append(live.store.snapshot())
        self.recorder.stop("quit")
        self.path = path


def comparable(snapshot: Snapshot) -> dict[str, Any]:
    """Return the JSON of a snapshot without what describes the viewer itself."""
    return {name: value for name, value in to_json(snapshot).items() if name not in {"self", "sparktop"}}


@pytest.fixture(
    scope="module", params=["none", "oscillation", "cooldown", "memory", "hot", "outage", "hang-b"]
)
def tape(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tape:
    """A recorded run of each scenario."""
    name = request.param
    outage = Outage(0, 100.0) if name == "outage" else None
    return Tape(tmp_path_factory.mktemp("tape") / f"{name}.rec.zst", outage, SCENARIOS.get(name))


def test_every_replayed_snapshot_equals_the_live_one(tape: Tape) -> None:
    """They are equal field by field, with all histories, verdicts, alerts and events."""
    player = Player(Recording([tape.path]))
    for live in tape.snapshots:
        player.play(live.taken_at)
        assert comparable(player.snapshot()) == comparable(live)
    assert player.unreadable == 0


def test_a_seek_gives_the_same_picture(tape: Tape) -> None:
    """A jump to a moment replays what the picture needs; only since when a verdict holds may differ."""
    recording = Recording([tape.path])
    for live in tape.snapshots[33::66]:
        player = Player(recording)
        player.seek(live.taken_at)
        assert comparable(player.snapshot()) == comparable(live)


def test_a_jump_far_into_a_recording_has_the_true_beginnings(tape: Tape) -> None:
    """With three minutes replayed, alerts, events and verdicts of the minutes before are as they were live.

    Only what was last read before these minutes is missing: the age and engine of a dead backend.
    """
    recording = Recording([tape.path])
    for live in tape.snapshots[84::15]:
        player = Player(recording)
        player.seek(live.taken_at, warm_up_s=180.0)
        shown = player.snapshot()
        found, wanted = comparable(shown), comparable(live)
        assert (found["alerts"], found["events"]) == (wanted["alerts"], wanted["events"])
        verdicts = [[(one.group, one.word, one.since) for one in each.balance] for each in (shown, live)]
        assert verdicts[0] == verdicts[1]
        assert [one.failing_since for one in shown.backends] == [one.failing_since for one in live.backends]


def test_the_recording_ends_with_its_reason(tape: Tape) -> None:
    """The last record is the end with its reason, so that a later start knows that nothing was killed."""
    recording = Recording([tape.path])
    last = [*recording.records(recording.frames[-1])][-1]
    assert (last.kind, last.fields["reason"]) == ("end", "quit")
    assert recording.damage == []
    assert isinstance(recording.frames[0].instant.wall, datetime)
