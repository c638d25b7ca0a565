"""Draws the metrics of a sweep of a single level as bars, one for each target: a curve needs two points."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics.axes import nice_ceiling
from sparktop.graphics.cells import cell_width, fit
from sparktop.graphics.numbers import tick
from sparktop.model.sweep_comparison import CurveLine, CurvePlot, Value
from sparktop.panels.parts.figures import bar_runs, figure, label
from sparktop.panels.parts.roles import part_role
from sparktop.panels.parts.rows import Row, fit_row
from sparktop.panels.parts.sections import heading
from sparktop.panels.sweep.legend import better_words, line_letter

_NAME = 24
"""Greatest width in cells of the name of a target."""
_TALLEST = 3
"""Greatest height in rows of a bar."""
_WHOLE_FROM = 100.0
"""From this value on, a value is written without decimals."""
_LEAST_BAR = 8


def has_one_level(plots: Sequence[CurvePlot]) -> bool:
    """Return whether all curves of `plots` are points at one and the same place of the axis."""
    return len({point.point for plot in plots for line in plot.lines for point in line.points}) == 1


def level_bars(plots: Sequence[CurvePlot], width: int, height: int) -> list[Row]:
    """Draw as many of `plots` as fit into `height` rows of `width` cells, as bars below a title each."""
    blocks: list[list[Row]] = []
    count = sum(len(plot.lines) for plot in plots)
    tall = max(1, min(_TALLEST, (height - 2 * len(plots)) // max(1, count)))
    words = max(cell_width(_value_words(line.points[0].value)) for plot in plots for line in plot.lines)
    for plot in plots:
        block = _block(plot, width, tall, words)
        if sum(map(len, blocks)) + len(block) > height and blocks:
            break
        blocks.append(block)
    gap = 1 if sum(map(len, blocks)) + len(blocks) <= height else 0
    rows = [row for block in blocks for row in [*block, *([[]] * gap)]][:height]
    return [fit_row(row, width) for row in [*rows, *([[]] * (height - len(rows)))]]


def _block(plot: CurvePlot, width: int, tall: int, room: int) -> list[Row]:
    """Return a title, and for each line of a plot a bar of `tall` rows with its name and its value.

    The value has `room` cells, the same in all plots, so that their bars begin and end alike.
    """
    better = better_words(more=plot.more_is_better, mean=not plot.is_condition)
    top = nice_ceiling(max(line.points[0].value.mean for line in plot.lines))
    names = min(_NAME, max(cell_width(line.name) for line in plot.lines))
    words = [fit(_value_words(line.points[0].value), room, "right") for line in plot.lines]
    cells = width - names - room - 4
    scale = f"0 to {tick(top)}, " if cells >= _LEAST_BAR else ""
    rows = [heading(f"{plot.title} in {plot.unit}", scale + better, width)]
    for index, line in enumerate(plot.lines):
        for row in range(tall):
            first = row == (tall - 1) // 2
            rows.append([*_name(plot, index, line, names if first else 0, names + 3)])
            if cells >= _LEAST_BAR:
                share = line.points[0].value.mean / top if top > 0 else 0.0
                (full, _), empty = bar_runs(share, cells, "generation")
                rows[-1] += [(full, part_role(index)), empty]
            if first:
                rows[-1] += [figure(f" {words[index]}")]
    return rows


def _name(plot: CurvePlot, index: int, line: CurveLine, room: int, width: int) -> Row:
    if not room:
        return fit_row([], width)
    letter = f"{line_letter(plot.lines, index)} "
    return fit_row([(letter, part_role(index)), label(fit(line.name, room))], width)


def _value_words(value: Value) -> str:
    """Return a value as text, followed by its 95 % confidence interval if it has one."""
    if value.low is None or value.high is None:
        return _text(value.mean)
    return f"{_text(value.mean)} (95 %: {_text(max(0.0, value.low))} to {_text(value.high)})"


def _text(value: float) -> str:
    return f"{value:,.{0 if abs(value) >= _WHOLE_FROM else 1}f}"
