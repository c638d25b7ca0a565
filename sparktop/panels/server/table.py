"""Draws the servers as a list: a line of values for each, with graphs of the load on one scale beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit
from sparktop.model.snapshot import BackendState, BackendView, Latency
from sparktop.panels.parts.figures import (
    LIVE,
    alarm,
    failure_role,
    figure,
    latency_role,
    quantile_text,
    share_role,
    state_role,
    state_words,
    wait_role,
)
from sparktop.panels.parts.graph import TimeWindow
from sparktop.panels.parts.text import (
    Column,
    Row,
    Run,
    figures_width,
    fit_row,
    fitted_names,
    in_role,
    mark,
    panel_row,
)
from sparktop.panels.server.panel import (
    GroupScale,
    further_rows,
    graph_captions,
    graph_rows,
    load_caption,
    load_rows,
    loading_rows,
)

_SPARK_MIN = 10
_NAME, _LONG_NAME = 8, 16
"""Cells of a name, also where names are longer: in a list with graphs, and in one with more values."""
_STATE, _STATE_ALONE, _STATE_LEAST = 13, 11, 10
"""Widths in cells of a state: "queueing 10 s" with its time window, "unreachable", and below its heading."""
_SHORT_STATE, _SHORT_REST = 8, 22
"""Widths in cells of a short entry: the state, and all but the name."""
_LEAST_COLUMNS = 4
"""Number of columns that a table keeps even if there is no room for a graph beside them."""
_BELOW = {"TTFT p95": 2, "ITL p95": 3, "KV": 4}
"""Least rows of an entry from which a column's figure stands below the line of values, too, by heading."""


RATE = "10 s tok/s"
"""Heading of the token rate with its window: a graph beside it shows single seconds."""


def _p95_run(latency: Latency) -> Run:
    """Return the p95 of a latency, coloured where it is slow."""
    role = "muted" if latency.count is None else latency_role(latency, latency.p95)
    return quantile_text(latency.p95), role


def _state_run(view: BackendView, width: int = _STATE) -> Run:
    """Return a backend's state, with its time window if that fits into the column."""
    fitting = (text for text in state_words(view) if cell_width(text) <= width)
    return next(fitting, state_words(view)[-1]), state_role(view)


_COLUMNS = (
    Column("state", _STATE, _state_run, "left"),
    Column(RATE, 5, lambda v: figure(numbers.rate(v.generation_tps, 5), LIVE)),
    Column("run", 4, lambda v: figure(numbers.count(v.running, 4), LIVE)),
    Column("wait", 4, lambda v: figure(numbers.count(v.waiting, 4), wait_role(v))),
    Column(
        "KV",
        5,
        lambda v: (numbers.percent(v.kv_cache_percent), alarm(v, share_role(v.kv_cache_percent, 90, 98))),
    ),
    Column("TTFT p95", 9, lambda v: _p95_run(v.ttft)),
    Column("ITL p95", 9, lambda v: _p95_run(v.itl)),
    Column("prompt tok/s", 12, lambda v: figure(numbers.rate(v.prompt_tps, 7))),
    Column("req/s", 7, lambda v: figure(numbers.rate(v.requests_per_s, 5))),
    Column("hits", 6, lambda v: figure(numbers.percent(v.prefix_cache_hit_percent))),
)
"""Columns in order of importance: narrow lists show only the first ones."""


class ColumnOrder(StrEnum):
    """The columns of a list that come first, after the state."""

    LOAD = "load first"
    LATENCY = "latency first"
    CACHE = "cache first"


_FIRST = {
    ColumnOrder.LOAD: (),
    ColumnOrder.LATENCY: ("TTFT p95", "ITL p95"),
    ColumnOrder.CACHE: ("KV", "hits", "prompt tok/s"),
}
"""Headings of the columns that come first in each order."""


