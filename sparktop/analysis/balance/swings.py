"""The five rules behind the verdict "oscillating", as data: it applies if any one of them is met."""

from __future__ import annotations

from collections.abc import Callable

from sparktop.analysis.balance import limits
from sparktop.analysis.balance.check import Check, Rule, chance_text, time_with_load
from sparktop.model.balance import Balance, Convoys, Swing


def lead(balance: Balance) -> Rule:
    """Return the rule that the lead passes from backend to backend more often than by chance.

    The lead is the backend with clearly most load.
    """
    pair = len(balance.backends) <= limits.PAIR
    spread, size = (
        (limits.SWING_Z, limits.SWING_RMS) if pair else (limits.SWING_Z_OF_MANY, limits.SWING_RMS_OF_MANY)
    )
    margin = balance.lead_margin
    return Rule(
        "lead",
        (
            Check(
                "lead changes",
                balance.lead_changes,
                limits.least_lead_changes(failing=balance.failing),
                meaning="how often another backend took the lead in this time",
            ),
            Check(
                "spread Z",
                balance.dispersion_z,
                spread,
                "×",
                1,
                "how far apart loads lie, over what random routing does: 1 is chance",
            ),
            _size(balance.swing, size),
            Check(
                "lead margin",
                None if margin is None else 100 * margin,
                unit="%",
                meaning="load above its share at which a backend leads: more than chance produces",
            ),
            time_with_load(balance),
            *_a_swing(balance),
        ),
    )


def _size(swing: Swing | None, least: float) -> Check:
    return Check(
        "swing",
        None if swing is None else swing.relative_rms,
        least,
        digits=2,
        meaning="mean distance from the share, in shares: 1 is all to nothing and back",
    )


def _a_swing(balance: Balance) -> tuple[Check, ...]:
    """Return the checks that all rules on swings share.

    They are that all backends take part in the swing, and that polling at different times does not explain
    it.
    """
    swing = balance.swing
    mutual = Check(
        "both take part",
        None if swing is None else swing.mutual,
        limits.MUTUAL,
        digits=2,
        meaning="1: one falls as others rise; 0: one alone comes and goes, which is not a swing",
    )
    if balance.looks_explain is None:
        return (mutual,)
    late = Check(
        "made by polls",
        100 * balance.looks_explain,
        100 * limits.LOOKS_EXPLAIN,
        "%",
        meaning=f"of the spread: backends are polled {balance.looks_apart_ms or 0.0:.0f} ms apart",
        most=True,
    )
    return (mutual, late)


def rhythm(balance: Balance) -> Rule:
    """Return the rule that a load swings back and forth with one period, unlike chance or drift."""
    count = max(limits.PAIR, len(balance.backends))
    swing = balance.swing or Swing("")
    back, half = swing.rebound, swing.opposite
    least = limits.least_score(
        balance.mean_total,
        count,
        balance.convoys,
        balance.arrivals,
        life_known=bool(balance.e2e_s),
        chance=swing.chance,
    )
    apart_s = None if swing.period_s is None else limits.LOOKS_APART_SHARE * swing.period_s
    return Rule(
        "rhythm",
        (
            Check(
                "rhythm score",
                swing.score,
                least,
                digits=1,
                meaning="spread, return and cycles weighed: chance reaches 0 in 1 of 5000 windows",
                signed=True,
            ),
            Check(
                "turn",
                None if back is None or half is None else back - half,
                limits.RHYTHM_TURN,
                digits=2,
                meaning=f"autocorrelation: a period ({_signed(back)}) minus half of it ({_signed(half)})",
            ),
            _size(balance.swing, limits.RHYTHM_RMS),
            _moving(balance),
            _looks_apart(balance, apart_s),
            *_a_swing(balance),
            *_of_a_rhythm(swing, balance.mean_total, count),
        ),
    )


def _of_a_rhythm(swing: Swing, mean_total: float | None, count: int) -> tuple[Check, ...]:
    """Return the checks without a limit, shown for information, of the rule that a load swings in a rhythm.

    `mean_total` is the mean number of requests in the group, `count` the number of backends.
    """
    return (
        Check(
            "requests",
            mean_total,
            digits=1,
            meaning=f"below {limits.RHYTHM_LOAD * count:g} random routing looks like a swing: "
            "then the score must be higher",
        ),
        Check(
            "period",
            swing.period_s,
            unit="life",
            meaning=f"{_number(swing.cycles, '.1f')} of them in the window",
        ),
        Check(
            "in that rhythm",
            None if swing.variance_share is None else 100 * swing.variance_share,
            unit="%",
            meaning="of the variance; slow drift alone gives as much with a chance of "
            f"{chance_text(swing.chance)} at most",
        ),
    )


def _moving(balance: Balance) -> Check:
    z, factor, swing = balance.dispersion_z, balance.variance_factor, balance.swing
    return Check(
        "moving spread",
        None if z is None or factor is None or swing is None else z * factor * swing.moving_share,
        limits.RHYTHM_Z,
        digits=1,
        meaning="the part that moves, over that of random routing",
    )


def _looks_apart(balance: Balance, limit_s: float | None) -> Check:
    return Check(
        "polls apart",
        balance.looks_apart_ms,
        None if limit_s is None else 1000 * limit_s,
        "ms",
        meaning="between the polls of the backends: further apart, a common rise looks like a swing",
        most=True,
    )


