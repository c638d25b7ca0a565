"""Draws what all SVG plots of a report share: axes with ticks, titles, notes, and the style."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from msgspec import Struct

from sparktop.graphics import svg
from sparktop.graphics.axes import PlotAxis
from sparktop.graphics.cells import cell_width, fit
from sparktop.graphics.numbers import tick
from sparktop.model.text import clean
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


def shorten_name(name: str, most: int) -> str:
    """Return an untrusted name without control characters; the middle is cut beyond `most` terminal cells."""
    name = clean(name)
    if cell_width(name) <= most:
        return name
    end = name[-(most // 3) :]
    return f"{fit(name, most - cell_width(end)).rstrip('… ')}…{end}"


class Frame(Struct, frozen=True):
    """The axes and texts of a plot: concurrencies or lengths from left to right, a metric upwards."""

    title: str
    subtitle: str
    places: Sequence[float]
    """Values of the horizontal axis that have a label, ascending."""
    x_title: str
    y_axis: PlotAxis
    inset: float = 12
    """Distance of the outermost places from the ends of the horizontal axis."""
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
        return LEFT + self.inset + min(1.0, share) * (self.right - LEFT - 2 * self.inset)

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
            yield svg.text(shorten_name(words, NOTE_CELLS), 24, y)

    def names(
        self, ends: Sequence[tuple[str, float, float]], numbers: Sequence[int] | None = None
    ) -> Iterator[str]:
        """Yield the names of curves as SVG, each beside the end of its curve at the right of the plot.

        `ends` has (name, horizontal value, vertical value) of the last point of each curve. `numbers` are the
        curves' series numbers, which determine the colours; by default 0, 1, 2 and so on.
        """
        points = [(self.x(x), self.y(y)) for _, x, y in ends]
        moved = spread([y for _, y in points], _NAMES_APART, TOP + 4, self.bottom - 2)
        numbered = range(len(ends)) if numbers is None else numbers
        for number, (name, _, _), (x, y), moved_y in zip(numbered, ends, points, moved, strict=True):
            words = svg.text(shorten_name(name, _NAME_CELLS), self.right + 4, moved_y + 4, class_="label")
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
    longest = max((cell_width(shorten_name(name, _NAME_CELLS)) for name in names), default=0)
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
