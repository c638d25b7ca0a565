"""Estimate of the remaining time of a sweep, from the runs made so far."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from sparktop.model.load import LoadMode
from sparktop.sweep.plan.order import Load, Stint
from sparktop.sweep.plan.plan import Plan

_GROWTH = 0.6
"""The time of a run grows about as the concurrency to this power (gpt-oss-120b on batching servers, 1 to 64).
"""
_STEEPEST = 1.0
"""Maximum exponent: twice the requests take twice the time when the server is saturated."""


@dataclass(frozen=True, slots=True)
class _MeanRun:
    load: Load
    seconds: float


class Estimate:
    """Learn from finished runs and estimate the time of the others."""

    def __init__(self, plan: Plan) -> None:
        """Start with the plan only."""
        self._plan = plan
        self._known: dict[tuple[str, Load], list[float]] = {}
        self._pauses: list[float] = []

    def learn_run(self, target: str, load: Load, seconds: float) -> None:
        """Add the time of a run in seconds, warm-up runs included."""
        self._known.setdefault((target, load), []).append(seconds)

    def learn_pause(self, seconds: float) -> None:
        """Add the time in seconds between the runs of one stint and those of the next."""
        self._pauses.append(seconds)

    def run_s(self, target: str, load: Load) -> float | None:
        """Return the expected seconds of a run; None while nothing is known."""
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
        """Return the expected seconds of the remaining stints; None while nothing is known.

        `left` starts with the remaining runs of the present stint; `run_elapsed_s` of the present run are
        over.
        """
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

    def _of(self, target: str | None) -> list[_MeanRun]:
        return [
            _MeanRun(load, sum(times) / len(times))
            for (name, load), times in self._known.items()
            if target in {None, name} and sum(times) > 0
        ]

    def _growth(self, known: list[_MeanRun]) -> float:
        """Return the exponent of growth between the two largest known loads."""
        ordered = sorted(known, key=lambda one: _weight(one.load))[-2:]
        if len(ordered) < 2 or _weight(ordered[0].load) == _weight(ordered[1].load):  # noqa: PLR2004 - a line has two ends
            return _GROWTH
        low, high = ordered
        slope = math.log(high.seconds / low.seconds) / math.log(_weight(high.load) / _weight(low.load))
        return min(_STEEPEST, max(0.0, slope))

    def _pause_s(self) -> float:
        return sum(self._pauses) / len(self._pauses) if self._pauses else 0.0


def _weight(load: Load) -> float:
    """Return the weight of a load: concurrency times the root of the prompt length."""
    return load.concurrency * math.sqrt(load.prompt_tokens)
