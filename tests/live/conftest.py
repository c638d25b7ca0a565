"""Two real vLLM servers for the live tests, which run only when asked for."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
STACK_SCRIPT = ROOT / "scripts" / "real_stack.sh"
STACK = Path(os.environ.get("STACK") or Path.home() / ".cache" / "sparktop-stack")
FLAGS = ("--max-num-seqs", "8", "--num-gpu-blocks-override", "40", "--block-size", "128")
"""Few slots and a small KV pool: requests queue, and some are preempted.

A module's `SERVER_FLAGS` replace them.
"""
START_S = 240.0
STOP_S = 15.0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the live tests unless they are asked for and can run."""
    if "live" not in (config.option.markexpr or ""):
        reason = "`make live` runs it"
    elif not (STACK / "vllm" / "bin" / "python").exists():
        reason = f"no vLLM in {STACK}: run scripts/real_stack.sh install"
    else:
        return
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """The URLs of two real vLLM servers, started here and stopped whatever happens."""
    logs = tmp_path_factory.mktemp("vllm")
    flags = getattr(request.module, "SERVER_FLAGS", FLAGS)
    with ExitStack() as stack:
        started = [
            stack.enter_context(_server(_free_port(), logs / f"{index}.log", flags)) for index in range(2)
        ]
        for url, process, log in started:
            _wait_for_health(url, process, log)
        yield [url for url, _, _ in started]


@contextmanager
def _server(
    port: int, log: Path, flags: tuple[str, ...]
) -> Iterator[tuple[str, subprocess.Popen[bytes], Path]]:
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603 - a script of this repository
            [STACK_SCRIPT, "vllm", str(port), "mid", *flags],
            # A proxy's kept connections must not end under a request: vLLM drops them after 5 s.
            env={**os.environ, "STACK": str(STACK), "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield f"http://127.0.0.1:{port}", process, log
    finally:
        # The engine is a process of its own in the same group.
        for signum in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signum)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)


def _wait_for_health(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        with suppress(urllib.error.URLError, TimeoutError, ConnectionError):
            urllib.request.urlopen(f"{url}/health", timeout=5).close()  # noqa: S310 - a URL of this file
            return
        # Waiting for its end is the pause between two looks.
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
            break
    pytest.fail(f"{url} did not start:\n{log.read_text(errors='replace')[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
