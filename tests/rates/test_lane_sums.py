"""Figures over the lanes of a data-parallel server: the board, its balance and a level of a sweep agree."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.snapshot import BackendState
from sparktop.model.targets import BackendTarget, StateThresholds
from sparktop.rates import kv_fullest_percent, kv_used_percent, lane_sum
from sparktop.store.backend import BackendTrack
from sparktop.sweep.run.server_side import server_point

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
