"""The loads of a group's backends on one time axis, and how step times grow with batches."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import compress, pairwise, repeat
from operator import add, itemgetter, le, lt, sub
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.balance import StepTime
from sparktop.model.series import LATE, Series

# A step of a batch of b requests takes a + s·b seconds and generates a token for each request: T(b) = b /
# (a + s·b) tokens per second. Under random routing the states of such servers have a product form, whatever
# the lengths of requests (processor sharing is insensitive to them): with r = a / s each server has the
# weight ∏(r + k) / k, a negative binomial with parameter 1 + r, so n servers share C requests as a
# Dirichlet-multinomial distribution does. Its variance divided by that of the multinomial is (C + n(1 + r))
# / (1 + n(1 + r)), exactly.
#
# A group's backends may differ in speed. A *line* is a linear fit of step time over batch size. A common
# line is right only where all backends are equally fast. Under round-robin a slow backend has a large batch
# and a fast one a small batch, so a line through the samples of both describes neither. Therefore each
# backend is compared with the line of the backend whose batch sizes vary most, and if the backends differ,
# each gets its own line. These lines show how unequal the backends are. They are too inaccurate to compute
# the throughput of the best split (3 to 7 percent off when tried), so this throughput is not estimated.


FEWEST_PAIRS = 20
"""Samples with which step times are fitted."""
SMALLEST_SPAN = 2.0
"""The largest batch over the smallest: below this ratio a line's slope is noise."""
_RATE_WINDOW_S = 1.0
"""Window of a track's token rates in seconds: the batch must have been steady for as long."""
_STEADY = 0.1
"""A batch is steady while it varies by at most this share, or by one request."""
_JITTER = 0.1
"""Samples that come early by up to this share of an interval do not require a further sample."""
_MEDIAN_ERROR = 1.86
"""Standard error of a median of n samples, in median deviations over √n: 1.253 / 0.674 for normal scatter."""
_LEAST_ERROR = 0.01
"""Least error of any median as a share of a step time: prefills and polling times move it by this much."""
_SHARED = 3.0
"""Number of samples that count as one independent sample: rates over a second, polled at 4 Hz, overlap."""
_MOST_PAIRS = 400
"""Most samples that are read of a group's step times: more cost time and add no accuracy."""
_BINS_PER_DOUBLING = 4
"""Ranges of similar batches between a batch size and twice this size."""
_MOST_STATES = 4096
"""Largest number of requests for which the exact distribution of a group with a limit of running requests is
computed."""

Pair = tuple[float, float]
"""(batch size, step time in seconds)."""


def fit_pairs(pairs: Sequence[Pair]) -> StepTime | None:
    """Fit step time to batch size by the samples `pairs`; None with too few or too similar batches.

    The fit is a line through the medians of batches of similar size. So prefills and late counters, which
    only lengthen single steps, do not change it. Each median is weighted by its accuracy.
    """
    return _fit_medians(_groups_of_similar_batches(pairs), len(pairs)) if len(pairs) >= FEWEST_PAIRS else None


