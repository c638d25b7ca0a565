"""The load generator's replay of recorded traffic: requests are due as their trace says."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterator
from time import perf_counter

from msgspec.structs import replace

from sparktop.model.load import RunStarted
from sparktop.sweep.generator.body import BodyForm
from sparktop.sweep.generator.connection import ConnectionPool
from sparktop.sweep.generator.exchange import Request
from sparktop.sweep.generator.open_loop import LEAD_S, OpenLoopClient
from sparktop.sweep.generator.prompts.blocks import BlockPrompts
from sparktop.sweep.generator.prompts.prompts import NewPrompt
from sparktop.sweep.generator.run_log import RunLog
from sparktop.sweep.generator.wire.messages import OpenLoop, RunLoad
from sparktop.sweep.plan.traces.lines import TraceError
from sparktop.sweep.plan.traces.request import TracedRequest
from sparktop.sweep.plan.traces.trace import Trace, TraceChoice

_STEP_S = 1.0
"""Interval in seconds between checks whether the time after the last request has passed."""


class ReplayClient(OpenLoopClient):
    """Executes a run in which a trace says when requests are due, and how long they are.

    A request that follows another one is due when that one has ended and the recorded pause has passed, but
    not before its own time, if the trace has one. The run ends when all requests have ended, or `tail_s`
    seconds after the last one was due.
    """

    def __init__(
        self,
        load: RunLoad,
        arrivals: OpenLoop,
        choice: TraceChoice,
        pool: ConnectionPool,
        form: BodyForm,
        prompt: NewPrompt,
        blocks: BlockPrompts,
        log: RunLog,
        *,
        first_event_is_token: bool = False,
    ) -> None:
        """Create the run `load` of the trace `choice`; `blocks` makes its prompts.

        `arrivals` has the mean rate and the time limit after the last request; for the other arguments see
        `LoadClient`.
        """
        super().__init__(load, arrivals, pool, form, prompt, log, first_event_is_token=first_event_is_token)
        self._blocks = blocks
        self._trace: Iterator[TracedRequest] = iter(Trace(choice))
        self._traced: dict[str, TracedRequest] = {}
        """The requests that were read and have not begun, by id."""
        self._is_read = False
        self._ended = array("d")
        """When each request ended, in monotonic seconds by its number; NaN before."""
        self._following: defaultdict[int, list[Request]] = defaultdict(list)
        """Requests that wait for the end of another one, by its number."""
        self._last_due = 0.0

    def _may_make(self) -> bool:
        return not self._is_read

    def _make(self) -> Request:
        """Return the next request of the trace; its content is made when it is due, if it follows another.

        At the end of the trace the request is empty.
        """
        try:
            traced = next(self._trace, None)
        except TraceError:
            traced = None  # the file was checked before the run, and has changed since
        if traced is None:
            self._is_read = True
            return Request("", b"", None, 0)
        self._ended.append(math.nan)
        request = Request(f"{self._load.id}-{traced.number}", b"", traced.prompt_tokens, traced.output_tokens)
        self._traced[request.request_id] = traced
        return request if traced.after is not None else self._with_content(request)

    def _with_content(self, request: Request) -> Request:
        traced = self._traced[request.request_id]
        prompt, tokens = self._blocks.prompt(traced)
        content = self._form.request(
            self._pool.endpoint, prompt, traced.output_tokens, self._salt(self._load.cache_salt)
        )
        return replace(request, content=content, prompt_tokens=tokens)

    def _run_started(self, number: int) -> RunStarted:
        if self._arrivals.duration_s > 0:
            return super()._run_started(number)
        at = perf_counter()
        self._origin = at + LEAD_S
        return RunStarted(at, number)  # turns wait for answers: when the last one is due is not known yet

    async def _execute(self) -> None:
        while (request := self._next()) is not None and request.request_id:
            traced = self._traced[request.request_id]
            if traced.after is not None and math.isnan(self._ended[traced.after]):
                self._following[traced.after].append(request)
                continue
            due = self._due(traced)
            if traced.after is None or traced.due_s is not None:
                # Later requests of the file are not due earlier. After a pause of a conversation they may be.
                await self._pause(due - perf_counter())
            if self._stopping.is_set():
                break
            self._begin_due_later(request, due)
            self._last_due = max(self._last_due, due)
        while self._measured and not self._stopping.is_set():
            until = self._last_due + self._arrivals.tail_s
            await self._measured_ended(min(until, perf_counter() + _STEP_S))
            if perf_counter() >= until:
                break
        self._end_all()
        if self._fault is not None:
            raise self._fault

    def _due(self, traced: TracedRequest) -> float:
        """Return when a request is due, whose predecessor has ended, in monotonic seconds."""
        at = -math.inf if traced.due_s is None else self._origin + traced.due_s
        return at if traced.after is None else max(at, self._ended[traced.after] + traced.delay_s)

    def _begin_due_later(self, request: Request, due: float) -> None:
        task = self._loop.create_task(self._send_when_due(request, due))
        self._tasks.add(task)
        self._measured.add(task)
        task.add_done_callback(self._forget)

    async def _send_when_due(self, request: Request, due: float) -> None:
        """Send a request when it is due; at its end, begin those that follow it."""
        if not request.content:
            request = self._with_content(request)
        number = self._traced.pop(request.request_id).number
        await self._pause(due - perf_counter())
        if self._stopping.is_set():
            return
        await self._send_in_turn(replace(request, due=due))
        self._ended[number] = perf_counter()
        for following in self._following.pop(number, ()):
            due = self._due(self._traced[following.request_id])
            self._last_due = max(self._last_due, due)
            self._begin_due_later(following, due)
