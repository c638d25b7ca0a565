"""Detects whether the load of a group's backends swings in one rhythm, and scores it against chance.

A periodogram is tested against slow drift, and confirmed by the autocorrelation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import mul
from statistics import median

from msgspec.structs import replace

from sparktop.analysis.balance.load_grid import LoadGrid
from sparktop.model.balance import Swing

FEWEST_CYCLES = 4.0
"""With fewer cycles in the window, the autocorrelation gives a better period than the spectrum."""
_MOST_POINTS = 256
"""Longer windows are averaged down to this many points, which bounds the cost and keeps the number of
cycles."""
_SPECTRUM_SIZE = 512
"""Points of the Fourier transform, a power of two; a window is filled up with zeros."""
_FEWEST_POINTS = 24
"""Points with which a rhythm is searched for."""
_BAND_WIDTHS = 1.5
"""Half-width of a frequency band in units of 1 / window: about the main lobe of a steady swing under a Hann
taper."""
_SHORTEST_STEPS = 4
"""Points in the shortest period searched for."""
_BAND_FREEDOM = 4.0
"""Degrees of freedom of the power in a band: the band is 3 / window wide, and the taper correlates
neighbours."""
_SMALLEST_POWER = 1e-12
"""Variance per point below which a load does not vary: rounding errors."""
_LEAST_CYCLES = 2.4
"""Fewer cycles in a window are not a rhythm."""
_CLIP = 0.5
"""Largest distance from the median, in shares of the backend, that is counted: which backend is ahead and
when matters, so one cold burst must not outweigh ten swings."""
_AS_CLEAR = 0.85
"""A period shorter than the best one is preferred if its clearness (see `_turning_lag`) is at least this
share of the best."""
LIVES = (0.8, 4.0)
"""Periods that a router's swing can have, in lives of a request; 1.3 to 2.7 were observed."""


def find_swing(grid: LoadGrid, slots: Sequence[int], e2e_s: float | None) -> Swing | None:
    """Search for a rhythm in the load of the backend whose load varies most against its even share.

    Return None with too few time slots or no load; the result has no period if no rhythm is found. `slots`
    are the time slots to examine; `e2e_s` is the duration of a request, which limits the period. One
    backend is enough, because relative to an even split the other backends' loads move against that of
    this backend. Where backends are equal, the result does not depend on their order.
    """
    if len(slots) < _FEWEST_POINTS or not any(grid.totals[slot] for slot in slots):
        return None
    index, deviation = _backend_most_apart(grid, slots)
    points, step = _average_down(deviation, grid.step_s)
    present = [value for value in points if not math.isnan(value)]
    mean = sum(present) / max(1, len(present))
    rms = math.sqrt(sum((value - mean) ** 2 for value in present) / max(1, len(present)))
    # The share of the deviation that varies; the rest is a constant skew.
    moving = rms**2 / (rms**2 + mean**2) if rms else 0.0
    name, mutual = grid.tracks[index].name, _mutual_move(grid, slots)
    centred = _clip_and_centre(points, present)
    power = sum(value * value for value in centred)
    if len(present) < _FEWEST_POINTS or power <= _SMALLEST_POWER * len(present):
        return Swing(name, rms, moving, mutual)
    correlation = _autocorrelation(centred, len(present) / len(points))
    spectrum = _spectrum(centred)
    swing = Swing(
        backend=name,
        relative_rms=rms,
        moving_share=moving,
        mutual=mutual,
        autocorrelation={lag * step: value for lag, value in enumerate(correlation)},
    )
    lag = _turning_lag(correlation, step, len(points), e2e_s)
    if lag is None:
        return swing
    edges, centre, share = _band_around(spectrum, len(points), lag)
    bin_hz = 1 / (_SPECTRUM_SIZE * step)
    return replace(
        swing,
        period_s=1 / (centre * bin_hz) if lag * FEWEST_CYCLES <= len(points) else lag * step,
        cycles=len(points) / lag,
        variance_share=share,
        chance=_chance_of_drift(edges, share, bin_hz, correlation[1], step, len(points) / (2 * _BAND_WIDTHS)),
        rebound=correlation[lag],
        opposite=_correlation_half_way(correlation, lag),
    )