def _columns_that_fit(width: int, name: int, spark: int, order: ColumnOrder) -> tuple[list[Column], int]:
    """Return (columns that fit into `width` cells beside a name of `name` cells, cells left over).

    A graph of `spark` cells must fit beside all but the first columns; 0 for none.
    """
    room = width - name
    chosen: list[Column] = []
    state, *others = _COLUMNS
    for candidate in (state, *sorted(others, key=lambda entry: entry.heading not in _FIRST[order])):
        has_room_before = candidate.heading == RATE and chosen[-1:] != [state]
        column = replace(candidate, width=len(RATE)) if has_room_before else candidate
        needed = column.width + 1
        graph_cells = 0 if len(chosen) < _LEAST_COLUMNS or not spark else spark + 1
        if room - needed < graph_cells:
            break
        chosen.append(column)
        room -= needed
    return chosen, room


class ServerTable(Struct, eq=False):
    """How a list of backends is drawn: its widths, and the scales and the time of its graphs."""

    width: int
    """Width in cells, with the frame."""
    window: TimeWindow
    scale: GroupScale
    wide: bool = False
    """Whether values matter more than graphs: all columns that fit, and one graph in the cells left over."""
    columns: ColumnOrder = ColumnOrder.LOAD
    names: tuple[str, ...] = ()
    """All names of the column, also of backends that are not shown now."""
    each: int = 1
    """Rows of an entry."""
    _fitted: Mapping[str, str] = {}
    _name_cells: int = 0
    _fitting_columns: Sequence[Column] = ()
    _graph_cells: int = 0
    """Cells of the graph after the columns of a wide table."""

    def __post_init__(self) -> None:
        longest = max(map(cell_width, self.names), default=0)
        self._name_cells, self._fitting_columns, self._graph_cells = self._fitted_shape(longest)
        self._fitted = fitted_names(self.names, self._name_cells)

    def heading(self, order: str) -> Row:
        """Return the heading row; `order` names the sort order, "" for the configured one."""
        value = order.removeprefix("by ").removesuffix(" first")
        choices = (f"backend ({order})", order, f"▾{value}") if order else ("backend",)
        title = next((choice for choice in choices if cell_width(choice) <= self._name_cells), "backend")
        text = fit(title, self._name_cells)
        end = self._name_cells
        for column in self._fitting_columns:
            end += 1 + column.width
            start = end - column.width
            if column.align == "right":
                start = min(start, end - cell_width(column.heading))
            text = fit(text.rstrip(), start) + fit(column.heading, end - start, column.align)
        row: Row = [(text, "muted")]
        if not self.wide:
            return panel_row(row, graph_captions(self.width, self.scale), self.width)
        return self._row_with_graph(row, load_caption(self.scale.load, self._graph_cells), self._graph_cells)

    def rows(self, view: BackendView, height: int, *, selected: bool = False) -> list[Row]:
        """Return one backend as `height` rows: a line of values, further values below it, and its graphs."""
        line: Row = [(self._fitted.get(view.name) or fit(view.name, self._name_cells), "title")]
        for column in self._fitting_columns:
            text, role = column.cell(view)
            line.append((" " + fit(text.strip(), column.width, column.align), role))
        if view.loading is not None and view.loading.words:
            rest = sum(cell_width(text) for text, _ in line[2:])
            words = view.loading.words if cell_width(view.loading.words) < rest else view.loading.short
            line = [*line[:2], *fit_row([(f" {words}", "warn")], rest)]
        inner = figures_width(self.width) - 2
        further = [*loading_rows(view, inner), *further_rows(view, inner, height - 1)]
        figures = [line, *([("  ", "text"), *row] for row in further[: height - 1])]
        figures += [[] for _ in range(height - len(figures))]
        leads = [mark(selected=selected and not index) for index in range(height)]
        rows = self._with_graphs(view, figures, self._graph_cells, leads)
        if view.failure is not None or view.age_s is None:
            role = failure_role(view) if view.failure else "stale"
            # Name and state are of now, the figures are the last ones.
            (selection, *head), *below = rows
            head = [selection, *in_role(head[:2], role), *in_role(head[2:], "stale")]
            return [head, *([margin, *in_role(row, "stale")] for margin, *row in below)]
        return rows

    def _fitted_shape(self, longest: int) -> tuple[int, list[Column], int]:
        """Return (cells of a name, columns, cells of the graph) for names of at most `longest` cells.

        Longer names than usual get half of the graph's cells beyond its least width, or cells that are free.
        In a list with more graphs, they get those of figures that stand in the rows below, too, those of the
        state's time window, and those of its longer words.
        """
        if self.wide:
            columns, room = _columns_that_fit(self.width - 3, _LONG_NAME, _SPARK_MIN, self.columns)
            spare = (room - _SPARK_MIN) // 2 if room > _SPARK_MIN else room
            more = max(0, min(longest - _LONG_NAME, spare))
            return _LONG_NAME + more, columns, room - more - 2 if room > _SPARK_MIN else 0
        columns, room = _columns_that_fit(figures_width(self.width), _NAME, 0, self.columns)
        for state_cells in (_STATE_ALONE, _STATE_LEAST):
            for column in reversed(columns):
                if _NAME + room < longest and _BELOW.get(column.heading, self.each + 1) <= self.each:
                    columns = [other for other in columns if other is not column]
                    room += column.width + 1
            if _NAME + room < longest:
                state, *others = columns
                cell = partial(_state_run, width=state_cells)
                columns = [replace(state, width=state_cells, cell=cell), *others]
                room += state.width - state_cells
        return max(_NAME, min(longest, _NAME + room)), columns, 0

    def _with_graphs(
        self, view: BackendView, figures: Sequence[Row], spark: int, leads: Sequence[Run]
    ) -> list[Row]:
        height = len(figures)
        if self.wide:
            axis = self.window.axis(max(1, spark))
            dots = load_rows(view, spark, height, axis, self.scale.load.end) if spark else [[]] * height
            lines = zip(figures, dots, leads, strict=True)
            return [self._row_with_graph(row, graph, spark, lead=lead) for row, graph, lead in lines]
        graphs = graph_rows(view, self.width, height, self.window, self.scale)
        return [
            panel_row(row, [graph[index] for graph in graphs], self.width, lead=leads[index])
            for index, row in enumerate(figures)
        ]

    def _row_with_graph(self, row: Row, graph: Row, spark: int, *, lead: Run = (" ", "text")) -> Row:
        """Return a row of the wide table with the row `graph` of `spark` cells before its right end."""
        if not spark:
            return fit_row([lead, *row], self.width - 2)
        return [*fit_row([lead, *row], self.width - 3 - spark), *graph, (" ", "text")]


