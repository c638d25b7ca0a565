"""Joins the results of several sweeps into one, so that all their targets are compared with one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from msgspec.structs import replace

from sparktop.model.load import TokenSource
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import series_of
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


def join(named: Sequence[NamedResult]) -> SweepResult:
    """Return one result with the targets of all sweeps, which `can_join` found alike, and their comparison.

    A target whose name occurs in several sweeps is called NAME@STEM. Whatever else the sweeps do not have in
    common is unknown in the result, or the worst of all: it is complete only if all of them are.
    """
    names = _new_names(named)
    parts = [_with_names(result, new) for (_, result), new in zip(named, names, strict=True)]
    if len(parts) == 1:
        return parts[0]
    ends = [one.finished_at for one in parts]
    known = [end for end in ends if end is not None]
    broken = [one for one in parts if one.status != "done"]
    series = [
        # Another file's server is never "the same server"; behind a router it has its name in its own file.
        replace(line, name=names[index][line.name], source=f"{index} {stem}")
        for index, (stem, result) in enumerate(named)
        for line in series_of(result)
    ]
    return parts[0].model_copy(
        update={
            "started_at": min(one.started_at for one in parts),
            "finished_at": max(known) if len(known) == len(ends) else None,
            "sparktop": _joined_text(one.sparktop for one in parts),
            "simulated": any(one.simulated for one in parts),
            "status": broken[0].status if broken else "done",
            "stop_reason": _joined_text(one.stop_reason for one in broken) or None,
            "plan": _join_plans([one.plan for one in parts]),
            "guard": _joined_text((one.guard for one in parts), "; ") or None,
            "client": next((one.client for one in parts if one.client.trustworthy is False), parts[0].client),
            "targets": tuple(target for one in parts for target in one.targets),
            "ran": tuple(run for one in parts for run in one.ran),
            "comparison": compare(series) if len(series) > 1 else None,
            "slo": _join_slo(parts),
            "capacity": _join_capacity(parts),
            "joined_from": tuple(stem for stem, _ in named),
        }
    )


def _question(result: SweepResult) -> tuple[object, ...]:
    plan, found = result.plan, result.capacity
    return (
        (plan.load, plan.mode, plan.api, plan.pp, plan.tg, plan.depths, plan.bases),
        (None if plan.prompts is None else plan.prompts.digest, plan.request_digest),
        (plan.workload, None if plan.trace is None else (plan.trace.name, plan.trace.speed)),
        None if found is None else (found.load, found.conditions, found.share_percent),
        () if result.slo is None else result.slo.conditions,
    )


def _new_names(named: Sequence[NamedResult]) -> list[dict[str, str]]:
    """Return for each sweep the new name of each of its targets, all different."""
    listed = [target.name for _, result in named for target in result.targets]
    taken = {name for name in listed if listed.count(name) == 1}
    found: list[dict[str, str]] = []
    for stem, result in named:
        names: dict[str, str] = {}
        for target in result.targets:
            name = target.name
            if listed.count(name) > 1:
                wish = f"{name}@{stem}"
                name = next(
                    free for n in count(1) if (free := wish if n == 1 else f"{wish}-{n}") not in taken
                )
                taken.add(name)
            names[target.name] = name
        found.append(names)
    return found


def _with_names(result: SweepResult, names: Mapping[str, str]) -> SweepResult:
    """Return `result` with the targets' new `names`, without its comparison."""
    slo, capacity = result.slo, result.capacity
    if slo is not None:
        holds = {names.get(name, name): one for name, one in slo.holds_to.items()}
        slo = slo.model_copy(update={"holds_to": holds})
    if capacity is not None:
        answers = {names.get(name, name): one for name, one in capacity.answers.items()}
        capacity = capacity.model_copy(update={"answers": answers})
    return result.model_copy(
        update={
            "targets": tuple(one.model_copy(update={"name": names[one.name]}) for one in result.targets),
            "ran": tuple(
                one.model_copy(update={"target": names.get(one.target, one.target)}) for one in result.ran
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
    runs = [one.runs for one in plans if one.runs is not None]
    climbs = [one.climb_to for one in plans if one.climb_to is not None]
    sources = [one.tokens_from for one in plans if one.tokens_from is not None]
    shared = {
        name: getattr(first, name)
        for name in _MAY_DIFFER
        if all(getattr(one, name) == getattr(first, name) for one in plans)
    }
    points = {point: words for one in plans for point, words in zip(one.axis, one.points, strict=False)}
    return first.model_copy(
        update={
            **dict.fromkeys(_MAY_DIFFER),
            **shared,
            "targets": tuple(name for one in plans for name in one.targets),
            "concurrency": tuple(sorted({level for one in plans for level in one.concurrency})),
            "points": tuple(points[point] for point in sorted(points)),
            "runs": min(runs, default=None),
            "climb_to": max(climbs, default=None),
            "more_runs": any(one.more_runs for one in plans) or len(set(runs)) > 1,
            "find_knee": any(one.find_knee for one in plans),
            "warmup": all(one.warmup for one in plans),
            "tokens_from": max(sources, key=list(TokenSource).index, default=None),
        }
    )


def _join_slo(parts: Sequence[SweepResult]) -> SloResult | None:
    known = [one.slo for one in parts if one.slo is not None]
    if not known:
        return None
    holds: dict[str, Holds] = {}
    for one in known:
        holds |= one.holds_to
    return known[0].model_copy(update={"holds_to": holds})


def _join_capacity(parts: Sequence[SweepResult]) -> CapacityResult | None:
    known = [one.capacity for one in parts if one.capacity is not None]
    if not known:
        return None
    answers = {name: answer for one in known for name, answer in one.answers.items()}
    return known[0].model_copy(update={"answers": answers})


def _joined_text(texts: Iterable[str | None], between: str = ", ") -> str:
    return between.join(dict.fromkeys(text for text in texts if text))
