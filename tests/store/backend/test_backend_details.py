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
from sparktop.model.series import HistoryTable
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


def test_the_share_of_preprocessed_media_counts_items(world: World, make_page: MakePage) -> None:
    """Of 8 images and videos looked up within the window 6 were found: 75 %."""
    lane = LaneSample("0", media_cache_hits=1.0, media_cache_queries=20.0)
    world.feed(make_page(1000, lane))
    view = world.feed(make_page(1004, replace(lane, media_cache_hits=7.0, media_cache_queries=28.0)))
    assert view.counter_figures["media_cache_hit_percent"] == 75.0


def test_prompt_tokens_from_the_cache_have_a_rate_of_their_own(world: World, make_page: MakePage) -> None:
    """Computed and cached prompt tokens have separate rates if the server separates them; none is guessed."""
    lane = LaneSample("0", prompt_tokens=0.0, prompt_tokens_computed=0.0, prompt_tokens_cached=0.0)
    world.feed(make_page(1000.0, lane))
    later = replace(lane, prompt_tokens=100.0, prompt_tokens_computed=70.0, prompt_tokens_cached=30.0)
    view = world.feed(make_page(1002.0, later))
    assert (view.prompt_tps, view.prompt_cached_tps) == (35.0, 15.0)
    assert view.history.prompt_cached_tps.last == 15.0


def test_where_cached_tokens_are_in_the_rate_they_are_not_shown_again(
    world: World, make_page: MakePage
) -> None:
    """A server that counts cached tokens yet no computed ones has one rate that holds both."""
    world.feed(make_page(1000.0, LaneSample("0", prompt_tokens=0.0, prompt_tokens_cached=0.0)))
    view = world.feed(make_page(1002.0, LaneSample("0", prompt_tokens=100.0, prompt_tokens_cached=30.0)))
    assert (view.prompt_tps, view.prompt_cached_tps) == (50.0, None)


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


def test_an_accepted_draft_has_a_mean_length(world: World, make_page: MakePage) -> None:
    """The mean of accepted tokens per draft is shown beside the share of draft tokens that were accepted."""
    lane = LaneSample("0", spec_drafts=10.0, spec_draft_tokens=30.0, spec_accepted_tokens=12.0)
    world.feed(make_page(1000.0, lane))
    later = LaneSample("0", spec_drafts=20.0, spec_draft_tokens=60.0, spec_accepted_tokens=27.0)
    view = world.feed(make_page(1005.0, later))
    assert (view.spec_accepted_per_draft, view.spec_drafts_per_s) == (1.5, 2.0)
    assert view.spec_decode_accept_percent == 50.0


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


def test_an_unchanged_window_keeps_its_quantiles(
    world: World, make_page: MakePage, make_histogram: MakeHistogram
) -> None:
    """Between two requests the figures stay while the time they span goes on growing."""
    lane = LaneSample("0", e2e=make_histogram([0.3] * 9))
    world.feed(make_page(1000.0, LaneSample("0", e2e=make_histogram([]))))
    first = world.feed(make_page(1001.0, lane)).e2e
    second = world.feed(make_page(1002.0, lane)).e2e
    assert replace(second, window_s=first.window_s) == first
    assert (first.window_s, second.window_s) == (1.0, 2.0)


def test_uptime_is_from_the_server_s_start_to_now(world: World, make_page: MakePage) -> None:
    """The time since the process's start, by our wall clock, grows with each snapshot; else it is unknown."""
    view = world.feed(make_page(1000.0, LaneSample("0"), start_time=world.wall(940.0)))
    assert view.uptime_s == pytest.approx(60.0)
    world.at = 1030.0
    assert world.view().uptime_s == pytest.approx(90.0)
    assert world.feed(make_page(1031.0, LaneSample("0"))).uptime_s is None


def test_a_restart_is_counted(world: World) -> None:
    """Each newer start time is one restart more."""
    world.tokens(1000.0, 500.0, start_time=world.wall(900.0))
    view = world.tokens(1010.0, 10.0, start_time=world.wall(1005.0))
    assert view.restarts == 1
    assert view.uptime_s == pytest.approx(5.0)


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


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 40),
            st.dictionaries(st.sampled_from("ab"), st.one_of(st.none(), st.floats(-5, 5))),
        ),
        max_size=40,
    )
)
def test_a_table_holds_what_single_histories_would(points: list[tuple[int, dict[str, float | None]]]) -> None:
    """Every column has a point for every accepted time, in order, a gap where it was not given."""
    table = HistoryTable("ab", capacity=5)
    kept: list[tuple[int, dict[str, float | None]]] = []
    for at, values in points:
        before = {name: list(series) for name, series in table.series().items()}
        held = table.series()
        table.append(at, values)
        assert {name: list(series) for name, series in held.items()} == before
        if not kept or at > kept[-1][0]:
            kept.append((at, values))
    for name, series in table.series().items():
        assert list(series) == [(at, values.get(name)) for at, values in kept[-5:]]


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
