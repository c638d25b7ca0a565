"""Service level conditions (SLO) on the metrics of a level: their syntax, and how many runs they need.

Latencies and `stream_tps`, the token rate of one stream, get worse as concurrency grows, so conditions on
them limit the concurrency from above. Rates of the whole server grow with concurrency, so a minimum of such a
rate limits the concurrency from below.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from sparktop.errors import UsageError, did_you_mean
from sparktop.model.judgement import USEFUL_RUNS
from sparktop.model.load import LoadMode
from sparktop.model.statistics import P90_FROM, P95_FROM, P99_FROM
from sparktop.model.text import clean
from sparktop.sweep.plan.plan import Plan, SloCondition
from sparktop.sweep.terms.definitions import LATENCIES, METRICS, RATES

MOST_CONCURRENCY = 4096
"""Highest concurrency that a search for SLO limits tries."""
STREAM = "stream_tps"
"""Name of the token rate of one stream in conditions."""
SHARES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""Quantiles of conditions as shares (0 to 1)."""
_REQUESTS = {"p10": P90_FROM, "p50": 12, "p90": P90_FROM, "p95": P95_FROM, "p99": P99_FROM}
"""Minimum number of requests in a level to judge each quantile."""
_LATENCY = re.compile(r"([a-z0-9_]+)_(mean|p50|p90|p95|p99)_ms")
"""A latency in a condition: quantity and statistic."""


def parse_slo(text: str, more: tuple[str, ...] = ()) -> tuple[SloCondition, ...]:
    """Parse conditions such as `ttft_p90_ms=2000,stream_tps=15`: maximum of a latency, minimum of a rate.

    `more` are names of further metrics that they may limit.

    Raises:
        UsageError: a condition is invalid.
    """
    conditions = tuple(_parse_condition(part, more) for part in text.split(",") if part.strip())
    if not conditions:
        raise UsageError("--slo names no condition; write for example ttft_p90_ms=2000,stream_tps=15")
    return conditions


def _parse_condition(part: str, more: tuple[str, ...]) -> SloCondition:
    name, sign, value = (word.strip() for word in part.partition("="))
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if not sign or not (0 < limit < math.inf):
        raise UsageError(f"--slo: '{clean(part, 40)}' is not a condition; write for example ttft_p90_ms=2000")
    names = (*figures(), *more)
    if name not in names:
        suggestion = did_you_mean(name, names) or "; write for example ttft_p90_ms or stream_tps"
        raise UsageError(f"--slo: there is no figure '{clean(name, 40)}'{suggestion}")
    return SloCondition(name, limit, at_least=not name.endswith("_ms"))


def figures() -> tuple[str, ...]:
    """Return the names of all metrics that an SLO condition can use, such as `ttft_p90_ms`.

    `stream_tps` without a quantile stands for `stream_tps_p10`.
    """
    latencies = [name.removesuffix("_ms") for name in LATENCIES if name != "itl_ms"]
    return (
        *(f"{name}_{word}_ms" for name in latencies for word in ("mean", "p50", "p90", "p95", "p99")),
        STREAM,
        f"{STREAM}_p10",
        f"{STREAM}_p50",
        *RATES,
    )


def parts_of(figure: str) -> tuple[str, str]:
    """Split the name of a metric in a condition into quantity and statistic: `ttft_p90_ms` → ("ttft", "p90").

    Rates of the whole server have the statistic "mean".

    Raises:
        UsageError: the name is not one of `figures`.
    """
    if figure in RATES:
        return figure, "mean"
    if figure.startswith(STREAM):
        return STREAM, figure.removeprefix(f"{STREAM}_") if figure != STREAM else "p10"
    latency = _LATENCY.fullmatch(figure)
    if latency is None:
        raise UsageError(f"--slo: there is no figure '{clean(figure, 40)}'")
    return latency[1], latency[2]


def words_of(condition: SloCondition) -> str:
    """Return a condition as text, such as `ttft_p90_ms ≤ 2000`, with all digits of its limit."""
    limit = repr(float(condition.limit)).removesuffix(".0")
    return f"{condition.figure} {'≥' if condition.at_least else '≤'} {limit}"


_CONDITION = re.compile(r"([a-z0-9_]+) ([≥≤]) ([0-9]+(?:\.[0-9]+)?(?:e[-+][0-9]+)?)")
"""A condition as `words_of` writes it."""
_NAMES = {
    "ttft": "first token",
    "ttft_due": "first token after due",
    "ttft_tool": "first token after a tool",
    "ttft_human": "first token after a person",
    "ttfr": "first response",
    "first_answer": "first answer",
    "tpot": "time per output token",
    "e2e": "whole answer",
    "e2e_due": "whole answer after due",
}
"""Quantities of conditions in words."""
_SECOND_MS = 1000.0
"""Milliseconds of a second."""


def stored_condition(text: str) -> SloCondition | None:
    """Return the condition that `words_of` wrote as `text`; None for another text."""
    match = _CONDITION.fullmatch(text)
    return None if match is None else SloCondition(match[1], float(match[3]), at_least=match[2] == "≥")


def plain_words(text: str, *, each: bool = False) -> str:
    """Return a condition as `words_of` writes it in plain words: `first token p90 ≤ 2 s`, `≥ 15 tok/s each`.

    `each`: without its statistic, for single requests. A text that is no such condition is returned as it is.
    """
    condition = stored_condition(text)
    if condition is None:
        return text
    name, sign, limit = condition.figure, "≥" if condition.at_least else "≤", condition.limit
    if name.startswith(STREAM):
        suffix = name.removeprefix(STREAM).strip("_")
        return f"{sign} {limit:,.6g} tok/s each{f' ({suffix})' if suffix and not each else ''}"
    if name in RATES:
        metric = METRICS[name]
        return f"{metric.title.lower()} {sign} {limit:,.6g} {metric.unit}"
    latency = _LATENCY.fullmatch(name)
    if latency is None:
        return text
    time = f"{limit:.6g} ms" if limit < _SECOND_MS else f"{limit / _SECOND_MS:.6g} s"
    statistic = "" if each else f" {latency[2]}"
    return f"{_NAMES.get(latency[1], latency[1])}{statistic} {sign} {time}"


def rises(condition: SloCondition) -> bool:
    """Return whether a condition gets better as concurrency grows.

    This is the case for conditions on a rate of the whole server, such as its tokens/s.
    """
    return condition.figure in RATES


def requests_needed(conditions: Iterable[SloCondition]) -> int:
    """Return how many requests a level needs so that all quantiles in the conditions can be computed."""
    return max((_REQUESTS.get(parts_of(condition.figure)[1], 1) for condition in conditions), default=1)


def runs_needed(plan: Plan, concurrency: int) -> int:
    """Return the number of runs of a level at `concurrency` in an SLO search.

    This is the plan's number, or more if the plan's conditions need more runs or requests.
    """
    if plan.mode is LoadMode.STEADY:
        return max(plan.runs, USEFUL_RUNS)
    return max(plan.runs, USEFUL_RUNS, -(-requests_needed(plan.slo) // concurrency))
