"""Source of a remote machine's samples through ssh, which runs a reader there.

`SshLink` is one running ssh process, `Connector` makes links, to an installed sparktop or to the reader that
is sent, and `SshSource` keeps one open and polls it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from sparktop import __version__
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.ranks import RanksReply
from sparktop.model.targets import NodeTarget
from sparktop.model.text import clean, reason_of, short_seconds
from sparktop.net.client import read_beside
from sparktop.sources.agent import NodeReplies
from sparktop.sources.decode import MOST_BYTES, WireError, decode, decode_ranks
from sparktop.sources.replies import Reply
from sparktop.sources.ssh_remote import (
    READY,
    LinkError,
    Remote,
    SshEnding,
    command_line,
    explain,
    quiet_environment,
    reader_bundle,
)
from sparktop.stopping import timeout

_NOISE_LINES = 200
"""Most lines that a shell's start-up files may print before the first answer."""
_NOISE_BYTES = 64 << 10
"""Most bytes of these lines."""
_STDERR_KEPT_BYTES = 8192
"""Bytes of standard error that are kept, the newest: they say why ssh ended."""
_STDERR_MOST_BYTES = 1 << 20
"""Most bytes on standard error between two answers; more is a flood, which ends the connection."""
_LAST_WORDS_S = 1.0
"""Seconds to wait for the exit status after the last answer."""
_REPLY_START = b'{"'
"""How a reply begins, perhaps after an unfinished line of a start-up file."""
_CHECK_S = 0.05
"""Seconds between two checks whether its children are gone."""
_LEAVING_S = 0.5
"""Seconds for each of: exit by itself, after SIGTERM, after SIGKILL."""


