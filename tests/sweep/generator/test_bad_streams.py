"""Servers that behave badly: each way ends in its own count, and the other requests' figures stay right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sparktop.sweep.generator import exchange
from sparktop.sweep.generator.wire import WorkerTarget
from sparktop.sweep.plan.plan import Timeouts
from sparktop.sweep.terms.request_errors import RequestFailure, count_errors
from tests.sweep.conftest import GOOD, QUICK, InProcess, Loaded, figures
from tests.sweep.stream_server import Asked


def only_failure(loaded: Loaded) -> RequestFailure:
    """Return the failure of a run whose requests all failed in the same way."""
    failures = {end.error for end in loaded.ends}
    messages = {failure.message for failure in failures if failure is not None}
    assert len(messages) == 1
    failure = failures.pop()
    assert isinstance(failure, RequestFailure)
    return failure


async def test_every_fifth_request_fails(in_process: InProcess) -> None:
    """A status 500 to every fifth request is counted, with the server's words; the rest is measured."""

    async def behave(asked: Asked) -> None:
        if asked.number % 5 == 4:
            asked.refuse(500, "CUDA error: \x1b[31mout of memory")
        else:
            await asked.stream()

    loaded = await in_process.load(behave, concurrency=20)
    assert count_errors(loaded.events) == {"http:500": 4}
    assert figures(loaded) == {"ok": 16, "tokens": 128}
    messages = {end.error.message for end in loaded.ends if end.error is not None}
    where = f"127.0.0.1:{in_process.server.port}"
    assert messages == {f"{where} answered with HTTP 500: CUDA error: [31mout of memory"}
    assert in_process.server.asked == 20


@pytest.mark.parametrize(
    ("tokens", "timeouts", "word"),
    [
        (0, Timeouts(first_token_s=0.2), "timeout:first_token"),
        (3, Timeouts(between_tokens_s=0.2), "timeout:between_tokens"),
        (3, Timeouts(whole_s=0.2), "timeout:whole"),
    ],
)
async def test_a_server_that_hangs(in_process: InProcess, tokens: int, timeouts: Timeouts, word: str) -> None:
    """Hanging before the first token, between tokens and for too long altogether are three failures."""

    async def behave(asked: Asked) -> None:
        if asked.number:
            await asked.stream()
            return
        asked.start()
        for _ in range(tokens):
            asked.event(asked.token())
        await asked.server.hang()

    loaded = await in_process.load(behave, timeouts=timeouts)
    assert count_errors(loaded.events) == {word: 1}
    assert figures(loaded) == {"ok": 3, "tokens": 24 + tokens}


async def test_connections_that_are_cut(in_process: InProcess) -> None:
    """A stream cut in mid-token is truncated; a connection closed without an answer is disconnected."""

    async def behave(asked: Asked) -> None:
        if asked.number == 0:
            asked.start()
            asked.event(asked.token())
            asked.write('1000\r\ndata: {"choices":[')
            await asked.writer.drain()
        elif asked.number > 1:
            await asked.stream()
        asked.close = asked.number < 2

    loaded = await in_process.load(behave)
    assert count_errors(loaded.events) == {"truncated": 1, "disconnected": 1}
    assert figures(loaded) == {"ok": 2, "tokens": 17}


async def test_an_error_inside_a_good_stream(in_process: InProcess) -> None:
    """An error event fails its request with the server's words; the tokens before it stay counted."""

    async def behave(asked: Asked) -> None:
        if asked.number:
            await asked.stream()
            return
        asked.start()
        asked.event(asked.token())
        asked.event({"error": {"message": "engine dead", "code": 500}})
        asked.end()

    loaded = await in_process.load(behave)
    assert count_errors(loaded.events) == {"error_event": 1}
    assert figures(loaded) == {"ok": 3, "tokens": 25}
    assert "engine dead" in next(end.error.message for end in loaded.ends if end.error is not None)


@pytest.mark.parametrize(
    ("router", "headers", "words", "word"),
    [
        (True, "Retry-After: 5\r\n", "slow down", "router_rejection"),
        (True, "Retry-After: 5\r\nx-litellm-model-id: spark-a\r\n", "slow down", "http:429"),
        (
            True,
            "x-litellm-model-id: x\r\n",
            "No deployments available for selected model",
            "router_rejection",
        ),
        (False, "Retry-After: 5\r\n", "slow down", "http:429"),
    ],
)
async def test_too_many_requests(
    in_process: InProcess,
    router: bool,  # noqa: FBT001 - one column of the table above
    headers: str,
    words: str,
    word: str,
) -> None:
    """A 429 of a router, of a backend behind it and of a server are distinguished; none is sent again."""

    async def behave(asked: Asked) -> None:
        asked.refuse(429, words, headers)

    target = WorkerTarget(in_process.server.url, "tiny", router=router)
    loaded = await in_process.load(behave, target=target)
    assert count_errors(loaded.events) == {word: 4}
    assert in_process.server.asked == 4


