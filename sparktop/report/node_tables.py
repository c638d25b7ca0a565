"""Nodes as tables."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics import numbers
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.node import GpuReading, NodeSample
from sparktop.model.snapshot import NodeView
from sparktop.report import cell
from sparktop.report.table import Column, Kind, Table


def machines(nodes: Sequence[NodeView]) -> Table:
    """Give the nodes' processors and memory."""
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


def gpus(nodes: Sequence[NodeView]) -> Table:
    """Give every GPU; a node without one has a line that says why."""
    columns = (
        Column("node", Kind.NAME),
        Column("GPU", Kind.NAME),
        Column("use"),
        Column("power"),
        Column("temp."),
        Column("SM clock"),
        Column("memory"),
        Column("throttled", Kind.NAME),
    )
    rows = []
    for node in nodes:
        found = node.sample.gpus if node.sample else ()
        rows += [(cell.name(node.name), *_gpu_cells(gpu)) for gpu in found]
        if not found and node.sample and node.sample.gpu_note:
            rows.append(
                (cell.name(node.name), cell.name(node.sample.gpu_note), *[UNKNOWN] * (len(columns) - 2))
            )
    return Table("GPUs", columns, tuple(rows))


def _gpu_cells(gpu: GpuReading) -> tuple[str, ...]:
    reasons = gpu.throttle_reasons
    return (
        cell.name(gpu.name or f"GPU {gpu.index}"),
        cell.percent(gpu.utilization_percent),
        cell.with_unit(gpu.power_w, "W"),
        cell.with_unit(gpu.temperature_c, "°C"),
        numbers.clock_mhz(gpu.sm_clock_mhz).strip(),
        cell.data(gpu.memory_used_bytes),
        UNKNOWN if reasons is None else cell.name(", ".join(reasons) or "no"),
    )


def links(nodes: Sequence[NodeView]) -> Table:
    """Give the network interfaces that are up."""
    columns = (
        Column("node", Kind.NAME),
        Column("interface", Kind.NAME),
        Column("kind", Kind.NAME),
        Column("received"),
        Column("sent"),
        Column("link Gb/s"),
        Column("errors/s"),
    )
    rows = (
        (
            cell.name(node.name),
            cell.name(link.name),
            cell.name(link.kind),
            numbers.data_rate(link.rx_bytes_per_s, 12).strip(),
            numbers.data_rate(link.tx_bytes_per_s, 12).strip(),
            UNKNOWN if link.link_bits_per_s is None else f"{link.link_bits_per_s / 1e9:g}",
            cell.rate(link.errors_per_s),
        )
        for node in nodes
        for link in (node.sample.network if node.sample else ())
        if link.up is not False
    )
    return Table("Network", columns, tuple(rows))


def sensors(nodes: Sequence[NodeView]) -> Table:
    """Give the temperature sensors beside the GPUs'."""
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
