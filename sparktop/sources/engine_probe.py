"""Route detection for a server of unknown engine: tries HTTP routes and keeps the one that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from sparktop.engines import ENGINES, METRICS_PATH, PageError, llamacpp, trtllm
from sparktop.engines.document import Answers, parse
from sparktop.engines.openai import NOTE
from sparktop.engines.registry import Engine
from sparktop.model.engine import EngineSample
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean
from sparktop.net.client import Answer
from sparktop.net.failure import AnswerError
from sparktop.sources.beside import read_beside

Ask = Callable[[str, float], Awaitable[EngineSample]]
"""Reads the route of an engine ("auto": the usual metrics page of any engine) within a deadline in
seconds; raises `AnswerError` or `PageError`."""

_ORDER = ("llamacpp", "auto", "trtllm", "ollama", "nim", "openai")
"""Routes to try on an unknown server, most informative first; all only read, and a 404 does no harm. That of
llama.cpp is the first, because others would wake one that sleeps."""
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


class RouteFinder:
    """Polls a server on its most informative HTTP route: a metrics page or, without one, the list of models.

    With a named engine, only the route of this engine is requested.
    """

    def __init__(self, engine: str, clock: Callable[[], float]) -> None:
        """Request the route of `engine`, or detect the route for "auto"; `clock` returns seconds."""
        self._engine = engine
        self._clock = clock
        self._route: str | None = None
        """Route of the newest answer; None while unknown."""
        self._models: tuple[str, ...] = ()
        self._why = ""
        """Why there is only a list of models."""
        self._others = False
        """Whether that is because the metrics page is another program's."""
        self._looked_at = _NEVER
        """Clock time when all routes were last tried and at most the list of models answered."""

    @property
    def lists_models(self) -> bool:
        """Whether the newest answer was a list of models."""
        return self._route == "openai"

    async def read(self, ask: Ask, deadline_s: float) -> EngineSample:
        """Return a sample from the most informative route that answers within `deadline_s` seconds.

        If no route answers, raise the error of the metrics page.

        Raises:
            AnswerError: no route answers, and the metrics page had no usable HTTP answer.
            PageError: no route answers, and the metrics page was unreadable.
        """
        if self._engine != "auto":
            return await ask(self._engine, deadline_s)
        deadline = asyncio.get_running_loop().time() + deadline_s
        if self._route is None:
            return await self._try(ask, _USUAL if self._looked() else _ORDER, deadline)
        known = self._models
        routes = _ORDER if self._route == "openai" and not self._looked() else (self._route,)
        sample = await self._try(ask, routes, deadline)
        if routes == ("openai",) and sample.models != known:
            return await self._try(ask, _ORDER, deadline)  # another server may answer here now
        return sample

    def _looked(self) -> bool:
        return self._looked_at > _NEVER and self._clock() - self._looked_at < _AGAIN_S

    async def _try(self, ask: Ask, routes: tuple[str, ...], deadline: float) -> EngineSample:
        """Return a sample from the first of `routes` that answers, and remember this route for later polls.

        If none answers before `deadline` (event-loop time), forget the remembered route and raise the first
        error.
        """
        reason: AnswerError | PageError | None = None
        nothing_here = False
        for route in routes:
            left_s = round(deadline - asyncio.get_running_loop().time(), 2)  # it may appear in a message
            if reason is not None and left_s <= 0:
                break
            try:
                sample = await ask(route, left_s)
            except (AnswerError, PageError) as error:
                reason = error if reason is None or route in _USUAL else reason
                if not _may_answer_elsewhere(error):
                    break
            else:
                return self._remember(route, sample, reason)
        else:
            nothing_here = routes == _ORDER or self._route is None
        self._forget(nothing_here=nothing_here)
        assert reason is not None  # noqa: S101 - the loop ran at least once and returned no sample
        try:
            raise reason
        finally:
            del reason  # its traceback holds this frame: no cycle of garbage at each failure

    def _forget(self, *, nothing_here: bool) -> None:
        """Forget the remembered route, so that a later poll tries all routes again.

        If `nothing_here` is True (all routes have just failed), polls try all routes again only after
        `_AGAIN_S` seconds; otherwise the next poll does.
        """
        self._route = None
        if not nothing_here:
            self._looked_at = _NEVER
        elif not self._looked():
            self._looked_at = self._clock()

    def _remember(
        self, route: str, sample: EngineSample, reason: AnswerError | PageError | None
    ) -> EngineSample:
        # A page that another engine's route shows is polled as its own engine's is.
        self._route, self._models = "llamacpp" if sample.engine == "llamacpp" else route, sample.models
        if route != "openai":
            return sample
        if reason is not None:
            self._looked_at = self._clock()
            self._why = "no metrics page" if reason.kind is FailureKind.NOT_FOUND else reason.message
            self._others = reason.kind is FailureKind.OTHER_PROGRAM
        if self._others:  # the models are those of servers behind it, whose metrics it does not have
            sample = replace(sample, engine="openai", note=NOTE)
        return replace(sample, note=clean("; ".join(part for part in (self._why, sample.note) if part)))


