"""One run of the system's ssh with `sparktop agent --stdio` at its other end."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from sparktop.model.failure import FailureKind
from sparktop.model.text import clean
from sparktop.sources.ssh_failure import Ending, LinkError, explain
from sparktop.wire import MOST_BYTES, Reply, WireError, decode

_OPTIONS = {
    "BatchMode": "yes",  # never a prompt: the screen belongs to the viewer
    "ConnectTimeout": "10",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    # A connection that exists may be used; to become the master of others would end them together with ours.
    "ControlMaster": "no",
    "ClearAllForwardings": "yes",
    "RemoteCommand": "none",
    "LogLevel": "ERROR",
}
"""What is said for this use only; all else, the policy on host keys too, is the user's configuration."""
_SCRIPT = (
    'case "$0" in "~/"*) c="$HOME/${0#??}";; *) c="$0";; esac; '
    'PATH="$PATH:$HOME/.local/bin:$HOME/bin"; export PATH; exec "$c" agent --stdio'
)
"""Without a login shell ~/.local/bin is not in PATH; that is where pipx and uv put programs."""
_NOISE_LINES = 200
_NOISE_BYTES = 64 << 10
"""What a shell's start-up files may print before the first answer."""
_STDERR_KEPT_BYTES = 8192
_LAST_WORDS_S = 1.0
"""How long the exit status is waited for after the last answer."""
_LEAVING_S = 0.5
"""For each of: ending by itself, after SIGTERM, after SIGKILL."""


def command_line(ssh: str, options: Sequence[str], destination: str, command: str) -> list[str]:
    """Give the arguments of a run.

    Neither `destination` nor `command` is taken for an option, nor read by a shell; the login shell over
    there may be any: it sees words in single quotes.
    """
    ours = [word for name, value in _OPTIONS.items() for word in ("-o", f"{name}={value}")]
    remote = f"exec sh -c {shlex.quote(_SCRIPT)} {shlex.quote(command)}"
    return [ssh, *options, "-T", "-x", "-a", *ours, "--", destination, remote]


def quiet_environment() -> dict[str, str]:
    """Give our environment without a way for ssh to ask for a password in a window."""
    return {**os.environ, "SSH_ASKPASS": "/bin/false", "SSH_ASKPASS_REQUIRE": "never"}


class SshLink:
    """A running ssh; questions go in and answers come out, a line each."""

    def __init__(self, process: asyncio.subprocess.Process, where: str, command: str) -> None:
        """Take over a process with three pipes."""
        self._process = process
        self._where = where
        self._command = command
        self._written: deque[bytes] = deque()
        self._written_bytes = 0
        self._listening = asyncio.get_running_loop().create_task(self._listen())
        self._owed = False
        """A question was put whose answer has not come yet."""
        self._answered = False

    @classmethod
    async def start(
        cls, ssh: str, options: Sequence[str], destination: str, command: str, where: str
    ) -> SshLink:
        """Run ssh in a session of its own: no terminal that it could ask on, and signals reach all of it.

        Raises:
            LinkError: there is no ssh on this machine.
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
        """Give the first answer, which comes unasked; what the shell prints before it is passed over.

        Raises:
            LinkError: there is none.
        """
        try:
            return await self._answer()
        except WireError as error:
            raise LinkError(error.kind, f"{self._where}: {error}") from None

    async def ask(
        self, since: float | None, *, processes: bool, interval_s: float | None, clock: Callable[[], float]
    ) -> tuple[Reply, float]:
        """Put a question; give its answer and when that came.

        An answer that is still owed to an earlier question is awaited first, and is too old by then.

        Raises:
            LinkError: the connection has ended, or something else than an answer came.
            WireError: the answer is a refusal, or cannot be read; the next one may be.
        """
        if self._owed:
            with suppress(WireError):
                await self._answer()
        question = {"since": since, "processes": processes, "interval_s": interval_s}
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - asked for a pipe
        with suppress(ConnectionError):  # that it ended is told by what comes, or does not
            stdin.write(json.dumps(question).encode() + b"\n")
            self._owed = True
            await stdin.drain()
        reply = await self._answer()
        return reply, clock()

    async def close(self) -> None:
        """End ssh and what it started: its input first, so that the other end goes by itself."""
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
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        # A program that ssh started may hold a pipe open for longer than ssh lives.
        transport = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()

    async def _answer(self) -> Reply:
        """Read lines until one is an answer; others come from the shell's start-up files."""
        lines = size_bytes = 0
        line = b""
        while lines <= _NOISE_LINES and size_bytes <= _NOISE_BYTES:
            line = await self._line()
            if line.startswith(b"{") and b'"schema"' in line:
                self._owed, self._answered = False, True
                return decode(line)
            lines += 1
            size_bytes += len(line)
        raise self._no_answer_in(line)

    async def _line(self) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - asked for a pipe
        try:
            line = await stdout.readline()
        except ValueError:
            raise self._no_answer_in(b"a line without an end") from None
        if not line.endswith(b"\n"):  # the end, perhaps in the middle of an answer
            raise await self._ending()
        return line

    def _no_answer_in(self, line: bytes) -> LinkError:
        quoted = clean(line[:400].decode("utf-8", "replace"), 60)
        message = (
            f'{self._where} prints something else than answers: "{quoted}": what do its shell files print?'
        )
        return LinkError(FailureKind.MALFORMED, message)

    async def _ending(self) -> LinkError:
        """Say why nothing more comes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._process.wait()
                await asyncio.shield(self._listening)
        written = b"".join(self._written).decode("utf-8", "replace")
        status = self._process.returncode
        return explain(Ending(self._where, self._command, status, written, answered=self._answered))

    async def _listen(self) -> None:
        """Keep the end of what comes on stderr: a pipe that nobody reads would stop ssh."""
        stderr = self._process.stderr
        assert stderr is not None  # noqa: S101 - asked for a pipe
        while chunk := await stderr.read(_STDERR_KEPT_BYTES):
            self._written.append(chunk)
            self._written_bytes += len(chunk)
            while self._written_bytes - len(self._written[0]) >= _STDERR_KEPT_BYTES:
                self._written_bytes -= len(self._written.popleft())
