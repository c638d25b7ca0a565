"""Comparison of targets: winners, percentages, crossovers, and which differences are significant.

A target wins at a level if it is significantly better than every other target. A difference is significant if
the tests in the module `ratio` find it, with an error rate of 5 % for the complete table, and if it exceeds
the noise floor. The noise floor is the largest difference between two measurements of the same server if
there are such, else 3 %. Published tables have means without runs, so no test is possible: there the best
target wins if its lead exceeds rounding, or, between tables of different sources, the noise floor. A series
is the list of one target's levels, as measured by one tool.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, combinations, pairwise
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.model.load import Level, LoadKind, LoadPoint, concurrency_point
from sparktop.model.sweep import Value, value_of
from sparktop.model.text import names_in_words
from sparktop.sweep.compare.ratio import (
    ERROR_RATE,
    NOISE_FLOOR_PERCENT,
    Pair,
    Ratio,
    is_testable,
    proofs,
    ratio_of,
)
from sparktop.sweep.compare.series import (
    UNSTATED_WORDS,
    LevelSeries,
    align_rows,
    length_notes,
    without_lengths,
)
from sparktop.sweep.result.results import (
    CapacityAnswer,
    CapacityComparison,
    CapacityResult,
    Change,
    ComparisonResult,
    ComparisonRow,
    Crossover,
    EnginesLevel,
    IndependentEngines,
    axis_fields,
    level_of,
)
from sparktop.sweep.terms.definitions import MAIN_RATES, METRICS, WARNINGS, Metric, judging_metrics


def independent_engines(series: Sequence[LevelSeries]) -> Iterator[IndependentEngines]:
    """Compare the token rate of each router among `series` with the highest rate that its engines allow.

    N engines that share c concurrent requests evenly achieve N times the rate of a single engine at c / N. A
    router loses some of that because it distributes requests unevenly. If another target exceeds this bound,
    no router over the same engines reaches it at that concurrency.

    A router is left out if neither one of its engines nor a similar engine was measured alone. Series of the
    router's own source come first; others stand in where these have no level that fits.
    """
    for routed in series:
        elsewhere = [a_series for a_series in series if a_series.source != routed.source]
        for of_engines in (_series_of_engines(routed, series), _series_of_engines(routed, elsewhere)):
            metrics = routed.metrics() & {name for a_series in of_engines for name in a_series.metrics()}
            metric = next((name for name in MAIN_RATES if name in metrics), None)
            levels = tuple(_engines_levels(routed, of_engines, series, metric)) if metric is not None else ()
            if metric is not None and levels:
                names = tuple(a_series.name for a_series in of_engines)
                yield IndependentEngines(metric=metric, routed=routed.name, alone=names, levels=levels)
                break


def engines_sentences(comparisons: Sequence[IndependentEngines]) -> Iterator[str]:
    """Yield a sentence for each metric and set of engines: its upper bound and the share that routers reach.

    Then one for each target that exceeds a bound, with the concurrencies.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[IndependentEngines]] = {}
    for engines in comparisons:
        groups.setdefault((engines.metric, engines.alone), []).append(engines)
    for (name, alone), group in groups.items():
        metric, counts = METRICS[name], Counter(alone)
        bound = " + ".join(f"{count} × {engine}" if count > 1 else engine for engine, count in counts.items())
        levels = ", ".join(f"{metric.text(level.bound)} at c{level.concurrency}" for level in group[0].levels)
        routers = names_in_words([f"{engines.routed} reached {_share_words(engines)}" for engines in group])
        yield (
            f"{len(alone)} independent engines at best = {bound} at c/{len(alone)}: "
            f"{metric.title.lower()} in {metric.unit} {levels}; of this best, {routers}"
        )
    yield from dict.fromkeys(line for engines in comparisons for line in _beyond_sentences(engines))


def _share_words(engines: IndependentEngines) -> str:
    """Return the share of the bound that a router achieves, as text."""
    percents = [level.percent for level in engines.levels if level.percent is not None]
    if not percents:
        return "an unknown share"
    low, high = min(percents), max(percents)
    return f"{low:.0f} %" if round(low) == round(high) else f"{low:.0f} to {high:.0f} %"


