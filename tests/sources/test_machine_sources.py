"""NCCL asked through the agent, over ssh and on this machine: the same answer, on request only.

Nodes behind a real agent: tokens, certificates and what it says of its machine.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparktop.agent.access import bind
from sparktop.agent.reader import Sampler
from sparktop.agent.server import AgentServer
from sparktop.demo.ras import RasServer
from sparktop.hardware.ras import RasReader
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity
from sparktop.model.ranks import RanksAnswer, RanksReply
from sparktop.model.targets import NodeTarget
from sparktop.sources.agent import AgentSource
from sparktop.sources.decode import WireError, decode_ranks
from sparktop.sources.local import LocalSource
from sparktop.sources.replies import encode_ranks
from sparktop.sources.ssh import SshSource
from tests.agent.fake_machine import BOOT_ID, TABLE, FakeMachine
from tests.hardware.ras.examples import answer
from tests.sources.conftest import AgentAt, FakeClock, failure_of, sample_of
from tests.watch.prometheus.certificates import make_certificates, signed

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
    assert isinstance(found, RanksReply), found
    assert found.answer is not None
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


async def test_a_failed_connection_names_the_machine_once(tmp_path: Path) -> None:
    """What ssh says about the machine is told as it is for samples, without the name before it."""
    ssh = program(tmp_path, "echo Host key verification failed. >&2; exit 255")
    failure = await failure_by(SshSource(NodeTarget("n", "ssh", ssh="there"), ssh=ssh))
    assert failure.message.startswith("the host key of there is not known here")


def test_the_wire_keeps_an_answer_and_cleans_its_text() -> None:
    """What was encoded is decoded equal; control characters from an agent are removed."""
    for name in ("healthy", "dead", "lags-by-one"):
        reply = RanksReply(answer(name), "a warning")
        assert decode_ranks(encode_ranks(reply)) == reply
    hostile = encode_ranks(RanksReply(answer("healthy"))).replace(b"192.168.100.11", b"\\u001b[2J")
    assert "\x1b" not in str(decode_ranks(hostile))


@pytest.mark.parametrize("body", [b"[]", b'{"schema": "sparktop.ranks/1"}', b"\xff"])
def test_other_answers_are_refused(body: bytes) -> None:
    """Anything else raises an error of one clean line."""
    with pytest.raises(WireError) as raised:
        decode_ranks(body)
    assert str(raised.value).isprintable()


OTHER_TOKEN = "another-0123456789abcdef"  # noqa: S105 - as above
NODE_AHEAD_S = 5000.0
"""The node's clock has nothing to do with ours."""


@asynccontextmanager
async def real_agent(
    clock: FakeClock, *, token: str | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Return the URL of a real agent, on a machine whose clock is ahead."""

    def node_time() -> float:
        return clock.now + NODE_AHEAD_S

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = AgentServer(Sampler(FakeMachine(node_time), clock=node_time), token=token)
    server.start([listener], tls=tls)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        await server.close()


async def test_the_real_agent_is_read(agent_at: AgentAt, clock: FakeClock) -> None:
    """A real agent's samples arrive at their times, with the process table once that is wanted."""
    async with real_agent(clock) as url:
        source = agent_at(url)
        first = await sample_of(source)
        clock.now += 1.0
        source.show_processes = True
        second = await sample_of(source)
        await source.close()
    assert (first.at, second.at) == (clock.now - 1.0, clock.now)
    assert first.processes is None
    assert second.processes == TABLE
    assert source.identity == NodeIdentity(os="Debian", hostname="spark-a", boot_id=BOOT_ID)


async def test_a_changed_token_file_is_read_again(
    agent_at: AgentAt, clock: FakeClock, tmp_path: Path
) -> None:
    """The token is the file's first line; after a refusal the file is read again."""
    file = tmp_path / "token"
    file.write_text(f"{OTHER_TOKEN}\nmore\n", encoding="utf-8")
    async with real_agent(clock, token=TOKEN) as url:
        source = agent_at(url, token_file=str(file))
        refused = await failure_of(source)
        file.write_text(f"  {TOKEN}\n", encoding="utf-8")
        await sample_of(source)
        missing = await failure_of(agent_at(url, token_file=str(tmp_path / "none")))
        nothing = await failure_of(agent_at(url))
        await source.close()
    assert "refuses the token" in refused.message
    assert "cannot be read: No such file" in missing.message
    assert "wants a token" in nothing.message
    assert {one.kind for one in (refused, missing, nothing)} == {FailureKind.UNAUTHORIZED}


async def test_a_private_certificate_needs_tls_ca(
    agent_at: AgentAt, clock: FakeClock, tmp_path: Path
) -> None:
    """An unknown certificate is refused, and the line names the setting with which it is accepted."""
    ca = make_certificates(tmp_path)["ca"]
    async with real_agent(clock, tls=signed(ca)) as url:
        unknown = await failure_of(agent_at(url))
        known = agent_at(url, tls_ca=str(ca))
        await sample_of(known)
        plain = await failure_of(agent_at(url.replace("https", "http")))
        await known.close()
    assert unknown.message.endswith("tls_ca in the config names the file that signs it")
    assert plain.kind in {FailureKind.TLS, FailureKind.UNREACHABLE, FailureKind.MALFORMED}
