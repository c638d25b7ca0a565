"""A running ssh process with `sparktop agent --stdio` at its remote end."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from sparktop.hardware.ras.reader import Found
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean
from sparktop.sources.ssh.failure import Ending, LinkError, explain
from sparktop.sources.wire.decode import MOST_BYTES, WireError, decode, decode_ranks
from sparktop.sources.wire.reply import Reply

_OPTIONS = {
    "BatchMode": "yes",  # never prompt: the screen belongs to the viewer
    "ConnectTimeout": "10",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    # An existing master connection may be used; becoming master would end other sessions together with ours.
    "ControlMaster": "no",
    "ClearAllForwardings": "yes",
    "RemoteCommand": "none",
    "LogLevel": "ERROR",
}
"""Options for this use only; all else, including the host-key policy, is the user's configuration."""
_SCRIPT = (
    'case "$0" in "~/"*) c="$HOME/${0#??}";; *) c="$0";; esac; '
    'PATH="$PATH:$HOME/.local/bin:$HOME/bin"; export PATH; exec "$c" agent --stdio'
)
"""Runs the sparktop command in $0, also where it lies in a folder in which pipx and uv install programs.

A non-login shell does not have ~/.local/bin in PATH."""
_NOISE_LINES = 200
_NOISE_BYTES = 64 << 10
"""Most lines and bytes that a shell's start-up files may print before the first answer."""
_STDERR_KEPT_BYTES = 8192
_LAST_WORDS_S = 1.0
"""Seconds to wait for the exit status after the last answer."""
_LEAVING_S = 0.5
"""Seconds for each of: exit by itself, after SIGTERM, after SIGKILL."""


def command_line(ssh: str, options: Sequence[str], destination: str, command: str) -> list[str]:
    """Return the command line, as a list, that starts ssh with the agent `command` at `destination`.

    Neither `destination` nor `command` can be taken for an option or expanded by a shell. Any login shell
    works at the destination, because it gets only words in single quotes.
    """
    ours = [word for name, value in _OPTIONS.items() for word in ("-o", f"{name}={value}")]
    remote = f"exec sh -c {shlex.quote(_SCRIPT)} {shlex.quote(command)}"
    return [ssh, *options, "-T", "-x", "-a", *ours, "--", destination, remote]


def quiet_environment() -> dict[str, str]:
    """Return the environment variables, changed so that ssh cannot open a window to ask for a password."""
    return {**os.environ, "SSH_ASKPASS": "/bin/false", "SSH_ASKPASS_REQUIRE": "never"}


