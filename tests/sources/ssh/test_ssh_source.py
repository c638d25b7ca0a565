"""Nodes over a real ssh: the installed agent, or the reader that is sent; what can go wrong on the way."""

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
from msgspec.structs import replace

from sparktop.model.failure import FailureKind
from sparktop.model.node import NodeIdentity
from sparktop.model.targets import NodeTarget
from sparktop.sources import ssh, ssh_remote
from sparktop.sources.ssh import SshSource
from sparktop.sources.ssh_remote import START_S, reader_bundle
from tests.known import known
from tests.sources.conftest import AMPLE_S, FakeClock, failure_of, sample_of
from tests.sources.installed import installed
from tests.sources.ssh.pythons import VERSIONS, python
from tests.sources.ssh.remote import SPARKTOP, RemoteProcess, has_ended
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


TARGET = NodeTarget("n", "ssh", ssh="spark")


@asynccontextmanager
async def source_of(
    options: tuple[str, ...], target: NodeTarget = TARGET, pause: Pause | None = None
) -> AsyncIterator[SshSource]:
    """Return a source that is closed at the end."""
    # Waiting for the node's next sample takes its own time: it is the real agent's.
    source = SshSource(target, ssh_options=options, sleep=pause or asyncio.sleep)
    try:
        yield source
    finally:
        await source.close()


def runs(command: str = SPARKTOP, *, ssh_bundle: bool = False) -> NodeTarget:
    """Return the machine, with a command that is sparktop there; unless `ssh_bundle`, no reader is sent."""
    return replace(TARGET, command=command, ssh_bundle=ssh_bundle)


def program(folder: Path, name: str, text: str) -> Path:
    """Create a shell script in `folder`, and the folder if necessary."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def script(folder: Path, text: str) -> str:
    """Create a shell program that stands in for sparktop; it may write its process id to `$pid`."""
    text = f"""[ "$1" = --version ] && exit\npid={shlex.quote(str(folder / "pid"))}\n{text}"""
    return str(program(folder, "stand-in", text))


def real_with_pid(folder: Path) -> str:
    """Create a program that writes its process id and then is the real sparktop."""
    return script(folder, f'echo $$ > "$pid"\nexec {shlex.quote(SPARKTOP)} "$@"')


async def test_the_real_agent_answers_and_leaves_nothing_behind(server: Sshd, tmp_path: Path) -> None:
    """Samples arrive one by one, with the table on request; after closing, the process there has ended."""
    async with source_of(server.options(), runs(real_with_pid(tmp_path))) as source:
        first = await sample_of(source)
        source.show_processes, source.interval_s = True, 0.25
        second = await sample_of(source)
        identity = source.identity
        process = RemoteProcess(tmp_path)
    await process.ended()
    assert first.at < second.at
    assert first.memory.total_bytes
    assert first.processes is None
    assert known(second.processes).count
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
        f"    print(type(await source.poll({AMPLE_S})).__name__, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(run())\n"
    )
    viewer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, real_with_pid(tmp_path), *server.options()),
        stdout=subprocess.PIPE,
    )
    try:
        assert await known(viewer.stdout).readline() == b"NodeSample\n"
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
    async with source_of(options, runs()) as source:
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
    command = str(
        program(tmp_path, "stand-in", f"trap : TERM; echo $$ >> {pids}; while :; do sleep 0.1; done")
    )
    async with source_of(server.options(), runs(command, ssh_bundle=True)) as source:
        failure = await failure_of(source)
    noted = (tmp_path / "pids").read_text(encoding="utf-8").split()
    assert [has_ended(int(pid)) for pid in noted] == [True]
    assert failure.kind is FailureKind.TIMEOUT
    assert f"`{command}` on spark does not start within 15 s" in failure.message


async def test_a_killed_agent_is_started_again(server: Sshd, tmp_path: Path) -> None:
    """If the process there is killed in mid-stream, the failure says so, and the next attempt has samples."""
    pause = Pause()
    async with source_of(server.options(), runs(real_with_pid(tmp_path)), pause) as source:
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
    clock, pause = FakeClock(), Pause()
    target = runs(script(tmp_path, f"echo '{HELLO}'; cat > /dev/null"))
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
    async with source_of(server.options(), runs(script(tmp_path, text))) as source:
        await source.poll(0.0)
        await source._settled.wait()
        await failure_of(source, deadline_s=0.2)
        with gate.open("w", encoding="utf-8"):
            pass
        await sample_of(source)
        assert source._replies.since == 60.0


# Machines with nothing but Python: the reader is sent through a real ssh; what can go wrong on the way.

ASKED = 'exec sh -c "$SSH_ORIGINAL_COMMAND"'
"""The end of a forced command that does what ssh asked for."""
LOW = 10


async def read_once(options: tuple[str, ...], target: NodeTarget = TARGET) -> NodeIdentity:
    """Read a sample; return what the machine is."""
    async with source_of(options, target) as source:
        sample = await sample_of(source)
        assert sample.memory.total_bytes
        return known(source.identity)


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
async def test_python_is_all_that_is_needed(server: Sshd, tmp_path: Path, version: str) -> None:
    """With an empty home the machine is read, at low priority; afterwards no file and no process is left."""
    folder = program(tmp_path / "bin", "python3", f'exec {shlex.quote(python(version))} "$@"').parent
    pid = shlex.quote(str(tmp_path / "pid"))
    script = f"echo $$ > {pid}; PATH={shlex.quote(str(folder))}:/usr/bin:/bin {ASKED}"
    async with source_of(server.forced(f"python{version}", script)) as source:
        source.show_processes = True
        sample = await sample_of(source)
        process = RemoteProcess(tmp_path)
        priority = os.getpriority(os.PRIO_PROCESS, process.pid)
        identity = source.identity
    await process.ended()
    assert sample.processes is not None
    assert identity is not None
    assert (identity.reader_sha256, identity.sparktop) == (reader_bundle().sha256, None)
    assert priority == min(19, os.getpriority(os.PRIO_PROCESS, 0) + LOW)
    assert list(server.home.iterdir()) == []


@pytest.mark.parametrize("shell", ["bash", "dash", "fish"])
async def test_any_login_shell_passes_it_on(server: Sshd, tmp_path: Path, shell: str) -> None:
    """What ssh runs is one line that no shell changes: each gets it as its server would hand it over."""
    path = installed(shell, shell)
    home = f"export HOME={shlex.quote(str(tmp_path))}"  # fish writes there
    options = server.forced(f"shell-{shell}", f'{home}; exec {path} -c "$SSH_ORIGINAL_COMMAND"')
    assert (await read_once(options)).reader_sha256 == reader_bundle().sha256


@pytest.mark.parametrize(
    ("name", "script", "kind", "words"),
    [
        ("cut", 'head -c 1000 | sh -c "$SSH_ORIGINAL_COMMAND"', FailureKind.ENDED, "did not arrive whole"),
        ("garbage", "yes garbage", FailureKind.MALFORMED, 'prints something else than answers: "garbage"'),
        ("no login", "echo no shell for you >&2; exit 1", FailureKind.ENDED, "ended with status 1: no shell"),
        ("no sh", f"PATH=/no; exec /bin/{ASKED[5:]}", FailureKind.COMMAND_NOT_FOUND, "runs no `sh`, `nice`"),
    ],
    ids=lambda one: one if isinstance(one, str) and len(one) < 10 else "",
)  # fmt: skip
async def test_each_trouble_is_one_line(
    server: Sshd, name: str, script: str, kind: FailureKind, words: str
) -> None:
    """Cut input, a host that floods and a program that ends cost bounded memory and are reported at once."""
    async with source_of(server.forced(f"trouble {name}".replace(" ", "-"), script)) as source:
        failure = await failure_of(source)
    assert failure.kind is kind
    assert words in failure.message
    assert failure.message.endswith(" · reconnecting in 1 s")


async def test_what_arrives_changed_is_not_run(server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another digest than the one announced ends it before a byte is run."""
    wrong = replace(reader_bundle(), sha256="0" * 64)
    monkeypatch.setattr(ssh, "reader_bundle", lambda: wrong)
    async with source_of(server.options()) as source:
        failure = await failure_of(source)
    assert failure.kind is FailureKind.MALFORMED
    assert "arrived changed (another SHA-256), so it was not run" in failure.message


