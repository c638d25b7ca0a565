"""One machine on the full screen: every reading, and graphs of their history."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics import numbers
from sparktop.model.node import NodeSample
from sparktop.model.series import Series
from sparktop.model.snapshot import BackendView, NodeView
from sparktop.panels.node.network import RDMA
from sparktop.panels.node.panel import about, footnote, state_run
from sparktop.panels.node.processes import ProcessOrder, detail_processes
from sparktop.panels.node.sections import identity_words, node_aside, node_sections
from sparktop.panels.parts.detail import Detail, aside_width, column_width, detail_rows
from sparktop.panels.parts.figures import figure, label
from sparktop.panels.parts.frame import frame_role, framed, name_tab
from sparktop.panels.parts.gpu_figures import speed_role
from sparktop.panels.parts.graph import TimeAxis
from sparktop.panels.parts.graph_grid import Graph
from sparktop.panels.parts.roles import state_role
from sparktop.panels.parts.rows import Row, in_role, row_width, spread_row
from sparktop.panels.parts.scraped import failure_role, has_failed, is_stale, read_by
from sparktop.panels.parts.sentences import wrapped

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
    """Draw one node on the full screen as rows of `width` cells: `height` rows, or more if needed.

    Those of `backends` that run on the node are named.
    """
    return drawn_node_detail(view, backends, width, height, axis, selected=selected)[0]


def drawn_node_detail(
    view: NodeView,
    backends: Sequence[BackendView],
    width: int,
    height: int,
    axis: TimeAxis,
    *,
    order: ProcessOrder | None = None,
    selected: bool = False,
) -> tuple[list[Row], int]:
    """Draw one node on the full screen; return (rows, index of the first row of the process table).

    The rows are those of `node_detail`, with the processes in the given order.
    """
    trouble = _trouble(view, width - 4)
    detail = Detail(
        lead=[_serves(view, backends, width - 3), *(trouble or [_speed(view)])],
        sections=node_sections(view, column_width(width)),
        graphs=_graphs(view),
        aside=node_aside(view, aside_width(width, 2)),
        graphs_after=2,
        foot=detail_processes(view, order or ProcessOrder(), width - 3),
    )
    rows = detail_rows(detail, width, height, axis)
    processes_at = 1 + len(rows) - len(detail.foot)
    if view.failure is not None or view.sample is None:
        # The rows after the first are the failure, which is current: it must not look stale.
        roles = ["stale", *[failure_role(view)] * len(trouble), *["stale"] * len(rows)]
        rows = [in_role(row, role) for row, role in zip(rows, roles, strict=False)]
    driver: Row = [label(f" driver {view.identity.driver} ")] if view.identity.driver else []
    framed_rows = framed(
        rows,
        width,
        max(height, len(rows) + 2),
        role=frame_role("node", selected=selected, failed=has_failed(view)),
        title=name_tab("node", view.name),
        state=state_run(view),
        about=about(view),
        status=read_by(view, view.identity.reader_label),
        footnote=footnote(view),
        note=driver,
    )
    return framed_rows, processes_at


def _trouble(view: NodeView, width: int) -> list[Row]:
    """Return rows with the failure of the newest poll and the values' age; empty without a failure."""
    if view.failure is None:
        return []
    age = "" if view.age_s is None else f", figures {numbers.age(view.age_s)} old"
    said = f"{'…' if is_stale(view) else '✖'} {view.failure.message}{age}"
    return [[(line, failure_role(view))] for line in wrapped(said, width)]


def _speed(view: NodeView) -> Row:
    """Return a row with the speed state of the GPUs, and its cause if known, else its reason."""
    speed = view.speed
    if view.sample is not None and not view.sample.gpus:
        return [label("speed  "), label("no GPU here")]
    row: Row = [label("speed  "), (speed.word, speed_role(speed))]
    why = speed.cause or speed.reason
    return [*row, label(": " if speed.cause else " because "), (why, "text")] if why else row


def _serves(view: NodeView, backends: Sequence[BackendView], width: int) -> Row:
    """Return a row with the backends that run on the node, each with its state and token rate.

    Manufacturer and CPU of the machine stand at the right end if they fit.
    """
    row = _backends(view, backends)
    words = identity_words(view)
    if words and row_width(row) + len(words) + 2 <= width:
        return spread_row(row, [label(words)], width)
    return row


def _backends(view: NodeView, backends: Sequence[BackendView]) -> Row:
    row: Row = [label("serves ")]
    for backend in backends:
        if view.name in backend.nodes:
            row += [
                (f" {backend.name} ", "title"),
                (backend.state_text, state_role(backend)),
                figure(f" {numbers.rate(backend.generation_tps, 6).strip()}", role="text"),
                label(" tok/s  "),
            ]
    return row if len(row) > 1 else [label("no backend names this node as its own")]


def _graphs(view: NodeView) -> list[Graph]:
    """Return graphs of the node's values over time, the most important first."""
    history = view.history
    cpu = _full("CPU", "cpu", history.cpu_percent)
    memory = _full("memory", "memory", history.memory_percent)
    network = Graph(
        [label("network "), ("▲in ", "prompt"), ("▼out", "generation")],
        history.rx_bytes_per_s,
        "prompt",
        lambda top: numbers.data_rate(top, 9).strip(),
        1000.0,
        over=history.tx_bytes_per_s,
        over_gradient="generation",
        mirror=True,
    )
    headroom = _upto("headroom", "memory", history.headroom_gib, " GiB")
    rdma = [_rdma(view)] if _has_rdma(view) else []
    if view.sample is not None and not view.sample.gpus:
        return [cpu, memory, network, headroom, *rdma]
    heat = _full("temperature", "load", history.temperature_c, "100 °C")
    return [
        _full("GPU", "gpu", history.gpu_percent),
        _upto("power", "waiting", history.power_w, " W", 10.0),
        _upto("clock", "cpu", history.sm_clock_mhz, " MHz", 1000.0),
        heat,
        headroom,
        _full("throttled", "waiting", history.throttled_percent),
        cpu,
        *rdma,
        memory,
        network,
    ]


def _has_rdma(view: NodeView) -> bool:
    ports = view.sample.network if view.sample is not None else ()
    return any(port.kind == RDMA for port in ports)


def _rdma(view: NodeView) -> Graph:
    return Graph(
        [label("RDMA "), ("▲in ", "prompt"), ("▼out", "generation")],
        view.history.rdma_rx_bytes_per_s,
        "prompt",
        lambda top: numbers.data_rate(top, 9).strip(),
        1000.0,
        over=view.history.rdma_tx_bytes_per_s,
        over_gradient="generation",
        mirror=True,
    )


def _full(name: str, gradient: str, series: Series, edge: str = "100 %") -> Graph:
    """Return a graph with a fixed scale from 0 to 100; `edge` is the text for its upper edge."""
    return Graph([(name, gradient)], series, gradient, lambda _: edge, 100.0, fixed=True)


def _upto(name: str, gradient: str, series: Series, unit: str, least: float = 1.0) -> Graph:
    """Return a graph with a scale from 0 to a round number above its highest value.

    `least` is the lowest upper end of the scale, and `unit` is appended to the text of the upper end.
    """
    return Graph(
        [(name, gradient)], series, gradient, lambda top: numbers.count(top, 5).strip() + unit, least
    )
