"""The parent's side of the load generator's process: starts it, exchanges messages, notices its exit."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from sparktop.errors import SparktopError
from sparktop.model.failure import FailureKind, RequestFailure
from sparktop.model.load import LoadEvent
from sparktop.model.text import clean
from sparktop.stopping import timeout
from sparktop.sweep.generator.wire import (
    ALIVE,
    ALIVE_S,
    MESSAGES,
    Batch,
    Calibrate,
    Calibrated,
    Cancel,
    Command,
    Ready,
    Refused,
    RunFinished,
    RunLoad,
    TokenTimes,
    WorkerMessage,
    encode_line,
)
from sparktop.sweep.result.measure import RequestTrace, collect

_START_S = 30.0
"""Maximum seconds for the process to start: usually a third of a second, many times that on a busy
machine."""
_CANCEL_S = 2.0
"""Maximum seconds to cancel a run, after which the process is killed; usually at most half a second."""
_LEAVING_S = 1.0
"""Maximum seconds for the process to exit by itself, after which it is killed."""
_LONGEST_LINE = 64 << 20
"""Maximum bytes of a line of output: the token times of a request with a million tokens are 11 MB."""
_LAST_WORDS_BYTES = 4096
"""Bytes kept of the end of what the process wrote to standard error."""
_SILENT_CHECKS = 15
"""Checks, one every `ALIVE_S`, without a line from the process after which it is killed: a busy machine can
delay a process for seconds. Checks are counted, not seconds, so that a parent that was suspended itself does
not take that for the silence of the process."""
_STOPPED_CHECKS = 3
"""The same for a process that the kernel reports as stopped by a signal."""


class WorkerGoneError(Exception):
    """The load generator's process exited unexpectedly."""

    def __init__(self, failure: RequestFailure | None) -> None:
        """Use the message of `failure`; it is None if the process was asked to exit."""
        super().__init__(failure.message if failure else "the load generator's process is gone")
        self.failure = failure


