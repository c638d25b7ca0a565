"""The server of `sparktop export`: who gets the page, in which format, and what clients cannot do."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from sparktop.agent.access import own_names
from sparktop.model.event import Severity
from tests.agent.raw_client import ask, connect
from tests.export.conftest import StartServer

TOKEN = "0123456789abcdef"  # noqa: S105 - a token of a test


async def status(port: int, *lines: str) -> int:
    """Send a request for the page with these header lines; return the status."""
    client = await connect(port)
    try:
        await client.send("\r\n".join(("GET /metrics HTTP/1.1", *lines, "", "")).encode())
        answer = await client.answer()
        assert answer is not None
        return answer.status
    finally:
        client.close()


async def test_the_page_comes_as_text_and_as_openmetrics(start_server: StartServer) -> None:
    """GET /metrics returns the page; other paths get 404 and other methods 405."""
    served = await start_server()
    answer = await ask(served.port, "/metrics")
    assert (answer.status, answer.headers["content-type"]) == (
        200,
        "text/plain; version=0.0.4; charset=utf-8",
    )
    assert b'sparktop_backend_state{backend="b",state="connecting"} 1.0' in answer.body
    accept = "Accept: application/openmetrics-text;version=1.0.0"
    assert (await ask(served.port, "/metrics", accept)).body.endswith(b"# EOF\n")
    assert (await ask(served.port, "/healthz")).status == 200
    assert (await ask(served.port, "/v1/sample")).status == 404
    assert (await ask(served.port, "/metrics", method="POST")).status == 405


async def test_events_are_counted_from_the_start(start_server: StartServer) -> None:
    """An event that the store announces is counted in the next page."""
    served = await start_server()
    served.store.note("b", "something", Severity.WARNING)
    assert b'sparktop_events_total{kind="note"} 1.0' in (await ask(served.port, "/metrics")).body


async def test_a_page_is_made_at_most_twice_a_second(start_server: StartServer) -> None:
    """Within half a second all clients get the same page."""
    served = await start_server()
    clock, at = served.server._clock, served.server._clock()
    served.server._clock = lambda: at
    first = (await ask(served.port, "/metrics")).body
    served.store.note("b", "something", Severity.WARNING)
    accepts = [f"Accept: text/plain;q=0.{index}" for index in range(4)]  # as many headers, one format
    answers = await asyncio.gather(*(ask(served.port, "/metrics", accept) for accept in accepts))
    assert {answer.body for answer in answers} == {first}
    served.server._clock = lambda: at + 1
    assert (await ask(served.port, "/metrics")).body != first
    served.server._clock = clock


@pytest.mark.parametrize(
    ("accepts", "encoding"),
    [
        ("gzip", "gzip"),
        ("deflate, gzip;q=0.5", "gzip"),
        ("gzip;q=0", None),
        ("deflate", None),
        ("xgzip", None),
    ],
)
async def test_a_client_that_accepts_gzip_gets_it(
    start_server: StartServer, accepts: str, encoding: str | None
) -> None:
    """The page is compressed for clients that accept gzip, as Prometheus does, and has the same content."""
    served = await start_server()
    at = served.server._clock()
    served.server._clock = lambda: at
    plain = await ask(served.port, "/metrics")
    answer = await ask(served.port, "/metrics", f"Accept-Encoding: {accepts}")
    assert "content-encoding" not in plain.headers
    assert answer.headers.get("content-encoding") == encoding
    assert (answer.body if encoding is None else gzip.decompress(answer.body)) == plain.body


async def test_with_a_token_only_those_who_know_it_get_the_page(start_server: StartServer) -> None:
    """Without the token the page answers 401; /healthz needs none."""
    served = await start_server(TOKEN)
    assert (await ask(served.port, "/metrics")).status == 401
    assert (await ask(served.port, "/metrics", token=TOKEN)).status == 200
    assert (await ask(served.port, "/healthz")).status == 200


async def test_a_web_page_of_another_name_gets_nothing(start_server: StartServer) -> None:
    """Only addresses and names of the server are accepted as Host, which prevents DNS rebinding."""
    served = await start_server(names=own_names("localhost", ["board.lan"]))
    for host in ("127.0.0.1", "10.0.0.1:9751", "localhost:80", "LOCALHOST", "[::1]:9751", "board.lan"):
        assert await status(served.port, f"Host: {host}") == 200, host
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:9751", "xlocalhost", "1"):
        assert await status(served.port, f"Host: {host}") == 421, host
