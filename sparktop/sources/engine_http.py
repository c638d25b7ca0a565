"""An inference server over HTTP: its page, poll by poll, and now and then what it says of itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import fields, replace

from sparktop.engines import ENGINES, METRICS_PATH, PageError, read_page
from sparktop.engines.document import parse
from sparktop.model.engine import EngineIdentity, EngineSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import BackendTarget
from sparktop.model.text import clean
from sparktop.sources.engine_probe import RouteFinder
from sparktop.sources.http_address import host_and_port, key_problem
from sparktop.sources.http_failure import AnswerError
from sparktop.sources.http_fetch import Answer, Fetcher
from sparktop.sources.http_session import SharedSession

_IDENTITY_DEADLINE_S = 5.0
_IDENTITY_AGAIN_S = 60.0
"""How long to wait before an incomplete identity is asked for again."""


class EngineSource:
    """Polls one inference server on the routes of its engine (see `registry`): none of them acts."""

    def __init__(
        self,
        target: BackendTarget,
        *,
        session: SharedSession | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch `target` over `session` (shared by the sources of a group; one of its own without)."""
        self.name = target.name
        self.identity: EngineIdentity | None = None
        """What the server last said of itself; None until it was asked."""
        self._target = target
        self._session = session or SharedSession()
        self._session.join()
        self._clock = clock
        self._where = host_and_port(target.url)
        self._key_problem = key_problem(target.api_key)
        self._finder = RouteFinder(target.engine, clock)
        self._asking: asyncio.Task[None] | None = None
        self._identity_due = True
        self._asked_at = -_IDENTITY_AGAIN_S
        self._start_time: float | None = None
        self._engine = ""
        """Whose identity was asked for last."""
        self._closed = False

    async def poll(self, deadline_s: float) -> EngineSample | Failure:
        """Read the page once; outside trouble comes back as a `Failure`."""
        self._reap_identity()
        try:
            sample = await self._finder.read(self._read, deadline_s)
        except (AnswerError, PageError) as error:
            self._identity_due = True
            return Failure(error.kind, clean(error.message), self._clock())
        self._refresh_identity(sample)
        return sample

    async def close(self) -> None:
        """Stop asking and leave the session."""
        if self._closed:
            return
        self._closed = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self._session.leave()

    async def _read(self, engine: str, deadline_s: float) -> EngineSample:
        """Read the page of one engine; "auto" is whichever has one at the usual place."""
        path = ENGINES[engine].path if engine in ENGINES else METRICS_PATH
        answer = await self._get(path, deadline_s)
        async with self._session.turn:
            await asyncio.sleep(0)  # what else is ready comes first: a key press, the other answers' stamps
            return read_page(answer.body, at=answer.at, engine=engine, answer_ms=answer.answer_ms)

    async def _get(self, path: str, deadline_s: float) -> Answer:
        if self._key_problem is not None:
            raise AnswerError(FailureKind.UNAUTHORIZED, self._key_problem)
        fetcher = Fetcher(
            self._session.get(),
            self._target.url + path,
            where=self._where,
            api_key=self._target.api_key,
            clock=self._clock,
        )
        return await fetcher.fetch(deadline_s)

    def _reap_identity(self) -> None:
        """Let a programming error of the background task surface here, where such errors are caught."""
        if self._asking is not None and self._asking.done():
            done, self._asking = self._asking, None
            done.result()

    def _refresh_identity(self, sample: EngineSample) -> None:
        """Ask for the identity in the background where it is unknown, incomplete or may have changed."""
        same_server = sample.engine == self._engine
        same_process = same_server and sample.start_time is not None and sample.start_time == self._start_time
        if not same_server or sample.start_time != self._start_time:
            self._identity_due = True
        known = self.identity
        tells = ENGINES[sample.engine].tells
        incomplete = known is None or any(getattr(known, part) is None for part in tells)
        again = incomplete and self._clock() - self._asked_at >= _IDENTITY_AGAIN_S
        if self._asking is not None or not (self._identity_due or again):
            return
        self._identity_due = False
        self._engine, self._start_time = sample.engine, sample.start_time
        self._asked_at = self._clock()
        known = (self.identity if same_process else None) or EngineIdentity()
        self._asking = asyncio.get_running_loop().create_task(self._ask_identity(sample.engine, known))

    async def _ask_identity(self, engine: str, known: EngineIdentity) -> None:
        """Ask the routes of `engine` that tell it; what stays unanswered keeps the value of `known`."""
        answers: dict[str, object] = {}
        for path in ENGINES[engine].facts:
            try:
                answers[path] = parse((await self._get(path, _IDENTITY_DEADLINE_S)).body)
            except (AnswerError, PageError):
                continue
        told = ENGINES[engine].identify(answers)
        untold = {part.name for part in fields(told) if getattr(told, part.name) is None}
        if told.model is not None:
            untold.discard("max_model_len")  # it belongs to the model
        self.identity = replace(told, **{name: getattr(known, name) for name in untold})
