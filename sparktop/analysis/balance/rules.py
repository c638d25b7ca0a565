"""The checks behind a group's verdict: each has a question, a figure with its limit, and its rule.

The judgement evaluates them, and the screen, the JSON and the reports print the same checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sparktop.analysis.balance.spread import fewest_requests
from sparktop.model.balance import Arrivals, Balance, BalanceWord, Convoys, Swing
from sparktop.model.text import short_seconds

# Names that end in `_Z` and `_SPREAD` are ratios of a measured spread to that of random routing; `_RMS` is
# the size of a swing relative to an even share, `_CHANCE` a probability, `_S` seconds. `COMING_` limits
# apply where the group's requests come and go together, `FAILING_` where a pair of backends fails
# repeatedly.


PAIR = 2
SHORTEST_S = 45.0
"""With samples of fewer seconds than this there is no verdict."""
LIFETIMES = 8
"""Length of a full window, in durations of a request: a swing lasts about two."""
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
"""Smallest size of a rhythm, spread of the loads, and difference of the autocorrelation between a whole and
half a period."""
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
"""Smallest excess over the even share, in shares; smallest mean of it over its standard deviation; and most
changes of the lead of a steady skew."""
MANY, MANY_S = 128, 300.0
"""With this many requests random routing drifts so slowly that a skew must last longer to count."""
RANDOM_Z = (0.3, 3.0)
"""Spread up to which loads are even, and from which on they are wider than chance."""
FAR_Z = 16.0
"""Spread of the loads, in that of random routing, from which on a skew is none of its drifts: each load is
four standard deviations away."""
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


# Tests how requests are split over backends: nearly all at one, by known weights, or at a steady ratio.
#
# Sampled loads only show the requests that run at the moment of a poll; counters include all requests. The
# number of requests that each backend received is compared with random routing, under which it has a
# binomial distribution.


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
"""Percentage of the samples and share of the needed time from which on a window is complete."""


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

    def sentence(self, window_s: float) -> str:
        """Return what the backend `most` got of the requests of `window_s` seconds, and its fair part."""
        return (
            f"{self.most} got {100 * self.shares[self.most]:.0f} % of the requests of {window_s:.0f} s "
            f"({self.counts[self.most]:,} of {self.requests:,}; its fair share: {100 * self.fair:.0f} %)"
        )


def request_shares(
    counts: Mapping[str, float], weights: Mapping[str, float] | None = None
) -> RequestShares | None:
    """Return how the requests of `counts` (number by backend) are distributed, compared with random routing.

    None with fewer than two backends or without a request. `weights` are the relative parts that the
    backends should get; equal if None.
    """
    requests = {name: max(0, round(count)) for name, count in counts.items()}
    total = sum(requests.values())
    if len(requests) < 2 or total == 0:  # noqa: PLR2004 - a share is of several
        return None
    parts = weights or dict.fromkeys(requests, 1.0)
    fair = {name: parts[name] / sum(parts[other] for other in requests) for name in requests}
    shares = {name: count / total for name, count in requests.items()}
    busiest = max(requests, key=lambda name: shares[name] / fair[name])
    # Any of the backends might have had most: Bonferroni.
    chance = min(1.0, len(requests) * binomial_tail(requests[busiest], total, fair[busiest]))
    return RequestShares(total, requests, shares, busiest, fair[busiest], chance)


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


def weigh_requests(balance: Balance, shares: RequestShares | None, *, all_told: bool = False) -> Balance:
    """Return `balance` with the requests per backend added; its verdict may become "uneven".

    The verdict changes only if requests are unevenly distributed, a router is known, the group is not
    idle, and the backend with most requests also has more load (if not, it is faster or its requests are
    shorter). A bad verdict stays. A full time window is needed, unless `all_told` is True: then the counts
    are complete however short the time is, as in a level of a sweep.
    """
    if shares is None:
        return balance
    updated = replace(
        balance,
        requests=shares.requests,
        requests_share=shares.shares,
        requests_chance=shares.chance,
    )
    if not shares.uneven or balance.router is None:
        return updated
    word, sentence = balance.word_now, shares.sentence(balance.window_s)
    reasons = (*balance.reasons[:1], sentence, *balance.reasons[1:])
    if word in {BalanceWord.OSCILLATING, BalanceWord.STARVED, BalanceWord.UNEVEN}:
        return replace(updated, reasons=reasons)
    if word is BalanceWord.IDLE or not (all_told or is_full_window(balance)):
        return replace(updated, reasons=(*balance.reasons, sentence))
    load, total = balance.mean_load.get(shares.most), balance.mean_total
    if load is None or total is None or load < _LOADED * shares.fair * total:
        return replace(updated, reasons=(*balance.reasons, f"{sentence}, and is done with them sooner"))
    doubt = balance.reasons[1:]
    if balance.is_slow:
        doubt = balance.reasons
    elif word is BalanceWord.UNKNOWN:
        doubt = ()
    return replace(
        updated,
        word=BalanceWord.UNEVEN,
        word_now=BalanceWord.UNEVEN,
        confidence=(balance.samples_percent or 0.0) / 100 * (1 - 0.5 * ODDS_LIMIT / shares.odds),
        reasons=(sentence, *doubt),
    )


def is_full_window(balance: Balance) -> bool:
    """Return whether enough time was observed and few samples are missing.

    Where this holds, a verdict of "unknown" is due to low load, or to a skew that is not steady.
    """
    full = balance.window_s >= _FULL_WINDOW * balance.needed_s
    return full and (balance.samples_percent or 0.0) >= _FULL_PERCENT


def lacks_load(balance: Balance) -> bool:
    """Return whether a group has nothing to split: on average less than one request for each backend."""
    return (balance.mean_total or 0.0) < len(balance.backends)


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
    total = sum(totals.values())
    used = [piece for piece in pieces if sum(piece.values()) > 0]
    if len(names) < 2 or total < FEWEST_REQUESTS or len(used) < PIECES // 2 or min(totals.values()) < 1:  # noqa: PLR2004 - a ratio is of two
        return False
    chi2 = 0.0
    for piece in used:
        piece_total = sum(piece.values())
        for name in names:
            expected = piece_total * totals[name] / total
            chi2 += (piece.get(name, 0.0) - expected) ** 2 / expected
    freedom = (len(used) - 1) * (len(names) - 1)
    return chi2 <= freedom + _STEADY_SIGMAS * math.sqrt(2 * freedom)


def are_unequal(counts: Mapping[str, float]) -> bool:
    """Return whether the counts of requests by backend differ by more than chance would have it."""
    total, count = sum(counts.values()), len(counts)
    if count < 2 or total < FEWEST_REQUESTS:  # noqa: PLR2004 - a ratio is of two
        return False
    fair = total / count
    chi2 = sum((requests - fair) ** 2 for requests in counts.values()) / fair
    # Wilson and Hilferty: the cube root of χ² is nearly normal.
    freedom = count - 1
    sigmas = ((chi2 / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return math.erfc(sigmas / math.sqrt(2)) / 2 <= _UNEQUAL_CHANCE


def ratio_text(parts: Mapping[str, float]) -> str:
    """Return parts as a ratio in their order: "3 : 1"; of more than four, the largest and the smallest."""
    values = list(parts.values())
    least = min(value for value in values if value > 0)
    chosen = values if len(values) <= 4 else [max(values), min(values)]  # noqa: PLR2004 - one line
    ratio = " : ".join(f"{value / least:.1f}".removesuffix(".0") for value in chosen)
    return ratio if len(values) == len(chosen) else f"{ratio} at most"


# The checks of each rule: a function a rule, named by the rule's code.


_MOST = 4
"""Most backends that are named in a sentence."""
_UNCOUNTED = "not every backend counts all its requests"


class RuleCheck(Struct, frozen=True):
    """A question about the balance of a group, and the figure that answers it."""

    code: str
    """Name of the rule. A rule holds if all checks with its code hold."""
    question: str
    name: str
    """Name of the figure."""
    value: float | None
    limit: float
    """Lowest value with which the answer is yes."""
    rule: str
    """What the figure is and why it decides, as one sentence."""
    unit: str = ""
    """"%", "×", "s" or "" for a plain number."""
    digits: int = 0
    """Decimals of the value."""
    but: str = ""
    """The first condition beside the limit that is not met, in words; "" if all are."""
    instead: str = ""
    """What is known in place of a figure that misses its limit, in words; "" for nothing."""
    error: float | None = None
    """By how much the value may be off, where that is to be shown."""
    is_rare: bool = False
    """Whether `but` is that it was seen too few times: more of them may decide it."""
    shown: str = ""
    """What the figure is of, where the screen needs another word than data, which keep `name`."""

    @property
    def within(self) -> bool | None:
        """Whether the figure reaches its limit; None if it is unknown."""
        return None if self.value is None else self.value >= self.limit

    @property
    def beyond(self) -> float:
        """The figure as a multiple of its limit; beyond a limit of 0 its excess plus 1."""
        value = self.value or 0.0
        return value / self.limit if self.limit > 0 else 1 + value - self.limit

    @property
    def unsure(self) -> str:
        """The interval of a figure whose error reaches across its limit: "may be −11 to 47 %"; else ""."""
        if self.value is None or self.error is None or abs(self.value - self.limit) > self.error:
            return ""
        ends = (
            f"{0.0 + round(self.value + side * self.error, self.digits):.{self.digits}f}" for side in (-1, 1)
        )
        return f"may be {' to '.join(ends)} {self.unit}".rstrip().replace("-", "−")

    @property
    def holds(self) -> bool:
        """Whether the answer is yes; an unknown figure is no evidence."""
        return bool(self.within or (self.value is not None and self.instead)) and not self.but


def checks(balance: Balance) -> list[RuleCheck]:
    """Return all checks of a group, always in the same order."""
    return [check for rule in RULES for check in rule(balance)]


def rule_holds(rule: Callable[[Balance], tuple[RuleCheck, ...]], balance: Balance) -> bool:
    """Return whether all checks of a rule hold."""
    return all(check.holds for check in rule(balance))


def _first_unmet(*conditions: tuple[bool, str]) -> str:
    return next((words for met, words in conditions if not met), "")


_CLEAR = {BalanceWord.BALANCED: "loads that differ by one request at most are even, however few they are"}
"""Why a verdict needs no more requests."""


def enough_checks(balance: Balance) -> tuple[RuleCheck, ...]:
    """Return the checks that the measurements suffice for a verdict: enough time, few gaps, enough load."""
    needed_s = balance.needed_s or SHORTEST_S
    # The last sample may be due any moment: the time up to it counts.
    is_full_window = balance.sample_hz is not None and balance.window_s >= needed_s - 1 / balance.sample_hz
    least = fewest_requests(max(PAIR, len(balance.backends)))
    judged = balance.word_now not in {BalanceWord.UNKNOWN, BalanceWord.IDLE}
    observed_s = max(balance.window_s, needed_s) if is_full_window else balance.window_s
    is_compared = balance.sample_hz is not None
    return (
        RuleCheck(
            "enough",
            "Was it watched long enough?",
            "time observed",
            observed_s if is_compared else None,
            needed_s,
            "needed: 8 × the median E2E, as a swing lasts about two of them, and at least 45 s; then two "
            "judgements must agree",
            "s",
            but="" if is_compared else next(iter(balance.reasons), ""),
            shown="time without interruption",
        ),
        RuleCheck(
            "enough",
            "Are the polls complete?",
            "samples there",
            balance.samples_percent,
            100 * PRESENT_SHARE,
            "on the backend with the most gaps; gaps are not filled in",
            "%",
            shown="polls answered",
        ),
        RuleCheck(
            "enough",
            "Is there enough load?",
            "time with load",
            balance.loaded_percent,
            100 * LOADED_SHARE,
            f"share of the time in which the group had {least} requests or more",
            "%",
            instead=_CLEAR.get(balance.word_now, "the verdict is clear with few requests") if judged else "",
        ),
    )


def _swing_conditions(balance: Balance, size: float) -> tuple[tuple[bool, str], ...]:
    """Return the conditions that all rules on swings share.

    All backends take part in the swing, polling at different times does not explain it, and it has at least
    the given size in shares.
    """
    swing, explained = balance.swing or Swing(""), balance.looks_explain
    mutual = swing.mutual is not None and swing.mutual >= MUTUAL
    return (
        (
            swing.relative_rms >= size,
            f"loads swing by {100 * swing.relative_rms:.0f} % of an even share, needed {100 * size:.0f} %",
        ),
        (mutual, "the load of one backend alone comes and goes"),
        (
            explained is None or explained <= LOOKS_EXPLAIN,
            "backends polled at different times explain the difference",
        ),
    )


def _known(balance: Balance, figure: float | None) -> tuple[bool, str]:
    """Return the condition that a figure of the loads is known, with the one reason why it is not."""
    why = "too few samples with load" if balance.mean_total else "there is no load"
    if balance.is_slow:
        why = "samples are too seldom to see a swing"
    elif balance.looks_apart_ms is None:  # loads were not compared
        why = next(iter(balance.reasons), "")
    return figure is not None, why


def _moves_condition(balance: Balance) -> tuple[bool, str]:
    z, factor, swing = balance.dispersion_z, balance.variance_factor, balance.swing
    moving = None if z is None or factor is None or swing is None else z * factor * swing.moving_share
    return moving is not None and moving >= RHYTHM_Z, "the loads lie apart, but hardly move"


def _polled_together_condition(balance: Balance, limit_s: float | None) -> tuple[bool, str]:
    apart_ms = balance.looks_apart_ms
    together = limit_s is None or (apart_ms is not None and apart_ms <= 1000 * limit_s)
    return together, "the backends are polled too far apart"


def rhythm_checks(balance: Balance) -> tuple[RuleCheck, ...]:
    """Return the check that a load swings back and forth with one period, unlike chance or drift."""
    swing = balance.swing or Swing("")
    back, half = swing.rebound, swing.opposite
    least = least_score(
        balance.mean_total,
        max(PAIR, len(balance.backends)),
        balance.convoys,
        balance.arrivals,
        life_known=bool(balance.e2e_s),
        chance=swing.chance,
    )
    returns = back is not None and half is not None and back - half >= RHYTHM_TURN
    apart_s = None if swing.period_s is None else LOOKS_APART_SHARE * swing.period_s
    raised = "" if least <= 0 else _why_more_is_needed(balance)
    return (
        RuleCheck(
            "rhythm",
            "Is there one rhythm?",
            "rhythm score",
            swing.score,
            least,
            "how clearly one period repeats: chance alone gives more than 0 once in 5,000 times"
            f"{raised and f'; {least:g} is needed here, as {raised}'}",
            digits=1,
            but=_first_unmet(
                _known(balance, swing.score),
                (returns, "loads do not come back after a period"),
                _moves_condition(balance),
                _polled_together_condition(balance, apart_s),
                *_swing_conditions(balance, RHYTHM_RMS),
            ),
        ),
    )


def _why_more_is_needed(balance: Balance) -> str:
    """Return the reasons of `least_score` for a limit above 0, in words."""
    arrivals, backends = balance.arrivals, max(PAIR, len(balance.backends))
    few = max(fewest_requests(backends), RHYTHM_LOAD * backends)
    by_chance = arrivals is not None and arrivals.spread < DEALT_SPREAD
    reasons = (
        (by_chance, "requests are split no more unevenly than by chance"),
        (not balance.e2e_s, "the E2E is not known"),
        (comes_and_goes(balance.convoys), "the number of requests changes much"),
        (backends > PAIR, "of several backends chance often moves one"),
        (balance.mean_total is not None and balance.mean_total < few, "requests are few"),
    )
    return " and ".join(words for applies, words in reasons if applies)


def turns_checks(balance: Balance) -> tuple[RuleCheck, ...]:
    """Return the check that backends go from full to empty and back more widely than by chance."""
    spread, size = least_turning_spread(balance.convoys, failing=balance.failing)
    least, turned = least_turns(max(PAIR, len(balance.backends))), balance.turns or 0
    back = (balance.turns_of_one or 0) >= TURNS_OF_ONE
    return (
        RuleCheck(
            "turns",
            "Do they fill and empty in turns?",
            "turning spread",
            balance.turning_spread,
            spread,
            f"0: as chance would; below 0: steadier than chance; from {spread:g}: loads move to and fro",
            digits=2,
            shown="to-and-fro score",
            but=_first_unmet(
                _known(balance, balance.turning_spread),
                (turned >= least, f"turns from full to empty: {turned}, {least:g} are needed"),
                (back, "no backend went from full to empty and back"),
                *_swing_conditions(balance, size),
            ),
            is_rare=turned < least,
        ),
    )


def convoys_checks(balance: Balance) -> tuple[RuleCheck, ...]:
    """Return the check for convoys: requests that start together at one backend and end together.

    It is met where requests are split evenly while all are present, but one-sidedly while half of them
    are. This is the only rule that needs neither a large swing nor a rhythm, and that can be met with few
    requests in the group.
    """
    split = balance.convoys
    never = "no burst was seen, as the number of requests never fell to half"
    missing, times = _first_unmet(_known(balance, balance.dispersion_z), (False, never)), CONVOY_TIMES
    if split is not None:
        since_s, part, chance = split.since_part_s, split.part_chance, split.chance
        times = min(split.full_times, split.part_times)
        missing = _first_unmet(
            (times >= CONVOY_TIMES, f"times that this was seen: {times}, {CONVOY_TIMES} are needed"),
            (splits_evenly(split), "the split is not even at full load"),
            (split.part_share >= CONVOY_SHARE, "moments with half of the requests are too rare"),
            (part is not None and part <= CONVOY_PART_CHANCE, "chance alone splits them as unevenly"),
            (split.least_leads >= CONVOY_LEADS, "the rest is always on the same backend"),
            (since_s is not None and since_s <= CONVOY_SINCE * balance.window_s, "this was not seen lately"),
            (chance is not None and chance <= CONVOY_CHANCE, "chance alone makes such a difference"),
            _polled_together_condition(balance, LOOKS_APART_S),
            *_swing_conditions(balance, CONVOY_RMS),
        )
    return (
        RuleCheck(
            "convoys",
            "Does one backend end its part of a burst last?",
            "half-load spread",
            None if split is None else split.part_spread,
            CONVOY_PART,
            "a sign that the next burst goes to the others: how unevenly a burst that began evenly is split "
            "once half of its requests have ended; random routing gives 1",
            "×",
            1,
            shown="split at half a burst",
            but=missing,
            is_rare=times < CONVOY_TIMES,
        ),
    )


def herds_checks(balance: Balance) -> tuple[RuleCheck, ...]:
    """Return the check for herds: requests of one moment go to one backend, later requests to another."""
    arrivals = balance.arrivals
    within, rare = "half of the median E2E", ""
    missing = _first_unmet(
        _known(balance, balance.dispersion_z),
        (balance.e2e_s is not None, "the E2E is not known"),
        (balance.requests is not None, _UNCOUNTED),
        (False, f"too few stretches of {within} had several requests"),
    )
    if arrivals is not None:
        within = short_seconds(arrivals.piece_s)
        rare = f"times that one got far more: {arrivals.herds}, {HERDS} are needed"
        missing = _first_unmet(
            (arrivals.chance <= HERD_CHANCE, "chance alone is as uneven"),
            (arrivals.herds >= HERDS, rare),
            (
                arrivals.least_herds >= HERD_LEADS,
                "one backend always gets them, or they changed to another only once",
            ),
            _moves_condition(balance),
            *_swing_conditions(balance, HERD_RMS),
        )
    return (
        RuleCheck(
            "herds",
            "Do requests that arrive together go to one backend?",
            "uneven arrivals",
            None if arrivals is None else arrivals.spread,
            least_herd_spread(balance.convoys),
            f"how unevenly requests that arrive within {within} are split: random routing gives 1",
            "×",
            1,
            shown="unevenness",
            but=missing,
            is_rare=missing == rare,
        ),
    )


def starved_checks(balance: Balance) -> tuple[RuleCheck, ...]:
    """Return the checks behind "starved": a backend too often has next to no work, which costs throughput."""
    return _starving_checks(balance, balance.starved_any_percent)


def drained_checks(balance: Balance) -> tuple[RuleCheck, ...]:
    """Return the checks of "starved" where backends that get no new requests at all count, too.

    Such a backend is drained, or not in the router yet.
    """
    return _starving_checks(balance, balance.empty_any_percent)


def _starving_checks(balance: Balance, percent: float | None) -> tuple[RuleCheck, ...]:
    """Return the checks of starving; `percent` is the share of the time with an empty backend."""
    shares, z, loaded = balance.starved_percent, balance.dispersion_z, balance.loaded_percent
    names = " · ".join(f"{name} {share:.0f} %" for name, share in list(shares.items())[:_MOST])
    more = f" · and {len(shares) - _MOST} more" if len(shares) > _MOST else _newest_words(shares, percent)
    away = " · ".join(f"{name} {seconds:.0f} s" for name, seconds in list(balance.away_s.items())[:_MOST])
    apart = f"; apart from that, without any new request: {away}" if away else ""
    question = "Do uneven loads cost throughput?"
    return (
        RuleCheck(
            "starved",
            "Is one nearly empty while another is full?",
            "nearly empty",
            percent,
            100 * STARVED_SHARE,
            f"nearly empty while another had more than its share{names and f': {names} of the time{more}'}"
            f"{apart}; a fault only where it costs throughput, too",
            "%",
            shown="time with one nearly empty",
            but=_first_unmet(
                _known(balance, percent),
                (z is not None and z >= STARVED_Z, "chance alone leaves one empty now and then"),
                (loaded is not None and loaded >= 100 * LOADED_SHARE, "there are too few requests"),
            ),
        ),
        RuleCheck(
            "starved",
            question,
            "throughput lost",
            balance.lost_estimate_percent,
            100 * STARVED_LOSS,
            "estimated against the same requests spread evenly; random routing loses some, too: it is "
            "a fault only beside one that is nearly empty",
            "%",
            but="" if balance.lost_estimate_percent is not None else balance.lost_unknown or "",
            error=balance.lost_error_points if balance.lost_percent is None else None,
        ),
    )


def _newest_words(shares: Mapping[str, float], percent: float | None) -> str:
    """Return why two backends' shares do not add up to the figure, "" where they do.

    More than two can be nearly empty at once.
    """
    added = sum(shares.values())
    if percent is None or len(shares) != PAIR or abs(added - percent) < _ROUNDED_PERCENT:
        return ""
    return f"; the {percent:.0f} % leave out the time since the last request to one: it may be out of service"


_ROUNDED_PERCENT = 1.0
"""Percentages of two backends and of both that differ by less differ by rounding."""


def ahead_checks(balance: Balance) -> tuple[RuleCheck, ...]:
    """Return the check behind "uneven": one backend's load is steadily above its even share."""
    steady, even, loaded = balance.steadiness, balance.even_percent, balance.loaded_percent
    changes = balance.lead_changes
    return (
        RuleCheck(
            "ahead",
            "Is the same one always ahead?",
            "above share",
            None if balance.skew is None else 100 * balance.skew,
            100 * SKEW,
            f"how far the mean load of {balance.skew_backend or 'the fullest'} is above its even share",
            "%",
            shown="above its share",
            but=_first_unmet(
                _known(balance, balance.skew),
                (steady is not None and steady >= STEADY, "its lead moves, as in a swing or by chance"),
                (changes is not None and changes <= SKEW_CHANGES, "another one overtakes it"),
                (
                    even is not None and even < 100 * EVEN_SHARE,
                    "its lead is mostly a single request or less",
                ),
                (loaded is not None and loaded >= 100 * LOADED_SHARE, "there are too few requests"),
            ),
        ),
    )


