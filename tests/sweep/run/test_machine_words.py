"""What the machines of a sweep are, in words."""

from __future__ import annotations

from datetime import UTC, datetime

from sparktop.model.node import GpuReading, NodeIdentity, NodeSample
from sparktop.model.snapshot import NodeView, Snapshot
from sparktop.sweep.run.preparation import machines_words


def test_a_machine_is_its_product_its_gpus_and_its_driver() -> None:
    """Equal GPUs are counted; a machine of which nothing is known has no words; others are not asked."""
    spark = NodeIdentity(product="NVIDIA DGX Spark", driver="580.95")
    gpus = tuple(GpuReading(index, name="NVIDIA H100") for index in range(8))
    nodes = (
        NodeView("a", "ssh", NodeSample(1.0, gpus=(GpuReading(0, name="NVIDIA GB10"),)), spark),
        NodeView("b", "ssh", NodeSample(1.0, gpus=gpus)),
        NodeView("c", "ssh"),
        NodeView("other", "ssh", identity=spark),
    )
    snapshot = Snapshot(datetime(2026, 3, 4, tzinfo=UTC), 0.0, 1.0, 2.0, nodes=nodes)
    assert machines_words(("a", "b", "c"), snapshot) == {
        "a": "NVIDIA DGX Spark, NVIDIA GB10, driver 580.95",
        "b": "8 × NVIDIA H100",
    }
