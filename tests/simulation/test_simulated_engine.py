"""One simulated engine in hand-computed cases.

Steps cost 10 ms x rows ^ 0.5 for weights, 40 ms at most, and 0.1 ms a row; an idle engine wakes after 20 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import sqrt

import pytest
from msgspec.structs import replace

from sparktop.model.load import EndReason, FirstToken, RequestEnded, Tokens
from sparktop.simulation.engine import (
    Engine,
    EngineEvent,
    EngineProfile,
    RequestTimeline,
    SimulatedRequest,
    StepCost,
)
from sparktop.simulation.thermal import NodeThermal

Maker = Callable[..., EngineProfile]
FOREVER = 1e6
WAKE = 0.02


def step_s(rows: int) -> float:
    return min(0.010 * sqrt(rows), 0.040) + 0.0001 * rows


def ask(name: str, prompt: int = 8, output: int = 3, hashes: tuple[int, ...] = ()) -> SimulatedRequest:
    return SimulatedRequest(name, prompt, output, block_hashes=hashes)


def of(events: list[EngineEvent], name: str) -> list[EngineEvent]:
    return [event for event in events if event.request_id == name]


def first_at(events: list[EngineEvent], name: str) -> float:
    (event,) = (event for event in of(events, name) if isinstance(event, FirstToken))
    return event.at


def end_of(events: list[EngineEvent], name: str) -> RequestEnded:
    (event,) = (event for event in of(events, name) if isinstance(event, RequestEnded))
    return event


def test_one_request_takes_its_prompt_and_a_step_a_token(profile: Maker) -> None:
    """It takes a wake-up, one step for the prompt and one for each token after the first, at exact times."""
    engine = Engine(profile())
    engine.submit(ask("a"), 1.0)
    events = engine.advance(FOREVER)
    first = 1.0 + WAKE + step_s(8)
    assert [type(event) for event in events] == [FirstToken, Tokens, Tokens, RequestEnded]
    assert [event.at for event in events] == pytest.approx(
        [first, first + step_s(1), first + 2 * step_s(1), first + 2 * step_s(1)]
    )
    assert end_of(events, "a") == RequestEnded(
        "a", events[-1].at, EndReason.LENGTH, prompt_tokens=8, cached_tokens=0, generated_tokens=3
    )
    assert (engine.running, engine.waiting, engine.kv_usage, engine.next_event_at()) == (0, 0, 0.0, None)


def test_a_long_prompt_is_computed_in_chunks(profile: Maker) -> None:
    """150 tokens with a budget of 64 take three steps."""
    engine = Engine(profile())
    engine.submit(ask("a", 150, 1), 0.0)
    assert first_at(engine.advance(FOREVER), "a") == pytest.approx(WAKE + 2 * step_s(64) + step_s(22))
    assert engine.tally.step_rows == {64: 2, 22: 1}


def test_decoding_goes_before_prompts_in_the_budget(profile: Maker) -> None:
    """A step with one decoding request leaves 63 tokens of 64 for the newcomer's prompt."""
    engine = Engine(profile())
    engine.submit(ask("a", 8, 50), 0.0)
    engine.submit(ask("b", 100, 1), 0.1)
    events = engine.advance(FOREVER)
    assert engine.tally.step_rows[64] == 1
    assert engine.tally.step_rows[1 + 37] == 1
    joined = next(event.at for event in of(events, "a") if event.at > 0.1)
    assert first_at(events, "b") == pytest.approx(joined + step_s(64) + step_s(38))


def test_requests_of_one_burst_get_their_first_tokens_together(profile: Maker) -> None:
    """What arrives while an idle engine wakes is in its first step."""
    engine = Engine(profile(max_num_batched_tokens=1000))
    for number in range(8):
        engine.submit(ask(str(number)), 0.002 * number)
    events = engine.advance(FOREVER)
    assert {first_at(events, str(number)) for number in range(8)} == {WAKE + step_s(64)}


