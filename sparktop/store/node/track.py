"""The store's state of one node: newest sample, histories and derived values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median

from msgspec.structs import replace

from sparktop.analysis.headroom import PLENTY, SLOT_S, Fall, Trend, headroom, trend
from sparktop.analysis.placement import engine_processes
from sparktop.analysis.speed_state import (
    SLOW_CLOCK,
    UNKNOWN,
    Pace,
    StepPace,
    follow,
    is_gb10,
    with_steps,
    worst,
)
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import MemoryReading, MemorySample, NodeIdentity, NodeSample
from sparktop.model.series import LATE, HistoryTable
from sparktop.model.snapshot import EngineProcess, Headroom, NodeHistory, NodeView, SpeedState
from sparktop.model.targets import NodeTarget, NodeThresholds
from sparktop.store.health import Health
from sparktop.store.node.endings import Endings
from sparktop.store.node.gpu_roll import GpuRoll
from sparktop.store.node.machine_log import MachineLog
from sparktop.store.node.throttled import ThrottledMinute, WorstGpu

GIB = 2**30
TREND_AFTER_BOOT_S = 300.0
"""Seconds after a restart of the machine in which its memory shows no trend: models are loaded."""
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
        self.throttled: WorstGpu | None = None
        self.steps: tuple[StepPace, ...] = ()
        """The step time comparison of the backend on this node, if it allows a conclusion about the node;
        else empty."""
        self.roll = GpuRoll()
        """The GPUs that the node has reported."""
        self.work = MachineLog()
        """Samples of the last minute, for the limits of the backends that run here."""
        self.beyond_at: dict[str, float] = {}
        """By alert id: monotonic time at which the alert's value was last beyond its limit."""
        self.span_s: float | None = None
        """Seconds between the two newest samples; None before the second."""
        self.rebooted_at: float | None = None
        """When the machine's last restart was noticed, in monotonic seconds; None if none was."""
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
        self._paces: dict[int, Pace] = {}
        self._trend: Trend | None = None
        self._trend_at: float | None = None
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
        known = self.view.sample
        samples = sorted((*sample.missed, sample), key=lambda one: one.at)
        fresh = [one for one in samples if known is None or one.at > known.at]
        step_s = median(_steps(samples)) if sample.missed else interval_s
        self._remember(samples, LATE * step_s)
        self._measure(fresh, None if known is None else known.at, step_s)
        newest = fresh[-1] if fresh else known or sample
        self.health.good(newest.at)
        self.view = replace(
            self.view,
            sample=dataclasses.replace(newest, missed=()) if newest.missed else newest,
            failure=None,
            failing_since=None,
            history=NodeHistory(**self._histories.series()),
        )
        if fresh:
            self._judge(newest, interval_s)
        return bool(fresh)

    def accept_memory(self, reading: MemorySample) -> None:
        """Show a newer reading of the memory in the newest sample; histories and alerts do not change."""
        known = self.view.sample
        if known is not None and reading.at > known.at:
            self.view = replace(self.view, sample=dataclasses.replace(known, memory=reading.memory))

    def judge_steps(self, steps: tuple[StepPace, ...]) -> None:
        """Update the node's speed state with `steps`, the step time comparison of the backend on the node."""
        sample, self.steps = self.view.sample, steps
        gb10 = sample is not None and any(is_gb10(gpu, unified=sample.memory.unified) for gpu in sample.gpus)
        speed = with_steps(worst(self._paces), steps, gb10=gb10)
        if speed != self.view.speed:
            self.view = replace(self.view, speed=speed)

    def _remember(self, samples: Sequence[NodeSample], apart_s: float) -> None:
        """Add samples to the histories, also between older points if their times require it.

        A gap is removed if the points on both sides of it are now at most `apart_s` seconds apart.
        """
        points = [(sample.at, _points(sample)) for sample in samples]
        last_at = self.view.history.cpu_percent.last_at
        if len(points) == 1 and (last_at is None or points[0][0] > last_at):
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
                self._paces = {
                    index: pace if pace.state.word == SLOW_CLOCK else Pace(pace.state)
                    for index, pace in self._paces.items()
                }
            self._failed, known_at = False, sample.at
            self._paces = {
                gpu.index: follow(
                    self._paces.get(gpu.index, Pace()),
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
        self.work.note(newest)
        self.processes = engine_processes(newest.gpus)
        self.throttled = self._minute.worst()
        limits = memory_limits(newest.memory, self._thresholds)
        left_gib = self.view.history.headroom_gib
        if self._trend_at is None or newest.at - self._trend_at >= SLOT_S:
            # Only as often as it gets a new point: it costs more than everything else here.
            booted = self.rebooted_at is not None and newest.at - self.rebooted_at < TREND_AFTER_BOOT_S
            self._trend = None if booted else trend(left_gib, newest.at, interval_s)
            self._trend_at = newest.at
            self._fall.note(newest.at, self._trend)
        self.view = replace(
            self.view,
            headroom=headroom(self._trend, left_gib.last, limits[2] if limits else None),
            speed=worst(self._paces),
            throttled_percent=self.throttled.percent if self.throttled else {},
            gpus_lost=self.roll.call(newest),
        )
        until_s = self.view.headroom.until_limit_s
        plenty = limits is not None and limits[0] > PLENTY * (newest.memory.total_bytes or math.inf)
        expected = until_s is not None and (not plenty or self._fall.reaches(until_s))
        self.limit_in_s = until_s if until_s is not None and expected else math.inf


def memory_limits(memory: MemoryReading, thresholds: NodeThresholds) -> tuple[float, float, float] | None:
    """Return (memory left, warning limit, critical limit) in bytes; None if any of them is unknown."""
    left = _left_bytes(memory)
    if left is None:
        return None
    if memory.unified:
        return left, thresholds.headroom_warn_gib * GIB, thresholds.headroom_critical_gib * GIB
    if memory.total_bytes is None:
        return None
    percent = memory.total_bytes / 100
    return left, percent * thresholds.available_warn_percent, percent * thresholds.available_critical_percent


def _left_bytes(memory: MemoryReading) -> int | None:
    return memory.headroom_bytes if memory.headroom_bytes is not None else memory.available_bytes


def _points(sample: NodeSample) -> dict[str, float | None]:
    """Return the value that a sample adds to each history, by field name of `NodeHistory`."""
    memory, gpus = sample.memory, sample.gpus
    left = _left_bytes(memory)
    percent = (
        100.0 * memory.used_bytes / memory.total_bytes
        if memory.used_bytes is not None and memory.total_bytes
        else None
    )
    up = [link for link in sample.network if link.up is not False]
    # Traffic of bridges, tunnels and loopback is also counted at an interface.
    links = [link for link in up if link.kind not in {"other", "rdma"}]
    rdma = [link for link in up if link.kind == "rdma"]
    heat = [gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None]
    shares = [share for gpu in gpus for share in gpu.throttled_percent.values() if share is not None]
    return {
        "cpu_percent": sample.cpu.percent,
        "gpu_percent": _mean(gpu.utilization_percent for gpu in gpus),
        "memory_percent": percent,
        "power_w": _total(gpu.power_w for gpu in gpus),
        "rx_bytes_per_s": _total(link.rx_bytes_per_s for link in links),
        "tx_bytes_per_s": _total(link.tx_bytes_per_s for link in links),
        "rdma_rx_bytes_per_s": _total(link.rx_bytes_per_s for link in rdma),
        "rdma_tx_bytes_per_s": _total(link.tx_bytes_per_s for link in rdma),
        "temperature_c": max(heat, default=None),
        "sm_clock_mhz": _mean(gpu.sm_clock_mhz for gpu in gpus),
        "headroom_gib": None if left is None else left / GIB,
        "throttled_percent": max(shares, default=None),
        "swap_in_bytes_per_s": memory.swap_in_bytes_per_s,
    }


def _steps(samples: Sequence[NodeSample]) -> list[float]:
    return [later.at - earlier.at for earlier, later in pairwise(samples)]


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
