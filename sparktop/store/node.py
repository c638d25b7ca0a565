"""The store's state of one node: its newest sample, missing GPUs, throttling, restarts, ended engines."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median

from msgspec import structs
from msgspec.structs import replace

from sparktop.analysis.evidence import MachinePoll
from sparktop.analysis.headroom import PLENTY, SLOT_S, Fall, headroom, trend
from sparktop.analysis.placement import engine_processes, orphaned_pids
from sparktop.analysis.speed_state import (
    SLOW_CLOCK,
    UNKNOWN,
    ClockPace,
    StepPace,
    advance_pace,
    is_gb10,
    with_steps,
    worst_state,
)
from sparktop.model.event import Event, Severity, Values
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.instant import Instant
from sparktop.model.node import (
    GIB,
    GpuReading,
    LastBoot,
    LostGpu,
    MemoryReading,
    NetworkReading,
    NodeIdentity,
    NodeSample,
)
from sparktop.model.series import LATE, HistoryTable, drop_older, known_max, known_mean, known_sum
from sparktop.model.snapshot import EngineProcess, Headroom, NodeHistory, NodeView, SpeedState
from sparktop.model.targets import NodeTarget, NodeThresholds
from sparktop.store.endings import Endings, last_words
from sparktop.store.event_log import ActiveAlerts
from sparktop.store.sources import Health, SourceKey

NO_TREND_S = 300.0
"""Seconds after a restart of the machine, and after the start of an engine's process, in which memory shows
no trend: models are loaded."""
_REMEMBERED = NodeHistory.__struct_fields__


class NodeTrack:
    """One node: its newest sample, its histories for graphs, and the values derived from them."""

    def __init__(self, target: NodeTarget, thresholds: NodeThresholds) -> None:
        """Start without any sample."""
        self.target = target
        self.health = Health()
        self.took_ms: float | None = None
        self.processes: tuple[EngineProcess, ...] = ()
        """Processes of inference engines on the node's GPUs. Which backend each belongs to is in `view`."""
        self.orphans: frozenset[int] = frozenset()
        """PIDs of processes that belong to no backend, because their server has ended."""
        self.throttled: WorstGpu | None = None
        self.steps: tuple[StepPace, ...] = ()
        """The step time comparison of the backend on this node, if it allows a conclusion about the node;
        else empty."""
        self.known_gpus = KnownGpus()
        self.polls: deque[MachinePoll] = deque()
        """Samples of the last minute, for the limits of the backends that run here."""
        self.usual_mhz: float | None = None
        """Highest SM clock seen under load; None if there was no load yet."""
        self.beyond_at: dict[str, float] = {}
        """By alert id: monotonic time at which the alert's value was last beyond its limit."""
        self.span_s: float | None = None
        """Seconds between the two newest samples; None before the second."""
        self.rebooted_at: float | None = None
        """When the machine's last restart was noticed, in monotonic seconds; None if none was."""
        self.loads = False
        """Whether a server that is watched starts on the machine."""
        self.endings = Endings()
        self.boot_id: str | None = None
        """The newest boot id that the machine reported."""
        self.limit_in_s = math.inf
        """Seconds until headroom reaches its critical limit; endless where there is plenty and its fall has
        lasted too briefly to expect that."""
        self._fall = Fall()
        self._thresholds = thresholds
        self._histories = HistoryTable(_REMEMBERED)
        self._minute = ThrottledMinute()
        self._paces: dict[int, ClockPace] = {}
        self._trend: Headroom | None = None
        self._trend_at: float | None = None
        self._loaded_at = -math.inf
        """When the machine was last seen to load a model."""
        self._failed = False
        """True from a failure to the next sample."""
        self.view = NodeView(target.name, target.via, scrape=target.scrape)

    def set_thresholds(self, thresholds: NodeThresholds) -> None:
        """Judge later samples by `thresholds`."""
        self._thresholds = thresholds

    def identify(self, identity: NodeIdentity) -> None:
        """Store what the machine reports about itself."""
        self.view = replace(self.view, identity=identity)
        self.boot_id = identity.boot_id or self.boot_id

    def assign(self, processes: tuple[EngineProcess, ...]) -> None:
        """Store which backend each engine process belongs to."""
        if processes != self.view.engine_processes:
            self.view = replace(self.view, engine_processes=processes)

    def accept_failure(self, failure: Failure, now: datetime, took_ms: float | None) -> None:
        """Record a failed poll: add a gap to the histories, but keep the last sample in the view.

        Once the node is down or its newest sample old, drop what was derived from its samples (speed state,
        headroom, throttling).
        """
        self.took_ms = took_ms
        self.health.bad(failure, now)
        self._failed = True
        self._histories.append(failure.at, {})
        self.view = replace(
            self.view,
            failure=failure,
            failing_since=self.health.failing_since,
            history=NodeHistory(**self._histories.series()),
        )
        old = failure.kind is FailureKind.LATE
        if (self.health.down or old) and self._trend_at is not None:
            # Old judgements are dropped: a countdown that stands still would be believed.
            self._paces.clear()
            self._minute.clear()
            self._trend = self._trend_at = None
            self._fall, self.limit_in_s = Fall(), math.inf
            self.throttled, self.steps = None, ()
            lost = SpeedState(UNKNOWN, "its newest sample is old" if old else "it does not answer")
            self.view = replace(self.view, speed=lost, headroom=Headroom(), throttled_percent={})

    def accept_sample(self, sample: NodeSample, took_ms: float | None, interval_s: float) -> bool:
        """Record a sample and the earlier samples in its `missed`, which earlier polls did not receive.

        Return False if none of these is newer than the last recorded sample. `interval_s` is the configured
        time between two samples; that of the scrapes counts instead where a Prometheus is read.
        """
        if self.target.scrape is not None:
            interval_s = self.target.scrape.every_s
        self.took_ms = sample.cost_ms if sample.cost_ms is not None else took_ms
        before = self.view.sample
        samples = sorted((*sample.missed, sample), key=lambda reading: reading.at)
        fresh = [reading for reading in samples if before is None or reading.at > before.at]
        step_s = median(_intervals_s(samples)) if sample.missed else interval_s
        self._remember(samples, LATE * step_s)
        self._measure(fresh, None if before is None else before.at, step_s)
        newest = fresh[-1] if fresh else before or sample
        self.health.good(newest.at)
        self.view = replace(
            self.view,
            sample=structs.replace(newest, missed=()) if newest.missed else newest,
            failure=None,
            failing_since=None,
            history=NodeHistory(**self._histories.series()),
        )
        if fresh:
            self._judge(newest, interval_s)
        return bool(fresh)

    def judge_steps(self, steps: tuple[StepPace, ...]) -> None:
        """Update the node's speed state with `steps`, the step time comparison of the backend on the node."""
        sample, self.steps = self.view.sample, steps
        gb10 = sample is not None and any(is_gb10(gpu, unified=sample.memory.unified) for gpu in sample.gpus)
        speed = with_steps(worst_state(self._paces), steps, gb10=gb10)
        if speed != self.view.speed:
            self.view = replace(self.view, speed=speed)

    def _remember(self, samples: Sequence[NodeSample], apart_s: float) -> None:
        """Add samples to the histories, also between older points if their times require it.

        A gap is removed if the points on both sides of it are now at most `apart_s` seconds apart.
        """
        points = [(sample.at, _history_values(sample)) for sample in samples]
        last_at = self.view.history.cpu_percent.last_at
        if len(samples) == 1 and (last_at is None or samples[0].at > last_at):
            self._histories.append(*points[0])
        else:
            self._histories.insert(points, apart_s)

    def _measure(self, fresh: Sequence[NodeSample], known_at: float | None, step_s: float) -> None:
        """Update the throttled shares and the GPU clock states with the samples `fresh`, oldest first.

        `known_at` is the time of the last sample before `fresh`, `step_s` the usual time between two samples.
        """
        for sample in fresh:
            self.span_s = span_s = None if known_at is None else sample.at - known_at
            # After a failure the time that the shares cover is unknown, unless no sample is missing.
            if span_s is not None and not (self._failed and span_s > LATE * step_s):
                self._minute.add(sample.at, span_s, sample.gpus)
            if self._failed:
                # A slow clock stays what it is; what was counted towards another state begins anew.
                self._paces = {
                    index: pace if pace.state.word == SLOW_CLOCK else ClockPace(pace.state)
                    for index, pace in self._paces.items()
                }
            self._failed, known_at = False, sample.at
            self._paces = {
                gpu.index: advance_pace(
                    self._paces.get(gpu.index, ClockPace()),
                    gpu,
                    sample.at,
                    unified=sample.memory.unified,
                    shares=self._minute.shares(gpu.index),
                    thresholds=self._thresholds,
                )
                for gpu in sample.gpus
            }

    def _judge(self, newest: NodeSample, interval_s: float) -> None:
        """Set the view's derived values (headroom, speed, throttling, lost GPUs) as of the newest sample."""
        self._note_poll(newest)
        self.processes, self.orphans = engine_processes(newest.gpus), orphaned_pids(newest.workloads)
        self.throttled = self._minute.worst_gpu()
        limits = memory_limits(newest.memory, self._thresholds)
        left_gib = self.view.history.headroom_gib
        if self._trend_at is None or newest.at - self._trend_at >= SLOT_S:
            # Only as often as it gets a new point: it costs more than everything else here.
            booted = self.rebooted_at is not None and newest.at - self.rebooted_at < NO_TREND_S
            if booted or self.loads or _has_young_engine(newest):
                self._loaded_at = newest.at
            self._trend = trend(left_gib, newest.at, interval_s, begin=self._loaded_at)
            self._trend_at = newest.at
            self._fall.note(newest.at, self._trend)
        self.view = replace(
            self.view,
            headroom=headroom(self._trend, left_gib.last, limits[2] if limits else None),
            speed=worst_state(self._paces),
            throttled_percent=self.throttled[1] if self.throttled else {},
            gpus_lost=self.known_gpus.update(newest),
        )
        until_s = self.view.headroom.until_limit_s
        plenty = limits is not None and limits[0] > PLENTY * (newest.memory.total_bytes or math.inf)
        expected = until_s is not None and (not plenty or self._fall.reaches(until_s))
        self.limit_in_s = until_s if until_s is not None and expected else math.inf

    def _note_poll(self, sample: NodeSample) -> None:
        """Keep what a sample shows of the limits of the backends that run here."""
        poll = machine_poll(sample)
        if poll.clock_mhz is not None and (poll.gpu_percent or 0.0) >= _LOADED_PERCENT:
            self.usual_mhz = max(self.usual_mhz or 0.0, float(poll.clock_mhz))
        self.polls.append(poll)
        drop_older(self.polls, sample.at - _KEPT_S)


