"""The replay of a trace: due times, lengths, shared beginnings, and turns that wait for answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sparktop.model.load import LoadMode, RequestStarted
from sparktop.sweep.generator.wire import OpenLoop
from sparktop.sweep.plan.traces import TraceChoice
from tests.sweep.conftest import InProcess, Loaded
from tests.sweep.stream_server import Asked, Behave

DATA = Path(__file__).parents[2] / "data" / "traffic"
ARRIVALS = OpenLoop("trace", 10.0, None, 0.0, 1.0, 5.0, "")


async def replay(
    client: InProcess, choice: TraceChoice, behave: Behave | None = None, concurrency: int = 512
) -> Loaded:
    return await client.load(
        behave, mode=LoadMode.OPEN, concurrency=concurrency, open_loop=ARRIVALS, trace=choice, cache_salt="s"
    )


def starts(loaded: Loaded) -> dict[int, RequestStarted]:
    return {
        int(event.request_id.rpartition("-")[2]): event
        for event in loaded.events
        if isinstance(event, RequestStarted)
    }


async def test_requests_are_due_as_the_trace_says(in_process: InProcess) -> None:
    """At 20 times the speed the five requests take 270 ms, each with its own lengths."""
    loaded = await replay(in_process, TraceChoice(str(DATA / "mooncake.jsonl"), speed=20.0))
    found = starts(loaded)
    first = found[0].due
    assert first is not None
    assert [one.due and pytest.approx(one.due - first) for _, one in sorted(found.items())] == [
        0.0,
        0.045,
        0.045,
        0.135,
        0.27,
    ]
    assert all(one.due is not None and one.at >= one.due for one in found.values())
    ends = {end.request_id: end for end in loaded.ends}
    assert [ends[found[number].request_id].prompt_tokens for number in range(5)] == [
        1200,
        1900,
        300,
        2100,
        1100,
    ]
    assert [ends[found[number].request_id].generated_tokens for number in range(5)] == [40, 118, 12, 55, 80]


async def test_equal_ids_give_equal_beginnings_under_one_salt(in_process: InProcess) -> None:
    """Prompts of one first block begin alike, and the server's cache may find them: one salt for all."""
    await replay(in_process, TraceChoice(str(DATA / "mooncake.jsonl"), speed=100.0))
    bodies = in_process.server.bodies
    prompts = [body["messages"][0]["content"] for body in bodies]
    assert len({prompt[:1000] for prompt in prompts}) == 1
    assert {body["cache_salt"] for body in bodies} == {"s"}


async def test_a_turn_waits_for_the_answer_before(in_process: InProcess) -> None:
    """The second turn is due its pause after the end of the first one, however slow that is."""

    async def behave(asked: Asked) -> None:
        await asyncio.sleep(0.1)
        await asked.stream()

    loaded = await replay(in_process, TraceChoice(str(DATA / "aiperf.jsonl"), speed=20.0), behave)
    found = starts(loaded)
    ends = {int(end.request_id.rpartition("-")[2]): end.at for end in loaded.ends}
    for turn, before, pause_s in ((2, 0, 1.84 / 20), (3, 1, 2.5 / 20)):
        due = found[turn].due
        assert due is not None
        assert due >= ends[before] + pause_s
        assert due < ends[before] + 20 * pause_s  # the recorded pause is that of speed 1
    first, second = (
        next(body["messages"][0]["content"] for body in in_process.server.bodies if body["max_tokens"] == one)
        for one in (20, 30)
    )
    assert second.startswith(first[:1000])
    texts = [body["messages"][0]["content"] for body in in_process.server.bodies]
    assert "How long is the coast of Norway?" in texts
