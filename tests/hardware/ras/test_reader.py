"""Queries to a simulated RAS thread: the habits of each version, limits of time and size, and the guard."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparktop.demo.ras import Habits, RasServer
from sparktop.hardware.ras import MOST_BYTES, Found, RasReader, parse_address, parse_text
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.ranks import RanksAnswer
from tests.hardware.ras.examples import DATA, FORMS, answer, example

pytestmark = pytest.mark.outside
NOTHING = Path("/nonexistent")
USUAL = Habits()


@asynccontextmanager
async def asked(
    report: Callable[[], RanksAnswer] | RanksAnswer, habits: Habits = USUAL, root: Path = NOTHING
) -> AsyncIterator[tuple[RasReader, RasServer]]:
    server = RasServer((lambda: report) if isinstance(report, RanksAnswer) else report, habits)
    await server.open()
    made = RasReader(root=root, addresses=[server.address], clock=asyncio.get_running_loop().time)
    try:
        yield made, server
    finally:
        await made.close()
        await server.close()


async def found_of(made: RasReader) -> RanksAnswer:
    found = await made.ask()
    assert isinstance(found, Found), found
    return found.answer


async def failure_of(made: RasReader) -> Failure:
    found = await made.ask()
    assert isinstance(found, Failure), found
    assert found.message.isprintable()
    return found


@pytest.mark.parametrize(
    "name", ["healthy", "in-flight-1", "in-flight-2", "lags-by-one", "dead", "second-job"]
)
async def test_json_is_asked_for_and_read(name: str) -> None:
    """JSON is asked for and read."""
    async with asked(answer(name)) as (made, server):
        assert await found_of(made) == answer(name)
        assert server.asked == ["CLIENT PROTOCOL 2", "SET FORMAT json", "TIMEOUT 5", "STATUS"]


@pytest.mark.parametrize("name", ["healthy", "in-flight-1", "lags-by-one", "dead"])
async def test_a_version_without_json_is_read_as_text(name: str) -> None:
    """A version without JSON is read as text."""
    async with asked(answer(name, "2.27.5"), Habits(json=False)) as (made, server):
        found = await found_of(made)
        assert (found.form, found.nccl) == ("text", "2.27.5")
        assert server.asked[-1] == "VERBOSE STATUS"


@pytest.mark.parametrize("version", ["2.28.7", "2.28.9"])
async def test_the_missing_comma_of_two_versions(version: str) -> None:
    """JSON that lacks a comma, as of two versions, is read with a warning that names version 2.29.2."""
    async with asked(answer("dead", version), Habits(comma=False)) as (made, _):
        found = await made.ask()
        assert isinstance(found, Found)
        assert found.answer == answer("dead", version)
        assert found.warning is not None
        assert "2.29.2" in found.warning


async def test_a_safe_version_has_no_warning() -> None:
    """A safe version has no warning."""
    async with asked(answer("healthy")) as (made, _):
        found = await made.ask()
        assert isinstance(found, Found)
        assert found.warning is None


async def test_two_jobs_answer_in_turn() -> None:
    """If two jobs share the port, each query may reach either."""
    turns = iter([answer("healthy"), answer("second-job")] * 2)
    async with asked(lambda: next(turns)) as (_, server):
        clock = iter(float(second) for second in range(0, 100, 5))
        made = RasReader(root=NOTHING, addresses=[server.address], clock=lambda: next(clock))
        jobs = [(await found_of(made)).job for _ in range(4)]
        assert jobs == [answer("healthy").job, answer("second-job").job] * 2


async def test_a_slow_answer_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow answer ends at the deadline."""
    monkeypatch.setattr("sparktop.hardware.ras.DEADLINE_S", 0.2)
    async with asked(answer("healthy"), Habits(gather_s=30)) as (made, _):
        failure = await failure_of(made)
        assert failure.kind is FailureKind.TIMEOUT


async def test_a_stopped_process_that_accepts_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process that accepts a connection and sends nothing fails at the deadline."""
    monkeypatch.setattr("sparktop.hardware.ras._LINE_S", 0.1)
    async with asked(answer("healthy"), Habits(deaf=True)) as (made, _):
        failure = await failure_of(made)
        assert failure.kind is FailureKind.TIMEOUT
        assert "hangs" in failure.message


@pytest.mark.parametrize("json", [True, False])
@pytest.mark.parametrize("end", [0, 40, 600, -60])
async def test_half_an_answer(end: int, json: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """An incomplete answer is malformed."""
    async with asked(answer("lags-by-one"), Habits(json=json, ends_after=end)) as (made, _):
        assert (await failure_of(made)).kind is FailureKind.MALFORMED


@pytest.mark.parametrize("body", [b"\x00\xff\x1b[2J" * 100, b"{}", b'{"communicators": [1]}', b"<html>"])
@pytest.mark.parametrize("json", [True, False])
async def test_garbage(body: bytes, json: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Garbage is malformed."""
    async with asked(answer("healthy"), Habits(json=json, body=body)) as (made, _):
        assert (await failure_of(made)).kind is FailureKind.MALFORMED


async def test_an_answer_without_an_end_is_cut_off() -> None:
    """An answer without an end is cut off."""
    async with asked(answer("healthy"), Habits(body=b"{" * (MOST_BYTES + 1))) as (made, _):
        failure = await failure_of(made)
        assert (failure.kind, "4 MiB" in failure.message) == (FailureKind.MALFORMED, True)


