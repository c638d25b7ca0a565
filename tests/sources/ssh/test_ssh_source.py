"""Nodes over ssh: a real sshd, a real ssh, the real agent, and what is said when one of them fails."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparktop.model.failure import FailureKind
from sparktop.model.targets import NodeTarget
from sparktop.sources import ssh_remote
from sparktop.sources.ssh import SshSource
from sparktop.sources.ssh_remote import START_S
from tests.sources.ssh.remote import (
    DEADLINE_S,
    SPARKTOP,
    RemoteProcess,
    failure_of,
    has_ended,
    sample_of,
)
from tests.sources.ssh.sshd import Sshd

pytestmark = pytest.mark.process

HELLO = '{"schema": "sparktop.node/1", "sparktop": "0.1.0"}'


class Pause:
    """A sleep that ends when the test says so."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.over = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        """Wait for `over`, once."""
        self.seconds.append(seconds)
        await self.over.wait()
        self.over.clear()
        self.ended.set()


class Clock:
    """A clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


@asynccontextmanager
async def ssh_source(
    server: Sshd,
    command: str = SPARKTOP,
    *,
    options: tuple[str, ...] | None = None,
    pause: Pause | None = None,
) -> AsyncIterator[SshSource]:
    """Return a source for the machine behind `server`, closed at the end."""
    target = NodeTarget("n", "ssh", ssh="spark", command=command, ssh_bundle=False)
    options = server.options() if options is None else options
    # Waiting for the node's next sample takes its own time: it is the real agent's.
    source = SshSource(target, ssh_options=options, sleep=pause or asyncio.sleep)
    try:
        yield source
    finally:
        await source.close()


def script(folder: Path, text: str) -> str:
    """Create a shell program that stands in for sparktop; it may write its process id to `$pid`."""
    return plain_script(
        folder, f"""[ "$1" = --version ] && exit\npid={shlex.quote(str(folder / "pid"))}\n{text}"""
    )


def plain_script(folder: Path, text: str) -> str:
    """Create a shell program."""
    file = folder / "stand-in"
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)
    return str(file)


def real_with_pid(folder: Path) -> str:
    """Create a program that writes its process id and then is the real sparktop."""
    return script(folder, f'echo $$ > "$pid"\nexec {shlex.quote(SPARKTOP)} "$@"')


async def test_the_real_agent_answers_and_leaves_nothing_behind(server: Sshd, tmp_path: Path) -> None:
    """Samples arrive one by one, with the table on request; after closing, the process there has ended."""
    async with ssh_source(server, real_with_pid(tmp_path)) as source:
        first = await sample_of(source)
        source.show_processes, source.interval_s = True, 0.25
        second = await sample_of(source)
        identity = source.identity
        process = RemoteProcess(tmp_path)
    await process.ended()
    assert first.at < second.at
    assert first.memory.total_bytes
    assert first.processes is None
    assert second.processes is not None
    assert second.processes.count
    assert identity is not None
    assert identity.boot_id


async def test_a_killed_viewer_takes_the_other_half_with_it(server: Sshd, tmp_path: Path) -> None:
    """A viewer that is killed cannot tidy up: the end of its pipe is enough."""
    program = (
        "import asyncio, sys\n"
        "from sparktop.model.targets import NodeTarget\n"
        "from sparktop.sources.ssh import SshSource\n"
        "async def run():\n"
        "    target = NodeTarget('n', 'ssh', ssh='spark', command=sys.argv[1])\n"
        "    source = SshSource(target, ssh_options=sys.argv[2:])\n"
        f"    print(type(await source.poll({DEADLINE_S})).__name__, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(run())\n"
    )
    viewer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, real_with_pid(tmp_path), *server.options()),
        stdout=subprocess.PIPE,
    )
    try:
        assert viewer.stdout is not None
        assert await viewer.stdout.readline() == b"NodeSample\n"
        process = RemoteProcess(tmp_path)
    finally:
        viewer.kill()
        await viewer.wait()
    await process.ended()


async def test_an_unknown_host_key_is_never_taken(server: Sshd, tmp_path: Path) -> None:
    """A host that is not known stays unknown: nothing is written, and the line says what to run."""
    known = tmp_path / "known_hosts"
    known.touch()
    options = server.options("unknown", UserKnownHostsFile=str(known))
    async with ssh_source(server, options=options) as source:
        failure = await failure_of(source)
    assert failure.kind is FailureKind.HOST_KEY
    assert failure.message.startswith(
        "the host key of spark is not known here: run `ssh spark` once and check it"
    )
    assert known.read_bytes() == b""


