"""A router over HTTP: does it answer, and where does it send requests?

Only routes that read are ever asked (`PATHS`): LiteLLM's `/health` sends completions to every deployment, and
`/health/drain` takes the router out of service.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from sparktop.engines import PageError
from sparktop.engines.document import entries, field, parse, words
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import LITELLM, Deployment, RouterSample
from sparktop.model.targets import RouterTarget
from sparktop.model.text import clean
from sparktop.sources.http_address import host_and_port, key_problem
from sparktop.sources.http_failure import AnswerError
from sparktop.sources.http_fetch import Answer, Fetcher
from sparktop.sources.http_session import SharedSession
from sparktop.sources.router_counts import RouterCounts, read_counts
from sparktop.sources.router_probe import LIVELINESS, is_litellm

READINESS = "/health/readiness"
DETAILS = "/health/readiness/details"
MODELS = "/model/info"
SETTINGS = "/router/settings"
METRICS = "/metrics/"
"""With the slash: without it LiteLLM (1.106) sends us here."""
PATHS = (LIVELINESS, READINESS, DETAILS, MODELS, SETTINGS, METRICS)
"""Everything that is ever asked of a router."""

_FACTS_AGAIN_S = 60.0
_FACTS_RETRY_S = 15.0
"""The same after an answer that did not come."""
_FACTS_DEADLINE_S = 3.0
"""What all questions about facts may take together: the poll waits for them."""
_COUNTS_AGAIN_S, _COUNTS_DEADLINE_S = 10.0, 1.0
"""The same for counters of failures, of set-ups that have them."""
_LONGEST_COOLDOWN_S = 86400.0
_ENOUGH_DEPLOYMENTS = 256
_ID_LIMIT = 100
_ADDRESS_LIMIT = 300
_NO_DATABASE = "No connected db"
"""How LiteLLM without a database answers (status 400) to any key but its master key."""

Trouble = AnswerError | PageError


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a router says of itself, asked seldom."""

    version: str | None = None
    strategy: str | None = None
    deployments: tuple[Deployment, ...] | None = None
    note: str | None = None
    cooldown_s: float | None = None
    cooldowns_disabled: bool | None = None