def _dot(values: Iterable[float], others: Iterable[float]) -> float:
    """Return the sum of the products of values side by side, up to the end of the shorter list."""
    return math.fsum(map(mul, values, others))


def _mutual_move(grid: LoadGrid, slots: Sequence[int]) -> float | None:
    """Return how far the load of one backend and the sum of the other loads move in opposite directions.

    The backend is that whose load varies most: if only one backend has bursts, it is this one. The result is
    1 if its load rises exactly as the sum of the others falls; 0 or less if only one of the two varies, or
    if both move alike. With x = the backend's load minus its due share of the total, the result is the
    smaller of cov(its load, x) and -cov(sum of the other loads, x), divided by the variance of x. Return
    None if x does not vary.
    """
    totals = [grid.totals[slot] for slot in slots]
    columns = [[column[slot] for slot in slots] for column in grid.loads]
    moves = [_dot(column, column) - sum(column) ** 2 / len(column) for column in columns]
    # On a tie the order of backends must not decide.
    index = max(range(len(columns)), key=lambda backend: (moves[backend], columns[backend]))
    loads, count = columns[index], len(totals)
    beyond = [load - grid.shares[index] * total for load, total in zip(loads, totals, strict=True)]
    mean, whole = sum(beyond) / count, sum(totals)
    power = _dot(beyond, beyond) - mean * mean * count
    if power <= _SMALLEST_POWER * count * (whole / count) ** 2:
        return None
    own_move = _dot(loads, beyond) - mean * sum(loads)
    others_move = _dot(totals, beyond) - mean * whole - own_move
    return min(own_move, -others_move) / power


def _clip_and_centre(points: Sequence[float], present: Sequence[float]) -> list[float]:
    """Return `points` clipped around their median and shifted to a mean of 0; missing points (NaN) become 0.

    `present` is the list of the known points.
    """
    middle = median(present) if present else 0.0
    low, high = middle - _CLIP, middle + _CLIP
    mean = sum(max(low, min(high, value)) for value in present) / max(1, len(present))
    return [0.0 if math.isnan(value) else max(low, min(high, value)) - mean for value in points]


def _turning_lag(correlation: Sequence[float], step: float, points: int, e2e_s: float | None) -> int | None:
    """Return the lag, in points, at which the load repeats most clearly; None with too few points.

    There the autocorrelation `correlation` is high, while it is low at half of this lag. A much shorter lag
    that is nearly as clear is preferred. `step` is the time between points in seconds, `points` their
    number, `e2e_s` the duration of a request.
    """
    low, high = (e2e_s * life / step for life in LIVES) if e2e_s else (0.0, math.inf)
    first_lag = max(_SHORTEST_STEPS, math.floor(low))
    end = min(len(correlation) - 1, math.ceil(min(high, points)), math.floor(points / _LEAST_CYCLES))
    if first_lag > end:
        return None
    turns = {
        lag: correlation[lag] - _correlation_half_way(correlation, lag) for lag in range(first_lag, end + 1)
    }
    best = max(turns, key=turns.__getitem__)
    for odd in (7, 5, 3):
        # A steady swing also returns after three, five or seven periods, reversed half way.
        highest_lag = max(
            range(math.floor(best / odd) - 1, math.ceil(best / odd) + 2), key=lambda lag: turns.get(lag, -2.0)
        )
        if turns.get(highest_lag, -2.0) >= _AS_CLEAR * turns[best]:
            return highest_lag
    return best


