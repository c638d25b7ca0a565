"""Are requests sent in herds? Who got the requests of each short time, held against the toss of a coin.

Loads say it late and blurred: what random routing does to them depends on the servers' pace. Who got how many
of the requests of a moment does not: under random routing each is a toss of its own, whatever the servers do,
so the spread of these counts is that of multinomial chance. A router on old counts sends all of a moment the
same way.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from sparktop.analysis.convoys import chi_squared_tail
from sparktop.analysis.load_grid import LoadTrack
from sparktop.model.balance import Arrivals

PIECE_LIVES = 0.5
"""Of a request's life: a herd lasts about one, so that half of one holds a part of a single herd."""
_SHORTEST_S = 1.0
_FEWEST_LOOKS = 2
"""In a piece; with fewer the counts of one look fall into the next piece."""
_FEWEST_PIECES = 8
_FEWEST_IN_A_PIECE = 2
_HERD_CHANCE = 0.05
"""Of a piece, from which on it counts as a herd."""
_LEFT_OUT = 1 / 8
"""Of the pieces, the most uneven: a cold burst is one herd, however large, and no swing."""


def find_herds(
    tracks: Sequence[LoadTrack], end_s: float, span_s: float, step_s: float, life_s: float | None
) -> Arrivals | None:
    """Weigh who got the requests that came in the last `span_s` before `end_s`.

    None where a backend does not count what it finished, where nobody knows how long a request lives, or
    where too little came. Each piece's counts are held against the backends' parts of the whole window, so
    that a skew that stands still is no herd.
    """
    if life_s is None or any(track.arrived is None for track in tracks):
        return None
    piece_s = max(PIECE_LIVES * life_s, _SHORTEST_S, _FEWEST_LOOKS * step_s)
    pieces = int(span_s / piece_s)
    if pieces < _FEWEST_PIECES:
        return None
    edges = [end_s - (pieces - index) * piece_s for index in range(pieces + 1)]
    return _weigh([_between(track, edges) for track in tracks], piece_s)


def _weigh(columns: Sequence[Sequence[float]], piece_s: float) -> Arrivals | None:
    """Weigh the counts of each backend in each piece."""
    totals = [sum(row) for row in zip(*columns, strict=True)]
    used = [index for index, total in enumerate(totals) if total >= _FEWEST_IN_A_PIECE]
    whole = [sum(column[index] for index in used) for column in columns]
    requests = sum(whole)
    if len(used) < _FEWEST_PIECES or min(whole) <= 0:
        return None
    parts = [one / requests for one in whole]
    squares: list[float] = []
    leaders: list[int] = []
    herds = 0
    for index in used:
        apart = [column[index] - part * totals[index] for column, part in zip(columns, parts, strict=True)]
        square = sum(one * one / (part * totals[index]) for one, part in zip(apart, parts, strict=True))
        squares.append(square)
        if chi_squared_tail(square, len(columns) - 1) <= _HERD_CHANCE:
            herds += 1
            # Where two got as many the order of backends must not decide.
            if apart.count(max(apart)) == 1:
                leaders.append(apart.index(max(apart)))
    by_leader = sorted(Counter(leaders).values(), reverse=True)
    kept = sorted(squares)[: len(squares) - math.ceil(_LEFT_OUT * len(squares))]
    each = len(columns) - 1
    return Arrivals(
        requests=round(requests),
        pieces=len(used),
        piece_s=piece_s,
        # The parts are taken from these very pieces: that costs one degree of freedom for each but one.
        spread=sum(squares) / ((len(squares) - 1) * each),
        herds=herds,
        least_herds=by_leader[1] if len(by_leader) > 1 else 0,
        chance=chi_squared_tail(sum(kept), len(kept) * each),
    )


def _between(track: LoadTrack, edges: Sequence[float]) -> list[float]:
    """Give how many came between each two edges; between two looks they came evenly."""
    arrived = track.arrived or ()
    told = [index for index, count in enumerate(arrived) if not math.isnan(count)]
    times = [track.times_s[index] for index in told]
    counts = [arrived[index] for index in told]
    if not told:
        return [0.0] * (len(edges) - 1)
    at_edges: list[float] = []
    for edge in edges:
        after = bisect_right(times, edge)
        if after == 0 or after == len(times):
            at_edges.append(counts[0] if after == 0 else counts[-1])
            continue
        share = (edge - times[after - 1]) / (times[after] - times[after - 1])
        at_edges.append(counts[after - 1] + share * (counts[after] - counts[after - 1]))
    # A server that began anew has fewer there than a moment ago, and nobody came for that.
    return [max(0.0, later - earlier) for earlier, later in pairwise(at_edges)]
