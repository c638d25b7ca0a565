"""Nodes behind an agent: what its answers become, and what is said when there are none."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace

from sparktop import __version__
from sparktop.model.failure import FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.sources.replies import Reply, encode
from tests.known import known
from tests.sources.conftest import AgentAt, FakeClock, RawServer, Serve, answer, failure_of, sample_of

TOKEN = "0123456789abcdef-token"  # noqa: S105 - of this test


def reply(now: float, *at: float, boot: str | None = "b", version: str = __version__) -> Reply:
    """Return an answer of a node at its time `now` with samples of these times."""
    identity = NodeIdentity(os="Linux", boot_id=boot)
    return Reply(version, boot, now, 1.0, identity=identity, samples=tuple(NodeSample(one) for one in at))


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
    serve: Serve, agent_at: AgentAt, clock: FakeClock
) -> None:
    """One time axis holds for all: the node's own clock does not matter, the age does."""
    server = await scripted(serve, reply(9000.0, 8998.0, 8999.5))
    sample = await sample_of(agent_at(server.url))
    assert sample.at == clock.now - 0.5
    assert [one.at for one in sample.missed] == [clock.now - 2.0]


async def test_only_what_is_new_is_asked_for(serve: Serve, agent_at: AgentAt, clock: FakeClock) -> None:
    """The second request names the newest sample by the node's clock; a repeated sample is delivered once."""
    server = await scripted(serve, reply(9000.0, 8999.5), reply(9003.0, 8999.5, 9001.0, 9002.0))
    source = agent_at(server.url)
    await sample_of(source)
    clock.now += 3.0
    sample = await sample_of(source)
    assert [query.get("since") for query in asked(server)] == [None, ["8999.5"]]
    assert [one.at for one in (*sample.missed, sample)] == [clock.now - 2.0, clock.now - 1.0]


async def test_a_restarted_node_begins_anew(serve: Serve, agent_at: AgentAt) -> None:
    """After a boot the node's clock begins at 0: its samples are new although their times are smaller."""
    server = await scripted(
        serve, reply(9000.0, 9000.0), reply(12.0, boot="c"), reply(12.1, 12.0, boot="c"), reply(13.0, 13.0)
    )
    source = agent_at(server.url)
    await sample_of(source)
    sample = await sample_of(source)
    assert not sample.missed
    assert [query.get("since") for query in asked(server)] == [None, ["9000.0"], None]
    assert known(source.identity).boot_id == "c"


async def test_an_agent_that_takes_no_samples_any_more_is_a_failure(serve: Serve, agent_at: AgentAt) -> None:
    """If no new sample can come before the deadline, the failure has the age of the newest one."""
    server = await scripted(serve, reply(9000.0, 9000.0), replace(reply(9040.0), interval_s=100.0))
    source = agent_at(server.url)
    await sample_of(source)
    failure = await failure_of(source)
    assert failure.kind is FailureKind.TIMEOUT
    assert failure.message == "the agent answers, but its newest sample is 40 s old"


async def test_the_token_is_sent_and_shown_nowhere(
    serve: Serve, agent_at: AgentAt, caplog: pytest.LogCaptureFixture
) -> None:
    """The token goes into one header; a server that repeats it does not get it onto the screen."""
    caplog.set_level(logging.DEBUG)
    server = await scripted(serve, answer(f"no {TOKEN}".encode(), "500 Oh"), reply(1.0, 1.0))
    source = agent_at(server.url, token=TOKEN)
    failure = await failure_of(source)
    await sample_of(source)
    assert f"Authorization: Bearer {TOKEN}".encode() in server.heads[0]
    told = [failure.message, repr(source), repr(failure), caplog.text]
    assert not [text for text in told if TOKEN in text]
    assert "status 500" in failure.message


@pytest.mark.parametrize(
    ("raw", "kind", "words"),
    [
        (answer(b"unauthorized", "401 No"), FailureKind.UNAUTHORIZED, "wants a token: set token_env"),
        (answer(b"", "404 No"), FailureKind.NOT_FOUND, "no sparktop agent answers at"),
        (answer(b"the driver hangs", "503 No"), FailureKind.HTTP, "503: the driver hangs (the agent at "),
        (answer(b'{"a": 1}'), FailureKind.MALFORMED, "not a sparktop agent: unexpected answer"),
        (
            answer(b'{"schema": "sparktop.node/9", "sparktop": "9.0"}'),
            FailureKind.VERSION,
            "sparktop 9.0 there answers sparktop.node/9",
        ),
    ],
    ids=["401", "404", "503", "json", "version"],
)  # fmt: skip
async def test_each_trouble_is_told_in_plain_words(
    raw: bytes, kind: FailureKind, words: str, serve: Serve, agent_at: AgentAt
) -> None:
    """What an agent, or something else on its port, answers becomes one clean line that says what to do."""
    server: RawServer = await serve(raw)
    failure = await failure_of(agent_at(server.url))
    assert failure.kind is kind
    assert words in failure.message
