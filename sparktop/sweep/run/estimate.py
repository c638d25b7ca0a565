"""Estimate of the remaining time of a sweep, from the durations of the load runs that have ended."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.load import LoadMode
from sparktop.model.time_range import TimeRange
from sparktop.sweep.plan.order import Load, Stint, numbers
from sparktop.sweep.plan.plan import ENOUGH_S, Plan
from sparktop.sweep.run.conversations.level import ramp_s
from sparktop.sweep.run.open_loop.arrivals import warm_up_s

_GROWTH = 0.6
"""The duration of a load run grows roughly as the concurrency to this power (measured with gpt-oss-120b on
batching servers, concurrency 1 to 64). Used until two different loads of the sweep have been measured."""
MOST_RUNS = 200
"""Maximum number of runs of a level that gets more runs than planned because they are short."""
_STEEPEST = 1.0
"""Maximum exponent of this growth: on a saturated server twice the requests take twice the time."""


LEAST, MOST = 0.8, 1.25
"""Factors from the expected duration to the ends of its range (measured with simulated servers)."""
_LEAST_GROWTH = 0.5
"""Assumed growth to loads not yet measured for the upper end of a range: small batches may grow less."""
_SATURATED, _MOST_UNSURE = 0.93, 2
"""Where durations grow with this exponent or more, token rates rise by less than 5 % when the concurrency is
doubled: the sweep adds this many levels at most, see `climb`."""
GAP = 2
"""Ratio of two neighbouring concurrencies from which on the sweep may add a level between them."""


class _MeanRun(Struct, frozen=True):
    load: Load
    seconds: float


class Estimate:
    """Estimates the remaining time of a sweep from the durations of the load runs that have ended."""

    def __init__(self, plan: Plan) -> None:
        """Start with the plan and without any measured duration."""
        self._plan = plan
        self._known: dict[tuple[str, Load], list[float]] = {}
        self._pauses: list[float] = []
        self.most: Mapping[str, int] = {}
        """Highest concurrency of each target to which the sweep may go on; empty if it adds no levels."""

    def learn_run(self, target: str, load: Load, seconds: float) -> None:
        """Record that one load run (measured or warm-up) of `load` on `target` took `seconds`."""
        self._known.setdefault((target, load), []).append(seconds)

    def learn_pause(self, seconds: float) -> None:
        """Record how many seconds the servers took to become idle after a series of runs of one level."""
        self._pauses.append(seconds)

    def run_s(self, target: str, load: Load, least_growth: float = 0.0) -> float | None:
        """Return the expected duration of one load run in seconds; None if it cannot be estimated yet.

        If the plan fixes the duration of a run, return it. Otherwise return the mean duration of the ended
        runs of `load` on `target`. If there are none, scale the mean duration of the most similar load that
        was run. The duration grows with the load at least with the exponent `least_growth`, and in proportion
        to it above `most`, where requests wait.
        """
        if self._plan.mode is LoadMode.STEADY and self._plan.duration_s is not None:
            return self._plan.duration_s
        if self._plan.mode is LoadMode.OPEN and (target, load) not in self._known:
            return warm_up_s(self._plan) + (self._plan.duration_s or 0.0)
        if self._plan.mode is LoadMode.AGENTS and (target, load) not in self._known:
            return ramp_s(self._plan) + (self._plan.duration_s or 0.0)
        known = self._known.get((target, load))
        if known:
            return sum(known) / len(known)
        own = self._of(target) or self._of(None)
        return self._scaled_s(own, load, self.most.get(target, load.concurrency), least_growth)

    def _scaled_s(self, own: list[_MeanRun], load: Load, most: int, least_growth: float) -> float | None:
        """Return the seconds of the most similar load in `own`, scaled to `load`; above `most`, they wait."""
        if not own:
            return None
        nearest = min(own, key=lambda one: abs(math.log(_weight(one.load) / _weight(load))))
        growth = max(least_growth if load.concurrency > nearest.load.concurrency else 0.0, self._growth(own))
        ratio = _weight(_within(load, most)) / _weight(_within(nearest.load, most))
        waits = max(1.0, load.concurrency / most) / max(1.0, nearest.load.concurrency / most)
        return nearest.seconds * waits * float(ratio**growth)

    def runs_of(self, stint: Stint) -> int | None:
        """Return the expected number of runs of a stint (a series of consecutive runs of one level).

        This is the planned number, or more if the plan adds runs to short levels. None if only the duration
        limits the stint.
        """
        if stint.runs is None:
            return None
        seconds = self.run_s(stint.target.name, stint.load) if self._plan.more_runs else None
        return max(len(stint.runs), min(MOST_RUNS, math.ceil(ENOUGH_S / seconds)) if seconds else 0)

    def sweep_s(self, todo: Sequence[Stint], made: int, least_growth: float = 0.0) -> float | None:
        """Return the expected seconds until all stints in `todo` have ended; None if empty or unknown.

        A stint is a series of consecutive runs of one level. The first of `todo` is the current stint, of
        which `made` runs have ended and the next run is about to begin; -1: its warm-up is about to begin.
        """
        if not todo:
            return None
        present, *others = (self._expected(one) for one in todo)
        runs = None if present.runs is None else present.runs[max(0, made) :]
        left = [replace(present, runs=runs, first=present.first and made < 0), *others]
        return self.left_s(left, least_growth=least_growth)

    def range_s(self, todo: Sequence[Stint], made: int) -> TimeRange | None:
        """Return the range of the seconds until the sweep ends; None if `todo` is empty or nothing is known.

        The parameters are those of `sweep_s`. The upper end includes the levels that the sweep may add.
        """
        least = self.sweep_s(todo, made)
        most = self.sweep_s([*todo, *self._to_come(todo)], made, _LEAST_GROWTH)
        return None if least is None or most is None else TimeRange(LEAST * least, MOST * most)

    def _to_come(self, todo: Sequence[Stint]) -> Iterator[Stint]:
        """Yield the stints that may follow those in `todo`: higher concurrencies, and one between two."""
        series: dict[tuple[str, int], list[Stint]] = {}
        for one in todo:
            series.setdefault((one.target.name, one.load.prompt_tokens), []).append(one)
        for (name, length), stints in series.items():
            known = {
                load.concurrency
                for target, load in self._known
                if (target, load.prompt_tokens) == (name, length)
            }
            coming = {one.load.concurrency for one in stints}
            top = max(known | coming)
            most = self.most.get(name, 0)
            if max(coming) < top or not most:
                continue  # the sweep measures a level between two others, its last one
            saturated = self._growth(self._of(name)) >= _SATURATED
            higher = climbs(top, most)[: _MOST_UNSURE if saturated else None]
            for at in (*between([*known, *coming]), *higher):
                load = Load(length, at)
                yield Stint(stints[0].target, load, numbers(self._plan, load))

    def _expected(self, stint: Stint) -> Stint:
        """Return `stint` with the expected number of runs."""
        count = self.runs_of(stint)
        more = count is not None and (self._plan.more_runs or count > len(stint.runs or ()))
        return replace(stint, runs=tuple(range(count or 0))) if more else stint

    def left_s(
        self, left: Iterable[Stint], run_elapsed_s: float = 0.0, least_growth: float = 0.0
    ) -> float | None:
        """Return the expected seconds until all stints in `left` have ended; None if not yet known.

        A stint is a series of consecutive runs of one level. `left` begins with the current stint, reduced to
        its remaining runs; the current run has lasted `run_elapsed_s` seconds so far.
        """
        total, pause = -run_elapsed_s, self._pause_s()
        for stint in left:
            seconds = self.run_s(stint.target.name, stint.load, least_growth)
            if seconds is None:
                return None
            if stint.runs is None:
                total += self._plan.duration_s or 0.0
            else:
                total += seconds * len(stint.runs)
            # The warm-up run of an open loop is a single request.
            warms = stint.first and self._plan.warmup and self._plan.mode is not LoadMode.OPEN
            total += pause + (seconds if warms else 0.0)
        return max(0.0, total)

    def _of(self, target: str | None) -> list[_MeanRun]:
        return [
            _MeanRun(load, sum(times) / len(times))
            for (name, load), times in self._known.items()
            if target in {None, name} and sum(times) > 0
        ]

    def _growth(self, known: list[_MeanRun]) -> float:
        """Return the exponent (0 to 1) with which the duration of a run grows with the size of its load.

        It is computed from the two largest loads in `known`. Return the constant `_GROWTH` if `known` has
        only one load, or if the two largest have the same size.
        """
        ordered = sorted(known, key=lambda one: _weight(one.load))[-2:]
        if len(ordered) < 2 or _weight(ordered[0].load) == _weight(ordered[1].load):  # noqa: PLR2004 - a line has two ends
            return _GROWTH
        low, high = ordered
        slope = math.log(high.seconds / low.seconds) / math.log(_weight(high.load) / _weight(low.load))
        return min(_STEEPEST, max(0.0, slope))

    def _pause_s(self) -> float:
        return sum(self._pauses) / len(self._pauses) if self._pauses else 0.0


def climbs(top: int, most: int) -> list[int]:
    """Return the concurrencies to which a sweep may go on from `top`: twice the last, `most` at the end."""
    found = []
    while top < most:
        top = min(2 * top, most)
        found.append(top)
    return found


def between(levels: Iterable[int]) -> list[int]:
    """Return the highest concurrency that a sweep may add between two of `levels`; empty if none."""
    ordered = sorted(set(levels))
    gaps = [(low, high) for low, high in pairwise(ordered) if high > GAP * low]
    return [round(math.sqrt(low * high)) for low, high in gaps[-1:]]


def _within(load: Load, most: int) -> Load:
    return replace(load, concurrency=min(load.concurrency, most))


def _weight(load: Load) -> float:
    """Return the size of a load as one number: concurrency × square root of the tokens before the answer."""
    return load.concurrency * math.sqrt(load.prompt_tokens + load.depth)
