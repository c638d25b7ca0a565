"""Draws comparisons: of a sweep's targets, and of two results before and after a change.

Targets have tables with the best one by level, and sentences on which is the best. Two results have each
change with its confidence interval, and a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.judgement import (
    NO_DIFFERENCE,
    UNFAIR,
    Outcome,
    is_too_scattered,
    lead_words,
    open_words,
    outcome,
    slots_words,
    whole_percent_change,
)
from sparktop.model.load import Level, LoadKind
from sparktop.model.sweep import (
    NOT_CERTAIN,
    ComparedLevel,
    ComparedMetric,
    CurvePlot,
    Difference,
    DifferenceRow,
    Topologies,
    Value,
    have_several_lengths,
    level_name,
)
from sparktop.panels.parts.figures import flow_pieces, heading, label, part_role, sentence_rows
from sparktop.panels.parts.text import Row, Run, fit_row, fitted_names, row_width, side_by_side
from sparktop.panels.sweep.curves import better_words, legend_rows, plots_rows
from sparktop.panels.sweep.table import ALIKE, BEST, SCATTERED, framed_sweep, page_title

MAIN = ("decode_tps", "sustained_tps", "prefill_tps", "ttft_due_ms", "e2e_due_ms", "ttft_ms")
"""Metrics on the screen; other metrics are shown only if none of these was measured."""
_LOAD = 5
"""Least width in cells of the level's name, which stands before all columns."""
_WINNER = 29
"""Width in cells of the best target's name with its percentage."""
_LEAST_WINNER = 16
_COLUMN = 9
"""Least width in cells of a target's column."""
_PLOT_FROM = 110
"""Width in cells from which on a plot stands beside the judgement."""
_LEAST_PLOT = 9
_WIDE = 150
"""Width in cells from which on the judgement stands beside the tables."""
UNTESTED = "*"
_PERCENT = 9
"""Width in cells of a percentage with its mark."""


def topology_screen(
    compared: Topologies,
    width: int,
    height: int,
    *,
    plots: Sequence[CurvePlot] = (),
    title: str = "",
    headline: str = "",
    simulated: bool = False,
) -> list[Row]:
    """Draw a comparison of targets in a frame: `height` rows of `width` cells, or more, which scroll.

    `headline`, the sweep's answer, comes first. `plots` are drawn where there is room beside or below the
    tables.
    """
    inner = width - 4
    body = sentence_rows(("▸ ", "accent"), headline, "title", inner) if headline else []
    if width >= _WIDE:
        body += _rows_of_wide_screen(compared, plots, inner, height - 2 - len(body))
    else:
        cells = inner // 2 - 1 if plots and inner >= _PLOT_FROM else inner
        words = judgement_rows(compared, cells)
        if cells < inner:
            plot = plots_rows(plots[:1], inner - cells - 2, max(_LEAST_PLOT, len(words)))
            words = side_by_side([words, plot], [cells, inner - cells - 2])
        body += [*words, *tables_rows(compared, inner), *rest_rows(compared, inner)]
    return framed_sweep(body, width, height, title=page_title("topologies", title), simulated=simulated)


def _rows_of_wide_screen(
    compared: Topologies, plots: Sequence[CurvePlot], width: int, height: int
) -> list[Row]:
    """Return the tables with all words beside them, and plots below both or else below the tables.

    The plots are left out where `height` rows have no room for them.
    """
    beside = width * 2 // 5
    cells = width - beside - 2
    tables, words = tables_rows(compared, cells), words_rows(compared, beside)
    below = _plots_below(plots, width, height - max(len(tables), len(words)))
    if not below:
        tables += _plots_below(plots, cells, height - len(tables))
    return [*side_by_side([tables, words], [cells, beside]), *below]


def _plots_below(plots: Sequence[CurvePlot], width: int, height: int) -> list[Row]:
    """Return `height` rows with plots and their legend; [] if these are too few rows."""
    legend = legend_rows(plots, width) if plots else []
    room = height - len(legend)
    return [*plots_rows(plots, width, room), *legend] if plots and room >= _LEAST_PLOT else []


