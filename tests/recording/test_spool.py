"""Old pictures in temporary files: the same figures, nothing left behind, and disks that fail."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import BackendHistory, BackendView, Snapshot
from sparktop.model.targets import Watch
from sparktop.moments.moment import moment_of
from sparktop.recording.past import KEPT_MANY_S, KEPT_S, MANY_SOURCES, PART_BYTES, Past, Spool, Stored
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


def unnamed_files(folder: Path) -> int:
    """Return how many files without a name in `folder` this process has open."""
    paths = [*Path("/proc/self/fd").iterdir()]
    return sum(str(folder) in str(path.readlink()) for path in paths if path.is_symlink())


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


def test_memory_has_only_what_the_present_needs(tmp_path: Path) -> None:
    """Of the pages that old pictures show, those that the table has dropped are in the file."""
    past = hour(Spool(tmp_path))
    needed = {page for chapter in past._sparse for page in chapter._pages}
    in_memory = [page for page in needed if isinstance(page._columns, list)]
    assert len(in_memory) < len(needed) / 2
    assert not any(isinstance(chapter._data._data, bytes) for chapter in [*past._sparse][:-1])


def test_files_have_no_name_and_go_with_their_pictures(tmp_path: Path) -> None:
    """Nothing is left in the folder, and a file is closed when nothing in it is needed any more."""
    spool = Spool(tmp_path)
    past = hour(spool)
    assert not [*tmp_path.iterdir()]
    assert unnamed_files(tmp_path) == 1
    past.clear()
    del spool
    assert unnamed_files(tmp_path) == 0


def test_a_new_file_begins_after_some_bytes(tmp_path: Path) -> None:
    """Both are read; the first is closed when its bytes are dropped."""
    spool = Spool(tmp_path)
    large, small = spool.store(bytes(PART_BYTES)), spool.store(b"small")
    assert (len(large.read()), small.read(), small.read(1, 3)) == (PART_BYTES, b"small", b"ma")
    assert unnamed_files(tmp_path) == 2
    del large
    assert unnamed_files(tmp_path) == 1


def test_on_a_full_disk_pictures_stay_in_memory() -> None:
    """Rewinding goes on as without a file."""
    past, kept = hour(FullDisk(Path("/nowhere"))), hour(None)
    assert [one.at for one in past.stamps] == [one.at for one in kept.stamps]
    first = past.at(0.0)
    assert first is not None
    assert len(first.snapshot.backends[0].history.running) == 900


def test_a_fleet_goes_back_half_an_hour_with_a_file_and_ten_minutes_without(tmp_path: Path) -> None:
    """What its pictures need would fill the memory."""
    count = MANY_SOURCES + 1
    spans = []
    for spool in (None, FullDisk(tmp_path), Spool(tmp_path)):
        past = hour(spool, backends=count, every_s=60.0)
        spans.append(past.stamps[-1].at - past.stamps[0].at)
    assert spans == [KEPT_MANY_S, KEPT_MANY_S, KEPT_S]


def test_a_disk_that_is_full_for_a_moment_costs_no_picture_in_a_file(tmp_path: Path) -> None:
    """Of a fleet, only pictures in memory are dropped after ten minutes."""
    past = hour(Spool(tmp_path), backends=MANY_SOURCES + 1, every_s=60.0)
    oldest, newest, views = past.stamps[0].at, past.stamps[-1].at, past._recent[-1].snapshot.backends
    for minute in range(1, 22):
        past.move(FullDisk(tmp_path))
        at = newest + 60.0 * minute
        past.add(Snapshot(instant(at).wall, at, 1.0, 0.5, backends=views))
        assert past.stamps[0].at <= oldest + 60.0 * minute
    in_memory = [one for one in past._sparse if isinstance(one._data._data, bytes)]
    assert 0 < past.stamps[-1].at - in_memory[0].stamps[0].at <= KEPT_MANY_S


def test_a_report_of_a_moment_is_written_without_the_points_that_are_lost(tmp_path: Path) -> None:
    """It begins with the first point that can be read."""
    spool = Spool(tmp_path)
    past = hour(spool)
    assert spool._part is not None
    os.ftruncate(spool._part.descriptor, 0)
    newest = past.newest
    assert newest is not None
    assert moment_of(newest, past).end == newest.wall


def test_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    """A picture that can be read is shown in its place, without the points that are lost."""
    spool = Spool(tmp_path)
    past = hour(spool)
    part = spool._part
    assert part is not None
    os.ftruncate(part.descriptor, 0)
    shown = past.at(0.0)
    assert shown is not None
    assert shown.at > past.stamps[0].at
    points = list(shown.snapshot.backends[0].history.running)
    assert {value for at, value in points if at == float("-inf")} <= {None}
    assert [*past.between(past.stamps[0].wall, 1e9)]


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
