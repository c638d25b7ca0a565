"""Latencies and ratios over a minute."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from sparktop.model.engine import EngineSample, Histogram, LaneSample

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import
MakePage = Callable[..., EngineSample]
MakeHistogram = Callable[..., Histogram]


def test_only_the_last_minute_counts(
    world: World, make_page: MakePage, make_histogram: MakeHistogram
) -> None:
    """A slow first minute is forgotten once a minute of fast requests followed."""
    seconds: list[float] = []
    for second in range(130):
        seconds += [0.9 if second < 60 else 0.15]
        view = world.feed(make_page(1000 + second, LaneSample("0", ttft=make_histogram(seconds))))
    assert view.ttft.count == 60
    assert view.ttft.mean_s == pytest.approx(0.15)
    assert view.ttft.p50 is not None
    assert view.ttft.p50.seconds == pytest.approx(0.15)
    assert view.ttft.window_s == pytest.approx(60, abs=1)


def test_lanes_of_one_kind_make_one_latency(
    world: World,
    make_page: MakePage,
    make_histogram: MakeHistogram,
) -> None:
    """Two ranks with equal bounds: the quantile of all their observations, not a mean of quantiles."""
    for count in (0, 6):
        lanes = [
            LaneSample("0", e2e=make_histogram([0.15] * count)),
            LaneSample("1", e2e=make_histogram([0.7] * 3 * count)),
        ]
        view = world.feed(make_page(1000 + count, *lanes))
    assert view.e2e.count == 24
    assert view.e2e.mean_s == pytest.approx((0.15 * 6 + 0.7 * 18) / 24)
    assert view.e2e.p50.seconds == pytest.approx(0.5 + 0.5 * (12 - 6) / 18)


def test_lanes_with_other_bounds_give_a_note(
    world: World,
    make_page: MakePage,
    make_histogram: MakeHistogram,
) -> None:
    """Where no bound is shared there is a mean, a count and a reason, and no invented quantile."""
    for count in (0, 6):
        lanes = [
            LaneSample("0", queue=make_histogram([0.15] * count, (0.2, math.inf))),
            LaneSample("1", queue=make_histogram([0.7] * count, (0.3, math.inf))),
        ]
        view = world.feed(make_page(1000 + count, *lanes))
    assert (view.queue.count, view.queue.p50) == (12, None)
    assert "lanes" in view.queue.note


def test_a_restart_starts_the_window_anew(
    world: World,
    make_page: MakePage,
    make_histogram: MakeHistogram,
) -> None:
    """Only what the new process observed since its start is in the window after a restart."""
    for second in range(10):
        lane = LaneSample("0", ttft=make_histogram([0.9] * 5 * second))
        world.feed(make_page(1000 + second, lane, start_time=world.wall(0)))
    lane = LaneSample("0", ttft=make_histogram([0.15] * 7))
    view = world.feed(make_page(1030, lane, start_time=world.wall(1020)))
    assert (view.ttft.count, view.ttft.window_s) == (7, pytest.approx(10))
    assert view.ttft.mean_s == pytest.approx(0.15)


def test_a_prefix_cache_ratio_is_of_the_last_minute(world: World, make_page: MakePage) -> None:
    """The ratio is hits / queries of the window; without queries there is none, rather than 0 %."""
    hits, queries = 0.0, 0.0
    for second in range(70):
        hits, queries = hits + (10 if second > 5 else 0), queries + 20
        lane = LaneSample("0", prefix_cache_hits=hits, prefix_cache_queries=queries)
        view = world.feed(make_page(1000 + second, lane))
    assert view.prefix_cache_hit_percent == pytest.approx(50)
    for second in range(70, 140):
        lane = LaneSample("0", prefix_cache_hits=hits, prefix_cache_queries=queries)
        view = world.feed(make_page(1000 + second, lane))
    assert view.prefix_cache_hit_percent is None


def test_an_old_version_s_gauge_stands_in_for_missing_counters(world: World, make_page: MakePage) -> None:
    """If a version has no counters, the ratio is the one that it reports."""
    lane = LaneSample("0", prefix_cache_hit_percent=40.0, spec_accept_percent=70.0)
    view = world.feed(make_page(1000, lane))
    assert (view.prefix_cache_hit_percent, view.spec_decode_accept_percent) == (40.0, 70.0)
