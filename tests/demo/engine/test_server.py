"""A simulated server over real HTTP: what clients of a vLLM server rely on."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from sparktop.demo.engine_requests import STOP, tokenize
from sparktop.model.load import EndReason
from tests.demo.quick_engines import QUICK, StartServer, live_engine

MODEL = "openai/gpt-oss-120b"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


async def events(response: aiohttp.ClientResponse) -> list[dict[str, Any]]:
    """Read a stream to its end; its last event must be [DONE]."""
    parts = (await response.read()).decode().split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


async def post(http: aiohttp.ClientSession, url: str, body: object) -> tuple[int, Any]:
    async with http.post(url, json=body) as response:
        return response.status, await response.json()


async def test_a_completion_streams_token_by_token(
    http: aiohttp.ClientSession, start_server: StartServer
) -> None:
    """Ids, text and usage of a streamed completion are consistent; the first event has the prompt's ids."""
    url = await start_server(live_engine(time.monotonic))
    body = {
        "model": MODEL,
        "prompt": "it is a quiet night",
        "max_tokens": 9,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    async with http.post(url + COMPLETIONS, json=body) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert "simulated" in response.headers["Server"]
        found = await events(response)
    choices = [event["choices"][0] for event in found[:-1]]
    ids = [token for choice in choices for token in choice["token_ids"]]
    assert tokenize("".join(choice["text"] for choice in choices)) == ids
    assert len(ids) == 9
    assert choices[0]["prompt_token_ids"] == tokenize("it is a quiet night")
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["length"]
    assert found[-1]["choices"] == []
    assert found[-1]["usage"] == {
        "prompt_tokens": 5,
        "total_tokens": 14,
        "completion_tokens": 9,
        "prompt_tokens_details": None,
    }


async def test_a_chat_begins_with_its_role(http: aiohttp.ClientSession, start_server: StartServer) -> None:
    """The first event of a streamed chat has role and prompt ids, further ones text; usage is on request."""
    url = await start_server(live_engine(time.monotonic))
    body = {
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 4,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
    }
    async with http.post(url + CHAT, json=body) as response:
        first, *rest = await events(response)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len(first["prompt_token_ids"]) == 7
    assert all(event["object"] == "chat.completion.chunk" for event in (first, *rest))
    assert sum(len(event["choices"][0]["token_ids"]) for event in rest) == 4
    assert not any("usage" in event for event in rest)


async def test_without_a_stream_the_answer_is_one_object(
    http: aiohttp.ClientSession, start_server: StartServer
) -> None:
    """Without streaming, the response has text, finish reason and usage; a seed makes it repeatable."""
    url = await start_server(live_engine(time.monotonic))
    body = {"prompt": "a", "max_tokens": 6, "ignore_eos": True, "seed": 4}
    status, first = await post(http, url + COMPLETIONS, body)
    _, again = await post(http, url + COMPLETIONS, body)
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 6, "ignore_eos": True, "seed": 4}
    _, talk = await post(http, url + CHAT, chat)
    assert status == 200
    assert first["choices"][0]["text"] == again["choices"][0]["text"]
    assert talk["choices"][0]["message"]["content"] == first["choices"][0]["text"]
    assert (first["choices"][0]["finish_reason"], first["usage"]["completion_tokens"]) == ("length", 6)


async def test_an_answer_may_end_by_itself_but_not_too_early(
    http: aiohttp.ClientSession, start_server: StartServer
) -> None:
    """Without `ignore_eos` the model stops by itself, after `min_tokens`, with a last token without text."""
    url = await start_server(live_engine(time.monotonic))
    body = {"prompt": "a", "max_tokens": 3000, "min_tokens": 900, "return_token_ids": True}
    _, answer = await post(http, url + COMPLETIONS, body)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] >= 900
    assert choice["token_ids"][-1] == STOP
    assert tokenize(choice["text"]) == choice["token_ids"][:-1]


async def test_a_prompt_that_comes_again_is_cached_under_its_salt(
    http: aiohttp.ClientSession, start_server: StartServer
) -> None:
    """Full blocks of a repeated prompt are cached, but not under another salt."""
    live = live_engine(time.monotonic)
    url = await start_server(live)
    body = {"prompt": "word " * 100, "max_tokens": 2, "ignore_eos": True}
    told = []
    for salt in ("one", "one", "two"):
        _, answer = await post(http, url + COMPLETIONS, {**body, "cache_salt": salt})
        told.append(answer["usage"]["prompt_tokens_details"])
    assert told == [None, {"cached_tokens": 96}, None]
    assert live.engine.tally.prefix_hits == 96


