"""The loads of a group's backends on one time axis, where gaps stay gaps."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from operator import add
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.balance import GroupPace
from sparktop.model.series import LATE, Series

# A *slot* is a time slot of this grid (except in the field `LoadTrack.slots`).


MISSING_IN_A_ROW = 0.25
"""Share of the backends that may lack a sample in a slot; each gets the load that it would have under an even
split."""
SILENT_S = 5.0
"""A backend has left if its newest sample is older than this (or than 4 steps, if that is more)."""
_BREAK_S = 10.0
"""After a longer gap the history starts again: samples before it do not describe those after it."""
_ENOUGH_STEPS = 64
"""Newest samples of which the polling interval is computed."""
_THINNED, _THINNED_S = (2, 4), 1.05
"""Of fast polls of which some fail, every second or fourth one may do, up to so many seconds apart."""
_PRESENT = 0.9
"""If fewer slots have a sample, the grid is built again with longer slots, for slower polling."""
_PAIR = 2
_NEARLY_ALL = 0.95
"""If no backend has fewer samples than this share of what another has, none is slow."""
_SHORTEST_S = 20.0
"""Samples of fewer seconds do not show which backends lack some."""
_OTHER_PACE = 1.5
"""Ratio of two polling intervals from which on they count as different."""
_FEW = 9
"""Number of samples, at each end of the window, that the polling interval there is computed from."""


class LoadTrack(Struct, frozen=True, eq=False):
    """The load of one backend over time: lists of equal length in order of time; NaN where not reported."""

    name: str
    times_s: Sequence[float]
    """Monotonic seconds; they may jitter."""
    running: Sequence[float]
    waiting: Sequence[float] | None = None
    """None when this engine never reports it; then its load is the running requests."""
    generation_tps: Sequence[float] | None = None
    """Tokens per second over about the last second."""
    slots: int | None = None
    """Requests that can run at once."""
    part: float | None = None
    """Its relative part of the load, above 0, where that is unequal on purpose; None: an equal part."""
    errors: int | None = None
    """Number of failed and refused requests in the window; None where they are not counted."""
    arrived: Sequence[float] | None = None
    """Number of requests that arrived since some moment: those that ended plus those present. None where the
    backend does not count ended requests."""

    def only(self, kept: Sequence[int]) -> LoadTrack:
        """Return the track with its samples at these indexes alone."""

        def at_kept(values: Sequence[float]) -> list[float]:
            return [values[index] for index in kept]

        return replace(
            self,
            times_s=at_kept(self.times_s),
            running=at_kept(self.running),
            waiting=None if self.waiting is None else at_kept(self.waiting),
            generation_tps=None if self.generation_tps is None else at_kept(self.generation_tps),
            arrived=None if self.arrived is None else at_kept(self.arrived),
        )


def load_track(
    name: str,
    running: Series,
    waiting: Series,
    generation_tps: Series,
    *,
    since_s: float = -math.inf,
    slots: int | None = None,
    errors: int | None = None,
) -> LoadTrack:
    """Build a `LoadTrack` from a backend's history at or after `since_s` (monotonic seconds).

    The three series must share a time axis, like those of one `HistoryTable`. `slots` is the number of
    requests that can run at once, `errors` the number of failed requests.
    """
    times, loads = running.arrays(since_s)
    _, queue = waiting.arrays(since_s)
    _, speed = generation_tps.arrays(since_s)
    return LoadTrack(
        name=name,
        times_s=times,
        running=loads,
        waiting=queue if len(queue) == len(times) and not all(map(math.isnan, queue)) else None,
        generation_tps=speed if len(speed) == len(times) else None,
        slots=slots,
        errors=errors,
    )


class LoadGrid(Struct, frozen=True, eq=False):
    """The loads of a group's backends in equal time slots; NaN where a backend has no sample."""

    tracks: tuple[LoadTrack, ...]
    """The backends that answer now."""
    left: tuple[str, ...]
    """Backends that answered in the window, but no longer do."""
    silent: tuple[str, ...]
    """Backends without any answer in the window."""
    step_s: float
    span_s: float
    """Seconds that the slots cover: from the last change of the set of answering backends, at most the
    requested window."""
    shares: tuple[float, ...]
    """Each backend's due share, 0 to 1; they add up to 1."""
    loads: tuple[list[float], ...]
    """Running plus waiting requests: a list per backend, with a value per slot."""
    waiting: tuple[list[float] | None, ...]
    present: tuple[float, ...]
    """Share of each backend's slots that have a sample, 0 to 1."""
    totals: list[float]
    """Requests in the group by slot; NaN where too many backends are missing."""
    returned: str | None = None
    """The backend with whose return the slots begin; None where they begin otherwise."""
    skew_s: float = 0.0
    """Time in seconds between the oldest and the newest sample of the same slot: the upper quartile of recent
    slots."""


