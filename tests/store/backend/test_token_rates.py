"""Token rates: windows, gaps, restarts, load balancers, lanes that come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.snapshot import BackendView
from sparktop.report.json_snapshot import to_json

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import
MakeWorld = Callable[[], World]
MakePage = Callable[..., EngineSample]
MakeHistogram = Callable[..., Histogram]
SEVERAL_SERVERS = "several servers share this address: rates have gaps"


def tokens_of(view: BackendView) -> object:
    return view.generation_tps, view.generation_tps_1s


def test_a_rate_covers_two_intervals(world: World) -> None:
    """Over a fifth of a second or one interval there is no rate; from two on it says how much it covers."""
    for at, count in ((1000.8, 0), (1001.0, 25), (1002.0, 225)):
        view = world.tokens(at, count)
        assert (view.generation_tps, view.rate_window_s) == (None, None)
    view = world.tokens(1003.0, 425)
    assert view.generation_tps == pytest.approx(425 / 2.2)
    assert view.rate_window_s == pytest.approx(2.2)
    for second in range(4, 30):
        view = world.tokens(1000.0 + second, 200.0 * second - 175)
    assert view.rate_window_s == pytest.approx(10.0)


def test_at_4_hz_the_live_rate_spans_a_second(world: World) -> None:
    """A quarter of a second is too short for tokens that come in steps: the live rate still spans one."""
    world.store.set_interval(0.25)
    counts = [0, 0, 0, 40, 40, 40, 40, 80, 80]
    for step, count in enumerate(counts):
        view = world.tokens(1000 + step / 4, count)
    assert view.generation_tps_1s == pytest.approx(40)


def test_after_missed_samples_the_first_gives_no_live_rate(world: World) -> None:
    """Tokens of an outage are not smeared over it; the next pair of samples gives a rate again."""
    world.tokens(1000, 0)
    world.tokens(1001, 100)
    world.fail(1002)
    world.fail(1003)
    view = world.tokens(1004, 400)
    assert view.generation_tps_1s is None
    assert view.generation_tps == pytest.approx(100)
    assert world.tokens(1005, 450).generation_tps_1s == pytest.approx(50)


def test_slow_polling_widens_the_window(world: World) -> None:
    """With a poll every 15 s, the 10 s rate spans two intervals and the live one a single interval."""
    world.store.set_interval(15.0)
    world.tokens(1000, 0)
    assert tokens_of(world.tokens(1015, 1500)) == (None, pytest.approx(100))
    assert tokens_of(world.tokens(1030, 3000)) == (pytest.approx(100), pytest.approx(100))


def test_a_restart_in_a_gap_counts_from_the_new_start(world: World) -> None:
    """The new process has counted for 4 s since its start: that is the rate, and the window starts there."""
    for second in range(5):
        world.tokens(1000 + second, 1000.0 * second, start_time=world.wall(0))
    world.fail(1005)
    view = world.tokens(1015, 200, start_time=world.wall(1011))
    assert view.generation_tps == pytest.approx(50)
    assert (view.generation_tps_1s, view.restarts) == (None, 1)
    assert [event.message for event in world.snapshot().events] == ["restarted"]


@pytest.mark.parametrize("age_s", [-300.0, 0.0, 0.05, 11.5, 4000.0])
def test_a_start_outside_the_gap_is_not_trusted(
    world: World, make_page: MakePage, make_histogram: MakeHistogram, age_s: float
) -> None:
    """Clocks may differ: a start before the last sample, or in the future, counts nothing."""
    lanes = [LaneSample("0", generation_tokens=n, ttft=make_histogram([0.3] * n)) for n in (900, 500)]
    world.feed(make_page(1000, lanes[0], start_time=world.wall(-9999)))
    view = world.feed(make_page(1010, lanes[1], start_time=world.wall(1010 - age_s)))
    assert tokens_of(view) == (None, None)
    assert (view.ttft.count, view.restarts) == (None, 1)


def test_a_fall_to_little_counts_from_its_first_sample(world: World) -> None:
    """Without a start time, it is unknown since when it counts: no rate before its second sample."""
    for second in range(5):
        world.tokens(1000 + second, 10_000 + 100.0 * second)
    view = world.tokens(1005, 40)  # it began in the middle of the second
    assert tokens_of(view) == (None, None)
    assert tokens_of(world.tokens(1006, 120)) == (None, pytest.approx(80))
    assert tokens_of(world.tokens(1007, 200)) == (pytest.approx(80), pytest.approx(80))
    assert view.restarts == 1


@pytest.mark.parametrize("old_first", [True, False])
def test_a_load_balancer_is_told_once_and_never_spikes(world: World, *, old_first: bool) -> None:
    """Two servers in turn behind one address give no rates, and one event that says so.

    If the younger server answers second, it looks like a restart at first: there is one event more.
    """
    for second in range(40):
        old = (second % 2 == 0) == old_first
        view = world.tokens(
            1000 + second,
            (90_000 if old else 500) + 50.0 * second,
            start_time=world.wall(-5000 if old else -100),
        )
        assert tokens_of(view) == (None, None)
    assert view.restarts == int(old_first)
    told = [event.message for event in world.snapshot().events]
    assert told == (["restarted", SEVERAL_SERVERS] if old_first else [SEVERAL_SERVERS])


def test_a_load_balancer_without_start_times_never_spikes(world: World) -> None:
    """It is detected without start times, too, by jumps back to the counters of a server left behind."""
    for second in range(40):
        view = world.tokens(1000 + second, (90_000 if second % 2 == 0 else 20_000) + 50.0 * second)
        assert tokens_of(view) == (None, None)
    assert view.restarts == 1


def test_a_server_that_outgrows_its_predecessor_goes_on(world: World) -> None:
    """After a real restart, counters that pass the old ones one by one are not a change of server."""

    def lane(generated: float, prompt: float) -> LaneSample:
        return LaneSample("0", generation_tokens=generated, prompt_tokens=prompt)

    pages = [
        (1000.0, 900.0),
        (1100.0, 950.0),
        (50.0, 10.0),
        (900.0, 940.0),
        (1050.0, 1000.0),
        (1200.0, 1060.0),
    ]
    for second, counters in enumerate(pages):
        sample = EngineSample(1000.0 + second, "vllm", (lane(*counters),))
        view = world.feed(sample)
    assert view.generation_tps_1s == pytest.approx(150)
    assert view.restarts == 1


def test_lanes_that_come_and_go_do_not_spike(world: World, make_page: MakePage) -> None:
    """A new rank brings its counter's past along: only what it adds while watched counts."""

    def lane(name: str, second: int) -> LaneSample:
        return LaneSample(name, generation_tokens=1e6 + 10.0 * second)

    seen: list[float | None] = []
    for second in range(12):
        names = ["0", "1"] if 4 <= second < 8 else ["0"]
        sample = make_page(1000 + second, *(lane(name, second) for name in names))
        seen.append(world.feed(sample).generation_tps_1s)
    assert seen[1:] == [pytest.approx(rate) for rate in (10, 10, 10, 10, 20, 20, 20, 10, 10, 10, 10)]