async def test_a_client_that_hangs_up_frees_its_slot(
    http: aiohttp.ClientSession, start_server: StartServer
) -> None:
    """If the client disconnects during its stream, the engine aborts the request."""
    slow = replace(QUICK, cost=replace(QUICK.cost, weights_one_s=0.01, weights_all_s=0.02))
    live = live_engine(time.monotonic, slow)
    ended = asyncio.Event()
    live.engine._on_end = lambda _: ended.set()
    url = await start_server(live)
    body = {"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    async with http.post(url + COMPLETIONS, json=body) as response:
        await response.content.readany()
        response.close()
    await asyncio.wait_for(ended.wait(), 20)
    assert live.engine.tally.ended[EndReason.ABORT] == 1
    assert live.engine.running == 0


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "hi " * 9000}]}, 400),
        (COMPLETIONS, {"prompt": "a", "model": "other"}, 404),
        ("/tokenize", {"prompt": "a", "model": "other"}, 404),
        ("/v1/nothing", {}, 404),
        ("/metrics", {}, 405),
    ],
)
async def test_what_is_refused_has_an_error_object(
    http: aiohttp.ClientSession, start_server: StartServer, path: str, body: dict[str, object], status: int
) -> None:
    """Every refusal is JSON with message, type, param and code, and does not reach the engine."""
    live = live_engine(time.monotonic)
    url = await start_server(live)
    answered, told = await post(http, url + path, body)
    assert answered == status
    assert told["error"]["code"] == status
    assert set(told["error"]) == {"message", "type", "param", "code"}
    assert live.engine.in_flight == ()


async def test_tokenize_counts_what_a_completion_counts(
    http: aiohttp.ClientSession, start_server: StartServer
) -> None:
    """/tokenize counts as many tokens of a prompt or chat as its completion is charged for."""
    url = await start_server(live_engine(time.monotonic))
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello, world!"}]
    for path, body in ((COMPLETIONS, {"prompt": "Hello, world!"}), (CHAT, {"messages": messages})):
        _, counted = await post(http, f"{url}/tokenize", body)
        _, answer = await post(http, url + path, {**body, "max_tokens": 1})
        assert counted["count"] == len(counted["tokens"]) == answer["usage"]["prompt_tokens"]
        assert counted["max_model_len"] == 4096


async def test_the_routes_that_viewers_ask_answer(
    http: aiohttp.ClientSession, start_server: StartServer
) -> None:
    """Metrics, models, version and health answer 200; the version states that it is simulated."""
    url = await start_server(live_engine(time.monotonic))
    got: dict[str, bytes] = {}
    for path in ("/metrics", "/v1/models", "/version", "/health", "/ping"):
        async with http.get(url + path) as response:
            assert response.status == 200
            got[path] = await response.read()
    assert b"vllm:num_requests_running{" in got["/metrics"]
    (model,) = json.loads(got["/v1/models"])["data"]
    assert (model["id"], model["max_model_len"]) == (MODEL, 4096)
    assert "simulated" in json.loads(got["/version"])["version"]


async def test_answers_are_counted_on_the_page(
    http: aiohttp.ClientSession, start_server: StartServer
) -> None:
    """Completions are counted by handler and status; requests for the page are not."""
    url = await start_server(live_engine(time.monotonic))
    await post(http, url + COMPLETIONS, {"prompt": "a", "max_tokens": 1})
    await post(http, url + COMPLETIONS, {"prompt": "a", "max_tokens": 0})
    for _ in range(2):
        async with http.get(f"{url}/metrics") as response:
            page = await response.text()
    line = 'http_requests_total{handler="/v1/completions",method="POST",status="%s"} 1.0'
    assert line % "2xx" in page
    assert line % "4xx" in page
    assert 'handler="/metrics"' not in page


async def test_an_engine_that_goes_away_breaks_its_streams_off(
    http: aiohttp.ClientSession, start_server: StartServer
) -> None:
    """If the engine ends, its streams are cut without [DONE]."""
    slow = replace(QUICK, cost=replace(QUICK.cost, weights_one_s=0.01, weights_all_s=0.02))
    live = live_engine(time.monotonic, slow)
    url = await start_server(live)
    body = {"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    async with http.post(url + COMPLETIONS, json=body) as response:
        await response.content.readany()
        live.close()
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_an_answer_that_is_sent_back_is_found_in_the_prefix_cache(
    http: aiohttp.ClientSession, start_server: StartServer
) -> None:
    """A conversation's second call finds the first prompt and answer in the prefix cache, in full blocks."""
    url = await start_server(live_engine(time.monotonic))
    question = {"role": "user", "content": "the long road to the old stone house " * 12}
    body = {"messages": [question], "max_tokens": 100, "ignore_eos": True}
    _, first = await post(http, url + CHAT, body)
    answer = first["choices"][0]["message"]
    messages = [
        question,
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": "go on"},
    ]
    _, second = await post(http, url + CHAT, {**body, "messages": messages})
    stored = first["usage"]["prompt_tokens"] + 100 - 1
    block = QUICK.block_tokens
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == stored // block * block
