"""The command line as a process of its own: imports, pipes, signals and exit codes."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.programs import free_port, killed, served

pytestmark = pytest.mark.outside

PAGE = b"""\
vllm:num_requests_running{engine="0",model_name="tiny"} 2.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 1.0
vllm:generation_tokens_total{engine="0",model_name="tiny"} 1000.0
"""
ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-m", "sparktop"]
HEAVY = ("textual", "httpx", "aiohttp", "pydantic", "psutil", "rich", "asyncio")
IMPORTS = f"""
import sys
from sparktop.cli import COMMANDS, main
for words in ([], *([name] for name in COMMANDS)):
    assert main([*words, "--help"]) == 0
assert main(["--version"]) == 0
assert main(["--wrong"]) == main(["snapshot", "--seconds", "x"]) == 2
print("loaded", [name for name in {HEAVY!r} if name in sys.modules])
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return an environment with a home of its own and a configuration that polls every 0.25 s."""
    config = tmp_path / ".config" / "sparktop" / "sparktop.toml"
    config.parent.mkdir(parents=True)
    config.write_text("interval_s = 0.25\n", encoding="utf-8")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "SPARKTOP_"))}
    return {**kept, "HOME": str(tmp_path), "TERM": "xterm-256color"}


@pytest.fixture
def engine() -> Iterator[tuple[str, queue.Queue[str]]]:
    """Serve a small metrics page on loopback; yield its address and a queue of the requested paths."""
    asked: queue.Queue[str] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = PAGE if self.path == "/metrics" else b"{}"
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            asked.put(self.path)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with served(Handler) as port:
        yield f"127.0.0.1:{port}", asked


@pytest.fixture
def nobody(tmp_path: Path) -> str:
    """Return the path of a configuration with one backend, at an address on which nothing listens."""
    path = tmp_path / "nobody.toml"
    url = f"http://127.0.0.1:{free_port()}"
    path.write_text(f'[[backends]]\nname = "b"\nurl = "{url}"\n', encoding="utf-8")
    return str(path)


@contextmanager
def started(
    words: list[str], env: dict[str, str], stdout: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """Start a command in the test's home; kill it at the latest when the context ends."""
    process = subprocess.Popen(  # noqa: S603 - our own program
        words,
        env={**env, "PYTHONPATH": str(ROOT)},
        cwd=env["HOME"],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )
    with killed(process):
        yield process


def ran(words: list[str], env: dict[str, str], stdout: int = subprocess.PIPE) -> tuple[int, str, str]:
    """Run a command; return (exit code, standard output, standard error)."""
    with started(words, env, stdout) as process:
        out, err = process.communicate(timeout=40)
        return process.returncode, out or "", err


def test_help_and_usage_errors_load_nothing_heavy(env: dict[str, str]) -> None:
    """Help, `--version` and invalid arguments import no screen, client, validator or event loop."""
    code, out, _ = ran([sys.executable, "-c", IMPORTS], env)
    assert (code, out.splitlines()[-1]) == (0, "loaded []")


@pytest.mark.parametrize("words", [["--help"], ["sweep", "--help"], ["--version"], ["spark-a", "--version"]])
def test_help_that_cannot_be_written_is_an_error(words: list[str], env: dict[str, str]) -> None:
    """A full disk is named, as for every other output."""
    with Path("/dev/full").open("wb") as full:
        code, _, err = ran([*COMMAND, *words], env, full.fileno())
    assert (code, err) == (1, "sparktop: standard output: No space left on device\n")


def test_piped_it_is_a_plain_report(engine: tuple[str, queue.Queue[str]], env: dict[str, str]) -> None:
    """Without a terminal, `sparktop` prints one report without escape sequences and ends with exit code 0."""
    code, out, err = ran([*COMMAND, engine[0]], env)
    assert (code, err) == (0, "")
    assert "tiny" in out
    assert "\x1b" not in out


def test_a_reader_that_has_gone_is_no_error(nobody: str, env: dict[str, str]) -> None:
    """If the reader of the pipe is gone, the report ends without an error and keeps its exit code."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as closed:
        code, _, err = ran([*COMMAND, "snapshot", "--config", nobody], env, closed.fileno())
    assert code == 3
    assert err.startswith("sparktop: nothing could be reached: b: ")
    assert err.count("\n") == 1


def test_an_interrupt_gives_what_was_seen(engine: tuple[str, queue.Queue[str]], env: dict[str, str]) -> None:
    """Ctrl+C while watching prints a report without a traceback and ends with exit code 130."""
    address, asked = engine
    with started([*COMMAND, "snapshot", address, "--seconds", "60"], env) as process:
        assert asked.get(timeout=300)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=40)
    assert process.returncode == 130
    assert json.loads(out)["schema"] == "sparktop.snapshot/1"
    assert err == "sparktop: interrupted: the report is of what was seen until then\n"
