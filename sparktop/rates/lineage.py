"""Detects restarts of a server process, and different servers that answer at the same address.

A lane is an engine core (data-parallel rank) of a server; counters are compared lane by lane.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum, auto
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.engine import LANE_COUNTERS, LANE_HISTOGRAMS, EngineSample, Histogram, LaneSample
from sparktop.rates.tally import LIVE_SPAN_S, lane_counters

START_TOLERANCE_S = 1.0
"""Start times closer than this count as the same start."""
PLAUSIBLE_RISE = 2.0
"""Where start times are unknown, one process counts at most this multiple of the highest token rate seen."""
_RATED_SPAN_S = 0.2
"""Samples closer together than this many seconds do not update `Lineage.highest_tps`."""
_RETURNS_WITHIN_S = 60.0
"""Two jumps of the counters within so many seconds come from several servers."""
_REMEMBERED = 4
"""How many earlier servers' last samples are kept; a load balancer rarely has more servers behind it."""
_counters_of = attrgetter(*LANE_COUNTERS)
_histograms_of = attrgetter(*LANE_HISTOGRAMS)


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
    server answers, which is certain once the counters have also gone back, or samples are missing."""


class Link(Struct, frozen=True):
    """How a sample relates to the previous sample, and the baseline from which its increases are counted."""

    kind: LinkKind
    baseline: EngineSample | None
    """The sample to subtract from the new sample; None if no increase can be computed for the new sample.
    After a restart, this is a made-up sample with all counters at zero, dated at the time when the server
    began to count."""


class Lineage(Struct, frozen=True):
    """What is known about the server processes that have answered at one address."""

    last: EngineSample | None = None
    start_time: float | None = None
    """Unix time at which the last process that reported its start time was started; None if none reported
    it."""
    newest_start: float | None = None
    highest_tps: float = 0.0
    """Highest rate between two successive samples, in prompt plus generated tokens per second."""
    left_behind: tuple[EngineSample, ...] = ()
    """The last sample of each earlier server process, taken before a restart or a change of server; oldest
    first."""
    jumped_at: float | None = None
    """Time of the newest sample that was no plausible continuation: counters rose by more than one process
    counts (see `LinkKind.JUMPED`), or fell to more than a new process can have counted."""
    shared: bool = False
    """Whether several servers answer at this address: the counters of one were left and came back to."""


def follow(lineage: Lineage, sample: EngineSample, wall_at: float) -> tuple[Lineage, Link]:
    """Return the lineage with `sample` added, and how `sample` relates to the previous sample.

    `wall_at` is the wall clock (Unix time) at `sample.at`. A start time newer than all seen at this address,
    or a counter that fell, means that the server restarted. Another start time that is not newer means that
    another server answered. If servers report no start time, several servers are recognised by counters that
    interleave and come back; those of a process that restarts again and again begin at zero each time.
    """
    link, resumed = _link(lineage, sample, wall_at)
    last = lineage.last
    left_behind = tuple(old for old in lineage.left_behind if old is not resumed)
    if last is not None and link.kind not in (LinkKind.FIRST, LinkKind.CONTINUES):
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
        jumped_at=sample.at if _jumps(lineage, link, sample) else lineage.jumped_at,
        shared=lineage.shared or link.kind is LinkKind.OTHER_SERVER,
    ), link


def _link(lineage: Lineage, sample: EngineSample, wall_at: float) -> tuple[Link, EngineSample | None]:
    """Return (how `sample` relates to the previous sample, last sample of an earlier server, or None).

    The earlier server is one that answers again at this address: its counters continue in `sample`. None if
    no such server was recognised.
    """
    last, start, earlier_start = lineage.last, sample.start_time, lineage.start_time
    if last is None:
        return Link(LinkKind.FIRST, None), None
    both_known = start is not None and earlier_start is not None
    if start is not None and earlier_start is not None and abs(start - earlier_start) > START_TOLERANCE_S:
        if start <= (lineage.newest_start or 0.0) + START_TOLERANCE_S:
            return Link(LinkKind.OTHER_SERVER, None), None
        return Link(LinkKind.RESTARTED, _zero_at_start(last, sample, wall_at)), None
    fallen = fell(last, sample)
    resumed = None if both_known else _resumed(lineage.left_behind, last, sample, fallen=fallen)
    jumps = not both_known and not _plausible(lineage, last, sample, fallen=fallen)
    again = lineage.jumped_at is not None and sample.at - lineage.jumped_at <= _RETURNS_WITHIN_S
    comes_back = resumed is not None and (lineage.shared or jumps or (fallen and again))
    if comes_back or (fallen and jumps and again):
        return Link(LinkKind.OTHER_SERVER if fallen or lineage.shared else LinkKind.JUMPED, None), resumed
    if fallen:
        # It began to count at an unknown time since the last sample, so that rates begin with this one.
        return Link(LinkKind.RESTARTED, None), None
    return Link(LinkKind.CONTINUES, last), None


def _jumps(lineage: Lineage, link: Link, sample: EngineSample) -> bool:
    """Return whether a sample without a known start is no plausible continuation of its predecessor."""
    last = lineage.last
    if last is None or sample.start_time is not None or link.kind in (LinkKind.FIRST, LinkKind.CONTINUES):
        return False
    return not _plausible(lineage, last, sample, fallen=fell(last, sample))


def _plausible(lineage: Lineage, last: EngineSample, sample: EngineSample, *, fallen: bool) -> bool:
    """Return whether one process may have counted what is in `sample` since `last`.

    That is all of it if counters fell (`fallen`), because a restarted process begins at zero.
    """
    counted = _tokens(sample) - (0.0 if fallen else _tokens(last))
    return counted <= PLAUSIBLE_RISE * lineage.highest_tps * (sample.at - last.at)


def fell(earlier: EngineSample, later: EngineSample) -> bool:
    """Return whether any counter or histogram count of any lane is lower in `later` than in `earlier`."""
    lanes = {lane.lane: lane for lane in earlier.lanes}
    if not any(_may_have_fallen(lanes[lane.lane], lane) for lane in later.lanes if lane.lane in lanes):
        return False
    return any(
        value < before[name]
        for lane in later.lanes
        if lane.lane in lanes
        for before in [_everything_counted(lanes[lane.lane])]
        for name, value in _everything_counted(lane).items()
        if name in before
    )


def _may_have_fallen(earlier: LaneSample, later: LaneSample) -> bool:
    """Return False if certainly no counter or histogram count is lower in `later`; cheap to compute."""
    for before, value in zip(_counters_of(earlier), _counters_of(later), strict=True):
        if before is not None and value is not None and value < before:
            return True
    for before, value in zip(_histograms_of(earlier), _histograms_of(later), strict=True):
        if before is None or value is None or before is value:
            continue
        if value.count < before.count or value.sum < before.sum:
            return True
    if later.counts or later.finished:
        counted = earlier.counts
        return any(value < counted.get(name, value) for name, value in later.counts.items()) or math.fsum(
            later.finished.values()
        ) < math.fsum(earlier.finished.values())
    return False


def zeroed(sample: EngineSample, at: float) -> EngineSample:
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
        return zeroed(sample, sample.at - age_s)
    return None


def _resumed(
    left_behind: Iterable[EngineSample], last: EngineSample, sample: EngineSample, *, fallen: bool
) -> EngineSample | None:
    """Return the last sample of an earlier server whose counters `sample` may continue; None if none fits.

    A server fits if none of its counters is higher than in `sample`; of several, the one with the most tokens
    is returned. Unless a counter fell since `last` (`fallen`), each counter of `last` must also be below the
    earlier server's: this rules out a single server whose counters pass the earlier server's one by one.
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
