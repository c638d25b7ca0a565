"""Figures that no server can have are unknown, with a remark; those of another server stand beside them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.engines import read_page
from sparktop.model.engine import LaneSample
from sparktop.model.router import Fleet, FleetServer
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import BackendTarget, PrometheusTarget, Watch
from sparktop.store.routers import FleetTrack
from tests.known import known
from tests.store.conftest import World, page


def _after(lane: dict[str, Any], later: dict[str, Any]) -> BackendView:
    """Return a server whose second page, 2 s after the first, differs from it."""
    world = World()
    before: Any = {"running": 2.0, **lane}
    world.feed(page(1000.0, LaneSample("0", **before)))
    return world.feed(page(1002.0, replace(LaneSample("0", **before), **later)))


@pytest.mark.parametrize(
    ("first", "later", "figure", "remark"),
    [
        ({"generation_tps_gauge": 9e15}, {}, "generation_tps_1s", "generation_tps_gauge = 9e+15"),
        (
            {"generation_tokens": 5.0},
            {"generation_tokens": 2e12},
            "generation_tps",
            "generation_tokens grew by 2e+12 in 2 s",
        ),
        ({"prompt_tokens": 0.0}, {"prompt_tokens": 9e15}, "prompt_tps", "prompt_tokens grew by 9e+15 in 2 s"),
        ({}, {"running": 4e9}, "running", "running = 4e+09"),
        (
            {"prefix_cache_hits": 0.0, "prefix_cache_queries": 0.0},
            {"prefix_cache_hits": 250.0, "prefix_cache_queries": 100.0},
            "prefix_cache_hit_percent",
            "prefix_cache_hit_percent = 250",
        ),
        (
            {"external_cache_hits": 0.0, "external_cache_queries": 0.0},
            {"external_cache_hits": 300.0, "external_cache_queries": 100.0},
            "external_cache_hit_percent",
            "external_cache_hit_percent = 300",
        ),
    ],
)
def test_a_figure_that_no_server_can_have_is_unknown(
    first: dict[str, Any], later: dict[str, Any], figure: str, remark: str
) -> None:
    """By kind of figure: a rate, a number of requests, a part of a whole; the remark has metric and value."""
    view = _after(first, later)
    assert {**view.counter_figures}.get(figure, getattr(view, figure, None)) is None
    assert view.page_note == f"impossible value: {remark}"


def test_a_part_that_exceeds_its_whole_by_rounding_is_the_whole() -> None:
    """A page is not written in one instant."""
    hits = {"prefix_cache_hits": 1005.0, "prefix_cache_queries": 1000.0}
    view = _after(dict.fromkeys(hits, 0.0), hits)
    assert (view.prefix_cache_hit_percent, view.page_note) == (100.0, None)


@pytest.mark.parametrize(
    ("line", "remark"),
    [
        ("vllm:num_requests_running -7", "vllm:num_requests_running = -7"),
        ("vllm:num_requests_waiting +Inf", "vllm:num_requests_waiting = inf"),
        ("vllm:kv_cache_usage_perc 2.5", "vllm:kv_cache_usage_perc = 2.5"),
        ("vllm:generation_tokens_total -1e9", "vllm:generation_tokens_total = -1e+09"),
        ("vllm:gpu_prefix_cache_hit_rate -1", None),
        ("vllm:num_requests_waiting NaN", None),
    ],
)
def test_a_value_of_the_page_that_is_out_of_range_is_named(line: str, remark: str | None) -> None:
    """A wrong value is not a missing one; -1 and NaN are how engines say that a value is unknown."""
    text = f'vllm:num_requests_running{{model_name="m"}} 1\nvllm:num_preemptions_total 0\n{line}\n'
    world = World()
    view = world.feed(read_page(text.encode(), at=1000.0))
    assert view.page_note == (remark and f"impossible value: {remark}")
    if "running" in line:
        assert (view.running, view.state_rule) == (None, view.page_note)


def test_one_jump_of_a_counter_changes_no_other_figure() -> None:
    """Rates before and after it, and the sum over servers, are as without it; its remark stays a minute."""
    world = World(Watch(backends=(BackendTarget("b", "http://b:1"), BackendTarget("good", "http://c:1"))))
    rates, sums, noted = set[float | None](), set[float | None](), []
    for second in range(80):
        at, tokens, jump = 1000.0 + second, 50.0 * second, 2e12 if second >= 5 else 0.0
        world.feed(page(at, LaneSample("0", generation_tokens=tokens)), name="good")
        view = world.feed(page(at, LaneSample("0", generation_tokens=tokens + jump)))
        rates.add(view.generation_tps)
        sums.add(world.snapshot().totals.generation_tps.value)
        noted += [second] if view.page_note else []
    assert (rates, sums, noted) == ({None, 50.0}, {None, 50.0, 100.0}, list(range(5, 66)))


def test_a_jump_of_a_counter_hides_no_other_server_at_the_address() -> None:
    """Nothing counts so fast: the next jump is measured by the rates before it."""
    world = World()
    for number in range(20):
        jump = (2e12 if number >= 5 else 0.0) + (6e5 if number in {12, 14} else 0.0)
        world.feed(
            page(1000.0 + 5.0 * number, LaneSample("0", generation_tokens=1e6 + 250.0 * number + jump))
        )
    assert [event.message for event in world.snapshot().events] == [
        "several servers share this address: rates have gaps"
    ]


def test_a_server_of_a_prometheus_has_no_impossible_figure() -> None:
    """They are unknown there, as those of a server that is polled; what is possible stays."""
    most: dict[str, Any] = {"running": 4e9, "waiting": -3.0, "generation_tps": 9e15, "prompt_tps": 9e15}
    server = FleetServer("a", "http://a:1", "", 100.0, preemptions_per_s=0.5, **most)
    track = FleetTrack(PrometheusTarget("p", "http://p:9090"))
    track.accept_fleet(Fleet(100.0, 15.0, (server,)))
    (shown,) = known(track.view(100.0).fleet).servers
    unknown: dict[str, Any] = dict.fromkeys(most)
    assert shown == replace(server, **unknown)
