"""Parser for the counters on LiteLLM's own Prometheus page, which only some set-ups expose.

The page needs the `prometheus` callback; metric names are those of LiteLLM 1.106.2. The page has no gauge of
requests in flight per deployment, so load always comes from the backends themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from sparktop.engines.exposition import Family, Reader
from sparktop.model.text import clean
from sparktop.values import dataclass

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
_READER = Reader((FAILURES, ANSWERS, COOLED_DOWN, FAILED_REQUESTS, IN_FLIGHT, CPU_SECONDS))
_MOST_DEPLOYMENTS, _ID_LIMIT = 256, 100


@dataclass(frozen=True, slots=True)
class RouterCounts:
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
    return RouterCounts(
        failures,
        _sum(families.get(COOLED_DOWN, {})),
        _sum(refused),
        {name: answered.get(name, 0.0) + failures.get(name, 0.0) for name in {**answered, **failures}}
        if answered
        else None,
        max(0.0, math.fsum(in_flight) - 1) if in_flight else None,
        cpu_s[0] if len(cpu_s) == 1 else None,
    )


def _by_deployment(family: Family) -> dict[str, float]:
    counts: dict[str, float] = {}
    for labels, count in family.items():
        name = clean(dict(labels).get("model_id", ""), _ID_LIMIT)
        if name and _is_count(count) and (name in counts or len(counts) < _MOST_DEPLOYMENTS):
            counts[name] = counts.get(name, 0.0) + count
    return counts


def _sum(family: Family) -> float:
    return math.fsum(count for count in family.values() if _is_count(count))


def _is_count(value: float) -> bool:
    return 0 <= value < math.inf
