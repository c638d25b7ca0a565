"""TARGET arguments, what listens on a host, and servers that a router names."""

from __future__ import annotations

import pytest

from sparktop.errors import UsageError
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.router import Deployment
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget
from sparktop.net.failure import HOW_TO_GIVE_A_KEY
from sparktop.sources.replies import encode, make_reply
from sparktop.watch.discovery import (
    MOST_FOUND,
    Found,
    Ports,
    discover,
    is_nearby,
    parse_target,
    servers_behind_router,
)
from tests.sources.conftest import HEALTHY_PAGE, RawServer, Serve, answer

MODELS = answer(b'{"object": "list", "data": [{"id": "m"}]}')


def node(name: str, url: str) -> NodeTarget:
    return NodeTarget(name, via="agent", url=url)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("spark-a:8000", BackendTarget("spark-a:8000", "http://spark-a:8000")),
        (" spark-a.local:8000 ", BackendTarget("spark-a.local:8000", "http://spark-a.local:8000")),
        ("[fe80::1%eth0]:8000", BackendTarget("[fe80::1%eth0]:8000", "http://[fe80::1%eth0]:8000")),
        ("https://llm.example/vllm1/", BackendTarget("llm.example/vllm1", "https://llm.example/vllm1")),
        ("http://spark-a:8000/metrics", BackendTarget("spark-a:8000", "http://spark-a:8000")),
        ("http://spark-a/vllm1/metrics/", BackendTarget("spark-a/vllm1", "http://spark-a/vllm1")),
        ("spark-a:9750", node("spark-a", "http://spark-a:9750")),
        ("https://spark-a:9750/", node("spark-a", "https://spark-a:9750")),
        ("https://proxy.example/a/v1/sample", node("proxy.example/a", "https://proxy.example/a")),
    ],
)
def test_a_port_or_url_is_a_server_or_the_agent_of_a_machine(
    text: str, target: BackendTarget | NodeTarget
) -> None:
    """Path kept, /metrics and /v1 dropped; the agent's port, or its page at the end, means the machine."""
    assert parse_target(text) == target


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "(empty)"),
        ("a\x1b[31mb", "no TARGET"),
        ("8000", "localhost:8000"),
        ("spark-a:0", "1 to 65535"),
        ("spark-a:65536", "cannot be read"),
        ("http://[::1", "cannot be read"),
        ("ftp://spark-a", "ftp://"),
        ("http://spark-a/?a=b", "? or #"),
        ("-flag", "no host name"),
        ("300.1.1.1", "no IPv4"),
        ("x" * 300, "no host name"),
    ],
)
def test_nonsense_is_one_line(text: str, words: str) -> None:
    """An invalid TARGET is refused in one clean line that shows it and says what a TARGET is."""
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    line = str(caught.value)
    assert words in line
    assert line.isprintable()
    assert len(line) <= 200


@pytest.mark.parametrize("text", ["http://me:hunter2@spark-a:8000", "hunter2@spark-a"])
def test_a_password_is_refused_and_not_repeated(text: str) -> None:
    """User and password in a TARGET are refused with the way that is meant, and never printed."""
    with pytest.raises(UsageError, match="api_key_env") as caught:
        parse_target(text)
    assert "hunter2" not in str(caught.value)


async def free_port(serve: Serve) -> int:
    """Return a port on which nothing listens any more."""
    server: RawServer = await serve(b"")
    await server.stop()
    return server.port


async def look(
    serve: Serve, *servers: RawServer, router: int | None = None, agent: int | None = None
) -> Found:
    """Discover 127.0.0.1 with the ports of some servers as the usual ones."""
    nothing = await free_port(serve)
    ports = Ports(tuple(server.port for server in servers), router or nothing, agent or nothing)
    return await discover(["127.0.0.1"], answer_timeout_s=10.0, ports=ports)


async def test_a_server_with_models_only_is_listed(serve: Serve) -> None:
    """A server that lists models but has no engine's metrics is a backend of engine "auto"."""
    server: RawServer = await serve({"/metrics": answer(b"python_info 1.0\n"), "/v1/models": MODELS})
    found = await look(serve, server)
    assert found.backends == (BackendTarget("localhost", server.url, engine="auto"),)


async def test_litellm_is_a_router_and_its_health_is_never_asked(serve: Serve) -> None:
    """LiteLLM is known by its liveliness route; /health, which sends completions, is not asked."""
    server: RawServer = await serve({"/health/liveliness": answer(b'"I\'m alive!"'), "/v1/models": MODELS})
    found = await look(serve, router=server.port)
    assert found == Found(routers=(RouterTarget(f"localhost:{server.port}", server.url),))
    assert "/health" not in server.paths