def _has_young_engine(sample: NodeSample) -> bool:
    """Return whether a process of an engine started lately: it may be loading a model."""
    processes = () if sample.workloads is None else sample.workloads.processes
    return any(each.engine and each.age_s is not None and each.age_s < NO_TREND_S for each in processes)


def memory_limits(memory: MemoryReading, thresholds: NodeThresholds) -> tuple[float, float, float] | None:
    """Return (memory left, warning limit, critical limit) in bytes; None if any of them is unknown."""
    left = memory.left_bytes
    if left is None:
        return None
    if memory.unified:
        return left, thresholds.headroom_warn_gib * GIB, thresholds.headroom_critical_gib * GIB
    if memory.total_bytes is None:
        return None
    percent = memory.total_bytes / 100
    return left, percent * thresholds.available_warn_percent, percent * thresholds.available_critical_percent


def _history_values(sample: NodeSample) -> dict[str, float | None]:
    """Return the value that a sample adds to each history, by field name of `NodeHistory`."""
    memory, gpus = sample.memory, sample.gpus
    left = memory.left_bytes
    percent = (
        100.0 * memory.used_bytes / memory.total_bytes
        if memory.used_bytes is not None and memory.total_bytes
        else None
    )
    up = [link for link in sample.network if link.up is not False]
    # Traffic of bridges, tunnels and loopback is also counted at an interface.
    links = [link for link in up if link.kind not in {"other", "rdma"}]
    rdma = [link for link in up if link.kind == "rdma"]
    return {
        "cpu_percent": sample.cpu.percent,
        "gpu_percent": known_mean(gpu.utilization_percent for gpu in gpus),
        "memory_percent": percent,
        "power_w": sample.gpu_power_w,
        "rx_bytes_per_s": known_sum(link.rx_bytes_per_s for link in links),
        "tx_bytes_per_s": known_sum(link.tx_bytes_per_s for link in links),
        "rdma_rx_bytes_per_s": known_sum(link.rx_bytes_per_s for link in rdma),
        "rdma_tx_bytes_per_s": known_sum(link.tx_bytes_per_s for link in rdma),
        "temperature_c": sample.hottest_c,
        "sm_clock_mhz": known_mean(gpu.sm_clock_mhz for gpu in gpus),
        "headroom_gib": None if left is None else left / GIB,
        "throttled_percent": known_max(share for gpu in gpus for share in gpu.throttled_percent.values()),
        "swap_in_bytes_per_s": memory.swap_in_bytes_per_s,
    }


