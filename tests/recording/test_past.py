"""Kept snapshots: how many, how far apart, and which one is found."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

from msgspec.structs import replace

from sparktop.model.event import Event, Severity
from sparktop.model.router import Fleet, FleetNode, FleetServer, FleetView
from sparktop.model.snapshot import BackendView, Snapshot
from sparktop.recording.past import (
    BUDGET_BYTES,
    FEW_SOURCES,
    KEPT_MANY_S,
    MANY_SCRAPED,
    MANY_SOURCES,
    SOURCE_BYTES,
    Past,
)
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


def filled(seconds: int, *, backends: int = 2, per_second: int = 1) -> Past:
    """Return a past with the pictures of `seconds` seconds."""
    past = Past()
    for tick in range(seconds * per_second):
        past.add(snapshot(tick / per_second, backends=backends))
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


def test_many_sources_are_kept_farther_apart() -> None:
    """With 128 servers the same time is covered by fewer pictures, within the budget of memory."""
    past = filled(2000, backends=128)
    assert 200 < len(past) <= BUDGET_BYTES / SOURCE_BYTES / 128 + 2
    oldest, newest = past.oldest, past.newest
    assert oldest is not None
    assert newest is not None
    assert newest.at - oldest.at > 1790
    picture = past.at(1000.0)
    assert picture is not None
    assert 990 < picture.at <= 1000.0
    assert len(picture.snapshot.backends) == 128


def test_a_fleet_goes_back_ten_minutes() -> None:
    """Of many servers only the newest pictures are kept, and the oldest is not older than necessary."""
    past = filled(1500, backends=MANY_SOURCES + 1)
    oldest, newest = past.oldest, past.newest
    assert oldest is not None
    assert newest is not None
    assert KEPT_MANY_S - 30 < newest.at - oldest.at <= KEPT_MANY_S + 1


def test_pictures_share_the_answers_of_a_prometheus() -> None:
    """Each answer is compressed once for all pictures that show it, and every picture has its own one."""
    servers = [
        tuple(FleetServer(f"s{at}", f"http://s{at}", "g", running=float(turn)) for at in range(MANY_SOURCES))
        for turn in range(4)
    ]
    answers = [
        Fleet(15.0 * turn, 15.0, some, nodes=(FleetNode("n", state="busy", gpus=1),))
        for turn, some in enumerate(servers)
    ]
    past = Past()
    for at in range(60):
        view = FleetView("main", "http://p", answers[at // 15])
        past.add(replace(snapshot(float(at)), fleets=(view,)))
    for at in (0, 14, 15, 44, 59):
        picture = past.at(float(at))
        assert picture is not None
        assert [view.fleet for view in picture.snapshot.fleets] == [answers[at // 15]]
    packed = {id(fleet) for chapter in past._sparse for fleet in chapter._fleets}
    assert len(packed) == len(answers)


def test_many_scraped_servers_go_back_ten_minutes() -> None:
    """Their answers alone fill the memory that is allowed."""
    servers = tuple(FleetServer(f"s{at}", f"http://s{at}", "g") for at in range(MANY_SCRAPED + 1))
    fleets = (FleetView("main", "http://p", Fleet(0.0, 15.0, servers)),)
    past = Past()
    for at in range(0, 1500, 3):
        past.add(replace(snapshot(float(at)), fleets=fleets))
    oldest = past.oldest
    assert oldest is not None
    assert oldest.at == 1497 - KEPT_MANY_S


def test_sources_that_are_found_later_change_no_order() -> None:
    """Pictures of few sources and those of more stand in one order of time, and all can be shown."""
    past = filled(10)
    for at in range(10, 20):
        past.add(snapshot(at, backends=FEW_SOURCES + 1))
    for at in range(20, 30):
        past.add(snapshot(at, backends=1))
    assert [one.at for one in past.stamps] == [float(at) for at in range(30)]
    for at, count in ((5, 2), (15, FEW_SOURCES + 1), (25, 1)):
        picture = past.at(at)
        assert picture is not None
        assert (picture.at, len(picture.snapshot.backends)) == (at, count)


def test_a_moment_is_found_by_either_clock() -> None:
    """The last picture at or before it; before the oldest, the oldest."""
    past = filled(100)
    for at, found in ((50.4, 50.0), (-5.0, 0.0), (1e6, 99.0)):
        assert past.at(at) is past.at_wall(instant(at).wall)
        picture = past.at(at)
        assert picture is not None
        assert picture.at == found
    assert Past().at(1.0) is None


def test_a_wall_clock_that_steps_back_changes_no_order() -> None:
    """Pictures stay in the order in which they were taken."""
    past = filled(10)
    for at in range(10, 20):
        past.add(Snapshot(instant(at - 3600.0).wall, float(at), 1.0, 2.0))
    assert [one.at for one in past.stamps] == [float(at) for at in range(20)]
    picture = past.at(15.0)
    assert picture is not None
    assert picture.at == 15.0


def test_events_are_found_in_both_directions() -> None:
    """The first picture that shows the event is found; events before the oldest picture are left out."""
    past = Past()
    for at in range(100, 200):
        past.add(snapshot(at, events=tuple(one for one in (20.0, 120.5, 150.0) if one <= at)))
    assert len(past.events) == 2
    steps = [
        past.beside_event(at, way)
        for at, way in ((199, -1), (150, -1), (121, -1), (100, 1), (121, 1), (150, 1))
    ]
    assert [one and one.at for one in steps] == [150, 121, None, 121, 150, None]
