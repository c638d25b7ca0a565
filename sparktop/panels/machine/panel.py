"""One machine on the board: CPU, memory, GPU and network with graphs, or a line of a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from math import ceil, inf

from msgspec import Struct

from sparktop.graphics import numbers
from sparktop.graphics.axes import nice_ceiling
from sparktop.graphics.cells import cell_width, fit, sparkrow
from sparktop.model.failure import NO_ANSWER, failure_words
from sparktop.model.node import GIB, GpuReading, LostGpu, MemoryReading, NetworkReading, NodeSample
from sparktop.model.series import Series, known_mean, known_sum, sum_if_all_known
from sparktop.model.snapshot import QUIET_SPEEDS, Headroom, NodeHistory, NodeView, SpeedState
from sparktop.panels.parts.figures import (
    LIVE,
    START_KINDS,
    bar_runs,
    calm_note,
    count_with_unit,
    failed_since,
    failure_role,
    figure,
    finding_note,
    has_failed,
    is_stale,
    label,
    label_row,
    read_by,
    share_role,
    wrap_sentence,
)
from sparktop.panels.parts.graph import Graph, TimeWindow, area_rows, caption, percent_graph, scale_words
from sparktop.panels.parts.text import (
    FIGURES_WIDTH,
    WIDE_FIGURES_WIDTH,
    Row,
    Run,
    are_distinct,
    figures_width,
    fit_row,
    fitted_names,
    frame_role,
    frame_rows,
    graph_columns,
    in_role,
    key_tab,
    mark,
    name_tab,
    panel_row,
    row_text,
    row_width,
)

RDMA = "rdma"
"""The `kind` of ports whose traffic no network interface counts."""
TAIL = 22
"""Width in cells of the values to the right of a GPU's bars."""
_WARM_C, _HOT_C = 10.0, 4.0
"""Degrees left to the thermal limit from which on they are drawn as a warning, and as bad."""
_SPEED_ROLES = {
    "normal": "good",
    "idle": "muted",
    "unknown": "muted",
    "slow clock": "bad",
    "slow steps": "bad",
}


def speed_role(speed: SpeedState) -> str:
    """Return the role (colour name) of a GPU's speed state."""
    return _SPEED_ROLES.get(speed.word, "warn")


def short_reason(reason: str) -> str:
    """Return a throttle reason with "software" and "hardware" abbreviated, for narrow columns."""
    return reason.replace("software", "sw").replace("hardware", "hw")


def margin_role(margin_c: float | None) -> str:
    """Return the role (colour name) for a GPU's thermal margin in degrees: "bad" or "warn" if it is small.

    "text" if the margin is large or unknown.
    """
    if margin_c is None or margin_c > _WARM_C:
        return "text"
    return "warn" if margin_c > _HOT_C else "bad"


def margin_of(gpu: GpuReading) -> float | None:
    """Return by how many degrees a GPU is below its thermal limit; None if unknown.

    If the limit is not reported, use the temperature at which the GPU slows down.
    """
    if gpu.limit_margin_c is not None:
        return gpu.limit_margin_c
    if gpu.slowdown_c is None or gpu.temperature_c is None:
        return None
    return gpu.slowdown_c - gpu.temperature_c


def energy_text(energy_j: float) -> str:
    """Format an energy of `energy_j` joules in Wh, or in kWh from 1 kWh on."""
    wh = energy_j / 3600
    size, unit = (wh / 1000, "kWh") if wh >= 1000 else (wh, "Wh")
    return f"{size:.1f} {unit}" if size < 100 else f"{size:,.0f} {unit}"


def clock_role(speed: SpeedState) -> str:
    """Return the role (colour name) of a GPU's clock: "bad" if `speed` is "slow clock", else "text"."""
    return "bad" if speed.word == "slow clock" else "text"


def lost_run(lost: Sequence[LostGpu]) -> Run:
    """Return which GPUs are lost as a styled text segment: "GPU 3 lost" or "GPUs 3, 5 lost"."""
    numbers_lost = ", ".join(str(gpu.index) for gpu in lost)
    return f"GPU{'s' if len(lost) > 1 else ''} {numbers_lost} lost", "bad"


