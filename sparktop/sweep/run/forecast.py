"""Forecast of what a sweep will send and how long it will take, from its plan and earlier results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from sparktop.model.load import LoadMode
from sparktop.model.text import clean
from sparktop.sweep.plan.order import Load, loads
from sparktop.sweep.plan.plan import ENOUGH_S, Order, Plan, SweepTarget
from sparktop.sweep.plan.slo import runs_needed
from sparktop.sweep.result.axis import RanRun
from sparktop.sweep.result.results import LevelResult, SweepResult
from sparktop.sweep.terms.doubts import CUT_SHORT
from sparktop.values import dataclass

_GROWTH = 0.6
"""Assumed growth if only one level is known: a run's duration grows as the concurrency to this power, see
`estimate`."""
_STEEPEST = 1.0
_PAUSE_S = 1.0
"""Assumed seconds between two levels, in which the servers become idle, if no earlier sweep shows them."""
_BEGIN_S = 3.0
"""Assumed seconds until the first level: the load generator starts and calibrates each prompt length."""
_FINE_S, _COARSE_S = 30.0, 120.0
"""Times below `_FINE_S` are rounded to 1 s, times below `_COARSE_S` to 5 s, longer ones to 10 s."""
_HOUR_S, _MINUTE_S = 3600, 60


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected requests, tokens and duration of a sweep."""

    requests: int | None
    """Measured requests; None if only the duration limits them."""
    warm_ups: int
    """Requests of warm-up runs, not included in `requests`."""
    prompt_tokens: int | None
    """Prompt tokens of the measured requests; None if their number is unknown."""
    output_tokens: int | None
    """Tokens that the measured requests ask for; None if their number is unknown."""
    seconds: float | None
    """Duration of the sweep in seconds; None if unknown."""
    why: str
    """The source of `seconds` and how reliable it is, or why `seconds` is unknown."""
    at_least: bool = False
    """True if all values are minimums: an SLO search may measure more levels than the plan has, and a sweep
    that goes on to higher concurrencies, or that adds runs to short levels, may send more requests."""
    most_concurrency: int | None = None
    """Highest concurrency to which the sweep goes on while the token rate rises; None if it does not."""
    most_seconds: float | None = None
    """Duration of the sweep in seconds if it goes on to `most_concurrency`; None if unknown."""


@dataclass(frozen=True, slots=True)
class _Point:
    """Times of a measured level: `run_s` is the mean duration of a load run, `first_s` the mean TTFT."""

    load: Load
    output_tokens: int
    run_s: float
    first_s: float


@dataclass(frozen=True, slots=True)
class _Earlier:
    """One earlier sweep of a target, with the times that a forecast uses.

    `begin_s` are the seconds before the first level. `pause_s` are the mean seconds without load after each
    stint, which is a series of consecutive runs of one level.
    """

    result: SweepResult
    points: tuple[_Point, ...]
    begin_s: float
    pause_s: float

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


def forecast(plan: Plan, known: Sequence[SweepResult]) -> Forecast:
    """Return the forecast of a plan from the results `known` of earlier sweeps, in any order.

    For each target, the result with the most similar loads is used; of several, the newest. If this result
    lacks a concurrency, the duration is interpolated on logarithmic scales. If it lacks a length, the time to
    first token is scaled with the prompt length and the remaining time with the output length. For each
    level, the result's mean time between two levels is added.
    """
    farther = _farthest(plan)
    count = _measured(plan)
    warm_ups = sum(load.concurrency for load in loads(plan)) * len(plan.targets) if plan.warmup else 0
    seconds, why = _seconds(plan, known)
    prompts = sum(load.prompt_tokens * (_requests(plan, load) or 0) for load in loads(plan))
    return Forecast(
        requests=count,
        warm_ups=warm_ups,
        prompt_tokens=None if count is None else prompts * len(plan.targets),
        output_tokens=None if count is None else count * plan.tg,
        seconds=seconds,
        why=why,
        at_least=bool(plan.slo) or plan.more_runs or farther is not None,
        most_concurrency=plan.climb_to if farther is not None else None,
        most_seconds=None if farther is None else _most_s(farther, known),
    )


