"""The limits of the rules that decide on a group's verdict, for the judgement and for the screen.

Names that end in `_Z` and `_SPREAD` are ratios of a measured spread to that of random routing; `_RMS` is
the size of a swing relative to an even share, `_CHANCE` a probability, `_S` seconds. `COMING_` limits
apply where the group's requests come and go together, `FAILING_` where a pair of backends fails
repeatedly.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.analysis.balance.spread import fewest_requests
from sparktop.model.balance import Arrivals, Convoys

PAIR = 2
SHORTEST_S = 45.0
"""With samples of fewer seconds than this there is no verdict."""
PRESENT_SHARE = 0.9
"""Share of the samples of every backend that must be present for a verdict."""
LOADED_SHARE = 0.5
"""Share of the time in which a group must have enough requests for the rules that count them."""
SWING_CHANGES, SWING_Z, SWING_Z_OF_MANY = 3, 4.0, 3.0
"""Fewest changes of the lead, and smallest spread with two backends and with more, with which a swing is
described by them. With more than two the spread is a mean of more terms: chance reaches 3 as seldom as it
reaches 4 with two."""
FAILURES_OF_ONE, FAILING_CHANGES = 3, 2
"""Failures of each backend in the window that are not accidental, and the changes of the lead that are enough
then."""
SWING_RMS, SWING_RMS_OF_MANY = 0.6, 0.5
"""Smallest size of a swing that is described so, with two backends and with more: 1 is all to nothing."""
RHYTHM_RMS, RHYTHM_Z, RHYTHM_TURN = 0.25, 1.0, 0.2
RHYTHM_LOAD, FEW_SCORE = 3.0, 4.0
"""Requests per backend, and the score required with fewer: then three random draws look like a swing."""
LOW_SCORE = 1.0
"""Score required where the load is too low for the other rules."""
COMING_TIMES, COMING_SCORE, COMING_SCORE_OF_MANY = 3, 3.8, 6.0
"""Fewest full times of a group whose requests come and go together, and the score required then with two
backends and with more. One random draw moves many requests at once, so a rhythm must be clearer.

Does not apply where convoys are found. Real simple-shuffle on busy cores had a score of 3.6 once in 54
minutes; recorded swings have 4.0 and more. Simulated bursts, routed at random to eight backends, reached 5.2.
"""
CLEAR_CHANCE, CLEAR_SCORE = 0.02, 0.5
"""Largest probability that slow drift has as clear a rhythm, up to which the smaller score is enough for two
backends whose requests come and go.

At 1 Hz a rhythm of 4 to 5 s is blurred, which lowers its score and not its clearness: real least-busy had
scores from 1.0 on there. Real simple-shuffle on busy cores had 0.2 at most where the probability was below
0.1, in 5300 windows at 1, 2 and 4 Hz.
"""
CONVOY_HINT = 0.02
"""Probability that random routing makes the two spreads differ so much, up to which convoys may be the reason
why requests come and go."""
TURNS_Z, TURNS_RMS = 3.0, 0.5
"""Smallest turning spread and size of a swing.

The turning spread is the time-varying spread less 1, times √(n - 1), because chance varies less with n
backends. Simulated random routing reached a turning spread of 2.4 in 56,000 windows of 770 runs (2 to 8
backends, 4 to 128 clients).
"""
COMING_TURNS_Z, COMING_TURNS_RMS = 4.0, 0.7
"""The limits of turning spread and size where requests come and go: real simple-shuffle on busy cores reached
3.9 and 0.66 in 54 minutes."""
FAILING_TURNS_RMS = 0.4
"""The smallest size of a swing where backends fail in turns: they are out of the router for only a part of
each turn."""
TURNS_OF_EACH, TURNS_OF_ONE = 1.5, 2
"""Fewest turns from full to empty or back: per backend on average, and of the backend with most turns. A cold
burst makes one turn."""
HERD_SPREAD, COMING_HERD_SPREAD, HERD_CHANCE = 2.5, 3.5, 1e-4
"""Smallest spread of arrivals, the same where requests come and go, and the largest probability under random
routing.