def turns(balance: Balance) -> Rule:
    """Return the rule that backends go from full to empty and back more widely than under random routing."""
    count = max(limits.PAIR, len(balance.backends))
    spread, size = limits.least_turning_spread(balance.convoys, failing=balance.failing)
    return Rule(
        "turns",
        (
            Check(
                "turns",
                balance.turns,
                limits.least_turns(count),
                meaning="from half above the share to half below it or back, of all backends together",
            ),
            Check(
                "of one backend",
                balance.turns_of_one,
                limits.TURNS_OF_ONE,
                meaning="of the one that did so most often: there and back",
            ),
            _size(balance.swing, size),
            Check(
                "turning spread",
                balance.turning_spread,
                spread,
                digits=2,
                meaning="the part of the spread that moves, beyond chance; "
                "where requests come and go it must be more",
            ),
            *_a_swing(balance),
        ),
    )


def convoys(balance: Balance) -> Rule:
    """Return the rule for convoys: requests that start together at one backend and end together.

    It is met where requests are split evenly while all are present, but one-sidedly while half of them
    are. This is the only rule that needs neither a large swing nor a rhythm, and that can be met with few
    requests in the group.
    """
    found = balance.convoys
    return Rule(
        "convoys",
        (
            *_full_times(found),
            *_part_times(found, balance.window_s),
            Check(
                "so different",
                None if found is None else found.chance,
                limits.CONVOY_CHANCE,
                "chance",
                meaning="by chance: how likely random routing makes the two spreads differ so",
                most=True,
            ),
            _size(balance.swing, limits.CONVOY_RMS),
            _looks_apart(balance, limits.LOOKS_APART_S),
            *_a_swing(balance),
        ),
    )


def _full_times(found: Convoys | None) -> tuple[Check, ...]:
    return (
        Check(
            "full-load times",
            None if found is None else found.full_times,
            limits.CONVOY_TIMES,
            meaning="separate times with nearly all requests at the backends"
            if found
            else "their number does not come and go: then there is nothing to compare",
        ),
        Check(
            "full-load spread",
            None if found is None else found.full_spread,
            limits.CONVOY_FULL,
            "×",
            2,
            f"of the split, over random routing; or {limits.MANY_RATIO:g} times less than with half of them",
            most=True,
            either=found is not None and limits.splits_evenly(found),
        ),
    )


def _part_times(found: Convoys | None, window_s: float) -> tuple[Check, ...]:
    return (
        Check(
            "half-load times",
            None if found is None else found.part_times,
            limits.CONVOY_TIMES,
            meaning="separate times with about half of them",
        ),
        Check(
            "of the time",
            None if found is None else 100 * found.part_share,
            100 * limits.CONVOY_SHARE,
            "%",
            meaning="so long about half of them are there",
        ),
        Check(
            "half-load spread",
            None if found is None else found.part_spread,
            limits.CONVOY_PART,
            "×",
            1,
            "of the split, over random routing: one backend has far more than its share",
        ),
        Check(
            "by chance",
            None if found is None else found.part_chance,
            limits.CONVOY_PART_CHANCE,
            "chance",
            meaning="probability that random routing lies so far apart at those times",
            most=True,
        ),
        Check(
            "second leader",
            None if found is None else found.least_leads,
            limits.CONVOY_LEADS,
            meaning="times that another backend had most: it is not always the same",
        ),
        Check(
            "last seen",
            None if found is None else found.since_part_s,
            limits.CONVOY_SINCE * window_s,
            "life",
            meaning="ago: what was seen only before is over",
            most=True,
        ),
    )


def herds(balance: Balance) -> Rule:
    """Return the rule for herds: requests of one moment go to one backend, later requests to another."""
    found = balance.arrivals
    return Rule(
        "herds",
        (
            Check(
                "requests came",
                None if found is None else found.requests,
                meaning="the backends do not count them, or too few came"
                if found is None
                else f"in {found.pieces} intervals of {found.piece_s:.3g} s: half a life of a request",
            ),
            Check(
                "uneven arrivals",
                None if found is None else found.spread,
                limits.least_herd_spread(balance.convoys),
                "×",
                1,
                "over those of random routing: 1 is chance",
            ),
            Check(
                "by chance",
                None if found is None else found.chance,
                limits.HERD_CHANCE,
                "chance",
                meaning="how likely random routing is as uneven",
                most=True,
            ),
            Check(
                "herds",
                None if found is None else found.herds,
                limits.HERDS,
                meaning="intervals in which one backend got far more than its share",
            ),
            Check(
                "herds of another",
                None if found is None else found.least_herds,
                limits.HERD_LEADS,
                meaning="at the backend with the second most: it is not always the same",
            ),
            _size(balance.swing, limits.HERD_RMS),
            _moving(balance),
            *_a_swing(balance),
        ),
    )


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else f"{value:{form}}".replace("-", "−")


def _signed(value: float | None) -> str:
    return _number(value, "+.2f")


WAYS_TO_SWING: tuple[Callable[[Balance], Rule], ...] = (lead, rhythm, turns, convoys, herds)
"""A group oscillates if any one of these rules holds."""
