"""Intervals: how often they contain the known truth, if runs differ by 0, 5 and 10 %."""

from __future__ import annotations

from collections.abc import Iterator

from coverage import coverages
from truths.figure import Figure

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
