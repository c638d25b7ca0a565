"""Detects herds: tests whether a router sends batches of requests to one backend more often than by chance.

A *herd* is a batch of requests that a router sends to the same backend within a short time, because it
reads outdated load counts. The tested time is cut into short periods, called *pieces* here. The test
counts the requests that arrived at each backend in each piece.

The number of running requests shows herds late and blurred, because under random routing it also depends
on the servers' speed. The counts of arrivals do not: under random routing each request is an independent
draw, whatever the servers do, so these counts are multinomial. A router that reads outdated counts sends
all requests of a moment to the same backend, even after this backend has more than an even split.

Sending many requests to a backend that has less than an even split is correct, and such a piece is not a
herd: a backend that was drained, cooled down or joined late has no requests, and a router that chooses
the least busy backend sends everything there until the loads are equal. Backends without any requests are
not counted in the even split, because a backend that stays empty may be drained.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from sparktop.analysis.balance.load_grid import LoadTrack, interpolate
from sparktop.model.balance import Arrivals
from sparktop.model.statistics import chi_squared_tail

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
    tests: list[tuple[float, int]] = []
    """(chi squared, degrees of freedom) by piece."""
    leaders: list[int] = []
    herds = 0
    for piece, backends in served.items():
        chi_squared, leading = _test_piece(piece, backends, came, parts)
        tests.append((chi_squared, len(backends) - 1))
        by_chance = chi_squared_tail(*tests[-1]) > _HERD_CHANCE
        if by_chance or (excuses_filling and _is_filling(leading[0], piece, came, loads)):
            continue
        herds += 1
        if len(leading) == 1:  # on a tie the order of backends must not decide
            leaders += leading
    by_leader = sorted(Counter(leaders).values(), reverse=True)
    turns = sum(before != after for before, after in pairwise(leaders))
    even_count = len(tests) - math.ceil(_LEFT_OUT * len(tests))
    most_even = sorted(tests, key=lambda test: test[0] / test[1])[:even_count]
    # The parts are estimated from these pieces: that costs a degree of freedom for each but one.
    freedom = sum(free for _, free in tests) - (len(came) - 1)
    return Arrivals(
        requests=round(sum(totals[piece] for piece in pieces)),
        pieces=len(pieces),
        piece_s=piece_s,
        spread=sum(chi_squared for chi_squared, _ in tests) / freedom,
        herds=herds,
        least_herds=by_leader[1] if turns >= _HERD_TURNS else 0,
        chance=chi_squared_tail(
            sum(chi_squared for chi_squared, _ in most_even), sum(free for _, free in most_even)
        ),
    )


def _test_piece(
    piece: int, backends: Sequence[int], came: Sequence[Sequence[float]], parts: Sequence[float]
) -> tuple[float, Sequence[int]]:
    """Compare the requests of a short period with the backends' parts of all requests.

    Return (chi squared, with a degree of freedom for each backend but one; the backends whose requests exceed
    their part by most).
    """
    total_part = sum(parts[index] for index in backends)
    total = sum(counts[piece] for counts in came)
    expected = {index: parts[index] / total_part * total for index in backends}
    excess = {index: came[index][piece] - expected[index] for index in backends}
    chi_squared = sum(excess[index] ** 2 / expected[index] for index in backends)
    highest_excess = max(excess.values())
    leading = [index for index in backends if excess[index] == highest_excess]
    return chi_squared, leading


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
