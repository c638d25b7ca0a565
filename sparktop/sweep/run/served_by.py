"""Which backend answered: the monitor's name for it, and a test whether the router chooses at random.

The runs test is Wald and Wolfowitz's (Annals of Mathematical Statistics 11, 1940) with the mean and variance
for any number of categories (Wallis and Roberts, Statistics, 1956). In it, a run is a sequence of consecutive
requests with the same backend: many runs mean alternation, few mean bunching.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from sparktop.analysis.placement import address_of
from sparktop.model.text import clean

SIGNIFICANT = 0.05
LEAST = 12
"""Minimum requests for a test of the order."""


class RoutingTest(Struct, frozen=True):
    """Result of a statistical test of the order in which a router chose backends."""

    word: str
    """Verdict: random, bunched or alternating; unknown for too few requests or a single backend."""
    requests: int
    runs: int
    """Number of runs: sequences of consecutive requests with the same backend."""
    expected_runs: float | None
    runs_p: float | None
    """p-value of `runs`: the probability that a random order deviates at least as far from
    `expected_runs`."""
    totals_p: float | None
    """p-value of the requests per backend: the probability that a random choice, with all backends equally
    likely, distributes them at least as unevenly."""
    sentence: str


def routing_test(sequence: Sequence[str]) -> RoutingTest:
    """Test whether a router chose backends at random.

    `sequence` has the name of the backend of each request, in the order in which the requests started.
    """
    counts = Counter(sequence)
    total = len(sequence)
    runs = sum(1 for index, name in enumerate(sequence) if index == 0 or name != sequence[index - 1])
    split = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    if len(counts) < 2:  # noqa: PLR2004 - an order needs two kinds
        only = f"all {total} requests went to {split.rsplit(' ', 1)[0]}" if total else "not reported"
        return RoutingTest("unknown", total, runs, None, None, None, only)
    totals_p = _totals_p(counts, total)
    if total < LEAST:
        few = f"{split}: too few requests to judge the order"
        return RoutingTest("unknown", total, runs, None, None, totals_p, few)
    mean, variance = _expected_runs(counts, total)
    if variance <= 0:
        return RoutingTest("unknown", total, runs, mean, None, totals_p, f"{split}: the order cannot vary")
    # With continuity correction: the number of runs is an integer.
    distance = max(0.0, abs(runs - mean) - 0.5) / math.sqrt(variance)
    runs_p = math.erfc(distance / math.sqrt(2))
    word = "random" if runs_p >= SIGNIFICANT else "bunched" if runs < mean else "alternating"
    rare = f"{100 * totals_p:.1f} % of cases"
    uneven = "" if totals_p >= SIGNIFICANT else f"; chance gives totals as uneven in {rare}"
    sentence = (
        f"{split}: order looks {word}: the backend changed {runs - 1} times from one request to the next; "
        f"chance gives about {mean - 1:.0f}{uneven}"
    )
    return RoutingTest(word, total, runs, mean, runs_p, totals_p, sentence)


def _expected_runs(counts: Mapping[str, int], total: int) -> tuple[float, float]:
    squares = sum(count**2 for count in counts.values())
    cubes = sum(count**3 for count in counts.values())
    mean = (total * (total + 1) - squares) / total
    variance = (squares * (squares + total * (total + 1)) - 2 * total * cubes - total**3) / (
        total**2 * (total - 1)
    )
    return mean, variance


def _totals_p(counts: Mapping[str, int], total: int) -> float:
    """Return the p-value of the backend whose number of requests deviates most from an equal share.

    `counts` are the requests by backend. Exact binomial test with Bonferroni correction.
    """
    share = 1 / len(counts)
    furthest = max(counts.values(), key=lambda count: abs(count - total * share))
    tested = len(counts) if len(counts) > 2 else 1  # noqa: PLR2004 - two totals depend on each other
    return min(1.0, tested * binomial_p(furthest, total, share))


def binomial_p(hits: int, total: int, share: float) -> float:
    """Return the p-value of the two-sided exact binomial test of `hits` in `total` trials.

    This is the probability of all outcomes that are at most as likely as `hits`, if each trial succeeds with
    probability `share`.
    """
    shares = [binomial_share(count, total, share) for count in range(total + 1)]
    limit = shares[hits] * (1 + 1e-9)  # outcomes of equal likelihood count despite rounding errors
    return min(1.0, math.fsum(one for one in shares if one <= limit))


def binomial_share(hits: int, total: int, share: float) -> float:
    """Return the probability of exactly `hits` successes in `total` trials of probability `share` each.

    Computed with logarithms because the factors overflow.
    """
    return math.exp(
        math.lgamma(total + 1)
        - math.lgamma(hits + 1)
        - math.lgamma(total - hits + 1)
        + hits * math.log(share)
        + (total - hits) * math.log1p(-share)
    )


class BackendNames:
    """Finds the monitor's name of the backend that answered, from what a router reports: id, name or URL."""

    def __init__(
        self, *, router_url: str, backends: Mapping[str, str], deployments: Mapping[str, str]
    ) -> None:
        """Use `backends` (URL by name) and `deployments` (backend name by the router's deployment id)."""
        host = address_of(router_url)
        self._speaker = host[0] if host else "localhost"
        self._by_id = dict(deployments)
        self._by_address = {address_of(url): name for name, url in backends.items()}
        self._names = frozenset(backends)
        self._found: dict[str, str] = {}

    def name(self, reported: str | None) -> str | None:
        """Return the monitor's name of the backend that a router `reported`; None if `reported` is None.

        For an unknown backend, return the text `reported`, cleaned for display.
        """
        if reported is None:
            return None
        if reported not in self._found:
            self._found[reported] = self._look_up(reported)
        return self._found[reported]

    def _look_up(self, reported: str) -> str:
        if reported in self._by_id:
            return self._by_id[reported]
        if reported in self._names:
            return reported
        if "://" in reported and urlsplit(reported).hostname:
            address = address_of(reported, self._speaker)
            if address is not None and address in self._by_address:
                return self._by_address[address]
        return clean(reported, 80)
