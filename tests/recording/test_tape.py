"""A recording played back: every snapshot, verdict, alert and event as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sparktop.demo.scenario import SCENARIOS, Scenario
from sparktop.model.ranks import RanksReading
from sparktop.model.snapshot import BackendState, Snapshot
from sparktop.model.targets import NodeThresholds, StateThresholds, Thresholds
from sparktop.recording.player import Player, Recording
from sparktop.recording.recorder import Recorder
from sparktop.store import SourceKey
from sparktop.store.store import Journals
from stage.rehearsal import Outage, Rehearsal
from tests.hardware.ras.examples import answer
from tests.recording.conftest import comparable

pytestmark = [pytest.mark.outside, pytest.mark.long]

MOMENTS = 100
STEP_S = 3.0
SECONDS = 80
STRICT = Thresholds(StateThresholds(busy_share=0.05, window_s=20.0), NodeThresholds(headroom_warn_gib=64.0))
CHANGES = {20: STRICT, 40: Thresholds(), 60: STRICT}
"""Thresholds by the second at which they are set."""
ASKED = (62, 67, 72)
"""Seconds at which NCCL answers; the engine has stood still since second 45."""


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


@pytest.fixture(scope="module", params=["oscillation", "memory", "outage", "hang-b"])
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


def recorded(
    path: Path, scenario: Scenario | None, on_second: Callable[[Rehearsal, int], None]
) -> list[Snapshot]:
    """Record `SECONDS` seconds, after each of which `on_second` is called; return the live snapshots."""
    journals = Journals()
    live = Rehearsal(nodes=2 if scenario is None else 4, scenario=scenario, journal=journals)
    recorder = Recorder(live.watch, next_path=lambda _: path)
    journals.add(recorder)
    recorder.start(live.store)
    shown = []
    for second in range(SECONDS):
        live.play(1.0)
        on_second(live, second)
        shown.append(live.store.snapshot())
    recorder.stop("quit")
    return shown


def is_replayed_alike(path: Path, shown: list[Snapshot]) -> bool:
    """Return whether each second's snapshot is the live one."""
    player = Player(Recording([path]))
    for live in shown:
        player.play(live.taken_at)
        assert comparable(player.snapshot()) == comparable(live)
    return player.unreadable == 0


def test_thresholds_that_change_hold_in_the_replay(tmp_path: Path) -> None:
    """Each second's snapshot is the live one, played from the start and after a jump."""

    def change(live: Rehearsal, second: int) -> None:
        if second in CHANGES:
            live.store.set_thresholds(CHANGES[second])

    path = tmp_path / "a.rec.zst"
    shown = recorded(path, None, change)
    assert is_replayed_alike(path, shown)
    jumped = Player(Recording([path]))
    jumped.seek(shown[45].taken_at)
    assert comparable(jumped.snapshot()) == comparable(shown[45])


def test_a_replay_shows_the_ranks_as_the_live_run_did(tmp_path: Path) -> None:
    """A stuck engine whose ranks NCCL reports as apart: events, verdict, state and JSON are the live ones."""

    def ask(live: Rehearsal, second: int) -> None:
        if second in ASKED:
            name, at = live.watch.backends[0].name, live.store.snapshot().at
            for reading in (RanksReading(at, "spark-a"), RanksReading(at, "spark-a", answer("lags-by-one"))):
                live.store.accept(SourceKey.backend(name), reading)

    path = tmp_path / "stuck.rec.zst"
    shown = recorded(path, SCENARIOS["hang-a"], ask)
    assert shown[60].backends[0].state is not BackendState.STUCK
    last = shown[-1].backends[0]
    assert (last.state, last.ranks is not None) == (BackendState.STUCK, True)
    assert is_replayed_alike(path, shown)
