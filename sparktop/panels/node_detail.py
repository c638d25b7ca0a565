"""One machine on the whole screen: every reading, and the history of what is drawn."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics import numbers
from sparktop.model.node import NodeSample
from sparktop.model.series import Series
from sparktop.model.snapshot import BackendView, NodeView
from sparktop.panels.backend import STATE_ROLES
from sparktop.panels.detail import Detail, aside_width, column_width, detail_rows
from sparktop.panels.figures import figure, label
from sparktop.panels.frame import framed
from sparktop.panels.graph import TimeAxis
from sparktop.panels.graph_grid import Graph
from sparktop.panels.node import footnote
from sparktop.panels.node_sections import node_aside, node_sections
from sparktop.panels.rows import Row, in_role

_EMPTY = NodeSample(at=0.0)


def node_detail(
    view: NodeView,
    backends: Sequence[BackendView],
    width: int,
    height: int,
    axis: TimeAxis,
    *,
    selected: bool = False,
) -> list[Row]:
    """Draw one node as rows of `width` cells: `height` of them, or more where its figures need more.

    Of `backends` those that run on it are named.
    """
    sample = view.sample or _EMPTY
    detail = Detail(
        lead=[_serves(view, backends)],
        sections=node_sections(sample, column_width(width)),
        graphs=_graphs(view),
        aside=node_aside(sample, aside_width(width, 2)),
        graphs_after=2,
    )
    rows = detail_rows(detail, width, height, axis)
    if view.failure is not None or view.sample is None:
        rows = [in_role(row, "stale") for row in rows]
    gpu = sample.gpus[0].name if sample.gpus else None
    title: Row = [("┐", "border"), (view.name, "title"), ("┌", "border")]
    title += [("─ ", "border"), (gpu, "text"), (" ", "text")] if gpu else []
    driver: Row = [label(f" driver {view.identity.driver} ")] if view.identity.driver else []
    return framed(
        rows,
        width,
        max(height, len(rows) + 2),
        role="selected" if selected else "bad" if view.failure is not None else "border",
        title=title,
        status=[("┐", "border"), (view.via, "muted"), ("┌", "border")],
        footnote=footnote(view),
        note=driver,
    )


def _serves(view: NodeView, backends: Sequence[BackendView]) -> Row:
    """Give the backends that run on this machine, each with its word and its token rate."""
    row: Row = [label("serves ")]
    for backend in backends:
        if view.name in backend.nodes:
            row += [
                (f" {backend.name} ", "title"),
                (backend.state.value, STATE_ROLES[backend.state]),
                figure(f" {numbers.rate(backend.generation_tps, 6).strip()}", role="text"),
                label(" t/s  "),
            ]
    return row if len(row) > 1 else [label("no backend names this node as its own")]


def _graphs(view: NodeView) -> list[Graph]:
    """Give what is drawn over time, the most telling first."""
    history = view.history
    cpu = _full("CPU", "cpu", history.cpu_percent)
    memory = _full("memory", "memory", history.memory_percent)
    network = Graph(
        [label("network "), ("▲in ", "network"), ("▼out", "prompt")],
        history.rx_bytes_per_s,
        "network",
        lambda top: numbers.data_rate(top, 9).strip(),
        1000.0,
        over=history.tx_bytes_per_s,
        over_gradient="prompt",
        mirror=True,
    )
    headroom = _upto("headroom", "memory", history.headroom_gib, " GiB")
    if view.sample is not None and not view.sample.gpus:
        return [cpu, memory, network, headroom]
    heat = _full("heat", "load", history.temperature_c, "100 °C")
    return [
        _full("GPU", "gpu", history.gpu_percent),
        _upto("power", "load", history.power_w, " W", 10.0),
        cpu,
        heat,
        memory,
        network,
        headroom,
        _upto("clock", "cpu", history.sm_clock_mhz, " MHz", 1000.0),
    ]


def _full(name: str, gradient: str, series: Series, edge: str = "100 %") -> Graph:
    """Give a graph from 0 to 100."""
    return Graph([(name, gradient)], series, gradient, lambda _: edge, 100.0, fixed=True)


def _upto(name: str, gradient: str, series: Series, unit: str, least: float = 1.0) -> Graph:
    """Give a graph from 0 to a round number over its peak."""
    return Graph(
        [(name, gradient)], series, gradient, lambda top: numbers.count(top, 5).strip() + unit, least
    )
