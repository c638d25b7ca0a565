"""Draws the SVG plots of a report: axes with ticks, titles, notes and style; and metrics against time.

These have a curve for each server or machine, and lines at events and marks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sparktop.graphics import svg
from sparktop.graphics.axes import PlotAxis, nice_ceiling
from sparktop.graphics.cells import cell_width
from sparktop.graphics.numbers import tick
from sparktop.model.text import clean
from sparktop.panels.parts.text import fitted_names
from sparktop.report.html import COLORS

# Colour-blind readers can distinguish the first five of each, which differ in lightness, or as blue and
# orange.


ON_LIGHT = ("#0a66e0", "#b84a00", "#0f855a", "#7a1f6a", "#20262e", "#7d6200", "#0086a8")
ON_DARK = ("#4aa3f0", "#ff8a3d", "#a8ecc0", "#d87bc0", "#ffffff", "#f0e442", "#6fd0ff")
"""The same series has the same place in both."""


WIDTH = 380
"""Width of every plot: on a phone it is shown at nine tenths, so that its text stays readable."""
LEFT, TOP = 42, 50
CHARACTER, _BOLD = 6.3, 1.17
"""Mean width of a character of the plots' text, and how much wider a bold one is."""
_PLOT_HEIGHT = 170
_NOTE_HEIGHT = 15
"""Heights of the plot and of a line of notes, in pixels."""
_NAME_CELLS, _NAMES_APART = 17, 14
"""Most characters of a curve's name beside a plot, and the least distance between names."""
_LEAST_APART = 24
"""Minimum distance between labels of the horizontal axis."""
NOTE_CELLS = 56
"""Most characters of a note."""
_GAP, _COLUMNS = 24, 2
"""Distance between plots of a sheet, and how many stand beside one another."""
_SERIES = len(ON_LIGHT)
_STEPS = {1.0: 5, 1.5: 3, 2.0: 4, 2.5: 5, 3.0: 3, 4.0: 4, 5.0: 5, 6.0: 3, 8.0: 4}
"""Intervals of a linear axis, by the first digits of its end."""
_DECADE = 10.0
"""Ratio of two powers of ten on a logarithmic axis."""
_CLOSE = 1.3
"""The end of a logarithmic axis has a label of its own if it exceeds the last round value by this factor."""


def _color_rules(colors: Sequence[str]) -> str:
    return " ".join(f".s{number} {{ color: {color}; }}" for number, color in enumerate(colors))


STYLE = f"""\
.plot {{ display: block; width: 100%; height: auto; }}
.plot text {{ fill: var(--muted); font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }}
.plot .title {{ font-size: 14px; font-weight: 600; fill: var(--text); }}
.plot .end {{ text-anchor: end; }} .plot .middle {{ text-anchor: middle; }}
.plot .grid {{ stroke: var(--line); fill: none; }}
.plot .limit {{ stroke: var(--warn); stroke-dasharray: 5 4; fill: none; }}
.plot .own {{ stroke: currentColor; }}
.plot .curve {{ stroke: currentColor; stroke-width: 2; fill: none; }}
.plot .reference {{ stroke-dasharray: 2 4; }} .plot .second {{ stroke-dasharray: 4 3; stroke-width: 1.4; }}
.plot .band {{ fill: currentColor; opacity: .18; }}
.plot .event path {{ stroke: var(--muted); opacity: .45; fill: none; }}
.plot .warning path {{ stroke: var(--warn); }} .plot .warning text {{ fill: var(--warn); }}
.plot .critical path {{ stroke: var(--bad); opacity: .8; }} .plot .critical text {{ fill: var(--bad); }}
.plot .marked path {{ stroke: var(--text); stroke-dasharray: 5 4; }}
.plot .lead {{ stroke: currentColor; stroke-dasharray: 1 3; opacity: .6; fill: none; }}
.plot .interval {{ stroke: currentColor; stroke-width: 1.3; fill: none; }}
.plot .mark {{ fill: currentColor; stroke: var(--card); }}
.plot .small {{ font-size: 10px; }}
.plot .doubt {{ fill: var(--card); stroke: currentColor; stroke-width: 1.6; }}
.plot .dots {{ stroke: currentColor; stroke-width: 3; stroke-linecap: round; opacity: .5; fill: none; }}
.plot text.label {{ fill: currentColor; font-weight: 600; }}
{_color_rules(ON_LIGHT)}
@media screen and (prefers-color-scheme: dark) {{ {_color_rules(ON_DARK)} }}
"""
"""The style of the plots; the page around them sets its variables."""


