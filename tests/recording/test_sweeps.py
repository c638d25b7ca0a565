"""Sweeps in recordings: the board of a replay shows what the board showed live."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

from sparktop.model.sweep import SweepStatus, SweepView
from sparktop.model.targets import BackendTarget, Watch
from sparktop.recording.frames import MAX_BODY_BYTES, Record, RecordError, RecordKind
from sparktop.recording.player import Player, Recording
from sparktop.recording.records import record_of_sweep, sweep_of
from sparktop.recording.replay import Replay
from sparktop.recording.rescue import check
from sparktop.recording.session import SWEEP_EVERY_S, Recordings
from sparktop.store import Store
from sparktop.sweep.view.result import result_view
from tests.known import known
from tests.recording.conftest import instant
from tests.ui.sweep_stage import whole_result

pytestmark = pytest.mark.outside

WATCH = Watch(backends=(BackendTarget("a", "http://127.0.0.1:1"),))
START = datetime(2026, 1, 15, 9, tzinfo=UTC)


def finished() -> SweepView:
    """Return what the board shows of a sweep of two targets and six levels."""
    return result_view(whole_result(), title="quick")


def fields_of(view: SweepView | None) -> dict[str, object]:
    """Return the fields of a view for comparison: two views are never equal."""
    return {} if view is None else asdict(view)


def test_a_view_is_read_as_it_was_written() -> None:
    """Levels, rows, marks, plots and verdicts are kept; text is cleaned, and anything else is refused."""
    view = finished()
    record = known(record_of_sweep(instant(1.0), view))
    assert fields_of(sweep_of(record)) == fields_of(view)
    assert view.rows
    assert view.plots
    none = known(record_of_sweep(instant(1.0), None))
    assert sweep_of(none) is None
    hostile = known(record_of_sweep(instant(1.0), replace(view, title="\x1b[2Jx")))
    cleaned = known(sweep_of(hostile))
    assert "\x1b" not in cleaned.title
    with pytest.raises(RecordError):
        sweep_of(replace(record, body=b'{"title": 3}'))
    assert record_of_sweep(instant(1.0), replace(view, title="x" * MAX_BODY_BYTES)) is None


async def test_the_replayed_board_shows_the_sweep(tmp_path: Path) -> None:
    """Recorded every two seconds while it runs, at once when it ends, and until it is dismissed."""
    at = 0.0
    band: SweepView | None = None
    recordings = Recordings(WATCH, flight=False, env={})
    recordings.band = lambda: band
    store = Store(
        WATCH, clock=lambda: at, now=lambda: START + timedelta(seconds=at), journal=recordings.journal
    )
    await recordings.start(store)
    await recordings.toggle(tmp_path)
    path = known(recordings.own_path)
    running = replace(finished(), status=SweepStatus.RUNNING)
    shown: list[SweepView | None] = []
    for second in range(1, 31):
        at = float(second)
        if 5 <= second < 15:
            band = replace(running, elapsed_s=at)
        elif 15 <= second < 25:
            band = replace(finished(), elapsed_s=10.0)
        else:
            band = None
        shown.append(band)
        store.judge()
    recordings.stop("quit")
    assert check(path).kinds["sweep-view"] == 10 / SWEEP_EVERY_S + 2
    assert check(path).is_whole
    recording = Recording([path])
    player = Player(recording)
    for second, live in enumerate(shown, 1):
        player.play(START + timedelta(seconds=second, milliseconds=1))
        found = player.sweep
        assert (found is None, found and found.status) == (live is None, live and live.status)
        if found is not None and live is not None:
            assert (live.elapsed_s or 0) - (found.elapsed_s or 0) < SWEEP_EVERY_S
    replay = Replay(recording)
    replay.go(START + timedelta(seconds=20))
    while replay.busy:
        replay.work(1.0)
    assert fields_of(replay.picture().sweep) == fields_of(shown[19])
    recording.close()


def test_a_sweep_of_a_kind_of_load_that_is_gone_is_passed_over() -> None:
    """A recording of an earlier version that shows one plays without it."""
    record = known(record_of_sweep(instant(1.0), result_view(whole_result())))
    assert b'"kind":"concurrency"' in record.body
    old = record.body.replace(b'"kind":"concurrency"', b'"kind":"pools"')
    assert sweep_of(replace(record, body=old)) is None


def test_a_sweep_in_a_recording_of_1_3_is_shown() -> None:
    """Its levels have a concurrency where this version has a point."""
    body = (Path(__file__).parent.parent / "data/recordings/1.3.0/sweep_view.json").read_bytes()
    view = known(sweep_of(Record(RecordKind.SWEEP_VIEW, instant(1.0), body=body)))
    labels = [level.key.point.label for level in view.levels if level.key.target == "proxy"]
    assert labels == ["c = 1", "c = 2", "c = 4"]
    assert [point.point.value for point in view.plots[0].lines[0].points] == [1, 2, 4]
    assert {level.key.pp for level in view.levels} == {100}
    assert [level.key.label for level in known(view.topologies).metrics[0].levels] == labels
