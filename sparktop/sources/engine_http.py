"""An inference server over HTTP: its /metrics page, poll by poll, and now and then what it says of itself."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from sparktop.engines import PageError, read_page
from sparktop.model.engine import EngineIdentity, EngineSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import BackendTarget
from sparktop.model.text import clean
from sparktop.sources.http_failure import AnswerError
from sparktop.sources.http_fetch import Answer, Fetcher
from sparktop.sources.http_session import SharedSession

_IDENTITY_DEADLINE_S = 5.0
_IDENTITY_AGAIN_S = 60.0
"""How long to wait before an incomplete identity is asked for again."""
_MODEL_LEN_MAX = 2**40
"""Above any context length: a larger number is no answer."""


class EngineSource:
    """Polls one inference server: `/metrics`, `/version` and `/v1/models`, never a route that acts."""

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
        self._where = _host_and_port(target.url)
        self._key_problem = _key_problem(target.api_key)
        self._asking: asyncio.Task[None] | None = None
        self._identity_due = True
        self._asked_at = -_IDENTITY_AGAIN_S
        self._start_time: float | None = None
        self._closed = False

    async def poll(self, deadline_s: float) -> EngineSample | Failure:
        """Read the page once; outside trouble comes back as a `Failure`."""
        self._reap_identity()
        try:
            answer = await self._get("/metrics", deadline_s)
            sample = read_page(
                answer.body, at=answer.at, engine=self._target.engine, answer_ms=answer.answer_ms
            )
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
        same_process = sample.start_time is not None and sample.start_time == self._start_time
        if sample.start_time != self._start_time:
            self._identity_due = True
        known = self.identity
        incomplete = known is None or known.version is None or known.model is None
        again = incomplete and self._clock() - self._asked_at >= _IDENTITY_AGAIN_S
        if self._asking is not None or not (self._identity_due or again):
            return
        self._identity_due = False
        self._start_time = sample.start_time
        self._asked_at = self._clock()
        known = self.identity if same_process else None
        self._asking = asyncio.get_running_loop().create_task(self._ask_identity(known or EngineIdentity()))

    async def _ask_identity(self, known: EngineIdentity) -> None:
        """Ask both routes; what stays unanswered keeps the value of `known`."""
        version = _version(await self._ask_json("/version"))
        model, max_model_len = _first_model(await self._ask_json("/v1/models"))
        if model is None:
            model, max_model_len = known.model, known.max_model_len
        self.identity = EngineIdentity(version or known.version, model, max_model_len)

    async def _ask_json(self, path: str) -> Any:  # noqa: ANN401 - JSON from outside can be anything
        try:
            answer = await self._get(path, _IDENTITY_DEADLINE_S)
            return json.loads(answer.body)
        except (AnswerError, ValueError, RecursionError):  # RecursionError: thousands of brackets
            return None


def _host_and_port(url: str) -> str:
    try:
        return clean(urlsplit(url).netloc.rpartition("@")[2] or url, 80)
    except ValueError:
        return clean(url, 80)


def _key_problem(api_key: str | None) -> str | None:
    if api_key is None or (api_key.isascii() and api_key.isprintable()):
        return None
    return "the key holds characters that no HTTP header may hold: look at api_key_env in the config"


def _version(found: object) -> str | None:
    if isinstance(found, dict) and isinstance(found.get("version"), str):
        return clean(found["version"], 60) or None
    return None


def _first_model(found: object) -> tuple[str | None, int | None]:
    """Give the first served name and its maximum context (tokens) of a `/v1/models` answer."""
    models = found.get("data") if isinstance(found, dict) else None
    first = models[0] if isinstance(models, list) and models else None
    if not isinstance(first, dict) or not isinstance(first.get("id"), str):
        return None, None
    length = first.get("max_model_len")
    known = isinstance(length, int) and not isinstance(length, bool) and 0 < length < _MODEL_LEN_MAX
    return clean(first["id"]) or None, length if known else None