class _Usable(Struct, frozen=True):
    """The usable samples of a `LoadTrack`: those within the requested time and with a known load."""

    track: LoadTrack
    times: Sequence[float]
    loads: Sequence[float]
    waiting: Sequence[float] | None


def lay_out(tracks: Sequence[LoadTrack], now_s: float, window_s: float) -> LoadGrid | None:
    """Put the samples of the last `window_s` seconds before `now_s` into time slots that all backends share.

    Return None with fewer than two backends that answer. A backend that appears or leaves changes the even
    split, so the grid begins where the set of answering backends last changed. If too many slots stay
    empty because fast polls fail, or the polling interval was longer before, the slots get longer.
    """
    points = [_usable_samples(track, now_s - window_s, now_s) for track in tracks]
    steps = [_median_step(samples.times) for samples in points if len(samples.times) > 1]
    if not steps:
        return None
    step = max(median(steps), 0.02)
    grid, slower = _grid_with_step(points, now_s, step), _slowest_step(points)
    for thin in _THINNED:
        if grid is None or min(grid.present) >= _PRESENT or thin * step > _THINNED_S:
            break
        grid = _fuller(grid, _grid_with_step(points, now_s, step, thin))
    if grid is None or min(grid.present) >= _PRESENT or slower < _OTHER_PACE * step:
        return grid
    return _fuller(grid, _grid_with_step(points, now_s, slower))


def _fuller(grid: LoadGrid, other: LoadGrid | None) -> LoadGrid:
    """Return `other` if it lacks fewer samples than `grid`, else `grid`."""
    return grid if other is None or min(other.present) <= min(grid.present) else other


def slow_members(tracks: Sequence[LoadTrack], now_s: float, window_s: float) -> dict[str, str]:
    """Return why a group is judged without some of its backends, by name; empty where it is judged whole.

    A backend that is polled much less often than the others, or of which too many samples are missing, would
    leave the whole group without a verdict. Only a minority is left out for its pace, and at least two must
    have enough samples.
    """
    points = [_usable_samples(track, now_s - window_s, now_s) for track in tracks]
    alike = [
        samples
        for samples in points
        if len(samples.times) > 1 and now_s - samples.times[-1] <= SILENT_S + window_s / 4
    ]
    longest = max((len(samples.times) for samples in alike), default=0)
    if len(alike) <= _PAIR or min(len(samples.times) for samples in alike) >= _NEARLY_ALL * longest:
        return {}
    slow = _polled_slowly(alike)
    grid = lay_out([samples.track for samples in alike if samples.track.name not in slow], now_s, window_s)
    if grid is None or grid.span_s < _SHORTEST_S:
        return {}
    few = {
        track.name: f"has only {math.floor(100 * present)} % of its samples"
        for track, present in zip(grid.tracks, grid.present, strict=True)
        if present < _PRESENT
    }
    return slow | few if len(grid.tracks) - len(few) >= _PAIR else slow


def _polled_slowly(points: Sequence[_Usable]) -> dict[str, str]:
    """Return how seldom backends are polled, by name, of those polled less often than a majority."""
    steps = {samples.track.name: _median_step(samples.times) for samples in points}
    usual_step_s = median(steps.values())
    slow = {
        name: f"is polled every {step:.2g} s, the others every {usual_step_s:.2g} s"
        for name, step in steps.items()
        if step >= _OTHER_PACE * usual_step_s
    }
    return slow if len(steps) - len(slow) >= max(_PAIR, len(slow) + 1) else {}


def _slowest_step(points: Sequence[_Usable]) -> float:
    """Return the longest polling interval in seconds among all backends.

    A backend's interval is measured twice, over its first few and over its last few samples (median).
    """
    stretches = [samples.times[:_FEW] for samples in points] + [samples.times[-_FEW:] for samples in points]
    return max(_median_step(stretch) for stretch in stretches if len(stretch) > 1)


