"""Plots metrics of a sweep against the load, with a letter and a colour for each target.

The load is a concurrency, a rate or a number of agents, on a logarithmic axis unless it begins at 0. A sweep
of a single level has a bar for each target instead: a curve needs two points.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from sparktop.graphics import numbers
from sparktop.graphics.axes import PlotAxis, centred_labels, nice_ceiling
from sparktop.graphics.braille import NO_LAYER, DotGrid
from sparktop.graphics.cells import cell_width, fit
from sparktop.graphics.numbers import tick
from sparktop.model.sweep import CurveLine, CurvePlot, CurvePoint, LimitLine, Value
from sparktop.panels.parts.figures import (
    bar_runs,
    figure,
    flow_pieces,
    heading,
    label,
    part_letter,
    part_role,
    wrap_sentence,
)
from sparktop.panels.parts.text import (
    Row,
    fit_row,
    fit_rows,
    fitted_names,
    merge_runs,
    side_by_side,
    spread_row,
)


def better_words(*, more: bool, mean: bool = True) -> str:
    """Return the text beside a plot's title: whether `more` is better.

    Latencies are means over requests if `mean`, else the quantile that the title names.
    """
    return "higher is better" if more else f"{'mean, ' if mean else ''}lower is better"


def line_letter(line: CurveLine) -> str:
    """Return the character of a line: "A", "B" … for targets, "1", "2" … for published references."""
    return part_letter(line.number) if line.reference is None else str(1 + line.number % 9)


def legend_pieces(plots: Sequence[CurvePlot], *, short: bool = False) -> list[Row]:
    """Return the legend of the plots as pieces of text: letter, line, and name of each line.

    The name of a published reference is followed by its source. With `short`, lines that were measured here
    have their letter only.
    """
    by_place = {line.place: line for plot in plots for line in plot.lines}
    lines = [by_place[place] for place in sorted(by_place)]
    names = fitted_names(tuple(line.name for line in lines), _NAME)
    pieces: list[Row] = []
    for line in lines:
        sample = "" if short else "⠶⠶⠶ "
        if line.reference is not None:
            sample = "⠄ ⠄ "
        where = [label(f" ({line.reference})")] if line.reference is not None else []
        pieces.append(
            [
                (f"{line_letter(line)} {sample}", part_role(line.place)),
                (names[line.name].rstrip(), "text"),
                *where,
            ]
        )
    if any(point.value.low is not None for line in lines for point in line.points):
        pieces.append([("┬┴", "text"), label(f" 95 % CI{'' if short else ' (where it has room)'}")])
    if any(point.missed for plot in plots for line in plot.lines for point in line.points):
        pieces.append([("A", "bad"), label(" misses the limit")])
    return pieces


def legend_rows(plots: Sequence[CurvePlot], width: int) -> list[Row]:
    """Return rows with the plots' legend, their limits, and definitions of metrics that differ by source."""
    rows = flow_pieces(legend_pieces(plots), width)
    if len(rows) > 1:
        rows = flow_pieces(legend_pieces(plots, short=True), width)
    limits = {limit.words: plot.place_of(limit) for plot in plots for limit in plot.limits}
    rows += [[("┄ ", _layer_role(_limit_layer(place))), label(words)] for words, place in limits.items()]
    definitions = dict.fromkeys(
        f"{plot.title} of {line.reference or line.name}: {line.definition}"
        for plot in plots
        for line in plot.lines
        if line.definition is not None
    )
    for text in definitions:
        rows += [[label(part)] for part in wrap_sentence(text, width)]
    return [fit_row(row, width) for row in rows]


_NAME = 24
"""Greatest width in cells of the name of a target."""
_TALLEST = 3
"""Greatest height in rows of a bar."""
_LEAST_BAR = 8
"""Least cells of a bar."""


def has_one_level(plots: Sequence[CurvePlot]) -> bool:
    """Return whether all curves of `plots` are points at one and the same place of the axis.

    Kinds of text at one concurrency are at one place, each a curve of its own.
    """
    points = (point.point for plot in plots for line in plot.lines for point in line.points)
    return len({replace(point, text=None) for point in points}) == 1


