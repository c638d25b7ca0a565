"""What servers and machines tell while a sweep runs: their counters, gauges and readings, level by level."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure
from sparktop.model.node import GpuReading, NodeSample
from sparktop.model.router import RouterSample
from sparktop.model.snapshot import Snapshot
from sparktop.rates.lane_sums import kv_fullest_percent, kv_used_percent, lane_sum
from sparktop.store import Reading, SourceKey
from sparktop.store.keys import SourceKind
from sparktop.store.load_log import ABORTED_REASONS, FAILED_REASONS
from sparktop.sweep.plan.plan import SweepTarget, TargetKind
from sparktop.sweep.result.results import NodeSide

Span = tuple[float, float]
"""Beginning and end on the monotonic clock, which on Linux is also the load generator's."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of a server, over its lanes; None where it has no such counter."""

    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    preemptions: float | None = None
    cache_hits: float | None = None
    """Tokens found in the prefix cache."""
    cache_queries: float | None = None
    finished: float | None = None
    """Requests, whatever their end."""
    prefill_s: float | None = None
    """Time that requests spent in their prefill, all together."""
    prefills: float | None = None
    """Requests whose prefill that time holds."""
    steps: float | None = None
    """Engine steps; None also for a server of several lanes, whose steps are not one batch."""
    spec_accepted_tokens: float | None = None
    failed: float | None = None
    """Finished requests that the server says failed."""
    aborted: float | None = None
    """Finished requests whose client went away, or gave up."""

    def since(self, before: Counters) -> Counters:
        """Give how much each grew; below 0 where the server began anew."""
        return Counters(
            *(_minus(now, then) for now, then in zip(self._values(), before._values(), strict=True))
        )

    def plus(self, other: Counters) -> Counters:
        """Give the sum of each; unknown where one is."""
        return Counters(*(_plus(one, two) for one, two in zip(self._values(), other._values(), strict=True)))

    def fell(self) -> bool:
        """Tell whether a growth shows that the server began to count anew."""
        return any(value is not None and value < 0 for value in self._values())

    def _values(self) -> list[float | None]:
        return [getattr(self, one.name) for one in fields(self)]


@dataclass(frozen=True, slots=True)
class ServerPoint:
    """One look at a server."""

    at: float
    running: float | None
    waiting: float | None
    kv_cache_percent: float | None
    counters: Counters
    start_time: float | None
    kv_fullest_percent: float | None = None
    """Of the lane whose KV cache is fullest."""

    @property
    def idle(self) -> bool | None:
        """True when nothing runs or waits; None where it does not tell."""
        if self.running is None:
            return None
        return self.running == 0 and not self.waiting


@dataclass(frozen=True, slots=True)
class NodePoint:
    """One look at a machine, over its GPUs."""

    at: float
    gpu_c: float | None
    """Of the hottest."""
    power_w: float | None
    """Of all together."""
    sm_clock_mhz: float | None
    """Mean."""
    throttled_percent: float | None
    """Of the reason and GPU with most, since the look before."""
    headroom_bytes: int | None
    unified: bool = False
    """Its GPUs live in the machine's memory: what they take, everything else lacks."""
    is_idle: bool = False
    """Its GPUs say that they did nothing: such a clock or power is no word about the load."""


def server_point(sample: EngineSample) -> ServerPoint:
    """Take from a sample what a sweep needs."""
    lanes = sample.lanes
    return ServerPoint(
        at=sample.at,
        running=lane_sum(lanes, lambda lane: lane.running),
        waiting=lane_sum(lanes, lambda lane: lane.waiting),
        kv_cache_percent=kv_used_percent(lanes),
        kv_fullest_percent=kv_fullest_percent(lanes),
        counters=Counters(
            generation_tokens=lane_sum(lanes, lambda lane: lane.generation_tokens),
            prompt_tokens=lane_sum(lanes, lambda lane: lane.prompt_tokens),
            preemptions=lane_sum(lanes, lambda lane: lane.preemptions),
            cache_hits=lane_sum(lanes, lambda lane: lane.prefix_cache_hits),
            cache_queries=lane_sum(lanes, lambda lane: lane.prefix_cache_queries),
            finished=lane_sum(lanes, lambda lane: sum(lane.finished.values()) if lane.finished else None),
            prefill_s=lane_sum(lanes, lambda lane: lane.prefill.sum if lane.prefill is not None else None),
            prefills=lane_sum(lanes, lambda lane: lane.prefill.count if lane.prefill is not None else None),
            steps=_steps(lanes),
            failed=lane_sum(lanes, lambda lane: _finished(lane, FAILED_REASONS)),
            aborted=lane_sum(lanes, lambda lane: _finished(lane, ABORTED_REASONS)),
            spec_accepted_tokens=lane_sum(lanes, lambda lane: lane.spec_accepted_tokens),
        ),
        start_time=sample.start_time,
    )


