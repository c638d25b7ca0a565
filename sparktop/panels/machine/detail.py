"""Machines on the full screen: every reading of one in sections with graphs, and several compared.

*Headroom* is the memory that programs can still allocate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from sparktop.analysis.machines_compared import (
    DIFFER,
    SETUP,
    MachineGroup,
    alike_in,
    groups_of,
    unknown_in,
)
from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit, sparkrow
from sparktop.graphics.numbers import UNKNOWN, tick
from sparktop.model.event import Finding
from sparktop.model.node import (
    CACHE_PART,
    CMA_FREE_PART,
    CMA_PART,
    FREE_PART,
    GPU_PART,
    HUGE_PART,
    OTHER_PART,
    PROGRAMS_PART,
    CoreGroup,
    CpuReading,
    GpuReading,
    MemoryReading,
    NetworkReading,
    NodeSample,
    PowerRail,
    SensorReading,
)
from sparktop.model.series import Series, known_max, known_sum
from sparktop.model.snapshot import BackendView, Headroom, NodeView, Situation, Snapshot
from sparktop.panels.machine.panel import (
    RDMA,
    TAIL,
    about,
    clock_role,
    energy_text,
    fleet_name,
    footnote,
    gpu_graphs,
    gpu_totals,
    lost_rows,
    margin_of,
    margin_role,
    mig_rows,
    of_total,
    share,
    short_reason,
    speed_role,
    state_run,
    trend_runs,
    used_percent,
    value_graph,
)
from sparktop.panels.machine.processes import detail_processes
from sparktop.panels.parts.figures import (
    WIDE_FACTS,
    BarPart,
    ViewSection,
    bar_row,
    bar_runs,
    failure_role,
    figure,
    findings_section,
    flow_pieces,
    has_failed,
    is_stale,
    label,
    label_row,
    legend,
    name_width,
    percent_bar,
    percent_run,
    read_by,
    segmented_bar,
    sentence_rows,
    share_role,
    stack,
    state_role,
    two_columns,
    wrap_sentence,
)
from sparktop.panels.parts.graph import (
    Graph,
    TimeAxis,
    column_width,
    detail_rows,
    percent_graph,
)
from sparktop.panels.parts.text import (
    Row,
    fit_row,
    frame_role,
    frame_rows,
    in_role,
    name_tab,
    row_width,
    shorten_piece,
    spread_row,
)

_WITH_MARGIN = 52
"""Width in cells from which on the thermal margin has a column; below, it only colours the temperature."""


def gpu_table(gpus: Sequence[GpuReading], minute: Mapping[str, float], width: int) -> list[Row]:
    """Return a table of GPUs: a row per GPU and MIG instance, a row of totals, and throttle reasons.

    `minute` maps throttle reasons to the percentage of the last minute in which they were active.
    """
    unified = all(gpu.memory_total_bytes is None for gpu in gpus)
    has_margin = width >= _WITH_MARGIN
    # Beside bar and reasons: 30 cells, 5 of them for the margin, and 11 for memory that is not unified.
    room = width - (30 if unified else 41) + (0 if has_margin else 5)
    bar = max(3, min(16, room - 20))
    last = max(4, room - bar)
    memory = "" if unified else f"{'memory GiB':>10} "
    margin = f"{'left':>5}" if has_margin else ""
    head = f"{'':3}{'use':<{bar + 7}}{memory}{'W':>5}{'°C':>4}{margin}"
    reasons_title = "slowed by" if last >= 9 else "why"
    rows: list[Row] = [[label(f"{head}{'MHz':>5} {reasons_title}")]]
    for gpu in gpus:
        rows.append(_gpu_table_row(gpu, bar, last, unified=unified, has_margin=has_margin))
        rows += mig_rows(gpu, width)
    rows.append(_gpu_totals_row(gpus, width))
    worst = [
        f"{short_reason(name)} {numbers.percent(share).strip()}" for name, share in minute.items() if share
    ]
    if minute:
        rows.append(
            label_row(
                "throttled, worst GPU, 60 s: ", (", ".join(worst) or "never", "warn" if worst else "muted")
            )
        )
    return rows


def _gpu_table_row(gpu: GpuReading, bar: int, last: int, *, unified: bool, has_margin: bool) -> Row:
    load_percent, margin, reasons = gpu.utilization_percent, margin_of(gpu), gpu.throttle_reasons
    heat, clock, role = gpu.temperature_c, gpu.sm_clock_mhz, margin_role(margin)
    words = "–" if reasons is None else ", ".join(reason.removeprefix("software ") for reason in reasons)
    row: Row = label_row(
        f"{gpu.index:>2} ",
        *bar_runs(None if load_percent is None else load_percent / 100, bar, "gpu"),
        *percent_run(load_percent, 6),
        (" ", "text"),
    )
    if not unified:  # used and total memory in GiB, such as "94.6/141"
        used_bytes, total = gpu.memory_used_bytes, gpu.memory_total_bytes
        first = numbers.UNKNOWN if used_bytes is None else f"{used_bytes / 2**30:.1f}"
        second = numbers.UNKNOWN if total is None else f"{total / 2**30:.0f}"
        percent = None if used_bytes is None or not total else 100 * used_bytes / total
        size_role = "muted" if used_bytes is None else share_role(percent, 97, 101)  # full is never "bad"
        row += [(fit(f"{first}/{second}", 10, "right"), size_role), (" ", "text")]
    row += [
        figure(numbers.count(gpu.power_w, 5)),
        figure(numbers.count(heat, 4), role),
    ]
    if has_margin:
        row.append(figure(numbers.count(margin, 5), role))
    return [
        *row,
        figure(numbers.clock(clock, 5)),
        (f" {fit(words.replace('hardware', 'hw'), last)}", "warn" if reasons else "muted"),
    ]


def _gpu_totals_row(gpus: Sequence[GpuReading], width: int) -> Row:
    """Return the table's last row in `width` cells: mean use, power and energy of the GPUs that report them.

    If not all GPUs report their power, the number of those that do stands behind the power.
    """
    percent, watts, _ = gpu_totals(gpus)
    count = sum(gpu.power_w is not None for gpu in gpus)
    row: Row = label_row("all ", figure(numbers.percent(percent).strip()), " mean, ")
    row += [figure(numbers.count(watts, 6).strip()), label(" W")]
    if 0 < count < len(gpus):
        row.append(label(f" of {count}"))
    energy_j = known_sum(gpu.energy_j for gpu in gpus)
    if energy_j is not None:
        words = f", {energy_text(energy_j)}"
        row.append(label(f"{words} so far" if row_width(row) + len(f"{words} so far") <= width else words))
    return row


NOW = "now"


def gpu_sections(view: NodeView, width: int) -> list[ViewSection]:
    """Return a list with the section on the GPUs: a single GPU with all values, or several as a table.

    Without a GPU the section says why there is none.
    """
    sample = view.sample
    gpus = sample.gpus if sample is not None else ()
    if not gpus:
        note = sample.gpu_note if sample is not None else None
        return [ViewSection("GPU", [[label(note or "–")], *lost_rows(view.gpus_lost, width)])]
    if len(gpus) > 1 or view.gpus_lost:
        rows = [*gpu_table(gpus, view.throttled_percent, width), *lost_rows(view.gpus_lost, width)]
        return [ViewSection(f"GPUs · {fleet_name(gpus)}", rows, NOW)]
    return [ViewSection(f"GPU · {gpus[0].name or '–'}", _gpu_rows(gpus[0], view, width), NOW)]


def speed_section(view: NodeView, width: int) -> list[ViewSection]:
    """Return a list with the section on a slow GPU (rule, cause, remedy); empty where none is slow."""
    speed = view.speed
    if not speed.cause:
        return []  # `_speed_row` says already by which rule it is judged
    rows = sentence_rows((f"{speed.word}  ", speed_role(speed)), speed.reason, "text", width)
    rows += sentence_rows(label("likely  "), speed.cause, "text", width)
    if speed.fix:
        rows += sentence_rows(label("→ "), speed.fix, "text", width)
    return [ViewSection("clock under load", rows)]


def _gpu_rows(gpu: GpuReading, view: NodeView, width: int) -> list[Row]:
    """Return all values of a GPU: bars up to its limits where these are reported, energy, throttling."""
    percent, clock, fastest = gpu.utilization_percent, gpu.sm_clock_mhz, gpu.sm_clock_max_mhz
    heat, margin, power, most_w = gpu.temperature_c, margin_of(gpu), gpu.power_w, gpu.power_limit_w
    hottest = None if heat is None or margin is None else heat + margin
    role = margin_role(margin)
    name = "limit" if gpu.limit_margin_c is not None else "slows at"
    limit = "" if hottest is None else f", {name} {hottest:.0f}"
    after_heat: Row = [figure(numbers.count(heat, 6), role), label(f" °C{limit}")]
    after_clock = label_row(
        figure(numbers.clock(clock, 6), clock_role(view.speed)), of_total(fastest, " MHz")
    )
    watts = figure(numbers.rate(power, 6))
    rows = [
        percent_bar("load", percent, "gpu", percent_run(percent, 6), width, TAIL),
        bar_row("temp", share(heat, hottest or 100.0), "load", after_heat, width, TAIL),
        bar_row("clock", share(clock, fastest), "cpu", after_clock, width, TAIL),
    ]
    if most_w is None:
        rows.append([label("power", width - TAIL), watts, label(" W")])
    else:
        after_power: Row = [watts, label(of_total(most_w, " W"))]
        rows.append(bar_row("power", share(power, most_w), "load", after_power, width, TAIL))
    if gpu.memory_total_bytes is not None or gpu.memory_used_bytes is not None:
        used_bytes, total = gpu.memory_used_bytes, gpu.memory_total_bytes
        after: Row = label_row(figure(numbers.data(used_bytes, 9)), f" of {numbers.data(total, 9).strip()}")
        rows.append(bar_row("memory", share(used_bytes, total), "memory", after, width, TAIL))
    if gpu.energy_j is not None:
        energy = figure(energy_text(gpu.energy_j))
        rows.append([label("energy", name_width(width)), energy, label(" since the driver was loaded")])
    reasons = gpu.throttle_reasons
    words = "not reported by the driver" if reasons is None else ", ".join(reasons) or "not now"
    minute = view.throttled_percent
    of_time = label("; share of the last 60 s:" if minute else "")
    rows.append([label("throttled", name_width(width)), (words, "warn" if reasons else "muted"), of_time])
    # Of the last minute, or while that is not known yet, of the last sampling interval.
    shares: Mapping[str, float | None] = minute or gpu.throttled_percent
    cells: list[Row] = [
        [label(short_reason(reason), width // 2 - 7), *percent_run(part, 5, role="warn" if part else "text")]
        for reason, part in shares.items()
    ]
    return [*rows, *two_columns(cells, width), *mig_rows(gpu, width)]


_PATTERNS = {
    GPU_PART: ("█", "gpu/4"),
    PROGRAMS_PART: ("▓", "cpu/6"),
    CACHE_PART: ("▒", "memory/6"),
    CMA_PART: ("▌", "load/6"),
    HUGE_PART: ("▄", "running/8"),
    OTHER_PART: ("▚", "waiting/12"),
    CMA_FREE_PART: ("░", "network/8"),
    FREE_PART: ("·", "bar_empty"),
}
"""Pattern and role of each part: all patterns differ, so that parts differ in more than colour."""
_NEW_PATTERN = ("+", "prompt/8")
"""Pattern and role of a part that this version does not know, reported by a newer agent."""


def memory_parts(memory: MemoryReading) -> list[BarPart]:
    """Return the parts of the memory bar in order; only used and free memory if no parts are reported."""
    parts = [
        BarPart(part.title, part.size_bytes, *_PATTERNS.get(part.name, _NEW_PATTERN)) for part in memory.parts
    ]
    total, used_bytes = memory.total_bytes, memory.used_bytes
    if parts or total is None or used_bytes is None:
        return parts
    return [
        BarPart("used", min(used_bytes, total), *_PATTERNS[PROGRAMS_PART]),
        BarPart("free", max(0, total - used_bytes), *_PATTERNS[FREE_PART]),
    ]


def memory_section(memory: MemoryReading, headroom: Headroom, width: int) -> ViewSection:
    """Return all memory values as a section for a column of `width` cells."""
    percent, used_bytes, total = used_percent(memory), memory.used_bytes, memory.total_bytes
    rows: list[Row] = [
        label_row(
            label("used", name_width(width)),
            figure(numbers.data(used_bytes, 9).strip()),
            " of ",
            figure(numbers.data(total, 9).strip()),
            (f" {numbers.percent(percent)}", share_role(percent, 85, 101)),  # full is never "bad"
        )
    ]
    parts = memory_parts(memory)
    if total and parts:
        rows += [segmented_bar(parts, total, width), *legend(parts, width)]
    names, waited = name_width(width), memory.pressure_full_avg10
    trend = trend_runs(headroom, width - names)
    if headroom.slope_bytes_per_s is None:
        known = "not known yet" if headroom.window_s is None else "no steady rise or fall seen"
        trend = [label("–" if memory.headroom_bytes is None else known)]
    pressure: Row = label_row(
        label("pressure", names),
        *percent_run(waited, 0 if waited is None else 5, role="warn" if waited else "text"),
        "–" if waited is None else f" of 10 s waiting{' for memory' if width >= _WITH_CLOCK else ''}",
    )
    rows += [
        _headroom_row(memory, width),
        [label("trend", names), *trend],
        *_swap_rows(memory, width),
        pressure,
    ]
    remark = "from huge pages" if memory.huge_pages else "now"
    if memory.overlap_bytes:  # the parts add up to more than is used, and are cut in the bar
        remark = f"{numbers.data(memory.overlap_bytes, 9).strip()} overlap, cut"
    return ViewSection("unified memory" if memory.unified else "memory", rows, remark)


_HEADROOM_CELLS = 9
"""Most cells of the memory left itself."""


def _headroom_row(memory: MemoryReading, width: int) -> Row:
    """Return a row with the memory left: available memory minus free memory that is reserved for CMA.

    The kernel counts CMA memory (contiguous memory allocator) as available, but programs cannot use it. Where
    kexec handover keeps that memory, the kernel's option that gives it back is named.
    """
    headroom, available, cma = memory.headroom_bytes, memory.available_bytes, memory.cma_free_bytes
    row: Row = [label("left", name_width(width)), figure(numbers.data(headroom, 9).strip())]
    if available is None:
        return row
    note = " (KHO: kho=off)" if memory.handover_bytes else ""
    less = f" − {cma / 2**30:.1f} CMA free" if cma else ""
    words = f" = {available / 2**30:.1f} available"
    room = width - name_width(width) - _HEADROOM_CELLS
    usual = " (for drivers only)" if cma and not note else ""
    choices = (f"{words}{less}{note or usual}", f"{words}{less}", " = available − free CMA")
    return [*row, label(next((text for text in choices if cell_width(text) <= room), ""))]


def _swap_rows(memory: MemoryReading, width: int) -> list[Row]:
    total, used_bytes = memory.swap_total_bytes, memory.swap_used_bytes
    row: Row = [label("swap", name_width(width))]
    if total == 0:
        return [[*row, label("none")]]
    row += [figure(numbers.data(used_bytes, 9).strip()), label(f" of {numbers.data(total, 9).strip()}")]
    rates = [
        *_rate_cells("  in ", memory.swap_in_bytes_per_s, bad=True),
        *_rate_cells("  out ", memory.swap_out_bytes_per_s),
    ]
    if row_width([*row, *rates]) <= width:
        return [[*row, *rates]]
    return [row, [label("", name_width(width) - 2), *rates]]


def _rate_cells(name: str, value: float | None, *, bad: bool = False) -> Row:
    role = "warn" if bad and value else "text"
    return [label(name), figure(numbers.data_rate(value, 9).strip(), role)]


SINCE = "since the last poll"
_WIDE, _NARROW = 66, 52
"""Widths in cells: from `_WIDE` on, link and bus have columns of their own; below `_NARROW`, use or speed is
left out."""
_KINDS = {"ethernet": "eth", "wifi": "wifi", "other": "other"}


def used_percent_of(link: NetworkReading) -> float | None:
    """Return the traffic of the busier direction as a percentage (0 to 100) of the capacity; None if unknown.

    The capacity is what the link and its bus can carry.
    """
    busier, capacity = known_max((link.rx_bytes_per_s, link.tx_bytes_per_s)), link.capacity_bits_per_s
    return 100 * 8 * busier / capacity if busier is not None and capacity else None


def network_sections(links: Sequence[NetworkReading], width: int) -> list[ViewSection]:
    """Return a list with the section of the interfaces, and with that of the RDMA ports if there are any."""
    # Up before down, each in the kernel's order: sorted by traffic, rows would jump.
    order = sorted(links, key=lambda link: link.up is False)
    ports = [link for link in order if link.kind == RDMA]
    others = [link for link in order if link.kind != RDMA]
    rows = _interface_rows(others, width, rdma=False) if others else [[label("no other interface")]]
    sections = [ViewSection("network", rows, SINCE)]
    if ports:
        window = f"beside the network · {SINCE}" if width >= _WIDE else SINCE
        sections.append(ViewSection("RDMA", _interface_rows(ports, width, rdma=True), window))
    return sections


def _speed_text(bits_per_s: float | None, width: int) -> str:
    if bits_per_s is None:
        return UNKNOWN.rjust(width)
    digits = tick(bits_per_s)
    number = digits.rstrip("kMGTPE")
    return f"{number} {digits[len(number) :]}b/s".rjust(width)


def _interface_rows(links: Sequence[NetworkReading], width: int, *, rdma: bool) -> list[Row]:
    """Return a heading and a row for each interface, and below it its rising error counters, if any.

    Wide tables have columns of their own for link and bus, or kind; narrow ones lack use or speed. Rising
    counters have the driver's names, the fastest first.
    """
    wide = width >= _WIDE
    rate, failures = (11, 7) if wide else (10, 4)
    speed = 0 if rdma and width < _NARROW else 9
    use_cells = 6 if rdma or width >= _NARROW else 0
    name = width - 2 * rate - speed * (1 + wide) - use_cells - failures
    if wide:
        middle = [("link", speed), ("PCIe" if rdma else "kind", speed)]
    else:
        middle = [("limit" if rdma else "link", speed)]
    last = [("used", use_cells), ("errors" if wide else "err", failures)]
    titles = [("in", rate), ("out", rate), *middle, *last]
    head = "".join(title.rjust(cells) for title, cells in titles if cells)
    rows: list[Row] = [[label(f"{'port' if rdma else 'interface':<{name}}{head}")]]
    for link in links:
        link_name = link.name
        if rdma and link.netdev and len(link.name) + len(link.netdev) + 3 <= name:
            link_name = f"{link.name} {link.netdev}"
        row: Row = [(fit(link_name, name - 1) + " ", "text")]
        rows.append(row)
        if link.up is False:
            row.append(label("down".rjust(rate)))
            continue
        for value in (link.rx_bytes_per_s, link.tx_bytes_per_s):
            text = numbers.data_rate(value, rate - 1).rjust(rate)
            row.append((text, "text" if value is not None else "muted"))
        if wide:
            kind = fit(_KINDS.get(link.kind, link.kind), speed, "right")
            row.append(label(_speed_text(link.link_bits_per_s, speed)))
            row.append(label(_speed_text(link.bus_bits_per_s, speed) if rdma else kind))
        elif speed:
            row.append(label(_speed_text(link.capacity_bits_per_s, speed)))
        if use_cells:
            percent = used_percent_of(link)
            row.append((numbers.percent(percent, use_cells), share_role(percent, 85, 101)))  # as above
        errors_per_s = link.errors_per_s
        row.append(figure(numbers.count(errors_per_s, failures), "warn" if errors_per_s else "muted"))
        if link.errors:
            rows.append([label("  └ "), (fit(_rising_words(link.errors), width - 4).rstrip(), "warn")])
    return rows


def _rising_words(errors: Mapping[str, float]) -> str:
    """Return the rising error counters with their rates, the fastest first."""
    rising = sorted(errors.items(), key=lambda error: (-error[1], error[0]))
    return ", ".join(f"{title} {numbers.often(pace)}" for title, pace in rising)


_EMPTY = NodeSample(at=0.0)
_CORE_WIDTH = 15
"""Cells of a core's number and bar."""
_MOST_CORE_BARS = 48
"""Most cores that get a bar each; if there are more, each core is one column of a row."""
_TAIL = 22
"""Width in cells of the values to the right of the CPU's bars."""
_WITH_CLOCK = 41
"""Least width in cells of a row that has the highest clock of a group of cores."""


