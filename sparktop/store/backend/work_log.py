"""The polls of the last minute that the limit of a backend is judged by."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

from sparktop.analysis.limited_by.evidence import Look
from sparktop.model.engine import EngineSample
from sparktop.model.snapshot import BackendView
from sparktop.rates.tally import Tally

_KEPT_S = 60.0
_APART_S = 0.9
"""A group whose balance is judged is polled up to four times a second; one look a second is enough."""
_NOTHING: Mapping[str, float] = MappingProxyType({})


class WorkLog:
    """The load and the counters of a server, about one look a second over a minute."""

    def __init__(self) -> None:
        """Start without looks."""
        self.looks: deque[Look] = deque()
        self._cpu: deque[tuple[float, float]] = deque()
        """(time, CPU seconds of the HTTP server's process) of each look."""

    def gap(self) -> None:
        """Forget all looks, because a poll failed or another server answers: totals begin again."""
        self.looks.clear()
        self._cpu.clear()

    def note(self, sample: EngineSample, view: BackendView, tally: Tally | None, prompts: str) -> None:
        """Add a look at the time of `sample`, unless the last one is less than about a second old.

        `view` has the load at that time, `tally` the totals, and `prompts` is the name of the total that
        counts computed prompt tokens.
        """
        at, looks = sample.at, self.looks
        if looks and at - looks[-1].at < _APART_S:
            return
        total = (tally.counters if tally is not None else _NOTHING).get
        looks.append(
            Look(
                at,
                view.running,
                view.waiting,
                view.waiting_for_capacity,
                view.kv_fullest_percent,
                total("steps"),
                total("generation_tokens"),
                total(prompts),
                total("preemptions"),
                total("finished"),
                total("prefill_seconds"),
            )
        )
        while looks[0].at < at - _KEPT_S:
            looks.popleft()
        if sample.cpu_s is not None:
            self._cpu.append((at, sample.cpu_s))
            while self._cpu[0][0] < at - _KEPT_S / 2:
                self._cpu.popleft()

    @property
    def server_cores(self) -> float | None:
        """CPU cores that the HTTP server's process used over the last 30 s; None if it is not reported."""
        if len(self._cpu) < 2:  # noqa: PLR2004 - a rate needs two
            return None
        (first_at, first), (last_at, last) = self._cpu[0], self._cpu[-1]
        return (last - first) / (last_at - first_at) if last >= first else None
