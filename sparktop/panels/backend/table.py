"""Draws the backends as one table: a row each, below a heading that is always visible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparktop.graphics import numbers
from sparktop.graphics.bars import sparkrow
from sparktop.graphics.cells import fit
from sparktop.model.snapshot import BackendView
from sparktop.panels.parts.figures import quantile_text, share_role
from sparktop.panels.parts.graph import TimeAxis
from sparktop.panels.parts.roles import STATE_ROLES
from sparktop.panels.parts.rows import Row, fit_row, in_role

_SPARK_MIN = 10
_NAME = 16


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table: heading, width in cells, and the function that returns a backend's cell."""

    heading: str
    width: int
    cell: Callable[[BackendView], tuple[str, str]]
    """Return (text, role) of a backend's cell; the table right-aligns the text."""


def _known(text: str, value: float | None, role: str = "title") -> tuple[str, str]:
    return text, "muted" if value is None else role


_COLUMNS = (
    Column("state", 12, lambda v: (v.state_text, STATE_ROLES[v.state])),
    Column("gen t/s", 8, lambda v: _known(numbers.rate(v.generation_tps, 7), v.generation_tps)),
    Column("run", 5, lambda v: _known(numbers.count(v.running, 5), v.running)),
    Column(
        "wait", 5, lambda v: _known(numbers.count(v.waiting, 5), v.waiting, "warn" if v.waiting else "title")
    ),
    Column(
        "KV",
        5,
        lambda v: (numbers.percent(v.kv_cache_percent, 4), share_role(v.kv_cache_percent, 90, 98)),
    ),
    Column("TTFT p95", 10, lambda v: _known(quantile_text(v.ttft.p95), v.ttft.count)),
    Column("ITL p95", 10, lambda v: _known(quantile_text(v.itl.p95), v.itl.count)),
    Column("prompt t/s", 11, lambda v: _known(numbers.rate(v.prompt_tps, 7), v.prompt_tps)),
    Column("req/s", 7, lambda v: _known(numbers.rate(v.requests_per_s, 5), v.requests_per_s)),
    Column(
        "hits",
        6,
        lambda v: _known(numbers.percent(v.prefix_cache_hit_percent, 4), v.prefix_cache_hit_percent),
    ),
)
"""Columns in order of importance: narrow terminals show only the first ones."""


def _columns(width: int) -> tuple[list[Column], int]:
    """Return (columns that fit, width in cells of the load graph); without a graph the width is 0."""
    room = width - _NAME - 1
    chosen: list[Column] = []
    for column in _COLUMNS:
        needed = column.width + 1
        enough = len(chosen) < 5 or room - needed >= _SPARK_MIN + 1
        if needed <= room and enough:
            chosen.append(column)
            room -= needed
    return chosen, room - 1 if room > _SPARK_MIN else 0


def table_heading(width: int, *, order: str) -> Row:
    """Return the heading row of the table; `order` names the sort order, "" for the configured one."""
    columns, spark = _columns(width)
    row: Row = [(fit(f" backend ({order})" if order else " backend", _NAME + 1), "muted")]
    row += [(" " + fit(column.heading, column.width, "right"), "muted") for column in columns]
    if spark:
        row.append((" " + fit("run+wait, one scale", spark), "muted"))
    return fit_row(row, width)


def table_row(view: BackendView, width: int, axis: TimeAxis, top: float, *, selected: bool = False) -> Row:
    """Return one backend as a row of a table: its values, then a graph of its load over time.

    The graph's scale goes from 0 to `top` requests. `selected` marks the row under the cursor.
    """
    columns, spark = _columns(width)
    row: Row = [("▶" if selected else " ", "selected"), (fit(view.name, _NAME), "title")]
    for column in columns:
        text, role = column.cell(view)
        row.append((" " + fit(text.strip(), column.width, "right"), role))
    if spark:
        row += [(" ", "text"), (sparkrow(_load(view, axis, spark), spark, top), "running")]
    if view.failure is not None or view.age_s is None:
        return [row[0], *in_role(fit_row(row[1:], width - 1), "bad" if view.failure else "stale")]
    return fit_row(row, width)


def _load(view: BackendView, axis: TimeAxis, width: int) -> Sequence[float | None]:
    """Return running plus waiting requests in the newest `width` time slots; None where unknown."""
    running = axis.values(view.history.running, width)[-width:]
    waiting = axis.values(view.history.waiting, width)[-width:]
    return [None if r is None else r + (w or 0.0) for r, w in zip(running, waiting, strict=True)]