def test_without_a_free_slot_requests_wait(profile: Maker) -> None:
    """Of three requests with two slots the third starts when one has ended."""
    engine = Engine(profile(max_num_seqs=2))
    for name in "abc":
        engine.submit(ask(name), 0.0)
    engine.advance(WAKE + step_s(16))
    assert (engine.running, engine.waiting) == (2, 1)
    events = engine.advance(FOREVER)
    assert first_at(events, "c") == pytest.approx(end_of(events, "a").at + step_s(8))


def test_a_step_is_padded_to_the_next_captured_batch(profile: Maker) -> None:
    """Three requests decode at the speed of four, five (above the largest graph) at their own."""
    for requests, rows in ((3, 4), (4, 4), (5, 5)):
        engine = Engine(profile(capture_sizes=(1, 2, 4)))
        for number in range(requests):
            engine.submit(ask(str(number), 8, 2), 0.0)
        events = engine.advance(FOREVER)
        assert end_of(events, "0").at - first_at(events, "0") == pytest.approx(step_s(rows))
        assert engine.tally.padded_rows == rows - requests


def test_context_makes_steps_longer(profile: Maker) -> None:
    """With 1 ms a token of context, each step is 1 ms longer than the one before."""
    cost = StepCost(0.010, 0.5, 0.040, 0.0, 0.001, 0.0)
    engine = Engine(profile(cost=cost))
    engine.submit(ask("a", 8, 5), 0.0)
    times = [event.at for event in engine.advance(FOREVER) if not isinstance(event, RequestEnded)]
    assert [after - before for before, after in pairwise(times)] == pytest.approx(
        [0.010 + 0.001 * context for context in (9, 10, 11, 12)]
    )


def test_long_prompts_cost_their_square(profile: Maker) -> None:
    """With 1 ms a pair, 8 tokens attend to 32 pairs, and chunks of 4 tokens add up to the same."""
    cost = StepCost(0.0, 0.5, 0.0, 0.0, 0.0, 0.001)
    for budget in (64, 4):
        engine = Engine(profile(cost=cost, max_num_batched_tokens=budget, max_num_seqs=4))
        engine.submit(ask("a", 8, 1), 0.0)
        assert first_at(engine.advance(FOREVER), "a") == pytest.approx(WAKE + 0.032)


def test_when_blocks_run_out_the_newest_goes_back_and_still_finishes(profile: Maker) -> None:
    """Two requests that need 8 blocks of 6: the second is computed again, and makes all its tokens."""
    ends: list[RequestTimeline] = []
    engine = Engine(profile(kv_blocks=6), on_end=ends.append)
    engine.submit(ask("a", 8, 8), 0.0)
    engine.submit(ask("b", 8, 8), 0.0)
    events = engine.advance(FOREVER)
    assert engine.tally.preemptions == 1
    assert [(end.request.request_id, end.preemptions, end.generated_tokens) for end in ends] == [
        ("a", 0, 8),
        ("b", 1, 8),
    ]
    for name in "ab":
        assert sum(isinstance(event, FirstToken | Tokens) for event in of(events, name)) == 8
    assert engine.tally.generation_tokens == 16
    assert engine.kv_usage == 0.0


def test_a_preempted_request_comes_before_those_that_wait(profile: Maker) -> None:
    """The preempted one is first in the queue: a small newcomer that would fit does not pass it."""
    engine = Engine(profile(kv_blocks=6, max_num_seqs=2))
    engine.submit(ask("a", 8, 8), 0.0)
    engine.submit(ask("b", 8, 8), 0.0)
    engine.submit(ask("c", 1, 1), 0.0)
    events = engine.advance(FOREVER)
    assert engine.tally.preemptions == 1
    assert first_at(events, "c") > end_of(events, "a").at


