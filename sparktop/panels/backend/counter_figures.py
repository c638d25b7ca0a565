"""Draws the sections of a backend's full-screen view that have values which only some servers report."""

from __future__ import annotations

from sparktop.graphics import numbers
from sparktop.model.counter_figures import CounterFigure, How, also_reported
from sparktop.model.snapshot import BackendView
from sparktop.panels.parts.rows import Row
from sparktop.panels.parts.sections import VALUE_WIDTH, Section, fact, facts, name_width

_WINDOWS = {How.RATE: " 10 s", How.PERCENT: " 60 s", How.MEAN: " 60 s", How.COUNT: " since start"}


def counter_sections(view: BackendView, width: int) -> list[Section]:
    """Return the sections of rarely reported values of a backend; empty if it reports none.

    They have those values of `COUNTER_FIGURES` that are known. Counts of faults are left out while they are
    0, and so is a section whose values are all 0.
    """
    room = width // 2 - name_width(width) - VALUE_WIDTH
    cells: dict[str, list[Row]] = {}
    for figure, value in also_reported(view.counter_figures):
        cells.setdefault(figure.section, []).append(_cell(figure, value, room))
    return [Section(title, facts(rows, width)) for title, rows in cells.items()]


def _cell(figure: CounterFigure, value: float, room: int) -> Row:
    """Return label, value and unit; the window follows the unit if both fit into `room` cells."""
    unit, window = figure.shown_unit, _WINDOWS.get(figure.how, "")
    if len(unit) + len(window) < room:
        unit += window
    role = "warn" if figure.fault else "text"
    if figure.is_percent:
        return fact(figure.title, numbers.percent(value, 6), unit, role=role)
    text = numbers.count(value, 6) if figure.how in {How.COUNT, How.GAUGE} else numbers.rate(value, 6)
    return fact(figure.title, text, unit, role=role)
