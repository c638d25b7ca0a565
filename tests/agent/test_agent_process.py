"""`sparktop agent` as a process: how it starts and ends, and that clients cannot harm it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparktop.sources.decode import decode
from tests.agent.agent_process import ROOT, AgentProcess, environment, ran, running
from tests.agent.raw_client import Client, ask, connect, request, until, watching

pytestmark = pytest.mark.process
TOKEN = "a-token-of-more-than-16-characters"  # noqa: S105 - known to the tests only
MOST_GROWTH_KB = 24_000
"""Of the agent's memory under attack: 64 connections with what each may send, and room."""
BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
HEAVY = ("textual", "httpx", "rich", "plotext", "sparktop.ui", "sparktop.store", "sparktop.config.schema")
LOADED = f"""
import sys
from sparktop.agent import reader, server
from sparktop.sources import local
import sparktop.agent.exposition
print([name for name in {HEAVY!r} if name in sys.modules])
"""
LOADED_BY_STDIO = """
import io, os, sys
from sparktop.cli import main
source, sink = os.pipe()
os.write(sink, b"{}\\n")
os.close(sink)
os.dup2(source, 0)
code = main(["agent", "--stdio"])
heavy = ("aiohttp", "textual", "httpx", "rich", "prometheus_client", "plotext", "sparktop.ui")
print(code, [name for name in heavy if name in sys.modules], file=sys.stderr)
"""


@dataclass(slots=True)
class Guarded(AgentProcess):
    """The process that all attacks of this file are on."""

    at_rest: int = 0
    """Its number of sockets before the first connection."""


