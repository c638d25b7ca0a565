"""The share of the last minute in which each GPU was throttled, by reason."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from sparktop.model.node import GpuReading

WINDOW_S = 60.0
_NOTHING_S = 1e-6
"""Seconds below this are rounding errors of 0."""

_Shares = Mapping[str, float | None]


class WorstGpu(Struct, frozen=True):
    """The GPU with the largest throttled share."""

    index: int
    percent: Mapping[str, float] = field(default_factory=dict)
    """Throttled share by reason, in percent of the known time."""
    covered_s: float = 0.0
    """Seconds of the last minute for which the shares are known."""


class ThrottledMinute:
    """Throttled shares over the last minute, by GPU and reason.

    They are means of the samples' shares, weighted by the time that each sample covers. Unknown time is left
    out.
    """

    def __init__(self) -> None:
        """Start without samples."""
        self._samples: deque[tuple[float, float, tuple[tuple[int, _Shares], ...]]] = deque()
        self._sums: dict[int, dict[str, list[float]]] = {}
        """By GPU index and reason: [percent x seconds, seconds]."""

    def add(self, at: float, span_s: float, gpus: Iterable[GpuReading]) -> None:
        """Add the throttled shares of `gpus`, which cover the `span_s` seconds before `at`."""
        samples = tuple((gpu.index, gpu.throttled_percent) for gpu in gpus if gpu.throttled_percent)
        self._samples.append((at, span_s, samples))
        self._count(samples, span_s)
        while self._samples[0][0] <= at - WINDOW_S:
            _, old_s, old = self._samples.popleft()
            self._count(old, -old_s)

    def clear(self) -> None:
        """Forget all samples."""
        self._samples.clear()
        self._sums.clear()

    def shares(self, index: int) -> dict[str, float]:
        """Return the throttled percent (0 to 100) of one GPU by reason; unknown reasons are absent."""
        sums = self._sums.get(index, {})
        return {
            reason: min(100.0, max(0.0, weighted / seconds))
            for reason, (weighted, seconds) in sums.items()
            if seconds > _NOTHING_S
        }

    def worst(self) -> WorstGpu | None:
        """Return the GPU that was throttled most; None if no share is known."""
        known = {index: shares for index in sorted(self._sums) if (shares := self.shares(index))}
        if not known:
            return None
        index = max(known, key=lambda one: max(known[one].values()))
        covered_s = max(seconds for _, seconds in self._sums[index].values())
        return WorstGpu(index, known[index], covered_s)

    def _count(self, samples: Iterable[tuple[int, _Shares]], span_s: float) -> None:
        for index, shares in samples:
            sums = self._sums.setdefault(index, {})
            for reason, percent in shares.items():
                if percent is not None:
                    one = sums.setdefault(reason, [0.0, 0.0])
                    one[0] += percent * span_s
                    one[1] += span_s
