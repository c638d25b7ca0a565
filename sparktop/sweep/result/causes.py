"""One cause for the levels of a search that seem limited by reading memory and by computing in turns.

A decode step is split into a fixed and a growing part by a regression, which varies from level to level. As
the load grows, computing takes over from reading at most once, so that kinds that alternate are noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise

from sparktop.model.limit import LimitKind
from sparktop.sweep.result.results import LevelResult, LimitSide, TargetResult

LIMITS_OF_STEPS = (LimitKind.BANDWIDTH.value, LimitKind.DECODE.value)
"""Limits of decode steps, which the same regression separates."""


def common_cause(levels: Iterable[LevelResult]) -> str | None:
    """Return the limit of steps that most levels have; None unless such limits change more than once."""
    ordered = sorted(levels, key=lambda level: level.point.value)
    kinds = [
        one.limited_by.kind
        for one in ordered
        if one.limited_by is not None and one.limited_by.kind in LIMITS_OF_STEPS
    ]
    if sum(one != other for one, other in pairwise(kinds)) <= 1:
        return None
    return Counter(kinds).most_common(1)[0][0]


def with_common_cause(levels: Mapping[float, LevelResult]) -> dict[float, LevelResult]:
    """Return the levels of a search by load, those limited by steps with the cause of most of them."""
    cause = common_cause(levels.values())
    return {value: level if cause is None else _limited_by(level, cause) for value, level in levels.items()}


def with_common_causes(targets: Iterable[TargetResult]) -> tuple[TargetResult, ...]:
    """Return the targets of a search with one cause for the levels of each."""
    changed = []
    for target in targets:
        cause = common_cause(target.levels)
        levels = (one if cause is None else _limited_by(one, cause) for one in target.levels)
        changed.append(target.model_copy(update={"levels": tuple(levels)}))
    return tuple(changed)


def _limited_by(level: LevelResult, cause: str) -> LevelResult:
    own = level.limited_by
    if own is None or own.kind not in LIMITS_OF_STEPS or own.kind == cause:
        return level
    reason = f"as at most levels; by its own figures {own.kind}, within noise: {own.reason}"
    return level.model_copy(update={"limited_by": LimitSide(kind=cause, reason=reason, server=own.server)})
