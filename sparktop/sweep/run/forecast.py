"""Forecast of what a sweep will send and how long it takes: before it begins, and while it runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from sparktop.graphics.numbers import duration_words, forecast_words
from sparktop.model.instant import TimeRange
from sparktop.model.load import Level, LoadKind, LoadMode, concurrency_point
from sparktop.model.statistics import P90_FROM
from sparktop.model.text import clean, names_in_words
from sparktop.sweep.plan.arrivals import mean_per_s
from sparktop.sweep.plan.capacity import arrivals_needed, longest_seconds, share_needed
from sparktop.sweep.plan.conversations import ConversationPreset
from sparktop.sweep.plan.plan import ENOUGH_S, Capacity, Order, Plan, RunBatch, SweepTarget, run_numbers
from sparktop.sweep.plan.presets import OPEN_S
from sparktop.sweep.plan.slo import plain_words, runs_needed, words_of
from sparktop.sweep.plan.traces import TraceReplay
from sparktop.sweep.result.results import LevelResult, SweepResult
from sparktop.sweep.run.open_loop import tail_s, warm_up_s
from sparktop.sweep.run.search import LEVEL_OVERHEAD, MOST_SEARCH_RUNS, CapacitySearch
from sparktop.sweep.run.validity import agents_tail_s, ramp_s
from sparktop.sweep.terms.definitions import CUT_SHORT

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
doubled: the sweep adds this many levels at most, see `next_step`."""
GAP = 2
"""Ratio of two neighbouring concurrencies from which on the sweep may add a level between them."""


_MeanRun = tuple[Level, float]
"""(Level, mean seconds of its runs)."""