def _intervals_s(samples: Sequence[NodeSample]) -> list[float]:
    return [later.at - earlier.at for earlier, later in pairwise(samples)]


# The samples of a machine over the last minute, as far as they show what holds a backend on it back.


_KEPT_S = 60.0
"""Seconds for which samples are kept."""
_LOADED_PERCENT = 80.0
"""GPU utilization from which on its clock is that under load."""
_BITS = 8.0
"""Bits of a byte."""


def machine_poll(sample: NodeSample) -> MachinePoll:
    """Return the figures of a sample that show what holds a backend on the machine back."""
    gpu = _busiest_gpu(sample)
    link = max(filter(_carries_load, sample.network), key=_link_share, default=None)
    return MachinePoll(
        sample.at,
        gpu.utilization_percent if gpu is not None else None,
        gpu.sm_clock_mhz if gpu is not None else None,
        max(sample.cpu.core_percent, default=None),
        _link_share(link) if link is not None else None,
        max(link.rx_bytes_per_s or 0.0, link.tx_bytes_per_s or 0.0) if link is not None else None,
        link.name if link is not None else None,
        gpu.power_w if gpu is not None and is_gb10(gpu, unified=sample.memory.unified) else None,
    )


def _busiest_gpu(sample: NodeSample) -> GpuReading | None:
    return max(sample.gpus, key=lambda gpu: gpu.utilization_percent or 0.0, default=None)