class SshLink:
    """A running ssh process: each request is a line written to it, each answer a line read from it."""

    def __init__(
        self, process: asyncio.subprocess.Process, transport: asyncio.SubprocessTransport, remote: Remote
    ) -> None:
        """Wrap an ssh process, started for `remote`, whose stdin, stdout and stderr are pipes.

        `transport` owns these pipes.
        """
        self._process, self._transport = process, transport
        self._remote = remote
        self._where = clean(remote.destination, 80)
        self.sent = False
        """Whether the other machine has asked for the reader and was sent it."""
        self.version = ""
        """The version of sparktop that greeted; "" before the greeting."""
        self._written = b""
        """The last bytes on standard error."""
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
        loop = asyncio.get_running_loop()
        try:
            # Not create_subprocess_exec, which keeps the transport to itself.
            transport, protocol = await loop.subprocess_exec(
                lambda: asyncio.subprocess.SubprocessStreamProtocol(limit=MOST_BYTES, loop=loop),
                *command_line(ssh, options, remote),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=quiet_environment(),
                start_new_session=True,
            )
        except FileNotFoundError:
            message = "there is no ssh on this machine: install an OpenSSH client"
            raise LinkError(FailureKind.UNSUPPORTED, message) from None
        except OSError as error:
            message = f"ssh cannot be started: {reason_of(error)}"
            raise LinkError(FailureKind.UNSUPPORTED, message) from None
        return cls(asyncio.subprocess.Process(transport, protocol, loop), transport, remote)

    async def hello(self) -> Reply:
        """Return the reply that the reader sends first, before any request, and keep its version.

        Output of the remote shell's start-up files before this reply is skipped. A machine that asks for the
        reader is sent it, once.

        Raises:
            LinkError: the reply is missing or unreadable.
        """
        try:
            reply = await self._read_reply()
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
                await self._read_reply()
        await self._request({"since": since, "processes": processes, "interval_s": interval_s})
        reply = await self._read_reply()
        return reply, clock()

    async def ask_ranks(self) -> RanksReply:
        """Request the state of a job's ranks, which the agent reads from NCCL; return its answer.

        Raises:
            LinkError: the connection ended, or something other than a reply arrived.
            WireError: there is no answer, or the agent is too old.
        """
        await self._request({"ranks": True})
        line = await self._read_reply_line()
        return await read_beside(partial(decode_ranks, line), len(line))

    async def _request(self, question: Mapping[str, object]) -> None:
        """Write a request, as a line of JSON."""
        if self._owed_since is None:
            self._owed_since = asyncio.get_running_loop().time()
        await self._write(json.dumps(question).encode() + b"\n")

    async def _write(self, data: bytes) -> None:
        """Write to ssh's standard input."""
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - the process was started with pipes
        with suppress(ConnectionError):  # whether it ended shows in what can be read
            stdin.write(data)
            await stdin.drain()

    async def close(self) -> None:
        """End ssh and its children.

        Close ssh's input, so that the remote agent exits; then send SIGTERM, then SIGKILL.
        """
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if await self._ends_soon():
                break
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        await self._ends_soon()
        self._stderr_task.cancel()
        await asyncio.gather(self._stderr_task, return_exceptions=True)
        # What ssh has started, such as a ProxyCommand, may hold a pipe open after ssh is gone.
        with suppress(ProcessLookupError, PermissionError):  # ProcessLookupError: none is left
            os.killpg(process.pid, signal.SIGTERM)
            for _ in range(round(_LEAVING_S / _CHECK_S)):
                await asyncio.sleep(_CHECK_S)
                os.killpg(process.pid, 0)
            os.killpg(process.pid, signal.SIGKILL)
        self._transport.close()

    async def _ends_soon(self) -> bool:
        """Wait until ssh has ended, at most `_LEAVING_S` seconds; return whether it has."""
        with suppress(TimeoutError):
            async with timeout(_LEAVING_S):
                await self._process.wait()
                return True
        return False

    async def _read_reply(self) -> Reply:
        """Return the next reply of the agent."""
        line = await self._read_reply_line()
        return await read_beside(partial(decode, line), len(line))

    async def _read_reply_line(self) -> bytes:
        """Read lines until one is an agent's reply and return this line.

        Skip the output of the shell's start-up files, which may lack its last end of line.
        """
        lines = size_bytes = 0
        line = b""
        while lines <= _NOISE_LINES and size_bytes <= _NOISE_BYTES:
            line = await self._read_line()
            if line.rstrip() == READY and not self.sent:
                await self._send_reader()
            reply = line if self._answered else line[max(0, line.find(_REPLY_START)) :]
            if reply.startswith(b"{") and b'"schema"' in line:
                self._owed_since, self._answered, self._unanswered_bytes = None, True, 0
                return reply
            lines += 1
            size_bytes += len(line)
        raise self._not_a_reply(line)

    async def _send_reader(self) -> None:
        """Write the reader to ssh's standard input, for the program that runs it from memory there."""
        bundle = self._remote.bundle
        if bundle is not None:
            self.sent = True
            await self._write(bundle.data)

    async def _read_line(self) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - the process was started with pipes
        try:
            line = await stdout.readline()
        except ValueError:
            raise self._not_a_reply(b"a line without an end") from None
        if not line.endswith(b"\n"):  # end of file, perhaps in the middle of an answer
            raise await self._explain_end()
        return line

    def _not_a_reply(self, line: bytes) -> LinkError:
        quoted = clean(line[:400].decode("utf-8", "replace"), 60)
        message = (
            f'{self._where} prints something else than answers: "{quoted}": what do its shell files print?'
        )
        return LinkError(FailureKind.MALFORMED, message)

    async def _explain_end(self) -> LinkError:
        """Return the error that explains why ssh's output ended, from the exit status and stderr."""
        with suppress(TimeoutError):
            async with timeout(_LAST_WORDS_S):
                await self._process.wait()
                await asyncio.shield(self._stderr_task)
        if self._unanswered_bytes > _STDERR_MOST_BYTES:
            whole_lines = self._written[: self._written.rfind(b"\n")]
            return self._not_a_reply(whole_lines.rpartition(b"\n")[2])
        owed_since_s, now_s = self._owed_since, asyncio.get_running_loop().time()
        return explain(
            SshEnding(
                self._where,
                None if self.sent else self._remote.command,
                self._process.returncode,
                self._written.decode("utf-8", "replace"),
                answered=self._answered,
                sent=self.sent,
                unanswered_s=0.0 if owed_since_s is None else now_s - owed_since_s,
            )
        )

    async def _read_stderr(self) -> None:
        """Read stderr until it ends, since a full pipe would block ssh; keep its last `_STDERR_KEPT_BYTES`.

        More than `_STDERR_MOST_BYTES` between two answers end ssh.
        """
        stderr = self._process.stderr
        assert stderr is not None  # noqa: S101 - the process was started with pipes
        while chunk := await stderr.read(_STDERR_KEPT_BYTES):
            self._written = (self._written + chunk)[-_STDERR_KEPT_BYTES:]
            self._unanswered_bytes += len(chunk)
            if self._unanswered_bytes > _STDERR_MOST_BYTES and self._process.returncode is None:
                self._process.kill()


