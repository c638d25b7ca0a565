"""Nodes behind an agent: what its answers become, and what is said when there are none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest

from sparktop import __version__
from sparktop.model.failure import FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.sources.replies import Reply, encode
from tests.sources.agent_sources import Make, Waits, agent_sources, failure_of, sample_of
from tests.sources.conftest import FakeClock, RawServer, Serve, answer

TOKEN = "0123456789abcdef-token"  # noqa: S105 - of this test


def reply(now: float, *at: float, boot: str | None = "b", version: str = __version__) -> Reply:
    """Return an answer of a node at its time `now` with samples of these times."""
    identity = NodeIdentity(os="Linux", boot_id=boot)
    return Reply(version, boot, now, 1.0, identity=identity, samples=tuple(NodeSample(one) for one in at))


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
async def watch(clock: FakeClock, waits: Waits) -> AsyncIterator[Make]:
    """Return a function that makes a source for a URL; all are closed at the end."""
    async with agent_sources(clock, waits) as make:
        yield make


async def scripted(serve: Serve, *replies: Reply | bytes) -> RawServer:
    """Start a server that gives these answers, one after the other, on one connection or several."""
    left = list(replies)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while left and await server.read_head(reader):
            one = left.pop(0)
            writer.write(answer(encode(one)) if isinstance(one, Reply) else one)
            await writer.drain()

    server: RawServer = await serve(talk)
    return server


def asked(server: RawServer) -> list[dict[str, list[str]]]:
    """Return the query of every request."""
    return [parse_qs(urlsplit(path).query) for path in server.paths]


async def test_samples_are_placed_at_receipt_less_their_age(
    serve: Serve, watch: Make, clock: FakeClock
) -> None:
    """One time axis holds for all: the node's own clock does not matter, the age does."""
    server = await scripted(serve, reply(9000.0, 8998.0, 8999.5))
    sample = await sample_of(watch(server.url))
    assert sample.at == clock.now - 0.5
    assert [one.at for one in sample.missed] == [clock.now - 2.0]


async def test_only_what_is_new_is_asked_for(serve: Serve, watch: Make, clock: FakeClock) -> None:
    """The second request names the newest sample by the node's clock; a repeated sample is delivered once."""
    server = await scripted(serve, reply(9000.0, 8999.5), reply(9003.0, 8999.5, 9001.0, 9002.0))
    source = watch(server.url)
    await sample_of(source)
    clock.now += 3.0
    sample = await sample_of(source)
    assert [query.get("since") for query in asked(server)] == [None, ["8999.5"]]
    assert [one.at for one in (*sample.missed, sample)] == [clock.now - 2.0, clock.now - 1.0]


async def test_a_restarted_node_begins_anew(serve: Serve, watch: Make) -> None:
    """After a boot the node's clock begins at 0: its samples are new although their times are smaller."""
    server = await scripted(
        serve, reply(9000.0, 9000.0), reply(12.0, boot="c"), reply(12.1, 12.0, boot="c"), reply(13.0, 13.0)
    )
    source = watch(server.url)
    await sample_of(source)
    sample = await sample_of(source)
    assert not sample.missed
    assert [query.get("since") for query in asked(server)] == [None, ["9000.0"], None]
    assert source.identity is not None
    assert source.identity.boot_id == "c"


async def test_nothing_new_is_asked_again_when_it_is_due(serve: Serve, watch: Make, waits: Waits) -> None:
    """An answer without a sample is not a failure: the next one is due an interval after the last."""
    server = await scripted(serve, reply(9000.0, 8999.9), reply(9000.4), reply(9001.0, 9000.9))
    source = watch(server.url)
    await sample_of(source)
    await sample_of(source)
    assert waits.seconds == [pytest.approx(0.52)]
    assert len(server.heads) == 3


async def test_an_agent_that_takes_no_samples_any_more_is_a_failure(serve: Serve, watch: Make) -> None:
    """If no new sample can come before the deadline, the failure has the age of the newest one."""
    server = await scripted(serve, reply(9000.0, 9000.0), replace(reply(9040.0), interval_s=100.0))
    source = watch(server.url)
    await sample_of(source)
    failure = await failure_of(source)
    assert failure.kind is FailureKind.TIMEOUT
    assert failure.message == "the agent answers, but its newest sample is 40 s old"


async def test_the_identity_is_another_object_only_when_it_changed(serve: Serve, watch: Make) -> None:
    """The store gets a node's identity when it changes, not with each sample; it includes the version."""
    server = await scripted(
        serve, reply(1.0, 1.0), reply(2.0, 2.0), reply(3.0, 3.0, version="0.0.9"), reply(4.0, 4.0)
    )
    source = watch(server.url)
    assert source.identity is None
    seen: list[NodeIdentity | None] = []
    for _ in range(3):
        await sample_of(source)
        seen.append(source.identity)
    assert seen[0] is seen[1]
    assert seen[0] == NodeIdentity(os="Linux", boot_id="b")
    assert seen[2] == NodeIdentity(os="Linux", boot_id="b", sparktop="0.0.9")


