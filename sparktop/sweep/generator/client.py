"""The load generator: executes one load run of one level against one server.

Connections are opened and bodies are serialised before the run begins. A burst starts all its requests in one
iteration of the event loop and waits for them. A steady run is a closed loop: it has `concurrency` slots,
each of which sends its next request when the previous one has ended. There are never more than `concurrency`
requests in flight. A request is sent again, once, only if the server had closed its idle connection before.
"""

from __future__ import annotations

import asyncio
import math
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from itertools import chain, count
from math import ceil
from time import perf_counter

from msgspec.structs import replace

from sparktop.model.failure import RequestFailure
from sparktop.model.load import (
    EndReason,
    LoadMode,
    LoadPoint,
    RequestEnded,
    RunStarted,
)
from sparktop.sweep.generator.connection import Connection, ConnectionPool
from sparktop.sweep.generator.exchange import CACHE_SALT, Exchange, ReadyRequest, Recipe, RunLog, Terms
from sparktop.sweep.generator.wire import LONG, RunLoad
from sparktop.sweep.plan.arrivals import due_times, last_per_s, later_times, parse_pattern
from sparktop.sweep.plan.traces import Trace, TracedRequest, TraceError
from sparktop.sweep.terms.request_errors import connect_failure

_CHECK_S = 0.1
"""Longest interval in seconds between checks of deadlines; shorter where deadlines are short."""
_CHECKS_PER_DEADLINE = 4
"""Least checks within the shortest time limit, so that none is exceeded by more than a quarter."""
_FAILED_LEAST_S = 0.5
"""Minimum seconds between the starts of a failed request and of the next one in its slot, so that a server
that refuses requests is not flooded."""
_LONGEST_RAMP_S = 5.0
"""Most seconds over which the first requests of a steady run are started."""
_RAMP_SHARE = 0.1
"""The same as a share (0 to 1) of the duration of the run."""
_TINY = "Go on."
"""The user's message of a run that only fills the cache with contexts."""
_BLOCK = 512
"""Tokens of a block of context, each made of a key of its own."""
_BODIES_PER_CHECK = 8
"""Maximum request bodies that a steady run serialises in advance at each check of deadlines; a body of a
thousand tokens takes 20 µs."""


