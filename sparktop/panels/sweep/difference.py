"""Compares two results, before and after: each change with its confidence interval, and a verdict."""

from __future__ import annotations

from itertools import groupby

from sparktop.graphics.cells import cell_width, fit
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.judgement import NO_DIFFERENCE
from sparktop.model.load import LoadPoint
from sparktop.model.sweep_comparison import (
    NOT_CERTAIN,
    Difference,
    DifferenceRow,
    Value,
    level_name,
    several_lengths,
)
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.frame import frame_role, framed
from sparktop.panels.parts.rows import Row, fit_row, merged, row_width
from sparktop.panels.parts.sections import heading
from sparktop.panels.parts.sentences import flowed, sentence_rows
from sparktop.panels.sweep.legend import better_words
from sparktop.panels.sweep.topology import UNTESTED, signed_percent

_LevelKey = tuple[LoadPoint, int | None, int]
"""(concurrency, prompt tokens or None)."""
_LOAD, _VALUE, _CHANGE = 5, 11, 10
_SPAN_FROM = 66
"""Width in cells from which on confidence intervals are written as numbers."""
_BAR_MOST = 141
"""Greatest width in cells of the drawn intervals."""
_BAR_FROM = 96
"""Width in cells from which on confidence intervals are drawn, too."""
_MOST_SPACE = 2
"""Most blank rows before a metric."""
_SHORT = {NO_DIFFERENCE: "none shown"}
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
    if metrics and (room := height - 2 - len(rows)) >= metrics:
        rows = difference_rows(difference, width, space=min(_MOST_SPACE, room // metrics))
    top = 0 if scroll is None else max(0, min(scroll, len(rows) - (height - 2)))
    tall = max(height, len(rows) + 2) if scroll is None else height
    below = len(rows) - top - (tall - 2)
    words = [f"{UNTESTED} single run, no test possible"] if _untested(difference) else []
    words += [f"↑ {top} above"] if top > 0 else []
    words += [f"↓ {below} more row{'' if below == 1 else 's'}"] if below > 0 else []
    head: Row = [("┐", "border"), ("before and after", "title"), ("┌", "border")]
    drawn = framed(
        [[(" ", "text"), *row] for row in rows[top:]],
        width,
        tall,
        role=frame_role("sweep"),
        title=[*head, label(f" {pair} ")] if pair else head,
        status=[("simulated ", "warn")] if simulated else [],
        note=[(f" {' · '.join(words)} ", "muted")] if words else [],
    )
    return [merged(row) for row in drawn]


def _untested(difference: Difference) -> bool:
    return any(row.percent is not None and row.significant is None for row in difference.rows)


def difference_rows(difference: Difference, width: int, *, space: int = 0) -> list[Row]:
    """Return the rows of a comparison of two results, each `width` cells wide, without a frame.

    They hold the verdict, the names of the results, the change of each metric by level, and notes. `space` is
    the number of blank rows before each metric.
    """
    inner = width - 4
    rows: list[Row] = []
    rows += sentence_rows(("▸ ", "accent"), difference.verdict, "title", inner)
    if difference.why:
        rows += sentence_rows(("  ", "text"), difference.why, "muted", inner)
    names = (("before  ", difference.before), ("after  ", difference.after))
    rows += flowed(
        [[label(word), (fit(name, min(inner - 8, cell_width(name))), "text")] for word, name in names], inner
    )
    most = _most(difference)
    levels = _level_names(difference)
    more = max(map(len, levels.values()), default=_LOAD) - _LOAD
    if inner >= _BAR_FROM + more:
        rows.append(_scale_row(inner, more, most))
    for (title, unit), group in groupby(difference.rows, lambda row: (row.title, row.unit)):
        rows_of_metric = list(group)
        rows += [[]] * space
        better = better_words(more=rows_of_metric[0].more_is_better)
        rows.append(heading(f"{title} in {unit}", better, inner))
        rows += [
            _difference_row(row, inner, most, levels[row.point, row.prompt_tokens, row.depth])
            for row in rows_of_metric
        ]
    if difference.notes:
        rows.append(heading("notes", "", inner))
        for note in difference.notes:
            rows += sentence_rows(("· ", "muted"), note, "muted", inner)
    return [fit_row(row, inner) for row in rows]


def _most(difference: Difference) -> float:
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


def _level_names(difference: Difference) -> dict[_LevelKey, str]:
    """Return {(point on the axis, prompt tokens, depth): name of this level}, with all names equally wide."""
    keys = dict.fromkeys((row.point, row.prompt_tokens, row.depth) for row in difference.rows)
    lengths = several_lengths(length for _, length, _ in keys)
    names = {
        (point, length, depth): level_name(point, length, lengths=lengths, depth=depth)
        for point, length, depth in keys
    }
    width = max((_LOAD, *map(len, names.values()))) if lengths else _LOAD
    return {key: fit(name, width, "right") for key, name in names.items()}


def _difference_row(row: DifferenceRow, width: int, most: float, level: str) -> Row:
    more = len(level) - _LOAD
    result: Row = [
        (level, "title"),
        *_value(row, row.before),
        label(" →"),
        *_value(row, row.after),
        *_change(row),
    ]
    if width >= _SPAN_FROM + more:
        result += [label(fit(_span(row), 20))]
    if width >= _BAR_FROM + more:
        result += [(" ", "text"), *_bar(row, _bar_width(width, more), most), (" ", "text")]
    words = row.undecided or ""
    complete = [*result, *_word(row, words)]
    return complete if row_width(complete) <= width else [*result, *_word(row, _SHORT.get(words, words))]


def _value(row: DifferenceRow, value: Value | None) -> Row:
    if value is None:
        return [label(fit(UNKNOWN, _VALUE, "right"))]
    decimals = row.decimals if abs(value.mean) < 1000 else 0
    return [(fit(f"{value.mean:,.{decimals}f}", _VALUE, "right"), "text")]


def _change(row: DifferenceRow) -> Row:
    if row.percent is None:
        return [label(fit(UNKNOWN, _CHANGE, "right"))]
    sign = UNTESTED if row.significant is None else ""
    role = {True: "good", False: "bad", None: "text"}[row.better]
    return [(fit(signed_percent(row.percent) + sign, _CHANGE, "right"), role)]


def _span(row: DifferenceRow) -> str:
    if row.low_percent is None or row.high_percent is None:
        return ""
    return f"  {signed_percent(row.low_percent)} to {signed_percent(row.high_percent)}"


def _word(row: DifferenceRow, undecided: str) -> Row:
    if row.better is True:
        return [(" ▲ better", "good")]
    if row.better is False:
        return [(" ▼ worse", "bad")]
    return [(f" {undecided}", "warn" if undecided == NOT_CERTAIN else "muted")]


def _bar_width(width: int, more: int) -> int:
    """Return the width in cells of the drawn intervals in rows of `width` cells: odd, with a middle cell.

    `more` is by how many cells the names of levels are wider than usual.
    """
    cells = min(_BAR_MOST, width - 82 - more)
    return cells - 1 + cells % 2


def _scale_row(width: int, more: int, most: float) -> Row:
    """Return a row with the scale of the drawn intervals: its ends and its middle, in percent."""
    cells = _bar_width(width, more)
    ends = [f"{sign}{most:.0f} %" for sign in "−+"]
    side = cells // 2 - len(ends[0])
    start = _LOAD + more + 2 * _VALUE + 2 + _CHANGE + 20 + 1
    return [label(" " * start + ends[0] + " " * side + "0" + " " * side + ends[1])]


def _bar(row: DifferenceRow, width: int, most: float) -> Row:
    """Draw a change and its confidence interval on a line from -`most` to +`most` percent, 0 in the middle.

    The row is blank if the change is unknown.
    """
    if row.percent is None:
        return [label(" " * width)]
    cells = list("·" * width)
    middle = width // 2
    cells[middle] = "│"
    if row.low_percent is not None and row.high_percent is not None:
        first, last = _cell(row.low_percent, width, most), _cell(row.high_percent, width, most)
        for cell in range(first, last + 1):
            cells[cell] = "━" if cell != middle else "┿"
        # An interval that goes on beyond the scale does not end at its edge.
        if row.low_percent < -most:
            cells[0] = "◂"
        if row.high_percent > most:
            cells[-1] = "▸"
    cells[_cell(row.percent, width, most)] = "●"
    return [("".join(cells), {True: "good", False: "bad", None: "muted"}[row.better])]


def _cell(percent: float, width: int, most: float) -> int:
    share = max(-1.0, min(1.0, percent / most))
    return round((width - 1) * (1 + share) / 2)
