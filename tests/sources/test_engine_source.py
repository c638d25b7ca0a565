"""Facts about watching one inference server over HTTP, against real sockets."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec.structs import replace

from sparktop.model.engine import EngineIdentity, EngineSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import BackendTarget
from sparktop.sources.engine_http import EngineSource
from tests.sources.conftest import HEALTHY_PAGE, FakeClock, RawServer, Serve, answer

MODELS = {"object": "list", "data": [{"id": "tiny", "max_model_len": 4096}, {"id": "other"}]}


def replies(
    *, page: bytes = HEALTHY_PAGE, version: object = "0.32.0", models: object = None
) -> dict[str, bytes]:
    """Return all answers of a vLLM server, by path."""
    return {
        "/metrics": answer(page),
        "/version": answer(json.dumps({"version": version}).encode()),
        "/v1/models": answer(json.dumps(models or MODELS).encode()),
    }


async def poll(source: EngineSource) -> EngineSample:
    """Poll once for a sample, and wait for the requests that it started."""
    sample = await source.poll(2.0)
    assert isinstance(sample, EngineSample), sample
    if source._asking is not None:
        await source._asking
    return sample


async def fail(source: EngineSource) -> Failure:
    """Poll once for a failure."""
    failure = await source.poll(2.0)
    assert isinstance(failure, Failure), failure
    return failure


async def test_a_good_page_becomes_a_sample(serve: Serve) -> None:
    """The figures of the page, its size and what it took are in the sample."""
    server: RawServer = await serve(replies())
    source = EngineSource(server.target())
    sample = await poll(source)
    await source.close()
    assert (sample.lanes[0].running, sample.lanes[0].waiting) == (3.0, 2.0)
    assert sample.page_bytes == len(HEALTHY_PAGE)
    assert sample.answer_ms is not None
    assert sample.answer_ms > 0


@pytest.mark.parametrize(
    ("header", "age_s"),
    [("Age: 12", 12.0), ("age:  0 ", 0.0), ("Age: soon", None), ("Age: -3", None), ("X-Age: 4", None)],
)
async def test_a_cache_says_how_old_the_page_is(serve: Serve, header: str, age_s: float | None) -> None:
    """The age that a caching proxy sends is in the sample; a value that is none is ignored."""
    page = answer(HEALTHY_PAGE).replace(b"\r\n", f"\r\n{header}\r\n".encode(), 1)
    server: RawServer = await serve(replies() | {"/metrics": page})
    source = EngineSource(server.target())
    sample = await poll(source)
    await source.close()
    assert sample.cache_age_s == age_s


async def test_the_stamp_lies_at_the_headers_not_at_the_end(serve: Serve) -> None:
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
    source = EngineSource(replace(server.target(), engine="vllm"), clock=counting_clock)
    sample = await source.poll(2.0)
    await source.close()
    assert isinstance(sample, EngineSample)
    assert sample.at == 2.0
    assert sample.answer_ms == 2000.0


async def test_only_reading_routes_are_asked(serve: Serve) -> None:
    """Through failures, restarts and returns, all requests are GETs of five routes."""
    table = replies()
    server: RawServer = await serve(table)
    source = EngineSource(server.target())
    await poll(source)
    table["/metrics"] = answer(b"", "503 Busy")
    await fail(source)
    table["/metrics"] = answer(HEALTHY_PAGE.replace(b"1.7e+09", b"1.8e+09"))
    await poll(source)
    await source.close()
    assert set(server.paths) == {
        *("/props", "/metrics", "/version", "/v1/models", "/health", "/workers"),
    }
    assert all(head.startswith(b"GET ") for head in server.heads)


@pytest.mark.parametrize("api_key", ["two\r\nlines", "schlüssel", "tab\t"])
async def test_a_key_that_no_header_can_hold_is_told(api_key: str, serve: Serve) -> None:
    """A key with a line break or other odd characters is a clean failure, and nothing is sent."""
    server: RawServer = await serve(replies())
    source = EngineSource(server.target(api_key=api_key))
    failure = await fail(source)
    await source.close()
    assert failure.kind is FailureKind.UNAUTHORIZED
    assert "look at its environment variable" in failure.message
    assert server.connections == 0


@pytest.mark.parametrize(("api_key", "words"), [(None, "wants a key"), ("k", "refuses the key")])
async def test_a_missing_key_and_a_wrong_one_are_told_apart(
    api_key: str | None, words: str, serve: Serve
) -> None:
    """401 without a key says that one is wanted, with a key that it is refused."""
    server: RawServer = await serve({"/metrics": answer(b"", "401 Unauthorized")})
    source = EngineSource(server.target(api_key=api_key))
    failure = await fail(source)
    await source.close()
    assert words in failure.message


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (
            "401 No",
            b'{"error": {"message": "No api key\x1b[2J passed in, got sk-secret"}}',
            "No api key [2J passed",
        ),
        (
            "403 No",
            b'{"detail": "virtual key sk-secret may not read this"}',
            "virtual key … may not read this",
        ),
        ("404 No", b"metrics are off: start with --metrics", "metrics are off: start with --metrics"),
    ],
)
async def test_what_a_server_says_of_a_refusal_is_quoted(
    status: str, body: bytes, said: str, serve: Serve
) -> None:
    """Behind 401, 403 and 404 too, cleaned and without the key, beside what the user can do."""
    server: RawServer = await serve({"/metrics": answer(body, status)})
    source = EngineSource(server.target(api_key="sk-secret"))
    failure = await fail(source)
    await source.close()
    assert said in failure.message
    assert "secret" not in failure.message
    assert "--api-key-env" in failure.message or "is the path in its URL right" in failure.message


async def test_a_redirect_is_not_followed(serve: Serve) -> None:
    """The server that a redirect points to is never asked."""
    other: RawServer = await serve(replies())
    server: RawServer = await serve({"/metrics": answer(b"", "301 Moved", f"Location: {other.url}/metrics")})
    source = EngineSource(server.target(api_key="k"))
    failure = await fail(source)
    await source.close()
    assert failure.kind is FailureKind.REDIRECT
    assert f"127.0.0.1:{other.port}" in failure.message
    assert other.connections == 0


@pytest.mark.parametrize("location", ["/metrics/", "{own}/metrics/", "http://upstream:8000/metrics/"])
async def test_a_page_that_moved_by_its_last_slash_is_read(location: str, serve: Serve) -> None:
    """The usual FastAPI mount redirects /metrics to /metrics/, behind a proxy with the upstream's name in it.

    The page is read from the server itself, with its key, and from then on without the detour.
    """
    routes = {**replies(), "/metrics/": replies()["/metrics"]}
    server: RawServer = await serve(routes)
    where = location.format(own=server.url)
    routes["/metrics"] = answer(b"", "307 Temporary Redirect", f"Location: {where}")
    source = EngineSource(server.target(api_key="k"))
    samples = [await poll(source), await poll(source)]
    await source.close()
    assert [sample.lanes[0].running for sample in samples] == [3.0, 3.0]
    pages = [path for path in server.paths if path.startswith("/metrics")]
    assert pages == ["/metrics", "/metrics/", "/metrics/"]
    assert all(b"Bearer k" in head for head in server.heads)


async def test_a_page_that_moves_back_is_found_again(serve: Serve) -> None:
    """The slash is forgotten once its page is gone: another program may listen there now."""
    moved = answer(b"", "308 Permanent Redirect", "Location: /metrics/")
    routes = {"/metrics": moved, "/metrics/": replies()["/metrics"]}
    server: RawServer = await serve(routes)
    source = EngineSource(server.target())
    await poll(source)
    del routes["/metrics/"]
    routes.update(replies())
    await fail(source)
    assert (await poll(source)).lanes[0].running == 3.0
    await source.close()


@pytest.mark.parametrize(
    ("location", "hint"),
    [
        ("/login?next=/metrics", "is there a login in front of it"),
        ("https://127.0.0.1:1/metrics", "give that address"),
        ("/metrics/", "redirects to /metrics/"),
    ],
)
async def test_another_redirect_says_where_it_leads(location: str, hint: str, serve: Serve) -> None:
    """The Location is in the message, with a remedy that fits it."""
    server: RawServer = await serve({"/metrics": answer(b"", "302 Found", f"Location: {location}")})
    source = EngineSource(server.target(api_key="k"))
    failure = await fail(source)
    await source.close()
    assert failure.kind is FailureKind.REDIRECT
    assert location in failure.message
    assert hint in failure.message


@pytest.mark.parametrize(
    "url", ["http://", "ftp://127.0.0.1:1", "http://127.0.0.1:99999", "no url", "http://[::1"]
)
async def test_an_unusable_address_is_a_failure(url: str) -> None:
    """An invalid address costs one line instead of ending the program."""
    source = EngineSource(BackendTarget("server", url))
    failure = await fail(source)
    await source.close()
    assert failure.kind is FailureKind.UNSUPPORTED


async def test_programming_errors_are_not_hidden(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in the parser is raised by the poll: the scheduler logs it."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("sparktop.sources.engine_http.read_page", broken)
    server: RawServer = await serve(replies())
    source = EngineSource(server.target())
    with pytest.raises(ZeroDivisionError):
        await source.poll(2.0)
    await source.close()


async def test_the_identity_is_asked_at_first_contact(serve: Serve) -> None:
    """Version, first model and its context come once, after the first good page."""
    server: RawServer = await serve(replies())
    source = EngineSource(server.target())
    before = source.identity
    for _ in range(3):
        await poll(source)
    await source.close()
    assert before is None
    assert source.identity == EngineIdentity("0.32.0", "tiny", 4096)
    assert server.paths.count("/version") == server.paths.count("/v1/models") == 1


@pytest.mark.parametrize("outage", [True, False])
async def test_the_identity_is_asked_again_after_a_restart(outage: bool, serve: Serve) -> None:  # noqa: FBT001 - a case
    """After an outage, or when the start time changed, the identity is asked again."""
    table = replies()
    server: RawServer = await serve(table)
    source = EngineSource(server.target())
    await poll(source)
    if outage:
        table["/metrics"] = answer(b"", "503 Busy")
        await fail(source)
        table.update(replies(version="0.33.0"))
    else:
        table.update(replies(version="0.33.0", page=HEALTHY_PAGE.replace(b"1.7e+09", b"1.8e+09")))
    await poll(source)
    await source.close()
    assert source.identity is not None
    assert source.identity.version == "0.33.0"


async def test_what_is_known_stays_while_the_process_is_the_same(serve: Serve) -> None:
    """After an outage of the same process, questions that fail do not take away what was known."""
    table = replies()
    server: RawServer = await serve(table)
    source = EngineSource(server.target())
    await poll(source)
    page = table.pop("/metrics")
    await fail(source)
    table.clear()
    table["/metrics"] = page
    await poll(source)
    await source.close()
    assert server.paths.count("/version") == 2
    assert source.identity == EngineIdentity("0.32.0", "tiny", 4096)


async def test_an_incomplete_identity_is_asked_again_after_a_minute(serve: Serve, clock: FakeClock) -> None:
    """While version or model are unknown they are asked for again, at most every 60 s."""
    table = {"/metrics": answer(HEALTHY_PAGE)}
    server: RawServer = await serve(table)
    source = EngineSource(server.target(), clock=clock)
    await poll(source)
    clock.now += 59.0
    await poll(source)
    assert server.paths.count("/version") == 1
    assert source.identity == EngineIdentity()
    clock.now += 1.0
    table.update(replies())
    await poll(source)
    await source.close()
    assert source.identity == EngineIdentity("0.32.0", "tiny", 4096)


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


async def test_cancelling_a_poll_passes_and_leaves_the_source_usable(serve: Serve) -> None:
    """A cancelled poll raises CancelledError; the next one opens a fresh connection and works."""
    began = asyncio.Event()
    hang = True

    async def hang_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            if hang:
                began.set()
                await reader.read()
                writer.close()
                return
            writer.write(answer(HEALTHY_PAGE))

    server: RawServer = await serve(hang_once)
    source = EngineSource(server.target())
    task = asyncio.ensure_future(source.poll(2.0))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    hang = False
    assert isinstance(await source.poll(2.0), EngineSample)
    await source.close()