def low_entries(views: Sequence[BackendView]) -> frozenset[str]:
    """Return the names of backends that have a single row in a list whose other entries have more.

    They are those that no request reached within the window of latencies; none if all are.
    """
    idle = frozenset(
        view.name
        for view in views
        if view.state is BackendState.IDLE and not view.ttft.count and not view.itl.count
    )
    return idle if len(idle) < len(views) else frozenset()


def entry_names(names: tuple[str, ...], width: int) -> Mapping[str, str]:
    """Return the names of backends as they stand in entries of `width` cells, for `short_entry`."""
    return fitted_names(names, width - _SHORT_REST)


def short_entry(view: BackendView, name: str, width: int, *, selected: bool = False) -> Row:
    """Return a backend in `width` cells, for lists with several columns: name, state, tok/s, and requests.

    The requests are running + waiting ones. `name` is one of `entry_names`.
    """
    run, wait = numbers.count(view.running, 4).strip(), numbers.count(view.waiting, 4).strip()
    row: Row = [
        (name, "title"),
        (f" {fit(state_words(view)[-1], _SHORT_STATE)}", state_role(view)),
        figure(numbers.rate(view.generation_tps, 5)),
        (f" {run}+{wait}", wait_role(view) if view.running is not None else "muted"),
    ]
    if view.failure is not None or view.age_s is None:
        row = [*in_role(row[:2], failure_role(view) if view.failure else "stale"), *in_role(row[2:], "stale")]
    return fit_row([mark(selected=selected), *row], width)
