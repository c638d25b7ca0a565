"""Step times of a group: a line for each backend if speeds differ, and then no loss."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, GroupPace, LoadTrack, group_pace

BASE_S, SLOPE_S = 0.03, 0.002
HOLD_S, HZ = 6, 2


def tokens_per_s(batch: float, slower: float) -> float:
    """Return a backend's throughput if each step takes `slower` times as long as that of the fast one."""
    return batch / (slower * (BASE_S + SLOPE_S * batch))


def steady(name: str, batches: Sequence[float], slower: float) -> LoadTrack:
    """Return a backend that holds each batch for 6 s."""
    loads = [batch for batch in batches for _ in range(HOLD_S * HZ)]
    times = [index / HZ for index in range(len(loads))]
    return LoadTrack(name, times, loads, [0.0] * len(loads), [tokens_per_s(load, slower) for load in loads])


def found(tracks: Sequence[LoadTrack]) -> GroupPace:
    """Return the pace of a group."""
    return group_pace(tracks, 0.0, GroupPace())


FAST = (4.0, 6.0, 8.0, 10.0, 7.0, 5.0, 9.0, 6.0)
SLOW = (28.0, 26.0, 24.0, 22.0, 25.0, 27.0, 23.0, 26.0)


@pytest.mark.parametrize("slower", [1.5, 2.0, 3.0])
def test_unlike_backends_have_a_line_each_and_no_loss(slower: float) -> None:
    """Backends of unequal speed have a line each and no loss: a common line would show hardly any."""
    tracks = [steady("fast", FAST, 1.0), steady("slow", SLOW, slower)]
    pace = found(tracks)
    assert pace.common is None
    assert pace.own["slow"].base_s / pace.own["fast"].base_s == pytest.approx(slower, rel=0.05)
    judged = judge(GroupLoad("proxy", tracks, 5.0), tracks[0].times_s[-1])
    assert judged.lost_percent is None
    assert judged.step_times.keys() == {"fast", "slow"}
    assert f"slow takes {slower:.1f} × as long as fast" in " ".join(judged.reasons)


def test_alike_backends_share_one_line() -> None:
    """Equally fast backends share one line, though their batches do not overlap."""
    pace = found([steady("a", FAST, 1.0), steady("b", SLOW, 1.0)])
    assert pace.own == {}
    assert pace.common is not None
    assert pace.common.base_s == pytest.approx(BASE_S, rel=0.02)
    assert pace.common.per_request_s == pytest.approx(SLOPE_S, rel=0.02)


def test_what_a_window_does_not_show_is_as_it_was() -> None:
    """Constant loads determine no line: earlier lines are kept, or there are none."""
    flat = [steady("fast", (8.0,) * 8, 1.0), steady("slow", (24.0,) * 8, 2.0)]
    earlier = found([steady("fast", FAST, 1.0), steady("slow", SLOW, 2.0)])
    assert group_pace(flat, 0.0, earlier) == earlier
    assert group_pace(flat, 0.0, GroupPace()) == GroupPace()
