"""Compressed pictures: the same figures, shared histories, and bounded memory."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.model.series import HistoryTable, Page
from sparktop.model.snapshot import BackendHistory, BackendView, Snapshot
from sparktop.recording.past import KEPT_S, MINUTE_S, Chapter, Past, Picture
from sparktop.report.json_snapshot import to_json
from stage.rehearsal import Rehearsal
from tests.recording.conftest import instant


def pages(chapters: Iterable[Chapter]) -> set[Page]:
    """Return the pages that histories in chapters need."""
    return {page for one in chapters for page in one._pages}


def test_compressed_pictures_have_the_same_figures() -> None:
    """All that a report says of a snapshot, every point of its histories, times and load."""
    rehearsal = Rehearsal(nodes=2)
    pictures = [Picture(rehearsal.play(5).snapshot()) for _ in range(4)]
    chapter = Chapter(pictures)
    found = chapter.pictures()
    assert [to_json(one.snapshot) for one in found] == [to_json(one.snapshot) for one in pictures]
    for read, written in zip(found, pictures, strict=True):
        ours, theirs = read.snapshot.backends[0], written.snapshot.backends[0]
        assert list(ours.history.running) == list(theirs.history.running)
        nodes = read.snapshot.nodes[1], written.snapshot.nodes[1]
        assert list(nodes[0].history.power_w) == list(nodes[1].history.power_w)
    assert [(one.at, one.wall, one.generation_tps) for one in chapter.stamps] == [
        (one.at, one.wall, one.generation_tps) for one in pictures
    ]


def test_memory_of_pictures_and_histories_is_bounded() -> None:
    """After three hours at 4 Hz every point of the last half hour is kept once, and none is older."""
    past, table = Past(), HistoryTable(BackendHistory.__struct_fields__)
    for tick in range(4 * 3 * 3600):
        at = tick / 4
        table.append(at, {"running": float(tick % 7)})
        history = BackendHistory(**table.series("running", "waiting"))
        view = BackendView("b", "http://h", "g", history=history)
        past.add(Snapshot(instant(at).wall, at, 0.25, 0.5, backends=(view,)))
    recent = {page for one in past._recent for page in one.snapshot.backends[0].history.running._pages}
    kept = recent | pages(past._sparse)
    assert sum(len(page) for page in kept) <= 4 * (KEPT_S + 2 * MINUTE_S) + 1.25 * table.capacity
    running = list(BackendHistory.__struct_fields__).index("running") + 1
    assert sum(one.column(running).typecode == "d" for one in kept) == 1
    assert len(past._recent) <= 361
    assert len(past._sparse) <= 32
