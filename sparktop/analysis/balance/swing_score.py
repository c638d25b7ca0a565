"""How much a swing looks like herding rather than chance: a score from spread and movement."""

from __future__ import annotations

import math

from sparktop.model.balance import Swing

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
