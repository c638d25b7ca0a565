"""Source of a router: polls its liveness, and reads its deployments, strategy and failure counters.

Only read-only routes (`PATHS`) are requested: LiteLLM's `/health` sends completions to every deployment, and
`/health/drain` takes the router out of service.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from sparktop.analysis.placement import public_url
from sparktop.engines.document import amount, entries, field, parse, words
from sparktop.engines.exposition import Family, Reader
from sparktop.engines.router_pages import (
    LISTS,
    LIVELINESS,
    LLAMA_SWAP,
    SGLANG_GATEWAY,
    VLLM_ROUTER,
    is_litellm,
    read_router_page,
)
from sparktop.model.failure import Failure, FailureError, FailureKind
from sparktop.model.router import LITELLM, Deployment, RouterSample
from sparktop.model.targets import RouterTarget
from sparktop.model.text import clean
from sparktop.net.client import HttpSource, Response, SharedSession, read_beside
from sparktop.net.failure import AnswerError, key_problem

# LiteLLM's metrics page needs the `prometheus` callback; metric names are those of LiteLLM 1.106.2. The page
# has no gauge of requests in flight per deployment, so load always comes from the backends themselves.


FAILURES = "litellm_deployment_failure_responses_total"
ANSWERS = "litellm_deployment_success_responses_total"
IN_FLIGHT = "litellm_in_flight_requests"
"""All HTTP requests inside the router's process, the one for this page included."""
CPU_SECONDS = "process_cpu_seconds_total"
COOLED_DOWN = "litellm_deployment_cooled_down_total"
FAILED_REQUESTS = "litellm_proxy_failed_requests_metric_total"
_REFUSED_CLASS = "RouterRateLimitError"
"""Exception class of the router itself when no deployment is left."""
_LITELLM_PREFIX = b"litellm_"
STATE = "litellm_deployment_state"
_STATES: Mapping[float, str] = {1.0: "partial outage", 2.0: "outage"}
"""Values of `STATE`; 0 is healthy."""
_READER = Reader((FAILURES, ANSWERS, COOLED_DOWN, FAILED_REQUESTS, IN_FLIGHT, CPU_SECONDS, STATE))
_MOST_DEPLOYMENTS, _ID_LIMIT = 256, 100
"""Most deployments of a router, and most characters of the id of one."""
_WITHOUT_COUNTS = RouterSample(0.0, LITELLM, alive=True)
"""A sample of LiteLLM without its counters."""


def read_counts(body: bytes) -> RouterSample | None:
    """Parse the counters on a page of LiteLLM into an undated sample; None for any other page."""
    if _LITELLM_PREFIX not in body:
        return None
    families = _READER.read(body)
    failures = _by_deployment(families.get(FAILURES, {}))
    answered = _by_deployment(families.get(ANSWERS, {}))
    answers = {name: answered.get(name, 0.0) + failures.get(name, 0.0) for name in {**answered, **failures}}
    refused: Family = {
        labels: count
        for labels, count in families.get(FAILED_REQUESTS, {}).items()
        if dict(labels).get("exception_class", "").endswith(_REFUSED_CLASS)
    }
    in_flight = [count for count in families.get(IN_FLIGHT, {}).values() if _is_count(count)]
    cpu_s = [count for count in families.get(CPU_SECONDS, {}).values() if _is_count(count)]
    states = _by_deployment(families.get(STATE, {}), largest=True)
    return replace(
        _WITHOUT_COUNTS,
        failures=failures,
        cooldowns=_sum_valid(families.get(COOLED_DOWN, {})),
        refusals=_sum_valid(refused),
        answered=answers if answered else None,
        in_flight=max(0.0, math.fsum(in_flight) - 1) if in_flight else None,
        cpu_s=cpu_s[0] if len(cpu_s) == 1 else None,
        cooled=_by_deployment(families.get(COOLED_DOWN, {})),
        troubles={name: _STATES[state] for name, state in states.items() if state in _STATES},
    )


def _by_deployment(family: Family, *, largest: bool = False) -> dict[str, float]:
    """Return a metric's values by deployment id: their sum, or the `largest`."""
    result: dict[str, float] = {}
    for labels, value in family.items():
        name = clean(dict(labels).get("model_id", ""), _ID_LIMIT)
        if name and _is_count(value) and (name in result or len(result) < _MOST_DEPLOYMENTS):
            before = result.get(name, 0.0)
            result[name] = max(before, value) if largest else before + value
    return result


