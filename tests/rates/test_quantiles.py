"""Quantiles and means from buckets."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.engine import Histogram
from sparktop.model.snapshot import Latency, Quantile
from sparktop.rates import (
    difference,
    histogram_latency,
    histogram_quantile,
    merge,
)

MakeHistogram = Callable[..., Histogram]

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
@settings(max_examples=150)
def test_a_quantile_is_that_of_prometheus(
    make_histogram: MakeHistogram, bounds: tuple[float, ...], seconds: list[float], share: float
) -> None:
    """Inside the buckets and in the last one ours is histogram_quantile; in the first it is marked."""
    histogram = make_histogram(seconds, bounds)
    expected = reference_quantile(share, list(zip(histogram.bounds, histogram.cumulative, strict=True)))
    ours = histogram_quantile(histogram, share)
    if math.isnan(expected):
        assert ours is None
        return
    assert ours is not None
    if ours.below:
        assert ours.seconds == bounds[0] >= expected
    else:
        assert ours.seconds == pytest.approx(expected, rel=1e-9)
    assert ours.above == (histogram.cumulative[-2] < share * histogram.count)


@given(st.lists(_observations, min_size=1, max_size=4), _bounds)
@settings(max_examples=80)
def test_merged_lanes_are_the_observations_together(
    make_histogram: MakeHistogram, lanes: list[list[float]], bounds: tuple[float, ...]
) -> None:
    """Lanes with the same bounds merge to what all their observations in one histogram would be."""
    merged = merge([make_histogram(lane, bounds) for lane in lanes])
    together = make_histogram([seconds for lane in lanes for seconds in lane], bounds)
    assert merged is not None
    assert (merged.bounds, merged.cumulative) == (together.bounds, together.cumulative)
    assert merged.sum == pytest.approx(together.sum)


def test_lanes_merge_over_the_bounds_all_have(make_histogram: MakeHistogram) -> None:
    """A bound that one lane lacks is left out of the merged histogram: its count is unknown there."""
    merged = merge(
        [
            make_histogram([0.3, 0.7], (0.1, 0.5, 1.0, math.inf)),
            make_histogram([0.2, 3.0], (0.25, 0.5, 2.0, math.inf)),
        ]
    )
    assert merged is not None
    assert merged.bounds == (0.5, math.inf)
    assert merged.cumulative == (2, 4)


def test_few_observations_give_a_mean_and_no_quantile(make_histogram: MakeHistogram) -> None:
    """Four observations give no quantile, five do."""
    four = histogram_latency(make_histogram([0.3] * 4), 60.0)
    five = histogram_latency(make_histogram([0.3] * 5), 60.0)
    assert (four.p50, four.count) == (None, 4)
    assert four.mean_s == pytest.approx(0.3)
    assert five.p50 is not None
    assert (four.note, five.note) == (None, None)


def test_the_edges_say_that_they_are_edges(make_histogram: MakeHistogram) -> None:
    """In the first bucket all that is known is "less", beyond the last finite bound "more"."""
    low = histogram_latency(make_histogram([0.01] * 9), 60.0)
    high = histogram_latency(make_histogram([7.0] * 9), 60.0)
    assert low.p50 == Quantile(0.1, below=True)
    assert high.p50 == Quantile(1.0, above=True)


def test_a_bucket_that_fell_has_no_difference() -> None:
    """Buckets that contradict each other are not subtracted."""
    older = Histogram((0.1, math.inf), (5, 6), 1.0)
    newer = Histogram((0.1, math.inf), (4, 9), 2.0)
    assert difference(newer, older) is None


@pytest.mark.parametrize(
    ("edges", "counts", "bucket"),
    [
        ((1920.0, 7680.0), (0, 100), (1920.0, 7680.0)),
        ((0.25, 0.5), (0, 100), (0.25, 0.5)),
        ((0.5, 0.75), (0, 100), None),
        ((2.5, 5.0, 7.5), (0, 0, 100), None),
        ((0.0, 1.0), (0, 100), (0.0, 1.0)),
    ],
)
def test_a_quantile_in_a_wide_bucket_has_its_edges(
    edges: tuple[float, ...], counts: tuple[int, ...], bucket: tuple[float, float] | None
) -> None:
    """Where the upper edge is twice the lower one or more, the value alone would claim too much."""
    histogram = Histogram((*edges, math.inf), (*map(float, counts), float(counts[-1])), 0.0)
    quantile = histogram_quantile(histogram, 0.9)
    assert quantile is not None
    assert quantile.bucket_s == bucket


def test_a_quantile_in_a_wide_bucket_is_slow_only_if_all_of_it_is() -> None:
    """A limit inside the bucket may or may not be exceeded: nothing is coloured for it."""
    quantile = Quantile(2.1, bucket_s=(1.0, 2.5))
    assert not Latency(slow_s=2.0).slow(quantile)
    assert Latency(slow_s=1.0).slow(quantile)
