"""The guard over pure tests: each of these leaves the interpreter without a mark, and must fail for it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from textual.app import App

from tests.conftest import NotPureError

must_fail = pytest.mark.xfail(raises=NotPureError, strict=True, reason="not pure")


@must_fail
def test_no_pure_test_opens_a_connection() -> None:
    """A connection is forbidden before it is made."""
    with socket.socket() as client:
        client.connect(("127.0.0.1", 1))


@must_fail
async def test_no_pure_test_serves() -> None:
    """A server on a free port of loopback is forbidden."""
    await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)


@must_fail
def test_no_pure_test_starts_a_process() -> None:
    """A process is forbidden before it starts."""
    subprocess.run([sys.executable, "-V"], check=True, timeout=30)


@must_fail
def test_no_pure_test_opens_a_terminal() -> None:
    """A pseudo-terminal is forbidden."""
    os.openpty()


@must_fail
async def test_no_pure_test_draws_a_screen() -> None:
    """A Textual application is forbidden, headless too."""
    async with App[None]().run_test():
        pass


@must_fail
async def test_no_pure_test_lets_time_pass() -> None:
    """Short waits of an event loop add up."""
    for _ in range(4):
        await asyncio.sleep(0.04)


@must_fail
def test_no_pure_test_sleeps() -> None:
    """A sleep is forbidden before it begins."""
    getattr(time, "sleep")(60)  # noqa: B009 - the rule against sleeping tests looks for the attribute


@must_fail
def test_a_swallowed_error_counts() -> None:
    """A test that catches the guard's error fails after all."""
    with contextlib.suppress(NotPureError):
        socket.getaddrinfo("127.0.0.1", 80)


async def test_what_stays_inside_is_pure(tmp_path: Path) -> None:
    """Files, threads, short turns of an event loop and long patience with a thread are pure."""
    (tmp_path / "file").write_text("kept", encoding="utf-8")
    await asyncio.sleep(0.001)
    read = asyncio.to_thread((tmp_path / "file").read_text, encoding="utf-8")
    assert await asyncio.wait_for(read, timeout=30) == "kept"


def test_no_garbage_collection_passes_over_the_collected_tests() -> None:
    """What was collected is frozen, so that a full collection in a test does not take 0.4 s."""
    assert gc.get_freeze_count() > 10_000


def test_the_files_of_tests_of_whole_programs_name_their_mark() -> None:
    """`make all-tests` reads only test files that contain its name: no shared module sets it for them."""
    shared = [path for path in Path(__file__).parent.rglob("*.py") if not path.name.startswith("test_")]
    assert shared
    assert [path for path in shared if "mark.process" in path.read_text(encoding="utf-8")] == []
