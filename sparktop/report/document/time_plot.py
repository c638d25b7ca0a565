"""Draws metrics against time as SVG: a curve for each server or machine, and lines at events and marks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sparktop.graphics import svg
from sparktop.graphics.axes import PlotAxis, nice_ceiling
from sparktop.graphics.numbers import tick
from sparktop.model.text import clean
from sparktop.report.document.drawing import (
    LEFT,
    TOP,
    Drawing,
    Frame,
    label_width,
    series_class,
    shorten_name,
)

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


class Point(NamedTuple):
    """A value at a time (Unix seconds); if it is a mean, `low` and `high` are the range of its values."""

    at: float
    value: float
    low: float
    high: float


Points = Sequence[Point | None]
"""Points in the order of time; None is a gap."""


class TimeLine(Struct, frozen=True):
    """One metric of one server or machine over time."""

    name: str
    number: int
    """Determines the colour."""
    points: Points
    second: bool = False
    """Whether the curve is dashed and has no name, because another curve of the same name has it."""

    @property
    def known(self) -> list[Point]:
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
        highest = max((point.high for line in self.lines for point in line.known), default=0.0)
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


def _mean_point(points: Sequence[Point]) -> Point:
    count = len(points)
    return Point(
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
    if any(line.second for line in lines):
        yield f"dashed: {plot.dashed}"
    if any(point.high > point.low for line in lines for point in line.known):
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
    if bands and not line.second:
        yield svg.element("path", d="".join(f"{_path_data(band)}z" for band in bands), class_="band")
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


def _runs_of_points(points: Points) -> Iterator[list[Point]]:
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
            svg.title_element(
                f"{datetime.fromtimestamp(mark.at, UTC):%H:%M:%S} {shorten_name(mark.words, 120)}"
            ),
            svg.line(x, TOP, x, frame.bottom),
        ]
        inside += [svg.text(mark.sign, x, TOP - 3, class_="middle small")] if mark.sign else []
        yield svg.element("g", *inside, class_=f"event {mark.kind}")


def _line_description(line: TimeLine, plot: TimePlot) -> str:
    points = line.known
    low, mean, high = min(p.low for p in points), _mean_point(points).value, max(p.high for p in points)
    line_name = f"{clean(line.name)}{f', {plot.dashed}' if line.second else ''}"
    return f"{line_name}: {tick(low)} to {tick(high)}, {tick(mean)} on average"
