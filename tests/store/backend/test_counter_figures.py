"""Figures that only some servers report, from two pages of one server to the view."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.engines import read_page
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.figures import COUNTER_FIGURES
from sparktop.report.tables import also_reported, also_reported_words

World = Any
PAGE = Path(__file__).parents[2] / "data" / "vllm-extras" / "spec-lora-offload.prom"
EXPECTED = {
    "cached_elsewhere_percent": pytest.approx(1.71),
    "refused_requests": 14.0,
    "corrupted_requests": 2.0,
    "http_4xx": 24.0,
    "http_5xx": 6.0,
    "http_error_percent": pytest.approx(100 * 15 / 5142),
    "waiting_deferred": 2.0,
    "kv_fetch_waiting": 4.0,
    "kv_fetching": 2.0,
    "kv_transfer_mb_per_s": pytest.approx(3e3 / 4),
    "kv_transfer_ms": pytest.approx(50.0),
    "kv_transfer_failures": 6.0,
    "kv_expired_requests": 8.0,
    "offload_load_mb_per_s": pytest.approx(175.0),
    "offload_store_mb_per_s": pytest.approx(225.0),
    "offload_cache_percent": 31.0,
    "offload_pending_blocks": 12.0,
    "offload_failures": 12.0,
    "lmcache_hit_percent": pytest.approx(62.0),
    "lmcache_local_gb": pytest.approx(5.0),
    "lmcache_retrieve_ms": pytest.approx(50.0),
    "lmcache_remote_get_ms": pytest.approx(30.0),
    "lora_running": 2.0,
    "lora_waiting": 0.0,
    "lora_max": 4.0,
}


def doubled(sample: EngineSample, at: float) -> EngineSample:
    """Return the same server after it counted everything once more."""
    (lane,) = sample.lanes
    grown = {
        name: 2 * value
        for name in ("prompt_tokens", "generation_tokens", "spec_drafts", "spec_accepted_tokens")
        if (value := getattr(lane, name)) is not None
    }
    counts = {name: 2 * value for name, value in lane.counts.items()}
    return replace(sample, at=at, lanes=(replace(lane, counts=counts, **grown),))


def test_every_figure_of_the_page_reaches_the_view_with_its_unit(world: World) -> None:
    """Rates, means and percentages are of the growth in 4 s; counts and gauges are the newest values."""
    first = read_page(PAGE.read_bytes(), at=1000.0)
    world.feed(first)
    view = world.feed(doubled(first, 1004.0))
    known = {name: value for name, value in view.counter_figures.items() if value is not None}
    assert known == EXPECTED
    assert view.spec_accept_by_position == (80.0, 50.0, 20.0)
    assert (view.spec_accepted_per_draft, view.spec_verdict) == (1.5, None)
    words = also_reported_words(view)
    assert (
        "refused and failed: refused 14 since start, corrupted 2 since start, HTTP 4xx 24 since start, "
        "HTTP 5xx 6 since start, error rate <1 %"
    ) in words
    assert "LoRA adapters: running 2, waiting 0, at most 4" in words
    assert "transfer 750 MB/s, each takes 50.0 ms, KV failed 6 since start, KV expired 8 since start" in words
    assert len(also_reported([view]).rows) == len(EXPECTED)


def test_faults_that_never_happened_are_not_shown(
    world: World, make_page: Callable[..., EngineSample]
) -> None:
    """A server that refused nothing has no line of it; the value is a known zero."""
    zeros = LaneSample("0", counts={"refused": 0.0, "http_5xx": 0.0}, gauges={"deferred": 0.0})
    world.feed(make_page(1000, zeros))
    view = world.feed(make_page(1002, zeros))
    assert view.counter_figures["refused_requests"] == 0.0
    assert view.counter_figures["http_4xx"] is None
    assert also_reported_words(view) == ""


def test_after_a_restart_the_counts_are_those_of_the_new_process(world: World) -> None:
    """Counts since the start fall with the process, and no rate is negative."""
    first = read_page(PAGE.read_bytes(), at=1000.0)
    world.feed(doubled(first, 1000.0))
    view = world.feed(replace(first, at=1004.0, start_time=1.79e9 + 100))
    assert view.counter_figures["refused_requests"] == 7.0
    assert all(value is None or value >= 0 for value in view.counter_figures.values())


def test_each_figure_has_a_name_and_place_of_its_own() -> None:
    """JSON keys are unique, labels fit into 10 cells and are unique within their section."""
    assert len({one.name for one in COUNTER_FIGURES}) == len(COUNTER_FIGURES)
    assert len({(one.section, one.title) for one in COUNTER_FIGURES}) == len(COUNTER_FIGURES)
    assert all(len(one.title) <= 10 for one in COUNTER_FIGURES)