class Drawing(Struct, frozen=True):
    """A finished plot as SVG, with a title and a description in words."""

    title: str
    description: str
    """Its figures in words."""
    body: str
    height: float

    def element(self, **place: float) -> str:
        """Return the plot as an SVG element.

        `place` has attributes such as x and y, needed if the plot is put inside another SVG element.
        """
        inside = (svg.title_element(self.title), svg.title_element(self.description, "desc"), self.body)
        box = f"0 0 {WIDTH} {svg.short(self.height)}"
        return svg.element(
            "svg", *inside, xmlns=svg.NAMESPACE, viewBox=box, class_="plot", role="img", **place
        )


def sheet(drawings: Sequence[Drawing], title: str) -> str:
    """Return the text of one SVG file with all plots, in rows and columns."""
    columns = min(_COLUMNS, len(drawings))
    drawn, y = [], float(_GAP)
    for start in range(0, len(drawings), max(1, columns)):
        row = drawings[start : start + columns]
        for number, drawing in enumerate(row):
            x = _GAP + number * (WIDTH + _GAP)
            drawn.append(drawing.element(x=x, y=y, width=WIDTH, height=drawing.height))
        y += max(drawing.height for drawing in row) + _GAP
    width = _GAP + max(1, columns) * (WIDTH + _GAP)
    style = svg.element("style", escape(COLORS + STYLE, quote=False))
    background = svg.element("rect", width=width, height=y, fill="var(--card)")
    box = f"0 0 {width} {svg.short(y)}"
    inside = (svg.title_element(clean(title, 400)), style, background, *drawn)
    return svg.element("svg", *inside, xmlns=svg.NAMESPACE, viewBox=box, width=width, height=y) + "\n"


def series_class(number: int) -> str:
    """Return the CSS class that gives the series `number` its colour."""
    return f"s{number % _SERIES}"


def short_names(names: Sequence[str], most: int = _NAME_CELLS) -> list[str]:
    """Return untrusted names without control characters, cut to terminal cells so that they stay distinct."""
    cleaned = tuple(map(clean, names))
    fitted = fitted_names(cleaned, most)
    return [fitted[name].rstrip() for name in cleaned]


_INSET = 12
"""Distance of the outermost places from the ends of the horizontal axis."""


class Frame(Struct, frozen=True):
    """The axes and texts of a plot: concurrencies or lengths from left to right, a metric upwards."""

    title: str
    subtitle: str
    places: Sequence[float]
    """Values of the horizontal axis that have a label, ascending."""
    x_title: str
    y_axis: PlotAxis
    margin: float = 0
    """Width to the right of the axes, for the names of the curves."""
    notes: Sequence[tuple[str, str]] = ()
    """(CSS class of a sample line or "", words) below the plot."""

    @property
    def right(self) -> float:
        """Horizontal position of the right end of the axes, in SVG units."""
        return WIDTH - self.margin

    @property
    def bottom(self) -> float:
        """Vertical position of the horizontal axis, in SVG units from the top."""
        return TOP + _PLOT_HEIGHT

    @property
    def height(self) -> float:
        """Height of the plot with its notes, in SVG units."""
        return self.bottom + 40 + _NOTE_HEIGHT * len(self.notes)

    def x(self, value: float) -> float:
        """Return the horizontal position of a value in SVG units: logarithmic; linear on an axis from 0."""
        low, high = self.places[0], self.places[-1]
        if low == high:
            return (LEFT + self.right) / 2
        if low <= 0:
            share = (max(value, low) - low) / (high - low)
        else:
            share = math.log(max(value, low) / low) / math.log(high / low)
        return LEFT + _INSET + min(1.0, share) * (self.right - LEFT - 2 * _INSET)

    def y(self, value: float) -> float:
        """Return the vertical position of a value in SVG units; beyond the axis, that of the nearest end."""
        share = self.y_axis.place(max(value, self.y_axis.low))
        return self.bottom - min(1.0, max(0.0, share)) * _PLOT_HEIGHT

    def svg_elements(self) -> Iterator[str]:
        """Yield the SVG elements of titles, grid lines, axis labels and notes."""
        yield svg.text(self.title, 2, 16, class_="title")
        yield svg.text(self.subtitle, 2, 33)
        for value in _tick_values(self.y_axis):
            y = self.y(value)
            yield svg.line(LEFT, y, self.right, y, class_="grid")
            yield svg.text(tick(value, 4), LEFT - 6, y + 4, class_="end")
        for value, words in self.labels():
            yield svg.line(self.x(value), self.bottom, self.x(value), self.bottom + 4, class_="grid")
            yield svg.text(words, self.x(value), self.bottom + 17, class_="middle")
        yield svg.text(self.x_title, (LEFT + self.right) / 2, self.bottom + 33, class_="middle")
        for number, (kind, words) in enumerate(self.notes):
            y = self.bottom + 50 + _NOTE_HEIGHT * number
            if kind:
                yield svg.line(2, y - 4, 18, y - 4, class_=kind)
            yield svg.text(short_names([words], NOTE_CELLS)[0], 24, y)

    def names(self, ends: Sequence[tuple[str, float, float]], numbers: Sequence[int]) -> Iterator[str]:
        """Yield the names of curves as SVG, each beside the end of its curve at the right of the plot.

        `ends` has (name, horizontal value, vertical value) of the last point of each curve. `numbers` are the
        curves' series numbers, which determine the colours.
        """
        points = [(self.x(x), self.y(y)) for _, x, y in ends]
        moved = spread([y for _, y in points], _NAMES_APART, TOP + 4, self.bottom - 2)
        names = [name for name, _, _ in ends]
        places = zip(numbers, names, short_names(names), points, moved, strict=True)
        for number, name, short_name, (x, y), moved_y in places:
            words = svg.text(short_name, self.right + 4, moved_y + 4, class_="label")
            lead = svg.line(x + 6, y, self.right + 2, moved_y, class_="lead")
            yield svg.element("g", svg.title_element(clean(name)), lead, words, class_=series_class(number))

    def labels(self) -> list[tuple[float, str]]:
        """Return (value, label) for values of the horizontal axis that have room for a label, largest first.

        The largest value always has a label.
        """
        taken: list[float] = []
        for value in reversed(self.places):
            if not taken or self.x(taken[-1]) - self.x(value) >= _LEAST_APART:
                taken.append(value)
        return [(value, tick(value, 4)) for value in taken]