def lost_rows(lost: Sequence[LostGpu], width: int) -> list[Row]:
    """Return a row for each lost GPU with its index, its name and the reason."""
    texts = [(f"{gpu.index:>2} lost ", f"{gpu.name or '–'}: {gpu.reason or '–'}") for gpu in lost]
    return [fit_row([(begin, "bad"), (words, "text")], width) for begin, words in texts]


def mig_rows(gpu: GpuReading, width: int) -> list[Row]:
    """Return a row for each MIG instance of a GPU; empty for a GPU that is not split."""
    if not gpu.mig:
        return []
    rows: list[Row] = [] if gpu.mig_instances else [[label("  └ MIG, no instance")]]
    for instance in gpu.mig_instances:
        used_bytes, total = instance.memory_used_bytes, instance.memory_total_bytes
        name = fit(f"  └ MIG {instance.index} {instance.name or '–'}", max(12, width - 26))
        size: Row = [figure(numbers.data(used_bytes, 9)), label(f" of {numbers.data(total, 9).strip()}")]
        rows.append([(name, "text"), *bar_runs(share(used_bytes, total), 4, "memory"), *size])
    return rows


def share(part: float | None, total: float | None) -> float | None:
    """Return `part` / `total`; None if either is unknown or the total is 0."""
    return None if part is None or not total else part / total


def of_total(total: float | None, unit: str) -> str:
    """Format a total as text that follows a value, such as " of 3003 MHz"; only the unit if it is unknown."""
    text_of = numbers.clock if unit.endswith("Hz") else numbers.count
    return unit if total is None else f" of {text_of(total, 5).strip()}{unit}"


def fleet_name(gpus: Sequence[GpuReading]) -> str:
    """Return the number and name of the GPUs, such as "8 × NVIDIA H200", for each name that occurs."""
    names = Counter(gpu.name or "–" for gpu in gpus)
    return ", ".join(f"{count} × {name}" for name, count in names.items())


SOON_S, NOW_S = 1800.0, 300.0
"""Seconds until memory reaches its limit, up to which this time is drawn as a warning, and as bad."""


def used_percent(memory: MemoryReading) -> float | None:
    """Return used memory as a percentage of the total; None if either is unknown."""
    if memory.used_bytes is None or not memory.total_bytes:
        return None
    return 100 * memory.used_bytes / memory.total_bytes


def slope_text(slope_bytes_per_s: float) -> str:
    """Format a slope in bytes/s as a change per minute with its sign, such as "−1.2 GiB/min"."""
    size = abs(slope_bytes_per_s) * 60
    amount = f"{size / 2**30:.1f} GiB" if size >= 2**30 / 10 else numbers.data(size, 9).strip()
    return f"{numbers.MINUS if slope_bytes_per_s < 0 else '+'}{amount}/min"


def trend_runs(headroom: Headroom, width: int) -> Row:
    """Return how fast the memory left changes and when it reaches its limit, as styled text.

    Where both do not fit into `width` cells, return only the time. If it does not approach a
    limit, return only the change per minute; "–" if it shows no trend.
    """
    slope, until = headroom.slope_bytes_per_s, headroom.until_limit_s
    if slope is None:
        return [label("–")]
    pace = slope_text(slope)
    if until is None:
        return [figure(pace)]
    role = "warn" if until <= SOON_S else "text"
    if until <= NOW_S:
        role = "bad"
    end: Row = [label("limit in "), (numbers.age(until), role)] if until else [("below its limit", role)]
    limit = ""
    if headroom.limit_bytes is not None and until:
        limit = numbers.data(headroom.limit_bytes, 9).strip().replace(".0 ", " ") + " "
    for first in ([figure(pace), label(f", {limit}")], [figure(pace), label(", ")]):
        if row_width(first) + row_width(end) <= width:
            return [*first, *end]
    return end