def _carries_load(link: NetworkReading) -> bool:
    return link.kind != "other" and link.up is not False and bool(link.capacity_bits_per_s)


def _link_share(link: NetworkReading) -> float:
    """Return the traffic of a link in its busier direction as a share of what it can carry."""
    carried = max(link.rx_bytes_per_s or 0.0, link.tx_bytes_per_s or 0.0)
    return _BITS * carried / (link.capacity_bits_per_s or 1.0)


# The share of the last minute in which each GPU was throttled, by reason.


WINDOW_S = 60.0
"""Seconds over which throttling is averaged."""

_ThrottleShares = Mapping[str, float | None]


WorstGpu = tuple[int, Mapping[str, float], float]
"""The GPU with the largest throttled share: its index, its shares by reason in percent of the known time, and
the seconds of the last minute for which they are known."""


class ThrottledMinute:
    """Throttled shares over the last minute, by GPU and reason.

    They are means of the samples' shares, weighted by the time that each sample covers. Unknown time is left
    out.
    """

    def __init__(self) -> None:
        """Start without samples."""
        self._samples: deque[tuple[float, float, Mapping[int, _ThrottleShares]]] = deque()
        """(time, seconds that it covers, shares by GPU index)."""

    def add(self, at: float, span_s: float, gpus: Iterable[GpuReading]) -> None:
        """Add the throttled shares of `gpus`, which cover the `span_s` seconds before `at`."""
        self._samples.append((at, span_s, {gpu.index: gpu.throttled_percent for gpu in gpus}))
        while self._samples[0][0] <= at - WINDOW_S:
            self._samples.popleft()

    def clear(self) -> None:
        """Forget all samples."""
        self._samples.clear()

    def _sums(self, index: int) -> dict[str, tuple[float, float]]:
        """Return (percent x seconds, seconds) of one GPU by reason."""
        sums: dict[str, tuple[float, float]] = {}
        for _, span_s, shares in self._samples:
            for reason, percent in shares.get(index, {}).items():
                if percent is not None:
                    weighted, seconds = sums.get(reason, (0.0, 0.0))
                    sums[reason] = weighted + percent * span_s, seconds + span_s
        return sums

    def shares(self, index: int) -> dict[str, float]:
        """Return the throttled percent (0 to 100) of one GPU by reason; unknown reasons are absent."""
        return {
            reason: min(100.0, weighted / seconds)
            for reason, (weighted, seconds) in self._sums(index).items()
            if seconds
        }

    def worst_gpu(self) -> WorstGpu | None:
        """Return the GPU that was throttled most; None if no share is known."""
        indexes = sorted({index for *_, shares in self._samples for index in shares})
        shares_by_gpu = {index: self.shares(index) for index in indexes}
        shares_by_gpu = {index: shares for index, shares in shares_by_gpu.items() if shares}
        if not shares_by_gpu:
            return None
        index = max(shares_by_gpu, key=lambda gpu: max(shares_by_gpu[gpu].values()))
        return index, shares_by_gpu[index], max(seconds for _, seconds in self._sums(index).values())