def _sum_valid(family: Family) -> float:
    return math.fsum(count for count in family.values() if _is_count(count))


def _is_count(value: float) -> bool:
    return 0 <= value < math.inf


READINESS = "/health/readiness"
DETAILS = "/health/readiness/details"
MODELS = "/model/info"
SETTINGS = "/router/settings"
METRICS = "/metrics/"
"""With the trailing slash: LiteLLM (1.106) redirects the path without it."""
PATHS = (LIVELINESS, READINESS, DETAILS, MODELS, SETTINGS, METRICS)
"""All routes that are ever requested from a LiteLLM router."""
PAGE = "/metrics"
_OTHER_ROUTERS: tuple[tuple[str, Callable[[bytes], RouterSample | None]], ...] = (
    (PAGE, read_router_page),
    *LISTS.items(),
)
"""Routes of other routers with their parsers: of each router only one, and of an unknown one each once."""

_WITH_LISTS = frozenset({LLAMA_SWAP, VLLM_ROUTER, SGLANG_GATEWAY})
"""Kinds of routers whose metrics page may name no server, but which list them on a route of their own."""
_FACTS_AGAIN_S = 60.0
_FACTS_RETRY_S = 15.0
"""Seconds between requests for the facts: normally, and after one that failed for a passing reason."""
_FACTS_DEADLINE_S = 3.0
"""Seconds that all requests for facts may take together, while the poll waits."""
_COUNTS_AGAIN_S, _COUNTS_DEADLINE_S = 10.0, 1.0
"""Seconds between requests for the failure counters, and the deadline of one."""
_LONGEST_COOLDOWN_S = 86400.0
_MOST_WEIGHT = 1e15
"""Larger values are none: of a cooldown in seconds, and of a weight."""
_ADDRESS_LIMIT = 300
"""Most characters of a deployment's address."""
_NO_DATABASE = "No connected db"
"""Part of the answer (status 400) of a LiteLLM without a database to any key but its master key."""


