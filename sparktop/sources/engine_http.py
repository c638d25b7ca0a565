"""Source of an inference server: polls its metrics page, and at times requests its identity and health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from sparktop.engines import ENGINES, METRICS_PATH, PageError, llamacpp, read_page, trtllm
from sparktop.engines.document import listed_models, parse
from sparktop.engines.openai import NOTE, owners_of
from sparktop.engines.router_pages import LISTS, LIVELINESS, RUNNING, TITLES, WORKERS, is_litellm
from sparktop.model.engine import EngineIdentity, EngineSample
from sparktop.model.failure import Failure, FailureError, FailureKind
from sparktop.model.node import end_marks
from sparktop.model.series import known_sum
from sparktop.model.targets import BackendTarget
from sparktop.model.text import clean
from sparktop.net.client import OK, HttpSource, Response, SharedSession, read_beside
from sparktop.net.failure import AnswerError

_ORDER = ("llamacpp", "auto", "trtllm", "ollama", "nim", "openai")
"""Routes to try on an unknown server, most informative first; all only read, and a 404 does no harm. That of
llama.cpp is the first, because others would wake one that sleeps. "auto" is the usual metrics page of any
engine."""
_USUAL = ("auto",)
"""The route that is tried again soon, and whose error is reported where none answers."""
_AGAIN_S = 10.0
"""Seconds before all routes are tried again: a server may gain a better route, or be replaced by another
one that also lists models."""
_NEVER = float("-inf")
_OTHER_ROUTE = {
    PageError: frozenset({FailureKind.MALFORMED, FailureKind.METRICS_DISABLED, FailureKind.OTHER_PROGRAM}),
    AnswerError: frozenset({FailureKind.NOT_FOUND, FailureKind.HTTP, FailureKind.UNAUTHORIZED}),
}
"""Failures after which another route of the same server may still answer."""


class RouteChoice:
    """The HTTP routes to try on a server whose engine is not configured, as its answers showed so far.

    The most informative one that answers is polled: a metrics page or, without one, the list of models.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start without an answer; `clock` returns seconds."""
        self._clock = clock
        self._route: str | None = None
        """Route of the newest answer; None while unknown."""
        self.models: tuple[str, ...] = ()
        """Names of the models in the newest answer."""
        self._why = ""
        """Why there is only a list of models."""
        self._others = False
        """Whether that is because the metrics page is another program's."""
        self._tried_at = _NEVER
        """Clock time when all routes were last tried and at most the list of models answered."""

    @property
    def lists_models(self) -> bool:
        """Whether the newest answer was a list of models."""
        return self._route == "openai"

    def routes(self) -> tuple[str, ...]:
        """Return the routes to try at this poll, in this order."""
        if self._route is None:
            return _USUAL if self._has_tried_lately() else _ORDER
        return _ORDER if self.lists_models and not self._has_tried_lately() else (self._route,)

    def _has_tried_lately(self) -> bool:
        return self._clock() - self._tried_at < _AGAIN_S

    def note_silence(self, routes: tuple[str, ...], *, all_tried: bool) -> None:
        """Note that none of `routes` answered, the last of which were not requested unless `all_tried`.

        If nothing usable answers at the address, polls try all routes again only after `_AGAIN_S` seconds;
        otherwise the next poll does.
        """
        nothing_here = all_tried and (routes == _ORDER or self._route is None)
        self._route = None
        if not nothing_here:
            self._tried_at = _NEVER
        elif not self._has_tried_lately():
            self._tried_at = self._clock()

    def note_answer(self, route: str, sample: EngineSample, reason: FailureError | None) -> EngineSample:
        """Note the route that answered, and return its sample, with a note if that is a list of models.

        `reason` is why the routes before it did not answer; None if it was the first.
        """
        # A page that another engine's route shows is polled as its own engine's is.
        self.models = sample.models
        if route != "openai":
            self._route = "llamacpp" if sample.engine == "llamacpp" else route
            return sample
        self._route = route
        if reason is not None:
            self._tried_at = self._clock()
            self._why = "no metrics page" if reason.kind is FailureKind.NOT_FOUND else reason.message
            self._others = reason.kind is FailureKind.OTHER_PROGRAM
        if self._others:  # the models are those of servers behind it, whose metrics it does not have
            sample = replace(sample, engine="openai", note=NOTE)
        return replace(sample, note=clean("; ".join(part for part in (self._why, sample.note) if part)))


