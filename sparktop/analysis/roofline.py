"""Computes how close a server comes to the limit that its memory bandwidth sets.

Each generated token of a single request requires reading all active weights once. So the memory bandwidth
divided by the bytes read per token is the highest token rate of a single request: 273 GB/s / 2.55 GB = 107
tokens/s for gpt-oss-120b on a GB10. A *lane* is an engine core (data-parallel rank) of a server.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.analysis.speed_state import is_gb10
from sparktop.model.node import NodeSample

GB10_BANDWIDTH_GB_PER_S = 273.0
"""Peak bandwidth of a GB10's LPDDR5X (data sheet); NVML cannot measure how much of it is used."""


def bandwidth_gb_per_s(nodes: Sequence[NodeSample | None]) -> float | None:
    """Return the memory bandwidth in GB/s of each GPU of a backend's nodes; None unless all are GB10s."""
    return GB10_BANDWIDTH_GB_PER_S if nodes and all(map(_has_gb10s, nodes)) else None


def _has_gb10s(node: NodeSample | None) -> bool:
    if node is None or not node.gpus:
        return False
    return all(is_gb10(gpu, unified=node.memory.unified) for gpu in node.gpus)


def limit_tps(
    bandwidth: float | None, bytes_per_token_gb: float | None, nodes: int, lanes: int
) -> float | None:
    """Return the highest possible tokens/s of a single request; None where bandwidth or bytes are unknown.

    `bandwidth` is the memory bandwidth of one node in GB/s, `lanes` the number of engine cores of the
    server on its `nodes`. If a lane spans several nodes, these share its weights (tensor parallel), so
    their bandwidths add up.
    """
    if bandwidth is None or not bytes_per_token_gb:
        return None
    return bandwidth * max(1, nodes // max(1, lanes)) / bytes_per_token_gb


def read_percent(
    bandwidth: float | None, read_gb_per_s: float | None, nodes: int, lanes: int
) -> float | None:
    """Return memory reads as a percentage (0 to 100) of the memory bandwidth of GPUs; None if unknown.

    `read_gb_per_s` is the sum over all engine cores ("lanes") of the read rate of one GPU of each. The
    lanes are assumed to be distributed evenly over the nodes.
    """
    if bandwidth is None or read_gb_per_s is None:
        return None
    return 100.0 * read_gb_per_s / (bandwidth * max(1, min(nodes, lanes)))
