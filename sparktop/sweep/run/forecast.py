"""Forecast of what a sweep will send and how long it takes: before it begins, and while it runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from sparktop.graphics.numbers import count_words, duration_words, range_words
from sparktop.model.instant import TimeRange
from sparktop.model.load import Level, LoadKind, LoadMode, concurrency_point
from sparktop.model.snapshot import Snapshot
from sparktop.model.text import clean, names_in_words
from sparktop.sweep.plan.arrivals import mean_per_s
from sparktop.sweep.plan.capacity import arrivals_needed, longest_seconds, share_needed
from sparktop.sweep.plan.plan import ENOUGH_S, Capacity, Plan, RunBatch, SweepTarget, run_batches, run_numbers
from sparktop.sweep.plan.presets import OPEN_S
from sparktop.sweep.plan.slo import plain_words, runs_needed, words_of
from sparktop.sweep.plan.traces import TraceReplay
from sparktop.sweep.result.results import LevelResult, SweepResult
from sparktop.sweep.run.open_loop import ramp_s, tail_s
from sparktop.sweep.run.preparation import beyond_contexts, without_refused
from sparktop.sweep.run.result_builder import plan_result
from sparktop.sweep.run.search import LEVEL_OVERHEAD, MOST_SEARCH_RUNS, CapacitySearch
from sparktop.sweep.run.server_side import watched_slots

_GROWTH = 0.6
"""The duration of a load run grows roughly as the concurrency to this power (measured with gpt-oss-120b on
batching servers, concurrency 1 to 64). Used until two different loads of the sweep have been measured."""
MOST_RUNS = 200
"""Maximum number of runs of a level that gets more runs than planned because they are short."""
_STEEPEST = 1.0
"""Maximum exponent of a growth that was measured: on a saturated server, twice the requests take twice the
time."""
LEAST_FACTOR, MOST_FACTOR = 0.8, 1.25
"""Factors from the expected duration to the ends of its range (measured with simulated servers)."""
_SATURATED = 0.93
"""Exponent from which on token rates rise by less than 5 % when the concurrency is doubled."""
_MOST_WHEN_SATURATED = 2
"""Levels that the sweep adds at most from there on, see `next_step` of `sparktop.sweep.run.search`."""
GAP = 2
"""Ratio of two neighbouring concurrencies from which on the sweep may add a level between them."""
_PAUSE_S = 1.0
"""Assumed seconds from the end of a level of bursts or steady requests until the servers are idle. Used until
some were measured."""
_BEGIN_S = 3.0
"""Assumed seconds until the first level: the load generator starts and calibrates each prompt length."""


_Pace = tuple[float, float]
"""Tokens per second of a single request: (generated, of the prompt)."""
_FASTEST, _SLOWEST = (100.0, 8000.0), (15.0, 1000.0)
"""The assumed range of a target without an earlier sweep."""
_Limits = Mapping[str, int]
"""Highest concurrency to which the sweep may go on, by target."""


class Estimate:
    """Estimates the remaining time of a sweep from the durations of load runs."""

    def __init__(self, plan: Plan, assumed: _Pace | None = None, most: _Limits | None = None) -> None:
        """Start without any measured duration; `assumed` is the speed of servers of which none is known."""
        self._plan = plan
        self._assumed = assumed
        self._durations: dict[Level, list[float]] = {}
        """Seconds of the runs that have ended, and of those of earlier sweeps, by level."""
        self._made = set[Level]()
        """Levels of which this sweep has ended a run."""
        self._pauses: list[float] = []
        self.most = most or {}
        """The limits of the targets; empty if the sweep adds no levels."""

    def learn_run(self, level: Level, seconds: float, *, earlier: bool = False) -> None:
        """Record that one load run (measured or warm-up) took `seconds`, in this sweep or an earlier one."""
        self._durations.setdefault(level, []).append(seconds)
        if not earlier:
            self._made.add(level)

    def learn_pause(self, seconds: float) -> None:
        """Record how many seconds the servers took to become idle after a series of runs of one level."""
        self._pauses.append(seconds)

    def run_s(self, level: Level) -> float | None:
        """Return the expected duration of one load run in seconds; None if it cannot be estimated yet.

        If the plan fixes the duration of a run, return it. Otherwise return the mean duration of the ended
        runs of the level. If there are none, scale the mean duration of the most similar level that was run.
        """
        plan = self._plan
        if plan.mode is LoadMode.STEADY and plan.duration_s is not None:
            return plan.duration_s
        if durations := self._durations.get(level):
            return fmean(durations)
        if plan.mode in {LoadMode.OPEN, LoadMode.AGENTS}:
            return ramp_s(plan) + (plan.duration_s or 0.0)
        run_times = self._mean_run_times(level.target) or self._mean_run_times(None)
        if not run_times:
            return self._assumed_s(level)
        weight = self._weight(level)
        nearest, seconds = min(run_times, key=lambda measured: abs(math.log(measured[0] / weight)))
        return float(seconds * (weight / nearest) ** _growth(run_times))

    def _assumed_s(self, level: Level) -> float | None:
        if self._assumed is None:
            return None
        plan, concurrency = self._plan, level.point.most_in_flight
        decode_tps, prefill_tps = self._assumed
        # The context is sent before each run, with an answer of its own.
        prefill_s = (plan.length_of(level) + level.depth) * concurrency / prefill_tps
        decode_s = plan.tg / decode_tps * concurrency**_GROWTH * (2 if level.depth else 1)
        return float(prefill_s + decode_s) * bursts_of_run(plan, concurrency)

    def runs_of(self, batch: RunBatch) -> int | None:
        """Return the expected number of runs of a batch.

        This is the planned number, or more if the plan adds runs to short levels. None if only the duration
        limits the batch.
        """
        if batch.runs is None:
            return None
        seconds = self.run_s(batch.level) if self._plan.more_runs else None
        enough = min(MOST_RUNS, math.ceil(ENOUGH_S / seconds)) if seconds else 0
        return max(len(batch.runs), enough)

    def range_s(self, todo: Sequence[RunBatch], ended: int) -> TimeRange | None:
        """Return the range of the seconds until the sweep ends; None if `todo` is empty or nothing is known.

        The first of `todo` is the current batch, of which `ended` runs have ended and the next is about to
        begin; -1: its warm-up is about to begin. The upper end includes the levels that the sweep may add.
        """
        least_s, most_s = self.left_s(todo, ended), self.longest_s(todo, ended)
        if least_s is None or most_s is None:
            return None
        return TimeRange(LEAST_FACTOR * least_s, MOST_FACTOR * most_s)

    def longest_s(self, todo: Sequence[RunBatch], ended: int = -1) -> float | None:
        """Return the expected seconds with the levels that the sweep may add; see `range_s`."""
        return self.left_s([*todo, *self._possible_batches(todo)], ended)

    def _possible_batches(self, todo: Sequence[RunBatch]) -> Iterator[RunBatch]:
        """Yield the batches that may follow those in `todo`: higher concurrencies, and one between two."""
        groups: dict[tuple[str, int | None], list[Level]] = {}
        for batch in todo:
            groups.setdefault((batch.level.target, batch.level.pp), []).append(batch.level)
        for (name, length), levels in groups.items():
            measured = {
                level.point.most_in_flight
                for level in self._made
                if (level.target, level.pp) == (name, length)
            }
            coming = {level.point.most_in_flight for level in levels}
            top = max(measured | coming)
            limit = self.most.get(name, 0)
            # A level below the top that is to come is the one between two others, with which a sweep ends.
            if not limit or max(coming) < top:
                continue
            higher = doublings(top, limit)
            if _growth(self._mean_run_times(name)) >= _SATURATED:
                higher = higher[:_MOST_WHEN_SATURATED]
            for concurrency in (*concurrencies_between([*measured, *coming]), *higher):
                level = self._plan.level(name, concurrency_point(concurrency), length)
                yield RunBatch(level, run_numbers(self._plan, level))

    def left_s(self, todo: Sequence[RunBatch], ended: int = -1) -> float | None:
        """Return the expected seconds until all batches in `todo` have ended; see `range_s`."""
        if not todo:
            return None
        plan, total = self._plan, 0.0
        pause_s = fmean(self._pauses) if self._pauses else _PAUSE_S
        for number, batch in enumerate(todo):
            seconds, runs = self.run_s(batch.level), self.runs_of(batch)
            if seconds is None:
                return None
            is_begun = number == 0 and ended >= 0
            runs_s = plan.duration_s or 0.0
            if runs is not None:
                runs_s = seconds * max(0, runs - (ended if is_begun else 0))
            if batch.last and plan.beside is not None:  # all runs again, while long prompts arrive
                runs_s += seconds * plan.runs
            warms = batch.first and not is_begun and plan.warmup and plan.mode is LoadMode.BURST
            total += pause_s + runs_s + (seconds if warms else 0.0)
        return total

    def _mean_run_times(self, target: str | None) -> list[tuple[float, float]]:
        """Return (size of the load, mean seconds of its runs) of each level that was run."""
        return [
            (self._weight(level), fmean(times))
            for level, times in self._durations.items()
            if target in {None, level.target} and sum(times) > 0
        ]

    def _weight(self, level: Level) -> float:
        """Return the size of a load: concurrency × square root of the tokens before the answer."""
        return level.point.most_in_flight * math.sqrt(self._plan.length_of(level) + level.depth)


def _growth(run_times: list[tuple[float, float]]) -> float:
    """Return the exponent (0 to 1) with which the duration of a run grows with the size of its load.

    It is computed from the two largest loads; `_GROWTH` if all have the same size.
    """
    ends = sorted(run_times)[-2:]
    if len({weight for weight, _ in ends}) < 2:  # noqa: PLR2004 - a line has two ends
        return _GROWTH
    (low, low_s), (high, high_s) = ends
    return min(_STEEPEST, max(0.0, math.log(high_s / low_s) / math.log(high / low)))


def bursts_of_run(plan: Plan, concurrency: int) -> float:
    """Return the length of a run in bursts: requests / concurrency for a number of steady ones, else 1."""
    is_counted = plan.mode is LoadMode.STEADY and plan.requests is not None
    return max(1.0, (plan.requests or 0) / concurrency) if is_counted else 1.0


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


class EarlierSweep(Struct, frozen=True):
    """What an earlier sweep of a target says of its speed."""

    started_at: datetime
    slots: int | None
    """How many requests the target could run at once; None if unknown."""
    run_s: Mapping[Level, float]
    """Mean seconds of a load run of each level, with answers as long as those of the plan."""


def earlier_sweep(target: SweepTarget, plan: Plan, results: Sequence[SweepResult]) -> EarlierSweep | None:
    """Return the newest usable sweep of `target`, first those with levels of the plan; None without any."""
    usable = []
    for result in results:
        for measured in result.targets:
            if measured.url != target.url or (target.model or measured.model) != measured.model:
                continue
            run_s = {}
            for level in measured.levels:
                prompt = level.pp or result.plan.pp
                seconds = _run_seconds(plan, level, result)
                if prompt and seconds:
                    point = concurrency_point(level.concurrency)
                    run_s[plan.level(target.name, point, prompt)] = seconds
            if run_s:
                usable.append(EarlierSweep(result.started_at, measured.slots, run_s))
    planned = set(plan.levels(target.name))
    return max(
        usable, key=lambda sweep: (not planned.isdisjoint(sweep.run_s), sweep.started_at), default=None
    )


def _run_seconds(plan: Plan, level: LevelResult, result: SweepResult) -> float | None:
    """Return the mean seconds of a load run of a measured level, with answers as long as those of `plan`.

    In steady mode, the mean duration of a request stands for that of a burst. None if requests failed, if
    none succeeded, if the level was cut short or had a context, or if its axis is not the concurrency.
    """
    unusable = level.is_cut_short or level.load is not LoadKind.CONCURRENCY or level.depth > 0
    output = level.tg or result.plan.tg
    if unusable or level.requests.failed or not level.requests.ok or not output:
        return None
    if result.plan.mode is LoadMode.STEADY:
        run_s = level.e2e_ms.mean / 1000 if level.e2e_ms is not None else 0.0
    else:
        run_s = (level.duration_s or 0.0) / level.runs if level.runs else 0.0
    first_s = min(run_s, level.ttft_ms.mean / 1000 if level.ttft_ms is not None else 0.0)
    return (first_s + (run_s - first_s) * plan.tg / output) * bursts_of_run(plan, level.concurrency)


class Forecast(Struct, frozen=True):
    """The expected requests, tokens and duration of a sweep."""

    why: str
    """The source of `time` and how reliable it is, or why it is unknown."""
    levels: int
    """Planned levels of all targets."""
    time: TimeRange | None = None
    """Range of the sweep's duration, with warm-ups and the levels that it may add; None for an SLO search."""
    requests: int | None = None
    """Measured requests; None if only the duration limits them."""
    warm_ups: int = 0
    """Requests of warm-up runs and those that send contexts alone, not included in `requests`."""
    prompt_tokens: int | None = None
    """Prompt tokens of the measured requests and of contexts; None if their number is unknown."""
    output_tokens: int | None = None
    """Tokens that the measured requests and contexts ask for; None if their number is unknown."""
    at_least: bool = False
    """True if all values are minimums: an SLO search may measure more levels than the plan has, and a sweep
    that goes on to higher concurrencies, or that adds runs to short levels, may send more requests."""
    higher: tuple[int, ...] = ()
    """Concurrencies to which the sweep goes on, one after the other, while the token rate rises."""
    fills_slots: bool = False
    """Whether the last of them is as many requests as the servers run at once."""
    refused: str = ""
    """What the servers will not take, see `beyond_contexts`."""


