"""Watching one inference server over HTTP: its page, its identity, its health, other servers on its port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import end_marks
from sparktop.model.targets import BackendTarget
from sparktop.net import client
from sparktop.sources.engine_http import EngineSource
from tests.known import known
from tests.sources.conftest import HEALTHY_PAGE, FakeClock, RawServer, Serve, answer, failure_of

Make = Callable[..., EngineSource]
MODELS = {"object": "list", "data": [{"id": "tiny", "max_model_len": 4096}, {"id": "other"}]}


def replies(
    *, page: bytes = HEALTHY_PAGE, version: object = "0.32.0", models: object = None
) -> dict[str, bytes]:
    """Return all answers of a vLLM server, by path."""
    return {
        "/metrics": answer(page),
        "/version": answer(json.dumps({"version": version}).encode()),
        "/v1/models": answer(json.dumps(models or MODELS).encode()),
        "/health": answer(b""),
    }


@pytest.fixture
async def watch() -> AsyncIterator[Make]:
    """Return a function that makes a source of a target; all are closed at the end."""
    sources: list[EngineSource] = []

    def make(target: BackendTarget, **how: Any) -> EngineSource:  # noqa: ANN401 - of a source
        sources.append(EngineSource(target, **how))
        return sources[-1]

    yield make
    for source in sources:
        await source.close()


async def poll(source: EngineSource) -> EngineSample:
    """Poll once for a sample, and wait for the requests that it started."""
    sample = await source.poll(2.0)
    assert isinstance(sample, EngineSample), sample
    await source.settle()
    return sample


@pytest.mark.parametrize(("age", "age_s"), [("12", 12.0), ("soon", None), ("-3", None)])
async def test_a_cache_says_how_old_the_page_is(
    serve: Serve, age: str, age_s: float | None, watch: Make
) -> None:
    """The age that a caching proxy sends is in the sample; a value that is none is ignored."""
    page = answer(HEALTHY_PAGE, "200 OK", f"Age: {age}")
    server: RawServer = await serve(replies() | {"/metrics": page})
    assert (await poll(watch(server.target()))).cache_age_s == age_s


async def test_the_stamp_lies_at_the_headers_not_at_the_end(serve: Serve, watch: Make) -> None:
    """A sample's time is read when the headers came, before the body did."""
    headers_came = asyncio.Event()
    calls = 0

    def counting_clock() -> float:
        nonlocal calls
        calls += 1
        if calls == 2:
            headers_came.set()
        return float(calls)

    async def body_after_stamp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        whole = answer(HEALTHY_PAGE)
        writer.write(whole[: -len(HEALTHY_PAGE)])
        await headers_came.wait()
        writer.write(HEALTHY_PAGE)

    server: RawServer = await serve(body_after_stamp)
    source = watch(replace(server.target(), engine="vllm"), clock=counting_clock)
    sample = await poll(source)
    assert (sample.at, sample.answer_ms) == (2.0, 2000.0)


async def test_a_sample_names_its_end_of_the_connection(serve: Serve, watch: Make) -> None:
    """It has the marks of the address that the server sees, on the first request and on later ones."""
    ends: list[tuple[int, int]] = []

    async def note_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await server.read_head(reader):
            ends.append(end_marks(*writer.get_extra_info("peername")))
            writer.write(answer(HEALTHY_PAGE))

    server: RawServer = await serve(note_end)
    source = watch(replace(server.target(), engine="vllm"))
    seen = [(await poll(source)).client for _ in range(2)]
    assert set(seen) <= set(ends)
    assert None not in seen


async def test_only_reading_routes_are_asked(serve: Serve, watch: Make) -> None:
    """Through failures, restarts and returns, all requests are GETs of five routes."""
    table = replies()
    server: RawServer = await serve(table)
    source = watch(server.target())
    await poll(source)
    table["/metrics"] = answer(b"", "503 Busy")
    await failure_of(source)
    table["/metrics"] = answer(HEALTHY_PAGE.replace(b"1.7e+09", b"1.8e+09"))
    await poll(source)
    assert set(server.paths) == {*["/props", "/metrics", "/version", "/v1/models", "/health", "/workers"]}
    assert all(head.startswith(b"GET ") for head in server.heads)


