"""Whether an engine that holds requests makes progress; if not, what its machines do meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Sequence
from operator import attrgetter
from statistics import median

from msgspec import Struct, field

from sparktop.analysis.placement import engine_of
from sparktop.model.engine import LANE_COUNTERS, LANE_HISTOGRAMS, UNKNOWN_REASON, EngineSample, LaneSample
from sparktop.model.event import Progress
from sparktop.model.node import COMPILERS, GpuReading, NodeSample
from sparktop.model.series import known_sum
from sparktop.model.snapshot import EngineProcess

# Progress is what only the engine itself can cause: tokens, steps, the exact use of the KV cache, times
# that are observed while it works, and requests that finished normally. What the HTTP side counts is none:
# a client that gives up, a request that is refused or invalid, an answer with an error, a prompt that
# arrives. An engine that hangs has such counts as long as clients try again, and its numbers of requests
# may change with them.
#
# Each engine core (lane) of a server is measured on its own, because one may hang while the others serve.
# SGLang is an exception: its ranks at rest keep an old number of running requests.


WAITING_HELD_S = 60.0
"""Waiting requests count as held by the engine if none has run for so many seconds."""
STALE_S = 30.0
"""SGLang refreshes its number of running requests only after so many seconds at rest."""
FACT_S = 10.0
"""From so many seconds without progress on they are stated."""
_USUAL_TIMES, _PAUSES_KEPT, _FEWEST_PAUSES = 2.0, 5, 2
"""An engine that usually pauses between two progresses, such as one that computes a token in 20 s on a CPU,
stands still from so many times its median pause on: the pauses that count, and the fewest that show it."""
GIVEN_UP_S = 10.0
"""An engine without requests for at most so many seconds, and without progress since, goes on standing still:
its clients gave up and try again."""
_NORMAL = frozenset(
    {
        "complete",
        "completed",
        "end_id",
        "end_turn",
        "eos",
        "eos_token",
        "finish",
        "length",
        "max_tokens",
        "repetition",
    }
    | {"stop", "stop_sequence", "stop_words", "success", "tool_calls"}
)
"""Reasons for which requests finish by the engine's own work, as engines name them."""
_BY_THE_FRONT = frozenset({"media_cache_hits", "media_cache_queries"})
"""Counters of the HTTP side: vLLM looks for preprocessed images when a request arrives."""
_AS_IT_WORKS = ("ttft", "itl", "step_tokens")
"""Histograms that are observed while a request is computed."""
_AT_ITS_END = tuple(name for name in LANE_HISTOGRAMS if name not in _AS_IT_WORKS)
"""Histograms of a request's whole time: some engines observe it also when the client has given up."""

_COUNTED = tuple(name for name in LANE_COUNTERS if name not in _BY_THE_FRONT)
_read_counted = attrgetter(*_COUNTED)
_read_marks = attrgetter("kv_cache_percent", "engine_work")
_read_steps = attrgetter(*_AS_IT_WORKS)
_read_ends = attrgetter(*_AT_ITS_END)


class _LaneClock(Struct):
    """The standstill of one engine core."""

    marks: Hashable = None
    moved_at: float = 0.0
    """Time of the last progress, or of the first sample with requests after a time without."""
    seconds: float = 0.0
    waited_s: float | None = None
    """Seconds for which requests have waited while none ran, or while the engine sleeps, and nothing moved;
    None while that is not so."""
    held: bool = False
    """Whether the engine held requests at the newest sample."""
    empty_s: float = 0.0
    """Seconds for which it has held none, up to the newest sample."""
    went_on: bool = False
    """Whether its last standstill ended with progress; if not, its requests were gone."""
    pauses: deque[float] = field(default_factory=lambda: deque(maxlen=_PAUSES_KEPT))
    """Seconds between the newest progresses for which it surely made none while it held requests."""

    @property
    def order(self) -> tuple[float, float]:
        """Key by which the engine core that stands longest is the highest."""
        return self.seconds if self.held else 0.0, self.waited_s or 0.0

    def note(self, at: float, passed_s: float, marks: Hashable, lane: LaneSample) -> None:
        """Add a sample `passed_s` seconds after the one before; 0 if samples are missing between them."""
        # Where all requests waited, the first that runs is progress.
        begun = bool(lane.running) and not lane.asleep and (self.waited_s or 0.0) >= WAITING_HELD_S
        moved = marks != self.marks or begun
        self._note_waiting(lane, passed_s, moved=moved)
        if moved and self.held:
            self.pauses.append(self.seconds)
        holds_requests = bool(lane.running) or (self.waited_s or 0.0) >= WAITING_HELD_S
        self.empty_s = 0.0 if holds_requests else self.empty_s + passed_s
        given_up, not_begun = self.empty_s > GIVEN_UP_S, not self.held and not self.seconds
        if moved or lane.asleep or given_up or not_begun:
            if self.seconds:
                self.went_on = moved
            self.marks, self.moved_at, self.seconds = marks, at, 0.0
        elif holds_requests and self.held:
            self.seconds += passed_s
        if (holds_requests and self.seconds) or self.waited_s:
            self.went_on = False
        self.held = holds_requests

    def _note_waiting(self, lane: LaneSample, passed_s: float, *, moved: bool) -> None:
        """Measure how long all requests have waited; `moved` is whether there was progress since."""
        waits = bool(lane.waiting or lane.held_elsewhere)
        if lane.asleep:
            waits = waits or bool(lane.running)
        elif lane.running:
            waits = False
        if self.waited_s and (not waits or moved):
            self.went_on = bool(lane.running) or moved
        if not waits:
            self.waited_s = None
        elif self.waited_s is None or moved:
            self.waited_s = 0.0
        else:
            self.waited_s += passed_s


