"""Joins the results of several sweeps into one, so that all their targets are compared with one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from sparktop.model.load import TokenSource
from sparktop.model.text import free_name
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import LevelSeries, series_of
from sparktop.sweep.result.results import CapacityResult, Holds, PlanResult, SloResult, SweepResult

_MAY_DIFFER = ("duration_s", "requests", "seed", "preset", "arrivals")
"""Parts of plans that are unknown in the joined plan if they differ."""


NamedResult = tuple[str, SweepResult]
"""The stem of the name of a sweep's file, added to target names that several sweeps have; and its result."""


def can_join(first: SweepResult, other: SweepResult) -> bool:
    """Return whether two sweeps put the same kind of load on their targets: same axis, lengths and question.

    Their levels may differ: the comparison has those that they share.
    """
    return _question(first) == _question(other)


def join(named_results: Sequence[NamedResult]) -> SweepResult:
    """Return one result with the targets of all sweeps, which `can_join` found alike, and their comparison.

    A target whose name occurs in several sweeps is called NAME@STEM. Whatever else the sweeps do not have in
    common is unknown in the result, or the worst of all: it is complete only if all of them are.
    """
    names = _new_names(named_results)
    parts = [_with_names(result, new) for (_, result), new in zip(named_results, names, strict=True)]
    if len(parts) == 1:
        return parts[0]
    ends = [part.finished_at for part in parts]
    known_ends = [end for end in ends if end is not None]
    broken = [part for part in parts if part.status != "done"]
    series: list[LevelSeries] = []
    for index, (stem, result) in enumerate(named_results):
        # Another file's server is never "the same server"; behind a router it has its name in its own file.
        source = f"{index} {stem}"
        series += [replace(line, name=names[index][line.name], source=source) for line in series_of(result)]
    doubtful_clients = [part.client for part in parts if part.client.trustworthy is False]
    return parts[0].model_copy(
        update={
            "started_at": min(part.started_at for part in parts),
            "finished_at": max(known_ends) if len(known_ends) == len(ends) else None,
            "sparktop": _joined_text(part.sparktop for part in parts),
            "simulated": any(part.simulated for part in parts),
            "status": broken[0].status if broken else "done",
            "stop_reason": _joined_text(part.stop_reason for part in broken) or None,
            "plan": _join_plans([part.plan for part in parts]),
            "guard": _joined_text((part.guard for part in parts), "; ") or None,
            "client": doubtful_clients[0] if doubtful_clients else parts[0].client,
            "targets": tuple(target for part in parts for target in part.targets),
            "ran": tuple(run for part in parts for run in part.ran),
            "comparison": compare(series) if len(series) > 1 else None,
            "slo": _join_slo(parts),
            "capacity": _join_capacity(parts),
            "joined_from": tuple(stem for stem, _ in named_results),
        }
    )


def _question(result: SweepResult) -> tuple[object, ...]:
    plan, search = result.plan, result.capacity
    return (
        (plan.load, plan.mode, plan.api, plan.pp, plan.tg, plan.depths, plan.bases),
        (None if plan.prompts is None else plan.prompts.digest, plan.request_digest),
        (plan.workload, None if plan.trace is None else (plan.trace.name, plan.trace.speed)),
        None if search is None else (search.load, search.conditions, search.share_percent),
        () if result.slo is None else result.slo.conditions,
    )


def _new_names(named_results: Sequence[NamedResult]) -> list[dict[str, str]]:
    """Return for each sweep the new name of each of its targets, all different."""
    all_names = [target.name for _, result in named_results for target in result.targets]
    taken_names = {name for name in all_names if all_names.count(name) == 1}
    renamed: list[dict[str, str]] = []
    for stem, result in named_results:
        names: dict[str, str] = {}
        for target in result.targets:
            name = target.name
            if all_names.count(name) > 1:
                name = free_name(f"{name}@{stem}", taken_names)
                taken_names.add(name)
            names[target.name] = name
        renamed.append(names)
    return renamed


def _with_names(result: SweepResult, names: Mapping[str, str]) -> SweepResult:
    """Return `result` with the targets' new `names`, without its comparison."""
    slo, capacity = result.slo, result.capacity
    if slo is not None:
        holds = {names.get(name, name): value for name, value in slo.holds_to.items()}
        slo = slo.model_copy(update={"holds_to": holds})
    if capacity is not None:
        answers = {names.get(name, name): value for name, value in capacity.answers.items()}
        capacity = capacity.model_copy(update={"answers": answers})
    return result.model_copy(
        update={
            "targets": tuple(
                value.model_copy(update={"name": names[value.name]}) for value in result.targets
            ),
            "ran": tuple(
                value.model_copy(update={"target": names.get(value.target, value.target)})
                for value in result.ran
            ),
            "plan": result.plan.model_copy(
                update={"targets": tuple(names.get(name, name) for name in result.plan.targets)}
            ),
            "slo": slo,
            "capacity": capacity,
            "comparison": None,
        }
    )


def _join_plans(plans: Sequence[PlanResult]) -> PlanResult:
    """Return the plan of sweeps that `can_join` found alike: all their targets and levels."""
    first = plans[0]
    runs = [plan.runs for plan in plans if plan.runs is not None]
    climbs = [plan.climb_to for plan in plans if plan.climb_to is not None]
    sources = [plan.tokens_from for plan in plans if plan.tokens_from is not None]
    shared = {
        name: getattr(first, name)
        for name in _MAY_DIFFER
        if all(getattr(plan, name) == getattr(first, name) for plan in plans)
    }
    points = {point: words for plan in plans for point, words in zip(plan.axis, plan.points, strict=False)}
    return first.model_copy(
        update={
            **dict.fromkeys(_MAY_DIFFER),
            **shared,
            "targets": tuple(name for plan in plans for name in plan.targets),
            "concurrency": tuple(sorted({level for plan in plans for level in plan.concurrency})),
            "points": tuple(points[point] for point in sorted(points)),
            "runs": min(runs, default=None),
            "climb_to": max(climbs, default=None),
            "more_runs": any(plan.more_runs for plan in plans) or len(set(runs)) > 1,
            "find_knee": any(plan.find_knee for plan in plans),
            "warmup": all(plan.warmup for plan in plans),
            "tokens_from": max(sources, key=list(TokenSource).index, default=None),
        }
    )


def _join_slo(parts: Sequence[SweepResult]) -> SloResult | None:
    results = [result.slo for result in parts if result.slo is not None]
    if not results:
        return None
    holds: dict[str, Holds] = {}
    for result in results:
        holds |= result.holds_to
    return results[0].model_copy(update={"holds_to": holds})


def _join_capacity(parts: Sequence[SweepResult]) -> CapacityResult | None:
    results = [result.capacity for result in parts if result.capacity is not None]
    if not results:
        return None
    answers = {name: answer for result in results for name, answer in result.answers.items()}
    return results[0].model_copy(update={"answers": answers})


def _joined_text(texts: Iterable[str | None], between: str = ", ") -> str:
    return between.join(dict.fromkeys(text for text in texts if text))
