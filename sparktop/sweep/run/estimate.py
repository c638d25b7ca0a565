"""How long a sweep will still take, from the runs that it has made."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from sparktop.model.load import LoadMode
from sparktop.sweep.plan.order import Load, Stint
from sparktop.sweep.plan.plan import Plan

_GROWTH = 0.6
"""A run's time grows about as the concurrency to this power: batching servers from 1 to 64, gpt-oss-120b."""
_STEEPEST = 1.0
"""Twice the requests take twice the time at most: then the server is full."""


@dataclass(frozen=True, slots=True)
class _Known:
    load: Load
    seconds: float


class Estimate:
    """Learns from finished runs and foretells the others."""

    def __init__(self, plan: Plan) -> None:
        """Know nothing but the plan."""
        self._plan = plan
        self._known: dict[tuple[str, Load], list[float]] = {}
        self._pauses: list[float] = []

    def learn_run(self, target: str, load: Load, seconds: float) -> None:
        """Take the time of a run, of a warm-up too."""
        self._known.setdefault((target, load), []).append(seconds)

    def learn_pause(self, seconds: float) -> None:
        """Take the time between the runs of one stint and those of the next."""
        self._pauses.append(seconds)

    def run_s(self, target: str, load: Load) -> float | None:
        """Give what a run will take; None while nothing is known."""
        if self._plan.mode is LoadMode.STEADY and self._plan.duration_s is not None:
            return self._plan.duration_s
        known = self._known.get((target, load))
        if known:
            return sum(known) / len(known)
        own = self._of(target) or self._of(None)
        if not own:
            return None
        nearest = min(own, key=lambda one: abs(math.log(_weight(one.load) / _weight(load))))
        ratio = _weight(load) / _weight(nearest.load)
        return nearest.seconds * float(ratio ** self._growth(own))

    def left_s(self, left: Iterable[Stint], run_elapsed_s: float = 0.0) -> float | None:
        """Give what is left of stints, the present one's remaining runs first; None while nobody knows."""
        total, pause = -run_elapsed_s, self._pause_s()
        for stint in left:
            seconds = self.run_s(stint.target.name, stint.load)
            if seconds is None:
                return None
            if stint.runs is None:
                total += self._plan.duration_s or 0.0
            else:
                total += seconds * len(stint.runs)
            total += pause + (seconds if stint.first and self._plan.warmup else 0.0)
        return max(0.0, total)

    def _of(self, target: str | None) -> list[_Known]:
        return [
            _Known(load, sum(times) / len(times))
            for (name, load), times in self._known.items()
            if target in {None, name} and sum(times) > 0
        ]

    def _growth(self, known: list[_Known]) -> float:
        """Give the exponent between the two largest loads that are known."""
        ordered = sorted(known, key=lambda one: _weight(one.load))[-2:]
        if len(ordered) < 2 or _weight(ordered[0].load) == _weight(ordered[1].load):  # noqa: PLR2004 - a line has two ends
            return _GROWTH
        low, high = ordered
        slope = math.log(high.seconds / low.seconds) / math.log(_weight(high.load) / _weight(low.load))
        return min(_STEEPEST, max(0.0, slope))

    def _pause_s(self) -> float:
        return sum(self._pauses) / len(self._pauses) if self._pauses else 0.0


def _weight(load: Load) -> float:
    """Take prompts in as part of the load: a long one is work, too."""
    return load.concurrency * math.sqrt(load.prompt_tokens)