FIRST_ANSWER_S = 20.0
"""Seconds from the start of ssh to the reader's greeting: ssh's own connect limit is 10 s, and Python
starts slowly on a busy machine."""
DEFAULT_COMMAND = "sparktop"
"""The installed sparktop where no reader may be sent and no command is named."""


class Connector:
    """Makes the connections to one machine.

    The reader of this version is sent, unless `command` names an installed sparktop that is there and not
    older than this one. A machine on which ssh may run one sparktop only (a forced command) keeps this one.
    """

    def __init__(self, target: NodeTarget, ssh: str, ssh_options: Sequence[str]) -> None:
        """Connect to `target` with the program `ssh` and the options `ssh_options`."""
        self.where = clean(target.ssh or "", 80)
        """The destination, for messages."""
        self._destination = target.ssh or ""
        self._may_send = target.ssh_bundle
        self._command = target.command or (None if self._may_send else DEFAULT_COMMAND)
        """The installed sparktop to use; None: the reader is sent."""
        self._ssh = ssh
        self._ssh_options = tuple(ssh_options)

    async def connect(self) -> SshLink:
        """Return a connection whose reader has greeted.

        Raises:
            LinkError: no connection could be made, or no reader answered within `FIRST_ANSWER_S` seconds.
        """
        # First the installed sparktop; the reader is sent where that is missing or too old.
        has_choice = self._command is not None and self._may_send
        try:
            link = await self._start_and_greet()
            if not has_choice or link.sent or not is_older(link.version, __version__):
                return link
            await link.close()
        except LinkError as error:
            if not has_choice or error.kind is not FailureKind.VERSION:
                raise
        self._command = None
        return await self._start_and_greet()

    async def _start_and_greet(self) -> SshLink:
        """Start ssh and return the connection once its reader has greeted.

        Raises:
            LinkError: as for `connect`.
        """
        bundle = await asyncio.to_thread(reader_bundle) if self._may_send else None
        link = await SshLink.start(
            self._ssh, self._ssh_options, Remote(self._destination, self._command, bundle)
        )
        greeted = False
        try:
            async with asyncio.timeout(FIRST_ANSWER_S):
                await link.hello()
            greeted = True
        except TimeoutError:
            raise LinkError(FailureKind.TIMEOUT, self._silence_message(link)) from None
        finally:
            if not greeted:
                await link.close()
        return link

    def _silence_message(self, link: SshLink) -> str:
        within_words = f"within {FIRST_ANSWER_S:g} s"
        if link.sent:
            return f"the reader sent to {self.where} gave no answer {within_words}: is the machine stuck?"
        cause = "does a start-up file of its shell read standard input?"
        return f"no answer from {self.where} {within_words} of connecting: {cause}"


