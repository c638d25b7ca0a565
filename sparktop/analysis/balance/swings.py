"""Detects swings of a group's loads: convoys, herds, and a common rhythm; each is tested against chance."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import mul
from statistics import median
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sparktop.analysis.balance.load_grid import LoadGrid, LoadTrack, interpolate
from sparktop.analysis.balance.spread import unevenness
from sparktop.model.balance import Arrivals, Convoys, Swing
from sparktop.model.statistics import incomplete_beta

# A *convoy* is a set of requests that start together at one backend, end together and return together. A
# router that counts what it sends puts an equal number of requests on each backend. If requests are alike,
# those of one backend end together, return together and go to the same backend again: a convoy per backend.
# While all requests are present the split is even; while one convoy is away, some backends are full and
# others empty. Random routing has no such difference: relative to the number of requests, its split is as
# wide with many requests as with few.
#
# A *full time* is a stretch of time slots with nearly all requests present, a *part time* one with about
# half of the requests present.


FULL_SHARE, PART_SHARES = 0.8, (0.25, 0.6)
"""Shares of the usual maximum of requests in the group: a full time has at least the first, a part time a
share between the other two."""
_USUAL_MOST = 0.95
"""The quantile of the group's total load that counts as its usual maximum; a single burst does not raise
it."""
_SMALLEST_SPREAD = 1e-3
"""Lower limit of a spread in a ratio, because counts are integers and so a spread may be 0."""
_TIE = -1
"""Stands for a leader where two backends have the highest load."""
_FULL_LOAD, _EMPTY_LOAD = 0.75, 0.25
"""A backend is full from the first share of its own usual maximum on, empty up to the second."""


def find_convoys(grid: LoadGrid, slots: Sequence[int]) -> Convoys | None:
    """Compare how evenly requests are split at full load with how evenly at about half load, over time slots.

    `slots` are indexes of time slots of `grid`. At full load nearly all requests are present. Return None
    if the load never falls to about half of full load. The significance test is Fisher's F, the ratio of the
    two spreads. Slow servers cause no false alarm: they make random routing less even at full load, and
    the test looks for the opposite.
    """
    ordered = sorted(grid.totals[slot] for slot in slots)
    usual_most = ordered[math.floor(_USUAL_MOST * len(ordered))] if ordered else 0.0
    if not ordered or usual_most <= 0 or ordered[0] > PART_SHARES[1] * usual_most:
        return None
    times = _Times(grid, usual_most)
    for slot in slots:
        times.add_slot(slot)
    if not times.full:
        return None
    result = Convoys(
        full_times=len(times.full),
        part_times=len(times.part),
        full_spread=_mean_of_means(times.full),
        full_total=sum(times.full_totals) / len(times.full_totals),
        part_share=times.part_slots / len(slots),
        least_leads=_leads_of_runner_up(times.leads),
        period_s=_period_s([[column[slot] for slot in slots] for column in grid.loads], grid.step_s),
    )
    if not times.part:
        return result
    others_count, part_spread = len(grid.loads) - 1, _mean_of_means(times.part)
    above, below = others_count * len(times.part), others_count * len(times.full)
    return replace(
        result,
        part_spread=part_spread,
        since_part_s=(slots[-1] - times.last_part) * grid.step_s,
        part_chance=chi_squared_tail(part_spread * above, above),
        chance=f_tail(part_spread / max(result.full_spread, _SMALLEST_SPREAD), above, below),
    )


class _Times(Struct):
    """Collects the stretches of time at full load (nearly all requests present) and part load (about half).

    `full` and `part` have a list for each stretch: how unevenly requests were split in each of its time
    slots.
    """

    grid: LoadGrid
    most: float
    """Requests in the group at its usual maximum."""
    full: list[list[float]] = []
    full_totals: list[float] = []
    part: list[list[float]] = []
    leads: list[int] = []
    """For each part time, the index of the backend furthest above its share; `_TIE` where two are."""
    part_slots: int = 0
    last_part: int = -1
    _fell: bool = True
    """The total has fallen to the upper limit of a part time or below since the last full time."""
    _leader: int | None = None

    def add_slot(self, slot: int) -> None:
        """Add a time slot to the full or the part load.

        A total near the usual maximum is full load, one of about half of this is part load. Ignore other
        slots.
        """
        lowest, part = PART_SHARES
        total = self.grid.totals[slot]
        if total >= FULL_SHARE * self.most:
            if self._fell:
                self.full.append([])
                self._fell, self._leader = False, None
            self.full[-1].append(unevenness(self.grid, slot))
            self.full_totals.append(total)
        elif total <= part * self.most:
            self._fell = True
            if total >= lowest * self.most:
                self._add_part_slot(slot)

    def _add_part_slot(self, slot: int) -> None:
        """Add a slot at part load.

        A new stretch begins after each full time, and when another backend takes the lead; a tie that
        follows a lead changes nothing.
        """
        self.part_slots, self.last_part = self.part_slots + 1, slot
        leader = _leader_of(self.grid, slot)
        if self._leader is None or leader not in {self._leader, _TIE}:
            self.part.append([])
            self.leads.append(leader)
            self._leader = leader
        self.part[-1].append(unevenness(self.grid, slot))


def _leader_of(grid: LoadGrid, slot: int) -> int:
    """Return which backend has the highest load relative to its due share in a time slot.

    The result is the index of the backend, or `_TIE` if two backends have the highest.
    """
    loads = [column[slot] / share for column, share in zip(grid.loads, grid.shares, strict=True)]
    top = max(loads)
    return loads.index(top) if loads.count(top) == 1 else _TIE


def _leads_of_runner_up(leads: Sequence[int]) -> int:
    """Count how often each backend leads; return the second highest of these numbers.

    With convoys at least two backends lead in turn; one that always leads is only slow.
    `leads` has the index of the leading backend at each time, or `_TIE`. Return 0 if at most one backend
    ever leads.
    """
    ordered = sorted(Counter(lead for lead in leads if lead != _TIE).values(), reverse=True)
    return ordered[1] if len(ordered) > 1 else 0


def _period_s(columns: Sequence[Sequence[float]], step_s: float) -> float | None:
    """Return the median time in seconds in which a backend goes from full to empty and back, or the reverse.

    Return None if no backend did. Full and empty are relative to the backend's own usual maximum, so a
    period is found also where the loads of all backends rise and fall at the same time.
    """
    gaps: list[int] = []
    for column in columns:
        usual_most = sorted(column)[math.floor(_USUAL_MOST * len(column))]
        full: bool | None = None
        turned_at: list[int] = []
        for index, load in enumerate(column):
            now_full = full
            if load >= _FULL_LOAD * usual_most:
                now_full = True
            elif load <= _EMPTY_LOAD * usual_most:
                now_full = False
            if now_full is not full:
                turned_at.append(index)
                full = now_full
        # The first entry is the beginning, not a turn.
        gaps += [later - earlier for earlier, later in zip(turned_at[1:], turned_at[3:], strict=False)]
    return median(gaps) * step_s if gaps else None


def _mean_of_means(runs: Sequence[Sequence[float]]) -> float:
    return sum([sum(run) / len(run) for run in runs]) / len(runs)


def chi_squared_tail(value: float, freedom: int) -> float:
    """Return the probability that a χ² variable with `freedom` degrees of freedom is at least `value`.

    Uses the approximation of Wilson and Hilferty (1931).
    """
    width = 2 / (9 * freedom)
    return math.erfc(((value / freedom) ** (1 / 3) - 1 + width) / math.sqrt(2 * width)) / 2


def f_tail(ratio: float, above: int, below: int) -> float:
    """Return the probability that an F-distributed variable is at least `ratio`.

    `above` and `below` are the degrees of freedom of numerator and denominator. The probability is the
    regularised incomplete beta function I(x; below / 2, above / 2) with x = below / (below + above · ratio).
    """
    if ratio <= 0:
        return 1.0
    return incomplete_beta(below / (below + above * ratio), below / 2, above / 2)


# Detects herds: tests whether a router sends batches of requests to one backend more often than by chance.
#
# A *herd* is a batch of requests that a router sends to the same backend within a short time, because it
# reads outdated load counts. The tested time is cut into short periods, called *pieces* here. The test
# counts the requests that arrived at each backend in each piece.
#
# The number of running requests shows herds late and blurred, because under random routing it also depends
# on the servers' speed. The counts of arrivals do not: under random routing each request is an independent
# draw, whatever the servers do, so these counts are multinomial. A router that reads outdated counts sends
# all requests of a moment to the same backend, even after this backend has more than an even split.
#
# Sending many requests to a backend that has less than an even split is correct, and such a piece is not a
# herd: a backend that was drained, cooled down or joined late has no requests, and a router that chooses
# the least busy backend sends everything there until the loads are equal. Backends without any requests are
# not counted in the even split, because a backend that stays empty may be drained.


PIECE_LIVES = 0.5
"""Length of a piece as a multiple of a request's life (median time from arrival to end): a herd lasts about
one life, so a piece holds part of a single herd."""
_SHORTEST_S = 1.0
"""Shortest length of a piece."""
_FEWEST_SAMPLES = 2
"""Fewest samples in a piece; with fewer, the counts of one sample fall into the next piece."""
_FEWEST_PIECES, _FEWEST_WHERE_FAILED = 8, 6
"""Fewest pieces with requests for a test; the second, lower number is for a pair with failures, because
failures make herds likely."""
_FEWEST_IN_A_PIECE = 2
"""Requests in a piece, of all backends, from which on it is tested: one alone is always uneven."""
_SERVED_BY_CHANCE = 3
"""Requests per backend in a piece: with this many a backend gets none by chance in one of twenty pieces."""
_HERD_CHANCE = 0.05
"""A piece whose counts have at most this probability under random routing counts as a herd."""
_BEYOND_EVEN = 1.25
"""At the end of a herd, its backend has at least this multiple of the mean load of the backends in use, and
at least one request more than the mean."""
_HERD_TURNS = 2
"""Fewest times that herds change from one backend to another: two backends that are drained one after the
other for long, as in a rolling restart, make one change."""
_LEFT_OUT = 1 / 8
"""Share of the pieces, the most uneven ones, that the overall test leaves out: one cold burst, however large,
is a single herd and not a swing."""


def find_herds(
    tracks: Sequence[LoadTrack], end_s: float, span_s: float, step_s: float, life_s: float | None
) -> Arrivals | None:
    """Test whether the requests of the `span_s` seconds before `end_s` were sent in herds.

    A herd is many requests sent to one backend within a short time. `step_s` is the polling interval,
    `life_s` the median duration of a request. The requests that each backend got in short periods are
    compared with its part of all requests, so that a constant skew is not a herd. Return None if a backend
    does not count finished requests or got none, if `life_s` is None, or if too few requests arrived.
    """
    if life_s is None or any(track.arrived is None for track in tracks):
        return None
    piece_s = max(PIECE_LIVES * life_s, _SHORTEST_S, _FEWEST_SAMPLES * step_s)
    every = int(span_s / piece_s)
    if every < _FEWEST_WHERE_FAILED:
        return None
    edges = [end_s - (every - index) * piece_s for index in range(every + 1)]
    # Without failures, filling a backend up to the even split is no herd. After a failure it is: the backend
    # was taken out, and refilling it is part of the swing.
    excuses_filling = not any(track.errors for track in tracks)
    # Of each backend the requests that arrived in each short period ("piece"), and the load at each border.
    came = [_arrivals_between(track, edges) for track in tracks]
    loads = [_loads_at(track, edges) for track in tracks]
    totals = [sum(counts) for counts in zip(*came, strict=True)]
    pieces = [piece for piece, total in enumerate(totals) if total >= _FEWEST_IN_A_PIECE]
    pair_failed = len(came) == 2 and not excuses_filling  # noqa: PLR2004 - a pair
    if len(pieces) < (_FEWEST_WHERE_FAILED if pair_failed else _FEWEST_PIECES):
        return None
    served = {
        piece: _compared_backends(came, piece) if excuses_filling else [*range(len(came))] for piece in pieces
    }
    parts = _parts_of_requests(came, totals, served)
    if parts is None:
        return None
    tests: list[_PieceTest] = []
    leaders: list[int] = []
    herds = 0
    for piece, backends in served.items():
        test = _test_piece(piece, backends, came, parts)
        tests.append(test)
        by_chance = chi_squared_tail(test.chi_squared, test.freedom) > _HERD_CHANCE
        if by_chance or (excuses_filling and _is_filling(test.leading[0], piece, came, loads)):
            continue
        herds += 1
        if len(test.leading) == 1:  # on a tie the order of backends must not decide
            leaders += test.leading
    by_leader = sorted(Counter(leaders).values(), reverse=True)
    turns = sum(before != after for before, after in pairwise(leaders))
    even_count = len(tests) - math.ceil(_LEFT_OUT * len(tests))
    most_even = sorted(tests, key=lambda test: test.chi_squared / test.freedom)[:even_count]
    # The parts are estimated from these pieces: that costs a degree of freedom for each but one.
    freedom = sum(test.freedom for test in tests) - (len(came) - 1)
    return Arrivals(
        requests=round(sum(totals[piece] for piece in pieces)),
        pieces=len(pieces),
        piece_s=piece_s,
        spread=sum(test.chi_squared for test in tests) / freedom,
        herds=herds,
        least_herds=by_leader[1] if turns >= _HERD_TURNS else 0,
        chance=chi_squared_tail(
            sum(test.chi_squared for test in most_even), sum(test.freedom for test in most_even)
        ),
    )


class _PieceTest(NamedTuple):
    """How unevenly the requests of a short period ("piece") are split over the backends."""

    chi_squared: float
    freedom: int
    """Degrees of freedom of `chi_squared`."""
    leading: Sequence[int]
    """The backends whose requests exceed their part by most."""


def _test_piece(
    piece: int, backends: Sequence[int], came: Sequence[Sequence[float]], parts: Sequence[float]
) -> _PieceTest:
    """Compare the requests of a short period with the backends' parts of all requests."""
    total_part = sum(parts[index] for index in backends)
    total = sum(counts[piece] for counts in came)
    expected = {index: parts[index] / total_part * total for index in backends}
    excess = {index: came[index][piece] - expected[index] for index in backends}
    chi_squared = sum(excess[index] ** 2 / expected[index] for index in backends)
    highest_excess = max(excess.values())
    leading = [index for index in backends if excess[index] == highest_excess]
    return _PieceTest(chi_squared, len(backends) - 1, leading)


