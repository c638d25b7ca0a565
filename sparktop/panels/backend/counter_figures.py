"""The section of values that only some servers report."""

from __future__ import annotations

from sparktop.graphics import numbers
from sparktop.model.engine import COUNTER_FIGURES, CounterFigure
from sparktop.model.snapshot import BackendView
from sparktop.panels.parts.rows import Row
from sparktop.panels.parts.sections import Section, fact, facts


def counter_section(view: BackendView, width: int) -> list[Section]:
    """Return a section with the values of `COUNTER_FIGURES` that are known, in a list; empty if none is."""
    values = ((figure, view.counter_figures.get(figure.name)) for figure in COUNTER_FIGURES)
    cells = [_cell(figure, value) for figure, value in values if value is not None]
    return [Section("also reported", facts(cells, width))] if cells else []


def _cell(figure: CounterFigure, value: float) -> Row:
    if figure.of is None:
        return fact(figure.title, numbers.rate(value, 6), "/s 10 s")
    return fact(figure.title, numbers.percent(value, 6), " 60 s")
