"""The responses of the agent over HTTP, and who gets them."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktop import __version__
from sparktop.agent.access import open_tls
from sparktop.model.node import GpuReading, NodeSample
from sparktop.sources.decode import decode
from sparktop.sources.replies import SCHEMA
from tests.agent.conftest import StartAgent
from tests.agent.fake_machine import BOOT_ID, TABLE, hung
from tests.agent.raw_client import ask, connect, request

TOKEN = "a-token-of-more-than-16-characters"  # noqa: S105 - known to the tests only


async def test_a_sample_is_an_answer_of_the_wire_format(start_agent: StartAgent) -> None:
    """The body of /v1/sample can be read by `decode`, with the node's clock, boot id and version."""
    agent = await start_agent()
    agent.machine.sample = replace(NodeSample(0.0), gpus=(GpuReading(0, name="GB10", power_w=11.5),))
    answer = await ask(agent.port, "/v1/sample")
    reply = decode(answer.body)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert (reply.schema, reply.sparktop, reply.boot_id) == (SCHEMA, __version__, BOOT_ID)
    assert [one.gpus[0].power_w for one in reply.samples] == [11.5]
    assert reply.samples[0].at <= reply.monotonic_s
    assert (reply.interval_s, reply.identity.hostname, reply.simulated) == (1.0, "spark-a", False)


async def test_the_query_reaches_the_sampler(start_agent: StartAgent) -> None:
    """`since`, `processes` and `interval_s` of the query are applied; unknown parameters are ignored."""
    agent = await start_agent()
    first = decode((await ask(agent.port, "/v1/sample")).body).samples[0]
    path = f"/v1/sample?since={first.at}&processes=1&interval_s=0.25&colour=red"
    reply = decode((await ask(agent.port, path)).body)
    assert [one.processes for one in reply.samples] == [TABLE]
    assert reply.samples[0].at > first.at
    assert reply.interval_s == 0.25


async def test_the_page_for_prometheus_is_fresh(start_agent: StartAgent) -> None:
    """/metrics takes a sample and returns text with the content type of Prometheus."""
    agent = await start_agent()
    answer = await ask(agent.port, "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"# TYPE sparktop_node_" in answer.body
    assert len(agent.machine.taken) == 1


@pytest.mark.parametrize(
    "header",
    [
        None,
        "Authorization: Bearer ",
        f"Authorization: Bearer {TOKEN[:-1]}",
        f"Authorization: Bearer {TOKEN}x",
        f"Authorization: Basic {TOKEN}",
        "Authorization: Bearer schlüssel-ünd-tür-ß-日本語",
    ],
)
async def test_without_the_token_every_answer_is_the_same(
    start_agent: StartAgent, header: str | None
) -> None:
    """Without the right token every request gets 401 and the same body, whether the path exists or not."""
    agent = await start_agent(TOKEN)
    for path in ("/v1/sample", "/metrics", "/etc/passwd"):
        answer = await ask(agent.port, path, *([] if header is None else [header]))
        assert (answer.status, answer.body) == (401, b"unauthorized\n")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert agent.machine.taken == []


@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
async def test_everything_but_reading_is_405(start_agent: StartAgent, method: str) -> None:
    """All methods but GET and HEAD get 405, with or without a token."""
    agent = await start_agent()
    answer = await ask(agent.port, "/v1/sample", method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert answer.headers["connection"] == "close"
    assert agent.machine.taken == []


async def test_a_machine_that_hangs_is_503_with_a_line(start_agent: StartAgent) -> None:
    """When the driver hangs, a request gets 503 with a line that says for how long it has hung."""
    agent = await start_agent()
    agent.machine.failure = hung()
    answer = await ask(agent.port, "/v1/sample")
    assert (answer.status, answer.body) == (503, b"reading this machine has hung for 12 s\n")
    assert (await ask(agent.port, "/metrics")).status == 503


async def test_tls_serves_those_who_trust_the_certificate(
    start_agent: StartAgent, certificate: tuple[Path, Path]
) -> None:
    """With a certificate the agent serves TLS 1.2 or later only."""
    cert, key = certificate
    tls = open_tls(str(cert), str(key))
    agent = await start_agent(TOKEN, tls=tls)
    trusting = ssl.create_default_context(cafile=str(cert))
    assert (await ask(agent.port, "/v1/sample", token=TOKEN, tls=trusting)).status == 200
    plain = await connect(agent.port)
    await plain.send(request("/healthz"))
    assert b"HTTP/1.1" not in await plain.closed()
    plain.close()
    assert tls.minimum_version is ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(agent.port, tls=ssl.create_default_context())