def _correlation_half_way(correlation: Sequence[float], lag: int) -> float:
    return (correlation[lag // 2] + correlation[(lag + 1) // 2]) / 2


def _backend_most_apart(grid: LoadGrid, slots: Sequence[int]) -> tuple[int, list[float]]:
    """Return (index of the backend whose load varies most against its even share, difference by time slot).

    The difference is relative to the share. In a slot with less than half of the mean number of requests,
    it is relative to the share of half of the mean, because few requests are spread widely by chance. So is a
    share below half of an even one: a request more or less of a canary's three is no swing of the group.
    """
    first_slot, end_slot = slots[0], slots[-1] + 1
    smallest = 1 / (2 * len(grid.loads))
    totals = grid.totals[first_slot:end_slot]
    least = sum([grid.totals[slot] for slot in slots]) / len(slots) / 2
    scales = [math.nan if math.isnan(total) else max(total, least) for total in totals]
    best: tuple[float, list[float]] | None = None
    result = 0
    for index, (column, share) in enumerate(zip(grid.loads, grid.shares, strict=True)):
        deviations = [
            (load - share * total) / (max(share, smallest) * scale)
            for load, total, scale in zip(column[first_slot:end_slot], totals, scales, strict=True)
        ]
        present = [value for value in deviations if not math.isnan(value)]
        mean = sum(present) / max(1, len(present))
        spread = _dot(present, present) - mean * mean * len(present)
        # Ties are broken by the values, so that the order of backends does not matter.
        if best is None or spread > best[0] or (spread == best[0] and deviations > best[1]):
            best, result = (spread, deviations), index
    return result, best[1] if best else []


def _average_down(values: list[float], step: float) -> tuple[list[float], float]:
    """Average groups of successive values, down to at most `_MOST_POINTS`; return (values, new step in s).

    Missing values (NaN) in a group are ignored; a group of only missing values gives NaN. The oldest values
    that do not fill a group are left out.
    """
    size = -(-len(values) // _MOST_POINTS)
    if size <= 1:
        return values, step
    first = len(values) % size
    thin: list[float] = []
    for start in range(first, len(values), size):
        run = [value for value in values[start : start + size] if not math.isnan(value)]
        thin.append(sum(run) / len(run) if run else math.nan)
    return thin, step * size


@lru_cache(maxsize=16)
def _fft_factors(size: int) -> tuple[complex, ...]:
    return tuple(
        complex(math.cos(a), math.sin(a)) for a in (-2 * math.pi * k / size for k in range(size // 2))
    )


def _transform(values: Sequence[complex]) -> list[complex]:
    """Return the discrete Fourier transform (Cooley and Tukey) of a power of two values, at least 2."""
    size = len(values)
    if size == 2:  # noqa: PLR2004 - the smallest one worth a call
        first, second = values
        return [first + second, first - second]
    even, odd = _transform(values[0::2]), _transform(values[1::2])
    turned = [factor * value for factor, value in zip(_fft_factors(size), odd, strict=True)]
    return [a + b for a, b in zip(even, turned, strict=True)] + [
        a - b for a, b in zip(even, turned, strict=True)
    ]


@lru_cache(maxsize=64)
def _taper(size: int) -> tuple[float, ...]:
    return tuple(0.5 - 0.5 * math.cos(2 * math.pi * (k + 0.5) / size) for k in range(size))


def _spectrum(centred: Sequence[float]) -> list[float]:
    """Return the part of the variance (0 to 1) at each multiple of the frequency 1 / (512 sampling steps).

    `centred` has values with a mean of 0. They are tapered (Hann) to suppress drift.
    """
    tapered = [value * factor for value, factor in zip(centred, _taper(len(centred)), strict=True)]
    tapered += [0.0] * (_SPECTRUM_SIZE - len(tapered))
    power = [0.0, *(abs(value) ** 2 for value in _transform(tapered)[1 : _SPECTRUM_SIZE // 2])]
    total_power = sum(power)
    return [value / total_power for value in power] if total_power > 0 else power


def _band_around(spectrum: Sequence[float], points: int, lag: int) -> tuple[tuple[int, int], float, float]:
    """Return (edges, centre, part of the variance) of the frequency band around the period of `lag` points.

    The unit is the lowest frequency of the spectrum. The centre is the mean frequency in the band, weighted
    by the power. `points` is the number of points that the spectrum was computed from.
    """
    middle, half = _SPECTRUM_SIZE / lag, _BAND_WIDTHS * _SPECTRUM_SIZE / points
    first_bin = max(1, round(middle - half))
    last_index = min(len(spectrum) - 1, round(middle + half))
    inside = range(first_bin, last_index + 1)
    share = sum(spectrum[k] for k in inside)
    centre = sum(k * spectrum[k] for k in inside) / share if share > 0 else middle
    return (first_bin, last_index), centre, share


def _chance_of_drift(
    edges: tuple[int, int], share: float, bin_hz: float, lag1: float, step: float, bands: float
) -> float:
    """Return the probability that slow drift (red noise) has the part `share` of its power in any such band.

    `bin_hz` is the lowest frequency of the spectrum, `lag1` the autocorrelation from one point to the next,
    `step` the seconds between points, `bands` the number of frequency bands (Bonferroni). The power of a
    band is χ² with 4 degrees of freedom. A swing of few cycles looks like drift, so the probability is
    rather too high than too low.
    """
    time_constant_s = -step / math.log(min(max(lag1, 0.01), 0.999))
    # The spectrum of red noise is a Lorentz curve, whose integral is an arctangent.
    low, high = (math.atan(2 * math.pi * edge * bin_hz * time_constant_s) for edge in edges)
    expected = (high - low) * 2 / math.pi
    if expected <= 0:
        return 1.0
    half_chi2 = _BAND_FREEDOM / 2 * share / expected
    return min(1.0, bands * math.exp(-half_chi2) * (1 + half_chi2))


def _autocorrelation(centred: Sequence[float], present: float) -> list[float]:
    """Return the autocorrelation of `centred` at each lag, from 0 to the longest period searched.

    The lags are numbers of points. The values must have a mean of 0; `present` is the part of them (0 to
    1) that is not missing.
    """
    count = len(centred)
    power = sum(value * value for value in centred) / (count * present)
    most_lags = max(2, math.floor(count / _LEAST_CYCLES) + 2)
    result = [1.0]
    for lag in range(1, most_lags):
        products = _dot(centred[lag:], centred)
        result.append(products / ((count - lag) * present * present) / power)
    return result


_SPREAD, _TURN, _CYCLES, SCORE_LIMIT = 4.3, 5.7, 7.2, 8.8
"""Coefficients of the discriminant, and its limit."""
_WIDEST_Z, _WIDEST = 4.0, 1.8
"""Upper limits of the spread, with two backends and with many: a wider spread is not more evidence, the load
must also reverse."""


def reversal(swing: Swing) -> float:
    """Return how clearly a load reverses and comes back after one period: at most 2, about 0 by chance."""
    return (swing.rebound or 0.0) - (swing.opposite or 0.0)


def swing_score(z: float, backends: int, swing: Swing) -> float | None:
    """Return a score of a swing of the loads: above 0, chance is an unlikely cause; None without a period.

    The score uses the spread of the loads relative to random routing (`z`), how clearly loads reverse and
    come back after one period, and the number of cycles. With random routing, 1 of 5000 windows reaches 0.

    The weights are those (rounded, with a stricter limit) of a logistic regression that separates two
    simulated routers: a random one, and a least-busy one whose counts are 0.5 to 4 s old. The simulations had
    2 or 4 backends, 8 to 128 clients, fixed, uniform or log-normal lengths, request durations of 2.5 to 30 s,
    and windows 8 request durations long. A score from the spread alone, or from the reversal alone, finds
    only half to two thirds as many swings: few requests can spread widely by chance, and loads can reverse by
    chance in a few cycles.
    """
    if swing.rebound is None or swing.opposite is None or swing.cycles is None:
        return None
    # A spread over more backends is a mean of more terms, so chance reaches less.
    spread = min(_WIDEST_Z, max(0.05, z * swing.moving_share))
    width = min(_WIDEST, math.log(spread) * math.sqrt(max(1, backends - 1)))
    return _SPREAD * width + reversal(swing) * (_TURN + _CYCLES * math.log(swing.cycles / 4)) - SCORE_LIMIT
