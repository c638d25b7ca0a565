"""Which backend answered: names for what a router says, and whether its choice looks like chance.

The runs test is Wald and Wolfowitz's (Annals of Mathematical Statistics 11, 1940) with the mean and variance
for any number of kinds (Wallis and Roberts, Statistics, 1956): many runs are alternation, few are bunching.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from sparktop.analysis.deployments import address_of
from sparktop.model.text import clean

SIGNIFICANT = 0.05
LEAST = 12
"""Requests below which no order can be told from chance."""


@dataclass(frozen=True, slots=True)
class RoutingTest:
    """The order in which backends were chosen, held against chance."""

    word: str
    """random, bunched, alternating, or unknown where there are too few requests or only one backend."""
    requests: int
    runs: int
    """Stretches of one backend in a row."""
    expected_runs: float | None
    runs_p: float | None
    """How likely chance gives a number of runs as far from the expected one."""
    totals_p: float | None
    """How likely even chances give totals as uneven."""
    sentence: str


def routing_test(sequence: Sequence[str]) -> RoutingTest:
    """Test the backends of requests in the order of their starts."""
    counts = Counter(sequence)
    total = len(sequence)
    runs = sum(1 for index, name in enumerate(sequence) if index == 0 or name != sequence[index - 1])
    split = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    if len(counts) < 2:  # noqa: PLR2004 - an order needs two kinds
        only = f"all {total} requests went to {split.rsplit(' ', 1)[0]}" if total else "nobody told"
        return RoutingTest("unknown", total, runs, None, None, None, only)
    totals_p = _totals_p(counts, total)
    if total < LEAST:
        few = f"{split}: too few requests to judge the order"
        return RoutingTest("unknown", total, runs, None, None, totals_p, few)
    mean, variance = _expected_runs(counts, total)
    if variance <= 0:
        return RoutingTest("unknown", total, runs, mean, None, totals_p, f"{split}: the order cannot vary")
    # With a correction for continuity: runs are whole numbers.
    distance = max(0.0, abs(runs - mean) - 0.5) / math.sqrt(variance)
    runs_p = math.erfc(distance / math.sqrt(2))
    word = "random" if runs_p >= SIGNIFICANT else "bunched" if runs < mean else "alternating"
    uneven = "" if totals_p >= SIGNIFICANT else f"; chance gives totals as uneven in {totals_p:.1%} of cases"
    sentence = (
        f"{split}: {runs} stretches of one backend where chance gives {mean:.0f} (p {runs_p:.2g}): "
        f"{word}{uneven}"
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
    """Give the exact binomial test of the backend that differs most, times the number of independent ones."""
    share = 1 / len(counts)
    furthest = max(counts.values(), key=lambda count: abs(count - total * share))
    tested = len(counts) if len(counts) > 2 else 1  # noqa: PLR2004 - of two, one tells all
    return min(1.0, tested * binomial_p(furthest, total, share))


def binomial_p(hits: int, total: int, share: float) -> float:
    """Give the two-sided exact binomial test: all outcomes that are no likelier than this one."""
    shares = [binomial_share(count, total, share) for count in range(total + 1)]
    limit = shares[hits] * (1 + 1e-9)  # outcomes of the same likelihood count, whatever the last bits say
    return min(1.0, math.fsum(one for one in shares if one <= limit))


def binomial_share(hits: int, total: int, share: float) -> float:
    """Give the likelihood of so many hits; by logarithms, since its parts outgrow a float."""
    return math.exp(
        math.lgamma(total + 1)
        - math.lgamma(hits + 1)
        - math.lgamma(total - hits + 1)
        + hits * math.log(share)
        + (total - hits) * math.log1p(-share)
    )


class BackendNames:
    """Gives a watched backend's name for what a router says of who answered."""

    def __init__(
        self, *, router_url: str, backends: Mapping[str, str], deployments: Mapping[str, str]
    ) -> None:
        """Know the backends' URLs by name, and their names by the router's ids."""
        host = address_of(router_url)
        self._speaker = host[0] if host else "localhost"
        self._by_id = dict(deployments)
        self._by_address = {address_of(url): name for name, url in backends.items()}
        self._names = frozenset(backends)
        self._found: dict[str, str] = {}

    def name(self, told: str | None) -> str | None:
        """Give the backend; what is no known one keeps the router's own word."""
        if told is None:
            return None
        if told not in self._found:
            self._found[told] = self._look_up(told)
        return self._found[told]

    def _look_up(self, told: str) -> str:
        if told in self._by_id:
            return self._by_id[told]
        if told in self._names:
            return told
        if "://" in told and urlsplit(told).hostname:
            address = address_of(told, self._speaker)
            if address is not None and address in self._by_address:
                return self._by_address[address]
        return clean(told, 80)
