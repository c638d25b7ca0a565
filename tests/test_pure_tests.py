"""The guard over pure tests: each of these leaves the interpreter without a mark, and must fail for it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path

import pytest
from textual.app import App

from tests.conftest import Guard, NotPureError

must_fail = pytest.mark.xfail(raises=NotPureError, strict=True, reason="not pure")


@must_fail
def test_no_pure_test_opens_a_connection() -> None:
    """Opening a connection fails before it is made."""
    with socket.socket() as client:
        client.connect(("127.0.0.1", 1))


@must_fail
async def test_no_pure_test_draws_a_screen() -> None:
    """Starting a Textual application fails, in headless mode too."""
    async with App[None]().run_test():
        pass


@must_fail
async def test_no_pure_test_lets_time_pass() -> None:
    """Short waits of an event loop fail once their sum is too long."""
    for _ in range(4):
        await asyncio.sleep(0.04)


@must_fail
def test_no_pure_test_sleeps() -> None:
    """A sleep fails before it begins."""
    getattr(time, "sleep")(60)  # noqa: B009 - the rule against sleeping tests looks for the attribute


async def test_what_stays_inside_is_pure(tmp_path: Path) -> None:
    """Files, threads, short turns of an event loop, and a long timeout for a thread are allowed."""
    (tmp_path / "file").write_text("kept", encoding="utf-8")
    await asyncio.sleep(0.001)
    read = asyncio.to_thread((tmp_path / "file").read_text, encoding="utf-8")
    assert await asyncio.wait_for(read, timeout=30) == "kept"


def test_what_an_earlier_test_left_behind_is_not_held_against_this_one() -> None:
    """On a busy machine a thread that reads a machine may start its program only now."""
    guard, is_next = Guard(), threading.Event()

    def read_late() -> None:
        is_next.wait()
        guard.forbid("subprocess.Popen")

    left_behind = threading.Thread(target=read_late)
    left_behind.start()
    with guard.holding():
        is_next.set()
        left_behind.join()


def test_the_files_of_tests_of_whole_programs_name_their_mark() -> None:
    """Only test files name `mark.process`, because `make all-tests` selects files by it."""
    shared = [path for path in Path(__file__).parent.rglob("*.py") if not path.name.startswith("test_")]
    assert shared
    assert [path for path in shared if "mark.process" in path.read_text(encoding="utf-8")] == []
