"""Remote nodes: the doctor reads each once, by the same source as the monitor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from sparktop.doctor.check import Status
from sparktop.doctor.examination import check_node, way_in
from sparktop.doctor.machine import check_machine
from sparktop.doctor.network import RealNetwork
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import GpuReading, NodeIdentity, NodeSample
from sparktop.model.targets import NodeTarget
from sparktop.sources.agent import AgentSource
from sparktop.sources.replies import encode, make_reply
from sparktop.sources.ssh import SshSource

Serve = Callable[[Mapping[str, bytes] | bytes], Awaitable[Any]]


class OneReading:
    """A source with one fixed reading, which counts its calls."""

    def __init__(self, reading: NodeSample | Failure, identity: NodeIdentity | None = None) -> None:
        self.name = "n"
        self.identity = identity
        self.closed = 0
        self._reading = reading

    async def poll(self, deadline_s: float) -> NodeSample | Failure:
        """Return the reading; check that the deadline leaves time to connect."""
        assert deadline_s > 1
        return self._reading

    async def close(self) -> None:
        """Count the call."""
        self.closed += 1


def answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )


async def test_this_machine_needs_no_way_in(network: RealNetwork) -> None:
    """A local node has no check here."""
    assert await check_node(NodeTarget("n"), network) == []


async def test_an_agent_is_read(serve: Serve, network: RealNetwork) -> None:
    """An agent is read, with its port and operating system; one whose driver is not loaded fails."""
    identity = NodeIdentity("Ubuntu 24.04", "580.95", "NVIDIA DGX Spark")
    sample = NodeSample(at=4.0, gpu_note="the NVIDIA driver is not loaded")
    server = await serve({"/v1/sample": answer(encode(make_reply(identity, (sample,), 5.0)))})
    port, node, gpu = await check_node(NodeTarget("n", "agent", server.url), network)
    assert (port.name, port.status) == ("n agent port", Status.OK)
    assert (node.status, node.message) == (
        Status.OK,
        "read through agent: NVIDIA DGX Spark, Ubuntu 24.04, driver 580.95",
    )
    assert (gpu.status, gpu.message) == (Status.FAIL, "the NVIDIA driver is not loaded")


@pytest.mark.parametrize(
    ("product", "status"), [("Notebook", Status.SKIP), ("NVIDIA DGX Spark", Status.FAIL)]
)
async def test_a_machine_without_a_driver_is_judged_as_this_one(
    product: str, status: Status, network: RealNetwork
) -> None:
    """Here and elsewhere, a machine without an NVIDIA driver is skipped, unless it is a Spark."""
    note, identity = "no NVIDIA driver on this machine", NodeIdentity("Ubuntu 24.04", None, product)
    sample = NodeSample(at=1.0, gpu_note=note)
    source = OneReading(sample, identity)
    _, gpu = await check_node(NodeTarget("n", "ssh", ssh="u@h"), network, source=lambda _: source)
    assert (gpu.name, gpu.status, gpu.message) == ("n GPU", status, "no NVIDIA driver")
    here = next(check for check in check_machine(sample, identity) if check.name == "driver")
    assert (here.status, here.message) == (status, note)


async def test_what_ssh_says_is_told(network: RealNetwork) -> None:
    """A failure over ssh is one line without the time of the next attempt; the source is closed."""
    message = "u@h has no sparktop: install it there · reconnecting in 1 s"
    source = OneReading(Failure(FailureKind.COMMAND_NOT_FOUND, message, 1.0))
    (node,) = await check_node(NodeTarget("n", "ssh", ssh="u@h"), network, source=lambda _: source)
    assert (node.status, node.message) == (Status.FAIL, "u@h has no sparktop: install it there")
    assert source.closed == 1


@pytest.mark.parametrize("kind", [FailureKind.REFUSED, FailureKind.TIMEOUT, FailureKind.UNAUTHORIZED])
async def test_ssh_gets_no_advice_about_an_agent(network: RealNetwork, kind: FailureKind) -> None:
    """A failure over ssh gets no advice about agents or tokens: its message says what to do."""
    source = OneReading(Failure(kind, "no ssh server answers at u@h", 1.0))
    (node,) = await check_node(NodeTarget("n", "ssh", ssh="u@h"), network, source=lambda _: source)
    assert (node.status, node.advice) == (Status.FAIL, "")


@pytest.mark.parametrize(
    ("digest", "words"),
    [("0123456789abcdef" * 4, "Ubuntu 24.04; reader 0123456789ab was sent there"), (None, "Ubuntu 24.04")],
)
async def test_a_reader_that_was_sent_is_named(network: RealNetwork, digest: str | None, words: str) -> None:
    """Over ssh the line names the digest of the reader that was sent, if one was."""
    sample = NodeSample(at=4.0, gpus=(GpuReading(0),))
    source = OneReading(sample, NodeIdentity("Ubuntu 24.04", reader_sha256=digest))
    (node,) = await check_node(NodeTarget("n", "ssh", ssh="u@h"), network, source=lambda _: source)
    assert (node.status, node.message) == (Status.OK, f"read through ssh: {words}")


async def test_a_refused_token_has_advice(serve: Serve, network: RealNetwork) -> None:
    """401 gets advice about the configuration keys of the token."""
    server = await serve({"/v1/sample": b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"})
    _, node = await check_node(NodeTarget("n", "agent", server.url), network)
    assert node.status is Status.FAIL
    assert "token_env" in node.advice


async def test_a_token_in_clear_text_is_warned_of() -> None:
    """A token over http to another machine is a warning; over https, or to this machine, it is not."""
    source = OneReading(NodeSample(at=1.0, gpus=(GpuReading(0),)))

    class Open:
        """A network in which every port is open."""

        async def connect(self, place: object) -> None:
            """Accept any port."""

    async def names(url: str, token: str | None) -> list[str]:
        target = NodeTarget("n", "agent", url, token=token)
        checks = await check_node(target, Open(), source=lambda _: source)  # type: ignore[arg-type]  # connect only
        return [check.name for check in checks if check.status is Status.WARN]

    assert await names("http://192.0.2.1:9750", "secret") == ["n token"]
    assert await names("https://192.0.2.1:9750", "secret") == []
    assert await names("http://127.0.0.1:9750", "secret") == []
    assert await names("http://192.0.2.1:9750", None) == []


async def test_the_ways_are_the_monitors() -> None:
    """An agent is read over HTTP, and an ssh node through ssh."""
    agent = way_in(NodeTarget("n", "agent", "http://127.0.0.1:9750"))
    ssh = way_in(NodeTarget("n", "ssh", ssh="u@h"))
    assert isinstance(agent, AgentSource)
    assert isinstance(ssh, SshSource)
    await agent.close()
    await ssh.close()
