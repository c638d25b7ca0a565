"""Sentences of the plain-text report below a node's row: memory, GPUs, RDMA and problems."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.graphics import numbers
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.node import GpuReading, LostGpu, NodeSample
from sparktop.model.snapshot import NodeView
from sparktop.model.text import clean
from sparktop.panels.machine.processes import process_lines
from sparktop.report import cell

_QUIET = frozenset({"unknown", "idle", "normal"})


def node_sentences(node: NodeView) -> Iterator[str]:
    """Yield the sentences of the plain-text report about a node."""
    sample = node.sample
    if sample is None:
        return
    yield from _reader(node)
    yield from _memory(node, sample)
    if not sample.gpus and sample.gpu_note:
        yield f"GPU: {sample.gpu_note}"
    for lost in node.gpus_lost:
        yield loss_line(lost)
    for gpu in sample.gpus:
        yield _gpu(gpu, f"GPU {gpu.index}" if len(sample.gpus) > 1 or node.gpus_lost else "GPU")
    for line in process_lines(node):
        if line.of_engine:
            box = f", container {line.container}" if line.container else ""
            memory = "" if line.gpu_bytes is None else f", {cell.data(line.gpu_bytes)} of the GPU"
            yield f"process {line.pid}: {line.full_name}{box}{memory}"
    ports = [link for link in sample.network if link.kind == "rdma" and link.up is not False]
    for port in ports:
        rates = (port.rx_bytes_per_s, port.tx_bytes_per_s)
        received, sent = (numbers.data_rate(rate, 12).strip() for rate in rates)
        failed = ", ".join(f"{name} {cell.rate(rate)}/s" for name, rate in port.errors.items())
        yield f"RDMA {port.name}: {received} in, {sent} out{f'; {failed}' if failed else ''}"
    speed = node.speed
    if speed.word not in _QUIET:
        yield f"speed: {': '.join(part for part in (speed.word, speed.reason) if part)}"
        if speed.cause:
            yield f"likely: {speed.cause}{f'; to do: {speed.fix}' if speed.fix else ''}"


def loss_line(gpu: LostGpu) -> str:
    """Return a sentence that names a lost GPU and the reason."""
    return f"{gpu.label} is LOST: {gpu.reason or 'the driver gives no reason'}"


def _reader(node: NodeView) -> Iterator[str]:
    """Yield a sentence with the full digest of the reader that ssh sent to the node, if it sent one."""
    if node.identity.reader_sha256 is not None:
        yield f"reader: sent over ssh, SHA-256 {node.identity.reader_sha256}"


def _memory(node: NodeView, sample: NodeSample) -> Iterator[str]:
    parts = sample.memory.parts
    if parts:
        yield f"memory: {', '.join(f'{part.name} {cell.data(part.size_bytes)}' for part in parts)}"
    memory = sample.memory
    if memory.gpu_nodes_bytes:
        yield f"left out: {cell.data(memory.gpu_nodes_bytes)} that the kernel counts too, memory of the GPUs"
    if memory.handover_cause:
        yield f"headroom: {memory.handover_cause} gives them back; RDMA registration can fail with ENOMEM"
    trend = node.headroom
    if trend.slope_bytes_per_s is not None:
        word = "falls" if trend.slope_bytes_per_s < 0 else "grows"
        until = "" if trend.until_limit_s is None else f": limit in {numbers.age(trend.until_limit_s)}"
        yield f"headroom {word} {cell.data(abs(trend.slope_bytes_per_s) * 60)} a minute{until}"


def _gpu(gpu: GpuReading, name: str) -> str:
    reasons = gpu.throttle_reasons
    clock = numbers.clock_mhz(gpu.sm_clock_mhz, 9).strip()
    if gpu.sm_clock_max_mhz is not None:
        clock = f"{clock.removesuffix(' MHz')} of {gpu.sm_clock_max_mhz} MHz"
    margin = "margin –" if gpu.limit_margin_c is None else f"{gpu.limit_margin_c:.0f} °C to the limit"
    parts = [
        f"{cell.percent(gpu.utilization_percent)}",
        cell.with_unit(gpu.power_w, "W"),
        cell.with_unit(gpu.temperature_c, "°C"),
        margin,
        clock,
    ]
    if gpu.memory_total_bytes is not None:
        parts.append(f"{cell.data(gpu.memory_used_bytes)} of {cell.data(gpu.memory_total_bytes)}")
    slowed = f"throttled {UNKNOWN}" if reasons is None else ", ".join(reasons) or "not throttled"
    instances = [instance.name or str(instance.index) for instance in gpu.mig_instances]
    split = f"; MIG {', '.join(instances) or 'without instances'}" if gpu.mig else ""
    note = f"; memory: {clean(gpu.memory_note, 200)}" if gpu.memory_note else ""
    return f"{name}: {', '.join(parts)}, {slowed}{split}{note}"
