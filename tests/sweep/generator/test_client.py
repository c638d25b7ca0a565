"""The load that the client makes: how much at once, when, and with what in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from zlib import crc32

import pytest

from sparktop.model.load import (
    EndReason,
    LoadMode,
    RequestEnded,
    RequestStarted,
    RunEnded,
    RunStarted,
)
from sparktop.sweep.generator.prompts import MOST_REQUESTS
from sparktop.sweep.generator.wire import PromptLength, WorkerTarget
from sparktop.sweep.plan.plan import Api, Timeouts
from sparktop.sweep.terms.request_errors import count_errors
from tests.sweep.conftest import InProcess
from tests.sweep.stream_server import Asked


def most_at_once(starts_and_ends: list[object]) -> int:
    most = now = 0
    for event in starts_and_ends:
        if isinstance(event, RequestStarted):
            now += 1
        elif isinstance(event, RequestEnded):
            now -= 1
        most = max(most, now)
    return most


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
    assert loaded.log.most_in_flight == 12
    assert isinstance(loaded.events[0], RunStarted)
    assert isinstance(loaded.events[-1], RunEnded)
    assert len({end.request_id for end in loaded.ends}) == 12


@pytest.mark.parametrize("mode", [LoadMode.BURST, LoadMode.STEADY])
async def test_never_more_than_the_concurrency(in_process: InProcess, mode: LoadMode) -> None:
    """No more requests are in flight than asked for, as the client and as the server see it."""
    loaded = await in_process.load(
        mode=mode, concurrency=5, requests=23 if mode is LoadMode.STEADY else None, ramp_s=0.0
    )
    assert in_process.server.most_in_flight <= 5
    assert most_at_once(list(loaded.events)) == 5
    assert len(loaded.ends) == (23 if mode is LoadMode.STEADY else 5)


async def test_cancelling_ends_all_in_flight(in_process: InProcess) -> None:
    """A run that is cancelled ends each request in flight with abort and keeps the tokens that came."""

    async def behave(asked: Asked) -> None:
        asked.start()
        asked.event(asked.token())
        await asked.writer.drain()
        if asked.number == 31:
            assert in_process.client is not None
            asyncio.get_running_loop().call_later(0.05, in_process.client.cancel)
        await asked.server.hang()

    loaded = await in_process.load(behave, concurrency=32)
    assert loaded.client.cancelled
    assert [end.reason for end in loaded.ends] == [EndReason.ABORT] * 32
    assert loaded.log.in_flight == 0
    assert loaded.log.tokens == 32


async def test_nothing_listens(in_process: InProcess) -> None:
    """A server that is gone when the run begins gives a refused request each, and none was started."""

    async def behave(asked: Asked) -> None:
        await asked.stream()

    server = in_process.server
    original = in_process.load

    async def gone(asked: Asked) -> None:
        await asked.stream()
        asked.close = True
        if asked.number == 0 and server._server is not None:
            server._server.close()

    # The calibration's one completion closes the listener behind it.
    server.behave = gone
    loaded = await original(None)
    assert count_errors(loaded.events) == {"refused": 4}
    assert loaded.log.started == 0
    assert {end.error.message for end in loaded.ends if end.error} == {
        f"nothing listens on 127.0.0.1:{server.port} (connection refused)"
    }


async def test_a_failing_server_is_not_hammered(in_process: InProcess) -> None:
    """In a steady run a slot whose request failed at once waits half a second before the next."""
    loaded = await in_process.load(_refuse, mode=LoadMode.STEADY, concurrency=2, duration_s=0.3, ramp_s=0.0)
    assert count_errors(loaded.events) == {"http:500": 2}


async def _refuse(asked: Asked) -> None:
    asked.refuse(500, "no")


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
    assert in_process.calibrated is not None
    assert in_process.calibrated.prompt is not None
    assert in_process.calibrated.prompt.exact


def _odd(word: str) -> int:
    return 1 + crc32(word.encode()) % 3


def _never_one(word: str) -> int:
    return 2 + crc32(word.encode()) % 2


@pytest.mark.parametrize(
    ("word_tokens", "length", "template_tokens"),
    [
        (lambda _: 1, 64, 5),
        (lambda word: (len(word) + 3) // 4, 96, 31),
        (_odd, 200, 0),
        (_never_one, 2048, 17),
    ],
)
async def test_prompts_of_a_server_that_counts_whole_prompts_only(
    in_process: InProcess, word_tokens: Callable[[str], int], length: int, template_tokens: int
) -> None:
    """Without /tokenize usage is read: each prompt has the requested length, whatever a word costs."""
    server = in_process.server
    server.has_tokenize, server.word_tokens, server.template_tokens = False, word_tokens, template_tokens
    loaded = await in_process.load(concurrency=30, prompt_tokens=length)
    calibrated = in_process.calibrated
    assert calibrated is not None
    assert calibrated.prompt == PromptLength(length, length, exact=True, source="usage")
    assert calibrated.requests <= MOST_REQUESTS + 1
    assert [end.prompt_tokens for end in loaded.ends] == [length] * 30
    prompts = [str(body["messages"][0]["content"]) for body in server.bodies]
    assert len({tuple(prompt.split()[1:3]) for prompt in prompts}) >= 20
    assert len(set(prompts)) == 30


async def test_a_server_that_tells_nonsense_does_not_count(in_process: InProcess) -> None:
    """If every prompt has the same count, words are counted instead, and the length is not called exact."""
    server = in_process.server
    server.has_tokenize, server.word_tokens, server.template_tokens = False, lambda _: 0, 3
    await in_process.load(prompt_tokens=100)
    assert in_process.calibrated is not None
    assert in_process.calibrated.prompt == PromptLength(100, None, exact=False, source="words")


async def test_what_a_body_asks_for(in_process: InProcess) -> None:
    """A body asks for an exact length, for ids, usage and a salt of its own."""
    await in_process.load(cache_salt="run-1")
    bodies = in_process.server.bodies
    assert {body["cache_salt"] for body in bodies} == {f"run-1-{number}" for number in range(4)}
    for body in bodies:
        assert (body["max_tokens"], body["min_tokens"], body["ignore_eos"]) == (8, 8, True)
        assert body["return_token_ids"] is True
        assert body["stream_options"] == {"include_usage": True}


async def test_the_same_seed_gives_the_same_prompts(in_process: InProcess) -> None:
    """Seed, run and salt decide the prompts; another run has others."""
    runs = []
    for run_id in ("a", "a", "b"):
        await in_process.load(id=run_id)
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
