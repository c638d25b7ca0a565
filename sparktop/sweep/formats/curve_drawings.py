"""Draws metrics against concurrency as SVG: a curve with 95 % confidence intervals for each target.

The name of the target stands at the end of its curve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sparktop.graphics import svg
from sparktop.graphics.curve import PlotAxis
from sparktop.model.load import LoadKind, LoadPoint
from sparktop.model.sweep_comparison import CurveLine, CurvePlot, CurvePoint
from sparktop.model.text import clean
from sparktop.panels.sweep.curves import plot_ends
from sparktop.report.document.drawing import LEFT, Drawing, Frame, label_width, series_class
from sparktop.sweep.compare.series import Load, Series, SeriesLevel
from sparktop.sweep.terms.definitions import METRICS, Metric
from sparktop.sweep.view.curves import curve_plots

CONCURRENCY, LENGTH = "requests at once", "tokens of the prompt"
AXES = {
    LoadKind.CONCURRENCY: CONCURRENCY,
    LoadKind.RATE: "requests per second",
    LoadKind.AGENTS: "agents",
}
"""Title of the horizontal axis."""
_WITH_UPRIGHT = frozenset({CONCURRENCY, AXES[LoadKind.AGENTS]})
"""Axes with limits that are upright lines."""
DEPTH = "tokens of context and prompt"
_HOLLOW = ("", "hollow: the level has a warning")
_AROUND = 24
"""Length in SVG units, on each side of a concurrency, of a limit that holds only for it."""
_CAP = 3.5
"""Half the width of the ends of an interval."""


def by_load(series: Sequence[Series]) -> tuple[list[Series], str]:
    """Return (series with one level for each value of the horizontal axis, title of this axis).

    The axis is the concurrency, or the prompt length if only one concurrency was measured. If both vary, a
    series is split into one series for each prompt length. With depths the axis is the tokens before the
    answer, with a series for each concurrency and prompt length.
    """
    levels = [level for one in series for level in one.levels]
    if any(level.load.depth for level in levels):
        return [part for one in series for part in _over_depths(one)], DEPTH
    lengths = {level.load.pp for level in levels if level.load.pp is not None}
    if len(lengths) > 1 and len({level.load.point for level in levels}) == 1:
        return [_over_lengths(one) for one in series], LENGTH
    return [part for one in series for part in _parts(one)], axis_title(
        level.load.point.kind for level in levels
    )


def axis_title(kinds: Iterable[LoadKind]) -> str:
    """Return the title of the horizontal axis for levels of these kinds: that of the first."""
    return AXES[next(iter(kinds), LoadKind.CONCURRENCY)]


def _over_depths(series: Series) -> Iterator[Series]:
    """Yield a series for each point and prompt length, whose levels lie at the tokens before the answer."""
    groups: dict[tuple[LoadPoint, int | None, int | None], list[SeriesLevel]] = {}
    for level in series.levels:
        groups.setdefault((level.load.point, level.load.pp, level.load.tg), []).append(level)
    several = len({pp for _, pp, _ in groups}) > 1
    for (point, pp, tg), levels in groups.items():
        name = f"{series.name} {point.short}" + (f", {pp or 0:,} in" if several else "")
        placed = (replace(one, load=Load(one.load.depth + (pp or 0), pp, tg)) for one in levels)
        yield replace(series, name=name, levels=tuple(placed))


def _over_lengths(series: Series) -> Series:
    levels = (
        replace(level, load=Load(level.load.pp, level.load.pp, level.load.tg))
        for level in series.levels
        if level.load.pp
    )
    return replace(series, levels=tuple(levels))


def _parts(series: Series) -> Iterator[Series]:
    """Yield the series itself or, if it has several prompt lengths, one series for each of these."""
    if not series.has_lengths:
        yield series
        return
    for length in dict.fromkeys(level.load.pp for level in series.levels):
        levels = tuple(level for level in series.levels if level.load.pp == length)
        yield replace(series, name=f"{series.name} {length or 0:,} in", levels=levels)


def curve_drawings(
    series: Sequence[Series], beside: Sequence[Series], plots: Sequence[CurvePlot]
) -> Iterator[Drawing]:
    """Yield a plot for each main metric of `series`.

    `beside` are series of other sources to compare with; `plots` have the limits to draw.
    """
    own, axis = by_load(series)
    others, other_axis = by_load(beside)
    others = others if other_axis == axis else []
    limits = {plot.metric: plot.limits for plot in plots}
    for plot in curve_plots(own, beside=others):
        kept = [one for one in limits.get(plot.metric, ()) if axis in _WITH_UPRIGHT or not one.upright]
        yield curve_drawing(replace(plot, limits=tuple(kept)), axis)


def curve_drawing(plot: CurvePlot, x_title: str = CONCURRENCY) -> Drawing:
    """Draw one plot with its curves, intervals, limits and notes; `x_title` is the horizontal axis' title."""
    top, bottom = plot_ends(plot)
    hollow = any(point.doubtful for line in plot.lines for point in line.points)
    places = sorted({point.point.value for line in plot.lines for point in line.points})
    frame = Frame(
        title=f"{plot.title} ({plot.unit})",
        subtitle="; ".join(_subtitle(plot, logarithmic=bottom > 0)),
        places=places,
        x_title=x_title,
        y_axis=PlotAxis(bottom, top, 1, ratios=bottom > 0),
        margin=label_width([line.name for line in plot.lines]),
        notes=[("limit", limit.words) for limit in plot.limits] + [_HOLLOW] * hollow,
    )
    parts = [*frame.drawn(), *_limits(plot, frame)]
    parts += [_line(frame, line, number, METRICS[plot.metric]) for number, line in enumerate(plot.lines)]
    ends = [(line.name, line.points[-1]) for line in plot.lines]
    parts += frame.names([(name, end.point.value, end.value.mean) for name, end in ends])
    words = ". ".join(_in_words(line, METRICS[plot.metric]) for line in plot.lines)
    against = {CONCURRENCY: "concurrency", LENGTH: "prompt length"}.get(x_title, x_title)
    return Drawing(f"{plot.title} in {plot.unit} against {against}", words, "".join(parts), frame.height)


