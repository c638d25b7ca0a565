"""A router over HTTP: what is asked of it, and what is made of its answers."""

from __future__ import annotations

import asyncio
import json

import pytest

from sparktop.model.router import Deployment, RouterSample
from sparktop.sources.router import PAGE, PATHS
from tests.known import known
from tests.sources.conftest import FakeClock, OpenRouter, poll_router
from tests.sources.conftest import answer as reply

KEY = "sk-quite-secret"


def answer(body: object, status: str = "200 OK") -> bytes:
    return reply(body if isinstance(body, bytes) else json.dumps(body).encode(), status)


def one(name: str, base: str | None = None, model: str = "m") -> dict[str, object]:
    params = {"model": f"hosted_vllm/{model}"} | ({} if base is None else {"api_base": base})
    return {"model_name": model, "litellm_params": params, "model_info": {"id": name, "mode": None}}


ALIVE = answer("I'm alive!")
READY = answer({"status": "healthy", "db": "Not connected"})
OPEN = {
    "/health/liveliness": ALIVE,
    "/health/readiness": READY,
    "/health/readiness/details": answer({"status": "healthy", "litellm_version": "1.106.2"}),
    "/model/info": answer({"data": [one("spark-1", "http://10.0.0.1:8000/v1"), one("cloud", model="n")]}),
    "/router/settings": answer({"current_values": {"routing_strategy": "least-busy"}}),
}
"""As LiteLLM 1.106.2 answers where no key is wanted, or to the right one."""
LOCKED = answer({"error": {"message": "Authentication Error, No api key passed in."}}, "401 Unauthorized")


async def test_the_first_poll_tells_everything(router: OpenRouter) -> None:
    """Kind, version, strategy and deployments are complete after a single poll."""
    _, source = await router(OPEN, KEY)
    sample = await poll_router(source)
    assert (sample.kind, sample.alive, sample.version) == ("litellm", True, "1.106.2")
    assert (sample.strategy, sample.note) == ("least-busy", None)
    assert sample.deployments == (
        Deployment("spark-1", "http://10.0.0.1:8000/v1", "m"),
        Deployment("cloud", None, "n"),
    )
    assert sample.answer_ms is not None


async def test_only_routes_that_read_are_asked(router: OpenRouter, clock: FakeClock) -> None:
    """Over minutes and whatever fails, it sends only GETs of six known paths, and never of /health."""
    asked: set[str] = set()
    doors: list[dict[str, bytes]] = [
        OPEN,
        OPEN | {"/model/info": LOCKED},
        OPEN | {"/model/info": answer(b"[[", "200 OK")},
        OPEN | {"/health/readiness": answer(b"", "500 Oops"), "/router/settings": LOCKED},
        {"/health/liveliness": answer(b"", "404 Not Found")},
        {"/health/liveliness": answer(b"", "503 Loading")},
        {"/health/liveliness": answer(b"fine")},
    ]
    for table in doors:
        for key in (None, KEY):
            server, source = await router(table, key)
            for _ in range(3):
                await source.poll(2.0)
                clock.now += 61.0
            asked |= {head.split(b" HTTP")[0].decode() for head in server.heads}
    assert asked == {f"GET {path}" for path in (*PATHS, PAGE, "/workers", "/running")}
    assert set(PATHS) == {
        "/health/liveliness",
        "/health/readiness",
        "/health/readiness/details",
        "/model/info",
        "/router/settings",
        "/metrics/",
    }
    assert PAGE == "/metrics"


@pytest.mark.parametrize(
    ("key", "refusal", "note"),
    [
        (None, LOCKED, "needs a key to list its deployments, strategy and failures"),
        (KEY, LOCKED, "refuses the key of api_key_env: its deployments are not known"),
        (KEY, answer(b"", "404 Not Found"), "has no /model/info: its deployments are not known"),
    ],
)
async def test_a_refusal_is_one_line_and_final(
    router: OpenRouter, clock: FakeClock, key: str | None, refusal: bytes, note: str
) -> None:
    """Without the right key it is still alive, says what to do, and the list is not requested again."""
    server, source = await router(OPEN | {"/model/info": refusal}, key)
    for _ in range(3):
        sample = await poll_router(source)
        clock.now += 61.0
    assert (sample.alive, sample.deployments, sample.strategy) == (True, None, None)
    assert (sample.note or "").removesuffix(": [[routers]] with api_key_env") == note
    assert server.paths.count("/model/info") == 1
    assert "/router/settings" not in server.paths


async def test_a_slow_fact_never_costs_the_sign_of_life(router: OpenRouter) -> None:
    """A list of deployments that never arrives does not prevent an alive sample within the deadline."""
    stop = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await server.read_head(reader):
            path = head.split(b" ")[1].decode()
            if path == "/model/info":
                await stop.wait()
            writer.write(OPEN[path])
            await writer.drain()

    server, source = await router(talk)
    reading = await source.poll(0.3)
    stop.set()
    assert isinstance(reading, RouterSample)
    assert reading.alive
    assert "could not be read" in known(reading.note)


async def test_hostile_words_are_cleaned(router: OpenRouter) -> None:
    """Escapes, bidi marks and passwords in what a router says never get in."""
    listed = [
        one("\x1b[2Jid\u202e", "http://user:pass@h:1/v1?key=x#y", "m\x07\n" * 9),
        one("b", "http://user:pass@[bad"),
    ]
    _, source = await router(OPEN | {"/model/info": answer({"data": listed})})
    deployments = known((await poll_router(source)).deployments)
    assert [(one.id, one.address) for one in deployments] == [("[2Jid", "http://h:1/v1"), ("b", None)]
    assert "\x07" not in (deployments[0].model or "")
