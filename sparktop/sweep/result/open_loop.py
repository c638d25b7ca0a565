"""The result of an open-loop run: rates, latencies from the due time, and whether the server kept up.

Requests are sent when they are due, so a server that cannot keep up gets more and more of them. Its latencies
then depend on how long one looks: an unstable run has a growth and no percentile.

A request is measured from the time at which it was due, not from when the client wrote it: a client that
waits for a free connection and starts its clock then leaves out the requests that suffered most (coordinated
omission). A request without an answer counts with its age, which is a lower bound of its latency.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from sparktop.model.load import EndReason, LoadEvent, LoadPoint, RunStarted
from sparktop.model.series import known_mean
from sparktop.model.statistics import quantile, student_t
from sparktop.sweep.plan.arrivals import mean_per_s
from sparktop.sweep.result.measure import RequestTrace, Span, peak_tps
from sparktop.sweep.result.results import OpenLoopResult

LATE_P99_S, LATE_P50_S, LATE_SHARE = 0.005, 0.002, 0.01
"""Requests are sent too late if the 99th percentile of the client's wait is longer than the first, or if its
median is longer than the second and than this share of the median TTFT. Timers are 1 ms late."""
_SECTIONS = 12
"""The last two thirds of the measured time are compared in so many equal parts."""
_LEAST_POINTS = 5
"""Fewer parts with a mean, or fewer requests without a first token, do not show a growth."""
_SURE = 0.95
"""One-sided confidence with which a growth is named."""
_LEAST_GROWTH = 0.02
"""Seconds by which the TTFT grows each second, and requests by which the queue grows per arrival, from which
on a run is unstable. For a queue served in order, the first is arrival rate / service rate - 1: less than
that is a server within 2 % of its limit."""


_MEANS = ("arrived_per_s", "completed_per_s", "in_flight_mean", "ttft_growth", "queue_growth_per_s")
"""Figures of a level that are means over its runs."""
Slope = tuple[float, float]
"""The slope per second of a straight line, and its lower bound (Student's t, one-sided 95 %)."""


def open_loop_result(
    point: LoadPoint, limit: int, runs: Mapping[int, Sequence[RequestTrace]], windows: Mapping[int, Span]
) -> OpenLoopResult | None:
    """Return what the runs of a level show together; None without measured requests.

    From `limit` requests in flight on, further ones wait in the client. `runs` has all requests of each run,
    `windows` the time in which its measured requests were due.
    """
    each = [
        figures
        for run, traces in runs.items()
        if (figures := open_loop_figures(traces, *windows[run], limit)) is not None
    ]
    if not each:
        return None
    return OpenLoopResult(
        offered_per_s=mean_per_s(point),
        **{name: known_mean(getattr(of_run, name) for of_run in each) for name in _MEANS},
        requests=sum(of_run.requests for of_run in each),
        unanswered=sum(of_run.unanswered for of_run in each),
        in_flight_max=max(of_run.in_flight_max or 0 for of_run in each),
        in_flight_limit=limit,
        overloaded=any(of_run.overloaded for of_run in each),
        unstable=any(of_run.unstable for of_run in each),
        late=any(of_run.late for of_run in each),
        client_wait_p99_ms=max(of_run.client_wait_p99_ms or 0.0 for of_run in each),
    )


def windows(
    events: Iterable[LoadEvent], traces: Sequence[RequestTrace], *, is_cut: bool = False
) -> dict[int, Span]:
    """Return the time in which the measured requests of each run were due, by run number.

    A run that does not say is measured from the first of its due times to the mean gap after the last; a
    single request until its end. With `is_cut` the runs were interrupted: their time ends with their last
    request.
    """
    spans = {
        event.run: event.measured
        for event in events
        if isinstance(event, RunStarted) and event.measured is not None
    }
    for run in {trace.run for trace in traces if trace.due is not None} - spans.keys():
        dues = [trace.due for trace in traces if trace.run == run and trace.due is not None]
        begin, last = min(dues), max(dues)
        if last > begin:
            spans[run] = (begin, begin + (last - begin) * len(dues) / (len(dues) - 1))
        else:
            spans[run] = (begin, max(trace.end for trace in traces if trace.run == run))
    if is_cut:
        for run, (begin, end) in spans.items():
            last = max((trace.end for trace in traces if trace.run == run), default=begin)
            spans[run] = (begin, min(end, max(begin, last)))
    return spans


def due_values_s(name: str, traces: Iterable[RequestTrace]) -> Iterator[tuple[int, float]]:
    """Yield (run, value) of a latency from the due time in seconds, for each of the measured requests.

    A request without an answer at the end of its run has its age, which is a lower bound. Failed requests
    have no latency.
    """
    for trace in traces:
        if trace.due is None:
            continue
        wait_s = trace.start - trace.due
        if name == "client_wait_ms":
            yield trace.run, wait_s
        elif name == "ttft_due_ms" and trace.first_token is not None and not trace.is_failed:
            if trace.ttft_s is not None:
                yield trace.run, trace.ttft_s + wait_s
        elif not trace.is_failed:
            yield trace.run, trace.end - trace.due


def open_rates(run: Sequence[RequestTrace], window: Span) -> dict[str, float | None]:
    """Return the rates of a run over its measured time, of all requests that were active in it.

    Prompt tokens count when the first token arrives.
    """
    begin, end = window
    span_s = end - begin
    if span_s <= 0:
        return {}
    reads = sorted(read for trace in run for read in trace.arrivals if begin < read[0] <= end)
    token_count = sum(count for _, count in reads)
    prompts = [
        request.prompt_tokens for request in run if request.first_token and begin < request.first_token <= end
    ]
    counts = [count for count in prompts if count is not None]
    total = token_count + sum(counts) if len(counts) == len(prompts) else None
    return {
        "output_tps": token_count / span_s,
        "total_tps": None if total is None else total / span_s,
        "requests_per_s": sum(trace.ok and begin < trace.end <= end for trace in run) / span_s,
        "peak_tps": peak_tps(run),
    }


def open_loop_figures(
    traces: Sequence[RequestTrace], begin: float, end: float, limit: int | None = None
) -> OpenLoopResult | None:
    """Return what the requests of a run show; `begin` and `end` (monotonic seconds) of its measured time.

    `traces` includes requests that are not measured (without a due time), because they are part of the load.
    `limit` is the most requests that the client sends at once. Return None without measured requests.
    """
    due_traces = [(trace.due, trace) for trace in traces if trace.due is not None]
    if not due_traces or end <= begin:
        return None
    span_s = end - begin
    last = max(trace.end for trace in traces)
    spans = [
        (trace.start if trace.due is None else trace.due, last if trace.ended is None else trace.end)
        for trace in traces
    ]
    flying = _InFlight(spans)
    in_flight = _InFlight([(trace.start, to_s) for trace, (_, to_s) in zip(traces, spans, strict=True)])
    growth = _growth(traces, spans, due_traces, (begin, end))
    waits = sorted(trace.start - due for due, trace in due_traces)
    wait_p99_s = quantile(waits, 0.99)
    # A request that has not ended is as old as the run at its last event.
    ttfts_s = sorted(
        (trace.first_token or (last if trace.ended is None else trace.end)) - due for due, trace in due_traces
    )
    is_late = wait_p99_s > LATE_P99_S or quantile(waits, 0.5) > max(
        LATE_P50_S, LATE_SHARE * quantile(ttfts_s, 0.5)
    )
    ttft_growth, queue_growth = growth or (None, None)
    return OpenLoopResult(
        arrived_per_s=len(due_traces) / span_s,
        completed_per_s=sum(trace.ok and begin < trace.end <= end for trace in traces) / span_s,
        requests=len(due_traces),
        unanswered=sum(is_unanswered(trace) for _, trace in due_traces),
        in_flight_mean=flying.mean(begin, end),
        in_flight_max=flying.most(begin, end),
        overloaded=limit is not None and in_flight.most(begin, end) >= limit,
        unstable=growth is not None,
        ttft_growth=ttft_growth,
        queue_growth_per_s=queue_growth,
        client_wait_p99_ms=1000 * wait_p99_s,
        late=is_late,
    )


def is_unanswered(trace: RequestTrace) -> bool:
    """Return whether a request had neither an answer nor a failure when its run was over."""
    return trace.ended is None or trace.ended.reason is EndReason.ABORT


def _growth(
    traces: Sequence[RequestTrace],
    spans: Sequence[Span],
    counted: Sequence[tuple[float, RequestTrace]],
    window: Span,
) -> tuple[float | None, float] | None:
    """Return the growth of TTFT (s per s) and queue (requests per s) if both grow for certain; else None.

    The growth of TTFT is None if no request got a token. `spans` has the due time and the end of each of
    `traces`, `counted` the measured ones by their due times.
    """
    begin, end = window
    since_s = begin + (end - begin) / 3
    edges = [since_s + (end - since_s) * part / _SECTIONS for part in range(_SECTIONS + 1)]
    queue = _InFlight(
        [(from_s, request.first_token or to_s) for request, (from_s, to_s) in zip(traces, spans, strict=True)]
    )
    queued = _slope(edges, [queue.mean(a, b) for a, b in pairwise(edges)])
    ttft = _ttft_slope(edges, counted)
    if queued is None or queued[1] <= _LEAST_GROWTH * len(counted) / (end - begin):
        return None
    queue_per_s = queued[0]
    if ttft is not None:
        ttft_per_s, least_per_s = ttft
        return (ttft_per_s, queue_per_s) if least_per_s > _LEAST_GROWTH else None
    if sum(trace.first_token is None for _, trace in counted) < _LEAST_POINTS:
        return None
    # Too few got a first token: ages say nothing of TTFT. What arrives waits for the queue before it, which
    # is served at the rate of first tokens.
    served = sum(request.first_token is not None and begin < request.first_token <= end for request in traces)
    return (queue_per_s * (end - begin) / served if served else None), queue_per_s


def _ttft_slope(edges: Sequence[float], counted: Sequence[tuple[float, RequestTrace]]) -> Slope | None:
    """Return the growth of TTFT by due time, from the sections in which every request has a first token.

    The age of a request without one is the smaller, the later it was due: it would hide that TTFT grows.
    """
    means: list[float | None] = []
    ordered = sorted(((due, trace.first_token) for due, trace in counted), key=lambda pair: pair[0])
    dues = [due for due, _ in ordered]
    for begin, end in pairwise(edges):
        measured = ordered[bisect_left(dues, begin) : bisect_left(dues, end)]
        waits_s = [first - due for due, first in measured if first is not None]
        means.append(fmean(waits_s) if waits_s and len(waits_s) == len(measured) else None)
    return _slope(edges, means)


class _InFlight:
    """The number of requests in flight over time, from their (due, end)."""

    def __init__(self, spans: Sequence[tuple[float, float]]) -> None:
        self._begins = sorted(begin for begin, _ in spans)
        self._ends = sorted(end for _, end in spans)

    def _at(self, time: float) -> int:
        """Return the number in flight at a time."""
        return bisect_right(self._begins, time) - bisect_right(self._ends, time)

    def mean(self, begin: float, end: float) -> float:
        """Return the mean number in flight from `begin` to `end`."""
        begins = self._begins[bisect_right(self._begins, begin) : bisect_left(self._begins, end)]
        ends = self._ends[bisect_right(self._ends, begin) : bisect_left(self._ends, end)]
        excess_s = sum(end - at for at in begins) - sum(end - at for at in ends)
        return self._at(begin) + excess_s / (end - begin)

    def most(self, begin: float, end: float) -> int:
        """Return the largest number in flight from `begin` to `end`."""
        times = [begin, *(at for at in self._begins if begin <= at <= end)]
        return max(self._at(at) for at in times)


def _slope(edges: Sequence[float], means: Sequence[float | None]) -> Slope | None:
    """Return the least-squares line through the means of sections, at their middles; None for too few.

    Its standard error is √(squared deviations from the line / (n - 2) / squared deviations of the times).
    """
    points = [
        ((begin + end) / 2, mean)
        for (begin, end), mean in zip(pairwise(edges), means, strict=True)
        if mean is not None
    ]
    if len(points) < _LEAST_POINTS:
        return None
    at, value = fmean(x for x, _ in points), fmean(y for _, y in points)
    times2 = sum((x - at) ** 2 for x, _ in points)
    per_s = sum((x - at) * (y - value) for x, y in points) / times2
    rest2 = sum((y - value - per_s * (x - at)) ** 2 for x, y in points)
    error = math.sqrt(rest2 / (len(points) - 2) / times2)
    return per_s, per_s - student_t(_SURE, len(points) - 2) * error
