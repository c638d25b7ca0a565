"""Quantiles, means and rates over windows and lanes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.model.engine import (
    EngineSample,
    Histogram,
    LaneSample,
    kv_fullest_percent,
    kv_used_percent,
    lane_sum,
)
from sparktop.model.snapshot import BackendState
from sparktop.model.targets import BackendTarget, StateThresholds
from sparktop.rates import (
    EDGE_SLACK_S,
    Window,
    difference,
    histogram_latency,
    histogram_quantile,
    make_tally,
    merge,
)
from sparktop.store.backend import BackendTrack
from sparktop.sweep.run.server_side import server_point
from tests.known import known
from tests.store.conftest import observe

_bounds = st.lists(st.floats(0.001, 1000), min_size=1, max_size=12, unique=True).map(
    lambda finite: (*sorted(finite), math.inf)
)
_observations = st.lists(st.floats(0.0001, 2000), max_size=40)


def reference_quantile(share: float, buckets: list[tuple[float, float]]) -> float:
    """Port the search and interpolation of Prometheus' bucketQuantile (promql/quantile.go)."""
    if len(buckets) < 2 or buckets[-1][1] == 0:
        return math.nan
    rank = share * buckets[-1][1]
    found = len(buckets) - 1
    for index, (_, count) in enumerate(buckets[:-1]):
        if count >= rank:
            found = index
            break
    if found == len(buckets) - 1:
        return buckets[-2][0]
    start, end, count = 0.0, buckets[found][0], buckets[found][1]
    if found > 0:
        start = buckets[found - 1][0]
        count -= buckets[found - 1][1]
        rank -= buckets[found - 1][1]
    return start + (end - start) * (rank / count)