def node_sections(view: NodeView, width: int) -> list[ViewSection]:
    """Return the main sections (findings, GPU, memory, processor) for a column of `width` cells."""
    sample = view.sample or _EMPTY
    return [
        *findings_section(view.findings, width),
        *gpu_sections(view, width),
        memory_section(sample.memory, view.headroom, width),
        _processor_section(sample.cpu, width),
    ]


def sections_that_fit(view: NodeView, width: int, height: int) -> list[Row]:
    """Return `height` rows or fewer that follow the figures of a high panel: whole sections, `width` wide."""
    sample = view.sample or _EMPTY
    sections = [
        *(gpu_sections(view, width) if len(sample.gpus) > 1 else ()),
        _processor_section(sample.cpu, width),
        memory_section(sample.memory, view.headroom, width),
        *_rail_sections(sample, width),
        _sensor_section(view, width),
    ]
    chosen: list[ViewSection] = []
    left = height
    for section in sections:
        if len(section.rows) < left:
            chosen.append(section)
            left -= 1 + len(section.rows)
    return stack(chosen, width, height)


def _processor_section(cpu: CpuReading, width: int) -> ViewSection:
    cores = cpu.cores or len(cpu.core_percent)
    title = f"processor · {cores} cores" if cores else "processor"
    return ViewSection(title, _cpu_rows(cpu, width), "since the last poll")


