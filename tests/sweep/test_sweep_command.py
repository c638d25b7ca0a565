"""`sparktop sweep` as a process: what it prints, keeps, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.result.store import earlier_results, load, stored_sweeps, sweeps_folder
from tests.known import known
from tests.sweep.stream_server import Asked, StreamServer
from tests.sweep.watched_servers import watched

pytestmark = pytest.mark.process
SMALL = ["--pp", "40", "--tg", "9", "--runs", "1"]
"""A calibration asks for fewer tokens, which distinguishes its requests from those of a run."""


class Command:
    """Starts the command in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "TERM": "dumb",
        }
        self.folder = sweeps_folder(self.env)
        self.home = home

    async def start(self, *words: str, name: str = "sweep", **more: str) -> asyncio.subprocess.Process:
        """Start a sweep, or the command `name`, with `more` environment variables."""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sparktop", name, *words),
            env=self.env | more,
            cwd=self.home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *words: str, name: str = "sweep", **more: str) -> tuple[int, str, str]:
        """Run it to its end; return exit code, standard output and standard error."""
        process = await self.start(*words, name=name, **more)
        out, err = await process.communicate()
        return known(process.returncode), out.decode(), err.decode()


async def lines_until(process: asyncio.subprocess.Process, words: str) -> None:
    """Read standard error up to a line with these words."""
    seen = []
    while line := (await known(process.stderr).readline()).decode():
        seen.append(line)
        if words in line:
            return
    raise AssertionError(f"no line with {words!r} in {seen}")


def hang_after_the_first_level(server: StreamServer, requests: int = 1) -> None:
    """Answer all but what comes after the requests of the first level."""
    measured = 0

    async def answer(asked: Asked) -> None:
        nonlocal measured
        measured += asked.tokens == 9
        if measured > requests:
            await server.hang()
        await asked.stream()

    server.behave = answer


async def hanging(command: Command, server: StreamServer) -> asyncio.subprocess.Process:
    """Start a sweep, and wait until a request of its second level hangs."""
    hang_after_the_first_level(server)
    process = await command.start(server.url, "-c", "1,4", *SMALL, "--no-warm-up")
    await lines_until(process, "c = 1")
    await server.someone_waits.wait()
    return process


async def test_json_is_all_there_is_on_standard_output(command: Command) -> None:
    """The result in its schema; messages on standard error; the same result in the store.

    The next sweep has its duration from it.
    """
    async with watched() as servers:
        url = servers.targets[0].url
        words = ["--target", f"solo={url}", "-c", "1,2", *SMALL, "--seed", "7"]
        code, out, err = await command.run(*words)
        ((path, kept),) = stored_sweeps(command.folder).items()
        _, _, again = await command.run(*words)
    assert code == 0, err
    assert ("nothing like it was measured" in err, "estimated from your sweep of" in again) == (True, True)
    told = json.loads(out)
    assert (told["schema"], told["status"], told["plan"]["seed"]) == ("sparktop.sweep/1", "done", 7)
    assert [one["name"] for one in told["targets"]] == ["solo"]
    assert [level["concurrency"] for level in told["targets"][0]["levels"]] == [1, 2]
    assert "\x1b" not in err
    assert "solo: c = 2" in err
    assert told["headline"].startswith(("best: c = ", "TTFT p90 stays", "every TTFT"))
    assert isinstance(kept, SweepResult)
    assert kept.to_json() == {**told, "headline": None}
    assert str(path) in err


async def test_a_router_is_found_out_without_a_configuration(command: Command) -> None:
    """A URL with a LiteLLM behind it is a router, and answers are attributed to its deployments."""
    async with watched(2, strategy="round-robin") as servers:
        url = servers.targets[-1].url
        code, out, err = await command.run(url, "-c", "4", *SMALL)
    assert code == 0, err
    (target,) = json.loads(out)["targets"]
    assert target["kind"] == "router"
    assert sum(target["levels"][0]["served_by"].values()) == 4


async def test_nothing_listens_there(command: Command, server: StreamServer) -> None:
    """Exit code 3, one line why, and no result, which would be empty."""
    await server.stop()
    code, out, err = await command.run(server.url, "-c", "1", *SMALL)
    assert (code, out) == (3, "")
    assert err.count("connection refused") == 1
    assert "Traceback" not in err


async def test_too_many_failures_are_a_bad_result(command: Command, server: StreamServer) -> None:
    """Exit code 1 above --max-errors, 0 below it; the result is there in both cases."""

    async def answer(asked: Asked) -> None:
        if asked.tokens == 9 and asked.number % 5 == 0:
            asked.refuse(500, "out of order")
        else:
            await asked.stream()

    server.behave = answer
    words = [server.url, "-c", "20", *SMALL]
    code, out, err = await command.run(*words)
    assert code == 1, err
    assert "requests failed: more than 1.0 %" in err
    assert json.loads(out)["targets"][0]["levels"][0]["requests"]["errors"] == {"http:500": 4}
    code, _, err = await command.run(*words, "--max-errors", "0.5")
    assert code == 0, err


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGHUP])
async def test_a_signal_keeps_what_is_done(
    command: Command, server: StreamServer, signum: signal.Signals
) -> None:
    """Exit code 130; the finished level and the cut one are in the result, nothing is left in flight."""
    process = await hanging(command, server)
    process.send_signal(signum)
    out, err = await process.communicate()
    assert process.returncode == 130, err.decode()
    told = json.loads(out)
    assert told["status"] == "cancelled"
    assert told["targets"][0]["levels"][0]["requests"]["ok"] == 1
    (kept,) = earlier_results(command.folder, 0)
    assert kept.status == "cancelled"
    server.held.set()
    await server.all_gone.wait()


async def test_a_generator_that_is_stopped_ends_the_sweep_with_a_sentence(
    command: Command, server: StreamServer
) -> None:
    """SIGSTOP: what was finished is kept, and the words name the signal instead of waiting for ever."""
    process = await hanging(command, server)
    (generator,) = psutil.Process(process.pid).children()
    generator.send_signal(signal.SIGSTOP)
    out, err = await process.communicate()
    assert process.returncode == 1
    assert "stopped by a signal (SIGSTOP)" in err.decode()
    assert json.loads(out)["targets"][0]["levels"][0]["requests"]["ok"] == 1
    assert not generator.is_running()


async def test_a_killed_sweep_loses_the_level_in_flight_at_most(
    command: Command, server: StreamServer
) -> None:
    """SIGKILL: what was finished reads back, and the load generator ends with its parent."""
    process = await hanging(command, server)
    process.kill()
    await process.wait()
    (path,) = command.folder.glob("*.json")
    kept = load(path)
    assert (kept.status, kept.finished_at) == (None, None)
    assert [level.concurrency for level in kept.targets[0].levels] == [1]
    server.held.set()
    await server.all_gone.wait()


async def test_a_place_that_cannot_be_written_is_told_before_any_load(
    command: Command, server: StreamServer
) -> None:
    """The exit code is 1, and no request is sent."""
    code, out, err = await command.run(server.url, "-o", str(command.home / "no" / "folder.json"))
    assert (code, out, server.asked) == (1, "", 0)
    assert "there is no folder" in err
