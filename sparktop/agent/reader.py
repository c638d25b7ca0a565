"""The reader of one machine: samples on demand, for the agent and for a viewer at the other end of ssh.

`sparktop agent --stdio` runs it, and a viewer that reaches this machine over ssh can send it here. All that
it imports needs the standard library of Python 3.10 alone, pynvml where there is an NVIDIA driver, and
`Struct` and `replace` of msgspec, for which a small stand-in is sent along (`sparktop.sources.ssh_remote`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from sparktop.hardware.ras import RasReader
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.instant import MAX_INTERVAL_S, MIN_INTERVAL_S
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.text import clean
from sparktop.sources.local import LocalSource
from sparktop.sources.replies import encode, encode_error, encode_ranks, make_reply
from sparktop.stopping import stopped_by_signals, timeout

_YES, _NO = frozenset({"1", "true", "yes"}), frozenset({"0", "false", "no", ""})


class AskError(ValueError):
    """A value in a viewer's request that cannot be parsed; the message names the value in one clean line."""


class Ask(Struct, frozen=True):
    """A viewer's request for samples."""

    since: float | None = None
    """Time, by the node's clock in seconds, of the newest sample that the viewer has; None: return only the
    newest sample."""
    processes: bool = False
    """Whether to include the process table."""
    interval_s: float | None = None
    """Seconds between samples that the viewer wants; None: no preference."""
    ranks: bool = False
    """Whether to ask NCCL about the ranks of a job instead of returning samples; only over ssh, where every
    request is a line: over HTTP this is a path of its own."""


def from_query(query: Mapping[str, str]) -> Ask:
    """Parse the query of a URL; ignore unknown keys.

    Raises:
        AskError: a value is not a number, or the value of `processes` does not mean yes or no.
    """
    since_s, interval_s = (_number(key, query.get(key)) for key in ("since", "interval_s"))
    word = query.get("processes", "").lower()
    if word not in _YES | _NO:
        raise AskError(f"processes must be 1 or 0, not '{clean(word, 40)}'")
    return Ask(since_s, word in _YES, _clamp_interval(interval_s))


def from_line(line: bytes) -> Ask:
    """Parse a line that holds a JSON object; ignore unknown keys.

    Raises:
        AskError: the line is not a JSON object, or a value has the wrong type.
    """
    try:
        question = json.loads(line)
    except (ValueError, RecursionError):
        raise AskError("the line is not JSON") from None
    if not isinstance(question, dict):
        raise AskError("the line is not a JSON object")
    since_s, interval_s = (_number(key, question.get(key)) for key in ("since", "interval_s"))
    processes = question.get("processes")
    if processes is not None and not isinstance(processes, bool):
        raise AskError("processes must be true or false")
    return Ask(since_s, bool(processes), _clamp_interval(interval_s), question.get("ranks") is True)


def _number(key: str, given: object) -> float | None:
    """Convert `given`, the value of the key `key`, to a finite float; None stays None.

    Raises:
        AskError: the value is not a finite number.
    """
    if given is None:
        return None
    value = math.nan
    if isinstance(given, int | float | str) and not isinstance(given, bool):
        with suppress(ValueError, OverflowError):
            value = float(given)
    if not math.isfinite(value):
        raise AskError(f"{key} must be a number of seconds, not '{clean(given, 40)}'")
    return value


def _clamp_interval(interval_s: float | None) -> float | None:
    return None if interval_s is None else min(MAX_INTERVAL_S, max(MIN_INTERVAL_S, interval_s))


# Reads and writes lines on file descriptors without blocking the event loop.


_READ_BYTES = 1 << 16
"""Most bytes of a block."""
LONGEST_LINE = 4096
"""Most bytes of a request; a usual request has less than a tenth of that."""


class LineReader:
    """Reads lines from a file descriptor, in blocks: at most one block is read beyond the end of a line."""

    def __init__(self, descriptor: int) -> None:
        """Read from the file descriptor `descriptor`, which is never closed here."""
        self._descriptor = descriptor
        self._buffer = b""
        self._ended = False

    async def next(self) -> bytes | None:
        """Return the next line without its line end; None at the end of the input.

        A line longer than `LONGEST_LINE` is cut to `LONGEST_LINE + 1` bytes, so that the caller can detect
        it.
        """
        start = b""  # of a line that is too long, whose rest is dropped
        while True:
            line, newline, buffer_rest = self._buffer.partition(b"\n")
            if newline or self._ended:
                self._buffer = buffer_rest
                if not newline and not line:
                    return None
                return (start or line)[: LONGEST_LINE + 1]
            if len(self._buffer) > LONGEST_LINE:
                start = start or self._buffer[: LONGEST_LINE + 1]
                self._buffer = b""
            data = await self._read_block()
            self._ended = not data
            self._buffer += data

    async def _read_block(self) -> bytes:
        """Wait until bytes can be read, and return them; b"" at the end of the input."""
        await _wait_until_ready(self._descriptor, reading=True)
        try:
            return os.read(self._descriptor, _READ_BYTES)
        except OSError:  # a terminal that has gone
            return b""


