"""`sparktop agent` as a process: how it starts and ends, and that clients cannot harm it."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from sparktop.cli import main
from sparktop.sources.decode import decode
from tests.agent.agent_process import listening
from tests.agent.raw_client import ask

pytestmark = pytest.mark.process
TOKEN = "a-token-of-more-than-16-characters"  # noqa: S105 - known to the tests only
BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


async def test_a_process_answers_about_this_machine(tmp_path: Path) -> None:
    """The program reads the machine that it runs on, including the process table."""
    with listening("agent", tmp_path, SPARKTOP_TOKEN=TOKEN) as agent:
        reply = decode((await ask(agent.address[1], "/v1/sample?processes=1", token=TOKEN)).body)
    cores = os.cpu_count()
    boot_id = BOOT_ID_FILE.read_text(encoding="utf-8").strip()  # noqa: ASYNC240 - procfs does not block
    assert (reply.boot_id, reply.samples[-1].cpu.cores) == (boot_id, cores)
    assert reply.samples[-1].processes is not None
    assert 0 <= reply.monotonic_s - reply.samples[-1].at < 60


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it(tmp_path: Path, signum: int, code: int) -> None:
    """It prints its address and that no token is needed; a signal ends it, and its port is closed."""
    with listening("agent", tmp_path) as agent, socket.create_connection(agent.address) as half:
        half.sendall(b"GET /v1/sam")
        assert agent.end(signum) == (code, "")
    assert agent.said == [f"sparktop: agent on {agent.url}: no token wanted; Ctrl+C ends\n"]
    with pytest.raises(ConnectionRefusedError), socket.create_connection(agent.address):
        pass


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--listen", "0.0.0.0:0"], "wants a token"),
        (["--listen", "127.0.0.1:99999"], "write HOST:PORT"),
        (["--listen", "no-such-host.invalid:9750"], "--listen no-such-host.invalid:9750: "),
        (["--token-file", "short"], "`openssl rand -hex 32` makes one"),
        (["--tls-cert", "short", "--tls-key", "short"], "no certificate"),
        (["--tls-cert", "short"], "go together"),
        (["--stdio", "--insecure"], "--stdio goes without"),
    ],
    ids=" ".join,
)
def test_what_cannot_work_is_one_line_and_exit_code_2(
    tmp_path: Path,
    words: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Invalid arguments, a missing token and unusable files give one line, no traceback and exit code 2."""
    (tmp_path / "short").write_text("short\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["agent", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("sparktop: ")
    assert err.count("\n") == 1
    assert says in err
