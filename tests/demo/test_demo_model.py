"""The simulated engine: what holds for any seed and any time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.demo.load import Arrivals, Swing
from sparktop.demo.model import EngineModel, EngineSpec
from sparktop.demo.page import render_page
from sparktop.demo.server import make_engines

BUSY = Swing(mean_per_s=3.0, depth=0.5, period_s=10.0)
SMALL = EngineSpec(slots=6, kv_blocks=200)


def busy_engine(seed: int) -> EngineModel:
    return EngineModel(SMALL, BUSY, str(seed))


@given(seed=st.integers(0, 99), moments=st.lists(st.floats(0.0, 20.0), max_size=8))
@settings(max_examples=20, deadline=None)
def test_the_way_through_time_does_not_matter(seed: int, moments: list[float]) -> None:
    """An engine asked at any moments on the way counts the same as one asked only at the end."""
    direct, stepwise = busy_engine(seed), busy_engine(seed)
    direct.advance(20.0)
    for moment in (*sorted(moments), 20.0):
        stepwise.advance(moment)
    assert render_page(stepwise, 0.0) == render_page(direct, 0.0)


@given(seed=st.integers(0, 99), at_s=st.floats(0.0, 30.0))
@settings(max_examples=25, deadline=None)
def test_counters_and_histograms_tell_one_story(seed: int, at_s: float) -> None:
    """Each generated token is a first one or follows one, and no request is in two places."""
    engine = busy_engine(seed)
    engine.advance(at_s)
    tally = engine.tally
    first, following = tally.ttft_s.cumulative[-1], tally.itl_s.cumulative[-1]
    ended = sum(tally.ended.values())
    arrived = len(Arrivals(BUSY, str(seed)).take(at_s))
    assert tally.generation_tokens == first + following
    assert ended == tally.e2e_s.cumulative[-1] == tally.request_generation_tokens.cumulative[-1]
    assert arrived == ended + engine.running + engine.waiting
    assert ended <= first <= arrived
    assert tally.request_generation_tokens.sum <= tally.generation_tokens
    assert tally.prompt_tokens_cached <= tally.prompt_tokens <= tally.prefix_queries


@given(seed=st.integers(0, 99), at_s=st.floats(0.0, 30.0))
@settings(max_examples=25, deadline=None)
def test_slots_and_blocks_are_never_overdrawn(seed: int, at_s: float) -> None:
    """At most `slots` requests run, and the KV blocks that they hold and the free ones are all there are."""
    engine = busy_engine(seed)
    engine.advance(at_s)
    held = sum(sequence.blocks for sequence in engine._running)
    assert engine.running <= SMALL.slots
    assert held + engine._free_blocks == SMALL.kv_blocks
    assert all(sequence.blocks == 0 for sequence in engine._waiting)
    assert 0.0 <= engine.kv_usage <= 1.0


def test_a_crowded_engine_queues_and_preempts() -> None:
    """More load than slots and blocks makes requests wait and costs some of them their blocks."""
    engine = busy_engine(1)
    engine.advance(60.0)
    assert engine.waiting > 0
    assert engine.tally.preemptions > 0
    assert engine.tally.queue_s.sum > 0.0


def test_a_request_alone_decodes_at_the_speed_of_its_spec() -> None:
    """With one request in the batch, the time between tokens is that of a step for one."""
    spec = EngineSpec()
    engine = EngineModel(spec, Swing(mean_per_s=0.01, depth=0.0), "lonely")
    engine.advance(2000.0)
    itl = engine.tally.itl_s
    assert itl.cumulative[-1] > 0
    assert itl.sum / itl.cumulative[-1] == pytest.approx(spec.step_base_s + spec.step_request_s, rel=0.05)


def test_the_fuller_of_two_engines_changes_in_slow_swings() -> None:
    """In the first half of a period one of two engines makes more tokens, in the second half the other."""
    first, second = make_engines(2, seed=0)
    half_s = Swing().period_s / 2
    leads: list[bool] = []
    before = (0, 0)
    for half in range(1, 7):
        for engine in (first, second):
            engine.advance(half * half_s)
        now = (first.tally.generation_tokens, second.tally.generation_tokens)
        leads.append(now[0] - before[0] > now[1] - before[1])
        before = now
    assert leads == [True, False, True, False, True, False]


def test_arrivals_follow_the_swing() -> None:
    """The number of requests in a long time is what the rate says, and more arrive in its upper half."""
    swing = Swing(mean_per_s=2.0, depth=1.0, period_s=100.0)
    times = [request.at_s for request in Arrivals(swing, "s").take(2000.0)]
    assert len(times) == pytest.approx(4000, rel=0.1)
    assert times == sorted(times)
    upper = sum(time % 100.0 < 50.0 for time in times)
    assert upper > 0.75 * len(times)