class LoadClient:
    """Executes one load run: call `prepare`, then `run`."""

    def __init__(self, load: RunLoad, pool: ConnectionPool, recipe: Recipe, log: RunLog) -> None:
        """Create the run `load` over `pool`: `recipe` makes its requests, `log` records its events."""
        self.cancelled = False
        self._load = load
        self._pool = pool
        pool.paced = load.mode is not LoadMode.BURST
        self._form, self._prompt, self._maker = recipe.form, recipe.prompt, recipe.maker
        self._log = log
        target = load.target
        self._terms = Terms(
            pool.endpoint.where,
            target.router,
            target.api_key,
            load.timeouts,
            target.own_texts,
            first_event_is_token=recipe.first_event_is_token,
        )
        self._active: dict[Exchange, asyncio.Future[Exchange]] = {}
        self._ready: deque[ReadyRequest] = deque()
        self._made = 0
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[object]] = set()
        self._loop = asyncio.get_running_loop()
        self._deadlines: asyncio.TimerHandle | None = None

    async def prepare(self) -> None:
        """Serialise bodies and open connections, so that neither is part of the measurement."""
        upcoming = self._requests_ahead()
        while len(self._ready) < upcoming:
            self._ready.append(self._make_request())
        await self._run_in_parallel(self._pool.fill(upcoming))

    def _requests_ahead(self) -> int:
        """Return the number of bodies to serialise, and of connections to open, before the run."""
        limit = self._load.requests if self._load.mode is LoadMode.STEADY else None
        return self._load.concurrency if limit is None else min(self._load.concurrency, limit)

    async def run(self) -> None:
        """Execute the run until all its requests have ended, then close all connections.

        `prepare` must have been called before.
        """
        log, number = self._log, self._load.run
        self._check_deadlines()
        try:
            if not self.cancelled:
                await self._send_before_run()
            log.add(self._run_started_event(number))
            if not self.cancelled:
                await self._execute()
        finally:
            if self._deadlines is not None:
                self._deadlines.cancel()
            self._pool.close()

    async def _send_before_run(self) -> None:
        """Send what precedes the run; nothing here."""

    def _run_started_event(self, number: int) -> RunStarted:
        return RunStarted(perf_counter(), number)

    def cancel(self) -> None:
        """Cancel all requests in flight and start no more, so that `run` returns at once."""
        self.cancelled = True
        self._stopping.set()
        self._abort_active()
        for task in self._tasks:
            task.cancel()

    def _abort_active(self) -> None:
        now_s = perf_counter()
        for exchange in list(self._active):
            exchange.cancel(now_s)

    async def _execute(self) -> None:
        await (self._run_burst() if self._load.mode is LoadMode.BURST else self._run_steady())

    async def _run_burst(self) -> None:
        requests, self._ready = self._ready, deque()
        exchanges: list[Coroutine[None, None, object]] = []
        for request in requests:
            connection = self._pool.take()
            if connection is None:  # it gets a new one, once all others are sent
                exchanges.append(self._send_once(request))
            else:
                exchanges.append(self._await_end(self._begin_exchange(request, connection)))
        await self._run_in_parallel(*exchanges)

    async def _run_steady(self) -> None:
        load = self._load
        slots = load.concurrency
        ramp_s = load.ramp_s
        if ramp_s is None:
            ramp_s = min(_LONGEST_RAMP_S, _RAMP_SHARE * (load.duration_s or 0.0))
        ending = None
        if load.duration_s is not None:
            ending = self._loop.call_later(load.duration_s, self._stopping.set)
        await self._run_in_parallel(
            *(self._send_in_slot(ramp_s * slot / slots, self.next_request) for slot in range(slots))
        )
        if ending is not None:
            ending.cancel()

    async def _send_in_slot(self, delay_s: float, next_request: Callable[[], ReadyRequest | None]) -> None:
        """After `delay_s` seconds, send requests one after the other, each when the previous one has ended.

        `next_request` makes the next one. Return when the run is to stop, or when no request is left to send.
        """
        await self._pause(delay_s)
        while not self._stopping.is_set():
            request = next_request()
            if request is None:
                break
            began = perf_counter()
            if await self._send_once(request):
                await self._pause(_FAILED_LEAST_S - (perf_counter() - began))

    async def _send_once(self, request: ReadyRequest) -> bool:
        """Send a request and wait for its end; return whether it failed."""
        connection = self._pool.take()
        if connection is None:
            try:
                connection = await self._pool.open()
            except OSError as error:
                self._record_unsent(request, connect_failure(error, perf_counter(), where=self._terms.where))
                return True
        if self.cancelled:
            connection.abort()
            return False
        return await self._await_end(self._begin_exchange(request, connection))

    async def _await_end(self, freed: asyncio.Future[Exchange]) -> bool:
        """Wait for the end of a request, sent again if its connection was stale; return whether it failed."""
        exchange = await freed
        if exchange.is_stale:
            exchange = await self._send_again(exchange)
        return exchange.end is not None and exchange.end.reason is EndReason.ERROR

    def _begin_exchange(
        self, request: ReadyRequest, connection: Connection, *, resent: bool = False
    ) -> asyncio.Future[Exchange]:
        exchange = Exchange(request, connection, self._log, self._terms, self._end_exchange, resent=resent)
        freed = self._loop.create_future()
        self._active[exchange] = freed
        return freed

    async def _send_again(self, before: Exchange) -> Exchange:
        """Send the request of the exchange `before` on a new connection; return the exchange with its end."""
        try:
            connection = await self._pool.open()
        except OSError as error:
            before.fail(connect_failure(error, perf_counter(), where=self._terms.where))
            return before
        finally:
            del self._active[before]
        if before.end is not None:
            connection.abort()
            return before
        return await self._begin_exchange(before.request, connection, resent=True)

    def _end_exchange(self, exchange: Exchange) -> None:
        freed = self._active[exchange]
        if not exchange.is_stale:  # one that is stale is ended with the others until it is sent again
            del self._active[exchange]
        if exchange.connection.open:
            self._pool.give_back(exchange.connection)
        if not freed.done():
            freed.set_result(exchange)

    def _record_unsent(self, request: ReadyRequest, failure: RequestFailure | None) -> None:
        """Record that a request, which was never sent, has failed; None: it was cancelled."""
        name, at = request.request_id, perf_counter()
        reason = EndReason.ABORT if failure is None else EndReason.ERROR
        self._log.request_started(request.started(at, self._load.run))
        self._log.request_ended(RequestEnded(name, at, reason, failure), array("d"), [], 0)

    def next_request(self) -> ReadyRequest | None:
        """Return a request that is ready to be sent; None if none is left."""
        if self._ready:
            return self._ready.popleft()
        return self._make_request() if self._has_more_requests() else None

    def _has_more_requests(self) -> bool:
        limit = self._load.requests
        return limit is None or self._made < limit

    def _make_request(self) -> ReadyRequest:
        load, number = self._load, self._made
        self._made += 1
        prompt, tokens = self._prompt(number, load.prompt_salt)
        text = None
        if load.context_tokens:
            keys = (f"{load.cache_salt}/{number}#{block}" for block in count())
            text, context_tokens = self._maker.text(load.context_tokens, _BLOCK, keys, is_bare=True)
            if load.context_alone:
                prompt, tokens = _TINY, 0
            tokens = None if tokens is None else context_tokens + tokens
        cache_salt = None if load.cache_salt is None else self._request_salt(f"{load.cache_salt}-{number}")
        content = self._form.request(self._pool.endpoint, prompt, load.output_tokens, cache_salt, text)
        return ReadyRequest(f"{load.id}-{number}", content, tokens, load.output_tokens)

    def _request_salt(self, salt: str | None) -> str | None:
        """Return the salt of a request for the server's prefix cache; None if the server takes none."""
        return None if CACHE_SALT in self._form.dropped else salt

    async def _pause(self, delay_s: float) -> None:
        """Wait for `delay_s` seconds at least, but return at once when the run is to stop.

        Timers may fire up to a millisecond early: event loops round their times.
        """
        end = perf_counter() + delay_s
        while not self._stopping.is_set() and (left_s := end - perf_counter()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._stopping.wait()

    def _check_deadlines(self) -> None:
        """End requests that exceed a time limit, serialise bodies in advance, and schedule the next check."""
        now_s = perf_counter()
        for exchange in list(self._active):
            exchange.check(now_s)
        if self._load.mode is not LoadMode.BURST:
            upcoming = self._requests_ahead()
            for _ in range(_BODIES_PER_CHECK):
                if len(self._ready) < upcoming and self._has_more_requests():
                    self._ready.append(self._make_request())
        limits = self._load.timeouts
        shortest = min(limits.first_token_s, limits.between_tokens_s, limits.whole_s)
        delay_s = min(_CHECK_S, shortest / _CHECKS_PER_DEADLINE)
        self._deadlines = self._loop.call_later(delay_s, self._check_deadlines)

    def _add_task(self, work: Coroutine[None, None, object]) -> None:
        self._tasks.add(self._loop.create_task(work))

    async def _run_in_parallel(self, *works: Coroutine[None, None, object]) -> None:
        """Execute `works` beside the tasks that were added; raise what ended one: a programming error."""
        for work in works:
            self._add_task(work)
        if self._tasks:
            await asyncio.wait(self._tasks)
        for task in self._tasks:
            if not task.cancelled():
                task.result()
        self._tasks.clear()


class BesideClient(LoadClient):
    """Executes a steady run with one more slot, in which long prompts follow one another for one token each.

    The run ends when its requests and the last long prompt have ended.
    """

    def __init__(self, load: RunLoad, pool: ConnectionPool, recipe: Recipe, log: RunLog) -> None:
        """Create the run `load`, which has long prompts beside it; see `LoadClient`."""
        super().__init__(load, pool, recipe, log)
        long_id = load.id + LONG
        long = replace(load, id=long_id, cache_salt=long_id, output_tokens=1)
        long = replace(long, context_tokens=load.beside_tokens, context_alone=True)
        self._long = LoadClient(long, pool, recipe, log)

    async def _run_steady(self) -> None:
        self._add_task(self._send_in_slot(0.0, self._long.next_request))
        await super()._run_steady()


# The load generator's open loop: each request is sent when it is due, however many are in flight.


LEAD_S = 0.05
"""Seconds from the start of the run to its time 0, so that the first request can be sent in time."""
_AHEAD_S = 0.5
"""Bodies and connections for the arrivals of so many seconds are kept ready."""
_LEAST_AHEAD = 4
"""Least number of bodies and connections that are kept ready."""


def run_times(load: RunLoad, rate: LoadPoint) -> Iterator[float]:
    """Yield the due times of a run in seconds, ascending without end: warm-up, measured part, tail."""
    pattern, seed = parse_pattern(load.arrivals), load.draw_seed
    begin, duration_s = load.ramp_s or 0.0, load.duration_s or 0.0
    warm_up = due_times(pattern, replace(rate, rises_to=None), begin, f"{seed}/warm-up") if begin else []
    measured = (begin + due_s for due_s in due_times(pattern, rate, duration_s, seed))
    return chain(warm_up, measured, later_times(pattern, rate, begin + duration_s, f"{seed}/tail"))


class OpenLoopClient(LoadClient):
    """Executes a run in which requests are due at given times; only `concurrency` limits those in flight.

    Requests above that limit wait in the client. Their latencies from the due time include this wait.
    """

    def __init__(self, load: RunLoad, pool: ConnectionPool, recipe: Recipe, log: RunLog) -> None:
        """Create the run `load`, which has a rate; see `LoadClient`."""
        assert load.rate is not None  # noqa: S101 - every open loop has one
        self._rate = load.rate
        super().__init__(load, pool, recipe, log)
        self._turns = asyncio.Semaphore(load.concurrency)
        self._unsent: dict[str, ReadyRequest] = {}
        """Requests that are due and wait in the client, by id."""
        self._measured: set[asyncio.Task[object]] = set()
        """Tasks of measured requests that have not ended."""
        self._fault: BaseException | None = None
        self._origin = 0.0
        """Time 0 of the due times, in monotonic seconds."""
        self._window = (0.0, 0.0)
        """(beginning, end) of the time in which measured requests are due, in monotonic seconds."""

    def _requests_ahead(self) -> int:
        fastest = max(self._rate.value, last_per_s(self._rate))
        return min(self._load.concurrency, max(_LEAST_AHEAD, ceil(_AHEAD_S * fastest)))

    def _run_started_event(self, number: int) -> RunStarted:
        load, at = self._load, perf_counter()
        self._origin = at + LEAD_S
        begin = self._origin + (load.ramp_s or 0.0)
        self._window = (begin, begin + (load.duration_s or 0.0))
        return RunStarted(at, number, None if load.duration_s is None else self._window)

    async def _execute(self) -> None:
        begin, end = self._window
        tail_end = end + self._load.tail_s
        for due_s in run_times(self._load, self._rate):
            due_at = self._origin + due_s
            if due_at >= end:
                await self._wait_for_measured(min(due_at, tail_end))
                if not self._measured or due_at >= tail_end:
                    break
            await self._pause(due_at - LEAD_S - perf_counter())
            if not self._stopping.is_set() and not self._pool.has_fresh():
                self._start_task(self._pool.add(), is_measured=False)
            await self._pause(due_at - perf_counter())
            request = self.next_request()
            if self._stopping.is_set() or request is None:
                break
            is_measured = begin <= due_at < end
            request = replace(request, due=due_at if is_measured else None)
            self._start_task(self._send_in_turn(request), is_measured=is_measured)
        self._end_all()

    async def _wait_for_measured(self, until: float) -> None:
        """Wait until all measured requests have ended, the run is to stop, or the monotonic time `until`."""
        while self._measured and not self._stopping.is_set() and perf_counter() < until:
            await asyncio.wait(self._measured, timeout=max(0.0, until - perf_counter()))

    def _start_task(self, work: Coroutine[None, None, object], *, is_measured: bool) -> None:
        """Start a task that is removed when it ends; the run waits for the end of those that are measured."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        if is_measured:
            self._measured.add(task)
        task.add_done_callback(self._remove_task)

    async def _send_in_turn(self, request: ReadyRequest) -> None:
        self._unsent[request.request_id] = request
        async with self._turns:
            del self._unsent[request.request_id]
            await self._send_once(request)

    def _remove_task(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        self._measured.discard(task)
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self._fault = fault
            self._stopping.set()

    def _end_all(self) -> None:
        """End the requests in flight, and record those that were due but never sent, with the age of each.

        Raise what ended a task: a programming error.
        """
        for request in self._unsent.values():
            self._record_unsent(request, None)
        self._abort_active()
        for task in list(self._tasks):
            task.cancel()
        if self._fault is not None:
            raise self._fault


# The load generator's replay of recorded traffic: requests are due as their trace says.


_STEP_S = 1.0
"""Interval in seconds between checks whether the time after the last request has passed."""


class ReplayClient(OpenLoopClient):
    """Executes a run in which a trace says when requests are due, and how long they are.

    A request that follows another one is due when that one has ended and the recorded pause has passed, but
    not before its own time, if the trace has one. The run ends when all requests have ended, or `tail_s`
    seconds after the last one was due.
    """

    def __init__(self, load: RunLoad, pool: ConnectionPool, recipe: Recipe, log: RunLog) -> None:
        """Create the run `load`, which has a trace; see `LoadClient`."""
        assert load.trace is not None  # noqa: S101 - it is why this class is chosen
        super().__init__(load, pool, recipe, log)
        self._trace: Iterator[TracedRequest] = iter(Trace(load.trace))
        self._traced: dict[str, TracedRequest] = {}
        """The requests that were read and have not begun, by id."""
        self._is_read = False
        self._ended = array("d")
        """When each request ended, in monotonic seconds by its number; NaN before."""
        self._following: defaultdict[int, list[ReadyRequest]] = defaultdict(list)
        """Requests that wait for the end of another one, by its number."""
        self._last_due = 0.0

    def _has_more_requests(self) -> bool:
        return not self._is_read

    def _make_request(self) -> ReadyRequest:
        """Return the next request of the trace; its content is made when it is due, if it follows another.

        At the end of the trace the request is empty.
        """
        try:
            traced = next(self._trace, None)
        except TraceError:
            traced = None  # the file was checked before the run, and has changed since
        if traced is None:
            self._is_read = True
            return ReadyRequest("", b"", None, 0)
        self._ended.append(math.nan)
        request = ReadyRequest(
            f"{self._load.id}-{traced.number}", b"", traced.prompt_tokens, traced.output_tokens
        )
        self._traced[request.request_id] = traced
        return request if traced.after is not None else self._add_content(request)

    def _add_content(self, request: ReadyRequest) -> ReadyRequest:
        traced = self._traced[request.request_id]
        prompt, tokens = self._maker.traced(traced, self._load.prompt_salt)
        content = self._form.request(
            self._pool.endpoint, prompt, traced.output_tokens, self._request_salt(self._load.cache_salt)
        )
        return replace(request, content=content, prompt_tokens=tokens)

    async def _execute(self) -> None:
        while (request := self.next_request()) is not None and request.request_id:
            traced = self._traced[request.request_id]
            if traced.after is not None and math.isnan(self._ended[traced.after]):
                self._following[traced.after].append(request)
                continue
            due_at = self._due_time(traced)
            if traced.after is None or traced.due_s is not None:
                # Later requests of the file are not due earlier. After a pause of a conversation they may be.
                await self._pause(due_at - perf_counter())
            if self._stopping.is_set():
                break
            self._start_task(self._send_when_due(request, due_at), is_measured=True)
            self._last_due = max(self._last_due, due_at)
        while self._measured and not self._stopping.is_set():
            end_at = self._last_due + self._load.tail_s
            await self._wait_for_measured(min(end_at, perf_counter() + _STEP_S))
            if perf_counter() >= end_at:
                break
        self._end_all()

    def _due_time(self, traced: TracedRequest) -> float:
        """Return when a request is due, whose predecessor has ended, in monotonic seconds."""
        at = -math.inf if traced.due_s is None else self._origin + traced.due_s
        return at if traced.after is None else max(at, self._ended[traced.after] + traced.delay_s)

    async def _send_when_due(self, request: ReadyRequest, due: float) -> None:
        """Send a request when it is due; at its end, begin those that follow it."""
        if not request.content:
            request = self._add_content(request)
        number = self._traced.pop(request.request_id).number
        await self._pause(due - perf_counter())
        if self._stopping.is_set():
            return
        await self._send_in_turn(replace(request, due=due))
        self._ended[number] = perf_counter()
        for following in self._following.pop(number, ()):
            due = self._due_time(self._traced[following.request_id])
            self._last_due = max(self._last_due, due)
            self._start_task(self._send_when_due(following, due), is_measured=True)