def words_rows(compared: Topologies, width: int) -> list[Row]:
    """Return rows with all text of a comparison of targets: judgement, crossovers, engines, notes."""
    return [*judgement_rows(compared, width), *rest_rows(compared, width)]


def shown_metrics(compared: Topologies) -> tuple[ComparedMetric, ...]:
    """Return the metrics to show, in the order of `MAIN`; all metrics if none of `MAIN` was measured."""
    by_name = {metric.metric: metric for metric in compared.metrics}
    main = tuple(by_name[name] for name in MAIN if name in by_name)
    return main or compared.metrics


def tables_rows(compared: Topologies, width: int) -> list[Row]:
    """Return a table for each metric to show, one below the other."""
    rows: list[Row] = []
    for metric in shown_metrics(compared):
        rows += metric_rows(compared, metric, width)
    return rows


def metric_rows(compared: Topologies, metric: ComparedMetric, width: int) -> list[Row]:
    """Return one metric as a table: a row per level of load, a column per target, and the winner."""
    levels = [level_name(level.key, lengths=compared.several_lengths) for level in metric.levels]
    # A concurrency alone always has the same place, so that most tables stand alike.
    load = max((_LOAD, *map(len, levels))) if compared.several_lengths else _LOAD
    columns, winner = _column_widths(compared.columns, width - load - 1)
    better = better_words(more=metric.more_is_better)
    axis = (metric.levels[0].key.point.kind if metric.levels else LoadKind.CONCURRENCY).sign
    head: Row = [label(fit(axis, load, "right"))]
    names = fitted_names(tuple(compared.columns), min(columns, default=0))
    for index, name in enumerate(compared.columns):
        head.append((f" {fit(names[name].rstrip(), columns[index], 'right')}", part_role(index)))
    # What the percentages are relative to.
    titles = ("winner, against the next best", "winner, next best", "winner")
    if metric.winner_vs == "baseline":
        titles = (f"winner, against {compared.baseline}", f"against {compared.baseline}", "winner")
    head.append(label(f"  {_first_that_fits(titles, winner)}"))
    rows = [heading(f"{metric.title} in {metric.unit}", better, width), fit_row(head, width)]
    for name, level in zip(levels, metric.levels, strict=True):
        start: Row = [(fit(name, load, "right"), "title")]
        rows.append(fit_row([*start, *_level_row(compared, metric, level, columns, winner)], width))
    return rows


def _first_that_fits(texts: Sequence[str], width: int) -> str:
    """Return the first of `texts` that fits into `width` cells, or the last if none fits.

    `texts` must be ordered with the longest first.
    """
    return next((text for text in texts if cell_width(text) <= width), texts[-1])


