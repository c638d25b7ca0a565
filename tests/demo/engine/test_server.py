"""A simulated server over real HTTP: what clients of a vLLM server rely on.

Requests to a simulated server are read and refused as by vLLM.

A simulated server with several engine cores: distribution of requests, and its page.
"""

from __future__ import annotations

import json
import time
from typing import Any

import aiohttp

from sparktop.demo.engine_requests import (
    tokenize,
)
from tests.demo.quick_engines import StartServer, live_engine

MODEL = "openai/gpt-oss-120b"
COMPLETIONS = "/v1/completions"


async def events(response: aiohttp.ClientResponse) -> list[dict[str, Any]]:
    """Read a stream to its end; its last event must be [DONE]."""
    parts = (await response.read()).decode().split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


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
