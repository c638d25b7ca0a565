"""Fits how an engine's step time grows with its batch, and derives throughput and the variance of loads.

A step of a batch of b requests takes a + s·b seconds and generates a token for each request: T(b) = b / (a
+ s·b) tokens per second. Under random routing the states of such servers have a product form, whatever the
lengths of requests (processor sharing is insensitive to them): with r = a / s each server has the weight
∏(r + k) / k, a negative binomial with parameter 1 + r, so n servers share C requests as a
Dirichlet-multinomial distribution does. Its variance divided by that of the multinomial is (C + n(1 + r))
/ (1 + n(1 + r)), exactly.

A group's backends may differ in speed. A *line* is a linear fit of step time over batch size. A common line
is right only where all backends are equally fast. Under round-robin a slow backend has a large batch and a
fast one a small batch, so a line through the samples of both describes neither. Therefore each backend is
compared with the line of the backend whose batch sizes vary most, and if the backends differ, each gets its
own line. These lines show how unequal the backends are. They are too inaccurate to compute the throughput of
the best split (3 to 7 percent off when tried), so this throughput is not estimated.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, compress, pairwise, repeat
from operator import lt
from statistics import median
from types import MappingProxyType

from msgspec import Struct, field

from sparktop.analysis.balance.load_grid import LoadTrack
from sparktop.model.balance import StepTime

FEWEST_PAIRS = 20
SMALLEST_SPAN = 2.0
"""The largest batch over the smallest: below this ratio a line's slope is noise."""
_RATE_WINDOW_S = 1.0
"""Window of a track's token rates in seconds: the batch must have been steady for as long."""
_STEADY = 0.1
_JITTER = 0.1
"""Samples that come early by up to this share of an interval do not require a further sample."""
_MEDIAN_ERROR = 1.86
"""Standard error of a median of n samples, in median deviations over √n: 1.253 / 0.674 for normal scatter."""
_LEAST_ERROR = 0.01
"""Least error of any median as a share of a step time: prefills and polling times move it by this much."""
_SHARED = 3.0
"""Number of samples that count as one independent sample: rates over a second, polled at 4 Hz, overlap."""
_MOST_PAIRS = 400
_BINS_PER_DOUBLING = 4
_MOST_STATES = 4096
"""Largest number of requests for which the exact distribution of a group with a limit of running requests is
computed."""

Pair = tuple[float, float]
"""(batch size, step time in seconds)."""


def fit_step_time(tracks: Sequence[LoadTrack], since_s: float) -> StepTime | None:
    """Fit step time to batch size over the samples since `since_s` with steady batches; None if impossible.

    The fit is a line through the medians of batches of similar size. So prefills and late counters, which
    only lengthen single steps, do not change it. Each median is weighted by its accuracy.
    """
    return fit_pairs(tracks, [steady_pairs(track, since_s, len(tracks)) for track in tracks])


def fit_pairs(tracks: Sequence[LoadTrack], pairs: Sequence[Sequence[Pair]]) -> StepTime | None:
    """Fit step time to batch size; `pairs` has (batch size, step time) samples of each backend in `tracks`.

    Step times are scaled to the mean speed of all backends first. Return None with too few samples or too
    similar batches.
    """
    mean = sum(track.weight for track in tracks) / max(1, len(tracks))
    scaled: list[Pair] = []
    for track, own in zip(tracks, pairs, strict=True):
        speed = track.weight / mean
        scaled += own if speed == 1 else [(batch, speed * time) for batch, time in own]
    return _fit_medians(_bins(scaled), len(scaled)) if len(scaled) >= FEWEST_PAIRS else None


def _fit_medians(bins: Sequence[Sequence[Pair]], pairs: int) -> StepTime | None:
    """Return step time as a line over batch size: weighted least squares through the medians of `bins`.

    Each of `bins` has the (batch size, step time) samples of similar batches. The result includes the
    standard error of the slope, and the number of samples `pairs`. Return None unless the largest batch is
    at least twice the smallest.
    """
    points = [_middle(each) for each in bins]
    if len(points) < 2 or points[-1][0] < SMALLEST_SPAN * points[0][0]:  # noqa: PLR2004 - a line needs two points
        return None
    scatter = median(
        abs(y / usual - 1) for each, (_, usual) in zip(bins, points, strict=True) for _, y in each
    )
    weights: list[float] = []
    for each, (_, usual) in zip(bins, points, strict=True):
        own = median(abs(y / usual - 1) for _, y in each)
        error = _MEDIAN_ERROR * max(own, scatter) / math.sqrt(max(1.0, len(each) / _SHARED))
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
    return _line(slope, middle, height, pairs, error)


def _line(slope: float, middle: float, height: float, pairs: int, error: float) -> StepTime:
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
    return _line(slope, step.middle, height, step.pairs, step.slope_error_s)


def points_of(pairs: Sequence[Pair]) -> list[Pair]:
    """Return (median batch, median step time) for each range of similar batches, by ascending batch.

    Empty with too few samples.
    """
    return [_middle(each) for each in _bins(pairs)] if len(pairs) >= FEWEST_PAIRS else []


