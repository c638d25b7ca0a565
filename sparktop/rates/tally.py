"""Running totals of what a server counted since it was first polled, and rates over windows of time.

A tally is the sum of the increases between successive samples, over the lanes (engine cores, data-parallel
ranks) that are present in both samples. So it never falls: a lane that appears, disappears or restarts cannot
make a rate negative or cause a spike.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from operator import add, attrgetter

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.counter_figures import CounterFigure, How
from sparktop.model.engine import LANE_COUNTERS, EngineSample, Histogram, LaneSample
from sparktop.model.snapshot import NO_LATENCY, Latency
from sparktop.rates.packed import PackedTally, packed
from sparktop.rates.quantiles import difference, histogram_latency, merge

LATENCIES = ("ttft", "itl", "e2e", "queue", "tpot", "prefill", "decode")
"""Names of the `LaneSample` histograms that are shown as latencies."""

LATENCY_WINDOW_S = 60.0
"""Length in seconds of the window for latencies and hit ratios: as `rate()[1m]` on vLLM's own Grafana
board."""
EDGE_SLACK_S = 0.25
"""A window may begin with a sample that is up to this many seconds too old. Otherwise milliseconds of jitter
decide whether the 10 s window of a 1 Hz poller spans ten seconds or nine, and the rates of bursty counters
jump."""
LIVE_SPAN_S = 0.9
"""A "1 s" rate spans at least this many seconds: two polls of a 1 Hz poller are often slightly less than a
second apart."""
MISSED_INTERVALS = 2.5
"""If two samples are further apart than this many intervals, samples are missing between them."""

_counters_of = attrgetter(*LANE_COUNTERS)
_histograms_of = attrgetter(*LATENCIES)


class Tally(Struct, frozen=True):
    """Running totals of a server's counters and histograms at one time, summed over its engine cores.

    The totals begin at the server's first sample.
    """

    at: float
    """Time of the newest sample in the totals, in monotonic seconds."""
    counters: Mapping[str, float]
    """Total of each counter, by field name of `LaneSample`. Added to these are "finished" (finished
    requests, for any reason), "steps" (engine steps) and "stepped" (tokens processed in these steps). A
    counter that no engine core reports is absent."""
    histograms: Mapping[str, Histogram]
    """Total of each latency histogram, by name in `LATENCIES`, from any beginning: only differences count. A
    histogram that no engine core reports is absent."""

    def counter(self, name: str) -> float | None:
        """Return the total of a counter; None if the tally lacks it."""
        return self.counters.get(name)

    def histogram(self, name: str) -> Histogram:
        """Return the total of a histogram that the tally has."""
        return self.histograms[name]


def lane_counters(lane: LaneSample) -> dict[str, float]:
    """Return the counters that an engine core (lane) reports, by name.

    They include the derived counters that `Tally.counters` lists.
    """
    reported = {
        name: value
        for name, value in zip(LANE_COUNTERS, _counters_of(lane), strict=True)
        if value is not None and math.isfinite(value)
    }
    if lane.counts:
        reported |= lane.counts
    finished = math.fsum(lane.finished.values()) if lane.finished else math.nan
    if math.isfinite(finished):
        reported["finished"] = finished
    steps = lane.step_tokens
    if steps is not None and math.isfinite(steps.count) and math.isfinite(steps.sum):
        reported["steps"], reported["stepped"] = steps.count, steps.sum
    return reported


def advance(tally: Tally | None, baseline: EngineSample | None, sample: EngineSample) -> Tally:
    """Return `tally` plus what the server counted from `baseline` to `sample`.

    With `baseline` None nothing is added; with `tally` None the totals start at zero. A counter that fell
    adds nothing, because `follow` in `lineage.py` detects restarts.
    """
    lanes = {lane.lane: lane for lane in baseline.lanes} if baseline else {}
    counters: dict[str, float] = {}
    for lane in sample.lanes:
        earlier = lane_counters(lanes[lane.lane]) if lane.lane in lanes else {}
        for name, value in lane_counters(lane).items():
            step = value - earlier.get(name, value)
            counters[name] = counters.get(name, 0.0) + (step if step > 0 else 0.0)
    if tally is not None:
        before = tally.counters
        for name, counted in counters.items():
            counters[name] = before.get(name, 0.0) + counted
    return Tally(sample.at, counters, _histograms(tally, lanes, sample))


def _histograms(
    tally: Tally | None, earlier: Mapping[str, LaneSample], sample: EngineSample
) -> dict[str, Histogram]:
    kept = tally.histograms if tally is not None else {}
    reported = _going_on(kept, earlier, sample)
    for index, name in enumerate(LATENCIES):
        if name in reported:
            continue
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
        total = _grown(kept.get(name), lanes, steps)
        if total is not None:
            reported[name] = total
    return reported


def _going_on(
    kept: Mapping[str, Histogram], earlier: Mapping[str, LaneSample], sample: EngineSample
) -> dict[str, Histogram]:
    """Return the totals that are just what the only lane of a server reports, by name.

    That is a running total itself, as long as it continues the previous one in `kept`.
    """
    lane = sample.lanes[0] if len(sample.lanes) == 1 else None
    before = earlier.get(lane.lane) if lane is not None else None
    if before is None:
        return {}
    found: dict[str, Histogram] = {}
    newest: tuple[Histogram | None, ...] = _histograms_of(lane)
    for name, newer, older in zip(LATENCIES, newest, _histograms_of(before), strict=True):
        if kept.get(name) is not older or older is None or newer is None:
            continue
        if newer.bounds == older.bounds and newer.count >= older.count and newer.sum >= older.sum:
            found[name] = newer
    return found


def _grown(total: Histogram | None, lanes: list[Histogram], steps: list[Histogram]) -> Histogram | None:
    """Return the new running total of a histogram; None if no engine core (lane) reports the histogram.

    `total` is the running total so far, `steps` the new observations of each lane and `lanes` the histograms
    that the lanes report. The sum of `steps` is added to `total`. If `total` is None or has other bucket
    bounds, the new total begins at zero, with the bounds of `steps` or, if there are none, of `lanes`; that
    of a single lane begins with what the lane reports.
    """
    merged = merge(steps)
    if merged is None:
        merged = merge(lanes)
        if merged is None:
            return None
        if total is not None and total.bounds == merged.bounds:
            return total
    elif total is not None and total.bounds == merged.bounds:
        if merged.count == 0:
            return total  # the same object: an idle server's window costs no memory
        return Histogram(
            total.bounds, tuple(map(add, total.cumulative, merged.cumulative)), total.sum + merged.sum
        )
    return lanes[0] if len(lanes) == 1 else Histogram(merged.bounds, (0.0,) * len(merged.bounds), 0.0)


def _alike(before: Tally, tally: Tally) -> bool:
    """Return whether two tallies certainly have the same counters, and histograms with the same bounds."""
    if before.counters.keys() != tally.counters.keys() or before.histograms.keys() != tally.histograms.keys():
        return False
    earlier = before.histograms
    return all(earlier[name].bounds is total.bounds for name, total in tally.histograms.items())


class Window:
    """The newest running totals (tallies) of a server, and the rates and latencies computed from them.

    Every tally of the newest seconds is kept (see `append`), and about one per second of the last minute.
    """

    def __init__(self) -> None:
        self.newest: Tally | None = None
        """The tally that was added last; None if there are no tallies."""
        self._recent: deque[PackedTally] = deque()
        """The tallies of the newest seconds before that."""
        self._past: deque[PackedTally] = deque()
        self._reported_since: dict[str, float] = {}
        """By counter name: monotonic time since which every tally has had the counter."""
        self._bounds_since: dict[str, float] = {}
        """By histogram name: monotonic time since which every tally has had the histogram with its current
        bounds."""
        self._latencies: dict[str, tuple[float, float, Histogram, Latency]] = {}
        """By latency name: count and sum at the start of the window, the histogram at its end, and the
        latency computed from them (cached)."""
        self._first: dict[float, PackedTally | None] = {}
        """By length of a window in seconds: its oldest tally but for the newest one, None where it has no
        other (cached until the next tally is added)."""

    def __len__(self) -> int:
        return len(self._recent) + len(self._past) + (self.newest is not None)

    def clear(self) -> None:
        """Remove all tallies and cached results, as after a restart of the server."""
        self.newest = None
        known = (self._reported_since, self._bounds_since, self._latencies, self._first)
        for kept in (self._recent, self._past, *known):
            kept.clear()

    def append(self, tally: Tally, short_s: float) -> None:
        """Add a tally that is newer than all others, and drop tallies that are no longer needed.

        All tallies of the newest `short_s` seconds are kept. Of the tallies before, about one per second is
        kept, for a minute.
        """
        before, recent, past = self.newest, self._recent, self._past
        self._note_since(before, tally)
        self._first.clear()
        self.newest = tally
        if before is not None:
            kept = recent or past
            recent.append(packed(before.at, before.counters, before.histograms, kept[-1] if kept else None))
        while recent and recent[0].at < tally.at - short_s:
            old = recent.popleft()
            if not past or old.at - past[-1].at >= LIVE_SPAN_S:
                past.append(old)
        while past and past[0].at < tally.at - max(LATENCY_WINDOW_S, short_s) - EDGE_SLACK_S:
            past.popleft()

    def _note_since(self, before: Tally | None, tally: Tally) -> None:
        counters = before.counters if before else {}
        if before is not None and _alike(before, tally):
            return
        reported, bounds = self._reported_since, self._bounds_since
        self._reported_since = {
            name: reported[name] if name in counters else tally.at for name in tally.counters
        }
        earlier = before.histograms if before else {}
        self._bounds_since = {
            name: bounds[name] if name in earlier and earlier[name].bounds == total.bounds else tally.at
            for name, total in tally.histograms.items()
        }

    def _oldest(self, since: float) -> PackedTally | None:
        """Return the oldest tally at or after the monotonic time `since`; None if only the newest one is.

        The search begins at the oldest tally, because the result is usually near it.
        """
        past = bool(self._past) and self._past[-1].at >= since
        for tally in self._past if past else self._recent:
            if tally.at >= since:
                return tally
        return None

    def _begin(self, newest: Tally, window_s: float, since: float) -> Tally | PackedTally:
        """Return the oldest tally of the newest `window_s` seconds that is not before the time `since`."""
        if window_s not in self._first:
            self._first[window_s] = self._oldest(newest.at - window_s - EDGE_SLACK_S)
        first = self._first[window_s]
        if first is not None and first.at < since:
            first = self._oldest(since)
        return first or newest

    def rate(self, name: str, window_s: float, least_s: float = 0.0) -> float | None:
        """Return the increase per second of counter `name` over the newest `window_s` seconds.

        The rate is that between the oldest and the newest tally of this time. None if they are less than
        `least_s` seconds apart, or if the newest tally lacks the counter.
        """
        counted = self.counted(name, window_s)
        return counted[0] / counted[1] if counted and counted[1] >= least_s else None

    def ratio(self, part: str, whole: str, window_s: float) -> float | None:
        """Return the increase of counter `part` divided by that of `whole` over the newest `window_s` s.

        None if `whole` did not increase, or if either counter is not reported.
        """
        parts, wholes = self.counted(part, window_s), self.counted(whole, window_s)
        return parts[0] / wholes[0] if parts and wholes and wholes[0] > 0 else None

    def counted(self, name: str, window_s: float) -> tuple[float, float] | None:
        """Return (increase of counter `name`, elapsed seconds) over the newest `window_s` seconds.

        Both are measured between the oldest and the newest tally of this time. None if there are fewer than
        two tallies in it, or if the newest tally lacks the counter.
        """
        newest = self.newest
        total = newest.counters.get(name) if newest else None
        if newest is None or total is None:
            return None
        oldest = self._begin(newest, window_s, self._reported_since[name])
        span_s = newest.at - oldest.at
        before = oldest.counter(name) if span_s > 0 else None
        return None if before is None else (total - before, span_s)

    def figure(self, of: CounterFigure, rate_s: float, least_s: float, ratio_s: float) -> float | None:
        """Return the value of `of`, a metric computed from one counter, or from the ratio of two counters.

        With one counter it is a rate per second over `rate_s` seconds, or None if the tallies span less than
        `least_s` seconds. With two it is a percentage (0 to 100) or a mean over `ratio_s` seconds. None if a
        server does not report the counters.
        """
        if of.of is None:
            value = self.rate(of.counter, rate_s, least_s)
        else:
            value = self.ratio(of.counter, of.of, ratio_s)
        return None if value is None else value * (100.0 if of.how is How.PERCENT else of.scale)

    def live_rate(self, name: str, interval_s: float) -> float | None:
        """Return the increase per second of counter `name` over about the last second; None as for `live`."""
        found = self.live(name, interval_s)
        return None if found is None else found[0] / found[1]

    def live(self, name: str, interval_s: float) -> tuple[float, float] | None:
        """Return (increase of counter `name`, elapsed seconds) over about the last second.

        If samples are more than a second apart, they are those since the previous sample. None if a poll was
        missed in this time (`interval_s` is the poll interval), because the tokens may have arrived at any
        moment of the gap. None also if no tally is old enough, or if a tally lacks the counter.
        """
        newest = self.newest
        if newest is None or name not in newest.counters:
            return None
        later: Tally | PackedTally = newest
        for tally in self._back():
            before = tally.counter(name)
            if later.at - tally.at > MISSED_INTERVALS * interval_s or before is None:
                return None
            if newest.at - tally.at >= LIVE_SPAN_S:
                return newest.counters[name] - before, newest.at - tally.at
            later = tally
        return None

    def latency(self, name: str, window_s: float = LATENCY_WINDOW_S) -> Latency:
        """Return mean and quantiles of the latency `name` over the newest `window_s` seconds.

        `name` is one of `LATENCIES`. If tallies with this histogram do not reach back that far, a shorter
        time is used. Return `NO_LATENCY` if fewer than two tallies have the histogram, or if the server does
        not report it.
        """
        newest = self.newest
        total = newest.histograms.get(name) if newest else None
        if newest is None or total is None:
            return NO_LATENCY
        oldest = self._begin(newest, window_s, self._bounds_since[name])
        span_s = newest.at - oldest.at
        if span_s <= 0:
            return NO_LATENCY
        first = oldest.histogram(name)
        cached = self._latencies.get(name)
        if cached is not None and cached[:2] == (first.count, first.sum) and cached[2] is total:
            # Nothing entered or left the window since the last call: request latencies between requests.
            return replace(cached[3], window_s=span_s)
        observed = difference(total, first)
        if observed is None:
            return NO_LATENCY
        reported = histogram_latency(observed, span_s)
        self._latencies[name] = (first.count, first.sum, total, reported)
        return reported

    def _back(self) -> Iterator[PackedTally]:
        """Yield all tallies except the newest one, in the order from new to old."""
        yield from reversed(self._recent)
        yield from reversed(self._past)