async def test_something_else_on_the_port_is_sent_nothing_more() -> None:
    """If the port belongs to another program, nothing more is sent after the first line."""
    lines: list[bytes] = []

    async def talk(coming: asyncio.StreamReader, going: asyncio.StreamWriter) -> None:
        lines.append(await coming.readline())
        going.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        lines.append(await coming.read())
        going.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        made = RasReader(root=NOTHING, addresses=[server.sockets[0].getsockname()[:2]])
        assert (await failure_of(made)).kind is FailureKind.MALFORMED
    assert lines == [b"CLIENT PROTOCOL 2\n", b""]


async def test_nobody_listens() -> None:
    """If nothing listens, the failure says that there is no RAS thread."""
    made = RasReader(root=NOTHING, addresses=[("127.0.0.1", 1)])
    failure = await failure_of(made)
    assert (failure.kind, "no RAS thread" in failure.message) == (FailureKind.REFUSED, True)


async def test_requests_at_the_same_time_are_one_query() -> None:
    """Simultaneous requests share one query."""
    async with asked(answer("healthy")) as (made, server):
        found = await asyncio.gather(*(made.ask() for _ in range(5)))
        assert len({id(one) for one in found}) == 1
        assert await made.ask() is found[0]
        assert server.asked.count("STATUS") == 1


async def test_a_version_that_must_not_be_asked_is_asked_once_where_only_its_answer_says_so() -> None:
    """A version that must not be queried, but is known only from its answer, is queried once."""
    async with asked(answer("healthy", "2.26.5"), Habits(json=False)) as (_, server):
        clock = iter(float(second) for second in range(0, 100, 5))
        made = RasReader(root=NOTHING, addresses=[server.address], clock=lambda: next(clock))
        assert (await failure_of(made)).kind is FailureKind.UNSUPPORTED
        assert (await failure_of(made)).kind is FailureKind.UNSUPPORTED
        assert server.asked.count("VERBOSE STATUS") == 1


def loads(root: Path, library: str, pid: int = 7, environment: bytes = b"") -> None:
    """Create a process below `root` that has loaded a library."""
    process = root / "proc" / str(pid)
    process.mkdir(parents=True)
    file = root / library.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    (process / "maps").write_text(f"7f00-7f01 r-xp 00000000 08:01 42    {file}\n")
    (process / "environ").write_bytes(environment)


@pytest.mark.parametrize("version", ["2.24.3", "2.26.5", "2.27.2"])
async def test_an_old_library_in_a_process_is_never_asked(tmp_path: Path, version: str) -> None:
    """If a process has loaded an old NCCL, it is never queried."""
    loads(tmp_path, f"/usr/lib/libnccl.so.{version}")
    async with asked(answer("healthy"), root=tmp_path) as (made, server):
        failure = await failure_of(made)
        assert (failure.kind, version in failure.message) == (FailureKind.UNSUPPORTED, True)
        assert server.asked == []


async def test_the_version_is_read_from_the_python_package(tmp_path: Path) -> None:
    """The version is read from the Python package."""
    loads(tmp_path, "/venv/site-packages/nvidia/nccl/lib/libnccl.so.2")
    (tmp_path / "venv/site-packages/nvidia_nccl_cu13-2.26.2.dist-info").mkdir()
    async with asked(answer("healthy"), root=tmp_path) as (made, server):
        assert "2.26.2" in (await failure_of(made)).message
        assert server.asked == []


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
        ("10.0.0.1:3", (("10.0.0.1", 3),)),
        ("10.0.0.1", ()),
        (":3", ()),
        ("a:70000", ()),
    ],
)
def test_addresses(text: str, expected: object) -> None:
    """HOST:PORT is parsed, and localhost has two addresses; any other text gives none."""
    assert parse_address(text) == expected


def test_the_examples_are_whole() -> None:
    """Each example has as many communicators and ranks as it states; all but one exist as text, too."""
    names = {form: {path.stem for path in DATA.glob(f"*.{form}")} for form in FORMS}
    assert names["json"] == {"healthy", "in-flight-1", "in-flight-2", "lags-by-one", "dead", "second-job"}
    assert names["txt"] == names["json"] - {"second-job"}
    for name in names["json"]:
        document = json.loads(example(name))
        assert len(document["communicators"]) == document["communicators_count"] > 0
        for one in document["communicators"]:
            counts = len(one["ranks"]), len(one.get("missing_ranks", []))
            assert counts == (one["ranks_count"], one["missing_ranks_count"])
            assert sum(counts) == one["size"]
    for name in names["txt"]:
        found = parse_text(example(name, "txt"))
        assert len(found.communicators) + found.unnamed == len(answer(name).communicators)


async def test_localhost_is_tried_at_both_of_its_addresses() -> None:
    """The name "localhost" is tried at ::1 and 127.0.0.1: NCCL listens at the first that it resolves to."""
    server = RasServer(lambda: answer("healthy"))
    await server.open()
    try:
        made = RasReader(root=NOTHING, env={"NCCL_RAS_ADDR": f"localhost:{server.address[1]}"})
        assert await found_of(made) == answer("healthy")
    finally:
        await server.close()
