"""The load generator: executes one load run of one level against one server.

Connections are opened and bodies are serialised before the run begins. A burst starts all its requests in one
iteration of the event loop and waits for them. A steady run is a closed loop: it has `concurrency` slots,
each of which sends its next request when the previous one has ended. There are never more than `concurrency`
requests in flight. A request is sent again, once, only if the server had closed its idle connection before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from time import perf_counter
from typing import Any

from sparktop.model.load import EndReason, LoadMode, RequestEnded, RunEnded, RunStarted
from sparktop.sweep.generator.body import CACHE_SALT, BodyForm
from sparktop.sweep.generator.connection import Connection, ConnectionPool
from sparktop.sweep.generator.exchange import Exchange, Request, Terms
from sparktop.sweep.generator.prompts.prompts import NewPrompt
from sparktop.sweep.generator.run_log import RunLog
from sparktop.sweep.generator.wire.messages import RunLoad
from sparktop.sweep.terms.request_errors import RequestFailure, connect_failure

_CHECK_S = 0.1
"""Longest interval in seconds between checks of deadlines; shorter where deadlines are short."""
_CHECKS_PER_DEADLINE = 4
_FAILED_LEAST_S = 0.5
"""Minimum seconds between the starts of a failed request and of the next one in its slot, so that a server
that refuses requests is not flooded."""
_LONGEST_RAMP_S = 5.0
_RAMP_SHARE = 0.1
_BODIES_PER_CHECK = 8
"""Maximum request bodies that a steady run serialises in advance at each check of deadlines; a body of a
thousand tokens takes 20 µs."""


class LoadClient:
    """Executes one load run: call `prepare`, then `run`."""

    def __init__(
        self,
        load: RunLoad,
        pool: ConnectionPool,
        form: BodyForm,
        prompt: NewPrompt,
        log: RunLog,
        *,
        first_event_is_token: bool = False,
    ) -> None:
        """Create the run `load` over `pool`: `form` and `prompt` make its requests, `log` records its events.

        `first_event_is_token` is True if the server sends its first event, which has only the role
        "assistant", at the time of its first token.
        """
        self.cancelled = False
        self._load = load
        self._pool = pool
        pool.paced = load.mode is not LoadMode.BURST
        self._form = form
        self._prompt = prompt
        self._log = log
        target = load.target
        self._terms = Terms(
            pool.endpoint.where,
            load.timeouts,
            target.api_key,
            target.own_texts,
            router=target.router,
            first_event_is_token=first_event_is_token,
        )
        self._active: dict[Exchange, asyncio.Future[Exchange]] = {}
        self._ready: deque[Request] = deque()
        self._made = 0
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[object]] = set()
        self._loop = asyncio.get_running_loop()
        self._deadlines: asyncio.TimerHandle | None = None

    async def prepare(self) -> None:
        """Serialise bodies and open connections, so that neither is part of the measurement."""
        ahead = self._ahead()
        while len(self._ready) < ahead:
            self._ready.append(self._make())
        filling = self._loop.create_task(self._fill(ahead))
        self._tasks.add(filling)
        await asyncio.wait([filling])
        self._tasks.discard(filling)
        if not filling.cancelled():
            filling.result()

    def _ahead(self) -> int:
        """Return the number of bodies to serialise, and of connections to open, before the run."""
        most = self._load.requests if self._load.mode is LoadMode.STEADY else None
        return self._load.concurrency if most is None else min(self._load.concurrency, most)

    async def run(self) -> None:
        """Execute the run until all its requests have ended, then close all connections.

        `prepare` must have been called before.
        """
        log, number = self._log, self._load.run
        self._check_deadlines()
        try:
            if not self.cancelled:
                await self._warm()
            log.add(self._run_started(number))
            if not self.cancelled:
                await self._execute()
        finally:
            if self._deadlines is not None:
                self._deadlines.cancel()
            self._pool.close()
        log.add(RunEnded(perf_counter(), number))

    async def _warm(self) -> None:
        """Send what precedes the run; nothing here."""

    def _run_started(self, number: int) -> RunStarted:
        return RunStarted(perf_counter(), number)

    def cancel(self) -> None:
        """Cancel all requests in flight and start no more, so that `run` returns at once."""
        self.cancelled = True
        self._stopping.set()
        self._abort_active()
        for task in self._tasks:
            task.cancel()

    def _abort_active(self) -> None:
        now = perf_counter()
        for exchange in list(self._active):
            exchange.cancel(now)

    async def _fill(self, count: int) -> None:
        await self._pool.fill(count)

    async def _execute(self) -> None:
        await (self._burst() if self._load.mode is LoadMode.BURST else self._steady())

    async def _burst(self) -> None:
        requests, self._ready = self._ready, deque()
        waiting: list[Request] = []
        for request in requests:
            connection = self._pool.take()
            if connection is None:
                waiting.append(request)
            else:
                self._begin(request, connection)
        # Requests without an open connection get a new one; nothing was sent for them yet.
        for request in waiting:
            self._add_task(self._send_once(request))
        pending: list[asyncio.Future[Any]] = [*self._active.values(), *self._tasks]
        if pending:
            await asyncio.wait(pending)
        self._raise_faults()

    async def _steady(self) -> None:
        load = self._load
        slots = load.concurrency
        ramp_s = load.ramp_s
        if ramp_s is None:
            ramp_s = min(_LONGEST_RAMP_S, _RAMP_SHARE * (load.duration_s or 0.0))
        for slot in range(slots):
            self._add_task(self._fill_slot(ramp_s * slot / slots))
        ending = None
        if load.duration_s is not None:
            ending = self._loop.call_later(load.duration_s, self._time_up)
        await asyncio.wait(list(self._tasks))
        if ending is not None:
            ending.cancel()
        self._raise_faults()

    def _time_up(self) -> None:
        self._stopping.set()
        if not self._load.drain:
            self._abort_active()

    async def _fill_slot(self, delay_s: float) -> None:
        """After `delay_s` seconds, send requests one after the other, each when the previous one has ended.

        Return when the run is to stop, or when no request is left to send.
        """
        await self._pause(delay_s)
        while not self._stopping.is_set() and (request := self._next()) is not None:
            began = perf_counter()
            failed = await self._send_once(request)
            if failed:
                await self._pause(_FAILED_LEAST_S - (perf_counter() - began))

    async def _send_once(self, request: Request) -> bool:
        """Send a request and wait for its end; return whether it failed."""
        connection = self._pool.take()
        if connection is None:
            try:
                connection = await self._pool.open()
            except OSError as error:
                self._note_unsent(request, error)
                return True
        if self.cancelled:
            connection.abort()
            return False
        exchange = await self._begin(request, connection)
        if exchange.is_stale:
            exchange = await self._send_again(exchange)
        return exchange.end is not None and exchange.end.reason is EndReason.ERROR

    def _begin(
        self, request: Request, connection: Connection, *, resent: bool = False
    ) -> asyncio.Future[Exchange]:
        exchange = Exchange(request, connection, self._log, self._terms, self._freed, resent=resent)
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
        return await self._begin(before.request, connection, resent=True)

    def _freed(self, exchange: Exchange) -> None:
        freed = self._active[exchange]
        if not exchange.is_stale:  # one that is stale is ended with the others until it is sent again
            del self._active[exchange]
        if exchange.connection.open:
            self._pool.give_back(exchange.connection)
        if not freed.done():
            freed.set_result(exchange)

    def _note_unsent(self, request: Request, error: OSError) -> None:
        self._note_failed(request, connect_failure(error, perf_counter(), where=self._terms.where))

    def _note_failed(self, request: Request, failure: RequestFailure) -> None:
        """Record a request that failed before it was sent."""
        name, at = request.request_id, failure.at
        end = RequestEnded(name, at, EndReason.ERROR, failure)
        self._log.request_unsent(name, at, request.prompt_tokens, end, request.due, request.call)

    def _next(self) -> Request | None:
        if self._ready:
            return self._ready.popleft()
        return self._make() if self._may_make() else None

    def _may_make(self) -> bool:
        most = self._load.requests
        return most is None or self._made < most

    def _make(self) -> Request:
        load, number = self._load, self._made
        self._made += 1
        # The prompt depends on run and salt, so that a warm-up does not fill the prefix cache for its level.
        salt = load.prompt_salt or f"{load.seed}/{load.id}/{load.cache_salt}"
        prompt, prompt_tokens = self._prompt(number, salt)
        cache_salt = None if load.cache_salt is None else self._salt(f"{load.cache_salt}-{number}")
        content = self._form.request(self._pool.endpoint, prompt, load.output_tokens, cache_salt)
        return Request(f"{load.id}-{number}", content, prompt_tokens, load.output_tokens)

    def _salt(self, salt: str | None) -> str | None:
        """Return the salt of a request for the server's prefix cache; None if the server takes none."""
        return None if CACHE_SALT in self._form.dropped else salt

    async def _pause(self, delay_s: float) -> None:
        """Wait for `delay_s` seconds, but return at once when the run is to stop."""
        if delay_s <= 0:
            return
        try:
            async with asyncio.timeout(delay_s):
                await self._stopping.wait()
        except TimeoutError:
            pass

    def _check_deadlines(self) -> None:
        """End requests that exceed a time limit, serialise bodies in advance, and schedule the next check."""
        now = perf_counter()
        for exchange in list(self._active):
            exchange.check(now)
        if self._load.mode is not LoadMode.BURST:
            ahead = self._ahead()
            for _ in range(_BODIES_PER_CHECK):
                if len(self._ready) < ahead and self._may_make():
                    self._ready.append(self._make())
        limits = self._load.timeouts
        shortest = min(limits.first_token_s, limits.between_tokens_s, limits.whole_s)
        delay_s = min(_CHECK_S, shortest / _CHECKS_PER_DEADLINE)
        self._deadlines = self._loop.call_later(delay_s, self._check_deadlines)

    def _add_task(self, work: Coroutine[None, None, object]) -> None:
        self._tasks.add(self._loop.create_task(work))

    def _raise_faults(self) -> None:
        """Raise the exception that ended one of the tasks, if any: it is due to a programming error."""
        for task in self._tasks:
            if not task.cancelled():
                task.result()
