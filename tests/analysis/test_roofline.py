"""The memory bandwidth as a limit."""

from __future__ import annotations

import pytest

from sparktop.analysis.speed_state import limit_tps, read_percent
from sparktop.model.node import GpuReading, MemoryReading, NodeSample


def node(*names: str | None, unified: bool | None = None) -> NodeSample:
    gpus = tuple(GpuReading(index, name) for index, name in enumerate(names))
    return NodeSample(at=0.0, memory=MemoryReading(unified=unified), gpus=gpus)


GB10 = node("NVIDIA GB10")


def test_the_known_example() -> None:
    """273 GB/s and 2.55 GB per token give 107 tokens a second; 60 of these are 56 %, 40 are 37 %."""
    limit = limit_tps(273.0, 2.55, 1, 1)
    assert limit is not None
    assert limit == pytest.approx(107.06, abs=0.01)
    assert round(100 * 60 / limit) == 56
    assert round(100 * 40 / limit) == 37


@pytest.mark.parametrize(
    ("nodes", "lanes", "limit", "percent"),
    [(1, 1, 100.0, 50.0), (2, 1, 200.0, 50.0), (2, 2, 100.0, 25.0), (4, 2, 200.0, 25.0), (1, 2, 100.0, 50.0)],
)
def test_lanes_and_nodes(nodes: int, lanes: int, limit: float, percent: float) -> None:
    """Tensor-parallel nodes share the bytes of a token; data-parallel lanes each read their own."""
    assert limit_tps(273.0, 2.73, nodes, lanes) == pytest.approx(limit)
    assert read_percent(273.0, 136.5, nodes, lanes) == pytest.approx(percent)