class StandstillClock:
    """Measures how long a server has held requests without any progress."""

    def __init__(self) -> None:
        """Start without a sample. A new process of the engine needs a new clock."""
        self.fact_s = FACT_S
        """Seconds without progress from which on this engine core stands still, by what it usually takes."""
        self.has_answered = False
        """Whether a token was made or a request finished since the engine's process started: a server of
        embeddings makes no token."""
        self.seconds = 0.0
        """Seconds without progress while requests were held, of the engine core that stands longest; without
        times in which samples are missing."""
        self.moved_at = 0.0
        """Time of the last progress of this engine core."""
        self.lane: LaneSample | None = None
        """The newest sample of this engine core."""
        self.may_be_stale = False
        """Whether the number of running requests may be an old one."""
        self.waited_s = 0.0
        """Seconds for which requests have waited at this engine core, which ran none and made no progress."""
        self.went_on = False
        """Whether its last standstill ended with progress; if not, the requests were gone."""
        self._lanes: dict[str, _LaneClock] = {}
        self._at: float | None = None

    @property
    def stood_s(self) -> float:
        """Seconds without progress while requests were held, or while all of them waited."""
        return max(self.seconds, self.waited_s)

    def note(self, sample: EngineSample, missed_after_s: float) -> None:
        """Add a sample; if it comes later than `missed_after_s` after the last, samples are missing.

        A time with missing samples is neither progress nor evidence of a standstill.
        """
        gap_s = 0.0 if self._at is None else sample.at - self._at
        passed_s = gap_s if gap_s <= missed_after_s else 0.0
        self._at = sample.at
        marks = {lane.lane: _progress_marks(lane, sample.counted_at_arrival) for lane in sample.lanes}
        self.has_answered = self.has_answered or any(_has_answered(lane) for lane in sample.lanes)
        sglang = sample.engine == "sglang"
        common: Hashable = tuple(marks.values()) if sglang and len(marks) > 1 else None
        for lane in sample.lanes:
            clock = self._lanes.setdefault(lane.lane, _LaneClock())
            clock.note(sample.at, passed_s, common or marks[lane.lane], lane)
        self._lanes = {name: self._lanes[name] for name in marks}
        longest = max(sample.lanes, key=lambda lane: self._lanes[lane.lane].order)
        clock = self._lanes[longest.lane]
        self.lane, self.moved_at, self.went_on = longest, clock.moved_at, clock.went_on
        self.seconds = clock.seconds if clock.held else 0.0
        usual_s = median(clock.pauses) if len(clock.pauses) >= _FEWEST_PAUSES else 0.0
        self.fact_s = max(FACT_S, min(_USUAL_TIMES * usual_s, QUIET_S[1]))
        self.waited_s = clock.waited_s or 0.0
        alone_stale = clock.seconds < STALE_S + missed_after_s and not longest.waiting
        self.may_be_stale = sglang and (alone_stale if len(marks) == 1 else not longest.waiting)


def _has_answered(lane: LaneSample) -> bool:
    ends = _NORMAL | {UNKNOWN_REASON}
    return bool(lane.generation_tokens) or any(lane.finished.get(reason) for reason in ends)