# The event that a machine restarted, with the machine's last values before the restart.


SLOPE_S = 30.0
"""The change of memory headroom is measured over this many seconds before the last sample."""
_LEAST_SLOPE_S = 2.0
"""Shorter spans show no slope."""
_FALLING_GIB_PER_MIN = 0.6
"""Slower falls are not mentioned."""
_FULL_SHARE, _LITTLE_GIB = 0.97, 2.0
"""Share of memory in use, and headroom in GiB, beyond which a restart may have been a memory wedge."""
_HOT_C = 90.0
"""Temperature from which on a restart may have been due to heat."""


def restart_events(key: SourceKey, track: NodeTrack, identity: NodeIdentity, when: Instant) -> list[Event]:
    """Return an event if `identity` has another boot id than the machine had before.

    Also note the restart in `track`, and forget the endings before it. With the same boot id, return another
    event once the machine has read how its last boot ended, else []. Called before `track` stores the
    identity, while its newest sample is still from before the restart.
    """
    before, after = track.boot_id, identity.boot_id
    about = f"{key.label}:boot"
    if before is None or after is None or before == after:
        if (
            track.rebooted_at is None
            or identity.last_boot is None
            or track.view.identity.last_boot is not None
        ):
            return []
        return [Event(when.wall, Severity.INFO, key.name, end_words(identity.last_boot), {}, when.at, about)]
    values = _last_values(track, when)
    track.rebooted_at = when.at
    track.endings = Endings()
    message = _reboot_message(track, values, identity, when)
    return [Event(when.wall, Severity.WARNING, key.name, message, values, when.at, about)]


