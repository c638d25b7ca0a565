"""How often a group is polled: only while it is judged and loaded, and within its budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.watch.scheduler import (
    AGAIN_AFTER_S,
    BUDGET_SHARE,
    CPU_WINDOW_S,
    ENOUGH_CPU,
    LOADED_FOR_S,
    MOST_QUICK,
    SHORT_OF_CPU,
    LoadCadence,
    PollGroup,
    affordable_hz,
)

PAIR = ("a", "b")


class Group:
    """Two servers that answer once a second, and the pace that they get."""

    def __init__(self) -> None:
        self.cadence = LoadCadence()
        self.at = 0.0

    def pass_time(
        self, seconds: float, *, load: float = 8.0, answer_ms: float = 2.0, judged: bool = True
    ) -> list[dict[str, int]]:
        """Deliver samples for `seconds` seconds; return the pace after each second."""
        paces = []
        for _ in range(round(seconds)):
            self.at += 1.0
            for name in PAIR:
                self.answer(name, load, answer_ms)
            paces.append(self.cadence.decide([PAIR] if judged else [], self.at, 1.0))
        return paces

    def answer(self, name: str, load: float | None, answer_ms: float) -> None:
        """Deliver a sample."""
        lane = LaneSample("0", running=load, waiting=0.0)
        self.cadence.note(name, EngineSample(self.at, "vllm", (lane,), answer_ms=answer_ms))


def test_a_loaded_group_is_looked_at_four_times_a_second() -> None:
    """After some seconds of load both servers are quickened, and no sooner."""
    paces = Group().pass_time(LOADED_FOR_S + 2)
    assert paces[:3] == [{}, {}, {}]
    assert paces[-1] == {"a": 4, "b": 4}


@pytest.mark.parametrize(
    ("answer_ms", "hz"), [(1.0, 4.0), (4.0, 4.0), (4.1, 2.0), (20.0, 2.0), (20.1, 0.0), (51.0, 0.0)]
)
def test_a_rate_must_be_affordable(answer_ms: float, hz: float) -> None:
    """4 Hz up to 4 ms an answer, 1.6 % of the server's time; 2 Hz up to 20 ms, 4 %; else as asked for."""
    assert affordable_hz(answer_ms) == hz
    paces = Group().pass_time(10, answer_ms=answer_ms)
    assert paces[-1] == ({"a": round(hz), "b": round(hz)} if hz else {})


def test_slower_answers_slow_it_down_and_it_returns_later() -> None:
    """Above 2 % of a server's time it slows at once, and half a minute passes before it tries again."""
    group = Group()
    group.pass_time(10)
    paces = group.pass_time(12, answer_ms=7.0)
    assert paces[-1] == {"a": 2, "b": 2}
    slowed_at = next(index for index, pace in enumerate(paces) if pace["a"] == 2)
    calm = group.pass_time(AGAIN_AFTER_S + 2, answer_ms=2.0)
    again = len(paces) - slowed_at + next(index for index, pace in enumerate(calm) if pace["a"] == 4)
    assert again >= AGAIN_AFTER_S
    assert calm[-1] == {"a": 4, "b": 4}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 40.0), st.floats(0.1, 80.0)), min_size=1, max_size=60),
    st.sampled_from([0.25, 0.5, 1.0, 1.5, 2.0, 5.0, 60.0]),
)
def test_no_pace_is_ever_beyond_four_a_second_or_its_budget_for_long(
    seconds: list[tuple[float, float]], interval_s: float
) -> None:
    """Whatever loads and answers come: 4 Hz at most, and 13 slow answers end a pace that they forbid."""
    group = Group()
    for load, answer_ms in seconds:
        group.pass_time(1, load=load, answer_ms=answer_ms)
        for looks in group.cadence.decide([PAIR], group.at, interval_s).values():
            assert 1 < looks <= 4 * interval_s
    for _ in range(13):
        group.pass_time(1, load=20.0, answer_ms=seconds[-1][1])
    for looks in group.cadence.decide([PAIR], group.at, interval_s).values():
        assert looks / interval_s * seconds[-1][1] / 1000 <= BUDGET_SHARE + 1e-9


def test_a_fleet_is_not_polled_four_times_a_second_as_a_whole() -> None:
    """The first groups are; the others keep the interval, whatever their load."""
    group, groups = Group(), [tuple(f"{number}-{part}" for part in range(8)) for number in range(40)]
    for _ in range(round(LOADED_FOR_S) + 2):
        group.at += 1.0
        for name in (one for names in groups for one in names):
            group.answer(name, 8.0, 2.0)
        paces = group.cadence.decide(groups, group.at, 1.0)
    assert paces == {name: 4 for names in groups[: MOST_QUICK // 8] for name in names}


class Polled:
    """A poll group that records what it is set to."""

    def __init__(self) -> None:
        self.parts: dict[str, int] = {}

    def quicken(self, parts: Mapping[str, int]) -> None:
        """Store how often each server is polled in an interval."""
        self.parts = dict(parts)

    def spread(self, _: Mapping[str, float]) -> None:
        """Do nothing: two servers are polled together."""


def test_a_program_short_of_cpu_polls_no_faster() -> None:
    """From three quarters of a core on, groups are polled once an interval, for a minute at least."""
    used_s, paces, polled = 0.0, [], Polled()
    group = Group()
    group.cadence = LoadCadence(lambda: used_s)
    fast, slow, less = SHORT_OF_CPU + 0.05, ENOUGH_CPU + 0.1, ENOUGH_CPU - 0.1
    for share, windows in ((0.1, 2), (fast, 2), (slow, 7), (less, 2), (fast, 2), (less, 7), (less, 7)):
        for _ in range(windows * int(CPU_WINDOW_S)):
            used_s += share
            group.pass_time(1)
            group.cadence.pace(cast("list[PollGroup]", [polled]), [PAIR], group.at, 1.0)
        paces.append(polled.parts)
    quick = {"a": 4, "b": 4}
    assert paces == [quick, {}, {}, quick, {}, {}, quick]
