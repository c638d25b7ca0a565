"""Rates and quantiles from counters and buckets of raw samples; restarts of the servers that count.

A *lane* is an engine core (data-parallel rank) of a server, a *tally* all that was counted since it was first
polled: the sum of the increases between successive samples, over the lanes that are present in both. So it
never falls: a lane that appears, disappears or restarts cannot make a rate negative or cause a spike.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from itertools import chain
from operator import add, attrgetter, sub
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.engine import LANE_COUNTERS, LANE_HISTOGRAMS, EngineSample, Histogram, LaneSample
from sparktop.model.figures import CounterFigure, How
from sparktop.model.snapshot import NO_LATENCY, Latency, Quantile

LATENCIES = ("ttft", "itl", "e2e", "queue", "tpot", "prefill", "decode")
"""Names of the `LaneSample` histograms that are shown as latencies."""

RATE_WINDOW_S = 10.0
"""Length in seconds of the window of token and request rates."""
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
_all_histograms_of = attrgetter(*LANE_HISTOGRAMS)


class TallyLayout:
    """The names of a tally's counters and histograms, the histograms' bounds, and where the values stand."""

    __slots__ = ("bounds", "counters", "places")

    def __init__(self, counters: Mapping[str, float], histograms: Mapping[str, Histogram]) -> None:
        """Describe the tallies that have these names and bounds."""
        self.counters = {name: index for index, name in enumerate(counters)}
        self.places: dict[str, tuple[int, int]] = {}
        """By histogram name: index of its first count and of its sum, which follows the last count."""
        self.bounds = {name: histogram.bounds for name, histogram in histograms.items()}
        at = len(self.counters)
        for name, histogram in histograms.items():
            self.places[name] = (at, at + len(histogram.cumulative))
            at += len(histogram.cumulative) + 1

    def fits(self, counters: Mapping[str, float], histograms: Mapping[str, Histogram]) -> bool:
        """Return whether a tally with these counters and histograms, in this order, has this layout."""
        return (
            list(counters) == list(self.counters)
            and list(histograms) == list(self.bounds)
            and [histogram.bounds for histogram in histograms.values()] == list(self.bounds.values())
        )


class Tally(Struct, frozen=True):
    """Running totals of a server's counters and histograms at one time, summed over its engine cores.

    The totals begin at the server's first sample. They are in one array, and tallies alike share their names:
    a server has one for each second of the last minute, and as mappings and histograms they would be most of
    the memory that it takes, and most of what the garbage collector visits.
    """

    at: float
    """Time of the newest sample in the totals, in monotonic seconds."""
    layout: TallyLayout
    values: array[float]
    """The counters, then the counts and the sum of each histogram."""

    def counter(self, name: str) -> float | None:
        """Return the total of a counter; None if no engine core reports it.

        Counters have the names of fields of `LaneSample`. Added to these are "finished" (finished requests,
        for any reason), "steps" (engine steps) and "stepped" (tokens processed in these steps).
        """
        index = self.layout.counters.get(name)
        return None if index is None else self.values[index]

    def histogram(self, name: str) -> Histogram | None:
        """Return the total of a latency histogram of `LATENCIES`; None if no engine core reports it.

        It counts from any beginning: only differences count.
        """
        if name not in self.layout.places:
            return None
        start, stop = self.layout.places[name]
        return Histogram(self.layout.bounds[name], self.values[start:stop], self.values[stop])


def make_tally(
    at: float, counters: Mapping[str, float], histograms: Mapping[str, Histogram], before: Tally | None = None
) -> Tally:
    """Return a tally of these totals; it shares with `before`, the one before it, what is equal."""
    layout = before.layout if before is not None and before.layout.fits(counters, histograms) else None
    if layout is None:
        layout = TallyLayout(counters, histograms)
    parts = list(counters.values())
    for histogram in histograms.values():
        parts += histogram.cumulative
        parts.append(histogram.sum)
    values = array("d", parts)
    if before is not None and before.layout is layout and before.values == values:
        values = before.values  # an idle server's window costs no memory
    return Tally(at, layout, values)


def lane_counters(lane: LaneSample) -> dict[str, float]:
    """Return the counters that an engine core (lane) reports, by name.

    They include the derived counters that `Tally.counter` lists.
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
    adds nothing, because `follow_server` detects restarts.
    """
    lanes = {lane.lane: lane for lane in baseline.lanes} if baseline else {}
    counters: dict[str, float] = {}
    for lane in sample.lanes:
        earlier = lane_counters(lanes[lane.lane]) if lane.lane in lanes else {}
        for name, value in lane_counters(lane).items():
            step = value - earlier.get(name, value)
            counters[name] = counters.get(name, 0.0) + (step if step > 0 else 0.0)
    if tally is not None:
        for name, counted in counters.items():
            counters[name] = (tally.counter(name) or 0.0) + counted
    return make_tally(sample.at, counters, _histograms(tally, lanes, sample), tally)


def _histograms(
    tally: Tally | None, earlier: Mapping[str, LaneSample], sample: EngineSample
) -> dict[str, Histogram]:
    reported: dict[str, Histogram] = {}
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
        total = _next_total(None if tally is None else tally.histogram(name), lanes, steps)
        if total is not None:
            reported[name] = total
    return reported


def _next_total(total: Histogram | None, lanes: list[Histogram], steps: list[Histogram]) -> Histogram | None:
    """Return the new running total of a histogram; None if no engine core (lane) reports the histogram.

    `total` is the running total so far, `steps` the new observations of each lane and `lanes` the histograms
    that the lanes report. The sum of `steps` is added to `total`. If `total` is None or has other bucket
    bounds, the new total begins at zero, with the bounds of `steps` or, if there are none, of `lanes`.
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
    return Histogram(merged.bounds, (0.0,) * len(merged.bounds), 0.0)


