"""Wall clocks that are set while a recording is made, and files that overlap: one order of time."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.instant import Instant
from sparktop.model.targets import BackendTarget, Watch
from sparktop.recording.player import ForwardClock, Player, Recording
from sparktop.recording.recorder import Recorder
from sparktop.store import SourceKey, Store
from tests.known import known
from tests.recording.conftest import instant, read

WATCH = Watch(backends=(BackendTarget("a", "http://127.0.0.1:1"),))
SECONDS, SET_AT_S = 200, 100
HOUR = timedelta(hours=1)


def recorded(path: Path, seconds: range, step: timedelta = timedelta()) -> None:
    """Record a failed poll and a judgement in each second; the wall clock is set by `step` at `SET_AT_S`."""
    at = 0.0
    recorder = Recorder(WATCH, next_path=lambda _: path)
    store = Store(
        WATCH,
        clock=lambda: at,
        now=lambda: instant(at).wall + (step if at > SET_AT_S else timedelta()),
        journal=recorder,
    )
    recorder.start(store)
    for second in seconds:
        at = float(second)
        store.accept(SourceKey.backend("a"), Failure(FailureKind.REFUSED, f"poll {second}", at), 1.0)
        store.judge()
    recorder.stop("quit")


@pytest.mark.outside
@pytest.mark.parametrize("step", [HOUR, -HOUR, timedelta()])
def test_all_of_it_is_played_in_order(tmp_path: Path, step: timedelta) -> None:
    """It is played from the beginning, and to moments before and after the step of the clock."""
    recorded(tmp_path / "a", range(SECONDS), step)
    recording = Recording([tmp_path / "a"])
    whole, _ = read(tmp_path / "copy", (tmp_path / "a").read_bytes())
    walls = [record.instant.wall for record in recording.records(recording.frames[0])]
    assert (len(walls), walls) == (len(whole), sorted(walls))
    assert [start.offset for start in recording.frames] == sorted(start.offset for start in recording.frames)
    ahead = max(step, timedelta())
    for second in (30, 99, 150, 199):
        player = Player(recording)
        player.seek(instant(second + 0.5).wall + (ahead if second > SET_AT_S else timedelta()))
        assert known(player.snapshot().backends[0].failure).message == f"poll {second}"
    assert recording.end == instant(SECONDS - 1.0).wall + ahead


def test_another_boot_with_an_older_clock_goes_on_after_the_first() -> None:
    """The monotonic clock begins again, so nothing is known of the time between."""
    clock = ForwardClock()
    clock.corrected_time(Instant(5_000.0, instant(100.0).wall))
    assert clock.corrected_time(Instant(2.0, instant(50.0).wall)).wall == instant(100.0).wall
    assert clock.corrected_time(Instant(3.0, instant(51.0).wall)).wall == instant(101.0).wall


def at_s(recording: Recording) -> list[float]:
    """Return the monotonic times of the judgements, from the first frame on."""
    records = recording.records(recording.frames[0])
    return [one.instant.at for one in records if one.kind == "tick"]


@pytest.mark.outside
def test_overlapping_files_are_one_time_line(tmp_path: Path) -> None:
    """Each second is played once, in order, and into one store: nothing of its history is lost."""
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, seconds in zip(paths, (range(1, 300), range(150, 500)), strict=True):
        recorded(path, seconds)
    for each in (paths, paths[::-1]):
        recording = Recording(each)
        assert at_s(recording) == [float(second) for second in range(1, 500)]
        player = Player(recording)
        store = player.store
        player.play(instant(499.0).wall)
        assert player.store is store
        assert player.snapshot().backends[0].failing_since == instant(1.0).wall
        assert player.unreadable == 0
        recording.close()