def forecast(plan: Plan, results: Sequence[SweepResult], snapshot: Snapshot | None = None) -> Forecast:
    """Return the forecast of a plan from the `results` of earlier sweeps, in any order.

    `snapshot` has the watched servers, which say how many requests they run at once.
    """
    if snapshot is None or plan.capacity is not None:  # a search takes conversations that fit
        return _forecast_of(plan, results, snapshot)
    refused, is_all = beyond_contexts(plan, snapshot)
    expected = _forecast_of(without_refused(plan, snapshot), results, snapshot)
    return replace(expected, refused=f"nothing can be measured: {refused}" if is_all else refused)


def _forecast_of(plan: Plan, results: Sequence[SweepResult], snapshot: Snapshot | None) -> Forecast:
    """Return the forecast of a plan all of whose levels are made, as `forecast` does."""
    if plan.capacity is not None:
        levels, seconds = MOST_SEARCH_RUNS * len(plan.targets), most_seconds(plan)
        return Forecast("for the search", levels, TimeRange(seconds / 3, seconds))
    if plan.trace is not None:
        return _replay_forecast(plan, plan.trace)
    if plan.mode is LoadMode.OPEN:
        return _open_forecast(plan)
    if plan.mode is LoadMode.AGENTS:
        return _conversation_forecast(plan)
    earlier = {target.name: earlier_sweep(target, plan, results) for target in plan.targets}
    slots = {} if snapshot is None else watched_slots(plan, snapshot)
    limits = _highest_concurrencies(plan, earlier, slots)
    targets = len(plan.targets)
    asked = [(level, _level_requests(plan, level)) for level in plan.levels()]
    is_known = all(requests is not None for _, requests in asked)
    count = targets * sum(requests or 0 for _, requests in asked) if is_known else None
    warm_ups = targets * sum(level.point.most_in_flight for level, _ in asked) if plan.warmup else 0
    contexts = targets * sum(requests or 0 for level, requests in asked if level.depth)
    # A context is sent alone first, then with the request.
    prompts = targets * sum(
        (plan.length_of(level) + 2 * level.depth) * (requests or 0) for level, requests in asked
    )
    highest = max(limits.values(), default=None)
    return Forecast(
        _duration_source(plan, earlier),
        len(asked) * targets,
        None if plan.searches_concurrency_or_rate or not targets else _time_range(plan, earlier, limits),
        requests=count,
        warm_ups=warm_ups + contexts,
        prompt_tokens=None if count is None else prompts,
        output_tokens=None if count is None else (count + contexts) * plan.tg,
        at_least=plan.searches_concurrency_or_rate or plan.more_runs or bool(limits),
        higher=() if highest is None else tuple(doublings(max(plan.concurrency), highest)),
        fills_slots=highest is not None and highest < (plan.climb_to or 0),  # else the plan sets the limit
    )