def test_a_counter_that_appears_later_starts_at_nothing(world: World, make_page: MakePage) -> None:
    """A counter that the page lacked gives no rate at first sight and its growth afterwards."""
    world.feed(make_page(1000, LaneSample("0", generation_tokens=5.0)))
    view = world.feed(make_page(1001, LaneSample("0", generation_tokens=6.0, prompt_tokens=1e6)))
    assert view.prompt_tps is None
    view = world.feed(make_page(1003, LaneSample("0", generation_tokens=7.0, prompt_tokens=1e6 + 60)))
    assert view.prompt_tps == pytest.approx(30)


_numbers = st.one_of(
    st.none(), st.integers(0, 10**7).map(float), st.sampled_from([float("nan"), float("inf"), -1.0, 0.0])
)
_steps = st.lists(
    st.tuples(
        st.sampled_from([0.05, 0.25, 1.0, 1.0, 1.0, 4.0, 70.0]),
        st.one_of(
            st.none(), st.dictionaries(st.sampled_from("012"), st.tuples(_numbers, _numbers), min_size=1)
        ),
        st.one_of(st.none(), st.integers(0, 1200)),
    ),
    max_size=25,
)


@given(_steps)
@settings(max_examples=80, deadline=None)
def test_no_rate_is_ever_negative(make_world: MakeWorld, steps: list[Any]) -> None:
    """Whatever the pages say: lanes, values, start times and failures in any order."""
    world = make_world()
    at = 1000.0
    for wait, lanes, start in steps:
        at += wait
        if lanes is None:
            view = world.fail(at)
        else:
            values = [
                LaneSample(name, generation_tokens=lanes[name][0], preemptions=lanes[name][1])
                for name in sorted(lanes)
            ]
            start_time = None if start is None else world.wall(start)
            view = world.feed(EngineSample(at, "vllm", tuple(values), start_time=start_time))
        rates = (view.generation_tps, view.generation_tps_1s, view.preemptions_per_s)
        assert all(rate is None or 0 <= rate < float("inf") for rate in rates)


