"""NCCL asked through the agent, over ssh and on this machine: the same answer, on request only."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparktop.agent.access import bind
from sparktop.agent.reader import Sampler
from sparktop.agent.server import AgentServer
from sparktop.demo.ras import RasServer
from sparktop.hardware.ras import Found, RasReader
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.ranks import RanksAnswer
from sparktop.model.targets import NodeTarget
from sparktop.sources.agent import AgentSource
from sparktop.sources.decode import WireError, decode_ranks
from sparktop.sources.local import LocalSource
from sparktop.sources.replies import encode_ranks
from sparktop.sources.ssh import SshSource
from tests.agent.fake_machine import FakeMachine
from tests.hardware.ras.examples import answer

pytestmark = pytest.mark.outside
NOTHING = Path("/nonexistent")
TOKEN = "0123456789abcdef-token"  # noqa: S105 - of this test
AMPLE_S = 100.0


@pytest.fixture
async def ras() -> AsyncIterator[RasServer]:
    """Return a simulated RAS thread in which rank 1 lags."""
    server = RasServer(lambda: answer("lags-by-one"))
    await server.open()
    yield server
    await server.close()


@pytest.fixture
async def agent_url(ras: RasServer) -> AsyncIterator[str]:
    """Return the URL of an agent that needs a token and asks the simulated RAS thread."""
    sampler = Sampler(FakeMachine(asyncio.get_running_loop().time))
    server = AgentServer(sampler, token=TOKEN, ranks=RasReader(root=NOTHING, addresses=[ras.address]))
    listeners = bind("127.0.0.1", 0)
    server.start(listeners)
    yield f"http://127.0.0.1:{listeners[0].getsockname()[1]}"
    await server.close()


async def found_by(source: AgentSource | SshSource | LocalSource) -> RanksAnswer:
    try:
        found = await source.ask_ranks(AMPLE_S)
    finally:
        await source.close()
    assert isinstance(found, Found), found
    return found.answer


async def failure_by(source: AgentSource | SshSource) -> Failure:
    try:
        found = await source.ask_ranks(AMPLE_S)
    finally:
        await source.close()
    assert isinstance(found, Failure)
    assert found.message.isprintable()
    return found


async def test_an_agent_asks_nccl_on_request_only(agent_url: str, ras: RasServer) -> None:
    """Samples never make the agent ask NCCL; its own path does, once."""
    source = AgentSource(NodeTarget("n", "agent", agent_url, token=TOKEN))
    await source.poll(AMPLE_S)
    assert ras.asked == []
    assert await found_by(source) == answer("lags-by-one")
    assert ras.asked.count("STATUS") == 1


async def test_an_agent_asks_nothing_for_those_without_the_token(agent_url: str, ras: RasServer) -> None:
    """A wrong token is refused before NCCL is asked."""
    failure = await failure_by(AgentSource(NodeTarget("n", "agent", agent_url, token=f"{TOKEN}x")))
    assert failure.kind is FailureKind.UNAUTHORIZED
    assert ras.asked == []


def program(folder: Path, text: str) -> str:
    """Write a program that stands in for ssh; return its path."""
    file = folder / "ssh"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o700)
    return str(file)


async def test_nccl_is_asked_through_ssh(ras: RasServer, tmp_path: Path) -> None:
    """A connection of its own runs the agent there, which asks NCCL at the address of its environment."""
    host, port = ras.address
    here = f"export NCCL_RAS_ADDR={host}:{port} PYTHONPATH={Path.cwd()}"
    ssh = program(tmp_path, f"{here}; exec {sys.executable} -m sparktop agent --stdio")
    source = SshSource(NodeTarget("n", "ssh", ssh="there"), ssh=ssh)
    assert await found_by(source) == answer("lags-by-one")
    assert ras.asked.count("STATUS") == 1


def test_the_wire_keeps_an_answer_and_cleans_its_text() -> None:
    """What was encoded is decoded equal; control characters from an agent are removed."""
    for name in ("healthy", "dead", "lags-by-one"):
        assert decode_ranks(encode_ranks(Found(answer(name), "a warning"))) == Found(
            answer(name), "a warning"
        )
    hostile = encode_ranks(Found(answer("healthy"))).replace(b"192.168.100.11", b"\\u001b[2J")
    assert "\x1b" not in str(decode_ranks(hostile))


@pytest.mark.parametrize("body", [b"[]", b'{"schema": "sparktop.ranks/1"}', b"\xff"])
def test_other_answers_are_refused(body: bytes) -> None:
    """Anything else raises an error of one clean line."""
    with pytest.raises(WireError) as raised:
        decode_ranks(body)
    assert str(raised.value).isprintable()
