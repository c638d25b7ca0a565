"""Ways in which servers behave on the wire, each with what a sweep of it must show: one entry, one fact.

A `StreamServer` serves all of them at once, each below a path of its name. `test_wire_behaviours.py` measures
them with the real command and compares.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.sweep.stream_server import Asked, page

Answer = Callable[[Asked], Awaitable[None]]
Small = Callable[[str, dict[str, str], dict[str, Any]], bytes | None]
STEADY = ("--mode", "steady", "-c", "4", "--duration", "3", "--pp", "24", "--tg", "9", "--runs", "1")
PACED = ("--rate", "4", "--arrivals", "constant", "--duration", "3", "--pp", "24", "--tg", "9", "--runs", "1")
DEEP = ("--depth", "400", "-c", "1", "--pp", "40", "--tg", "9", "--runs", "1")
LONGEST = ("--longest", "-c", "1", "--pp", "400", "--tg", "9", "--runs", "1")
BURST = ("-c", "2", "--pp", "40", "--tg", "9", "--runs", "1")
LONG = 9
"""Tokens that a run asks for; a calibration asks for fewer."""
ONE_FAILED = {"requests.ok": 1, "requests.failed": 1}
ALL_OK = {"requests.ok": 2, "requests.failed": 0, "tokens.generated": 18}


@dataclass(frozen=True)
class Behaviour:
    """One way to behave, and what a sweep shows of it."""

    fact: str
    answer: Answer = field(default=lambda asked: asked.stream())
    small: Small = field(default=lambda _path, _headers, _body: None)
    """The response to requests other than completions; None where it is the usual one."""
    options: tuple[str, ...] = BURST
    """Of the command; behaviours with the same options are targets of one sweep."""
    idle_s: float | None = None
    """Seconds after which an idle connection is closed; None for never."""
    shows: Mapping[str, object] = field(default_factory=lambda: ALL_OK)
    """Values of the last level's result by path, or functions that return whether a value is right. Empty
    where nothing is measured."""
    marks: frozenset[str] = frozenset()
    """Warnings that the level must have."""
    says: tuple[str, ...] = ()
    """Words of the error of the target, or of what the command printed about it."""
    address: str = ""
    """What follows the server's address in the target's URL."""


def plain(text: str) -> str:
    """Return an event as all servers write it."""
    return f"data: {text}\n\n"


def _events(asked: Asked) -> list[dict[str, Any]]:
    tokens = [asked.token(finish="length" if at == asked.tokens - 1 else None) for at in range(asked.tokens)]
    return [*tokens, *([asked.usage()] if asked.body.get("stream_options") else [])]


Part = Callable[[Asked], object]


def all_tokens(*ends: Part, start: Part = Asked.start) -> Answer:
    """Return an answer of a head, all events of a usual one, and these parts in place of its end."""

    async def answer(asked: Asked) -> None:
        start(asked)
        for event in _events(asked):
            asked.event(event)
        for end in ends:
            end(asked)

    return answer


def ends_with(end: str, trailers: str = "", head: str = "") -> Answer:
    """Return an answer whose body ends with this instead of the usual event, then with trailers."""
    return all_tokens(
        lambda asked: asked.chunk(end),
        lambda asked: asked.write(f"0\r\n{trailers}\r\n"),
        start=lambda asked: asked.start(head),
    )


async def no_finish(asked: Asked) -> None:
    """End after all tokens, with neither a finish reason nor the event that ends a stream."""
    asked.start()
    for _ in range(asked.tokens):
        asked.event(asked.token())
    asked.write("0\r\n\r\n")


def first(count: int, status: int, words: str, headers: str = "") -> Answer:
    """Return an answer that refuses the first `count` requests."""

    async def answer(asked: Asked) -> None:
        if asked.number < count:
            asked.refuse(status, words, headers)
        else:
            await asked.stream()

    return answer


Refuse = Callable[[Asked, str], None]


def refuses(names: Sequence[str], refuse: Refuse) -> Answer:
    """Return an answer that refuses requests with any of these fields, one after the other."""

    async def answer(asked: Asked) -> None:
        present = set(asked.body) | set(asked.body.get("stream_options") or {})
        for name in names:
            if name in present:
                refuse(asked, name)
                return
        await asked.stream()

    return answer


def forbidden(asked: Asked, name: str) -> None:
    """Refuse as FastAPI does, which repeats the whole body with all its fields."""
    fault = {"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted"}
    asked.reply(422, {"detail": [{**fault, "input": asked.body.get(name)}], "body": asked.body})


def with_500(asked: Asked, name: str) -> None:
    """Refuse as a fault of the server."""
    asked.refuse(500, f"TypeError: __init__() got an unexpected keyword argument '{name}'")


def with_200(asked: Asked, name: str) -> None:
    """Refuse with 200 and no stream."""
    asked.reply(200, {"error": f"unknown field '{name}'"})


async def other_name_for_length(asked: Asked) -> None:
    """Take the length of an answer under its newer name only, as OpenAI's reasoning models do."""
    if "max_tokens" in asked.body:
        words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
        error = {"message": f"{words}'max_completion_tokens' instead.", "param": "max_tokens"}
        asked.reply(400, {"error": error})
    else:
        await asked.stream()


