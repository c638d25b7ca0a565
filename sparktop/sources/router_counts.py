"""Parser for the counters on LiteLLM's own Prometheus page, which only some set-ups expose.

The page needs the `prometheus` callback; metric names are those of LiteLLM 1.106.2. The page has no gauge of
requests in flight per deployment, so load always comes from the backends themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct, field

from sparktop.engines.exposition import Family, Reader
from sparktop.model.text import clean

FAILURES = "litellm_deployment_failure_responses_total"
ANSWERS = "litellm_deployment_success_responses_total"
IN_FLIGHT = "litellm_in_flight_requests"
"""All HTTP requests inside the router's process, the one for this page included."""
CPU_SECONDS = "process_cpu_seconds_total"
COOLED_DOWN = "litellm_deployment_cooled_down_total"
FAILED_REQUESTS = "litellm_proxy_failed_requests_metric_total"
_REFUSED_CLASS = "RouterRateLimitError"
"""Exception class of the router itself when no deployment is left."""
_OURS = b"litellm_"
STATE = "litellm_deployment_state"
_STATES: Mapping[float, str] = {1.0: "partial outage", 2.0: "outage"}
"""Values of `STATE`; 0 is healthy."""
_READER = Reader((FAILURES, ANSWERS, COOLED_DOWN, FAILED_REQUESTS, IN_FLIGHT, CPU_SECONDS, STATE))
_MOST_DEPLOYMENTS, _ID_LIMIT = 256, 100


class RouterCounts(Struct, frozen=True):
    """Counters since the router's start."""

    failures: Mapping[str, float]
    """Failed answers by deployment id; empty while none failed."""
    cooldowns: float
    refusals: float
    answered: Mapping[str, float] | None = None
    """Answers by deployment id, failed ones included; None where only failures are on the page."""
    in_flight: float | None = None
    """Requests that the router has received and that have not ended."""
    cpu_s: float | None = None
    """CPU seconds of the router's process."""
    cooled: Mapping[str, float] = field(default_factory=dict)
    """How often each deployment was taken out of service, by its id."""
    troubles: Mapping[str, str] = field(default_factory=dict)
    """The state of each deployment that is not healthy, by its id."""


def read_counts(body: bytes) -> RouterCounts | None:
    """Parse the counters of a LiteLLM metrics page; return None for a page of anything else."""
    if _OURS not in body:
        return None
    families = _READER.read(body)
    failures = _by_deployment(families.get(FAILURES, {}))
    answered = _by_deployment(families.get(ANSWERS, {}))
    refused: Family = {
        labels: count
        for labels, count in families.get(FAILED_REQUESTS, {}).items()
        if dict(labels).get("exception_class", "").endswith(_REFUSED_CLASS)
    }
    in_flight = [count for count in families.get(IN_FLIGHT, {}).values() if _is_count(count)]
    cpu_s = [count for count in families.get(CPU_SECONDS, {}).values() if _is_count(count)]
    states = _by_deployment(families.get(STATE, {}), largest=True)
    return RouterCounts(
        failures,
        _sum(families.get(COOLED_DOWN, {})),
        _sum(refused),
        {name: answered.get(name, 0.0) + failures.get(name, 0.0) for name in {**answered, **failures}}
        if answered
        else None,
        max(0.0, math.fsum(in_flight) - 1) if in_flight else None,
        cpu_s[0] if len(cpu_s) == 1 else None,
        _by_deployment(families.get(COOLED_DOWN, {})),
        {name: _STATES[state] for name, state in states.items() if state in _STATES},
    )


def _by_deployment(family: Family, *, largest: bool = False) -> dict[str, float]:
    """Return a metric's values by deployment id: their sum, or the `largest`."""
    found: dict[str, float] = {}
    for labels, value in family.items():
        name = clean(dict(labels).get("model_id", ""), _ID_LIMIT)
        if name and _is_count(value) and (name in found or len(found) < _MOST_DEPLOYMENTS):
            known = found.get(name, 0.0)
            found[name] = max(known, value) if largest else known + value
    return found


def _sum(family: Family) -> float:
    return math.fsum(count for count in family.values() if _is_count(count))


def _is_count(value: float) -> bool:
    return 0 <= value < math.inf
