"""Intervals: how often they contain the known truth, if runs differ by 0, 5 and 10 %.

Runs are drawn from distributions with a known mean or quantile, and passed to the code that computes each
interval. A 95 % interval is good if it contains the true value in 93 to 97 % of the trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean, median

from tables import Figure

from sparktop.sweep.compare.ratio import ratio_of
from sparktop.sweep.result.results import Rate
from sparktop.sweep.run.judgement import quantile_interval
from sparktop.sweep.terms.statistics import value_of

SPREADS = (0.0, 0.05, 0.1)
"""Standard deviation between runs, as a fraction of the figure."""
NOISE = 0.01
"""Relative standard deviation of single values, in addition to that between runs."""
COVERED = (93.0, 97.0)
"""Least and most percent of trials in which a 95 % interval may contain the truth."""
_WITHIN = 0.35
"""Standard deviation of the logarithm of latencies within a run."""
_NORMAL_90 = 1.2815515655446004
"""The 90th percentile of the normal distribution."""

Bounds = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Coverage:
    """Result of one kind of interval under one condition."""

    interval: str
    condition: str
    spread: float
    trials: int
    held: int
    """Trials in which the interval contained the truth."""
    width: float
    """Median ratio of the upper to the lower end."""
    allowed: tuple[float, float] = COVERED

    @property
    def percent(self) -> float:
        """Percent of trials in which the interval contained the truth."""
        return 100 * self.held / self.trials

    @property
    def error(self) -> float:
        """Standard error of `percent` if the interval contains the truth in 95 % of trials."""
        return 100 * math.sqrt(0.95 * 0.05 / self.trials)

    @property
    def holds(self) -> bool:
        """Whether `percent` is within the limits, give or take two standard errors of the study."""
        low, high = self.allowed
        return low - 2 * self.error <= self.percent <= high + 2 * self.error


def _study(
    interval: str,
    condition: str,
    spread: float,
    trials: int,
    truth: float,
    draw: Callable[[], Bounds],
) -> Coverage:
    """Run the trials of one condition; a trial without an interval counts as a miss."""
    held, widths = 0, []
    for _ in range(trials):
        bounds = draw()
        if bounds is None:
            continue
        low, high = bounds
        held += low <= truth <= high
        widths.append(high / low if low > 0 else math.inf)
    return Coverage(interval, condition, spread, trials, held, median(widths) if widths else math.inf)


def _figures(dice: Random, truth: float, spread: float, runs: int) -> list[float]:
    """Draw one figure per run around `truth`."""
    return [truth * (1 + dice.gauss(0, spread)) * (1 + dice.gauss(0, NOISE)) for _ in range(runs)]


def rates(dice: Random, trials: int) -> Iterator[Coverage]:
    """Study intervals of rates and of mean latencies: Student's t over one value per run."""
    for runs in (3, 5, 10):
        for spread in SPREADS:

            def in_file(spread: float = spread, runs: int = runs) -> Bounds:
                figure = Rate.of_runs(_figures(dice, 600.0, spread, runs))
                return None if figure is None else figure.ci95

            def on_screen(spread: float = spread, runs: int = runs) -> Bounds:
                figures = _figures(dice, 600.0, spread, runs)
                found = value_of(fmean(figures), figures)
                return None if found.low is None or found.high is None else (found.low, found.high)

            yield _study("rate in a file", f"{runs} runs", spread, trials, 600.0, in_file)
            yield _study("rate on the screen", f"{runs} runs", spread, trials, 600.0, on_screen)


def latencies(dice: Random, trials: int) -> Iterator[Coverage]:
    """Study intervals of mean latencies of requests, from the means of their runs."""
    truth = 800.0 * math.exp(_WITHIN**2 / 2)
    for runs, requests in ((3, 16), (5, 16), (10, 4)):
        for spread in SPREADS:

            def draw(spread: float = spread, runs: int = runs, requests: int = requests) -> Bounds:
                each = (_latencies(dice, 800.0, spread, requests) for _ in range(runs))
                means = [fmean(run) for run in each]
                found = value_of(fmean(means), means)
                return None if found.low is None or found.high is None else (found.low, found.high)

            yield _study("mean latency", f"{runs} runs of {requests}", spread, trials, truth, draw)


def _latencies(dice: Random, middle: float, spread: float, requests: int) -> list[float]:
    """Draw the latencies of a run: log-normal, times one random factor for the whole run."""
    off = 1 + dice.gauss(0, spread)
    return [middle * off * math.exp(dice.gauss(0, _WITHIN)) for _ in range(requests)]


def quantiles(dice: Random, trials: int) -> Iterator[Coverage]:
    """Study intervals of the quantiles by which levels of a search are judged."""
    truth = 800.0 * math.exp(_WITHIN * _NORMAL_90)
    for runs, requests in ((36, 1), (9, 4), (3, 16), (3, 64), (5, 64), (10, 64)):
        for spread in SPREADS:

            def draw(spread: float = spread, runs: int = runs, requests: int = requests) -> Bounds:
                return quantile_interval(
                    [_latencies(dice, 800.0, spread, requests) for _ in range(runs)], 0.9
                )

            yield _study("p90 of a search", f"{runs} runs of {requests}", spread, trials, truth, draw)


def ratios(dice: Random, trials: int) -> Iterator[Coverage]:
    """Study intervals of the ratios in a comparison."""
    for runs in (3, 5, 10):
        for spread in SPREADS:

            def draw(spread: float = spread, runs: int = runs) -> Bounds:
                one, other = (tuple(_figures(dice, mean, spread, runs)) for mean in (720.0, 600.0))
                found = ratio_of(value_of(sum(one) / runs, one), value_of(sum(other) / runs, other))
                return None if found is None else found.ci95

            yield _study("ratio", f"{runs} runs each", spread, trials, 1.2, draw)


STUDIES: dict[str, tuple[Callable[[Random, int], Iterator[Coverage]], float]] = {
    "rate": (rates, 1.0),
    "latency": (latencies, 1.0),
    "quantile": (quantiles, 0.5),
    "ratio": (ratios, 1.0),
}
"""Studies by name; with the fraction of the trials that each runs."""


def coverages(trials: int, seed: int, only: Sequence[str] = tuple(STUDIES)) -> Iterator[Coverage]:
    """Run the studies named in `only` and yield their results; each study has its own seed."""
    for number, name in enumerate(STUDIES):
        if name in only:
            make, share = STUDIES[name]
            dice = Random(seed + number)  # noqa: S311 - repeatable chance, not secrets
            yield from make(dice, max(1, round(trials * share)))


_SHORT_TRIALS, _LONG_TRIALS = 300, 4000
_SHORT_SEED, _LONG_SEED = 100, 20_000
_SHORT = ("rate", "latency", "quantile", "ratio")


def figures(*, short: bool) -> Iterator[Figure]:
    """Yield a row for each kind of interval and spread between runs; searches only in the long form."""
    trials, seed = (_SHORT_TRIALS, _SHORT_SEED) if short else (_LONG_TRIALS, _LONG_SEED)
    rows = coverages(trials, seed, _SHORT) if short else coverages(trials, seed)
    for row in rows:
        low, high = row.allowed
        yield Figure(
            area="intervals",
            name=f"{row.interval}, {row.condition}, runs differ by {row.spread:.0%}",
            truth="95 % of trials",
            shown=f"{row.percent:.1f} % of {row.trials:,}",
            error=f"{row.percent - 95:+.1f} points",
            limit=f"{low:.0f} to {high:.0f} %, ± {2 * row.error:.1f} of the study",
            holds=row.holds,
        )
