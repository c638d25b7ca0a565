"""The figures that only the detail of a backend shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.node import GpuReading, MemoryReading, NodeSample
from sparktop.model.targets import BackendTarget, ModelFacts, NodeTarget, Watch
from sparktop.rates import EDGE_SLACK_S, Tally, Window
from sparktop.store import SourceKey

World = Any
MakePage = Callable[..., EngineSample]
MakeHistogram = Callable[..., Histogram]
MakeWorld = Callable[..., World]


def test_the_share_of_an_outer_cache_is_known_once_something_was_looked_up(
    world: World, make_page: MakePage
) -> None:
    """Of 400 tokens looked up in the KV connector's cache 100 were found: 25 %; unknown before, not 0."""
    lane = LaneSample("0", external_cache_hits=50.0, external_cache_queries=1000.0)
    world.feed(make_page(1000, lane))
    view = world.feed(make_page(1002, lane))
    assert view.counter_figures["external_cache_hit_percent"] is None
    view = world.feed(
        make_page(1004, replace(lane, external_cache_hits=150.0, external_cache_queries=1400.0))
    )
    assert view.counter_figures["external_cache_hit_percent"] == 25.0


def test_prompt_tokens_from_the_cache_have_a_rate_of_their_own(world: World, make_page: MakePage) -> None:
    """Computed and cached prompt tokens have separate rates if the server separates them; none is guessed."""
    lane = LaneSample("0", prompt_tokens=0.0, prompt_tokens_computed=0.0, prompt_tokens_cached=0.0)
    world.feed(make_page(1000.0, lane))
    later = replace(lane, prompt_tokens=100.0, prompt_tokens_computed=70.0, prompt_tokens_cached=30.0)
    view = world.feed(make_page(1002.0, later))
    assert (view.prompt_tps, view.prompt_cached_tps) == (35.0, 15.0)
    assert view.history.prompt_cached_tps.last == 15.0


def test_a_batch_is_the_mean_of_the_window_s_steps(
    world: World, make_page: MakePage, make_histogram: MakeHistogram
) -> None:
    """Tokens per step are sum over count of the last minute; steps per second those of 10 s."""
    bounds = (8.0, 16.0, math.inf)
    before, after = make_histogram([100.0] * 7, bounds), make_histogram([100.0] * 7 + [4.0, 12.0], bounds)
    world.feed(make_page(1000.0, LaneSample("0", step_tokens=before)))
    view = world.feed(make_page(1004.0, LaneSample("0", step_tokens=after)))
    assert (view.tokens_per_step, view.steps_per_s) == (8.0, 0.5)
    idle = world.feed(make_page(1070.0, LaneSample("0", step_tokens=after)))
    assert idle.tokens_per_step is None


@pytest.mark.parametrize("name", ["tpot", "prefill", "decode"])
def test_request_phases_have_latencies(
    world: World, make_page: MakePage, make_histogram: MakeHistogram, name: str
) -> None:
    """TPOT, prefill and decode have mean and quantiles as the other latencies have."""
    before: dict[str, Any] = {name: make_histogram([])}
    after: dict[str, Any] = {name: make_histogram([0.15] * 20)}
    world.feed(make_page(1000.0, LaneSample("0", **before)))
    view = world.feed(make_page(1010.0, LaneSample("0", **after)))
    latency = getattr(view, name)
    assert latency.mean_s == pytest.approx(0.15)
    assert 0.1 < latency.p50.seconds <= 0.2
    assert (latency.count, latency.window_s) == (20, 10.0)


def test_quantiles_have_a_history_with_gaps(
    world: World, make_page: MakePage, make_histogram: MakeHistogram
) -> None:
    """Each good sample adds the window's p50 and p95; a failure and a window without traffic are gaps."""
    world.feed(make_page(1000.0, LaneSample("0", itl=make_histogram([]))))
    view = world.feed(make_page(1001.0, LaneSample("0", itl=make_histogram([0.15] * 20))))
    assert view.history.itl_p95_s.last == view.itl.p95.seconds
    world.fail(1002.0)
    view = world.feed(make_page(1070.0, LaneSample("0", itl=make_histogram([0.15] * 20))))
    values = [value for _, value in view.history.itl_p50_s]
    assert values[0] is None
    assert values[1] is not None
    assert values[2:] == [None, None]
    assert [at for at, _ in view.history.itl_p50_s] == [at for at, _ in view.history.generation_tps]


