"""The panel of one machine: CPU, memory, GPU and network, with graphs of their history beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparktop.graphics import numbers
from sparktop.graphics.axes import nice_ceiling
from sparktop.graphics.bars import sparkrow
from sparktop.model.failure_words import failure_words
from sparktop.model.node import GpuReading, LostGpu, MemoryReading, NetworkReading, NodeSample
from sparktop.model.series import Series
from sparktop.model.snapshot import NodeView
from sparktop.panels.node.gpu.sections import fleet_name
from sparktop.panels.node.memory_bar import trend_runs, used_percent
from sparktop.panels.node.network import RDMA
from sparktop.panels.parts.columns import (
    FIGURES_WIDTH,
    WIDE_FIGURES_WIDTH,
    figures_width,
    graph_columns,
    panel_row,
)
from sparktop.panels.parts.figures import LIVE, bar_runs, figure, label, share_role
from sparktop.panels.parts.frame import frame_role, framed, key_tab, name_tab
from sparktop.panels.parts.gpu_figures import (
    clock_role,
    lost_run,
    margin_of,
    margin_role,
    short_reason,
    speed_role,
)
from sparktop.panels.parts.graph import TimeAxis, TimeWindow, area_rows, caption
from sparktop.panels.parts.rows import Row, Run, fit_row, in_role, row_width
from sparktop.panels.parts.scraped import failed_since, failure_role, has_failed, is_stale, read_by

_EMPTY = NodeSample(at=0.0)
_GIB = 2**30
_BAR = 10
_GRAPH_HEIGHT, _TWO_GRAPHS = 2, 8
"""Least heights in rows of a panel's inside for a graph, and for two graphs below each other."""


def _percent(percent: float | None, gradient: str, role: str = "text", *, length: int = _BAR) -> Row:
    return [
        *bar_runs(None if percent is None else percent / 100, length, gradient),
        figure(f" {numbers.percent(percent)}", known=percent is not None, role=role),
    ]


def _cpu(sample: NodeSample, width: int) -> Row:
    cpu = sample.cpu
    row = [label("CPU", 4), *_percent(cpu.percent, "cpu"), label("  load ")]
    row.append(figure(numbers.rate(cpu.load1, 5), known=cpu.load1 is not None))
    room = width - 32
    cores = cpu.core_percent
    if cores and room >= min(8, len(cores)) + 1:
        shown = cores[: room - 1]
        row += [(" ", "text"), (sparkrow(shown, len(shown), 100.0), "cpu")]
    return row


def _memory(memory: MemoryReading, width: int) -> Row:
    length, used = _BAR - max(0, FIGURES_WIDTH - width), used_percent(memory)
    return [
        label("mem", 4),
        *_percent(used, "memory", share_role(used, 85, 101), length=length),
        (" ", "text"),
        *_used_of(memory.used_bytes, memory.total_bytes, width - 4 - length - 7),
    ]


def _used_of(used: int | None, total: int | None, width: int) -> Row:
    """Return used and total memory, both in the unit of the total: "94.6 of 121.6 GiB".

    Where `width` cells are too few for that, both are without decimals.
    """
    if used is None or not total:
        return [("– of ", "muted"), figure(numbers.data(total, 9).strip(), known=total is not None)]
    step, unit = (2**30, "GiB") if total >= 2**30 else (2**20, "MiB")
    rows: list[Row] = [
        [
            figure(f"{used / step:.{digits}f}"),
            label(" of "),
            figure(f"{total / step:.{digits}f}"),
            label(f" {unit}"),
        ]
        for digits in (1, 0)
    ]
    return rows[0] if total < 1000 * step and row_width(rows[0]) <= width else rows[1]


def _headroom(view: NodeView, memory: MemoryReading, width: int) -> Row:
    """Return a row with the memory headroom and its trend; with the used swap if there is no clear trend."""
    row = [
        label("headroom "),
        figure(numbers.data(memory.headroom_bytes, 9), known=memory.headroom_bytes is not None),
        label(" "),
    ]
    if view.headroom.slope_bytes_per_s is not None:
        return [*row, *trend_runs(view.headroom, width - 19)]
    if memory.swap_total_bytes == 0:
        return [*row, label(" no swap")]
    used = memory.swap_used_bytes
    return [*row, label(" swap "), figure(numbers.data(used, 9).strip(), known=used is not None)]


def _swap_rates(memory: MemoryReading) -> Row:
    swapped, out = memory.swap_in_bytes_per_s, memory.swap_out_bytes_per_s
    return [
        label("swap in "),
        figure(numbers.data_rate(swapped, 9), known=swapped is not None, role="warn" if swapped else "text"),
        label(" out "),
        figure(numbers.data_rate(out, 9), known=out is not None),
    ]


