"""Detects herds: tests whether a router sends batches of requests to one backend more often than by chance.

A *herd* is a batch of requests that a router sends to the same backend within a short time, because it reads
outdated load counts. The tested time is cut into short periods, called *pieces* here. The test counts the
requests that arrived at each backend in each piece.

The number of running requests shows herds late and blurred, because under random routing it also depends on
the servers' speed. The counts of arrivals do not: under random routing each request is an independent draw,
whatever the servers do, so these counts are multinomial. A router that reads outdated counts sends all
requests of a moment to the same backend, even after this backend has more than an even split.

Sending many requests to a backend that has less than an even split is correct, and such a piece is not a
herd: a backend that was drained, cooled down or joined late has no requests, and a router that chooses the
least busy backend sends everything there until the loads are equal. Backends without any requests are not
counted in the even split, because a backend that stays empty may be drained.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from sparktop.analysis.balance.convoys import chi_squared_tail
from sparktop.analysis.balance.load_grid import LoadTrack
from sparktop.model.balance import Arrivals

PIECE_LIVES = 0.5
"""Length of a piece as a multiple of a request's life (median time from arrival to end): a herd lasts about
one life, so a piece holds part of a single herd."""
_SHORTEST_S = 1.0
_FEWEST_LOOKS = 2
"""Fewest samples in a piece; with fewer, the counts of one sample fall into the next piece."""
_FEWEST_PIECES, _FEWEST_WHERE_FAILED = 8, 6
"""Fewest pieces with requests for a test; the second, lower number is for a pair with failures, because
failures make herds likely."""
_FEWEST_IN_A_PIECE = 2
_SERVED_BY_CHANCE = 3
"""Requests per backend in a piece: with this many a backend gets none by chance in one of twenty pieces."""
_HERD_CHANCE = 0.05
"""A piece whose counts have at most this probability under random routing counts as a herd."""
_BEYOND_EVEN = 1.25
"""At the end of a herd, its backend has at least this multiple of the mean load of the backends in use, and
at least one request more than the mean."""
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
    does not count finished requests, if `life_s` is None, or if too few requests arrived.
    """
    if life_s is None or any(track.arrived is None for track in tracks):
        return None
    piece_s = max(PIECE_LIVES * life_s, _SHORTEST_S, _FEWEST_LOOKS * step_s)
    pieces = int(span_s / piece_s)
    if pieces < _FEWEST_WHERE_FAILED:
        return None
    edges = [end_s - (pieces - index) * piece_s for index in range(pieces + 1)]
    # A backend that failed was taken out: refilling it is part of the swing.
    fills = not any(track.errors for track in tracks)
    columns = [_Column(_between(track, edges), _at(track, edges)) for track in tracks]
    return _weigh(columns, piece_s, fills=fills)


class _Column(Struct, frozen=True):
    """The requests that arrived at one backend in each short period ("piece"), and the backend's loads.

    `loads` has the load at the border before each period, and after the last period.
    """

    came: Sequence[float]
    loads: Sequence[float]

    def away(self, piece: int) -> bool:
        """Return whether the backend got no request in a short period, and had no load before and after."""
        return self.came[piece] == 0 and self.loads[piece] == 0 and self.loads[piece + 1] == 0


