"""The limits of the rules behind a group's verdict, for the judgement and for the screen."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.analysis.balance.dispersion import fewest_requests
from sparktop.model.balance import Arrivals, Convoys

PAIR = 2
SHORTEST_S = 45.0
"""Seconds of samples below which there is no verdict."""
PRESENT_SHARE = 0.9
"""Share of the samples of every backend that must be present for a verdict."""
LOADED_SHARE = 0.5
"""Share of the time in which a group must have enough requests."""
SWING_CHANGES, SWING_Z, SWING_Z_OF_MANY = 3, 4.0, 3.0
"""With more than two backends the spread is a mean of more terms: chance reaches 3 as seldom as 4 with
two."""
FAILURES_OF_ONE, FAILING_CHANGES = 3, 2
"""Failures of a backend in the window that are not accidental, and the lead changes required then."""
SWING_RMS, SWING_RMS_OF_MANY = 0.6, 0.5
"""Size of a swing: 1 is all to nothing and back. Counts alone do not make a swing, since a change of scale
would multiply them."""
RHYTHM_RMS, RHYTHM_Z, RHYTHM_TURN = 0.25, 1.0, 0.2
RHYTHM_LOAD, FEW_SCORE = 3.0, 4.0
"""Requests per backend: with fewer, three random draws look like a swing, and the score must be higher."""
LOW_SCORE = 1.0
"""Required below the load that the other rules need."""
COMING_TIMES, COMING_SCORE, COMING_SCORE_OF_MANY = 3, 3.8, 6.0
"""If requests come and go together, a time is one draw for many of them, and a rhythm must be clearer.

Not if convoys are found. Real simple-shuffle on busy cores had 3.6 once in 54 minutes; recorded see-saws have
4.0 and more. Simulated bursts, routed at random to eight backends, reached 5.2.
"""
CONVOY_HINT = 0.02
"""Probability of the two spreads up to which convoys may be the reason for coming and going."""
TURNS_Z, TURNS_RMS = 3.0, 0.5
"""Time-varying spread beyond 1, times √(n - 1), because chance is narrower among n; and the swing's size.

Simulated random routing reached 2.4 in 56,000 windows of 770 runs (2 to 8 backends, 4 to 128 clients).
"""
COMING_TURNS_Z, COMING_TURNS_RMS = 4.0, 0.7
"""The same where requests come and go: real shuffle on busy cores reached 3.9 and 0.66 in 54 minutes."""
FAILING_TURNS_RMS = 0.4
"""The size where backends fail in turns: they are out of the router for a part of each turn only."""
TURNS_OF_EACH, TURNS_OF_ONE = 1.5, 2
"""Turns from full to empty or back, per backend on average and of at least one; a cold burst makes one."""
HERD_SPREAD, COMING_HERD_SPREAD, HERD_CHANCE = 2.5, 3.5, 1e-4
"""Limits for arrivals; the second one applies where requests come and go.

Simulated random routing reached 1.9 and 3e-3 in 2200 windows, 95 of 100 simulated herds have 3.9 and more. On
busy cores servers report arrivals late: real simple-shuffle reached 3.0 there, real least-busy 3.8.
"""
DEALT_SPREAD, DEALT_SCORE = 1.4, 3.5
"""Where the arrivals' spread is below this, routing is random, and a rhythm needs this much more score."""
HERDS, HERD_LEADS = 4, 2
"""Herds in total, and herds of a second backend: a single cold burst is not enough."""
HERD_RMS = 0.35
"""Size of the swing: requests sent in herds may still leave the loads nearly even."""
CONVOY_CHANCE = 2e-3
"""Real least-busy reached 2e-3 to 1e-11 in most windows, real simple-shuffle 0.07 at least in 54 minutes.

16 clients; servers, router and clients on two cores.
"""
CONVOY_PART_CHANCE = 1e-3
"""If a router splits evenly, the first spread is 0, and the second must be improbable by itself."""
CONVOY_FULL, CONVOY_PART = 0.5, 2.5
"""Spreads: clearly more even than chance with all requests present, clearly wider with half of them."""
MANY_RATIO, MANY_SHARE = 20.0, 0.2
"""If the first spread is larger, the second must be this many times as wide, for this part of the time.

Simulated bursts, routed at random, reached a ratio of 14 at such shares.
"""
LOOKS_APART_S = 0.1
"""Seconds between the polls of a group's backends: further apart, a common fall looks like convoys.

Fair routing polled up to 400 ms apart was judged as convoys in 14 of 15 simulated runs, 100 ms apart in none.
"""
LOOKS_APART_SHARE = 0.1
"""Share of a rhythm's period: polls further apart show a swing where loads rise and fall together."""
LOOKS_EXPLAIN = 0.25
"""Part of the spread that polls at different times can cause, from which on it does not count as a swing.

Least-busy on fresh counts under bursts reached 2 to 5 with polls 262 ms apart; simulated herds 0.003 at most.
"""
CONVOY_TIMES, CONVOY_LEADS = 5, 2
"""Separate times of each kind, and part times led by a second backend."""
CONVOY_SINCE = 1 / 3
"""Share of the window: convoys that were seen only earlier are over."""
CONVOY_SHARE, CONVOY_RMS = 0.15, 0.35
"""Share of the time with half of the requests, and size of the swing.

Backends that end a common batch at slightly different times are not a see-saw.
"""
BLIND_SCORE = 1.5
"""Added while the life of a request is unknown, because then any period is accepted."""
MANY_SCORE = 2.5
"""Required with more than two backends: the one that differs most is picked, which may be by chance."""
MUTUAL = 0.4
"""Part of a swing that a backend and the others must each make: bursts to a single backend have 0.

Recorded see-saws of real servers have 0.58 to 1, simulated closed loops 0.66 and more.
"""
STARVED_SHARE, STARVED_LOSS, STARVED_Z = 0.1, 0.05, 2.5
"""With few requests per backend, chance leaves one of many nearly empty; then the spread is that of
chance."""
SKEW, STEADY, SKEW_CHANGES = 0.2, 4.0, 1
MANY, MANY_S = 128, 300.0
"""With this many requests random routing drifts so slowly that a skew must last longer to count."""
EVEN_SHARE = 0.9
"""Share of the time: loads that differ by at most one request are even, however few they are."""


