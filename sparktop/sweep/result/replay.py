"""Figures of levels that replay recorded traffic, from the traces of their requests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from sparktop.sweep.result.measure import Span
from sparktop.sweep.result.open_loop import due_values_s
from sparktop.sweep.result.results import ReplayPhase
from sparktop.sweep.result.trace import RequestTrace
from sparktop.sweep.terms.statistics import P90_FROM, quantile

PHASES = 10
_ROUNDING = 1e-6
"""Part of a phase by which a time may be off its begin."""
LEAST_REQUESTS = 100
"""Requests from which on a replay is divided into phases: ten in each, on average."""


def cached_tokens(traces: Iterable[RequestTrace]) -> tuple[int | None, int | None]:
    """Return (prompt tokens, those from the prefix cache) of all answered requests; None if unknown.

    Servers leave the count of cached tokens out where it is 0.
    """
    answered = [trace for trace in traces if trace.ok]
    prompts = [trace.prompt_tokens for trace in answered]
    known = [count for count in prompts if count is not None]
    hits = [trace.ended.cached_tokens for trace in answered if trace.ended is not None]
    reported = [count for count in hits if count is not None]
    prompt = sum(known) if known and len(known) == len(prompts) else None
    return prompt, sum(reported) if reported else None


def phases(
    traces: Sequence[RequestTrace], windows: Mapping[int, Span], from_s: float, speed: float, *, stable: bool
) -> tuple[ReplayPhase, ...]:
    """Return the phases of a replay that begins at `from_s` seconds of its file; () for a short one.

    `windows` has the measured time of each run. Latencies are left out unless the level is `stable`: beyond
    a server's limit they depend on how long one looks.
    """
    runs = max(1, len(windows))
    if sum(trace.due is not None for trace in traces) < LEAST_REQUESTS * runs:
        return ()
    due: list[list[RequestTrace]] = [[] for _ in range(PHASES)]
    ended = [0] * PHASES
    for trace in traces:
        if trace.due is not None and (place := _phase(trace.due, windows.get(trace.run))) is not None:
            due[place].append(trace)
        if trace.ok and (place := _phase(trace.end, windows.get(trace.run))) is not None:
            ended[place] += 1
    length_s = fmean(to - at for at, to in windows.values()) / PHASES
    if length_s <= 0:
        return ()
    return tuple(
        _figures(
            due[place],
            ended[place],
            (from_s + place * length_s * speed, from_s + (place + 1) * length_s * speed),
            length_s * runs,
            stable=stable,
        )
        for place in range(PHASES)
    )


def _figures(
    due: Sequence[RequestTrace], ended: int, span: Span, seconds: float, *, stable: bool
) -> ReplayPhase:
    values = sorted(1000 * value for _, value in due_values_s("ttft_due_ms", due)) if stable else []
    return ReplayPhase(
        from_s=span[0],
        to_s=span[1],
        requests=len(due),
        arrived_per_s=len(due) / seconds,
        completed_per_s=ended / seconds,
        ttft_due_p50_ms=quantile(values, 0.5) if values else None,
        ttft_due_p90_ms=quantile(values, 0.9) if len(values) >= P90_FROM else None,
    )


def _phase(at: float, span: Span | None) -> int | None:
    """Return the number of the phase that a moment of a run is in; None if in none."""
    if span is None or span[1] <= span[0]:
        return None
    place = math.floor(PHASES * (at - span[0]) / (span[1] - span[0]) + _ROUNDING)
    return place if 0 <= place < PHASES else None
