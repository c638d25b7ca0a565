"""Targets beside one another: a column each, who wins by how much, where that changes, which to use when."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics.cells import cell_width, fit
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.balance import BalanceWord
from sparktop.model.sweep_comparison import (
    AdviceRow,
    ComparedLevel,
    ComparedMetric,
    Measured,
    SplitRow,
    Topologies,
)
from sparktop.model.text import names_in_words
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.frame import framed
from sparktop.panels.parts.roles import part_role
from sparktop.panels.parts.rows import Row, fit_row, merged
from sparktop.panels.parts.sections import heading
from sparktop.panels.parts.sentences import flowed, sentence_rows, wrapped
from sparktop.panels.sweep.table import ALIKE, BEST

MAIN = ("decode_tps", "sustained_tps", "prefill_tps", "ttft_ms")
"""Figures that stand on the screen; others only where none of these was measured."""
_LOAD = 6
"""Cells of the concurrency; one table has it before all columns."""
_WINNER = 29
"""Cells of the winner with its percentage."""
_LEAST_WINNER = 16
_COLUMN = 9
"""Cells of a target's column, at least."""
_WIDE = 150
"""Width from which on advice stands beside the tables."""
UNTESTED = "*"
_PAIR = 2
_PERCENT = 9
"""Cells of a percentage and its mark."""
_NONE = ("no difference shown", "none shown", "none")
_NO_WINNER = ("no winner shown", "no winner")
_NONE_OF_LEADERS = (f"no winner among {ALIKE}", f"{ALIKE} lead")
"""Words for a level without a winner, the longest first."""


def topology_screen(
    compared: Topologies, width: int, height: int, *, title: str = "", simulated: bool = False
) -> list[Row]:
    """Draw a comparison in a frame: `height` rows of `width` cells, or more, which scroll."""
    inner = width - 4
    if width >= _WIDE:
        beside = inner * 2 // 5
        left = tables_rows(compared, inner - beside - 2)
        right = words_rows(compared, beside)
        tall = max(len(left), len(right))
        body = [
            [*_row_at(left, index, inner - beside - 2), ("  ", "text"), *_row_at(right, index, beside)]
            for index in range(tall)
        ]
    else:
        body = [*advice_rows(compared, inner), *tables_rows(compared, inner), *rest_rows(compared, inner)]
    rows = [[(" ", "text"), *row] for row in body]
    head: Row = [
        ("┐", "border"),
        ("topologies", "title"),
        ("┌", "border"),
        label(f" {title} " if title else ""),
    ]
    status: Row = [("simulated ", "warn")] if simulated else []
    tall = max(height, len(rows) + 2)
    return [merged(row) for row in framed(rows, width, tall, role="selected", title=head, status=status)]


def _row_at(rows: Sequence[Row], index: int, width: int) -> Row:
    return fit_row(rows[index] if index < len(rows) else (), width)


def words_rows(compared: Topologies, width: int) -> list[Row]:
    """Give advice, crossovers, splits, deviations and notes in one column."""
    return [*advice_rows(compared, width), *rest_rows(compared, width)]


def shown_metrics(compared: Topologies) -> tuple[ComparedMetric, ...]:
    """Give the figures of the screen, the tokens that come out first."""
    found = {one.metric: one for one in compared.metrics}
    main = tuple(found[name] for name in MAIN if name in found)
    return main or compared.metrics


def tables_rows(compared: Topologies, width: int) -> list[Row]:
    """Give a table for each figure, under one heading with the columns' names."""
    rows: list[Row] = []
    for metric in shown_metrics(compared):
        rows += metric_rows(compared, metric, width)
    return rows


def metric_rows(compared: Topologies, metric: ComparedMetric, width: int) -> list[Row]:
    """Give one figure of all targets: a row a concurrency."""
    columns, winner = _widths(compared.columns, width)
    better = "higher is better" if metric.more_is_better else "lower is better"
    head: Row = [label(fit("c", _LOAD - 1, "right"))]
    for index, name in enumerate(compared.columns):
        head += [
            (" ", "text"),
            (fit(_short(name, columns[index]), columns[index], "right"), part_role(index)),
        ]
    head.append(label(f"  {_longest(_heads(compared, metric), winner)}"))
    rows = [heading(f"{metric.title} in {metric.unit}", better, width), fit_row(head, width)]
    rows += [fit_row(_level_row(compared, metric, level, columns, winner), width) for level in metric.levels]
    return rows


