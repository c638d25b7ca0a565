"""Running totals over what a server counted while it was watched, and windows on them.

A tally is built step by step from raw samples, over the lanes that both samples of a step have. So it only
ever grows: a lane that appears, vanishes or starts again cannot make a rate negative or let it spike.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import add, attrgetter

from sparktop.model.engine import LANE_COUNTERS, EngineSample, Histogram, LaneSample
from sparktop.model.snapshot import NO_LATENCY, Latency
from sparktop.rates.quantiles import difference, histogram_latency, merge

LATENCIES = ("ttft", "itl", "e2e", "queue")
"""Histograms of `LaneSample` that are shown as latencies."""

LATENCY_WINDOW_S = 60.0
"""The window of latencies and hit ratios: that of `rate()[1m]` on vLLM's own Grafana board."""
LIVE_SPAN_S = 0.9
"""A "1 s" rate spans at least this: two polls of a 1 Hz poller are rarely a full second apart."""
MISSED_INTERVALS = 2.5
"""Two samples further apart than this many intervals have missed samples between them."""

_counters_of = attrgetter(*LANE_COUNTERS)
_histograms_of = attrgetter(*LATENCIES)


@dataclass(frozen=True, slots=True)
class Tally:
    """Totals over all lanes since watching began, at one time."""

    at: float
    """Monotonic seconds."""
    counters: Mapping[str, float]
    """By field name of `LaneSample`, and "finished" over all reasons; absent where no lane tells."""
    histograms: Mapping[str, Histogram]
    """By name in `LATENCIES`; absent where no lane tells."""


def lane_counters(lane: LaneSample) -> dict[str, float]:
    """Give the counters that a lane tells, "finished" over all reasons among them."""
    told = {
        name: value
        for name, value in zip(LANE_COUNTERS, _counters_of(lane), strict=True)
        if value is not None and math.isfinite(value)
    }
    finished = math.fsum(lane.finished.values()) if lane.finished else math.nan
    if math.isfinite(finished):
        told["finished"] = finished
    return told


def advance(tally: Tally | None, baseline: EngineSample | None, sample: EngineSample) -> Tally:
    """Give `tally` with what was counted from `baseline` to `sample` added; from nothing where they are None.

    A counter that fell adds nothing: telling a restart is the work of `follow`.
    """
    lanes = {lane.lane: lane for lane in baseline.lanes} if baseline else {}
    counters: dict[str, float] = {}
    for lane in sample.lanes:
        earlier = lane_counters(lanes[lane.lane]) if lane.lane in lanes else {}
        for name, value in lane_counters(lane).items():
            counters[name] = counters.get(name, 0.0) + max(0.0, value - earlier.get(name, value))
    if tally is not None:
        for name, counted in counters.items():
            counters[name] = tally.counters.get(name, 0.0) + counted
    return Tally(sample.at, counters, _histograms(tally, lanes, sample))


def _histograms(
    tally: Tally | None, earlier: Mapping[str, LaneSample], sample: EngineSample
) -> dict[str, Histogram]:
    told: dict[str, Histogram] = {}
    for index, name in enumerate(LATENCIES):
        lanes: list[Histogram] = []
        steps: list[Histogram] = []
        for lane in sample.lanes:
            newer: Histogram | None = _histograms_of(lane)[index]
            if newer is None:
                continue
            lanes.append(newer)
            before = earlier.get(lane.lane)
            older: Histogram | None = _histograms_of(before)[index] if before else None
            step = difference(newer, older) if older else None
            if step is not None:
                steps.append(step)
        total = _grown(tally.histograms.get(name) if tally else None, lanes, steps)
        if total is not None:
            told[name] = total
    return told