def comes_and_goes(convoys: Convoys | None) -> bool:
    """Return whether a group's requests come and go together, other than as convoys of a counting router."""
    if convoys is None or convoys.full_times < COMING_TIMES:
        return False
    hinted = convoys.chance is not None and convoys.chance <= CONVOY_HINT
    return not (hinted and splits_evenly(convoys) and convoys.part_share >= CONVOY_SHARE)


def splits_evenly(convoys: Convoys) -> bool:
    """Return whether the requests are split clearly more evenly while all are present than while half are."""
    if convoys.full_spread <= CONVOY_FULL:
        return True
    ratio = (convoys.part_spread or 0.0) / convoys.full_spread
    return ratio >= MANY_RATIO and convoys.part_share >= MANY_SHARE


def fail_by_turns(errors: Sequence[float]) -> bool:
    """Return whether both backends of a pair failed repeatedly, by the known failures of each.

    Failures take a backend out of a router for a while, so a swing that coincides with them needs fewer
    cycles. With more than two backends the widest swing may be chance.
    """
    return len(errors) == PAIR and min(errors) >= FAILURES_OF_ONE


def least_lead_changes(*, failing: bool) -> int:
    """Return the changes of the lead from which on they may be a swing."""
    return FAILING_CHANGES if failing else SWING_CHANGES


def least_score(
    mean_total: float | None,
    backends: int,
    convoys: Convoys | None,
    arrivals: Arrivals | None,
    *,
    life_known: bool,
) -> float:
    """Return the score that a rhythm needs, given the requests and the number of backends."""
    least = 0.0 if backends <= PAIR else MANY_SCORE
    if mean_total is not None and mean_total < fewest_requests(backends):
        least = max(least, LOW_SCORE)
    if mean_total is not None and mean_total < RHYTHM_LOAD * backends:
        least = FEW_SCORE
    if not life_known:
        least += BLIND_SCORE
    if comes_and_goes(convoys):
        least = max(least, COMING_SCORE if backends <= PAIR else COMING_SCORE_OF_MANY)
    by_chance = arrivals is not None and arrivals.spread < DEALT_SPREAD
    return least + DEALT_SCORE if by_chance else least


def least_herd_spread(convoys: Convoys | None) -> float:
    """Return the spread of arrivals that only a herd has."""
    return COMING_HERD_SPREAD if comes_and_goes(convoys) else HERD_SPREAD


def are_herds(arrivals: Arrivals | None, convoys: Convoys | None) -> bool:
    """Return whether requests of one moment go the same way, now to one backend and now to another."""
    return (
        arrivals is not None
        and arrivals.herds >= HERDS
        and arrivals.least_herds >= HERD_LEADS
        and arrivals.spread >= least_herd_spread(convoys)
        and arrivals.chance <= HERD_CHANCE
    )


def least_turns(backends: int) -> float:
    """Return the turns of all backends together from which on they may be a swing."""
    return max(2 * PAIR, TURNS_OF_EACH * backends)


def least_turning_spread(convoys: Convoys | None, *, failing: bool) -> tuple[float, float]:
    """Return the spread and the size that a swing by its turns needs."""
    if failing:
        return (TURNS_Z, FAILING_TURNS_RMS)
    return (COMING_TURNS_Z, COMING_TURNS_RMS) if comes_and_goes(convoys) else (TURNS_Z, TURNS_RMS)
