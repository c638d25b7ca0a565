"""A server that answers while its engine is dead, and servers whose 503 says that they load."""

from __future__ import annotations

import json

import pytest

from sparktop.engines.registry import ENGINES
from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.sources.engine_http import EngineSource
from tests.sources.conftest import HEALTHY_PAGE, FakeClock, RawServer, Serve, answer

DEAD = answer(b'{"error": "EngineDeadError"}', "503 Service Unavailable")
SGLANG_PAGE = b'sglang:num_running_reqs{tp_rank="0"} 2.0\n'


def vllm() -> dict[str, bytes]:
    """Return what a healthy vLLM answers."""
    models = json.dumps({"data": [{"id": "tiny", "max_model_len": 4096}]}).encode()
    return {
        "/metrics": answer(HEALTHY_PAGE),
        "/version": answer(b'{"version": "0.32.0"}'),
        "/v1/models": answer(models),
        "/health": answer(b""),
    }


async def look(source: EngineSource) -> FailureKind | str:
    """Poll once; return the failure's kind, or the engine of the sample."""
    reading = await source.poll(2.0)
    if source._asking is not None:
        await source._asking
    return reading.kind if isinstance(reading, Failure) else reading.engine


async def test_an_engine_that_died_behind_a_living_page_is_dead(serve: Serve, clock: FakeClock) -> None:
    """The page still answers with its last figures; /health says 503, and 200 again after a restart."""
    table = vllm()
    server: RawServer = await serve(table)
    source = EngineSource(server.target(), clock=clock)
    seen = [await look(source)]
    table["/health"] = DEAD
    for _ in range(2):
        clock.now += 11.0
        seen.append(await look(source))
    reading = await source.poll(2.0)
    table["/health"] = answer(b"")
    for _ in range(2):
        clock.now += 1.0
        seen.append(await look(source))
    await source.close()
    dead = FailureKind.ENGINE_DEAD
    assert seen == ["vllm", "vllm", dead, dead, "vllm"]
    assert isinstance(reading, Failure)
    assert "has died" in reading.message
    assert "EngineDeadError" in reading.message
    assert server.paths.count("/health") <= 5


async def test_503_of_a_page_is_death_of_vllm_and_loading_of_others(serve: Serve) -> None:
    """A server known as vLLM counts as dead; SGLang, and a server of which nothing is known, as loading."""
    kinds = {}
    for name, page in (("vllm", HEALTHY_PAGE), ("sglang", SGLANG_PAGE), ("unknown", b"")):
        table = {"/metrics": answer(page)} if page else {"/metrics": DEAD}
        server: RawServer = await serve(table)
        source = EngineSource(server.target())
        if page:
            await look(source)
        table["/metrics"] = DEAD
        kinds[name] = await look(source)
        await source.close()
        if name != "vllm":
            assert "/health" not in server.paths
    assert kinds == {
        "vllm": FailureKind.ENGINE_DEAD,
        "sglang": FailureKind.LOADING,
        "unknown": FailureKind.LOADING,
    }


@pytest.mark.parametrize("status", ["404 Not Found", "500 Oops", "401 Unauthorized"])
async def test_only_503_is_death(serve: Serve, status: str) -> None:
    """A proxy that lets /health through in its own way does not kill the engine."""
    server: RawServer = await serve({**vllm(), "/health": answer(b"", status)})
    source = EngineSource(server.target())
    assert [await look(source) for _ in range(3)] == ["vllm"] * 3
    reading = await source.poll(2.0)
    await source.close()
    assert isinstance(reading, EngineSample)


@pytest.mark.parametrize(
    "metrics",
    [
        answer(b"", "404 Not Found"),
        answer(b"", "307 Temporary Redirect", "Location: /metrics/"),
        answer(b'{"error": "no key"}', "401 Unauthorized"),
        answer(b"# TYPE litellm_requests counter\nlitellm_requests 1\n"),
    ],
    ids=["absent", "elsewhere", "locked", "litellm's"],
)
async def test_a_litellm_is_a_router_not_a_generic_server(serve: Serve, metrics: bytes) -> None:
    """Whatever its metrics page does, its own route says what it is; `/health` is never asked."""
    table = {
        "/metrics": metrics,
        "/v1/models": answer(b'{"data": [{"id": "gpt"}]}'),
        "/health/liveliness": answer(b'"I\'m alive!"'),
    }
    server: RawServer = await serve(table)
    source = EngineSource(server.target())
    for _ in range(3):
        reading = await source.poll(2.0)
        assert isinstance(reading, Failure)
        assert reading.kind is FailureKind.ROUTER
        assert "[[routers]]" in reading.message
    await source.close()
    assert "/health" not in server.paths


def test_only_vllm_has_a_health_route() -> None:
    """That of SGLang, TGI and LiteLLM generates a token, and those of others say nothing of a dead engine."""
    assert {name for name, engine in ENGINES.items() if engine.health is not None} == {"vllm"}


async def test_the_health_of_a_sglang_is_never_asked(serve: Serve, clock: FakeClock) -> None:
    """Neither while it answers, nor while it loads: `/health` and `/health_generate` make it generate."""
    table = {"/metrics": answer(SGLANG_PAGE)}
    server: RawServer = await serve(table)
    source = EngineSource(server.target(), clock=clock)
    for _ in range(8):
        await look(source)
        clock.now += 11.0
    table["/metrics"] = DEAD
    assert await look(source) is FailureKind.LOADING
    await source.close()
    assert [path for path in server.paths if path.startswith("/health")] == []
