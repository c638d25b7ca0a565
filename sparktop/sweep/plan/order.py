"""The order in which a sweep runs its targets, levels and runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from sparktop.sweep.plan.plan import Order, Plan, SweepTarget


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one level: prompt length in tokens and number of concurrent requests."""

    prompt_tokens: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class Stint:
    """Consecutive runs of one level on one target."""

    target: SweepTarget
    load: Load
    runs: tuple[int, ...] | None
    """Run numbers within the level, from 0; None when the level lasts a fixed time instead of a number of
    runs."""
    first: bool = True
    """True when the level's first run is in this stint."""
    last: bool = True
    """True when the level's last run is in this stint."""


def loads(plan: Plan) -> list[Load]:
    """Return the loads of a plan in order: all concurrencies for the first prompt length, then the next."""
    return [Load(length, concurrency) for length in plan.lengths for concurrency in plan.concurrency]


def stints(plan: Plan, targets: Iterable[SweepTarget] | None = None) -> Iterator[Stint]:
    """Yield every stint in order; `targets` replaces those of the plan where some have dropped out."""
    chosen = list(plan.targets if targets is None else targets)
    if plan.order is Order.ASCENDING:
        for target in chosen:
            for load in loads(plan):
                yield Stint(target, load, numbers(plan, load))
        return
    for load in loads(plan):
        yield from _interleaved(chosen, load, plan.runs_of(load.concurrency) or plan.runs)


def numbers(plan: Plan, load: Load) -> tuple[int, ...] | None:
    """Return the run numbers of a level; None when its time alone decides how many runs there are."""
    count = plan.runs_of(load.concurrency)
    return None if count is None else tuple(range(count))


def _interleaved(targets: list[SweepTarget], load: Load, runs: int) -> Iterator[Stint]:
    """Yield the runs of a load in the order A B B A A B …, so that slow drift affects all targets alike."""
    turns = [
        (target, run)
        for run in range(runs)
        for target in (targets if run % 2 == 0 else list(reversed(targets)))
    ]
    for name, group in groupby(turns, key=lambda turn: turn[0].name):
        group_turns = list(group)
        chosen = tuple(run for _, run in group_turns)
        target = next(one for one in targets if one.name == name)
        yield Stint(target, load, chosen, first=0 in chosen, last=runs - 1 in chosen)