def _gpu_rows(view: NodeView, sample: NodeSample, width: int) -> list[Row]:
    """Return two rows on the GPU or GPUs of a node; one row with the reason if there is no GPU."""
    if not sample.gpus:
        missing: Row = [(" ", "text"), lost_run(view.gpus_lost)] if view.gpus_lost else []
        return [[label("GPU"), *missing, (f" {sample.gpu_note or '–'}", "muted")]]
    if len(sample.gpus) > 1 or view.gpus_lost:
        return _gpus(sample.gpus, view.gpus_lost, width)
    gpu = sample.gpus[0]
    margin = margin_of(gpu)
    first: Row = [
        label("GPU", 4),
        *_percent(gpu.utilization_percent, "gpu", LIVE),
        *_unit(gpu.power_w, 5, " W"),
        *_unit(gpu.temperature_c, 4, " °C", margin_role(margin)),
    ]
    if margin is not None and width >= WIDE_FIGURES_WIDTH:
        first += [label(", "), (f"{margin:.0f}", margin_role(margin)), label(" to limit")]
    clock_is = "muted" if gpu.sm_clock_mhz is None else clock_role(view.speed)
    second: Row = [label("    "), (numbers.clock(gpu.sm_clock_mhz), clock_is)]
    second.append(label(" MHz" if gpu.sm_clock_max_mhz is None else f"/{gpu.sm_clock_max_mhz} MHz"))
    if gpu.memory_used_bytes is not None and gpu.memory_total_bytes is not None:
        room = width - row_width(second) - 2
        second += [label("  "), *_used_of(gpu.memory_used_bytes, gpu.memory_total_bytes, room)]
    return [first, [*second, ("  ", "text"), _slowed(gpu, view)]]


def _slowed(gpu: GpuReading, view: NodeView) -> Run:
    """Return why the GPU is throttled now as a styled text segment, with percentages of the last minute.

    If it is not throttled now, return the most frequent reason of the last minute, or "no throttle".
    """
    share = {short_reason(name): percent for name, percent in view.throttled_percent.items() if percent}
    reasons = gpu.throttle_reasons
    if reasons:
        words = [short_reason(reason) for reason in reasons]
        return ", ".join(f"{name} {share[name]:.0f} %" if name in share else name for name in words), "warn"
    if share:
        worst = max(share, key=lambda name: share[name])
        return f"{worst} {numbers.percent(share[worst]).strip()}", "warn"
    return ("throttle ?" if reasons is None else "no throttle"), "muted"


def _gpus(gpus: Sequence[GpuReading], lost: Sequence[LostGpu], width: int) -> list[Row]:
    """Return several GPUs as two rows: mean use, total power and hottest GPU; then a small bar per GPU.

    Lost GPUs stand before the bars, because they matter most.
    """
    use, watts, hottest = gpu_totals(gpus)
    first: Row = [
        label("GPU", 4),
        *_percent(use, "gpu", LIVE),
        *_unit(watts, 5, " W"),
        *_unit(
            None if hottest is None else hottest.temperature_c,
            4,
            " °C",
            margin_role(None if hottest is None else margin_of(hottest)),
        ),
    ]
    shown = min(len(gpus), max(1, width - 32))
    bars = sparkrow([gpu.utilization_percent for gpu in gpus][:shown], shown, 100.0)
    second: Row = [label("    "), *([lost_run(lost), label(" ")] if lost else []), (bars, "gpu"), label(" ")]
    used = [gpu.memory_used_bytes for gpu in gpus if gpu.memory_used_bytes is not None]
    total = [gpu.memory_total_bytes for gpu in gpus if gpu.memory_total_bytes is not None]
    if len(used) == len(total) == len(gpus):
        second += [figure(f"{sum(used) / _GIB:.0f}"), label(f" of {sum(total) / _GIB:.0f} GiB ")]
    slowed = sum(1 for gpu in gpus if gpu.throttle_reasons)
    return [first, [*second, (f"{slowed} slowed", "warn") if slowed else label("0 slowed")]]


def gpu_totals(gpus: Sequence[GpuReading]) -> tuple[float | None, float | None, GpuReading | None]:
    """Return (mean use in percent, power in watts of all together, the hottest GPU); None where unknown."""
    use = [gpu.utilization_percent for gpu in gpus if gpu.utilization_percent is not None]
    hottest = max((gpu for gpu in gpus if gpu.temperature_c is not None), key=_heat, default=None)
    return sum(use) / len(use) if use else None, _total(gpu.power_w for gpu in gpus), hottest


def _heat(gpu: GpuReading) -> float:
    return gpu.temperature_c or 0.0


