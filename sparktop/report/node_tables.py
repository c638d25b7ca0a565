"""Tables of nodes, for HTML and Markdown reports."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics import numbers
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.node import GpuReading, MigInstance, NodeSample
from sparktop.model.snapshot import NodeView
from sparktop.panels.machine.processes import ProcessOrder, listed, process_lines
from sparktop.report import cell
from sparktop.report.table import Column, Kind, Table


def machines(nodes: Sequence[NodeView]) -> Table:
    """Return a table of CPU and memory, one row per node."""
    columns = (
        Column("node", Kind.NAME),
        Column("CPU"),
        Column("load"),
        Column("memory"),
        Column("of"),
        Column("headroom"),
        Column("swap"),
        Column("GPU memory", Kind.WORD),
    )
    rows = []
    for node in nodes:
        sample = node.sample or NodeSample(at=0.0)
        memory = sample.memory
        shared = {True: "shared", False: "its own", None: UNKNOWN}[memory.unified]
        rows.append(
            (
                cell.name(node.name),
                cell.percent(sample.cpu.percent),
                cell.rate(sample.cpu.load1),
                cell.data(memory.used_bytes),
                cell.data(memory.total_bytes),
                cell.data(memory.headroom_bytes),
                cell.data(memory.swap_used_bytes),
                shared,
            )
        )
    return Table("Nodes", columns, tuple(rows))


def gpus(nodes: Sequence[NodeView], *, detailed: bool = False) -> Table:
    """Return a table of GPUs, one row each, lost GPUs too; a node without GPUs has a row with the reason.

    `detailed` adds columns and the rows of MIG instances.
    """
    columns = (
        Column("node", Kind.NAME),
        Column("GPU", Kind.NAME),
        Column("use"),
        Column("power"),
        Column("temp."),
        *((Column("to limit"), Column("energy")) if detailed else ()),
        Column("SM clock"),
        *((Column("of"),) if detailed else ()),
        Column("memory"),
        Column("throttled", Kind.NAME),
    )
    rows = []
    for node in nodes:
        found = node.sample.gpus if node.sample else ()
        for gpu in found:
            rows.append((cell.name(node.name), *_gpu_cells(gpu, detailed=detailed)))
            if detailed:
                rows += [_instance_cells(node.name, gpu, each, len(columns)) for each in gpu.mig_instances]
        for gone in node.gpus_lost:
            name = f"GPU {gone.index} {gone.name or ''}".strip()
            reason = cell.name(f"LOST: {gone.reason or 'no reason given'}")
            rows.append((cell.name(node.name), cell.name(name), *[UNKNOWN] * (len(columns) - 3), reason))
        if not found and not node.gpus_lost and node.sample and node.sample.gpu_note:
            rows.append(
                (cell.name(node.name), cell.name(node.sample.gpu_note), *[UNKNOWN] * (len(columns) - 2))
            )
    return Table("GPUs", columns, tuple(rows))


def _gpu_cells(gpu: GpuReading, *, detailed: bool) -> tuple[str, ...]:
    reasons = gpu.throttle_reasons
    energy = UNKNOWN if gpu.energy_j is None else f"{gpu.energy_j / 3.6e6:.1f} kWh"
    return (
        cell.name(gpu.name or f"GPU {gpu.index}"),
        cell.percent(gpu.utilization_percent),
        cell.with_unit(gpu.power_w, "W"),
        cell.with_unit(gpu.temperature_c, "°C"),
        *((cell.with_unit(gpu.limit_margin_c, "°C"), energy) if detailed else ()),
        numbers.clock_mhz(gpu.sm_clock_mhz).strip(),
        *((numbers.clock_mhz(gpu.sm_clock_max_mhz).strip(),) if detailed else ()),
        cell.data(gpu.memory_used_bytes),
        UNKNOWN if reasons is None else cell.name(", ".join(reasons) or "no"),
    )


def _instance_cells(node: str, gpu: GpuReading, instance: MigInstance, columns: int) -> tuple[str, ...]:
    """Return the table row of a MIG instance, with `columns` cells; only the instance's memory is known."""
    name = f"GPU {gpu.index} MIG {instance.index} {instance.name or ''}"
    blank = [UNKNOWN] * (columns - 4)
    return cell.name(node), cell.name(name), *blank, cell.data(instance.memory_used_bytes), UNKNOWN


def speeds(nodes: Sequence[NodeView], *, only_slow: bool = False) -> Table:
    """Return a table of how fast each node's GPUs run for their load, and why.

    With `only_slow`, the table has only nodes with a known cause of slowness.
    """
    columns = (
        Column("node", Kind.NAME),
        Column("speed", Kind.WORD),
        Column("because", Kind.NAME),
        Column("likely", Kind.NAME),
        Column("to do", Kind.NAME),
    )
    rows = (
        (
            cell.name(node.name),
            node.speed.word,
            cell.name(node.speed.reason),
            cell.name(node.speed.cause),
            cell.name(node.speed.fix),
        )
        for node in nodes
        if (node.speed.cause if only_slow else node.sample is not None and node.sample.gpus)
    )
    return Table("Speed", columns, tuple(rows))