class SweepWorker:
    """A load generator in a process of its own; as an async context manager it ends the process on exit."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Use a process whose stdin, stdout and stderr are pipes; call `start` instead to create one."""
        self._process = process
        self._messages: asyncio.Queue[WorkerMessage | WorkerGoneError] = asyncio.Queue()
        self._closing = False
        self._ended = False
        self._working: set[str] = set()
        """Ids of runs and calibrations whose last message has not arrived."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._last_words = b""
        self._silent_checks = 0
        """Checks since the newest line of the process."""
        self._silence: str | None = None
        """Why the process was killed for its silence; None if it was not."""
        loop = asyncio.get_running_loop()
        self._watching = loop.create_task(self._watch())
        self._listening = loop.create_task(self._listen())
        self._reading_words = loop.create_task(self._read_words())
        self.ready: Ready | None = None
        """First message of the process; set by `start`."""

    @classmethod
    async def start(cls) -> Self:
        """Start a load generator and wait until it accepts commands.

        The process has a session of its own, so that it does not receive the terminal's signals.

        Raises:
            SparktopError: the process did not start.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "sparktop.sweep.generator.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=_LONGEST_LINE,
        )
        worker = cls(process)
        try:
            async with asyncio.timeout(_START_S):
                message = await worker._messages.get()
        except TimeoutError:
            message = None
        except BaseException:
            await worker.close()
            raise
        if isinstance(message, Ready):
            worker.ready = message
            return worker
        await worker.close()
        reason = message if isinstance(message, WorkerGoneError) else f"no word for {_START_S:.0f} s"
        raise SparktopError(f"the load generator did not start: {reason}")

    async def __aenter__(self) -> Self:
        """Return the worker itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process with `close`."""
        await self.close()

    @property
    def most_connections(self) -> int | None:
        """How many connections it may open at once; None if unknown."""
        return None if self.ready is None else self.ready.most_connections

    @property
    def pid(self) -> int:
        """Id of the load generator's process."""
        return self._process.pid

    async def send(self, command: Command) -> None:
        """Send a command to the process; do nothing if the process has exited, which `messages` reports."""
        if not isinstance(command, Cancel):
            self._working.add(command.id)
            self._idle.clear()
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - opened as a pipe by `start`
        with suppress(OSError, RuntimeError):  # broken pipe, or a transport that is closed
            stdin.write(encode_line(command))
            await stdin.drain()

    async def messages(self) -> AsyncIterator[WorkerMessage]:
        """Yield the messages of the process as they arrive.

        Raises:
            WorkerGoneError: the process has exited, after its last message.
        """
        while True:
            message = await self._messages.get()
            if isinstance(message, WorkerGoneError):
                self._messages.put_nowait(message)  # for later calls
                raise message
            yield message

    async def run(self, command: Calibrate | RunLoad) -> AsyncIterator[WorkerMessage]:
        """Send a command and yield its messages; the last one is `Calibrated`, `RunFinished` or `Refused`.

        Raises:
            WorkerGoneError: the process exited.
        """
        await self.send(command)
        async for message in self.messages():
            if getattr(message, "id", command.id) != command.id:
                continue  # of an earlier command
            yield message
            if isinstance(message, Calibrated | RunFinished | Refused):
                return

    async def cancel(self) -> None:
        """Cancel the present run or calibration, and wait for its end.

        Kill the process if it does not react.
        """
        if self._ended:
            return
        await self.send(Cancel())
        try:
            async with timeout(_CANCEL_S):
                await self._idle.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()

    async def close(self) -> None:
        """Close the process's input and wait for its exit; kill the process if it does not exit."""
        self._closing = True
        self._watching.cancel()
        stdin = self._process.stdin
        if stdin is not None:
            stdin.close()
        try:
            async with timeout(_LEAVING_S):
                await self._process.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()
        await asyncio.gather(self._listening, self._reading_words)
        await asyncio.wait([self._watching])
        # The loop closes the transports of the pipes one iteration after it sees the process end.
        await asyncio.sleep(0)

    async def _listen(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - opened as a pipe by `start`
        broken: str | None = None
        while True:
            try:
                line = await stdout.readline()
                if not line:
                    break
                self._silent_checks = 0
                if line == ALIVE:
                    continue
                message = MESSAGES.decode(line)
            except (msgspec.MsgspecError, RecursionError, ValueError) as error:
                broken = clean(error)
                self._signal(signal.SIGKILL)
                break
            if isinstance(message, Calibrated | Refused | RunFinished):
                self._working.discard(message.id)
                if not self._working:
                    self._idle.set()
            self._messages.put_nowait(message)
        returncode = await self._process.wait()
        await self._reading_words
        self._ended = True
        self._working.clear()
        self._idle.set()
        self._watching.cancel()
        failure = None if self._closing else self._why_ended(returncode, broken)
        self._messages.put_nowait(WorkerGoneError(failure))

    async def _watch(self) -> None:
        """Kill the process if it does not run any more: nothing else would end a run that waits for it."""
        while True:
            await asyncio.sleep(ALIVE_S)
            self._silent_checks += 1
            is_stopped = _is_stopped(self.pid)
            if self._silent_checks >= (_STOPPED_CHECKS if is_stopped else _SILENT_CHECKS):
                silent_s = self._silent_checks * ALIVE_S
                state = "it was stopped by a signal (SIGSTOP)" if is_stopped else "it does not run"
                self._silence = f"{state}: no word for {silent_s:.0f} s, and it was ended"
                self._signal(signal.SIGKILL)
                return

    def _why_ended(self, returncode: int, broken: str | None) -> RequestFailure:
        if self._silence is not None:
            reason = self._silence
        elif broken is not None:
            reason = f"it sent something that is not a message: {broken}"
        elif returncode < 0:
            reason = f"it was ended by {_signal_name(-returncode)}"
        else:
            words = clean(self._last_words.decode("utf-8", "replace").strip().rpartition("\n")[2])
            reason = f"it left with exit code {returncode}" + (f": {words}" if words else "")
        message = f"the load generator's process is gone: {reason}"
        return RequestFailure(FailureKind.ENDED, message, time.monotonic(), "generator_ended")

    async def _read_words(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None  # noqa: S101 - opened as a pipe by `start`
        while data := await stderr.read(_LAST_WORDS_BYTES):
            self._last_words = (self._last_words + data)[-_LAST_WORDS_BYTES:]

    def _signal(self, signum: int) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signum)


def _is_stopped(pid: int) -> bool:
    """Return whether the process `pid` is stopped by a signal, as the kernel reports; False if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[:1] == [b"T"]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# The messages of the load generator about one load run, collected to compute the result of its level.


class RunRecord:
    """Collects the messages of one load run; can be read at any time, even if the run was interrupted."""

    def __init__(self) -> None:
        """Start without messages."""
        self.finished: RunFinished | None = None
        """The last message of the run; None until it arrives, which it never does if the worker process
        died."""
        self.refusal: RequestFailure | None = None
        """Why the run was not executed; None if it was."""
        self.events: list[LoadEvent] = []
        """All events so far; of tokens only the first ones of each request."""
        self._tokens: dict[str, TokenTimes] = {}

    def add(self, message: WorkerMessage) -> None:
        """Add a message of the run."""
        match message:
            case Batch():
                self.events.extend(message.events)
            case TokenTimes():
                self._tokens[message.request_id] = message
            case RunFinished():
                self.finished = message
            case Refused():
                self.refusal = message.failure
            case _:
                pass

    def traces(self) -> list[RequestTrace]:
        """Return the requests so far, with all their tokens once the run is over.

        Until then they have their first tokens; then the load generator sends the exact times of all, by the
        token counts of the server, which are not known before.
        """
        traces = collect(self.events)
        for trace in traces:
            if (times := self._tokens.get(trace.request_id)) is not None:
                trace.set_tokens(times.at, times.counts, times.answer_from)
        return traces