def is_older(version: str, than: str) -> bool:
    """Return whether `version` is an older release than `than`; False if either has no numbers."""
    own_numbers, least_numbers = _version_numbers(version), _version_numbers(than)
    return bool(own_numbers and least_numbers) and own_numbers < least_numbers


def _version_numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, (0, 3, 1) for "0.3.1.dev2"; () if it begins with none."""
    match = re.match(r"\d{1,9}(?:\.\d{1,9}){0,5}", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before each further connection attempt; the last value repeats."""
SILENT_S = 15.0
"""Seconds without an answer after which a connection is dropped."""
_CLOSED = "a source that is closed cannot be polled"


class SshSource:
    """Polls one machine through a persistent ssh connection, and reconnects when the connection ends."""

    def __init__(
        self,
        target: NodeTarget,
        *,
        ssh: str = "ssh",
        ssh_options: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Watch `target` with the program `ssh`.

        `ssh_options` come before sparktop's own options on the command line, because ssh uses the first value
        given.
        """
        self.name = target.name
        self.show_processes = False
        """Whether to request the process table too."""
        self.interval_s: float | None = None
        """Requested seconds between the node's samples; None leaves the interval to the node."""
        self._connector = Connector(target, ssh, ssh_options)
        self._where = self._connector.where
        self._clock = clock
        self._sleep = sleep
        self._replies = NodeReplies()
        self._keeper: asyncio.Task[None] | None = None
        self._link: SshLink | None = None
        self._settled = asyncio.Event()
        """Cleared during an attempt to connect; set while connected and in the pause before the next one."""
        self._lost = asyncio.Event()
        """Set when the current connection is no longer usable."""
        self._problem: LinkError | None = None
        self._attempts = 0
        """Consecutive attempts without an answer."""
        self._retry_at: float | None = None
        self._began_at = 0.0
        self._silent_since: float | None = None
        self._closed = False

    @property
    def identity(self) -> NodeIdentity | None:
        """Identity of the machine; None before the first answer."""
        return self._replies.identity

    async def poll(self, deadline_s: float) -> NodeSample | Failure:
        """Return the newest sample; its `missed` has the older samples that no poll has returned yet.

        Return a `Failure` if no new sample arrives within `deadline_s` seconds.
        """
        if self._closed:
            raise RuntimeError(_CLOSED)
        self._ensure_keeper()
        end = asyncio.get_running_loop().time() + deadline_s
        try:
            async with asyncio.timeout_at(end):
                await self._settled.wait()
                if self._link is not None:
                    return await self._ask_link(self._link, end)
        except TimeoutError:
            return self._late_failure(deadline_s)
        except WireError as error:
            return self._failure(error.kind, f"{self._where}: {error}")
        except LinkError as error:
            self._drop_link(error)
        return self._no_link_failure()

    async def ask_ranks(self, deadline_s: float) -> RanksReply | Failure:
        """Return what NCCL on the machine answers about the ranks of a job, within `deadline_s` seconds.

        A connection of its own is opened for it: an answer takes seconds, and samples must not wait for it.
        """
        link: SshLink | None = None
        try:
            async with asyncio.timeout(deadline_s):
                link = await self._connector.connect()
                return await link.ask_ranks()
        except TimeoutError:
            message = (
                f"no answer from sparktop on {self._where} about NCCL within {short_seconds(deadline_s)}"
            )
            return self._failure(FailureKind.TIMEOUT, message)
        except WireError as error:
            return self._failure(error.kind, f"{self._where}: {error}")
        except LinkError as error:  # names the machine
            return error.failure(self._clock())
        finally:
            if link is not None:
                await link.close()

    async def close(self) -> None:
        """Close the connection; the remote agent ends with it."""
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None

    def _ensure_keeper(self) -> None:
        """Start the task that keeps the connection open, if it does not run.

        A programming error that ended the task is re-raised here, where callers of `poll` catch it.
        """
        if self._keeper is not None and self._keeper.done():
            ended_keeper, self._keeper = self._keeper, None
            ended_keeper.result()
        if self._keeper is None:
            self._settled.clear()
            self._began_at = self._clock()
            self._keeper = asyncio.get_running_loop().create_task(self._keep_connected())

    async def _keep_connected(self) -> None:
        """Keep a connection open until cancelled; pause before each reconnect (`BACKOFF_S`)."""
        try:
            while True:
                await self._hold_link()
                pause_s = self._pause_s()
                self._attempts += 1
                self._retry_at = self._clock() + pause_s
                self._settled.set()
                await self._sleep(pause_s)
        finally:
            self._settled.set()

    def _pause_s(self) -> float:
        """Return the seconds to wait before the next attempt to connect."""
        return BACKOFF_S[min(self._attempts, len(BACKOFF_S) - 1)]

    async def _hold_link(self) -> None:
        """Connect, and wait until the connection is lost; return at once if it could not be made.

        Afterwards `_problem` is the error that ended or prevented the connection.
        """
        self._settled.clear()
        self._lost.clear()
        self._began_at, self._retry_at, self._silent_since = self._clock(), None, None
        link: SshLink | None = None
        try:
            link = await self._connector.connect()
            self._replies.reader_sha256 = link.sha256
            self._link = link
            self._settled.set()
            await self._lost.wait()
        except LinkError as error:
            self._problem = error
        finally:
            self._link = None
            self._settled.clear()
            if link is not None:
                await link.close()

    async def _ask_link(self, link: SshLink, end: float) -> NodeSample:
        async def ask() -> tuple[Reply, float]:
            answer = await link.ask(
                self._replies.since,
                processes=self.show_processes,
                interval_s=self.interval_s,
                clock=self._clock,
            )
            self._silent_since, self._attempts, self._problem = None, 0, None
            return answer

        return await self._replies.poll(ask, end, asyncio.sleep, (self.show_processes, self.interval_s))

    def _drop_link(self, problem: LinkError) -> None:
        """Mark the connection as lost because of `problem`; the connection task closes it and reconnects."""
        self._problem = problem
        self._link = None
        self._retry_at = self._clock() + self._pause_s()
        self._settled.clear()
        self._lost.set()

    def _late_failure(self, deadline_s: float) -> Failure:
        """Return the failure of a poll that missed its deadline.

        Drop a connection that was silent for `SILENT_S`.
        """
        if self._link is None:
            return self._no_link_failure()
        if self._replies.nothing_new is not None:
            return self._failure(FailureKind.TIMEOUT, f"{self._where}: {self._replies.nothing_new}")
        now_s = self._clock()
        if self._silent_since is None:
            self._silent_since = now_s - deadline_s
        silent_s = now_s - self._silent_since
        message = f"no answer from sparktop on {self._where} for {silent_s:.0f} s: is the machine stuck?"
        if silent_s >= SILENT_S:
            self._drop_link(LinkError(FailureKind.TIMEOUT, message))
            return self._no_link_failure()
        return self._failure(FailureKind.TIMEOUT, message)

    def _no_link_failure(self) -> Failure:
        """Return a failure that states why there is no connection and when the next attempt begins."""
        now_s, problem = self._clock(), self._problem
        if problem is None:
            message = f"connecting to {self._where} for {now_s - self._began_at:.0f} s"
            return self._failure(FailureKind.TIMEOUT, message)
        left_s = 0.0 if self._retry_at is None else self._retry_at - now_s
        soon = f"reconnecting in {left_s:.0f} s" if round(left_s) > 0 else "reconnecting"
        return self._failure(problem.kind, f"{problem.message} · {soon}")

    def _failure(self, kind: FailureKind, message: str) -> Failure:
        return Failure(kind, clean(message), self._clock())