def _level_requests(plan: Plan, level: Level) -> int | None:
    """Return the number of measured requests of a level on one target; None if only time limits it."""
    concurrency = level.point.most_in_flight
    runs = runs_needed(plan, concurrency) if plan.searches_concurrency_or_rate else plan.runs_of(concurrency)
    each = plan.requests if plan.mode is LoadMode.STEADY else concurrency
    return None if runs is None or each is None else runs * each


def _highest_concurrencies(
    plan: Plan, earlier: Mapping[str, EarlierSweep | None], slots: Mapping[str, int]
) -> dict[str, int]:
    """Return the concurrency to which the sweep may go on, by target, where that is beyond the plan's levels.

    `slots` are the numbers of requests that targets can run at once, by target name. For other targets, the
    earlier sweeps may have them.
    """
    limit, top = plan.climb_to or 0, max(plan.concurrency, default=1)
    slots_of = {name: slots.get(name) or (sweep and sweep.slots) or limit for name, sweep in earlier.items()}
    return {name: min(limit, count) for name, count in slots_of.items() if min(limit, count) > top}


def _time_range(plan: Plan, earlier: Mapping[str, EarlierSweep | None], limits: _Limits) -> TimeRange | None:
    """Return the range of the sweep's duration, with the levels that it may add up to `limits`.

    Where an earlier sweep is unknown, it is that from fast to slow servers.
    """
    batches = list(run_batches(plan))
    sweeps = [sweep for sweep in earlier.values() if sweep is not None]
    if len(sweeps) < len(earlier):  # assumed speeds are the ends of a range already
        least_s = Estimate(plan, _FASTEST, limits).left_s(batches)
        most_s = Estimate(plan, _SLOWEST, limits).longest_s(batches)
        expected = None if least_s is None or most_s is None else TimeRange(least_s, most_s)
    else:
        estimate = Estimate(plan, most=limits)
        for sweep in sweeps:
            for level, seconds in sweep.run_s.items():
                estimate.learn_run(level, seconds, earlier=True)
        expected = estimate.range_s(batches, -1)
    return None if expected is None else TimeRange(_BEGIN_S + expected.least_s, _BEGIN_S + expected.most_s)