def sockets(agent: AgentProcess) -> int:
    """Return the number of open sockets of a process, those of its connections among them."""
    count = 0
    for link in Path(f"/proc/{agent.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            count += str(link.readlink()).startswith("socket:")
    return count


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Start the agent with a token."""
    with running(tmp_path_factory.mktemp("home"), SPARKTOP_TOKEN=TOKEN) as agent:
        yield Guarded(agent.process, agent.said, sockets(agent))


async def test_a_process_answers_about_this_machine(guarded: AgentProcess) -> None:
    """The program reads the machine that it runs on, including the process table."""
    reply = decode((await ask(guarded.port, "/v1/sample?processes=1", token=TOKEN)).body)
    cores = os.cpu_count()
    boot_id = BOOT_ID_FILE.read_text(encoding="utf-8").strip()  # noqa: ASYNC240 - procfs does not block
    assert (reply.boot_id, reply.samples[-1].cpu.cores) == (boot_id, cores)
    assert reply.samples[-1].processes is not None
    assert 0 <= reply.monotonic_s - reply.samples[-1].at < 60


async def test_a_hundred_megabytes_of_headers(guarded: AgentProcess) -> None:
    """Endless headers are refused with 431 and cost bounded memory; a viewer is still served."""
    async with watching(guarded.port, TOKEN) as viewer:
        before_kb = guarded.status("VmRSS")
        clients = [await connect(guarded.port) for _ in range(4)]
        await asyncio.gather(*(flood(one, 25_000_000) for one in clients))
        answers = [await one.answer() for one in clients]
        for one in clients:
            one.close()
    assert {one.status for one in answers if one} == {431}
    assert guarded.status("VmHWM") - before_kb < MOST_GROWTH_KB
    assert viewer.was_served()


async def flood(client: Client, size: int) -> None:
    """Send headers until about `size` bytes are sent or the agent has closed the connection."""
    client.writer.write(b"GET /v1/sample HTTP/1.1\r\n")
    part = b"X-Header: " + b"y" * 1000 + b"\r\n"
    for _ in range(0, size, 65 * len(part)):
        if client.reader.at_eof() or client.writer.transport.is_closing():
            return
        await client.send(part * 65)


async def test_two_hundred_slow_clients(guarded: AgentProcess) -> None:
    """200 clients that send a byte now and then hold at most 64 connections; a viewer is still served."""
    async with watching(guarded.port, TOKEN) as viewer:
        before_kb, before = guarded.status("VmRSS"), guarded.descriptors()
        clients = [await connect(guarded.port) for _ in range(200)]
        for data in (b"GET /v1/sample HTTP/1.1\r\nX: ", b"x", b"x", b"x"):
            for one in clients:
                await one.send(data)
        # One more viewer connects while they are connected.
        assert (await ask(guarded.port, "/v1/sample", token=TOKEN)).status == 200
        assert guarded.descriptors() - before <= 64
        for one in clients:
            one.close()
    assert guarded.status("VmHWM") - before_kb < MOST_GROWTH_KB
    assert viewer.was_served()


async def test_many_requests_without_the_token(guarded: AgentProcess) -> None:
    """Pipelined requests on many connections without the token get 401 or 429; a viewer is still served.

    How many of them are too many depends on the speed of the machine.
    """
    seen: set[int] = set()
    async with watching(guarded.port, TOKEN) as viewer:
        for _ in range(300):
            client = await connect(guarded.port)
            await client.send(request("/v1/sample") * 60)
            while (answer := await client.answer()) is not None:
                seen.add(answer.status)
            client.close()
    assert 401 in seen
    assert seen <= {401, 429}
    assert viewer.was_served()


async def test_after_all_that_it_is_as_it_was(guarded: Guarded) -> None:
    """After the attacks the agent answers as before, has at most two threads and no connection left open."""
    assert (await ask(guarded.port, "/v1/sample", token=TOKEN)).status == 200
    assert (await ask(guarded.port, "/v1/sample")).status in {401, 429}
    assert guarded.status("Threads") <= 2
    with contextlib.suppress(TimeoutError):  # the numbers say more
        await until(lambda: sockets(guarded) == guarded.at_rest)
    assert sockets(guarded) == guarded.at_rest
    assert guarded.process.poll() is None


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 0)])
def test_a_signal_ends_it(tmp_path: Path, signum: int, code: int) -> None:
    """It prints its address and that no token is needed; a signal ends it, and its port is closed."""
    with running(tmp_path) as agent:
        port = agent.port
        with socket.create_connection(("127.0.0.1", port)) as half:
            half.sendall(b"GET /v1/sam")
            assert agent.end(signum) == (code, "")
    assert agent.said == [f"sparktop: agent on http://127.0.0.1:{port}: no token wanted; Ctrl+C ends\n"]
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        pass


def test_a_token_that_others_can_read_is_worth_a_warning(tmp_path: Path) -> None:
    """A token file that all users can read causes a warning at the start; the token is never printed."""
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\nsecond line\n", encoding="utf-8")
    path.chmod(0o644)
    with running(tmp_path, "--token-file", str(path)) as agent:
        said = [*agent.said, agent.end(signal.SIGTERM)[1]]
    assert "chmod 600" in said[0]
    assert "token wanted" in said[1]
    assert TOKEN not in "".join(said)


def test_tls_is_told_at_the_start(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """With a certificate, the printed address begins with https."""
    cert, key = certificate
    with running(tmp_path, "--tls-cert", str(cert), "--tls-key", str(key)) as agent:
        assert agent.said[-1].startswith("sparktop: agent on https://127.0.0.1:")
        assert agent.end(signal.SIGTERM) == (0, "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--listen", "0.0.0.0:0"], "wants a token"),
        (["--listen", "[::]:0"], "wants a token"),
        (["--listen", "127.0.0.1:99999"], "write HOST:PORT"),
        (["--listen", ":9750"], "write HOST:PORT"),
        (["--listen", "198.51.100.1:9750"], "cannot assign"),
        (["--listen", "no-such-host.invalid:9750"], "--listen no-such-host.invalid:9750: "),
        (["--token-file", "missing"], "no such file"),
        (["--token-file", "short"], "`openssl rand -hex 32` makes one"),
        (["--token-file", "."], "directory"),
        (["--tls-cert", "missing", "--tls-key", "missing"], "no such file"),
        (["--tls-cert", "short", "--tls-key", "short"], "no certificate"),
        (["--tls-cert", "short"], "go together"),
        (["--stdio", "--insecure"], "--stdio goes without"),
        (["--stdio", "--systemd-unit"], "not allowed with"),
    ],
    ids=" ".join,
)
def test_what_cannot_work_is_one_line_and_exit_code_2(tmp_path: Path, words: list[str], says: str) -> None:
    """Invalid arguments, a missing token and unusable files give one line, no traceback and exit code 2."""
    (tmp_path / "short").write_text("short\n", encoding="utf-8")
    code, out, err = ran(tmp_path, *words)
    assert (code, out) == (2, "")
    assert err.startswith("sparktop: ")
    assert err.count("\n") == 1
    assert says in err


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    """A second agent on the same port prints one line and ends with exit code 2."""
    with running(tmp_path) as agent:
        code, _, err = ran(tmp_path, "--listen", f"127.0.0.1:{agent.port}")
    assert code == 2
    place = f"--listen 127.0.0.1:{agent.port}"
    remedy = "choose another port, or end what listens there"
    assert err == f"sparktop: {place}: address already in use: {remedy}\n"


def test_it_loads_no_screen(tmp_path: Path) -> None:
    """The agent imports neither the user interface nor any other module that only a viewer needs."""
    done = subprocess.run(  # noqa: S603 - this interpreter, a script of this file
        [sys.executable, "-c", LOADED],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout == "[]\n"


def test_for_ssh_it_loads_no_server(tmp_path: Path) -> None:
    """`--stdio` imports neither aiohttp nor the modules of the Prometheus page, and leaves no file."""
    done = subprocess.run(  # noqa: S603 - as above
        [sys.executable, "-c", LOADED_BY_STDIO],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stderr == "0 []\n"
    assert [json.loads(line)["schema"] for line in done.stdout.splitlines()] == ["sparktop.node/1"] * 2
    assert list(tmp_path.iterdir()) == []


def test_a_soak_finds_it_as_it_was(tmp_path: Path) -> None:
    """After 20 s of polls at 10 Hz no request has failed, and the process has not grown."""
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, str(ROOT / "scripts" / "soak.py"), "--seconds", "20", "--hz", "10"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("soak: as it was\n")