def _progress_marks(lane: LaneSample, at_arrival: frozenset[str]) -> Hashable:
    """Return everything of a lane that changes only when the engine makes progress.

    `at_arrival` are the counters to which the HTTP side adds when a request arrives.
    """
    counted = zip(_COUNTED, _read_counted(lane), strict=True)
    counts = tuple(value for name, value in counted if name not in at_arrival)
    finished = sorted((reason, count) for reason, count in lane.finished.items() if reason in _NORMAL)
    # An engine that names the reasons counts each normal finish, so that its histograms add nothing.
    named = any(reason != UNKNOWN_REASON for reason in lane.finished)
    histograms = _read_steps(lane) if named else (*_read_steps(lane), *_read_ends(lane))
    observed = tuple((histogram.count, histogram.sum) for histogram in histograms if histogram is not None)
    return (*_read_marks(lane), *counts, *observed, *finished)


# Judges an engine that holds requests without progress: a long step, or stuck.
#
# An engine that hangs keeps all its gauges: a page with "8 running" may be an hour old. A long prefill
# looks the same in the token counters, because they grow only with the first token of an answer. What sets
# them apart is the exact use of the KV cache (it grows with each chunk of a prompt), counters of forward
# passes where an engine has them, and the GPU: a prefill draws the power of work, a hang that of waiting.
#
# The limits come from reports of hangs on GB10 machines: 13 to 27 W at 96 % utilisation while stuck, 45 to
# 90 W while healthy, about 46 W in a long prefill (vLLM #48720 and #46097; eugr/spark-vllm-docker #260 and
# #409). The engines' own watchdogs wait 300 s.


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
"""Use of a GPU that waits in a kernel, and of one that has nothing to do."""
_PART_PERCENT, _FEWEST_IN_PART = (10.0, 90.0), 3
"""Use of a GPU that works part of the time, and the fewest samples that show it."""
_RDMA_QUIET_MB_PER_S, _RDMA_BUSY_MB_PER_S = 1.0, 10.0
"""Traffic below which a link is silent, and above which it works."""


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
    def is_busy(self) -> bool:
        """Whether its power shows that it works."""
        return self.power_w is not None and self.busy_from_w is not None and self.power_w >= self.busy_from_w

    @property
    def is_spinning(self) -> bool:
        """Whether it is used all the time, at little power and a normal clock: it waits in a kernel."""
        used_percent, clock = self.utilization_percent, self.clock_mhz
        fast = clock is not None and clock > _LEAST_CLOCK_MHZ
        return self._draws_little and fast and used_percent is not None and used_percent >= _SPINNING_PERCENT

    @property
    def is_at_rest(self) -> bool:
        """Whether it is hardly used; its clock is of no importance then."""
        used_percent = self.utilization_percent
        return self._draws_little and used_percent is not None and used_percent <= _BLOCKED_PERCENT

    @property
    def _draws_little(self) -> bool:
        return (
            self.power_w is not None and self.quiet_below_w is not None and self.power_w < self.quiet_below_w
        )


class Standstill(Struct, frozen=True):
    """An engine that has held requests without progress, with what is known beside its metrics."""

    seconds: float
    has_answered: bool
    """Whether it has answered anything since its process started; before, it may still be warming up."""
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
    """Which ranks lag or are missing, as NCCL says, or which of the engine's processes ended; None if neither
    is known."""
    unexplained_s: float | None = None
    """Seconds since work or a reason to rest was last seen; None if neither was seen in the standstill. A
    step may take some time after a kernel was compiled."""
    counts_steps: bool = True
    """False if its counters move only when a request ends: its metrics alone then show no standstill."""
    may_be_stale: bool = False
    """Whether its number of running requests may be an old one: a rank of SGLang at rest keeps it."""
    fact_s: float = FACT_S
    """Seconds from which on it is stated; more than `FACT_S` for an engine that usually takes longer."""


def judge_standstill(standstill: Standstill) -> Progress:
    """Return what a standstill means.

    The order: a fact for at least `fact_s`, an engine that may hold nothing at all, an excuse, what NCCL
    says, GPUs or a core that work, GPUs that wait, and without a view of the GPUs the time alone.
    """
    seconds = standstill.seconds
    if seconds < standstill.fact_s or (
        standstill.may_be_stale and not any(gpu.is_spinning for gpu in standstill.gpus)
    ):
        return Progress.MOVING
    if not standstill.has_answered or standstill.excuse is not None:
        return Progress.STILL
    return Progress.STUCK if standstill.ranks_apart is not None else _judge_by_work(standstill)


