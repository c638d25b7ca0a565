"""Whether an engine that holds requests makes progress, or stands still: a long step, or stuck.

An engine that hangs keeps all its gauges: a page with "8 running" may be an hour old. A long prefill looks
the same in the token counters, because they grow only with the first token of an answer. What sets them
apart is the exact use of the KV cache (it grows with each chunk of a prompt), counters of forward passes
where an engine has them, and the GPU: a prefill draws the power of work, a hang that of waiting.

The limits come from reports of hangs on GB10 machines: 13 to 27 W at 96 % utilisation while stuck, 45 to
90 W while healthy, about 46 W in a long prefill (vLLM #48720 and #46097; eugr/spark-vllm-docker #260 and
#409). The engines' own watchdogs wait 300 s.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum

from sparktop.model.engine import LANE_COUNTERS, LANE_HISTOGRAMS, EngineSample, LaneSample

FACT_S = 10.0
"""From so many seconds without progress on they are stated."""
WAITING_HELD_S = 60.0
"""Waiting requests count as held by the engine if none has run for so many seconds."""
QUIET_S = (60.0, 120.0)
"""Seconds without progress until an engine with quiet GPUs is suspected, and until it is called stuck."""
BLIND_S = (300.0, 900.0)
"""The same if nothing is known of its GPUs, or what is known decides nothing."""
LONGEST_STEP_S = 900.0
"""After so many seconds of work without progress, an engine is suspected all the same."""
_LEAST_CLOCK_MHZ = 1400.0
"""A GPU below this clock is slow, not stuck: its steps take several times as long."""
_SPINNING_PERCENT, _BLOCKED_PERCENT = 90.0, 5.0
_RDMA_QUIET_MB_PER_S, _RDMA_BUSY_MB_PER_S = 1.0, 10.0


class Progress(Enum):
    """What is known about the progress of an engine that holds requests."""

    MOVING = "moving"
    """It makes progress, or it holds no request."""
    STILL = "no progress"
    """A fact without a verdict."""
    LONG_STEP = "long step"
    """Nothing is finished, but its GPUs work."""
    SUSPECT = "stuck?"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class GpuWork:
    """What one GPU of an engine does; None for what is unknown."""

    power_w: float | None = None
    utilization_percent: float | None = None
    clock_mhz: float | None = None
    quiet_below_w: float | None = None
    """Power below which it does not work."""
    busy_from_w: float | None = None
    """Power from which on it works."""

    @property
    def busy(self) -> bool:
        """Whether its power shows that it works."""
        return self.power_w is not None and self.busy_from_w is not None and self.power_w >= self.busy_from_w

    @property
    def quiet(self) -> bool:
        """Whether it waits: little power at a normal clock, and either busy-polling or at rest."""
        if self.power_w is None or self.quiet_below_w is None or self.power_w >= self.quiet_below_w:
            return False
        if self.clock_mhz is None or self.clock_mhz <= _LEAST_CLOCK_MHZ:
            return False
        used = self.utilization_percent
        return used is not None and (used >= _SPINNING_PERCENT or used <= _BLOCKED_PERCENT)


@dataclass(frozen=True, slots=True)
class Standstill:
    """An engine that has held requests without progress, with what is known beside its metrics."""

    seconds: float
    made_token: bool
    """Whether it has made a token since its process started; before, it may still be warming up."""
    gpus: tuple[GpuWork, ...] = ()
    """All GPUs that it uses; empty if they are not watched."""
    rdma_mb_per_s: float | None = None
    """Traffic of its machines' RDMA links; None for an engine on one machine, or if unknown."""
    several_machines: bool = False
    excuse: str | None = None
    """Why it stands still without being stuck, such as "a kernel is compiled"; None if not known."""
    ranks_apart: str | None = None
    """What NCCL says about ranks that lag or are missing; None if it was not asked or gave no verdict."""


def judge_standstill(found: Standstill) -> Progress:
    """Return what a standstill means.

    The order: a fact for at least `FACT_S`, what NCCL says, an excuse, GPUs that work, GPUs that wait, and
    without a view of the GPUs the time alone.
    """
    seconds = found.seconds
    if seconds < FACT_S:
        return Progress.MOVING
    if not found.made_token or found.excuse is not None:
        return Progress.STILL
    if found.ranks_apart is not None:
        return Progress.STUCK
    busy_link = found.rdma_mb_per_s is not None and found.rdma_mb_per_s > _RDMA_BUSY_MB_PER_S
    if busy_link or any(gpu.busy for gpu in found.gpus):
        return Progress.LONG_STEP if seconds < LONGEST_STEP_S else Progress.SUSPECT
    suspected, stuck = QUIET_S if _all_quiet(found) else BLIND_S
    if seconds >= stuck:
        return Progress.STUCK
    return Progress.SUSPECT if seconds >= suspected else Progress.STILL


def _all_quiet(found: Standstill) -> bool:
    if not found.gpus or not all(gpu.quiet for gpu in found.gpus):
        return False
    rdma = found.rdma_mb_per_s
    return not found.several_machines or (rdma is not None and rdma < _RDMA_QUIET_MB_PER_S)


class StandstillClock:
    """Measures how long an engine has held requests without any progress."""

    def __init__(self) -> None:
        """Start without a sample. A new process of the engine needs a new clock."""
        self.made_token = False
        """Whether a token was made since the engine's process started, by its counters."""
        self._marks: Hashable = None
        self._moved_at: float | None = None
        self._held_since: float | None = None
        self._waits_since: float | None = None

    def note(self, sample: EngineSample) -> float:
        """Add a sample; return the seconds without progress while requests were held; 0 if none is held."""
        at, lanes = sample.at, sample.lanes
        marks = tuple(_marks(lane) for lane in lanes)
        if marks != self._marks:
            self._marks, self._moved_at = marks, at
        self.made_token = self.made_token or any(lane.generation_tokens for lane in lanes)
        running = any(lane.running for lane in lanes)
        waits = not running and any(lane.waiting for lane in lanes)
        if not waits:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = at
        held = running or (self._waits_since is not None and at - self._waits_since >= WAITING_HELD_S)
        if any(lane.asleep for lane in lanes) or not held:
            self._held_since = None
            return 0.0
        if self._held_since is None:
            self._held_since = at
        return at - max(self._held_since, self._moved_at if self._moved_at is not None else at)


def _marks(lane: LaneSample) -> Hashable:
    """Return everything of a lane that changes when it makes progress."""
    histograms = [getattr(lane, name) for name in LANE_HISTOGRAMS]
    return (
        lane.lane,
        lane.running,
        lane.kv_cache_percent,
        *(getattr(lane, name) for name in LANE_COUNTERS),
        *(one.count if one is not None else None for one in histograms),
        *(one.sum if one is not None else None for one in histograms),
        *sorted(lane.finished.items()),
    )


def power_limits(busy_w: Sequence[float], idle_w: Sequence[float]) -> tuple[float | None, float | None]:
    """Return (power below which a GPU is quiet, power from which on it is busy), learned from its own past.

    `busy_w` are powers while its engine made tokens, `idle_w` powers while it held no request. Quiet is below
    the 10th percentile of the busy values; busy is from the middle between the medians of both on. A result
    is None where it would come from fewer than 60 values.
    """
    enough = 60
    if len(busy_w) < enough:
        return None, None
    busy = sorted(busy_w)
    quiet = busy[len(busy) // 10]
    if len(idle_w) < enough:
        return quiet, None
    idle, usual = sorted(idle_w)[len(idle_w) // 2], busy[len(busy) // 2]
    return quiet, idle + (usual - idle) / 2