def _reboot_message(track: NodeTrack, values: Values, identity: NodeIdentity, when: Instant) -> str:
    """Return when it rebooted, when it was last seen and how, and the likely reason if there is a sign."""
    text = "rebooted"
    if identity.booted_at is not None:
        text += f" at {datetime.fromtimestamp(identity.booted_at, UTC).astimezone():%H:%M:%S}"
    age_s = _number_in(values, "last_sample_age_s")
    if age_s is None:
        return text
    seen_at = f"{(when.wall - timedelta(seconds=age_s)).astimezone():%H:%M:%S}"
    words = last_words(track.view.sample)
    headroom, slope = _number_in(values, "headroom_gib"), _number_in(values, "slope_gib_per_min")
    if headroom is not None and (slope or 0.0) < -_FALLING_GIB_PER_MIN:
        falls = f"{headroom:.1f} GiB of memory left, falling {-(slope or 0.0):.2g} GiB/min"
        words = f"{words}, {falls}" if words else falls
    text += f"; last sample {seen_at}" + (f" at {words}" if words else "")
    guess = _reboot_guess(track.view.sample, headroom)
    return f"{text}: {guess}" if guess else text


def _reboot_guess(sample: NodeSample | None, headroom_gib: float | None) -> str:
    """Return what the last sample suggests, as a question; "" if it suggests nothing."""
    if sample is None:
        return ""
    used_bytes, total = sample.memory.used_bytes, sample.memory.total_bytes
    full = used_bytes is not None and bool(total) and used_bytes >= _FULL_SHARE * (total or 0)
    if full or (headroom_gib is not None and headroom_gib < _LITTLE_GIB):
        return "perhaps it ran out of memory"
    if any((gpu.temperature_c or 0.0) >= _HOT_C for gpu in sample.gpus):
        return "overheated?"
    return ""


def end_words(last: LastBoot) -> str:
    """Return how the last boot ended, in words, and what cannot be read."""
    parts = []
    if last.watchdog:
        parts.append("the hardware watchdog reset it")
    if last.clean is not None:
        parts.append("it was shut down in order" if last.clean else "it was not shut down in order")
    if last.last_line:
        parts.append(f"last line of its journal: {last.last_line}")
    if last.unreadable:
        parts.append(last.unreadable)
    return f"how it went down: {'; '.join(parts) if parts else 'nothing was left to read'}"


def _number_in(values: Values, name: str) -> float | None:
    value = values.get(name)
    return value if isinstance(value, float | int) else None


def _last_values(track: NodeTrack, when: Instant) -> Values:
    """Return memory headroom, its trend, GPU temperature and power from the last sample before the restart.

    A value that is not known is None. The result is empty if there was no sample.
    """
    sample = track.view.sample
    if sample is None:
        return {}
    series = track.view.history.headroom_gib.since(sample.at - SLOPE_S)
    points = [(time, value) for time, value in series if value is not None]
    headroom_gib: float | None = None
    slope_gib_per_min: float | None = None
    if points:
        (first_at, first_gib), (last_at, headroom_gib) = points[0], points[-1]
        if last_at - first_at >= _LEAST_SLOPE_S:
            slope_gib_per_min = 60 * (headroom_gib - first_gib) / (last_at - first_at)
    return {
        "last_sample_age_s": max(0.0, when.at - sample.at),
        "headroom_gib": headroom_gib,
        "slope_gib_per_min": slope_gib_per_min,
        "temperature_c": sample.hottest_c,
        "power_w": sample.gpu_power_w,
        "window_s": SLOPE_S,
    }


# The GPUs that a machine has reported, and which of these are missing now.


# A GPU counts as lost if it is missing while other GPUs answer, or if the driver reports it as lost. If all
# GPUs are missing and the driver names none of them, the driver is being restarted or was unloaded. A GPU
# in MIG mode stays listed whatever its instances are, so reconfiguring it is not a loss. A new GPU at the
# index of a missing GPU replaces that GPU.


RESTART_S = 60.0
"""A driver that is being restarted comes back within this many seconds."""
_NOT_LISTED = "the driver does not list it any more"