def limits_s(standstill: Standstill) -> tuple[float | None, float | None]:
    """Return the seconds without progress until an engine is suspected, and until it is called stuck.

    None: never, by what is known of it now.
    """
    if not standstill.has_answered or standstill.excuse is not None:
        return None, None
    busy_link = standstill.rdma_mb_per_s is not None and standstill.rdma_mb_per_s > _RDMA_BUSY_MB_PER_S
    works = busy_link or standstill.core_busy or any(gpu.is_busy for gpu in standstill.gpus)
    if works or (standstill.unexplained_s is not None and works_in_part(standstill)):
        return LONGEST_STEP_S, None
    if are_all_quiet(standstill):
        return QUIET_S
    return BLIND_S if standstill.counts_steps else (None, None)


def _judge_by_work(standstill: Standstill) -> Progress:
    """Return what a standstill means by the work of GPUs, links and cores."""
    suspected_s, stuck_s = limits_s(standstill)
    seconds, unexplained_s = standstill.seconds, standstill.unexplained_s
    if suspected_s is None:
        return Progress.STILL if seconds >= BLIND_S[0] else Progress.MOVING
    if stuck_s is None:
        return Progress.LONG_STEP if seconds < suspected_s else Progress.SUSPECT
    seconds = seconds if unexplained_s is None else min(seconds, unexplained_s)
    if seconds >= stuck_s:
        return Progress.STUCK
    return Progress.SUSPECT if seconds >= suspected_s else Progress.STILL


def are_all_quiet(standstill: Standstill) -> bool:
    """Return whether all GPUs of the engine wait, and the links between its machines are silent."""
    if not standstill.gpus or not all(gpu.is_spinning or gpu.is_at_rest for gpu in standstill.gpus):
        return False
    if not standstill.processes_known and not any(gpu.is_spinning for gpu in standstill.gpus):
        return False
    rdma = standstill.rdma_mb_per_s
    return not standstill.several_machines or (rdma is not None and rdma < _RDMA_QUIET_MB_PER_S)