def _beyond_sentences(engines: IndependentEngines) -> Iterator[str]:
    for name in dict.fromkeys(name for level in engines.levels for name in level.beyond):
        where = names_in_words([f"c{level.concurrency}" for level in engines.levels if name in level.beyond])
        best_words = f"the best of {len(engines.alone)} independent engines"
        yield f"{name} exceeds {best_words} at {where}: by these figures no router over them reaches it there"


def _series_of_engines(routed: LevelSeries, series: Sequence[LevelSeries]) -> list[LevelSeries]:
    """Return one series for each engine behind the router `routed`, measured without the router.

    For an engine that was not measured alone, use the series of another engine of the router, or else that of
    a single engine in a published table. Return an empty list if there is no series to use, or if `routed` is
    not a router.
    """
    if len(routed.engines) <= 1:
        return []
    single = [
        a_series for a_series in series if len(a_series.engines) == 1 and a_series.model == routed.model
    ]
    of_source = {
        a_series.engines[0]: a_series for a_series in reversed(single) if a_series.source == routed.source
    }
    by_name = {a_series.engines[0]: a_series for a_series in reversed(single)} | of_source
    like = next((by_name[name] for name in routed.engines if name in by_name), None)
    like = like or next((a_series for a_series in single if a_series.published), None)
    return [] if like is None else [by_name.get(name, like) for name in routed.engines]


def _engines_levels(
    routed: LevelSeries, alone: Sequence[LevelSeries], series: Sequence[LevelSeries], metric: str
) -> Iterator[EnginesLevel]:
    """Yield a router's levels for which its engines give a bound, each with what exceeds it."""
    count = len(alone)
    others = [
        a_series
        for a_series in series
        if a_series not in alone and a_series is not routed and len(a_series.engines) <= 1
    ]

    def exceeds(a_series: LevelSeries, load: Level, bound: Value) -> bool:
        beside = a_series.at(load)
        if beside is None or metric not in beside.figures:
            return False
        all_published = all(part.published for part in (a_series, *alone))
        tests = len(routed.levels) * len(others)
        return _clearly_exceeds(beside.figures[metric], bound, tests=tests, stated=all_published)

    for level in routed.levels:
        concurrency = level.load.point.concurrency
        if not concurrency:
            continue  # its load is not divided into numbers of requests
        concurrency_each, remainder = divmod(concurrency, count)
        part_load = replace(level.load, point=concurrency_point(concurrency_each))
        levels = [a_series.at(part_load) for a_series in alone]
        measured = [part for part in levels if part is not None and metric in part.figures]
        if remainder or not concurrency_each or len(measured) < count:
            continue
        figures = [part.figures[metric] for part in measured]
        # The first run of the bound is the sum of the engines' first runs, and so on.
        runs = [sum(values) for values in zip(*(figure.runs for figure in figures), strict=False)]
        bound = value_of(sum(figure.mean for figure in figures), runs)
        reached = level.figures.get(metric)
        percent, is_significant = None, None
        if reached is not None:
            percent = 100 * reached.mean / bound.mean
            ratio = ratio_of(reached, bound)
            if ratio is not None and ratio.p is not None:
                is_significant = _is_significant(ratio, len(routed.levels))
        yield EnginesLevel(
            concurrency=concurrency,
            each=concurrency_each,
            bound=bound.mean,
            routed=None if reached is None else reached.mean,
            percent=percent,
            significant=is_significant,
            beyond=tuple(a_series.name for a_series in others if exceeds(a_series, level.load, bound)),
        )


def _clearly_exceeds(figure: Value, bound: Value, *, tests: int, stated: bool) -> bool:
    """Return whether a target's value exceeds the upper bound significantly and beyond the noise floor.

    `tests` is the number of such tests, for a Bonferroni correction. Where single runs allow no test, return
    `stated`, which is True if all values are from published tables.
    """
    ratio = ratio_of(figure, bound)
    if ratio is None or ratio.ratio <= 1 or not ratio.is_beyond(NOISE_FLOOR_PERCENT):
        return False
    return stated if ratio.p is None else _is_significant(ratio, tests)


