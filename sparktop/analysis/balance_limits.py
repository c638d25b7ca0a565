"""The limits of the rules behind a group's word: the judgement keeps them, and the screen shows the same."""

from __future__ import annotations

from sparktop.analysis.dispersion import fewest_requests

PAIR = 2
PRESENT_SHARE = 0.9
"""Of the samples of every backend: with less nothing is told."""
LOADED_SHARE = 0.5
"""Of the time in which a group must have enough requests."""
SWING_CHANGES, SWING_Z, SWING_Z_OF_MANY = 3, 4.0, 3.0
"""Of more than two backends the spread is a mean of more: chance reaches 3 as seldom as 4 of two."""
SWING_RMS, SWING_RMS_OF_MANY = 0.6, 0.5
"""All to nothing and back is 1; counts alone, which a change of scale would multiply, do not make a swing."""
RHYTHM_RMS, RHYTHM_Z, RHYTHM_TURN = 0.25, 1.0, 0.2
RHYTHM_LOAD, FEW_SCORE = 3.0, 4.0
"""Requests a backend: with fewer, three coin tosses look like a swing, and the score must be higher."""
LOW_SCORE = 1.0
"""Asked for below the load that the other rules need.

Real servers that share two busy cores with their router reached 0.6 under simple-shuffle, 0.3 to 7 under
least-busy.
"""
TURNS_Z, TURNS_RMS = 3.0, 0.5
"""Spread beyond 1 that moves, times the root of n - 1, by which chance is narrower among n; and its size.

Simulated random routing reached 2.4 in 56,000 windows of 770 runs (2 to 8 backends, 4 to 128 clients). Real
servers that share two busy cores with their router reached 2.7 under simple-shuffle.
"""
FEW_TURNS_Z, FEW_TURNS_RMS = 4.0, 0.7
"""The same where there are few requests: servers that tell late of what waits in them swing as far."""
TURNS_OF_EACH, TURNS_OF_ONE = 1.5, 2
"""Times that backends go from full to empty or back, on average and one at least: a cold burst does once."""
BLIND_SCORE = 1.5
"""Asked for while the life of a request is unknown, since then any period will do."""
MANY_SCORE = 2.5
"""Asked for of more than two backends: the one that differs most is picked, and one of many may by chance."""
MUTUAL = 0.4
"""Part of a swing that a backend and the others both must make: bursts that one alone gets are 0.

Recorded see-saws of real servers have 0.58 to 1, simulated closed loops 0.66 and more.
"""
STARVED_SHARE, STARVED_LOSS, STARVED_Z = 0.1, 0.05, 2.5
"""With few requests each, chance leaves one of many nearly empty; then the spread is that of chance."""
SKEW, STEADY, SKEW_CHANGES = 0.2, 4.0, 1
MANY, MANY_S = 128, 300.0
"""With so many requests random routing drifts so slowly that a skew must last longer to be one."""
EVEN_SHARE = 0.9
"""Of the time: loads that differ by no more than one request are even, however few they are."""


def least_score(mean_total: float | None, backends: int, *, life_known: bool) -> float:
    """Give the score that a rhythm of so many requests over so many backends must have."""
    least = 0.0 if backends <= PAIR else MANY_SCORE
    if mean_total is not None and mean_total < fewest_requests(backends):
        least = max(least, LOW_SCORE)
    if mean_total is not None and mean_total < RHYTHM_LOAD * backends:
        least = FEW_SCORE
    return least if life_known else least + BLIND_SCORE


def least_turns(backends: int) -> float:
    """Give the turns of all backends together from which on they may be a swing."""
    return max(2 * PAIR, TURNS_OF_EACH * backends)


def least_turning_spread(mean_total: float | None, backends: int) -> tuple[float, float]:
    """Give the spread and the size that a swing by its turns must have, by how many requests there are."""
    few = mean_total is None or mean_total < fewest_requests(backends)
    return (FEW_TURNS_Z, FEW_TURNS_RMS) if few else (TURNS_Z, TURNS_RMS)
