"""Draws the nodes as a list: a line of values for each, with graphs of GPU and CPU use beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit
from sparktop.model.failure_words import NO_ANSWER, failure_words
from sparktop.model.snapshot import NodeView
from sparktop.panels.node.memory_bar import used_percent
from sparktop.panels.node.panel import gpu_totals, rows_below
from sparktop.panels.parts.columns import WIDE_FIGURES_WIDTH, figures_width, graph_columns, mark, panel_row
from sparktop.panels.parts.figures import LIVE, bar_runs, figure, label, share_role
from sparktop.panels.parts.gpu_figures import lost_run, margin_of, margin_role, speed_role
from sparktop.panels.parts.graph import TimeWindow, area_rows, caption
from sparktop.panels.parts.names import are_distinct, fitted_names
from sparktop.panels.parts.rows import Row, Run, fit_row, in_role, row_text
from sparktop.panels.parts.scraped import failure_role, is_stale
from sparktop.panels.parts.sentences import wrapped

_NAME = 8
"""Least cells of a name."""
_NO_BAR, _TINY_BAR, _BAR, _LONG_BAR = 0, 3, 5, 9
"""Cells of the bar of GPU use."""
_NO_GPU = "no GPU"
_DOTS = 4
"""Rows of dots in a row of text."""
_PERCENT = 5
"""Width in cells of a percentage: "100 %"."""
_VALUES = (6, 4, 9, 9)
"""Cells of the values after GPU use, the most important first: power, heat, memory, CPU. Machines without a
GPU have only the last two."""
_GRAPHS = (("GPU", "gpu_percent", "gpu"), ("CPU", "cpu_percent", "cpu"))
"""Caption, name of the series and gradient of each graph, the most important first."""


class LineShape(Struct, frozen=True):
    """The widths in cells of a list's lines, the same for all its machines."""

    width: int
    bar: int
    """Of the bar of GPU use."""
    name: int
    names: Mapping[str, str]
    """By the name of a machine: the name in `name` cells."""


def list_shape(views: Sequence[NodeView], width: int, each: int) -> LineShape:
    """Return the shape of the lines of a list of `width` cells with `each` rows of text for every machine."""
    has_cpu = each > 1 or graph_columns(width)[0] == len(_GRAPHS)
    return line_shape(views, figures_width(width), has_cpu_elsewhere=has_cpu)


def line_shape(views: Sequence[NodeView], width: int, *, has_cpu_elsewhere: bool = False) -> LineShape:
    """Return the shape of lines of `width` cells for `views`.

    Names longer than usual get the cells that are free, those of a CPU use that stands elsewhere too, and
    part of the bar. Where they are still not distinct, values give way, the least important first.
    """
    names = tuple(view.name for view in views)
    longest = max(map(cell_width, names), default=0)
    has_gpus = any(view.sample is None or view.sample.gpus or view.gpus_lost for view in views)
    values = _VALUES if has_gpus else _VALUES[2:]

    def room(bar: int, count: int) -> int:
        """Return the cells of a name beside the bar and the first `count` values."""
        return width - 1 - (bar + _PERCENT if has_gpus else len(_NO_GPU)) - sum(values[:count])

    bar = _LONG_BAR if width >= WIDE_FIGURES_WIDTH else _BAR if room(_BAR, 0) >= _NAME else _TINY_BAR
    shown = next((count for count in range(len(values), 0, -1) if room(bar, count) >= _NAME), 0)
    kept = min(shown, len(values) - has_cpu_elsewhere)
    free = ((bar, shown), (bar, kept), (_TINY_BAR, kept))
    taken = (*((_TINY_BAR, count) for count in range(kept, -1, -1)), (_NO_BAR, 0))
    fitting: Iterator[tuple[int, int]] = (one for one in free if room(*one) >= longest)
    distinct = (one for one in taken if are_distinct(names, max(_NAME, room(*one))))
    chosen = next(fitting, None) or next(distinct, taken[-1])
    name = max(_NAME, min(longest, room(*chosen)))
    return LineShape(width, chosen[0], name, fitted_names(names, name))


def node_heading(shape: LineShape, width: int) -> Row:
    """Return the heading row of a list of nodes that is `width` cells wide."""
    count, each = graph_columns(width)
    words = f"{fit('node', shape.name)} {fit('GPU', shape.bar + _PERCENT)}{'power':>6}{'°C':>4}{'memory':>9}"
    captions = [caption([(name, gradient)], "100 %", each) for name, _, gradient in _GRAPHS[:count]]
    return panel_row([label(words)], captions, width)


def node_entry(
    view: NodeView, shape: LineShape, width: int, height: int, window: TimeWindow, *, selected: bool = False
) -> list[Row]:
    """Return one node as `height` rows of a list of `width` cells: values, and graphs beside them."""
    line = node_line(view, shape)
    further = _message(view, line, shape.width - 2, height - 1)
    if view.failure is None:
        further = rows_below(view, shape.width - 2, height - 1)
    figures = [line, *([("  ", "text"), *row] for row in further)]
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


def _message(view: NodeView, line: Row, width: int, height: int) -> list[Row]:
    """Return why a machine fails in at most `height` rows, in place of its old figures.

    Return [] if its line has the complete message.
    """
    if view.failure is None or height < 1 or view.failure.message in row_text(line):
        return []
    lines = wrapped(view.failure.message, width)
    kept = [*lines[: height - 1], " ".join(lines[height - 1 :])]
    return [fit_row([(text, failure_role(view))], width) for text in kept if text]


def _free_row(height: int) -> float:
    """Return by how much a scale grows so that the top row of dots stays free in a graph of `height` rows.

    Without it the graphs of two nodes below each other would look like one area.
    """
    return _DOTS * height / (_DOTS * height - 1)


_QUIET_SPEEDS = frozenset({"unknown", "idle", "normal"})
"""Speed states of a GPU that are not shown in a list."""


def short_node(view: NodeView, shape: LineShape, *, selected: bool = False) -> Row:
    """Return a node for lists with several columns, in one cell more than `shape` is wide."""
    row = [mark(selected=selected), *node_line(view, shape)]
    return row if view.failure is None else [row[0], *in_role(row[1:], failure_role(view))]


def node_line(view: NodeView, shape: LineShape) -> Row:
    """Return a node's values in one row: name, GPU, memory, and what is wrong with it.

    Values that do not fit are left out, the least important first.
    """
    width, room = shape.width, shape.width - shape.name - 1
    row: Row = [(shape.names[view.name], "title"), (" ", "text")]
    if view.failure is not None:
        sign, why = "…" if is_stale(view) else "✖", failure_words(view.failure, view.via)
        choices = (f"{sign} {view.failure.message}", f"{sign} {why}", why, NO_ANSWER)
        said = next((words for words in choices if cell_width(words) <= room), choices[-1])
        return fit_row([*row, (said, failure_role(view))], width)
    if view.sample is None:
        return fit_row([*row, label("connecting")], width)
    for piece in _pieces(view, shape.bar):
        cells = sum(len(text) for text, _ in piece)
        if cells <= room:
            row += piece
            room -= cells
    return fit_row(row, width)


def _pieces(view: NodeView, bar_width: int) -> list[Row]:
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
        lost: Row = [lost_run(view.gpus_lost)] if view.gpus_lost else [label(_NO_GPU)]
        return [lost, *ends]
    use, watts, hottest = gpu_totals(sample.gpus)
    bar = bar_runs(None if use is None else use / 100, bar_width, "gpu") if bar_width else []
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
