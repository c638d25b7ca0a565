"""What the store keeps of one node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from sparktop.model.failure import Failure
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.series import History
from sparktop.model.snapshot import NodeHistory, NodeView
from sparktop.model.targets import NodeTarget
from sparktop.store.health import Health

LOOPBACK = "lo"


class NodeTrack:
    """One node: its newest sample and the history of what is drawn of it."""

    def __init__(self, target: NodeTarget) -> None:
        """Start with nothing known but the target."""
        self.target = target
        self.health = Health()
        self.took_ms: float | None = None
        self._cpu, self._gpu, self._memory = History(), History(), History()
        self._power, self._rx, self._tx = History(), History(), History()
        self.view = NodeView(target.name, target.via)

    def identify(self, identity: NodeIdentity) -> None:
        """Take over what the machine is."""
        self.view = replace(self.view, identity=identity)

    def accept_failure(self, failure: Failure, now: datetime, took_ms: float | None) -> None:
        """Take a failed look: a gap in the history, the last sample stays."""
        self.took_ms = took_ms
        self.health.bad(failure, now)
        for history in (self._cpu, self._gpu, self._memory, self._power, self._rx, self._tx):
            history.append(failure.at, None)
        self.view = replace(
            self.view,
            failure=failure,
            failing_since=self.health.failing_since,
            history=self._histories(),
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
        used = [gpu.utilization_percent for gpu in sample.gpus if gpu.utilization_percent is not None]
        links = [link for link in sample.network if link.up is not False and link.name != LOOPBACK]
        self._cpu.append(sample.at, sample.cpu.percent)
        self._gpu.append(sample.at, sum(used) / len(used) if used else None)
        self._memory.append(sample.at, percent)
        self._power.append(sample.at, _total(gpu.power_w for gpu in sample.gpus))
        self._rx.append(sample.at, _total(link.rx_bytes_per_s for link in links))
        self._tx.append(sample.at, _total(link.tx_bytes_per_s for link in links))
        self.view = replace(
            self.view, sample=sample, failure=None, failing_since=None, history=self._histories()
        )

    def _histories(self) -> NodeHistory:
        return NodeHistory(
            cpu_percent=self._cpu.view(),
            gpu_percent=self._gpu.view(),
            memory_percent=self._memory.view(),
            power_w=self._power.view(),
            rx_bytes_per_s=self._rx.view(),
            tx_bytes_per_s=self._tx.view(),
        )


def _total(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return sum(told) if told else None