class Estimate:
    """Estimates the remaining time of a sweep from the durations of the load runs that have ended."""

    def __init__(self, plan: Plan) -> None:
        """Start with the plan and without any measured duration."""
        self._plan = plan
        self._durations: dict[Level, list[float]] = {}
        """Seconds of the runs that have ended, by level."""
        self._pauses: list[float] = []
        self._beside: list[float] = []
        """Durations of runs with long prompts, in those of the same runs alone."""
        self.most: Mapping[str, int] = {}
        """Highest concurrency of each target to which the sweep may go on; empty if it adds no levels."""

    def learn_run(self, level: Level, seconds: float) -> None:
        """Record that one load run (measured or warm-up) of a level took `seconds`."""
        self._durations.setdefault(level, []).append(seconds)

    def learn_beside(self, level: Level, seconds: float) -> None:
        """Record that a run of a level with long prompts took `seconds`: their steps may take seconds."""
        alone_s = self.run_s(level)
        if alone_s:
            self._beside.append(seconds / alone_s)

    def learn_pause(self, seconds: float) -> None:
        """Record how many seconds the servers took to become idle after a series of runs of one level."""
        self._pauses.append(seconds)

    def run_s(self, level: Level, least_growth: float = 0.0) -> float | None:
        """Return the expected duration of one load run in seconds; None if it cannot be estimated yet.

        If the plan fixes the duration of a run, return it. Otherwise return the mean duration of the ended
        runs of the level. If there are none, scale the mean duration of the most similar level that was run.
        The duration grows with the load at least with the exponent `least_growth`, and in proportion to it
        above `most`, where requests wait.
        """
        plan = self._plan
        if plan.mode is LoadMode.STEADY and plan.duration_s is not None:
            return plan.duration_s
        if durations := self._durations.get(level):
            return fmean(durations)
        if plan.mode in {LoadMode.OPEN, LoadMode.AGENTS}:
            before_s = warm_up_s(plan) if plan.mode is LoadMode.OPEN else ramp_s(plan)
            return before_s + (plan.duration_s or 0.0)
        run_times = self._mean_run_times(level.target) or self._mean_run_times(None)
        if not run_times:
            return None
        concurrency = level.point.most_in_flight
        limit = self.most.get(level.target, concurrency)
        nearest, seconds = min(
            run_times, key=lambda measured: abs(math.log(self._weight(measured[0]) / self._weight(level)))
        )
        of_nearest = nearest.point.most_in_flight
        growth = max(least_growth if concurrency > of_nearest else 0.0, self._growth(run_times))
        ratio = self._weight(level, limit) / self._weight(nearest, limit)
        waits = max(1.0, concurrency / limit) / max(1.0, of_nearest / limit)
        return seconds * waits * float(ratio**growth)

    def runs_of(self, batch: RunBatch) -> int | None:
        """Return the expected number of runs of a batch.

        This is the planned number, or more if the plan adds runs to short levels. None if only the duration
        limits the batch.
        """
        if batch.runs is None:
            return None
        seconds = self.run_s(batch.level) if self._plan.more_runs else None
        return max(len(batch.runs), min(MOST_RUNS, math.ceil(ENOUGH_S / seconds)) if seconds else 0)

    def sweep_s(self, todo: Sequence[RunBatch], ended: int, least_growth: float = 0.0) -> float | None:
        """Return the expected seconds until all batches in `todo` have ended; None if empty or unknown.

        The first of `todo` is the current batch, of which `ended` runs have ended and the next is about to
        begin; -1: its warm-up is about to begin.
        """
        if not todo:
            return None
        present, *others = (replace(batch, runs=self._expected_runs(batch)) for batch in todo)
        runs = None if present.runs is None else present.runs[max(0, ended) :]
        left = [replace(present, runs=runs, first=present.first and ended < 0), *others]
        return self.left_s(left, least_growth=least_growth)

    def range_s(self, todo: Sequence[RunBatch], ended: int) -> TimeRange | None:
        """Return the range of the seconds until the sweep ends; None if `todo` is empty or nothing is known.

        The parameters are those of `sweep_s`. The upper end includes the levels that the sweep may add.
        """
        shortest = self.sweep_s(todo, ended)
        longest = self.sweep_s([*todo, *self._possible_batches(todo)], ended, _LEAST_GROWTH)
        return None if shortest is None or longest is None else TimeRange(LEAST * shortest, MOST * longest)

    def _possible_batches(self, todo: Sequence[RunBatch]) -> Iterator[RunBatch]:
        """Yield the batches that may follow those in `todo`: higher concurrencies, and one between two."""
        series: dict[tuple[str, int | None], list[Level]] = {}
        for batch in todo:
            series.setdefault((batch.level.target, batch.level.pp), []).append(batch.level)
        for (name, length), levels in series.items():
            measured = {
                level.point.most_in_flight
                for level in self._durations
                if (level.target, level.pp) == (name, length)
            }
            coming = {level.point.most_in_flight for level in levels}
            top = max(measured | coming)
            limit = self.most.get(name, 0)
            if max(coming) < top or not limit:
                continue  # the sweep measures a level between two others, its last one
            saturated = self._growth(self._mean_run_times(name)) >= _SATURATED
            higher = doublings(top, limit)
            if saturated:
                higher = higher[:_MOST_UNSURE]
            for concurrency in (*concurrencies_between([*measured, *coming]), *higher):
                level = self._plan.level(name, concurrency_point(concurrency), length)
                yield RunBatch(level, run_numbers(self._plan, level))

    def _expected_runs(self, batch: RunBatch) -> tuple[int, ...] | None:
        count = self.runs_of(batch)
        is_longer = count is not None and count > len(batch.runs or ())
        return tuple(range(count or 0)) if is_longer else batch.runs

    def left_s(self, left: Iterable[RunBatch], least_growth: float = 0.0) -> float | None:
        """Return the expected seconds until all batches in `left` have ended; None if not yet known.

        `left` begins with the current batch, reduced to its remaining runs.
        """
        total, pause = 0.0, fmean(self._pauses) if self._pauses else 0.0
        for batch in left:
            seconds = self.run_s(batch.level, least_growth)
            if seconds is None:
                return None
            if batch.runs is None:
                total += self._plan.duration_s or 0.0
            else:
                total += seconds * len(batch.runs)
            if batch.last and self._plan.beside is not None:  # all runs again, while long prompts arrive
                times = fmean(self._beside) if self._beside else 1.0
                total += seconds * times * self._plan.runs
            # The warm-up run of an open loop is a single request.
            warms = batch.first and self._plan.warmup and self._plan.mode is not LoadMode.OPEN
            total += pause + (seconds if warms else 0.0)
        return total

    def _mean_run_times(self, target: str | None) -> list[_MeanRun]:
        return [
            (level, fmean(times))
            for level, times in self._durations.items()
            if target in {None, level.target} and sum(times) > 0
        ]

    def _growth(self, run_times: list[_MeanRun]) -> float:
        """Return the exponent (0 to 1) with which the duration of a run grows with the size of its load.

        It is computed from the two largest loads. Return the constant `_GROWTH` if there is only one load, or
        if the two largest have the same size.
        """
        ends = sorted((self._weight(level), seconds) for level, seconds in run_times)[-2:]
        weights = {weight for weight, _ in ends}
        if len(weights) < 2:  # noqa: PLR2004 - a line has two ends
            return _GROWTH
        return min(_STEEPEST, max(0.0, _slope(*ends)))

    def _weight(self, level: Level, limit: float = math.inf) -> float:
        """Return the size of a load as one number: concurrency × square root of the tokens before the answer.

        Beyond `limit` requests wait.
        """
        tokens = self._plan.length_of(level) + level.depth
        return min(level.point.most_in_flight, limit) * math.sqrt(tokens)