@pytest.mark.parametrize(
    ("stand_in", "seen"),
    [
        (None, "on spark: install one there"),
        ('case "$1" in -V) echo Python 3.9.18;; *) exit 1;; esac', "(Python 3.9.18)"),
    ],
)
async def test_a_machine_without_a_new_python_is_told_apart(
    server: Sshd, tmp_path: Path, stand_in: str | None, seen: str
) -> None:
    """The line says whether there is no Python or one that is too old, and what to do."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "nice"):
        (folder / name).symlink_to(installed(name, "coreutils"))
    if stand_in is not None:
        program(folder, "python3", stand_in)
    options = server.forced(tmp_path.name, f"PATH={shlex.quote(str(folder))}; HOME=/nowhere; {ASKED}")
    async with source_of(options) as source:
        failure = await failure_of(source)
    assert failure.kind is FailureKind.COMMAND_NOT_FOUND
    assert "no Python 3.10 or newer on spark" in failure.message
    assert seen in failure.message


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        (f'exec {shlex.quote(SPARKTOP)} "$@"', False),
        (None, True),
        ("echo 'usage: sparktop' >&2; exit 2", True),
    ],
    ids=["equal", "missing", "without --stdio"],
)
async def test_an_installed_sparktop_is_used_if_it_is_not_older(
    server: Sshd, tmp_path: Path, text: str | None, *, sent: bool
) -> None:
    """`command` is used where it is there and at least this version; otherwise the reader is sent."""
    command = tmp_path / "spark top"
    if text is not None:
        program(tmp_path, command.name, text)
    identity = await read_once(server.options(), replace(TARGET, command=str(command)))
    assert (identity.reader_sha256 is not None) is sent
    assert identity.sparktop is None
