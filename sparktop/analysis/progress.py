"""Judges an engine that holds requests without progress: a long step, or stuck.

An engine that hangs keeps all its gauges: a page with "8 running" may be an hour old. A long prefill looks
the same in the token counters, because they grow only with the first token of an answer. What sets them
apart is the exact use of the KV cache (it grows with each chunk of a prompt), counters of forward passes
where an engine has them, and the GPU: a prefill draws the power of work, a hang that of waiting.

The limits come from reports of hangs on GB10 machines: 13 to 27 W at 96 % utilisation while stuck, 45 to
90 W while healthy, about 46 W in a long prefill (vLLM #48720 and #46097; eugr/spark-vllm-docker #260 and
#409). The engines' own watchdogs wait 300 s.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sparktop.model.progress import Progress

FACT_S = 10.0
"""From so many seconds without progress on they are stated."""
QUIET_S = (60.0, 120.0)
"""Seconds without progress until an engine with quiet GPUs is suspected, and until it is called stuck."""
BLIND_S = (300.0, 900.0)
"""The same if nothing is known of its GPUs, or what is known decides nothing."""
LONGEST_STEP_S = 900.0
"""After so many seconds of work without progress, an engine is suspected all the same."""
GB10_POWER_W = (30.0, 35.0)
"""Power of a GB10 below which it is quiet, and from which on it works."""
_LEAST_CLOCK_MHZ = 1400.0
"""A GPU that is used below this clock is slow, not stuck: its steps take several times as long."""
_SPINNING_PERCENT, _BLOCKED_PERCENT = 90.0, 5.0
_RDMA_QUIET_MB_PER_S, _RDMA_BUSY_MB_PER_S = 1.0, 10.0


class GpuWork(Struct, frozen=True):
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
    def spinning(self) -> bool:
        """Whether it is used all the time, at little power and a normal clock: it waits in a kernel."""
        used, clock = self.utilization_percent, self.clock_mhz
        fast = clock is not None and clock > _LEAST_CLOCK_MHZ
        return self._draws_little and fast and used is not None and used >= _SPINNING_PERCENT

    @property
    def at_rest(self) -> bool:
        """Whether it is hardly used; its clock is of no importance then."""
        used = self.utilization_percent
        return self._draws_little and used is not None and used <= _BLOCKED_PERCENT

    @property
    def _draws_little(self) -> bool:
        return (
            self.power_w is not None and self.quiet_below_w is not None and self.power_w < self.quiet_below_w
        )


class Standstill(Struct, frozen=True):
    """An engine that has held requests without progress, with what is known beside its metrics."""

    seconds: float
    made_token: bool
    """Whether it has made a token since its process started; before, it may still be warming up."""
    gpus: tuple[GpuWork, ...] = ()
    """All GPUs that it uses, at each sample of the last seconds; empty if they are not watched."""
    rdma_mb_per_s: float | None = None
    """Most traffic of its machines' RDMA links; None for an engine on one machine, or if unknown."""
    several_machines: bool = False
    processes_known: bool = True
    """Whether the processes of its machines are known: else GPUs at rest may wait for a compiler, or for one
    core of the engine."""
    core_busy: bool = False
    """Whether a process of the engine keeps a CPU core busy while its GPUs rest, as for a grammar."""
    excuse: str | None = None
    """Why it stands still without being stuck, such as "a kernel is compiled"; None if not known."""
    ranks_apart: str | None = None
    """What NCCL says about ranks that lag or are missing; None if it was not asked or gave no verdict."""
    unexplained_s: float | None = None
    """Seconds since work or a reason to rest was last seen; None if neither was seen in the standstill. A
    step may take some time after a kernel was compiled."""
    counts_steps: bool = True
    """False if its counters move only when a request ends: its metrics alone then show no standstill."""
    may_be_stale: bool = False
    """Whether its number of running requests may be an old one: a rank of SGLang at rest keeps it."""


def judge_standstill(found: Standstill) -> Progress:
    """Return what a standstill means.

    The order: a fact for at least `FACT_S`, an engine that may hold nothing at all, an excuse, what NCCL
    says, GPUs or a core that work, GPUs that wait, and without a view of the GPUs the time alone.
    """
    seconds = found.seconds
    if seconds < FACT_S or (found.may_be_stale and not any(gpu.spinning for gpu in found.gpus)):
        return Progress.MOVING
    if not found.made_token or found.excuse is not None:
        return Progress.STILL
    return Progress.STUCK if found.ranks_apart is not None else _by_work(found)


def _by_work(found: Standstill) -> Progress:
    seconds = found.seconds
    busy_link = found.rdma_mb_per_s is not None and found.rdma_mb_per_s > _RDMA_BUSY_MB_PER_S
    if busy_link or found.core_busy or any(gpu.busy for gpu in found.gpus):
        return Progress.LONG_STEP if seconds < LONGEST_STEP_S else Progress.SUSPECT
    quiet = all_quiet(found)
    if not quiet and not found.counts_steps:
        return Progress.STILL
    unexplained_s = seconds if found.unexplained_s is None else min(seconds, found.unexplained_s)
    return _by_time(unexplained_s, QUIET_S if quiet else BLIND_S)


def _by_time(seconds: float, limits_s: tuple[float, float]) -> Progress:
    suspected, stuck = limits_s
    if seconds >= stuck:
        return Progress.STUCK
    return Progress.SUSPECT if seconds >= suspected else Progress.STILL


def all_quiet(found: Standstill) -> bool:
    """Return whether all GPUs of the engine wait, and the links between its machines are silent."""
    if not found.gpus or not all(gpu.spinning or gpu.at_rest for gpu in found.gpus):
        return False
    if not found.processes_known and not any(gpu.spinning for gpu in found.gpus):
        return False
    rdma = found.rdma_mb_per_s
    return not found.several_machines or (rdma is not None and rdma < _RDMA_QUIET_MB_PER_S)


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
