"""Queries to a simulated RAS thread: the habits of each version, limits of time and size, and the guard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparktop.demo.ras import RasServer
from sparktop.hardware.ras import RasReader, library_path, loaded_nccl, parse_address
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.ranks import RanksAnswer, RanksReply
from tests.hardware.ras.examples import answer
from tests.known import known

pytestmark = pytest.mark.outside
NOTHING = Path("/nonexistent")


@asynccontextmanager
async def asked(
    report: Callable[[], RanksAnswer] | RanksAnswer, gather_s: float = 0.0, root: Path = NOTHING
) -> AsyncIterator[tuple[RasReader, RasServer]]:
    server = RasServer((lambda: report) if isinstance(report, RanksAnswer) else report, gather_s=gather_s)
    await server.open()
    made = RasReader(root=root, addresses=[server.address], clock=asyncio.get_running_loop().time)
    try:
        yield made, server
    finally:
        await made.close()
        await server.close()


async def found_of(made: RasReader) -> RanksAnswer:
    reply = await made.ask()
    assert isinstance(reply, RanksReply), reply
    return known(reply.answer)


async def failure_of(made: RasReader) -> Failure:
    found = await made.ask()
    assert isinstance(found, Failure), found
    assert found.message.isprintable()
    return found


@pytest.mark.parametrize("name", ["in-flight-1", "dead", "second-job"])
async def test_json_is_asked_for_and_read(name: str) -> None:
    """JSON is asked for and read."""
    async with asked(answer(name)) as (made, server):
        assert await found_of(made) == answer(name)
        assert server.asked == ["CLIENT PROTOCOL 2", "SET FORMAT json", "TIMEOUT 5", "STATUS"]


async def test_a_slow_answer_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow answer ends at the deadline."""
    monkeypatch.setattr("sparktop.hardware.ras.DEADLINE_S", 0.2)
    async with asked(answer("healthy"), gather_s=30.0) as (made, _):
        failure = await failure_of(made)
        assert failure.kind is FailureKind.TIMEOUT


@pytest.mark.parametrize(
    ("replies", "kind", "lines"),
    [
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], FailureKind.MALFORMED, ["CLIENT PROTOCOL 2"]),
        (
            [b"SERVER PROTOCOL 2\n", b"ERROR: unknown command\n"],
            FailureKind.UNSUPPORTED,
            ["CLIENT PROTOCOL 2", "SET FORMAT json"],
        ),
    ],
    ids=["another program", "a version without JSON"],
)
async def test_what_does_not_answer_as_expected_is_sent_nothing_more(
    replies: list[bytes], kind: FailureKind, lines: list[str]
) -> None:
    """If the port belongs to another program, or to a version that is asked for nothing but JSON."""
    seen: list[str] = []

    async def talk(coming: asyncio.StreamReader, going: asyncio.StreamWriter) -> None:
        while line := await coming.readline():
            seen.append(line.decode().strip())
            going.write(replies[min(len(seen), len(replies)) - 1])
        going.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        made = RasReader(root=NOTHING, addresses=[server.sockets[0].getsockname()[:2]])
        assert (await failure_of(made)).kind is kind
    assert seen == lines


async def test_nobody_listens() -> None:
    """If nothing listens, the failure says that there is no RAS thread."""
    made = RasReader(root=NOTHING, addresses=[("127.0.0.1", 1)])
    failure = await failure_of(made)
    assert (failure.kind, "no RAS thread" in failure.message) == (FailureKind.REFUSED, True)


def loads(root: Path, library: str, pid: int = 7, environment: bytes = b"", mark: str = "") -> None:
    """Create a process below `root` that has loaded a library; `mark` follows its path in the maps."""
    process = root / "proc" / str(pid)
    process.mkdir(parents=True)
    file = root / library.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    (process / "maps").write_text(f"7f00-7f01 r-xp 00000000 08:01 42    {file}{mark}\n")
    (process / "environ").write_bytes(environment)


@pytest.mark.parametrize(("version", "mark"), [("2.24.3", ""), ("2.28.6", ""), ("2.26.2", " (deleted)")])
async def test_an_old_library_in_a_process_is_never_asked(tmp_path: Path, version: str, mark: str) -> None:
    """If a process has loaded an old NCCL, it is never queried, also where the file was replaced since."""
    loads(tmp_path, f"/usr/lib/libnccl.so.{version}", mark=mark)
    async with asked(answer("healthy"), root=tmp_path) as (made, server):
        failure = await failure_of(made)
        assert (failure.kind, version in failure.message) == (FailureKind.UNSUPPORTED, True)
        assert server.asked == []


def test_the_version_of_a_replaced_library_is_not_that_of_its_successor(tmp_path: Path) -> None:
    """After an update of the Python package, the version in memory is unknown."""
    library = "/env/site-packages/nvidia/nccl/lib/libnccl.so.2"
    (tmp_path / "env/site-packages/nvidia_nccl_cu12-2.28.9.dist-info").mkdir(parents=True)
    loads(tmp_path, library, pid=7)
    loads(tmp_path, library, pid=8, mark=" (deleted)")
    assert [version for version, _ in loaded_nccl(tmp_path)] == [(2, 28, 9), None]


async def test_the_address_of_a_process_is_used(tmp_path: Path) -> None:
    """The RAS address is read from the environment of a process."""
    server = RasServer(lambda: answer("healthy"))
    await server.open()
    host, port = server.address
    variables = f"SECRET=x\0NCCL_RAS_ADDR={host}:{port}\0".encode()
    loads(tmp_path, "/usr/lib/libnccl.so.2.30.7", environment=variables)
    try:
        assert await found_of(RasReader(root=tmp_path, env={})) == answer("healthy")
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:28028", (("::1", 28028), ("127.0.0.1", 28028))),
        ("[fe80::1]:3", (("fe80::1", 3),)),
        ("10.0.0.1", ()),
        ("a:70000", ()),
    ],
)
def test_addresses(text: str, expected: object) -> None:
    """HOST:PORT is parsed, and localhost has two addresses; any other text gives none."""
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "maps", [b"a" * 2_000_000, b"7f00-7f01 r-xp 0 08:01 42 " + b"/libnccl.so.2" * 150_000 + b"!"]
)
def test_a_long_line_of_maps_is_read_once(maps: bytes) -> None:
    """A name of hexadecimal digits is not tried from each of its characters on, which would take minutes."""
    assert library_path(maps) is None
