"""Forecast of what a sweep will send and how long it will take, from its plan and earlier results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sparktop.graphics.numbers import duration_words, range_words
from sparktop.model.load import LoadMode
from sparktop.model.text import clean
from sparktop.model.time_range import TimeRange
from sparktop.sweep.plan.order import Load, loads
from sparktop.sweep.plan.plan import ENOUGH_S, Order, Plan
from sparktop.sweep.plan.slo import runs_needed
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.capacity.forecast import most_levels, most_seconds
from sparktop.sweep.run.conversations.forecast import conversation_forecast
from sparktop.sweep.run.estimate import LEAST, MOST, between, climbs
from sparktop.sweep.run.open_loop.forecast import open_forecast
from sparktop.sweep.run.pace import FASTEST, SLOWEST, AssumedPace, EarlierSweep, earlier_sweep


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
    known: Sequence[SweepResult],
    slots: Mapping[str, int] | None = None,
) -> Forecast:
    """Return the forecast of a plan from the results `known` of earlier sweeps, in any order.

    For each target, the result with the most similar loads is used; of several, the newest. If this result
    lacks a concurrency, the duration is interpolated on logarithmic scales. If it lacks a length, the time to
    first token is scaled with the prompt length and the remaining time with the output length. For each
    level, the result's mean time between two levels is added. `slots` are the numbers of requests that the
    targets can run at once, by target name, as far as known.
    """
    if plan.capacity is not None:
        levels, seconds = most_levels(plan) * len(plan.targets), most_seconds(plan)
        time = TimeRange(seconds / 3, seconds)
        return Forecast(None, 0, None, None, None, "for the search", levels=levels, time=time)
    if plan.mode is LoadMode.OPEN:
        return Forecast(**open_forecast(plan))
    if plan.mode is LoadMode.AGENTS:
        return Forecast(**conversation_forecast(plan))
    found = [earlier_sweep(target, plan, known) for target in plan.targets]
    most = _most(plan, found, slots or {})
    count = _measured(plan)
    warm_ups = sum(load.concurrency for load in loads(plan)) * len(plan.targets) if plan.warmup else 0
    sure = [one for one in found if one is not None]
    contexts = sum(_requests(plan, load) or 0 for load in loads(plan) if load.depth)
    contexts *= len(plan.targets)
    each = [(_sent(load), _requests(plan, load) or 0) for load in loads(plan)]
    return Forecast(
        requests=count,
        warm_ups=warm_ups + contexts,
        prompt_tokens=None if count is None else sum(map(math.prod, each)) * len(plan.targets),
        output_tokens=None if count is None else (count + contexts) * plan.tg,
        seconds=_seconds(plan, sure) if sure and len(sure) == len(found) else None,
        why=_why(plan, found),
        at_least=plan.searches or plan.more_runs or most is not None,
        levels=len(loads(plan)) * len(plan.targets),
        most_concurrency=most,
        time=_time(plan, found, most),
    )


def _sent(load: Load) -> int:
    """Return the prompt tokens that a measured request stands for, with those sent before it."""
    return load.prompt_tokens + 2 * load.depth


def _farthest(plan: Plan, most: int) -> Plan:
    """Return `plan` with all concurrencies added that the sweep may go on to, up to `most`."""
    more = [*between(plan.concurrency), *climbs(max(plan.concurrency, default=1), most)]
    return replace(plan, concurrency=(*plan.concurrency, *more))


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
    if plan.searches:
        return runs_needed(plan, load.concurrency)
    return plan.runs_of(load.concurrency)


def _most(plan: Plan, found: Iterable[EarlierSweep | None], slots: Mapping[str, int]) -> int | None:
    """Return the highest concurrency that any target of the plan may go on to; None if to none.

    `slots` are the numbers of requests that targets can run at once, by target name. For other targets, the
    earlier sweeps `found` may have them.
    """
    if plan.climb_to is None:
        return None
    known = [
        slots.get(target.name) or (one.slots(target.url) if one is not None else None) or plan.climb_to
        for target, one in zip(plan.targets, found, strict=True)
    ]
    most = min(plan.climb_to, max(known, default=0))
    return most if most > max(plan.concurrency, default=1) else None


def _seconds(plan: Plan, found: Sequence[EarlierSweep | AssumedPace]) -> float:
    """Return the expected duration of the plan in seconds, from an earlier sweep for each of its targets."""
    total = max(one.begin_s for one in found)
    for one in found:
        total += sum(_level_s(plan, load, one) for load in loads(plan)) + one.pause_s * _stints(plan)
    return total


def _time(plan: Plan, found: Sequence[EarlierSweep | None], top: int | None) -> TimeRange | None:
    """Return the range of the sweep's duration; None if it searches for SLO limits.

    `top` is the highest concurrency that the sweep may go on to. Where no earlier sweep is known (None in
    `found`), the range is that from fast to slow servers.
    """
    if plan.searches or not plan.targets:
        return None
    farthest = plan if top is None else _farthest(plan, top)
    fast = [one or FASTEST for one in found]
    slow = [one or SLOWEST for one in found]
    # Assumed speeds are the ends of a range already.
    least, most = (1.0, 1.0) if None in found else (LEAST, MOST)
    return TimeRange(least * _seconds(plan, fast), most * _seconds(farthest, slow))


def _why(plan: Plan, found: Sequence[EarlierSweep | None]) -> str:
    """Return the source of a forecast's duration and how reliable it is."""
    unknown = [target.name for target, one in zip(plan.targets, found, strict=True) if one is None]
    if not plan.targets:
        return "unknown: no target"
    if not unknown:
        return _source_words([one for one in found if one is not None], plan)
    first = f"{clean(', '.join(unknown), 80)} not measured before"
    return f"unknown: {first}" if plan.searches else first


