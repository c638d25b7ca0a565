"""Files that overlap in time, and files with gaps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.instant import Instant
from sparktop.model.targets import BackendTarget, Watch
from sparktop.recording.player import Player, Recording
from sparktop.recording.recorder import Recorder
from sparktop.store import SourceKey, Store

pytestmark = pytest.mark.outside

WATCH = Watch(backends=(BackendTarget("a", "http://127.0.0.1:1"),))
START = datetime(2026, 1, 15, 9, tzinfo=UTC)


def recorded(path: Path, seconds: range, *, skipped: range = range(0), back_at: int | None = None) -> Path:
    """Record a failed poll and a judgement in each of these seconds but the skipped ones.

    From the second `back_at` on, the wall clock is half an hour behind.
    """
    at = 0.0

    def wall() -> datetime:
        behind_s = 1800.0 if back_at is not None and at >= back_at else 0.0
        return START + timedelta(seconds=at - behind_s)

    recorder = Recorder(WATCH, next_path=lambda _: path)
    store = Store(WATCH, clock=lambda: at, now=wall, journal=recorder)
    recorder.start(store)
    for second in seconds:
        if second not in skipped:
            at = float(second)
            store.accept(SourceKey.backend("a"), Failure(FailureKind.REFUSED, "refused", at), 1.0)
            store.judge()
    recorder.stop("quit")
    return path


def ticks(recording: Recording) -> list[Instant]:
    """Return the times of the judgements, from the first frame on."""
    return [one.instant for one in recording.records(recording.frames[0]) if one.kind == "tick"]


def at_s(recording: Recording) -> list[float]:
    """Return the monotonic times of the judgements, from the first frame on."""
    return [one.at for one in ticks(recording)]


def test_overlapping_files_are_one_time_line(tmp_path: Path) -> None:
    """Each second is played once, in order, and into one store: nothing of its history is lost."""
    paths = [recorded(tmp_path / "a", range(1, 300)), recorded(tmp_path / "b", range(150, 500))]
    for each in (paths, paths[::-1]):
        recording = Recording(each)
        assert at_s(recording) == [float(second) for second in range(1, 500)]
        player = Player(recording)
        store = player.store
        player.play(START + timedelta(seconds=499))
        assert player.store is store
        assert player.snapshot().backends[0].failing_since == START + timedelta(seconds=1)
        assert player.unreadable == 0
        recording.close()