def _heads(compared: Topologies, metric: ComparedMetric) -> tuple[str, ...]:
    """Return titles of the winner's column that say what percentages are against, the longest first."""
    if metric.winner_vs == "baseline":
        return f"winner, against {compared.baseline}", f"against {compared.baseline}"
    if metric.winner_vs == "table":
        return "winner, as the table says", "as the table says"
    return "winner, against the runner-up", "winner over runner-up", "over runner-up"


def _longest(texts: Sequence[str], width: int) -> str:
    """Return the first of texts, the longest first, that is not cut; else the last."""
    return next((text for text in texts if cell_width(text) <= width), texts[-1])


def _widths(names: Sequence[str], width: int) -> tuple[list[int], int]:
    """Return the cells of each column, and of the winner; names are cut before figures are."""
    count = max(1, len(names))
    each = max(_COLUMN, min(16, (width - _LOAD - _WINNER - 2) // count - 1))
    return [each] * len(names), max(_LEAST_WINNER, width - _LOAD - 2 - count * (each + 1))


def _short(name: str, width: int) -> str:
    return name if cell_width(name) <= width else fit(name, width)


def _level_row(
    compared: Topologies, metric: ComparedMetric, level: ComparedLevel, columns: Sequence[int], winner: int
) -> Row:
    length = "" if level.prompt_tokens is None else f"/{level.prompt_tokens}"
    row: Row = [(fit(f"c{level.concurrency}{length}", _LOAD - 1, "right"), "title")]
    for index, (name, value) in enumerate(zip(compared.columns, level.values, strict=True)):
        text = _figure(metric, value)
        first = name == level.winner
        sign = BEST if first else ALIKE if _unbeaten(level, name) else ""
        role = "muted" if value is None else "good" if first else "title"
        row += [(" ", "text"), (fit(f"{sign}{text}", columns[index], "right"), role)]
    against = compared.baseline if metric.winner_vs == "baseline" else level.against
    return [*row, ("  ", "text"), *fit_row(_winner(level, winner, against), winner)]


def _figure(metric: ComparedMetric, value: Measured | None) -> str:
    if value is None:
        return UNKNOWN
    decimals = metric.decimals if abs(value.mean) < 1000 else 0
    return f"{value.mean:,.{decimals}f}"


def _winner(level: ComparedLevel, width: int, against: str | None) -> Row:
    """Return who wins by how much, who is ahead without a test, or that no difference is shown.

    A percentage against another target than `against`, which the column's title names, has its name.
    """
    if level.ahead is None and level.winner is None:
        return [label("even")]
    if level.significant is False:
        words = _longest(_undecided(level), width)
        indent = " " * _PERCENT if cell_width(words) <= width - _PERCENT else ""
        return [label(indent + words)]
    percent = UNKNOWN if level.percent is None else signed_percent(level.percent)
    sign = UNTESTED if level.significant is None else " "
    who = level.winner or f"{level.ahead} ahead"
    who += "" if level.against == against else f" over {level.against}"
    if cell_width(who) <= width - _PERCENT:
        percent = fit(percent, _PERCENT - 2, "right")
    role = "good" if level.significant else "title"
    return [(percent, role), (f"{sign} ", "warn"), (who, "text")]


def _undecided(level: ComparedLevel) -> tuple[str, ...]:
    """Return words for a level whose leaders are not shown to differ, the longest first."""
    if not level.leaders:
        return _NO_WINNER if level.beats else _NONE
    lead = f"{', '.join(level.leaders)} lead"
    return f"{names_in_words(level.leaders)} lead, no difference between them shown", lead, *_NONE_OF_LEADERS


def _unbeaten(level: ComparedLevel, name: str) -> bool:
    """Return whether a target is one of several that lead, none of them shown to be better."""
    if level.winner is not None or level.significant is not False:
        return False
    return name not in level.beats and bool(level.beats or name == level.ahead)


def signed_percent(percent: float) -> str:
    """Give a percentage with its sign, whole from 10 on."""
    sign = "+" if percent > 0 else "−" if percent < 0 else "±"
    if abs(percent) >= 1000:
        return f">{sign}999 %"
    return f"{sign}{abs(percent):.{0 if abs(percent) >= 9.95 else 1}f} %"


def advice_rows(compared: Topologies, width: int) -> list[Row]:
    """Give which target to use under which load, and how sure that is."""
    if not compared.advice:
        return []
    rows = [heading("when to use which", "", width)]
    for one in compared.advice:
        sure = {True: ("✓", "good"), None: (UNTESTED, "warn"), False: ("·", "muted")}[one.sure]
        target = one.target or _undecided_words(one, len(compared.columns))
        role = "title" if one.target is not None else "muted"
        head: Row = [sure, (f" {fit(one.loads, 10)}", "text"), (target, role), label(f"  {one.wish}")]
        rows.append(fit_row(head, width))
        rows += [fit_row([label(" " * 12 + line)], width) for line in wrapped(one.why, max(20, width - 12))]
    return rows


def _undecided_words(one: AdviceRow, targets: int) -> str:
    """Return in a word or two which target to use where none wins."""
    if one.leaders:
        return " or ".join(one.leaders)
    return "not shown" if one.unproven else "either" if targets == _PAIR else "any"


def rest_rows(compared: Topologies, width: int) -> list[Row]:
    """Return crossovers, who answered, whose runs differ most, and what a reader must know."""
    rows = _listed("crossovers", ("⇄ ", "accent"), compared.crossovers, "text", width)
    if compared.splits:
        rows.append(heading("who answered, and the batches that ran", "", width))
        for split in compared.splits:
            rows += _split_rows(split, width)
    if compared.deviations:
        rows.append(heading("spread of the runs", "standard deviation", width))
        for one in compared.deviations:
            ratio = "" if one.ratio is None else f"{one.ratio:.1f}× "
            words = (
                f"{one.metric} c{one.concurrency}: {one.restless} {one.restless_std:.2f}, "
                f"{one.steady} {one.steady_std:.2f}"
            )
            rows.append(fit_row([(fit(ratio, 6, "right"), "title"), (words, "text")], width))
    rows += _listed("independent engines at best", ("· ", "muted"), compared.engines, "text", width)
    known = (*compared.notes, *compared.definitions)
    rows += _listed("to be known", ("· ", "muted"), known, "muted", width)
    return [fit_row(row, width) for row in rows]


def _listed(title: str, mark: tuple[str, str], sentences: Sequence[str], role: str, width: int) -> list[Row]:
    """Return sentences under a heading; nothing without a sentence."""
    if not sentences:
        return []
    rows = [heading(title, "", width)]
    for sentence in sentences:
        rows += sentence_rows(mark, sentence, role, width)
    return rows


def _split_rows(one: SplitRow, width: int) -> list[Row]:
    """Give one level: who answered, what ran at once, what the router adds; in two rows where it must be."""
    name = max(6, min(14, cell_width(one.target)))
    indent = name + 7
    pieces: list[Row] = []
    for index, (backend, count) in enumerate(sorted(one.requests.items())):
        pieces.append([(backend, part_role(index)), label(f" {count}")])
    if one.runs is not None:
        pieces.append([(one.runs, "title")])
    if one.batches:
        ran = " | ".join(f"{mean:.1f}" for _, mean in sorted(one.batches.items()))
        pieces.append([label("batch "), (ran, "title")])
    if one.overhead is not None:
        pieces.append([label("router adds "), (one.overhead, "title")])
    if one.balance_word not in {None, BalanceWord.UNKNOWN.value}:
        pieces.append([label("balance "), (one.balance_word or "", "text")])
    start: Row = [(f"{fit(one.target, name)} ", "text"), (fit(f"c{one.concurrency}", 6), "title")]
    return [
        fit_row([*(start if not index else [label(" " * indent)]), *row], width)
        for index, row in enumerate(flowed(pieces, max(20, width - indent)))
    ]
