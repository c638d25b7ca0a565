"""Everything that is known of one machine, as sections of figures."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics import numbers
from sparktop.graphics.bars import sparkrow
from sparktop.graphics.cells import fit
from sparktop.graphics.numbers import tick
from sparktop.model.node import (
    CpuReading,
    GpuProcess,
    GpuReading,
    MemoryReading,
    NetworkReading,
    NodeSample,
    SensorReading,
)
from sparktop.panels.figures import bar_runs, figure, label, share_role
from sparktop.panels.node import used_percent
from sparktop.panels.rows import Row, fit_row
from sparktop.panels.sections import (
    WIDE_FACTS,
    Part,
    Section,
    bar_row,
    beside,
    legend,
    name_width,
    percent_run,
    segmented_bar,
)

NOW = "now"
_GIB = 2**30
_CORE_WIDTH = 15
_MOST_CORE_BARS = 48
"""With more cores than this a bar each would fill the screen: they become one column each."""
_MOST_PROCESSES = 8
"""Processes listed a GPU; the rest is counted."""
_TAIL = 22
"""Cells of the figures behind a GPU's bars."""
_WARM_C, _HOT_C = 10.0, 4.0
"""Degrees left to the thermal limit from which on they are drawn as a warning."""


def node_sections(sample: NodeSample, width: int) -> list[Section]:
    """Give the sections for a column of `width` cells, the most telling first."""
    sections = [Section(_gpu_title(gpu, len(sample.gpus)), _gpu(gpu, width), NOW) for gpu in sample.gpus] or [
        Section("GPU", [[label(sample.gpu_note or "–")]])
    ]
    memory = sample.memory
    name = "unified memory" if memory.unified else "memory"
    cores = sample.cpu.cores or len(sample.cpu.core_percent)
    processor = f"processor · {cores} cores" if cores else "processor"
    return [
        *sections,
        Section(name, _memory(memory, width), "from huge pages" if memory.huge_pages else NOW),
        Section(processor, _cpu(sample.cpu, width), "since the last look"),
        Section("GPU processes", _processes(sample.gpus, memory.total_bytes, width), "memory"),
    ]


def node_aside(sample: NodeSample, width: int) -> list[Section]:
    """Give the sections that may stand below the graphs: network and sensors."""
    return [
        Section("network", _network(sample.network, width), "since the last look"),
        Section("sensors", _sensors(sample.sensors, width), "now / critical"),
    ]


def _gpu_title(gpu: GpuReading, count: int) -> str:
    return f"{f'GPU {gpu.index}' if count > 1 else 'GPU'} · {gpu.name or '–'}"


def _gpu(gpu: GpuReading, width: int) -> list[Row]:
    use, power, limit = gpu.utilization_percent, gpu.power_w, gpu.power_limit_w
    clock, fastest = gpu.sm_clock_mhz, gpu.sm_clock_max_mhz
    rows = [
        bar_row("load", None if use is None else use / 100, "gpu", percent_run(use, 6), width, _TAIL),
        _temperature(gpu, width),
        bar_row(
            "clock",
            _share(clock, fastest),
            "cpu",
            [figure(numbers.count(clock, 6), known=clock is not None), label(_of(fastest, " MHz"))],
            width,
            _TAIL,
        ),
        _power(power, limit, width),
    ]
    if gpu.memory_total_bytes is not None or gpu.memory_used_bytes is not None:
        used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
        after: Row = [
            figure(numbers.data(used, 9), known=used is not None),
            label(f" of {numbers.data(total, 9).strip()}"),
        ]
        rows.append(bar_row("memory", _share(used, total), "memory", after, width, _TAIL))
    return [*rows, *_throttling(gpu, width)]


def _power(power: float | None, limit: float | None, width: int) -> Row:
    """Give the power, against its limit where the driver tells one (a GB10's does not)."""
    watts = figure(numbers.rate(power, 6), known=power is not None)
    if limit is None:
        return [label("power", width - _TAIL), watts, label(" W, limit –")]
    return bar_row("power", _share(power, limit), "load", [watts, label(_of(limit, " W"))], width, _TAIL)


def _temperature(gpu: GpuReading, width: int) -> Row:
    """Give the temperature against the thermal limit: the limit is what the margin leaves of it."""
    heat, margin = gpu.temperature_c, gpu.limit_margin_c
    limit = None if heat is None or margin is None else heat + margin
    role = "title" if margin is None or margin > _WARM_C else "warn" if margin > _HOT_C else "bad"
    after: Row = [figure(numbers.count(heat, 6), known=heat is not None, role=role), label(" °C")]
    after += (
        [label(", margin –")]
        if margin is None
        else [label(", "), (f"{margin:.0f}", role), label(" to limit")]
    )
    return bar_row("heat", _share(heat, limit or 100.0), "load", after, width, _TAIL)