def works_in_part(standstill: Standstill) -> bool:
    """Return whether its GPUs have several samples between rest and full use: they work in bursts."""
    low, high = _PART_PERCENT
    used_percents = [gpu.utilization_percent for gpu in standstill.gpus]
    return sum(low < percent < high for percent in used_percents if percent is not None) >= _FEWEST_IN_PART


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
    idle, usual_w = sorted(idle_w)[len(idle_w) // 2], busy[len(busy) // 2]
    return quiet, idle + (usual_w - idle) / 2


# What the machines of an engine do while the engine makes no progress: its GPUs, processes and swapping.


SWAPPING_BYTES_PER_S = 1000 * 4096.0
"""From so many bytes swapped in per second on, a machine has no time for anything else."""
_BUSY_CORE_PERCENT = 90.0
"""Use of a CPU core from which on it is full."""
_TABLE_AGE_S = 15.0
"""A reading of processes that is older says nothing about now."""


def engine_gpus(
    name: str, gpus: Sequence[GpuReading], processes: Iterable[EngineProcess], *, alone: bool
) -> tuple[GpuReading, ...] | None:
    """Return the GPUs of one machine that the backend `name` uses; None if that is unknown.

    They are those on which its processes run. If no process is known to be its own, they are all GPUs,
    provided that the backend is `alone` on the machine.
    """
    pids = {process.pid for process in processes if process.backend == name}
    result = tuple(gpu for gpu in gpus if any(process.pid in pids for process in gpu.processes or ()))
    return result or (tuple(gpus) if alone and gpus else None)


def engine_cpu(sample: NodeSample, engine: str | None, gpus: Iterable[GpuReading]) -> tuple[float, ...]:
    """Return the CPU use of each of the engine's processes on a machine, in percent of one core.

    The result is empty if it is unknown.
    """
    pids = {process.pid for gpu in gpus for process in gpu.processes or () if process.kind != "graphics"}
    loads, table = sample.workloads, sample.processes
    uses: Iterable[float | None] = ()
    if loads is not None and _is_fresh(loads.age_s):
        uses = (row.cpu_percent for row in loads.processes if row.pid in pids or row.engine == engine)
    elif table is not None and _is_fresh(table.age_s):
        rows = (row for row in table.processes if row.pid in pids or engine_of(row.name) == engine)
        uses = (row.cpu_percent for row in rows)
    return tuple(percent for percent in uses if percent is not None)


def full_core_percent(percents: Iterable[float]) -> float | None:
    """Return the highest of these CPU uses if it fills a core; None if none does."""
    highest = max(percents, default=0.0)
    return highest if highest >= _BUSY_CORE_PERCENT else None


def running_compiler(samples: Iterable[NodeSample]) -> str | None:
    """Return which compiler runs on one of the machines, by its name if known; None if none does."""
    for sample in samples:
        table, loads = sample.processes, sample.workloads
        names = {process.name for process in table.processes} & COMPILERS if table is not None else set()
        if names:
            return min(names)
        if loads is not None and loads.compilers:
            return "a compiler runs"
    return None


def _is_fresh(age_s: float | None) -> bool:
    return age_s is not None and age_s <= _TABLE_AGE_S


def excuse_of(lane: LaneSample, samples: Collection[NodeSample]) -> str | None:
    """Return why an engine whose GPUs rest stands still without being stuck; None if no reason is known."""
    gauges = lane.gauges
    if gauges.get("sleep_operations"):
        return "it falls asleep or wakes up"
    if gauges.get("weight_updates"):
        return "its weights are being updated"
    if not lane.running and (gauges.get("deferred") or gauges.get("kv_fetching")):
        return "its requests wait for the KV cache of another server"
    program = running_compiler(samples)
    if program is not None:
        return f"a kernel is being compiled ({program})"
    swapped = max((sample.memory.swap_in_bytes_per_s or 0.0 for sample in samples), default=0.0)
    if swapped > SWAPPING_BYTES_PER_S:
        return f"its machine swaps {swapped / 1e6:.0f} MB/s in"
    return None


def rdma_mb_per_s(samples: Iterable[NodeSample]) -> float | None:
    """Return the traffic of the busiest machine's RDMA ports in MB/s, both ways together; None if unknown."""
    rates: list[float] = []
    for sample in samples:
        links = [link for link in sample.network if link.kind == "rdma" and link.up is not False]
        rate = known_sum(rate for link in links for rate in (link.rx_bytes_per_s, link.tx_bytes_per_s))
        if rate is None:
            return None
        rates.append(rate / 1e6)
    return max(rates, default=None)


def gpu_words(works: Sequence[GpuWork], verb: str) -> str:
    """Return what the GPUs do, such as "2 GPUs wait: load 97 % at only 19–20 W"; "" if that is unknown.

    `verb` is "wait" or "work"; "" if neither is certain.
    """
    usage_text = _range_text([work.utilization_percent for work in works])
    power, clock = (
        _range_text([work.power_w for work in works]),
        _range_text([work.clock_mhz for work in works]),
    )
    if not usage_text and not power:
        return ""
    several = len(works) > 1
    head = f"{len(works)} GPUs" if several else "GPU"
    head += f" {verb}{'' if several else 's'}:" if verb else ""
    words = f"load {usage_text} %" if usage_text else ""
    if power:
        words = f"{words} at {'only ' if verb == 'wait' else ''}{power} W" if usage_text else f"{power} W"
    return f"{head} {words}, {clock} MHz" if clock else f"{head} {words}"


def _range_text(values: Sequence[float | None]) -> str:
    reported = [value for value in values if value is not None]
    if not reported or len(reported) < len(values):
        return ""
    texts = [*dict.fromkeys(f"{value:.0f}" for value in reported)]
    return " and ".join(texts) if len(texts) <= 2 else f"{min(reported):.0f}–{max(reported):.0f}"  # noqa: PLR2004 - a pair, each named


def reason_of_standstill(standstill: Standstill, now: Sequence[GpuWork], core_percent: float | None) -> str:
    """Return in words what speaks for the verdict on a standstill.

    `now` are the GPUs at the newest sample, `core_percent` the CPU use of a process of the engine that fills
    a core. "" where nothing is known.
    """
    if standstill.excuse is not None:
        return standstill.excuse
    warm_up_words = "" if standstill.has_answered else "no answer since its start: it may still warm up"
    warm_up_words = warm_up_words or standstill.ranks_apart or ""
    if warm_up_words or works_in_part(standstill):
        return warm_up_words or "its GPU works in bursts, as while CUDA graphs are captured"
    verb = "work" if any(gpu.is_busy for gpu in now) else ""
    if are_all_quiet(standstill):
        verb = "wait"
    words = gpu_words(now, "" if standstill.core_busy else verb)
    if not words:
        return "" if standstill.gpus else "only its metrics are known"
    if core_percent is not None and standstill.core_busy:
        return f"{words}; the engine keeps one CPU core {core_percent:.0f} % busy"
    rdma = standstill.rdma_mb_per_s
    link = "" if rdma is None or not standstill.several_machines else f", RDMA {rdma:,.3g} MB/s"
    return f"{words}{link}"