def _level_s(plan: Plan, load: Load, earlier: EarlierSweep | AssumedPace) -> float:
    """Return the expected seconds of a level on one target, its warm-up run included."""
    run_s = earlier.run_s(load, plan.tg)
    total = run_s if plan.warmup else 0.0
    if load.depth:  # the context is sent before each run
        run_s += earlier.run_s(replace(load, prompt_tokens=load.depth, depth=0), plan.tg)
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


def _source_words(earlier: Sequence[EarlierSweep], plan: Plan) -> str:
    """Return text that names the sweeps a forecast is based on, and how near they are to the plan.

    For example "roughly, from other concurrencies in your sweep of 3 Mar 14:05".
    """
    times = dict.fromkeys(
        one.result.started_at for one in sorted(earlier, key=lambda one: one.result.started_at)
    )
    when = " and ".join(f"{time.astimezone():%-d %b %H:%M}" for time in list(times)[-2:])
    named = f"your sweep{'s' if len(times) > 1 else ''} of {when}"
    worst = max(one.sure(loads(plan), plan.tg) for one in earlier)
    if worst == 0:
        return f"estimated from {named}"
    if worst == 1:
        return f"roughly, from other concurrencies in {named}"
    return f"a guess, from other lengths in {named}"


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
    return f"{'' if found.requests is None else least}{sent}{warm}", tokens, _time_words(found)


def _time_words(found: Forecast) -> str:
    if found.time is None:
        known = found.seconds is not None
        return f"at least {duration_words(found.seconds)} {found.why}" if known else f"time {found.why}"
    return f"{range_words(found.time.least_s, found.time.most_s)}: {levels_words(found)}; {found.why}"


def levels_words(found: Forecast) -> str:
    """Return the number of levels as text: "3 levels, may go on to c = 256"."""
    levels = f"{found.levels} level{'' if found.levels == 1 else 's'}"
    more = found.most_concurrency
    return levels if more is None else f"{levels}, may go on to c = {more}"