def _grown(total: Histogram | None, lanes: list[Histogram], steps: list[Histogram]) -> Histogram | None:
    """Add the lanes' steps to a total; other bounds than before start a new total at zero."""
    merged = merge(steps)
    if merged is None:
        merged = merge(lanes)
        if merged is None:
            return None
        if total is not None and total.bounds == merged.bounds:
            return total
    elif total is not None and total.bounds == merged.bounds:
        if merged.count == 0:
            return total  # the very same tuple: an idle server's window costs no memory
        return Histogram(
            total.bounds, tuple(map(add, total.cumulative, merged.cumulative)), total.sum + merged.sum
        )
    return Histogram(merged.bounds, (0.0,) * len(merged.bounds), 0.0)


class Window:
    """The newest tallies: all of them for a short time, then about one a second for a minute."""

    def __init__(self) -> None:
        self._recent: deque[Tally] = deque()
        self._past: deque[Tally] = deque()

    def __len__(self) -> int:
        return len(self._recent) + len(self._past)

    @property
    def newest(self) -> Tally | None:
        """The tally added last."""
        return self._recent[-1] if self._recent else None

    def clear(self) -> None:
        """Forget everything: the server started again."""
        self._recent.clear()
        self._past.clear()

    def append(self, tally: Tally, short_s: float) -> None:
        """Add a tally newer than all others; keep every one of the newest `short_s` seconds."""
        self._recent.append(tally)
        while self._recent[0].at < tally.at - short_s:
            old = self._recent.popleft()
            if not self._past or old.at - self._past[-1].at >= LIVE_SPAN_S:
                self._past.append(old)
        while self._past and self._past[0].at < tally.at - max(LATENCY_WINDOW_S, short_s):
            self._past.popleft()

    def rate(self, name: str, window_s: float) -> float | None:
        """Give the rate of a counter between the oldest and the newest tally inside the window.

        None with fewer than two of them, or where the newest does not tell the counter.
        """
        counted = self.counted(name, window_s)
        return counted[0] / counted[1] if counted else None

    def counted(self, name: str, window_s: float) -> tuple[float, float] | None:
        """Give what a counter counted inside the window and the seconds this spans, as `rate` does."""
        newest = self.newest
        if newest is None or name not in newest.counters:
            return None
        oldest = newest
        for tally in self._back():
            if tally.at < newest.at - window_s or name not in tally.counters:
                break
            oldest = tally
        span_s = newest.at - oldest.at
        return (newest.counters[name] - oldest.counters[name], span_s) if span_s > 0 else None

    def live_rate(self, name: str, interval_s: float) -> float | None:
        """Give the rate of a counter over about the last second (over one interval where that is longer).

        None where a sample was missed within that time, because nobody knows when the tokens came.
        """
        newest = self.newest
        if newest is None or name not in newest.counters:
            return None
        later = newest
        for tally in self._back():
            if later.at - tally.at > MISSED_INTERVALS * interval_s or name not in tally.counters:
                return None
            if newest.at - tally.at >= LIVE_SPAN_S:
                return (newest.counters[name] - tally.counters[name]) / (newest.at - tally.at)
            later = tally
        return None

    def latency(self, name: str, window_s: float = LATENCY_WINDOW_S) -> Latency:
        """Give the latency of `name` (one of `LATENCIES`) over the window, or what there is of it."""
        newest = self.newest
        total = newest.histograms.get(name) if newest else None
        if newest is None or total is None:
            return NO_LATENCY
        oldest = newest
        for tally in self._back():
            earlier = tally.histograms.get(name)
            if tally.at < newest.at - window_s or earlier is None or earlier.bounds != total.bounds:
                break
            oldest = tally
        span_s = newest.at - oldest.at
        observed = difference(total, oldest.histograms[name])
        return histogram_latency(observed, span_s) if observed and span_s > 0 else NO_LATENCY

    def _back(self) -> Iterator[Tally]:
        """Give all tallies, newest first, without the newest."""
        recent = reversed(self._recent)
        next(recent, None)
        yield from recent
        yield from reversed(self._past)