def node_aside(view: NodeView, width: int) -> list[ViewSection]:
    """Return the sections that may stand below a node's graphs: network, sensors, RDMA, power, speed."""
    sample = view.sample or _EMPTY
    if not sample.network:
        network, rdma = ViewSection("network", [_empty_row(view, "no interface")]), []
    else:
        network, *rdma = network_sections(sample.network, width)
    # A wide screen has two columns: the two tall sections first, each with a low one below it.
    return [
        network,
        _sensor_section(view, width),
        *rdma,
        *_rail_sections(sample, width),
        *speed_section(view, width),
    ]


def _sensor_section(view: NodeView, width: int) -> ViewSection:
    sensors = view.sample.sensors if view.sample is not None else ()
    rows = two_columns((_sensor_cell(sensor, width // 2) for sensor in sensors), width)
    return ViewSection("sensors", rows or [_empty_row(view, "none")], "now / critical")


def _rail_sections(sample: NodeSample, width: int) -> list[ViewSection]:
    rows = two_columns((_rail_cell(rail, width // 2) for rail in sample.rails), width)
    return [ViewSection("power rails", rows, "now / since the counter's start")] if rows else []


def _cpu_rows(cpu: CpuReading, width: int) -> list[Row]:
    percent = cpu.percent
    after: Row = label_row(*percent_run(percent, 6), "  load ", figure(numbers.rate(cpu.load1, 5).strip()))
    rows = [percent_bar("all cores", percent, "cpu", after, width, _TAIL)]
    cores = cpu.core_percent
    if len(cores) > _MOST_CORE_BARS:
        rows += [_core_group_row(group, width) for group in cpu.groups]
        bar_width = width - 10
        for start in range(0, len(cores), bar_width):
            part = cores[start : start + bar_width]
            span = f"{start}–{start + len(part) - 1}"
            rows.append([label(span, 10), (sparkrow(part, len(part), 100.0), "cpu")])
        return rows
    grouped = {core for group in cpu.groups for core in group.cores}
    for group in cpu.groups:
        rows += [_core_group_row(group, width), *_core_rows(cores, group.cores, width)]
    return rows + _core_rows(cores, [core for core in range(len(cores)) if core not in grouped], width)


def _core_group_row(group: CoreGroup, width: int) -> Row:
    """Return a row for a group of CPU cores of the same design: number, mean use and highest frequency."""
    has_clock = width >= _WITH_CLOCK
    fastest = "" if group.max_mhz is None else f"  max {group.max_mhz / 1000:.1f} GHz"
    name = fit(f"{len(group.cores)} × {group.name}", 19 if width >= WIDE_FACTS else 17)
    share = None if group.percent is None else group.percent / 100
    length = max(4, width - len(name) - 1 - 6 - (13 if has_clock else 0))
    return [
        (name + " ", "text"),
        *bar_runs(share, length, "cpu"),
        *percent_run(group.percent, 6),
        label(fastest if has_clock else ""),
    ]


def _core_rows(cores: Sequence[float], indices: Sequence[int], width: int) -> list[Row]:
    """Return rows with a bar for each CPU core of `indices`; cores without a reading are left out."""
    listed = [core for core in indices if core < len(cores)]
    if not listed:
        return []
    columns = max(1, width // _CORE_WIDTH)
    down = -(-len(listed) // columns)
    rows: list[Row] = []
    for line in range(down):
        row: Row = []
        for core in listed[line::down]:
            bar = bar_runs(cores[core] / 100, width // columns - 9, "cpu")
            cell = [label(f"{core:>2} "), *bar, figure(numbers.percent(cores[core])), (" ", "text")]
            row += fit_row(cell, width // columns)
        rows.append(row)
    return rows


def _empty_row(view: NodeView, words: str) -> Row:
    """Return the text `words` (such as "no interface") as a row; "–" where that is not known.

    It is not before the node's first sample, nor through a Prometheus.
    """
    return [label("–" if view.sample is None or view.scrape is not None else words)]


def _sensor_cell(sensor: SensorReading, width: int) -> Row:
    heat, critical = sensor.temperature_c, sensor.critical_c
    role = "text" if not critical else share_role(100 * heat / critical, 90, 98)
    names = width - 12
    limit = "" if critical is None or cell_width(sensor.name) > names else f"/{critical:.0f}"
    return label_row(
        (fit(sensor.name, names if limit else names + 4), "text"),
        figure(numbers.count(heat, 4), role),
        f"{limit} °C",
    )


def _rail_cell(rail: PowerRail, width: int) -> Row:
    wide = width >= WIDE_FACTS // 2
    energy = "" if rail.energy_j is None or not wide else f" {energy_text(rail.energy_j)}"
    names = max(6, width - (18 if wide else 10))
    return label_row((fit(rail.name, names), "text"), figure(numbers.rate(rail.power_w, 6)), f" W{energy}")


def node_detail(
    view: NodeView,
    backends: Sequence[BackendView],
    width: int,
    height: int,
    axis: TimeAxis,
    *,
    selected: bool = False,
) -> tuple[list[Row], int]:
    """Draw one node on the full screen; return (rows, index of the first row of the process table).

    There are `height` rows, or more if needed. Those of `backends` that run on the node are named.
    """
    trouble: list[Row] = []
    if view.failure is not None:
        age = "" if view.age_s is None else f", figures {numbers.age(view.age_s)} old"
        failure_words = f"{'' if is_stale(view) else '✖ '}{view.failure.message}{age}"
        trouble = [[(line, failure_role(view))] for line in wrap_sentence(failure_words, width - 4)]
    foot = detail_processes(view, width - 3)
    rows = detail_rows(
        [_serves_row(view, backends, width - 3), *(trouble or [_speed_row(view, width - 3)])],
        node_sections(view, column_width(width)),
        _graphs(view),
        width,
        height,
        axis,
        aside=partial(node_aside, view),
        foot=foot,
    )
    processes_at = 1 + len(rows) - len(foot)
    if view.failure is not None or view.sample is None:
        # The rows after the first are the failure, which is current: it must not look stale.
        roles = ["stale", *[failure_role(view)] * len(trouble), *["stale"] * len(rows)]
        rows = [in_role(row, role) for row, role in zip(rows, roles, strict=False)]
    driver: Row = [label(f" driver {view.identity.driver} ")] if view.identity.driver else []
    framed_rows = frame_rows(
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


def _speed_row(view: NodeView, width: int) -> Row:
    """Return the speed state of the GPUs in `width` cells, and its cause if known, else its reason."""
    speed = view.speed
    if view.sample is not None and not view.sample.gpus:
        return label_row("speed  ", "no GPU here")
    row: Row = [label("speed  "), (speed.title, speed_role(speed))]
    cause = speed.cause or speed.reason
    return (
        shorten_piece([*row, label(": " if speed.cause else " because "), (cause, "text")], width)
        if cause
        else row
    )


def _serves_row(view: NodeView, backends: Sequence[BackendView], width: int) -> Row:
    """Return a row with the backends that run on the node, each with its state and token rate.

    Manufacturer and CPU of the machine stand at the right end if they fit.
    """
    row: Row = [label("serves ")]
    for backend in backends:
        if view.name in backend.nodes:
            row += label_row(
                (f" {backend.name} ", "title"),
                (f"{backend.state_text} · ", state_role(backend)),
                figure(numbers.rate(None if backend.failure else backend.generation_tps, 6).strip()),
                " tok/s  ",
            )
    row = row if len(row) > 1 else [label("no backend names this node as its own")]
    words = " · ".join(part for part in (view.identity.maker, view.identity.cpu) if part)
    words = words.replace(" x ", " × ")  # agents and stored results have the letter
    if words and row_width(row) + len(words) + 2 <= width:
        return spread_row(row, [label(words)], width)
    return row


def _graphs(view: NodeView) -> list[Graph]:
    """Return graphs of the node's values over time, the most important first."""
    history = view.history
    cpu = percent_graph([("CPU", "cpu")], history.cpu_percent, "cpu")
    memory = percent_graph([("memory", "memory")], history.memory_percent, "memory")
    network = _traffic_graph("network", history.rx_bytes_per_s, history.tx_bytes_per_s)
    headroom = value_graph("memory left", "memory", history.headroom_gib, " GiB")
    ports = view.sample.network if view.sample is not None else ()
    rdma = [_traffic_graph("RDMA", history.rdma_rx_bytes_per_s, history.rdma_tx_bytes_per_s)]
    rdma = rdma if any(port.kind == RDMA for port in ports) else []
    if view.sample is not None and not view.sample.gpus:
        return [cpu, memory, network, headroom, *rdma]
    clock, heat = gpu_graphs(history)
    return [
        percent_graph([("GPU", "gpu")], history.gpu_percent, "gpu"),
        value_graph("power", "waiting", history.power_w, " W", 10.0),
        clock,
        heat,
        headroom,
        percent_graph(
            [("throttled", "waiting"), label(" between polls")], history.throttled_percent, "waiting"
        ),
        cpu,
        *rdma,
        memory,
        network,
    ]


def _traffic_graph(name: str, rx: Series, tx: Series) -> Graph:
    """Return a graph of bytes per second: received above the centre line, sent below it."""
    return Graph(
        [label(f"{name} "), ("▲in ", "prompt"), ("▼out", "generation")],
        rx,
        "prompt",
        lambda top: numbers.data_rate(top, 9).strip(),
        1000.0,
        over=tx,
        over_gradient="generation",
        mirror=True,
    )


# Machines compared: what differs, in what they are alike, and what is not known.


_COMPARED = frozenset({DIFFER, SETUP, "slow-link"})
"""Kinds of findings that come from comparing machines."""


def machines_screen(snapshot: Snapshot, width: int, height: int, *, selected: bool = False) -> list[Row]:
    """Draw the groups of machines that are compared, in at least `height` rows."""
    inner = width - 4
    sections = list(_group_sections(snapshot, inner))
    unknown = [view.name for view in snapshot.nodes if view.identity.setup is None]
    note = "" if sections else "one machine alone has nothing to be compared with"
    if unknown:
        note = f"{', '.join(unknown)}: set-up unknown (an older agent, or read through a Prometheus)"
    sections += [ViewSection("not compared", _muted_lines(note, inner))] if note else []
    rows = [[label(" "), *row] for row in stack(sections, inner, height - 2)]
    return frame_rows(
        rows,
        width,
        max(height, len(rows) + 2),
        role=frame_role("node", selected=selected),
        title=name_tab("machines", "", "machines compared"),
    )


def _group_sections(snapshot: Snapshot, width: int) -> Iterator[ViewSection]:
    """Yield a section for each group of two machines or more; a finding stands in the first that it fits."""
    backends = {backend.name: backend for backend in snapshot.backends}
    nodes = {node.name: node for node in snapshot.nodes}
    now = Situation(snapshot.at, snapshot.taken_at, backends, nodes, snapshot.routers)
    listed_keys: set[tuple[str, str, str]] = set()
    for group in groups_of(now):
        if len(group.machines) < 2:
            continue
        engine = backends.get(group.engine or "")
        views: list[BackendView | NodeView] = [*([] if engine is None else [engine]), *group.machines]
        by_key = {(each.subject, each.kind, each.key): each for view in views for each in view.findings}
        findings = [
            finding for key, finding in by_key.items() if finding.kind in _COMPARED and key not in listed_keys
        ]
        listed_keys |= by_key.keys()
        title = f"machines {', '.join(group.names)}"
        title = title if group.engine is None else f"server {group.engine} on {title}"
        differing = sum(finding.kind == DIFFER for finding in findings)
        counts = {"differ": differing, "to mend": len(findings) - differing, "alike": len(alike_in(group))}
        summary = ", ".join(f"{count} {word}" for word, count in counts.items() if count or word == "alike")
        yield ViewSection(title, list(_group_rows(group, findings, width)), summary)


def _group_rows(group: MachineGroup, findings: Sequence[Finding], width: int) -> Iterator[Row]:
    for section in findings_section(findings, width):
        yield from section.rows
    unknown = [
        f"{title} of {', '.join(names)}" if len(names) < len(group.machines) else title
        for title, names in unknown_in(group).items()
    ]
    columns = (("alike", "text", alike_in(group)), ("not known", "muted", unknown))
    for name, role, pieces in columns:
        for index, row in enumerate(flow_pieces([[(piece, role)] for piece in pieces], width - 12)):
            yield [label("" if index else f"  {name}", 12), *row]


def _muted_lines(text: str, width: int) -> list[Row]:
    return [fit_row([(line, "muted")], width) for line in wrap_sentence(text, width)]