class Window:
    """The newest running totals (tallies) of a server, and the rates and latencies computed from them.

    Every tally of the newest seconds is kept (see `append`), and about one per second of the last minute.
    """

    def __init__(self) -> None:
        self.newest: Tally | None = None
        """The tally that was added last; None if there are no tallies."""
        self._recent: deque[Tally] = deque()
        """The tallies of the newest seconds before that."""
        self._past: deque[Tally] = deque()
        self._starts: dict[float, Tally] = {}
        """By a time: the oldest tally that is not before it (cached)."""
        self._reported_since: dict[str, float] = {}
        """By counter name: monotonic time since which every tally has had the counter."""
        self._bounds_since: dict[str, float] = {}
        """By histogram name: monotonic time since which every tally has had the histogram with its current
        bounds."""
        self._latencies: dict[str, tuple[tuple[float, ...], Latency]] = {}
        """By latency name: counts and sums at the start and the end of the window, and the latency computed
        from them (cached)."""

    def __len__(self) -> int:
        return len(self._recent) + len(self._past) + (0 if self.newest is None else 1)

    def clear(self) -> None:
        """Remove all tallies and cached results, as after a restart of the server."""
        self.newest = None
        by_counter = (self._reported_since, self._bounds_since, self._latencies)
        for kept in (self._recent, self._past, self._starts, *by_counter):
            kept.clear()

    def append(self, tally: Tally, short_s: float) -> None:
        """Add a tally that is newer than all others, and drop tallies that are no longer needed.

        All tallies of the newest `short_s` seconds are kept. Of the tallies before, about one per second is
        kept, for a minute.
        """
        before, recent, past = self.newest, self._recent, self._past
        reported, since = self._reported_since, self._bounds_since
        counters, bounds = (before.layout.counters, before.layout.bounds) if before else ({}, {})
        self._reported_since = {
            name: reported[name] if name in counters else tally.at for name in tally.layout.counters
        }
        self._bounds_since = {
            name: since[name] if bounds.get(name) == own else tally.at
            for name, own in tally.layout.bounds.items()
        }
        self.newest = tally
        self._starts.clear()
        if before is not None:
            recent.append(before)
        while recent and recent[0].at < tally.at - short_s:
            old = recent.popleft()
            if not past or old.at - past[-1].at >= LIVE_SPAN_S:
                past.append(old)
        while past and past[0].at < tally.at - max(LATENCY_WINDOW_S, short_s) - EDGE_SLACK_S:
            past.popleft()

    def _window_start(self, newest: Tally, window_s: float, since: float) -> Tally:
        """Return the oldest tally of the newest `window_s` seconds that is not before the time `since`."""
        begin = max(since, newest.at - window_s - EDGE_SLACK_S)
        if begin not in self._starts:  # most figures of a poll have one of a few windows
            tallies = chain(self._past, self._recent)
            self._starts[begin] = next((tally for tally in tallies if tally.at >= begin), newest)
        return self._starts[begin]

    def rate(self, name: str, window_s: float, least_s: float = 0.0) -> float | None:
        """Return the increase per second of counter `name` over the newest `window_s` seconds.

        The rate is that between the oldest and the newest tally of this time. None if they are less than
        `least_s` seconds apart, or if the newest tally lacks the counter.
        """
        counted = self.growth(name, window_s)
        return counted[0] / counted[1] if counted and counted[1] >= least_s else None

    def ratio(self, part: str, whole: str, window_s: float) -> float | None:
        """Return the increase of counter `part` divided by that of `whole` over the newest `window_s` s.

        None if `whole` did not increase, or if either counter is not reported.
        """
        parts, wholes = self.growth(part, window_s), self.growth(whole, window_s)
        return parts[0] / wholes[0] if parts and wholes and wholes[0] > 0 else None

    def growth(self, name: str, window_s: float) -> tuple[float, float] | None:
        """Return (increase of counter `name`, elapsed seconds) over the newest `window_s` seconds.

        Both are measured between the oldest and the newest tally of this time. None if there are fewer than
        two tallies in it, or if the newest tally lacks the counter.
        """
        newest = self.newest
        total = newest.counter(name) if newest else None
        if newest is None or total is None:
            return None
        oldest = self._window_start(newest, window_s, self._reported_since[name])
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
        """Return the increase per second of counter `name` over about a second; None as for `live_growth`."""
        result = self.live_growth(name, interval_s)
        return None if result is None else result[0] / result[1]

    def live_growth(self, name: str, interval_s: float) -> tuple[float, float] | None:
        """Return (increase of counter `name`, elapsed seconds) over about the last second.

        If samples are more than a second apart, they are those since the previous sample. None if a poll was
        missed in this time (`interval_s` is the poll interval), because the tokens may have arrived at any
        moment of the gap. None also if no tally is old enough, or if a tally lacks the counter.
        """
        newest = self.newest
        total = None if newest is None else newest.counter(name)
        if newest is None or total is None:
            return None
        later = newest
        for tally in chain(reversed(self._recent), reversed(self._past)):
            before = tally.counter(name)
            if later.at - tally.at > MISSED_INTERVALS * interval_s or before is None:
                return None
            if newest.at - tally.at >= LIVE_SPAN_S:
                return total - before, newest.at - tally.at
            later = tally
        return None

    def latency(self, name: str, window_s: float = LATENCY_WINDOW_S) -> Latency:
        """Return mean and quantiles of the latency `name` over the newest `window_s` seconds.

        `name` is one of `LATENCIES`. If tallies with this histogram do not reach back that far, a shorter
        time is used. Return `NO_LATENCY` if fewer than two tallies have the histogram, or if the server does
        not report it.
        """
        newest = self.newest
        total = newest.histogram(name) if newest else None
        if newest is None or total is None:
            return NO_LATENCY
        oldest = self._window_start(newest, window_s, self._bounds_since[name])
        first, span_s = oldest.histogram(name), newest.at - oldest.at
        if span_s <= 0 or first is None:
            return NO_LATENCY
        ends = (first.count, first.sum, total.count, total.sum)
        if name in self._latencies and self._latencies[name][0] == ends:
            # Nothing entered or left the window since the last call: request latencies between requests.
            return replace(self._latencies[name][1], window_s=span_s)
        observed = difference(total, first)
        if observed is None:
            return NO_LATENCY
        reported = histogram_latency(observed, span_s)
        self._latencies[name] = ends, reported
        return reported


