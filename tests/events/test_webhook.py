"""The webhook against a real server: requests, retries, and when it gives up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sparktop.events import PAUSES_S, Webhook

pytestmark = pytest.mark.outside

DOCUMENT = b'{"schema": "sparktop.event/1"}\n'


class Answers:
    """A server that answers with a list of statuses, then always with the last one; 0 means no answer."""

    def __init__(self) -> None:
        """Start with status 200."""
        self.statuses = [200]
        self.requests: list[bytes] = []
        self.paused: list[float] = []
        self._server: asyncio.Server | None = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.partition(b":")[2])
                for line in head.lower().splitlines()
                if line.startswith(b"content-length:")
            )
            self.requests.append(head + await reader.readexactly(length))
            status = self.statuses[0] if len(self.statuses) == 1 else self.statuses.pop(0)
            if status:
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nno".encode())
                await writer.drain()
            else:
                await reader.read()
        finally:
            writer.close()

    async def start(self) -> int:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def pause(self, seconds: float) -> None:
        """Record a pause."""
        self.paused.append(seconds)


@pytest.fixture
async def answers() -> AsyncIterator[Answers]:
    made = Answers()
    yield made
    made.stop()


async def send(answers: Answers, token: str | None = None, deadline_s: float = 5.0) -> str | None:
    port = await answers.start()
    url = f"http://127.0.0.1:{port}/secret-path/?wait=true"
    webhook = Webhook(url, token, sleep=answers.pause, deadline_s=deadline_s)
    try:
        problem = await webhook.send(DOCUMENT)
    finally:
        await webhook.close()
    return None if problem is None else problem.replace(str(port), "PORT")


async def test_one_post_with_the_document_and_the_token(answers: Answers) -> None:
    """An event is one POST of JSON to the configured path and query, with a bearer token."""
    assert await send(answers, "canary") is None
    (request,) = answers.requests
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /secret-path/?wait=true HTTP/1.1\r\n")
    assert b"authorization: bearer canary" in head.lower()
    assert b"content-type: application/json" in head.lower()
    assert body == DOCUMENT


async def test_trouble_of_the_server_is_tried_again(answers: Answers) -> None:
    """Server errors are retried with growing pauses; after a success nothing is reported."""
    answers.statuses = [500, 429, 204]
    assert await send(answers) is None
    assert answers.paused == [*PAUSES_S[:2]]
    assert len({*answers.requests}) == 1


async def test_after_three_more_tries_it_is_given_up(answers: Answers) -> None:
    """After three retries it gives up; the message has host and port, but neither path nor token."""
    answers.statuses = [503]
    assert await send(answers, "canary") == "127.0.0.1:PORT answered with HTTP status 503"
    assert (answers.paused, len(answers.requests)) == ([*PAUSES_S], 4)
    assert sorted(answers.paused) == answers.paused


@pytest.mark.parametrize("status", [301, 400, 401, 404])
async def test_what_will_not_change_is_not_tried_again(answers: Answers, status: int) -> None:
    """Other statuses are not retried, and a redirect, which would get the token, is not followed."""
    answers.statuses = [status]
    assert await send(answers, "canary") == f"127.0.0.1:PORT answered with HTTP status {status}"
    assert (answers.paused, len(answers.requests)) == ([], 1)


async def test_a_server_that_is_silent_is_given_up_in_time(answers: Answers) -> None:
    """Each try has its own time limit, so a silent server is given up in time."""
    answers.statuses = [0]
    said = await send(answers, deadline_s=0.2)
    assert said is not None
    assert said.startswith("no answer from 127.0.0.1:PORT within 0.2 s")
    assert len(answers.requests) == 4


async def test_nothing_listens(answers: Answers) -> None:
    """A refused connection is retried too."""
    port = await answers.start()
    answers.stop()
    webhook = Webhook(f"http://127.0.0.1:{port}/x", None, sleep=answers.pause)
    said = await webhook.send(DOCUMENT)
    await webhook.close()
    assert said == f"nothing listens on 127.0.0.1:{port} (connection refused)"
    assert answers.paused == [*PAUSES_S]


async def test_a_token_that_no_header_may_hold_is_not_sent(answers: Answers) -> None:
    """A token that is invalid in a header is not sent, and the message does not show it."""
    said = await send(answers, "ké\n")
    assert said is not None
    assert "webhook_token_env" in said
    assert "k" + "é" not in said
    assert answers.requests == []
