"""The progress of a running sweep as one share that never falls, even if the sweep adds levels as it goes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from sparktop.model.sweep_view import LevelKey, PlannedLevel
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.results import SweepResult


class SweepProgress(Struct, eq=False):
    """The share of a sweep that is done, and the concurrency that it may still go on to."""

    _shown: float = 0.0
    """The largest share so far."""

    def share(
        self, plan: Plan, levels: Sequence[PlannedLevel], present: LevelKey | None, result: SweepResult | None
    ) -> float | None:
        """Return the completed share (0 to 1) of all levels, including those that may still be added.

        It never falls. Return None if the share of a level is unknown, or if the sweep adds no levels.
        """
        known = [level.share for level in levels if level.share is not None]
        if plan.climb_to is None or not levels or len(known) < len(levels):
            return None
        series = {(level.key.target, level.key.prompt_tokens) for level in levels}
        more = sum(_levels_to_come(plan, levels, *one, present, result) for one in series)
        self._shown = max(self._shown, sum(known) / (len(levels) + more))
        return self._shown


def may_go_on_to(
    plan: Plan, levels: Sequence[PlannedLevel], present: LevelKey | None, result: SweepResult | None
) -> int | None:
    """Return the highest concurrency to which the sweep may go on from its present level; None if to none."""
    if present is None:
        return None
    most = _most(plan, present.target, result)
    among = _concurrencies(levels, present.target, present.prompt_tokens)
    mine = [
        one
        for one in levels
        if (one.key.target, one.key.prompt_tokens) == (present.target, present.prompt_tokens)
    ]
    # Below a level that is done, the sweep only looks for the best one between others.
    grows = most is not None and among and max(among) < most and not _is_between(present.concurrency, mine)
    return most if grows else None


def _levels_to_come(
    plan: Plan,
    levels: Sequence[PlannedLevel],
    target: str,
    prompt_tokens: int | None,
    present: LevelKey | None,
    result: SweepResult | None,
) -> int:
    """Return how often the highest concurrency of a target can still be doubled; 0 once it grows no more."""
    most = _most(plan, target, result)
    among = _concurrencies(levels, target, prompt_tokens)
    if most is None or not among or max(among) >= most:
        return 0
    mine = [one for one in levels if (one.key.target, one.key.prompt_tokens) == (target, prompt_tokens)]
    elsewhere = present is not None and (present.target, present.prompt_tokens) != (target, prompt_tokens)
    if all(one.share == 1.0 for one in mine) and elsewhere:
        return 0
    if not elsewhere and present is not None and _is_between(present.concurrency, mine):
        return 0
    return math.ceil(math.log2(most / max(among)))


def _is_between(concurrency: int, levels: Sequence[PlannedLevel]) -> bool:
    """Return whether a level at a higher `concurrency` is done already."""
    return any(one.key.concurrency > concurrency and one.share == 1.0 for one in levels)


def _most(plan: Plan, target: str, result: SweepResult | None) -> int | None:
    """Return the highest concurrency that a plan allows on a target, at most the slots of its servers."""
    found = None if result is None else result.target(target)
    slots = None if found is None else found.slots
    return None if plan.climb_to is None else min(plan.climb_to, slots or plan.climb_to)


def _concurrencies(levels: Sequence[PlannedLevel], target: str, prompt_tokens: int | None) -> list[int]:
    return [
        level.key.concurrency
        for level in levels
        if (level.key.target, level.key.prompt_tokens) == (target, prompt_tokens)
    ]
