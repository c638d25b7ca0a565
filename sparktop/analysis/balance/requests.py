"""Tests how requests are split over backends: nearly all at one, by known weights, or at a steady ratio.

Sampled loads only show the requests that run at the moment of a poll; counters include all requests. The
number of requests that each backend received is compared with random routing, under which it has a
binomial distribution.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.balance import Balance, BalanceWord

FEWEST_REQUESTS = 40
"""With fewer requests a share is not meaningful."""
CHANCE_LIMIT = 1e-6
"""Largest probability under random routing that counts as uneven; so low because windows overlap and are
many."""
ODDS_LIMIT = 3.0
"""Smallest multiple of the odds of an even split that counts as uneven: 75 % of the requests with two
backends, 50 % with four."""
_LOADED = 1.2
"""Smallest multiple of its share of the load: with less load, the backend merely finishes its requests
faster."""
_FULL_PERCENT, _FULL_WINDOW = 90.0, 0.97
_FIRST = 2
"""Position, counted from 1, of the sentence on requests among the reasons, if there are as many."""


class RequestShares(Struct, frozen=True):
    """How the requests in a time window were distributed over a group's backends, and whether by chance."""

    requests: int
    counts: Mapping[str, int]
    shares: Mapping[str, float]
    """0 to 1, by backend."""
    most: str
    """The backend with most requests relative to its fair share."""
    fair: float
    """Fair share of the backend `most`, 0 to 1."""
    chance: float
    """Probability, 0 to 1, that random routing gives any backend as many requests as `most` got."""

    @property
    def odds(self) -> float:
        """Ratio of the odds that a request goes to the backend `most` to these odds under a fair split.

        Infinite if `most` got all requests.
        """
        share = self.shares[self.most]
        if share >= 1:
            return math.inf
        return share / (1 - share) * (1 - self.fair) / self.fair

    @property
    def uneven(self) -> bool:
        """Whether the backends' shares of the requests are far from even, and significantly so."""
        enough = self.requests >= FEWEST_REQUESTS
        return enough and self.chance <= CHANCE_LIMIT and self.odds >= ODDS_LIMIT

    @property
    def sentence(self) -> str:
        """A sentence on the backend `most`: its part of the requests, their number, and its fair part."""
        return (
            f"{self.most} got {100 * self.shares[self.most]:.0f} % of the requests "
            f"({self.counts[self.most]} of {self.requests}; its share is {100 * self.fair:.0f} %)"
        )


def request_shares(
    counts: Mapping[str, float], weights: Mapping[str, float] | None = None
) -> RequestShares | None:
    """Return how the requests of `counts` (number by backend) are distributed, compared with random routing.

    None with fewer than two backends or without a request. `weights` are the relative parts that the
    backends should get; equal if None.
    """
    whole = {name: max(0, round(count)) for name, count in counts.items()}
    total = sum(whole.values())
    if len(whole) < 2 or total == 0:  # noqa: PLR2004 - a share is of several
        return None
    parts = weights or dict.fromkeys(whole, 1.0)
    fair = {name: parts[name] / sum(parts[one] for one in whole) for name in whole}
    shares = {name: count / total for name, count in whole.items()}
    most = max(whole, key=lambda name: shares[name] / fair[name])
    # Any of the backends might have had most: Bonferroni.
    chance = min(1.0, len(whole) * binomial_tail(whole[most], total, fair[most]))
    return RequestShares(total, whole, shares, most, fair[most], chance)


