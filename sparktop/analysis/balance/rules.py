"""The rules behind a group's verdict as data. A rule is a list of checks, and is met if all checks are met.

The judgement evaluates these rules, and the screen, the JSON and the reports print the same checks. Each
function returns a rule whose checks contain the measured values of a `Balance`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sparktop.analysis.balance import limits
from sparktop.analysis.balance.check import Check, Rule, time_with_load
from sparktop.analysis.balance.dispersion import fewest_requests
from sparktop.analysis.balance.request_shares import CHANCE_LIMIT, FEWEST_REQUESTS, ODDS_LIMIT
from sparktop.analysis.balance.swings import WAYS_TO_SWING
from sparktop.model.balance import Balance, BalanceWord

_NAMED = 4
"""Most backends that are named in a sentence."""


def enough(balance: Balance) -> Rule:
    """Return the rule that the measurements suffice for a verdict: enough time, few gaps, enough load."""
    count = max(limits.PAIR, len(balance.backends))
    needed_s = balance.needed_s or limits.SHORTEST_S
    # The last sample may be due any moment: the time up to it counts.
    whole = balance.sample_hz is not None and balance.window_s >= needed_s - 1 / balance.sample_hz
    return Rule(
        "enough",
        (
            Check(
                "time observed",
                max(balance.window_s, needed_s) if whole else balance.window_s,
                needed_s,
                "s",
                meaning="eight lives of a request, 45 s at least: a swing lasts about two",
            ),
            Check(
                "samples there",
                balance.samples_percent,
                100 * limits.PRESENT_SHARE,
                "%",
                meaning="of the backend that has fewest; what is missing is never filled in",
            ),
            _load_or_plain(balance),
            Check(
                "requests",
                balance.mean_total,
                digits=1,
                meaning=f"in the group on average; with fewer than {fewest_requests(count)} "
                "only what is very clear is believed",
            ),
            Check("life of a request", balance.e2e_s, unit="life", meaning=_lengths(balance)),
        ),
    )


def _load_or_plain(balance: Balance) -> Check:
    """Return the check of the time with enough requests, or of what makes a verdict plain with fewer."""
    check = time_with_load(balance)
    if check.holds or balance.word_now in {BalanceWord.UNKNOWN, BalanceWord.IDLE}:
        return check
    even = balance.even_percent
    if even is not None and even >= 100 * limits.EVEN_SHARE:
        meaning = f"or loads that differ by one request at most: {even:.0f} % of the time"
    elif BalanceWord.OSCILLATING in {balance.word_now, *balance.also}:
        meaning = "or a swing so clear that it needs no more requests"
    else:
        meaning = "or counts of the requests themselves: they need no load"
    return replace(check, meaning=f"{check.meaning}, {meaning}", either=True)


def _lengths(balance: Balance) -> str:
    variation = balance.length_variation
    if variation is None:
        return "the median; how much the lengths of answers differ is not known"
    return f"the median; the lengths of answers vary by {100 * variation:.0f} %"


def starved(balance: Balance) -> Rule:
    """Return the rule behind "starved": a backend too often has next to no work, which costs throughput."""
    return _starved(balance, balance.starved_any_percent)


def drained(balance: Balance) -> Rule:
    """Return the rule behind "starved", changed to count also backends that get no new requests at all.

    Such a backend is drained, or not in the router yet.
    """
    return _starved(balance, balance.empty_any_percent)


def _starved(balance: Balance, percent: float | None) -> Rule:
    shares, lost = balance.starved_percent, balance.lost_estimate_percent
    names = " · ".join(f"{name} {share:.0f} %" for name, share in list(shares.items())[:_NAMED]) or "–"
    more = f" · and {len(shares) - _NAMED} more" if len(shares) > _NAMED else ""
    return Rule(
        "starved",
        (
            Check(
                "nearly empty",
                percent,
                100 * limits.STARVED_SHARE,
                "%",
                meaning=f"of the time, while another had more than its share: {names}{more}",
            ),
            Check(
                "throughput lost",
                lost,
                100 * limits.STARVED_LOSS,
                "%",
                meaning="not known: the batches do not vary enough to measure how long a step takes"
                if lost is None
                else "against the same requests spread evenly"
                if balance.lost_percent is not None or balance.router is None
                else "against an even spread: an estimate that may be off by more than 3",
            ),
            Check(
                "spread Z",
                balance.dispersion_z,
                limits.STARVED_Z,
                "×",
                1,
                "with less, chance alone leaves one empty now and then",
            ),
            time_with_load(balance),
        ),
    )


def ahead(balance: Balance) -> Rule:
    """Return the rule behind "uneven": one backend's load is steadily above its even share."""
    skew = balance.skew
    return Rule(
        "ahead",
        (
            Check(
                "above share",
                None if skew is None else 100 * skew,
                100 * limits.SKEW,
                "%",
                meaning=f"more than its share on average: {balance.skew_backend or '–'}",
            ),
            Check(
                "steadiness",
                balance.steadiness,
                limits.STEADY,
                digits=1,
                meaning="that mean over how much it moves: a swing has a low one",
            ),
            Check(
                "lead changes",
                balance.lead_changes,
                limits.SKEW_CHANGES,
                meaning="who is always ahead is not overtaken",
                most=True,
            ),
            Check(
                "even",
                balance.even_percent,
                100 * limits.EVEN_SHARE,
                "%",
                meaning="of the time loads differ by no more than one request: at the limit they are even",
                most=True,
                slack=-1e-9,
            ),
            time_with_load(balance),
        ),
    )


def requests(balance: Balance) -> Rule:
    """Return the rule that one backend received far more requests than its share, by backends' counters."""
    shares, count = balance.requests_share, max(limits.PAIR, len(balance.backends))
    most = max(shares, key=lambda name: shares[name], default=None)
    failed = [f"{name} {number:.0f}" for name, number in balance.errors.items() if number]
    return Rule(
        "requests",
        (
            Check(
                "requests counted",
                balance.requests,
                FEWEST_REQUESTS,
                meaning="by the backends themselves, in this time",
            ),
            Check(
                "largest share",
                None if most is None else 100 * shares[most],
                # The share whose odds are `ODDS_LIMIT` times those of an even share.
                100 * ODDS_LIMIT / (ODDS_LIMIT + count - 1),
                "%",
                meaning=f"of them went to {most or '–'}",
            ),
            Check(
                "by chance",
                balance.requests_chance,
                CHANCE_LIMIT,
                "chance",
                meaning="probability that random routing sends one backend as many",
                most=True,
            ),
            Check(
                "failed",
                sum(balance.errors.values()) if balance.errors else None,
                meaning=f"requests: {' · '.join(failed[:_NAMED]) or 'none, or they are not counted'}",
            ),
        ),
    )


RULES: tuple[Callable[[Balance], Rule], ...] = (enough, *WAYS_TO_SWING, starved, ahead, requests)