def level_bars(plots: Sequence[CurvePlot], width: int, height: int) -> list[Row]:
    """Draw as many of `plots` as fit into `height` rows of `width` cells, as bars below a title each."""
    blocks: list[list[Row]] = []
    count = sum(len(plot.lines) for plot in plots)
    bar_height = max(1, min(_TALLEST, (height - 2 * len(plots)) // max(1, count)))
    words = max(cell_width(_value_words(plot, line.points[0].value)) for plot in plots for line in plot.lines)
    for plot in plots:
        block = _plot_bars(plot, width, bar_height, words)
        if sum(map(len, blocks)) + len(block) > height and blocks:
            break
        blocks.append(block)
    gap = 1 if sum(map(len, blocks)) + len(blocks) <= height else 0
    return fit_rows([row for block in blocks for row in [*block, *([[]] * gap)]], width, height)


def _plot_bars(plot: CurvePlot, width: int, bar_height: int, room: int) -> list[Row]:
    """Return a title, and for each line of a plot a bar of `bar_height` rows with its name and its value.

    The value has `room` cells, the same in all plots, so that their bars begin and end alike.
    """
    better = better_words(more=plot.more_is_better, mean=not plot.is_condition)
    top = nice_ceiling(max(line.points[0].value.mean for line in plot.lines))
    names = min(_NAME, max(cell_width(line.name) for line in plot.lines))
    fitted = fitted_names(tuple(line.name for line in plot.lines), names)
    words = [fit(_value_words(plot, line.points[0].value), room, "right") for line in plot.lines]
    cells = width - names - room - 4
    scale = f"0 to {tick(top)}, " if cells >= _LEAST_BAR else ""
    rows = [heading(plot.heading, scale + better, width)]
    for index, line in enumerate(plot.lines):
        for row in range(bar_height):
            is_middle = row == (bar_height - 1) // 2
            letter = (f"{line_letter(line)} ", part_role(line.place))
            rows.append(fit_row([letter, label(fitted[line.name])] if is_middle else [], names + 3))
            if cells >= _LEAST_BAR:
                share = line.points[0].value.mean / top if top > 0 else 0.0
                (full, _), empty = bar_runs(share, cells, "generation")
                rows[-1] += [(full, part_role(line.place)), empty]
            if is_middle:
                rows[-1] += [figure(f" {words[index]}")]
    return rows


def _value_words(plot: CurvePlot, value: Value) -> str:
    """Return a value of a plot as text, followed by its 95 % confidence interval if it has one."""
    if value.low is None or value.high is None:
        return numbers.decimal(value.mean, plot.decimals)
    mean, low, high = (
        numbers.decimal(number, plot.decimals) for number in (value.mean, max(0.0, value.low), value.high)
    )
    return f"{mean} (95 % CI {low} to {high})"


_EDGE = 7
"""Width in cells of the scale at the left of a plot."""
_LEAST_ROWS = 8
"""Least rows of a plot with curves."""
_TENFOLD = 10.0
"""Ratio of the highest to the lowest value from which on the scale is logarithmic."""
_CURVES_NAME, _BEFORE_NAME = 16, 3
"""Greatest width in cells of a line's name at the right of a plot, and that of its letter with blanks."""
_LEAST_GRAPH = 28
"""Least width in cells of curves beside their names."""
_WIDE = 56
"""Least width in cells of a plot beside another plot."""
_ROUND = tuple(step * 10.0**power for step in (1, 5, 2) for power in range(-3, 7))
"""Values that a logarithmic scale labels, the roundest first; the first one is the smallest."""
_LIMIT = 1000
"""Number of the layer of limits of all targets in the dot grid; curves have the place of their line."""
_MISSED = 1001
"""Number of the layer of points that miss the limit of their plot."""
_AROUND = 3
"""Cells on each side of a concurrency over which a limit that holds only for it is drawn."""
_MARGIN = 0.06
"""Margin of the axis on both sides, as a share of its range, so that no letter stands on the edge."""


class _PlotPlaces(Struct, frozen=True):
    """Computes which dot of a plot stands for a concurrency and a value."""

    axis: PlotAxis
    grid: DotGrid
    scale: PlotAxis
    """The vertical axis, from its lower end: above 0 it is logarithmic, at 0 linear."""

    def x(self, concurrency: float) -> int:
        """Return the index of the dot column for a concurrency; outside the plot, the nearest one."""
        columns = 2 * self.axis.width
        return min(columns - 1, max(0, int(self.axis.place(concurrency) * columns)))

    def y(self, value: float) -> int:
        """Return the index of the dot row for a value, from the bottom; outside the plot, the nearest one."""
        highest = self.grid.dot_rows - 1
        return min(highest, max(0, round(self.scale.place(value) * highest)))

    def row(self, value: float) -> int:
        """Return the index of the row of cells for a value, from the top."""
        return self.grid.row_of(self.y(value))

    def cell(self, point: CurvePoint) -> tuple[int, int]:
        """Return the (column, row) of the cell of a point."""
        return self.x(point.point.value) // 2, self.row(point.value.mean)


def curve_rows(plot: CurvePlot, width: int, height: int) -> list[Row]:
    """Draw a plot of a metric against the load as `height` rows of `width` cells: title, curves, axis."""
    plot_height = max(2, height - 2)
    points = sorted({point.point for line in plot.lines for point in line.points})
    beside = _names_width(plot, width)
    values, cells = [point.value for point in points], max(4, width - _EDGE - beside)
    grid = DotGrid(cells, plot_height)
    top, bottom = plot_ends(plot)
    scale = PlotAxis(bottom, top, plot_height, ratios=bottom > 0)
    place = _PlotPlaces(_axis_of_points(values, cells), grid, scale)
    for limit in plot.limits:
        _draw_limit(place, limit, _limit_layer(plot.place_of(limit)))
    sign = 1 if plot.more_is_better else -1
    # The line with the best value at its last point comes last; published references come before all others.
    worst_first = sorted(
        range(len(plot.lines)),
        key=lambda at: (plot.lines[at].reference is None, sign * plot.lines[at].points[-1].value.mean),
    )
    _draw_curves(place, plot, worst_first)
    names = _names_rows(plot, place, worst_first[::-1], beside) if beside else [[]] * plot_height
    parts = zip(_scale_rows(plot_height, place), grid.rows(), names, strict=True)
    body = [
        [*scale, *((text, _layer_role(layer)) for text, layer in runs), *name] for scale, runs, name in parts
    ]
    below = centred_labels([(point.value, point.words) for point in points], place.axis)
    better = better_words(more=plot.more_is_better, mean=not plot.is_condition)
    if bottom:
        better = f"log scale, {better}"
    rows = [
        heading(plot.heading, better, width),
        *body,
        [label(fit(points[0].kind.sign, _EDGE - 1, "right") + " "), label(below)],
    ]
    return [merge_runs(fit_row(row, width)) for row in rows][:height]


def _limit_layer(place: int | None) -> int:
    """Return the layer of a limit line: that of its target's curve, which is at `place` of all lines."""
    return _LIMIT if place is None else place


def _layer_role(layer: int) -> str:
    """Return the role (colour name) of a layer of the dot grid."""
    return {NO_LAYER: "text", _LIMIT: "title", _MISSED: "bad"}.get(layer) or part_role(layer)


def _axis_of_points(values: Sequence[float], width: int) -> PlotAxis:
    """Return the axis of loads, which are ascending: logarithmic unless the first one is 0."""
    low, high = values[0], values[-1]
    if low <= 0:
        span = (high - low) or 1.0
        return PlotAxis(low - _MARGIN * span, low + (1 + _MARGIN) * span, width)
    if high == low:
        high = low + min(1, low)
    wider = (high / low) ** _MARGIN
    return PlotAxis(low / wider, high * wider, width, ratios=True)


def plot_ends(plot: CurvePlot) -> tuple[float, float]:
    """Return the values at the (upper end, lower end) of a plot's scale, which shows all means.

    So that curves are not flattened, it includes confidence intervals as far as these are below 1.5 times the
    largest mean, and limits below twice that. The lower end is 0 for a linear scale. It is above 0 for a
    logarithmic scale, which is used for latencies if the smallest mean is 0.001 or more and the upper end at
    least ten times that.
    """
    values = [point.value for line in plot.lines for point in line.points]
    smallest, largest = min(value.mean for value in values), max(value.mean for value in values)
    limits = [limit.value for limit in plot.limits]
    highest = min(max(value.high or 0.0 for value in values), 1.5 * largest)
    top = nice_ceiling(max(largest, highest, *(min(limit, 2 * largest) for limit in limits)))
    if plot.more_is_better or smallest < _ROUND[0] or top < _TENFOLD * smallest:
        return top, 0.0
    return top, max(value for value in _ROUND if value <= smallest)


def _scale_rows(plot_height: int, place: _PlotPlaces) -> list[Row]:
    """Return the vertical axis as `plot_height` rows, with labels at its ends and in between.

    On a logarithmic scale these are round values, as far as they do not touch one another.
    """
    top, bottom = place.scale.high, place.scale.low
    edges = {0: top, plot_height - 1: bottom}
    if bottom:
        for value in _ROUND:
            row = place.row(value)
            if bottom < value < top and all(abs(row - other) > 1 for other in edges):
                edges[row] = value
    elif plot_height % 2 and plot_height > 4:
        edges[plot_height // 2] = top / 2
    rows: list[Row] = []
    for row in range(plot_height):
        parts: Row = [label(numbers.tick(edges[row])), ("┤", "muted")] if row in edges else [("│", "muted")]
        rows.append(spread_row([], parts, _EDGE))
    return rows


def _draw_limit(place: _PlotPlaces, limit: LimitLine, layer: int) -> None:
    """Draw a limit across the plot, or only near the concurrency for which it holds."""
    grid = place.grid
    if limit.value <= place.scale.high:
        columns = range(grid.width)
        if limit.concurrency is not None:
            middle = place.x(limit.concurrency) // 2
            columns = range(max(0, middle - _AROUND), middle + _AROUND + 1)
        for column in columns:
            grid.put(column, place.row(limit.value), "┄", layer)


def _draw_interval(place: _PlotPlaces, point: CurvePoint, index: int) -> None:
    low, high = point.value.low, point.value.high
    if low is None or high is None:
        return
    grid, (column, middle) = place.grid, place.cell(point)
    top_row, bottom_row = place.row(max(0.0, high)), place.row(max(0.0, low))
    if not top_row < middle < bottom_row:
        return  # an end in the letter's own cell has no place; in the next cell it would be a wider interval
    ends = {top_row: "│" if high > place.scale.high else "┬", bottom_row: "┴"}
    if any(grid.char_at(column, row) not in {None, "┄"} for row in ends):
        return  # half an interval of each of two curves would be read as one
    for row in range(min(ends), max(ends) + 1):
        if row != middle and grid.char_at(column, row) in {None, "┄"}:
            grid.put(column, row, ends.get(row, "│"), index)


def _draw_curves(place: _PlotPlaces, plot: CurvePlot, worst_first: Sequence[int]) -> None:
    """Draw lines, then the letter of each point (of several in one cell the best line's) and intervals."""
    grid, lines = place.grid, [plot.lines[index] for index in worst_first]
    for line in lines:
        dots = [(place.x(point.point.value), place.y(point.value.mean)) for point in line.points]
        for start, end in pairwise(dots):
            grid.line(start, end, line.place, sparse=line.reference is not None)
    grid.take_turns()  # lines that share a cell alternate
    for line in lines:
        for point in line.points:
            grid.put(*place.cell(point), line_letter(line), _MISSED if point.missed else line.place)
    # No end of an interval is in the cell of a letter.
    for line in plot.lines:
        for point in line.points:
            _draw_interval(place, point, line.place)


def _names_width(plot: CurvePlot, width: int) -> int:
    """Return the width in cells of the names at the right of the curves; 0 for one curve, or without room."""
    if len(plot.lines) < 2:
        return 0
    wide = min(_CURVES_NAME, max(cell_width(line.name) for line in plot.lines)) + _BEFORE_NAME
    return wide if width - _EDGE - wide >= _LEAST_GRAPH else 0


def _names_rows(plot: CurvePlot, place: _PlotPlaces, best_first: Sequence[int], width: int) -> list[Row]:
    """Return, for each row of a plot, the name of the line that ends at its height, `width` cells wide.

    Names that would share a row move to the nearest free one, in the order of their lines; the worst are
    left out if there are fewer rows than lines. Each has the letter and the colour of its line.
    """
    plot_height = place.grid.height
    heights = {index: place.y(plot.lines[index].points[-1].value.mean) for index in best_first}
    ends = {index: place.grid.row_of(height) for index, height in heights.items()}
    shown_lines = sorted(best_first[:plot_height], key=lambda index: -heights[index])
    rows: list[Row] = [[] for _ in range(plot_height)]
    names = fitted_names(tuple(line.name for line in plot.lines), width - _BEFORE_NAME)
    name_row = 0
    for number, index in enumerate(shown_lines, start=1):
        line, following = plot.lines[index], shown_lines[number:]
        # Names of lines that end in one row are centred on it. Room is kept for each name that follows, so
        # that none is above a line that is higher.
        alike = sum(ends[other] == ends[index] for other in following)
        name_row = min(max(name_row, ends[index] - alike // 2), plot_height - 1 - len(following))
        rows[name_row] = [(f" {line_letter(line)} {names[line.name].rstrip()}", part_role(line.place))]
        name_row += 1
    return [fit_row(row, width) for row in rows]


def plots_rows(plots: Sequence[CurvePlot], width: int, height: int) -> list[Row]:
    """Draw as many of `plots` as fit side by side and below each other, in `height` rows of `width` cells."""
    if not plots:
        return fit_rows([[label("no curves: nothing was measured yet")]], width, height)
    if has_one_level(plots):
        return level_bars(plots, width, height)
    beside = min(len(plots), max(1, (width + 2) // (_WIDE + 2)))
    bands = max(1, min(-(-len(plots) // beside), height // _LEAST_ROWS))
    plot_height, over = divmod(height, bands)
    rows: list[Row] = []
    for band in range(bands):
        part = plots[band * beside : (band + 1) * beside]
        cells = (width - 2 * (len(part) - 1)) // len(part)
        drawn = [curve_rows(plot, cells, plot_height + (band < over)) for plot in part]
        rows += side_by_side(drawn, [cells] * len(part))
    return [fit_row(row, width) for row in rows]


def least_plots_height(plots: Sequence[CurvePlot], width: int) -> int:
    """Return the least height in rows in which all plots fit into `width` cells."""
    return _LEAST_ROWS * -(-len(plots) // max(1, (width + 2) // (_WIDE + 2)))
