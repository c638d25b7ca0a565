"""The load that the client makes: how much at once, when, and with what in it.

The open loop: requests begin when they are due, however slow the server is.

The replay of a trace: due times, lengths, shared beginnings, and turns that wait for answers.

Servers that close idle connections: a request on one is sent again, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from time import perf_counter
from zlib import crc32

import pytest

from sparktop.model.load import (
    EndReason,
    LoadKind,
    LoadMode,
    LoadPoint,
    RequestEnded,
    RequestStarted,
    RunStarted,
)
from sparktop.sweep.generator.prompts import MOST_REQUESTS
from sparktop.sweep.generator.wire import WorkerTarget
from sparktop.sweep.plan.plan import Api, Timeouts
from sparktop.sweep.plan.traces import TraceChoice
from sparktop.sweep.result.open_loop import due_values_s
from sparktop.sweep.terms.request_errors import count_errors
from tests.known import known
from tests.sweep.conftest import InProcess, Loaded
from tests.sweep.stream_server import Asked, Behave


async def test_a_burst_starts_all_before_any_answer(in_process: InProcess) -> None:
    """A burst has all its requests in flight before the first answer comes, each once."""
    everyone = asyncio.Event()

    async def behave(asked: Asked) -> None:
        if asked.server.in_flight == 12:
            everyone.set()
        await everyone.wait()
        await asked.stream()

    loaded = await in_process.load(behave, concurrency=12)
    assert in_process.server.asked == 12
    steps = (isinstance(one, RequestStarted) - isinstance(one, RequestEnded) for one in loaded.events)
    assert max(accumulate(steps)) == 12
    assert isinstance(loaded.events[0], RunStarted)
    assert len({end.request_id for end in loaded.ends}) == 12


async def test_a_failing_server_is_not_hammered(in_process: InProcess) -> None:
    """In a steady run a slot whose request failed at once waits half a second before the next."""

    async def refuse(asked: Asked) -> None:
        asked.refuse(500, "no")

    loaded = await in_process.load(refuse, mode=LoadMode.STEADY, concurrency=2, duration_s=0.3)
    assert count_errors(loaded.events) == {"http:500": 2}


@pytest.mark.parametrize("api", Api)
async def test_prompts_are_new_and_exactly_as_long_as_asked(in_process: InProcess, api: Api) -> None:
    """Every prompt differs from its first words on, and has the length that the server counts."""
    server = in_process.server
    target = WorkerTarget(server.url, "tiny", api)
    loaded = await in_process.load(target=target, concurrency=40, prompt_tokens=100)
    prompts = [
        body["prompt"] if api is Api.COMPLETIONS else body["messages"][0]["content"] for body in server.bodies
    ]
    assert {server.count(prompt) + server.template_tokens for prompt in prompts} == {100}
    assert len({tuple(prompt.split()[1:5]) for prompt in prompts}) == 40
    assert {end.prompt_tokens for end in loaded.ends} == {100}
    assert known(in_process.calibrated).is_exact


@pytest.mark.parametrize(
    ("word_tokens", "length", "template_tokens"),
    [
        (lambda _: 1, 64, 5),
        (lambda word: (len(word) + 3) // 4, 96, 31),
        (lambda word: 1 + crc32(word.encode()) % 3, 200, 0),
        (lambda word: 2 + crc32(word.encode()) % 2, 2048, 17),
    ],
)
async def test_prompts_of_a_server_that_counts_whole_prompts_only(
    in_process: InProcess, word_tokens: Callable[[str], int], length: int, template_tokens: int
) -> None:
    """Without /tokenize usage is read: each prompt has the requested length, whatever a word costs."""
    server = in_process.server
    server.has_tokenize, server.word_tokens, server.template_tokens = False, word_tokens, template_tokens
    loaded = await in_process.load(concurrency=30, prompt_tokens=length)
    calibrated = known(in_process.calibrated)
    assert (calibrated.prompt_tokens, calibrated.is_exact) == (length, True)
    assert in_process.trials <= MOST_REQUESTS + 1
    assert [end.prompt_tokens for end in loaded.ends] == [length] * 30
    prompts = [str(body["messages"][0]["content"]) for body in server.bodies]
    assert len({tuple(prompt.split()[1:3]) for prompt in prompts}) >= 20
    assert len(set(prompts)) == 30


async def test_a_server_that_tells_nonsense_does_not_count(in_process: InProcess) -> None:
    """If every prompt has the same count, words are counted instead, and the length is not called exact."""
    server = in_process.server
    server.has_tokenize, server.word_tokens, server.template_tokens = False, lambda _: 0, 3
    await in_process.load(prompt_tokens=100)
    calibrated = known(in_process.calibrated)
    assert (calibrated.prompt_tokens, calibrated.is_exact) == (None, False)


async def test_the_same_salt_gives_the_same_prompts(in_process: InProcess) -> None:
    """Seed and salt decide the prompts; a run with another salt has others."""
    runs = []
    for salt in ("a", "a", "b"):
        await in_process.load(prompt_salt=salt)
        runs.append(sorted(str(body["messages"]) for body in in_process.server.bodies))
    assert runs[0] == runs[1]
    assert not set(runs[0]) & set(runs[2])


async def test_requests_that_could_not_be_written_whole(in_process: InProcess) -> None:
    """A body larger than the socket's buffer arrives whole."""
    loaded = await in_process.load(
        concurrency=1, prompt_tokens=150_000, timeouts=Timeouts(first_token_s=50.0)
    )
    assert [end.reason for end in loaded.ends] == [EndReason.LENGTH]
    assert {end.prompt_tokens for end in loaded.ends} == {150_000}


