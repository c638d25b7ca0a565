"""The phase in which a server's start is, seen from outside: by its memory, its CPU use and its GPU.

A start only goes forward through the phases of `PHASES`: no GPU memory; the GPU context; memory that grows
with the weights; memory that stands still while kernels are compiled and a step is tried; a jump, when the KV
pool is allocated; standing still again while CUDA graphs are captured. One exception: a pause in reading
weights, which looks like the begin of the next phase, ends without a jump.

On a machine without GPU the resident memory of the processes stands for the GPU's; the second phase begins
when the engine has a process of its own.

`StartStallRule` names a start in which nothing moves any more.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from sparktop.analysis.speed_state import is_gb10
from sparktop.analysis.stall import BLIND_S, GB10_POWER_W, GpuWork, gpu_words, rdma_mb_per_s, running_compiler
from sparktop.model.event import Finding, FindingKind, Severity, Sure
from sparktop.model.explained import FINDINGS
from sparktop.model.node import GIB, GpuReading, NodeSample
from sparktop.model.series import known_max, known_min
from sparktop.model.snapshot import (
    GROWTH,
    LAST_TIME,
    PHASES,
    BackendState,
    BackendView,
    Loading,
    NodeView,
    PastStart,
    Situation,
    minutes,
)

START, CONTEXT, WEIGHTS, COMPILE, POOL, GRAPHS = range(len(PHASES))
DOWNLOAD = "download"
_MIB = 2**20
_WINDOW_S = 10.0
"""Growth of memory and files is measured over this many seconds."""
_CONTEXT_BYTES = GIB
"""More GPU memory than this is not the context alone, which takes 0.3 to 0.6 GiB."""
_STILL_BYTES, _STILL_SHARE = 64 * _MIB, 0.005
"""Memory that grew less in the window, in bytes or as a share, stands still."""
_JUMP_BYTES, _JUMP_SHARE = 512 * _MIB, 0.05
"""Growth, in bytes and as a share, that is the KV pool: more than weights grow by in the same seconds."""
_JUMP_S = 6.0
"""Seconds within which the KV pool is allocated."""
_POOL_S = 4.0
"""Seconds that memory stands still after the jump until the pool counts as allocated."""
_DOWNLOAD_BYTES_PER_S = 20e6
"""Received bytes per second from which on a start without growth is a download."""
_SEEN_FROM_S = 30.0
"""A start is seen from its begin if the first sample is at most this many seconds after it."""


class StartClock:
    """Follows one start of one server, from sample to sample."""

    def __init__(self, started_at: float, first_at: float) -> None:
        """Follow a process that started at `started_at` and is first seen at `first_at` (monotonic s)."""
        self.started_at = started_at
        self.from_begin = first_at - started_at <= _SEEN_FROM_S
        """Whether all phases were seen."""
        self.step = START
        """Index of the phase in `PHASES`."""
        self._began: list[tuple[float, int]] = [(started_at, START)]
        """(time, phase) of each change; a phase can occur twice."""
        self._samples: deque[tuple[float, int]] = deque()
        """(monotonic time, memory in bytes), oldest first."""
        self._downloads = False
        self._still_bytes: int | None = None
        """Memory when the weights seemed complete."""
        self.memory_bytes: int | None = None

    def note(
        self,
        at: float,
        memory: int,
        *,
        on_gpu: bool = True,
        has_engine: bool = False,
        received_bytes_per_s: float | None = None,
    ) -> None:
        """Update the phase with what is visible at `at`, in monotonic seconds.

        `memory` is the GPU memory of the server's processes in bytes or, where no GPU reports any and
        `on_gpu` is false, their resident memory. `has_engine` is whether a process other than the server's
        belongs to it (engine core, worker, scheduler), `received_bytes_per_s` the machine's network traffic.
        """
        self.memory_bytes = memory
        self._samples.append((at, memory))
        while len(self._samples) > 1 and self._samples[1][0] <= at - _WINDOW_S:
            self._samples.popleft()
        receives = (received_bytes_per_s or 0.0) >= _DOWNLOAD_BYTES_PER_S
        self._downloads = receives and self.step <= CONTEXT and self._growth_bytes(at) < _STILL_BYTES
        step = self._next_phase(at, memory, has_context=memory > 0 if on_gpu else has_engine)
        if step != self.step:
            self.step = step
            self._began.append((at, step))

    def _next_phase(self, at: float, memory: int, *, has_context: bool) -> int:
        """Return the phase that a sample with `memory` bytes shows: the present one or, mostly, the next."""
        step = self.step
        if step <= CONTEXT:
            if has_context:
                step = WEIGHTS if memory > _CONTEXT_BYTES else CONTEXT
            return step
        if step == WEIGHTS and self._is_still(at, memory):
            self._still_bytes = memory
            return COMPILE
        if step == COMPILE and self._still_bytes is not None:
            grown, jumps = memory - self._still_bytes, self._jumps(at, memory)
            if jumps and grown > max(_JUMP_BYTES, _JUMP_SHARE * memory):
                return POOL
            if grown > max(_STILL_BYTES, _STILL_SHARE * memory) and self._covers_window(at):
                # Steady growth without a jump: what looked like the end of the weights was a pause.
                return step if jumps or self._is_still(at, memory) else WEIGHTS
        if step == POOL and memory - self._memory_at(at - _POOL_S) < _STILL_BYTES:
            return GRAPHS
        return step

    def _jumps(self, at: float, memory: int) -> bool:
        """Return whether memory grew in the last seconds as when the KV pool is allocated."""
        return memory - self._memory_at(at - _JUMP_S) > max(_JUMP_BYTES, _JUMP_SHARE * memory)

    def _is_still(self, at: float, memory: int) -> bool:
        """Return whether memory hardly grew over the whole window."""
        return self._covers_window(at) and self._growth_bytes(at) < max(_STILL_BYTES, _STILL_SHARE * memory)

    def _covers_window(self, at: float) -> bool:
        """Return whether the samples reach back for the whole window, nearly."""
        return bool(self._samples) and self._samples[0][0] <= at - 0.9 * _WINDOW_S

    def _growth_bytes(self, at: float) -> int:
        """Return by how many bytes memory grew in the window."""
        return self._samples[-1][1] - self._memory_at(at - _WINDOW_S) if self._samples else 0

    def _memory_at(self, at: float) -> int:
        """Return the memory at the time `at`: the last known before it, else the first known."""
        known_bytes = self._samples[0][1]
        for when, memory in self._samples:
            if when > at:
                break
            known_bytes = memory
        return known_bytes

    def phases(self, at: float) -> Mapping[str, float]:
        """Return the seconds spent in each phase up to `at`; empty unless all were seen."""
        if not self.from_begin:
            return {}
        times: dict[str, float] = {}
        for (began_at, step), (ended_at, _) in pairwise([*self._began, (at, self.step)]):
            times[PHASES[step]] = times.get(PHASES[step], 0.0) + max(0.0, ended_at - began_at)
        return times

    def loading_at(
        self, at: float, past_start: PastStart | None = None, *, checkpoint_bytes: float | None = None
    ) -> Loading:
        """Return what is known at `at`; `past_start` is an earlier start like this one.

        `checkpoint_bytes` is the size of the weights that the machine loads.
        """
        elapsed_s, phase_s = at - self.started_at, at - self._began[-1][0]
        left_s, basis = None, None
        if past_start is not None:
            left_s, basis = self._left_s(elapsed_s, phase_s, past_start), LAST_TIME
        elif self.step == WEIGHTS and checkpoint_bytes is not None:
            rate = self._growth_bytes(at) / _WINDOW_S
            if rate > 0:
                left_s, basis = max(0.0, checkpoint_bytes - (self.memory_bytes or 0)) / rate, GROWTH
        return Loading(
            elapsed_s=elapsed_s,
            phase=DOWNLOAD if self._downloads else PHASES[self.step],
            step=self.step + 1,
            phase_s=phase_s,
            left_s=left_s,
            expected_s=None if past_start is None else past_start.total_s,
            basis=basis,
            warm=None if past_start is None else past_start.warm,
            memory_bytes=self.memory_bytes,
        )

    def _left_s(self, elapsed_s: float, phase_s: float, past_start: PastStart) -> float:
        """Return the seconds left by an earlier start: the rest of this phase and all later phases."""
        usual_phase_s = past_start.phases.get(PHASES[self.step])
        if usual_phase_s is None:
            return max(0.0, past_start.total_s - elapsed_s)
        later_phases_s = sum(past_start.phases.get(name, 0.0) for name in PHASES[self.step + 1 :])
        return max(0.0, usual_phase_s - phase_s) + later_phases_s


def best_past(starts: list[PastStart], boot_id: str | None) -> PastStart | None:
    """Return the newest earlier start that was as this one is: warm or cold; else the newest of all.

    A start is warm if an earlier one was seen since the machine booted.
    """
    if not starts:
        return None
    warm = is_warm(starts, boot_id)
    alike = [start for start in starts if start.warm is warm]
    return max(alike or starts, key=lambda start: start.ended_at)


def is_warm(starts: list[PastStart], boot_id: str | None) -> bool:
    """Return whether one of these earlier starts happened since the boot `boot_id` of the machine."""
    return boot_id is not None and any(start.boot_id == boot_id for start in starts)


# Whether a start hangs before the server answers: nothing that a start moves has moved for minutes.
#
# A start moves something all the time: GPU memory or the memory of its processes grows, files are read,
# something is downloaded, kernels are compiled on the CPU, steps are tried on the GPU. What hangs keeps its
# GPU at 90 % or more at low power, or leaves GPU and CPU at rest, with quiet disks and links (eugr/spark-
# vllm-docker #352: graph capture, 96 %, the head waits for ever for a rank that had ended). As with a
# server that hangs (`analysis/stall.py`), what other causes could explain is not named, and nothing is
# called certain.


STUCK = FindingKind.START_STUCK
_LONGER = 1.2
"""A phase is judged once it lasts so many times as long as in the last start."""
_MEMORY_BYTES, _READ_BYTES, _CACHE_BYTES = 8 << 20, 4 << 20, 32 << 20
"""Least changes since the earlier sample, up to `_WINDOW_S` ago, that count as movement: of its processes'
memory, of what they read, and of the machine's cache of files, which others use too, so that its limit is
higher."""
_NET_BYTES_PER_S, _SWAP_BYTES_PER_S, _LINK_MB_PER_S, _PRESSURE_PERCENT = 2e5, 1e6, 1.0, 5.0
"""From these on a download over a slow line, swap, ranks or waiting for memory count as movement."""
_CPU_PERCENT, _SPINNING_CPU_PERCENT = 20.0, 150.0
"""CPU use of one of its processes from which on it computes, while its GPUs rest; and while they spin, when
one core waits for them."""
_TABLE_AGE_S = 15.0
"""Age of the table of processes up to which its CPU use is that of now."""
_GRAPHS = PHASES[-1]


class _LoadingMachine(Struct, frozen=True):
    """One machine of a start, at one sample: what grows while it loads, and what works."""

    sample: NodeSample
    gpu_bytes: int
    """Memory of its processes: on GPUs, and their own."""
    own_bytes: int
    read_bytes: int | None
    """None where a process of another user hides it: then the cache of files stands for it."""
    gpus: tuple[GpuWork, ...]
    cpu_percent: float | None
    """Of the busiest of its processes; None if one is not known."""

    def has_moved_since(self, before: _LoadingMachine) -> bool:
        """Return whether memory has changed, or files were read, since an earlier sample."""
        changes = (self.gpu_bytes - before.gpu_bytes, self.own_bytes - before.own_bytes)
        if max(map(abs, changes)) >= _MEMORY_BYTES:
            return True
        if self.read_bytes is not None and before.read_bytes is not None:
            return self.read_bytes - before.read_bytes >= _READ_BYTES
        cached = [machine.sample.memory.page_cache_bytes or 0 for machine in (self, before)]
        return abs(cached[0] - cached[1]) >= _CACHE_BYTES

    @property
    def is_active(self) -> bool:
        """Whether the machine does something that a start may do; not if it rests, or its GPUs wait."""
        sample, memory = self.sample, self.sample.memory
        rates = [link.rx_bytes_per_s or 0.0 for link in sample.network if link.kind in {"ethernet", "wifi"}]
        reads_links = sum(rates) >= _NET_BYTES_PER_S or (rdma_mb_per_s((sample,)) or 0.0) >= _LINK_MB_PER_S
        swaps = (memory.swap_in_bytes_per_s or 0.0) >= _SWAP_BYTES_PER_S
        waits_for_memory = (memory.pressure_full_avg10 or 0.0) >= _PRESSURE_PERCENT
        if reads_links or swaps or waits_for_memory or running_compiler((sample,)) is not None:
            return True
        if not all(gpu.is_spinning or gpu.is_at_rest for gpu in self.gpus):
            return True
        spins = any(gpu.is_spinning for gpu in self.gpus)
        if self.cpu_percent is None:
            # Unknown CPU use may be work, except while a GPU spins: then a core is known to wait for it.
            return not spins
        return self.cpu_percent >= (_SPINNING_CPU_PERCENT if spins else _CPU_PERCENT)


_NAMED_S, _CRITICAL_S = BLIND_S
"""Seconds without any movement from which on a start is named, and is critical."""


class StartStallRule:
    """Follows the start of a server, and names one in which nothing moves."""

    def __init__(self) -> None:
        """Follow no start yet."""
        self._pid: int | None = None
        self._moved_at: float | None = None
        """When something moved last; None while nothing starts."""
        self._earlier: dict[str, _LoadingMachine] = {}
        """By machine: the sample that newer ones are compared with; replaced once it is `_WINDOW_S` old."""
        self._machines: dict[str, _LoadingMachine] = {}

    def look(self, now: Situation, view: BackendView) -> Iterator[Finding]:
        """Yield that nothing has moved for minutes in the start of a server."""
        loading = view.loading
        if loading is None or view.state is not BackendState.LOADING:
            self._moved_at = None
            return
        if self._moved_at is None or self._pid != loading.pid:
            self._pid, self._moved_at = loading.pid, now.at
            self._earlier, self._machines = {}, {}
        if loading.phase is None or loading.pid is None:
            return
        moved = [self._moves(now.nodes.get(name), view, loading) for name in view.nodes]
        if any(moved):
            self._moved_at = now.at
        seconds, about = now.at - self._moved_at, view.start_memory
        last_start = about.last if about is not None else None
        past_s = None if last_start is None else last_start.phases.get(loading.phase)
        if seconds < _NAMED_S or (loading.phase_s or 0.0) < _LONGER * (past_s or 0.0):
            return
        machines = [self._machines[name] for name in view.nodes if name in self._machines]
        ranks = 1 if about is None else about.asks.ranks
        gpus = [len(machine.sample.gpus) for machine in machines]
        if all(gpus) and ranks <= sum(gpus):
            yield _finding(view, loading, machines, seconds, past_s)
            return
        line = f"{loading.phase}: nothing moved here for {seconds / 60:.0f} min, unknown if it hangs"
        why = (("unknown", f"{sum(gpus)} GPUs are seen, its ranks: {ranks}"),)
        yield Finding(STUCK, view.name, line, sure=Sure.UNKNOWN, evidence=why, values={"still_s": seconds})

    def _moves(self, node: NodeView | None, view: BackendView, loading: Loading) -> bool:
        """Return whether something moves on a machine, or that cannot be seen; keep what it shows."""
        if node is None or node.sample is None or not node.ok:
            return True
        newest, before = self._machines.get(node.name), self._earlier.get(node.name)
        if newest is not None and newest.sample.at == node.sample.at:
            return False
        state = self._machines[node.name] = _machine_of(view, loading, node, node.sample)
        if before is None or state.sample.at - before.sample.at >= _WINDOW_S:
            self._earlier[node.name] = state
        return state.is_active or before is None or state.has_moved_since(before)


def _machine_of(
    view: BackendView, loading: Loading, machine: NodeView, sample: NodeSample
) -> _LoadingMachine:
    """Return what a machine shows of a start."""
    loads = sample.workloads
    processes = [] if loads is None else list(loads.processes)
    # A process ID holds on the server's own machine only; elsewhere its ranks are known by their engine.
    if machine.name == loading.node:
        processes = [process for process in processes if process.server == loading.pid]
    else:
        engine = "" if view.start_memory is None else view.start_memory.process.engine or ""
        processes = [process for process in processes if process.engine == engine]
    pids = {process.pid for process in processes}
    gpus = [  # one whose processes are not listed may be its own
        gpu
        for gpu in sample.gpus
        if gpu.processes is None or any(process.pid in pids for process in gpu.processes)
    ]
    reads = [process.read_bytes for process in processes if process.read_bytes is not None]
    work = tuple(
        GpuWork(gpu.power_w, gpu.utilization_percent, gpu.sm_clock_mhz, _quiet_below_w(gpu, sample))
        for gpu in gpus
    )
    fresh = loads is not None and (loads.age_s or 0.0) <= _TABLE_AGE_S
    percents = [process.cpu_percent for process in processes]
    return _LoadingMachine(
        sample,
        sum(gpu.bytes_of(pids) for gpu in gpus),
        sum(process.memory_bytes or 0 for process in processes),
        sum(reads) if len(reads) == len(processes) else None,
        work,
        known_max(percents) if fresh and None not in percents else None,
    )


def _quiet_below_w(gpu: GpuReading, sample: NodeSample) -> float | None:
    """Return the power below which a GPU counts as waiting: for a GB10, its own limit.

    Other GPUs wait at any power (infinity) at a use of 0 %, and are not known to wait otherwise (None).
    """
    if is_gb10(gpu, unified=sample.memory.unified):
        return GB10_POWER_W[0]
    return math.inf if gpu.utilization_percent == 0 else None


def _finding(
    view: BackendView,
    loading: Loading,
    machines: Sequence[_LoadingMachine],
    seconds: float,
    past_s: float | None,
) -> Finding:
    """Return the finding about a start in which nothing has moved for `seconds`."""
    gpus = [gpu for machine in machines for gpu in machine.gpus]
    cpu_percent = known_max(machine.cpu_percent for machine in machines)
    several = len(machines) > 1
    rdma = rdma_mb_per_s(machine.sample for machine in machines) if several else None
    line = gpu_words([replace(gpu, clock_mhz=None) for gpu in gpus], "") or "its GPU not used yet"
    if cpu_percent is not None:
        line += f", CPU {cpu_percent:.0f} %"
    if rdma is not None:
        line += f", RDMA {rdma:.1f} MB/s"
    rows = [("looked at", "GPU memory, own memory, disk, file cache, links, swap, compilers, CPU, GPU power")]
    if past_s:
        rows.append(("this phase last time", f"{minutes(past_s)} min, judged from {_LONGER:g} times that on"))
    rows.append(("named", f"from {_NAMED_S / 60:.0f} min on, critical from {_CRITICAL_S / 60:.0f} min on"))
    case = "CUDA graphs" if loading.phase == _GRAPHS else "else"
    if several:
        case = "several machines"
    return Finding(
        STUCK,
        view.name,
        f"{loading.phase}: nothing moved for {seconds / 60:.0f} min, {line}",
        fix=FINDINGS[STUCK].advice(case),
        sure=Sure.LIKELY,
        severity=Severity.CRITICAL if seconds >= _CRITICAL_S else Severity.WARNING,
        evidence=tuple(rows),
        values={
            "still_s": seconds,
            "limit_s": _NAMED_S,
            "power_w": known_max(gpu.power_w for gpu in gpus),
            "utilization_percent": known_min(gpu.utilization_percent for gpu in gpus),
            "cpu_percent": cpu_percent,
            "rdma_mb_per_s": rdma,
        },
    )
