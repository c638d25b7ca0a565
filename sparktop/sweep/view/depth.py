"""What context costs: the time of an output token and the conditions it still meets, against the depth."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from msgspec import Struct

from sparktop.model.load import LoadPoint
from sparktop.sweep.plan.slo import STREAM, parts_of, plain_words
from sparktop.sweep.result.results import LevelResult, SweepResult, TargetResult
from sparktop.sweep.terms.definitions import RATES

PER_TOKENS = 10_000
"""The time that context adds to an output token is stated for this many tokens of context."""
_CONDITION = re.compile(r"(?P<figure>[a-z0-9_]+) (?P<sign>[≥≤]) (?P<limit>[0-9.e+]+)")


class DepthCurve(Struct, frozen=True):
    """The levels of a target that differ in depth alone."""

    target: str
    point: LoadPoint
    prompt_tokens: int | None
    levels: tuple[LevelResult, ...]
    """At least two, ascending by depth."""
    added_ms: float | None
    """Milliseconds that `PER_TOKENS` tokens of context add to an output token (a straight line through all
    depths); None if unknown."""


def depth_curves(result: SweepResult) -> tuple[DepthCurve, ...]:
    """Return the curves over depth of all targets; empty for a sweep without depth."""
    return tuple(curve for target in result.targets for curve in _of_target(target))


def _of_target(target: TargetResult) -> Iterator[DepthCurve]:
    measured = [one for one in target.levels if one.error is None and one.requests.ok]
    if not any(one.depth for one in measured):
        return
    groups: dict[tuple[LoadPoint, int | None], list[LevelResult]] = {}
    for level in sorted(measured, key=lambda one: (one.point, one.depth)):
        groups.setdefault((level.point, level.pp), []).append(level)
    for (point, pp), levels in groups.items():
        if len(levels) > 1:
            yield DepthCurve(target.name, point, pp, tuple(levels), _added_ms(levels))


def _added_ms(levels: Sequence[LevelResult]) -> float | None:
    """Return the slope of the TPOT over depth in milliseconds for `PER_TOKENS` tokens."""
    points = [(one.depth, one.tpot_ms.mean) for one in levels if one.tpot_ms is not None]
    if len(points) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    at, value = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - at) ** 2 for x, _ in points)
    return PER_TOKENS * sum((x - at) * (y - value) for x, y in points) / spread


def depth_sentences(result: SweepResult, name: Callable[[str], str] = str) -> Iterator[str]:
    """Yield sentences on what context costs, the most important first; `name` escapes targets' names."""
    curves = depth_curves(result)
    several = len({curve.target for curve in curves}) > 1
    for curve in curves:
        where = (f"{name(curve.target)} " if several else "") + f"at {curve.point.label}"
        first, last = curve.levels[0], curve.levels[-1]
        if curve.added_ms is not None and first.tpot_ms is not None and last.tpot_ms is not None:
            ends = (
                f"({first.tpot_ms.mean:.3g} ms at a depth of {first.depth:,}, {last.tpot_ms.mean:.3g} ms at "
                f"{last.depth:,})"
            )
            if curve.added_ms > 0:
                yield (
                    f"{where}, {PER_TOKENS:,} tokens of context add {curve.added_ms:.3g} ms to each output "
                    f"token {ends}"
                )
            else:
                yield f"{where}, context adds nothing measurable to an output token {ends}"
        for condition in result.plan.depth_slo:
            yield f"{where}, {plain_words(condition)} {_holds_to(curve, condition)}"


def _holds_to(curve: DepthCurve, condition: str) -> str:
    """Return up to which depth a condition such as "stream_tps ≥ 15" holds, as the end of a sentence."""
    found = _CONDITION.fullmatch(condition)
    if found is None:
        return "cannot be judged"
    limit, at_least = float(found["limit"]), found["sign"] == "≥"
    values = [(one.depth, _value(one, found["figure"])) for one in curve.levels]
    points = [(depth, value) for depth, value in values if value is not None]
    if not points:
        return "cannot be judged: the figure is unknown"
    holds = [value >= limit if at_least else value <= limit for _, value in points]
    if not holds[0]:
        return f"does not hold even at a depth of {points[0][0]:,} ({points[0][1]:.4g})"
    for (before, good), (after, bad), is_held in zip(points, points[1:], holds[1:], strict=False):
        if not is_held:
            depth = before + (after - before) * (limit - good) / (bad - good)
            about = round(depth, -2) if depth >= PER_TOKENS else round(depth)
            return (
                f"holds to a depth of about {about:,.0f} ({good:.4g} at {before:,}, {bad:.4g} at {after:,})"
            )
    return f"holds to a depth of {points[-1][0]:,} at least ({points[-1][1]:.4g})"


def _value(level: LevelResult, figure: str) -> float | None:
    quantity, part = parts_of(figure)
    if quantity in RATES:
        rate = level.rate(quantity)
        return None if rate is None else rate.mean
    if quantity == STREAM:
        return None if level.stream_tps is None else getattr(level.stream_tps, part)
    latency = level.latency(f"{quantity}_ms")
    return None if latency is None else getattr(latency, part)
