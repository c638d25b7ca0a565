"""Draws metrics of sweeps against the load: as SVG, and as text for a plain terminal.

Curves of SVG have 95 % confidence intervals and the name of the target at their end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from textwrap import wrap

from msgspec.structs import replace

from sparktop.graphics import svg
from sparktop.graphics.axes import PlotAxis, nice_ceiling
from sparktop.graphics.cells import cell_width
from sparktop.graphics.numbers import tick
from sparktop.model.load import Level, LoadKind, LoadPoint, concurrency_point
from sparktop.model.sweep import CurveLine, CurvePlot, CurvePoint, LimitLine
from sparktop.model.text import clean
from sparktop.panels.sweep.curves import plot_ends
from sparktop.report.document.drawing import (
    LEFT,
    NOTE_CELLS,
    Drawing,
    Frame,
    label_width,
    series_class,
    short_names,
)
from sparktop.sweep.compare.series import LevelSeries, SeriesLevel
from sparktop.sweep.terms.definitions import METRICS, Metric
from sparktop.sweep.view.curves import by_depth, by_text, curve_plots

LENGTH, DEPTH = "tokens of the prompt", "tokens of context and prompt"
"""Titles of horizontal axes that are not the amount of a kind of load."""
_HOLLOW = ("", "hollow: a warning besides few or short runs")
_AROUND = 24
"""Length in SVG units, on each side of a concurrency, of a limit that holds only for it."""
_CAP = 3.5
"""Half the width of the ends of an interval."""


def by_load(series: Sequence[LevelSeries]) -> tuple[list[LevelSeries], str]:
    """Return (series with one level for each value of the horizontal axis, title of this axis).

    The axis is the concurrency, or the prompt length if only one concurrency was measured. If both vary, a
    series is split into one series for each prompt length. With depths the axis is the tokens before the
    answer, with a series for each concurrency and prompt length.
    """
    levels = [level for a_series in series for level in a_series.levels]
    if any(level.load.depth for level in levels):
        return [part for a_series in series for part in _over_depths(a_series)], DEPTH
    lengths = {level.load.pp for level in levels if level.load.pp is not None}
    if len(lengths) > 1 and len({level.load.point for level in levels}) == 1:
        # Levels of unknown length are left out.
        moved = (
            [_moved_to(level, level.load.pp) for level in a_series.levels if level.load.pp]
            for a_series in series
        )
        return [replace(a, levels=tuple(levels)) for a, levels in zip(series, moved, strict=True)], LENGTH
    parts = [part for a_series in series for text in by_text(a_series) for part in _by_length(text)]
    return parts, (levels[0].load.point.kind if levels else LoadKind.CONCURRENCY).amount


def _over_depths(series: LevelSeries) -> Iterator[LevelSeries]:
    """Yield a series for each point and prompt length, whose levels lie at the tokens before the answer."""
    groups: dict[tuple[LoadPoint, int | None, int | None], list[SeriesLevel]] = {}
    for level in series.levels:
        groups.setdefault((level.load.point, level.load.pp, level.load.tg), []).append(level)
    several = len({pp for _, pp, _ in groups}) > 1
    for (point, pp, _), levels in groups.items():
        name = f"{series.name} {point.short}" + (f", {pp or 0:,} in" if several else "")
        moved = (_moved_to(level, level.load.depth + (pp or 0)) for level in levels)
        yield replace(series, name=name, levels=tuple(moved))


def _moved_to(level: SeriesLevel, tokens: int) -> SeriesLevel:
    """Return a level whose point on the axis is a number of tokens, as a plot over tokens needs it."""
    return replace(level, load=Level("", concurrency_point(tokens), level.load.pp, level.load.tg))


def _by_length(series: LevelSeries) -> Iterator[LevelSeries]:
    """Yield the series itself or, if it has several prompt lengths, one series for each of these."""
    if not series.has_lengths:
        yield series
        return
    for length in dict.fromkeys(level.load.pp for level in series.levels):
        levels = tuple(level for level in series.levels if level.load.pp == length)
        yield replace(series, name=f"{series.name} {length or 0:,} in", levels=levels)


def curve_drawings(
    series: Sequence[LevelSeries], beside: Sequence[LevelSeries], plots: Sequence[CurvePlot]
) -> Iterator[Drawing]:
    """Yield a plot for each main metric of `series`.

    `beside` are series of other sources to compare with; `plots` have the limits to draw.
    """
    points_by_axis, axis = by_load(series)
    points = {level.load.point for a_series in series for level in a_series.levels}
    loads_beside, other_axis = by_load(beside)
    loads_beside = loads_beside if other_axis == axis else []
    limits = {plot.metric: plot.limits for plot in plots}
    for plot in curve_plots(points_by_axis, beside=loads_beside):
        of_metric = limits.get(plot.metric, ())
        if axis in {LENGTH, DEPTH}:  # a limit of one concurrency holds along the axis, or is not on it
            of_metric = tuple(
                replace(limit, concurrency=None)
                for limit in of_metric
                if limit.concurrency is None or points == {concurrency_point(limit.concurrency)}
            )
        yield curve_drawing(replace(plot, limits=of_metric), axis)


def curve_drawing(plot: CurvePlot, x_title: str = LoadKind.CONCURRENCY.amount) -> Drawing:
    """Draw one plot with its curves, intervals, limits and notes; `x_title` is the horizontal axis' title."""
    top, bottom = plot_ends(plot)
    hollow = any(point.doubtful for line in plot.lines for point in line.points)
    places = sorted({point.point.value for line in plot.lines for point in line.points})
    subtitle = f"{'higher' if plot.more_is_better else 'lower'} is better"
    subtitle += ", logarithmic" if bottom > 0 else ""
    if any(point.value.low is not None for line in plot.lines for point in line.points):
        subtitle += "; bars: 95 % CI over runs"
    frame = Frame(
        title=f"{plot.title} ({plot.unit})",
        subtitle=subtitle,
        places=places,
        x_title=x_title,
        y_axis=PlotAxis(bottom, top, 1, ratios=bottom > 0),
        margin=label_width([line.name for line in plot.lines]),
        notes=[
            ("" if at else _limit_class(plot, limit), words)
            for limit in plot.limits
            for at, words in enumerate(wrap(limit.words, NOTE_CELLS))
        ]
        + [_HOLLOW] * hollow,
    )
    parts = [*frame.svg_elements(), *_limit_lines(plot, frame)]
    parts += [_curve_svg(frame, line, line.place, METRICS[plot.metric]) for line in plot.lines]
    ends = [(line.name, line.points[-1]) for line in plot.lines]
    numbers = [line.place for line in plot.lines]
    parts += frame.names([(name, end.point.value, end.value.mean) for name, end in ends], numbers)
    texts = (
        f"{clean(line.name)}: {', '.join(_point_words(point, METRICS[plot.metric]) for point in line.points)}"
        for line in plot.lines
    )
    against = "prompt length" if x_title == LENGTH else _against(x_title)
    return Drawing(
        f"{plot.title} in {plot.unit} against {against}", ". ".join(texts), "".join(parts), frame.height
    )