def node_point(sample: NodeSample) -> NodePoint:
    """Take from a sample what a sweep needs."""
    gpus = sample.gpus
    temperatures = _known(gpu.temperature_c for gpu in gpus)
    powers = _known(gpu.power_w for gpu in gpus)
    clocks = _known(gpu.sm_clock_mhz for gpu in gpus)
    throttled = _known(share for gpu in gpus for share in _throttled(gpu))
    return NodePoint(
        at=sample.at,
        gpu_c=max(temperatures, default=None),
        power_w=sum(powers) if powers else None,
        sm_clock_mhz=fmean(clocks) if clocks else None,
        throttled_percent=max(throttled, default=None),
        headroom_bytes=sample.memory.headroom_bytes,
        unified=sample.memory.unified is True,
        is_idle=bool(gpus) and all(gpu.utilization_percent == 0 for gpu in gpus),
    )


def watched_backends(target: SweepTarget, snapshot: Snapshot) -> tuple[str, ...]:
    """Give the watched servers that load on a target reaches: itself, or those behind a router."""
    by_url = {view.url: view.name for view in snapshot.backends}
    names = {view.name for view in snapshot.backends}
    if target.kind is TargetKind.ENGINE:
        found = by_url.get(target.url) or (target.name if target.name in names else None)
        return (found,) if found else ()
    told = [by_url.get(url) or (name if name in names else None) for name, url in target.backends.items()]
    if not told:
        views = [view for view in snapshot.routers if view.url == target.url]
        told = [name for view in views for name in view.backends if name in names]
    return tuple(dict.fromkeys(name for name in told if name is not None))


def watched_nodes(target: SweepTarget, snapshot: Snapshot) -> tuple[str, ...]:
    """Give the watched machines that a target's servers run on."""
    backends = watched_backends(target, snapshot)
    placed = [node for view in snapshot.backends if view.name in backends for node in view.nodes]
    known = {view.name for view in snapshot.nodes}
    return tuple(dict.fromkeys(node for node in (*target.nodes, *placed) if node in known))


def is_mdns(url: str) -> bool:
    """Tell whether a target is found by multicast, which loses names for seconds at a time."""
    return (urlsplit(url).hostname or "").removesuffix(".").endswith(".local")


