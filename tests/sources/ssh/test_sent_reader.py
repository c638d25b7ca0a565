"""Machines with nothing but Python: the reader is sent through a real ssh; what can go wrong on the way."""

from __future__ import annotations

import os
import shlex
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
from tests.sources.installed import installed
from tests.sources.ssh.pythons import VERSIONS, python
from tests.sources.ssh.remote import SPARKTOP, RemoteProcess, failure_of, has_ended, sample_of
from tests.sources.ssh.sshd import Sshd

pytestmark = pytest.mark.process

TARGET = NodeTarget("n", "ssh", ssh="spark")
ASKED = 'exec sh -c "$SSH_ORIGINAL_COMMAND"'
"""The end of a forced command that does what ssh asked for."""
LOW = 10


@asynccontextmanager
async def source_of(options: tuple[str, ...], target: NodeTarget = TARGET) -> AsyncIterator[SshSource]:
    """Return a source that is closed at the end."""
    source = SshSource(target, ssh_options=options)
    try:
        yield source
    finally:
        await source.close()


async def read_once(options: tuple[str, ...], target: NodeTarget = TARGET) -> NodeIdentity:
    """Read a sample; return what the machine is."""
    async with source_of(options, target) as source:
        sample = await sample_of(source)
        assert sample.memory.total_bytes
        assert source.identity is not None
        return source.identity


def program(folder: Path, name: str, text: str) -> Path:
    """Create a shell script in `folder`, and the folder if necessary."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)
    return file


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


async def test_a_python_that_hangs_is_ended_there(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a connection reaches neither the waiting shell nor Python, yet both are ended."""
    monkeypatch.setattr(
        ssh_remote, "_FIND_PYTHON", ssh_remote._FIND_PYTHON.replace(f"-k 1 {START_S}", "-k 1 1")
    )
    folder, pids = tmp_path / "bin", tmp_path / "pids"
    note = f"echo $$ >> {shlex.quote(str(pids))}"
    program(folder, "python3", f"trap : TERM; {note}; while :; do sleep 0.1; done")
    for name in ssh_remote._NEWER:
        program(folder, name, "exit 1")
    path = f"PATH={shlex.quote(str(folder))}:/usr/bin:/bin"
    async with source_of(server.forced(f"hangs-{tmp_path.name}", f"{note}; {path} {ASKED}")) as source:
        failure = await failure_of(source)
    assert [has_ended(int(pid)) for pid in pids.read_text(encoding="utf-8").split()] == [True, True]
    assert failure.kind is FailureKind.TIMEOUT
    assert "the Python on spark does not start within 15 s" in failure.message


async def test_a_forced_command_keeps_the_installed_sparktop(server: Sshd) -> None:
    """If a key may only run the agent, the reader is not sent: the agent's greeting comes unasked."""
    identity = await read_once(server.forced("forced", f"exec {shlex.quote(SPARKTOP)} agent --stdio"))
    assert identity.reader_sha256 is None


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