def _duration_source(plan: Plan, earlier: Mapping[str, EarlierSweep | None]) -> str:
    """Return the source of a forecast's duration: "estimated from your sweep of 3 Mar 14:05"."""
    if not plan.targets:
        return "unknown: no target"
    if plan.searches_concurrency_or_rate:
        return "unknown: the servers decide how many levels"
    unknown = [name for name, sweep in earlier.items() if sweep is None]
    if unknown:
        of = f" on {clean(names_in_words(unknown), 80)}" if len(unknown) < len(plan.targets) else ""
        return f"a guess: nothing like it was measured yet{of}"
    sweeps = {name: sweep for name, sweep in earlier.items() if sweep is not None}
    is_same = all(set(plan.levels(name)) <= sweep.run_s.keys() for name, sweep in sweeps.items())
    times = sorted({sweep.started_at for sweep in sweeps.values()})
    when = " and ".join(f"{time.astimezone():%-d %b %H:%M}" for time in times[-2:])
    source = "estimated from" if is_same else "roughly, from"
    return f"{source} your sweep{'s' if len(times) > 1 else ''} of {when}"


def pieces(expected: Forecast) -> tuple[str, ...]:
    """Return a forecast as texts: number of requests, number of tokens, duration, what servers will not take.

    The last is left out where nothing of the kind is known.
    """
    least = "at least " if expected.at_least else ""
    warm = f" and {expected.warm_ups:,} to warm up" if expected.warm_ups else ""
    noun = "request" if expected.requests == 1 else "requests"
    requests = f"as many {noun} as fit into the time"
    if expected.requests is not None:
        requests = f"{least}{expected.requests:,} {noun}"
    tokens = "how many tokens is not known before"
    if expected.prompt_tokens is not None and expected.output_tokens is not None:
        tokens = f"{expected.prompt_tokens:,} prompt and {expected.output_tokens:,} output tokens"
    return (f"{requests}{warm}", tokens, _time_words(expected), *filter(None, (expected.refused,)))


