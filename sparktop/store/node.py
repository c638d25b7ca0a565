"""What the store keeps of one node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from datetime import datetime

from sparktop.model.failure import Failure
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import NodeHistory, NodeView
from sparktop.model.targets import NodeTarget
from sparktop.store.health import Health

LOOPBACK = "lo"
_REMEMBERED = tuple(one.name for one in fields(NodeHistory))


class NodeTrack:
    """One node: its newest sample and the history of what is drawn of it."""

    def __init__(self, target: NodeTarget) -> None:
        """Start with nothing known but the target."""
        self.target = target
        self.health = Health()
        self.took_ms: float | None = None
        self._histories = HistoryTable(_REMEMBERED)
        self.view = NodeView(target.name, target.via)

    def identify(self, identity: NodeIdentity) -> None:
        """Take over what the machine is."""
        self.view = replace(self.view, identity=identity)

    def accept_failure(self, failure: Failure, now: datetime, took_ms: float | None) -> None:
        """Take a failed look: a gap in the history, the last sample stays."""
        self.took_ms = took_ms
        self.health.bad(failure, now)
        self._histories.append(failure.at, {})
        self.view = replace(
            self.view,
            failure=failure,
            failing_since=self.health.failing_since,
            history=NodeHistory(**self._histories.series()),
        )

    def accept_sample(self, sample: NodeSample, took_ms: float | None) -> None:
        """Take a good sample."""
        self.took_ms = sample.cost_ms if sample.cost_ms is not None else took_ms
        self.health.good(sample.at)
        memory = sample.memory
        percent = (
            100.0 * memory.used_bytes / memory.total_bytes
            if memory.used_bytes is not None and memory.total_bytes
            else None
        )
        links = [link for link in sample.network if link.up is not False and link.name != LOOPBACK]
        gpus = sample.gpus
        points = {
            "cpu_percent": sample.cpu.percent,
            "gpu_percent": _mean(gpu.utilization_percent for gpu in gpus),
            "memory_percent": percent,
            "power_w": _total(gpu.power_w for gpu in gpus),
            "rx_bytes_per_s": _total(link.rx_bytes_per_s for link in links),
            "tx_bytes_per_s": _total(link.tx_bytes_per_s for link in links),
            "temperature_c": max(
                (gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None), default=None
            ),
            "headroom_gib": memory.headroom_bytes / 2**30 if memory.headroom_bytes is not None else None,
            "sm_clock_mhz": _mean(gpu.sm_clock_mhz for gpu in gpus),
        }
        self._histories.append(sample.at, points)
        self.view = replace(
            self.view,
            sample=sample,
            failure=None,
            failing_since=None,
            history=NodeHistory(**self._histories.series()),
        )


def _total(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return sum(told) if told else None


def _mean(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return sum(told) / len(told) if told else None
