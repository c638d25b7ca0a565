"""Old pictures in temporary files: the same figures, nothing left behind, and disks that fail."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import BackendHistory, BackendView, Snapshot
from sparktop.model.targets import Watch
from sparktop.recording.past import Past, Spool, Stored
from sparktop.recording.recorder import Recorder
from sparktop.recording.session import Recordings
from sparktop.report.json_snapshot import to_json
from sparktop.store import Store
from tests.recording.conftest import instant

HOUR_S = 3600


class FullDisk(Spool):
    """A spool on a disk without room."""

    def store(self, data: bytes) -> Stored:
        """Raise what a full disk raises."""
        raise OSError(errno.ENOSPC, f"no room for {len(data)} bytes")


def hour(spool: Spool | None, *, backends: int = 1, every_s: float = 1.0) -> Past:
    """Return the pictures of an hour of servers with one history, moved to `spool` each minute."""
    past, table = Past(), HistoryTable(BackendHistory.__struct_fields__)
    for tick in range(int(HOUR_S / every_s)):
        at = tick * every_s
        table.append(at, {"running": at / 7, "waiting": float(tick % 3)})
        history = BackendHistory(**table.series("running", "waiting"))
        views = tuple(BackendView(f"b{one}", "http://h", "g", history=history) for one in range(backends))
        past.add(Snapshot(instant(at).wall, at, 1.0, 0.5, backends=views))
        if spool is not None and at % 60 == 0:
            past.move(spool)
    return past


def test_moved_pictures_are_as_they_were(tmp_path: Path) -> None:
    """Figures and every point of the histories, at each of the stored moments."""
    moved, kept = hour(Spool(tmp_path)), hour(None)
    assert [one.at for one in moved.stamps] == [one.at for one in kept.stamps]
    for place in range(0, len(kept), 40):
        ours, theirs = moved._picture(place), kept._picture(place)
        assert ours is not None
        assert theirs is not None
        assert to_json(ours.snapshot) == to_json(theirs.snapshot)
        for name in ("running", "waiting", "generation_tps"):
            assert list(getattr(ours.snapshot.backends[0].history, name)) == list(
                getattr(theirs.snapshot.backends[0].history, name)
            )


def test_on_a_full_disk_pictures_stay_in_memory() -> None:
    """Rewinding goes on as without a file."""
    past, kept = hour(FullDisk(Path("/nowhere"))), hour(None)
    assert [one.at for one in past.stamps] == [one.at for one in kept.stamps]
    first = past.at(0.0)
    assert first is not None
    assert len(first.snapshot.backends[0].history.running) == 900


def test_the_flight_recorders_thread_moves_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a minute, after it has written."""
    moves = []
    monkeypatch.setattr(Past, "move", lambda *_: moves.append(1))
    made = {}
    monkeypatch.setattr(Recorder, "__init__", lambda _, *__, **words: made.update(words))
    monkeypatch.setattr(Recorder, "start", lambda *_: None)
    recordings = Recordings(Watch(), flight=True, env={"XDG_STATE_HOME": str(tmp_path)})
    recordings.past = Past()
    asyncio.run(recordings.start(Store(Watch(), journal=recordings.journal)))
    for at in (0.0, 1.0, 59.0, 60.0, 61.0, 125.0):
        made["on_written"](instant(at))
    assert len(moves) == 3