def _is_significant(ratio: Ratio, tests: int) -> bool:
    """Return whether a ratio with a p-value differs from 1 significantly and beyond the noise floor.

    `tests` is the number of such tests, for a Bonferroni correction.
    """
    return (ratio.p or 0.0) <= ERROR_RATE / max(1, tests) and ratio.is_beyond(NOISE_FLOOR_PERCENT)


_STATED_PERCENT = 1.0
"""Minimum lead in percent of a winner in a published table, because its values are rounded."""
_LEAST_FIGURES = 2
"""Minimum number of targets with a value for a comparison."""
_Levels = Mapping[str, Mapping[Level, Mapping[str, Value]]]
"""Values by target, then load, then metric."""
_Vs = Literal["runner-up", "baseline"]
"""What a percentage refers to, see `ComparisonRow.winner_vs`."""


def compare(
    series: Sequence[LevelSeries],
    *,
    baseline: str | None = None,
    same: tuple[str, str] | None = None,
) -> ComparisonResult:
    """Compare series, whose names must differ, in all metrics.

    `baseline` names the series that percentages refer to. `same` names two series of the same server, whose
    difference is noise; by default, two targets of one sweep with the same address and model are used.
    """
    rows_of = align_rows(series)
    levels = {
        a_series.name: {load: level.figures for load, level in by_load.items()}
        for a_series, by_load in zip(series, rows_of, strict=True)
    }
    pair = same or _same_address(series)
    floors = {name: _noise_floor_percent(levels, name, pair) for name in METRICS}
    published = {a_series.name: a_series.source for a_series in series if a_series.published}
    slots = {a_series.name: a_series.slots for a_series in series}
    unstated = frozenset(a_series.name for a_series in without_lengths(series))
    table = _Table(levels, floors, baseline, published, slots, unstated)
    rows = [
        _row_at_load(table, metric, load, ranked)
        for metric in METRICS.values()
        for load, ranked in table.ranked[metric.name].items()
    ]
    # Targets of different sources may differ in more than the target.
    is_one_source = len({published.get(a_series.name) for a_series in series}) == 1
    metrics = {row.metric for row in rows}
    return ComparisonResult(
        baseline=baseline,
        rows=tuple(rows),
        crossovers=tuple(_crossovers(rows)) if is_one_source else (),
        notes=tuple(notes_of(series, rows, pair)),
        definitions=definitions_of(series, metrics),
        noise_floor_percent={name: floor for name, floor in floors.items() if name in metrics},
        error_rate_percent=100 * ERROR_RATE,
        independent_engines=tuple(independent_engines(series)),
        capacity=compared_series(series),
    )


def judging(comparison: ComparisonResult) -> tuple[str, ...]:
    """Return the names of the metrics that judge targets, by the levels at which these are compared."""
    return judging_metrics(Counter(row.metric for row in comparison.rows))


def comparison_of(stored: ComparisonResult | None, series: Sequence[LevelSeries]) -> ComparisonResult:
    """Return a sweep's stored comparison.

    Compute it from `series` if none is stored, or if an older version stored it, which tested each row alone,
    named a winner where slots decide, or compared 0 where nothing was measured.
    """
    if stored is None or stored.error_rate_percent is None:
        return compare(series)
    slots = {a_series.name: a_series.slots for a_series in series}
    is_wrong = any(
        0 in row.values.values()
        or (row.winner and row.against and _unequal_slots(slots, level_of(row), row.winner, row.against))
        for row in stored.rows
    )
    return compare(series) if is_wrong else stored


def _unequal_slots(slots: Mapping[str, int | None], load: Level, ahead: str, against: str) -> dict[str, int]:
    """Return the slots of two targets if requests wait at `against` alone; {} if not, or if unknown."""
    mine, other = slots.get(ahead), slots.get(against)
    if mine is None or other is None or not other < min(mine, load.point.concurrency):
        return {}
    return {ahead: mine, against: other}


