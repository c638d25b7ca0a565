"""Requests at a rate, recorded traffic, agents: the times of a run, reasons to doubt it, and its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sparktop.model.load import Level, LoadMode
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.plan.presets import OPEN_S
from sparktop.sweep.plan.traces import TraceReplay
from sparktop.sweep.result.level import cached_tokens, phases
from sparktop.sweep.result.measure import RequestTrace, Span
from sparktop.sweep.result.results import LevelResult, ReplayResult, TracePlan, Validity
from sparktop.sweep.run.server_side import Counters
from sparktop.sweep.terms.definitions import LATE_SENDS, OVERLOADED, UNANSWERED, UNSTABLE

_PERCENT = 100.0
_WARM_UP_SHARE, _LONGEST_WARM_UP_S = 0.25, 120.0
"""A level that begins with an empty queue looks too good: with answers of 30 s at 80 % of the load that 16
slots can carry, the mean wait of a level of 600 s is 4 % low after a warm-up of 30 s, right after 120 s."""
_RAMP_SHARE, _LONGEST_SHARE = 0.1, 0.5
"""Bounds of the time over which agents start, as shares of a level's duration."""
_LONGEST_RAMP_S = 30.0
"""Most seconds over which agents start, where their pauses are not longer."""
_LEAST_TAIL_S, _LONGEST_TAIL_S = 30.0, 120.0
"""Bounds of the seconds after the measured time in which its last answers are waited for."""


def ramp_s(plan: Plan) -> float:
    """Return the seconds at the begin of a run in which nothing is measured, at a rate and of agents.

    * Recorded traffic: the pause before its first request; all are measured.
    * At a rate: the queue gets its usual length meanwhile.
    * Agents: they start within the mean pause between two calls, so that calls come as often as later on.
      That is at least a tenth of the level's duration or 30 s, whichever is less, and at most half of it.
    """
    if plan.trace is not None:
        return plan.trace.begin_s
    if plan.mode is LoadMode.OPEN:
        return min(_LONGEST_WARM_UP_S, _WARM_UP_SHARE * (plan.duration_s or OPEN_S)) if plan.warmup else 0.0
    duration_s, preset = plan.duration_s or 0.0, plan.conversations
    tenth_s = min(_LONGEST_RAMP_S, _RAMP_SHARE * duration_s)
    return tenth_s if preset is None else min(max(tenth_s, preset.pause_s), _LONGEST_SHARE * duration_s)


def tail_s(plan: Plan) -> float:
    """Return the longest time for which the load stays on after the measured time, until all has ended."""
    if plan.trace is not None:
        return plan.trace.tail_s
    return min(_LONGEST_TAIL_S, max(_LEAST_TAIL_S, plan.duration_s or OPEN_S))


def draw_seed(plan: Plan, level: Level, run: int) -> str:
    """Return what determines the arrivals or the conversations of a run; it is the same for all targets.

    All levels of agents get the same conversations, except those of a capacity search: together these say
    more about the servers.
    """
    if plan.mode is LoadMode.AGENTS and plan.capacity is None:
        return f"{plan.seed}/{run}" if run else str(plan.seed)
    return f"{plan.seed}/{plan.id_of(level)}/{run}"


def open_loop_doubts(level: LevelResult) -> Iterator[Validity]:
    """Yield the reasons to doubt the latencies of a level with requests at a rate."""
    loop = level.open_loop
    if loop is None:
        return
    if loop.unstable:
        queue = "" if loop.queue_growth_per_s is None else f", the queue {loop.queue_growth_per_s:.2f} /s"
        completed = "" if loop.completed_per_s is None else f"; {loop.completed_per_s:.2f} /s completed"
        message = f"the server does not keep up: {loop.growth_words}{queue}{completed}"
        yield Validity(code=UNSTABLE, message=message)
    if loop.overloaded:
        message = f"{loop.in_flight_limit} requests were in flight, the limit of the client: latencies are "
        yield Validity(code=OVERLOADED, message=f"{message}lower bounds")
    if loop.unanswered and not loop.unstable:
        message = f"{loop.unanswered} of {loop.requests} requests had no answer when the run ended: they "
        yield Validity(code=UNANSWERED, message=f"{message}count with their age")
    if level.replay is not None and level.replay.not_due:
        message = (
            f"{level.replay.not_due} turns of conversations were not sent: the answer before had not come"
        )
        yield Validity(code=UNANSWERED, message=message)
    if loop.late and not loop.overloaded:
        wait = "" if loop.client_wait_p99_ms is None else f" (p99 {loop.client_wait_p99_ms:.1f} ms)"
        message = f"requests were sent later than they were due{wait}; TTFT due and E2E due include that"
        yield Validity(code=LATE_SENDS, message=message)


def trace_plan(replay: TraceReplay | None) -> TracePlan | None:
    """Return the recorded traffic of a plan as its result holds it; None for other plans."""
    if replay is None:
        return None
    choice = replay.choice
    return TracePlan(
        name=replay.name,
        path=choice.path,
        form=replay.form.value,
        speed=choice.speed,
        from_s=choice.from_s or None,
        to_s=choice.to_s,
        requests=replay.requests,
        duration_s=replay.duration_s,
        waits=replay.waits,
    )


def with_replay(
    level: LevelResult,
    plan: Plan,
    traces: Sequence[RequestTrace],
    spans: Mapping[int, Span],
    context_tokens: int | None,
    grown: Counters | None,
    *,
    is_cut: bool = False,
) -> LevelResult:
    """Return a level that replays recorded traffic with what it shows beside an open loop; others unchanged.

    `spans` has the measured time of each run, `grown` the growth of the servers' counters over these runs
    (None if unknown). With `is_cut` the run was interrupted, so that the rest of the trace is not missing.
    """
    replay = plan.trace
    if replay is None:
        return level
    prompt, cached = cached_tokens(traces)
    counters = grown or Counters()
    share, choice = replay.repeated_share, replay.choice
    stable = level.open_loop is not None and not level.open_loop.unstable
    sent_count = sum(trace.due is not None for trace in traces)
    trace_begin_s = choice.from_s + replay.begin_s * choice.speed  # trace time at which measuring begins
    result = ReplayResult(
        not_due=0 if is_cut else max(0, replay.requests * len(spans) - sent_count),
        prompt_tokens=prompt,
        cached_tokens=cached,
        server_cached_tokens=counters.cache_hits,
        server_queried_tokens=counters.cache_queries,
        repeated_percent=None if share is None else _PERCENT * share,
        context_tokens=context_tokens,
        beyond_context=None if context_tokens is None else replay.beyond(context_tokens),
        phases=phases(traces, spans, trace_begin_s, choice.speed, stable=stable),
    )
    return level.model_copy(update={"replay": result})