def _tick_values(axis: PlotAxis) -> list[float]:
    """Return the values at which a vertical axis has ticks: round numbers between its ends.

    A logarithmic axis (`ratios`) also has one at its end, if that is far from the last of them.
    """
    if not axis.ratios:
        power = 10.0 ** math.floor(math.log10(axis.high))
        count = _STEPS.get(round(axis.high / power, 1), 4)
        return [axis.high * step / count for step in range(count + 1)]
    powers = range(math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high)) + 1)
    steps = (1, 2, 5) if axis.high / axis.low <= _DECADE**2 else (1,)
    values = (step * _DECADE**power for power in powers for step in steps)
    inside = [value for value in values if axis.low * 0.999 <= value <= axis.high * 1.001]
    return inside if inside and inside[-1] * _CLOSE >= axis.high else [*inside, axis.high]


def label_width(names: Sequence[str]) -> float:
    """Return the width in SVG units that the names of curves need at the right of a plot."""
    longest = max(map(cell_width, short_names(names)), default=0)
    return 14 + longest * CHARACTER * _BOLD


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions apart, so that neighbours have at least the distance `gap`, within `low` to `high`.

    Positions are moved no further than needed. If they do not all fit, the lowest ones are below `low`.
    The result is in the order of `places`.
    """
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = list(places)
    least = low
    for index in order:
        moved[index] = least = max(moved[index], least)
        least += gap
    highest_free = high
    for index in reversed(order):
        moved[index] = highest_free = min(moved[index], highest_free)
        highest_free -= gap
    return moved


MOST_LINES = 7
"""Curves of one plot, as many as there are colours."""
_MOST_POINTS, _SLOTS = 240, 60
"""A curve of more points is joined to so many slots, each with a mean and a range."""
_MOST_INSTANTS = 60
"""Vertical lines of one plot: more hide the curves."""
_LABELS_APART, _SECONDS_APART = 46, 64
"""Least distances of labels on the horizontal axis: hours and minutes, and with seconds."""
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
"""Round distances in seconds between labels of the time axis."""
_MINUTE_S, _DAY_S = 60, 86_400


class TimePoint(NamedTuple):
    """A value at a time (Unix seconds); if it is a mean, `low` and `high` are the range of its values.

    If no digit of it is sure, they are its bounds; `high` is infinite where none is known.
    """

    at: float
    value: float
    low: float
    high: float


Points = Sequence[TimePoint | None]
"""Points in the order of time; None is a gap."""


class TimeLine(Struct, frozen=True):
    """One metric of one server or machine over time."""

    name: str
    number: int
    """Determines the colour."""
    points: Points
    second: bool = False
    """Whether the curve is dashed and has no name, because another curve of the same name has it."""
    is_band: bool = False
    """Whether only the bounds of the values are known: there is a band without a curve."""

    @property
    def known(self) -> list[TimePoint]:
        """The points without the gaps."""
        return [point for point in self.points if point is not None]


class TimeMark(Struct, frozen=True):
    """A moment that all plots show as a vertical line."""

    at: float
    """Unix seconds."""
    kind: str
    """"info", "warning", "critical", or "marked" for a mark of the user: the CSS class of the line."""
    words: str

    @property
    def sign(self) -> str:
        """The character drawn above the mark's line: "▲", "✖" or "M"; "" if `kind` is "info"."""
        return {"warning": "▲", "critical": "✖", "marked": "M"}.get(self.kind, "")


