"""The order in which a sweep measures its targets, its levels, and the load runs of each level."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.load import Level, LoadKind, LoadPoint, OnAxis
from sparktop.sweep.plan.plan import Order, Plan, SweepTarget


class Load(OnAxis, Struct, frozen=True):
    """The load of one level: prompt length in tokens and its point on the axis of the sweep."""

    prompt_tokens: int
    concurrency: int
    """The most requests in flight."""
    position: LoadPoint | None = None
    """The point on the axis; None: it is the concurrency."""
    depth: int = 0
    """Tokens of context before the prompt."""
    own_prompts: bool = False
    """True if the prompts are the user's own, of which `prompt_tokens` is a guess."""

    @property
    def word(self) -> str:
        """The load as part of an id, unique within a sweep: "128x4", "128x0.5rate"."""
        kind = "" if self.position is None else self.position.kind.value
        return f"{self.prompt_tokens}x{self.point.words}{kind}" + (f"d{self.depth}" if self.depth else "")

    @property
    def label(self) -> str:
        """The load for display, without its prompt length: "c = 4", "c = 4 @ 8,192"."""
        return self.point.label + (f" @ {self.depth:,}" if self.depth else "")


class Stint(Struct, frozen=True):
    """A series of load runs of one level on one target, without runs on other targets in between."""

    target: SweepTarget
    load: Load
    runs: tuple[int, ...] | None
    """Numbers of the runs within the level, from 0; None if the level lasts a fixed time instead."""
    first: bool = True
    """True if the level's first run is in this stint."""
    last: bool = True
    """True if the level's last run is in this stint."""


def loads(plan: Plan) -> list[Load]:
    """Return the loads of a plan: all points of the axis with the first prompt length, then with the next.

    Of several depths, the first comes first with all of them.
    """
    depths = (0,) if plan.whole or not plan.depths else plan.depths
    return [
        load_at(plan, point, length, depth)
        for depth in depths
        for length in plan.lengths
        for point in plan.axis
    ]


def load_at(plan: Plan, point: LoadPoint, prompt_tokens: int, depth: int = 0) -> Load:
    """Return the load of the plan's level at `point` with this prompt length after `depth` tokens."""
    position = None if point.kind is LoadKind.CONCURRENCY else point
    return Load(
        prompt_tokens, plan.concurrency_at(point), position, depth, own_prompts=plan.prompts is not None
    )


def level_of(plan: Plan, target: SweepTarget, load: Load) -> Level:
    """Return the description of the plan's level that puts `load` on `target`."""
    level = plan.level(target, load.concurrency, load.prompt_tokens)
    return replace(level, position=load.position, depth=load.depth)


def stints(plan: Plan, targets: Iterable[SweepTarget] | None = None) -> Iterator[Stint]:
    """Yield every stint (series of consecutive runs of one level on one target) of a plan in order.

    `targets` replaces the targets of the plan, for example to leave out those that cannot be measured.
    """
    chosen = list(plan.targets if targets is None else targets)
    if plan.order is Order.ASCENDING:
        for target in chosen:
            for load in loads(plan):
                yield Stint(target, load, numbers(plan, load))
        return
    for load in loads(plan):
        yield from _interleaved(chosen, load, plan.runs_of(load.concurrency) or plan.runs)


def numbers(plan: Plan, load: Load) -> tuple[int, ...] | None:
    """Return the run numbers of a level, from 0; None if the plan's duration decides how many there are."""
    count = plan.runs_of(load.concurrency)
    return None if count is None else tuple(range(count))


def _interleaved(targets: list[SweepTarget], load: Load, runs: int) -> Iterator[Stint]:
    """Yield the stints of a level with its runs interleaved over the targets, such as A B, B A, A B.

    This order makes slow drift affect all targets alike. Consecutive runs of one target make one stint.
    """
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
