"""The questions behind a group's verdict: each with its figures, their limits and their meanings."""

from __future__ import annotations

from sparktop.analysis import balance_limits as limits
from sparktop.analysis.balance import SHORTEST_S
from sparktop.analysis.dispersion import fewest_requests
from sparktop.analysis.request_shares import CHANCE_LIMIT, FEWEST_REQUESTS, ODDS_LIMIT
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.balance import Balance, BalanceWord
from sparktop.panels.balance_checks import Check, Question, all_hold, at_least, chance_text, text
from sparktop.panels.balance_swings import (
    arrivals_checks,
    convoys_checks,
    lead_checks,
    rhythm_checks,
    turns_checks,
)
from sparktop.panels.balance_verdict import short_seconds


def questions(balance: Balance) -> list[Question]:
    """Return all questions in the order in which the analysis answers them."""
    said = {balance.word_now, *balance.also}
    judged = balance.word_now is not BalanceWord.UNKNOWN
    counted = judged and balance.arrivals is not None
    lead, rhythm, turns = lead_checks(balance), rhythm_checks(balance), turns_checks(balance)
    convoys, arrivals = convoys_checks(balance), arrivals_checks(balance)
    skewed, requests = _uneven(balance), _requests(balance)
    uneven = BalanceWord.UNEVEN in said
    # Without a known router the verdict "uneven" covers swings, too.
    swings = BalanceWord.OSCILLATING in said or (uneven and balance.router is None)
    alternate, unequal = all_hold(lead), all_hold(requests)
    # Five ways lead to "oscillating", two to "uneven". Where no way has figures here that meet their limits,
    # the answer is yes to turns, or to being always ahead: one way has led to the verdict.
    regular, coming, herded = all_hold(rhythm), all_hold(convoys), all_hold(arrivals)
    turning = swings and (
        all_hold(turns)
        or (BalanceWord.OSCILLATING in said and not (alternate or regular or coming or herded))
    )
    ahead = uneven and (all_hold(skewed) or (balance.router is not None and not unequal))
    answers = (
        ("Is there enough to tell?", judged, _enough(balance)),
        ("Does the lead change again and again?", swings and alternate if judged else None, lead),
        ("Is there one rhythm?", swings and regular if judged else None, rhythm),
        ("Do they fill and empty in turns?", turning if judged else None, turns),
        ("Do whole convoys come and go?", swings and coming if judged else None, convoys),
        ("Are requests sent in herds?", swings and herded if counted else None, arrivals),
        ("Is one starved?", BalanceWord.STARVED in said if judged else None, _starved(balance)),
        ("Is the same one always ahead?", ahead if judged else None, skewed),
        ("Did one get most of the requests?", None if balance.requests is None else unequal, requests),
    )
    return [Question(*answer) for answer in answers]


def _enough(balance: Balance) -> tuple[Check, ...]:
    count = max(limits.PAIR, len(balance.backends))
    needed = balance.needed_s or SHORTEST_S
    most = fewest_requests(count)
    present, total = balance.samples_percent, balance.mean_total
    return (
        Check(
            "time looked at",
            f"{balance.window_s:.0f} s",
            f"≥ {needed:.0f} s",
            balance.window_s >= 0.99 * needed - 1,
            "eight lives of a request, 45 s at least: a swing lasts about two",
        ),
        Check(
            "samples there",
            text(present, ".0f", " %"),
            f"≥ {100 * limits.PRESENT_SHARE:.0f} %",
            at_least(present, 100 * limits.PRESENT_SHARE),
            "of the backend that has fewest; what is missing is never filled in",
        ),
        Check(
            "requests",
            text(total, ".1f"),
            f"≥ {most}",
            at_least(total, most),
            "in the group on average; with fewer only what is very clear is believed",
        ),
        Check(
            "life of a request",
            UNKNOWN if balance.e2e_s is None else short_seconds(balance.e2e_s),
            "",
            None,
            _lengths(balance.length_variation),
        ),
    )


def _lengths(variation: float | None) -> str:
    if variation is None:
        return "the median; how much the lengths of answers differ is not known"
    return f"the median; the lengths of answers vary by {100 * variation:.0f} %"