def _grid_with_step(points: Sequence[_Usable], now_s: float, step: float, thin: int = 1) -> LoadGrid | None:
    """Return a grid with the samples of all backends in time slots of `step` seconds.

    Of each `thin` slots only one is kept, the last one of those with the most samples. None with fewer than
    two backends that still answer at `now_s`.
    """
    silence = max(SILENT_S, 4 * step)
    answering = [samples for samples in points if samples.times and now_s - samples.times[-1] <= silence]
    silent_now = [samples for samples in points if samples.times and now_s - samples.times[-1] > silence]
    if len(answering) < 2:  # noqa: PLR2004 - balance is between two
        return None
    unbroken = [unbroken_since(samples.times, max(_BREAK_S, 4 * step)) for samples in answering]
    begin = max(unbroken)
    returned_last = answering[unbroken.index(begin)]
    returned = returned_last.track.name if begin > returned_last.times[0] else None
    last_left_at = max((samples.times[-1] + step for samples in silent_now), default=begin)
    if last_left_at > begin:
        begin, returned = last_left_at, None
    end = max(samples.times[-1] for samples in answering)
    count = max(1, round((end - begin) / step) + 1)
    base = end - (count - 0.5) * step
    columns = [_samples_by_slot(samples.times, base, count, step) for samples in answering]
    if thin > 1:
        chosen = _fullest_slots(columns, thin)
        columns = [[column[slot] for slot in chosen] for column in columns]
        count, step = len(chosen), thin * step
    loads = tuple(
        _values_by_slot(samples.loads, column) for samples, column in zip(answering, columns, strict=True)
    )
    parts = [1.0 if samples.track.part is None else samples.track.part for samples in answering]
    total_part = sum(parts)
    shares = tuple(part / total_part for part in parts)
    return LoadGrid(
        tracks=tuple(samples.track for samples in answering),
        left=tuple(samples.track.name for samples in silent_now),
        silent=tuple(samples.track.name for samples in points if not samples.times),
        step_s=step,
        span_s=count * step,
        shares=shares,
        loads=loads,
        waiting=tuple(
            None if samples.waiting is None else _values_by_slot(samples.waiting, column)
            for samples, column in zip(answering, columns, strict=True)
        ),
        present=tuple(1 - column.count(-1) / count for column in columns),
        totals=_fill_gaps(loads, shares),
        returned=returned,
        skew_s=_poll_skew_s([samples.times for samples in answering], columns),
    )


def _fullest_slots(columns: Sequence[Sequence[int]], thin: int) -> list[int]:
    """Return of each `thin` time slots the one with the most samples, on a tie the last.

    Slots are taken together from the end, so that the oldest ones may be left over. `columns` has for each
    backend and each slot the index of a sample, or -1.
    """
    sample_counts = [sum(index >= 0 for index in row) for row in zip(*columns, strict=True)]
    firsts = range(len(sample_counts) % thin, len(sample_counts), thin)
    return [max(reversed(range(slot, slot + thin)), key=sample_counts.__getitem__) for slot in firsts]