def _time_words(expected: Forecast) -> str:
    if expected.time is None:
        return f"duration {expected.why}"
    further = ""
    if expected.higher:
        higher = f"{', '.join(map(str, expected.higher))}{' (all slots)' if expected.fills_slots else ''}"
        further = f", then c = {higher} while tok/s rise"
    time = range_words(expected.time.least_s, expected.time.most_s)
    return f"{count_words(expected.levels, 'level')}{further}, in {time} ({expected.why})"


def plan_line(plan: Plan, earlier: Sequence[SweepResult] = (), snapshot: Snapshot | None = None) -> str:
    """Return in a line what a sweep is about to do, see `forecast`: its loads, requests and duration."""
    expected = forecast(plan, earlier, snapshot)
    if plan.trace is not None:
        return "; ".join((_replay_words(plan.trace), *pieces(expected)[1:]))
    words = (_axis_words(plan), *plan_result(plan).request_words)
    return f"{', '.join(words)}: {'; '.join(pieces(expected))}"


def _axis_words(plan: Plan) -> str:
    """Return the levels of a plan: "c = 1, 4", "0.5, 1 requests/s (poisson)"."""
    if plan.search_rate:
        return (
            f"rates rise from that of one request at a time until the server falls behind ({plan.arrivals})"
        )
    levels = ", ".join(dict.fromkeys(point.words for point in plan.axis))  # once for all kinds of text
    match plan.kind:
        case LoadKind.RATE:
            return f"{levels} requests/s ({plan.arrivals})"
        case LoadKind.CONCURRENCY:
            return f"c = {levels} requests at once"
        case kind:
            workload = "" if plan.conversations is None else f" (workload {plan.conversations.name})"
            return f"{levels} {kind.value}{workload}"