@pytest.mark.parametrize("api_key", ["two\r\nlines", "schlüssel"])
async def test_a_key_that_no_header_can_hold_is_told(api_key: str, serve: Serve, watch: Make) -> None:
    """A key with a line break or other odd characters is a clean failure, and nothing is sent."""
    server: RawServer = await serve(replies())
    source = watch(server.target(api_key=api_key))
    failure = await failure_of(source)
    assert failure.kind is FailureKind.UNAUTHORIZED
    assert "look at its environment variable" in failure.message
    assert server.connections == 0


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (
            "401 No",
            b'{"error": {"message": "No api key\x1b[2J passed, got sk-secret"}}',
            "No api key [2J passed",
        ),
        ("403 No", b'{"detail": "virtual key sk-secret may not"}', "virtual key … may not"),
        ("404 No", b"metrics are off: start with --metrics", "metrics are off: start with --metrics"),
    ],
)
async def test_what_a_server_says_of_a_refusal_is_quoted(
    status: str, body: bytes, said: str, serve: Serve, watch: Make
) -> None:
    """Behind 401, 403 and 404 too, cleaned and without the key, beside what the user can do."""
    server: RawServer = await serve({"/metrics": answer(body, status)})
    source = watch(server.target(api_key="sk-secret"))
    failure = await failure_of(source)
    assert said in failure.message
    assert "secret" not in failure.message
    assert "--api-key-env" in failure.message or "is the path in its URL right" in failure.message


async def test_a_redirect_is_not_followed(serve: Serve, watch: Make) -> None:
    """The server that a redirect points to is never asked."""
    other: RawServer = await serve(replies())
    server: RawServer = await serve({"/metrics": answer(b"", "301 Moved", f"Location: {other.url}/metrics")})
    source = watch(server.target(api_key="k"))
    failure = await failure_of(source)
    assert failure.kind is FailureKind.REDIRECT
    assert f"127.0.0.1:{other.port}" in failure.message
    assert other.connections == 0


@pytest.mark.parametrize("location", ["/metrics/", "http://upstream:8000/metrics/"])
async def test_a_page_that_moved_by_its_last_slash_is_read(location: str, serve: Serve, watch: Make) -> None:
    """The usual FastAPI mount redirects /metrics to /metrics/, behind a proxy with the upstream's name in it.

    The page is read from the server itself, with its key, and from then on without the detour.
    """
    routes = {**replies(), "/metrics/": replies()["/metrics"]}
    server: RawServer = await serve(routes)
    where = location.format(own=server.url)
    routes["/metrics"] = answer(b"", "307 Temporary Redirect", f"Location: {where}")
    source = watch(server.target(api_key="k"))
    samples = [await poll(source), await poll(source)]
    assert [sample.lanes[0].running for sample in samples] == [3.0, 3.0]
    pages = [path for path in server.paths if path.startswith("/metrics")]
    assert pages == ["/metrics", "/metrics/", "/metrics/"]
    assert all(b"Bearer k" in head for head in server.heads)


@pytest.mark.parametrize("outage", [True, False])
async def test_the_identity_is_asked_again_after_a_restart(outage: bool, serve: Serve, watch: Make) -> None:  # noqa: FBT001 - a case
    """After an outage, or when the start time changed, the identity is asked again."""
    table = replies()
    server: RawServer = await serve(table)
    source = watch(server.target())
    await poll(source)
    if outage:
        table["/metrics"] = answer(b"", "503 Busy")
        await failure_of(source)
        table.update(replies(version="0.33.0"))
    else:
        table.update(replies(version="0.33.0", page=HEALTHY_PAGE.replace(b"1.7e+09", b"1.8e+09")))
    await poll(source)
    assert known(source.identity).version == "0.33.0"