class _Table(Struct):
    """All values of a comparison, and which of their differences are significant."""

    levels: _Levels
    floors: Mapping[str, float]
    """Noise floor in percent by metric."""
    baseline: str | None
    published: Mapping[str, str]
    """Source of each published series, by its name."""
    slots: Mapping[str, int | None]
    """Slots by target; None if unknown."""
    unstated: frozenset[str]
    """Names of the series that do not state their lengths, beside others that do."""
    ranked: Mapping[str, Mapping[Level, Sequence[str]]] = field(default_factory=dict)
    """Targets with a value by metric, then load, the best first; without loads that fewer than two have."""
    proven: Mapping[tuple[str, Pair], Mapping[Level, Ratio]] = field(default_factory=dict)
    """Test results by metric and pair of targets, then by load; of pairs with a target that others are held
    against."""

    def __post_init__(self) -> None:
        self.ranked = {metric.name: dict(self._ranked(metric)) for metric in METRICS.values()}
        testable = {
            (name, metric): frozenset(
                load for load, figures in levels.items() if metric in figures and is_testable(figures[metric])
            )
            for name, levels in self.levels.items()
            for metric in METRICS
        }
        common = cache(frozenset[Level].intersection)  # most targets have the same levels
        hypotheses = {
            (metric, (first, other)): common(testable[first, metric], testable[other, metric])
            for metric in METRICS
            for first, other in combinations(self.levels, 2)
        }
        hypotheses = {hypothesis: loads for hypothesis, loads in hypotheses.items() if loads}
        tested_names = {
            metric: {self.baseline, *(names[0] for names in by_load.values())}
            for metric, by_load in self.ranked.items()
        }
        tests: dict[tuple[str, tuple[str, str]], dict[Level, Ratio]] = {}
        for (metric, (first, other)), loads in hypotheses.items():
            if tested_names[metric].isdisjoint((first, other)):
                continue
            ratios = {
                load: ratio_of(figures[metric], self.levels[other][load][metric])
                for load, figures in self.levels[first].items()
                if load in loads
            }
            known_ratios = {load: ratio for load, ratio in ratios.items() if ratio is not None}
            tests[metric, (first, other)] = known_ratios
        self.proven = proofs(hypotheses, tests)

    def _ranked(self, metric: Metric) -> Iterator[tuple[Level, Sequence[str]]]:
        worse = min if metric.more_is_better else max
        loads = {load for by_load in self.levels.values() for load in by_load}
        for load in sorted(loads, key=lambda load: load.order):
            figures = self.figures(metric.name, load)
            # By the mean, or the worse end of a range.
            by_rank = {name: worse(value.span or (value.mean,)) for name, value in figures.items()}
            if len(figures) >= _LEAST_FIGURES:
                yield load, sorted(figures, key=by_rank.__getitem__, reverse=metric.more_is_better)

    def figures(self, metric: str, load: Level) -> dict[str, Value]:
        """Return the value of a metric under one load, by target; targets without a value are left out."""
        return {
            name: levels[load][metric]
            for name, levels in self.levels.items()
            if metric in levels.get(load, {})
        }

    def are_same_load(self, names: Iterable[str]) -> bool:
        """Return whether all of `names` state their lengths, or none does."""
        return len({name in self.unstated for name in names}) == 1

    def change(self, metric: str, load: Level, target: str, other: str) -> Change:
        """Return the difference of `target` from the target `other`, and whether it is significant.

        It is untested if only one of the two states its lengths: it may be that of the load.
        """
        pairs = ((target, other), (other, target)) if self.are_same_load((target, other)) else ()
        for pair in pairs:
            tested_ratio = self.proven.get((metric, pair), {}).get(load)
            if tested_ratio is not None:
                ratio = tested_ratio if pair[0] == target else tested_ratio.inverse()
                is_shown = ratio.proven and ratio.is_beyond(self.floors[metric])
                return Change(percent=ratio.percent, ratio_ci95=ratio.ci95, significant=is_shown)
        figures = self.figures(metric, load)
        untested = ratio_of(figures[target], figures[other])
        return Change() if untested is None else Change(percent=untested.percent)

    def changes_to_baseline(self, metric: str, load: Level) -> dict[str, Change]:
        """Return the change of every other target from the baseline; {} without a baseline with a value."""
        figures = self.figures(metric, load)
        if self.baseline is None or self.baseline not in figures:
            return {}
        others = [name for name in figures if name != self.baseline]
        return {name: self.change(metric, load, name, self.baseline) for name in others}