async def test_a_command_that_hangs_is_ended_there(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a connection does not reach it, yet it is ended and named, also if a reader can be sent."""
    for name in ("_RUN", "_FIND_PYTHON"):
        monkeypatch.setattr(ssh_remote, name, getattr(ssh_remote, name).replace(f"-k 1 {START_S}", "-k 1 1"))
    pids = shlex.quote(str(tmp_path / "pids"))
    command = plain_script(tmp_path, f"trap : TERM; echo $$ >> {pids}; while :; do sleep 0.1; done")
    target = NodeTarget("n", "ssh", ssh="spark", command=command, ssh_bundle=True)
    source = SshSource(target, ssh_options=server.options())
    try:
        failure = await failure_of(source)
    finally:
        await source.close()
    noted = (tmp_path / "pids").read_text(encoding="utf-8").split()
    assert [has_ended(int(pid)) for pid in noted] == [True]
    assert failure.kind is FailureKind.TIMEOUT
    assert f"`{command}` on spark does not start within 15 s" in failure.message


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (
            "echo 'usage: sparktop' >&2; exit 2",
            FailureKind.VERSION,
            "has no `agent --stdio`: update it there",
        ),
        (
            'echo \'{"schema": "sparktop.node/9", "sparktop": "9.1"}\'; cat',
            FailureKind.VERSION,
            "sparktop 9.1 there answers sparktop.node/9",
        ),
        ("echo boom >&2; exit 3", FailureKind.ENDED, "ended with status 3: boom"),
    ],
    ids=["old", "newer", "boom"],
)
async def test_each_other_end_is_told_in_plain_words(
    text: str, kind: FailureKind, words: str, server: Sshd, tmp_path: Path
) -> None:
    """Whatever else the command turns out to be becomes one clean line, at once."""
    async with ssh_source(server, script(tmp_path, text)) as source:
        failure = await failure_of(source)
    assert failure.kind is kind
    assert failure.message.endswith(" · reconnecting in 1 s")
    assert words in failure.message


async def test_a_killed_agent_is_started_again(server: Sshd, tmp_path: Path) -> None:
    """If the process there is killed in mid-stream, the failure says so, and the next attempt has samples."""
    pause = Pause()
    async with ssh_source(server, real_with_pid(tmp_path), pause=pause) as source:
        first = await sample_of(source)
        process = RemoteProcess(tmp_path)
        process.kill()
        await process.ended()
        failure = await failure_of(source)
        again = await failure_of(source)
        pause.over.set()
        await pause.ended.wait()
        second = await sample_of(source)
    assert failure.kind is FailureKind.ENDED
    assert (
        failure.message
        == "the sparktop on spark was ended by a signal, or its connection · reconnecting in 1 s"
    )
    assert again.kind is FailureKind.ENDED
    assert pause.seconds == [1.0]
    assert second.at > first.at


async def test_a_remote_that_hangs_costs_a_deadline_and_then_the_connection(
    server: Sshd, tmp_path: Path
) -> None:
    """Each poll ends with its deadline; a connection that stays silent is given up and made again."""
    clock, pause = Clock(), Pause()
    target = NodeTarget(
        "n",
        "ssh",
        ssh="spark",
        command=script(tmp_path, f"echo '{HELLO}'; cat > /dev/null"),
        ssh_bundle=False,
    )
    source = SshSource(target, ssh_options=server.options(), clock=clock, sleep=pause)
    assert source._keeper is None
    early = await failure_of(source, deadline_s=0.0)
    await source._settled.wait()
    first = await failure_of(source, deadline_s=0.1)
    clock.now += 16.0
    second = await failure_of(source, deadline_s=0.1)
    await source.close()
    assert early.message == "connecting to spark for 0 s"
    assert first.message == "no answer from sparktop on spark for 0 s: is the machine stuck?"
    assert (
        second.message
        == "no answer from sparktop on spark for 16 s: is the machine stuck? · reconnecting in 1 s"
    )
    assert {one.kind for one in (early, first, second)} == {FailureKind.TIMEOUT}


async def test_a_late_answer_is_not_taken_for_the_next_one(server: Sshd, tmp_path: Path) -> None:
    """The answer to an abandoned question is discarded: its age would be wrong."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    early, late = (
        json.dumps({**json.loads(HELLO), "monotonic_s": now, "samples": [{"at": now}]})
        for now in (50.0, 60.0)
    )
    text = f"""echo '{HELLO}'
        read question; cat {shlex.quote(str(gate))}; echo '{early}'
        read question; echo '{late}'; cat"""
    async with ssh_source(server, script(tmp_path, text)) as source:
        await source.poll(0.0)
        await source._settled.wait()
        await failure_of(source, deadline_s=0.2)
        with gate.open("w", encoding="utf-8"):
            pass
        await sample_of(source)
        assert source._replies.since == 60.0
