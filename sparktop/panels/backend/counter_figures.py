"""Draws the section of a backend's full-screen view that has values which only some servers report."""

from __future__ import annotations

from sparktop.graphics import numbers
from sparktop.model.engine import COUNTER_FIGURES, CounterFigure
from sparktop.model.snapshot import BackendView
from sparktop.panels.parts.rows import Row
from sparktop.panels.parts.sections import Section, fact, facts


def counter_section(view: BackendView, width: int) -> list[Section]:
    """Return a list with the section of rarely reported values of a backend; empty if it reports none.

    The section has those values of `COUNTER_FIGURES` that are known.
    """
    values = ((figure, view.counter_figures.get(figure.name)) for figure in COUNTER_FIGURES)
    cells = [_cell(figure, value) for figure, value in values if value is not None]
    return [Section("also reported", facts(cells, width))] if cells else []


def _cell(figure: CounterFigure, value: float) -> Row:
    if figure.of is None:
        return fact(figure.title, numbers.rate(value, 6), "/s 10 s")
    return fact(figure.title, numbers.percent(value, 6), " 60 s")
