"""Detects whether the load of a group's backends swings in one rhythm, and scores it against chance.

A periodogram is tested against slow drift, and confirmed by the autocorrelation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from operator import mul, sub, truediv
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from sparktop.analysis.balance.load_grid import LoadGrid, picker
from sparktop.model.balance import Curve, Swing

FEWEST_CYCLES = 4.0
"""With fewer cycles in the window, the autocorrelation gives a better period than the spectrum."""
_MOST_POINTS = 256
"""Longer windows are averaged down to this many points, which bounds the cost and keeps the number of
cycles."""
_SPECTRUM_SIZE = 512
_FEWEST_POINTS = 24
_BAND_WIDTHS = 1.5
"""Half-width of a frequency band in units of 1 / window: about the main lobe of a steady swing under a Hann
taper."""
_SHORTEST_STEPS = 4
"""Points in the shortest period searched for."""
_BAND_FREEDOM = 4.0
"""Degrees of freedom of the power in a band: the band is 3 / window wide, and the taper correlates
neighbours."""
_SMALLEST_POWER = 1e-12
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
    index, apart = _most_apart(grid, slots)
    points, step = _thinned(apart, grid.step_s)
    there = [value for value in points if not math.isnan(value)]
    mean = sum(there) / max(1, len(there))
    rms = math.sqrt(sum((value - mean) ** 2 for value in there) / max(1, len(there)))
    moving = rms**2 / (rms**2 + mean**2) if rms else 0.0
    name, mutual = grid.tracks[index].name, _mutual(grid, slots)
    centred = _held(points, there)
    power = sum(value * value for value in centred)
    if len(there) < _FEWEST_POINTS or power <= _SMALLEST_POWER * len(there):
        return Swing(name, rms, moving, mutual)
    correlation = _autocorrelation(centred, len(there) / len(points))
    spectrum = _spectrum(centred)
    swing = Swing(
        backend=name,
        relative_rms=rms,
        moving_share=moving,
        mutual=mutual,
        spectrum=_curve(spectrum, step),
        autocorrelation=Curve(tuple(lag * step for lag in range(len(correlation))), tuple(correlation)),
    )
    lag = _turning_lag(correlation, step, len(points), e2e_s)
    if lag is None:
        return swing
    band = _band(spectrum, len(points), lag)
    hz = 1 / (_SPECTRUM_SIZE * step)
    return replace(
        swing,
        period_s=1 / (band.centre * hz) if lag * FEWEST_CYCLES <= len(points) else lag * step,
        cycles=len(points) / lag,
        variance_share=band.share,
        chance=_chance(band, hz, correlation[1], step, len(points) / (2 * _BAND_WIDTHS)),
        rebound=correlation[lag],
        opposite=_half_way(correlation, lag),
    )


def _mutual(grid: LoadGrid, slots: Sequence[int]) -> float | None:
    """Return how far the load of one backend and the sum of the other loads move in opposite directions.

    The backend is that whose load varies most: if only one backend has bursts, it is this one. The result is
    1 if its load rises exactly as the sum of the others falls; 0 or less if only one of the two varies, or
    if both move alike. With x = the backend's load minus its due share of the total, the result is the
    smaller of cov(its load, x) and -cov(sum of the other loads, x), divided by the variance of x. Return
    None if x does not vary.
    """
    pick = picker(grid, slots)
    columns, totals = [pick(column) for column in grid.loads], pick(grid.totals)
    moves = [sum(map(mul, one, one)) - sum(one) ** 2 / len(one) for one in columns]
    # On a tie the order of backends must not decide.
    index = max(range(len(columns)), key=lambda one: (moves[one], columns[one]))
    own, count = columns[index], len(totals)
    beyond = list(map(sub, own, map(mul, repeat(grid.shares[index]), totals)))
    mean, all_own, whole = sum(beyond) / count, sum(own), sum(totals)
    power: float = sum(map(mul, beyond, beyond)) - mean * mean * count
    if power <= _SMALLEST_POWER * count * (whole / count) ** 2:
        return None
    mine: float = sum(map(mul, own, beyond)) - mean * all_own
    others: float = sum(map(mul, totals, beyond)) - mean * whole - mine
    return min(mine, -others) / power


def _held(points: Sequence[float], there: Sequence[float]) -> list[float]:
    """Return `points` clipped around their median and shifted to a mean of 0; missing points (NaN) become 0.

    `there` is the list of the known points.
    """
    middle = median(there) if there else 0.0
    low, high = middle - _CLIP, middle + _CLIP
    mean = sum(max(low, min(high, value)) for value in there) / max(1, len(there))
    return [0.0 if math.isnan(value) else max(low, min(high, value)) - mean for value in points]


def _turning_lag(correlation: Sequence[float], step: float, points: int, e2e_s: float | None) -> int | None:
    """Return the lag, in points, at which the load repeats most clearly; None with too few points.

    There the autocorrelation `correlation` is high, while it is low at half of this lag. A much shorter lag
    that is nearly as clear is preferred. `step` is the time between points in seconds, `points` their
    number, `e2e_s` the duration of a request.
    """
    low, high = (e2e_s * life / step for life in LIVES) if e2e_s else (0.0, math.inf)
    first = max(_SHORTEST_STEPS, math.floor(low))
    last = min(len(correlation) - 1, math.ceil(min(high, points)), math.floor(points / _LEAST_CYCLES))
    if first > last:
        return None
    turns = {lag: correlation[lag] - _half_way(correlation, lag) for lag in range(first, last + 1)}
    best = max(turns, key=turns.__getitem__)
    for odd in (7, 5, 3):
        # A steady swing also returns after three, five or seven periods, reversed half way.
        near = max(
            range(math.floor(best / odd) - 1, math.ceil(best / odd) + 2), key=lambda lag: turns.get(lag, -2.0)
        )
        if turns.get(near, -2.0) >= _AS_CLEAR * turns[best]:
            return near
    return best


def _half_way(correlation: Sequence[float], lag: int) -> float:
    return (correlation[lag // 2] + correlation[(lag + 1) // 2]) / 2


def _most_apart(grid: LoadGrid, slots: Sequence[int]) -> tuple[int, list[float]]:
    """Return (index of the backend whose load varies most against its even share, difference by time slot).

    The difference is relative to the share. In a slot with less than half of the mean number of requests,
    it is relative to the share of half of the mean, because few requests are spread widely by chance.
    """
    first, last = slots[0], slots[-1] + 1
    totals = grid.totals[first:last]
    least = sum([grid.totals[slot] for slot in slots]) / len(slots) / 2
    scales = [max(total, least) if total == total else math.nan for total in totals]  # noqa: PLR0124 - keeps NaN
    whole = math.isfinite(sum(totals))
    best: tuple[float, list[float]] | None = None
    found = 0
    for index, (column, share) in enumerate(zip(grid.loads, grid.shares, strict=True)):
        # Maps of operators take two thirds of a loop's time.
        apart = list(map(truediv, map(sub, map(truediv, column[first:last], repeat(share)), totals), scales))
        there = apart if whole else [value for value in apart if value == value]  # noqa: PLR0124 - drops NaN
        mean = sum(there) / max(1, len(there))
        spread = sum(map(mul, there, there)) - mean * mean * len(there)
        # Ties are broken by the values, so that the order of backends does not matter.
        if best is None or spread > best[0] or (spread == best[0] and apart > best[1]):
            best, found = (spread, apart), index
    return found, best[1] if best else []


def _thinned(values: list[float], step: float) -> tuple[list[float], float]:
    """Average groups of successive values, down to at most `_MOST_POINTS`; return (values, new step in s).

    Missing values (NaN) in a group are ignored; a group of only missing values gives NaN.
    """
    size = -(-len(values) // _MOST_POINTS)
    if size <= 1:
        return values, step
    first = len(values) % size
    if math.isfinite(sum(values)):
        runs = zip(*(values[first + part :: size] for part in range(size)), strict=True)
        return [sum(run) / size for run in runs], step * size
    thin: list[float] = []
    for start in range(first, len(values), size):
        run = [value for value in values[start : start + size] if not math.isnan(value)]
        thin.append(sum(run) / len(run) if run else math.nan)
    return thin, step * size


@lru_cache(maxsize=16)
def _twiddles(size: int) -> tuple[complex, ...]:
    return tuple(
        complex(math.cos(a), math.sin(a)) for a in (-2 * math.pi * k / size for k in range(size // 2))
    )


def _transform(values: Sequence[complex]) -> list[complex]:
    """Return the discrete Fourier transform (Cooley and Tukey) of a power of two values, at least 4."""
    size = len(values)
    if size == 4:  # noqa: PLR2004 - the smallest one worth a call
        one, two, three, four = values
        plus, minus, turned_by = one + three, one - three, -1j * (two - four)
        return [plus + two + four, minus + turned_by, plus - two - four, minus - turned_by]
    even, odd = _transform(values[0::2]), _transform(values[1::2])
    turned = [factor * value for factor, value in zip(_twiddles(size), odd, strict=True)]
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
    # Every other value becomes the imaginary part: half the size, half the time.
    found = _transform(list(map(complex, tapered[0::2], tapered[1::2])))
    power = [0.0]
    for one, back, factor in zip(found[1:], found[:0:-1], _twiddles(_SPECTRUM_SIZE)[1:], strict=True):
        mirrored = back.conjugate()
        power.append(abs(one + mirrored - 1j * factor * (one - mirrored)) ** 2)
    whole = sum(power)
    return [value / whole for value in power] if whole > 0 else power


class _Band(Struct, frozen=True):
    """A frequency band and its part of the variance. Unit: the lowest frequency of the spectrum."""

    low: float
    centre: float
    high: float
    share: float


def _band(spectrum: Sequence[float], points: int, lag: int) -> _Band:
    """Return the frequency band around the period of `lag` points.

    Its centre is the mean frequency in the band, weighted by the power. `points` is the number of points
    that the spectrum was computed from.
    """
    middle, half = _SPECTRUM_SIZE / lag, _BAND_WIDTHS * _SPECTRUM_SIZE / points
    first = max(1, round(middle - half))
    last = min(len(spectrum) - 1, round(middle + half))
    inside = range(first, last + 1)
    share = sum(spectrum[k] for k in inside)
    centre = sum(k * spectrum[k] for k in inside) / share if share > 0 else middle
    return _Band(first, centre, last, share)


def _chance(band: _Band, hz: float, memory: float, step: float, bands: float) -> float:
    """Return the probability that slow drift (red noise) has as much power in any band as `band` has.

    `hz` is the lowest frequency of the spectrum, `memory` the autocorrelation from one point to the next,
    `step` the seconds between points, `bands` the number of frequency bands (Bonferroni). The power of a
    band is χ² with 4 degrees of freedom. A swing of few cycles looks like drift, so the probability is
    rather too high than too low.
    """
    decay = -step / math.log(min(max(memory, 0.01), 0.999))
    low, high = (math.atan(2 * math.pi * edge * hz * decay) for edge in (band.low, band.high))
    expected = (high - low) * 2 / math.pi
    if expected <= 0:
        return 1.0
    half = _BAND_FREEDOM / 2 * band.share / expected
    return min(1.0, bands * math.exp(-half) * (1 + half))


def _autocorrelation(centred: Sequence[float], present: float) -> list[float]:
    """Return the autocorrelation of `centred` at each lag, from 0 to the longest period searched.

    The lags are numbers of points. The values must have a mean of 0; `present` is the part of them (0 to
    1) that is not missing.
    """
    count = len(centred)
    power = sum(value * value for value in centred) / (count * present)
    most = max(2, math.floor(count / _LEAST_CYCLES) + 2)
    result = [1.0]
    for lag in range(1, most):
        products = sum(map(mul, centred[lag:], centred))  # two thirds of the time of a zip
        result.append(products / ((count - lag) * present * present) / power)
    return result


def _curve(spectrum: Sequence[float], step: float) -> Curve:
    last = _SPECTRUM_SIZE // _SHORTEST_STEPS
    picked = range(last, 1, -1)
    return Curve(tuple(_SPECTRUM_SIZE * step / k for k in picked), tuple(spectrum[k] for k in picked))


_SPREAD, _TURN, _CYCLES, SCORE_LIMIT = 4.3, 5.7, 7.2, 8.8
"""Coefficients of the discriminant, and its limit."""
_WIDEST_Z, _WIDEST = 4.0, 1.8
"""Upper limits of the spread, with two backends and with many: a wider spread is not more evidence, the load
must also reverse."""


def turn(swing: Swing) -> float:
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
    return _SPREAD * width + turn(swing) * (_TURN + _CYCLES * math.log(swing.cycles / 4)) - SCORE_LIMIT
