"""The smallest difference that a plan's runs can detect, estimated before the sweep starts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sparktop.sweep.compare.findable import USUAL_SPREAD_PERCENT, Design, findable_percent, percent_words
from sparktop.sweep.compare.proof import first_rate
from sparktop.sweep.compare.ratio import LEAST_RUNS
from sparktop.sweep.plan.order import loads
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.results import LevelResult, SweepResult
from sparktop.sweep.terms.definitions import METRICS
from sparktop.sweep.terms.statistics import variance

_ENOUGH_RUNS = 3
_LEAST_FREEDOM = 4
"""Minimum degrees of freedom for an estimate of the standard deviation from earlier runs."""


def resolution_words(plan: Plan, known: Sequence[SweepResult] = ()) -> str:
    """Return one line of text with the smallest difference in percent that the plan's runs can detect.

    The difference is between targets, or, for a plan with one target, between this sweep and a later one like
    it. The standard deviation between runs is estimated from the earlier results `known` if they have enough
    runs of the plan's servers; otherwise a typical value is used.
    """
    count = len(plan.targets)
    what = "differences between targets" if count > 1 else "a later change"
    own = _spread_percent(plan, known)
    spread = own if own is not None else USUAL_SPREAD_PERCENT
    whose = "as your earlier runs do" if own is not None else "usual for equal runs on a Spark"
    why = f"if equal runs differ by {spread:.1f} % ({whose})"
    pairs = max(1, count * (count - 1) // 2)
    runs = min((plan.runs_of(load.concurrency) or plan.runs for load in loads(plan)), default=plan.runs)
    design = Design(runs, max(1, len(loads(plan))), first_rate(METRICS, pairs))
    percent = findable_percent(design, spread)
    if percent is not None:
        return f"{runs} runs show {what} from {percent_words(percent)} on, {why}"
    more = findable_percent(Design(_ENOUGH_RUNS, design.levels, design.rate), spread)
    found = "" if more is None else f": {_ENOUGH_RUNS} runs do from {percent_words(more)} on, {why}"
    return f"single runs cannot show {what}{found}"


def _spread_percent(plan: Plan, known: Sequence[SweepResult]) -> float | None:
    """Return the standard deviation between runs in percent, from the newest usable sweep in `known`.

    Runs of all levels on servers of the plan are pooled on a log scale. Return None if no sweep has enough
    runs for the estimate.
    """
    addresses = {target.url for target in plan.targets}
    for result in sorted(known, key=lambda one: one.started_at, reverse=True):
        levels = [level for target in result.targets if target.url in addresses for level in target.levels]
        runs = list(_logarithms(levels))
        freedom = sum(len(values) - 1 for values in runs)
        squared = sum((len(values) - 1) * variance(values) for values in runs)
        if freedom >= _LEAST_FREEDOM and squared > 0:
            return 100 * math.expm1(math.sqrt(squared / freedom))
    return None


def _logarithms(levels: Sequence[LevelResult]) -> Iterator[list[float]]:
    for level in levels:
        rate = level.sustained_tps or level.decode_tps
        if rate is not None and len(rate.values) >= LEAST_RUNS and min(rate.values) > 0:
            yield [math.log(value) for value in rate.values]
