"""The panel of one machine: processor, memory, GPU and network, with their history beside them."""

from __future__ import annotations

from sparktop.graphics import numbers
from sparktop.graphics.bars import sparkrow
from sparktop.graphics.scale import nice_ceiling
from sparktop.model.node import GpuReading, MemoryReading, NetworkReading, NodeSample
from sparktop.model.series import Series
from sparktop.model.snapshot import NodeView
from sparktop.panels.backend import MIN_GRAPH_WIDTH, figures_width
from sparktop.panels.figures import bar_runs, figure, label, share_role
from sparktop.panels.frame import framed
from sparktop.panels.graph import TimeAxis, area_rows, caption
from sparktop.panels.rows import Row, Run, fit_row, in_role

_EMPTY = NodeSample(at=0.0)
_BAR = 10


def _percent(percent: float | None, gradient: str, *, warn: float = 101, bad: float = 101) -> Row:
    return [
        *bar_runs(None if percent is None else percent / 100, _BAR, gradient),
        (f" {numbers.percent(percent, 4)}", share_role(percent, warn, bad)),
    ]


def _cpu(sample: NodeSample, width: int) -> Row:
    cpu = sample.cpu
    row = [label("CPU", 4), *_percent(cpu.percent, "cpu"), label("  load ")]
    row.append(figure(numbers.rate(cpu.load1, 5), known=cpu.load1 is not None))
    room = width - 31
    cores = cpu.core_percent
    if cores and room >= min(8, len(cores)) + 1:
        shown = cores[: room - 1]
        row += [(" ", "text"), (sparkrow(shown, len(shown), 100.0), "cpu")]
    return row


def used_percent(memory: MemoryReading) -> float | None:
    """Give used memory as a share of all, 0 to 100."""
    if memory.used_bytes is None or not memory.total_bytes:
        return None
    return 100 * memory.used_bytes / memory.total_bytes


def _memory(memory: MemoryReading) -> Row:
    name = "UMA" if memory.unified else "MEM"
    return [
        label(name, 4),
        *_percent(used_percent(memory), "memory", warn=85, bad=93),
        (" ", "text"),
        *_used_of(memory.used_bytes, memory.total_bytes),
    ]


def _used_of(used: int | None, total: int | None) -> Row:
    """Give "94.6 of 121.6 GiB": one unit, the total's, for both."""
    if used is None or not total:
        return [("– of ", "muted"), figure(numbers.data(total, 9).strip(), known=total is not None)]
    step, unit = (2**30, "GiB") if total >= 2**30 else (2**20, "MiB")
    return [figure(f"{used / step:.1f}"), label(" of "), figure(f"{total / step:.1f}"), label(f" {unit}")]


def _headroom(memory: MemoryReading) -> Row:
    swap = memory.swap_total_bytes
    row = [
        label("headroom "),
        figure(numbers.data(memory.headroom_bytes, 9), known=memory.headroom_bytes is not None),
    ]
    if swap == 0:
        return [*row, label("  no swap")]
    return [
        *row,
        label("  swap "),
        figure(numbers.data(memory.swap_used_bytes, 9).strip(), known=memory.swap_used_bytes is not None),
    ]


def _swap_rates(memory: MemoryReading) -> Row:
    return [
        label("swap in "),
        figure(
            numbers.data_rate(memory.swap_in_bytes_per_s, 9), known=memory.swap_in_bytes_per_s is not None
        ),
        label(" out "),
        figure(
            numbers.data_rate(memory.swap_out_bytes_per_s, 9), known=memory.swap_out_bytes_per_s is not None
        ),
    ]


def _gpu_rows(sample: NodeSample) -> list[Row]:
    """Give two rows a GPU, or the one honest line why there is none."""
    if not sample.gpus:
        return [[label("GPU", 4), (sample.gpu_note or "–", "muted")]]
    return [row for gpu in sample.gpus for row in _gpu(gpu, len(sample.gpus))]


def _gpu(gpu: GpuReading, count: int) -> list[Row]:
    name = "GPU" if count == 1 else f"GP{gpu.index}"
    first: Row = [
        label(name, 4),
        *_percent(gpu.utilization_percent, "gpu"),
        *_unit(gpu.power_w, 5, " W"),
        *_unit(gpu.temperature_c, 4, " °C"),
    ]
    second: Row = [label("    clock"), *_unit(gpu.sm_clock_mhz, 5, " MHz")]
    if gpu.memory_used_bytes is not None and gpu.memory_total_bytes is not None:
        second += [label("  "), *_used_of(gpu.memory_used_bytes, gpu.memory_total_bytes)]
    reasons = gpu.throttle_reasons
    words = "throttle ?" if reasons is None else ", ".join(reasons) or "no throttle"
    second += [("  ", "text"), (words, "bad" if reasons else "muted")]
    return [first, second]


def _unit(value: float | None, width: int, unit: str) -> Row:
    return [figure(numbers.count(value, width), known=value is not None), label(unit)]