def _is_filling(
    backend: int, piece: int, came: Sequence[Sequence[float]], loads: Sequence[Sequence[float]]
) -> bool:
    """Return whether a backend's load, at the end of a short period, is not past the even split yet.

    A backend that got no request in the period, and had no load before and after, takes no part in the split.
    """
    in_use = [
        load[piece + 1]
        for counts, load in zip(came, loads, strict=True)
        if counts[piece] or load[piece] or load[piece + 1]
    ]
    return not _is_past_even(in_use, loads[backend][piece + 1])


def _compared_backends(came: Sequence[Sequence[float]], piece: int) -> list[int]:
    """Return the indexes of the backends that the test for herds compares in a short period ("piece").

    Mostly these are all backends. One backend is left out if it alone got no request, there are at least
    three backends, and chance does not explain its 0: it may be drained.
    """
    counts = [of_backend[piece] for of_backend in came]
    served = [index for index, count in enumerate(counts) if count]
    by_chance = sum(counts) < _SERVED_BY_CHANCE * len(counts)
    one_missing = len(served) == len(counts) - 1
    return served if one_missing and len(served) > 1 and not by_chance else [*range(len(counts))]


def _parts_of_requests(
    came: Sequence[Sequence[float]], totals: Sequence[float], served: Mapping[int, Sequence[int]]
) -> list[float] | None:
    """Return for each backend its part (0 to 1) of the requests; None if a backend got no request.

    `served` has the indexes of the compared backends by short period ("piece"), and `totals` the requests
    of all backends by period. Only the periods in which a backend is compared count for its part, so the
    parts need not add up to 1; for one period, divide them by their sum over its compared backends.
    """
    parts: list[float] = []
    for index, counts in enumerate(came):
        pieces = [piece for piece, backends in served.items() if index in backends]
        received = sum(counts[piece] for piece in pieces)
        if received <= 0:
            return None
        parts.append(received / sum(totals[piece] for piece in pieces))
    return parts