_NO_PROPS = frozenset({FailureKind.NOT_FOUND, FailureKind.MALFORMED, FailureKind.UNAUTHORIZED})
"""Failures of `/props` at a server that is known to be llama.cpp's: something in front of it hides it."""
_NO_PAGE = frozenset({FailureKind.NOT_FOUND, FailureKind.HTTP})
"""Failures of llama.cpp's metrics page without --metrics (HTTP status 501)."""
_MOST_LOADED = 16
"""Loaded models of a router of llama.cpp whose metrics are requested."""


def _left_s(end: float) -> float:
    """Return the seconds until `end` (time of the event loop), at least a hundredth."""
    return max(0.01, round(end - asyncio.get_running_loop().time(), 2))


_AT_ONCE_BYTES = 256 << 10
"""Pages of a few engine cores, of which mostly only numbers change, are read faster than a thread starts."""
_IDENTITY_DEADLINE_S = 5.0
"""Seconds that a request for the identity or health may take."""
_IDENTITY_AGAIN_S = 60.0
"""Seconds before an incomplete identity is requested again."""
_HEALTH_AGAIN_S = 10.0
"""Seconds between health requests, for engines with a health route; a dead engine is asked at every poll."""
_ROUTER_AGAIN_S = 30.0
"""Seconds before a server without an engine's page is probed again for being a router."""
_MAYBE_ROUTER = frozenset(
    {
        FailureKind.NOT_FOUND,
        FailureKind.REDIRECT,
        FailureKind.UNAUTHORIZED,
        FailureKind.HTTP,
        FailureKind.MALFORMED,
        FailureKind.METRICS_DISABLED,
        FailureKind.OTHER_PROGRAM,
    }
)
"""Failures that a router may cause: LiteLLM's metrics page is absent, elsewhere or locked."""
_LITELLM = "LiteLLM"
_GATEWAYS = frozenset({"local", "llama-swap"})
"""Owners of models, by which the list of models of SGLang's gateway or llama-swap is known."""
_NO_MONITOR = "performance monitor not available"
"""What llama-swap answers (503) on its metrics page while its monitor of the machine is off."""
_GONE = frozenset({FailureKind.REFUSED, FailureKind.DNS, FailureKind.UNREACHABLE})
"""Failures after which a different server may answer at this address."""


