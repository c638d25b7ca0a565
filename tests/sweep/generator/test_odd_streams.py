"""Streams of unusual form that are correct: every token is counted once, by the best count reported."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest

from sparktop.model.load import EndReason, FirstToken, Level, ResponseStarted, Tokens, TokenSource
from sparktop.sweep.generator.wire import WorkerTarget
from sparktop.sweep.plan.plan import Api
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from tests.sweep.conftest import GOOD, InProcess, figures
from tests.sweep.stream_server import Asked, Behave


async def split_anywhere(asked: Asked) -> None:
    asked.start()
    events = [asked.token(text="é😀") for _ in range(7)] + [asked.token(finish="length"), asked.usage()]
    raw = "".join(f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events).encode()
    for at in range(0, len(raw), 7):
        asked.chunk(raw[at : at + 7])
        await asked.writer.drain()
        await asked.server.step()
    asked.end()


async def four_tokens_a_chunk(asked: Asked) -> None:
    asked.start()
    asked.event(asked.token((1, 2, 3, 4), text=" a b c d"))
    await asked.server.step()
    asked.event(asked.token((5, 6, 7, 8), text=" e f g h", finish="length"))
    asked.event(asked.usage())
    asked.end()


async def packed(asked: Asked) -> None:
    events = [asked.token() for _ in range(7)] + [asked.token(finish="length"), asked.usage()]
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    asked.start("Content-Encoding: gzip\r\n")
    raw = gzip.compress(text.encode())
    for at in range(0, len(raw), 50):
        asked.chunk(raw[at : at + 50])
        await asked.server.step()
    asked.write("0\r\n\r\n")


async def ids_without_text(asked: Asked) -> None:
    asked.start()
    asked.event({**asked.token(None, text=""), "prompt_token_ids": list(range(3000))})
    for index in range(8):
        asked.event(asked.token(text="", finish="length" if index == 7 else None))
    asked.event(asked.usage())
    asked.end()


async def until_the_connection_closes(asked: Asked) -> None:
    asked.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    for index in range(8):
        finish = "length" if index == 7 else None
        asked.write(f"data: {json.dumps(asked.token(finish=finish))}\n\n")
    await asked.writer.drain()
    asked.close = True


@pytest.mark.parametrize(
    ("behave", "api"),
    [
        (split_anywhere, Api.COMPLETIONS),
        (four_tokens_a_chunk, Api.CHAT),
        (packed, Api.CHAT),
        (ids_without_text, Api.COMPLETIONS),
        (until_the_connection_closes, Api.CHAT),
    ],
)
async def test_odd_but_right_streams(in_process: InProcess, behave: Behave, api: Api) -> None:
    """Whatever the form of a stream, all its tokens are counted, none twice, by their ids."""
    loaded = await in_process.load(behave, target=WorkerTarget(in_process.server.url, "tiny", api))
    assert [end.error for end in loaded.ends] == [None] * 4
    assert figures(loaded) == GOOD
    assert {end.token_source for end in loaded.ends} == {TokenSource.TOKEN_IDS}
    assert {end.reason for end in loaded.ends} == {EndReason.LENGTH}


async def test_reasoning_comes_first(in_process: InProcess) -> None:
    """Reasoning tokens count from the first on; the first token of the answer is recorded separately."""

    async def behave(asked: Asked) -> None:
        asked.start()
        asked.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        await asked.server.step()
        for index in range(8):
            key = "reasoning_content" if index < 5 else "content"
            finish = "length" if index == 7 else None
            asked.event({"choices": [{"index": 0, "delta": {key: "hm"}, "finish_reason": finish}]})
            await asked.writer.drain()
            await asked.server.step()
        asked.event(asked.usage())
        asked.end()

    loaded = await in_process.load(behave, concurrency=1)
    assert [event.reasoning for event in loaded.events if isinstance(event, FirstToken)] == [True]
    # Reads may hold several events, so the answer's tokens are looked at from the end.
    assert [event for event in loaded.events if isinstance(event, Tokens)][-1].reasoning is False
    found = level_result(Level("server", 1, 40, 8), collect(loaded.events))
    assert found.tokens.generated == 8
    assert found.first_answer_ms is not None
    assert found.ttft_ms is not None
    assert found.first_answer_ms.mean >= found.ttft_ms.mean
    assert [event for event in loaded.events if isinstance(event, ResponseStarted)]


async def test_no_usage_and_no_ids(in_process: InProcess) -> None:
    """Without ids and usage each chunk is a token and the result says so; with usage its total counts."""
    loaded = await in_process.load(lambda asked: asked.stream(ids=False, usage=False))
    assert {end.token_source for end in loaded.ends} == {TokenSource.CHUNKS}
    assert {end.generated_tokens for end in loaded.ends} == {None}
    assert figures(loaded) == GOOD

    async def two_a_chunk(asked: Asked) -> None:
        asked.start()
        for index in range(4):
            asked.event(asked.token(None, text="ab", finish="length" if index == 3 else None))
            await asked.server.step()
        asked.event(asked.usage(8))
        asked.end()

    in_process.server.behave = lambda asked: asked.stream()
    loaded = await in_process.load(two_a_chunk)
    assert {end.token_source for end in loaded.ends} == {TokenSource.USAGE}
    assert figures(loaded) == GOOD


async def test_who_answered(in_process: InProcess) -> None:
    """The backend comes from the router's header, else from its address there; bins are kept for each."""

    async def behave(asked: Asked) -> None:
        name = "x-litellm-model-id: spark-a" if asked.number % 2 else "x-litellm-model-api-base: http://b"
        await asked.stream(headers=f"{name}\r\n")

    loaded = await in_process.load(behave)
    assert Counter(end.served_by for end in loaded.ends) == {"spark-a": 2, "http://b": 2}
    tokens: Counter[str | None] = Counter()
    for (_, served_by), count in loaded.record.bins.items():
        tokens[served_by] += count
    assert tokens == {"spark-a": 16, "http://b": 16}
