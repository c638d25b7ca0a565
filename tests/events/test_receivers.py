"""The hook as a real process, and the webhook against a real server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparktop.events import PAUSES_S, Hook, Webhook, hook_environment
from tests.known import known
from tests.sources import conftest as sources

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
    said = known(await run(tmp_path, text))
    assert said.isprintable()
    assert problem is None or said == problem
    assert len(said) < 200


@pytest.mark.parametrize("command", [("/no/such/program",), ("",), ("no-such-program-anywhere",)])
async def test_a_program_that_is_not_there_is_a_failure(command: tuple[str, ...]) -> None:
    """A missing program is a failure, without an exception."""
    said = known(await Hook(command, os.environ).send(DOCUMENT))
    assert said.startswith("it cannot be started: ")


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


EVENT = b'{"schema": "sparktop.event/1"}\n'


class Answers:
    """Answers with a list of statuses, then always with the last one; 0 means no answer."""

    def __init__(self) -> None:
        """Start with status 200."""
        self.port = 0
        self.statuses = [200]
        self.requests: list[bytes] = []
        self.paused: list[float] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = re.findall(rb"content-length: (\d+)", head.lower())
        self.requests.append(head + await reader.readexactly(int(length)))
        status = self.statuses[0] if len(self.statuses) == 1 else self.statuses.pop(0)
        if status:
            writer.write(sources.answer(b"no", f"{status} X"))
            await writer.drain()
        else:
            await reader.read()

    async def pause(self, seconds: float) -> None:
        """Record a pause."""
        self.paused.append(seconds)


serve = sources.serve
"""The fixture that starts a server with a handler."""


@pytest.fixture
async def answers(serve: sources.Serve) -> Answers:
    made = Answers()
    made.port = (await serve(made.serve)).port
    return made


async def send(answers: Answers, token: str | None = None, deadline_s: float = 5.0) -> str | None:
    url = f"http://127.0.0.1:{answers.port}/secret-path/?wait=true"
    problem = await Webhook(url, token, sleep=answers.pause, deadline_s=deadline_s).send(EVENT)
    return None if problem is None else problem.replace(str(answers.port), "PORT")


async def test_one_post_with_the_document_and_the_token(answers: Answers) -> None:
    """An event is one POST of JSON to the configured path and query, with a bearer token."""
    assert await send(answers, "canary") is None
    (request,) = answers.requests
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /secret-path/?wait=true HTTP/1.1\r\n")
    assert b"authorization: bearer canary" in head.lower()
    assert b"content-type: application/json" in head.lower()
    assert body == EVENT


async def test_trouble_of_the_server_is_tried_again(answers: Answers) -> None:
    """Server errors are retried with growing pauses; after a success nothing is reported."""
    answers.statuses = [500, 429, 202]
    assert await send(answers) is None
    assert answers.paused == [*PAUSES_S[:2]]
    assert len({*answers.requests}) == 1


@pytest.mark.parametrize("status", [503, 301, 400, 401, 404])
async def test_what_will_not_change_is_not_tried_again(answers: Answers, status: int) -> None:
    """A 503 is tried three times more; a redirect, which would get the token, and other statuses are not.

    The message has host and port, but neither path nor token.
    """
    answers.statuses = [status]
    assert await send(answers, "canary") == f"127.0.0.1:PORT answered with HTTP status {status}"
    assert answers.paused == sorted(PAUSES_S if status == 503 else ())
    assert len(answers.requests) == 1 + len(answers.paused)


async def test_a_server_that_is_silent_is_given_up_in_time(answers: Answers) -> None:
    """Each try has its own time limit, so a silent server is given up in time."""
    answers.statuses = [0]
    said = known(await send(answers, deadline_s=0.5))
    assert said.startswith("no answer from 127.0.0.1:PORT within 0.5 s")
    assert len(answers.requests) == 4


async def test_a_token_that_no_header_may_hold_is_not_sent(answers: Answers) -> None:
    """A token that is invalid in a header is not sent, and the message does not show it."""
    said = known(await send(answers, "ké\n"))
    assert "webhook_token_env" in said
    assert "k" + "é" not in said
    assert answers.requests == []
