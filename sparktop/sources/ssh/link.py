"""A running ssh process with the reader of a machine at its remote end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from sparktop.ending import timeout
from sparktop.hardware.ras import Found
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean
from sparktop.sources.beside import read_beside
from sparktop.sources.ssh.failure import Ending, LinkError, explain
from sparktop.sources.ssh.remote import READY, Remote, command_line, quiet_environment
from sparktop.sources.wire.decode import MOST_BYTES, WireError, decode, decode_ranks
from sparktop.sources.wire.reply import Reply

_NOISE_LINES = 200
_NOISE_BYTES = 64 << 10
"""Most lines and bytes that a shell's start-up files may print before the first answer."""
_STDERR_KEPT_BYTES = 8192
_STDERR_MOST_BYTES = 1 << 20
"""Most bytes on standard error between two answers; more is a flood, which ends the connection."""
_LAST_WORDS_S = 1.0
"""Seconds to wait for the exit status after the last answer."""
_REPLY_START = b'{"'
_CHECK_S = 0.05
"""Seconds between two checks whether its children are gone."""
_LEAVING_S = 0.5
"""Seconds for each of: exit by itself, after SIGTERM, after SIGKILL."""


class SshLink:
    """A running ssh process: each request is a line written to it, each answer a line read from it."""

    def __init__(self, process: asyncio.subprocess.Process, remote: Remote) -> None:
        """Wrap an ssh process, started for `remote`, whose stdin, stdout and stderr are pipes."""
        self._process = process
        self._remote = remote
        self._where = clean(remote.destination, 80)
        self.sent = False
        """Whether the other machine has asked for the reader and was sent it."""
        self.version = ""
        """The version of sparktop that greeted; "" before the greeting."""
        self._written: deque[bytes] = deque()
        self._written_bytes = 0
        self._unanswered_bytes = 0
        """Bytes on standard error since the newest answer."""
        self._stderr_task = asyncio.get_running_loop().create_task(self._read_stderr())
        self._owed_since: float | None = None
        """Time of the event loop at which the oldest request without an answer was sent; None if there is
        none."""
        self._answered = False

    @property
    def sha256(self) -> str | None:
        """SHA-256 of the reader that was sent, in hexadecimal digits; None for an installed sparktop."""
        bundle = self._remote.bundle
        return bundle.sha256 if self.sent and bundle is not None else None

    @classmethod
    async def start(cls, ssh: str, options: Sequence[str], remote: Remote) -> SshLink:
        """Start ssh and return the link, before any answer of the remote reader.

        ssh runs in a session of its own: it has no terminal to prompt on, and signals to the session reach
        its children.

        Raises:
            LinkError: ssh is missing on this machine or cannot be started.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *command_line(ssh, options, remote),
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
        return cls(process, remote)

    async def hello(self) -> Reply:
        """Return the reply that the reader sends first, before any request, and keep its version.

        Output of the remote shell's start-up files before this reply is skipped. A machine that asks for the
        reader is sent it, once.

        Raises:
            LinkError: the reply is missing or unreadable.
        """
        try:
            reply = await self._answer()
        except WireError as error:
            raise LinkError(error.kind, f"{self._where}: {error}") from None
        self.version = reply.sparktop
        return reply

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
        if self._owed_since is not None:
            with suppress(WireError):
                await self._answer()
        await self._write({"since": since, "processes": processes, "interval_s": interval_s})
        reply = await self._answer()
        return reply, clock()

    async def ask_ranks(self) -> Found:
        """Request the state of a job's ranks, which the agent reads from NCCL; return its answer.

        Raises:
            LinkError: the connection ended, or something other than a reply arrived.
            WireError: there is no answer, or the agent is too old.
        """
        await self._write({"ranks": True})
        line = await self._reply_line()
        return await read_beside(partial(decode_ranks, line), len(line))

    async def _write(self, question: Mapping[str, object]) -> None:
        """Write a request, as a line of JSON."""
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - the process was started with pipes
        with suppress(ConnectionError):  # whether it ended shows in what can be read
            stdin.write(json.dumps(question).encode() + b"\n")
            if self._owed_since is None:
                self._owed_since = asyncio.get_running_loop().time()
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
                async with timeout(_LEAVING_S):
                    await process.wait()
                    break
        self._stderr_task.cancel()
        await asyncio.gather(self._stderr_task, return_exceptions=True)
        # A child of ssh may hold a pipe open after ssh is gone.
        await self._end_children()
        transport = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()

    async def _end_children(self) -> None:
        """End what ssh has started, such as a ProxyCommand, and left behind: SIGTERM, then SIGKILL."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGTERM)
            for _ in range(round(_LEAVING_S / _CHECK_S)):
                await asyncio.sleep(_CHECK_S)
                os.killpg(self._process.pid, 0)
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _answer(self) -> Reply:
        """Return the next reply of the agent."""
        line = await self._reply_line()
        return await read_beside(partial(decode, line), len(line))

    async def _reply_line(self) -> bytes:
        """Read lines until one is an agent's reply and return this line.

        Skip the output of the shell's start-up files, which may lack its last end of line.
        """
        lines = size_bytes = 0
        line = b""
        while lines <= _NOISE_LINES and size_bytes <= _NOISE_BYTES:
            line = await self._line()
            if line.rstrip() == READY and not self.sent:
                await self._send_reader()
            begin = 0 if self._answered else max(0, line.find(_REPLY_START))
            if line.startswith(b"{", begin) and b'"schema"' in line:
                self._owed_since, self._answered, self._unanswered_bytes = None, True, 0
                return line[begin:]
            lines += 1
            size_bytes += len(line)
        raise self._no_answer_in(line)

    async def _send_reader(self) -> None:
        """Write the reader to ssh's standard input, for the program that runs it from memory there."""
        stdin, bundle = self._process.stdin, self._remote.bundle
        if stdin is None or bundle is None:
            return
        self.sent = True
        with suppress(ConnectionError):  # whether it ended shows in what can be read
            stdin.write(bundle.data)
            await stdin.drain()

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
            async with timeout(_LAST_WORDS_S):
                await self._process.wait()
                await asyncio.shield(self._stderr_task)
        if self._unanswered_bytes > _STDERR_MOST_BYTES:
            return self._no_answer_in(self._written[-1].rpartition(b"\n")[0].rpartition(b"\n")[2])
        written = b"".join(self._written).decode("utf-8", "replace")
        since, now = self._owed_since, asyncio.get_running_loop().time()
        return explain(
            Ending(
                self._where,
                None if self.sent else self._remote.command,
                self._process.returncode,
                written,
                answered=self._answered,
                sent=self.sent,
                unanswered_s=0.0 if since is None else now - since,
            )
        )

    async def _read_stderr(self) -> None:
        """Read stderr until it ends, since a full pipe would block ssh; keep its last `_STDERR_KEPT_BYTES`.

        More than `_STDERR_MOST_BYTES` between two answers end ssh.
        """
        stderr = self._process.stderr
        assert stderr is not None  # noqa: S101 - the process was started with pipes
        while chunk := await stderr.read(_STDERR_KEPT_BYTES):
            self._written.append(chunk)
            self._written_bytes += len(chunk)
            self._unanswered_bytes += len(chunk)
            if self._unanswered_bytes > _STDERR_MOST_BYTES and self._process.returncode is None:
                self._process.kill()
            while self._written_bytes - len(self._written[0]) >= _STDERR_KEPT_BYTES:
                self._written_bytes -= len(self._written.popleft())
