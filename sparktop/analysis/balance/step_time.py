"""How the step times of a group's backends grow with their batches, and what follows from it.

The line of each group or backend, its throughput, and the spread of its load under random routing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, compress, pairwise, repeat
from operator import lt
from statistics import median

from msgspec.structs import replace

from sparktop.analysis.balance.load_grid import LoadTrack
from sparktop.model.balance import GroupPace, StepTime

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
_EXPONENTS = (1.0, 0.5)
"""Step times grow with the batch, or about with its root where more requests read more experts."""
_ALIKE = 4.0
"""Curves whose χ² differs by at most this, two standard errors, are not told apart."""
_SHARED = 3.0
"""Number of samples that count as one independent sample: rates over a second, polled at 4 Hz, overlap."""
_MOST_PAIRS = 400
"""Most samples that are read of a group's step times: more cost time and add no accuracy."""
_BINS_PER_DOUBLING = 4
"""Ranges of similar batches between a batch size and twice this size."""
_MOST_STATES = 4096
"""Largest number of requests for which the exact distribution of a group with a limit of running requests is
computed."""

BatchPair = tuple[float, float]
"""(batch size, step time in seconds)."""


def fit_pairs(pairs: Sequence[BatchPair]) -> StepTime | None:
    """Fit step time to batch size by the samples `pairs`; None with too few or too similar batches.

    The fit is a line through the medians of batches of similar size. So prefills and late counters, which
    only lengthen single steps, do not change it. Each median is weighted by its accuracy. Its `curves` are
    fitted to the same medians.
    """
    groups = _groups_of_similar_batches(pairs)
    points = [_median_pair(group) for group in groups]
    if len(pairs) < FEWEST_PAIRS or len(points) < 2 or _span(points) < SMALLEST_SPAN:  # noqa: PLR2004 - a line needs two points
        return None
    weights = _median_weights(groups, points)
    fits = [_fit(points, weights, len(pairs), exponent) for exponent in _EXPONENTS]
    most = min(fit.misfit for fit in fits) + _ALIKE
    return replace(fits[0], curves=tuple(fit for fit in fits if fit.misfit <= most))


def _median_weights(groups: Sequence[Sequence[BatchPair]], points: Sequence[BatchPair]) -> list[float]:
    """Return the weight of the median step time of each group: 1 / its variance.

    `points` has (median batch, median step time) of each of `groups`. The standard error of a median is taken
    from the median deviation of its group, or of all groups if that is larger, as a few samples may agree by
    chance.
    """
    deviations = [
        [abs(step_s / usual_s - 1) for _, step_s in group]
        for group, (_, usual_s) in zip(groups, points, strict=True)
    ]
    of_all = median(chain.from_iterable(deviations))
    weights = []
    for of_group, (_, usual_s) in zip(deviations, points, strict=True):
        independent = max(1.0, len(of_group) / _SHARED)
        error = _MEDIAN_ERROR * max(median(of_group), of_all) / math.sqrt(independent)
        weights.append((usual_s * math.hypot(error, _LEAST_ERROR)) ** -2)
    return weights


def _fit(points: Sequence[BatchPair], weights: Sequence[float], samples: int, power: float) -> StepTime:
    """Return the curve of weighted least squares through (batch, step time) `points`, fitted to `samples`.

    The standard error of its slope is larger where the points scatter more than their weights say: by the
    root of χ² over the degrees of freedom.
    """
    weighted = [
        (weight, batch**power, step_s) for weight, (batch, step_s) in zip(weights, points, strict=True)
    ]
    total_weight = sum(weights)
    middle = sum(weight * x for weight, x, _ in weighted) / total_weight
    height = sum(weight * step_s for weight, _, step_s in weighted) / total_weight
    lever = sum(weight * (x - middle) ** 2 for weight, x, _ in weighted)
    slope = sum(weight * (x - middle) * (step_s - height) for weight, x, step_s in weighted) / lever
    misfit = sum(weight * (step_s - height - slope * (x - middle)) ** 2 for weight, x, step_s in weighted)
    error = math.sqrt(max(1.0, misfit / max(1, len(points) - 2)) / lever)
    fit = StepTime(height - slope * middle, slope, samples, error, middle, power, misfit)
    return with_slope(fit, 0.0)


