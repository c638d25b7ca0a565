"""Figures of levels that replay recorded traffic, from the traces of their requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from sparktop.sweep.result.measure import Span
from sparktop.sweep.result.open_loop import due_values_s
from sparktop.sweep.result.replay.parts import ReplayPhase
from sparktop.sweep.result.trace import RequestTrace
from sparktop.sweep.terms.statistics import P90_FROM, quantile

PHASES = 10
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
    found = []
    for begin, end in pairwise(place / PHASES for place in range(PHASES + 1)):
        spans = {run: (at + begin * (to - at), at + end * (to - at)) for run, (at, to) in windows.items()}
        inside = [one for one in traces if one.due is not None and _is_in(one.due, spans.get(one.run))]
        ended = sum(one.ok and _is_in(one.end, spans.get(one.run)) for one in traces)
        seconds = sum(to - at for at, to in spans.values())
        length_s = fmean(to - at for at, to in windows.values())
        values = sorted(1000 * value for _, value in due_values_s("ttft_due_ms", inside)) if stable else []
        found.append(
            ReplayPhase(
                from_s=from_s + begin * length_s * speed,
                to_s=from_s + end * length_s * speed,
                requests=len(inside),
                arrived_per_s=len(inside) / seconds,
                completed_per_s=ended / seconds,
                ttft_due_p50_ms=quantile(values, 0.5) if values else None,
                ttft_due_p90_ms=quantile(values, 0.9) if len(values) >= P90_FROM else None,
            )
        )
    return tuple(found)


def _is_in(at: float, span: Span | None) -> bool:
    return span is not None and span[0] <= at < span[1]
