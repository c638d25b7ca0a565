"""In which order levels, targets and runs follow one another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from sparktop.sweep.plan.plan import Order, Plan, SweepTarget


@dataclass(frozen=True, slots=True)
class Load:
    """What one level puts on each target."""

    prompt_tokens: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class Stint:
    """Runs of one level of one target that follow one another without a break."""

    target: SweepTarget
    load: Load
    runs: tuple[int, ...] | None
    """Their numbers in the level; None: as many as the time allows."""
    first: bool = True
    """The level begins with it."""
    last: bool = True
    """The level ends with it."""


def loads(plan: Plan) -> list[Load]:
    """Give the loads of a plan in order: every concurrency under the first prompt length, and so on."""
    return [Load(length, concurrency) for length in plan.lengths for concurrency in plan.concurrency]


def stints(plan: Plan, targets: Iterable[SweepTarget] | None = None) -> Iterator[Stint]:
    """Give all that is to be done, in order; `targets` stand for the plan's where some dropped out."""
    chosen = list(plan.targets if targets is None else targets)
    if plan.order is Order.ASCENDING:
        for target in chosen:
            for load in loads(plan):
                yield Stint(target, load, numbers(plan, load))
        return
    for load in loads(plan):
        yield from _interleaved(chosen, load, plan.runs_of(load.concurrency) or plan.runs)


def numbers(plan: Plan, load: Load) -> tuple[int, ...] | None:
    """Give the numbers of a level's runs."""
    count = plan.runs_of(load.concurrency)
    return None if count is None else tuple(range(count))


def _interleaved(targets: list[SweepTarget], load: Load, runs: int) -> Iterator[Stint]:
    """A B B A A B …: each second round goes back, so that what drifts is on nobody's side."""
    turns = [
        (target, run)
        for run in range(runs)
        for target in (targets if run % 2 == 0 else list(reversed(targets)))
    ]
    for name, group in groupby(turns, key=lambda turn: turn[0].name):
        together = list(group)
        chosen = tuple(run for _, run in together)
        target = next(one for one in targets if one.name == name)
        yield Stint(target, load, chosen, first=0 in chosen, last=runs - 1 in chosen)