async def test_a_stall_is_shown_in_full_from_the_due_time(in_process: InProcess) -> None:
    """Every request that was due in a stall of 1 s waits for its end, however few are in flight at once."""
    stall: list[float] = []
    asked_count = 0

    async def behave(asked: Asked) -> None:
        nonlocal asked_count
        asked_count += 1
        if asked_count == 5:
            stall.extend((perf_counter(), perf_counter() + 1.0))
        if stall:
            await asyncio.sleep(max(0.0, stall[1] - perf_counter()))
        await asked.stream()

    loaded = await in_process.load(
        behave,
        mode=LoadMode.OPEN,
        concurrency=2,
        rate=LoadPoint(LoadKind.RATE, 20.0),
        arrivals="constant",
        duration_s=1.5,
    )
    measured = [one for one in loaded.record.traces() if one.due is not None]
    assert len(measured) == 30
    begin, end = stall
    stalled = [one for one in measured if one.due is not None and begin <= one.due < end]
    assert stalled
    waits = [value for _, value in due_values_s("ttft_due_ms", stalled)]
    assert all(wait >= end - one.due for one, wait in zip(stalled, waits, strict=True) if one.due is not None)
    # A clock that starts at the write would see the stall in these alone.
    assert sum(one.start < end for one in stalled) <= 2


DATA = Path(__file__).parents[2] / "data" / "traffic"


async def replay(client: InProcess, choice: TraceChoice, behave: Behave | None = None) -> Loaded:
    return await client.load(
        behave,
        mode=LoadMode.OPEN,
        concurrency=512,
        rate=LoadPoint(LoadKind.RATE, 10.0),
        duration_s=1.0,
        tail_s=5.0,
        trace=choice,
        cache_salt="s",
    )


def starts(loaded: Loaded) -> dict[int, RequestStarted]:
    return {
        int(event.request_id.rpartition("-")[2]): event
        for event in loaded.events
        if isinstance(event, RequestStarted)
    }


async def test_requests_are_due_as_the_trace_says(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 20 times the speed the five requests take 270 ms, each with its own lengths.

    None is sent before it is due, though timers fire early. Prompts of one first block begin alike, and the
    server's cache may find them: one salt for all.
    """
    timeout = asyncio.timeout
    monkeypatch.setattr(asyncio, "timeout", lambda delay_s: timeout(delay_s and 0.9 * delay_s))
    loaded = await replay(in_process, TraceChoice(str(DATA / "mooncake.jsonl"), speed=20.0))
    found = starts(loaded)
    first = known(found[0].due)
    due_s = [known(one.due) - first for _, one in sorted(found.items())]
    assert due_s == pytest.approx([0.0, 0.045, 0.045, 0.135, 0.27])
    assert all(one.due is not None and one.at >= one.due for one in found.values())
    ends = {end.request_id: end for end in loaded.ends}
    told = [ends[found[number].request_id] for number in range(5)]
    lengths = [(end.prompt_tokens, end.generated_tokens) for end in told]
    assert lengths == [(1200, 40), (1900, 118), (300, 12), (2100, 55), (1100, 80)]
    bodies = in_process.server.bodies
    assert len({body["messages"][0]["content"][:1000] for body in bodies}) == 1
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
        due = known(found[turn].due)
        assert due >= ends[before] + pause_s
        assert due < ends[before] + 20 * pause_s  # the recorded pause is that of speed 1
    first, second = (
        next(body["messages"][0]["content"] for body in in_process.server.bodies if body["max_tokens"] == one)
        for one in (20, 30)
    )
    assert second.startswith(first[:1000])
    texts = [body["messages"][0]["content"] for body in in_process.server.bodies]
    assert "How long is the coast of Norway?" in texts


async def break_off(asked: Asked) -> None:
    """Answer the first request, and close the connection of the second one without a byte."""
    if asked.number == 1:
        asked.close = True
    else:
        await asked.stream()


async def test_a_request_on_a_closed_connection_is_sent_again_once(in_process: InProcess) -> None:
    """It is one request, no failure, counted apart, and its latencies are those of the second time."""
    loaded = await in_process.load(break_off, mode=LoadMode.STEADY, concurrency=1, requests=3)
    assert [end.error for end in loaded.ends] == [None] * 3
    assert in_process.server.asked == 4
    traces = loaded.record.traces()
    assert [trace.resent for trace in traces] == [False, True, False]
    starts = [event for event in loaded.events if isinstance(event, RequestStarted)]
    assert [event.resent for event in starts] == [False, False, True, False]
    assert traces[1].start == starts[2].at > starts[1].at
    assert traces[1].ttft_s == traces[1].arrivals[0][0] - starts[2].at


async def test_a_request_that_the_server_gave_up_later_is_a_failure(in_process: InProcess) -> None:
    """A server that had a request for longer than the news of a closed connection takes gets it only once."""

    async def give_up(asked: Asked) -> None:
        if asked.number == 1:
            await asyncio.sleep(2.1)
        await break_off(asked)

    loaded = await in_process.load(give_up, mode=LoadMode.STEADY, concurrency=1, requests=3)
    assert count_errors(loaded.events) == {"disconnected": 1}
    assert in_process.server.asked == 3