def _row_at_load(table: _Table, metric: Metric, load: Level, ranked: Sequence[str]) -> ComparisonRow:
    """Return the row of a metric under one load; `ranked` has the targets, the best first."""
    figures = table.figures(metric.name, load)
    changes = {name: table.change(metric.name, load, ranked[0], name) for name in ranked[1:]}
    is_same_load = table.are_same_load(ranked)
    ahead = ranked[0] if is_same_load and _is_ahead(figures, ranked) else None
    is_proven = _is_better_than_all(changes)
    stated = is_proven is None and ahead is not None and _wins_as_published(table, metric, ahead, changes)
    floor = table.floors[metric.name]
    if not stated and is_same_load and any(_is_untested_noise(change, floor) for change in changes.values()):
        is_proven = False  # whatever a test would say
    vs: _Vs = "runner-up"
    against = ranked[1]
    if is_proven is False:
        against = next(name for name, change in changes.items() if not change.significant)
    elif table.baseline in ranked[1:]:
        vs, against = "baseline", str(table.baseline)
    beside = changes[against]
    unequal_slots: dict[str, int] = {}
    if ahead is not None and is_proven is not False:
        unequal_slots = _unequal_slots(table.slots, load, ahead, against)
    return ComparisonRow(
        **axis_fields(load.point.concurrency, load.point),
        metric=metric.name,
        pp=load.pp,
        tg=load.tg,
        depth=load.depth,
        values={name: figures[name].mean for name in table.levels if name in figures},
        ranges={name: value.span for name, value in figures.items() if value.span is not None},
        winner=ahead if (is_proven or stated) and not unequal_slots else None,
        winner_vs=vs,
        ahead=ahead,
        beats=tuple(name for name, change in changes.items() if change.significant),
        against=against,
        percent=beside.percent,
        ratio_ci95=beside.ratio_ci95,
        runs=min(len(figures[name].runs) for name in (ranked[0], against)) or None,
        significant=is_proven,
        unequal_slots=unequal_slots,
        changes=table.changes_to_baseline(metric.name, load),
    )


def _is_better_than_all(changes: Mapping[str, Change]) -> bool | None:
    """Return whether a target is significantly better than all others, by its change from each of them.

    Return None if one of the changes could not be tested, and the others are significant.
    """
    verdicts = [change.significant for change in changes.values()]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _is_ahead(figures: Mapping[str, Value], ranked: Sequence[str]) -> bool:
    """Return whether the first of the `ranked` targets has a better value than all others.

    Return False if the second target has an equal value, or if ranges of values overlap.
    """
    best = figures[ranked[0]]
    if best.mean == figures[ranked[1]].mean and best.span == figures[ranked[1]].span:
        return False
    spans = [figures[name] for name in ranked[1:] if best.span is not None or figures[name].span is not None]
    return all(ratio_of(best, other) is not None for other in spans)


def _wins_as_published(table: _Table, metric: Metric, ahead: str, changes: Mapping[str, Change]) -> bool:
    """Return whether `ahead` wins by published values, although some of its differences cannot be tested.

    `changes` has the difference of `ahead` from each other target. `ahead` and every target without a test
    must be in published tables, and each untested difference must exceed rounding, or the noise floor if the
    two are from tables of different sources.
    """
    for name, change in changes.items():
        if change.significant is None:
            if ahead not in table.published or name not in table.published:
                return False
            if table.published[ahead] == table.published[name]:
                if abs(change.percent or 0.0) < _STATED_PERCENT:
                    return False
            elif _is_untested_noise(change, table.floors[metric.name]):
                return False
    return True


def _is_untested_noise(change: Change, floor_percent: float) -> bool:
    """Return whether a difference that cannot be tested is within the noise floor."""
    percent = change.percent or 0.0
    return change.significant is None and abs(math.log1p(percent / 100)) <= math.log1p(floor_percent / 100)


