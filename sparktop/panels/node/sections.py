"""All readings of one machine, as sections of its full-screen view."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics import numbers
from sparktop.graphics.bars import sparkrow
from sparktop.graphics.cells import fit
from sparktop.model.node import CoreGroup, CpuReading, NodeSample, PowerRail, SensorReading
from sparktop.model.snapshot import NodeView
from sparktop.panels.node.gpu.sections import gpu_sections, speed_section
from sparktop.panels.node.memory_bar import memory_section
from sparktop.panels.node.network import network_sections
from sparktop.panels.node.processes import process_lines
from sparktop.panels.parts.figures import bar_runs, figure, label, share_role
from sparktop.panels.parts.gpu_figures import energy_text
from sparktop.panels.parts.rows import Row, fit_row
from sparktop.panels.parts.sections import WIDE_FACTS, Section, bar_row, beside, percent_run

_EMPTY = NodeSample(at=0.0)
_CORE_WIDTH = 15
_MOST_CORE_BARS = 48
"""Most cores that get a bar each; if there are more, each core is one column of a row."""
_TAIL = 22
"""Width in cells of the values to the right of the CPU's bars."""


def node_sections(view: NodeView, width: int) -> list[Section]:
    """Return the main sections (GPU, memory, processor) for a column of `width` cells."""
    sample = view.sample or _EMPTY
    cores = sample.cpu.cores or len(sample.cpu.core_percent)
    processor = f"processor · {cores} cores" if cores else "processor"
    return [
        *gpu_sections(view, width),
        memory_section(sample.memory, view.headroom, width, process_lines(view)),
        Section(processor, _cpu(sample.cpu, width), "since the last poll"),
    ]


def node_aside(view: NodeView, width: int) -> list[Section]:
    """Return the sections that may stand below a node's graphs: network, sensors, RDMA, power, speed."""
    sample = view.sample or _EMPTY
    rails = [Section("power rails", _rails(sample.rails, width), "now")] if sample.rails else []
    if not sample.network:
        network, rdma = Section("network", [_nothing(view, "no interface")]), []
    else:
        network, *rdma = network_sections(sample.network, width)
    # A wide screen has two columns: the two tall sections first, each with a low one below it.
    return [
        network,
        Section("sensors", _sensors(sample.sensors, width) or [_nothing(view, "none")], "now / critical"),
        *rdma,
        *rails,
        *speed_section(view, width),
    ]


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
        rows += [_group(group, width) for group in cpu.groups]
        each = width - 10
        for start in range(0, len(cores), each):
            part = cores[start : start + each]
            span = f"{start}–{start + len(part) - 1}"
            rows.append([label(span, 10), (sparkrow(part, len(part), 100.0), "cpu")])
        return rows
    grouped = {core for group in cpu.groups for core in group.cores}
    for group in cpu.groups:
        rows += [_group(group, width), *_core_rows(cores, group.cores, width)]
    return rows + _core_rows(cores, [core for core in range(len(cores)) if core not in grouped], width)


def _group(group: CoreGroup, width: int) -> Row:
    """Return a row for a group of CPU cores of the same design: number, mean use and highest frequency."""
    fastest = "" if group.max_mhz is None else f"  max {group.max_mhz / 1000:.1f} GHz"
    name = fit(f"{len(group.cores)} × {group.name}", 19 if width >= WIDE_FACTS else 17)
    share = None if group.percent is None else group.percent / 100
    length = max(4, width - len(name) - 1 - 6 - 13)
    return [
        (name + " ", "text"),
        *bar_runs(share, length, "cpu"),
        *percent_run(group.percent, 6),
        label(fastest),
    ]


def _core_rows(cores: Sequence[float], indices: Sequence[int], width: int) -> list[Row]:
    """Return rows with a bar for each CPU core of `indices`; cores without a reading are left out."""
    known = [core for core in indices if core < len(cores)]
    if not known:
        return []
    columns = max(1, width // _CORE_WIDTH)
    down = -(-len(known) // columns)
    rows: list[Row] = []
    for line in range(down):
        row: Row = []
        for core in known[line::down]:
            row += fit_row(_core(core, cores[core], width // columns), width // columns)
        rows.append(row)
    return rows


def _core(index: int, percent: float, width: int) -> Row:
    return [
        label(f"{index:>2} "),
        *bar_runs(percent / 100, width - 9, "cpu"),
        figure(numbers.percent(percent)),
        (" ", "text"),
    ]


def _nothing(view: NodeView, words: str) -> Row:
    """Return the text `words` (such as "no interface") as a row; "–" where that is not known.

    It is not before the node's first sample, nor through a Prometheus.
    """
    return [label("–" if view.sample is None or view.scrape is not None else words)]


def _sensors(sensors: Sequence[SensorReading], width: int) -> list[Row]:
    each = width // 2
    cells = [fit_row(_sensor(sensor, each), each) for sensor in sensors]
    return beside(cells, 2)


def _sensor(sensor: SensorReading, width: int) -> Row:
    heat, critical = sensor.temperature_c, sensor.critical_c
    role = "text" if not critical else share_role(100 * heat / critical, 90, 98)
    return [
        (fit(sensor.name, width - 12), "text"),
        figure(numbers.count(heat, 4), role=role),
        label(f"/{critical:.0f} °C" if critical is not None else " °C"),
    ]


def _rails(rails: Sequence[PowerRail], width: int) -> list[Row]:
    each = width // 2
    cells = [fit_row(_rail(rail, each), each) for rail in rails]
    return beside(cells, 2)


def _rail(rail: PowerRail, width: int) -> Row:
    wide = width >= WIDE_FACTS // 2
    energy = "" if rail.energy_j is None or not wide else f" {energy_text(rail.energy_j)}"
    names = max(6, width - (18 if wide else 10))
    return [
        (fit(rail.name, names), "text"),
        figure(numbers.rate(rail.power_w, 6), known=rail.power_w is not None),
        label(f" W{energy}"),
    ]


def identity_words(view: NodeView) -> str:
    """Return manufacturer and CPU of the machine as text; empty if both are unknown."""
    identity = view.identity
    return " · ".join(part for part in (identity.maker, identity.cpu) if part)