START_TOLERANCE_S = 1.0
"""Start times closer than this count as the same start."""
PLAUSIBLE_RISE = 2.0
"""Where start times are unknown, one process counts at most this multiple of the highest token rate seen."""
_RATED_SPAN_S = 0.2
"""Samples closer together than this many seconds do not update `Lineage.highest_tps`."""
_STARTS_IN_S = 3.0
"""No process starts, and counts as much as one before it, within so many seconds."""
_RETURNS_WITHIN_S = 60.0
"""Two jumps of the counters within so many seconds come from several servers."""
SLEPT_S = 5.0
"""If the wall clock gains so many seconds on the monotonic one between two samples, this machine slept: on
Linux the monotonic clock stands then, while counters elsewhere go on."""
_REMEMBERED = 4
"""How many earlier servers' last samples are kept; a load balancer rarely has more servers behind it."""


class LinkKind(Enum):
    """How a sample relates to the previous sample of the same address."""

    FIRST = auto()
    CONTINUES = auto()
    RESTARTED = auto()
    OTHER_SERVER = auto()
    """The sample comes from another server process than the previous sample: from one that has answered at
    this address before, or that started earlier. This means that a load balancer answers at this address."""
    JUMPED = auto()
    """The counters rose by more than one process counts, to where an earlier one had them. Either another
    server answers, which is certain once the counters have also gone back, or samples are missing, as after
    this machine slept. Or another engine answers, whose counters are others."""