def _crossovers(rows: Sequence[ComparisonRow]) -> Iterator[Crossover]:
    """Yield a crossover for each change of the winner between two levels with the same metric and lengths.

    Levels without a winner are skipped, and so are changes where either winner lacks a value at a level.
    """
    by_metric: dict[tuple[str, LoadKind, int | None, int | None, int], list[ComparisonRow]] = {}
    for row in rows:
        if row.winner is not None:
            by_metric.setdefault((row.metric, row.load, row.pp, row.tg, row.depth), []).append(row)
    for lower_row, upper_row in chain.from_iterable(map(pairwise, by_metric.values())):
        names = {str(lower_row.winner), str(upper_row.winner)}
        if len(names) > 1 and names <= lower_row.values.keys() & upper_row.values.keys():
            yield Crossover(
                metric=lower_row.metric,
                between=(lower_row.point.value, upper_row.point.value),
                load=upper_row.load,
                from_=str(lower_row.winner),
                to=str(upper_row.winner),
                significant=True if lower_row.significant and upper_row.significant else None,
            )


def _noise_floor_percent(levels: _Levels, metric: str, pair: tuple[str, str] | None) -> float:
    """Return the noise floor of a metric in percent: the largest difference between the series of `pair`.

    `pair` names two series of the same server. Return the default noise floor if `pair` is None, or if the
    two series have no level in common.
    """
    if pair is None:
        return NOISE_FLOOR_PERCENT
    levels_before, levels_after = (levels.get(name, {}) for name in pair)
    ratios = (
        ratio_of(figures[metric], levels_after[load][metric])
        for load, figures in levels_before.items()
        if metric in figures and metric in levels_after.get(load, {})
    )
    changes_percent = (100 * math.expm1(abs(math.log(ratio.ratio))) for ratio in ratios if ratio)
    return max(changes_percent, default=NOISE_FLOOR_PERCENT)


def _same_address(series: Sequence[LevelSeries]) -> tuple[str, str] | None:
    """Return the names of two targets of one sweep with the same address and model, or None."""
    names: dict[tuple[str, str, str | None], str] = {}
    for a_series in series:
        if a_series.address is None:
            continue
        key = (a_series.source, a_series.address, a_series.model)
        if key in names:
            return names[key], a_series.name
        names[key] = a_series.name
    return None


UNLIKE_LENGTHS = "not alike: prompt / output tokens"
"""Beginning of the note on series that were measured with other lengths."""
NO_TEST = "no test possible (*): single runs, or published means"
"""Note on rows of single runs."""
CLOCK_SHIFT_PERCENT = 3.0
"""Clock difference between compared levels beyond which the machine was not in the same state."""


