"""The answer of a capacity search as its result file stores it, and what ran out first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from sparktop.model.limit import LimitKind
from sparktop.sweep.plan.plan import Capacity
from sparktop.sweep.plan.slo import words_of
from sparktop.sweep.result.level import LIMITS_OF_STEPS, common_cause, with_common_cause
from sparktop.sweep.result.results import (
    CapacityAnswer,
    CapacityResult,
    ConditionResult,
    Drift,
    LevelResult,
    ProbeResult,
    RanOut,
)
from sparktop.sweep.run.capacity.judgement import Judged, Shares
from sparktop.sweep.run.capacity.search import CapacitySearch
from sparktop.sweep.run.slo.judgement import Verdict

_PERCENT = 100.0
_LEAST_REQUESTS = 5
"""Requests in each of two runs from which on their shares are compared."""
_NO_REASON = {LimitKind.UNKNOWN.value, LimitKind.CLIENT.value, LimitKind.CLIENT_OR_ROUTER.value}
"""Limits that do not say what the server needs more of."""


def capacity_result(capacity: Capacity, answers: dict[str, CapacityAnswer]) -> CapacityResult:
    """Return what a search looked for and its answers by target."""
    return CapacityResult(
        load=capacity.kind,
        conditions=tuple(words_of(one) for one in capacity.conditions),
        share_percent=_PERCENT * capacity.share,
        limits=capacity.limits,
        most=capacity.most,
        answers=answers,
    )


def capacity_answer(
    search: CapacitySearch,
    levels: dict[float, LevelResult],
    *,
    complete: bool,
    drift: Drift | None = None,
) -> CapacityAnswer:
    """Return the answer of a search for one target; `levels` has the result of each level by its load.

    Of a server that changed meanwhile nothing is certain.
    """
    holds, fails = search.holds, search.fails
    best = None if holds is None else levels.get(holds)
    seen = fails if fails is not None else holds
    level = None if seen is None else levels.get(seen)
    return CapacityAnswer(
        holds=0.0 if holds is None and fails is not None and complete else holds,
        fails=fails,
        at_least=search.at_least,
        complete=complete,
        interval=search.interval if drift is None else (None, None),
        drift=drift,
        moved_from=search.moved_from if search.moved_from != holds else None,
        ran_out=None if level is None or seen is None else _ran_out(levels, holds, seen),
        output_tps=None if best is None or best.output_tps is None else best.output_tps.mean,
        probes=tuple(
            _probe(value, one, search, holds=fails is None or value < fails, steady=drift is None)
            for value, one in search.judged.items()
        ),
    )


class JudgedRun(Struct, frozen=True):
    """One run of a level, judged alone."""

    judged: Judged
    at: datetime
    """When it ended."""


def drift_of(runs: Mapping[float, Sequence[JudgedRun]]) -> Drift | None:
    """Return how a server changed between the first and the last run of a level; None if none is shown.

    `runs` are those of each level by its load, in order. A change is shown if the 95 % intervals of the
    shares of requests that met a condition do not overlap.
    """
    for value, (first, *later) in runs.items():
        for last in later[-1:]:
            for before, after in zip(first.judged.shares, last.judged.shares, strict=False):
                enough = before.condition is not None and min(before.count, after.count) >= _LEAST_REQUESTS
                if enough and (after.high < before.low or before.high < after.low):
                    return Drift(
                        value=value,
                        condition=condition_result(before),
                        later=condition_result(after),
                        first_at=first.at,
                        last_at=last.at,
                    )
    return None


def _ran_out(levels: dict[float, LevelResult], holds: float | None, seen: float) -> RanOut:
    """Return what held the servers back at the load `seen`, and what else at the border, by the levels."""
    cause, own = common_cause(levels.values()), levels[seen].limited_by
    evident = seen
    if cause is not None and own is not None and own.kind in LIMITS_OF_STEPS:
        alike = [
            at for at, one in levels.items() if one.limited_by is not None and one.limited_by.kind == cause
        ]
        evident = min(alike, key=lambda at: (abs(at - seen), at))
    found = ran_out(levels[evident], evident)
    elsewhere: dict[str, tuple[float, ...]] = {}
    for value, level in sorted(with_common_cause(levels).items()):
        kind = None if level.limited_by is None else level.limited_by.kind
        if (value == holds or value > seen) and kind not in {None, found.kind, *_NO_REASON}:
            elsewhere[kind or ""] = (*elsewhere.get(kind or "", ()), value)
    return found.model_copy(update={"elsewhere": elsewhere}) if found.kind is not None else found


def ran_out(level: LevelResult, value: float) -> RanOut:
    """Return what held the servers back at the level with the load `value`, with its evidence."""
    limit, server = level.limited_by, level.server
    figures = []
    if server is not None:
        kv = (
            server.kv_fullest_percent
            if server.kv_fullest_percent is not None
            else server.kv_cache_max_percent
        )
        if kv is not None:
            figures.append(f"KV cache {kv:.0f} % used")
        if server.preemptions:
            count = f"{server.preemptions:.0f}"
            figures.append(f"{count} preemption{'' if count == '1' else 's'}")
        if server.waiting_max:
            count = f"{server.waiting_max:.0f}"
            figures.append(f"up to {count} request{'' if count == '1' else 's'} waited")
    if limit is not None and limit.kind != LimitKind.UNKNOWN.value:
        evidence = "; ".join([limit.reason, *figures])
        # What more requests would do, the hint on steps, is what the search has measured.
        hint = None if limit.kind in LIMITS_OF_STEPS else limit.hint
        return RanOut(kind=limit.kind, evidence=evidence, hint=hint, server=limit.server, value=value)
    if limit is not None:
        evidence = "; ".join([limit.reason, *figures])
    else:
        missing = "the servers report no figures" if not figures else "no limit of the servers was reached"
        evidence = "; ".join([missing, *figures])
    return RanOut(kind=None, evidence=evidence, value=value)


def _probe(value: float, judged: Judged, search: CapacitySearch, *, holds: bool, steady: bool) -> ProbeResult:
    """Return a level as the result file stores it.

    It is certain by all levels together only if its own requests do not say the opposite.
    """
    sure = search.certainty(value) is (Verdict.HOLDS if holds else Verdict.FAILS)
    own = judged.holds is holds or not any(shares.count for shares in judged.shares)
    return ProbeResult(
        value=value,
        runs=search.runs[value],
        holds=holds,
        certain=sure and own and steady,
        fails_percent=round(_PERCENT * search.likely.fails(value), 1),
        trouble=judged.trouble or None,
        requests=judged.requests,
        conditions=tuple(map(condition_result, judged.shares)),
    )


def condition_result(shares: Shares) -> ConditionResult:
    """Return how many requests met a condition as a result file stores it."""
    condition = shares.condition
    return ConditionResult(
        condition="all" if condition is None else words_of(condition),
        figure=None if condition is None else condition.figure,
        limit=None if condition is None else condition.limit,
        at_least=condition is not None and condition.at_least,
        value=shares.value,
        needed_percent=_PERCENT * shares.needed,
        met_percent=_PERCENT * shares.share if shares.count else None,
        interval_percent=(_PERCENT * shares.low, _PERCENT * shares.high) if shares.count else None,
        requests=shares.count,
    )
