"""Who got how many requests: a router that sends nearly all to one is named even when loads look smooth.

Loads only show what is in work at the moment of a look. Counters miss nothing: the number that each backend
took is held against random routing, under which it has a binomial distribution.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sparktop.model.balance import Balance, BalanceWord

FEWEST_REQUESTS = 40
"""Below that a share says nothing."""
CHANCE_LIMIT = 1e-6
"""Windows overlap and are many: what chance does once in a million is no chance."""
ODDS_LIMIT = 3.0
"""Times the odds of an even split: 75 % of two backends, 50 % of four."""
_LOADED = 1.2
"""Times its share: with less load than that the backend is only done sooner with what it gets."""
_FULL_PERCENT, _FULL_WINDOW = 90.0, 0.97
_FIRST = 2
"""Reasons before which the sentence on requests stands at the latest."""


@dataclass(frozen=True, slots=True)
class RequestShares:
    """How a window's requests fell on the backends of a group."""

    requests: int
    counts: Mapping[str, int]
    shares: Mapping[str, float]
    """0 to 1, by backend."""
    most: str
    """The backend with most beyond its fair share."""
    fair: float
    """What it should get, 0 to 1."""
    chance: float
    """How likely random routing gives any backend as many as this one got; at most 1."""

    @property
    def odds(self) -> float:
        """Its odds over those of an even split."""
        share = self.shares[self.most]
        if share >= 1:
            return math.inf
        return share / (1 - share) * (1 - self.fair) / self.fair

    @property
    def uneven(self) -> bool:
        """True where they are far from even, and chance hardly ever gets there."""
        enough = self.requests >= FEWEST_REQUESTS
        return enough and self.chance <= CHANCE_LIMIT and self.odds >= ODDS_LIMIT

    @property
    def sentence(self) -> str:
        """Say it so that a person can count it up."""
        return (
            f"{self.most} got {100 * self.shares[self.most]:.0f} % of the requests "
            f"({self.counts[self.most]} of {self.requests}; its share is {100 * self.fair:.0f} %)"
        )


def request_shares(
    counts: Mapping[str, float], weights: Mapping[str, float] | None = None
) -> RequestShares | None:
    """Weigh the requests that each backend took; None without two backends or without a request.

    `weights` are the parts that they should get, relatively; all alike without.
    """
    whole = {name: max(0, round(count)) for name, count in counts.items()}
    total = sum(whole.values())
    if len(whole) < 2 or total == 0:  # noqa: PLR2004 - a share is of several
        return None
    parts = weights or dict.fromkeys(whole, 1.0)
    fair = {name: parts[name] / sum(parts[one] for one in whole) for name in whole}
    shares = {name: count / total for name, count in whole.items()}
    most = max(whole, key=lambda name: shares[name] / fair[name])
    # Any of them might have been the one: Bonferroni.
    chance = min(1.0, len(whole) * binomial_tail(whole[most], total, fair[most]))
    return RequestShares(total, whole, shares, most, fair[most], chance)


def binomial_tail(least: int, trials: int, probability: float) -> float:
    """Give the probability of `least` or more successes; 1 where that many are expected anyway.

    Beyond the mean the terms fall faster than a geometric row, so few of them are needed.
    """
    if least <= trials * probability:
        return 1.0
    odds = probability / (1 - probability)
    log_term = (
        math.lgamma(trials + 1)
        - math.lgamma(least + 1)
        - math.lgamma(trials - least + 1)
        + least * math.log(probability)
        + (trials - least) * math.log1p(-probability)
    )
    term = total = 1.0
    for count in range(least, trials):
        term *= (trials - count) / (count + 1) * odds
        total += term
        if term < 1e-12 * total:
            break
    return min(1.0, math.exp(log_term + math.log(total)))


def weigh_requests(balance: Balance, found: RequestShares | None, *, all_told: bool = False) -> Balance:
    """Add to a judgement who got how many requests; where the loads said nothing bad, it may become uneven.

    `all_told`: the counts are of everything there was, however short (a level of a sweep), and need no full
    window. Not without a known router, nor where the group is idle (ties that go to the first harm nobody),
    nor where the backend that takes most has no more load than the others: it is quicker, or its requests
    are shorter.
    """
    if found is None:
        return balance
    told = replace(
        balance,
        requests=found.requests,
        requests_share=found.shares,
        requests_chance=found.chance,
    )
    if not found.uneven or balance.router is None:
        return told
    word, said = balance.word_now, found.sentence
    reasons = (*balance.reasons[: _FIRST - 1], said, *balance.reasons[_FIRST - 1 :])
    if word in {BalanceWord.OSCILLATING, BalanceWord.STARVED, BalanceWord.UNEVEN}:
        return replace(told, reasons=reasons)
    if word is BalanceWord.IDLE or not (all_told or _whole(balance)):
        return replace(told, reasons=(*balance.reasons, said))
    load, total = balance.mean_load.get(found.most), balance.mean_total
    if load is None or total is None or load < _LOADED * found.fair * total:
        return replace(told, reasons=(*balance.reasons, f"{said}, and is done with them sooner"))
    return replace(
        told,
        word=BalanceWord.UNEVEN,
        word_now=BalanceWord.UNEVEN,
        confidence=(balance.samples_percent or 0.0) / 100 * (1 - 0.5 * ODDS_LIMIT / found.odds),
        reasons=(said, *(() if word is BalanceWord.UNKNOWN else balance.reasons[1:])),
    )


def _whole(balance: Balance) -> bool:
    """Say whether the window is full and has no gaps: then "unknown" only means that loads are small."""
    full = balance.window_s >= _FULL_WINDOW * balance.needed_s
    return full and (balance.samples_percent or 0.0) >= _FULL_PERCENT
