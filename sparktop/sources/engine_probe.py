"""Route detection for a server of unknown engine: tries HTTP routes and keeps the one that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from sparktop.engines import PageError
from sparktop.engines.openai import NOTE
from sparktop.model.engine import EngineSample
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean
from sparktop.sources.http.failure import AnswerError

Ask = Callable[[str, float], Awaitable[EngineSample]]
"""Reads the route of an engine ("auto": the usual metrics page of any engine) within a deadline in
seconds; raises `AnswerError` or `PageError`."""

_ORDER = ("auto", "trtllm", "ollama", "nim", "openai")
"""Routes to try on an unknown server, most informative first; all only read, and a 404 does no harm."""
_AGAIN_S = 10.0
"""Seconds before all routes are tried again: a server may gain a better route, or be replaced by another
one that also lists models."""
_NEVER = float("-inf")
_OTHER_ROUTE = {
    PageError: frozenset({FailureKind.MALFORMED, FailureKind.METRICS_DISABLED}),
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
        self._note: str | None = None
        self._looked_at = _NEVER
        """Clock time when all routes were last tried and at most the list of models answered."""

    async def read(self, ask: Ask, deadline_s: float) -> EngineSample:
        """Return a sample from the most informative route that answers within `deadline_s` seconds.

        If no route answers, raise the error of the route that was tried first, usually the metrics page.

        Raises:
            AnswerError: no route answers, and the first one had no usable HTTP answer.
            PageError: no route answers, and the first one had an unreadable page.
        """
        if self._engine != "auto":
            return await ask(self._engine, deadline_s)
        deadline = asyncio.get_running_loop().time() + deadline_s
        if self._route is None:
            return await self._try(ask, _ORDER[:1] if self._looked() else _ORDER, deadline)
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
                reason = reason or error
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
        self._route, self._models = route, sample.models
        if route != "openai":
            return sample
        if reason is not None:
            self._looked_at = self._clock()
            no_page = reason.kind is FailureKind.NOT_FOUND
            self._note = clean(f"{'no metrics page' if no_page else reason.message}; {NOTE}")
        return replace(sample, note=self._note)


def _may_answer_elsewhere(error: AnswerError | PageError) -> bool:
    return error.kind in _OTHER_ROUTE[type(error)]