class Lineage(Struct, frozen=True):
    """What is known about the server processes that have answered at one address."""

    last: EngineSample | None = None
    last_wall_at: float = 0.0
    """Unix time of `last`."""
    start_time: float | None = None
    """Unix time at which the last process that reported its start time was started; None if none reported
    it."""
    newest_start: float | None = None
    highest_tps: float = 0.0
    """Highest rate between two successive samples, in prompt plus generated tokens per second."""
    left_behind: tuple[EngineSample, ...] = ()
    """The last sample of each earlier server process, taken before a restart or a change of server, and that
    before an implausible rise; oldest first."""
    jumped_at: float | None = None
    """Time of the newest sample that was no plausible continuation: counters rose by more than one process
    counts (see `LinkKind.JUMPED`), or fell to more than a new process can have counted."""
    shared: bool = False
    """Whether several servers answer at this address: the counters of one were left and came back to."""


def follow_server(
    lineage: Lineage, sample: EngineSample, wall_at: float
) -> tuple[Lineage, LinkKind, EngineSample | None]:
    """Return the lineage with `sample` added, how `sample` relates to the previous sample, and its baseline.

    The baseline is the sample to subtract from `sample`; None if no increase can be computed. After a restart
    it is a made-up sample with all counters at zero, dated at the time when the server began to count.

    `wall_at` is the wall clock (Unix time) at `sample.at`. A start time newer than all seen at this address,
    or a counter that fell, means that the server restarted. Another start time that is not newer means that
    another server answered. If servers report no start time, several servers are recognised by counters that
    interleave and come back; those of a process that restarts again and again begin at zero each time.
    """
    kind, baseline, resumed = _link_to_previous(lineage, sample, wall_at)
    last = lineage.last
    left_behind = tuple(old for old in lineage.left_behind if old is not resumed)
    jumps = _is_jump(lineage, kind, sample)
    if last is not None and (jumps or kind is not LinkKind.CONTINUES):
        left_behind = (*left_behind, last)[-_REMEMBERED:]
    highest_tps = lineage.highest_tps
    if last is not None and kind is LinkKind.CONTINUES and sample.at - last.at >= _RATED_SPAN_S:
        highest_tps = max(highest_tps, (_total_tokens(sample) - _total_tokens(last)) / (sample.at - last.at))
    start, newest = sample.start_time, lineage.newest_start
    followed = Lineage(
        last=sample,
        last_wall_at=wall_at,
        start_time=lineage.start_time if start is None else start,
        newest_start=newest if start is None else max(start, start if newest is None else newest),
        highest_tps=highest_tps,
        left_behind=left_behind,
        jumped_at=sample.at if jumps and kind is not LinkKind.CONTINUES else lineage.jumped_at,
        shared=lineage.shared or kind is LinkKind.OTHER_SERVER,
    )
    return followed, kind, baseline