_EMPTY = NodeSample(at=0.0)
_BAR = 10
"""Cells of a bar."""
_FULL_PERCENT = 85.0
"""Used memory from which on it is drawn as a warning; none is bad."""
_GRAPH_HEIGHT, _TWO_GRAPHS = 2, 8
"""Least heights in rows of a panel's inside for a graph, and for each of several graphs below each other; two
of them may be half as high."""


def _percent_bar(percent: float | None, gradient: str, role: str = "text", *, length: int = _BAR) -> Row:
    return [
        *bar_runs(None if percent is None else percent / 100, length, gradient),
        figure(f" {numbers.percent(percent)}", role),
    ]


def _cpu_row(sample: NodeSample, width: int) -> Row:
    cpu = sample.cpu
    row = [label("CPU", 4), *_percent_bar(cpu.percent, "cpu"), label("  load ")]
    row.append(figure(numbers.rate(cpu.load1, 5)))
    room = width - 32
    cores = cpu.core_percent
    if cores and room >= min(8, len(cores)) + 1:
        shown_cores = cores[: room - 1]
        row += [(" ", "text"), (sparkrow(shown_cores, len(shown_cores), 100.0), "cpu")]
    return row


def _used_of_total(used: int | None, total: int | None, width: int) -> Row:
    """Return used and total memory, both in the unit of the total: "94.6 of 121.6 GiB".

    Where `width` cells are too few for that, the used memory is without decimals, then both are: the total of
    machines that are alike reads alike.
    """
    if used is None or not total:
        return [("– of ", "muted"), figure(numbers.data(total, 9).strip())]
    step, unit = (2**30, "GiB") if total >= 2**30 else (2**20, "MiB")
    row: Row = []
    for of_used, of_total in ((1, 1), (0, 1), (0, 0)) if total < 1000 * step else ((0, 0),):
        part, whole = f"{used / step:.{of_used}f}", f"{total / step:.{of_total}f}"
        row = label_row(figure(part), " of ", figure(whole), f" {unit}")
        if row_width(row) <= width:
            break
    return row


def _headroom_row(view: NodeView, memory: MemoryReading, width: int) -> Row:
    """Return a row with the memory left and its trend; with the used swap if there is no clear trend."""
    row = label_row("memory left ", figure(numbers.data(memory.headroom_bytes, 9)), " ")
    if view.headroom.slope_bytes_per_s is not None:
        return [*row, *trend_runs(view.headroom, width - 22)]
    if memory.swap_total_bytes == 0:
        return [*row, label(" no swap")]
    swap_used = memory.swap_used_bytes
    return [*row, label(" swap "), figure(numbers.data(swap_used, 9).strip())]


def _gpu_rows(view: NodeView, sample: NodeSample, width: int) -> list[Row]:
    """Return two rows on the GPU or GPUs of a node; one row with the reason if there is no GPU.

    Several GPUs have their mean use, total power and the hottest of them; then a small bar each, behind the
    lost ones, which matter most.
    """
    gpus, lost = sample.gpus, view.gpus_lost
    if not gpus:
        missing: Row = [(" ", "text"), lost_run(lost)] if lost else []
        return [[label("GPU"), *missing, (f" {sample.gpu_note or '–'}", "muted")]]
    percent, watts, hottest = gpu_totals(gpus)
    gpu = hottest or gpus[0]
    margin = margin_of(gpu)
    first: Row = [
        label("GPU", 4),
        *_percent_bar(percent, "gpu", LIVE),
        *count_with_unit(watts, 5, " W"),
        *count_with_unit(gpu.temperature_c, 4, " °C", margin_role(margin)),
    ]
    if len(gpus) > 1 or lost:
        shown_count = min(len(gpus), max(1, width - 32))
        bars = sparkrow([gpu.utilization_percent for gpu in gpus[:shown_count]], shown_count, 100.0)
        second: Row = label_row("    ", *([lost_run(lost), label(" ")] if lost else []), (bars, "gpu"), " ")
        used_bytes = sum_if_all_known(gpu.memory_used_bytes for gpu in gpus)
        total = sum_if_all_known(gpu.memory_total_bytes for gpu in gpus)
        if used_bytes is not None and total is not None:
            second += [figure(f"{used_bytes / GIB:.0f}"), label(f" of {total / GIB:.0f} GiB ")]
        slowed = sum(1 for gpu in gpus if gpu.throttle_reasons)
        return [first, [*second, (f"{slowed} slowed", "warn") if slowed else label("0 slowed")]]
    if margin is not None and gpu.temperature_c is not None and width >= WIDE_FIGURES_WIDTH:
        first.append(label(f", limit {gpu.temperature_c + margin:.0f}"))
    clock_is = "muted" if gpu.sm_clock_mhz is None else clock_role(view.speed)
    second = [label("    "), (numbers.clock(gpu.sm_clock_mhz), clock_is)]
    second.append(label(" MHz" if gpu.sm_clock_max_mhz is None else f"/{gpu.sm_clock_max_mhz} MHz"))
    if gpu.memory_used_bytes is not None and gpu.memory_total_bytes is not None:
        room = width - row_width(second) - 2
        second += [label("  "), *_used_of_total(gpu.memory_used_bytes, gpu.memory_total_bytes, room)]
    return [first, [*second, ("  ", "text"), _throttle_run(gpu, view)]]


