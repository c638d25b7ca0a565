"""Is this still the same server process? Restarts, and other servers behind the same address."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from sparktop.model.engine import LANE_COUNTERS, LANE_HISTOGRAMS, EngineSample, Histogram, LaneSample
from sparktop.rates.tally import LIVE_SPAN_S, lane_counters

START_TOLERANCE_S = 1.0
"""Start times closer than this are the same start."""
FRESH_SHARE = 0.1
"""A counter at or below this share of its old value may have started at zero since the sample before."""
PLAUSIBLE_RISE = 2.0
"""Without a known start, tokens counted from zero may come this many times as fast as ever seen before."""
_RATED_SPAN_S = 0.2
"""Two samples closer than this give no rate to judge by."""
_REMEMBERED = 4
"""Last samples kept of servers that were left behind; a load balancer rarely has more behind it."""


class LinkKind(Enum):
    """How a sample follows the one before."""

    FIRST = auto()
    CONTINUES = auto()
    RESTARTED = auto()
    OTHER_SERVER = auto()
    """A server that was there before, or an older one: a load balancer answers at this address."""


@dataclass(frozen=True, slots=True)
class Link:
    """How a sample follows the one before, and what to count from."""

    kind: LinkKind
    baseline: EngineSample | None
    """Count from here; None: nothing can be counted up to this sample. After a restart it is all zeros, at
    the time when the server began to count."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """What is known of the server processes that answered at one address."""

    last: EngineSample | None = None
    start_time: float | None = None
    """Of the process that answered last and told it, Unix time."""
    newest_start: float | None = None
    highest_tps: float = 0.0
    """Most tokens a second, prompt and generated, between two samples."""
    left_behind: tuple[EngineSample, ...] = ()
    """Last samples before their counters fell, oldest first."""


def follow(lineage: Lineage, sample: EngineSample, wall_at: float) -> tuple[Lineage, Link]:
    """Tell how `sample` follows; `wall_at` is the viewer's wall clock (Unix time) at `sample.at`.

    A restart is a newer start time, or a counter that fell. A start time seen before, or older, is another
    server. Without start times, counters that all jump over those of a server left behind are that server.
    """
    link, resumed = _link(lineage, sample, wall_at)
    last = lineage.last
    left_behind = tuple(old for old in lineage.left_behind if old is not resumed)
    if last is not None and link.kind in (LinkKind.RESTARTED, LinkKind.OTHER_SERVER):
        left_behind = (*left_behind, last)[-_REMEMBERED:]
    highest_tps = lineage.highest_tps
    if last is not None and link.kind is LinkKind.CONTINUES and sample.at - last.at >= _RATED_SPAN_S:
        highest_tps = max(highest_tps, (_tokens(sample) - _tokens(last)) / (sample.at - last.at))
    start, newest = sample.start_time, lineage.newest_start
    return Lineage(
        last=sample,
        start_time=lineage.start_time if start is None else start,
        newest_start=newest if start is None else max(start, start if newest is None else newest),
        highest_tps=highest_tps,
        left_behind=left_behind,
    ), link


def _link(lineage: Lineage, sample: EngineSample, wall_at: float) -> tuple[Link, EngineSample | None]:
    """Give the link, and the sample of a server left behind that this one resumes."""
    last, start, earlier_start = lineage.last, sample.start_time, lineage.start_time
    if last is None:
        return Link(LinkKind.FIRST, None), None
    known = start is not None and earlier_start is not None
    if start is not None and earlier_start is not None and abs(start - earlier_start) > START_TOLERANCE_S:
        if start <= (lineage.newest_start or 0.0) + START_TOLERANCE_S:
            return Link(LinkKind.OTHER_SERVER, None), None
        return Link(LinkKind.RESTARTED, _zero_at_start(last, sample, wall_at)), None
    fallen = fell(last, sample)
    resumed = None if known else _resumed(lineage.left_behind, last, sample, fallen=fallen)
    if resumed is not None:
        return Link(LinkKind.OTHER_SERVER, None), resumed
    if fallen:
        return Link(LinkKind.RESTARTED, None if known else _zero_at_last(lineage, last, sample)), None
    return Link(LinkKind.CONTINUES, last), None


def fell(earlier: EngineSample, later: EngineSample) -> bool:
    """Tell whether a counter, or a histogram's count, of any lane is lower than before."""
    lanes = {lane.lane: lane for lane in earlier.lanes}
    return any(
        value < before[name]
        for lane in later.lanes
        if lane.lane in lanes
        for before in [_everything_counted(lanes[lane.lane])]
        for name, value in _everything_counted(lane).items()
        if name in before
    )