class TimePlot(Struct, frozen=True):
    """Curves with a common unit from `start` to `end` (UTC)."""

    title: str
    unit: str
    lines: tuple[TimeLine, ...]
    start: datetime
    end: datetime
    marks: tuple[TimeMark, ...] = ()
    dashed: str = ""
    """What the dashed curves are; "" if there are none."""

    @property
    def top(self) -> float:
        """The upper end of the vertical axis: 100 for percentages, else a round number."""
        points = [point for line in self.lines for point in line.known]
        highest = max((edge for point in points for edge in point[2:] if math.isfinite(edge)), default=0.0)
        return nice_ceiling(highest, 100.0 if self.unit == "%" else 1.0)


def bin_points(points: Points, start: float, end: float, count: int) -> Points:
    """Divide the time from `start` to `end` into `count` slots; return one point per slot with values.

    It has the mean and range of the slot's points. Gaps stay. Return `points` unchanged if `end` <= `start`.
    """
    if end <= start:
        return points
    width = (end - start) / count
    slots = groupby(points, lambda point: None if point is None else math.floor((point.at - start) / width))
    return [
        None if slot is None else _mean_point([point for point in group if point is not None])
        for slot, group in slots
    ]


def _mean_point(points: Sequence[TimePoint]) -> TimePoint:
    count = len(points)
    return TimePoint(
        sum(point.at for point in points) / count,
        sum(point.value for point in points) / count,
        min(point.low for point in points),
        max(point.high for point in points),
    )


class _TimeFrame(Frame, frozen=True):
    """The axes and texts of a plot over time; values of the horizontal axis are Unix seconds."""

    def x(self, value: float) -> float:
        """Return the horizontal position of a time on the linear axis, in SVG units."""
        low, high = self.places[0], self.places[-1]
        share = 0.5 if low == high else min(1.0, max(0.0, (value - low) / (high - low)))
        return LEFT + share * (self.right - LEFT)

    def labels(self) -> list[tuple[float, str]]:
        """Return (Unix seconds, text such as "14:05") for round times as axis labels, as many as have room.

        If no round time is on the axis, return the label of its start.
        """
        low, high = self.places[0], self.places[-1]
        per_unit = (high - low) / (self.right - LEFT)
        days = math.ceil(per_unit * _LABELS_APART / _DAY_S) * _DAY_S
        steps = ((step_s, _SECONDS_APART if step_s < _MINUTE_S else _LABELS_APART) for step_s in _STEPS_S)
        step = next((step_s for step_s, least in steps if step_s >= per_unit * least), days)
        time_format = "%H:%M" if step < _DAY_S else "%m-%d"
        if step < _MINUTE_S:
            time_format = "%H:%M:%S"
        times = (step * index for index in range(math.ceil(low / step), math.floor(high / step) + 1))
        return [(time, f"{datetime.fromtimestamp(time, UTC):{time_format}}") for time in times] or [
            (low, f"{datetime.fromtimestamp(low, UTC):%H:%M:%S}")
        ]


def time_drawing(plot: TimePlot) -> Drawing:
    """Draw a plot as SVG; only the curves of the `MOST_LINES` servers or machines with the highest means."""
    shown_lines, left_out = _lines_to_draw(plot)
    start, end = plot.start.timestamp(), plot.end.timestamp()
    lines = [
        replace(line, points=bin_points(line.points, start, end, _SLOTS))
        if len(line.points) > _MOST_POINTS
        else line
        for line in shown_lines
    ]
    same_day = plot.start.date() == plot.end.date()
    frame = _TimeFrame(
        title=f"{plot.title} ({plot.unit})",
        subtitle="; ".join(_subtitle_parts(plot, lines, left_out)),
        places=(start, end),
        x_title=f"{plot.start:%Y-%m-%d}{'' if same_day else f' to {plot.end:%m-%d}'}, UTC",
        y_axis=PlotAxis(0.0, plot.top, 1),
        margin=label_width(list(dict.fromkeys(line.name for line in shown_lines))),
    )
    left_lines = [line for line in lines if not line.second]
    ends = [(line.name, line.known[-1].at, line.known[-1].value) for line in left_lines]
    parts = [
        *frame.svg_elements(),
        *_mark_lines(plot.marks, frame),
        *(svg.element("g", *_curve_svg(line, frame), class_=series_class(line.number)) for line in lines),
        *frame.names(ends, [line.number for line in left_lines]),
    ]
    words = ". ".join(_line_description(line, plot) for line in shown_lines)
    return Drawing(f"{plot.title} in {plot.unit} over time", words, "".join(parts), frame.height)


