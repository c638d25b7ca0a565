"""Draws the nodes as a list: a line of values for each, with graphs of GPU and CPU use beside it."""

from __future__ import annotations

from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit, fit_name
from sparktop.model.snapshot import NodeView
from sparktop.panels.node.memory_bar import used_percent
from sparktop.panels.node.panel import gpu_totals, rows_below
from sparktop.panels.parts.columns import WIDE_FIGURES_WIDTH, figures_width, graph_columns, mark, panel_row
from sparktop.panels.parts.figures import LIVE, bar_runs, figure, label, share_role
from sparktop.panels.parts.gpu_figures import lost_run, margin_of, margin_role, speed_role
from sparktop.panels.parts.graph import TimeWindow, area_rows, caption
from sparktop.panels.parts.rows import Row, Run, fit_row, in_role
from sparktop.panels.parts.scraped import failure_role, is_stale

_NAME = 8
_BAR, _LONG_BAR = 5, 9
_DOTS = 4
"""Rows of dots in a row of text."""
_PERCENT = 5
"""Width in cells of a percentage: "100 %"."""
_GRAPHS = (("GPU", "gpu_percent", "gpu"), ("CPU", "cpu_percent", "cpu"))
"""Caption, name of the series and gradient of each graph, the most important first."""


def node_heading(width: int) -> Row:
    """Return the heading row of a list of nodes that is `width` cells wide."""
    count, each = graph_columns(width)
    bar = _bar_width(figures_width(width))
    words = f"{fit('node', _NAME)} {fit('GPU', bar + _PERCENT)}{'power':>6}{'°C':>4}{'memory':>9}"
    captions = [caption([(name, gradient)], "100 %", each) for name, _, gradient in _GRAPHS[:count]]
    return panel_row([label(words)], captions, width)


def node_entry(
    view: NodeView, width: int, height: int, window: TimeWindow, *, selected: bool = False
) -> list[Row]:
    """Return one node as `height` rows of a list of `width` cells: values, and graphs beside them."""
    cells = figures_width(width)
    further = rows_below(view, cells - 2, height - 1)
    figures = [node_line(view, cells), *([("  ", "text"), *row] for row in further)]
    figures += [[] for _ in range(height - len(figures))]
    count, each = graph_columns(width)
    axis = window.axis(max(1, each))
    graphs = [
        area_rows(
            axis.values(getattr(view.history, field), each),
            each,
            height,
            100.0 * _free_row(height),
            gradient,
            end_slot=axis.end_slot,
        )
        for _, field, gradient in _GRAPHS[:count]
    ]
    rows = [
        panel_row(row, [graph[index] for graph in graphs], width, lead=mark(selected=selected and not index))
        for index, row in enumerate(figures)
    ]
    if view.failure is None and view.sample is not None:
        return rows
    roles = [failure_role(view) if view.failure is not None else "stale", *("stale" for _ in rows)]
    return [[row[0], *in_role(row[1:], role)] for row, role in zip(rows, roles, strict=False)]


def _free_row(height: int) -> float:
    """Return by how much a scale grows so that the top row of dots stays free in a graph of `height` rows.

    Without it the graphs of two nodes below each other would look like one area.
    """
    return _DOTS * height / (_DOTS * height - 1)


_QUIET_SPEEDS = frozenset({"unknown", "idle", "normal"})
"""Speed states of a GPU that are not shown in a list."""


def short_node(view: NodeView, width: int, *, selected: bool = False) -> Row:
    """Return a node in `width` cells, for lists with several columns."""
    row = fit_row([mark(selected=selected), *node_line(view, width - 1)], width)
    return row if view.failure is None else [row[0], *in_role(row[1:], failure_role(view))]


def node_line(view: NodeView, width: int) -> Row:
    """Return a node's values in one row of `width` cells: name, GPU, memory, and what is wrong with it.

    Values that do not fit are left out, the least important first.
    """
    row: Row = [(fit_name(view.name, _NAME), "title"), (" ", "text")]
    if view.failure is not None:
        sign, word = ("…", "stale") if is_stale(view) else ("✖", "no answer")
        choices = (f"{sign} {view.failure.message}", f"{sign} {word}", word)
        room = width - _NAME - 1
        said = next((words for words in choices if cell_width(words) <= room), choices[-1])
        return fit_row([*row, (said, failure_role(view))], width)
    if view.sample is None:
        return fit_row([*row, label("connecting")], width)
    room = width - _NAME - 1
    for piece in _pieces(view, width):
        cells = sum(len(text) for text, _ in piece)
        if cells <= room:
            row += piece
            room -= cells
    return fit_row(row, width)


def _pieces(view: NodeView, width: int) -> list[Row]:
    """Return the values of a node that answers, in pieces, the most important first."""
    sample = view.sample
    if sample is None:
        return []
    cpu = sample.cpu.percent
    used = used_percent(sample.memory)
    ends: list[Row] = [
        [label(" mem"), (numbers.percent(used, _PERCENT), share_role(used, 85, 101))],
        [label(" CPU"), (numbers.percent(cpu, _PERCENT), share_role(cpu, 101, 101))],
    ]
    if not sample.gpus:
        lost: Row = [lost_run(view.gpus_lost)] if view.gpus_lost else [label("no GPU")]
        return [lost, *ends]
    use, watts, hottest = gpu_totals(sample.gpus)
    bar = bar_runs(None if use is None else use / 100, _bar_width(width), "gpu")
    pieces: list[Row] = [[*bar, figure(numbers.percent(use, _PERCENT), known=use is not None, role=LIVE)]]
    wrong = _wrong(view)
    if wrong is not None:
        pieces.append([(f" {wrong[0]}", wrong[1])])
    else:
        pieces.append([_apart(watts, 4), label(" W")])
    heat = None if hottest is None else hottest.temperature_c
    role = margin_role(None if hottest is None else margin_of(hottest))
    pieces.append([_apart(heat, 3, role), label("°")])
    return [*pieces, *ends]


def _apart(value: float | None, width: int, role: str = "text") -> Run:
    """Return a count in `width` cells; in one cell more if no blank would be left before its digits."""
    cells = width + (value is not None and value >= 10 ** (width - 1) - 0.5)
    return figure(numbers.count(value, cells), known=value is not None, role=role)


def _wrong(view: NodeView) -> Run | None:
    """Return what is wrong with a node's GPUs as a styled text segment; None if nothing is."""
    if view.gpus_lost:
        return lost_run(view.gpus_lost)
    return None if view.speed.word in _QUIET_SPEEDS else (view.speed.word, speed_role(view.speed))


def _bar_width(width: int) -> int:
    return _LONG_BAR if width >= WIDE_FIGURES_WIDTH else _BAR if width >= _NAME + 1 + _BAR + _PERCENT else 3
