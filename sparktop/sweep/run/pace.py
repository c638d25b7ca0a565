"""How long load runs take: measured by earlier sweeps of a target, or assumed for a target without any."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from sparktop.model.load import LoadKind, LoadMode
from sparktop.sweep.plan.order import Load, loads
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.result.results import LevelResult, RanRun, SweepResult
from sparktop.sweep.terms.definitions import CUT_SHORT

_GROWTH = 0.6
"""Assumed growth if only one level is known: a run's duration grows as the concurrency to this power, see
`estimate`."""
_STEEPEST = 1.0
_PAUSE_S = 1.0
"""Assumed seconds between two levels, in which the servers become idle, if no earlier sweep shows them."""
_BEGIN_S = 3.0
"""Assumed seconds until the first level: the load generator starts and calibrates each prompt length."""


class _Point(Struct, frozen=True):
    """Times of a measured level: `run_s` is the mean duration of a load run, `first_s` the mean TTFT."""

    load: Load
    output_tokens: int
    run_s: float
    first_s: float


class EarlierSweep(Struct, frozen=True):
    """One earlier sweep of a target, with the times that a forecast uses.

    `begin_s` are the seconds before the first level. `pause_s` are the mean seconds without load after each
    stint, which is a series of consecutive runs of one level.
    """

    result: SweepResult
    points: tuple[_Point, ...]
    begin_s: float
    pause_s: float

    def slots(self, url: str) -> int | None:
        """Return the number of requests that the target at `url` could run at once; None if unknown."""
        return next((one.slots for one in self.result.targets if one.url == url), None)

    def run_s(self, load: Load, output_tokens: int) -> float:
        """Return the expected seconds of one burst run of `load`.

        The measured levels with the nearest prompt and output lengths are scaled to the requested lengths,
        and then interpolated over concurrency on logarithmic scales.
        """
        nearest = min(self.points, key=lambda one: _distance(one, load.prompt_tokens, output_tokens))
        same = {
            one.load.concurrency: _scaled(one, load.prompt_tokens, output_tokens)
            for one in self.points
            if (one.load.prompt_tokens, one.output_tokens)
            == (nearest.load.prompt_tokens, nearest.output_tokens)
        }
        return _between(sorted(same.items()), load.concurrency)

    def sure(self, wanted: Iterable[Load], output_tokens: int) -> int:
        """Return how directly this sweep measured the loads `wanted`, as a rank; 0 is the best.

        0: it measured all of them. 1: it measured all their prompt and output lengths, but some only at other
        concurrencies. 2: it did not measure some of the lengths.
        """
        made = {(one.load, one.output_tokens) for one in self.points}
        lengths = {(one.load.prompt_tokens, one.output_tokens) for one in self.points}
        asked = list(wanted)
        if all((load, output_tokens) in made for load in asked):
            return 0
        return 1 if all((load.prompt_tokens, output_tokens) in lengths for load in asked) else 2


class AssumedPace(Struct, frozen=True):
    """The assumed speed of a target without an earlier sweep: tokens per second of a single request."""

    decode_tps: float
    prefill_tps: float
    begin_s: float = _BEGIN_S
    pause_s: float = _PAUSE_S

    def run_s(self, load: Load, output_tokens: int) -> float:
        """Return the assumed seconds of one burst run of `load`."""
        prefill_s = load.prompt_tokens * load.concurrency / self.prefill_tps
        return prefill_s + float(output_tokens / self.decode_tps * load.concurrency**_GROWTH)


SLOWEST, FASTEST = AssumedPace(15, 1000), AssumedPace(100, 8000)
"""The assumed range of a target without an earlier sweep."""


def earlier_sweep(target: SweepTarget, plan: Plan, known: Sequence[SweepResult]) -> EarlierSweep | None:
    """Return the earlier sweep of `target` whose loads are nearest to the plan; None if no result is usable.

    Of equally near sweeps the newest is returned.
    """
    asked = loads(plan)
    found = []
    for result in known:
        for one in result.targets:
            if one.url != target.url or (target.model or one.model) != one.model:
                continue
            points = tuple(point for level in one.levels if (point := _point(level, result)) is not None)
            if points:
                found.append(EarlierSweep(result, points, *_between_runs(result)))
    ordered = sorted(found, key=lambda one: (-one.sure(asked, plan.tg), one.result.started_at))
    return ordered[-1] if ordered else None


def _point(level: LevelResult, result: SweepResult) -> _Point | None:
    """Return the mean duration of a load run and the mean TTFT of a measured level.

    In steady mode, the mean duration of a request stands for that of a run. Return None if requests failed,
    if none succeeded, if the level was cut short, or if its axis is not the concurrency.
    """
    prompt, output = level.pp or result.plan.pp, level.tg or result.plan.tg
    cut = any(mark.code == CUT_SHORT for mark in level.validity)
    cut = cut or level.load is not LoadKind.CONCURRENCY or level.depth > 0
    if not prompt or not output or cut or level.requests.failed or not level.requests.ok:
        return None
    if result.plan.mode is LoadMode.STEADY:
        run_s = level.e2e_ms.mean / 1000 if level.e2e_ms is not None else 0.0
    else:
        run_s = (level.duration_s or 0.0) / level.runs if level.runs else 0.0
    if not run_s > 0:
        return None
    first_s = level.ttft_ms.mean / 1000 if level.ttft_ms is not None else 0.0
    return _Point(Load(prompt, level.concurrency), output, run_s, min(first_s, run_s))


def _between_runs(result: SweepResult) -> tuple[float, float]:
    """Return (seconds before the first level, mean seconds without load between two levels) of a sweep.

    Return the constants `_BEGIN_S` and `_PAUSE_S` if the sweep was not completed, or if its result lacks the
    start times of its runs or the result of an executed level.
    """
    if result.status != "done" or result.finished_at is None or not result.ran:
        return _BEGIN_S, _PAUSE_S
    first = next((one.started_at for one in result.ran if one.started_at is not None), None)
    if first is None:
        return _BEGIN_S, _PAUSE_S
    levels = [(one.name, level) for one in result.targets for level in one.levels]
    made = {(name, level.point) for name, level in levels}
    if any((one.target, one.point) not in made for one in result.ran):
        return _BEGIN_S, _PAUSE_S  # the duration of an unmeasured level would look like a pause
    warm_ups = {
        (name, level.point, level.pp): (level.duration_s or 0.0) / level.runs
        for name, level in levels
        if result.plan.warmup and level.runs and result.plan.mode is LoadMode.BURST
    }
    begin_s = (first - result.started_at).total_seconds()
    begin_s -= next((s for key, s in warm_ups.items() if key[0] == result.ran[0].target), 0.0)
    busy_s = sum(level.duration_s or 0.0 for _, level in levels) + sum(warm_ups.values())
    rest_s = (result.finished_at - result.started_at).total_seconds() - max(0.0, begin_s) - busy_s
    return max(0.0, begin_s), max(0.0, rest_s / _turns(result.ran))


def _turns(ran: Sequence[RanRun]) -> int:
    """Return the number of stints (series of consecutive runs of one level) in the executed runs `ran`.

    A new stint begins where target or concurrency changes, or where run numbers start again: then the prompt
    length has changed, which `RanRun` does not record.
    """
    changes = (
        (after.target, after.point) != (before.target, before.point) or after.run <= before.run
        for before, after in pairwise(ran)
    )
    return 1 + sum(changes)


def _distance(point: _Point, prompt_tokens: int, output_tokens: int) -> float:
    prompts = abs(math.log(point.load.prompt_tokens / prompt_tokens))
    return prompts + abs(math.log(point.output_tokens / output_tokens))


def _scaled(point: _Point, prompt_tokens: int, output_tokens: int) -> float:
    """Return the duration in seconds of the measured run `point`, scaled to other prompt and output lengths.

    The time to first token scales with the prompt length, the rest with the output length.
    """
    prefill = point.first_s * prompt_tokens / point.load.prompt_tokens
    return prefill + (point.run_s - point.first_s) * output_tokens / point.output_tokens


def _between(points: Sequence[tuple[int, float]], concurrency: int) -> float:
    """Return the expected seconds of a run at `concurrency`, inter- or extrapolated on logarithmic scales.

    `points` are (concurrency, seconds) in ascending order, at least one.
    """
    for at, seconds in points:
        if at == concurrency:
            return seconds
    below = [one for one in points if one[0] < concurrency]
    above = [one for one in points if one[0] > concurrency]
    if below and above:
        slope = _slope(below[-1], above[0])
    else:
        ends = points[-2:] if below else points[:2]
        slope = min(_STEEPEST, max(0.0, _slope(*ends))) if len(ends) > 1 else _GROWTH
    at, seconds = below[-1] if below else above[0]
    return float(seconds * (concurrency / at) ** slope)


def _slope(low: tuple[int, float], high: tuple[int, float]) -> float:
    return math.log(high[1] / low[1]) / math.log(high[0] / low[0])
