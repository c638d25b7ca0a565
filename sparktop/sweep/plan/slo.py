"""Conditions on a level's figures (SLO): their syntax, and the number of runs to judge them.

Latencies and `stream_tps`, the rate of one stream, get worse as concurrency grows: they limit it from above.
Rates of the whole server grow with concurrency: a minimum of such a rate limits it from below.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from sparktop.errors import UsageError
from sparktop.model.load import LoadMode
from sparktop.model.text import clean
from sparktop.nearest import did_you_mean
from sparktop.sweep.plan.plan import Plan, SloCondition
from sparktop.sweep.terms.definitions import LATENCIES, RATES
from sparktop.sweep.terms.statistics import P90_FROM, P95_FROM, P99_FROM

MOST_CONCURRENCY = 4096
LEAST_RUNS = 3
"""Minimum runs of a level in a search: two leave an interval of ± 9 standard deviations."""
STREAM = "stream_tps"
SHARES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_REQUESTS = {"p10": P90_FROM, "p50": 12, "p90": P90_FROM, "p95": P95_FROM, "p99": P99_FROM}
"""Minimum requests of a level for each quantile."""
_LATENCY = re.compile(r"([a-z0-9_]+)_(mean|p50|p90|p95|p99)_ms")


def parse_slo(text: str) -> tuple[SloCondition, ...]:
    """Parse `ttft_p90_ms=2000,stream_tps=15`: maxima for latencies, minima for rates.

    Raises:
        UsageError: a condition is invalid.
    """
    found = tuple(_parse_one(part) for part in text.split(",") if part.strip())
    if not found:
        raise UsageError("--slo names no condition; write for example ttft_p90_ms=2000,stream_tps=15")
    return found


def _parse_one(part: str) -> SloCondition:
    name, sign, value = (word.strip() for word in part.partition("="))
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if not sign or not (0 < limit < math.inf):
        raise UsageError(f"--slo: '{clean(part, 40)}' is no condition; write for example ttft_p90_ms=2000")
    if name not in figures():
        near = did_you_mean(name, figures()) or "; write for example ttft_p90_ms or stream_tps"
        raise UsageError(f"--slo: there is no figure '{clean(name, 40)}'{near}")
    return SloCondition(name, limit, at_least=not name.endswith("_ms"))


def figures() -> tuple[str, ...]:
    """Return the names of all figures that a condition can use; `stream_tps` alone means its p10."""
    latencies = [name.removesuffix("_ms") for name in LATENCIES if name != "itl_ms"]
    return (
        *(f"{name}_{word}_ms" for name in latencies for word in ("mean", "p50", "p90", "p95", "p99")),
        STREAM,
        f"{STREAM}_p10",
        f"{STREAM}_p50",
        *RATES,
    )


def parts_of(figure: str) -> tuple[str, str]:
    """Split the name of a figure into metric and statistic: ("ttft", "p90").

    Raises:
        UsageError: no figure has that name.
    """
    if figure in RATES:
        return figure, "mean"
    if figure.startswith(STREAM):
        return STREAM, figure.removeprefix(f"{STREAM}_") if figure != STREAM else "p10"
    found = _LATENCY.fullmatch(figure)
    if found is None:
        raise UsageError(f"--slo: there is no figure '{clean(figure, 40)}'")
    return found[1], found[2]


def words_of(condition: SloCondition) -> str:
    """Return a condition as text: `ttft_p90_ms ≤ 2000`."""
    return f"{condition.figure} {'≥' if condition.at_least else '≤'} {condition.limit:g}"


def rises(condition: SloCondition) -> bool:
    """Return True for a minimum of a figure that grows with concurrency."""
    return condition.figure in RATES


def any_rises(conditions: Iterable[SloCondition]) -> bool:
    """Return True if a condition limits the concurrency from below."""
    return any(rises(one) for one in conditions)


def any_falls(conditions: Iterable[SloCondition]) -> bool:
    """Return True if a condition limits the concurrency from above."""
    return any(not rises(one) for one in conditions)


def requests_needed(conditions: Iterable[SloCondition]) -> int:
    """Return the minimum requests of a level for the highest quantile among the conditions."""
    return max((_REQUESTS.get(parts_of(one.figure)[1], 1) for one in conditions), default=1)


def runs_needed(plan: Plan, concurrency: int) -> int:
    """Return the number of runs of a level in a search: the plan's, or more if its conditions need them."""
    if plan.mode is LoadMode.STEADY:
        return max(plan.runs, LEAST_RUNS)
    return max(plan.runs, LEAST_RUNS, -(-requests_needed(plan.slo) // concurrency))