def binomial_tail(least: int, trials: int, probability: float) -> float:
    """Return the probability of at least `least` successes in `trials` independent trials.

    Return 1, which is too high, if `least` is not above the mean. Above the mean the terms of the sum fall
    faster than a geometric series, so few of them are computed.
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
    """Return `balance` with the requests per backend added; its verdict may become "uneven".

    The verdict changes only if requests are unevenly distributed, a router is known, the group is not
    idle, and the backend with most requests also has more load (if not, it is faster or its requests are
    shorter). A bad verdict stays. A full time window is needed, unless `all_told` is True: then the counts
    are complete however short the time is, as in a level of a sweep.
    """
    if found is None:
        return balance
    updated = replace(
        balance,
        requests=found.requests,
        requests_share=found.shares,
        requests_chance=found.chance,
    )
    if not found.uneven or balance.router is None:
        return updated
    word, said = balance.word_now, found.sentence
    reasons = (*balance.reasons[: _FIRST - 1], said, *balance.reasons[_FIRST - 1 :])
    if word in {BalanceWord.OSCILLATING, BalanceWord.STARVED, BalanceWord.UNEVEN}:
        return replace(updated, reasons=reasons)
    if word is BalanceWord.IDLE or not (all_told or _is_full_window(balance)):
        return replace(updated, reasons=(*balance.reasons, said))
    load, total = balance.mean_load.get(found.most), balance.mean_total
    if load is None or total is None or load < _LOADED * found.fair * total:
        return replace(updated, reasons=(*balance.reasons, f"{said}, and is done with them sooner"))
    doubt = balance.reasons if balance.is_slow else () if word is BalanceWord.UNKNOWN else balance.reasons[1:]
    return replace(
        updated,
        word=BalanceWord.UNEVEN,
        word_now=BalanceWord.UNEVEN,
        confidence=(balance.samples_percent or 0.0) / 100 * (1 - 0.5 * ODDS_LIMIT / found.odds),
        reasons=(said, *doubt),
    )


def _is_full_window(balance: Balance) -> bool:
    """Return whether enough time was observed and few samples are missing.

    Where this holds, a verdict of "unknown" can only be due to low load.
    """
    full = balance.window_s >= _FULL_WINDOW * balance.needed_s
    return full and (balance.samples_percent or 0.0) >= _FULL_PERCENT


PIECES = 8
"""Pieces of a time window whose ratios are compared."""
MEANT_S = 600.0
"""A ratio that has stayed the same for this long seems to be meant."""
_UNEQUAL_CHANCE = 1e-3
"""Largest probability that an even split has such counts: else they are equal within chance."""
_STEADY_SIGMAS = 2.3
"""Standard deviations by which a steady ratio may vary more than by chance: 1 % of them do."""


def is_steady(pieces: Sequence[Mapping[str, float]]) -> bool:
    """Return whether all backends get requests at one ratio, by the counts of successive pieces of time.

    χ² of homogeneity over the pieces, against chance. Herds, turns and cooldowns change the ratio from piece
    to piece. False with too few requests.
    """
    names = list(pieces[0]) if pieces else []
    totals = {name: sum(piece.get(name, 0.0) for piece in pieces) for name in names}
    whole = sum(totals.values())
    used = [piece for piece in pieces if sum(piece.values()) > 0]
    if len(names) < 2 or whole < FEWEST_REQUESTS or len(used) < PIECES // 2 or min(totals.values()) < 1:  # noqa: PLR2004 - a ratio is of two
        return False
    chi2 = 0.0
    for piece in used:
        here = sum(piece.values())
        for name in names:
            expected = here * totals[name] / whole
            chi2 += (piece.get(name, 0.0) - expected) ** 2 / expected
    freedom = (len(used) - 1) * (len(names) - 1)
    return chi2 <= freedom + _STEADY_SIGMAS * math.sqrt(2 * freedom)


def are_unequal(counts: Mapping[str, float]) -> bool:
    """Return whether the counts of requests by backend differ by more than chance would have it."""
    whole, count = sum(counts.values()), len(counts)
    if count < 2 or whole < FEWEST_REQUESTS:  # noqa: PLR2004 - a ratio is of two
        return False
    fair = whole / count
    chi2 = sum((one - fair) ** 2 for one in counts.values()) / fair
    # Wilson and Hilferty: the cube root of χ² is nearly normal.
    freedom = count - 1
    sigmas = ((chi2 / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return math.erfc(sigmas / math.sqrt(2)) / 2 <= _UNEQUAL_CHANCE


def ratio(parts: Mapping[str, float]) -> str:
    """Return parts as a ratio in their order: "3 : 1"; of more than four, the largest and the smallest."""
    values = list(parts.values())
    least = min(value for value in values if value > 0)
    chosen = values if len(values) <= 4 else [max(values), min(values)]  # noqa: PLR2004 - one line
    said = " : ".join(f"{value / least:.1f}".removesuffix(".0") for value in chosen)
    return said if len(values) == len(chosen) else f"{said} at most"