Simulated random routing reached a spread of 1.9 and a probability of 3e-3 in 2200 windows; 95 of 100
simulated herds have a spread of 3.9 and more. On busy cores servers report arrivals late: real simple-shuffle
reached 3.0 there, real least-busy 3.8.
"""
DEALT_SPREAD, DEALT_SCORE = 1.4, 3.5
"""Where the arrivals' spread is below the first number, routing is random, and a rhythm needs a score that is
higher by the second."""
HERDS, HERD_LEADS = 4, 2
"""Fewest herds in total, and of the backend with the second most: a single cold burst is not enough."""
HERD_RMS = 0.35
"""Smallest size of the swing: requests sent in herds may still leave the loads nearly even."""
CONVOY_CHANCE = 2e-3
"""Largest probability that random routing makes the split at full load so much more even than at part load.

Real least-busy reached 2e-3 to 1e-11 in most windows, real simple-shuffle 0.07 at least in 54 minutes (16
clients; servers, router and clients on two cores).
"""
CONVOY_PART_CHANCE = 1e-3
"""Largest probability of the spread at part load by itself: if a router splits evenly, the spread at full
load is 0, and the comparison with it is not enough."""
CONVOY_FULL, CONVOY_PART = 0.5, 2.5
"""Largest spread with all requests present (clearly more even than chance), smallest with half of them
(clearly wider)."""
MANY_RATIO, MANY_SHARE = 20.0, 0.2
"""If the spread at full load is above `CONVOY_FULL`, the spread at part load must be this many times as wide,
for this share of the time.

Simulated bursts, routed at random, reached a ratio of 14 at such shares.
"""
LOOKS_APART_S = 0.1
"""Largest time in seconds between the polls of a group's backends: further apart, a common fall looks like
convoys.

Fair routing polled up to 400 ms apart was judged as convoys in 14 of 15 simulated runs, 100 ms apart in none.
"""
LOOKS_APART_SHARE = 0.1
"""Largest time between the polls as a share of a rhythm's period: further apart, a common rise and fall of
all loads looks like a swing."""
LOOKS_EXPLAIN = 0.25
"""Where polling at different times can cause this part of the spread or more, the spread does not count as a
swing.

Least-busy on fresh counts under bursts reached 2 to 5 with polls 262 ms apart; simulated herds 0.003 at most.
"""
CONVOY_TIMES, CONVOY_LEADS = 5, 2
"""Fewest full times and fewest part times, and fewest part times led by the backend with the second most of
them."""
CONVOY_SINCE = 1 / 3
"""Largest time since the last part time, as a share of the window: convoys that were seen only earlier are
over."""
CONVOY_SHARE, CONVOY_RMS = 0.15, 0.35
"""Smallest share of the time with half of the requests present, and smallest size of the swing.

Backends that end a common batch at slightly different times do not swing.
"""
BLIND_SCORE = 1.5
"""Added to the required score while the life of a request is unknown, because then any period is accepted."""
MANY_SCORE = 2.5
"""Score required with more than two backends: the backend that differs most is picked, which may be by
chance."""
MUTUAL = 0.4
"""Smallest part of a swing that a backend and the others must each make: bursts to a single backend have 0.