def _most_s(farther: Plan, known: Sequence[SweepResult]) -> float | None:
    """Return the expected duration of the plan `farther` in s; None if a target was not measured before."""
    if any(_earlier(target, farther, known) is None for target in farther.targets):
        return None
    return _seconds(farther, known)[0]


def _farthest(plan: Plan) -> Plan | None:
    """Return `plan` with the higher concurrencies added to which the sweep may go on; None without any."""
    top, most = max(plan.concurrency, default=1), plan.climb_to or 0
    more = []
    while top < most:
        top = min(2 * top, most)
        more.append(top)
    return replace(plan, concurrency=(*plan.concurrency, *more)) if more else None


def _measured(plan: Plan) -> int | None:
    each = [_requests(plan, load) for load in loads(plan)]
    known_values = [count for count in each if count is not None]
    return sum(known_values) * len(plan.targets) if len(known_values) == len(each) else None


def _requests(plan: Plan, load: Load) -> int | None:
    """Return the number of measured requests of a level on one target; None if only time limits it."""
    if plan.mode is LoadMode.STEADY:
        return None if plan.requests is None else plan.requests * (_runs(plan, load) or plan.runs)
    runs = _runs(plan, load)
    return None if runs is None else runs * load.concurrency


def _runs(plan: Plan, load: Load) -> int | None:
    if plan.slo:
        return runs_needed(plan, load.concurrency)
    return plan.runs_of(load.concurrency)


def _seconds(plan: Plan, known: Sequence[SweepResult]) -> tuple[float | None, str]:
    found = {target.name: _earlier(target, plan, known) for target in plan.targets}
    unknown = [name for name, one in found.items() if one is None]
    if unknown:
        first = f"the first sweep of {clean(', '.join(unknown), 80)}"
        exact = _exact_s(plan)
        if exact is None:
            return None, f"unknown: {first}"
        return exact, f"of load, and what lies between: {first}"
    earlier = [one for one in found.values() if one is not None]
    if not earlier:
        return None, "unknown: no target"
    seconds = max(one.begin_s for one in earlier)
    for one in earlier:
        seconds += sum(_level_s(plan, load, one) for load in loads(plan))
        seconds += one.pause_s * _stints(plan)
    return seconds, _source_words(earlier, plan)


def _exact_s(plan: Plan) -> float | None:
    """Return the total seconds of load in the sweep, without warm-ups, if the plan sets the duration of runs.

    If the plan adds runs to short levels, return the least duration. None if the plan sets no duration, or if
    it searches for the range in which SLO conditions hold.
    """
    if plan.more_runs:
        return ENOUGH_S * len(loads(plan)) * len(plan.targets)
    if plan.duration_s is None or plan.slo:
        return None
    runs = plan.runs if plan.mode is LoadMode.STEADY else 1
    return plan.duration_s * runs * len(loads(plan)) * len(plan.targets)


def _level_s(plan: Plan, load: Load, earlier: _Earlier) -> float:
    """Return the expected seconds of a level on one target, its warm-up run included."""
    run_s = earlier.run_s(load, plan.tg)
    total = run_s if plan.warmup else 0.0
    if plan.mode is LoadMode.STEADY:
        known_values = [one for one in (plan.duration_s, _steady_s(plan, load, run_s)) if one is not None]
        return total + (_runs(plan, load) or plan.runs) * min(known_values, default=0.0)
    runs = _runs(plan, load)
    if runs is not None:
        # With more runs, the last one is on average half done when the time is up.
        return total + max(runs * run_s, ENOUGH_S + run_s / 2 if plan.more_runs else 0.0)
    # No run begins after the time is up; on average the last one is half done by then.
    return total + max(run_s, (plan.duration_s or 0.0) + run_s / 2)


def _steady_s(plan: Plan, load: Load, run_s: float) -> float | None:
    return None if plan.requests is None else run_s * max(1.0, plan.requests / load.concurrency)


