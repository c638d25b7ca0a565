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
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from sparktop.sweep.result.trace import RequestTrace
from sparktop.sweep.terms.statistics import quantile, student_t
from sparktop.values import dataclass

LATE_P99_S, LATE_SHARE = 0.005, 0.01
"""Requests are sent too late if the 99th percentile of the client's wait is longer than the first, or if its
median is longer than this share of the median TTFT."""
_SECTIONS = 12
"""The last two thirds of the measured time are compared in so many equal parts."""
_SURE = 0.95
_LEAST_GROWTH = 0.02
"""Seconds by which the TTFT grows each second, and requests by which the queue grows per arrival, from which
on a run is unstable. For a queue served in order, the first is arrival rate / service rate - 1: less than
that is a server within 2 % of its limit."""


@dataclass(frozen=True, slots=True)
class Slope:
    """A straight line through means of equal parts of a run."""

    per_s: float
    least_per_s: float
    """Lower bound of `per_s` (Student's t, one-sided 95 %)."""


@dataclass(frozen=True, slots=True)
class OpenLoopFigures:
    """What an open-loop run shows; None for what is unknown."""

    arrived_per_s: float
    """Measured arrivals per second, as drawn."""
    completed_per_s: float
    """Requests that completed within the measured time, per second."""
    arrivals: int
    unanswered: int
    """Measured requests without an answer at the end of the run."""
    in_flight_mean: float
    in_flight_max: int
    unstable: bool
    ttft_growth: float | None
    """Seconds by which the TTFT from the due time grows each second; None unless unstable."""
    queue_growth_per_s: float | None
    """Requests by which those without a first token grow in number each second; None unless unstable."""
    client_wait_p99_s: float | None
    late: bool


def open_loop_figures(traces: Sequence[RequestTrace], begin: float, end: float) -> OpenLoopFigures | None:
    """Return what the requests of a run show; `begin` and `end` (monotonic seconds) of its measured time.

    `traces` includes requests that are not measured (without a due time), because they are part of the load.
    Return None without measured requests.
    """
    measured = [(trace.due, trace) for trace in traces if trace.due is not None]
    if not measured or end <= begin:
        return None
    span_s = end - begin
    last = max(trace.end for trace in traces)
    ends = {id(trace): trace.end if trace.ended is not None else last for trace in traces}
    spans = [(trace.start if trace.due is None else trace.due, ends[id(trace)]) for trace in traces]
    flying = _InFlight(spans)
    completed = sum(trace.ok and begin < trace.end <= end for trace in traces)
    since = begin + span_s / 3
    edges = [since + (end - since) * part / _SECTIONS for part in range(_SECTIONS + 1)]
    queue = _InFlight(
        [(from_s, one.first_token or to_s) for one, (from_s, to_s) in zip(traces, spans, strict=True)]
    )
    queued = _slope(edges, [queue.mean(a, b) for a, b in pairwise(edges)])
    ttfts = sorted((due, _ttft_due_s(due, trace, last)) for due, trace in measured)
    ttft = _slope(edges, _section_means(edges, ttfts))
    arrived, done = len(measured) / span_s, completed / span_s
    unstable = (
        queued is not None
        and ttft is not None
        and queued.least_per_s > _LEAST_GROWTH * arrived
        and ttft.least_per_s > _LEAST_GROWTH
    )
    waits = sorted(trace.start - due for due, trace in measured)
    wait_p99_s = quantile(waits, 0.99)
    known = sorted(value for _, value in ttfts)
    late = wait_p99_s > LATE_P99_S or quantile(waits, 0.5) > LATE_SHARE * quantile(known, 0.5)
    return OpenLoopFigures(
        arrived_per_s=arrived,
        completed_per_s=done,
        arrivals=len(measured),
        unanswered=sum(trace.ended is None or not trace.arrivals for _, trace in measured),
        in_flight_mean=flying.mean(begin, end),
        in_flight_max=flying.most(begin, end),
        unstable=unstable,
        ttft_growth=ttft.per_s if unstable and ttft is not None else None,
        queue_growth_per_s=queued.per_s if unstable and queued is not None else None,
        client_wait_p99_s=wait_p99_s,
        late=late,
    )


def _ttft_due_s(due: float, trace: RequestTrace, last: float) -> float:
    """Return the time from the due time to the first token; without a token the request's age.

    A request that has not ended is as old as the run at its `last` event.
    """
    if trace.first_token is not None:
        return trace.first_token - due
    return (last if trace.ended is None else trace.end) - due


class _InFlight:
    """The number of requests in flight over time, from their (due, end)."""

    def __init__(self, spans: Sequence[tuple[float, float]]) -> None:
        self._begins = sorted(begin for begin, _ in spans)
        self._ends = sorted(end for _, end in spans)

    def _at(self, time: float) -> int:
        return bisect_right(self._begins, time) - bisect_right(self._ends, time)

    def mean(self, begin: float, end: float) -> float:
        """Return the mean number in flight from `begin` to `end`."""
        started = self._begins[bisect_right(self._begins, begin) : bisect_left(self._begins, end)]
        ended = self._ends[bisect_right(self._ends, begin) : bisect_left(self._ends, end)]
        more = sum(end - at for at in started) - sum(end - at for at in ended)
        return self._at(begin) + more / (end - begin)

    def most(self, begin: float, end: float) -> int:
        """Return the largest number in flight from `begin` to `end`."""
        times = [begin, *(at for at in self._begins if begin <= at <= end)]
        return max(self._at(at) for at in times)


def _section_means(edges: Sequence[float], values: Sequence[tuple[float, float]]) -> list[float | None]:
    """Return the mean of (time, value) in each section between two edges; None for an empty one."""
    times = [time for time, _ in values]
    means: list[float | None] = []
    for begin, end in pairwise(edges):
        part = values[bisect_left(times, begin) : bisect_left(times, end)]
        means.append(fmean(value for _, value in part) if part else None)
    return means


def _slope(edges: Sequence[float], means: Sequence[float | None]) -> Slope | None:
    """Return the line through the means of sections, placed at their middles; None for fewer than five."""
    points = [
        ((begin + end) / 2, mean)
        for (begin, end), mean in zip(pairwise(edges), means, strict=True)
        if mean is not None
    ]
    if len(points) < 5:  # noqa: PLR2004 - fewer leave the error of the slope unknown
        return None
    at, value = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - at) ** 2 for x, _ in points)
    per_s = sum((x - at) * (y - value) for x, y in points) / spread
    left = sum((y - value - per_s * (x - at)) ** 2 for x, y in points)
    error = math.sqrt(left / (len(points) - 2) / spread)
    return Slope(per_s, per_s - student_t(_SURE, len(points) - 2) * error)
