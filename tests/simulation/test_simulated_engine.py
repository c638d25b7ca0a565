"""One simulated engine in hand-computed cases.

Steps cost 10 ms x rows ^ 0.5 for weights, 40 ms at most, and 0.1 ms a row; an idle engine wakes after 20 ms.

The calibrated engines against the figures that they stand for.
"""

from __future__ import annotations

from math import sqrt

import pytest
from msgspec.structs import replace

from sparktop.model.load import (
    AnswerRead,
    EndReason,
    Level,
    RequestEnded,
    concurrency_point,
)
from sparktop.simulation.calibration import CLUSTER_TP2, LONG_CONTEXT, SOLO
from sparktop.simulation.engine import (
    Engine,
    EngineEvent,
    EngineProfile,
    SimulatedRequest,
)
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.results import LevelResult, Rate
from stage.clients import ClosedLoop, DirectDestination, VirtualTime
from tests.known import known
from tests.simulation.conftest import PROFILE

FOREVER = 1e6
WAKE = 0.02


def step_s(rows: int) -> float:
    return min(0.010 * sqrt(rows), 0.040) + 0.0001 * rows


def ask(name: str, prompt: int = 8, output: int = 3, hashes: tuple[int, ...] = ()) -> SimulatedRequest:
    return SimulatedRequest(name, prompt, output, block_hashes=hashes)


def of(events: list[EngineEvent], name: str) -> list[EngineEvent]:
    return [event for event in events if event.request_id == name]


def first_at(events: list[EngineEvent], name: str) -> float:
    return next(event.at for event in of(events, name) if isinstance(event, AnswerRead))


def end_of(events: list[EngineEvent], name: str) -> RequestEnded:
    (event,) = (event for event in of(events, name) if isinstance(event, RequestEnded))
    return event


def test_one_request_takes_its_prompt_and_a_step_a_token() -> None:
    """It takes a wake-up, one step for the prompt and one for each token after the first, at exact times."""
    engine = Engine(PROFILE)
    engine.submit(ask("a"), 1.0)
    events = engine.advance(FOREVER)
    first = 1.0 + WAKE + step_s(8)
    assert [type(event) for event in events] == [AnswerRead, AnswerRead, AnswerRead, RequestEnded]
    assert [event.at for event in events] == pytest.approx(
        [first, first + step_s(1), first + 2 * step_s(1), first + 2 * step_s(1)]
    )
    assert end_of(events, "a") == RequestEnded(
        "a", events[-1].at, EndReason.LENGTH, prompt_tokens=8, cached_tokens=0, generated_tokens=3
    )
    assert (engine.running, engine.waiting, engine.kv_usage, engine.next_event_at()) == (0, 0, 0.0, None)


def test_a_step_is_padded_to_the_next_captured_batch() -> None:
    """Three requests decode at the speed of four, five (above the largest graph) at their own."""
    for requests, rows in ((3, 4), (4, 4), (5, 5)):
        engine = Engine(replace(PROFILE, capture_sizes=(1, 2, 4)))
        for number in range(requests):
            engine.submit(ask(str(number), 8, 2), 0.0)
        events = engine.advance(FOREVER)
        assert end_of(events, "0").at - first_at(events, "0") == pytest.approx(step_s(rows))


def test_a_step_with_drafts_generates_several_tokens() -> None:
    """A step checks three rows and yields 1.75 tokens: its time is divided among them; steps are whole."""
    engine = Engine(replace(PROFILE, drafts=(0.5, 0.25), draft_token_s=0.001))
    engine.submit(ask("a", 8, 8), 0.0)
    events = engine.advance(FOREVER)
    took_s = end_of(events, "a").at - first_at(events, "a")
    assert took_s == pytest.approx(7 * (step_s(3) + 0.002) / 1.75)
    tally = engine.tally
    assert (tally.generation_tokens, tally.drafts, tally.work) == (8, 4, {8: 1, 3: 4})
    assert (tally.steps, tally.rows) == (5, 20)


def test_a_known_prefix_is_not_computed_again() -> None:
    """The second request with the same beginning computes only what the cache does not hold."""
    engine = Engine(PROFILE)
    engine.submit(ask("a", 12, 1, (1, 2, 3)), 0.0)
    engine.advance(1.0)
    engine.submit(ask("b", 12, 1, (1, 2, 3)), 1.0)
    end = end_of(engine.advance(FOREVER), "b")
    # Two blocks of 4: the third holds the last token, which is computed for the sake of the next.
    assert end.cached_tokens == 8
    assert engine.tally.step_rows == {12: 1, 4: 1}
    assert (engine.tally.prefix_queries, engine.tally.prefix_hits) == (24, 8)
    assert (engine.tally.prompt_tokens, engine.tally.prompt_tokens_cached) == (24, 8)


def burst(
    profile: EngineProfile, concurrency: int, prompt_tokens: int = 1024, output_tokens: int = 128
) -> LevelResult:
    time = VirtualTime([Engine(profile)])
    level = Level(profile.name, concurrency_point(concurrency), prompt_tokens, output_tokens)
    loop = ClosedLoop(time, DirectDestination(time), level)
    loop.start()
    time.run()
    return level_result(level, collect(loop.events))


def mean(figure: Rate | None) -> float:
    return known(figure).mean


@pytest.mark.parametrize(
    ("profile", "concurrency", "decode_tps", "prefill_tps", "ttft_ms"),
    [
        (SOLO, 8, 153.5, 5905, 1385),
        (SOLO, 32, 318.7, 6827, 4768),
        (SOLO, 64, 315.2, 2753, 10874),
        (CLUSTER_TP2, 2, 104.1, 5428, 381),
        (CLUSTER_TP2, 16, 342.1, 8816, 1855),
        (CLUSTER_TP2, 64, 471.8, 3873, 8032),
    ],
)
def test_the_topologies_are_as_fast_as_their_table(
    profile: EngineProfile, concurrency: int, decode_tps: float, prefill_tps: float, ttft_ms: float
) -> None:
    """Decode within 10 %, prefill and TTFT within 15 %."""
    figures = burst(profile, concurrency)
    assert mean(figures.decode_tps) == pytest.approx(decode_tps, rel=0.10)
    assert mean(figures.prefill_tps) == pytest.approx(prefill_tps, rel=0.15)
    assert known(figures.ttft_ms).mean == pytest.approx(ttft_ms, rel=0.15)


@pytest.mark.parametrize(
    ("prompt_tokens", "latency_ms", "tokens_per_s"),
    [(4978, 7237, 28.3), (19_570, 8773, 18.8), (39_026, 14_702, 14.1)],
)
def test_long_prompts_take_as_long_as_their_table_says(
    prompt_tokens: int, latency_ms: float, tokens_per_s: float
) -> None:
    """Latency and tokens per second of a request agree within 3 %; the table implies the tokens made."""
    output_tokens = round(tokens_per_s * latency_ms / 1000)
    figures = burst(LONG_CONTEXT, 1, prompt_tokens, output_tokens)
    assert known(figures.e2e_ms).mean == pytest.approx(latency_ms, rel=0.03)
    assert mean(figures.output_tps) == pytest.approx(tokens_per_s, rel=0.03)