def _subtitle_parts(plot: TimePlot, lines: Sequence[TimeLine], left_out: int) -> Iterator[str]:
    if any(line.second and not line.is_band for line in lines):
        yield f"dashed: {plot.dashed}"
    if any(line.is_band for line in lines):
        yield f"bands: {plot.dashed} between its bounds"
    elif any(point.high > point.low for line in lines for point in line.known):
        yield "bands: smallest to largest"
    if left_out:
        yield f"{left_out} more in the tables"


def _lines_to_draw(plot: TimePlot) -> tuple[list[TimeLine], int]:
    """Return (curves to draw, number of servers or machines whose curves are left out)."""
    lines = [line for line in plot.lines if line.known]
    names = list(dict.fromkeys(line.name for line in lines if not line.second))
    means = {line.name: _mean_point(line.known).value for line in lines if not line.second}
    chosen = sorted(names, key=lambda name: -means[name])[:MOST_LINES]
    return [line for line in lines if line.name in chosen], len(names) - len(chosen)


def _curve_svg(line: TimeLine, frame: Frame) -> Iterator[str]:
    """Yield the SVG of a curve: the range of its points as a band, and their values as connected lines."""
    runs = list(_runs_of_points(line.points))
    bands = [
        [(frame.x(point.at), frame.y(point.high)) for point in run]
        + [(frame.x(point.at), frame.y(point.low)) for point in reversed(run)]
        for run in runs
        if len(run) > 1 and any(point.high > point.low for point in run)
    ]
    if bands and (line.is_band or not line.second):
        yield svg.element("path", d="".join(f"{_path_data(band)}z" for band in bands), class_="band")
    if line.is_band:
        return
    curves = [[(frame.x(point.at), frame.y(point.value)) for point in run] for run in runs if len(run) > 1]
    if curves:
        yield svg.element(
            "path", d="".join(map(_path_data, curves)), class_=f"curve{' second' * line.second}"
        )
    alone = [run[0] for run in runs if len(run) == 1]
    if alone:
        dots = "".join(f"{_path_data([(frame.x(point.at), frame.y(point.value))])}h0" for point in alone)
        yield svg.element("path", d=dots, class_="dots")


def _path_data(places: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{svg.short(x)} {svg.short(y)}" for x, y in places)


def _runs_of_points(points: Points) -> Iterator[list[TimePoint]]:
    """Yield the points of each part of a curve without gaps, as a list."""
    for _, group in groupby(points, lambda point: point is None):
        if run := [point for point in group if point is not None]:
            yield run


def _mark_lines(marks: Sequence[TimeMark], frame: Frame) -> Iterator[str]:
    """Yield the SVG of the vertical lines of `marks`, at most `_MOST_INSTANTS`, the most important ones."""
    rank = ["marked", "critical", "warning", "info"]
    for mark in sorted(marks, key=lambda mark_of_kind: rank.index(mark_of_kind.kind))[:_MOST_INSTANTS]:
        x = frame.x(mark.at)
        inside = [
            svg.title_element(f"{datetime.fromtimestamp(mark.at, UTC):%H:%M:%S} {clean(mark.words, 120)}"),
            svg.line(x, TOP, x, frame.bottom),
        ]
        inside += [svg.text(mark.sign, x, TOP - 3, class_="middle small")] if mark.sign else []
        yield svg.element("g", *inside, class_=f"event {mark.kind}")


def _line_description(line: TimeLine, plot: TimePlot) -> str:
    points = line.known
    low, mean, high = min(p.low for p in points), _mean_point(points).value, max(p.high for p in points)
    line_name = f"{clean(line.name)}{f', {plot.dashed}' if line.second else ''}"
    if line.is_band:
        return f"{line_name}: between {tick(low)} and {tick(high) if math.isfinite(high) else 'more'}"
    return f"{line_name}: {tick(low)} to {tick(high)}, {tick(mean)} on average"
