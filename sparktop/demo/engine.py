"""A simulated inference server over real HTTP: its routes, its life cycle, and its engine in real time."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from itertools import count

from aiohttp import web
from msgspec.structs import replace

from sparktop.demo.engine_page import VERSION, EngineHistograms, engine_page
from sparktop.demo.engine_requests import (
    BAD_REQUEST,
    DONE,
    CompletionRequest,
    RefusedError,
    TokenReply,
    block_hashes,
    check_model,
    read_body,
    read_completion,
    read_prompt,
)
from sparktop.demo.load import LoadPause
from sparktop.demo.machine import MachineReader
from sparktop.demo.scenario import DemoServer, Fault, FaultRun, Restarts
from sparktop.model.load import EndReason, RequestEnded
from sparktop.simulation.engine import Engine, EngineEvent, Gauges, SimulatedRequest
from sparktop.simulation.routers import Router

SERVER = "sparktop demo (simulated)"
"""Value of the `DemoServer` header of every response."""
MOST_BODY_BYTES = 16 << 20
"""Most bytes of a request."""
_USUAL_ANSWER_TOKENS, _SPREAD = 220.0, 0.6
"""Median and log-normal spread of the tokens of an answer that may end by itself."""
_STREAM = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
_TEXT = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
_MODELS, _CHAT = "/v1/models", "/v1/chat/completions"
_INTERNAL = 500
"""HTTP status of a failure of the engine."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""Answers the requests of one route."""