def _throttle_run(gpu: GpuReading, view: NodeView) -> Run:
    """Return why the GPU is throttled now as a styled text segment, with percentages of the last minute.

    If it is not throttled now, return the most frequent reason of the last minute, or that there is none.
    """
    lately = {short_reason(name): percent for name, percent in view.throttled_percent.items() if percent}
    reasons = gpu.throttle_reasons
    if reasons:
        words = [short_reason(reason) for reason in reasons]
        return ", ".join(f"{name} {lately[name]:.0f} %" if name in lately else name for name in words), "warn"
    if lately:
        most_frequent = max(lately, key=lambda name: lately[name])
        return f"{most_frequent} {numbers.percent(lately[most_frequent]).strip()}", "warn"
    return ("throttle –" if reasons is None else view.speed.unthrottled), "muted"


def gpu_totals(gpus: Sequence[GpuReading]) -> tuple[float | None, float | None, GpuReading | None]:
    """Return (mean use in percent, power in watts of all together, the hottest GPU); None where unknown."""
    measured = [gpu for gpu in gpus if gpu.temperature_c is not None]
    hottest = max(measured, key=lambda gpu: gpu.temperature_c or 0.0, default=None)
    percent = known_mean(gpu.utilization_percent for gpu in gpus)
    return percent, known_sum(gpu.power_w for gpu in gpus), hottest


def _network_rows(readings: tuple[NetworkReading, ...]) -> list[Row]:
    """Return a row for all RDMA ports together, and a row for each other interface, the busiest first.

    Interfaces that are down are left out. The RDMA row is first if it has at least as much traffic as the
    busiest interface, else second.
    """
    up = [reading for reading in readings if reading.up is not False]
    other_links = sorted((link for link in up if link.kind != RDMA), key=lambda link: -_bytes_per_s(link))
    rows = [_traffic_row(link.rx_bytes_per_s, link.tx_bytes_per_s, link.name) for link in other_links]
    ports = [link for link in up if link.kind == RDMA]
    if ports:
        rx = known_sum(link.rx_bytes_per_s for link in ports)
        tx = known_sum(link.tx_bytes_per_s for link in ports)
        errors_per_s = known_sum(link.errors_per_s for link in ports)
        row = _traffic_row(rx, tx, "RDMA" if errors_per_s or len(ports) == 1 else f"RDMA ×{len(ports)}")
        if errors_per_s:
            row.append((f" ✖{numbers.often(errors_per_s)}", "warn"))
        busier = not other_links or sum(map(_bytes_per_s, ports)) >= _bytes_per_s(other_links[0])
        rows.insert(0 if busier else 1, row)
    return rows or [[label("no network interface is up")]]