@given(_bounds, _observations, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_a_quantile_is_that_of_prometheus(
    bounds: tuple[float, ...], seconds: list[float], share: float
) -> None:
    """Inside the buckets and in the last one ours is histogram_quantile; in the first it is marked."""
    histogram = observe(seconds, bounds)
    expected = reference_quantile(share, list(zip(histogram.bounds, histogram.cumulative, strict=True)))
    found = histogram_quantile(histogram, share)
    if math.isnan(expected):
        assert found is None
        return
    ours = known(found)
    if ours.below:
        assert ours.seconds == bounds[0] >= expected
    else:
        assert ours.seconds == pytest.approx(expected, rel=1e-9)
    assert ours.above == (histogram.cumulative[-2] < share * histogram.count)


@given(st.lists(_observations, min_size=1, max_size=4), _bounds)
def test_merged_lanes_are_the_observations_together(
    lanes: list[list[float]], bounds: tuple[float, ...]
) -> None:
    """Lanes with the same bounds merge to what all their observations in one histogram would be."""
    merged = known(merge([observe(lane, bounds) for lane in lanes]))
    together = observe([seconds for lane in lanes for seconds in lane], bounds)
    assert (merged.bounds, merged.cumulative) == (together.bounds, together.cumulative)
    assert merged.sum == pytest.approx(together.sum)


def test_lanes_merge_over_the_bounds_all_have() -> None:
    """A bound that one lane lacks is left out of the merged histogram: its count is unknown there."""
    one, other = (
        observe([0.3, 0.7], (0.1, 0.5, 1.0, math.inf)),
        observe([0.2, 3.0], (0.25, 0.5, 2.0, math.inf)),
    )
    merged = known(merge([one, other]))
    assert merged.bounds == (0.5, math.inf)
    assert merged.cumulative == (2, 4)


def test_few_observations_give_a_mean_and_no_quantile() -> None:
    """Four observations give no quantile, five do."""
    four = histogram_latency(observe([0.3] * 4), 60.0)
    five = histogram_latency(observe([0.3] * 5), 60.0)
    assert (four.p50, four.count) == (None, 4)
    assert four.mean_s == pytest.approx(0.3)
    assert five.p50 is not None
    assert (four.note, five.note) == (None, None)


def test_a_bucket_that_fell_has_no_difference() -> None:
    """Buckets that contradict each other are not subtracted."""
    older = Histogram((0.1, math.inf), (5, 6), 1.0)
    newer = Histogram((0.1, math.inf), (4, 9), 2.0)
    assert difference(newer, older) is None


@pytest.mark.parametrize(
    ("edges", "counts", "bucket"),
    [
        ((1920.0, 7680.0), (0, 100), (1920.0, 7680.0)),
        ((0.5, 0.75), (0, 100), None),
        ((2.5, 5.0, 7.5), (0, 0, 100), None),
    ],
)
def test_a_quantile_in_a_wide_bucket_has_its_edges(
    edges: tuple[float, ...], counts: tuple[int, ...], bucket: tuple[float, float] | None
) -> None:
    """Where the upper edge is twice the lower one or more, the value alone would claim too much."""
    histogram = Histogram((*edges, math.inf), (*map(float, counts), float(counts[-1])), 0.0)
    quantile = known(histogram_quantile(histogram, 0.9))
    assert quantile.bucket_s == bucket


# Windows do not flip between nine and ten seconds because of jitter, and reach over no gap.


@pytest.mark.parametrize("early_s", [0.0, 0.003, 0.2])
def test_a_sample_just_before_the_window_opens_it(early_s: float) -> None:
    """With a first sample some milliseconds older than 10 s, the rate still spans all ten steps."""
    window = Window()
    for second in range(11):
        at = second - (early_s if second == 0 else 0.0)
        window.append(make_tally(at, {"generation_tokens": 100.0 * second}, {}), 10.0)
    assert window.rate("generation_tokens", 10.0) == pytest.approx(1000.0 / (10.0 + early_s))


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
        tally = make_tally(at, {name: totals[name] for name in counted}, {})
        window.append(tally, short_s)
        told.append(tally)
    for name in "ab":
        expected = None
        for oldest in reversed(told):
            if (before := oldest.counter(name)) is None or oldest.at < at - window_s - EDGE_SLACK_S:
                break
            if oldest.at < at:
                expected = (totals[name] - before, at - oldest.at)
        assert window.growth(name, window_s) == expected


# Figures over the lanes of a data-parallel server: the board, its balance and a level of a sweep agree.

FULL = LaneSample("0", 8.0, 3.0, kv_cache_percent=99.0, kv_capacity_tokens=100.0, generation_tokens=50.0)
EMPTY = replace(FULL, lane="1", running=1.0, waiting=0.0, kv_cache_percent=9.0, kv_capacity_tokens=300.0)
SILENT = LaneSample("2", generation_tokens=5.0)


def shown(*lanes: LaneSample) -> tuple[dict[str, float | None], BackendTrack]:
    """Return what the board shows of a page, and its track; check that a level's sample is the same."""
    track = BackendTrack(BackendTarget("a", "http://127.0.0.1:8000"), StateThresholds())
    page = EngineSample(10.0, "vllm", lanes)
    track.accept_sample(page, wall_at=1000.0, interval_s=1.0, took_ms=1.0)
    point, view = server_point(page), track.view
    assert (view.running, view.waiting) == (point.running, point.waiting)
    assert view.kv_cache_percent == point.kv_cache_percent
    assert view.kv_fullest_percent == point.kv_fullest_percent
    assert view.generation_tokens == point.counters.generation_tokens
    figures = {"running": view.running, "waiting": view.waiting, "kv": view.kv_cache_percent}
    return figures, track


def test_sums_are_of_all_lanes() -> None:
    """Requests add up; caches weigh by their room."""
    assert shown(FULL, EMPTY)[0] == {"running": 9.0, "waiting": 3.0, "kv": pytest.approx(31.5)}


def test_a_silent_lane_leaves_the_sum_unknown() -> None:
    """The requests of two lanes of three are not the server's, on the board as in a level."""
    figures, track = shown(FULL, EMPTY, SILENT)
    assert set(figures.values()) == {None}
    assert track.view.generation_tokens == 105.0
    assert track.load.history().running.last is None


def test_a_full_lane_is_full_whatever_the_others_have() -> None:
    """Its requests wait: the state is KV-full, although the caches of all lanes are only a third full."""
    track = shown(FULL, EMPTY)[1]
    assert track.view.state is BackendState.KV_FULL
    assert track.view.kv_fullest_percent == 99.0
    assert shown(EMPTY)[1].view.state is not BackendState.KV_FULL


def test_nothing_reported_is_nothing_known() -> None:
    """No lane, or none that reports."""
    assert (lane_sum((), lambda lane: lane.running), kv_used_percent(()), kv_fullest_percent(())) == (
        None,
    ) * 3
    assert (kv_used_percent((SILENT,)), kv_fullest_percent((SILENT,))) == (None, None)
    assert kv_used_percent((replace(FULL, kv_capacity_tokens=None), EMPTY)) == 54.0
