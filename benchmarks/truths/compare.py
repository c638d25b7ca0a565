"""Comparisons of drawn runs with known differences: false winners, differences found, intervals, bounds.

Runs are drawn from log-normal distributions; the figures of a run are correlated, as real ones are. No code
of the comparison is used to draw them. Its claims are read from its JSON.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tables import Figure

from sparktop.model.load import Level, concurrency_point
from sparktop.model.sweep import Value, value_of
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import LevelSeries, SeriesLevel, load_reference, published_series

LEVELS = (1, 2, 4, 8, 16, 32, 64)
RATES = ("prefill_tps", "decode_tps", "peak_tps", "pure_decode_tps", "output_tps", "total_tps")
TIMES = ("ttfr_ms", "ttft_ms", "itl_ms", "tpot_ms", "e2e_ms")
_LUCK = {"prefill_tps": 1, "ttfr_ms": 1, "ttft_ms": 1}
"""Which random factor of a run moves a figure: 1 that of its prefill, 0 (if missing) that of its decode."""
_OWN = 0.3
"""Part of a figure's spread that is independent of the run's other figures."""


@dataclass(frozen=True, slots=True)
class Truth:
    """Targets with a known difference."""

    factors: tuple[float, ...]
    """Speed of each target, as a factor."""
    runs: int
    spread: float
    """Standard deviation of logarithms between runs of a level."""
    at: tuple[int, ...] = LEVELS
    """Levels at which the factors hold; elsewhere the targets do not differ."""
    baseline: bool = False
    """Whether to compare against the first target."""

    @property
    def names(self) -> list[str]:
        """Names of the targets."""
        return [f"t{index}" for index in range(len(self.factors))]


Runs = dict[str, dict[int, dict[str, list[float]]]]
"""Values of runs by target, concurrency and metric."""


def drawn(truth: Truth, luck: random.Random) -> Runs:
    """Draw the runs of all targets at all levels."""
    return {
        name: {level: _level(truth, factor if level in truth.at else 1.0, level, luck) for level in LEVELS}
        for name, factor in zip(truth.names, truth.factors, strict=True)
    }


def _level(truth: Truth, factor: float, level: int, luck: random.Random) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {metric: [] for metric in RATES + TIMES}
    for _ in range(truth.runs):
        common = luck.gauss(0, 1), luck.gauss(0, 1)
        for metric, found in values.items():
            own = math.sqrt(1 - _OWN**2) * common[_LUCK.get(metric, 0)] + _OWN * luck.gauss(0, 1)
            sign = 1 if metric in RATES else -1
            found.append((100.0 + level) * (factor * math.exp(truth.spread * own)) ** sign)
    return values


def series_of_runs(runs: Runs) -> list[LevelSeries]:
    """Convert runs to the series that `compare` accepts."""
    return [
        LevelSeries(
            name,
            tuple(
                SeriesLevel(
                    Level("", concurrency_point(level), 1024, 128),
                    {metric: _figure(one) for metric, one in values.items()},
                )
                for level, values in levels.items()
            ),
            source="made",
            tool="made",
            model="m",
        )
        for name, levels in runs.items()
    ]


def _figure(values: Sequence[float]) -> Value:
    return value_of(sum(values) / len(values), tuple(values))


@dataclass(slots=True)
class Tally:
    """Counts of false and true claims, over many comparisons of one kind."""

    tables: int = 0
    false: int = 0
    """Tables with a winner, a crossover or a shown difference where there is none."""
    asked: int = 0
    """Pairs of targets at levels where their decode rates really differ."""
    found: int = 0


def judged(truth: Truth, found: Mapping[str, object], tally: Tally) -> None:
    """Add the claims of a comparison, given as JSON values, to the tally."""
    speed = {
        level: dict(zip(truth.names, truth.factors, strict=True))
        if level in truth.at
        else dict.fromkeys(truth.names, 1.0)
        for level in LEVELS
    }
    tally.tables += 1
    tally.false += any(
        speed[claim.concurrency][claim.better] <= speed[claim.concurrency][claim.worse]
        for claim in claims(found)
    )
    called = {
        (claim.concurrency, claim.better, claim.worse)
        for claim in claims(found)
        if claim.metric == "decode_tps"
    }
    for level, factors in speed.items():
        best = max(factors, key=lambda name: factors[name])
        for name, factor in factors.items():
            if factor < factors[best] and list(factors.values()).count(factors[best]) == 1:
                tally.asked += 1
                tally.found += (level, best, name) in called


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a comparison: one target is better than another."""

    metric: str
    concurrency: int
    better: str
    worse: str


def claims(found: Mapping[str, object]) -> Iterator[Claim]:
    """Yield all claims in a comparison's JSON: winners, shown differences, changes against the baseline."""
    for row in _objects(found["rows"]):
        metric, concurrency = str(row["metric"]), int(str(row["concurrency"]))
        ahead, values = row.get("ahead") or row["winner"], row["values"]
        assert isinstance(values, dict)  # noqa: S101 - of the file's own schema
        won = row["winner"] is not None and row["significant"] is not False
        worse = [name for name in values if name != ahead] if won else row.get("beats", [])
        for name in worse if isinstance(worse, list) else []:
            yield Claim(metric, concurrency, str(ahead), str(name))
        changes = row["changes"]
        assert isinstance(changes, dict)  # noqa: S101 - as above
        for name, change in changes.items():
            if change["significant"]:
                better = (change["percent"] > 0) == (metric in RATES)
                pair = (name, str(found["baseline"]))
                yield Claim(metric, concurrency, *(pair if better else pair[::-1]))
    for crossing in _objects(found["crossovers"]):
        between = crossing["between"]
        assert isinstance(between, list)  # noqa: S101 - as above
        for concurrency, better, worse in ((0, "from", "to"), (1, "to", "from")):
            names = str(crossing[better]), str(crossing[worse])
            yield Claim(str(crossing["metric"]), int(between[concurrency]), *names)


def _objects(values: object) -> list[dict[str, object]]:
    assert isinstance(values, list)  # noqa: S101 - of the file's own schema
    return values


def tables(truth: Truth, count: int, seed: int) -> Tally:
    """Draw and compare `count` tables of one kind; return their tally."""
    luck, tally = random.Random(seed), Tally()  # noqa: S311 - a study, not a secret
    for _ in range(count):
        series = series_of_runs(drawn(truth, luck))
        found = compare(series, baseline="t0" if truth.baseline else None)
        judged(truth, json.loads(found.model_dump_json(by_alias=True)), tally)
    return tally


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
    for name, truth, least in _DIFFERENT:
        yield _often(name, tables(truth, count, seed), least)
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
        f"{100 * tally.false / tally.tables:.1f} %",
        f"5 % (of so few tables {100 * limit:.0f} %)",
        holds=tally.false <= limit * tally.tables,
    )


def _often(name: str, tally: Tally, least_percent: float) -> Figure:
    power = 100 * tally.found / tally.asked
    return Figure(
        AREA,
        f"{name}: levels that name the faster one",
        f"{tally.asked} differ",
        f"{tally.found} named",
        f"{power:.0f} %",
        f"at least {least_percent:.0f} %",
        holds=power >= least_percent,
    )


def _bound() -> Figure:
    """Return the row of the published answer: two engines at c = 4 each, beside a cluster at c = 8."""
    found = compare(published_series(load_reference("spark-topologies-2026-03"))).independent_engines
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