def _bytes_per_s(reading: NetworkReading) -> float:
    return (reading.rx_bytes_per_s or 0.0) + (reading.tx_bytes_per_s or 0.0)


def _traffic_row(rx: float | None, tx: float | None, name: str) -> Row:
    return label_row(
        "rx ", figure(numbers.data_rate(rx, 9)), " tx ", figure(numbers.data_rate(tx, 9)), f"  {name}"
    )


def figure_rows(view: NodeView, width: int, height: int) -> list[Row]:
    """Return at most `height` rows with the node's values, the most important first."""
    sample = view.sample or _EMPTY
    gpus, cpu = _gpu_rows(view, sample, width), _cpu_row(sample, width)
    memory, headroom = _memory_row(sample.memory, width), _headroom_row(view, sample.memory, width)
    network: list[Row] = []
    if sample.network or (view.sample is not None and view.scrape is None):  # an exporter may lack it
        network = _network_rows(sample.network)
    rows = [gpus[0], memory, cpu, *network[:1], headroom, *gpus[1:], *network[1:2]]
    if height >= len(rows) + 2:
        # All have room, and swap, too: rows on one thing stand together.
        above = [*gpus, memory, headroom, _swap_row(sample.memory), cpu]
        rows = [*above, *network[: max(1, height - len(above))]]
    return [fit_row(row, width) for row in rows[:height]]


def _memory_row(memory: MemoryReading, width: int) -> Row:
    length, used = _BAR - max(0, FIGURES_WIDTH - width), used_percent(memory)
    bar = _percent_bar(used, "memory", share_role(used, _FULL_PERCENT, inf), length=length)
    total = _used_of_total(memory.used_bytes, memory.total_bytes, width - 4 - length - 7)
    return [label("mem", 4), *bar, (" ", "text"), *total]


def _swap_row(memory: MemoryReading) -> Row:
    swapped_in, out = memory.swap_in_bytes_per_s, memory.swap_out_bytes_per_s
    rate_in = figure(numbers.data_rate(swapped_in, 9), "warn" if swapped_in else "text")
    return label_row("swap in ", rate_in, " out ", figure(numbers.data_rate(out, 9)))


def rows_below(view: NodeView, width: int, height: int) -> list[Row]:
    """Return `height` rows or fewer with what `figure_rows` has after GPU and memory."""
    rows = figure_rows(view, width, height + 2)[2:]
    if height in {1, 2}:  # too few for a row of the memory left alone
        sample = view.sample or _EMPTY
        row = [label("CPU", 4), *_percent_bar(sample.cpu.percent, "cpu", length=_TABLE_BAR)]
        row += label_row(" memory left ", figure(numbers.data(sample.memory.headroom_bytes, 8)))
        load = label_row("  load ", figure(numbers.rate(sample.cpu.load1, 5)))
        rows[0] = fit_row(row if row_width([*row, *load]) > width else [*row, *load], width)
    return rows


def value_graph(name: str, gradient: str, series: Series, unit: str, least: float = 1.0) -> Graph:
    """Return a graph with a scale from 0 to a round number above its highest value.

    `least` is the lowest upper end of the scale, and `unit` is appended to the text of the upper end.
    """
    return Graph(
        [(name, gradient)], series, gradient, lambda top: numbers.count(top, 5).strip() + unit, least
    )


def gpu_graphs(history: NodeHistory) -> tuple[Graph, Graph]:
    """Return the graphs of the clock and of the temperature of a node's GPUs."""
    return (
        value_graph("clock", "cpu", history.sm_clock_mhz, " MHz", 1000.0),
        percent_graph([("temperature", "load")], history.temperature_c, "load", "100 °C"),
    )


