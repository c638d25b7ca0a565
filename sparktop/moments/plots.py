"""The plots of a report on a time span: as values for SVG drawings, and as rows of text for Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median

from msgspec.structs import replace

from sparktop.graphics import numbers
from sparktop.graphics.bars import sparkrow
from sparktop.graphics.cells import fit
from sparktop.model.text import clean
from sparktop.moments.figures import ALL, BACKEND, MINUTE_PLOTS, PLOTS, PlotOf, Values
from sparktop.moments.moment import GAP_S, Moment
from sparktop.report.document.time_plot import (
    MOST_LINES,
    Point,
    Points,
    TimeLine,
    TimeMark,
    TimePlot,
    joined,
)

_INTERVALS = 3.0
_MINUTES_APART_S = 150.0
"""Longer distances between the one-minute summaries of a recording are gaps."""
_CLOSE_FROM_S = 150.0
"""Of a longer range, the last minute has a plot of its own, in which fast swings are visible."""
_MS_BELOW_S = 2.0
_MS = 1000.0
_OF_ALL = "all"
_NAME, _CELLS, _RANGE = 18, 52, 16
"""Widths of a sketch: name, curve, and smallest and largest value."""


def time_plots(moment: Moment) -> list[TimePlot]:
    """Return the plots of a report on a time span that have a known value.

    For a long range, plots of one-minute summaries of the whole range come first. Then come plots of the
    time since `detail`, and plots of only its last seconds.
    """
    marks = tuple(_marks(moment))
    found = [_plot(moment, one, moment.start, marks) for one in MINUTE_PLOTS if moment.is_long]
    found += [_plot(moment, one, moment.detail, marks) for one in PLOTS if one.last_s is None]
    if (moment.end - moment.detail).total_seconds() > _CLOSE_FROM_S:
        found += [
            _plot(moment, one, moment.end - timedelta(seconds=one.last_s), marks)
            for one in PLOTS
            if one.last_s is not None
        ]
    return [plot for plot in found if any(line.known for line in plot.lines)]


def _marks(moment: Moment) -> Iterator[TimeMark]:
    for event in moment.events:
        yield TimeMark(event.at.timestamp(), event.severity.value, f"{event.subject}: {event.message}")
    for at, word in moment.marks:
        yield TimeMark(at.timestamp(), "marked", word or "mark")


def _plot(moment: Moment, of: PlotOf, start: datetime, marks: Sequence[TimeMark]) -> TimePlot:
    views = moment.shown.backends if of.kind == BACKEND else moment.shown.nodes
    shown = [""] if of.kind == ALL else [view.name for view in views]
    others = (name for kind, name, field in moment.series if kind == of.kind and field in of.fields)
    names = list(dict.fromkeys([*shown, *others]))
    lines = [
        TimeLine(name or _OF_ALL, number, points, second=field != of.fields[0])
        for number, name in enumerate(names)
        for field in of.fields
        if (points := _points(moment, (of.kind, name, field), start))
    ]
    inside = tuple(one for one in marks if start.timestamp() <= one.at <= moment.end.timestamp())
    plot = TimePlot(of.title, of.unit, tuple(lines), start, moment.end, inside, of.dashed)
    return _in_ms(plot) if of.unit == "s" else plot


def _points(moment: Moment, key: tuple[str, str, str], start: datetime) -> list[Point | None]:
    """Return the points of the series `key` since `start`; None marks a gap in the curve.

    There is a gap where a value is unknown or two values are too far apart. Empty if no value is known.
    """
    values, ranges = moment.series.get(key, ()), moment.ranges.get(key)
    apart_s = _apart_s(values) if ranges is None else _MINUTES_APART_S
    points: list[Point | None] = []
    before = None
    for number, (at, value) in enumerate(values):
        if not start.timestamp() <= at <= moment.end.timestamp():
            continue
        if points and points[-1] is not None and (value is None or at - (before or at) > apart_s):
            points.append(None)
        if value is not None:
            low, high = (value, value) if ranges is None else ranges[number]
            points.append(Point(at, value, low, high))
        before = at
    return points if any(points) else []


def _apart_s(values: Values) -> float:
    """Return the distance in seconds beyond which two values are not connected."""
    steps = [later[0] - earlier[0] for earlier, later in pairwise(values)]
    return max(GAP_S, _INTERVALS * median(steps)) if steps else GAP_S


def _in_ms(plot: TimePlot) -> TimePlot:
    """Convert a plot from seconds to milliseconds if all its values are below `_MS_BELOW_S`."""
    if max((point.high for line in plot.lines for point in line.known), default=0.0) >= _MS_BELOW_S:
        return plot
    lines = (replace(line, points=[_scaled(point) for point in line.points]) for line in plot.lines)
    return replace(plot, unit="ms", lines=tuple(lines))


def _scaled(point: Point | None) -> Point | None:
    return None if point is None else Point(point.at, *(_MS * value for value in point[1:]))


def sketch(plots: Sequence[TimePlot]) -> str:
    """Return plots as rows of text: for each curve its name, a row of bars, smallest and largest value.

    Plots of another range than the first have a time axis of their own.
    """
    rows: list[str] = []
    span = None
    for plot in plots:
        if span != (plot.start, plot.end):
            span = (plot.start, plot.end)
            rows += [""] * bool(rows) + [*_axis(plot)]
        rows += _sketch(plot)
    return "\n".join(row.rstrip() for row in rows)


def _sketch(plot: TimePlot) -> Iterator[str]:
    yield f"{plot.title} ({plot.unit})"
    known = [line for line in plot.lines if line.known]
    for line in known[: 2 * MOST_LINES]:
        if line.second and all(point.high == 0 for point in line.known):
            continue
        low, high = min(one.low for one in line.known), max(one.high for one in line.known)
        name = f"{clean(line.name)}{f', {plot.dashed}' if line.second else ''}"
        row = sparkrow(_cells(line.points, plot), _CELLS, plot.top)
        yield f"{fit(name, _NAME)} {row} {f'{_number(low)} to {_number(high)}'.rjust(_RANGE)}"


def _number(value: float) -> str:
    return numbers.rate(value, 7).strip()


def _cells(points: Points, plot: TimePlot) -> list[float | None]:
    """Return the value for each of the `_CELLS` character cells of a curve's row; None in gaps.

    Cells between two connected points have the value of the earlier point.
    """
    start, end = plot.start.timestamp(), plot.end.timestamp()
    width = max(end - start, 1e-9) / _CELLS
    cells: list[float | None] = [None] * _CELLS
    before: int | None = None
    for point in joined(points, start, end, _CELLS):
        if point is None:
            before = None
            continue
        cell = min(_CELLS - 1, int((point.at - start) / width))
        if before is not None:
            cells[before:cell] = [cells[before]] * (cell - before)
        cells[cell], before = point.value, cell
    return cells


def _axis(plot: TimePlot) -> Iterator[str]:
    """Yield the text row of times of day above the curves, then a row with the signs of events, if any."""
    middle = plot.start + (plot.end - plot.start) / 2
    days = plot.start.date() != plot.end.date()
    form = "%m-%d %H:%M" if days else "%H:%M:%S"
    left, centre, right = (f"{one.astimezone(UTC):{form}}" for one in (plot.start, middle, plot.end))
    row = f"{left}{centre.center(_CELLS - len(left) - len(right))}{right}"
    yield f"{fit('UTC', _NAME)} {row}{'min to max'.rjust(_RANGE + 1)}"
    signs = [" "] * _CELLS
    width = max((plot.end - plot.start).total_seconds(), 1e-9) / _CELLS
    rank = {"▲": 1, "M": 2, "✖": 3}
    for mark in plot.marks:
        cell = min(_CELLS - 1, int((mark.at - plot.start.timestamp()) / width))
        if rank.get(mark.sign, 0) > rank.get(signs[cell], 0):
            signs[cell] = mark.sign
    if any(sign != " " for sign in signs):
        yield f"{fit('events', _NAME)} {''.join(signs)}"
