"""Parser for the failure counters on LiteLLM's own Prometheus page, which only some set-ups expose.

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
COOLED_DOWN = "litellm_deployment_cooled_down_total"
FAILED_REQUESTS = "litellm_proxy_failed_requests_metric_total"
_REFUSED_CLASS = "RouterRateLimitError"
"""Exception class of the router itself when no deployment is left."""
_OURS = b"litellm_"
_READER = Reader((FAILURES, COOLED_DOWN, FAILED_REQUESTS))
_MOST_DEPLOYMENTS, _ID_LIMIT = 256, 100


@dataclass(frozen=True, slots=True)
class RouterCounts:
    """Failure counters since the router's start."""

    failures: Mapping[str, float]
    """Failed answers by deployment id; empty while none failed."""
    cooldowns: float
    refusals: float


def read_counts(body: bytes) -> RouterCounts | None:
    """Parse the failure counters of a LiteLLM metrics page; return None for a page of anything else."""
    if _OURS not in body:
        return None
    families = _READER.read(body)
    failures: dict[str, float] = {}
    for labels, count in families.get(FAILURES, {}).items():
        name = clean(dict(labels).get("model_id", ""), _ID_LIMIT)
        if name and _is_count(count) and (name in failures or len(failures) < _MOST_DEPLOYMENTS):
            failures[name] = failures.get(name, 0.0) + count
    refused: Family = {
        labels: count
        for labels, count in families.get(FAILED_REQUESTS, {}).items()
        if dict(labels).get("exception_class", "").endswith(_REFUSED_CLASS)
    }
    return RouterCounts(failures, _sum(families.get(COOLED_DOWN, {})), _sum(refused))


def _sum(family: Family) -> float:
    return math.fsum(count for count in family.values() if _is_count(count))


def _is_count(value: float) -> bool:
    return 0 <= value < math.inf