def _link_to_previous(
    lineage: Lineage, sample: EngineSample, wall_at: float
) -> tuple[LinkKind, EngineSample | None, EngineSample | None]:
    """Return (how `sample` relates to the previous sample, its baseline, last sample of an earlier server).

    The earlier server is one that answers again at this address: its counters continue in `sample`. None if
    no such server was recognised.
    """
    last, start, earlier_start = lineage.last, sample.start_time, lineage.start_time
    if last is None:
        return LinkKind.FIRST, None, None
    both_known = start is not None and earlier_start is not None
    if start is not None and earlier_start is not None and abs(start - earlier_start) > START_TOLERANCE_S:
        if start <= (lineage.newest_start or 0.0) + START_TOLERANCE_S:
            return LinkKind.OTHER_SERVER, None, None
        return LinkKind.RESTARTED, _zero_at_start(last, sample, wall_at), None
    fallen = has_fallen(last, sample)
    resumed = None if both_known else _resumed_server(lineage.left_behind, last, sample, fallen=fallen)
    jumps = not both_known and not _is_plausible(lineage, last, sample, fallen=fallen)
    again = lineage.jumped_at is not None and sample.at - lineage.jumped_at <= _RETURNS_WITHIN_S
    at_once = sample.at - last.at <= _STARTS_IN_S
    comes_back = resumed is not None and (lineage.shared or jumps or (fallen and (again or at_once)))
    if comes_back or (fallen and jumps and again):
        return LinkKind.OTHER_SERVER if fallen or lineage.shared else LinkKind.JUMPED, None, resumed
    if fallen:
        # It began to count at an unknown time since the last sample, so that rates begin with this one.
        return LinkKind.RESTARTED, None, None
    slept = wall_at - lineage.last_wall_at - (sample.at - last.at) > SLEPT_S
    goes_on = not slept and sample.engine == last.engine
    return (LinkKind.CONTINUES, last, None) if goes_on else (LinkKind.JUMPED, None, None)


def _is_jump(lineage: Lineage, kind: LinkKind, sample: EngineSample) -> bool:
    """Return whether a sample without a known start is no plausible continuation of its predecessor."""
    last = lineage.last
    if last is None or sample.start_time is not None or kind is LinkKind.FIRST:
        return False
    return not _is_plausible(lineage, last, sample, fallen=has_fallen(last, sample))


def _is_plausible(lineage: Lineage, last: EngineSample, sample: EngineSample, *, fallen: bool) -> bool:
    """Return whether one process may have counted what is in `sample` since `last`.

    That is all of it if counters fell (`fallen`), because a restarted process begins at zero.
    """
    counted = _total_tokens(sample) - (0.0 if fallen else _total_tokens(last))
    return counted <= PLAUSIBLE_RISE * lineage.highest_tps * (sample.at - last.at)


def has_fallen(earlier: EngineSample, later: EngineSample) -> bool:
    """Return whether any counter or histogram count of any lane is lower in `later` than in `earlier`."""
    before = {lane.lane: lane for lane in earlier.lanes}
    return any(_has_lane_fallen(before[lane.lane], lane) for lane in later.lanes if lane.lane in before)


def _has_lane_fallen(earlier: LaneSample, later: LaneSample) -> bool:
    fields = zip(_field_counts(earlier), _field_counts(later), strict=True)
    named = ((earlier.counts.get(name), value) for name, value in later.counts.items())
    return any(
        old is not None and new is not None and new < old and math.isfinite(old - new)
        for old, new in chain(fields, named)
    )