def _weigh(columns: Sequence[_Column], piece_s: float, *, fills: bool) -> Arrivals | None:
    """Return the result of the test for herds, from the requests that each backend got in each short period.

    A herd is many requests sent to one backend in a short period ("piece") of `piece_s` seconds. With
    `fills`, requests that only fill a backend up to an even split are not a herd. Return None if too few
    periods have enough requests, or if a backend got none at all.
    """
    totals = [sum(came) for came in zip(*(column.came for column in columns), strict=True)]
    pieces = [piece for piece, total in enumerate(totals) if total >= _FEWEST_IN_A_PIECE]
    pair_failed = len(columns) == 2 and not fills  # noqa: PLR2004 - a pair
    if len(pieces) < (_FEWEST_WHERE_FAILED if pair_failed else _FEWEST_PIECES):
        return None
    served = {piece: _served(columns, piece) if fills else [*range(len(columns))] for piece in pieces}
    parts = _parts(columns, totals, served)
    if parts is None:
        return None
    squares: list[tuple[float, int]] = []
    leaders: list[int] = []
    herds = 0
    for piece, there in served.items():
        whole = sum(parts[one] for one in there)
        evenly = {one: parts[one] / whole * totals[piece] for one in there}
        apart = {one: columns[one].came[piece] - evenly[one] for one in there}
        square = sum(apart[one] ** 2 / evenly[one] for one in there)
        squares.append((square, len(there) - 1))
        most = max(apart.values())
        # On a tie the order of backends must not decide.
        first = [one for one in there if apart[one] == most]
        present = [column for column in columns if not column.away(piece)]
        at_end = [column.loads[piece + 1] for column in present]
        past = not fills or _is_past_even(at_end, columns[first[0]].loads[piece + 1])
        if past and chi_squared_tail(square, len(there) - 1) <= _HERD_CHANCE:
            herds += 1
            leaders += first if len(first) == 1 else ()
    by_leader = sorted(Counter(leaders).values(), reverse=True)
    freedom = sum(each for _, each in squares)
    kept = sorted(squares, key=lambda one: one[0] / one[1])[
        : len(squares) - math.ceil(_LEFT_OUT * len(squares))
    ]
    return Arrivals(
        requests=round(sum(totals[piece] for piece in pieces)),
        pieces=len(pieces),
        piece_s=piece_s,
        # The parts are estimated from these pieces: that costs a degree of freedom for each but one.
        spread=sum(square for square, _ in squares) / (freedom - (len(columns) - 1)),
        herds=herds,
        least_herds=by_leader[1] if len(by_leader) > 1 else 0,
        chance=chi_squared_tail(sum(square for square, _ in kept), sum(each for _, each in kept)),
    )


def _served(columns: Sequence[_Column], piece: int) -> list[int]:
    """Return the indexes of the backends that the test for herds compares in a short period ("piece").

    Mostly these are all backends. One backend is left out if it alone got no request, there are at least
    three backends, and chance does not explain its 0: it may be drained.
    """
    came = [column.came[piece] for column in columns]
    served = [index for index, count in enumerate(came) if count]
    by_chance = sum(came) < _SERVED_BY_CHANCE * len(came)
    return served if len(served) == len(came) - 1 > 1 and not by_chance else [*range(len(came))]


def _parts(
    columns: Sequence[_Column], totals: Sequence[float], served: Mapping[int, Sequence[int]]
) -> list[float] | None:
    """Return for each backend its part (0 to 1) of the requests; None if a backend got no request.

    `served` has the indexes of the compared backends by short period ("piece"), and `totals` the requests
    of all backends by period. Only the periods in which a backend is compared count for its part, so the
    parts need not add up to 1; for one period, divide them by their sum over its compared backends.
    """
    parts: list[float] = []
    for index, column in enumerate(columns):
        pieces = [piece for piece, there in served.items() if index in there]
        own = sum(column.came[piece] for piece in pieces)
        if own <= 0:
            return None
        parts.append(own / sum(totals[piece] for piece in pieces))
    return parts


def _is_past_even(loads: Sequence[float], load: float) -> bool:
    if len(loads) == 1:
        return True
    mean = sum(loads) / len(loads)
    return load >= max(_BEYOND_EVEN * mean, mean + 1)


def _at(track: LoadTrack, edges: Sequence[float]) -> list[float]:
    """Return the backend's load at each time in `edges`: that of the newest sample up to this time.

    Before the first sample, it is the load of the first sample.
    """
    waiting = track.waiting or [0.0] * len(track.times_s)
    found: list[float] = []
    for edge in edges:
        index = max(0, bisect_right(track.times_s, edge) - 1)
        found.append(track.running[index] + waiting[index])
    return found


def _between(track: LoadTrack, edges: Sequence[float]) -> list[float]:
    """Return the number of requests that arrived between each two successive times in `edges`.

    The backend's count at these times is interpolated between its samples.
    """
    arrived = track.arrived or ()
    known = [index for index, count in enumerate(arrived) if not math.isnan(count)]
    times = [track.times_s[index] for index in known]
    counts = [arrived[index] for index in known]
    if not known:
        return [0.0] * (len(edges) - 1)
    at_edges: list[float] = []
    for edge in edges:
        after = bisect_right(times, edge)
        if after == 0 or after == len(times):
            at_edges.append(counts[0] if after == 0 else counts[-1])
            continue
        share = (edge - times[after - 1]) / (times[after] - times[after - 1])
        at_edges.append(counts[after - 1] + share * (counts[after] - counts[after - 1]))
    # A restarted server has a lower count than a moment ago, without any arrivals.
    return [max(0.0, later - earlier) for earlier, later in pairwise(at_edges)]