class KnownGpus:
    """Keeps the known GPUs of one machine, and remembers which lost GPUs have an alert."""

    def __init__(self) -> None:
        """Start without known GPUs."""
        self._known: dict[str, LostGpu] = {}
        self._single: set[str] = set()
        """Keys of missing GPUs that were lost individually; they stay here even if all other GPUs go missing
        later."""
        self._alerted: dict[str, LostGpu] = {}
        """Lost GPUs that have an alert, by its id."""
        self._driver_gone_at: float | None = None

    def update(self, sample: NodeSample) -> tuple[LostGpu, ...]:
        """Update the known GPUs from `sample`; return the missing GPUs, each with the reason.

        They are in the order of their indices.
        """
        present = {
            _gpu_key(gpu.index, gpu.uuid): LostGpu(gpu.index, gpu.name, gpu.uuid) for gpu in sample.gpus
        }
        indices_of_new = {gpu.index for key, gpu in present.items() if key not in self._known}
        for key, gpu in [*self._known.items()]:
            if key not in present and gpu.index in indices_of_new:  # another one is in its place
                del self._known[key]
        self._known |= present
        reported = {gpu.index: gpu for gpu in sample.gpus_lost}
        for gpu in reported.values():
            if not any(gpu.index == listed.index for listed in self._known.values()):
                self._known[_gpu_key(gpu.index, gpu.uuid)] = gpu
        missing = {key: gpu for key, gpu in self._known.items() if key not in present}
        self._single &= missing.keys()
        self._single |= {key for key, gpu in missing.items() if present or gpu.index in reported}
        if present:
            self._driver_gone_at = None
        elif not reported and self._driver_gone_at is None:
            self._driver_gone_at = sample.at
        lost: list[LostGpu] = []
        for gpu in missing.values():
            reason = _NOT_LISTED if present else sample.gpu_note
            if gpu.index in reported:
                reason = reported[gpu.index].reason
            lost.append(LostGpu(gpu.index, gpu.name, gpu.uuid, reason))
        return tuple(sorted(lost, key=lambda gpu: gpu.index))

    def judge(
        self,
        alerts: ActiveAlerts,
        key: SourceKey,
        sample: NodeSample,
        lost: tuple[LostGpu, ...],
        when: Instant,
    ) -> None:
        """Raise, update or clear the alert "gpu-lost" of each single GPU, and "gpus-gone" where none answers.

        `lost` is the result of `update` for the same sample, `when` the sample's time.
        """
        single = {
            f"{key.label}:gpu-lost/{gpu.index}": gpu
            for gpu in lost
            if _gpu_key(gpu.index, gpu.uuid) in self._single
        }
        counts: Values = {"gpus": len(sample.gpus), "limit_gpus": len(self._known), "window_s": 0.0}
        for alert_id, gpu in self._alerted.items():
            if alert_id not in single:
                is_back = _gpu_key(gpu.index, gpu.uuid) in self._known
                alerts.clear(alert_id, when, f"{gpu.label} answers again" if is_back else None)
        for alert_id, gpu in single.items():
            alerts.hold(alert_id, Severity.CRITICAL, key.name, loss_text(gpu), counts, when)
        self._alerted = single
        gone_id = f"{key.label}:gpus-gone"
        if lost and not sample.gpus and not single:
            gone_s = 0.0 if self._driver_gone_at is None else when.at - self._driver_gone_at
            severity = Severity.CRITICAL if gone_s >= RESTART_S else Severity.WARNING
            which = "its GPU does not answer" if len(lost) == 1 else f"none of its {len(lost)} GPUs answers"
            message = f"{which}: {lost[0].reason or 'the driver gives no reason'}"
            values = {**counts, "window_s": gone_s, "limit_s": RESTART_S}
            alerts.hold(gone_id, severity, key.name, message, values, when)
        else:
            alerts.clear(gone_id, when, "the GPUs answer again" if sample.gpus else None)


def loss_text(gpu: LostGpu) -> str:
    """Return a sentence that names the lost GPU and the reason."""
    return f"{gpu.label} is lost: {gpu.reason or 'the driver gives no reason'}"


def _gpu_key(index: int, uuid: str | None) -> str:
    """Return a key for a GPU: its UUID if known, else "#index".

    The index alone is not reliable, because indices shift when another GPU is lost.
    """
    return uuid or f"#{index}"