def _fit_medians(bins: Sequence[Sequence[Pair]], pairs: int) -> StepTime | None:
    """Return step time as a line over batch size: weighted least squares through the medians of `bins`.

    Each of `bins` has the (batch size, step time) samples of similar batches. The result includes the
    standard error of the slope, and the number of samples `pairs`. Return None unless the largest batch is
    at least twice the smallest.
    """
    points = [_median_pair(each) for each in bins]
    if len(points) < 2 or points[-1][0] < SMALLEST_SPAN * points[0][0]:  # noqa: PLR2004 - a line needs two points
        return None
    scatter = median(
        abs(y / usual - 1) for each, (_, usual) in zip(bins, points, strict=True) for _, y in each
    )
    weights: list[float] = []
    for each, (_, usual) in zip(bins, points, strict=True):
        own_scatter = median(abs(y / usual - 1) for _, y in each)
        error = _MEDIAN_ERROR * max(own_scatter, scatter) / math.sqrt(max(1.0, len(each) / _SHARED))
        weights.append((usual * math.hypot(error, _LEAST_ERROR)) ** -2)
    whole = sum(weights)
    middle = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / whole
    height = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / whole
    lever = sum(w * (x - middle) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    slope = sum(w * (x - middle) * (y - height) for w, (x, y) in zip(weights, points, strict=True)) / lever
    misfit = sum(
        w * (y - height - slope * (x - middle)) ** 2 for w, (x, y) in zip(weights, points, strict=True)
    )
    error = math.sqrt(max(1.0, misfit / max(1, len(points) - 2)) / lever)
    return _line_through(slope, middle, height, pairs, error)


def _line_through(slope: float, middle: float, height: float, pairs: int, error: float) -> StepTime:
    """Return the step-time line through (batch `middle`, step time `height`) with a slope of at most `slope`.

    The slope is limited to at least 0, and to nearly that of the line through the origin. `pairs` (number
    of samples) and `error` (standard error of the slope) are stored in the result.
    """
    steepest = height / (middle + 1)
    slope = min(max(0.0, slope), steepest)
    return StepTime(height - slope * middle, slope, pairs, slope_error_s=error, middle=middle)


FLAT = StepTime(base_s=1e-6, per_request_s=1.0, pairs=0)
"""Step time of prefill workers: each prompt token costs the same, so one request gives the same throughput as
many."""


def with_slope(step: StepTime, errors: float) -> StepTime:
    """Return the step-time line with its slope changed by `errors` times the slope's standard error.

    The step time at the middle of the fitted batches stays the same.
    """
    if step.slope_error_s == 0:
        return step
    height = step.base_s + step.per_request_s * step.middle
    slope = step.per_request_s + errors * step.slope_error_s
    return _line_through(slope, step.middle, height, step.pairs, step.slope_error_s)


def _middles(pairs: Sequence[Pair]) -> list[Pair]:
    """Return (median batch, median step time) for each range of similar batches, by ascending batch.

    Empty with too few samples.
    """
    return (
        [_median_pair(each) for each in _groups_of_similar_batches(pairs)]
        if len(pairs) >= FEWEST_PAIRS
        else []
    )


def steady_pairs(track: LoadTrack, since_s: float, backends: int) -> list[Pair]:
    """Return (batch size, step time in seconds) for samples of a backend with a steady batch, in time order.

    Only samples since `since_s` are read. With more `backends` fewer samples per backend are read. Empty
    if the backend has no token rates.
    """
    most = max(FEWEST_PAIRS, _MOST_PAIRS // backends)
    speeds, running, times = track.generation_tps, track.running, track.times_s
    if speeds is None:
        return []
    first = bisect_left(times, since_s)
    count = len(times) - first
    if count < 3:  # noqa: PLR2004 - two samples and a step between
        return []
    step = (times[-1] - times[first]) / (count - 1)
    back = max(1, math.ceil(_RATE_WINDOW_S / step - _JITTER))
    pairs: list[Pair] = []
    for index in range(first + back, len(times), max(1, count // most)):
        seen, tps = running[index - back : index + 1], speeds[index]
        least, most_seen = min(seen), max(seen)
        # A server that was empty in between generated nothing then. NaN fails all comparisons.
        if least >= 1 and tps > 0 and most_seen - least <= max(1.0, _STEADY * most_seen):
            batch = (sum(seen) - (seen[0] + seen[-1]) / 2) / back
            if batch >= 1:
                pairs.append((batch, batch / tps))
    return pairs


def _groups_of_similar_batches(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Return the (batch, step time) pairs in groups of similar batches, ascending.

    Groups that would have only one pair are left out.
    """
    bins: dict[int, list[Pair]] = {}
    for pair in pairs:
        bins.setdefault(round(_BINS_PER_DOUBLING * math.log2(pair[0])), []).append(pair)
    return [bins[key] for key in sorted(bins) if len(bins[key]) > 1]


def _median_pair(pairs: Sequence[Pair]) -> Pair:
    return median(batch for batch, _ in pairs), median(time for _, time in pairs)


def variance_factor(total: float, backends: int, step: StepTime | None, slots: int | None = None) -> float:
    """Return the variance of a backend's load under random routing, relative to the multinomial's.

    It is at least 1, because a loaded backend finishes requests more slowly; it is 1 if `step` (the step
    time by batch size) is None. `total` is the number of requests in the group, `slots` the number of
    requests that a backend runs at once.
    """
    if step is None or step.per_request_s <= 0 or total < 1 or backends < 2:  # noqa: PLR2004 - alone, nothing spreads
        return 1.0
    ratio = step.base_s / step.per_request_s
    if slots is not None and total / backends > slots / 2 and total <= _MOST_STATES:
        return _factor_with_slots(round(total), backends, ratio, slots)
    states = backends * (1 + ratio)
    return (total + states) / (1 + states)


def _factor_with_slots(total: int, backends: int, ratio: float, slots: int) -> float:
    """Return the `variance_factor` for backends that may be full: requests queue and steps stop growing.

    `ratio` is the step time at batch 0 divided by the time that each request adds. `slots` is the number
    of requests that a backend runs at once. The result is exact for two backends. For more backends, the
    total number of requests is taken as random with the right mean, instead of as constant; this changes the
    variance and the multinomial's variance alike.
    """
    logs = [0.0]
    for load in range(1, total + 1):
        batch = min(load, slots)
        logs.append(logs[-1] + math.log((ratio + batch) / batch))
    mean = total / backends
    if backends == 2:  # noqa: PLR2004 - a chain
        return _mean_and_variance([each + other for each, other in zip(logs, reversed(logs), strict=True)])[
            1
        ] / (mean / 2)
    low, high = -logs[-1] / total - 20.0, 20.0
    for _ in range(40):
        tilt = (low + high) / 2
        tilted_mean, spread = _mean_and_variance([each + tilt * load for load, each in enumerate(logs)])
        low, high = (tilt, high) if tilted_mean < mean else (low, tilt)
    return spread / mean


def _mean_and_variance(logs: Sequence[float]) -> tuple[float, float]:
    top = max(logs)
    weights = [math.exp(value - top) for value in logs]
    whole = sum(weights)
    mean = sum(load * weight for load, weight in enumerate(weights)) / whole
    return mean, sum((load - mean) ** 2 * weight for load, weight in enumerate(weights)) / whole


def throughput(step: StepTime, slots: int | None) -> Callable[[float], float]:
    """Return a function from the number of requests at a backend to the tokens/s that it generates.

    The backend has the mean speed of the group. `slots` is the number of requests that it runs at once,
    None for no limit.
    """
    base, slope = step.base_s, step.per_request_s
    if slots is None:
        return lambda load: load / (base + slope * load)
    full = slots / (base + slope * slots)
    return lambda load: load / (base + slope * load) if load < slots else full


UNLIKE = 1.3
"""Ratio of step times at the same batch from which on two backends count as unequal.

Equal servers on shared cores reached 1.28; below that, a common line is at most 3 % of throughput off.
"""
_FEWEST_FULL_LOOKS = 8
"""Samples with a queue from which the number of slots is inferred."""
_FULL_WITHIN = 1.0
"""Requests by which the running ones may vary while all slots are in use."""


class GroupPace(Struct, frozen=True):
    """Step time as a linear function ("line") of the batch size: for the group, or for each backend."""

    common: StepTime | None = None
    """The common line where all backends are equal, as far as known; None where it is unknown or they
    differ."""
    own: Mapping[str, StepTime] = {}
    """The line of each backend by name, where they differ; without backends whose step time is unknown."""

    @property
    def usual(self) -> StepTime | None:
        """The step-time line that stands for the whole group; None if no line is known.

        A line is step time as a linear function of the batch size. If the backends have lines of their own,
        these are sorted by (growth per request / step time at batch 0), and the middle one is returned.
        """
        ordered = sorted(self.own.values(), key=lambda step: (step.per_request_s / step.base_s, step.base_s))
        return self.common or (ordered[len(ordered) // 2] if ordered else None)


def group_pace(tracks: Sequence[LoadTrack], since_s: float, earlier: GroupPace) -> GroupPace:
    """Fit step time as a linear function of the batch size, for the group or for each backend.

    Samples since `since_s` (monotonic seconds) are used. Each backend gets a function of its own if
    backends differ in speed. Functions that these samples do not determine are copied from `earlier`.
    """
    pairs = {track.name: steady_pairs(track, since_s, len(tracks)) for track in tracks}
    every = [pair for of_backend in pairs.values() for pair in of_backend]
    points = {name: _middles(of_backend) for name, of_backend in pairs.items()}
    reporting = {name: middles for name, middles in points.items() if middles}
    widest = _widest_range(reporting)
    line = None if widest is None else fit_pairs(pairs[widest])
    if line is None:
        alike = len(reporting) == len(points) and _have_alike_steps(list(reporting.values()))
        common = fit_pairs(every) if alike else None
        return earlier if common is None else GroupPace(common)
    factors = _step_ratios(reporting, line)
    if max(factors.values()) <= UNLIKE * min(factors.values()):
        return GroupPace(fit_pairs(every) or earlier.common)
    lines = {name: fit_pairs(pairs[name]) or _scale_line(line, factors[name]) for name in reporting}
    return GroupPace(None, {**earlier.own, **lines})


def _widest_range(points: Mapping[str, Sequence[Pair]]) -> str | None:
    """Return the backend whose batch sizes span the widest range; None without backends."""
    # On equal spans the order of backends must not decide.
    spans = {name: (middles[-1][0] / middles[0][0], tuple(middles)) for name, middles in points.items()}
    return max(points, key=spans.__getitem__, default=None)


def _step_ratios(points: Mapping[str, Sequence[Pair]], line: StepTime) -> dict[str, float]:
    """Return for each backend the median ratio of its step time to that of `line` at the same batch size."""
    return {
        name: median(time / _step_s(line, batch) for batch, time in middles)
        for name, middles in points.items()
    }


def _step_s(line: StepTime, batch: float) -> float:
    return line.base_s + line.per_request_s * batch


def _scale_line(line: StepTime, factor: float) -> StepTime:
    return StepTime(factor * line.base_s, factor * line.per_request_s, line.pairs)


def _have_alike_steps(points: Sequence[Sequence[Pair]]) -> bool:
    """Return whether the backends have similar step times per request at similar batch sizes.

    `points` has the (batch size, step time) pairs of each backend. Backends are compared with the next one
    in the order of batch sizes. False where two neighbours have no similar batch size.
    """
    ordered = sorted(points, key=tuple)
    for earlier, later in pairwise(ordered):
        ratios = [
            (time / batch) / (other_time / other_batch)
            for batch, time in earlier
            for other_batch, other_time in later
            if abs(math.log2(batch / other_batch)) <= 1 / 4
        ]
        if not ratios or not 1 / UNLIKE <= median(ratios) <= UNLIKE:
            return False
    return True


def slots_of(track: LoadTrack) -> int | None:
    """Return how many requests the backend can run at once, None if unknown.

    If the backend does not report this number, use the number of requests that ran while others waited,
    provided that it was nearly constant.
    """
    if track.slots is not None or track.waiting is None:
        return track.slots
    full = list(compress(track.running, map(lt, repeat(0.0), track.waiting)))
    if len(full) < _FEWEST_FULL_LOOKS:
        return None
    usual = median(full)
    near = sum(abs(run - usual) <= _FULL_WITHIN for run in full)
    return round(usual) if near >= 0.9 * len(full) and usual >= 1 else None


# Puts the loads of a group's backends on one time axis, where gaps stay gaps.
#
# A *slot* is a time slot of this grid (except in the field `LoadTrack.slots`).


MISSING_IN_A_ROW = 0.25
"""Share of the backends that may lack a sample in a slot; each gets the load that it would have under an even
split."""
_SILENT_S = 5.0
"""A backend has left if its newest sample is older than this (or than 4 steps, if that is more)."""
_BREAK_S = 10.0
"""After a longer gap the history starts again: samples before it do not describe those after it."""
_ENOUGH_STEPS = 64
"""Newest samples of which the polling interval is computed."""
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
    """Its relative part of the group's load where that is unequal on purpose; None: an equal part."""
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


def picker(grid: LoadGrid, slots: Sequence[int]) -> Callable[[Sequence[float]], Sequence[float]]:
    """Return a function that selects values by time slot.

    The function's argument is a list with one value for each slot of `grid`; the function returns the
    values at the indexes `slots`.
    """
    if len(slots) == len(grid.totals):
        return lambda column: column
    if len(slots) < 2:  # noqa: PLR2004 - of one, an itemgetter gives no sequence
        return lambda column: [column[slot] for slot in slots]
    return itemgetter(*slots)


class _Samples(Struct, frozen=True):
    """The usable samples of a `LoadTrack`: those within the requested time and with a known load."""

    track: LoadTrack
    times: Sequence[float]
    loads: Sequence[float]
    waiting: Sequence[float] | None


def lay_out(tracks: Sequence[LoadTrack], now_s: float, window_s: float) -> LoadGrid | None:
    """Put the samples of the last `window_s` seconds before `now_s` into time slots that all backends share.

    Return None with fewer than two backends that answer. A backend that appears or leaves changes the even
    split, so the grid begins where the set of answering backends last changed. If too many slots stay
    empty because the polling interval was longer before, the slots get the longer interval.
    """
    points = [_usable_samples(track, now_s - window_s, now_s) for track in tracks]
    steps = [_median_step(samples.times) for samples in points if len(samples.times) > 1]
    if not steps:
        return None
    step = max(median(steps), 0.02)
    grid, slower = _grid_with_step(points, now_s, step), _slowest_step(points)
    if grid is None or min(grid.present) >= _PRESENT or slower < _OTHER_PACE * step:
        return grid
    coarse = _grid_with_step(points, now_s, slower)
    return grid if coarse is None or min(coarse.present) <= min(grid.present) else coarse


def slow_members(tracks: Sequence[LoadTrack], now_s: float, window_s: float) -> dict[str, str]:
    """Return why a group is judged without some of its backends, by name; empty where it is judged whole.

    A backend that is polled much less often than the others, or of which too many samples are missing, would
    leave the whole group without a verdict. At least two of the others must have enough samples.
    """
    points = [_usable_samples(track, now_s - window_s, now_s) for track in tracks]
    here = [
        samples
        for samples in points
        if len(samples.times) > 1 and now_s - samples.times[-1] <= _SILENT_S + window_s / 4
    ]
    most = max((len(samples.times) for samples in here), default=0)
    if len(here) <= _PAIR or min(len(samples.times) for samples in here) >= _NEARLY_ALL * most:
        return {}
    steps = {samples.track.name: _median_step(samples.times) for samples in here}
    usual = median(steps.values())
    slow = {
        name: f"is polled every {step:.2g} s, the others every {usual:.2g} s"
        for name, step in steps.items()
        if step >= _OTHER_PACE * usual
    }
    if len(steps) - len(slow) < max(_PAIR, len(slow) + 1):
        slow = {}
    grid = lay_out([samples.track for samples in here if samples.track.name not in slow], now_s, window_s)
    if grid is None or grid.span_s < _SHORTEST_S:
        return {}
    few = {
        track.name: f"has only {math.floor(100 * present)} % of its samples"
        for track, present in zip(grid.tracks, grid.present, strict=True)
        if present < _PRESENT
    }
    return slow | few if len(grid.tracks) - len(few) >= _PAIR else slow


def _slowest_step(points: Sequence[_Samples]) -> float:
    """Return the longest polling interval in seconds among all backends.

    A backend's interval is measured twice, over its first few and over its last few samples (median).
    """
    ends = (
        part for samples in points for part in (samples.times[:_FEW], samples.times[-_FEW:]) if len(part) > 1
    )
    return max(median(later - earlier for earlier, later in pairwise(part)) for part in ends)


def _grid_with_step(points: Sequence[_Samples], now_s: float, step: float) -> LoadGrid | None:
    """Return a grid with the samples of all backends in time slots of `step` seconds.

    None with fewer than two backends that still answer at `now_s`.
    """
    silence = max(_SILENT_S, 4 * step)
    here = [samples for samples in points if samples.times and now_s - samples.times[-1] <= silence]
    gone = [samples for samples in points if samples.times and now_s - samples.times[-1] > silence]
    if len(here) < 2:  # noqa: PLR2004 - balance is between two
        return None
    begin, newest = max(
        ((unbroken_since(samples.times, max(_BREAK_S, 4 * step)), samples) for samples in here),
        key=lambda since: since[0],
    )
    returned = newest.track.name if begin > newest.times[0] else None
    if (left := max((samples.times[-1] + step for samples in gone), default=begin)) > begin:
        begin, returned = left, None
    end = max(samples.times[-1] for samples in here)
    count = max(1, round((end - begin) / step) + 1)
    base = end - (count - 0.5) * step
    edges = [base + slot * step for slot in range(count + 1)]
    columns = [_samples_by_slot(samples.times, edges, step) for samples in here]
    loads = tuple(
        _values_by_slot(samples.loads, column) for samples, column in zip(here, columns, strict=True)
    )
    parts = [1.0 if samples.track.part is None else samples.track.part for samples in here]
    whole = sum(parts)
    shares = tuple(part / whole for part in parts)
    return LoadGrid(
        tracks=tuple(samples.track for samples in here),
        left=tuple(samples.track.name for samples in gone),
        silent=tuple(samples.track.name for samples in points if not samples.times),
        step_s=step,
        span_s=count * step,
        shares=shares,
        loads=loads,
        waiting=tuple(
            None if samples.waiting is None else _values_by_slot(samples.waiting, column)
            for samples, column in zip(here, columns, strict=True)
        ),
        present=tuple(1 - column.count(-1) / count for column in columns),
        totals=_fill_gaps(loads, shares),
        returned=returned,
        skew_s=_poll_skew_s([samples.times for samples in here], columns),
    )


def _poll_skew_s(times: Sequence[Sequence[float]], columns: Sequence[Sequence[int]]) -> float:
    """Return the seconds between the oldest and the newest sample of a time slot (upper quartile of slots).

    `times` has the times of each backend's samples. `columns` has for each backend and each slot the index
    of the slot's sample in these times, or -1. Only the most recent slots are examined.
    """
    spreads: list[float] = []
    for row in zip(*(column[-_ENOUGH_STEPS:] for column in columns), strict=True):
        if min(row) >= 0:
            at = [each[index] for each, index in zip(times, row, strict=True)]
            spreads.append(max(at) - min(at))
    return sorted(spreads)[3 * len(spreads) // 4] if spreads else 0.0


def _usable_samples(track: LoadTrack, since_s: float, now_s: float) -> _Samples:
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
    return _Samples(track, times, loads, waiting)


def _median_step(times: Sequence[float]) -> float:
    # The newest samples show the current rate; using all would cost as much as the rest of the grid.
    recent = times[-_ENOUGH_STEPS:]
    return median(later - earlier for earlier, later in pairwise(recent))


def unbroken_since(times: Sequence[float], gap_s: float) -> float:
    """Return the time of the first sample after the newest gap of more than `gap_s` seconds."""
    if max(map(sub, times[1:], times), default=0.0) <= gap_s:  # nearly always, and faster
        return times[0]
    return max(later for earlier, later in pairwise(times) if later - earlier > gap_s)


def interpolate(times: Sequence[float], values: Sequence[float], at_s: float) -> float:
    """Return the value at `at_s`, in a straight line between two samples; at the ends the nearest."""
    index = bisect_left(times, at_s)
    if index == 0 or index == len(times):
        return values[min(index, len(values) - 1)] if values else 0.0
    before, after = times[index - 1], times[index]
    part = (at_s - before) / (after - before) if after > before else 0.0
    return values[index - 1] + part * (values[index] - values[index - 1])


def _samples_by_slot(times: Sequence[float], edges: Sequence[float], step: float) -> Sequence[int]:
    """Return for each time slot the index of its sample in `times`, or -1 if the slot has no sample.

    `edges` are the borders of the slots, each `step` seconds long; no sample may be later than the last
    border.
    """
    base, count, per_s = edges[0], len(edges) - 1, 1 / step
    first = bisect_left(times, base)
    inside = times[first:]
    if len(inside) == count and all(map(le, edges, inside)) and all(map(lt, inside, edges[1:])):
        return range(first, first + count)
    column = [-1] * count
    for index, slot in enumerate([int((time - base) * per_s) for time in inside], first):
        column[slot] = index
    slot = 0
    for _ in range(column.count(-1)):
        slot = column.index(-1, slot)
        if 0 < slot < count - 1:
            before, after = column[slot - 1], column[slot + 1]
            # One sample was late, so two share a slot: nothing is missing here.
            if before >= 0 and after == before + 1 and times[after] - times[before] < LATE * step:
                column[slot] = before
        slot += 1
    return column


def _values_by_slot(values: Sequence[float], column: Sequence[int]) -> list[float]:
    if isinstance(column, range):
        return [*values[column.start : column.stop]]
    if -1 not in column and len(column) > 1:
        return [*itemgetter(*column)(values)]
    return [values[index] if index >= 0 else math.nan for index in column]


def _fill_gaps(loads: tuple[list[float], ...], shares: tuple[float, ...]) -> list[float]:
    """Fill in missing loads (NaN) in place where few backends lack one; return the group's load by slot.

    A missing load becomes the backend's even share of the time slot's total. Where more than the part
    `MISSING_IN_A_ROW` of the backends is missing, nothing is filled in and the total is NaN.
    """
    totals: list[float] = [sum(row) for row in zip(*loads, strict=True)]
    most = math.floor(MISSING_IN_A_ROW * len(loads))
    if most:
        for slot, total in enumerate(totals):
            if total != total:  # noqa: PLR0124 - NaN differs from itself; the fastest test
                lost = [index for index, column in enumerate(loads) if math.isnan(column[slot])]
                if len(lost) <= most:
                    rest = 1 - sum(shares[index] for index in lost)
                    seen = sum(column[slot] for column in loads if not math.isnan(column[slot]))
                    for index in lost:
                        loads[index][slot] = seen * shares[index] / rest
                    totals[slot] = seen / rest
    return totals


class GroupLoad(Struct, frozen=True, eq=False):
    """The values by which one group's balance is judged: loads of backends, and what is known of requests."""

    group: str
    tracks: Sequence[LoadTrack]
    e2e_s: float | None = None
    """Median life of a request in the group in seconds; None if unknown."""
    strategy: str | None = None
    """The routing strategy that the router reports."""
    step_time: StepTime | None = None
    """Step time as a function of the batch from an earlier window, for a window whose batches do not vary
    enough."""
    step_times: Mapping[str, StepTime] = {}
    """By backend, from an earlier window, where backends differ in speed."""
    prefills: bool = False
    """True for prefill workers: their throughput does not grow with the batch, and generated tokens do not
    measure it."""
    bypassed: str | None = None
    """The name of a router that is in front of the group, but by its own counts is not what distributes the
    requests; `router` is None then."""
    router: str | None = "router"
    """The name of the router that distributes the requests; None if no router is known: then the verdict only
    describes the loads."""