@given(
    steps=st.lists(st.tuples(st.sampled_from([1.0, 1.0, 1.0, 3.0, 20.0]), st.integers(0, 2), st.booleans())),
    restarts=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_no_rate_is_above_what_a_server_does(
    make_world: MakeWorld, steps: list[tuple[float, int, bool]], *, restarts: bool
) -> None:
    """Three servers of 100 tokens/s behind one address, any in turn, restarting or not: never above 100."""
    world = make_world()
    born = [-50_000.0, -300.0, -20.0]
    at = 1000.0
    for wait, which, again in steps:
        at += wait
        start = at - wait / 2
        if again and restarts and all(abs(start - other) > 1 for other in born):
            born[which] = start
        view = world.tokens(at, 100.0 * (at - born[which]), start_time=world.wall(born[which]))
        for rate in (view.generation_tps, view.generation_tps_1s):
            assert rate is None or rate <= 100.0 + 1e-6


@pytest.mark.parametrize("outage_s", [1, 8])
@pytest.mark.parametrize("life_s", [5, 12])
def test_a_crash_loop_without_start_times_is_restarts(world: World, life_s: int, outage_s: int) -> None:
    """Equal lives pass the same counters at the same age: each fall is a restart, and nothing else."""
    at = 1000.0
    for _ in range(5):
        for second in range(life_s):
            view = world.feed(
                EngineSample(
                    at := at + 1.0,
                    "vllm",
                    (LaneSample("0", generation_tokens=40.0 * second, prompt_tokens=100.0 * second),),
                )
            )
        for _ in range(outage_s - 1):
            world.fail(at := at + 1.0)
    assert view.restarts == 4
    said = [event.message for event in world.snapshot().events]
    assert SEVERAL_SERVERS not in said


def test_a_crash_loop_with_a_warm_up_request_is_restarts(world: World) -> None:
    """The same tokens at once after each start jump to those of the life before."""
    at = 1000.0
    for life in range(5):
        for tokens in (0.0, 0.0, 50.0, 50.0, 90.0 + life):
            view = world.tokens(at := at + 1.0, tokens)
    assert view.restarts == 4
    assert SEVERAL_SERVERS not in [event.message for event in world.snapshot().events]


@pytest.mark.parametrize(("every_s", "named"), [(1.0, 100.0), (5.0, None)])
def test_a_rate_of_one_second_is_one(world: World, every_s: float, named: float | None) -> None:
    """Between samples that are 5 s apart the newest rate covers 5 s, and JSON has it under that name."""
    world.store.set_interval(every_s)
    for poll in range(5):
        world.tokens(1000 + every_s * poll, 100.0 * every_s * poll)
    report: Any = to_json(world.snapshot())
    (server,) = report["backends"]
    assert server["generation_tps_live"] == pytest.approx(100)
    assert server["live_window_s"] == pytest.approx(every_s)
    assert server["generation_tps_1s"] == (named if named is None else pytest.approx(named))