def _is_past_even(loads: Sequence[float], load: float) -> bool:
    """Return whether a backend's `load` is clearly above the mean of `loads`, of the backends in use.

    A backend alone has no mean to compare with and counts as above.
    """
    if len(loads) == 1:
        return True
    mean = sum(loads) / len(loads)
    return load >= max(_BEYOND_EVEN * mean, mean + 1)


def _loads_at(track: LoadTrack, edges: Sequence[float]) -> list[float]:
    """Return the backend's load at each time in `edges`: that of the newest sample up to this time.

    Before the first sample, it is the load of the first sample.
    """
    waiting = track.waiting or [0.0] * len(track.times_s)
    result: list[float] = []
    for edge in edges:
        index = max(0, bisect_right(track.times_s, edge) - 1)
        result.append(track.running[index] + waiting[index])
    return result


def _arrivals_between(track: LoadTrack, edges: Sequence[float]) -> list[float]:
    """Return the number of requests that arrived between each two successive times in `edges`.

    The backend's count at these times is interpolated between its samples.
    """
    arrived = track.arrived or ()
    indexes = [index for index, count in enumerate(arrived) if not math.isnan(count)]
    times = [track.times_s[index] for index in indexes]
    counts = [arrived[index] for index in indexes]
    at_edges = [interpolate(times, counts, edge) for edge in edges]
    # A restarted server has a lower count than a moment ago, without any arrivals.
    return [max(0.0, later - earlier) for earlier, later in pairwise(at_edges)]


# Detects whether the load of a group's backends swings in one rhythm, and scores it against chance.
#
# A periodogram is tested against slow drift, and confirmed by the autocorrelation.


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