def zeroed(sample: EngineSample, at: float) -> EngineSample:
    """Give `sample` with every counter and bucket at zero, at another time."""
    return replace(sample, at=at, lanes=tuple(map(_zero_lane, sample.lanes)))


def _zero_lane(lane: LaneSample) -> LaneSample:
    zeros: dict[str, Any] = {name: 0.0 for name in LANE_COUNTERS if getattr(lane, name) is not None}
    for name in LANE_HISTOGRAMS:
        histogram: Histogram | None = getattr(lane, name)
        if histogram is not None:
            zeros[name] = Histogram(histogram.bounds, (0.0,) * len(histogram.cumulative), 0.0)
    return LaneSample(lane.lane, finished=dict.fromkeys(lane.finished, 0.0), **zeros)


def _zero_at_start(last: EngineSample, sample: EngineSample, wall_at: float) -> EngineSample | None:
    """Place the server's start on our clock, if that lies in the gap: else its clock and ours disagree."""
    age_s = wall_at - (sample.start_time or 0.0)
    if LIVE_SPAN_S <= age_s <= sample.at - last.at:
        return zeroed(sample, sample.at - age_s)
    return None


def _zero_at_last(lineage: Lineage, last: EngineSample, sample: EngineSample) -> EngineSample | None:
    """Count from the sample before if the new values are small, and no faster than this server has been."""
    tokens, span_s = _tokens(sample), sample.at - last.at
    fresh = tokens <= FRESH_SHARE * _tokens(last)
    if fresh and span_s > 0 and tokens / span_s <= PLAUSIBLE_RISE * lineage.highest_tps:
        return zeroed(sample, last.at)
    return None


def _resumed(
    left_behind: Iterable[EngineSample], last: EngineSample, sample: EngineSample, *, fallen: bool
) -> EngineSample | None:
    """Give the sample of a server left behind that `sample` goes on from, the closest one; None for none.

    Going on means that no counter is lower. Unless a counter fell just now, all of them must also have jumped
    over the old value in this one step: a server that outgrows its predecessor does so with one counter after
    the other.
    """
    before, now = _all_lanes(last), _all_lanes(sample)
    matches: list[EngineSample] = []
    for old in left_behind:
        was = {name: value for name, value in _all_lanes(old).items() if value > 0}
        if was and all(
            value <= now.get(name, -1.0) and (fallen or before.get(name, value) < value)
            for name, value in was.items()
        ):
            matches.append(old)
    return max(matches, key=_tokens, default=None)


def _all_lanes(sample: EngineSample) -> dict[str, float]:
    totals: dict[str, float] = {}
    for lane in sample.lanes:
        for name, value in _everything_counted(lane).items():
            totals[name] = totals.get(name, 0.0) + value
    return totals


def _everything_counted(lane: LaneSample) -> dict[str, float]:
    counted = lane_counters(lane)
    for name in LANE_HISTOGRAMS:
        histogram: Histogram | None = getattr(lane, name)
        if histogram is not None:
            counted[name] = histogram.count
    return counted


def _tokens(sample: EngineSample) -> float:
    return sum((lane.prompt_tokens or 0.0) + (lane.generation_tokens or 0.0) for lane in sample.lanes)