def _panel_graphs(view: NodeView, since: float, power_top: float) -> list[Graph]:
    """Return the graphs of a node's panel, the most important first.

    That of the network shows the bytes received, by the RDMA ports or by the interfaces, whichever had the
    higher peak since the time `since`. `power_top` is the upper edge of the power in watts.
    """
    history = view.history
    cpu = percent_graph([("CPU", "cpu")], history.cpu_percent, "cpu")
    memory = percent_graph([("memory", "memory")], history.memory_percent, "memory")
    rdma = history.rdma_rx_bytes_per_s.peak(since) if history.rdma_rx_bytes_per_s.last is not None else None
    is_rdma = rdma and rdma >= (history.rx_bytes_per_s.peak(since) or 0.0)
    name, series = ("RDMA in", history.rdma_rx_bytes_per_s) if is_rdma else ("rx", history.rx_bytes_per_s)
    network = Graph([(name, "network")], series, "network", lambda top: numbers.data_rate(top, 9).strip())
    if view.sample is None or not view.sample.gpus:
        return [cpu, memory, network]
    gpu = percent_graph([("GPU", "gpu")], history.gpu_percent, "gpu")
    words = f"{numbers.tick(power_top)} W"
    power = Graph([("power", "waiting")], history.power_w, "waiting", lambda _: words, power_top, fixed=True)
    clock, heat = gpu_graphs(history)
    return [gpu, cpu, power, memory, network, heat, clock]