class EngineSource(HttpSource):
    """Polls one inference server, on the read-only routes of its engine (see `engines.registry`)."""

    def __init__(
        self,
        target: BackendTarget,
        *,
        session: SharedSession | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch `target` over `session`, which several sources may share; None opens a private session."""
        super().__init__(target.name, target.url, target.tls_ca, session, clock, target.api_key)
        self.identity: EngineIdentity | None = None
        """Identity from the server's last answers; None before the first."""
        self._target = target
        self._choice = RouteChoice(clock)
        self._known_engine = target.engine
        """The engine that answered last, or the configured one."""
        self._has_json = target.engine == "trtllm"
        """Whether the usual metrics route may have TensorRT-LLM's JSON."""
        self._asking: asyncio.Task[None] | None = None
        self._identity_due = True
        self._asked_at = -_IDENTITY_AGAIN_S
        self._asked_process: tuple[str, float | None] = ("", None)
        """Engine and start time of the server whose identity was requested last."""
        self._router_at = -_ROUTER_AGAIN_S
        """When the server was last probed for being a router, on this source's clock."""
        self._was_router = False
        """Whether a router answered last."""
        self._health_at = -_HEALTH_AGAIN_S
        """When the engine's health was last requested."""
        self._dead: str | None = None
        """The server's error message about its dead engine; None while the engine lives."""
        self._seen: tuple[float | None, float | None] | None = None
        """Start time and generated tokens on the newest page, which tell processes apart."""

    async def poll(self, deadline_s: float) -> EngineSample | Failure:
        """Read the metrics page once and return a sample, or a `Failure` for any network or server error.

        Also return a `Failure` if a LiteLLM router answers at the address, or if the engine behind the server
        has died. May start a background request for the server's identity and health.
        """
        if self._asking is not None and self._asking.done():
            done, self._asking = self._asking, None
            done.result()  # a programming error of the task is re-raised here, where the scheduler catches it
        try:
            sample = await self._read_server(deadline_s)
        except FailureError as error:
            self._identity_due = True
            title = await self._router_by_error(error, deadline_s)
            if title is not None:
                return self._router_failure(title)
            if error.kind in _GONE:
                self._known_engine, self._dead = self._target.engine, None
            elif error.kind is FailureKind.LOADING and self._has_health:
                return self._dead_engine_failure(error.message)
            return error.failure(self._clock())
        title = await self._router_by_sample(sample, deadline_s)
        if title is not None:
            return self._router_failure(title)
        self._was_router = False
        if sample.engine != self._known_engine:  # another server: what was dead was the one before
            self._known_engine, self._dead = sample.engine, None
        self._ask_in_background(sample)
        # The counters of a dead engine's page are frozen, so its sample must not pass for a current one.
        return sample if self._dead is None else self._dead_engine_failure(self._dead)

    async def settle(self) -> None:
        """Wait for the background request for identity and health, if a poll has started one."""
        if self._asking is not None:
            await asyncio.wait({self._asking})

    async def close(self) -> None:
        """Cancel the background request for identity or health, and release the session."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await super().close()

    # How the metrics page, or what stands in its place, is read.

    async def _read_server(self, deadline_s: float) -> EngineSample:
        """Return a sample from the most informative route that answers within `deadline_s` seconds.

        With a configured engine, only the route of this engine is requested.

        Raises:
            AnswerError: no route answers, and the metrics page had no usable HTTP answer.
            PageError: no route answers, and the metrics page was unreadable.
        """
        end = asyncio.get_running_loop().time() + deadline_s
        if self._target.engine != "auto":
            return await self._read_route(self._target.engine, end)
        models_before, routes = self._choice.models, self._choice.routes()
        sample = await self._read_first(routes, end)
        if routes == ("openai",) and sample.models != models_before:
            return await self._read_first(_ORDER, end)  # another server may answer here now
        return sample

    async def _read_first(self, routes: tuple[str, ...], end: float) -> EngineSample:
        """Return a sample from the first of `routes` that answers before `end` (event-loop time).

        If none does, raise the error of the usual metrics page, or else that of the first route.
        """
        reason: FailureError | None = None
        untried, goes_on = [*routes], True
        while untried and goes_on:
            route = untried.pop(0)
            try:
                sample = await self._read_route(route, end)
            except (AnswerError, PageError) as error:
                is_locked = error.kind is FailureKind.UNAUTHORIZED  # of a server that may have no metrics
                if reason is None or route in _USUAL or is_locked:
                    reason = error
                has_time = asyncio.get_running_loop().time() < end
                goes_on = error.kind in _OTHER_ROUTE[type(error)] and (has_time or not untried)
            else:
                return self._choice.note_answer(route, sample, reason)
        self._choice.note_silence(routes, all_tried=goes_on)
        assert reason is not None  # noqa: S101 - the loop ran at least once and returned no sample
        try:
            raise reason
        finally:
            del reason  # its traceback holds this frame: no cycle of garbage at each failure

    async def _read_route(self, route: str, end: float) -> EngineSample:
        """Return a sample read from a route: that of an engine, or "auto", whose page shows the engine."""
        answer = await self._request_route(route, end)
        read = partial(read_page, answer.body, at=answer.at, engine=route, answer_ms=answer.answer_ms)
        sample = await read_beside(read, len(answer.body), at_once=_AT_ONCE_BYTES, turn=self._session.turn)
        client = None if answer.end is None else end_marks(*answer.end)
        return replace(sample, cache_age_s=answer.age_s, client=client)

    async def _request_route(self, route: str, end: float) -> Response:
        """Return the answer of a route before `end`.

        Raises:
            AnswerError: there is none.
            PageError: the server is not the engine.
        """
        if route == "llamacpp":
            return await self._request_llamacpp(end)
        try:
            answer = await self._get(ENGINES[route].path if route in ENGINES else METRICS_PATH, _left_s(end))
        except AnswerError as error:
            if route != "trtllm" or error.kind is not FailureKind.NOT_FOUND or not self._has_json:
                raise
            return await self._get(METRICS_PATH, _left_s(end))
        if route == "auto":
            self._has_json = trtllm.is_iterations(answer.body)
        return answer

    async def _request_llamacpp(self, end: float) -> Response:
        """Return the answer of llama.cpp's server before `end` without waking it.

        Its metrics are not requested while it sleeps, nor those of a model that its router has not loaded.
        """
        props: object = None
        try:
            answer = await self._get(llamacpp.PROPS, _left_s(end))
            props = parse(answer.body)
        except FailureError as error:
            if self._known_engine != "llamacpp" or error.kind not in _NO_PROPS:
                raise
        if props is not None and llamacpp.is_asleep(props):
            return answer
        if llamacpp.is_router(props):
            return await self._request_model_pages(end)
        if not llamacpp.is_server(props) and self._known_engine != "llamacpp":
            raise PageError(FailureKind.MALFORMED, "not the properties of llama.cpp's server")
        try:
            return await self._get(METRICS_PATH, _left_s(end))
        except AnswerError as error:
            if error.kind not in _NO_PAGE:
                raise
            try:
                return await self._get(llamacpp.SLOTS, _left_s(end))
            except AnswerError:
                raise error from None

    async def _request_model_pages(self, end: float) -> Response:
        """Return the metrics of each model that a llama.cpp in router mode has loaded, as one page."""
        models_answer = await self._get(llamacpp.MODELS, _left_s(end))
        statuses = llamacpp.models_of(parse(models_answer.body))
        loaded = [model for model, status in statuses.items() if status == llamacpp.LOADED]
        pages: list[tuple[str, Response]] = []
        for model in loaded[:_MOST_LOADED]:
            with suppress(AnswerError):
                pages.append((model, await self._get(llamacpp.metrics_of(model), _left_s(end))))
        body = llamacpp.join_pages(statuses, ((model, page.body) for model, page in pages))
        answers = [models_answer, *(page for _, page in pages)]
        took_ms = sum(answer.answer_ms for answer in answers)
        return Response(OK, body, answers[-1].at, {}, answers[-1].end, took_ms)

    # Whether the server is a router.

    def _take_router_turn(self) -> bool:
        """Return whether to request a router's routes now, and take it as done.

        That is every `_ROUTER_AGAIN_S` seconds, and at every poll while a router answers.
        """
        now_s = self._clock()
        if not self._was_router and now_s - self._router_at < _ROUTER_AGAIN_S:
            return False
        self._router_at = now_s
        return True

    async def _is_litellm(self, deadline_s: float) -> bool:
        """Return True if LiteLLM answers at this address and the target has no configured engine."""
        if self._target.engine != "auto":
            return False
        try:
            return is_litellm((await self._get(LIVELINESS, deadline_s)).body)
        except AnswerError:
            return False

    async def _router_by_error(self, error: FailureError, deadline_s: float) -> str | None:
        """Return the name of the router that answers at this address, judged by a failed poll; else None."""
        if error.kind is FailureKind.ROUTER:
            return error.message
        if error.kind in _MAYBE_ROUTER and self._take_router_turn():
            self._was_router = await self._is_litellm(deadline_s)
            if self._was_router:
                return _LITELLM
        return await self._find_listing_router(deadline_s, RUNNING) if _NO_MONITOR in error.message else None

    async def _router_by_sample(self, sample: EngineSample, deadline_s: float) -> str | None:
        """Return the name of the router that sent this sample for one of its servers; else None."""
        if not self._choice.lists_models:
            is_asked = self._is_another(sample) or self._was_router
            return await self._find_listing_router(deadline_s, WORKERS) if is_asked else None
        if not self._take_router_turn():
            return None
        if await self._is_litellm(deadline_s):
            return _LITELLM
        is_asked = bool(_GATEWAYS & owners_of(sample.page))
        return await self._find_listing_router(deadline_s, WORKERS, RUNNING) if is_asked else None

    def _is_another(self, sample: EngineSample) -> bool:
        """Return whether a page is the first of its address, or seems to be of another process than the last.

        Another one started, or a router forwards the pages of its servers.
        """
        seen_now = (sample.start_time, known_sum(lane.generation_tokens for lane in sample.lanes))
        seen_before, self._seen = self._seen, seen_now
        if seen_before is None:
            return True
        if seen_before[0] is not None or seen_now[0] is not None:
            return seen_before[0] != seen_now[0]
        return seen_before[1] is not None and seen_now[1] is not None and seen_now[1] < seen_before[1]

    async def _find_listing_router(self, deadline_s: float, *paths: str) -> str | None:
        """Return the name of the router that lists its servers on one of these routes; None if none does."""
        for path in paths:
            try:
                listing = LISTS[path]((await self._get(path, deadline_s)).body)
            except FailureError:
                continue
            if listing is not None:
                return TITLES[listing.kind]
        return None

    def _router_failure(self, title: str) -> Failure:
        self._was_router = True
        message = f"{self._where} is a router ({title}), not an inference server: list it under [[routers]]"
        return Failure(FailureKind.ROUTER, message, self._clock())

    # Its identity and health, which are requested beside the polls.

    @property
    def _has_health(self) -> bool:
        """Whether the engine has a health route, whose status 503 means that the engine has died."""
        engine = self._known_engine
        return engine in ENGINES and ENGINES[engine].health is not None

    def _dead_engine_failure(self, reported: str) -> Failure:
        title = ENGINES[self._known_engine].title
        message = f"503: the engine of {self._where} has died ({title}): restart it; its log says why"
        words = reported.partition("not ready: ")[2]
        return Failure(
            FailureKind.ENGINE_DEAD, clean(f"{message}: {words}" if words else message), self._clock()
        )

    def _ask_in_background(self, sample: EngineSample) -> None:
        """Start a background task for the identity and health requests that are due, unless one still runs.

        `sample` is the newest sample.
        """
        process = sample.engine, sample.start_time
        if process != self._asked_process:
            self._identity_due = True
        asks_identity = self._identity_due or self._is_identity_doubtful(sample)
        asks_health = self._is_health_due()
        if self._asking is not None or not (asks_identity or asks_health):
            return
        known: EngineIdentity | None = None
        if asks_identity:
            is_same = sample.start_time is not None and process == self._asked_process
            known = (self.identity if is_same else None) or EngineIdentity()
            self._identity_due = False
            self._asked_process, self._asked_at = process, self._clock()
        task = self._ask(sample.engine, known, health=asks_health)
        self._asking = asyncio.get_running_loop().create_task(task)

    def _is_identity_doubtful(self, sample: EngineSample) -> bool:
        """Return whether the identity is incomplete or of another model, and was not requested lately."""
        if self._clock() - self._asked_at < _IDENTITY_AGAIN_S:
            return False
        identity, reports = self.identity, ENGINES[sample.engine].reports
        if identity is None or any(getattr(identity, field_name) is None for field_name in reports):
            return True
        return bool(sample.models) and identity.model not in {None, *sample.models}

    def _is_health_due(self) -> bool:
        if not self._has_health:
            return False
        is_old = self._clock() - self._health_at >= _HEALTH_AGAIN_S
        return is_old or self._dead is not None or self._identity_due

    async def _ask(self, engine: str, before: EngineIdentity | None, *, health: bool) -> None:
        """Request the identity of the server, then its health, and store what the server answers.

        `before` is the identity known so far, or None to skip the identity; `health` is whether to request
        the health.
        """
        if before is not None:
            await self._ask_identity(engine, before)
        if health:
            await self._ask_health(engine)

    async def _ask_health(self, engine: str) -> None:
        """Request the health route and update `_dead`.

        Status 503 means that the engine is dead, any other outcome that it lives.
        """
        self._health_at = self._clock()
        dead: str | None = None
        try:
            await self._get(ENGINES[engine].health or "", _IDENTITY_DEADLINE_S)
        except AnswerError as error:
            dead = error.message if error.kind is FailureKind.LOADING else None
        if engine == self._known_engine:  # no other one has answered meanwhile
            self._dead = dead

    async def _ask_identity(self, engine: str, before: EngineIdentity) -> None:
        """Request the identity routes of `engine` and store the result in `identity`.

        Where a route has no valid answer, the one that older versions have in its place is requested. A field
        that no route answers keeps its value from `before`.
        """
        kind = ENGINES[engine]
        older = dict(kind.older)
        answers: dict[str, object] = {}
        for path in kind.facts:
            for name in (path, *([older[path]] if path in older else ())):
                with suppress(FailureError):
                    body = (await self._get(name, _IDENTITY_DEADLINE_S)).body
                    answers[path] = await read_beside(partial(parse, body), len(body))
                    break
        reported = replace(kind.identify(answers), models=listed_models(answers.get("/v1/models")))
        missing_fields = {name for name in reported.__struct_fields__ if getattr(reported, name) is None}
        if reported.model is not None:
            missing_fields -= {"max_model_len", "models"}  # they belong to the model
        self.identity = replace(reported, **{name: getattr(before, name) for name in missing_fields})
