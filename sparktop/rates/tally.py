"""Running totals over what a server counted while it was watched, and windows on them.

A tally is built step by step from raw samples, over the lanes that both samples of a step have. So it only
ever grows: a lane that appears, vanishes or starts again cannot make a rate negative or let it spike.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from operator import add, attrgetter

from sparktop.model.engine import LANE_COUNTERS, EngineSample, Histogram, LaneSample
from sparktop.model.snapshot import NO_LATENCY, Latency
from sparktop.rates.quantiles import difference, histogram_latency, merge

LATENCIES = ("ttft", "itl", "e2e", "queue", "tpot", "prefill", "decode")
"""Histograms of `LaneSample` that are shown as latencies."""

LATENCY_WINDOW_S = 60.0
"""The window of latencies and hit ratios: that of `rate()[1m]` on vLLM's own Grafana board."""
EDGE_SLACK_S = 0.25
"""A sample this much older than a window still opens it: else jitter of milliseconds decides whether the
window of a 1 Hz poller spans ten seconds or nine, and bursty counters jump with it."""
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
    """By field name of `LaneSample`; and "finished" over all reasons, "steps" of the engine and the tokens
    "stepped" in them. Absent where no lane tells."""
    histograms: Mapping[str, Histogram]
    """By name in `LATENCIES`; absent where no lane tells."""


def lane_counters(lane: LaneSample) -> dict[str, float]:
    """Give the counters that a lane tells, those made of other fields (see `Tally.counters`) among them."""
    told = {
        name: value
        for name, value in zip(LANE_COUNTERS, _counters_of(lane), strict=True)
        if value is not None and math.isfinite(value)
    }
    finished = math.fsum(lane.finished.values()) if lane.finished else math.nan
    if math.isfinite(finished):
        told["finished"] = finished
    steps = lane.step_tokens
    if steps is not None and math.isfinite(steps.count) and math.isfinite(steps.sum):
        told["steps"], told["stepped"] = steps.count, steps.sum
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
        self._told_since: dict[str, float] = {}
        """Since when every tally has told a counter."""
        self._bounds_since: dict[str, float] = {}
        """Since when every tally has had a histogram with the bounds that it has now."""
        self._latencies: dict[str, tuple[Histogram, Histogram, Latency]] = {}
        """The last answer for each latency, with the histograms at both ends of its window."""

    def __len__(self) -> int:
        return len(self._recent) + len(self._past)

    @property
    def newest(self) -> Tally | None:
        """The tally added last."""
        return self._recent[-1] if self._recent else None

    def clear(self) -> None:
        """Forget everything: the server started again."""
        for kept in (self._recent, self._past, self._told_since, self._bounds_since, self._latencies):
            kept.clear()

    def append(self, tally: Tally, short_s: float) -> None:
        """Add a tally newer than all others; keep every one of the newest `short_s` seconds."""
        self._note_since(self.newest, tally)
        self._recent.append(tally)
        while self._recent[0].at < tally.at - short_s:
            old = self._recent.popleft()
            if not self._past or old.at - self._past[-1].at >= LIVE_SPAN_S:
                self._past.append(old)
        while self._past and self._past[0].at < tally.at - max(LATENCY_WINDOW_S, short_s) - EDGE_SLACK_S:
            self._past.popleft()

    def _note_since(self, before: Tally | None, tally: Tally) -> None:
        counters = before.counters if before else {}
        told, bounds = self._told_since, self._bounds_since
        self._told_since = {name: told[name] if name in counters else tally.at for name in tally.counters}
        earlier = before.histograms if before else {}
        self._bounds_since = {
            name: bounds[name] if name in earlier and earlier[name].bounds == total.bounds else tally.at
            for name, total in tally.histograms.items()
        }

    def _oldest(self, since: float) -> Tally | None:
        """Give the oldest tally at or after `since`; found from the old end, where it nearly always is."""
        if self._past and self._past[-1].at >= since:
            return next(tally for tally in self._past if tally.at >= since)
        return next((tally for tally in self._recent if tally.at >= since), None)

    def rate(self, name: str, window_s: float, least_s: float = 0.0) -> float | None:
        """Return the rate of a counter between the oldest and the newest tally inside the window.

        None where they are less than `least_s` apart, or where the newest does not have the counter.
        """
        counted = self.counted(name, window_s)
        return counted[0] / counted[1] if counted and counted[1] >= least_s else None

    def ratio(self, part: str, whole: str, window_s: float) -> float | None:
        """Give what `part` counted for each one of `whole` inside the window; None where nothing was."""
        parts, wholes = self.counted(part, window_s), self.counted(whole, window_s)
        return parts[0] / wholes[0] if parts and wholes and wholes[0] > 0 else None

    def counted(self, name: str, window_s: float) -> tuple[float, float] | None:
        """Give what a counter counted inside the window and the seconds this spans, as `rate` does."""
        newest = self.newest
        if newest is None or name not in newest.counters:
            return None
        oldest = self._oldest(max(newest.at - window_s - EDGE_SLACK_S, self._told_since[name])) or newest
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
        oldest = self._oldest(max(newest.at - window_s - EDGE_SLACK_S, self._bounds_since[name])) or newest
        span_s = newest.at - oldest.at
        if span_s <= 0:
            return NO_LATENCY
        first = oldest.histograms[name]
        cached = self._latencies.get(name)
        if cached is not None and cached[0] is first and cached[1] is total:
            # Nothing was observed and nothing left the window since: request latencies between requests.
            return replace(cached[2], window_s=span_s)
        observed = difference(total, first)
        if observed is None:
            return NO_LATENCY
        told = histogram_latency(observed, span_s)
        self._latencies[name] = (first, total, told)
        return told

    def _back(self) -> Iterator[Tally]:
        """Give all tallies, newest first, without the newest."""
        recent = reversed(self._recent)
        next(recent, None)
        yield from recent
        yield from reversed(self._past)