class RouterSource:
    """Polls one router on `PATHS`."""

    def __init__(
        self,
        target: RouterTarget,
        *,
        session: SharedSession | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch `target` over `session` (shared by all routers; one of its own without)."""
        self.name = target.name
        self._target = target
        self._session = session or SharedSession()
        self._session.join()
        self._clock = clock
        self._where = host_and_port(target.url)
        self._key_problem = key_problem(target.api_key)
        self._facts = _Facts()
        self._facts_at: float | None = None
        """When facts are due; None when they are not to be asked for again."""
        self._forget()
        self._closed = False

    async def poll(self, deadline_s: float) -> RouterSample | Failure:
        """Ask whether it is alive, and what it is where that is due; trouble comes back as a `Failure`."""
        end = asyncio.get_running_loop().time() + deadline_s
        try:
            answer = await self._get(LIVELINESS, deadline_s)
        except AnswerError as error:
            self._forget()
            if error.kind is FailureKind.NOT_FOUND:
                note = f"{self._where} answers, but not as a router that this version knows"
                return RouterSample(self._clock(), note=clean(note))
            return Failure(error.kind, clean(error.message), self._clock())
        if not is_litellm(answer.body):
            self._forget()
            note = f"{self._where} answers {LIVELINESS}, but not as LiteLLM does"
            return RouterSample(answer.at, note=clean(note), answer_ms=answer.answer_ms)
        left_s = end - asyncio.get_running_loop().time()
        if self._facts_at is not None and self._clock() >= self._facts_at and left_s > 0:
            await self._refresh_facts(min(left_s, _FACTS_DEADLINE_S))
        left_s = end - asyncio.get_running_loop().time()
        if self._facts.deployments is not None and left_s > 0:
            await self._refresh_counts(min(left_s, _COUNTS_DEADLINE_S))
        facts, counts = self._facts, self._counts
        return RouterSample(
            answer.at,
            LITELLM,
            alive=True,
            version=facts.version,
            strategy=facts.strategy,
            deployments=facts.deployments,
            cooldown_s=facts.cooldown_s,
            cooldowns_disabled=facts.cooldowns_disabled,
            failures=counts.failures if counts else None,
            cooldowns=counts.cooldowns if counts else None,
            refusals=counts.refusals if counts else None,
            note=facts.note,
            answer_ms=answer.answer_ms,
        )

    async def close(self) -> None:
        """Leave the session."""
        if not self._closed:
            self._closed = True
            await self._session.leave()

    async def _get(self, path: str, deadline_s: float) -> Answer:
        fetcher = Fetcher(
            self._session.get(),
            self._target.url + path,
            where=self._where,
            api_key=None if self._key_problem else self._target.api_key,
            clock=self._clock,
        )
        return await fetcher.fetch(round(deadline_s, 2))

    def _forget(self) -> None:
        """Forget the facts: another process may answer next."""
        self._facts = _Facts()
        self._facts_at = float("-inf")
        self._counts: RouterCounts | None = None
        self._counts_at: float | None = float("-inf")
        """When counters are due; None when there are none."""

    async def _refresh_counts(self, deadline_s: float) -> None:
        """Ask for the counters of failures where they are due: only of a router that let us see its list."""
        if self._counts_at is None or self._clock() < self._counts_at:
            return
        self._counts_at = self._clock() + _COUNTS_AGAIN_S
        try:
            self._counts = read_counts((await self._get(METRICS, deadline_s)).body)
        except (AnswerError, PageError) as error:
            self._counts = None
            passing = isinstance(error, AnswerError) and error.kind is FailureKind.TIMEOUT
            if not passing:
                self._counts_at = None

    async def _refresh_facts(self, deadline_s: float) -> None:
        """Ask for the facts; what could not be read for a passing reason stays as it was."""
        answers, troubles = await self._ask(deadline_s)
        known = self._facts
        version = _version(answers) or known.version
        trouble = troubles.get(MODELS)
        if trouble is not None and self._is_refusal(trouble):
            # Not asked again before contact was lost: LiteLLM logs a traceback for each refused question.
            self._facts, self._facts_at = _Facts(version, note=self._refusal(trouble)), None
            return
        told, note = known.deployments, None
        if trouble is not None:
            note = clean(f"its deployments could not be read: {trouble.message}")
        elif MODELS in answers:
            told = _deployments(answers[MODELS])
            note = None if told is not None else f"{MODELS} does not list deployments as LiteLLM does"
        strategy = words(field(answers.get(SETTINGS), "current_values", "routing_strategy"), 60)
        cooling = _cooldown(answers.get(SETTINGS))
        if SETTINGS in troubles and not self._is_refusal(troubles[SETTINGS]):
            strategy, cooling = known.strategy, (known.cooldown_s, known.cooldowns_disabled)
        self._facts = _Facts(version, strategy, told, note, *cooling)
        passing = any(not self._is_refusal(one) for one in troubles.values())
        self._facts_at = self._clock() + (_FACTS_RETRY_S if passing else _FACTS_AGAIN_S)

    async def _ask(self, deadline_s: float) -> tuple[dict[str, object], dict[str, Trouble]]:
        """Ask one question after the other: by path what was answered, and why there is no answer.

        Without a list of deployments there is no use in asking what needs the same key.
        """
        end = asyncio.get_running_loop().time() + deadline_s
        answers: dict[str, object] = {}
        troubles: dict[str, Trouble] = {}
        for path in (READINESS, MODELS, SETTINGS, DETAILS):
            if MODELS in troubles or (path == DETAILS and _version(answers) is not None):
                break
            if path == MODELS and self._key_problem is not None:
                troubles[path] = AnswerError(FailureKind.UNAUTHORIZED, self._key_problem)
                continue
            left_s = end - asyncio.get_running_loop().time()
            try:
                answers[path] = parse((await self._get(path, max(0.01, left_s))).body)
            except (AnswerError, PageError) as error:
                troubles[path] = error
        return answers, troubles

    def _is_refusal(self, trouble: Trouble) -> bool:
        """Tell whether asking again would change nothing."""
        if trouble.kind is FailureKind.HTTP:
            return self._target.api_key is None or _NO_DATABASE in trouble.message
        return trouble.kind in {FailureKind.UNAUTHORIZED, FailureKind.NOT_FOUND}

    def _refusal(self, trouble: Trouble) -> str:
        """Say what to do about a list of deployments that is refused."""
        if self._key_problem is not None:
            return self._key_problem
        if self._target.api_key is None and trouble.kind is not FailureKind.NOT_FOUND:
            # Without a database LiteLLM (1.106) answers 500 where a key is missing.
            verb = "needs" if trouble.kind is FailureKind.UNAUTHORIZED else "may need"
            return (
                f"{verb} a key to tell its deployments, strategy and failures: [[routers]] with api_key_env"
            )
        if trouble.kind is FailureKind.NOT_FOUND:
            return f"has no {MODELS}: its deployments are not known"
        return "refuses the key of api_key_env: its deployments are not known"


def _version(answers: dict[str, object]) -> str | None:
    told = (words(field(answers.get(path), "litellm_version"), 60) for path in (READINESS, DETAILS))
    return next((version for version in told if version), None)


def _cooldown(settings: object) -> tuple[float | None, bool | None]:
    """Read for how long a failing deployment is left alone, and whether that is switched off."""
    seconds = field(settings, "current_values", "cooldown_time")
    off = field(settings, "current_values", "disable_cooldowns")
    told_s = float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) else -1.0
    known = 0 <= told_s <= _LONGEST_COOLDOWN_S
    return told_s if known else None, off if isinstance(off, bool) else None


def _deployments(found: object) -> tuple[Deployment, ...] | None:
    """Read `/model/info`: `data[]` with `model_name`, `litellm_params.api_base` and `model_info.id`."""
    listed = entries(found, "data")
    if listed is None:
        return None
    told: dict[str, Deployment] = {}
    for one in listed[:_ENOUGH_DEPLOYMENTS]:
        name = words(field(one, "model_info", "id"), _ID_LIMIT)
        if name is not None:
            address = _address(field(one, "litellm_params", "api_base"))
            told.setdefault(name, Deployment(name, address, words(field(one, "model_name"))))
    return tuple(told.values())


def _address(found: object) -> str | None:
    """Give a URL without what may be secret in it: user name, password, query, fragment."""
    text = words(found, _ADDRESS_LIMIT)
    if text is None:
        return None
    try:
        parts = urlsplit(text)
    except ValueError:
        return None
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl() or None
