"""Single GETs: one table of failures, and the status where only the body is unusable."""

from __future__ import annotations

import asyncio

import pytest

from sparktop.model.failure import FailureKind
from sparktop.net.failure import AnswerError
from sparktop.net.once import UnreadReplyError, get, open_client
from tests.sources.conftest import RawServer, Serve, answer

LOCKED = answer(b"x", "401 Unauthorized", "Content-Encoding: br")
CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nab"


async def wait_for_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accept and never answer."""
    await reader.read()
    writer.close()


async def ask(server: RawServer, key: str | None = None) -> int:
    async with open_client(secure=False) as client:
        reply = await get(client, f"{server.url}/x", where="spark-a:80", deadline_s=0.2, api_key=key)
    return reply.status


async def test_an_answer_of_any_status_is_a_reply(serve: Serve) -> None:
    """Whether a status is a failure is for the caller to decide."""
    assert await ask(await serve(answer(b"no", "404 Not Found"))) == 404


async def test_a_redirect_of_the_last_slash_is_followed(serve: Serve) -> None:
    """Discovery and the doctor find a page that is mounted at /x/, as the monitor does."""
    server = await serve({"/x": answer(b"", "307 Away", "Location: /x/"), "/x/": answer(b"page")})
    assert (await ask(server), server.paths) == (200, ["/x", "/x/"])


@pytest.mark.parametrize(("reply", "status"), [(LOCKED, 401), (CUT, 200)], ids=["packed", "cut"])
async def test_an_unreadable_body_keeps_the_status(serve: Serve, reply: bytes, status: int) -> None:
    """A server that wants a key is known by its status, whatever it writes below."""
    with pytest.raises(UnreadReplyError) as raised:
        await ask(await serve(reply))
    assert raised.value.status == status


async def test_without_headers_there_is_no_status(serve: Serve) -> None:
    """The failure of a silent server is one line that names it."""
    with pytest.raises(AnswerError, match="spark-a:80") as raised:
        await ask(await serve(wait_for_the_end))
    assert (raised.value.kind, type(raised.value)) == (FailureKind.TIMEOUT, AnswerError)


async def test_a_key_that_no_header_may_hold_is_not_sent(serve: Serve) -> None:
    """It is refused before anything is sent."""
    server: RawServer = await serve(answer(b"ok"))
    with pytest.raises(AnswerError) as raised:
        await ask(server, "ké")
    assert (raised.value.kind, server.connections) == (FailureKind.UNAUTHORIZED, 0)