def _throttling(gpu: GpuReading, width: int) -> list[Row]:
    """Give what slows the GPU now, and the share of the time since the last look that each reason took."""
    reasons = gpu.throttle_reasons
    words = "not told by the driver" if reasons is None else ", ".join(reasons) or "nothing slows it down"
    rows: list[Row] = [[label("throttled", name_width(width)), (words, "bad" if reasons else "muted")]]
    each = width // 2
    cells = [
        fit_row(
            [
                label(_short_reason(reason), each - 6),
                *percent_run(percent, 4, role="warn" if percent else "title"),
            ],
            each,
        )
        for reason, percent in gpu.throttled_percent.items()
    ]
    return rows + beside(cells, 2)


def _short_reason(reason: str) -> str:
    return reason.replace("software", "sw").replace("hardware", "hw")


def _memory(memory: MemoryReading, width: int) -> list[Row]:
    percent, used, total = used_percent(memory), memory.used_bytes, memory.total_bytes
    head: Row = [
        label("used", name_width(width)),
        figure(numbers.data(used, 9).strip(), known=used is not None),
        label(" of "),
        figure(numbers.data(total, 9).strip(), known=total is not None),
        (f" {numbers.percent(percent, 4)}", share_role(percent, 85, 93)),
    ]
    rows = [head]
    parts = memory_parts(memory)
    if total and parts:
        rows += [segmented_bar(parts, total, width), *legend(parts, width)]
    return [*rows, *_pressure(memory, width)]


def memory_parts(memory: MemoryReading) -> list[Part]:
    """Give what the memory is used for, adding up to all of it; what is free comes last.

    Programs on the GPU are part of it on unified memory only. What a part would take beyond what is used or
    available is left out of the next ones, so the bar never holds more than there is.
    """
    total, used = memory.total_bytes, memory.used_bytes
    if total is None or used is None:
        return []
    left = used
    gpu = None
    if memory.unified and memory.gpu_processes_bytes is not None:
        gpu = min(left, memory.gpu_processes_bytes)
        left -= gpu
    unknown = None if memory.unattributed_bytes is None else min(left, memory.unattributed_bytes)
    left -= unknown or 0
    free = max(0, total - used)
    cma = None if memory.cma_free_bytes is None else min(free, memory.cma_free_bytes)
    free -= cma or 0
    cache = None if memory.page_cache_bytes is None else min(free, memory.page_cache_bytes)
    free -= cache or 0
    parts = [
        Part("GPU programs", gpu, "█", "gpu/4"),
        Part("programs", left, "▓", "cpu/6"),
        Part("unattributed", unknown, "▚", "waiting/12"),
        Part("page cache", cache, "▒", "memory/6"),
        Part("CMA free", cma, "░", "network/8"),
        Part("free", free, "·", "bar_empty"),
    ]
    return [part for part in parts if memory.unified or part.name not in {"GPU programs", "CMA free"}]


def _pressure(memory: MemoryReading, width: int) -> list[Row]:
    headroom, swap = memory.headroom_bytes, memory.swap_total_bytes
    rows: list[Row] = [
        [
            label("headroom", name_width(width)),
            figure(numbers.data(headroom, 9).strip(), known=headroom is not None),
            label(_headroom_sum(memory)),
        ]
    ]
    if swap == 0:
        rows.append([label("swap", name_width(width)), label("none")])
    else:
        rows.append(
            [
                label("swap", name_width(width)),
                figure(
                    numbers.data(memory.swap_used_bytes, 9).strip(), known=memory.swap_used_bytes is not None
                ),
                label(f" of {numbers.data(swap, 9).strip()}" if width >= WIDE_FACTS else ""),
                *_rate("  in ", memory.swap_in_bytes_per_s),
                *_rate("  out ", memory.swap_out_bytes_per_s),
            ]
        )
    waited = memory.pressure_full_avg10
    rows.append(
        [
            label("pressure", name_width(width)),
            *percent_run(waited, 0 if waited is None else 4, role="bad" if waited else "title"),
            label("–" if waited is None else " of 10 s: all waited for memory"),
        ]
    )
    return rows


def _headroom_sum(memory: MemoryReading) -> str:
    """Give what the headroom is made of: memory for CMA counts as available, yet programs cannot have it."""
    if memory.available_bytes is None:
        return ""
    words = f" = {memory.available_bytes / _GIB:.1f} available"
    return f"{words} − {memory.cma_free_bytes / _GIB:.1f} CMA" if memory.cma_free_bytes else words


def _rate(name: str, value: float | None) -> Row:
    return [label(name), figure(numbers.data_rate(value, 9).strip(), known=value is not None)]


