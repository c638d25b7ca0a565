"""The truth server as a process, the true figures of a load, and sparktop's generator beside them.

The true figures are computed from the server's own times, independently of `sparktop.sweep.result`: a truth
with the same arithmetic would have the same mistakes.
"""

from __future__ import annotations

import ctypes
import http.client
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from truth_server import Pace, Stream

from sparktop.model.load import Level, LoadMode, concurrency_point
from sparktop.model.statistics import quantile
from sparktop.sweep.generator.wire import (
    Calibrate,
    Calibrated,
    Refused,
    RunFinished,
    RunLoad,
    WorkerTarget,
)
from sparktop.sweep.plan.plan import Timeouts
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.result.results import LevelResult
from sparktop.sweep.run.worker_process import RunRecord, SweepWorker

_SERVER = Path(__file__).parent / "truth_server.py"
_ASK_S = 30.0
_END_S = 10.0


class TruthProcess:
    """A truth server in a separate process, which ends with the context."""

    def __init__(self, core: int | None = None) -> None:
        """Start the server, on `core` if given."""
        where = [] if core is None else ["--core", str(core)]
        self._process = subprocess.Popen(
            [sys.executable, str(_SERVER), *where], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None  # noqa: S101 - for mypy: it is a pipe
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the truth server did not start: exit code {self._process.wait(_END_S)}")
        self.port = int(line)

    @property
    def url(self) -> str:
        """Base URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def ended(self) -> bool:
        """Whether the server's process has ended."""
        return self._process.poll() is not None

    def keep_to(self, pace: Pace) -> None:
        """Set the server's pace, and make it forget all requests."""
        self._ask("POST", msgspec.json.encode(pace))

    def streams(self) -> list[Stream]:
        """Return all requests since the pace was set, in the order of their arrival."""
        return msgspec.json.decode(self._ask("GET", None), type=list[Stream])

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the server."""
        try:
            self._process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _ask(self, method: str, body: bytes | None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ASK_S)
        try:
            connection.request(method, "/truth", body)
            return connection.getresponse().read()
        finally:
            connection.close()


def ttft_s(stream: Stream) -> float:
    """Return the seconds from the request's arrival to its first token."""
    return stream.stamps[0] - stream.arrived_at


def tpot_s(stream: Stream) -> float:
    """Return the mean seconds from one token to the next."""
    return (stream.stamps[-1] - stream.stamps[0]) / (len(stream.stamps) - 1)


def itl_s(streams: Iterable[Stream]) -> float:
    """Return the mean of all gaps between consecutive tokens in seconds."""
    gaps = [later - earlier for one in streams for earlier, later in pairwise(one.stamps)]
    return sum(gaps) / len(gaps)


def decode_tps(streams: Iterable[Stream]) -> float:
    """Return the tokens after each request's first / (latest last token - earliest first token)."""
    stamped = [stream.stamps for stream in streams if stream.stamps]
    window_s = max(stamps[-1] for stamps in stamped) - min(stamps[0] for stamps in stamped)
    return sum(len(stamps) - 1 for stamps in stamped) / window_s


def sustained_tps(streams: Sequence[Stream], concurrency: int) -> float:
    """Return the rate of a closed loop while `concurrency` requests run.

    That is from the arrival that completes the load to the first end without a following request.
    """
    arrivals = sorted(stream.arrived_at for stream in streams)
    begin = arrivals[concurrency - 1]
    end = min(stream.stamps[-1] for stream in streams if stream.stamps[-1] > arrivals[-1])
    return sum(begin < at <= end for stream in streams for at in stream.stamps) / (end - begin)


PROMPT_TOKENS = 64
_LIMITS = Timeouts(connect_s=10.0, first_token_s=20.0, between_tokens_s=20.0, whole_s=60.0)


class LoadFailedError(Exception):
    """The generator did not perform the load; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Load:
    """One run, as measured by the client and as recorded by the server."""

    figures: LevelResult
    record: RunRecord
    finished: RunFinished
    traces: dict[str, RequestTrace]
    """Traces by request, with the same keys as `streams`."""
    streams: dict[str, Stream]
    cpu_s: float
    """CPU seconds of the generator's process, from the command to the last message."""

    @property
    def whole(self) -> bool:
        """Whether every token that the server wrote arrived, and every request ended well."""
        wrote = {key: len(stream.stamps) for key, stream in self.streams.items()}
        return all(one.ok for one in self.traces.values()) and wrote == {
            key: one.tokens for key, one in self.traces.items()
        }

    @property
    def ttft_errors_ms(self) -> list[float]:
        """Error of each request's TTFT in milliseconds: measured minus true."""
        return [
            1e3 * ((trace.ttft_s or 0.0) - ttft_s(self.streams[key])) for key, trace in self.traces.items()
        ]

    @property
    def mean_ttft_error_ms(self) -> float:
        """Mean error of the TTFT in milliseconds: measured minus true."""
        return statistics.fmean(self.ttft_errors_ms)

    @property
    def p99_ttft_error_ms(self) -> float:
        """99th percentile of the TTFT's errors in milliseconds."""
        return quantile(sorted(self.ttft_errors_ms), 0.99)

    @property
    def late_ms(self) -> float:
        """Milliseconds from the server's last write until the last token was read."""
        wrote = max(stream.stamps[-1] for stream in self.streams.values())
        return 1e3 * (max(trace.arrivals[-1][0] for trace in self.traces.values() if trace.arrivals) - wrote)


class Generator:
    """A running generator and the truth server that it loads."""

    def __init__(self, worker: SweepWorker, truth: TruthProcess) -> None:
        """Use a running worker, which `generator_on` starts and ends, and a truth server."""
        self._worker = worker
        self._truth = truth
        self._target = WorkerTarget(truth.url, "truth")
        self._runs = 0

    async def burst(self, concurrency: int, tokens: int, pace: Pace) -> Load:
        """Perform one run of a burst."""
        return await self._make(self._load(concurrency, tokens), pace)

    async def steady(self, concurrency: int, tokens: int, pace: Pace, duration_s: float) -> Load:
        """Perform one run of steady load; all streams start within a tenth of a second."""
        load = self._load(concurrency, tokens, LoadMode.STEADY, duration_s)
        return await self._make(load, pace)

    def _load(
        self,
        concurrency: int,
        tokens: int,
        mode: LoadMode = LoadMode.BURST,
        duration_s: float | None = None,
    ) -> RunLoad:
        self._runs += 1
        return RunLoad(
            id=f"run{self._runs}",
            target=self._target,
            concurrency=concurrency,
            prompt_tokens=PROMPT_TOKENS,
            output_tokens=tokens,
            mode=mode,
            duration_s=duration_s,
            ramp_s=0.1,
            prompt_salt=f"run{self._runs}",
            cache_salt=f"run{self._runs}",
            timeouts=_LIMITS,
        )

    async def _make(self, load: RunLoad, pace: Pace) -> Load:
        self._truth.keep_to(pace)
        record = RunRecord()
        cpu_began_s = cpu_s(self._worker.pid)
        async for message in self._worker.run(load):
            if isinstance(message, Refused):
                raise LoadFailedError(message.failure.message)
            record.add(message)
        took_s = cpu_s(self._worker.pid) - cpu_began_s
        if record.finished is None:
            raise LoadFailedError(f"{load.id} has no end")
        traces = record.traces()
        level = Level("truth", concurrency_point(load.concurrency), PROMPT_TOKENS, load.output_tokens)
        return Load(
            level_result(level, traces, mode=load.mode),
            record,
            record.finished,
            {trace.request_id: trace for trace in traces},
            {stream.key: stream for stream in self._truth.streams()},
            took_s,
        )


@asynccontextmanager
async def generator_on(truth: TruthProcess, core: int | None) -> AsyncIterator[Generator]:
    """Start a generator, on `core` if given, and calibrate it; end it at the end of the block."""
    async with await SweepWorker.start() as worker:
        if core is not None:
            os.sched_setaffinity(worker.pid, {core})
        target = WorkerTarget(truth.url, "truth")
        await worker.send(Calibrate("calibration", target, PROMPT_TOKENS, 8, 0, _LIMITS))
        message = await anext(worker.messages())
        if not isinstance(message, Calibrated) or message.failure is not None:
            raise LoadFailedError(repr(message))
        yield Generator(worker, truth)


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of all threads of a process so far, with nanosecond resolution."""
    clock = ctypes.c_int()
    if ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise LoadFailedError(f"process {pid} has ended")
    return time.clock_gettime(clock.value)
