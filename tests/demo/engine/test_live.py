"""A simulated engine that follows a clock."""

from __future__ import annotations

import asyncio
import time

import pytest

from sparktop.demo.engine import Answer
from sparktop.model.load import EndReason
from sparktop.simulation.engine import SimulatedRequest
from tests.demo.quick_engines import Clock, live_engine


def request(name: str, tokens: int = 5) -> SimulatedRequest:
    return SimulatedRequest(name, 32, tokens)


async def test_tokens_come_when_the_clock_says_so(clock: Clock) -> None:
    """Tokens arrive when the clock passes their steps: none at first, all after the last step."""
    live = live_engine(clock)
    answer = live.submit(request("a"), max_tokens=5)
    waiting = asyncio.ensure_future(answer.more())
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.now += 10.0
    live.catch_up()
    delta = await waiting
    assert (delta.tokens, delta.ended is not None and delta.ended.reason) == (5, EndReason.LENGTH)
    assert delta.made_s is not None
    assert 1000.0 < delta.made_s < 1010.0
    live.close()


async def test_what_a_slow_asker_missed_comes_in_one_piece(clock: Clock) -> None:
    """Tokens are collected until they are requested, and each is returned once."""
    live = live_engine(clock)
    answer = live.submit(request("a", 50), max_tokens=50)
    given = 0
    for _ in range(200):
        clock.now += 5e-4
        live.catch_up()
        if clock.now > 1000.02:
            delta = await answer.more()
            given += delta.tokens
            if delta.ended is not None:
                break
    assert given == 50
    live.close()


async def test_the_timer_needs_nobody_to_ask() -> None:
    """With the real clock an answer completes by itself."""
    live = live_engine(time.monotonic)
    answers = [live.submit(request(str(number)), max_tokens=5) for number in range(3)]
    totals = await asyncio.gather(*(total(answer) for answer in answers))
    assert totals == [5, 5, 5]
    assert live.engine.running == 0
    live.close()


async def test_a_client_that_goes_ends_its_request(clock: Clock) -> None:
    """A cancelled request leaves the batch; cancelling it again, or an ended one, does nothing."""
    live = live_engine(clock)
    live.submit(request("a", 1000), max_tokens=1000)
    clock.now += 0.05
    live.cancel("a")
    live.cancel("a")
    live.cancel("never there")
    assert (live.engine.running, live.engine.tally.ended[EndReason.ABORT]) == (0, 1)
    live.close()


async def test_closing_ends_every_answer(clock: Clock) -> None:
    """Closing the engine ends the wait for tokens with an abort."""
    live = live_engine(clock)
    waiting = asyncio.ensure_future(live.submit(request("a"), max_tokens=5).more())
    await asyncio.sleep(0)
    live.close()
    delta = await waiting
    assert delta.ended is not None
    assert delta.ended.reason is EndReason.ABORT


async def test_hours_of_silence_cost_no_steps(clock: Clock) -> None:
    """An idle engine makes no steps, however far the clock advances."""
    live = live_engine(clock)
    clock.now += 1e6
    live.catch_up()
    assert live.engine.tally.steps == 0
    answer = live.submit(request("a"), max_tokens=5)
    clock.now += 1.0
    live.catch_up()
    assert (await answer.more()).tokens == 5
    live.close()


async def test_the_histograms_hear_each_token(clock: Clock) -> None:
    """Five tokens count as one first token and four gaps; the duration counts at the end."""
    live = live_engine(clock)
    live.submit(request("a"), max_tokens=9)
    clock.now += 1.0
    live.catch_up()
    ledger = live.ledger
    assert (ledger.ttft_s.cumulative[-1], ledger.itl_s.cumulative[-1]) == (1, 4)
    assert (ledger.e2e_s.cumulative[-1], ledger.max_tokens.sum) == (1, 9)
    live.close()


async def test_two_requests_of_one_name_are_refused(clock: Clock) -> None:
    """A request with the name of another one in flight is refused; the first continues."""
    live = live_engine(clock)
    live.submit(request("a"), max_tokens=5)
    with pytest.raises(ValueError, match="already there"):
        live.submit(request("a"), max_tokens=5)
    assert live.engine.in_flight == ("a",)
    live.close()


async def total(answer: Answer) -> int:
    tokens = 0
    while True:
        delta = await answer.more()
        tokens += delta.tokens
        if delta.ended is not None:
            return tokens