def doublings(top: int, limit: int) -> list[int]:
    """Return the concurrencies to which a sweep may go on from `top`: twice the last, `limit` at the end."""
    higher = []
    while top < limit:
        top = min(2 * top, limit)
        higher.append(top)
    return higher


def concurrencies_between(levels: Iterable[int]) -> list[int]:
    """Return the highest concurrency that a sweep may add between two of `levels`; empty if none."""
    ordered = sorted(set(levels))
    gaps = [(low, high) for low, high in pairwise(ordered) if high > GAP * low]
    return [round(math.sqrt(low * high)) for low, high in gaps[-1:]]


_PAUSE_S = 1.0
"""Assumed seconds between two levels, in which the servers become idle."""
_BEGIN_S = 3.0
"""Assumed seconds until the first level: the load generator starts and calibrates each prompt length."""


class EarlierSweep(Struct, frozen=True):
    """One earlier sweep of a target, with the times that a forecast uses."""

    result: SweepResult
    times: Mapping[tuple[int, int], Mapping[int, tuple[float, float]]]
    """(Mean seconds of a load run, mean TTFT in seconds) by concurrency, for each (prompt, output) length."""

    def slots(self, url: str) -> int | None:
        """Return the number of requests that the target at `url` could run at once; None if unknown."""
        return next((target.slots for target in self.result.targets if target.url == url), None)

    def run_s(self, concurrency: int, prompt_tokens: int, output_tokens: int) -> float:
        """Return the expected seconds of one burst run of such requests.

        The measured levels with the nearest prompt and output lengths are scaled to the requested lengths,
        and then interpolated over concurrency on logarithmic scales.
        """
        prompt, output = min(
            self.times,
            key=lambda lengths: (
                abs(math.log(lengths[0] / prompt_tokens)) + abs(math.log(lengths[1] / output_tokens))
            ),
        )
        # The time to first token scales with the prompt length, the rest with the output length.
        scaled = [
            (at, first_s * prompt_tokens / prompt + (run_s - first_s) * output_tokens / output)
            for at, (run_s, first_s) in self.times[prompt, output].items()
        ]
        return _interpolate(sorted(scaled), concurrency)

    def sure(self, plan: Plan) -> int:
        """Return how directly this sweep measured the levels of a plan, as a rank; 0 is the best.

        0: it measured all of them. 1: it measured all their prompt and output lengths, but some only at other
        concurrencies. 2: it did not measure some of the lengths.
        """
        levels = [(level, self.times.get((plan.length_of(level), plan.tg), {})) for level in plan.levels()]
        if not all(times for _, times in levels):
            return 2
        return int(any(level.depth or level.point.most_in_flight not in times for level, times in levels))


class AssumedPace(Struct, frozen=True):
    """The assumed speed of a target without an earlier sweep: tokens per second of a single request."""

    decode_tps: float
    prefill_tps: float

    def run_s(self, concurrency: int, prompt_tokens: int, output_tokens: int) -> float:
        """Return the assumed seconds of one burst run of such requests."""
        prefill_s = prompt_tokens * concurrency / self.prefill_tps
        return prefill_s + float(output_tokens / self.decode_tps * concurrency**_GROWTH)