def fit_line(points: Sequence[Pair], pairs: int = 0) -> StepTime | None:
    """Return step time as a line over batch size by the method of Theil and Sen.

    `points` are (batch size, step time) by ascending batch size. Return None unless the largest batch is
    at least twice the smallest. `pairs` is the number of samples behind the points; it is stored in the
    result.
    """
    if len(points) < 2 or points[-1][0] < SMALLEST_SPAN * points[0][0]:  # noqa: PLR2004 - a line needs two points
        return None
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2)]
    slope = max(0.0, median(slopes))
    base = median(y - slope * x for x, y in points)
    if base <= 0:
        # The base would be 0 or less: use a line nearly through the origin.
        slope = median(y / x for x, y in points)
        base = slope
    return StepTime(base_s=base, per_request_s=slope, pairs=pairs)


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


def _bins(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Return the (batch, step time) pairs in groups of similar batches, ascending.

    Groups that would have only one pair are left out.
    """
    bins: dict[int, list[Pair]] = {}
    for pair in pairs:
        bins.setdefault(round(_BINS_PER_DOUBLING * math.log2(pair[0])), []).append(pair)
    return [bins[key] for key in sorted(bins) if len(bins[key]) > 1]


def _middle(pairs: Sequence[Pair]) -> Pair:
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
        return _variance([each + other for each, other in zip(logs, reversed(logs), strict=True)])[1] / (
            mean / 2
        )
    low, high = -logs[-1] / total - 20.0, 20.0
    for _ in range(40):
        tilt = (low + high) / 2
        found, spread = _variance([each + tilt * load for load, each in enumerate(logs)])
        low, high = (tilt, high) if found < mean else (low, tilt)
    return spread / mean


def _variance(logs: Sequence[float]) -> tuple[float, float]:
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
_FULL_WITHIN = 1.0
_NONE: Mapping[str, StepTime] = MappingProxyType({})


class GroupPace(Struct, frozen=True):
    """Step time as a linear function ("line") of the batch size: for the group, or for each backend."""

    common: StepTime | None = None
    """The common line where all backends are equal, as far as known; None where it is unknown or they
    differ."""
    own: Mapping[str, StepTime] = field(default_factory=lambda: _NONE)
    """The line of each backend by name, where they differ; without backends whose step time is unknown."""

    @property
    def usual(self) -> StepTime | None:
        """The step-time line that stands for the whole group; None if no line is known.

        A line is step time as a linear function of the batch size. If the backends have lines of their own,
        these are sorted by (growth per request / step time at batch 0), and the middle one is returned.
        """
        ordered = sorted(self.own.values(), key=lambda one: (one.per_request_s / one.base_s, one.base_s))
        return self.common or (ordered[len(ordered) // 2] if ordered else None)


def group_pace(tracks: Sequence[LoadTrack], since_s: float, earlier: GroupPace) -> GroupPace:
    """Fit step time as a linear function of the batch size, for the group or for each backend.

    Samples since `since_s` (monotonic seconds) are used. Each backend gets a function of its own if
    backends differ in speed. Functions that these samples do not determine are copied from `earlier`.
    """
    pairs = {track.name: steady_pairs(track, since_s, len(tracks)) for track in tracks}
    points = {name: points_of(one) for name, one in pairs.items()}
    known = {name: one for name, one in points.items() if one}
    line = _widest_line(known)
    if line is None:
        alike = len(known) == len(points) and _agree(list(known.values()))
        common = fit_pairs(tracks, [*pairs.values()]) if alike else None
        return earlier if common is None else GroupPace(common)
    factors = _factors(known, line)
    if max(factors.values()) <= UNLIKE * min(factors.values()):
        return GroupPace(fit_pairs(tracks, [*pairs.values()]) or earlier.common)
    own = {name: fit_line(one) or _scaled(line, factors[name]) for name, one in known.items()}
    return GroupPace(None, {**earlier.own, **own})


def _widest_line(known: Mapping[str, Sequence[Pair]]) -> StepTime | None:
    """Return the step-time line of the backend whose batch sizes span the widest range.

    None unless the largest batch of this range is at least twice the smallest.
    """
    # On equal spans the order of backends must not decide.
    spans = {name: (one[-1][0] / one[0][0], tuple(one)) for name, one in known.items()}
    widest = max(known, key=spans.__getitem__, default=None)
    return None if widest is None else fit_line(known[widest])


def _factors(known: Mapping[str, Sequence[Pair]], line: StepTime) -> dict[str, float]:
    """Return for each backend the median ratio of its step time to that of `line` at the same batch size."""
    return {name: median(time / _step_s(line, batch) for batch, time in one) for name, one in known.items()}


def _step_s(line: StepTime, batch: float) -> float:
    return line.base_s + line.per_request_s * batch


def _scaled(line: StepTime, factor: float) -> StepTime:
    return StepTime(factor * line.base_s, factor * line.per_request_s, line.pairs)


def _agree(points: Sequence[Sequence[Pair]]) -> bool:
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


def full_slots(track: LoadTrack) -> int | None:
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