@pytest.mark.parametrize(
    ("say", "word"),
    [
        (lambda asked: asked.refuse(404, "The model `tiny` does not exist."), "wrong_model"),
        (lambda asked: asked.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), "no_stream"),
        (lambda asked: asked.write("220 mail ready\r\n\r\n"), "malformed"),
        (lambda asked: (asked.start(), asked.end()), "no_tokens"),
        (lambda asked: (asked.start(), asked.event(asked.token(finish="abort")), asked.end()), "error_event"),
    ],
)
async def test_answers_of_no_use(in_process: InProcess, say: Callable[[Asked], object], word: str) -> None:
    """A missing model, no stream, HTTP, JSON or token, and an aborted request have an error word each."""

    async def behave(asked: Asked) -> None:
        say(asked)
        await asked.writer.drain()

    loaded = await in_process.load(behave)
    assert count_errors(loaded.events) == {word: 4}
    assert len(only_failure(loaded).message) < 200


async def test_a_body_that_never_ends(in_process: InProcess) -> None:
    """A server that does not stop after the tokens asked for is stopped by the client."""

    async def behave(asked: Asked) -> None:
        asked.start()
        while not asked.writer.is_closing():
            asked.event(asked.token())
            await asked.writer.drain()
            await asked.server.step()

    loaded = await in_process.load(behave)
    assert count_errors(loaded.events) == {"endless": 4}


async def test_an_error_whose_body_never_ends(in_process: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A status without the end of its body is a failure with the words that came."""
    monkeypatch.setattr(exchange, "_WORDS_S", 0.2)

    async def behave(asked: Asked) -> None:
        asked.write("HTTP/1.1 500 No\r\nContent-Length: 1000\r\n\r\nbroken down")
        await asked.server.hang()

    loaded = await in_process.load(behave, concurrency=1)
    assert only_failure(loaded).message.endswith("HTTP 500: broken down")


async def test_a_model_name_full_of_escapes(in_process: InProcess) -> None:
    """A name that holds escapes is sent as it is, and cleaned wherever it is reported."""
    name = 'ti\x1b[31mny\n"\\u0000é\u202e'
    in_process.server.models = (name,)
    loaded = await in_process.load(target=WorkerTarget(in_process.server.url, None))
    assert figures(loaded) == GOOD
    assert {body["model"] for body in in_process.server.bodies} == {name}
    assert in_process.calibrated is not None
    assert in_process.calibrated.model == name
    assert in_process.calibrated.answered_model == 'ti [31mny "\\u0000é'


async def test_a_key_that_comes_back_in_a_stream(in_process: InProcess) -> None:
    """Nor does one of an error inside a stream, as it is, backwards or encoded."""
    key = "sk-secret-1"

    async def behave(asked: Asked) -> None:
        asked.start()
        asked.event({"error": {"message": f"{key} {key[::-1]} {key.encode().hex()}"}})
        asked.end()

    target = WorkerTarget(in_process.server.url, "tiny", api_key=key)
    loaded = await in_process.load(behave, target=target)
    message = only_failure(loaded).message
    assert only_failure(loaded).word == "error_event"
    assert not any(form in message for form in (key, key[::-1], key.encode().hex()))


async def test_nothing_is_left_open(in_process: InProcess) -> None:
    """After a run with failures of every kind the server sees all connections closed."""

    async def behave(asked: Asked) -> None:
        match asked.number % 3:
            case 0:
                asked.refuse(503, "loading")
            case 1:
                asked.start()
                await asked.server.hang()
            case _:
                await asked.stream()

    limits = Timeouts(QUICK.connect_s, 0.2, 0.2, 1.0)
    loaded = await in_process.load(behave, concurrency=30, timeouts=limits)
    assert count_errors(loaded.events) == {"http:503": 10, "timeout:first_token": 10}
    in_process.server.held.set()
    async with asyncio.timeout(300):
        await in_process.server.all_gone.wait()
