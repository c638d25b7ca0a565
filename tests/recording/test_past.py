"""Kept snapshots: how many, how far apart, compressed, and which one is found."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

from sparktop.model.event import Event, Severity
from sparktop.model.snapshot import BackendView, Snapshot
from sparktop.recording.past import (
    Past,
    PastPicture,
    PictureChunk,
)
from sparktop.report.json_snapshot import to_json
from stage.rehearsal import Rehearsal
from tests.known import known
from tests.recording.conftest import instant


@cache
def views(count: int) -> tuple[BackendView, ...]:
    """Return `count` servers."""
    return tuple(BackendView(f"b{i}", "http://h", "g") for i in range(count))


def snapshot(at: float, *, backends: int = 2, events: tuple[float, ...] = ()) -> Snapshot:
    """Return a snapshot taken at `at`, with events at these times."""
    return Snapshot(
        instant(at).wall,
        at,
        1.0,
        2.0,
        backends=views(backends),
        events=tuple(Event(instant(one).wall, Severity.INFO, "b0", f"event {one}") for one in events),
    )


def filled(seconds: int, *, per_second: int = 1) -> Past:
    """Return a past with the pictures of `seconds` seconds."""
    past = Past()
    for tick in range(seconds * per_second):
        past.add(snapshot(tick / per_second))
    return past


def test_the_newest_are_close_together_and_all_are_bounded() -> None:
    """One snapshot a second is kept for 5 minutes, one in 5 s up to 30 minutes, even if drawn at 4 Hz."""
    past = filled(4000, per_second=4)
    times = [one.at for one in past.stamps]
    gaps = [late - early for early, late in pairwise(times)]
    # All pictures of a minute become fewer, and are dropped, together.
    assert len(past) <= 720
    assert 1795 <= times[-1] - times[0] <= 1870
    assert set(gaps[-299:]) == {1.0}
    assert set(gaps[:-430]) == {5.0}


def test_a_moment_is_found_by_either_clock() -> None:
    """The last picture at or before it; before the oldest, the oldest."""
    past = filled(100)
    for at, found in ((50.4, 50.0), (-5.0, 0.0), (1e6, 99.0)):
        assert past.at(at) is past.at_wall(instant(at).wall)
        picture = known(past.at(at))
        assert picture.at == found
    assert Past().at(1.0) is None


def test_a_wall_clock_that_steps_back_changes_no_order() -> None:
    """Pictures stay in the order in which they were taken."""
    past = filled(10)
    for at in range(10, 20):
        past.add(Snapshot(instant(at - 3600.0).wall, float(at), 1.0, 2.0))
    assert [one.at for one in past.stamps] == [float(at) for at in range(20)]
    picture = known(past.at(15.0))
    assert picture.at == 15.0


def test_compressed_pictures_have_the_same_figures() -> None:
    """All that a report says of a snapshot, every point of its histories, times and load."""
    rehearsal = Rehearsal(nodes=2)
    pictures = [PastPicture(rehearsal.play(5).snapshot()) for _ in range(4)]
    chapter = PictureChunk(pictures)
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