def requests_checks(balance: Balance) -> tuple[RuleCheck, ...]:
    """Return the check that one backend received far more requests than its share, by backends' counters."""
    shares, count = balance.requests_share, max(PAIR, len(balance.backends))
    busiest = max(shares, key=lambda name: shares[name], default=None)
    chance = balance.requests_chance
    failed_texts = [f"{name} {number:.0f}" for name, number in balance.errors.items() if number]
    failures = f"; failed: {' · '.join(failed_texts[:_MOST])}" if failed_texts else ""
    counted = (
        "the part of the fullest, by the backends' own counts"
        if balance.requests is None
        else f"share of {busiest or 'none'} in the {balance.requests:,} that came in "
        f"{balance.window_s:.0f} s, by the backends' own counts"
    )
    return (
        RuleCheck(
            "requests",
            "Did one get most of the requests?",
            "largest share",
            None if busiest is None else 100 * shares[busiest],
            # The share whose odds are `ODDS_LIMIT` times those of an even share.
            100 * ODDS_LIMIT / (ODDS_LIMIT + count - 1),
            f"{counted}{failures}",
            "%",
            shown="largest share of requests",
            but=_first_unmet(
                (balance.requests is not None, _UNCOUNTED),
                ((balance.requests or 0) >= FEWEST_REQUESTS, "too few requests were counted"),
                (chance is not None and chance <= CHANCE_LIMIT, "random routing can send as many"),
            ),
        ),
    )


WAYS_TO_SWING: tuple[Callable[[Balance], tuple[RuleCheck, ...]], ...] = (
    rhythm_checks,
    turns_checks,
    convoys_checks,
    herds_checks,
)
"""A group oscillates if any one of these rules holds."""
RULES_OF = {
    BalanceWord.OSCILLATING: WAYS_TO_SWING,
    BalanceWord.STARVED: (starved_checks,),
    BalanceWord.UNEVEN: (ahead_checks, requests_checks),
}
"""The rules behind each bad verdict: it applies if any one of them holds."""
RULES = (enough_checks, *WAYS_TO_SWING, starved_checks, ahead_checks, requests_checks)
"""All rules, in the order in which they are shown."""