def _unit(value: float | None, width: int, unit: str, role: str = "text") -> Row:
    return [figure(numbers.count(value, width), known=value is not None, role=role), label(unit)]


def _network(readings: tuple[NetworkReading, ...]) -> list[Row]:
    """Return a row for all RDMA ports together, and a row for each other interface, the busiest first.

    Interfaces that are down are left out. The RDMA row is first if it has at least as much traffic as the
    busiest interface, else second.
    """
    up = [reading for reading in readings if reading.up is not False]
    others = sorted((link for link in up if link.kind != RDMA), key=lambda link: -_traffic(link))
    rows = [_in_out(link.rx_bytes_per_s, link.tx_bytes_per_s, link.name) for link in others]
    ports = [link for link in up if link.kind == RDMA]
    if ports:
        rx = _total(link.rx_bytes_per_s for link in ports)
        tx = _total(link.tx_bytes_per_s for link in ports)
        failed = _total(link.errors_per_s for link in ports)
        row = _in_out(rx, tx, "RDMA" if failed or len(ports) == 1 else f"RDMA ×{len(ports)}")
        if failed:
            row.append((f" ✖{numbers.count(failed, 4).strip()}/s", "warn"))
        busier = not others or sum(map(_traffic, ports)) >= _traffic(others[0])
        rows.insert(0 if busier else 1, row)
    return rows or [[label("no network interface is up")]]


def _traffic(reading: NetworkReading) -> float:
    return (reading.rx_bytes_per_s or 0.0) + (reading.tx_bytes_per_s or 0.0)


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _in_out(rx: float | None, tx: float | None, name: str) -> Row:
    return [
        label("rx "),
        figure(numbers.data_rate(rx, 9), known=rx is not None),
        label(" tx "),
        figure(numbers.data_rate(tx, 9), known=tx is not None),
        label(f"  {name}"),
    ]


def figure_rows(view: NodeView, width: int, height: int) -> list[Row]:
    """Return at most `height` rows with the node's values, the most important first."""
    sample = view.sample or _EMPTY
    gpus = _gpu_rows(view, sample, width)
    network = _network(sample.network) if sample.network or (view.sample and not view.scrape) else []
    headroom = _headroom(view, sample.memory, width)
    memory, cpu = _memory(sample.memory, width), _cpu(sample, width)
    rows = [gpus[0], memory, cpu, *network[:1], headroom, *gpus[1:], *network[1:2]]
    if height >= len(rows) + 2:
        above = [*gpus, memory, headroom, _swap_rates(sample.memory), cpu]
        rows = [*above, *network[: max(1, height - len(above))]]
    return [fit_row(row, width) for row in rows[:height]]


def rows_below(view: NodeView, width: int, height: int) -> list[Row]:
    """Return `height` rows or fewer with what `figure_rows` has after GPU and memory."""
    if height < 1:
        return []
    cpu = _cpu(view.sample or _EMPTY, width)
    return [fit_row(cpu, width)] if height == 1 else figure_rows(view, width, height + 2)[2:]


def _series(
    view: NodeView, since: float, power_top: float
) -> list[tuple[list[Run], Series, str, float | None, str]]:
    """Return the graphs of a node's panel as tuples, the most important first.

    Each tuple is (caption, series, gradient, value of the upper edge or None for a round number above the
    peak, unit). The last graph shows the bytes received, by the RDMA ports or by the network interfaces,
    whichever had the higher peak since the time `since`. `power_top` is the upper edge of the power in watts.
    """
    history = view.history
    graphs: list[tuple[list[Run], Series, str, float | None, str]] = [
        ([("CPU", "cpu")], history.cpu_percent, "cpu", 100.0, " %"),
    ]
    if view.sample is not None and view.sample.gpus:
        graphs.insert(0, ([("GPU", "gpu")], history.gpu_percent, "gpu", 100.0, " %"))
        graphs.append(([("power", "waiting")], history.power_w, "waiting", power_top, " W"))
    graphs.append(([("memory", "memory")], history.memory_percent, "memory", 100.0, " %"))
    rdma = history.rdma_rx_bytes_per_s.peak(since) if history.rdma_rx_bytes_per_s.last is not None else None
    if rdma and rdma >= (history.rx_bytes_per_s.peak(since) or 0.0):
        graphs.append(([("RDMA in", "network")], history.rdma_rx_bytes_per_s, "network", None, "B/s"))
    else:
        graphs.append(([("rx", "network")], history.rx_bytes_per_s, "network", None, "B/s"))
    return graphs


def _upper_edge(top: float, unit: str) -> str:
    if unit == "B/s":
        return numbers.data_rate(top, 9).strip()
    return f"{numbers.tick(top)}{unit}"