def test_a_step_under_way_holds_the_block_that_it_fills(profile: Maker) -> None:
    """While the k-th token after the first is made, blocks of 4 hold the prompt's 8 tokens and k more."""
    engine = Engine(profile(kv_blocks=100))
    engine.submit(ask("a", 8, 20), 0.0)
    first = WAKE + step_s(8)
    for step in range(1, 12):
        engine.advance(first + (step - 0.5) * step_s(1))
        assert engine.kv_usage == pytest.approx(-(-(8 + step) // 4) / 100)


def test_a_known_prefix_is_not_computed_again(profile: Maker) -> None:
    """The second request with the same beginning computes only what the cache does not hold."""
    engine = Engine(profile())
    engine.submit(ask("a", 12, 1, (1, 2, 3)), 0.0)
    engine.advance(1.0)
    engine.submit(ask("b", 12, 1, (1, 2, 3)), 1.0)
    end = end_of(engine.advance(FOREVER), "b")
    # Two blocks of 4: the third holds the last token, which is computed for the sake of the next.
    assert end.cached_tokens == 8
    assert engine.tally.step_rows == {12: 1, 4: 1}
    assert (engine.tally.prefix_queries, engine.tally.prefix_hits) == (24, 8)
    assert (engine.tally.prompt_tokens, engine.tally.prompt_tokens_cached) == (24, 8)


def test_requests_of_one_step_share_a_prefix(profile: Maker) -> None:
    """As in vLLM, a prompt scheduled later in a step finds the blocks of one scheduled before it."""
    engine = Engine(profile())
    engine.submit(ask("a", 9, 2, (1, 2)), 0.0)
    engine.submit(ask("b", 9, 2, (1, 2)), 0.0)
    engine.advance(WAKE)
    # Three blocks for a; b shares two of them.
    assert engine.kv_usage == pytest.approx(4 / 1000)


def test_an_answer_can_be_the_next_prefix(profile: Maker) -> None:
    """Hashes that go on into the answer make a second turn find the first one's tokens."""
    engine = Engine(profile())
    engine.submit(ask("a", 8, 9, (1, 2, 3, 4)), 0.0)
    engine.advance(10.0)
    engine.submit(ask("b", 20, 1, (1, 2, 3, 4, 5)), 10.0)
    assert end_of(engine.advance(FOREVER), "b").cached_tokens == 16


def test_a_cancelled_request_ends_at_once_and_frees_its_blocks(profile: Maker) -> None:
    """A running request ends at the moment of the call with the tokens it had; the other goes on."""
    engine = Engine(profile())
    engine.submit(ask("a", 8, 100), 0.0)
    engine.submit(ask("b", 8, 5), 0.0)
    engine.advance(0.1)
    made = engine.tally.generation_tokens // 2
    assert engine.cancel("a", 0.1)
    assert not engine.cancel("a", 0.1)
    assert engine.running == 1
    events = engine.advance(FOREVER)
    assert end_of(events, "a") == RequestEnded(
        "a", 0.1, EndReason.ABORT, prompt_tokens=8, cached_tokens=0, generated_tokens=made
    )
    assert end_of(events, "b").generated_tokens == 5
    assert engine.kv_usage == 0.0


def test_a_cancelled_request_is_missing_from_the_next_step_on(profile: Maker) -> None:
    """The step under way keeps its duration of two rows; the one after it has one."""
    engine = Engine(profile())
    engine.submit(ask("a", 8, 100), 0.0)
    engine.submit(ask("b", 8, 100), 0.0)
    first = WAKE + step_s(16)
    engine.cancel("a", first + 0.5 * step_s(2))
    times = [event.at for event in engine.advance(first + 0.1) if event.request_id == "b"]
    assert times[:4] == pytest.approx(
        [first, first + step_s(2), first + step_s(2) + step_s(1), first + step_s(2) + 2 * step_s(1)]
    )


def test_a_prompt_that_is_cancelled_while_it_is_computed_gives_no_token(profile: Maker) -> None:
    """Its step goes on for the others."""
    engine = Engine(profile())
    engine.submit(ask("a"), 0.0)
    engine.submit(ask("b"), 0.0)
    engine.cancel("a", WAKE + 0.001)
    events = engine.advance(FOREVER)
    assert [type(event) for event in of(events, "a")] == [RequestEnded]
    assert first_at(events, "b") == pytest.approx(WAKE + step_s(16))


@pytest.mark.parametrize("at", [0.0, 0.005, WAKE + 0.001])
def test_a_request_can_be_cancelled_before_it_runs(profile: Maker, at: float) -> None:
    """Cancelled on arrival, while the engine wakes or in the queue: no token of it is made."""
    engine = Engine(profile(max_num_seqs=1))
    engine.submit(ask("a"), 0.0)
    engine.submit(ask("b"), 0.0)
    assert engine.cancel("b", at)
    events = engine.advance(FOREVER)
    assert [type(event) for event in of(events, "b")] == [RequestEnded]
    assert end_of(events, "b").generated_tokens == 0
    assert end_of(events, "a").generated_tokens == 3


def test_what_can_never_run_is_refused(profile: Maker) -> None:
    """Requests too long for context or cache, empty, repeated or in the past raise ValueError."""
    engine = Engine(profile(kv_blocks=10))
    for bad in (ask("a", 41, 1), ask("a", 0, 1), ask("a", 1, 0), ask("a", 1000, 1)):
        with pytest.raises(ValueError, match="token"):
            engine.submit(bad, 0.0)
    engine.submit(ask("a"), 5.0)
    with pytest.raises(ValueError, match="already there"):
        engine.submit(ask("a"), 5.0)
    engine.advance(7.0)
    with pytest.raises(ValueError, match="have passed"):
        engine.submit(ask("b"), 6.0)
    with pytest.raises(ValueError, match="have passed"):
        engine.cancel("a", 6.0)


def test_a_full_batch_must_fit_into_a_step(profile: Maker) -> None:
    """Settings that the scheduler could not work with are refused."""
    for changes in (
        {"max_num_batched_tokens": 7},
        {"kv_blocks": 0},
        {"capture_sizes": (2, 1)},
    ):
        with pytest.raises(ValueError, match=r".+"):
            profile(**changes)
    with pytest.raises(ValueError, match="wake_s"):
        replace(profile(), wake_s=0.0)


def test_the_next_event_is_where_the_next_event_is(profile: Maker) -> None:
    """Going from one announced time to the next misses nothing, and only what makes no token is silent."""
    whole, stepped = Engine(profile()), Engine(profile())
    for engine in (whole, stepped):
        engine.submit(ask("a", 70, 4), 0.0)
        engine.submit(ask("b", 8, 9), 0.05)
    events: list[EngineEvent] = []
    silent = 0
    while (at := stepped.next_event_at()) is not None:
        told = stepped.advance(at)
        assert all(event.at == at for event in told)
        silent += not told
        events += told
    assert events == whole.advance(FOREVER)
    # The wake-up, and the first chunk of a prompt in two.
    assert silent == 2


def test_a_slow_node_sets_the_pace(profile: Maker) -> None:
    """Of two nodes, one with its clock pinned at a quarter: computing takes four times as long."""
    cost = StepCost(0.0, 0.5, 0.0, 0.001, 0.0, 0.0)
    slow = NodeThermal()
    slow.pinned_mhz = 2405.0 / 4
    engine = Engine(profile(cost=cost, nodes=2), nodes=[NodeThermal(), slow])
    engine.submit(ask("a", 8, 1), 0.0)
    assert first_at(engine.advance(FOREVER), "a") == pytest.approx(WAKE + 4 * 0.008)


def test_work_warms_its_node_and_rest_cools_it(profile: Maker) -> None:
    """Under lasting load the node draws more and gets warmer, and after it settles again."""
    engine = Engine(profile())
    (node,) = engine.nodes
    cold_c = node.temperature_c(0.0)
    for number in range(8):
        engine.submit(ask(str(number), 8, 900), 0.0)
    engine.advance(20.0)
    assert node.power_w() > 35.0
    assert node.temperature_c(20.0) > cold_c + 5.0
    engine.advance(2000.0)
    assert node.temperature_c(2000.0) == pytest.approx(cold_c, abs=0.1)
