"""Servers that behave badly: each way ends in its own count, and the other requests' figures stay right.

Streams of unusual form that are correct: every token is counted once, by the best count reported.

What a server is asked for so that tokens can be counted, and what follows when it refuses.

What refusals say: the field at fault, and the context that a prompt exceeds, engine by engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sparktop.model.failure import RequestFailure
from sparktop.model.load import TokenSource
from sparktop.sweep.generator import exchange
from sparktop.sweep.generator.wire import WorkerTarget
from sparktop.sweep.plan.plan import Timeouts
from sparktop.sweep.terms.request_errors import count_errors, faulty_fields, is_too_long, stated_context
from tests.known import known
from tests.sweep.conftest import GOOD, QUICK, InProcess, Loaded, figures
from tests.sweep.stream_server import Asked, Behave


def only_failure(loaded: Loaded) -> RequestFailure:
    """Return the failure of a run whose requests all failed in the same way."""
    (failure,) = {
        (known(end.error).word, known(end.error).message): known(end.error) for end in loaded.ends
    }.values()
    return failure


def hangs_after(tokens: int) -> Behave:
    """Return an answer that sends so many tokens, then nothing more."""

    async def behave(asked: Asked) -> None:
        asked.start()
        for _ in range(tokens):
            asked.event(asked.token())
        await asked.server.hang()

    return behave


async def cut_in_a_token(asked: Asked) -> None:
    asked.start()
    asked.event(asked.token())
    asked.write('1000\r\ndata: {"choices":[')
    await asked.writer.drain()
    asked.close = True


async def closed(asked: Asked) -> None:
    asked.close = True


async def endless(asked: Asked) -> None:
    asked.start()
    while not asked.writer.is_closing():
        asked.event(asked.token())
        await asked.writer.drain()
        await asked.server.step()


def says(*parts: Callable[[Asked], object]) -> Behave:
    """Return an answer of these parts."""

    async def behave(asked: Asked) -> None:
        for part in parts:
            part(asked)
        await asked.writer.drain()

    return behave


DEAD = {"error": {"message": "engine dead", "code": 500}}
dies = says(Asked.start, lambda asked: asked.event(asked.token()), lambda asked: asked.event(DEAD))
aborts = says(Asked.start, lambda asked: asked.event(asked.token(finish="abort")), Asked.end)
other_model = says(lambda asked: asked.refuse(404, "The model `tiny` does not exist."))
no_stream = says(lambda asked: asked.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))


@pytest.mark.parametrize(
    ("bad", "timeouts", "word", "tokens", "words"),
    [
        (hangs_after(0), Timeouts(first_token_s=2.0), "timeout:first_token", 0, "within 2 s"),
        (hangs_after(3), Timeouts(between_tokens_s=2.0), "timeout:between_tokens", 3, "no token for 2 s"),
        (hangs_after(3), Timeouts(whole_s=2.0), "timeout:whole", 3, "within 2 s"),
        (cut_in_a_token, QUICK, "truncated", 1, "broke off after 1 token"),
        (closed, QUICK, "disconnected", 0, "without an answer"),
        (endless, QUICK, "endless", None, "does not stop"),
        (dies, QUICK, "error_event", 1, "engine dead"),
        (other_model, QUICK, "wrong_model", 0, ""),
        (no_stream, QUICK, "no_stream", 0, ""),
        (says(lambda asked: asked.write("220 mail ready\r\n\r\n")), QUICK, "malformed", 0, ""),
        (says(Asked.start, Asked.end), QUICK, "no_tokens", 0, ""),
        (aborts, QUICK, "error_event", 1, "abort"),
    ],
)
async def test_one_bad_answer_is_counted_and_the_others_are_measured(
    in_process: InProcess, bad: Behave, timeouts: Timeouts, word: str, tokens: int | None, words: str
) -> None:
    """Each way to fail has a word and a message; tokens that came count, and so do the other requests."""

    async def behave(asked: Asked) -> None:
        await (asked.stream() if asked.number else bad(asked))

    loaded = await in_process.load(behave, timeouts=timeouts)
    assert count_errors(loaded.events) == {word: 1}
    (message,) = (end.error.message for end in loaded.ends if end.error is not None)
    assert words in message
    assert len(message) < 200
    counted = figures(loaded)
    assert counted["ok"] == 3
    assert tokens is None or counted["tokens"] == 24 + tokens


async def test_a_model_name_full_of_escapes(in_process: InProcess) -> None:
    """A name that holds escapes is sent as it is, and cleaned wherever it is reported."""
    name = 'ti\x1b[31mny\n"\\u0000é\u202e'
    in_process.server.models = (name,)
    loaded = await in_process.load(target=WorkerTarget(in_process.server.url, None))
    assert figures(loaded) == GOOD
    assert {body["model"] for body in in_process.server.bodies} == {name}
    assert known(in_process.calibrated).model == name


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


FIELDS = frozenset({"cache_salt", "ignore_eos", "min_tokens", "stream_options", "max_tokens"})

TOO_LONG = {
    "vllm-0.32": (
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context "
            "length is 8192 tokens and your request has 500 input tokens (9000 > 8192 - 500)."
        ),
        8192,
    ),
    "sglang": ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", 4096),
    "lm-studio": (
        (
            "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded "
            "with context length of only 4096 tokens, which is not enough."
        ),
        4096,
    ),
    "llama.cpp": (
        "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
        4096,
    ),
    "anthropic": ("prompt is too long: 120000 tokens > 100000 maximum", 100_000),
    "mistral": (
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        32768,
    ),
    "cohere": (
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292.",
        4081,
    ),
    "trtllm": (
        (
            "The sum of prompt length (9000.0), query length (0) max_tokens (100) should not exceed "
            "max_seq_len (4096)"
        ),
        4096,
    ),
    "google": ("The input token count (5000) exceeds the maximum number of tokens allowed (4096).", 4096),
    "limit-of": ("input tokens exceed the configured limit of 4096 tokens", 4096),
    "token-limit": ("Your prompt of 5000 tokens is larger than the 4096 token limit", 4096),
    "commas": ("maximum context length is 131,072 tokens, however you requested 140,000", 131_072),
}


@pytest.mark.parametrize("engine", TOO_LONG)
def test_every_engine_says_what_its_context_is(engine: str) -> None:
    """The limit is read from the sentence, not the length that was asked for."""
    words, limit = TOO_LONG[engine]
    assert is_too_long(words)
    assert stated_context(words) == limit


@pytest.mark.parametrize(
    "words",
    [
        "context deadline exceeded",
        "CUDA error: out of memory",
        "max_tokens must be at most 4096",
        "rate limit of 10000 tokens a minute exceeded",
        "Request too large for model x on tokens per minute (TPM): Limit 6000, Requested 9000",
        "the limit of 6000 tokens per minute is reached",
        "unknown field 'cache_salt'",
        "model overloaded, 1200 requests are ahead",
    ],
)
def test_other_refusals_are_not_of_the_context(words: str) -> None:
    """A refusal that says nothing of a context is none of a prompt that is too long."""
    assert not is_too_long(words)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"error": {"message": "no", "param": "stream_options.continuous_usage_stats"}}, set()),
        ({"error": {"message": "no 'ignore_eos'", "param": "cache_salt"}}, {"cache_salt"}),
        (
            {
                "detail": [{"loc": ["body", "min_tokens"]}, {"loc": ["body", "cache_salt"]}],
                "body": {"ignore_eos": True},
            },
            {"min_tokens", "cache_salt"},
        ),
        ({"detail": "Unrecognized: `min_tokens`, supported are `ignore_eos`"}, {"min_tokens"}),
        ({"error": "cache_salt is not known here, ignore_eos is"}, {"cache_salt"}),
        (
            {"error": "[{'loc': ('body', 'cache_salt'), 'msg': 'forbidden', 'input': {'ignore_eos': True}}]"},
            {"cache_salt"},
        ),
        ({"error": {"message": "max_tokens_per_day reached"}}, set()),
        ('no JSON, but "ignore_eos" in it', {"ignore_eos"}),
        ({"error": None, "detail": None}, set()),
        ([1, 2], set()),
    ],
)
def test_the_field_at_fault_is_the_one_that_is_named_so(body: object, named: set[str]) -> None:
    """`param` and `loc` name it; else the first in quotes; else the first at all."""
    raw = body if isinstance(body, str) else json.dumps(body)
    assert faulty_fields(raw.encode(), FIELDS) == named


async def test_a_server_that_refuses_running_totals_keeps_the_rest(in_process: InProcess) -> None:
    """The part is left out, not named; the total at the end is still asked for, and no request fails."""

    async def behave(asked: Asked) -> None:
        if "continuous_usage_stats" in (asked.body.get("stream_options") or {}):
            asked.refuse(400, "bad request")
        else:
            await asked.stream(ids=False)

    in_process.server.behave = behave
    loaded = await in_process.load()
    assert count_errors(loaded.events) == {}
    assert all(body["stream_options"] == {"include_usage": True} for body in in_process.server.bodies)
    assert set(known(in_process.calibrated).dropped_fields) == {"continuous_usage_stats"}
    assert {end.token_source for end in loaded.ends} == {TokenSource.USAGE}
    assert figures(loaded) == GOOD


async def test_an_error_whose_body_never_ends(in_process: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A status without the end of its body is a failure with the words that came."""
    monkeypatch.setattr(exchange, "_WORDS_S", 0.2)

    async def behave(asked: Asked) -> None:
        asked.write("HTTP/1.1 500 No\r\nContent-Length: 1000\r\n\r\nbroken down")
        await asked.server.hang()

    loaded = await in_process.load(behave, concurrency=1)
    assert only_failure(loaded).message.endswith("HTTP 500: broken down")
