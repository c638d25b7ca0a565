"""Intervals: how often they contain the known truth, if runs differ by 0, 5 and 10 %.

Runs are drawn from distributions with a known mean or quantile, and passed to the code that computes each
interval. A 95 % interval is good if it contains the true value in 93 to 97 % of the trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from random import Random
from statistics import fmean

from tables import Figure

from sparktop.model.sweep import value_of
from sparktop.sweep.compare.ratio import ratio_of
from sparktop.sweep.result.results import Rate
from sparktop.sweep.run.judgement import quantile_interval

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
Condition = tuple[str, float, float, Callable[[float], Bounds]]
"""(interval and condition, truth, share of the trials, function that draws an interval at a spread)."""


def _figures(dice: Random, truth: float, spread: float, runs: int) -> list[float]:
    """Draw one figure per run around `truth`."""
    return [truth * (1 + dice.gauss(0, spread)) * (1 + dice.gauss(0, NOISE)) for _ in range(runs)]


def _latencies(dice: Random, middle: float, spread: float, requests: int) -> list[float]:
    """Draw the latencies of a run: log-normal, times one random factor for the whole run."""
    off = 1 + dice.gauss(0, spread)
    return [middle * off * math.exp(dice.gauss(0, _WITHIN)) for _ in range(requests)]


def _interval(values: Sequence[float]) -> Bounds:
    found = value_of(fmean(values), values)
    return None if found.low is None or found.high is None else (found.low, found.high)


def conditions(dice: Random) -> Iterator[Condition]:
    """Yield each interval under each condition."""
    for runs in (3, 5, 10):  # Student's t over one value per run

        def in_file(spread: float, runs: int = runs) -> Bounds:
            figure = Rate.of_runs(_figures(dice, 600.0, spread, runs))
            return None if figure is None else figure.ci95

        def on_screen(spread: float, runs: int = runs) -> Bounds:
            return _interval(_figures(dice, 600.0, spread, runs))

        yield f"rate in a file, {runs} runs", 600.0, 1.0, in_file
        yield f"rate on the screen, {runs} runs", 600.0, 1.0, on_screen
    for runs, requests in ((3, 16), (5, 16), (10, 4)):

        def mean(spread: float, runs: int = runs, requests: int = requests) -> Bounds:
            return _interval([fmean(_latencies(dice, 800.0, spread, requests)) for _ in range(runs)])

        truth = 800.0 * math.exp(_WITHIN**2 / 2)
        yield f"mean latency, {runs} runs of {requests}", truth, 1.0, mean
    for runs, requests in ((36, 1), (9, 4), (3, 16), (3, 64), (5, 64), (10, 64)):

        def quantile(spread: float, runs: int = runs, requests: int = requests) -> Bounds:
            return quantile_interval([_latencies(dice, 800.0, spread, requests) for _ in range(runs)], 0.9)

        truth = 800.0 * math.exp(_WITHIN * _NORMAL_90)
        yield f"p90 of a search, {runs} runs of {requests}", truth, 0.5, quantile
    for runs in (3, 5, 10):

        def ratio(spread: float, runs: int = runs) -> Bounds:
            one, other = (tuple(_figures(dice, mean, spread, runs)) for mean in (720.0, 600.0))
            found = ratio_of(value_of(fmean(one), one), value_of(fmean(other), other))
            return None if found is None else found.ci95

        yield f"ratio, {runs} runs each", 1.2, 1.0, ratio


_SHORT_TRIALS, _LONG_TRIALS = 300, 4000
_SHORT_SEED, _LONG_SEED = 100, 20_000


def figures(*, short: bool) -> Iterator[Figure]:
    """Yield a row for each kind of interval and spread between runs."""
    dice = Random(_SHORT_SEED if short else _LONG_SEED)  # noqa: S311 - repeatable chance, not secrets
    low, high = COVERED
    for name, truth, part, draw in conditions(dice):
        trials = round(part * (_SHORT_TRIALS if short else _LONG_TRIALS))
        error = 100 * math.sqrt(0.95 * 0.05 / trials)
        for spread in SPREADS:
            # A trial without an interval counts as a miss.
            held = sum((at := draw(spread)) is not None and at[0] <= truth <= at[1] for _ in range(trials))
            percent = 100 * held / trials
            yield Figure(
                area="intervals",
                name=f"{name}, runs differ by {spread:.0%}",
                truth="95 % of trials",
                shown=f"{percent:.1f} % of {trials:,}",
                error=f"{percent - 95:+.1f} points",
                limit=f"{low:.0f} to {high:.0f} %, ± {2 * error:.1f} of the study",
                holds=low - 2 * error <= percent <= high + 2 * error,
            )