def _network(readings: tuple[NetworkReading, ...]) -> list[Row]:
    """Give one row an interface that is up, the busiest first."""
    busy = sorted(
        (r for r in readings if r.up is not False),
        key=lambda r: -((r.rx_bytes_per_s or 0.0) + (r.tx_bytes_per_s or 0.0)),
    )
    rows: list[Row] = []
    for reading in busy:
        rx, tx = reading.rx_bytes_per_s, reading.tx_bytes_per_s
        rows.append(
            [
                label("rx "),
                figure(numbers.data_rate(rx, 9), known=rx is not None),
                label(" tx "),
                figure(numbers.data_rate(tx, 9), known=tx is not None),
                label(f"  {reading.name}"),
            ]
        )
    return rows or [[label("no network interface is up")]]


def figure_rows(view: NodeView, width: int, height: int) -> list[Row]:
    """Give the column of figures: the most telling first."""
    sample = view.sample or _EMPTY
    gpus = _gpu_rows(sample)
    network = _network(sample.network) if view.sample else []
    first = [_cpu(sample, width), _memory(sample.memory), gpus[0]]
    rows = [*first, *network[:1], _headroom(sample.memory), *gpus[1:], *network[1:2]]
    if height >= len(rows) + 2:
        rows = [
            first[0],
            first[1],
            _headroom(sample.memory),
            _swap_rates(sample.memory),
            *gpus,
            *network[: max(1, height - 4 - len(gpus))],
        ]
    return [fit_row(row, width) for row in rows[:height]]


def _series(view: NodeView) -> list[tuple[list[Run], Series, str, float | None, str]]:
    """Give the graphs that this node has, the most telling first."""
    history = view.history
    graphs: list[tuple[list[Run], Series, str, float | None, str]] = [
        ([("CPU", "cpu")], history.cpu_percent, "cpu", 100.0, " %"),
    ]
    if view.sample is not None and view.sample.gpus:
        graphs.insert(0, ([("GPU", "gpu")], history.gpu_percent, "gpu", 100.0, " %"))
        graphs.append(([("power", "load")], history.power_w, "load", None, " W"))
    graphs.append(([("memory", "memory")], history.memory_percent, "memory", 100.0, " %"))
    graphs.append(([("rx", "network")], history.rx_bytes_per_s, "network", None, "B/s"))
    return graphs


def _upper_edge(top: float, unit: str) -> str:
    if unit == "B/s":
        return numbers.data_rate(top, 9).strip()
    return f"{numbers.tick(top)}{unit}"


def _graphs(view: NodeView, room: int, height: int, axis: TimeAxis) -> list[Row]:
    """Give as many graphs side by side as fit; at least two where there is room for two."""
    wanted = _series(view)
    count = max(1, min(len(wanted), room // 30, 4) if room >= 60 else min(2, room // (MIN_GRAPH_WIDTH + 1)))
    each = (room - (count - 1)) // count
    columns: list[list[Row]] = []
    for words, series, gradient, top, unit in wanted[:count]:
        values = axis.values(series, each)
        upper = top if top is not None else nice_ceiling(max((v for v in values if v), default=1.0))
        columns.append(
            [
                caption([*words, label(f" {axis.span_s(each):.0f} s")], _upper_edge(upper, unit), each),
                *area_rows(values, each, height - 1, upper, gradient, end_slot=axis.end_slot),
            ]
        )
    pad = room - count * each - (count - 1)
    rows: list[Row] = []
    for index in range(height):
        row: Row = [(" " * pad, "text")] if pad else []
        for number, column in enumerate(columns):
            row += [(" ", "text")] if number else []
            row += column[index]
        rows.append(row)
    return rows


def footnote(view: NodeView) -> Row:
    """Give the lower edge: the failure while there is one, else what the machine is."""
    if view.failure is not None:
        since = "" if view.failing_since is None else f" since {view.failing_since.astimezone():%H:%M:%S}"
        return [(f" ✖{since}: {view.failure.message} ", "bad")]
    identity = view.identity
    parts = [part for part in (identity.product, identity.os) if part]
    return [(f" {' · '.join(parts)} ", "muted")] if parts else []


def node_panel(
    view: NodeView, width: int, height: int, axis: TimeAxis, *, selected: bool = False
) -> list[Row]:
    """Draw one node as `height` rows of `width` cells."""
    inner, inside = width - 2, height - 2
    column = figures_width(width)
    room = inner - column - 2
    rows = [[(" ", "text"), *row] for row in figure_rows(view, column, inside)]
    if room >= MIN_GRAPH_WIDTH and inside >= 2:
        rows += [fit_row((), column + 1) for _ in range(inside - len(rows))]
        graphs = _graphs(view, room, inside, axis)
        rows = [[*row, (" ", "text"), *graph] for row, graph in zip(rows, graphs, strict=True)]
    if view.failure is not None or view.sample is None:
        rows = [in_role(row, "stale") for row in rows]
    gpu = view.sample.gpus[0].name if view.sample and view.sample.gpus else None
    title: Row = [("┐", "border"), (view.name, "title"), ("┌", "border")]
    title += [("─ ", "border"), (gpu, "text"), (" ", "text")] if gpu else []
    status: Row = [("┐", "border"), (view.via, "muted"), ("┌", "border")]
    role = "selected" if selected else "bad" if view.failure is not None else "border"
    return framed(rows, width, height, role=role, title=title, status=status, footnote=footnote(view))