SLOWEST, FASTEST = AssumedPace(15, 1000), AssumedPace(100, 8000)
"""The assumed range of a target without an earlier sweep."""


def earlier_sweep(target: SweepTarget, plan: Plan, results: Sequence[SweepResult]) -> EarlierSweep | None:
    """Return the earlier sweep of `target` whose loads are nearest to the plan; None if no result is usable.

    Of equally near sweeps the newest is returned.
    """
    usable = []
    for result in results:
        for measured in result.targets:
            if measured.url != target.url or (target.model or measured.model) != measured.model:
                continue
            times: dict[tuple[int, int], dict[int, tuple[float, float]]] = {}
            for level in measured.levels:
                prompt, output = level.pp or result.plan.pp, level.tg or result.plan.tg
                level_times = _level_times(level, result)
                if prompt and output and level_times is not None:
                    times.setdefault((prompt, output), {})[level.concurrency] = level_times
            if times:
                usable.append(EarlierSweep(result, times))
    ordered = sorted(usable, key=lambda sweep: (-sweep.sure(plan), sweep.result.started_at))
    return ordered[-1] if ordered else None


def _level_times(level: LevelResult, result: SweepResult) -> tuple[float, float] | None:
    """Return (mean duration of a load run, mean TTFT) of a measured level in seconds.

    In steady mode, the mean duration of a request stands for that of a run. Return None if requests failed,
    if none succeeded, if the level was cut short, or if its axis is not the concurrency.
    """
    cut = any(mark.code == CUT_SHORT for mark in level.validity)
    cut = cut or level.load is not LoadKind.CONCURRENCY or level.depth > 0
    if cut or level.requests.failed or not level.requests.ok:
        return None
    if result.plan.mode is LoadMode.STEADY:
        run_s = level.e2e_ms.mean / 1000 if level.e2e_ms is not None else 0.0
    else:
        run_s = (level.duration_s or 0.0) / level.runs if level.runs else 0.0
    if not run_s > 0:
        return None
    first_s = level.ttft_ms.mean / 1000 if level.ttft_ms is not None else 0.0
    return run_s, min(first_s, run_s)


def _interpolate(points: Sequence[tuple[int, float]], concurrency: int) -> float:
    """Return the expected seconds of a run at `concurrency`, inter- or extrapolated on logarithmic scales.

    `points` are (concurrency, seconds) in ascending order, at least one.
    """
    for at, seconds in points:
        if at == concurrency:
            return seconds
    below = [point for point in points if point[0] < concurrency]
    above = [point for point in points if point[0] > concurrency]
    if below and above:
        slope = _slope(below[-1], above[0])
    else:
        ends = points[-2:] if below else points[:2]
        slope = min(_STEEPEST, max(0.0, _slope(*ends))) if len(ends) > 1 else _GROWTH
    at, seconds = below[-1] if below else above[0]
    return float(seconds * (concurrency / at) ** slope)


def _slope(low: tuple[float, float], high: tuple[float, float]) -> float:
    return math.log(high[1] / low[1]) / math.log(high[0] / low[0])


class Forecast(Struct, frozen=True):
    """The expected requests, tokens and duration of a sweep."""

    requests: int | None
    """Measured requests; None if only the duration limits them."""
    warm_ups: int
    """Requests of warm-up runs and those that send contexts alone, not included in `requests`."""
    prompt_tokens: int | None
    """Prompt tokens of the measured requests and of contexts; None if their number is unknown."""
    output_tokens: int | None
    """Tokens that the measured requests and contexts ask for; None if their number is unknown."""
    seconds: float | None
    """Expected duration of the planned levels in seconds; None if unknown."""
    why: str
    """The source of `time` and `seconds` and how reliable it is, or why both are unknown."""
    at_least: bool = False
    """True if all values are minimums: an SLO search may measure more levels than the plan has, and a sweep
    that goes on to higher concurrencies, or that adds runs to short levels, may send more requests."""
    levels: int = 0
    """Planned levels of all targets."""
    most_concurrency: int | None = None
    """Highest concurrency to which the sweep goes on while the token rate rises; None if it does not."""
    time: TimeRange | None = None
    """Range of the sweep's duration, with warm-ups and the levels that it may add; None for an SLO search."""


