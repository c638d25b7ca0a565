"""The hook as a real process: its input, its time limit, and the messages about its failures."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparktop.events import Hook, hook_environment

pytestmark = pytest.mark.outside

DOCUMENT = b'{"schema": "sparktop.event/1", "message": "down"}\n'
SECRETS = {"VLLM_API_KEY": "canary", "AWS_SECRET_ACCESS_KEY": "canary", "SPARKTOP_TOKEN": "canary"}


def program(folder: Path, text: str) -> tuple[str, ...]:
    """Write a Python program; return the command that runs it."""
    path = folder / "hook.py"
    path.write_text(text, encoding="utf-8")
    return (sys.executable, str(path), str(folder))


def state_of(pid: int) -> str:
    """Return the kernel's state letter of a process, "gone" if there is none."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    return "gone"


async def run(folder: Path, text: str, limit_s: float = 20.0) -> str | None:
    return await Hook(program(folder, text), os.environ | SECRETS, limit_s=limit_s).send(DOCUMENT)


async def test_it_gets_the_document_its_arguments_and_no_secret(tmp_path: Path) -> None:
    """It gets one JSON object on standard input and an environment without keys or tokens."""
    text = """
import json, os, sys
seen = {"stdin": json.load(sys.stdin), "arguments": sys.argv[2:], "env": dict(os.environ)}
open(sys.argv[1] + "/seen", "w").write(json.dumps(seen))
"""
    command = (*program(tmp_path, text), "two words", "; rm -rf $HOME", "$(id)")
    assert await Hook(command, os.environ | SECRETS).send(DOCUMENT) is None
    seen: dict[str, Any] = json.loads((tmp_path / "seen").read_text(encoding="utf-8"))
    assert seen["stdin"] == json.loads(DOCUMENT)
    assert seen["arguments"] == ["two words", "; rm -rf $HOME", "$(id)"]
    assert "canary" not in json.dumps(seen)
    assert seen["env"]["PATH"] == os.environ["PATH"]


def test_only_harmless_variables_are_passed_on() -> None:
    """Only variables on a list of harmless names are passed on."""
    env = {"PATH": "/bin", "LC_ALL": "C", "HOME": "/", "DISPLAY": ":0", "ANYTHING": "x"} | SECRETS
    assert hook_environment(env) == {"PATH": "/bin", "LC_ALL": "C", "HOME": "/", "DISPLAY": ":0"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import sys; sys.exit(3)", "it ended with exit code 3"),
        ("import sys; sys.exit('no \\x1b[31m route')", "it ended with exit code 1: no [31m route"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9 ended it"),
        ("import sys; sys.stderr.write('x' * 200000 + ' the end'); sys.exit(1)", None),
    ],
)
async def test_a_failure_is_one_clean_line(tmp_path: Path, text: str, problem: str | None) -> None:
    """A failure is one clean line with the exit code or signal and the end of standard error."""
    said = await run(tmp_path, text)
    assert said is not None
    assert said.isprintable()
    assert problem is None or said == problem
    assert len(said) < 200


async def test_a_program_need_not_read_its_input(tmp_path: Path) -> None:
    """Closing standard input, or ending at once, is not a failure."""
    assert await run(tmp_path, "import sys; sys.stdin.close()") is None
    assert await run(tmp_path, "") is None


@pytest.mark.parametrize("command", [("/no/such/program",), ("",), ("no-such-program-anywhere",)])
async def test_a_program_that_is_not_there_is_a_failure(command: tuple[str, ...]) -> None:
    """A missing program is a failure, without an exception."""
    said = await Hook(command, os.environ).send(DOCUMENT)
    assert said is not None
    assert said.startswith("it cannot be started: ")


async def test_a_file_that_is_not_executable_is_a_failure(tmp_path: Path) -> None:
    """A file that is not executable is a failure with the system's message."""
    (tmp_path / "plain").write_text("echo", encoding="utf-8")
    assert await Hook((str(tmp_path / "plain"),), os.environ).send(DOCUMENT) == (
        "it cannot be started: Permission denied"
    )


async def test_one_that_runs_too_long_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    """A hook that exceeds its time limit is killed together with the children in its process group."""
    script = 'sleep 600 & echo $! > "$1/child"; wait'
    hook = Hook(("/bin/sh", "-c", script, "sh", str(tmp_path)), os.environ, limit_s=3.0)
    assert await hook.send(DOCUMENT) == "it ran longer than 3 s and was killed"
    child = int((tmp_path / "child").read_text(encoding="utf-8"))
    async with asyncio.timeout(300):
        while state_of(child) not in {"gone", "Z", "X"}:  # noqa: ASYNC110 - the kernel has no event to wait for
            await asyncio.sleep(0.01)


async def test_what_it_leaves_in_the_background_does_not_hold_it(tmp_path: Path) -> None:
    """A child that the hook leaves behind is not waited for, and continues to run."""
    text = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1] + "/child", "w").write(str(child.pid))
"""
    said = await run(tmp_path, text, limit_s=30.0)
    child = int((tmp_path / "child").read_text(encoding="utf-8"))
    state = state_of(child)
    os.kill(child, signal.SIGKILL)
    assert (said, state not in {"gone", "Z", "X"}) == (None, True)