class RouterSource(HttpSource):
    """Polls one router: LiteLLM on its read-only HTTP routes (`PATHS`), others on their metrics page."""

    def __init__(
        self,
        target: RouterTarget,
        *,
        session: SharedSession | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch `target` over `session`, which all routers may share; None opens a private session."""
        self._unusable_key = key_problem(target.api_key)
        key = None if self._unusable_key else target.api_key  # some routes need none
        super().__init__(target.name, target.url, target.tls_ca, session, clock, key)
        self._target = target
        self._forget_reports()
        self._route: int | None = None
        """Index in `_OTHER_ROUTERS` of the route by which a router other than LiteLLM was read; None
        before."""

    async def poll(self, deadline_s: float) -> RouterSample | Failure:
        """Check that the router is alive and return a sample, or a `Failure` for any network or server error.

        Also request the router's deployments, strategy and failure counters if their last request was long
        enough ago. Of other routers read the metrics page. If the server that answers is not a known router,
        return a sample that has only a note for the user.
        """
        end = asyncio.get_running_loop().time() + deadline_s
        if self._route is not None:
            reading = await self._read_other(deadline_s)
            if reading is not None:
                return reading
        try:
            answer = await self._get(LIVELINESS, deadline_s)
        except AnswerError as error:
            self._forget_reports()
            if error.kind is not FailureKind.NOT_FOUND:
                return error.failure(self._clock())
            note = f"{self._where} answers, but not as a router that this version knows"
            other_reading = await self._read_other(end - asyncio.get_running_loop().time())
            return other_reading or RouterSample(self._clock(), note=clean(note))
        if not is_litellm(answer.body):
            self._forget_reports()
            note = f"{self._where} answers {LIVELINESS}, but not as LiteLLM does"
            other_reading = await self._read_other(end - asyncio.get_running_loop().time())
            return other_reading or RouterSample(answer.at, note=clean(note), answer_ms=answer.answer_ms)
        left_s = end - asyncio.get_running_loop().time()
        if self._facts_at is not None and self._clock() >= self._facts_at and left_s > 0:
            await self._refresh_facts(min(left_s, _FACTS_DEADLINE_S))
        left_s = end - asyncio.get_running_loop().time()
        if self._facts.deployments is not None and left_s > 0:
            await self._refresh_counts(min(left_s, _COUNTS_DEADLINE_S))
        facts = self._facts
        return replace(
            self._counts or _WITHOUT_COUNTS,
            at=answer.at,
            version=facts.version,
            strategy=facts.strategy,
            deployments=facts.deployments,
            cooldown_s=facts.cooldown_s,
            cooldowns_disabled=facts.cooldowns_disabled,
            note=facts.note,
            answer_ms=answer.answer_ms,
        )

    async def _read_other(self, deadline_s: float) -> RouterSample | Failure | None:
        """Read a router other than LiteLLM; None if the server is not one that is known.

        A `Failure` is returned only for a router that was read before.
        """
        route, self._route = self._route, None
        end = asyncio.get_running_loop().time() + deadline_s
        result: tuple[int, Response, RouterSample] | None = None
        for index in range(len(_OTHER_ROUTERS)) if route is None else (route,):
            path, read = _OTHER_ROUTERS[index]
            try:
                answer = await self._get(path, max(0.01, end - asyncio.get_running_loop().time()))
                page = await read_beside(partial(read, answer.body), len(answer.body))
            except FailureError as error:
                if route is None or error.kind is FailureKind.NOT_FOUND:
                    continue
                return error.failure(self._clock())
            if page is not None:
                result = index, answer, page
                if page.deployments is not None or page.kind not in _WITH_LISTS:
                    break
        if result is None:
            return None
        self._route, answer, page = result
        return replace(page, at=answer.at, alive=True, answer_ms=answer.answer_ms)

    def _forget_reports(self) -> None:
        """Forget what the router has reported, so that the next poll requests all of it again.

        Called when contact is lost: a different process may answer next.
        """
        self._facts = RouterSample(0.0)
        """What the router reports about itself: version, strategy, deployments, cooldown, a note."""
        self._facts_at: float | None = float("-inf")
        """When the facts are due, in seconds of the clock; None to stop requesting them."""
        self._counts: RouterSample | None = None
        self._counts_at: float | None = float("-inf")
        """When the counters are due, in seconds of the clock; None where the router has none."""

    async def _refresh_counts(self, deadline_s: float) -> None:
        """Request the failure counters if they are due.

        After any error but a timeout they are not requested again until contact with the router is lost.
        """
        if self._counts_at is None or self._clock() < self._counts_at:
            return
        self._counts_at = self._clock() + _COUNTS_AGAIN_S
        try:
            body = (await self._get(METRICS, deadline_s)).body
            self._counts = await read_beside(partial(read_counts, body), len(body))
        except FailureError as error:
            self._counts = None
            passing = isinstance(error, AnswerError) and error.kind is FailureKind.TIMEOUT
            if not passing:
                self._counts_at = None

    async def _refresh_facts(self, deadline_s: float) -> None:
        """Request what the router reports about itself (version, strategy, deployments, cooldown).

        If a request fails for a temporary reason, such as a timeout, keep the old value.
        """
        answers, troubles = await self._request_facts(deadline_s)
        before = self._facts
        version = _read_version(answers) or before.version
        trouble = troubles.get(MODELS)
        if trouble is not None and self._is_refusal(trouble):
            # Not requested again until contact is lost: LiteLLM logs a traceback for each refused request.
            self._facts = RouterSample(0.0, version=version, note=self._refusal_note(trouble))
            self._facts_at = None
            return
        deployments, note = before.deployments, None
        if trouble is not None:
            note = clean(f"its deployments could not be read: {trouble.message}")
        elif MODELS in answers:
            deployments = _read_deployments(answers[MODELS])
            note = None if deployments is not None else f"{MODELS} does not list deployments as LiteLLM does"
        strategy = words(field(answers.get(SETTINGS), "current_values", "routing_strategy"), 60)
        cooling = _read_cooldown(answers.get(SETTINGS))
        if SETTINGS in troubles and not self._is_refusal(troubles[SETTINGS]):
            strategy, cooling = before.strategy, (before.cooldown_s, before.cooldowns_disabled)
        self._facts = RouterSample(
            0.0,
            version=version,
            strategy=strategy,
            deployments=deployments,
            cooldown_s=cooling[0],
            cooldowns_disabled=cooling[1],
            note=note,
        )
        passing = any(not self._is_refusal(other) for other in troubles.values())
        self._facts_at = self._clock() + (_FACTS_RETRY_S if passing else _FACTS_AGAIN_S)

    async def _request_facts(self, deadline_s: float) -> tuple[dict[str, object], dict[str, FailureError]]:
        """Request in sequence the routes on which the router reports about itself.

        Return (parsed answers by path, errors by path). Stop after an error on `MODELS`, because the later
        routes need the same key.
        """
        end = asyncio.get_running_loop().time() + deadline_s
        answers: dict[str, object] = {}
        troubles: dict[str, FailureError] = {}
        for path in (READINESS, MODELS, SETTINGS, DETAILS):
            if MODELS in troubles or (path == DETAILS and _read_version(answers) is not None):
                break
            if path == MODELS and self._unusable_key is not None:
                troubles[path] = AnswerError(FailureKind.UNAUTHORIZED, self._unusable_key)
                continue
            left_s = end - asyncio.get_running_loop().time()
            try:
                body = (await self._get(path, max(0.01, left_s))).body
                answers[path] = await read_beside(partial(parse, body), len(body))
            except FailureError as error:
                troubles[path] = error
        return answers, troubles

    def _is_refusal(self, trouble: FailureError) -> bool:
        """Return True for an error that a retry would not change, such as a refused key."""
        if trouble.kind is FailureKind.HTTP:
            return self._target.api_key is None or _NO_DATABASE in trouble.message
        return trouble.kind in {FailureKind.UNAUTHORIZED, FailureKind.NOT_FOUND}

    def _refusal_note(self, trouble: FailureError) -> str:
        """Return a note for the user about a refused list of deployments, with the remedy."""
        if self._unusable_key is not None:
            return self._unusable_key
        if self._target.api_key is None and trouble.kind is not FailureKind.NOT_FOUND:
            # Without a database, LiteLLM (1.106) answers 500 to a missing key.
            verb = "needs" if trouble.kind is FailureKind.UNAUTHORIZED else "may need"
            return (
                f"{verb} a key to list its deployments, strategy and failures: [[routers]] with api_key_env"
            )
        if trouble.kind is FailureKind.NOT_FOUND:
            return f"has no {MODELS}: its deployments are not known"
        return "refuses the key of api_key_env: its deployments are not known"


def _read_version(answers: dict[str, object]) -> str | None:
    versions = (words(field(answers.get(path), "litellm_version"), 60) for path in (READINESS, DETAILS))
    return next((version for version in versions if version), None)


def _read_cooldown(settings: object) -> tuple[float | None, bool | None]:
    """Return (cooldown of a failed deployment in seconds, whether cooldowns are disabled).

    Both are read from `settings`, the router's answer to a request for its settings. An unknown value is
    None.
    """
    seconds = field(settings, "current_values", "cooldown_time")
    is_disabled = field(settings, "current_values", "disable_cooldowns")
    return amount(seconds, _LONGEST_COOLDOWN_S), is_disabled if isinstance(is_disabled, bool) else None


def _read_deployments(answer: object) -> tuple[Deployment, ...] | None:
    """Parse the list of deployments in the answer of `/model/info`.

    Each entry of `data[]` has `model_name`, `litellm_params` (`api_base`, `model`), `model_info.id`. Return
    None if the answer has another shape. Of deployments with equal ids the first is kept.
    """
    deployment_entries = entries(answer, "data")
    if deployment_entries is None:
        return None
    deployments: dict[str, Deployment] = {}
    for entry in deployment_entries[:_MOST_DEPLOYMENTS]:
        name = words(field(entry, "model_info", "id"), _ID_LIMIT)
        if name is not None:
            address = public_url(words(field(entry, "litellm_params", "api_base"), _ADDRESS_LIMIT) or "")
            asks_for = words(field(entry, "litellm_params", "model"))
            offered = words(field(entry, "model_name"))
            weight = _read_weight(entry, deployment_entries)
            deployments.setdefault(name, Deployment(name, address, offered, asks_for, weight))
    return tuple(deployments.values())


def _read_weight(entry: object, listed: Sequence[object]) -> float | None:
    """Return the weight of a deployment; None where its model's deployments have none.

    LiteLLM's simple-shuffle takes the first of these that the model's first deployment has, and 0 for a
    deployment without it.
    """
    model = field(entry, "model_name")
    first_entry = next(other for other in listed if field(other, "model_name") == model)
    for name in ("weight", "rpm", "tpm"):
        if amount(field(first_entry, "litellm_params", name), _MOST_WEIGHT) is not None:
            return amount(field(entry, "litellm_params", name), _MOST_WEIGHT) or 0.0
    return None