class ServerLog:
    """Keeps what was heard since the sweep began, as far back as `forget` leaves it."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        """Know nothing yet."""
        self._clock = clock
        self._servers: dict[str, list[ServerPoint]] = {}
        self._nodes: dict[str, list[NodePoint]] = {}
        self._routers: dict[str, list[RouterSample]] = {}
        """Samples of routers that count failures."""
        self._silent: dict[str, tuple[float, Failure]] = {}
        """Of servers that do not answer: since when, and the newest failure."""
        self._news = asyncio.Event()

    def hear(self, key: SourceKey, reading: Reading) -> None:
        """Take a reading."""
        if key.kind is SourceKind.BACKEND:
            if isinstance(reading, EngineSample):
                self._servers.setdefault(key.name, []).append(server_point(reading))
                self._silent.pop(key.name, None)
            elif isinstance(reading, Failure):
                since = self._silent.get(key.name, (reading.at, reading))[0]
                self._silent[key.name] = (since, reading)
        elif isinstance(reading, NodeSample):
            self._nodes.setdefault(key.name, []).append(node_point(reading))
        elif isinstance(reading, RouterSample) and reading.failures is not None:
            self._routers.setdefault(key.name, []).append(reading)
        self.wake()

    def wake(self) -> None:
        """Have whoever waits look again."""
        self._news.set()

    def newest(self, name: str) -> ServerPoint | None:
        """Give the newest look at a server."""
        points = self._servers.get(name)
        return points[-1] if points else None

    def silence(self, name: str) -> tuple[float, Failure] | None:
        """Give since when a server does not answer, and why; None while it does."""
        return self._silent.get(name)

    def servers(self, name: str, spans: Sequence[Span]) -> list[ServerPoint]:
        """Give the looks at a server in any of the spans."""
        return [one for one in self._servers.get(name, ()) if _inside(one.at, spans)]

    def nodes(self, name: str, spans: Sequence[Span]) -> list[NodePoint]:
        """Give the looks at a machine in any of the spans."""
        return [one for one in self._nodes.get(name, ()) if _inside(one.at, spans)]

    def router_failures(self, name: str, since: float) -> dict[str, float] | None:
        """Return the failed answers by deployment that a router counted from `since` on.

        From its last sample before `since` to its newest one. None where it does not count, or began anew.
        """
        samples = self._routers.get(name, [])
        first = max(0, bisect_right([one.at for one in samples], since) - 1)
        if len(samples) - first < 2:  # noqa: PLR2004 - a difference is of two
            return None
        before, now = samples[first].failures or {}, samples[-1].failures or {}
        grown = {one: count - before.get(one, 0.0) for one, count in now.items()}
        return None if any(count < 0 for count in grown.values()) else grown

    def forget(self, before: float) -> None:
        """Drop what is older, but for the newest look at each."""
        kept: list[list[Any]] = [*self._servers.values(), *self._nodes.values(), *self._routers.values()]
        for points in kept:
            del points[: min(bisect_left([one.at for one in points], before), len(points) - 1)]

    async def wait_for(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Wait until `done`, for so long at most; tell whether it is."""
        end = self._clock() + limit_s
        while not done():
            self._news.clear()
            try:
                async with asyncio.timeout(max(0.0, end - self._clock())):
                    await self._news.wait()
            except TimeoutError:
                return done()
        return True

    async def settled(
        self, names: Iterable[str], after: float, limit_s: float, stopping: Callable[[], bool]
    ) -> Mapping[str, ServerPoint] | None:
        """Wait until each server is idle and two looks after `after` agree; give the newer of each.

        None when that did not come to pass. Servers that do not tell what they run are left out.
        """
        telling = [name for name in names if self._tells(name)]
        await self.wait_for(
            lambda: stopping() or all(self._at_rest(name, after) for name in telling), limit_s
        )
        points = {name: self._at_rest(name, after) for name in telling}
        found = {name: point for name, point in points.items() if point is not None}
        return found if len(found) == len(telling) else None

    def _tells(self, name: str) -> bool:
        newest = self.newest(name)
        return newest is not None and newest.idle is not None

    def _at_rest(self, name: str, after: float) -> ServerPoint | None:
        points = self._servers.get(name, [])[-2:]
        if len(points) < 2 or points[0].at <= after:  # noqa: PLR2004 - two looks must agree
            return None
        before, newest = points
        still = before.idle and newest.idle and before.counters == newest.counters
        return newest if still and before.start_time == newest.start_time else None


def node_side(points: Sequence[NodePoint]) -> NodeSide:
    """Give what a machine did, from the looks at it while requests were in flight.

    Means leave out looks at which it idled: between two bursts, or beside a router that sent it nothing.
    """
    busy = [one for one in points if not one.is_idle]
    powers = _known(one.power_w for one in busy)
    clocks = _known(one.sm_clock_mhz for one in busy)
    throttled = _known(one.throttled_percent for one in busy)
    return NodeSide(
        gpu_c_max=max(_known(one.gpu_c for one in points), default=None),
        power_w_mean=fmean(powers) if powers else None,
        sm_clock_mhz_mean=fmean(clocks) if clocks else None,
        throttled_percent=fmean(throttled) if throttled else None,
        headroom_min_bytes=min(_known(one.headroom_bytes for one in points), default=None),
    )


def in_flight(requests: Iterable[Span]) -> list[Span]:
    """Give the spans in which at least one of these requests was in flight."""
    spans: list[Span] = []
    for begin, end in sorted(requests):
        if spans and begin <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((begin, end))
    return spans


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _throttled(gpu: GpuReading) -> Iterable[float | None]:
    return gpu.throttled_percent.values()


def _inside(at: float, spans: Sequence[Span]) -> bool:
    return any(begin <= at <= end for begin, end in spans)


def _finished(lane: LaneSample, reasons: frozenset[str]) -> float | None:
    """Return the requests that ended for one of these reasons; None where the lane names none of them."""
    told = [count for reason, count in lane.finished.items() if reason in reasons]
    return sum(told) if told else None


def _steps(lanes: Sequence[LaneSample]) -> float | None:
    """Return the steps of a server that is one lane."""
    steps = lanes[0].step_tokens if len(lanes) == 1 else None
    return None if steps is None else steps.count


def _minus(now: float | None, then: float | None) -> float | None:
    return None if now is None or then is None else now - then


def _plus(one: float | None, two: float | None) -> float | None:
    return None if one is None or two is None else one + two
