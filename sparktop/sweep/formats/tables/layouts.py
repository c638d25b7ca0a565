"""Builds tables in the layouts of published benchmarks of DGX Sparks: one function per layout.

A series is the list of one target's levels. Each layout accepts series from any source, so that own
results have the same rows and columns as the published table that they are compared with.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparktop.graphics.numbers import MINUS, UNKNOWN
from sparktop.model.judgement import NO_DIFFERENCE, Outcome, open_words, outcome, signed
from sparktop.model.sweep_comparison import Value
from sparktop.report.document.grid import Cell, Grid, Outside
from sparktop.report.markdown import code
from sparktop.sweep.compare.independent import made_of
from sparktop.sweep.compare.ratio import ratio_of
from sparktop.sweep.compare.series import Load, Series, SeriesLevel, loads
from sparktop.sweep.formats.tables.figure_cells import (
    axis_head,
    figure,
    load_of,
    load_words,
    points_head,
    tokens,
    with_unit,
)
from sparktop.sweep.result.comparison import (
    ComparisonResult,
    ComparisonRow,
    EnginesLevel,
    IndependentEngines,
)
from sparktop.sweep.terms.definitions import METRICS, Metric
from sparktop.sweep.terms.statistics import ranged

THROUGHPUT = ("prefill_tps", "decode_tps", "peak_tps")
"""Columns of a throughput table: prefill rate, decode rate, tokens in the best second."""
SERVING = ("total_tps", "output_tps", "ttft_ms", "itl_ms", "e2e_ms")
"""Columns of a serving table: total and output token rate, and latencies."""


def by_concurrency(series: Series, metrics: Sequence[str], title: str) -> Grid:
    """Return a table of one series: its points, and each of `metrics` with values; one row per level."""
    shown_metrics = [METRICS[name] for name in metrics if name in series.metrics()]
    rows = tuple(
        (
            load_words(level.load, lengths=series.has_lengths),
            *(figure(level.figures.get(metric.name), metric) for metric in shown_metrics),
        )
        for level in series.levels
    )
    heads = tuple(f"{metric.title} ({metric.unit})" for metric in shown_metrics)
    return Grid(title, (axis_head(series), *heads), rows)


def winners(comparison: ComparisonResult, metric: str, names: Sequence[str]) -> Grid:
    """Return a table that compares series in one metric: point | each series | Winner (percent).

    There is one row per compared load. `names` are the series in the order of columns; series without a
    value are left out.
    """
    rows = [row for row in comparison.rows if row.metric == metric]
    shown = [name for name in names if any(name in row.values for row in rows)]
    meaning = METRICS[metric]
    some = any(row.significant is not None for row in comparison.rows)
    kinds = [row.winner_vs for row in rows if row.percent is not None and row.significant is not False]
    vs = next((kind for kind in ("table", "baseline") if kind in kinds), "runner-up" if kinds else None)
    body = tuple(
        (
            load_words(load_of(row)),
            *(_value(row, name, meaning) for name in shown),
            _winner(row, vs, mark_untested=some),
        )
        for row in rows
    )
    better = "higher" if meaning.more_is_better else "lower"
    heads: tuple[Cell, ...] = (
        points_head(row.point for row in rows),
        *(Outside(name) for name in shown),
        _winner_head(comparison, vs),
    )
    left = frozenset({0, len(heads) - 1})
    return Grid(f"{meaning.title} ({meaning.unit}, {better} is better)", heads, body, left)


def _winner_head(comparison: ComparisonResult, vs: str | None) -> Cell:
    """Return the heading of the winners' column, which states what the percentages in it compare with.

    `vs` is "runner-up" (the second-best series), "baseline" (the chosen series), "table" (the percentages
    are copied from a published table), or None (the column has no percentages).
    """
    if vs == "baseline":
        return f"Winner, against {code(comparison.baseline or '')}"
    against = {"runner-up": ", against the next best", "table": ", as the table says"}
    return f"Winner{against.get(vs or '', '')}"


def versus(comparison: ComparisonResult, metric: str, ours: str, theirs: Collection[str]) -> Grid:
    """Return a table of one metric with the columns: Source | point | Theirs | Ours | Delta.

    The series `ours` is compared with each series in `theirs`. If a value is a range, the difference in the
    column Delta is computed with the nearest end of the range.
    """
    meaning = METRICS[metric]
    rows = tuple(
        (
            Outside(name),
            load_words(load_of(row)),
            _value(row, name, meaning),
            _value(row, ours, meaning),
            _delta(row, ours, name),
        )
        for name in dict.fromkeys(name for row in comparison.rows for name in row.values)
        for row in comparison.rows
        if row.metric == metric and name in theirs and ours in row.values
        if row.values.get(name) is not None
    )
    axis = points_head(row.point for row in comparison.rows)
    heads = ("Source", axis, f"Theirs ({meaning.unit})", f"Ours ({meaning.unit})", "Delta")
    return Grid(f"{meaning.title}: theirs and ours", heads, rows)


def all_versus(
    comparison: ComparisonResult, metric: str, ours: Sequence[str], theirs: Collection[str]
) -> Grid:
    """Return a table of one metric with the columns: Source | point | Theirs | each of `ours`.

    The value of each series in `ours` is followed by its difference from theirs.
    """
    meaning = METRICS[metric]
    rows: list[tuple[Cell, ...]] = []
    for name in theirs:
        for row in comparison.rows:
            known = [own for own in ours if row.values.get(own) is not None]
            if row.metric == metric and row.values.get(name) is not None and known:
                own = {one: f"{_value(row, one, meaning)} ({_delta(row, one, name)})" for one in known}
                cells = (own.get(one, UNKNOWN) for one in ours)
                rows.append((Outside(name), load_words(load_of(row)), _value(row, name, meaning), *cells))
    axis = points_head(row.point for row in comparison.rows)
    heads: list[Cell] = ["Source", axis, f"Theirs ({meaning.unit})", *map(Outside, ours)]
    return Grid(f"{meaning.title}: theirs and ours", tuple(heads), tuple(rows))


def at_best(found: Sequence[IndependentEngines]) -> Grid:
    """Return a table of routers in front of the same engines, with their values against an upper bound.

    The bound is the sum of the values of N engines, each measured alone at 1/N of the concurrency. The
    columns are: Concurrency | upper bound | each router's value and its percentage of the bound | targets
    that exceed the bound.
    """
    metric = METRICS[found[0].metric]
    by_concurrency = {level.concurrency: level for one in found for level in one.levels}
    rows: list[tuple[Cell, ...]] = []
    for concurrency, level in sorted(by_concurrency.items()):
        reached = [next((of for of in one.levels if of.concurrency == concurrency), None) for one in found]
        beyond: Cell = Outside(", ".join(level.beyond)) if level.beyond else UNKNOWN
        cells = (_of_bound(one, metric) for one in reached)
        rows.append((f"c{concurrency}", metric.text(level.bound), *cells, beyond))
    routed = [Outside(one.routed, " (of it)") for one in found]
    heads: tuple[Cell, ...] = ("Concurrency", Outside(made_of(found[0])), *routed, "Beyond any routing")
    title = f"{metric.title} ({metric.unit}): {len(found[0].alone)} independent engines at best"
    return Grid(title, heads, tuple(rows), frozenset({0, len(heads) - 1}))


def _of_bound(level: EnginesLevel | None, metric: Metric) -> str:
    if level is None or level.percent is None:
        return UNKNOWN
    return f"{metric.text(level.routed)} ({level.percent:.0f} %)"


def interactive(series: Series) -> Grid:
    """Return a table of the first level with concurrency 1: latency, throughput, prompt and output length.

    It has no rows if the series has no such level.
    """
    rows: list[tuple[Cell, ...]] = []
    for level in _alone(series):
        rows += [
            ("Latency", with_unit(level.figures.get("e2e_ms"), METRICS["e2e_ms"])),
            ("Throughput", with_unit(level.figures.get("output_tps"), METRICS["output_tps"])),
            ("Prompt", tokens(level.load.pp)),
            ("Completion", tokens(level.load.tg)),
        ]
        break
    return Grid("Interactive, one user", ("Figure", "Value"), tuple(rows))


def batch_scaling(series: Series) -> Grid:
    """Return a table of a series with the columns: Batch (concurrency) | Throughput (output tokens/s)."""
    metric = METRICS["output_tps"]
    rows = tuple(
        (level.load.point.words, figure(level.figures.get("output_tps"), metric)) for level in series.levels
    )
    return Grid("Batch scaling", ("Batch", f"Throughput ({metric.unit})"), rows)


def contexts(series: Series) -> Grid:
    """Return a table of prompt lengths: Context | Prompt tokens | Latency | Decode rate.

    There is one row for each level with concurrency 1, and one row for each refused prompt length.
    """
    latency, decode = METRICS["e2e_ms"], METRICS["decode_tps"]
    rows = tuple(
        (
            Outside(level.label) if level.label else str(number),
            UNKNOWN if level.load.pp is None else f"{level.load.pp:,}",
            figure(level.figures.get("e2e_ms"), latency),
            figure(level.figures.get("decode_tps"), decode),
        )
        for number, level in enumerate(_alone(series), start=1)
    )
    refused = (load for load in series.refused if load.concurrency == 1)
    rows += tuple(
        ("❌", UNKNOWN if load.pp is None else f"{load.pp:,}", UNKNOWN, UNKNOWN) for load in refused
    )
    heads = ("Context", "Prompt tokens", "Latency (ms)", "Decode (tok/s)")
    return Grid("Long contexts, one user", heads, rows)


def spread(first: Series, second: Series, metric: str = "decode_tps") -> Grid:
    """Return a table of the standard deviations over runs of two series, in one metric.

    The columns are: Concurrency | first series | second series | ratio of the second to the first.
    """
    meaning = METRICS[metric]
    rows: list[tuple[Cell, ...]] = []
    for load in loads([first, second]):
        stds = [found.std if (found := _find([one], load, metric)) else None for one in (first, second)]
        if stds[0] is not None and stds[1] is not None:
            ratio = f"{stds[1] / stds[0]:.1f}×" if stds[0] > 0 else UNKNOWN
            rows.append(
                (load_words(load, lengths=first.has_lengths), f"{stds[0]:.2f}", f"{stds[1]:.2f}", ratio)
            )
    heads = (axis_head(first), Outside(first.name, " stdev"), Outside(second.name, " stdev"), "Ratio")
    return Grid(f"{meaning.title} ({meaning.unit}): spread over runs", heads, tuple(rows))


def _winner(row: ComparisonRow, vs: str | None, *, mark_untested: bool) -> Cell:
    """Return the table cell with the best series of a row and its lead in percent.

    If no series is clearly the best, the cell says so. `vs` is the reference of percentages that the column's
    heading names; if this row's percentage has another reference, the cell names that one. A "*" marks a
    lead that could not be tested. If `mark_untested` is False, winners that a published table names get no
    "*".
    """
    found = outcome(row)
    if row.ahead is None or row.percent is None:
        return UNKNOWN if row.significant is None else NO_DIFFERENCE
    if found is Outcome.OPEN:
        return Outside(row.ahead, f" ({signed(row.percent)}{_over(row)}: {open_words([row])})")
    mark = "*" if found is Outcome.AHEAD or (mark_untested and row.significant is None) else ""
    ahead = " ahead" if found is Outcome.AHEAD else ""
    over = _over(row) if row.winner_vs != vs else ""
    return Outside(row.ahead, f"{ahead} ({signed(row.percent)}{over}){mark}")


def _over(row: ComparisonRow) -> str:
    return f" against {code(row.against)}" if row.against else ""


def _value(row: ComparisonRow, name: str, metric: Metric) -> str:
    """Return the value of the series `name` in a row as text; a range as "low to high", "–" if unknown."""
    span = row.ranges.get(name)
    return (
        metric.text(row.values.get(name)) if span is None else " to ".join(metric.text(end) for end in span)
    )


def _delta(row: ComparisonRow, ours: str, theirs: str) -> str:
    """Return by how many percent the value of target `ours` differs from that of `theirs`: "+4.2 %".

    Both are targets in `row`. Return "within" for a value in their range, and "–" if a value is unknown.
    """
    mine, other = row.values.get(ours), row.values.get(theirs)
    if mine is None or other is None:
        return UNKNOWN
    ratio = ratio_of(ranged(mine, row.ranges.get(ours)), ranged(other, row.ranges.get(theirs)))
    known = "within" if row.ranges.get(theirs) else UNKNOWN
    return known if ratio is None else _signed(ratio.percent, 1)


def _signed(percent: float, digits: int) -> str:
    return f"{percent:+.{digits}f} %".replace("-", MINUS)


def _alone(series: Series) -> list[SeriesLevel]:
    return [level for level in series.levels if level.load.concurrency == 1]


def _find(series: Sequence[Series], load: Load, metric: str) -> Value | None:
    found = (level.figures.get(metric) for one in series if (level := one.at(load)) is not None)
    return next((figure for figure in found if figure is not None), None)