def _graphs(view: NodeView, width: int, height: int, window: TimeWindow, power_top: float) -> list[list[Row]]:
    """Return the columns of graphs of a panel of `width` cells, each as `height` rows.

    High panels have two graphs below each other in each column.
    """
    count, each = graph_columns(width)
    if not count or height < _GRAPH_HEIGHT:
        return []
    axis = window.axis(each)
    wanted = _series(view, axis.end - window.span_s, power_top)
    levels = 2 if height >= _TWO_GRAPHS and len(wanted) >= 2 * count else 1
    heights = [height] if levels == 1 else [(height + 1) // 2, height // 2]
    columns: list[list[Row]] = []
    for column in range(count):
        graphs = wanted[column::count][:levels]
        pairs = zip(graphs, heights, strict=True)
        columns.append([row for graph, tall in pairs for row in _graph(*graph, each, tall, axis)])
    return columns


def _graph(
    words: list[Run],
    series: Series,
    gradient: str,
    top: float | None,
    unit: str,
    width: int,
    height: int,
    axis: TimeAxis,
) -> list[Row]:
    """Return the rows of one graph, with a caption above it; `top` is None for a scale of its own."""
    values = axis.values(series, width)
    upper = top if top is not None else nice_ceiling(max((v for v in values if v), default=1.0))
    return [
        caption(words, _upper_edge(upper, unit), width),
        *area_rows(values, width, height - 1, upper, gradient, end_slot=axis.end_slot),
    ]


def footnote(view: NodeView) -> Row:
    """Return the text of the frame's lower edge: failure, lost GPUs, why a GPU is slow, or the system."""
    if view.failure is not None:
        sign = "…" if is_stale(view) else "✖"
        return [(f" {sign}{failed_since(view)}: {view.failure.message} ", failure_role(view))]
    if view.gpus_lost:
        return [(f" ✖ {'; '.join(f'{gpu.label}: {gpu.reason}' for gpu in view.gpus_lost)} ", "bad")]
    if view.speed.cause is not None:
        fix = f" · {view.speed.fix}" if view.speed.fix else ""
        return [(f" ▲ {view.speed.cause}{fix} ", "warn")]
    notes = [gpu.memory_note for gpu in view.sample.gpus if gpu.memory_note] if view.sample else []
    if notes:
        return [(f" ▲ memory: {'; '.join(notes)} ", "warn")]
    identity = view.identity
    parts = [part for part in (identity.product, identity.os) if part]
    return [(f" {' · '.join(parts)} ", "muted")] if parts else []


def power_scale(views: Sequence[NodeView], window: TimeWindow) -> float:
    """Return the upper edge in watts of all nodes' graphs of power, so that equal power looks equal."""
    since = window.end - window.span_s
    return nice_ceiling(max((view.history.power_w.peak(since) or 0.0 for view in views), default=0.0) or 1.0)


def node_panel(
    view: NodeView, width: int, height: int, window: TimeWindow, power_top: float, *, selected: bool = False
) -> list[Row]:
    """Draw the panel of one node as `height` rows of `width` cells; `power_top` is that of `power_scale`."""
    inside = height - 2
    figures = figure_rows(view, figures_width(width), inside)
    figures += [[] for _ in range(inside - len(figures))]
    graphs = _graphs(view, width, inside, window, power_top)
    rows = [panel_row(row, [graph[index] for graph in graphs], width) for index, row in enumerate(figures)]
    if view.failure is not None or view.sample is None:
        rows = [in_role(row, "stale") for row in rows]
    return framed(
        rows,
        width,
        height,
        role=frame_role("node", selected=selected, failed=has_failed(view)),
        title=name_tab("node", view.name),
        state=state_run(view),
        about=about(view),
        status=read_by(view),
        footnote=footnote(view),
        note=key_tab("P", "processes"),
        fitted=True,
    )


def state_run(view: NodeView) -> Run:
    """Return the state of a node in a few words: why it fails, lost GPUs, or the speed of its GPUs."""
    if view.failure is not None:
        return failure_words(view.failure, view.via), failure_role(view)
    if view.gpus_lost:
        return lost_run(view.gpus_lost)
    if view.sample is None:
        return "connecting", "muted"
    return view.speed.word if view.sample.gpus else "no GPU", speed_role(view.speed)


def about(view: NodeView) -> Row:
    """Return the name of the node's GPUs for the frame's upper edge; empty if it has none."""
    gpus = view.sample.gpus if view.sample is not None else ()
    name = fleet_name(gpus) if len(gpus) > 1 else gpus[0].name if gpus else None
    return [("─ ", "border"), (name, "text"), (" ", "text")] if name else []