def _replay_words(replay: TraceReplay) -> str:
    """Return what a replay will send: requests, duration, rate, and what it leaves out."""
    speed = "" if replay.choice.speed == 1.0 else f" at {replay.choice.speed:g}×"
    count = count_words(replay.requests, "request")
    longer = ""
    if replay.waits:
        count += f" in {replay.conversations:,} conversations"
        longer = " or longer, as turns wait for answers"
    name = f"{replay.name} ({replay.form.value}){speed}"
    parts = [f"{name}: {count}, {duration_words(replay.duration_s)}{longer}"]
    if replay.skipped:
        parts.append(f"{replay.skipped:,} that failed when they were recorded are left out")
    if replay.shortened:
        parts.append(f"{replay.shortened:,} longer pauses are shortened to 5 min")
    return "; ".join(parts)


_RATE_SEARCH_LEVELS = 8
"""Usual number of levels of a search for the highest rate: five doublings, then three between."""
_LATE_S = 120.0
"""Seconds that a replay lasts longer than its trace, if the server is slow."""
_REST_S = 3.0
"""Usual seconds between two levels of rates, recorded traffic or conversations, whose last requests must end
before the servers become idle."""


def _open_forecast(plan: Plan) -> Forecast:
    duration_s, repeats = plan.duration_s or OPEN_S, plan.runs * len(plan.targets)
    if plan.search_rate:
        levels = _RATE_SEARCH_LEVELS * len(plan.targets)
        return Forecast("a guess: the server decides how many levels", levels, _timed_range(plan, levels))
    requests = repeats * sum(round(mean_per_s(point) * duration_s) for point in plan.points)
    ramp_requests = repeats * sum(round(point.value * ramp_s(plan)) for point in plan.points)
    levels = len(plan.points) * len(plan.lengths) * len(plan.targets)
    return Forecast(
        "by its rates",
        levels,
        _timed_range(plan, levels),
        requests=requests * len(plan.lengths),
        warm_ups=ramp_requests * len(plan.lengths),
        prompt_tokens=requests * sum(plan.lengths),
        output_tokens=requests * len(plan.lengths) * plan.tg,
    )