def _field_counts(lane: LaneSample) -> list[float | None]:
    """Return the counters and histogram counts that are fields of `lane`, always in the same order."""
    histograms: Sequence[Histogram | None] = _all_histograms_of(lane)
    finished = math.fsum(lane.finished.values()) if lane.finished else None
    stepped = None if lane.step_tokens is None else lane.step_tokens.sum
    counts = (None if histogram is None else histogram.count for histogram in histograms)
    return [*_counters_of(lane), *counts, finished, stepped]


def with_zero_counters(sample: EngineSample, at: float) -> EngineSample:
    """Return a copy of `sample` dated `at`: reported counters and histograms are zero, gauges are None."""
    return replace(sample, at=at, lanes=tuple(map(_zero_lane, sample.lanes)))


def _zero_lane(lane: LaneSample) -> LaneSample:
    zeros: dict[str, Any] = {name: 0.0 for name in LANE_COUNTERS if getattr(lane, name) is not None}
    for name in LANE_HISTOGRAMS:
        histogram: Histogram | None = getattr(lane, name)
        if histogram is not None:
            zeros[name] = Histogram(histogram.bounds, (0.0,) * len(histogram.cumulative), 0.0)
    finished, counts = dict.fromkeys(lane.finished, 0.0), dict.fromkeys(lane.counts, 0.0)
    return LaneSample(lane.lane, finished=finished, counts=counts, **zeros)


def _zero_at_start(last: EngineSample, sample: EngineSample, wall_at: float) -> EngineSample | None:
    """Return `sample` with all counters at zero, dated at the time when the server started.

    Return None if the server's start time is not between `last` and `sample`, because the clocks must then
    differ. Return None also if the start is less than `LIVE_SPAN_S` before `sample`, too short for a rate.
    """
    age_s = wall_at - (sample.start_time or 0.0)
    if LIVE_SPAN_S <= age_s <= sample.at - last.at:
        return with_zero_counters(sample, sample.at - age_s)
    return None


def _resumed_server(
    left_behind: Iterable[EngineSample], last: EngineSample, sample: EngineSample, *, fallen: bool
) -> EngineSample | None:
    """Return the last sample of an earlier server whose counters `sample` may continue; None if none fits.

    A server fits if none of its counters is higher than in `sample`; of several, the one with the most tokens
    is returned. Unless a counter fell since `last` (`fallen`), each counter of `last` must also be below the
    earlier server's: this rules out a single server whose counters pass the earlier server's one by one.
    """
    before, now = _totals_by_counter(last), _totals_by_counter(sample)
    matches: list[EngineSample] = []
    for old in left_behind:
        was = {name: value for name, value in _totals_by_counter(old).items() if value > 0}
        if was and all(
            value <= now.get(name, -1.0) and (fallen or before.get(name, value) < value)
            for name, value in was.items()
        ):
            matches.append(old)
    return max(matches, key=_total_tokens, default=None)


def _totals_by_counter(sample: EngineSample) -> dict[str, float]:
    totals: dict[str, float] = {}
    for lane in sample.lanes:
        for name, value in _counters_and_counts(lane).items():
            totals[name] = totals.get(name, 0.0) + value
    return totals


def _counters_and_counts(lane: LaneSample) -> dict[str, float]:
    counted = lane_counters(lane)
    for name in LANE_HISTOGRAMS:
        histogram: Histogram | None = getattr(lane, name)
        if histogram is not None:
            counted[name] = histogram.count
    return counted


def _total_tokens(sample: EngineSample) -> float:
    return sum((lane.prompt_tokens or 0.0) + (lane.generation_tokens or 0.0) for lane in sample.lanes)


LEAST_OBSERVATIONS = 5
"""With fewer observations in a window, no quantile is reported."""
_WIDE = 2.0
"""Least ratio of the edges of a wide bucket: too wide for an interpolated value alone."""
_SHOWN = (0.5, 0.9, 0.95, 0.99)
"""The quantiles of a `Latency`."""