def _subtitle(plot: CurvePlot, *, logarithmic: bool) -> Iterator[str]:
    yield f"{'higher' if plot.more_is_better else 'lower'} is better{', logarithmic' if logarithmic else ''}"
    if any(point.value.low is not None for line in plot.lines for point in line.points):
        yield "bars: 95 % interval over runs"


def _limits(plot: CurvePlot, frame: Frame) -> Iterator[str]:
    for limit in plot.limits:
        if limit.upright:
            x = frame.x(limit.value)
            yield svg.line(x, frame.y(frame.y_axis.high), x, frame.bottom, class_="limit")
        elif limit.value <= frame.y_axis.high:
            y = frame.y(limit.value)
            first, last = float(LEFT), frame.right
            if limit.concurrency is not None:  # the limit holds there alone: no line across the others
                middle = frame.x(limit.concurrency)
                first, last = max(LEFT, middle - _AROUND), min(frame.right, middle + _AROUND)
            yield svg.line(first, y, last, y, class_="limit")


def _line(frame: Frame, line: CurveLine, number: int, metric: Metric) -> str:
    """Return the SVG of one curve, with its confidence intervals and a marker at each point.

    `number` is the index of the curve, which determines its colour.
    """
    kind = "curve" if line.reference is None else "curve reference"
    places = [(frame.x(point.point.value), frame.y(point.value.mean)) for point in line.points]
    parts = [svg.polyline(places, class_=kind)] if len(places) > 1 else []
    parts += [_interval(frame, point) for point in line.points if point.value.low is not None]
    for point, (x, y) in zip(line.points, places, strict=True):
        words = svg.titled(f"{clean(line.name)}: {_point_words(point, metric)} {metric.unit}")
        parts.append(svg.marker(number, x, y, words, class_="doubt" if point.doubtful else "mark"))
    return svg.element("g", *parts, class_=series_class(number))


def _interval(frame: Frame, point: CurvePoint) -> str:
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


def _in_words(line: CurveLine, metric: Metric) -> str:
    return f"{clean(line.name)}: {', '.join(_point_words(point, metric) for point in line.points)}"
