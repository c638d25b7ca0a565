"""Levels that replay recorded traffic: what is known before the start, and what their results add."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparktop.graphics.numbers import duration_words
from sparktop.model.time_range import TimeRange
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.plan.traces.replay import Replay
from sparktop.sweep.result.level import cached_tokens, phases
from sparktop.sweep.result.measure import RequestTrace, Span
from sparktop.sweep.result.results import LevelResult, ReplayResult, TracePlan
from sparktop.sweep.run.server_side import Counters

_PERCENT = 100.0
_LATE_S = 120.0
"""Seconds that a replay lasts longer than its trace, if the server is slow."""
_REST_S = 3.0
"""Usual seconds until the last requests have ended and the servers are idle."""


def trace_plan(replay: Replay | None) -> TracePlan | None:
    """Return the recorded traffic of a plan as its result holds it; None for other plans."""
    if replay is None:
        return None
    choice, summary = replay.choice, replay.summary
    return TracePlan(
        name=replay.name,
        path=choice.path,
        form=summary.form.value,
        speed=choice.speed,
        from_s=choice.from_s or None,
        to_s=None if math.isinf(choice.to_s) else choice.to_s,
        requests=summary.requests,
        duration_s=summary.duration_s,
        waits=summary.waits,
    )


def replay_sentences(replay: Replay) -> Iterator[str]:
    """Yield lines on what a replay will send: requests, duration, rate, tokens, and what is repeated."""
    summary, choice = replay.summary, replay.choice
    speed = "" if choice.speed == 1.0 else f" at {choice.speed:g}×"
    longer = " or longer, as turns wait for answers" if summary.waits else ""
    least = "at most " if summary.waits else ""
    count = f"{summary.requests:,} request{'' if summary.requests == 1 else 's'}"
    if summary.waits:
        count += f" in {summary.conversations:,} conversations"
    yield (
        f"{replay.name} ({summary.form.value}){speed}: {count}, {duration_words(summary.duration_s)}{longer}"
        f" ({least}{replay.point.words} /s on average)"
    )
    yield _token_words(replay)
    left_out = []
    if summary.skipped:
        left_out.append(f"{summary.skipped:,} that failed when they were recorded are left out")
    if summary.shortened:
        left_out.append(f"{summary.shortened:,} longer pauses are shortened to 5 min")
    if left_out:
        yield "; ".join(left_out)


def _token_words(replay: Replay) -> str:
    summary = replay.summary
    texts = f" + {summary.texts:,} prompt{'' if summary.texts == 1 else 's'} as text" if summary.texts else ""
    words = (
        f"{summary.prompt_tokens:,} prompt tokens{texts} + {summary.output_tokens:,} output tokens; "
        f"on average {summary.mean_prompt:,} + {summary.mean_answer:,}, "
        f"at most {summary.longest_prompt:,} + {summary.longest_answer:,}"
    )
    share = summary.repeated_share
    if share is None:
        return f"{words}; which parts of prompts are repeated is not recorded"
    return f"{words}; {_PERCENT * share:.0f} % of the prompt tokens repeat earlier requests"


def replay_forecast(plan: Plan, replay: Replay) -> dict[str, Any]:
    """Return the fields of the forecast of a replay, by name."""
    summary, runs = replay.summary, plan.runs * len(plan.targets)
    least_s = runs * (summary.begin_s + summary.duration_s + _REST_S)
    return {
        "requests": summary.requests * runs,
        "warm_ups": len(plan.targets) if plan.warmup else 0,
        "prompt_tokens": None if summary.texts else summary.prompt_tokens * runs,
        "output_tokens": summary.output_tokens * runs,
        "seconds": least_s,
        "why": "by its trace" + (", if answers take no time" if summary.waits else ""),
        "levels": len(plan.targets),
        "time": TimeRange(least_s, least_s + runs * min(_LATE_S, replay.tail_s)),
    }


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
    share, choice = replay.summary.repeated_share, replay.choice
    stable = level.open_loop is not None and not level.open_loop.unstable
    sent = sum(trace.due is not None for trace in traces)
    found = ReplayResult(
        not_due=0 if is_cut else max(0, replay.summary.requests * len(spans) - sent),
        prompt_tokens=prompt,
        cached_tokens=cached,
        server_cached_tokens=counters.cache_hits,
        server_queried_tokens=counters.cache_queries,
        repeated_percent=None if share is None else _PERCENT * share,
        context_tokens=context_tokens,
        beyond_context=None if context_tokens is None else replay.summary.beyond(context_tokens),
        phases=phases(
            traces, spans, choice.from_s + replay.summary.begin_s * choice.speed, choice.speed, stable=stable
        ),
    )
    return level.model_copy(update={"replay": found})