def _timed_range(plan: Plan, levels: int) -> TimeRange:
    """Return the duration of levels of a rate or of agents, whose last answers are waited for."""
    each_s = ramp_s(plan) + (plan.duration_s or OPEN_S) + _REST_S
    return TimeRange(levels * plan.runs * each_s, levels * plan.runs * (each_s + tail_s(plan)))


def _replay_forecast(plan: Plan, replay: TraceReplay) -> Forecast:
    runs = plan.runs * len(plan.targets)
    least_s = runs * (replay.begin_s + replay.duration_s + _REST_S)
    return Forecast(
        "by its trace" + (", if answers take no time" if replay.waits else ""),
        len(plan.targets),
        TimeRange(least_s, least_s + runs * min(_LATE_S, replay.tail_s)),
        requests=replay.requests * runs,
        warm_ups=len(plan.targets) if plan.warmup else 0,
        prompt_tokens=None if replay.texts else replay.prompt_tokens * runs,
        output_tokens=replay.output_tokens * runs,
    )


def _conversation_forecast(plan: Plan) -> Forecast:
    levels = len(plan.points) * len(plan.targets)
    has_past = plan.conversations is not None and plan.conversations.calls > 1
    # Requests that compute the earlier turns of conversations before the measured time.
    past = sum(int(point.value) for point in plan.points) if has_past else 0
    warm_ups, time = past * len(plan.targets) * plan.runs, _timed_range(plan, levels)
    return Forecast("by the duration of its levels", levels, time, warm_ups=warm_ups)


_MINUTE_S = 60.0


def most_seconds(plan: Plan) -> float:
    """Return how long a search lasts at most, unless its requests are slow or its rates low."""
    return MOST_SEARCH_RUNS * LEVEL_OVERHEAD * longest_seconds(plan) * max(1, len(plan.targets))


def plan_sentences(plan: Plan, now: datetime) -> Iterator[str]:
    """Yield lines on what a search looks for, the levels it tries, and its end if it begins `now`."""
    capacity = plan.capacity
    if capacity is None:
        return
    load_words, conditions = _load_words(plan, capacity.kind), conditions_words(capacity)
    yield f"how many {load_words}? The largest number for which {conditions}"
    # What a search needs where no decision is close.
    usual_levels, seconds = CapacitySearch(capacity).levels_left(), most_seconds(plan)
    usual_s = usual_levels * LEVEL_OVERHEAD * (plan.duration_s or 0.0) * max(1, len(plan.targets))
    is_rate = capacity.kind is LoadKind.RATE
    first = "the rate of one request at a time" if is_rate else "1"
    each = duration_words(plan.duration_s)
    if is_rate:
        each += f" or {arrivals_needed(capacity.share):.0f} requests, whichever takes longer"
    end = (now + timedelta(seconds=seconds)).strftime("%H:%M")
    low, high = (math.ceil(duration_s / _MINUTE_S) for duration_s in (usual_s, seconds))
    ends = "usually ends" if is_rate else "ends"
    yield (
        f"first {first}, then twice as much until a level fails (at most {capacity.most:g}), then levels "
        f"between, each for {each}. Close results are repeated with other requests. "
        f"About {usual_levels} runs in {low} min; "
        f"at most {MOST_SEARCH_RUNS} runs in {high} min: {ends} before {end}"
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
    if plan.conversations is not None:
        return f"{kind.amount} ({plan.conversations.name})"
    arrivals = f", {plan.arrivals}" if kind is LoadKind.RATE else ""
    return f"{kind.amount} ({plan.pp} + {plan.tg} tokens{arrivals})"
