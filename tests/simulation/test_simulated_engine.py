"""One simulated engine in hand-computed cases.

Steps cost 10 ms x rows ^ 0.5 for weights, 40 ms at most, and 0.1 ms a row; an idle engine wakes after 20 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import pytest

from sparktop.model.load import EndReason, FirstToken, RequestEnded, Tokens
from sparktop.simulation.engine import (
    Engine,
    EngineEvent,
    EngineProfile,
    RequestTimeline,
    SimulatedRequest,
)

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


def test_a_step_is_padded_to_the_next_captured_batch(profile: Maker) -> None:
    """Three requests decode at the speed of four, five (above the largest graph) at their own."""
    for requests, rows in ((3, 4), (4, 4), (5, 5)):
        engine = Engine(profile(capture_sizes=(1, 2, 4)))
        for number in range(requests):
            engine.submit(ask(str(number), 8, 2), 0.0)
        events = engine.advance(FOREVER)
        assert end_of(events, "0").at - first_at(events, "0") == pytest.approx(step_s(rows))
        assert engine.tally.padded_rows == rows - requests


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
