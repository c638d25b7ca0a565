"""Comparisons of drawn runs with known differences: false winners, differences found, intervals, bounds."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from comparing import Tally, Truth, drawn, files, series_of_runs, tables
from truths.figure import Figure

from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import load_reference

AREA = "compare"
_USUAL = 0.065
"""Standard deviation of logarithms between identical runs on DGX Sparks."""
_ALIKE = (
    ("two alike, single runs", Truth((1.0, 1.0), 1, _USUAL)),
    ("two alike, 2 runs", Truth((1.0, 1.0), 2, 0.10)),
    ("two alike, 3 runs", Truth((1.0, 1.0), 3, _USUAL)),
    ("four alike, 3 runs", Truth((1.0,) * 4, 3, _USUAL)),
    ("two alike beside a slow baseline, 3 runs", Truth((0.6, 1.0, 1.0), 3, _USUAL, baseline=True)),
)
_DIFFERENT = (
    ("+20 % everywhere, 3 runs", Truth((1.0, 1.2), 3, _USUAL), 65.0),
    ("+40 % everywhere, 2 runs", Truth((1.0, 1.4), 2, _USUAL), 80.0),
    ("+40 % at three of seven levels, 3 runs", Truth((1.0, 1.4), 3, _USUAL, at=(16, 32, 64)), 80.0),
    ("+40 % at one of seven levels, 3 runs", Truth((1.0, 1.4), 3, _USUAL, at=(64,)), 25.0),
)


def figures(*, short: bool) -> Iterator[Figure]:
    """Measure how often a table of 77 rows makes false claims, and how often it makes the true ones."""
    count = 30 if short else 400
    seed = 1 if short else random.SystemRandom().randrange(1 << 30)
    for name, truth in _ALIKE:
        yield _rarely(name, tables(truth, count, seed))
    yield _rarely("two alike in a result file, by the command", files(_ALIKE[2][1], 8 if short else 60, seed))
    for name, truth, least in _DIFFERENT:
        yield _often(name, tables(truth, count, seed), least)
    yield _covered(count, seed)
    yield _bound()


def _rarely(name: str, tally: Tally) -> Figure:
    """Return the row of false winners: allowed in 5 % of tables, plus what chance adds in so few of them."""
    error = math.sqrt(0.05 * 0.95 / tally.tables)
    limit = 0.05 + 2.5 * error
    return Figure(
        AREA,
        f"{name}: tables that name one",
        "0",
        f"{tally.false} of {tally.tables}",
        f"{tally.false_percent:.1f} %",
        f"5 % (of so few tables {100 * limit:.0f} %)",
        holds=tally.false <= limit * tally.tables,
    )


def _often(name: str, tally: Tally, least_percent: float) -> Figure:
    power = tally.power_percent or 0.0
    return Figure(
        AREA,
        f"{name}: levels that name the faster one",
        f"{tally.asked} differ",
        f"{tally.found} named",
        f"{power:.0f} %",
        f"at least {least_percent:.0f} %",
        holds=power >= least_percent,
    )


def _covered(count: int, seed: int) -> Figure:
    """Return the row of a ratio's 95 % interval: how often it contains the truth, over all decode levels."""
    luck = random.Random(seed)  # noqa: S311 - a study, not a secret
    inside = whole = 0
    for _ in range(count):
        for row in compare(series_of_runs(drawn(Truth((1.0, 1.2), 3, _USUAL), luck))).rows:
            if row.metric == "decode_tps" and row.ratio_ci95 is not None:
                truth = 1.2 if row.ahead == "t1" else 1 / 1.2
                whole += 1
                inside += row.ratio_ci95[0] <= truth <= row.ratio_ci95[1]
    share = 100 * inside / whole
    return Figure(
        AREA,
        "95 % interval of a ratio",
        "95 %",
        f"{share:.1f} %",
        f"{share - 95:+.1f}",
        "91 to 99 %",
        91 <= share <= 99,
    )


def _bound() -> Figure:
    """Return the row of the published answer: two engines at c = 4 each, beside a cluster at c = 8."""
    found = compare(load_reference("spark-topologies-2026-03").series).independent_engines
    (level,) = [one for one in found[0].levels if one.concurrency == 8]
    return Figure(
        AREA,
        "two engines at best at c = 8, published topologies",
        "2 × 107.9 = 215.8 tok/s; 231.0 is beyond it",
        f"{level.bound:.1f} tok/s; beyond: {', '.join(level.beyond)}",
        f"{level.bound - 215.8:+.1f}",
        "exact",
        holds=abs(level.bound - 215.8) < 0.05 and level.beyond == ("cluster-tp2",),
    )