def _cpu(cpu: CpuReading, width: int) -> list[Row]:
    percent = cpu.percent
    after: Row = [
        *percent_run(percent, 6),
        label("  load "),
        figure(numbers.rate(cpu.load1, 5).strip(), known=cpu.load1 is not None),
    ]
    rows = [bar_row("all cores", None if percent is None else percent / 100, "cpu", after, width, _TAIL)]
    cores = cpu.core_percent
    if len(cores) > _MOST_CORE_BARS:
        each = width - 10
        for start in range(0, len(cores), each):
            part = cores[start : start + each]
            span = f"{start}–{start + len(part) - 1}"
            rows.append([label(span, 10), (sparkrow(part, len(part), 100.0), "cpu")])
        return rows
    columns = max(1, width // _CORE_WIDTH)
    down = -(-len(cores) // columns)
    for line in range(down):
        row: Row = []
        for index in range(line, len(cores), down):
            row += fit_row(_core(index, cores[index], width // columns), width // columns)
        rows.append(row)
    return rows


def _core(index: int, percent: float, width: int) -> Row:
    return [
        label(f"{index:>2} "),
        *bar_runs(percent / 100, width - 9, "cpu"),
        figure(numbers.percent(percent, 5)),
        (" ", "text"),
    ]


def _processes(gpus: Sequence[GpuReading], total: int | None, width: int) -> list[Row]:
    rows: list[Row] = []
    for gpu in gpus:
        told = gpu.processes
        if told is None:
            rows.append([label("not told by the driver")])
            continue
        room = gpu.memory_total_bytes or total
        largest = sorted(told, key=lambda one: (-(one.memory_bytes or 0), one.pid))
        shown = largest if len(largest) <= _MOST_PROCESSES else largest[: _MOST_PROCESSES - 1]
        prefix = f"{gpu.index} " if len(gpus) > 1 else ""
        rows += [_process(one, room, prefix, width) for one in shown]
        if len(shown) < len(largest):
            rows.append([label(f"… and {len(largest) - len(shown)} more")])
    return rows or [[label("none")]]


def _process(process: GpuProcess, room: int | None, prefix: str, width: int) -> Row:
    name = 24 if width >= WIDE_FACTS else 20
    bar = max(4, width - name - 20 - len(prefix))
    return [
        label(prefix),
        label(f"{process.pid:>8} "),
        (fit(process.name, name), "text"),
        (" ", "text"),
        *bar_runs(_share(process.memory_bytes, room), bar, "gpu"),
        figure(numbers.data(process.memory_bytes, 10), known=process.memory_bytes is not None),
    ]


def _network(links: Sequence[NetworkReading], width: int) -> list[Row]:
    if not links:
        return [[label("no interface")]]
    wide = width >= 60
    rates, speed, errors = (11, 9, 8) if wide else (10, 8, 4)
    name_width = width - 2 * rates - speed - errors - (6 if wide else 0)
    head = f"{'interface':<{name_width}}{'in':>{rates}}{'out':>{rates}}{'link':>{speed}}"
    head += f"{'errors':>{errors}}  kind" if wide else f"{'err':>{errors}}"
    # Up before down, each in the kernel's order: rows that follow the traffic would jump.
    order = sorted(links, key=lambda one: one.up is False)
    cells = (name_width, rates, speed, errors)
    return [[label(head)], *(_link(link, cells, wide=wide) for link in order)]


def _link(link: NetworkReading, cells: tuple[int, int, int, int], *, wide: bool) -> Row:
    name_width, rates, speed, errors = cells
    name = (fit(link.name, name_width - 1) + " ", "text")
    if link.up is False:
        return [name, label("down".rjust(rates))]
    bits, failed = link.link_bits_per_s, link.errors_per_s
    row: Row = [
        name,
        *(
            figure(numbers.data_rate(value, rates - 1).rjust(rates), known=value is not None)
            for value in (link.rx_bytes_per_s, link.tx_bytes_per_s)
        ),
        label(numbers.UNKNOWN.rjust(speed) if bits is None else f"{tick(bits)}b/s".rjust(speed)),
        figure(numbers.count(failed, errors), known=failed is not None, role="bad" if failed else "muted"),
    ]
    return [*row, label(f"  {'eth' if link.kind == 'ethernet' else link.kind}")] if wide else row


def _sensors(sensors: Sequence[SensorReading], width: int) -> list[Row]:
    if not sensors:
        return [[label("none")]]
    each = width // 2
    cells = [fit_row(_sensor(sensor, each), each) for sensor in sensors]
    return beside(cells, 2)


def _sensor(sensor: SensorReading, width: int) -> Row:
    heat, critical = sensor.temperature_c, sensor.critical_c
    role = "title" if critical is None else share_role(100 * heat / critical, 90, 98)
    return [
        (fit(sensor.name, width - 12), "text"),
        figure(numbers.count(heat, 4), role=role),
        label(f"/{critical:.0f} °C" if critical is not None else " °C"),
    ]


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _of(whole: float | None, unit: str) -> str:
    return unit if whole is None else f" of {numbers.count(whole, 5).strip()}{unit}"
