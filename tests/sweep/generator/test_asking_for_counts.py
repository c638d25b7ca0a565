"""What a server is asked for so that tokens can be counted, and what follows when it refuses."""

from __future__ import annotations

import json

import pytest

from sparktop.model.load import Level, TokenSource
from sparktop.sweep.generator.wire import WorkerTarget
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from sparktop.sweep.terms.request_errors import count_errors
from tests.sweep.conftest import GOOD, InProcess, figures
from tests.sweep.stream_server import Asked

BOTH = {"include_usage": True, "continuous_usage_stats": True}


async def two_a_chunk(asked: Asked) -> None:
    """Answer with two tokens a chunk and, if asked for it, the running total in each."""
    asked.start()
    totals = (asked.body.get("stream_options") or {}).get("continuous_usage_stats")
    made = 0
    while made < asked.tokens:
        step = 1 if not made else min(2, asked.tokens - made)
        made += step
        event = asked.token(None, text="ab" * step, finish="length" if made == asked.tokens else None)
        asked.event(event | {"usage": asked.usage(made)["usage"]} if totals else event)
        await asked.writer.drain()
        await asked.server.step()
    asked.event(asked.usage())
    asked.end()


async def test_running_totals_are_asked_for_where_ids_do_not_come(in_process: InProcess) -> None:
    """A server that sends them is counted exactly: every token in its chunk."""
    in_process.server.behave = two_a_chunk
    loaded = await in_process.load()
    assert all(body["stream_options"] == BOTH for body in in_process.server.bodies)
    assert {end.token_source for end in loaded.ends} == {TokenSource.CHUNK_USAGE}
    assert {end.hidden_before for end in loaded.ends} == {0}
    assert figures(loaded) == GOOD


async def test_running_totals_are_not_asked_for_where_ids_come(in_process: InProcess) -> None:
    """Both would say the same, and each chunk would be longer; behind a router the next server may differ."""
    loaded = await in_process.load()
    assert all(body["stream_options"] == {"include_usage": True} for body in in_process.server.bodies)
    assert {end.token_source for end in loaded.ends} == {TokenSource.TOKEN_IDS}
    await in_process.load(target=WorkerTarget(in_process.server.url, "tiny", router=True))
    assert all(body["stream_options"] == BOTH for body in in_process.server.bodies)


@pytest.mark.parametrize(
    "words",
    [
        "Unknown parameter: 'stream_options.continuous_usage_stats'.",
        "bad request",
    ],
)
async def test_a_server_that_refuses_running_totals_keeps_the_rest(in_process: InProcess, words: str) -> None:
    """The part is left out, named or not; the total at the end is still asked for, and no request fails."""

    async def behave(asked: Asked) -> None:
        if "continuous_usage_stats" in (asked.body.get("stream_options") or {}):
            asked.refuse(400, words)
        else:
            await asked.stream(ids=False)

    in_process.server.behave = behave
    loaded = await in_process.load()
    assert count_errors(loaded.events) == {}
    assert all(body["stream_options"] == {"include_usage": True} for body in in_process.server.bodies)
    assert in_process.calibrated is not None
    assert set(in_process.calibrated.dropped_fields) == {"continuous_usage_stats"}
    assert {end.token_source for end in loaded.ends} == {TokenSource.USAGE}
    assert figures(loaded) == GOOD


async def test_a_server_whose_first_event_comes_with_its_first_token_is_known_by_one_token(
    in_process: InProcess,
) -> None:
    """Asked for one token, it sends its whole answer at once: the first event has the first token's time."""

    async def behave(asked: Asked) -> None:
        asked.start()
        role = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
        ending = [asked.token(None, finish="length"), asked.usage()]
        events = [role, *ending] if asked.tokens == 1 else [role, asked.token(None), *ending]
        asked.chunk("".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n")
        asked.write("0\r\n\r\n")

    in_process.server.behave = behave
    loaded = await in_process.load()
    assert {(end.token_source, end.spans_all) for end in loaded.ends} == {(TokenSource.USAGE, True)}
    found = level_result(Level("server", 4, 40, 8), collect(loaded.events))
    assert found.tokens.generated == 32
    assert found.ttft_ms is not None
    assert found.itl_ms is None
    assert found.tokens.hidden_requests == 4


@pytest.mark.parametrize(("header", "router_ms"), [("12.25", 12.25), ("-3.1", None)])
async def test_what_a_router_says_that_it_added(
    in_process: InProcess, header: str, router_ms: float | None
) -> None:
    """LiteLLM's own count comes in a header of each answer; the level has its median."""
    loaded = await in_process.load(
        lambda asked: asked.stream(headers=f"x-litellm-overhead-duration-ms: {header}\r\n")
    )
    assert {end.router_ms for end in loaded.ends} == {router_ms}
    assert level_result(Level("server", 4, 40, 8), collect(loaded.events)).router_overhead_ms == router_ms
