"""The figures behind a swing: five ways to detect one, each with its limits."""

from __future__ import annotations

from sparktop.analysis import balance_limits as limits
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.balance import Balance, Convoys, Swing
from sparktop.panels.balance_checks import Check, at_least, at_most, chance_text, text
from sparktop.panels.balance_verdict import short_seconds

_SIZE = "mean distance from the share, in shares: 1 is all to nothing and back"


def lead_checks(balance: Balance) -> tuple[Check, ...]:
    """Return the figures of a lead that changes again and again."""
    pair = len(balance.backends) <= limits.PAIR
    swing = balance.swing
    spread, least = (
        (limits.SWING_Z, limits.SWING_RMS) if pair else (limits.SWING_Z_OF_MANY, limits.SWING_RMS_OF_MANY)
    )
    margin, changes = balance.lead_margin, limits.least_lead_changes(failing=balance.failing)
    return (
        Check(
            "lead changes",
            text(balance.lead_changes, "d"),
            f"≥ {changes}",
            at_least(balance.lead_changes, changes),
            "how often another backend took the lead in this time",
        ),
        Check(
            "spread Z",
            text(balance.dispersion_z, ".1f", " ×"),
            f"≥ {spread:g} ×",
            at_least(balance.dispersion_z, spread),
            "how far apart loads lie, over what random routing does: 1 is chance",
        ),
        _size(swing, least),
        Check(
            "lead margin",
            text(None if margin is None else 100 * margin, ".0f", " %"),
            "",
            None,
            "more than its share that it takes to lead: more than chance gives",
        ),
        _mutual(swing),
    )


def _size(swing: Swing | None, least: float) -> Check:
    rms = None if swing is None else swing.relative_rms
    return Check("swing", text(rms, ".2f"), f"≥ {least:g}", at_least(rms, least), _SIZE)


def _mutual(swing: Swing | None) -> Check:
    # Added to 0.0, so that a rounded zero is never shown as "-0.00".
    part = None if swing is None or swing.mutual is None else 0.0 + round(swing.mutual, 2)
    return Check(
        "both take part",
        text(part, ".2f"),
        f"≥ {limits.MUTUAL:g}",
        at_least(part, limits.MUTUAL),
        "1: one falls as others rise; 0: one alone comes and goes, and that is no swing",
    )


def rhythm_checks(balance: Balance) -> tuple[Check, ...]:
    """Return the figures of a single rhythm."""
    count = max(limits.PAIR, len(balance.backends))
    swing = balance.swing or Swing("")
    least = limits.least_score(
        balance.mean_total, count, balance.convoys, balance.arrivals, life_known=bool(balance.e2e_s)
    )
    back, half = swing.rebound, swing.opposite
    turned = None if back is None or half is None else back - half
    return (
        Check(
            "score",
            text(swing.score, "+.1f"),
            f"≥ {least:g}",
            at_least(swing.score, least),
            "spread, return and cycles weighed: chance gets to 0 once in 5000 windows",
        ),
        Check(
            "turn",
            text(turned, ".2f"),
            f"≥ {limits.RHYTHM_TURN:g}",
            at_least(turned, limits.RHYTHM_TURN),
            f"back after a period ({text(back, '+.2f')}) less turned round half way ({text(half, '+.2f')})",
        ),
        _size(balance.swing, limits.RHYTHM_RMS),
        _moving(balance),
        _looks_apart(balance, None if swing.period_s is None else limits.LOOKS_APART_SHARE * swing.period_s),
        _mutual(balance.swing),
        Check(
            "requests",
            text(balance.mean_total, ".1f"),
            "",
            None,
            f"below {limits.RHYTHM_LOAD * count:g} coin tosses look like a swing: "
            "then the score must be higher",
        ),
        *_period(swing),
    )


def turns_checks(balance: Balance) -> tuple[Check, ...]:
    """Return the figures of backends that fill and empty in turns."""
    count = max(limits.PAIR, len(balance.backends))
    least = limits.least_turns(count)
    spread, size = limits.least_turning_spread(balance.convoys, failing=balance.failing)
    return (
        Check(
            "turns",
            text(balance.turns, "d"),
            f"≥ {least:g}",
            at_least(balance.turns, least),
            "how often backends went from full to empty or back, all together",
        ),
        Check(
            "of one backend",
            text(balance.turns_of_one, "d"),
            f"≥ {limits.TURNS_OF_ONE}",
            at_least(balance.turns_of_one, limits.TURNS_OF_ONE),
            "of the one that did so most often: there and back",
        ),
        _size(balance.swing, size),
        Check(
            "turning spread",
            text(balance.turning_spread, ".2f"),
            f"≥ {spread:g}",
            at_least(balance.turning_spread, spread),
            "the part of the spread that moves, beyond chance; where requests come and go it must be more",
        ),
        _mutual(balance.swing),
    )


def convoys_checks(balance: Balance) -> tuple[Check, ...]:
    """Return the figures of convoys: how requests split while nearly all are there, and while half are."""
    found = balance.convoys
    chance = None if found is None else found.chance
    return (
        *_full_checks(found),
        *_part_checks(found, balance.window_s),
        Check(
            "so different",
            chance_text(chance),
            f"≤ {limits.CONVOY_CHANCE:g}",
            at_most(chance, limits.CONVOY_CHANCE),
            "by chance: how likely random routing makes the two spreads differ so",
        ),
        _size(balance.swing, limits.CONVOY_RMS),
        _looks_apart(balance, limits.LOOKS_APART_S),
        _mutual(balance.swing),
    )