FLAT = StepTime(base_s=1e-6, per_request_s=1.0, pairs=0)
"""Step time of prefill workers: each prompt token costs the same, so one request gives the same throughput as
many."""


def with_slope(step: StepTime, errors: float) -> StepTime:
    """Return the step-time curve with its slope changed by `errors` times the slope's standard error.

    The step time at the middle of the fitted batches stays the same. The slope is limited to at least 0, and
    to nearly that of the curve through the origin.
    """
    if step.slope_error_s == 0:
        return step
    height = step.base_s + step.per_request_s * step.middle
    slope = step.per_request_s + errors * step.slope_error_s
    slope = min(max(0.0, slope), height / (step.middle ** (1 / step.exponent) + 1) ** step.exponent)
    return replace(step, base_s=height - slope * step.middle, per_request_s=slope)


def steady_pairs(track: LoadTrack, since_s: float, backends: int) -> list[BatchPair]:
    """Return (batch size, step time in seconds) for samples of a backend with a steady batch, in time order.

    Only samples since `since_s` are read. With more `backends` fewer samples per backend are read. Empty
    if the backend has no token rates.
    """
    speeds, running, times = track.generation_tps, track.running, track.times_s
    if speeds is None:
        return []
    first_index = bisect_left(times, since_s)
    count = len(times) - first_index
    if count < 3:  # noqa: PLR2004 - two samples and a step between
        return []
    interval_s = (times[-1] - times[first_index]) / (count - 1)
    back = max(1, math.ceil(_RATE_WINDOW_S / interval_s - _JITTER))
    stride = max(1, count // max(FEWEST_PAIRS, _MOST_PAIRS // backends))
    pairs: list[BatchPair] = []
    for index in range(first_index + back, len(times), stride):
        batches, tps = running[index - back : index + 1], speeds[index]
        smallest, largest = min(batches), max(batches)
        # A server that was empty in between generated nothing then. NaN fails all comparisons.
        if smallest >= 1 and tps > 0 and largest - smallest <= max(1.0, _STEADY * largest):
            mean = (sum(batches) - (batches[0] + batches[-1]) / 2) / back  # over time: by trapezoids
            pairs.append((mean, mean / tps))
    return pairs


def _groups_of_similar_batches(pairs: Sequence[BatchPair]) -> list[list[BatchPair]]:
    """Return the (batch, step time) pairs in groups of similar batches, ascending.

    Groups that would have only one pair are left out.
    """
    bins: dict[int, list[BatchPair]] = {}
    for pair in pairs:
        bins.setdefault(round(_BINS_PER_DOUBLING * math.log2(pair[0])), []).append(pair)
    return [bins[key] for key in sorted(bins) if len(bins[key]) > 1]


def _median_pair(pairs: Sequence[BatchPair]) -> BatchPair:
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
    """Return the `variance_factor` for backends that may be full: requests queue and steps stop growing."""
    weights = _random_log_weights(total, backends, ratio, slots)
    return _mean_and_variance(weights)[1] / (total / backends if backends > 2 else total / 4)  # noqa: PLR2004 - a pair


def _random_log_weights(total: int, backends: int, ratio: float, slots: int) -> list[float]:
    """Return the logarithms of the weights of a backend's loads 0, 1, … `total` under random routing.

    `ratio` is the step time at batch 0 divided by the time that each request adds. `slots` is the number
    of requests that a backend runs at once. The result is exact for two backends. For more backends, the
    total number of requests is taken as random with the right mean, instead of as constant; this changes the
    variance and the multinomial's variance alike.
    """
    log_weights = [0.0]
    for load in range(1, total + 1):
        batch = min(load, slots)
        log_weights.append(log_weights[-1] + math.log((ratio + batch) / batch))
    if backends == 2:  # noqa: PLR2004 - what one has not, the other has
        return [first + second for first, second in zip(log_weights, reversed(log_weights), strict=True)]
    return _tilted_to_mean(log_weights, total / backends)


def _tilted_to_mean(log_weights: Sequence[float], mean: float) -> list[float]:
    """Return logarithms of a load's weights with a factor for each request, so that it has this mean.

    The factor, a tilt of the logarithms, is found by bisection.
    """
    low, high = -log_weights[-1] / (len(log_weights) - 1) - 20.0, 20.0
    tilted = list(log_weights)
    for _ in range(40):
        tilt = (low + high) / 2
        tilted = [log_weight + tilt * load for load, log_weight in enumerate(log_weights)]
        low, high = (tilt, high) if _mean_and_variance(tilted)[0] < mean else (low, tilt)
    return tilted


def lost_by_chance(total: float, backends: int, step: StepTime, slots: int | None) -> float | None:
    """Return which part of the throughput of equal loads random routing loses, 0 to 1.

    `total` is the number of requests in the group, `slots` the number that a backend runs at once. None
    without requests, and for more than thousands of them.
    """
    count = round(total)
    if not 1 <= count <= _MOST_STATES or backends < 2:  # noqa: PLR2004 - alone, nothing spreads
        return None
    ratio = step.base_s / max(step.per_request_s, 1e-9)
    weights = _random_log_weights(count, backends, ratio, slots or count)
    makes, largest = throughput(step, slots), max(weights)
    chances = [math.exp(weight - largest) for weight in weights]
    random_tps = sum(chance * makes(load) for load, chance in enumerate(chances)) / sum(chances)
    return max(0.0, 1 - random_tps / makes(count / backends))


def _mean_and_variance(log_weights: Sequence[float]) -> tuple[float, float]:
    """Return mean and variance of a load; its weights may have any sum."""
    largest = max(log_weights)
    weights = [math.exp(log_weight - largest) for log_weight in log_weights]
    total_weight = sum(weights)
    mean = sum(load * weight for load, weight in enumerate(weights)) / total_weight
    return mean, sum((load - mean) ** 2 * weight for load, weight in enumerate(weights)) / total_weight


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


def group_pace(tracks: Sequence[LoadTrack], since_s: float, earlier: GroupPace) -> GroupPace:
    """Fit step time as a linear function of the batch size, for the group or for each backend.

    Samples since `since_s` (monotonic seconds) are used. Each backend gets a function of its own if
    backends differ in speed. Functions that these samples do not determine are copied from `earlier`.
    """
    pairs = {track.name: steady_pairs(track, since_s, len(tracks)) for track in tracks}
    every = [pair for of_backend in pairs.values() for pair in of_backend]
    points = {
        name: [_median_pair(group) for group in _groups_of_similar_batches(of_backend)]
        for name, of_backend in pairs.items()
        if len(of_backend) >= FEWEST_PAIRS
    }
    reporting = {name: middles for name, middles in points.items() if middles}
    widest = _widest_range(reporting)
    line = None if widest is None else fit_pairs(pairs[widest])
    if line is None:
        alike = len(reporting) == len(pairs) and _have_alike_steps(list(reporting.values()))
        common = fit_pairs(every) if alike else None
        return earlier if common is None else GroupPace(common)
    factors = {
        name: median(time / line.seconds(batch) for batch, time in middles)
        for name, middles in reporting.items()
    }
    if max(factors.values()) <= UNLIKE * min(factors.values()):
        return GroupPace(fit_pairs(every) or earlier.common)
    scaled = {
        name: StepTime(factor * line.base_s, factor * line.per_request_s, line.pairs)
        for name, factor in factors.items()
    }
    lines = {name: fit_pairs(pairs[name]) or scaled[name] for name in reporting}
    return GroupPace(None, {**earlier.own, **lines})


def _widest_range(points: Mapping[str, Sequence[BatchPair]]) -> str | None:
    """Return the backend whose batch sizes span the widest range; None without backends."""
    # On equal spans the order of backends must not decide.
    return max(points, key=lambda name: (_span(points[name]), tuple(points[name])), default=None)


def _span(points: Sequence[BatchPair]) -> float:
    """Return the largest batch of (batch, step time) pairs in ascending order, relative to the smallest."""
    (smallest, _), (largest, _) = points[0], points[-1]
    return largest / smallest


def _have_alike_steps(points: Sequence[Sequence[BatchPair]]) -> bool:
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
    usual_slots = median(full)
    near_count = sum(abs(run - usual_slots) <= _FULL_WITHIN for run in full)
    return round(usual_slots) if near_count >= 0.9 * len(full) and usual_slots >= 1 else None