def forecast(
    plan: Plan,
    results: Sequence[SweepResult],
    slots: Mapping[str, int] | None = None,
) -> Forecast:
    """Return the forecast of a plan from the `results` of earlier sweeps, in any order.

    For each target, the result with the most similar loads is used; of several, the newest. If this result
    lacks a concurrency, the duration is interpolated on logarithmic scales. If it lacks a length, the time to
    first token is scaled with the prompt length and the remaining time with the output length. For each
    level, the usual time between two levels is added. `slots` are the numbers of requests that the
    targets can run at once, by target name, as far as known.
    """
    if plan.capacity is not None:
        levels, seconds = MOST_SEARCH_RUNS * len(plan.targets), most_seconds(plan)
        time = TimeRange(seconds / 3, seconds)
        return Forecast(None, 0, None, None, None, "for the search", levels=levels, time=time)
    if plan.mode is LoadMode.OPEN:
        return _replay_forecast(plan, plan.trace) if plan.trace is not None else _open_forecast(plan)
    if plan.mode is LoadMode.AGENTS:
        return _conversation_forecast(plan)
    earlier = [earlier_sweep(target, plan, results) for target in plan.targets]
    limit = _highest_concurrency(plan, earlier, slots or {})
    targets = len(plan.targets)
    asked = [(level, _level_requests(plan, level)) for level in plan.levels()]
    is_known = all(requests is not None for _, requests in asked)
    count = targets * sum(requests or 0 for _, requests in asked) if is_known else None
    warm_ups = targets * sum(level.point.most_in_flight for level, _ in asked) if plan.warmup else 0
    sure = [sweep for sweep in earlier if sweep is not None]
    contexts = targets * sum(requests or 0 for level, requests in asked if level.depth)
    prompts = targets * sum(
        (plan.length_of(level) + 2 * level.depth) * (requests or 0) for level, requests in asked
    )
    return Forecast(
        requests=count,
        warm_ups=warm_ups + contexts,
        prompt_tokens=None if count is None else prompts,
        output_tokens=None if count is None else (count + contexts) * plan.tg,
        seconds=_expected_seconds(plan, sure) if sure and len(sure) == len(earlier) else None,
        why=_duration_source(plan, earlier),
        at_least=plan.searches or plan.more_runs or limit is not None,
        levels=len(asked) * targets,
        most_concurrency=limit,
        time=_expected_range(plan, earlier, limit),
    )


def _level_requests(plan: Plan, level: Level) -> int | None:
    """Return the number of measured requests of a level on one target; None if only time limits it."""
    if plan.mode is LoadMode.STEADY:
        return None if plan.requests is None else plan.requests * (_level_runs(plan, level) or plan.runs)
    runs = _level_runs(plan, level)
    return None if runs is None else runs * level.point.most_in_flight


def _level_runs(plan: Plan, level: Level) -> int | None:
    concurrency = level.point.most_in_flight
    return runs_needed(plan, concurrency) if plan.searches else plan.runs_of(concurrency)


def _highest_concurrency(
    plan: Plan, earlier: Iterable[EarlierSweep | None], slots: Mapping[str, int]
) -> int | None:
    """Return the highest concurrency that any target of the plan may go on to; None if to none.

    `slots` are the numbers of requests that targets can run at once, by target name. For other targets, the
    earlier sweeps may have them.
    """
    if plan.climb_to is None:
        return None
    limits = [
        slots.get(target.name) or (sweep.slots(target.url) if sweep is not None else None) or plan.climb_to
        for target, sweep in zip(plan.targets, earlier, strict=True)
    ]
    highest = min(plan.climb_to, max(limits, default=0))
    return highest if highest > max(plan.concurrency, default=1) else None