def _against(amount: str) -> str:
    """Return the amount of a kind of load as what a metric is drawn against: "concurrency" for requests."""
    return LoadKind.CONCURRENCY.value if amount == LoadKind.CONCURRENCY.amount else amount


def _limit_lines(plot: CurvePlot, frame: Frame) -> Iterator[str]:
    for limit in plot.limits:
        if limit.value <= frame.y_axis.high:
            y = frame.y(limit.value)
            left, right = float(LEFT), frame.right
            if limit.concurrency is not None:  # the limit holds there alone: no line across the others
                middle = frame.x(limit.concurrency)
                left, right = max(LEFT, middle - _AROUND), min(frame.right, middle + _AROUND)
            yield svg.line(left, y, right, y, class_=_limit_class(plot, limit))


def _limit_class(plot: CurvePlot, limit: LimitLine) -> str:
    """Return the CSS classes of a limit's line: that of a single target has the colour of its curve."""
    place = plot.place_of(limit)
    return "limit" if place is None else f"limit own {series_class(place)}"


def _curve_svg(frame: Frame, line: CurveLine, number: int, metric: Metric) -> str:
    """Return the SVG of one curve, with its confidence intervals and a marker at each point.

    `number` is the index of the curve, which determines its colour.
    """
    kind = "curve" if line.reference is None else "curve reference"
    places = [(frame.x(point.point.value), frame.y(point.value.mean)) for point in line.points]
    parts = [svg.polyline(places, class_=kind)] if len(places) > 1 else []
    parts += [_interval_svg(frame, point) for point in line.points if point.value.low is not None]
    for point, (x, y) in zip(line.points, places, strict=True):
        words = svg.title_element(f"{clean(line.name)}: {_point_words(point, metric)} {metric.unit}")
        parts.append(svg.marker(number, x, y, words, class_="doubt" if point.doubtful else "mark"))
    return svg.element("g", *parts, class_=series_class(number))


def _interval_svg(frame: Frame, point: CurvePoint) -> str:
    x, low, high = frame.x(point.point.value), point.value.low or 0.0, point.value.high or 0.0
    top, bottom = frame.y(high), frame.y(low)
    caps = f"M{svg.short(x - _CAP)} {{}}h{svg.short(2 * _CAP)}"
    ends = "".join(caps.format(svg.short(y)) for y in (top, bottom))
    path = f"M{svg.short(x)} {svg.short(top)}V{svg.short(bottom)}{ends}"
    return svg.element("path", d=path, class_="interval")