def always(status: int, body: object, headers: str = "") -> tuple[Answer, Small]:
    """Return answers with the same page to every request."""

    async def answer(asked: Asked) -> None:
        asked.reply(status, body, headers)

    return answer, lambda _path, _headers, _body: page(status, body, headers)


async def early_hints(asked: Asked) -> None:
    """Write two interim answers before the final one."""
    asked.write("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
    await asked.stream()


async def as_http_1_0(asked: Asked) -> None:
    """Answer as HTTP/1.0 does: no length, and the connection closes at the end."""
    asked.write("HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    for event in _events(asked):
        asked.write(plain(json.dumps(event)))
    asked.write("data: [DONE]\n\n")
    asked.close = True


async def in_brotli(asked: Asked) -> None:
    """Pack the answer in a way that was not asked for."""
    asked.start("Content-Encoding: br\r\n")
    asked.chunk(b"\x8b\x02\x80data: {}")
    asked.write("0\r\n\r\n")


async def whole(asked: Asked) -> None:
    """Answer as through a proxy that keeps everything until the end."""
    await asyncio.sleep(0.1)
    asked.start()
    asked.chunk("".join(plain(json.dumps(event)) for event in _events(asked)) + "data: [DONE]\n\n")
    asked.write("0\r\n\r\n")


async def past_the_length(asked: Asked) -> None:
    """Go on for as many tokens again as were asked for."""
    asked.start()
    for _ in range(2 * asked.tokens - 1):
        asked.event(asked.token())
        await asked.server.step()
    asked.event(asked.token(finish="length"))
    asked.event(asked.usage(2 * asked.tokens))
    asked.end()


def parts(*texts: str) -> Answer:
    """Return an answer of these parts of a body, with the head of a stream."""

    async def answer(asked: Asked) -> None:
        asked.start()
        for text in texts:
            asked.chunk(text)
        asked.write("0\r\n\r\n")

    return answer


def breaks_off(fact: str, *last: Callable[[Asked], object]) -> Behaviour:
    """Return that each second request of a run is answered with four tokens and these events."""

    async def answer(asked: Asked) -> None:
        if asked.tokens < LONG or asked.number % 2:
            await asked.stream()
            return
        asked.start()
        for _ in range(4):
            asked.event(asked.token())
        for event in last:
            asked.event(event(asked))
        asked.end()

    return Behaviour(fact, answer, shows=ONE_FAILED, marks=frozenset({"errors"}))


def finished_with(reason: object) -> Callable[[Asked], object]:
    """Return an event that ends an answer for a reason of any JSON type."""

    def event(asked: Asked) -> object:
        told = asked.token()
        told["choices"][0]["finish_reason"] = reason
        return told

    return event


STREAMS: dict[str, Behaviour] = {
    "created": Behaviour(
        "each status of success is one",
        all_tokens(
            Asked.end,
            start=lambda asked: asked.write("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ),
    ),
    "whole": Behaviour(
        "an answer that comes in one piece has no rate of decoding, and a doubtful TTFT",
        whole,
        shows=ALL_OK | {"itl_ms": None, "decode_tps": None},
        marks=frozenset({"bursts"}),
    ),
    "past-the-length": Behaviour(
        "answers longer than asked for are no like those of other servers",
        past_the_length,
        shows={"requests.ok": 2, "tokens.generated": 36},
        marks=frozenset({"long_output"}),
    ),
    "early-hints": Behaviour("answers before the final one are none", early_hints),
    "trailers": Behaviour(
        "what follows the end of a stream, also a second end, is no part of it",
        ends_with("data: [DONE]\n\ndata: [DONE]\n\n: bye\n\n", "X-Tokens: 9\r\n", "Trailer: X-Tokens\r\n"),
    ),
    "http-1.0": Behaviour("an answer may end with its connection", as_http_1_0),
    "no-done": Behaviour("a finish reason ends a stream", ends_with(": bye\n\n")),
    "open-done": Behaviour("the last event may lack its empty line", ends_with("data: [DONE]\n")),
    "error-after-tokens": breaks_off(
        "an event without an answer is an error under any of its names, also after tokens",
        lambda _asked: {"detail": "upstream gone"},
    ),
    "aborted": breaks_off(
        "the reason of an end may be an object",
        finished_with({"type": "abort", "message": "engine died"}),
        Asked.usage,
    ),
    "timed-out": breaks_off("what the server gave up is no answer", finished_with("timeout"), Asked.usage),
    "no-finish": Behaviour(
        "an answer whose framing is complete and that has all its tokens is whole", no_finish
    ),
}

REFUSALS: dict[str, Behaviour] = {
    "too-many-once": Behaviour(
        "a refusal with a time to retry is waited for, with a line that says so",
        first(1, 429, "slow down", "Retry-After: 1\r\n"),
        says=("HTTP 429: slow down", "asked again in 1 s"),
    ),
    "busy-once": Behaviour(
        "a server that is busy for a moment is tried again", first(1, 503, "no slot free")
    ),
    "forbidden": Behaviour(
        "of a body that is repeated only the field at fault is left out",
        refuses(["cache_salt"], forbidden),
        shows=ALL_OK | {"tokens_from": "token_ids"},
    ),
    "with-500": Behaviour(
        "a field may be refused as a fault of the server",
        refuses(["cache_salt", "return_token_ids"], with_500),
        shows=ALL_OK | {"tokens_from": "usage"},
    ),
    "with-200": Behaviour(
        "a field may be refused in a whole answer with status 200",
        refuses(["return_token_ids"], with_200),
        shows=ALL_OK | {"tokens_from": "usage"},
    ),
    "max-completion-tokens": Behaviour(
        "the length may have to be asked for by its newer name", other_name_for_length
    ),
}


def unable(fact: str, answer: Answer, *says: str, small: Small = lambda *_: None) -> Behaviour:
    """Return that no level is measured: the target has an error with these words."""
    return Behaviour(fact, answer, small, shows={}, says=says)


def shut(fact: str, page: tuple[Answer, Small], *says: str) -> Behaviour:
    """Return the same of a server that has this page for every request."""
    return unable(fact, page[0], *says, small=page[1])


UNUSABLE: dict[str, Behaviour] = {
    "too-many-always": unable(
        "a server that refuses everything is named with its words",
        always(429, {"error": {"message": "quota exceeded"}}, "Retry-After: 0\r\n")[0],
        *("HTTP 429", "quota exceeded"),
    ),
    "moved": shut(
        "a redirect keeps its status and its goal, and is not followed",
        always(308, "", "Location: https://gate.example/llm/v1\r\n"),
        *("308", "https://gate.example/llm/v1"),
    ),
    "one-interface": unable(
        "a server without the route that is asked says how to ask another",
        always(404, {"detail": "Not Found"})[0],
        *("no such route (HTTP 404)", "--api completions"),
    ),
    "locked": shut(
        "a server that wants a key says how to give one",
        always(401, {"error": {"message": "Unauthorized"}}),
        *("401", "wants a key", "--api-key-env"),
    ),
    "web-page": shut(
        "a web page is named as one",
        always(200, "<!doctype html><title>Open WebUI</title>"),
        *("web page", "URL"),
    ),
    "error-in-words": unable(
        "an error event may have plain words",
        parts("event: error\ndata: engine is overloaded\n\n"),
        *("an error", "engine is overloaded"),
    ),
    "error-as-detail": unable(
        "a stream that has an error and no token has one under any of its names",
        parts('data: {"detail": "engine is overloaded"}\n\n'),
        *("an error", "engine is overloaded"),
    ),
    "message-with-200": unable(
        "an error with status 200 keeps its words under any of its names",
        always(200, {"code": 429, "message": "engine is overloaded"})[0],
        *("an error", "engine is overloaded"),
    ),
    "words-with-200": unable(
        "words that are neither a stream nor JSON are quoted",
        parts("engine is overloaded\n"),
        *("without an event stream", "engine is overloaded"),
    ),
    "brotli": unable("a packing that was not asked for is named", in_brotli, "packed as 'br'"),
    "pasted": Behaviour(
        "the address of a completion is taken as its server's",
        address="/v1/chat/completions",
        says=("/v1/chat/completions",),
    ),
}


def counts(used: Callable[[Asked], tuple[int, int]]) -> Answer:
    """Return a usual answer with these counts of its tokens, of prompt and answer."""

    async def answer(asked: Asked) -> None:
        asked.start()
        for at in range(asked.tokens):
            asked.event(asked.token(finish="length" if at == asked.tokens - 1 else None))
            await asked.server.step()
        prompt, generated = used(asked)
        asked.event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": generated}})
        asked.end()

    return answer


def no_tokenizer(path: str, _headers: dict[str, str], _body: dict[str, Any]) -> bytes | None:
    """Answer as a server that does not count texts."""
    return page(404, {"detail": "Not Found"}) if path.endswith("/tokenize") else None


async def uncounted(asked: Asked) -> None:
    """Answer without any count, three tokens in each write."""
    asked.start()
    for at in range(0, asked.tokens, 3):
        left = min(3, asked.tokens - at)
        last = at + left == asked.tokens
        events = [
            asked.token(None, finish="length" if last and one == left - 1 else None) for one in range(left)
        ]
        asked.chunk("".join(plain(json.dumps(event)) for event in events))
        await asked.writer.drain()
        await asked.server.step()
    asked.end()


COUNTS: dict[str, Behaviour] = {
    "cut-prompt": Behaviour(
        "a prompt that the server cut is not the prompt that was asked for",
        counts(lambda asked: (min(15, asked.prompt_tokens), asked.tokens)),
        no_tokenizer,
        shows=ALL_OK | {"asked_prompt_tokens": 40.0, "counted_prompt_tokens": 15.0},
        marks=frozenset({"short_prompt"}),
        says=("15", "40"),
    ),
    "damaged-count": Behaviour(
        "a count that no request has is none",
        counts(lambda _asked: (10**30, 10**30)),
        shows=ALL_OK | {"tokens_from": "token_ids"},
    ),
    "uncounted": Behaviour(
        "without counts there is no time between tokens",
        uncounted,
        no_tokenizer,
        shows={"requests.ok": 2, "tokens_from": "chunks", "itl_ms": None},
        marks=frozenset({"uncounted_tokens"}),
    ),
}


async def refuses_some(asked: Asked) -> None:
    """Refuse each fifth request at once, and answer the others in a third of a second."""
    if asked.number % 5 == 4:
        asked.refuse(500, "engine is full")
        return
    await asyncio.sleep(0.3)
    await asked.stream()


async def slowly(asked: Asked) -> None:
    """Answer a tenth of a second after the request."""
    await asyncio.sleep(0.1)
    await asked.stream()


def within(context: int, words: str, status: int = 400) -> Answer:
    """Return an answer that refuses what is longer than its context, prompt and answer together."""

    async def answer(asked: Asked) -> None:
        given = asked.prompt_tokens
        if given + asked.tokens <= context:
            await asked.stream()
        elif status == 200:
            asked.start()
            asked.write("")
            asked.chunk(f"event: error\ndata: {json.dumps({'error': {'message': words.format(given)}})}\n\n")
            asked.write("0\r\n\r\n")
        else:
            asked.refuse(status, words.format(given))

    return answer


_TGI = "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 256. Given: {} `inputs` tokens"
_LM_STUDIO = (
    "Trying to keep the first {} tokens when context the overflows. However, the model is loaded with "
    "context length of only 256 tokens, which is not enough"
)
_FITS = {"pp": 247, "requests.ok": 1, "error": None}

LENGTHS: dict[str, Behaviour] = {
    "longest-tgi": Behaviour(
        "the longest prompt is found without a route that counts",
        within(256, _TGI, 422),
        no_tokenizer,
        options=LONGEST,
        shows=_FITS,
    ),
    "longest-lm-studio": Behaviour(
        "a limit may be refused inside a stream",
        within(256, _LM_STUDIO, 200),
        no_tokenizer,
        options=LONGEST,
        shows=_FITS,
    ),
    "deep": Behaviour(
        "of a context that came out shorter only the counted part is subtracted",
        slowly,
        no_tokenizer,
        options=DEEP,
        shows={
            "requests.ok": 1,
            "prefill_tps.mean": lambda tps: tps is not None and 0 < tps <= 40 / 0.1,
            "context.counted_tokens": lambda tokens: tokens > 0,
        },
    ),
}

PACES: dict[str, Behaviour] = {
    "refuses-some": Behaviour(
        "a rate over windows of a tenth of a second is none",
        refuses_some,
        options=STEADY,
        # On a busy machine a request may take longer than a second, and so may a window.
        shows={
            "sustained_tps.mean": lambda tps: tps is None or tps > 1,
            "output_tps.mean": lambda tps: tps > 0,
        },
        marks=frozenset({"errors"}),
    ),
    "closes-idle": Behaviour(
        "a connection that the server closed while it was idle is no failure of its",
        options=PACED,
        idle_s=0.25,
        shows={"requests.failed": 0, "requests.ok": 12},
    ),
}

BEHAVIOURS = LENGTHS | PACES | STREAMS | REFUSALS | UNUSABLE | COUNTS
