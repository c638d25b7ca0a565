"""What the store makes of engines that report less than vLLM, or later."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import pytest
from msgspec.structs import replace

from sparktop.model.engine import EngineIdentity, EngineSample, Histogram, LaneSample
from sparktop.model.snapshot import BackendState
from sparktop.model.targets import BackendTarget, Watch
from sparktop.store import SourceKey

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import


def sample(at: float, *lanes: LaneSample, note: str | None = None) -> EngineSample:
    return EngineSample(at, "any", lanes, models=("m",), note=note)


def test_the_server_s_own_rate_is_the_live_one(world: World) -> None:
    """Where tokens are counted at the end of requests, the live rate is the gauge, summed over lanes."""
    lanes = [
        LaneSample(name, generation_tokens=0.0, generation_tps_gauge=gauge, per_finished_request=True)
        for name, gauge in (("0", 40.0), ("1", 2.5))
    ]
    for second in range(3):
        view = world.feed(sample(1000 + second, *lanes))
    assert (view.generation_tps, view.generation_tps_1s) == (0.0, 42.5)
    assert view.history.generation_tps.peak(0.0) == 42.5


def test_a_gauge_that_outlives_its_traffic_is_not_believed(world: World) -> None:
    """SGLang keeps its last rate for 30 s: where its counter moves with the tokens, a still one overrules."""
    moving = LaneSample("0", generation_tokens=0.0, generation_tps_gauge=50.0)
    for second in range(5):
        view = world.feed(sample(1000 + second, replace(moving, generation_tokens=60.0 * second)))
    assert view.generation_tps_1s == 50.0
    for second in range(5, 17):
        view = world.feed(sample(1000 + second, replace(moving, generation_tokens=240.0)))
    assert (view.generation_tps, view.generation_tps_1s) == (0.0, 0.0)


def test_a_server_without_figures_is_unknown_in_its_own_words(world: World) -> None:
    """No load figure gives no state but "unknown", with the source's note as the rule; nothing becomes 0."""
    view = world.feed(sample(1000, LaneSample("0"), note="1 model loaded; no figures"))
    assert (view.state, view.state_rule) == (BackendState.UNKNOWN, "1 model loaded; no figures")
    assert (view.running, view.generation_tps, view.kv_cache_percent, view.generation_tokens) == (None,) * 4
    assert view.model == "m"
    assert view.ok


def test_a_mean_without_buckets_is_a_mean_without_quantiles(world: World) -> None:
    """llama.cpp reports a sum and a count: the mean of the window is known, its quantiles are not."""
    for second in range(3):
        tokens = 100.0 * second
        lane = LaneSample("0", itl=Histogram((math.inf,), (tokens,), tokens * 0.03))
        view = world.feed(sample(1000 + second, lane))
    assert view.itl.mean_s == pytest.approx(0.03)
    assert (view.itl.count, view.itl.p50, view.itl.p99) == (200.0, None, None)
    assert view.itl.note is not None
    assert "only a mean" in view.itl.note


def test_slots_come_from_the_server_where_the_user_names_none(make_world: Any) -> None:  # noqa: ANN401 - see World
    """Two of four slots make a server busy that says it has four; what the user says goes first."""
    for slots, state in ((None, BackendState.BUSY), (8, BackendState.BORED)):
        world = make_world(Watch(backends=(BackendTarget("b", "http://b:8080", slots=slots),)))
        world.store.identify(SourceKey.backend("b"), EngineIdentity("b1", "m", slots=4))
        view = world.feed(sample(1000, LaneSample("0", running=2.0)))
        assert (view.state, view.slots) == (state, slots or 4)