def _graph_columns(
    view: NodeView, width: int, height: int, window: TimeWindow, power_top: float
) -> list[list[Row]]:
    """Return the columns of graphs of a panel of `width` cells, each as `height` rows.

    High panels have several graphs below each other in each column.
    """
    count, cells = graph_columns(width)
    if not count or height < _GRAPH_HEIGHT:
        return []
    axis = window.axis(cells)
    all_graphs = _panel_graphs(view, axis.end - window.span_s, power_top)
    levels = 1
    if height >= _TWO_GRAPHS:
        levels = max(1, min(max(2, height // _TWO_GRAPHS), len(all_graphs) // count))
    columns: list[list[Row]] = [[] for _ in range(count)]
    for place, graph in enumerate(all_graphs[: levels * count]):
        level, column = divmod(place, count)
        rows_left, levels_left = height - len(columns[column]), levels - level
        columns[column] += graph.rows(cells, ceil(rows_left / levels_left), axis)
    return columns


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
    # What a server on it can start or wake with is said at the server.
    others = [finding for finding in view.findings if finding.kind not in START_KINDS]
    if note := finding_note(view.findings) or calm_note(others):
        return note
    parts = [part for part in (view.identity.product, view.identity.os) if part]
    return [(f" {' · '.join(parts)} ", "muted")] if parts else []


def power_scale(views: Sequence[NodeView], window: TimeWindow) -> float:
    """Return the upper edge in watts of all nodes' graphs of power, so that equal power looks equal."""
    since = window.end - window.span_s
    return nice_ceiling(max((view.history.power_w.peak(since) or 0.0 for view in views), default=0.0) or 1.0)


HIGH_PANEL = 20
"""Height in rows of a node's panel from which on more than its figures fit."""


def node_panel(
    view: NodeView,
    width: int,
    height: int,
    window: TimeWindow,
    power_top: float,
    *,
    selected: bool = False,
    further: Callable[[NodeView, int, int], list[Row]] | None = None,
) -> list[Row]:
    """Draw the panel of one node as `height` rows of `width` cells; `power_top` is that of `power_scale`.

    `further` returns rows that stand below the figures, for a width and at most a height.
    """
    inside = height - 2
    cells = figures_width(width)
    figures = figure_rows(view, cells, inside)
    if further is not None and view.sample is not None:
        figures += further(view, cells, inside - len(figures))
    figures += [[] for _ in range(inside - len(figures))]
    graphs = _graph_columns(view, width, inside, window, power_top)
    rows = [panel_row(row, [graph[index] for graph in graphs], width) for index, row in enumerate(figures)]
    if view.failure is not None or view.sample is None:
        rows = [in_role(row, "stale") for row in rows]
    return frame_rows(
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
    return view.speed.title if view.sample.gpus else "no GPU", speed_role(view.speed)


def about(view: NodeView) -> Row:
    """Return the name of the node's GPUs for the frame's upper edge; empty if it has none."""
    if not view.gpus:
        return []
    name = fleet_name(view.gpus) if len(view.gpus) > 1 else view.gpus[0].name
    return [("─ ", "border"), (name, "text"), (" ", "text")] if name else []


_NAME = 8
"""Least cells of a name."""
_NO_BAR, _TINY_BAR, _TABLE_BAR, _LONG_BAR = 0, 3, 5, 9
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


def list_shape(views: Sequence[NodeView], width: int, rows_each: int) -> LineShape:
    """Return the shape of the lines of a list, `width` cells wide, with `rows_each` rows for each machine."""
    has_cpu = rows_each > 1 or graph_columns(width)[0] == len(_GRAPHS)
    return line_shape(views, figures_width(width), has_cpu_elsewhere=has_cpu)


def line_shape(views: Sequence[NodeView], width: int, *, has_cpu_elsewhere: bool = False) -> LineShape:
    """Return the shape of lines of `width` cells for `views`.

    Long names get the cells that are free, then those of a CPU use that stands elsewhere too, then part of
    the bar, until they fit. Where that is not enough, values and at last the bar give way until shortened
    names are distinct.
    """
    names = tuple(view.name for view in views)
    longest = max(map(cell_width, names), default=0)
    has_gpus = any(view.sample is None or view.sample.gpus or view.gpus_lost for view in views)
    values = _VALUES if has_gpus else _VALUES[2:]

    def name_cells(bar: int, count: int) -> int:
        """Return the cells of a name beside a bar of `bar` cells and the first `count` values."""
        return width - 1 - (bar + _PERCENT if has_gpus else len(_NO_GPU)) - sum(values[:count])

    usual_bar = _LONG_BAR
    if width < WIDE_FIGURES_WIDTH:
        usual_bar = _TABLE_BAR if name_cells(_TABLE_BAR, 0) >= _NAME else _TINY_BAR
    most = next((count for count in range(len(values), 0, -1) if name_cells(usual_bar, count) >= _NAME), 0)
    without_cpu = min(most, len(values) - has_cpu_elsewhere)
    # (Cells of the bar, number of values): where whole names are to fit, then where shortened ones are.
    wide = ((usual_bar, most), (usual_bar, without_cpu), (_TINY_BAR, without_cpu))
    narrow = (*((_TINY_BAR, count) for count in range(without_cpu, -1, -1)), (_NO_BAR, 0))
    fitting = (widths for widths in wide if name_cells(*widths) >= longest)
    distinct = (widths for widths in narrow if are_distinct(names, max(_NAME, name_cells(*widths))))
    bar, count = next(chain(fitting, distinct), narrow[-1])
    name = max(_NAME, min(longest, name_cells(bar, count)))
    return LineShape(width, bar, name, fitted_names(names, name))


def node_heading(shape: LineShape, width: int) -> Row:
    """Return the heading row of a list of nodes that is `width` cells wide."""
    count, cells = graph_columns(width)
    words = f"{fit('node', shape.name)} {fit('GPU', shape.bar + _PERCENT)}{'power':>6}{'°C':>4}{'memory':>9}"
    captions = [
        caption([(name, gradient)], scale_words("100 %"), cells) for name, _, gradient in _GRAPHS[:count]
    ]
    return panel_row([label(words)], captions, width)


def node_entry(
    view: NodeView, shape: LineShape, width: int, height: int, window: TimeWindow, *, selected: bool = False
) -> list[Row]:
    """Return one node as `height` rows of a list of `width` cells: values, and graphs beside them."""
    line = node_line(view, shape, has_cpu_below=height > 1)
    further = _failure_rows(view, line, shape.width - 2, height - 1)
    if view.failure is None:
        further = rows_below(view, shape.width - 2, height - 1)
    figures = [line, *([("  ", "text"), *row] for row in further)]
    figures += [[] for _ in range(height - len(figures))]
    count, graph_width = graph_columns(width)
    axis = window.axis(max(1, graph_width))
    graphs = [
        area_rows(
            axis.values(getattr(view.history, field), graph_width),
            graph_width,
            height,
            # The top row of dots stays free: graphs below each other would look like one area.
            100.0 * _DOTS * height / (_DOTS * height - 1),
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


def _failure_rows(view: NodeView, line: Row, width: int, height: int) -> list[Row]:
    """Return why a machine fails in at most `height` rows, in place of its old figures.

    Return [] if its line has the complete message.
    """
    if view.failure is None or height < 1 or view.failure.message in row_text(line):
        return []
    lines = wrap_sentence(view.failure.message, width)
    fitted_lines = [*lines[: height - 1], " ".join(lines[height - 1 :])]
    return [fit_row([(text, failure_role(view))], width) for text in fitted_lines if text]


def short_node(view: NodeView, shape: LineShape, *, selected: bool = False) -> Row:
    """Return a node for lists with several columns, in one cell more than `shape` is wide."""
    row = [mark(selected=selected), *node_line(view, shape)]
    return row if view.failure is None else [row[0], *in_role(row[1:], failure_role(view))]


def node_line(view: NodeView, shape: LineShape, *, has_cpu_below: bool = False) -> Row:
    """Return a node's values in one row: name, GPU, memory, and what is wrong with it.

    Values that do not fit are left out, the least important first.
    """
    width, room = shape.width, shape.width - shape.name - 1
    row: Row = [(shape.names[view.name], "title"), (" ", "text")]
    if view.failure is not None:
        sign, failure_text = "…" if is_stale(view) else "✖", failure_words(view.failure, view.via)
        choices = (f"{sign} {view.failure.message}", f"{sign} {failure_text}", failure_text, NO_ANSWER)
        shown_text = next((words for words in choices if cell_width(words) <= room), choices[-1])
        return fit_row([*row, (shown_text, failure_role(view))], width)
    if view.sample is None:
        return fit_row([*row, label("connecting")], width)
    pieces = _value_pieces(view, shape.bar)
    for piece in pieces[:-1] if has_cpu_below else pieces:
        cells = sum(len(text) for text, _ in piece)
        if cells <= room:
            row += piece
            room -= cells
    return fit_row(row, width)


def _value_pieces(view: NodeView, bar_width: int) -> list[Row]:
    """Return the values of a node that answers, in pieces, the most important first."""
    sample = view.sample
    if sample is None:
        return []
    cpu = sample.cpu.percent
    used = used_percent(sample.memory)
    ends: list[Row] = [
        [label(" mem"), figure(numbers.percent(used, _PERCENT), share_role(used, _FULL_PERCENT, inf))],
        [label(" CPU"), figure(numbers.percent(cpu, _PERCENT))],
    ]
    if not sample.gpus:
        lost: Row = [lost_run(view.gpus_lost)] if view.gpus_lost else [label(_NO_GPU)]
        return [lost, *ends]
    use, watts, hottest = gpu_totals(sample.gpus)
    bar = bar_runs(None if use is None else use / 100, bar_width, "gpu") if bar_width else []
    pieces: list[Row] = [[*bar, figure(numbers.percent(use, _PERCENT), LIVE)]]
    if view.gpus_lost:
        lost_words, lost_role = lost_run(view.gpus_lost)
        pieces.append([(f" {lost_words}", lost_role)])
    elif view.speed.word not in QUIET_SPEEDS:
        pieces.append([(f" {view.speed.word}", speed_role(view.speed))])
    else:
        pieces.append([_count_run(watts, 4), label(" W")])
    heat = None if hottest is None else hottest.temperature_c
    role = margin_role(None if hottest is None else margin_of(hottest))
    pieces.append([_count_run(heat, 3, role), label("°")])
    return [*pieces, *ends]


def _count_run(value: float | None, width: int, role: str = "text") -> Run:
    """Return a count in `width` cells; in one cell more if no blank would be left before its digits."""
    cells = width + (value is not None and value >= 10 ** (width - 1) - 0.5)
    return figure(numbers.count(value, cells), role)