Recorded swings of real servers have 0.58 to 1, simulated closed loops 0.66 and more.
"""
STARVED_SHARE, STARVED_LOSS, STARVED_Z = 0.1, 0.05, 2.5
"""Smallest share of time, smallest loss of throughput and smallest spread of a starved group. With few
requests per backend, chance leaves one of many nearly empty, and then the spread is that of chance."""
SKEW, STEADY, SKEW_CHANGES = 0.2, 4.0, 1
MANY, MANY_S = 128, 300.0
"""With this many requests random routing drifts so slowly that a skew must last longer to count."""
QUEUED_SHARE = 0.8
"""Share of the time with a queue at every backend from which on only the queues of a group differ."""
EVEN_SHARE = 0.9
"""Share of the time: loads that differ by at most one request are even, however few they are."""


def comes_and_goes(convoys: Convoys | None) -> bool:
    """Return whether the number of a group's requests often rises and falls, and convoys do not explain this.

    Convoys are sets of requests that start together at one backend and end together; they arise where a
    router counts the requests that it sends. False where the number of requests hardly
    changes (`convoys` is None).
    """
    if convoys is None or convoys.full_times < COMING_TIMES:
        return False
    hinted = convoys.chance is not None and convoys.chance <= CONVOY_HINT
    return not (hinted and splits_evenly(convoys) and convoys.part_share >= CONVOY_SHARE)


def splits_evenly(convoys: Convoys) -> bool:
    """Return whether requests are split clearly more evenly at full load than at half of this load."""
    if convoys.full_spread <= CONVOY_FULL:
        return True
    ratio = (convoys.part_spread or 0.0) / convoys.full_spread
    return ratio >= MANY_RATIO and convoys.part_share >= MANY_SHARE


def fail_by_turns(errors: Sequence[float]) -> bool:
    """Return whether both backends of a pair failed repeatedly; `errors` has the number of failures of each.

    A router leaves a failed backend out for a while, so a swing together with failures needs fewer cycles
    as evidence. False for more than two backends, where the widest swing may be chance.
    """
    return len(errors) == PAIR and min(errors) >= FAILURES_OF_ONE


def least_lead_changes(*, failing: bool) -> int:
    """Return how many changes of the lead count as a swing; the lead is the backend with clearly most load.

    `failing`: both backends of a pair fail repeatedly.
    """
    return FAILING_CHANGES if failing else SWING_CHANGES


def least_score(
    mean_total: float | None,
    backends: int,
    convoys: Convoys | None,
    arrivals: Arrivals | None,
    *,
    life_known: bool,
    chance: float | None = None,
) -> float:
    """Return the lowest score (see `swing_score`) with which a rhythm of the load counts as a swing.

    It depends on the mean number of requests in the group, the number of backends, convoys, arrivals, on
    whether the duration of a request is known, and on the `chance` that slow drift has such a rhythm.
    """
    least = 0.0 if backends <= PAIR else MANY_SCORE
    if mean_total is not None and mean_total < fewest_requests(backends):
        least = max(least, LOW_SCORE)
    if mean_total is not None and mean_total < RHYTHM_LOAD * backends:
        least = FEW_SCORE
    if not life_known:
        least += BLIND_SCORE
    if comes_and_goes(convoys):
        if backends > PAIR:
            least = max(least, COMING_SCORE_OF_MANY)
        elif chance is None or chance > CLEAR_CHANCE or not life_known or least >= FEW_SCORE:
            least = max(least, COMING_SCORE)
        else:
            least = CLEAR_SCORE
    by_chance = arrivals is not None and arrivals.spread < DEALT_SPREAD
    return least + DEALT_SCORE if by_chance else least


def least_herd_spread(convoys: Convoys | None) -> float:
    """Return how uneven arrivals in short periods must be at least to count as herds; chance alone gives 1.

    Herds are requests of one moment that are all sent to one backend.
    """
    return COMING_HERD_SPREAD if comes_and_goes(convoys) else HERD_SPREAD


def are_herds(arrivals: Arrivals | None, convoys: Convoys | None) -> bool:
    """Return whether a router sent requests in herds: many of a moment to one backend, later to another.

    False if `arrivals` is None.
    """
    return (
        arrivals is not None
        and arrivals.herds >= HERDS
        and arrivals.least_herds >= HERD_LEADS
        and arrivals.spread >= least_herd_spread(convoys)
        and arrivals.chance <= HERD_CHANCE
    )


def least_turns(backends: int) -> float:
    """Return how often all backends together must go from full to empty or back to count as a swing."""
    return max(2 * PAIR, TURNS_OF_EACH * backends)


def least_turning_spread(convoys: Convoys | None, *, failing: bool) -> tuple[float, float]:
    """Return (varying spread, size): loads that turn count as a swing if they reach both values.

    A turn is a backend's way from full to empty or back. The varying spread is the part of the loads' spread
    that changes in time, relative to random routing; the size is that of the swing, relative to an even
    share. `failing` is whether both backends of a pair fail repeatedly: then other values hold.
    """
    if failing:
        return (TURNS_Z, FAILING_TURNS_RMS)
    return (COMING_TURNS_Z, COMING_TURNS_RMS) if comes_and_goes(convoys) else (TURNS_Z, TURNS_RMS)