def _stints(plan: Plan) -> int:
    """Return the number of stints (series of consecutive runs of one level) of each target.

    After each stint the sweep waits until the servers are idle. In `abba` order every run counts as a stint.
    """
    each = plan.runs if plan.order is Order.ABBA and len(plan.targets) > 1 else 1
    return len(loads(plan)) * each


def _earlier(target: SweepTarget, plan: Plan, known: Sequence[SweepResult]) -> _Earlier | None:
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
                found.append(_Earlier(result, points, *_between_runs(result)))
    ordered = sorted(found, key=lambda one: (-one.sure(asked, plan.tg), one.result.started_at))
    return ordered[-1] if ordered else None


def _point(level: LevelResult, result: SweepResult) -> _Point | None:
    """Return the mean duration of a load run and the mean TTFT of a measured level.

    In steady mode, the mean duration of a request stands for that of a run. Return None if requests failed,
    if none succeeded, or if the level was cut short.
    """
    prompt, output = level.pp or result.plan.pp, level.tg or result.plan.tg
    cut = any(mark.code == CUT_SHORT for mark in level.validity)
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
    made = {(name, level.concurrency) for name, level in levels}
    if any((one.target, one.concurrency) not in made for one in result.ran):
        return _BEGIN_S, _PAUSE_S  # the duration of an unmeasured level would look like a pause
    warm_ups = {
        (name, level.concurrency, level.pp): (level.duration_s or 0.0) / level.runs
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
        (after.target, after.concurrency) != (before.target, before.concurrency) or after.run <= before.run
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


def _source_words(earlier: Sequence[_Earlier], plan: Plan) -> str:
    """Return text that names the sweeps a forecast is based on, and how near they are to the plan.

    For example "roughly, by other concurrencies in your sweep of 3 Mar 14:05".
    """
    times = dict.fromkeys(
        one.result.started_at for one in sorted(earlier, key=lambda one: one.result.started_at)
    )
    when = " and ".join(f"{time.astimezone():%-d %b %H:%M}" for time in list(times)[-2:])
    named = f"your sweep{'s' if len(times) > 1 else ''} of {when}"
    worst = max(one.sure(loads(plan), plan.tg) for one in earlier)
    if worst == 0:
        return f"by {named}"
    if worst == 1:
        return f"roughly, by other concurrencies in {named}"
    return f"a guess, by other lengths in {named}"


def time_words(seconds: float) -> str:
    """Return a duration as text such as "4 min 20 s", rounded to 1, 5 or 10 s depending on its length."""
    step = 1 if seconds < _FINE_S else 5 if seconds < _COARSE_S else 10
    whole = max(1, round(seconds / step) * step)
    if whole < _MINUTE_S:
        return f"{whole} s"
    hours, rest = divmod(whole, _HOUR_S)
    minutes, left = divmod(rest, _MINUTE_S)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left} s" if left else f"{minutes} min"


def pieces(found: Forecast) -> tuple[str, str, str]:
    """Return a forecast as three texts to display: number of requests, number of tokens, duration."""
    least = "at least " if found.at_least else ""
    warm = f" + {found.warm_ups:,} warm-up" if found.warm_ups else ""
    noun = "request" if found.requests == 1 else "requests"
    sent = (
        f"{found.requests:,} {noun}" if found.requests is not None else f"as many {noun} as there is time for"
    )
    tokens = "tokens as they come"
    if found.prompt_tokens is not None and found.output_tokens is not None:
        tokens = f"{found.prompt_tokens:,} prompt + {found.output_tokens:,} output tokens"
    time = f"time {found.why}"
    if found.seconds is not None:
        time = f"{least or 'about '}{time_words(found.seconds)} {found.why}"
    if found.seconds is not None and found.most_concurrency is not None:
        time = f"{least}{time_words(found.seconds)}"
        if found.most_seconds is None:
            time += f", longer up to c = {found.most_concurrency}: {found.why.rpartition(': ')[2]}"
        else:
            time += f", up to {time_words(found.most_seconds)} to c = {found.most_concurrency}, {found.why}"
    return f"{'' if found.requests is None else least}{sent}{warm}", tokens, time