def _poll_skew_s(times: Sequence[Sequence[float]], columns: Sequence[Sequence[int]]) -> float:
    """Return the seconds between the oldest and the newest sample of a time slot (upper quartile of slots).

    `times` has the times of each backend's samples. `columns` has for each backend and each slot the index
    of the slot's sample in these times, or -1. Only the most recent slots are examined.
    """
    spreads: list[float] = []
    for row in zip(*(column[-_ENOUGH_STEPS:] for column in columns), strict=True):
        if min(row) >= 0:
            times_of_slot = [own_times[index] for own_times, index in zip(times, row, strict=True)]
            spreads.append(max(times_of_slot) - min(times_of_slot))
    return sorted(spreads)[3 * len(spreads) // 4] if spreads else 0.0


def _usable_samples(track: LoadTrack, since_s: float, now_s: float) -> _Usable:
    times, waiting = track.times_s, track.waiting
    loads = track.running
    if waiting is not None:
        loads = list(map(add, loads, waiting))
    if times and (times[0] <= since_s or times[-1] > now_s or not math.isfinite(sum(loads))):
        keep = [
            index
            for index, (time, load) in enumerate(zip(times, loads, strict=True))
            if since_s < time <= now_s and math.isfinite(load)
        ]
        times, loads = [times[i] for i in keep], [loads[i] for i in keep]
        waiting = None if waiting is None else [waiting[i] for i in keep]
    return _Usable(track, times, loads, waiting)


def _median_step(times: Sequence[float]) -> float:
    # The newest samples show the current rate; using all would cost as much as the rest of the grid.
    recent = times[-_ENOUGH_STEPS:]
    return median(later - earlier for earlier, later in pairwise(recent))


def unbroken_since(times: Sequence[float], gap_s: float) -> float:
    """Return the time of the first sample after the newest gap of more than `gap_s` seconds."""
    return max((later for earlier, later in pairwise(times) if later - earlier > gap_s), default=times[0])


def interpolate(times: Sequence[float], values: Sequence[float], at_s: float) -> float:
    """Return the value at `at_s`, in a straight line between two samples; at the ends the nearest."""
    index = bisect_left(times, at_s)
    if index == 0 or index == len(times):
        return values[min(index, len(values) - 1)] if values else 0.0
    before, after = times[index - 1], times[index]
    part = (at_s - before) / (after - before) if after > before else 0.0
    return values[index - 1] + part * (values[index] - values[index - 1])


def _samples_by_slot(times: Sequence[float], base: float, count: int, step: float) -> list[int]:
    """Return for each time slot the index of its sample in `times`, or -1 if the slot has no sample.

    There are `count` slots of `step` seconds from the time `base` on, after which no sample may be.
    """
    first_index = bisect_left(times, base)
    column = [-1] * count
    for index, time in enumerate(times[first_index:], first_index):
        column[min(count - 1, int((time - base) / step))] = index
    for slot in range(1, count - 1):
        if column[slot] < 0:
            before, after = column[slot - 1], column[slot + 1]
            # One sample was late, so two share a slot: nothing is missing here.
            if before >= 0 and after == before + 1 and times[after] - times[before] < LATE * step:
                column[slot] = before
    return column


def _values_by_slot(values: Sequence[float], column: Sequence[int]) -> list[float]:
    return [values[index] if index >= 0 else math.nan for index in column]


def _fill_gaps(loads: tuple[list[float], ...], shares: tuple[float, ...]) -> list[float]:
    """Fill in missing loads (NaN) in place where few backends lack one; return the group's load by slot.

    A missing load becomes the backend's even share of the time slot's total. Where more than the part
    `MISSING_IN_A_ROW` of the backends is missing, nothing is filled in and the total is NaN.
    """
    totals: list[float] = [sum(row) for row in zip(*loads, strict=True)]
    most_missing = math.floor(MISSING_IN_A_ROW * len(loads))
    for slot, total in enumerate(totals):
        if not math.isnan(total):
            continue
        missing = [index for index, column in enumerate(loads) if math.isnan(column[slot])]
        if len(missing) > most_missing:
            continue
        known_share = 1 - sum(shares[index] for index in missing)
        known_load = sum(column[slot] for column in loads if not math.isnan(column[slot]))
        for index in missing:
            loads[index][slot] = known_load * shares[index] / known_share
        totals[slot] = known_load / known_share
    return totals


class GroupLoad(Struct, frozen=True, eq=False):
    """The values by which one group's balance is judged: loads of backends, and what is known of requests."""

    group: str
    tracks: Sequence[LoadTrack]
    e2e_s: float | None = None
    """Median life of a request in the group in seconds; None if unknown."""
    strategy: str | None = None
    """The routing strategy that the router reports."""
    pace: GroupPace = GroupPace()
    """Step times of an earlier window, for a window whose batches do not vary enough."""
    period_s: float | None = None
    """The period of the swing by the judgement before; None without one."""
    prefills: bool = False
    """True for prefill workers: their throughput does not grow with the batch, and generated tokens do not
    measure it."""
    bypassed: str | None = None
    """The name of a router that is in front of the group, but by its own counts is not what distributes the
    requests; `router` is None then."""
    router: str | None = "router"
    """The name of the router that distributes the requests; None if no router is known: then the verdict only
    describes the loads."""