async def test_process_table_and_interval_are_asked_for(serve: Serve, watch: Make) -> None:
    """The table is requested only while it is shown; the interval is sent once it is known."""
    server = await scripted(serve, reply(1.0, 1.0), reply(2.0, 2.0))
    source = watch(server.url)
    await sample_of(source)
    source.show_processes, source.interval_s = True, 2.0
    await sample_of(source)
    assert asked(server) == [{}, {"since": ["1.0"], "processes": ["1"], "interval_s": ["2"]}]


async def test_the_token_is_sent_and_shown_nowhere(
    serve: Serve, watch: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """The token goes into one header; a server that repeats it does not get it onto the screen."""
    caplog.set_level(logging.DEBUG)
    server = await scripted(serve, answer(f"no {TOKEN}".encode(), "500 Oh"), reply(1.0, 1.0))
    source = watch(server.url, token=TOKEN)
    failure = await failure_of(source)
    await sample_of(source)
    assert f"Authorization: Bearer {TOKEN}".encode() in server.heads[0]
    told = [failure.message, repr(source), repr(failure), repr(source._credentials), caplog.text]
    assert not [text for text in told if TOKEN in text]
    assert "status 500" in failure.message


async def test_a_token_that_cannot_be_sent_is_not_sent(serve: Serve, watch: Make) -> None:
    """A token with a line break would be a header of its own: nothing goes out."""
    server = await scripted(serve, reply(1.0, 1.0))
    failure = await failure_of(watch(server.url, token=f"{TOKEN}\r\nX: y"))
    assert failure.kind is FailureKind.UNAUTHORIZED
    assert TOKEN not in failure.message
    assert server.connections == 0


@pytest.mark.parametrize(
    ("raw", "kind", "words"),
    [
        (answer(b"unauthorized", "401 No"), FailureKind.UNAUTHORIZED, "wants a token: set token_env"),
        (answer(b"", "404 No"), FailureKind.NOT_FOUND, "no sparktop agent answers at"),
        (answer(b"slow down", "429 No"), FailureKind.HTTP, "is asked too often: slow down"),
        (answer(b"the driver hangs", "503 No"), FailureKind.HTTP, "has no sample: the driver hangs"),
        (answer(b"", "302 Go", "Location: http://other/"), FailureKind.REDIRECT, "redirects to http://other/"),
        (answer(b"<html>"), FailureKind.MALFORMED, "is that a sparktop agent?"),
        (answer(b'{"a": 1}'), FailureKind.MALFORMED, "not a sparktop agent: unexpected answer"),
        (
            answer(b'{"schema": "sparktop.node/9", "sparktop": "9.0"}'),
            FailureKind.VERSION,
            "sparktop 9.0 there answers sparktop.node/9",
        ),
        (answer(b"", "200 OK", "Content-Encoding: br"), FailureKind.UNSUPPORTED, "packed as br"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n", FailureKind.TOO_LARGE, "4 MiB"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", FailureKind.MALFORMED, "proper HTTP"),
        (b"", FailureKind.UNREACHABLE, "closed the connection"),
    ],
    ids=["401", "404", "429", "503", "302", "html", "json", "version", "packed", "large", "ssh", "silence"],
)  # fmt: skip
async def test_each_trouble_is_told_in_plain_words(
    raw: bytes, kind: FailureKind, words: str, serve: Serve, watch: Make
) -> None:
    """What an agent, or something else on its port, answers becomes one clean line that says what to do."""
    server: RawServer = await serve(raw)
    failure = await failure_of(watch(server.url))
    assert failure.kind is kind
    assert words in failure.message


async def test_no_agent_says_how_to_start_one(serve: Serve, watch: Make) -> None:
    """Where nothing listens, the line names the place and the command."""
    server: RawServer = await serve(b"")
    await server.stop()
    failure = await failure_of(watch(server.url))
    assert failure.kind is FailureKind.REFUSED
    assert failure.message.startswith(f"no agent at 127.0.0.1:{server.port}: start `sparktop agent` there")


async def test_an_agent_that_says_nothing_costs_its_deadline(serve: Serve, watch: Make) -> None:
    """A connection that is accepted and never answered ends with the deadline."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server: RawServer = await serve(silent)
    failure = await failure_of(watch(server.url), deadline_s=0.2)
    assert failure.kind is FailureKind.TIMEOUT