class SshLink:
    """A running ssh process: each request is a line written to it, each answer a line read from it."""

    def __init__(self, process: asyncio.subprocess.Process, where: str, command: str) -> None:
        """Wrap an ssh process whose stdin, stdout and stderr are pipes.

        `where` and `command` appear in messages.
        """
        self._process = process
        self._where = where
        self._command = command
        self._written: deque[bytes] = deque()
        self._written_bytes = 0
        self._stderr_task = asyncio.get_running_loop().create_task(self._read_stderr())
        self._owed = False
        """True while the answer to a request is outstanding."""
        self._answered = False

    @classmethod
    async def start(
        cls, ssh: str, options: Sequence[str], destination: str, command: str, where: str
    ) -> SshLink:
        """Start ssh and return the link, before any answer of the remote agent.

        ssh runs in a session of its own: it has no terminal to prompt on, and signals to the session reach
        its children.

        Raises:
            LinkError: ssh is missing on this machine or cannot be started.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *command_line(ssh, options, destination, command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=quiet_environment(),
                start_new_session=True,
                limit=MOST_BYTES,
            )
        except FileNotFoundError:
            message = "there is no ssh on this machine: install an OpenSSH client"
            raise LinkError(FailureKind.UNSUPPORTED, message) from None
        except OSError as error:
            message = f"ssh cannot be started: {error.strerror or type(error).__name__}"
            raise LinkError(FailureKind.UNSUPPORTED, message) from None
        return cls(process, where, command)

    async def hello(self) -> Reply:
        """Return the reply that the agent sends first, before any request.

        Output of the remote shell's start-up files before this reply is skipped.

        Raises:
            LinkError: the reply is missing or unreadable.
        """
        try:
            return await self._answer()
        except WireError as error:
            raise LinkError(error.kind, f"{self._where}: {error}") from None

    async def ask(
        self, since: float | None, *, processes: bool, interval_s: float | None, clock: Callable[[], float]
    ) -> tuple[Reply, float]:
        """Request the samples newer than `since`; return the reply and its arrival time by `clock`.

        `since` is a time of the node's clock, None for all. If an earlier request is still unanswered, its
        reply is read first and dropped.

        Raises:
            LinkError: the connection ended, or something other than a reply arrived.
            WireError: the reply is a refusal or unreadable; the next request may succeed.
        """
        if self._owed:
            with suppress(WireError):
                await self._answer()
        await self._write({"since": since, "processes": processes, "interval_s": interval_s})
        reply = await self._answer()
        return reply, clock()

    async def ask_ranks(self) -> Found:
        """Let the agent ask NCCL about the ranks of a job, and return its answer.

        Raises:
            LinkError: the connection ended, or something other than a reply arrived.
            WireError: there is no answer, or the agent is too old.
        """
        await self._write({"ranks": True})
        return decode_ranks(await self._reply_line())

    async def _write(self, question: Mapping[str, object]) -> None:
        """Write a request, as a line of JSON."""
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - the process was started with pipes
        with suppress(ConnectionError):  # whether it ended shows in what can be read
            stdin.write(json.dumps(question).encode() + b"\n")
            self._owed = True
            await stdin.drain()

    async def close(self) -> None:
        """End ssh and its children.

        Close ssh's input, so that the remote agent exits; then send SIGTERM, then SIGKILL.
        """
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None and process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LEAVING_S):
                    await process.wait()
                    break
        self._stderr_task.cancel()
        await asyncio.gather(self._stderr_task, return_exceptions=True)
        # A child of ssh may hold a pipe open after ssh is gone.
        transport = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()

    async def _answer(self) -> Reply:
        """Return the next reply of the agent."""
        return decode(await self._reply_line())

    async def _reply_line(self) -> bytes:
        """Read lines until one is an agent's reply and return this line.

        Skip the output of the shell's start-up files.
        """
        lines = size_bytes = 0
        line = b""
        while lines <= _NOISE_LINES and size_bytes <= _NOISE_BYTES:
            line = await self._line()
            if line.startswith(b"{") and b'"schema"' in line:
                self._owed, self._answered = False, True
                return line
            lines += 1
            size_bytes += len(line)
        raise self._no_answer_in(line)

    async def _line(self) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - the process was started with pipes
        try:
            line = await stdout.readline()
        except ValueError:
            raise self._no_answer_in(b"a line without an end") from None
        if not line.endswith(b"\n"):  # end of file, perhaps in the middle of an answer
            raise await self._ending()
        return line

    def _no_answer_in(self, line: bytes) -> LinkError:
        quoted = clean(line[:400].decode("utf-8", "replace"), 60)
        message = (
            f'{self._where} prints something else than answers: "{quoted}": what do its shell files print?'
        )
        return LinkError(FailureKind.MALFORMED, message)

    async def _ending(self) -> LinkError:
        """Return the error that explains why ssh's output ended, from the exit status and stderr."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._process.wait()
                await asyncio.shield(self._stderr_task)
        written = b"".join(self._written).decode("utf-8", "replace")
        status = self._process.returncode
        return explain(Ending(self._where, self._command, status, written, answered=self._answered))

    async def _read_stderr(self) -> None:
        """Read stderr until it ends, since a full pipe would block ssh.

        Keep its last `_STDERR_KEPT_BYTES`.
        """
        stderr = self._process.stderr
        assert stderr is not None  # noqa: S101 - the process was started with pipes
        while chunk := await stderr.read(_STDERR_KEPT_BYTES):
            self._written.append(chunk)
            self._written_bytes += len(chunk)
            while self._written_bytes - len(self._written[0]) >= _STDERR_KEPT_BYTES:
                self._written_bytes -= len(self._written.popleft())