def _expected_seconds(plan: Plan, sweeps: Sequence[EarlierSweep | AssumedPace]) -> float:
    """Return the expected duration of the plan in seconds, from an earlier sweep for each of its targets.

    After each batch the sweep waits until the servers are idle. In `abba` order every run counts as a batch.
    """
    batches = plan.runs if plan.order is Order.ABBA and len(plan.targets) > 1 else 1
    levels = [
        _level_seconds(plan, level, sweep) + batches * _PAUSE_S for sweep in sweeps for level in plan.levels()
    ]
    return _BEGIN_S + sum(levels)


def _expected_range(plan: Plan, earlier: Sequence[EarlierSweep | None], top: int | None) -> TimeRange | None:
    """Return the range of the sweep's duration; None if it searches for SLO limits.

    `top` is the highest concurrency that the sweep may go on to. Where no earlier sweep is known (None in
    `earlier`), the range is that from fast to slow servers.
    """
    if plan.searches or not plan.targets:
        return None
    farthest = plan
    if top is not None:
        more = [*concurrencies_between(plan.concurrency), *doublings(max(plan.concurrency, default=1), top)]
        farthest = replace(plan, concurrency=(*plan.concurrency, *more))
    fast = [sweep or FASTEST for sweep in earlier]
    slow = [sweep or SLOWEST for sweep in earlier]
    # Assumed speeds are the ends of a range already.
    low, high = (1.0, 1.0) if None in earlier else (LEAST, MOST)
    return TimeRange(low * _expected_seconds(plan, fast), high * _expected_seconds(farthest, slow))


def _duration_source(plan: Plan, earlier: Sequence[EarlierSweep | None]) -> str:
    """Return the source of a forecast's duration and how reliable it is.

    For example "roughly, from other concurrencies in your sweep of 3 Mar 14:05".
    """
    unknown = [target.name for target, sweep in zip(plan.targets, earlier, strict=True) if sweep is None]
    if not plan.targets:
        return "unknown: no target"
    if unknown:
        of = f" of {clean(names_in_words(unknown), 80)}" if len(unknown) < len(plan.targets) else ""
        return f"{'unknown' if plan.searches else 'rough'}: no earlier sweep{of} with these settings"
    sweeps = [sweep for sweep in earlier if sweep is not None]
    times = sorted({sweep.result.started_at for sweep in sweeps})
    when = " and ".join(f"{time.astimezone():%-d %b %H:%M}" for time in times[-2:])
    least_sure = max(sweep.sure(plan) for sweep in sweeps)
    return f"{_SOURCES[least_sure]} your sweep{'s' if len(times) > 1 else ''} of {when}"


_SOURCES = ("estimated from", "roughly, from other concurrencies in", "a guess, from other lengths in")
"""How a forecast names the sweeps that it is made from, by `EarlierSweep.sure`."""


def _level_seconds(plan: Plan, level: Level, earlier: EarlierSweep | AssumedPace) -> float:
    """Return the expected seconds of a level on one target, its warm-up run included."""
    concurrency = level.point.most_in_flight
    run_s = earlier.run_s(concurrency, plan.length_of(level), plan.tg)
    total = run_s if plan.warmup else 0.0
    if level.depth:  # the context is sent before each run
        run_s += earlier.run_s(concurrency, level.depth, plan.tg)
    if plan.mode is LoadMode.STEADY:
        limits_s = [] if plan.duration_s is None else [plan.duration_s]
        if plan.requests is not None:
            limits_s.append(run_s * max(1.0, plan.requests / concurrency))
        times = 1 if plan.beside is None else 2
        return total + (_level_runs(plan, level) or plan.runs) * times * min(limits_s, default=0.0)
    runs = _level_runs(plan, level)
    if runs is not None:
        # With more runs, the last one is on average half done when the time is up.
        return total + max(runs * run_s, ENOUGH_S + run_s / 2 if plan.more_runs else 0.0)
    # No run begins after the time is up; on average the last one is half done by then.
    return total + max(run_s, (plan.duration_s or 0.0) + run_s / 2)