def _may_answer_elsewhere(error: AnswerError | PageError) -> bool:
    return error.kind in _OTHER_ROUTE[type(error)]


Get = Callable[[str, float], Awaitable[Answer]]
"""Requests a route within a deadline in seconds; raises `AnswerError`."""
_NO_PROPS = frozenset({FailureKind.NOT_FOUND, FailureKind.MALFORMED})
"""Failures of `/props` at a server that is known to be llama.cpp's: something in front of it hides it."""
_NO_PAGE = frozenset({FailureKind.NOT_FOUND, FailureKind.HTTP})
"""Failures of llama.cpp's metrics page without --metrics (HTTP status 501)."""
_MOST_LOADED = 16
"""Loaded models of a router of llama.cpp whose metrics are requested."""


class EnginePages:
    """Requests what an engine's reader parses, which may take more than one route."""

    def __init__(self, engine: str, get: Get) -> None:
        """Request the routes of `engine`, or of any engine for "auto", with `get`."""
        self.known_engine = engine
        """The engine that answered last, or the configured one."""
        self._get = get
        self._has_json = engine == "trtllm"
        """Whether the usual metrics route may have TensorRT-LLM's JSON."""

    async def answer(self, engine: str, deadline_s: float) -> Answer:
        """Return the answer for the reader of `engine`, "auto": the usual metrics page.

        Raises:
            AnswerError: there is none within `deadline_s` seconds.
            PageError: the server is not the engine.
        """
        end = asyncio.get_running_loop().time() + deadline_s
        if engine == "llamacpp":
            return await self._of_llamacpp(end)
        try:
            answer = await self._get(ENGINES[engine].path if engine in ENGINES else METRICS_PATH, deadline_s)
        except AnswerError as error:
            if engine != "trtllm" or error.kind is not FailureKind.NOT_FOUND or not self._has_json:
                raise
            return await self._get(METRICS_PATH, _left_s(end))
        if engine == "auto":
            self._has_json = trtllm.is_iterations(answer.body)
        return answer

    async def _of_llamacpp(self, end: float) -> Answer:
        """Return the answer of llama.cpp's server before `end` (time of the event loop) without waking it.

        Its metrics are not requested while it sleeps, nor those of a model that its router has not loaded.
        """
        props: object = None
        try:
            answer = await self._get(llamacpp.PROPS, _left_s(end))
            props = parse(answer.body)
        except (AnswerError, PageError) as error:
            if self.known_engine != "llamacpp" or error.kind not in _NO_PROPS:
                raise
        if props is not None and llamacpp.is_asleep(props):
            return answer
        if llamacpp.is_router(props):
            return await self._of_models(end)
        if not llamacpp.is_server(props) and self.known_engine != "llamacpp":
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

    async def _of_models(self, end: float) -> Answer:
        """Return the metrics of each model that a llama.cpp in router mode has loaded, as one page."""
        listed = await self._get(llamacpp.MODELS, _left_s(end))
        statuses = llamacpp.models_of(parse(listed.body))
        loaded = [model for model, status in statuses.items() if status == llamacpp.LOADED]
        pages: list[tuple[str, Answer]] = []
        for model in loaded[:_MOST_LOADED]:
            with suppress(AnswerError):
                pages.append((model, await self._get(llamacpp.metrics_of(model), _left_s(end))))
        body = llamacpp.joined(statuses, ((model, page.body) for model, page in pages))
        answers = [listed, *(page for _, page in pages)]
        return Answer(body, answers[-1].at, sum(one.answer_ms for one in answers))


async def ask_facts(engine: Engine, get: Get, deadline_s: float) -> Answers:
    """Return the answers of the routes that report a server's identity; one without a valid answer is absent.

    Where a route has no valid answer, the one that older versions have in its place is requested.
    """
    older = dict(engine.older)
    answers: dict[str, object] = {}
    for path in engine.facts:
        for name in (path, *([older[path]] if path in older else ())):
            with suppress(AnswerError, PageError):
                body = (await get(name, deadline_s)).body
                answers[path] = await read_beside(partial(parse, body), len(body))
                break
    return answers


def _left_s(end: float) -> float:
    """Return the seconds until `end` (time of the event loop), at least a hundredth."""
    return max(0.01, round(end - asyncio.get_running_loop().time(), 2))
