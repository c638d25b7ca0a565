"""Programs of the live tests: each in a process group of its own, which is ended in any case."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

STACK = Path(os.environ.get("STACK") or Path.home() / ".cache" / "sparktop-stack")
STOP_S = 15.0


@contextmanager
def running(
    command: Sequence[str | Path], log: Path, *, env: Mapping[str, str], errors: int = subprocess.STDOUT
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program with additional environment; its process group ends with the context."""
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603 - programs of the live tests
            command,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for signum in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signum)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path, within_s: float) -> None:
    """Return once `url` answers; fail with the end of the log if the program ends or is too late."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        with suppress(urllib.error.URLError, TimeoutError, ConnectionError):
            urllib.request.urlopen(url, timeout=5).close()  # noqa: S310 - a URL of these tests
            return
        # Wait for its end, which is also the pause before the next try.
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
            break
    pytest.fail(f"{url} did not start:\n{log.read_text(errors='replace')[-2000:]}")


def descendants(pid: int) -> list[int]:
    """Return the pids of all descendants of a process."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found
