"""A backend's usual step time by batch size; longer steps show that its machine is slow."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from statistics import median

from sparktop.analysis.speed_state import StepPace

LEARNED_FROM = 10
"""Samples of a batch size that are needed before its steps have a baseline."""
SLOW_AFTER_S = 10.0
"""Steps count as slow once they have been slow for this many seconds."""
_CLEARS_AT = 0.6
"""Slow steps count as healthy again below this share of the allowed excess over the baseline."""
_MOST_BATCHES = 256
"""Batch sizes remembered; the one not seen for the longest time is dropped."""
_FINE = 4
"""Buckets of batch sizes per doubling: step time grows with the batch, so sizes that differ by a fifth are
kept apart."""

_Batch = tuple[int, int, int]


class _Measure:
    """The step times of one batch size that are not slow, and the baseline computed from them."""

    __slots__ = ("best_ms", "recent")

    def __init__(self) -> None:
        self.best_ms: float | None = None
        self.recent: deque[float] = deque(maxlen=LEARNED_FROM)

    def learn(self, step_ms: float) -> None:
        """Add a step time that is not slow, and update the baseline.

        The baseline is the lowest median of `LEARNED_FROM` step times in a row.
        """
        self.recent.append(step_ms)
        if len(self.recent) == LEARNED_FROM:
            middle = median(self.recent)
            self.best_ms = middle if self.best_ms is None else min(self.best_ms, middle)


class StepBaseline:
    """Learns how long a backend's steps take at each batch size, and detects when they take longer.

    A batch size is described by its requests, its tokens per step (many during a prefill) and the magnitude
    of the KV cache usage (attention reads the cache in each step). Slow steps are not learned, so a slow
    state never becomes the baseline, however long it lasts.
    """

    def __init__(self, backend: str, slow_ratio: float) -> None:
        """Prepare for `backend`; its steps are slow from `slow_ratio` times the baseline on."""
        self._backend = backend
        self._ratio = slow_ratio
        self._measures: OrderedDict[_Batch, _Measure] = OrderedDict()
        self._slow_since: float | None = None
        self._slow = False

    def set_ratio(self, slow_ratio: float) -> None:
        """Judge later steps by another ratio to the baseline."""
        self._ratio = slow_ratio

    def clear(self) -> None:
        """Forget all baselines, because the server restarted or another server answers."""
        self._measures.clear()
        self.pause()

    def pause(self) -> None:
        """Forget a period of slow steps: to count, slowness must last `SLOW_AFTER_S` seconds again."""
        self._slow_since, self._slow = None, False

    def note(
        self, at: float, step_ms: float, running: float, batch: float, kv_cache_percent: float | None
    ) -> StepPace | None:
        """Compare a step time with the baseline of its batch size, and then learn it, unless it is slow.

        Return the comparison; None until there is a baseline for this batch size. The baseline is the lowest
        median of `LEARNED_FROM` learned step times in a row. `step_ms` is a mean over some seconds up to `at`
        (monotonic), `running` the number of requests, `batch` the tokens per step.
        """
        filled = -1 if kv_cache_percent is None else math.floor(math.log2(max(1.0, kv_cache_percent)))
        key = (_bucket(running), _bucket(batch), filled)
        measure = self._measures.get(key)
        if measure is None:
            measure = self._measures[key] = _Measure()
            if len(self._measures) > _MOST_BATCHES:
                self._measures.popitem(last=False)
        else:
            self._measures.move_to_end(key)
        before_ms = measure.best_ms
        healthy = before_ms is not None and step_ms < (1 + (self._ratio - 1) * _CLEARS_AT) * before_ms
        if before_ms is None or healthy or (not self._slow and step_ms < self._ratio * before_ms):
            measure.learn(step_ms)
            self.pause()
        else:
            self._slow_since = at if self._slow_since is None else self._slow_since
            self._slow = at - self._slow_since >= SLOW_AFTER_S
        if before_ms is None:
            return None
        return StepPace(self._backend, step_ms, before_ms, running, self._slow, healthy)


def _bucket(value: float) -> int:
    return round(_FINE * math.log2(max(1.0, value)))
