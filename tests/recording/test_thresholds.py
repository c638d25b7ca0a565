"""Thresholds that change while a recording is written hold in its replay from the same moment on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.model.event import Alert
from sparktop.model.snapshot import BackendState, Snapshot
from sparktop.model.targets import NodeThresholds, StateThresholds, Thresholds
from sparktop.recording.frames import Kind, Record, RecordError
from sparktop.recording.player import Player, Recording
from sparktop.recording.recorder import Recorder
from sparktop.recording.records import call_of, read_head, record_of, record_of_head
from sparktop.report.json_snapshot import to_json
from sparktop.store import Store
from sparktop.store.store import Call, Change, Journals
from stage.rehearsal import Rehearsal
from tests.recording.conftest import instant

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


def test_limits_hold_from_the_next_sample_on(tape: Tape) -> None:
    """The alert of the stricter limit begins and ends with it, and states follow."""
    assert [bool(headroom(tape.live[second])) for second in (18, 25, 45, 65)] == [False, True, False, True]
    assert tape.live[25].nodes[0].headroom.limit_bytes == tape.live[18].nodes[0].headroom.limit_bytes
    states = {view.state for second in range(25, 40) for view in tape.live[second].backends}
    assert BackendState.BORED not in states


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


def test_a_recording_begins_with_the_limits_of_its_moment(tape: Tape) -> None:
    """A recording that is started after a change has the changed thresholds in its head."""
    player = Player(Recording([tape.paths[1]]))
    assert player.store.thresholds == STRICT
    player.play(tape.live[50].taken_at)
    assert player.store.thresholds == Thresholds()


def test_a_lost_record_of_limits_is_made_good_by_the_next_head(tape: Tape) -> None:
    """The head of a frame has the thresholds; a player whose store has others takes them over."""
    player = Player(Recording([tape.paths[0]]))
    head = replace(player.head, thresholds=STRICT.states, node_thresholds=STRICT.nodes)
    player._pass_head(record_of_head(player.instant, head))
    assert player.store.thresholds == STRICT


def test_the_record_of_limits_is_read_back() -> None:
    """Thresholds are written with all fields and read with defaults for fields that are missing."""
    call = Call(Change.SET_THRESHOLDS, (STRICT,))
    record = record_of(instant(1.0), call)
    assert record is not None
    assert call_of(record) == call
    old = Record(
        Kind.WATCH, instant(1.0), fields={"thresholds": {"states": {"busy_share": 0.05}, "nodes": {}}}
    )
    assert call_of(old) == Call(Change.SET_THRESHOLDS, (Thresholds(StateThresholds(busy_share=0.05)),))
    for wrong in ({"states": {"busy_share": "x"}}, {"nodes": 3}):
        with pytest.raises(RecordError):
            call_of(Record(Kind.WATCH, instant(1.0), fields={"thresholds": wrong}))


def test_a_head_keeps_changed_limits(tape: Tape) -> None:
    """The head of the next frame has the thresholds of the newest change."""
    head = Player(Recording([tape.paths[0]])).head.after(Call(Change.SET_THRESHOLDS, (STRICT,)))
    again = read_head(record_of_head(instant(1.0), head))
    assert (again.thresholds, again.node_thresholds) == (STRICT.states, STRICT.nodes)


def test_sources_that_are_added_later_have_the_limits() -> None:
    """A backend or node found after the change is judged by the new thresholds, too."""
    live = Rehearsal(nodes=2)
    store = Store(replace(live.watch, backends=(), nodes=()), clock=lambda: 0.0)
    store.set_thresholds(STRICT)
    store.add(*live.watch.backends, *live.watch.nodes)
    assert {track._thresholds for track in store._tracks.nodes.values()} == {STRICT.nodes}
    assert {track._thresholds for track in store._tracks.backends.values()} == {STRICT.states}