class EngineServer:
    """HTTP server of one simulated engine."""

    def __init__(
        self,
        live: LiveCores,
        *,
        started_unix_s: float,
        seed: int | str = 0,
        name: str = "spark-a",
        pause: LoadPause | None = None,
        aborts: bool = True,
    ) -> None:
        """Serve the engine cores `live`.

        `started_unix_s` is the start time on the metrics page (Unix time). `seed` fixes the random
        lengths of answers, `name` is part of request ids, and `pause` learns of requests that are not the
        demo's own load. `aborts` is whether a request ends when its client hangs up.
        """
        self._aborts = aborts
        self.live = live
        self._pause = pause or LoadPause()
        self._profile = live.engine.profile
        self._started_unix_s = started_unix_s
        self._answers = Counter[tuple[str, str, str]]()
        """Counted answers by handler, method and status."""
        # Lengths of answers need no cryptographic randomness.
        self._random = random.Random(seed)  # noqa: S311
        self._name = name
        self._numbers = count(1)

    def application(self) -> web.Application:
        """Return the aiohttp application with all routes."""
        app = web.Application(middlewares=[self._convert_errors], client_max_size=MOST_BODY_BYTES)
        app.on_response_prepare.append(set_server_header)
        for path in (_CHAT, "/v1/completions"):
            app.router.add_post(path, self._complete)
        app.router.add_post("/tokenize", self._respond_tokenize)
        app.router.add_get(_MODELS, self._respond_models)
        app.router.add_get("/metrics", self._respond_metrics)
        app.router.add_get("/version", self._respond_version)
        app.router.add_get("/health", self._respond_health)
        return app

    @web.middleware
    async def _convert_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass a request to `handler`, and convert errors to vLLM's format; return the response.

        Requests other than POST stop no load. Like vLLM, only those for the list of models
        are counted as answers.
        """
        observes = request.method != "POST"
        with nullcontext() if observes else self._pause.during(request.headers):
            try:
                response = await handler(request)
            except RefusedError as error:
                response = web.json_response(error.body(), status=error.status)
            except web.HTTPException as error:
                words, status = error.reason, error.status
                content = {"message": words, "type": words, "param": None, "code": status}
                response = web.json_response({"error": content}, status=status)
        if observes and request.path != _MODELS:
            return response
        route = request.match_info.route.resource
        path = route.canonical if route is not None else "none"
        self._answers[path, request.method, f"{response.status // 100}xx"] += 1
        return response

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body, is_chat = read_body(await request.read()), request.path == _CHAT
        check_model(body, self._profile.model)
        completion = read_completion(body, chat=is_chat, max_model_len=self._profile.max_model_len)
        answer, reply = self._submit(completion)
        try:
            if body.stream:
                return await self._stream(request, answer, reply)
            return web.json_response(reply.whole(await _wait_for_end(answer)))
        finally:
            # For a client that has disconnected; the core ignores a request that has ended.
            self.live.end(reply.request_id, aborts=self._aborts)

    def _submit(self, asked: CompletionRequest) -> tuple[Answer, TokenReply]:
        """Submit a request to the engine; return what the engine makes, and how that is written.

        Raises:
            RefusedError: the engine does not accept the request.
        """
        tokens, stops = self._draw_length(asked)
        number = next(self._numbers)
        request_id = f"{'chatcmpl' if asked.chat else 'cmpl'}-{self._name}-{number}"
        profile = self._profile
        reply = TokenReply(request_id, profile.model, int(time.time()), asked, tokens, stops)
        request = SimulatedRequest(
            request_id,
            len(asked.prompt),
            tokens,
            EndReason.STOP if stops else EndReason.LENGTH,
            block_hashes((*asked.prompt, *reply.token_ids), profile.block_tokens, asked.body.cache_salt),
        )
        try:
            answer = self.live.submit(request)
        except ValueError as error:
            raise RefusedError(str(error), status=BAD_REQUEST) from None
        return answer, reply

    def _draw_length(self, request: CompletionRequest) -> tuple[int, bool]:
        """Return the random number of tokens of the answer, and whether the answer ends with a stop token.

        With `ignore_eos`, the answer has `max_tokens` tokens and no stop token.
        """
        if request.body.ignore_eos:
            return request.max_tokens, False
        chance = self._random.lognormvariate(0.0, _SPREAD)
        natural = max(request.min_tokens, 1, round(_USUAL_ANSWER_TOKENS * chance))
        return min(natural, request.max_tokens), natural < request.max_tokens

    async def _stream(self, request: web.Request, answer: Answer, reply: TokenReply) -> web.StreamResponse:
        response = web.StreamResponse(headers=_STREAM)
        await response.prepare(request)
        while True:
            tokens, ended = await answer.more()
            if tokens:
                await response.write(reply.chunk(tokens, last=ended is not None))
            if ended is None:
                continue
            if ended.ok:
                wants_usage = (reply.asked.body.stream_options or {}).get("include_usage")
                usage = reply.usage_chunk(ended) if wants_usage else b""
                await response.write(usage + DONE)
                await response.write_eof()
            elif request.transport is not None:
                # The engine was shut down: the answer stays incomplete, as when a server dies.
                request.transport.abort()
            return response

    async def _respond_tokenize(self, request: web.Request) -> web.Response:
        body = read_body(await request.read())
        check_model(body, self._profile.model)
        tokens = read_prompt(body, chat=body.messages is not None)
        content = {"count": len(tokens), "max_model_len": self._profile.max_model_len}
        return web.json_response({**content, "tokens": list(tokens), "token_strs": None})

    async def _respond_metrics(self, _: web.Request) -> web.Response:
        self.live.catch_up()
        page = engine_page(self.live.cores, self._started_unix_s, self._answers)
        return web.Response(body=page, headers=_TEXT)

    async def _respond_models(self, _: web.Request) -> web.Response:
        model = {
            "id": self._profile.model,
            "object": "model",
            "created": int(self._started_unix_s),
            "owned_by": SERVER,
            "root": self._profile.model,
            "parent": None,
            "max_model_len": self._profile.max_model_len,
        }
        return web.json_response({"object": "list", "data": [model]})

    async def _respond_version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": VERSION})

    async def _respond_health(self, _: web.Request) -> web.Response:
        return web.Response()


async def _wait_for_end(answer: Answer) -> RequestEnded:
    """Wait until a request ends; return the event of its end.

    Raises:
        RefusedError: the request was not completed, because the engine was shut down.
    """
    ended = None
    while ended is None:
        _, ended = await answer.more()
    if not ended.ok:
        message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
        raise RefusedError(message, status=_INTERNAL, kind="InternalServerError")
    return ended


async def set_server_header(_: web.Request, response: web.StreamResponse) -> None:
    """Let a response say that it is simulated."""
    response.headers["Server"] = SERVER


HOST = "127.0.0.1"
_CLOSING_S = 0.1
"""Seconds that responses in progress have when a server is stopped."""


class EngineSite:
    """A simulated server and the machines that it runs on; its address stays the same over restarts."""

    def __init__(
        self,
        server: DemoServer,
        readers: Sequence[MachineReader],
        *,
        seed: str,
        pause: LoadPause | None = None,
    ) -> None:
        """Store the settings without listening.

        `readers` are those of the engine's machines; `pause` learns of requests that are not the demo's own
        load.
        """
        self._pause = pause
        self._server = server
        self._readers = tuple(readers)
        self._seed = seed
        self._starts = 0
        self._cores: tuple[LiveEngine, ...] = ()
        """The engine cores; empty while the server is down."""
        self._runner: web.AppRunner | None = None
        self._restarting: asyncio.Task[None] | None = None
        self.port = 0
        """Port of the server; 0 before the first `open`, then the same over restarts."""

    async def open(self) -> None:
        """Create a new engine, let it run on the machines, and listen for requests.

        Raises:
            OSError: the address cannot be used.
        """
        now_s = time.monotonic()
        seed = f"{self._seed}/{self._starts}"
        self._starts += 1
        self._cores = tuple(
            self._make_core(rank, f"{seed}/{rank}" if rank else seed, now_s)
            for rank in range(self._server.lanes)
        )
        counts = self._server.lane_counts
        live = LiveCores(self._cores, Router("least-busy", self._server.lanes, counts, seed=seed))
        server = EngineServer(
            live,
            started_unix_s=time.time(),
            seed=seed,
            name=f"{self._server.name}-{self._starts}",
            pause=self._pause,
            aborts=self._server.aborts,
        )
        # A handler is cancelled when its client disconnects, which ends the request in the engine too.
        self._runner = web.AppRunner(
            server.application(), access_log=None, shutdown_timeout=_CLOSING_S, handler_cancellation=True
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, self.port, reuse_address=True).start()
        _, port, *_ = self._runner.addresses[0]
        self.port = int(port)
        if not self._server.aborts:  # viewers compare its requests with the connections of this port
            self._readers[0].port = self.port

    def _make_core(self, rank: int, seed: str, now: float) -> LiveEngine:
        """Create the engine core with the data-parallel rank `rank` on the machines of its own."""
        profile = self._server.profile
        of_core = slice(rank * profile.nodes, (rank + 1) * profile.nodes)
        histograms = EngineHistograms(profile.max_model_len)
        heats = [reader.thermal for reader in self._readers[of_core]]
        engine = Engine(profile, nodes=heats, seed=seed, start_s=now, on_end=histograms.count_end)
        for reader in self._readers[of_core]:
            reader.attach(engine)
        return LiveEngine(engine, histograms)

    async def shut(self) -> None:
        """Stop the engine and close the port; responses in progress are cut off, as when a server dies."""
        cores, runner, self._cores, self._runner = self._cores, self._runner, (), None
        for core in cores:
            core.close()
        for reader in self._readers:
            reader.attach(None)
        if runner is not None:
            await runner.cleanup()

    async def close(self) -> None:
        """End periodic restarts, stop the engine and close the port."""
        if self._restarting is not None:
            self._restarting.cancel()
            with suppress(asyncio.CancelledError):
                await self._restarting
        await self.shut()

    def keep_restarting(self, restarts: Restarts) -> None:
        """Start a task that stops and restarts the server periodically; `close` ends this task."""
        self._restarting = asyncio.get_running_loop().create_task(self._restart_periodically(restarts))

    def keep_failing(self, fault: Fault) -> None:
        """Schedule a fault of the server, repeated until `close`."""
        timer = asyncio.get_running_loop().call_later
        if self._cores:
            live = self._cores[0]
            FaultRun(fault, lambda: live.engine.gauges, self._readers, hold=live.hold, later=timer).repeat()

    async def _restart_periodically(self, restarts: Restarts) -> None:
        while True:
            await asyncio.sleep(restarts.every_s - restarts.down_s)
            await self.shut()
            if restarts.then is not None:
                self._server = replace(self._server, profile=restarts.then)
            for reader in self._readers:
                if restarts.boot_s:
                    reader.reboot(restarts.boot_s)
            await asyncio.sleep(restarts.boot_s)
            if restarts.loads:
                for reader in self._readers:
                    reader.begin_start(restarts.down_s - restarts.boot_s, hangs=restarts.hangs)
            await asyncio.sleep(restarts.down_s - restarts.boot_s)
            await self.open()
            if restarts.then is not None:
                return


class Answer:
    """Delivers the tokens of one request to its reader as they are generated."""

    def __init__(self) -> None:
        """Create an answer that has no tokens yet."""
        self._tokens = 0
        self._ended: RequestEnded | None = None
        self._waiter: asyncio.Future[None] | None = None

    def add(self, event: EngineEvent) -> None:
        """Record an event of the request, and wake the task that waits in `more`."""
        if isinstance(event, RequestEnded):
            self._ended = event
        else:
            self._tokens += event.count
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def more(self) -> tuple[int, RequestEnded | None]:
        """Wait for new tokens or the end of the request; return both since the previous call.

        After the end there is no more.
        """
        if not self._tokens and self._ended is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        tokens, self._tokens = self._tokens, 0
        return tokens, self._ended


class LiveEngine:
    """Advances a simulated engine with the time of a clock, and lets each request wait for its tokens.

    A timer fires at the engine's next event, so a token is delivered as soon as the event loop allows, and
    nothing runs between events. Needs a running event loop while requests are in flight.
    """

    def __init__(
        self, engine: Engine, histograms: EngineHistograms, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Advance `engine` by the time of `clock`; `histograms` counts its events.

        The engine must not have been advanced beyond the current time of `clock`.
        """
        self.engine = engine
        self.histograms = histograms
        self._clock = clock
        self._answers: dict[str, Answer] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def submit(self, request: SimulatedRequest) -> Answer:
        """Submit a request that arrives now; return the `Answer` that delivers its tokens.

        Raises:
            ValueError: the request could never fit into the KV cache, or its id is in use.
        """
        now_s = self.catch_up()
        self.engine.submit(request, now_s)
        self.histograms.count_arrival(request.request_id, now_s)
        answer = self._answers[request.request_id] = Answer()
        self._set_timer()
        return answer

    def cancel(self, request_id: str) -> None:
        """Abort a request because its client disconnected; do nothing if the request has already ended."""
        if not self._closed and request_id in self._answers:
            self.engine.cancel(request_id, self.catch_up())
            self._deliver_events()
            self._set_timer()

    def hold(self, shown: Gauges | None, power_w: Sequence[float | None]) -> None:
        """Hold up the engine from now on, or with None let it go on; see `Engine.hold`."""
        if not self._closed:
            self.engine.hold(self.catch_up(), shown, power_w)
            self._set_timer()

    def catch_up(self) -> float:
        """Advance the engine to the current time and deliver its events; return the current time."""
        now_s = max(self._clock(), self.engine.now_s)
        if not self._closed:
            self._deliver_events(now_s)
        return now_s

    def close(self) -> None:
        """Stop the engine; requests in flight end as aborted."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for request_id, answer in self._answers.items():
            answer.add(RequestEnded(request_id, self.engine.now_s, EndReason.ABORT))
        self._answers.clear()

    def _deliver_events(self, until_s: float | None = None) -> None:
        for event in self.engine.advance(self.engine.now_s if until_s is None else until_s):
            self.histograms.count_event(event)
            is_end = isinstance(event, RequestEnded)
            answer = (
                self._answers.pop(event.request_id, None) if is_end else self._answers.get(event.request_id)
            )
            if answer is not None:
                answer.add(event)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_at = self.engine.next_event_at()
        if next_at is not None and not self._closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, next_at - self._clock()), self._on_timer)

    def _on_timer(self) -> None:
        self.catch_up()
        self._set_timer()


class LiveCores:
    """The engine cores behind one HTTP server."""

    def __init__(
        self,
        cores: Sequence[LiveEngine],
        router: Router | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Run all of `cores`; `router` chooses the core of each request, by the time of `clock`.

        Without a router, it is the core with the fewest requests.
        """
        self._cores = tuple(cores)
        self._router = router or Router("least-busy", len(self._cores))
        self._clock = clock
        self._core_of: dict[str, int] = {}
        """The core of each request in flight, by the request's id."""

    @property
    def engine(self) -> Engine:
        """The engine of the first core; all cores have its profile."""
        return self._cores[0].engine

    @property
    def cores(self) -> tuple[tuple[Engine, EngineHistograms], ...]:
        """Engine and histograms of each core."""
        return tuple((core.engine, core.histograms) for core in self._cores)

    def submit(self, request: SimulatedRequest) -> Answer:
        """Submit a request that arrives now to one of the cores; return the `Answer` with its tokens.

        Raises:
            ValueError: the request could never fit into the KV cache, or its id is in use.
        """
        now_s = self._clock()
        core = self._router.choose(now_s) or 0
        answer = self._cores[core].submit(request)
        self._router.record_start(core, now_s)
        self._core_of[request.request_id] = core
        return answer

    def end(self, request_id: str, *, aborts: bool = True) -> None:
        """Record that the answer to a request has ended; with `aborts`, abort it if its core still has it."""
        core = self._core_of.pop(request_id, None)
        if core is not None:
            if aborts:
                self._cores[core].cancel(request_id)
            self._router.record_end(core, self._clock())

    def catch_up(self) -> None:
        """Advance all cores to the current time and deliver their events."""
        for core in self._cores:
            core.catch_up()