class Output:
    """Writes lines to a file descriptor, and waits while its buffer is full."""

    def __init__(self, descriptor: int) -> None:
        """Write to `descriptor`, which is set to non-blocking and never closed here."""
        self._descriptor = descriptor
        self._was_blocking = os.get_blocking(descriptor)
        os.set_blocking(descriptor, False)

    async def write(self, line: bytes) -> None:
        """Write `line` and a line end.

        Raises:
            OSError: the other end of the pipe is closed.
        """
        unwritten = memoryview(line + b"\n")
        while unwritten:
            try:
                unwritten = unwritten[os.write(self._descriptor, unwritten) :]
            except BlockingIOError:
                await _wait_until_ready(self._descriptor, reading=False)

    def close(self) -> None:
        """Restore the descriptor's blocking mode, because other programs may share the terminal."""
        os.set_blocking(self._descriptor, self._was_blocking)


async def _wait_until_ready(descriptor: int, *, reading: bool) -> None:
    """Wait until a descriptor can be read or written without blocking; return at once for a regular file."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def set_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    add, remove = (loop.add_reader, loop.remove_reader) if reading else (loop.add_writer, loop.remove_writer)
    try:
        add(descriptor, set_ready)
    except PermissionError:  # epoll refuses regular files, which never block
        return
    try:
        await ready
    finally:
        remove(descriptor)


# Samples one machine on demand: reads samples while requests arrive, and keeps them for a minute.


_log = logging.getLogger(__name__)

KEPT_S = 60.0
"""Age in seconds up to which samples are kept."""
REST_S = 60.0
"""Seconds after the last request during which samples are still taken."""
DEFAULT_INTERVAL_S = 1.0
DEADLINE_S = 1.5
"""Longest time for taking one sample: a viewer with an interval of 1 or 2 s still notices a hang."""
_TABLE_S = 10.0
"""Seconds for which the process table is still read after the last request for it."""
_OLD_SHARE = 0.8
"""A request causes a new sample at once if the newest sample is older than this fraction of the interval. So
a viewer that polls at the same interval always gets a new sample, whatever its phase, and any number of
viewers cause at most 1.25 samples per interval."""
_STEP_S = 0.25
"""Requested intervals are rounded to multiples of this, so that the number of different intervals is
limited."""
_KEPT_INTERVALS, _KEPT_LEAST_S = 3.0, 5.0
"""A requested interval of x seconds expires `_KEPT_INTERVALS` times x seconds after the last request for it,
but not before `_KEPT_LEAST_S` seconds."""


Later = Callable[[float, Callable[[], None]], Any]
"""Schedules a call after some seconds; returns an object with the method `cancel`."""


class NodeReader(Protocol):
    """Reads samples of a machine; `LocalSource` implements it."""

    show_processes: bool
    """Whether samples include the process table."""

    @property
    def identity(self) -> NodeIdentity | None:
        """Identity of the machine; None before the first sample."""
        ...

    async def poll(self, deadline_s: float) -> NodeSample | Failure:
        """Return one sample within `deadline_s` seconds, or a `Failure`."""
        ...

    async def close(self) -> None:
        """Release resources; `poll` must not be called afterwards."""
        ...


class Sampler:
    """Samples a machine at the smallest requested interval; pauses while no requests arrive."""

    def __init__(
        self, reader: NodeReader, *, clock: Callable[[], float] = time.monotonic, later: Later | None = None
    ) -> None:
        """Read samples with `reader`, which dates them by `clock` (seconds).

        `later` schedules calls; None: the event loop's `call_later`.
        """
        self._reader = reader
        self._clock = clock
        self._later = later
        self._samples: deque[NodeSample] = deque()
        self._asked_intervals: dict[float, float] = {}
        """By requested interval in seconds: time of the last request for that interval."""
        self._asked_at: float | None = None
        self._table_asked_at: float | None = None
        self._tried_at = clock()
        """When the newest sample was begun."""
        self._timer: Any = None
        self._taking: asyncio.Task[Failure | None] | None = None
        self._closed = False

    @property
    def identity(self) -> NodeIdentity:
        """Identity of the machine; before the first sample all its fields are unknown."""
        return self._reader.identity or NodeIdentity()

    @property
    def interval_s(self) -> float:
        """Seconds between samples: the smallest interval of recent requests, else the default interval."""
        now_s = self._clock()
        recent = [
            asked_interval_s
            for asked_interval_s, at in self._asked_intervals.items()
            if now_s - at <= max(_KEPT_LEAST_S, _KEPT_INTERVALS * asked_interval_s)
        ]
        return min(recent, default=DEFAULT_INTERVAL_S)

    async def ask(self, ask: Ask, *, fresh_s: float | None = None) -> tuple[NodeSample, ...] | Failure:
        """Return the samples newer than `ask.since`, oldest first.

        If `ask.since` is None, return only the newest sample. A new sample is read first if the newest one is
        older than `fresh_s` seconds or 80 % of the sampling interval, or if it lacks the process table that
        `ask` requests. Only the last sample returned has this table. If reading fails, return the `Failure`,
        unless there are samples newer than `ask.since`.
        """
        now_s = self._clock()
        lacks_table = self._record_request(ask, now_s)
        limit_s = min(_OLD_SHARE * self.interval_s, math.inf if fresh_s is None else fresh_s)
        is_old = not self._samples or now_s - self._samples[-1].at >= limit_s
        failure = await self._take_sample() if is_old or lacks_table else None
        if self._taking is None:
            self._schedule_next()  # the interval may have changed
        samples = self._samples_after(ask.since, self._clock())
        if failure is not None and (ask.since is None or not samples):
            return failure
        with_table = samples[-1:] if ask.processes else []
        without_table = [
            sample if sample.processes is None else replace(sample, processes=None)
            for sample in samples[: len(samples) - len(with_table)]
        ]
        return (*without_table, *with_table)

    def encode_reply(self, samples: tuple[NodeSample, ...], *, simulated: bool = False) -> bytes:
        """Return a reply with these samples, dated now, as one line of JSON."""
        reply = make_reply(
            self.identity,
            samples,
            self._clock(),
            wall_s=time.time(),
            interval_s=self.interval_s,
            simulated=simulated,
        )
        return encode(reply)

    async def close(self) -> None:
        """Stop sampling and close the reader."""
        self._closed = True
        self._cancel_timer()
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.wait({self._taking})
        await self._reader.close()

    def _record_request(self, ask: Ask, now: float) -> bool:
        """Record the request `ask`, which arrived at the time `now`.

        Return True if `ask` wants the process table and no other recent request wanted it.
        """
        self._asked_at = now
        requested_s = DEFAULT_INTERVAL_S if ask.interval_s is None else ask.interval_s
        self._asked_intervals[max(1, round(requested_s / _STEP_S)) * _STEP_S] = now
        had_table = self._wants_table(now)
        if ask.processes:
            self._table_asked_at = now
        return ask.processes and not had_table

    def _wants_table(self, now: float) -> bool:
        limit_s = max(_TABLE_S, _KEPT_INTERVALS * self.interval_s)
        return self._table_asked_at is not None and now - self._table_asked_at <= limit_s

    def _samples_after(self, since: float | None, now: float) -> list[NodeSample]:
        """Return the samples newer than `since`, oldest first.

        If `since` is None or ahead of this machine's clock, return only the newest sample.
        """
        self._drop_old(now)
        if since is None or since > now:  # the requester's newest sample is from before a reboot
            return list(self._samples)[-1:]
        return [sample for sample in self._samples if sample.at > since]

    def _drop_old(self, now: float) -> None:
        while self._samples and now - self._samples[0].at > KEPT_S:
            self._samples.popleft()

    async def _take_sample(self) -> Failure | None:
        """Read a new sample, or wait for the one that is being read.

        Return the `Failure` if reading failed, else None (also if the sampler is closed).
        """
        if self._taking is None:
            self._start_reading()
        taking = self._taking
        # Shielded: a requester that disconnects must not cancel the sample for the others.
        return None if taking is None else await asyncio.shield(taking)

    def _start_reading(self) -> None:
        """Start a task that takes a sample, unless the sampler is closed."""
        self._cancel_timer()
        if not self._closed:
            self._taking = asyncio.get_running_loop().create_task(self._read_next())

    async def _read_next(self) -> Failure | None:
        """Read and store a sample, and schedule the next sample; return the `Failure` if it failed."""
        self._tried_at = now_s = self._clock()
        self._reader.show_processes = self._wants_table(now_s)
        try:
            reading = await self._reader.poll(DEADLINE_S)
        except Exception as error:  # noqa: BLE001 - the one place that catches errors of every sample
            _log.exception("reading this machine failed")
            error_words = f"{type(error).__name__}: {clean(error)}"
            message = f"an error in sparktop while the machine was read: {error_words}"
            reading = Failure(FailureKind.INTERNAL, message, self._clock())
        finally:
            self._taking = None
        self._schedule_next()
        if isinstance(reading, Failure):
            return reading
        self._samples.append(reading)
        self._drop_old(self._clock())
        return None

    def _schedule_next(self) -> None:
        """Schedule the next sample one interval after the start of the last sample."""
        self._cancel_timer()
        if not self._closed:
            later = self._later or asyncio.get_running_loop().call_later
            due_at = self._tried_at + self.interval_s
            self._timer = later(max(0.0, due_at - self._clock()), self._on_timer)

    def _on_timer(self) -> None:
        """Read the scheduled sample, or stop sampling if no request came in the last `REST_S` seconds."""
        self._timer = None
        if self._asked_at is None or self._clock() - self._asked_at > REST_S:
            self._asked_intervals.clear()
        elif self._taking is None:
            self._start_reading()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


# The agent at the remote end of an ssh connection: JSON lines in, JSON lines out.
#
# Its first output line is a greeting: a reply without samples. Each input line is a request, `{"since":
# 5120.0, "processes": false, "interval_s": 1.0}`, and gets one output line: a `Reply` or an error. With
# `{"ranks": true}` the agent asks NCCL. The program ends at the end of the input, when the output is
# closed, on a signal, or after a while without a request, so that no process is left when the connection is
# gone.


IDLE_S = 180.0
"""The program ends after this many seconds without a request, or without the viewer reading a response."""


async def serve(
    sampler: Sampler, source: int, sink: int, *, idle_s: float = IDLE_S, ranks: RasReader | None = None
) -> int:
    """Read requests from the file descriptor `source` and write replies to `sink`; return the exit code.

    Ends when the input ends, when a signal arrives, or after `idle_s` seconds without a request. `ranks` asks
    NCCL (None: a reader of this machine).
    """
    ranks = ranks or RasReader()
    with stopped_by_signals() as stop:
        talk = asyncio.get_running_loop().create_task(_answer_requests(sampler, ranks, source, sink, idle_s))
        try:
            ends: set[asyncio.Future[Any]] = {talk, stop}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            code = stop.result() if stop.done() else 0
        finally:
            talk.cancel()
            await asyncio.wait({talk})
            await ranks.close()
            await sampler.close()
        if not talk.cancelled():
            talk.result()  # re-raise a programming error
        return code


async def _answer_requests(sampler: Sampler, ranks: RasReader, source: int, sink: int, idle_s: float) -> None:
    """Write the greeting, then reply to requests until the input ends.

    Ends also after `idle_s` seconds without a request, if a write fails, or if a write takes longer than
    `idle_s`.
    """
    lines, output = LineReader(source), Output(sink)
    try:
        async with timeout(idle_s):
            await output.write(sampler.encode_reply(()))
        while True:
            async with timeout(idle_s):
                line = await lines.next()
            if line is None:
                return
            if line.strip():
                answer = await _answer_line(sampler, ranks, line)
                async with timeout(idle_s):
                    await output.write(answer)
    except (OSError, TimeoutError):
        return  # the reader is gone, or no requests come
    finally:
        output.close()


async def _answer_line(sampler: Sampler, ranks: RasReader, line: bytes) -> bytes:
    if len(line) > LONGEST_LINE:
        return encode_error(FailureKind.TOO_LARGE, f"a request of over {LONGEST_LINE} bytes")
    try:
        ask = from_line(line)
    except AskError as error:
        return encode_error(FailureKind.MALFORMED, str(error))
    if ask.ranks:
        return encode_ranks(await ranks.ask())
    answer = await sampler.ask(ask)
    if isinstance(answer, Failure):
        return encode_error(answer.kind, answer.message)
    return sampler.encode_reply(answer)


_STDIN, _STDOUT = 0, 1
"""File descriptors."""


def run(source: int = _STDIN, sink: int = _STDOUT) -> int:
    """Read requests from the file descriptor `source` and write replies to `sink`; return the exit code.

    Write nothing else, not even a log.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    return asyncio.run(serve(Sampler(LocalSource("agent")), source, sink))