def pieces(expected: Forecast) -> tuple[str, str, str]:
    """Return a forecast as three texts to display: number of requests, number of tokens, duration."""
    least = "at least " if expected.at_least else ""
    warm = f" and {expected.warm_ups:,} to warm up" if expected.warm_ups else ""
    noun = "request" if expected.requests == 1 else "requests"
    requests = f"as many {noun} as fit into the time"
    if expected.requests is not None:
        requests = f"{least}{expected.requests:,} {noun}"
    tokens = "how many tokens is not known before"
    if expected.prompt_tokens is not None and expected.output_tokens is not None:
        tokens = f"{expected.prompt_tokens:,} prompt and {expected.output_tokens:,} output tokens"
    return f"{requests}{warm}", tokens, _time_words(expected)


def _time_words(expected: Forecast) -> str:
    if expected.time is None:
        least = "" if expected.seconds is None else f"at least {duration_words(expected.seconds)}"
        return f"{least or 'duration'} {expected.why}"
    more = expected.most_concurrency
    further = "" if more is None else f", at most to c = {more}"
    time = forecast_words(expected.time.least_s, expected.time.most_s)
    levels = f"{expected.levels} level{'' if expected.levels == 1 else 's'}"
    return f"{levels}{further}, in {time} ({expected.why})"


_RATE_SEARCH_LEVELS = 8
"""Usual number of levels of a search for the highest rate: five doublings, then three between."""
_LATE_S = 120.0
"""Seconds that a replay lasts longer than its trace, if the server is slow."""
_REST_S = 3.0
"""Usual seconds between two levels, until the last requests have ended and the servers are idle."""


def _open_forecast(plan: Plan) -> Forecast:
    levels = len(plan.points) * len(plan.lengths)
    duration_s = plan.duration_s or OPEN_S
    requests_each = plan.runs * sum(round(mean_per_s(point) * duration_s) for point in plan.points)
    count, prompts = requests_each * len(plan.lengths), requests_each * sum(plan.lengths)
    targets = len(plan.targets)
    before = sum(round(point.value * warm_up_s(plan)) for point in plan.points) * len(plan.lengths)
    each_s = warm_up_s(plan) + duration_s + _REST_S
    is_known = not plan.search_rate
    levels = levels if is_known else _RATE_SEARCH_LEVELS
    runs = levels * plan.runs * targets
    return Forecast(
        requests=count * targets if is_known else None,
        warm_ups=before * plan.runs * targets,
        prompt_tokens=prompts * targets if is_known else None,
        output_tokens=count * plan.tg * targets if is_known else None,
        seconds=runs * each_s,
        why="by its rates" if is_known else "a guess: the server decides how many levels",
        levels=levels * targets,
        # Beyond a server's limit, the requests of a level take as long again.
        time=TimeRange(runs * each_s, runs * (each_s + tail_s(plan))),
    )


def _replay_forecast(plan: Plan, replay: TraceReplay) -> Forecast:
    runs = plan.runs * len(plan.targets)
    least_s = runs * (replay.begin_s + replay.duration_s + _REST_S)
    return Forecast(
        requests=replay.requests * runs,
        warm_ups=len(plan.targets) if plan.warmup else 0,
        prompt_tokens=None if replay.texts else replay.prompt_tokens * runs,
        output_tokens=replay.output_tokens * runs,
        seconds=least_s,
        why="by its trace" + (", if answers take no time" if replay.waits else ""),
        levels=len(plan.targets),
        time=TimeRange(least_s, least_s + runs * min(_LATE_S, replay.tail_s)),
    )


def requests_words(plan: Plan) -> str:
    """Return how many requests the lowest level of agents may have, and whether these are too few.

    They are the numbers on a slow and on a fast server, on which nothing waits.
    """
    preset, lowest = plan.conversations, min(plan.axis)
    assert preset is not None  # noqa: S101 - the caller's reason to ask
    sent_s = lowest.value * plan.runs * (plan.duration_s or preset.duration_s)
    fewest, largest = (round(sent_s / _cycle_s(preset, pace)) for pace in (SLOWEST, FASTEST))
    few = f": too few for a 90th percentile, which needs {P90_FROM}" if largest < P90_FROM else ""
    count = f"about {fewest} to {largest}" if largest > 1 else "hardly any"
    return f"{lowest.label} make{'s' if lowest.value == 1 else ''} {count} requests a level{few}"


