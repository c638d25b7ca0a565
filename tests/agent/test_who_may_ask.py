"""Who may ask a server: under its own names, and no page of another server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from sparktop.agent.access import is_own, own_names
from sparktop.demo.ras import RasServer
from sparktop.hardware.ras import RasReader
from sparktop.model.failure import Failure
from sparktop.model.targets import NodeTarget
from sparktop.sources.agent import AgentSource
from sparktop.sources.replies import ASKS_RANKS
from tests.agent.conftest import StartAgent
from tests.agent.raw_client import AMPLE_S, ask
from tests.hardware.ras.examples import answer

pytestmark = pytest.mark.outside
TOKEN = "a-token-of-more-than-16-characters"  # noqa: S105 - known to the tests only
Start = Callable[[str | None], Awaitable[int]]


@pytest.fixture
async def ras() -> AsyncIterator[RasServer]:
    """Return a simulated RAS thread, which notes what it is asked."""
    server = RasServer(lambda: answer("healthy"))
    await server.open()
    yield server
    await server.close()


@pytest.fixture
def start(ras: RasServer, start_agent: StartAgent) -> Start:
    """Return a function that starts an agent with a token or None, and returns its port."""

    async def begin(token: str | None) -> int:
        reader = RasReader(root=Path("/nonexistent"), addresses=[ras.address])
        names = own_names("localhost", ["board.lan"]) if token is None else None
        return (await start_agent(token, ranks=reader, names=names)).port

    return begin


async def status(port: int, *headers: str, path: str = "/v1/sample", method: str = "GET") -> int:
    """Return the status of a request with these headers."""
    return (await ask(port, path, *headers, method=method)).status


IMAGE = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image")
LINK = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
FRAME = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe")


@pytest.mark.parametrize("path", ["/v1/ranks", "/nothing"])
async def test_a_page_of_another_server_gets_nothing(path: str, start: Start, ras: RasServer) -> None:
    """Images, frames and scripts of another page are refused, by what browsers send; NCCL is not asked."""
    port = await start(None)
    own = "Host: 127.0.0.1"
    for headers in (
        IMAGE,
        FRAME,
        ("Origin: http://evil.example",),
        ("Origin: null",),
        ("Sec-Fetch-Site: same-site",),
    ):
        assert await status(port, own, *headers, path=path) == 403, headers
    for host in ("evil.example", "localhost.evil.example:9750", "127.0.0.1@evil.example", "2130706433"):
        assert await status(port, f"Host: {host}", path=path) == 421, host
    assert ras.asked == []


async def test_nccl_is_asked_by_no_simple_request(start: Start, ras: RasServer) -> None:
    """Without a header that other pages cannot send, NCCL is not asked; a viewer sends it, or a token."""
    port = await start(None)
    own = "Host: localhost"
    assert await status(port, own, path="/v1/ranks") == 403
    assert await status(port, own, *LINK, path="/v1/ranks") == 403
    assert await status(port, own, f"{ASKS_RANKS}: 1", path="/v1/ranks", method="OPTIONS") == 405
    assert ras.asked == []
    source = AgentSource(NodeTarget("n", "agent", f"http://127.0.0.1:{port}"))
    assert not isinstance(await source.ask_ranks(AMPLE_S), Failure)
    await source.close()
    asked = len(ras.asked)
    assert asked
    guarded = await start(TOKEN)
    assert await status(guarded, own, path="/v1/ranks") == 401
    assert await status(guarded, own, f"Authorization: Bearer {TOKEN}", path="/v1/ranks") == 200


def test_names_in_the_domains_of_this_machine_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name in the resolver's search domains is how viewers of the same network write it."""
    monkeypatch.setattr("socket.gethostname", lambda: "Spark-A")
    resolver = tmp_path / "resolv.conf"
    resolver.write_text("# x\nnameserver 10.0.0.1\nsearch lan tailnet.ts.net.\n", encoding="utf-8")
    names = own_names("0.0.0.0", resolver=resolver)
    assert {"spark-a", "spark-a.lan", "spark-a.local", "spark-a.tailnet.ts.net"} <= names
    assert not is_own("spark-a.evil.example", names)
    assert own_names("0.0.0.0", resolver=tmp_path / "none") >= {"spark-a", "localhost"}


def test_the_server_answers_under_its_own_names_and_addresses_only() -> None:
    """Requests for other host names are refused, as of DNS rebinding; the port does not matter."""
    names = own_names("0.0.0.0", ["board.lan"])
    for host in ("localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:9752", "10.0.0.5", "board.lan:443"):
        assert is_own(host, names), host
    for host in ("evil.example", "localhost.evil.example", "a@localhost", "localhost/x", "", "[::1", "x:y"):
        assert not is_own(host, names), host