AGENT_REPLY = answer(encode(make_reply(NodeIdentity(), (NodeSample(0.0),), 0.0)))


async def test_an_agent_is_a_node_and_its_backends_are_on_it(serve: Serve) -> None:
    """An agent that answers becomes a node named after its host, and the engines there belong to it."""
    agent: RawServer = await serve({"/v1/sample": AGENT_REPLY})
    engine: RawServer = await serve({"/metrics": answer(HEALTHY_PAGE)})
    found = await look(serve, engine, agent=agent.port)
    assert found == Found(
        backends=(BackendTarget("localhost", engine.url, engine="vllm", nodes=("localhost",)),),
        nodes=(NodeTarget("localhost", via="agent", url=agent.url),),
        agents=(f"localhost:{agent.port}",),
    )
    assert agent.paths == ["/v1/sample"]


async def test_a_server_that_wants_a_key_is_noted(serve: Serve) -> None:
    """A server that answers 401 is not a backend yet, but a line says what to do."""
    server: RawServer = await serve({"/v1/models": answer(b"", "401 Unauthorized")})
    found = await look(serve, server)
    assert found == Found(notes=(f"localhost:{server.port} wants a key: host:port with {HOW_TO_GIVE_A_KEY}",))


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000,
        answer(b"[" * 5000),
    ],
    ids=["ssh", "huge header", "deep json"],
)
async def test_what_is_no_server_is_left_out(reply: object, serve: Serve) -> None:
    """Something else on a usual port costs one line and never an error."""
    server: RawServer = await serve(reply)
    found = await look(serve, server)
    assert (found.backends, found.routers) == ((), ())
    assert len(found.notes) == 1
    assert "not an inference server" in found.notes[0]


# Servers that a router names: which may be asked, and under which name.

PROXY = RouterTarget("proxy", "http://10.0.0.9:4000")


def behind(
    *deployments: Deployment, watched: tuple[str, ...] = (), taken: tuple[str, ...] = ()
) -> tuple[list[BackendTarget], list[str]]:
    return servers_behind_router(PROXY, deployments, watched_urls=watched, taken_names=taken)


def test_servers_of_the_local_network_are_found() -> None:
    """By their address without /v1; localhost is the router's own machine; each once."""
    targets, elsewhere = behind(
        Deployment("spark-1", "http://10.0.0.1:8000/v1", "m"),
        Deployment("spark-1-again", "http://10.0.0.1:8000", "n"),
        Deployment("here", "http://localhost:8001/v1"),
        Deployment("secure", "https://spark-b.local/v1"),
        Deployment("cloud", None),
    )
    assert [(one.name, one.url) for one in targets] == [
        ("spark-1", "http://10.0.0.1:8000"),
        ("here", "http://10.0.0.9:8001"),
        ("secure", "https://spark-b.local:443"),
    ]
    assert elsewhere == []


def test_servers_of_others_are_named_and_never_asked() -> None:
    """A public address or name is named once, whatever it is called."""
    targets, elsewhere = behind(
        Deployment("a", "https://api.example.com/v1"),
        Deployment("b", "https://api.example.com/v2"),
        Deployment("c", "http://203.0.113.0.nip.example:8000"),
        Deployment("d", "http://8.8.8.8:8000/v1"),
        Deployment("e", "http://10.0.0.1.example.com:8000"),
    )
    assert (targets, elsewhere) == (
        [],
        ["api.example.com", "203.0.113.0.nip.example", "8.8.8.8", "10.0.0.1.example.com"],
    )


@pytest.mark.parametrize(
    ("host", "nearby"),
    [
        ("192.168.100.11", True),
        ("169.254.17.3", True),
        ("169.254.169.254", False),
        ("fd00:ec2::254", False),
        ("::ffff:169.254.169.254", False),
        ("metadata.google.internal", False),
        ("134744072", False),
        ("0x08080808", False),
        ("012.0.0.1", True),
        ("100.100.1.2", True),
        ("fd00::1", True),
        ("spark-a.local", True),
        ("1.1.1.1", False),
        ("api.example.com", False),
        ("local.example.com", False),
    ],
)
def test_what_is_nearby(host: str, *, nearby: bool) -> None:
    """Private, link-local, overlay and loopback addresses, and names that no public zone has."""
    assert is_nearby(host) is nearby


def test_a_long_list_is_cut() -> None:
    """A router's list of hundreds does not start hundreds of polls."""
    targets, _ = behind(*(Deployment(f"d{index}", f"http://10.0.1.{index}:8000") for index in range(200)))
    assert len(targets) == MOST_FOUND
