"""The limits of the rules behind a group's word: the judgement keeps them, and the screen shows the same."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.analysis.balance.dispersion import fewest_requests
from sparktop.model.balance import Arrivals, Convoys

PAIR = 2
SHORTEST_S = 45.0
"""Seconds of samples below which there is no verdict."""
PRESENT_SHARE = 0.9
"""Of the samples of every backend: with less nothing is told."""
LOADED_SHARE = 0.5
"""Of the time in which a group must have enough requests."""
SWING_CHANGES, SWING_Z, SWING_Z_OF_MANY = 3, 4.0, 3.0
"""Of more than two backends the spread is a mean of more: chance reaches 3 as seldom as 4 of two."""
FAILURES_OF_ONE, FAILING_CHANGES = 3, 2
"""Failures of a backend in the window that are no accident, and the lead changes asked for then."""
SWING_RMS, SWING_RMS_OF_MANY = 0.6, 0.5
"""All to nothing and back is 1; counts alone, which a change of scale would multiply, do not make a swing."""
RHYTHM_RMS, RHYTHM_Z, RHYTHM_TURN = 0.25, 1.0, 0.2
RHYTHM_LOAD, FEW_SCORE = 3.0, 4.0
"""Requests a backend: with fewer, three coin tosses look like a swing, and the score must be higher."""
LOW_SCORE = 1.0
"""Asked for below the load that the other rules need."""
COMING_TIMES, COMING_SCORE, COMING_SCORE_OF_MANY = 3, 3.8, 6.0
"""Where requests come and go together, each time is one toss for many, and a rhythm must be clearer.

Unless convoys are seen. Real simple-shuffle on busy cores had 3.6 once in 54 minutes; recorded see-saws have
4.0 and more. Simulated bursts dealt by chance to eight reached 5.2.
"""
CONVOY_HINT = 0.02
"""Chance of the two spreads up to which convoys may be the reason for coming and going."""
TURNS_Z, TURNS_RMS = 3.0, 0.5
"""Spread beyond 1 that moves, times the root of n - 1, by which chance is narrower among n; and its size.

Simulated random routing reached 2.4 in 56,000 windows of 770 runs (2 to 8 backends, 4 to 128 clients).
"""
COMING_TURNS_Z, COMING_TURNS_RMS = 4.0, 0.7
"""The same where requests come and go: real shuffle on busy cores reached 3.9 and 0.66 in 54 minutes."""
FAILING_TURNS_RMS = 0.4
"""The size where backends fail by turns: they are out of the router for a part of each turn only."""
TURNS_OF_EACH, TURNS_OF_ONE = 1.5, 2
"""Times that backends go from full to empty or back, on average and one at least: a cold burst does once."""
HERD_SPREAD, COMING_HERD_SPREAD, HERD_CHANCE = 2.5, 3.5, 1e-4
"""Of arrivals; the second where requests come and go.

Simulated random routing reached 1.9 and 3e-3 in 2200 windows, 95 of 100 simulated herds have 3.9 and more. On
busy cores servers tell late of what came: real simple-shuffle reached 3.0 there, real least-busy 3.8.
"""
DEALT_SPREAD, DEALT_SCORE = 1.4, 3.5
"""Where the arrivals' spread is below that they are dealt by chance, and a rhythm must be so much clearer."""
HERDS, HERD_LEADS = 4, 2
"""Herds, and those of another backend as well: one cold burst is none."""
HERD_RMS = 0.35
"""Size of the swing: requests dealt in herds may still leave the loads nearly even."""
CONVOY_CHANCE = 2e-3
"""Real least-busy reached 2e-3 to 1e-11 in most windows, real simple-shuffle 0.07 at least in 54 minutes.

16 clients; servers, router and clients on two cores.
"""
CONVOY_PART_CHANCE = 1e-3
"""Where a router deals evenly the first spread is 0, and the second must be no chance by itself."""
CONVOY_FULL, CONVOY_PART = 0.5, 2.5
"""Spreads: plainly evener than chance with all requests there, plainly wider with half of them."""
MANY_RATIO, MANY_SHARE = 20.0, 0.2
"""Where the first is more, the second must be so many times as wide, for that part of the time.

Simulated bursts dealt by chance reached a ratio of 14 at such shares.
"""
LOOKS_APART_S = 0.1
"""Between the looks at the backends of a group: further apart, a common fall looks like convoys.

Fair routing looked at up to 400 ms apart was called convoys in 14 of 15 simulated runs, 100 ms apart in none.
"""
LOOKS_APART_SHARE = 0.1
"""Of a rhythm's period: looks further apart than that show a swing where loads rise and fall together."""
LOOKS_EXPLAIN = 0.25
"""Part of the spread that looks apart can make, from which on it shows no swing.

Least-busy on fresh counts under bursts reached 2 to 5 with looks 262 ms apart; simulated herds 0.003 at most.
"""
CONVOY_TIMES, CONVOY_LEADS = 5, 2
"""Separate times of each kind, and part times that another backend had as well."""
CONVOY_SINCE = 1 / 3
"""Of the window: convoys that were seen only before are over."""
CONVOY_SHARE, CONVOY_RMS = 0.15, 0.35
"""Of the time with half of the requests, and size of the swing.

Backends that end a common batch a little apart are no see-saw.
"""
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


def comes_and_goes(convoys: Convoys | None) -> bool:
    """Say whether the requests in a group come and go together, and not as convoys that a router counts."""
    if convoys is None or convoys.full_times < COMING_TIMES:
        return False
    hinted = convoys.chance is not None and convoys.chance <= CONVOY_HINT
    return not (hinted and splits_evenly(convoys) and convoys.part_share >= CONVOY_SHARE)


def splits_evenly(convoys: Convoys) -> bool:
    """Say whether all requests, while they are there, are split plainly evener than half of them."""
    if convoys.full_spread <= CONVOY_FULL:
        return True
    ratio = (convoys.part_spread or 0.0) / convoys.full_spread
    return ratio >= MANY_RATIO and convoys.part_share >= MANY_SHARE


def fail_by_turns(errors: Sequence[float]) -> bool:
    """Return whether both backends of a pair failed again and again, by the failures known of each.

    That is what takes them out of a router for a while: a swing that goes with it needs fewer cycles. Of more
    backends the widest may be so by chance.
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
    """Give the score that a rhythm of so many requests over so many backends must have."""
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
    """Give the spread of arrivals that only a herd has."""
    return COMING_HERD_SPREAD if comes_and_goes(convoys) else HERD_SPREAD


def are_herds(arrivals: Arrivals | None, convoys: Convoys | None) -> bool:
    """Say whether requests of one moment go the same way, now to one backend and now to another."""
    return (
        arrivals is not None
        and arrivals.herds >= HERDS
        and arrivals.least_herds >= HERD_LEADS
        and arrivals.spread >= least_herd_spread(convoys)
        and arrivals.chance <= HERD_CHANCE
    )


def least_turns(backends: int) -> float:
    """Give the turns of all backends together from which on they may be a swing."""
    return max(2 * PAIR, TURNS_OF_EACH * backends)


def least_turning_spread(convoys: Convoys | None, *, failing: bool) -> tuple[float, float]:
    """Give the spread and the size that a swing by its turns must have."""
    if failing:
        return (TURNS_Z, FAILING_TURNS_RMS)
    return (COMING_TURNS_Z, COMING_TURNS_RMS) if comes_and_goes(convoys) else (TURNS_Z, TURNS_RMS)