async def test_a_hanging_identity_delays_no_poll_and_ends_with_close(serve: Serve) -> None:
    """While the question for the version hangs, polls go on; close() cancels it."""
    asked = asyncio.Event()

    async def hang_on_version(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if b"/version" in head:
                asked.set()
                await reader.read()
                writer.close()
                return
            writer.write(answer(HEALTHY_PAGE))

    server: RawServer = await serve(hang_on_version)
    source = EngineSource(server.target())
    assert isinstance(await source.poll(2.0), EngineSample)
    await asked.wait()
    assert isinstance(await source.poll(2.0), EngineSample)
    await source.close()
    assert source.identity is None


# A server that answers while its engine is dead, and servers whose 503 says that they load.

DEAD = answer(b'{"error": "EngineDeadError"}', "503 Service Unavailable")
SGLANG_PAGE = b'sglang:num_running_reqs{tp_rank="0"} 2.0\n'


async def look(source: EngineSource) -> FailureKind | str:
    """Poll once; return the failure's kind, or the engine of the sample."""
    reading = await source.poll(2.0)
    await source.settle()
    return reading.kind if isinstance(reading, Failure) else reading.engine


async def test_an_engine_that_died_behind_a_living_page_is_dead(
    serve: Serve, clock: FakeClock, watch: Make
) -> None:
    """The page still answers with its last figures; /health says 503, and 200 again after a restart."""
    table = replies()
    server: RawServer = await serve(table)
    source = watch(server.target(), clock=clock)
    seen = [await look(source)]
    table["/health"] = DEAD
    for _ in range(2):
        clock.now += 11.0
        seen.append(await look(source))
    failure = await failure_of(source)
    table["/health"] = answer(b"")
    for _ in range(2):
        clock.now += 1.0
        seen.append(await look(source))
    dead = FailureKind.ENGINE_DEAD
    assert seen == ["vllm", "vllm", dead, dead, "vllm"]
    assert "has died" in failure.message
    assert "EngineDeadError" in failure.message
    assert server.paths.count("/health") <= 5


async def test_another_engine_at_the_address_of_a_dead_one_lives(
    serve: Serve, clock: FakeClock, watch: Make
) -> None:
    """A server without a health route takes its place behind a proxy, which answers meanwhile."""
    table = replies() | {"/health": DEAD}
    server: RawServer = await serve(table)
    source = watch(server.target(), clock=clock)
    seen = [await look(source), await look(source)]
    table["/metrics"] = answer(b"", "502 Bad Gateway")
    seen.append(await look(source))
    table.update({"/metrics": answer(SGLANG_PAGE), "/health": answer(b"", "404 Not Found")})
    clock.now += 11.0
    seen += [await look(source), await look(source)]
    assert seen == ["vllm", FailureKind.ENGINE_DEAD, FailureKind.HTTP, "sglang", "sglang"]


async def test_503_of_a_page_is_death_of_vllm_and_loading_of_others(serve: Serve, watch: Make) -> None:
    """A server known as vLLM counts as dead; SGLang, and a server of which nothing is known, as loading."""
    kinds = {}
    for name, page in (("vllm", HEALTHY_PAGE), ("sglang", SGLANG_PAGE), ("unknown", b"")):
        table = {"/metrics": answer(page)} if page else {"/metrics": DEAD}
        server: RawServer = await serve(table)
        source = watch(server.target())
        if page:
            await look(source)
        table["/metrics"] = DEAD
        kinds[name] = await look(source)
        if name != "vllm":
            assert "/health" not in server.paths
    loading = dict.fromkeys(("sglang", "unknown"), FailureKind.LOADING)
    assert kinds == {"vllm": FailureKind.ENGINE_DEAD} | loading


@pytest.mark.parametrize(
    ("refusal", "kind", "said"),
    [
        (answer(b"<html><h1>503 Temporarily", "503 Busy"), FailureKind.HTTP, "a proxy in front of"),
        (answer(b"no healthy upstream", "503 Busy"), FailureKind.HTTP, "a proxy in front of"),
        (answer(b"slow down", "429 Too Many"), FailureKind.LATE, "limits how often it is asked"),
    ],
    ids=["nginx limits requests", "Envoy has no server to ask", "429"],
)
async def test_a_refusal_of_a_page_is_no_death_of_the_engine(
    serve: Serve, watch: Make, refusal: bytes, kind: FailureKind, said: str
) -> None:
    """A proxy answers so while the engine may be well; a limit of questions leaves its figures old."""
    table = replies()
    source = watch((await serve(table)).target())
    await look(source)
    table["/metrics"] = table["/health"] = refusal
    failure = await failure_of(source)
    assert failure.kind is kind
    assert said in failure.message


# A name server that never answers is named, and not taken for a server that is stuck.


async def test_a_silent_name_server_has_words_of_its_own(
    monkeypatch: pytest.MonkeyPatch, watch: Make
) -> None:
    """While a name is looked up, a missed deadline is the name server's."""

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(client, "look_up", never)
    source = watch(BackendTarget("b", "http://spark-a.lan:8000"))
    found = await failure_of(source, 0.05)
    assert found.kind is FailureKind.DNS
    assert found.message == "no DNS answer for spark-a.lan:8000 in 0.05 s: check DNS or use its IP address"


async def test_a_list_of_models_is_looked_behind_every_10_s(
    serve: Serve, clock: FakeClock, watch: Make
) -> None:
    """A server that begins to report figures, or another one with the same model, is found after 10 s."""
    table = {"/v1/models": replies()["/v1/models"]}
    server = await serve(table)
    source = watch(server.target(), clock=clock)
    await poll(source)
    table.update(replies())
    asked = len(server.paths)
    clock.now += 9.9
    assert (await poll(source)).engine == "openai"
    assert server.paths[asked:] == ["/v1/models"]
    clock.now += 0.1
    assert (await poll(source)).engine == "vllm"