def memory_parts(nodes: Sequence[NodeView]) -> Table:
    """Return a table of the parts of each node's memory, with their shares of the total.

    A row follows for memory that was counted twice and subtracted.
    """
    columns = (Column("node", Kind.NAME), Column("memory", Kind.NAME), Column("size"), Column("share"))
    rows: list[tuple[str, ...]] = []
    for node in nodes:
        memory = node.sample.memory if node.sample is not None else None
        if memory is None or not memory.total_bytes:
            continue
        name, total = cell.name(node.name), memory.total_bytes
        rows += [
            (
                name,
                cell.name(part.name),
                cell.data(part.size_bytes),
                cell.percent(100 * part.size_bytes / total),
            )
            for part in memory.parts
        ]
        if memory.overlap_bytes:
            rows.append((name, "counted twice, cut", cell.data(memory.overlap_bytes), UNKNOWN))
    return Table("Memory", columns, tuple(rows))


def trends(nodes: Sequence[NodeView]) -> Table:
    """Return a table of how fast memory headroom shrinks or grows, for the nodes where that is known."""
    columns = (
        Column("node", Kind.NAME),
        Column("headroom"),
        Column("a minute"),
        Column("limit"),
        Column("limit in"),
    )
    rows = (
        (
            cell.name(node.name),
            cell.data(node.sample.memory.headroom_bytes if node.sample else None),
            f"{numbers.MINUS if slope < 0 else '+'}{cell.data(abs(slope) * 60)}",
            cell.data(node.headroom.limit_bytes),
            numbers.age(node.headroom.until_limit_s),
        )
        for node in nodes
        if (slope := node.headroom.slope_bytes_per_s) is not None
    )
    return Table("Headroom", columns, tuple(rows))


def links(nodes: Sequence[NodeView]) -> Table:
    """Return a table of the network interfaces and RDMA ports that are not down: rates and capacities."""
    columns = (
        Column("node", Kind.NAME),
        Column("interface", Kind.NAME),
        Column("kind", Kind.NAME),
        Column("received"),
        Column("sent"),
        Column("link Gb/s"),
        Column("bus Gb/s"),
        Column("errors/s"),
        Column("which", Kind.NAME),
    )
    rows = (
        (
            cell.name(node.name),
            cell.name(link.name),
            cell.name(link.kind),
            numbers.data_rate(link.rx_bytes_per_s, 12).strip(),
            numbers.data_rate(link.tx_bytes_per_s, 12).strip(),
            _gbit(link.link_bits_per_s),
            _gbit(link.bus_bits_per_s),
            cell.rate(link.errors_per_s),
            cell.name(", ".join(f"{name} {cell.rate(rate)}" for name, rate in link.errors.items())),
        )
        for node in nodes
        for link in (node.sample.network if node.sample else ())
        if link.up is not False
    )
    return Table("Network", columns, tuple(rows))


def _gbit(bits_per_s: float | None) -> str:
    return UNKNOWN if bits_per_s is None else f"{bits_per_s / 1e9:.4g}"


def processes(nodes: Sequence[NodeView], most: int) -> Table:
    """Return a table of the processes that use most GPU memory, at most `most` rows per node.

    Where any of them is in a container, there is a column with its name or ID.
    """
    found = [(node, line) for node in nodes for line in listed(process_lines(node), ProcessOrder())[:most]]
    boxed = any(line.container for _, line in found)
    columns = (
        Column("node", Kind.NAME),
        Column("pid"),
        Column("process", Kind.NAME),
        Column("serves", Kind.NAME),
        *((Column("container", Kind.NAME),) if boxed else ()),
        Column("GPU memory"),
        Column("memory"),
        Column("CPU"),
    )
    rows = (
        (
            cell.name(node.name),
            str(line.pid),
            cell.name(line.full_name),
            cell.name(line.serves),
            *((cell.name(line.container),) if boxed else ()),
            cell.data(line.gpu_bytes),
            cell.data(line.memory_bytes),
            cell.percent(line.cpu_percent),
        )
        for node, line in found
    )
    return Table("Processes", columns, tuple(rows))


def rails(nodes: Sequence[NodeView]) -> Table:
    """Return a table of the measured power rails, one row each."""
    columns = (Column("node", Kind.NAME), Column("rail", Kind.NAME), Column("power"), Column("energy"))
    rows = (
        (
            cell.name(node.name),
            cell.name(one.name),
            UNKNOWN if one.power_w is None else f"{cell.rate(one.power_w)} W",
            UNKNOWN if one.energy_j is None else f"{one.energy_j / 3600:.1f} Wh",
        )
        for node in nodes
        for one in (node.sample.rails if node.sample else ())
    )
    return Table("Power rails", columns, tuple(rows))


def sensors(nodes: Sequence[NodeView]) -> Table:
    """Return a table of the temperature sensors other than those of the GPUs, one row each."""
    columns = (Column("node", Kind.NAME), Column("sensor", Kind.NAME), Column("temp."), Column("critical"))
    rows = (
        (
            cell.name(node.name),
            cell.name(one.name),
            cell.with_unit(one.temperature_c, "°C"),
            cell.with_unit(one.critical_c, "°C"),
        )
        for node in nodes
        for one in (node.sample.sensors if node.sample else ())
    )
    return Table("Sensors", columns, tuple(rows))
