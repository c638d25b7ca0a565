"""The load generator's open loop: each request is sent when it is due, however many are in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain
from math import ceil
from time import perf_counter

from msgspec.structs import replace

from sparktop.model.load import EndReason, RequestEnded, RunStarted
from sparktop.sweep.generator.body import BodyForm
from sparktop.sweep.generator.client import LoadClient
from sparktop.sweep.generator.connection import ConnectionPool
from sparktop.sweep.generator.exchange import Request
from sparktop.sweep.generator.prompts.prompts import NewPrompt
from sparktop.sweep.generator.run_log import RunLog
from sparktop.sweep.generator.wire.messages import OpenLoop, RunLoad
from sparktop.sweep.plan.arrivals import Rate, due_times, later_times, parse_pattern

LEAD_S = 0.05
"""Seconds from the start of the run to its time 0, so that the first request can be sent in time."""
_AHEAD_S = 0.5
"""Bodies and connections for the arrivals of so many seconds are kept ready."""
_LEAST_AHEAD = 4


def run_times(arrivals: OpenLoop) -> Iterator[float]:
    """Yield the due times of a run in seconds, ascending without end: warm-up, measured part, tail."""
    pattern = parse_pattern(arrivals.pattern)
    rate = Rate(arrivals.per_s, arrivals.end_per_s)
    begin, end = arrivals.warm_up_s, arrivals.warm_up_s + arrivals.duration_s
    warm_up = due_times(pattern, Rate(arrivals.per_s), begin, f"{arrivals.seed}/warm-up") if begin else []
    measured = (begin + one for one in due_times(pattern, rate, arrivals.duration_s, arrivals.seed))
    return chain(warm_up, measured, later_times(pattern, rate, end, f"{arrivals.seed}/tail"))


class OpenLoopClient(LoadClient):
    """Executes a run in which requests are due at given times; only `concurrency` limits those in flight.

    Requests above that limit wait in the client. Their latencies from the due time include this wait.
    """

    def __init__(
        self,
        load: RunLoad,
        arrivals: OpenLoop,
        pool: ConnectionPool,
        form: BodyForm,
        prompt: NewPrompt,
        log: RunLog,
        *,
        first_event_is_token: bool = False,
    ) -> None:
        """Create the run `load` with these arrivals; for the others see `LoadClient`."""
        self._arrivals = arrivals
        super().__init__(load, pool, form, prompt, log, first_event_is_token=first_event_is_token)
        self._turns = asyncio.Semaphore(load.concurrency)
        self._unsent: dict[str, Request] = {}
        """Requests that are due and wait in the client, by id."""
        self._measured: set[asyncio.Task[object]] = set()
        """Tasks of measured requests that have not ended."""
        self._fault: BaseException | None = None
        self._origin = 0.0
        """Time 0 of the due times, in monotonic seconds."""

    def _ahead(self) -> int:
        fastest = max(self._arrivals.per_s, self._arrivals.end_per_s or 0.0)
        return min(self._load.concurrency, max(_LEAST_AHEAD, ceil(_AHEAD_S * fastest)))

    def _run_started(self, number: int) -> RunStarted:
        arrivals, at = self._arrivals, perf_counter()
        self._origin = at + LEAD_S
        begin = self._origin + arrivals.warm_up_s
        return RunStarted(at, number, (begin, begin + arrivals.duration_s))

    async def _execute(self) -> None:
        arrivals, origin = self._arrivals, self._origin
        begin = origin + arrivals.warm_up_s
        end = begin + arrivals.duration_s
        tail_end = end + arrivals.tail_s
        for due_s in run_times(arrivals):
            due = origin + due_s
            if due >= end:
                await self._measured_ended(min(due, tail_end))
                if not self._measured or due >= tail_end:
                    break
            await self._pause(due - LEAD_S - perf_counter())
            self._ready_connection()
            await self._pause(due - perf_counter())
            if self._stopping.is_set():
                break
            self._begin_due(due, is_measured=begin <= due < end)
        self._end_all()
        if self._fault is not None:
            raise self._fault

    def _ready_connection(self) -> None:
        """Begin to open a connection for the request that is due next, unless one is ready."""
        if not self._stopping.is_set() and not self._pool.has_fresh():
            task = self._loop.create_task(self._pool.add())
            self._tasks.add(task)
            task.add_done_callback(self._forget)

    async def _measured_ended(self, until: float) -> None:
        """Wait until all measured requests have ended, the run is to stop, or the monotonic time `until`."""
        while self._measured and not self._stopping.is_set() and (left_s := until - perf_counter()) > 0:
            await asyncio.wait(self._measured, timeout=left_s)

    def _begin_due(self, due: float, *, is_measured: bool) -> None:
        request = self._next()
        assert request is not None  # noqa: S101 - an open loop has no fixed number of requests
        task = self._loop.create_task(self._send_in_turn(replace(request, due=due if is_measured else None)))
        self._tasks.add(task)
        if is_measured:
            self._measured.add(task)
        task.add_done_callback(self._forget)

    async def _send_in_turn(self, request: Request) -> None:
        self._unsent[request.request_id] = request
        async with self._turns:
            del self._unsent[request.request_id]
            await self._send_once(request)

    def _forget(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        self._measured.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._fault = fault
            self._stopping.set()

    def _end_all(self) -> None:
        """End the requests in flight, and record those that were due but never sent, with the age of each."""
        for request in self._unsent.values():
            end = RequestEnded(request.request_id, at := perf_counter(), EndReason.ABORT)
            self._log.request_unsent(request.request_id, at, request.prompt_tokens, end, request.due)
        self._abort_active()
        for task in list(self._tasks):
            task.cancel()