def test_uptime_is_from_the_server_s_start_to_now(world: World, make_page: MakePage) -> None:
    """The time since the process's start, by our wall clock, grows with each snapshot; else it is unknown."""
    view = world.feed(make_page(1000.0, LaneSample("0"), start_time=world.wall(940.0)))
    assert view.uptime_s == pytest.approx(60.0)
    world.at = 1030.0
    assert world.view().uptime_s == pytest.approx(90.0)
    assert world.feed(make_page(1031.0, LaneSample("0"))).uptime_s is None


def test_the_roofline_needs_a_gb10_and_the_bytes_of_a_token(
    make_world: MakeWorld, make_page: MakePage
) -> None:
    """The share of the bandwidth appears with a GB10's first sample, the limit with the model's fact."""
    watch = Watch(
        nodes=(NodeTarget("n"),),
        backends=(BackendTarget("b", "http://b:8000", nodes=("n",)),),
        models={"m": ModelFacts(bytes_per_token_gb=2.73)},
    )
    world = make_world(watch)
    world.feed(make_page(1000.0, LaneSample("0", read_bytes_per_gpu=1e9)))
    view = world.feed(make_page(1002.0, LaneSample("0", read_bytes_per_gpu=274e9)))
    assert view.estimated_read_gb_per_s == pytest.approx(136.5)
    assert (view.roofline_percent, view.roofline_tps) == (None, None)
    gpu = GpuReading(0, "NVIDIA GB10")
    world.store.accept(
        SourceKey.node("n"), NodeSample(1002.0, memory=MemoryReading(unified=True), gpus=(gpu,))
    )
    view = world.view()
    assert view.roofline_percent == pytest.approx(50.0)
    assert view.roofline_tps == pytest.approx(100.0)


def test_a_node_remembers_heat_clock_and_headroom(make_world: MakeWorld) -> None:
    """Drawn are the hottest GPU, the mean clock and the headroom; unknown ones are gaps."""
    world = make_world(Watch(nodes=(NodeTarget("n"),)))
    gpus = (
        GpuReading(0, temperature_c=60.0, sm_clock_mhz=2000),
        GpuReading(1, temperature_c=70.0, sm_clock_mhz=1000),
    )
    memory = MemoryReading(headroom_bytes=3 * 2**30)
    world.store.accept(SourceKey.node("n"), NodeSample(1000.0, memory=memory, gpus=gpus))
    world.store.accept(SourceKey.node("n"), NodeSample(1002.0))
    history = world.snapshot().nodes[0].history
    assert [value for _, value in history.temperature_c] == [70.0, None]
    assert [value for _, value in history.sm_clock_mhz] == [1500.0, None]
    assert [value for _, value in history.headroom_gib] == [3.0, None]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(1.0, 15.0), st.dictionaries(st.sampled_from("ab"), st.integers(0, 9))),
        max_size=50,
    ),
    st.sampled_from([10.0, 30.0, 60.0]),
    st.sampled_from([10.0, 60.0]),
)
def test_a_window_reaches_back_over_unbroken_tallies_only(
    steps: list[tuple[float, dict[str, int]]], window_s: float, short_s: float
) -> None:
    """A growth is counted from the oldest kept tally in the window since which the counter was reported."""
    window = Window()
    at, totals, told = 0.0, {"a": 0.0, "b": 0.0}, []
    for gap_s, counted in steps:
        at += gap_s
        for name, more in counted.items():
            totals[name] += more
        tally = Tally(at, {name: totals[name] for name in counted}, {})
        window.append(tally, short_s)
        told.append(tally)
    for name in "ab":
        expected = None
        for oldest in reversed(told):
            if name not in oldest.counters or oldest.at < at - window_s - EDGE_SLACK_S:
                break
            if oldest.at < at:
                expected = (totals[name] - oldest.counters[name], at - oldest.at)
        assert window.counted(name, window_s) == expected