def difference(newer: Histogram, older: Histogram) -> Histogram | None:
    """Return the histogram of the observations made between two samples of one histogram.

    `newer` and `older` are the samples. None if they cannot be subtracted: because their bounds differ, a
    bucket's count fell, or a value is not finite.
    """
    bounds = newer.bounds
    if (bounds is not older.bounds and bounds != older.bounds) or len(newer.cumulative) != len(
        older.cumulative
    ):
        return None
    counts = tuple(map(sub, newer.cumulative, older.cumulative))
    total = newer.sum - older.sum
    # A sum is finite only if all of its terms are.
    if not math.isfinite(total + sum(counts)) or min(counts, default=0.0) < 0:
        return None
    return Histogram(newer.bounds, counts, total)


def merge(histograms: Sequence[Histogram]) -> Histogram | None:
    """Return the sum of histograms, over the bucket bounds that all of them have; None for an empty sequence.

    Only at common bounds is the summed cumulative count known exactly. If `inf` is the only common bound, the
    result has a count and a sum, but no quantile can be computed from it.
    """
    if not histograms:
        return None
    first = histograms[0]
    if len(histograms) == 1:
        return first
    total = math.fsum(histogram.sum for histogram in histograms)
    if all(histogram.bounds == first.bounds for histogram in histograms):
        counts = first.cumulative
        for histogram in histograms[1:]:
            counts = tuple(map(add, counts, histogram.cumulative))
        return Histogram(first.bounds, counts, total)
    shared = set(first.bounds).intersection(*(histogram.bounds for histogram in histograms))
    bounds = tuple(sorted(shared | {math.inf}))
    sums = [0.0] * len(bounds)
    for histogram in histograms:
        at_bound = dict(zip(histogram.bounds, histogram.cumulative, strict=True))
        at_bound.setdefault(math.inf, histogram.count)
        for index, bound in enumerate(bounds):
            sums[index] += at_bound[bound]
    return Histogram(bounds, tuple(sums), total)


def histogram_quantile(histogram: Histogram, share: float) -> Quantile | None:
    """Return the quantile at `share` (0 to 1), computed like Prometheus' `histogram_quantile`.

    The value is interpolated linearly inside a bucket. If the quantile is in the first bucket, return this
    bucket's upper bound, marked `below`. If it is in the `inf` bucket, return the last finite bound, marked
    `above`. In a wide bucket the result also has the bucket's edges. None without observations or without a
    finite bound.
    """
    return _quantiles(histogram.bounds, histogram.cumulative, histogram.count, (share,))[0]


def _quantiles(
    bounds: Sequence[float], cumulative: Sequence[float], count: float, shares: Sequence[float]
) -> Sequence[Quantile | None]:
    """Return `histogram_quantile` of a histogram with `count` observations at each of `shares`."""
    finite = len(bounds) - (1 if bounds and math.isinf(bounds[-1]) else 0)
    if finite == 0 or not count > 0:
        return [None] * len(shares)
    result = []
    for share in shares:
        rank = share * count
        index = bisect_left(cumulative, rank, 0, finite)
        if index == finite:
            result.append(Quantile(bounds[finite - 1], above=True))
        elif index == 0:
            result.append(Quantile(bounds[0], below=True))
        else:
            low, high, before = bounds[index - 1], bounds[index], cumulative[index - 1]
            inside = cumulative[index] - before
            edges = (low, high) if high >= _WIDE * low else None
            result.append(Quantile(low + (high - low) * (rank - before) / inside, bucket_s=edges))
    return result


def histogram_latency(observed: Histogram, window_s: float) -> Latency:
    """Return mean and quantiles (seconds) of the observations in the histogram `observed`.

    `window_s` is the time in seconds over which they were made. Without observations, mean and quantiles are
    None. With fewer than `LEAST_OBSERVATIONS`, only the quantiles are None; also, with a note, where a server
    reports a mean alone or its lanes share no bucket bound.
    """
    count = observed.count
    if not count > 0:
        return Latency(count=0.0, window_s=window_s)
    mean = observed.sum / count
    if count < LEAST_OBSERVATIONS:
        return Latency(mean_s=mean, count=count, window_s=window_s)
    p50, p90, p95, p99 = _quantiles(observed.bounds, observed.cumulative, count, _SHOWN)
    note = "no usable buckets" if p50 is None else None
    return Latency(mean, p50, p90, p95, p99, count, window_s, note)