def _cycle_s(preset: ConversationPreset, pace: AssumedPace) -> float:
    """Return the mean seconds from a call of a conversation to the next; the prefix cache has its past."""
    calls = preset.calls
    humans = max(1.0, preset.human_requests.typical)
    new = preset.new_tokens.typical + preset.own_tokens.typical / calls
    model_s = new / pace.prefill_tps + preset.output_tokens.typical / pace.decode_tps
    pauses_s = humans * preset.human_pause_s.typical + (calls - humans) * preset.tool_pause_s.typical
    return model_s + pauses_s / calls


def _conversation_forecast(plan: Plan) -> Forecast:
    runs = len(plan.points) * len(plan.targets) * plan.runs
    duration_s = plan.duration_s or 0.0
    has_past = plan.conversations is not None and plan.conversations.calls > 1
    past = sum(int(point.value) for point in plan.points) if has_past else 0
    each_s = ramp_s(plan) + duration_s + _REST_S
    return Forecast(
        requests=None,
        warm_ups=past * len(plan.targets) * plan.runs,
        prompt_tokens=None,
        output_tokens=None,
        seconds=runs * each_s,
        why="by the duration of its levels",
        levels=len(plan.points) * len(plan.targets),
        # Pasts are computed before, and answers that began in the measured time are waited for.
        time=TimeRange(runs * each_s, runs * (each_s + agents_tail_s(plan))),
    )


_MINUTE_S = 60.0


def most_seconds(plan: Plan) -> float:
    """Return how long a search lasts at most, unless its requests are slow or its rates low."""
    return MOST_SEARCH_RUNS * LEVEL_OVERHEAD * longest_seconds(plan) * max(1, len(plan.targets))


def plan_sentences(plan: Plan, now: datetime) -> Iterator[str]:
    """Yield lines on what a search looks for, the levels it tries, and its end if it begins `now`."""
    capacity = plan.capacity
    if capacity is None:
        return
    what, conditions = _load_words(plan, capacity.kind), conditions_words(capacity)
    yield f"how many {what}? The largest number for which {conditions}"
    # What a search needs where no decision is close.
    usual_levels, seconds = CapacitySearch(capacity).levels_left(), most_seconds(plan)
    usual_s = usual_levels * LEVEL_OVERHEAD * (plan.duration_s or 0.0) * max(1, len(plan.targets))
    is_rate = capacity.kind is LoadKind.RATE
    first = "the rate of one request at a time" if is_rate else "1"
    each = duration_words(plan.duration_s)
    if is_rate:
        each += f" or {arrivals_needed(capacity.share):.0f} requests, whichever takes longer"
    end = (now + timedelta(seconds=seconds)).strftime("%H:%M")
    low, high = (-(-duration_s // _MINUTE_S) for duration_s in (usual_s, seconds))
    ends = "usually ends" if is_rate else "ends"
    yield (
        f"first {first}, then twice as much until a level fails (at most {capacity.most:g}), then levels "
        f"between, each for {each}. Close results are repeated with other requests. "
        f"About {usual_levels} runs in {low:.0f} min; "
        f"at most {MOST_SEARCH_RUNS} runs in {high:.0f} min: {ends} before {end}"
    )


def conditions_words(capacity: Capacity) -> str:
    """Return the conditions as text, with the share of requests that must meet them."""
    is_rate = capacity.kind is LoadKind.RATE
    words = " and ".join(plain_words(words_of(one), each=is_rate) for one in capacity.conditions)
    if is_rate:
        return f"{100 * capacity.share:g} % of the requests meet {words}"
    shares = {share_needed(capacity, condition) for condition in capacity.conditions}
    if len(shares) == 1:
        return f"{words} for {100 * shares.pop():.0f} % of the requests"
    return words


def _load_words(plan: Plan, kind: LoadKind) -> str:
    match kind:
        case LoadKind.AGENTS:
            name = "" if plan.conversations is None else f" ({plan.conversations.name})"
            return f"agents{name}"
        case LoadKind.RATE:
            return f"requests per second ({plan.pp} + {plan.tg} tokens, {plan.arrivals})"
        case _:
            return f"requests at once ({plan.pp} + {plan.tg} tokens)"
