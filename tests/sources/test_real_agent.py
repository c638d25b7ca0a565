"""Nodes behind a real agent: tokens, certificates and what it says of its machine."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparktop.agent.reader import Sampler
from sparktop.agent.server import AgentServer
from sparktop.model.failure import FailureKind
from sparktop.model.node import NodeIdentity, NodeSample, ProcessReading, ProcessTable
from tests.sources.agent_sources import Make, Waits, agent_sources, failure_of, sample_of
from tests.sources.conftest import FakeClock
from tests.watch.prometheus.certificates import make_certificates

pytestmark = pytest.mark.outside

TOKEN = "0123456789abcdef-token"  # noqa: S105 - of this test
OTHER_TOKEN = "another-0123456789abcdef"  # noqa: S105 - as above
NODE_AHEAD_S = 5000.0
"""The node's clock has nothing to do with ours."""


@pytest.fixture
async def watch(clock: FakeClock) -> AsyncIterator[Make]:
    """Return a function that makes a source for a URL; all are closed at the end."""
    async with agent_sources(clock, Waits()) as make:
        yield make


class FakeReader:
    """A machine that answers as the test says."""

    def __init__(self, clock: FakeClock) -> None:
        self.show_processes = False
        self.identity = NodeIdentity(os="Linux", boot_id="b")
        self._clock = clock

    def node_time(self) -> float:
        """Return the node's own time in seconds."""
        return self._clock.now + NODE_AHEAD_S

    async def poll(self, deadline_s: float) -> NodeSample:  # noqa: ARG002 - the protocol's
        """Return a sample."""
        table = ProcessTable((ProcessReading(7, "vllm"),), 1) if self.show_processes else None
        return NodeSample(self.node_time(), processes=table)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


@asynccontextmanager
async def real_agent(
    reader: FakeReader, *, token: str | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Return the URL of a real agent that reads with `reader`."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = AgentServer(Sampler(reader, clock=reader.node_time), token=token)
    server.start([listener], tls=tls)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        await server.close()


async def test_the_real_agent_is_read(watch: Make, clock: FakeClock) -> None:
    """A real agent's samples arrive at their times, with the process table once that is wanted."""
    async with real_agent(FakeReader(clock)) as url:
        source = watch(url)
        first = await sample_of(source)
        clock.now += 1.0
        source.show_processes = True
        second = await sample_of(source)
        await source.close()
    assert (first.at, second.at) == (clock.now - 1.0, clock.now)
    assert first.processes is None
    assert second.processes is not None
    assert second.processes.processes[0].name == "vllm"
    assert source.identity == NodeIdentity(os="Linux", boot_id="b")


async def test_a_changed_token_file_is_read_again(watch: Make, clock: FakeClock, tmp_path: Path) -> None:
    """The token is the file's first line; after a refusal the file is read again."""
    file = tmp_path / "token"
    file.write_text(f"{OTHER_TOKEN}\nmore\n", encoding="utf-8")
    async with real_agent(FakeReader(clock), token=TOKEN) as url:
        source = watch(url, token_file=str(file))
        refused = await failure_of(source)
        file.write_text(f"  {TOKEN}\n", encoding="utf-8")
        await sample_of(source)
        missing = await failure_of(watch(url, token_file=str(tmp_path / "none")))
        nothing = await failure_of(watch(url))
        await source.close()
    assert "refuses the token" in refused.message
    assert "cannot be read: No such file" in missing.message
    assert "wants a token" in nothing.message
    assert {one.kind for one in (refused, missing, nothing)} == {FailureKind.UNAUTHORIZED}


async def test_a_private_certificate_needs_tls_ca(watch: Make, clock: FakeClock, tmp_path: Path) -> None:
    """An unknown certificate is refused, and the line names the setting with which it is accepted."""
    certificates = make_certificates(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates["server"], certificates["server-key"])
    async with real_agent(FakeReader(clock), tls=tls) as url:
        unknown = await failure_of(watch(url))
        known = watch(url, tls_ca=str(certificates["ca"]))
        await sample_of(known)
        plain = await failure_of(watch(url.replace("https", "http")))
        await known.close()
    assert unknown.message.endswith("tls_ca in the config names the file that signs it")
    assert plain.kind in {FailureKind.TLS, FailureKind.UNREACHABLE, FailureKind.MALFORMED}
