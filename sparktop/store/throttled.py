"""How much of the last minute each reason slowed each GPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparktop.model.node import GpuReading

WINDOW_S = 60.0
_NOTHING_S = 1e-6
"""Sums below it are what rounding leaves of 0."""

_Shares = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class WorstGpu:
    """The GPU with the largest share."""

    index: int
    percent: Mapping[str, float] = field(default_factory=dict)
    """By reason, of the time that is known."""
    covered_s: float = 0.0
    """The time that is known."""


class ThrottledMinute:
    """Means of the shares of single looks, weighed by the time that each covers; unknown time has none."""

    def __init__(self) -> None:
        """Start with nothing known."""
        self._looks: deque[tuple[float, float, tuple[tuple[int, _Shares], ...]]] = deque()
        self._sums: dict[int, dict[str, list[float]]] = {}
        """Of each GPU and reason: percent x seconds, and seconds."""

    def add(self, at: float, span_s: float, gpus: Iterable[GpuReading]) -> None:
        """Add the shares of the `span_s` seconds before `at`."""
        looks = tuple((gpu.index, gpu.throttled_percent) for gpu in gpus if gpu.throttled_percent)
        self._looks.append((at, span_s, looks))
        self._count(looks, span_s)
        while self._looks[0][0] <= at - WINDOW_S:
            _, old_s, old = self._looks.popleft()
            self._count(old, -old_s)

    def clear(self) -> None:
        """Forget everything."""
        self._looks.clear()
        self._sums.clear()

    def shares(self, index: int) -> dict[str, float]:
        """Give percent by reason of one GPU; reasons of which nothing is known are left out."""
        sums = self._sums.get(index, {})
        return {
            reason: min(100.0, max(0.0, weighted / seconds))
            for reason, (weighted, seconds) in sums.items()
            if seconds > _NOTHING_S
        }

    def worst(self) -> WorstGpu | None:
        """Give the GPU that was slowed most; None where no share is known."""
        known = {index: shares for index in sorted(self._sums) if (shares := self.shares(index))}
        if not known:
            return None
        index = max(known, key=lambda one: max(known[one].values()))
        covered_s = max(seconds for _, seconds in self._sums[index].values())
        return WorstGpu(index, known[index], covered_s)

    def _count(self, looks: Iterable[tuple[int, _Shares]], span_s: float) -> None:
        for index, shares in looks:
            sums = self._sums.setdefault(index, {})
            for reason, percent in shares.items():
                if percent is not None:
                    one = sums.setdefault(reason, [0.0, 0.0])
                    one[0] += percent * span_s
                    one[1] += span_s
