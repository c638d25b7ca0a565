"""Fits the step times of a group whose backends may differ in speed.

A *line* is a linear fit of step time over batch size. A common line is right only where all backends are
equally fast. Under round-robin a slow backend has a large batch and a fast one a small batch, so a line
through the samples of both describes neither. Therefore each backend is compared with the line of the
backend whose batch sizes vary most, and if the backends differ, each gets its own line. These lines show
how unequal the backends are. They are too inaccurate to compute the throughput of the best split (3 to 7
percent off when tried), so this throughput is not estimated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import compress, pairwise, repeat
from operator import lt
from statistics import median
from types import MappingProxyType

from sparktop.analysis.balance.load_grid import LoadTrack
from sparktop.analysis.balance.step_time import (
    Pair,
    fit_line,
    fit_pairs,
    points_of,
    steady_pairs,
)
from sparktop.model.balance import StepTime
from sparktop.values import dataclass

UNLIKE = 1.3
"""Ratio of step times at the same batch from which on two backends count as unequal.

Equal servers on shared cores reached 1.28; below that, a common line is at most 3 % of throughput off.
"""
_FEWEST_FULL_LOOKS = 8
_FULL_WITHIN = 1.0
_NONE: Mapping[str, StepTime] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class GroupPace:
    """Step time as a linear function ("line") of the batch size: for the group, or for each backend."""

    common: StepTime | None = None
    """The common line where all backends are equal, as far as known; None where it is unknown or they
    differ."""
    own: Mapping[str, StepTime] = field(default_factory=lambda: _NONE)
    """The line of each backend by name, where they differ; without backends whose step time is unknown."""

    @property
    def usual(self) -> StepTime | None:
        """The step-time line that stands for the whole group; None if no line is known.

        A line is step time as a linear function of the batch size. If the backends have lines of their own,
        these are sorted by (growth per request / step time at batch 0), and the middle one is returned.
        """
        ordered = sorted(self.own.values(), key=lambda one: (one.per_request_s / one.base_s, one.base_s))
        return self.common or (ordered[len(ordered) // 2] if ordered else None)


def group_pace(tracks: Sequence[LoadTrack], since_s: float, earlier: GroupPace) -> GroupPace:
    """Fit step time as a linear function of the batch size, for the group or for each backend.

    Samples since `since_s` (monotonic seconds) are used. Each backend gets a function of its own if
    backends differ in speed. Functions that these samples do not determine are copied from `earlier`.
    """
    pairs = {track.name: steady_pairs(track, since_s, len(tracks)) for track in tracks}
    points = {name: points_of(one) for name, one in pairs.items()}
    known = {name: one for name, one in points.items() if one}
    line = _widest_line(known)
    if line is None:
        alike = len(known) == len(points) and _agree(list(known.values()))
        common = fit_pairs(tracks, [*pairs.values()]) if alike else None
        return earlier if common is None else GroupPace(common)
    factors = _factors(known, line)
    if max(factors.values()) <= UNLIKE * min(factors.values()):
        return GroupPace(fit_pairs(tracks, [*pairs.values()]) or earlier.common)
    own = {name: fit_line(one) or _scaled(line, factors[name]) for name, one in known.items()}
    return GroupPace(None, {**earlier.own, **own})


def _widest_line(known: Mapping[str, Sequence[Pair]]) -> StepTime | None:
    """Return the step-time line of the backend whose batch sizes span the widest range.

    None unless the largest batch of this range is at least twice the smallest.
    """
    # On equal spans the order of backends must not decide.
    spans = {name: (one[-1][0] / one[0][0], tuple(one)) for name, one in known.items()}
    widest = max(known, key=spans.__getitem__, default=None)
    return None if widest is None else fit_line(known[widest])


def _factors(known: Mapping[str, Sequence[Pair]], line: StepTime) -> dict[str, float]:
    """Return for each backend the median ratio of its step time to that of `line` at the same batch size."""
    return {name: median(time / _step_s(line, batch) for batch, time in one) for name, one in known.items()}


def _step_s(line: StepTime, batch: float) -> float:
    return line.base_s + line.per_request_s * batch


def _scaled(line: StepTime, factor: float) -> StepTime:
    return StepTime(factor * line.base_s, factor * line.per_request_s, line.pairs)


def _agree(points: Sequence[Sequence[Pair]]) -> bool:
    """Return whether the backends have similar step times per request at similar batch sizes.

    `points` has the (batch size, step time) pairs of each backend. Backends are compared with the next one
    in the order of batch sizes. False where two neighbours have no similar batch size.
    """
    ordered = sorted(points, key=tuple)
    for earlier, later in pairwise(ordered):
        ratios = [
            (time / batch) / (other_time / other_batch)
            for batch, time in earlier
            for other_batch, other_time in later
            if abs(math.log2(batch / other_batch)) <= 1 / 4
        ]
        if not ratios or not 1 / UNLIKE <= median(ratios) <= UNLIKE:
            return False
    return True


def full_slots(track: LoadTrack) -> int | None:
    """Return how many requests the backend can run at once, None if unknown.

    If the backend does not report this number, use the number of requests that ran while others waited,
    provided that it was nearly constant.
    """
    if track.slots is not None or track.waiting is None:
        return track.slots
    full = list(compress(track.running, map(lt, repeat(0.0), track.waiting)))
    if len(full) < _FEWEST_FULL_LOOKS:
        return None
    usual = median(full)
    near = sum(abs(run - usual) <= _FULL_WITHIN for run in full)
    return round(usual) if near >= 0.9 * len(full) and usual >= 1 else None