def _point_words(point: CurvePoint, metric: Metric) -> str:
    value = point.value
    words = f"{point.point.value:,g}: {metric.text(value.mean)}"
    if value.low is None or value.high is None:
        return words
    return f"{words} ({metric.text(value.low)} to {metric.text(value.high)})"


PLOTTED = ("decode_tps", "sustained_tps", "output_tps", "prefill_tps", "ttft_due_ms", "ttft_ms")
"""Metrics that have a plot; `output_tps` only if no other rate of generated tokens is known."""
PLOT_CELLS, PLOT_ROWS = 78, 16
_LEAST_WIDTH = 30
"""Size in cells of a plot in text, and its least width."""
_MARKS = "●▲■◆○△□◇"
"""Characters that mark the points of each series, because colours are lost in a file."""
_LABEL_CELLS = 24
"""Most cells of a name in the legend."""
_LEAST_POINTS = 2
"""Points that make a curve."""
_STEPS = 4
"""Number of intervals between the ticks of the vertical axis."""


def plots(series: Sequence[LevelSeries], width: int = PLOT_CELLS) -> str:
    """Return plots as text, one for each metric of `PLOTTED` with values at two or more points of the axis.

    `width` is that of a plot in terminal cells. The axis of concurrency is logarithmic. Return "" if no
    metric has enough values.
    """
    metrics = {name for a_series in series for name in a_series.metrics()}
    skipped = {"output_tps"} if metrics & {"decode_tps", "sustained_tps"} else set()
    skipped |= {"ttft_ms"} if "ttft_due_ms" in metrics else set()
    drawn = (plot(series, name, width) for name in PLOTTED if name not in skipped)
    return "\n".join(text for text in drawn if text)


def plot(series: Sequence[LevelSeries], name: str, width: int) -> str:
    """Return a plot of the metric `name` as text; "" if it has values at fewer than two points."""
    curves = [(a_series.name, _means_by_point(a_series, name)) for a_series in by_depth(series)]
    curves = [(label, points) for label, points in curves if points]
    places = sorted({point for _, points in curves for point in points})
    if len(places) < _LEAST_POINTS:
        return ""
    from plotext import figure  # late, because it takes 60 ms and nothing else needs it

    figure.clear()
    figure.plot_size(max(width, _LEAST_WIDTH), PLOT_ROWS)
    metric = METRICS[name]
    figure.title(f"{metric.title} ({metric.unit}) against {_against(places[0].kind.amount)}")
    legend: list[str] = []
    labels = short_names([label for label, _ in curves], _LABEL_CELLS)
    for number, (label, (_, points)) in enumerate(zip(labels, curves, strict=True)):
        marker = _MARKS[number % len(_MARKS)]
        xs, ys = [_axis_position(point) for point in points], list(points.values())
        line = figure.signal(xs, ys, marker="braille")
        line.lines()
        figure.draw(line)
        figure.draw(figure.signal(xs, ys, marker=marker))
        legend.append(f"{marker} {label}")
    figure.ruler("x").ticks(
        [_axis_position(position) for position in places], [position.words for position in places]
    )
    highest = max(value for _, points in curves for value in points.values())
    top = nice_ceiling(highest)
    steps = [top * share / _STEPS for share in range(_STEPS + 1)]
    figure.ruler("y").lim(0, top)
    figure.ruler("y").ticks(steps, [tick(step, 4) for step in steps])
    text = str(figure.build().string(colorless=True))
    figure.clear()
    # plotext's own legend would cover the beginnings of the curves.
    lines = [*text.splitlines(), *_legend_lines(legend, width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _legend_lines(legend: Sequence[str], width: int) -> list[str]:
    lines = [""]
    for entry in legend:
        longer = f"{lines[-1]}   {entry}" if lines[-1] else f"  {entry}"
        if lines[-1] and cell_width(longer) > width:
            lines.append(f"  {entry}")
        else:
            lines[-1] = longer
    return lines


def _means_by_point(series: LevelSeries, metric: str) -> dict[LoadPoint, float]:
    """Return {point on the axis: mean of a metric}, in ascending order.

    If several levels have the same point, the first of them is used.
    """
    points: dict[LoadPoint, float] = {}
    for level in series.levels:
        figure = level.figures.get(metric)
        if figure is not None and math.isfinite(figure.mean):
            points.setdefault(level.load.point, figure.mean)
    return dict(sorted(points.items()))


def _axis_position(point: LoadPoint) -> float:
    """Return where a point stands on its axis, which is logarithmic."""
    return math.log2(point.value)