def _column_widths(names: Sequence[str], width: int) -> tuple[list[int], int]:
    """Return (width of each target's column, width of the winner's column) in cells.

    If room is short, the columns of the targets become narrower first, so that names are cut before values.
    """
    count = max(1, len(names))
    column_width = max(_COLUMN, min(16, (width - _WINNER - 2) // count - 1))
    return [column_width] * len(names), max(_LEAST_WINNER, width - 2 - count * (column_width + 1))


def _level_row(
    compared: Topologies, metric: ComparedMetric, level: ComparedLevel, columns: Sequence[int], winner: int
) -> Row:
    row: Row = []
    for index, (name, value) in enumerate(zip(compared.columns, level.values, strict=True)):
        text = numbers.decimal(None if value is None else value.mean, metric.decimals)
        is_winner, is_open = name == level.winner, outcome(level) is Outcome.OPEN
        is_unbeaten = is_open and level.significant is False and name not in level.beats
        sign, role = "", "title"
        if is_unbeaten:
            sign = SCATTERED if is_too_scattered(level.ratio_ci95) and not level.beats else ALIKE
        if is_winner:
            sign, role = BEST, "good"
        if value is None:
            role = "muted"
        row += [(" ", "text"), (fit(f"{sign}{text}", columns[index], "right"), role)]
    against = compared.baseline if metric.winner_vs == "baseline" else level.against
    return [
        *row,
        ("  ", "text"),
        *fit_row(_winner_cells(level, winner, against), winner),
    ]


def _winner_cells(level: ComparedLevel, width: int, against: str | None) -> Row:
    """Return the best target of a level and its lead in percent, or that no target is clearly the best.

    If the percentage is relative to another target than `against` (which the column's title names), name
    that target, too.
    """
    verdict = outcome(level)
    if level.ahead is None and level.winner is None:
        return [label("even")]
    if verdict is Outcome.OPEN:
        texts = (f"{open_words([level])}: {lead_words(level)}", open_words([level]), "not clear")
        words = _first_that_fits(texts if lead_words(level) else texts[1:], width)
        indent = " " * _PERCENT if cell_width(words) <= width - _PERCENT else ""
        return [label(indent + words)]
    if verdict is Outcome.SLOTS:
        words = f"{lead_words(level)} ({slots_words(level)})"
        return [(_first_that_fits([f"{UNFAIR}: {words}", UNFAIR, "not fair"], width), "warn")]
    percent = UNKNOWN if level.percent is None else whole_percent_change(level.percent)
    sign = UNTESTED if level.significant is None else " "
    winner = level.winner or f"{level.ahead} ahead"
    winner += "" if level.against == against else f" against {level.against}"
    if cell_width(winner) <= width - _PERCENT:
        percent = fit(percent, _PERCENT - 2, "right")
    role = "good" if level.significant else "title"
    return [(percent, role), (f"{sign} ", "warn"), (winner, "text")]


def signed_percent(percent: float) -> str:
    """Format a percentage with its sign, without decimals from 10 on: "+4.2 %", "−31 %", ">+999 %"."""
    sign = "±"
    if percent:
        sign = "+" if percent > 0 else "−"
    if abs(percent) >= 1000:
        return f">{sign}999 %"
    return f"{sign}{abs(percent):.{0 if abs(percent) >= 9.95 else 1}f} %"


def judgement_rows(compared: Topologies, width: int) -> list[Row]:
    """Return rows with the judgement on each main metric: where which target is the best.

    Empty if `compared` has none.
    """
    return _sentences_below_title("which is the best", ("· ", "muted"), compared.sentences, "text", width)


def rest_rows(compared: Topologies, width: int) -> list[Row]:
    """Return the rows below tables and judgement: crossovers, what engines make alone, notes."""
    rows = _sentences_below_title("crossovers", ("⇄ ", "accent"), compared.crossovers, "text", width)
    rows += _sentences_below_title(
        "independent engines at best", ("· ", "muted"), compared.engines, "text", width
    )
    sentences = (*compared.notes, *compared.definitions)
    rows += _sentences_below_title("notes", ("· ", "muted"), sentences, "muted", width)
    return [fit_row(row, width) for row in rows]


def _sentences_below_title(
    title: str, mark: tuple[str, str], sentences: Sequence[str], role: str, width: int
) -> list[Row]:
    """Return `sentences` as rows below a title; empty if there are none."""
    if not sentences:
        return []
    rows = [heading(title, "", width)]
    for sentence in sentences:
        rows += sentence_rows(mark, sentence, role, width)
    return rows


_DIFFERENCE_LOAD, _VALUE, _CHANGE, _SPAN = 5, 11, 10, 20
_SPAN_FROM = 61
"""Cells beside the names of levels from which on confidence intervals are written as numbers."""
_BAR_MOST = 141
"""Greatest width in cells of the drawn intervals."""
_BAR_FROM, _BEFORE_BAR, _BESIDE_BAR = 91, 2 * _VALUE + 2 + _CHANGE + _SPAN + 1, 77
"""Cells beside the names of levels from which on confidence intervals are drawn, too; those of them before
the drawn intervals, and before and after these."""
_MOST_SPACE = 2
"""Most blank rows before a metric."""
_SHORT = {NO_DIFFERENCE: "not clear"}
"""Shorter labels of changes that are not significant, for when the label does not fit."""


def difference_screen(
    difference: Difference,
    width: int,
    height: int,
    *,
    simulated: bool = False,
    pair: str = "",
    scroll: int | None = None,
) -> list[Row]:
    """Draw a comparison of two results in a frame of exactly `height` rows, or more rows if `scroll` is None.

    `scroll` is the number of rows scrolled away at the top. `pair` names this comparison among several
    ("pair 1 of 2"), "" for a single one.
    """
    rows = difference_rows(difference, width)
    metrics = len({row.title for row in difference.rows})
    room = height - 2 - len(rows)
    if metrics and room >= metrics:
        rows = difference_rows(difference, width, space=min(_MOST_SPACE, room // metrics))
    top = 0 if scroll is None else max(0, min(scroll, len(rows) - (height - 2)))
    screen_height = max(height, len(rows) + 2) if scroll is None else height
    below = len(rows) - top - (screen_height - 2)
    untested = any(row.percent is not None and row.significant is None for row in difference.rows)
    words = [f"{UNTESTED} single run, no test possible"] if untested else []
    words += [f"↑ {top} above"] if top > 0 else []
    words += [f"↓ {numbers.count_words(below, 'more row')}"] if below > 0 else []
    return framed_sweep(
        rows[top : top + screen_height - 2],
        width,
        screen_height,
        title=page_title("A → B", pair),
        simulated=simulated,
        note=" · ".join(words),
    )


def difference_rows(difference: Difference, width: int, *, space: int = 0) -> list[Row]:
    """Return the rows of a comparison of two results, each `width` cells wide, without a frame.

    They hold the verdict, the names of the results (A and B), the change of each metric by level, and notes.
    `space` is the number of blank rows before each metric.
    """
    inner = width - 4
    rows: list[Row] = []
    rows += sentence_rows(("▸ ", "accent"), difference.verdict, "title", inner)
    if difference.why:
        rows += sentence_rows(("  ", "text"), difference.why, "muted", inner)
    names = (("A  ", difference.before), ("B  ", difference.after))
    rows += flow_pieces(
        [[label(word), (fit(name, min(inner - 8, cell_width(name))), "text")] for word, name in names], inner
    )
    scale_end = _scale_end(difference)
    levels = _level_names(difference)
    load = max(map(len, levels.values()), default=_DIFFERENCE_LOAD)
    room = inner - load  # for all that stands after the names of levels
    # An odd number, with a cell in the middle.
    bar_cells = min(_BAR_MOST, (room - _BESIDE_BAR - 1) // 2 * 2 + 1) if room >= _BAR_FROM else 0
    if bar_cells:
        rows.append([label(" " * (load + _BEFORE_BAR)), label(_scale_text(bar_cells, scale_end))])
    span = ", 95 % CI" if room >= _SPAN_FROM else ""
    for (title, unit), group in groupby(difference.rows, lambda row: (row.title, row.unit)):
        rows_of_metric = list(group)
        rows += [[]] * space
        better = better_words(more=rows_of_metric[0].more_is_better)
        rows.append(heading(f"{title} in {unit}: A → B, change{span}", better, inner))
        for row in rows_of_metric:
            cells = _difference_cells(row, bar_cells, scale_end, span=bool(span))
            start: Row = [(levels[row.key], "title"), *cells]
            words = row.undecided or ""
            endings = [_change_word(row, words), _change_word(row, _SHORT.get(words, words))]
            is_short = row_width([*start, *endings[0]]) > inner
            rows.append([*start, *endings[is_short]])
    if difference.notes:
        rows.append(heading("notes", "", inner))
        for note in difference.notes:
            rows += sentence_rows(("· ", "muted"), note, "muted", inner)
    return [fit_row(row, inner) for row in rows]


def _scale_end(difference: Difference) -> float:
    """Return the change, in percent, at both ends of the drawn scale: the largest change, but at most 100.

    The ends of confidence intervals count as changes. The result is 10 if no change is known.
    """
    ends = [
        abs(value)
        for row in difference.rows
        for value in (row.percent, row.low_percent, row.high_percent)
        if value is not None
    ]
    return min(100.0, max(ends, default=10.0)) or 10.0


def _level_names(difference: Difference) -> dict[Level, str]:
    """Return the names of all levels, equally wide."""
    keys = [row.key for row in difference.rows]
    lengths = have_several_lengths(key.pp for key in keys)
    names = {key: level_name(key, lengths=lengths) for key in keys}
    width = max((_DIFFERENCE_LOAD, *map(len, names.values()))) if lengths else _DIFFERENCE_LOAD
    return {key: fit(name, width, "right") for key, name in names.items()}


def _difference_cells(row: DifferenceRow, bar_cells: int, scale_end: float, *, span: bool) -> Row:
    """Return both values and the change; with `span` its interval, with `bar_cells` also drawn."""
    change: Run = label(fit(UNKNOWN, _CHANGE, "right"))
    if row.percent is not None:
        text = signed_percent(row.percent) + (UNTESTED if row.significant is None else "")
        change = fit(text, _CHANGE, "right"), {True: "good", False: "bad", None: "text"}[row.better]
    cells: Row = [_value_run(row, row.before), label(" →"), _value_run(row, row.after), change]
    if span:
        ends = [signed_percent(end) for end in (row.low_percent, row.high_percent) if end is not None]
        cells.append(label(fit(f"  {' to '.join(ends)}", _SPAN)))
    if bar_cells:
        cells += [(" ", "text"), *_change_bar(row, bar_cells, scale_end), (" ", "text")]
    return cells


def _value_run(row: DifferenceRow, value: Value | None) -> Run:
    if value is None:
        return label(fit(UNKNOWN, _VALUE, "right"))
    return fit(numbers.decimal(value.mean, row.decimals), _VALUE, "right"), "text"


def _change_word(row: DifferenceRow, undecided: str) -> Row:
    if row.better is True:
        return [(" ▲ better", "good")]
    if row.better is False:
        return [(" ▼ worse", "bad")]
    return [(f" {undecided}", "warn" if undecided == NOT_CERTAIN else "muted")]


def _scale_text(cells: int, scale_end: float) -> str:
    """Return the scale of the drawn intervals in `cells` cells: its ends and its middle, in percent."""
    ends = [f"{sign}{scale_end:.0f} %" for sign in "−+"]
    side = " " * (cells // 2 - len(ends[0]))
    return f"{ends[0]}{side}0{side}{ends[1]}"


def _change_bar(row: DifferenceRow, width: int, scale_end: float) -> Row:
    """Draw a change and its confidence interval on a line from -`scale_end` to +`scale_end` percent.

    The row is blank if the change is unknown.
    """
    if row.percent is None:
        return [label(" " * width)]
    cells = list("·" * width)
    middle = width // 2
    cells[middle] = "│"
    if row.low_percent is not None and row.high_percent is not None:
        first_cell = _scale_cell(row.low_percent, width, scale_end)
        last_cell = _scale_cell(row.high_percent, width, scale_end)
        for cell in range(first_cell, last_cell + 1):
            cells[cell] = "━" if cell != middle else "┿"
        # An interval that goes on beyond the scale does not end at its edge.
        if row.low_percent < -scale_end:
            cells[0] = "◂"
        if row.high_percent > scale_end:
            cells[-1] = "▸"
    cells[_scale_cell(row.percent, width, scale_end)] = "●"
    return [("".join(cells), {True: "good", False: "bad", None: "muted"}[row.better])]


def _scale_cell(percent: float, width: int, scale_end: float) -> int:
    share = max(-1.0, min(1.0, percent / scale_end))
    return round((width - 1) * (1 + share) / 2)