def definitions_of(series: Sequence[LevelSeries], metrics: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the definition of each metric in each series: by metric, then by name of the series.

    The result has only the metrics in `metrics` that at least one series defines differently from sparktop.
    """
    defined = {name for a_series in series for name in a_series.definitions if name in metrics}
    return {
        name: {
            a_series.name: a_series.definitions.get(name, METRICS[name].definition)
            for a_series in series
            if name in a_series.metrics()
        }
        for name in METRICS
        if name in defined
    }


def names_by_definition(definitions: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (metric, definition, names of the series that have it), for definitions by metric and series."""
    for metric, texts in definitions.items():
        for text in dict.fromkeys(texts.values()):
            yield metric, text, [name for name, definition in texts.items() if definition == text]


def notes_of(
    series: Sequence[LevelSeries],
    rows: Sequence[ComparisonRow],
    pair: tuple[str, str] | None,
) -> Iterator[str]:
    """Yield the notes on a comparison, each at most a sentence.

    `pair` names two series of the same server, whose difference is taken for noise.
    """
    titles = dict.fromkeys(METRICS[row.metric].title for row in rows if row.significant is None)
    if titles:
        is_everywhere = all(row.significant is None for row in rows)
        yield NO_TEST if is_everywhere else f"{NO_TEST}, in rows of {', '.join(titles)}"
    if pair is not None:
        yield f"{pair[0]} and {pair[1]} are the same server: what they differ by is taken for noise"
    means = definitions_of(series, {row.metric for row in rows}).items()
    unlike = [METRICS[metric].title for metric, texts in means if len(set(texts.values())) > 1]
    if unlike:
        yield f"not the same window everywhere, see the definitions: {', '.join(unlike)}"
    yield from _unlike_values(
        "requests came", series, lambda a_series: a_series.shape and a_series.shape.sentence
    )
    yield from _unlike_values("model", series, lambda a_series: a_series.model)
    yield from _unlike_values("prompts", series, lambda a_series: a_series.prompts or "made ones")
    yield from _unlike_values("requests", series, lambda a_series: a_series.requests or "nothing added")
    if all(row.pp is None and row.tg is None for row in rows):
        yield from _unlike_values("prompt / output tokens", series, length_words)
    yield from length_notes(series)
    if unstated := without_lengths(series):
        yield f"{names_in_words([a_series.name for a_series in unstated])}: {UNSTATED_WORDS}"
    if ranged := dict.fromkeys(name for row in rows for name in row.ranges):
        yield f"given as ranges, compared by their nearest end: {', '.join(ranged)}"
    yield from _clock_shifts(series)
    yield from notes_of_each(series)
    yield from _notes_by_source(series)


def _unlike_values(
    what: str, series: Iterable[LevelSeries], of: Callable[[LevelSeries], str | None]
) -> Iterator[str]:
    """Yield a note if series differ in `what`, the value that `of` returns; None is no value."""
    by_value: dict[str, list[str]] = {}
    for a_series in series:
        value = of(a_series)
        if value is not None:
            by_value.setdefault(value, []).append(a_series.name)
    if len(by_value) > 1:
        parts = (f"{value} ({', '.join(names)})" for value, names in by_value.items())
        yield f"not alike: {what}: {'; '.join(parts)}"


def length_words(series: LevelSeries) -> str | None:
    """Return the tokens of prompt and answer of a series, "128 / 64"; None if its levels differ in them."""
    lengths = {(level.load.pp, level.load.tg) for level in series.levels}
    if len(lengths) != 1 or lengths == {(None, None)}:
        return None
    return " / ".join("?" if count is None else str(count) for count in lengths.pop())


def _clock_shifts(series: Sequence[LevelSeries]) -> Iterator[str]:
    clocks: dict[tuple[LoadPoint, str], list[float]] = {}
    for level in (level for a_series in series for level in a_series.levels):
        for node, clock in level.sm_clock_mhz.items():
            clocks.setdefault((level.load.point, node), []).append(clock)
    for (point, node), values in sorted(clocks.items()):
        low, high = min(values), max(values)
        if low > 0 and 100 * (high / low - 1) > CLOCK_SHIFT_PERCENT:
            yield f"clock_shift: {point.short}: SM clock of {node} {low:.0f} to {high:.0f} MHz"


def _refusal_notes(series: Sequence[LevelSeries]) -> Iterator[str]:
    for a_series in series:
        loads: dict[str, list[Level]] = {}
        for load, words in a_series.refused.items():
            loads.setdefault(words, []).append(load)
        for words, refused in loads.items():
            yield f"{a_series.name}: ❌ {refused_words(refused)}: {words}"


def notes_of_each(series: Sequence[LevelSeries]) -> Iterator[str]:
    """Yield the notes on what is simulated, refused and doubted, which a report of a sweep says elsewhere."""
    if names := [a_series.name for a_series in series if a_series.simulated]:
        yield f"simulated: {', '.join(names)}"
    yield from _refusal_notes(series)
    yield from _warning_notes(series)


def refused_words(loads: Iterable[Level]) -> str:
    """Return loads that a server does not take: "50 and 90 tokens in; 64 tokens in after 512 of context"."""
    lengths: dict[int, set[int]] = {}
    for load in loads:
        if load.pp is not None:
            lengths.setdefault(load.depth, set()).add(load.pp)
    parts = (
        f"{names_in_words([f'{pp:,}' for pp in sorted(of_depth)])} tokens in"
        + (f" after {depth:,} of context" if depth else "")
        for depth, of_depth in sorted(lengths.items())
    )
    return "; ".join(parts) or "own prompts"


def _warning_notes(series: Sequence[LevelSeries]) -> Iterator[str]:
    """Yield a note for each series with the warnings of its levels."""
    for a_series in series:
        places: dict[str, list[str]] = {}
        for level in a_series.levels:
            place = level.load.point.short
            if a_series.has_lengths and level.load.pp is not None:
                place += f" {level.load.pp:,} in"
            for mark in level.validity:
                word = WARNINGS[mark].word if mark in WARNINGS else mark
                places.setdefault(word, []).append(place)
        doubts: list[str] = []
        for word, where in places.items():
            is_everywhere = len(where) == len(a_series.levels) > 1
            doubts.append(f"{word} at {'every level' if is_everywhere else ', '.join(where)}")
        if doubts:
            yield f"{a_series.name}: warnings: {'; '.join(doubts)}"


def _notes_by_source(series: Sequence[LevelSeries]) -> Iterator[str]:
    by_note: dict[str, list[LevelSeries]] = {}
    for a_series in series:
        for note in a_series.notes:
            by_note.setdefault(note, []).append(a_series)
    for note, ones in by_note.items():
        sources = {a_series.source for a_series in ones}
        is_of_all = len(ones) > 1 and len(sources) == 1
        yield f"{sources.pop() if is_of_all else ', '.join(a_series.name for a_series in ones)}: {note}"


def unlike_notes(comparison: ComparisonResult) -> list[str]:
    """Return the notes on results that were measured under other loads; [] if all loads are alike."""
    return [note for note in comparison.notes if note.startswith(UNLIKE_LENGTHS)]


def without_winners(comparison: ComparisonResult) -> ComparisonResult:
    """Return a comparison without winners, leads, tests and crossovers, or itself if its loads are alike."""
    if not unlike_notes(comparison):
        return comparison
    names = ("winner", "winner_vs", "ahead", "against", "percent", "ratio_ci95", "significant")
    none: dict[str, object] = {**dict.fromkeys(names), "beats": (), "unequal_slots": {}}
    rows = tuple(row.model_copy(update=none) for row in comparison.rows)
    notes = tuple(note for note in comparison.notes if not note.startswith(NO_TEST))
    return comparison.model_copy(update={"rows": rows, "crossovers": (), "notes": notes})


def compared_series(series: Sequence[LevelSeries]) -> CapacityComparison | None:
    """Return the comparison of the searches behind `series`; None if fewer than two were searches."""
    searched = {a_series.name: a_series.search for a_series in series if a_series.search is not None}
    searches = [search for search, _ in searched.values()]
    if len(searched) < 2:  # noqa: PLR2004 - a comparison needs two
        return None
    answers = {name: answer for name, (_, answer) in searched.items()}
    alike = all(
        (a_series.load, a_series.conditions, a_series.share_percent)
        == (searches[0].load, searches[0].conditions, searches[0].share_percent)
        for a_series in searches
    )
    return _compare_answers(searches[0], answers, alike=alike)


def compared_targets(search: CapacityResult) -> CapacityComparison | None:
    """Return the comparison of the targets of one search; None if it has fewer than two answers."""
    return _compare_answers(search, search.answers, alike=True) if len(search.answers) > 1 else None


def _compare_answers(
    search: CapacityResult, answers: Mapping[str, CapacityAnswer], *, alike: bool
) -> CapacityComparison:
    """Return the comparison of answers to one question; see `CapacityComparison`."""
    ranges: dict[str, tuple[float, float | None]] = {}
    for name, answer in answers.items():
        low, fails = answer.interval
        ranges[name] = (
            low or 0.0,
            fails - 1 if fails is not None and search.load is not LoadKind.RATE else fails,
        )
    higher = [
        name
        for name, (low, _) in ranges.items()
        if all(
            highest is not None and low > highest for other, (_, highest) in ranges.items() if other != name
        )
    ]
    return CapacityComparison(
        load=search.load,
        conditions=search.conditions,
        alike=alike,
        holds={name: answer.holds for name, answer in answers.items()},
        ranges={**ranges},
        takes_more=higher[0] if higher and alike else None,
    )
