"""The samples of a machine over the last minute, as far as they show what holds a backend on it back."""

from __future__ import annotations

from collections import deque

from sparktop.analysis.limited_by.evidence import MachineLook
from sparktop.model.node import GpuReading, NetworkReading, NodeSample

_KEPT_S = 60.0
_LOADED_PERCENT = 80.0
_BITS = 8.0


class MachineLog:
    """The samples of a machine over a minute, as far as they show limits."""

    def __init__(self) -> None:
        """Start without samples."""
        self.looks: deque[MachineLook] = deque()
        self.usual_mhz: float | None = None
        """Highest SM clock seen under load; None if there was no load yet."""

    def gap(self) -> None:
        """Forget all samples, because a poll failed; the usual clock stays."""
        self.looks.clear()

    def note(self, sample: NodeSample) -> None:
        """Add a sample."""
        self._note_clock(_busiest(sample))
        self.looks.append(machine_look(sample))
        while self.looks[0].at < sample.at - _KEPT_S:
            self.looks.popleft()

    def _note_clock(self, gpu: GpuReading | None) -> None:
        if gpu is None or gpu.sm_clock_mhz is None or (gpu.utilization_percent or 0.0) < _LOADED_PERCENT:
            return
        self.usual_mhz = max(self.usual_mhz or 0.0, float(gpu.sm_clock_mhz))


def machine_look(sample: NodeSample) -> MachineLook:
    """Return the figures of a sample that show what holds a backend on the machine back."""
    gpu = _busiest(sample)
    link = max(filter(_loads, sample.network), key=_share, default=None)
    return MachineLook(
        sample.at,
        gpu.utilization_percent if gpu is not None else None,
        gpu.sm_clock_mhz if gpu is not None else None,
        max(sample.cpu.core_percent, default=None),
        _share(link) if link is not None else None,
        max(link.rx_bytes_per_s or 0.0, link.tx_bytes_per_s or 0.0) if link is not None else None,
        link.name if link is not None else None,
    )


def _busiest(sample: NodeSample) -> GpuReading | None:
    return max(sample.gpus, key=lambda one: one.utilization_percent or 0.0, default=None)


def _loads(link: NetworkReading) -> bool:
    return link.kind != "other" and link.up is not False and bool(link.capacity_bits_per_s)


def _share(link: NetworkReading) -> float:
    """Return the traffic of a link in its busier direction as a share of what it can carry."""
    carried = max(link.rx_bytes_per_s or 0.0, link.tx_bytes_per_s or 0.0)
    return _BITS * carried / (link.capacity_bits_per_s or 1.0)
