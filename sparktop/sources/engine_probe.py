"""Which route tells about a server whose engine nobody named: asked for, remembered, and found again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from sparktop.engines import PageError
from sparktop.engines.openai import NOTE
from sparktop.model.engine import EngineSample
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean
from sparktop.sources.http_failure import AnswerError

Ask = Callable[[str, float], Awaitable[EngineSample]]
"""Asks the route of an engine ("auto": a metrics page, whosever it is) within some seconds; raises
`AnswerError` or `PageError`."""

_ORDER = ("auto", "trtllm", "ollama", "openai")
"""What is asked of an unknown server, most telling first: each route only reads, and 404 is a fine answer."""
_AGAIN_S = 10.0
"""How long one look at all routes is good for: a server may begin to tell more, or be replaced by another one
that lists models too."""
_NEVER = float("-inf")
_OTHER_ROUTE = {
    PageError: frozenset({FailureKind.MALFORMED, FailureKind.METRICS_DISABLED}),
    AnswerError: frozenset({FailureKind.NOT_FOUND, FailureKind.HTTP, FailureKind.UNAUTHORIZED}),
}
"""Failures after which another route of the same server may still answer."""


class RouteFinder:
    """Asks a server on the route that it answers; a named engine only on its own."""

    def __init__(self, engine: str, clock: Callable[[], float]) -> None:
        """Find the route of `engine`, where that is "auto"; `clock` is in seconds."""
        self._engine = engine
        self._clock = clock
        self._route: str | None = None
        """Where the newest answer came from."""
        self._models: tuple[str, ...] = ()
        self._note: str | None = None
        self._looked_at = _NEVER
        """When all routes were asked last and none or only the last answered."""

    async def read(self, ask: Ask, deadline_s: float) -> EngineSample:
        """Give a sample from the best route that answers, all questions together within `deadline_s`.

        Raises:
            AnswerError, PageError: none does; of several reasons the first, that of the metrics page.
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
        """Ask one route after the other; remember the first that answers, and forget it where none does."""
        reason: AnswerError | PageError | None = None
        for route in routes:
            left_s = round(deadline - asyncio.get_running_loop().time(), 2)  # it may stand in a message
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
            self._forget(nothing_here=routes == _ORDER or self._route is None)
            assert reason is not None  # noqa: S101 - there is at least one route, and it gave no sample
            raise reason
        self._forget(nothing_here=False)
        raise reason

    def _forget(self, *, nothing_here: bool) -> None:
        """Forget the route: all are asked at the next poll, or later where they just were in vain."""
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