def _starved(balance: Balance) -> tuple[Check, ...]:
    shares = balance.starved_percent
    worst, total = max(shares.values(), default=None), sum(shares.values())
    # The rule counts the time in which any backend starves: at least the worst share, at most the sum of all.
    holds = (
        None
        if worst is None
        else True
        if worst >= 100 * limits.STARVED_SHARE
        else False
        if total < 100 * limits.STARVED_SHARE
        else None
    )
    names = " · ".join(f"{name} {share:.0f} %" for name, share in list(shares.items())[:4])
    more = f" · and {len(shares) - 4} more" if len(shares) > 4 else ""
    lost = balance.lost_percent
    return (
        Check(
            "starved",
            text(worst, ".0f", " %"),
            f"≥ {100 * limits.STARVED_SHARE:.0f} %",
            holds,
            f"of the time next to nothing to do while another had too much: {names or UNKNOWN}{more}",
        ),
        Check(
            "lost",
            text(lost, ".0f", " %"),
            f"≥ {100 * limits.STARVED_LOSS:.0f} %",
            at_least(lost, 100 * limits.STARVED_LOSS),
            "of throughput, against the same requests spread evenly"
            if lost is not None
            else "not known: the batches do not vary enough to tell how long a step takes",
        ),
        Check(
            "spread Z",
            text(balance.dispersion_z, ".1f", " ×"),
            f"≥ {limits.STARVED_Z:g} ×",
            at_least(balance.dispersion_z, limits.STARVED_Z),
            "with less, chance alone leaves one empty now and then",
        ),
    )


def _uneven(balance: Balance) -> tuple[Check, ...]:
    skew = balance.skew
    changes = balance.lead_changes
    return (
        Check(
            "skew",
            text(None if skew is None else 100 * skew, ".0f", " %"),
            f"≥ {100 * limits.SKEW:.0f} %",
            at_least(skew, limits.SKEW),
            f"more than its share on average: {balance.skew_backend or UNKNOWN}",
        ),
        Check(
            "steadiness",
            text(balance.steadiness, ".1f"),
            f"≥ {limits.STEADY:g}",
            at_least(balance.steadiness, limits.STEADY),
            "that mean over how much it moves: a swing has a low one",
        ),
        Check(
            "lead changes",
            text(changes, "d"),
            f"≤ {limits.SKEW_CHANGES}",
            None if changes is None else changes <= limits.SKEW_CHANGES,
            "who is always ahead is not overtaken",
        ),
    )


def _requests(balance: Balance) -> tuple[Check, ...]:
    shares, count = balance.requests_share, max(limits.PAIR, len(balance.backends))
    most = max(shares, key=lambda name: shares[name], default=None)
    share = None if most is None else 100 * shares[most]
    # The share whose odds are `ODDS_LIMIT` times those of an even share.
    least = 100 * ODDS_LIMIT / (ODDS_LIMIT + count - 1)
    chance = balance.requests_chance
    failed = [f"{name} {number:.0f}" for name, number in balance.errors.items() if number]
    return (
        Check(
            "requests counted",
            text(balance.requests, "d"),
            f"≥ {FEWEST_REQUESTS}",
            at_least(balance.requests, FEWEST_REQUESTS),
            "by the backends themselves, in this time",
        ),
        Check(
            "most",
            text(share, ".0f", " %"),
            f"≥ {least:.0f} %",
            at_least(share, least),
            f"of them went to {most or UNKNOWN}",
        ),
        Check(
            "by chance",
            UNKNOWN if chance is None else chance_text(chance),
            f"≤ {CHANCE_LIMIT:.0e}".replace("e-0", "e-"),
            None if chance is None else chance <= CHANCE_LIMIT,
            "how likely random routing gives one as many",
        ),
        Check(
            "failed",
            text(sum(balance.errors.values()) if balance.errors else None, ".0f"),
            "",
            None,
            f"requests: {' · '.join(failed[:4]) or 'none, or nobody counts them'}",
        ),
    )
