"""How close a server comes to the limit that its memory bandwidth sets.

Each generated token of a single request requires reading all active weights once. So the memory bandwidth
divided by the bytes read per token is the highest token rate of a single request: 273 GB/s / 2.55 GB =
107 tokens/s for gpt-oss-120b on a GB10. A *lane* is an engine core (data-parallel rank) of a server.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.analysis.speed_state import is_gb10
from sparktop.model.node import NodeSample

GB10_BANDWIDTH_GB_PER_S = 273.0
"""Peak bandwidth of a GB10's LPDDR5X (data sheet); NVML cannot measure how much of it is used."""
FEW_READS_PERCENT = 50.0
"""Reads below this share of the bandwidth contradict that it is the limit."""


def bandwidth_gb_per_s(nodes: Sequence[NodeSample | None]) -> float | None:
    """Return the memory bandwidth in GB/s of each GPU of a backend's nodes; None unless all are GB10s."""
    return GB10_BANDWIDTH_GB_PER_S if nodes and all(map(_has_gb10s, nodes)) else None


def _has_gb10s(node: NodeSample | None) -> bool:
    if node is None or not node.gpus:
        return False
    return all(is_gb10(gpu, unified=node.memory.unified) for gpu in node.gpus)


def reads_words(read_gb_per_s: float, gb_per_s: float) -> str:
    """Return memory reads beside the bandwidth in words: "reads 183 of 273 GB/s"."""
    return f"reads {read_gb_per_s:.0f} of {gb_per_s:.0f} GB/s"


def read_percent(
    gpu_gb_per_s: float | None, read_gb_per_s: float | None, node_count: int, lane_count: int
) -> float | None:
    """Return memory reads as a percentage (0 to 100) of the memory bandwidth of GPUs; None if unknown.

    `gpu_gb_per_s` is the bandwidth of one GPU. Each lane reports the reads of one of its GPUs;
    `read_gb_per_s` is the sum over the lanes, which are assumed to be distributed evenly over the nodes.
    """
    if gpu_gb_per_s is None or read_gb_per_s is None:
        return None
    return 100.0 * read_gb_per_s / (gpu_gb_per_s * max(1, min(node_count, lane_count)))