def _looks_apart(balance: Balance, limit_s: float | None) -> Check:
    apart_ms = balance.looks_apart_ms
    return Check(
        "looks apart",
        text(apart_ms, ".0f", " ms"),
        "" if limit_s is None else f"≤ {1000 * limit_s:.0f} ms",
        None if limit_s is None or apart_ms is None else apart_ms <= 1000 * limit_s,
        "between the looks at the backends: further apart, a common rise looks like a swing",
    )


def _full_checks(found: Convoys | None) -> tuple[Check, ...]:
    times, spread = (None, None) if found is None else (found.full_times, found.full_spread)
    return (
        Check(
            "all there",
            text(times, "d"),
            f"≥ {limits.CONVOY_TIMES}",
            at_least(times, limits.CONVOY_TIMES),
            "separate times with nearly all requests at the backends"
            if found
            else "their number does not come and go: then there is nothing to compare",
        ),
        Check(
            "spread then",
            text(spread, ".2f", " ×"),
            f"≤ {limits.CONVOY_FULL:g} ×",
            None if found is None else limits.splits_evenly(found),
            f"of the split, over coin tosses; or {limits.MANY_RATIO:g} times less than with half of them",
        ),
    )


def _part_checks(found: Convoys | None, window_s: float) -> tuple[Check, ...]:
    times, spread = (None, None) if found is None else (found.part_times, found.part_spread)
    share, chance = (None, None) if found is None else (100 * found.part_share, found.part_chance)
    leads, since = (None, None) if found is None else (found.least_leads, found.since_part_s)
    latest = limits.CONVOY_SINCE * window_s
    return (
        Check(
            "half there",
            text(times, "d"),
            f"≥ {limits.CONVOY_TIMES}",
            at_least(times, limits.CONVOY_TIMES),
            "separate times with about half of them",
        ),
        Check(
            "of the time",
            text(share, ".0f", " %"),
            f"≥ {100 * limits.CONVOY_SHARE:g} %",
            at_least(share, 100 * limits.CONVOY_SHARE),
            "so long about half of them are there",
        ),
        Check(
            "spread then",
            text(spread, ".1f", " ×"),
            f"≥ {limits.CONVOY_PART:g} ×",
            at_least(spread, limits.CONVOY_PART),
            "one backend has nearly all that is there",
        ),
        Check(
            "by chance",
            chance_text(chance),
            f"≤ {limits.CONVOY_PART_CHANCE:g}",
            at_most(chance, limits.CONVOY_PART_CHANCE),
            "how likely coin tosses lie so far apart at those times",
        ),
        Check(
            "of another",
            text(leads, "d"),
            f"≥ {limits.CONVOY_LEADS}",
            at_least(leads, limits.CONVOY_LEADS),
            "times that a second one had most: it is not always the same",
        ),
        Check(
            "last seen",
            UNKNOWN if since is None else short_seconds(since),
            f"≤ {latest:.0f} s",
            at_most(since, latest),
            "ago: what was seen only before is over",
        ),
    )


def arrivals_checks(balance: Balance) -> tuple[Check, ...]:
    """Return the figures of requests that are sent in herds."""
    found, least = balance.arrivals, limits.least_herd_spread(balance.convoys)
    spread, chance = (None, None) if found is None else (found.spread, found.chance)
    herds, leads = (None, None) if found is None else (found.herds, found.least_herds)
    return (
        Check(
            "requests came",
            text(None if found is None else found.requests, "d"),
            "",
            None,
            "the backends do not count them, or too few came"
            if found is None
            else f"in {found.pieces} pieces of {short_seconds(found.piece_s)}: half a life of a request",
        ),
        Check(
            "spread",
            text(spread, ".1f", " ×"),
            f"≥ {least:g} ×",
            at_least(spread, least),
            "of who got how many in a piece, over coin tosses; the servers' pace does not matter",
        ),
        Check(
            "by chance",
            chance_text(chance),
            f"≤ {limits.HERD_CHANCE:.0e}".replace("e-0", "e-"),
            at_most(chance, limits.HERD_CHANCE),
            "how likely random routing deals them so",
        ),
        Check(
            "herds",
            text(herds, "d"),
            f"≥ {limits.HERDS}",
            at_least(herds, limits.HERDS),
            "pieces of which one backend got far more than its part",
        ),
        Check(
            "of another",
            text(leads, "d"),
            f"≥ {limits.HERD_LEADS}",
            at_least(leads, limits.HERD_LEADS),
            "herds of a second one: it is not always the same",
        ),
        _size(balance.swing, limits.HERD_RMS),
        _moving(balance),
        _mutual(balance.swing),
    )


def _moving(balance: Balance) -> Check:
    z, factor, swing = balance.dispersion_z, balance.variance_factor, balance.swing
    moving = None if z is None or factor is None or swing is None else z * factor * swing.moving_share
    return Check(
        "moving spread",
        text(moving, ".1f"),
        f"≥ {limits.RHYTHM_Z:g}",
        at_least(moving, limits.RHYTHM_Z),
        "the part that moves, over what coin tosses give",
    )


def _period(swing: Swing) -> tuple[Check, ...]:
    return (
        Check(
            "period",
            UNKNOWN if swing.period_s is None else short_seconds(swing.period_s),
            "",
            None,
            f"{text(swing.cycles, '.1f')} of them in the window",
        ),
        Check(
            "in that rhythm",
            text(None if swing.variance_share is None else 100 * swing.variance_share, ".0f", " %"),
            "",
            None,
            "of the variance; by slow drift alone as much has a chance of "
            f"{chance_text(swing.chance)} at most",
        ),
    )
