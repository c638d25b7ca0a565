"""What servers, routers and machines report during a sweep: their samples, and sums of their counters."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import astuple

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure
from sparktop.model.node import GpuReading, NodeSample
from sparktop.model.router import RouterSample
from sparktop.model.snapshot import BackendView, Snapshot
from sparktop.rates import kv_fullest_percent, kv_used_percent, lane_sum
from sparktop.store import Reading, SourceKey
from sparktop.store.load_log import ABORTED_REASONS, FAILED_REASONS
from sparktop.store.sources import SourceKind
from sparktop.sweep.plan.plan import Plan, SweepTarget, TargetKind
from sparktop.sweep.result.results import NodeSide
from sparktop.sweep.run.limit_log import LimitLog

Number = TypeVar("Number", int, float)

Span = tuple[float, float]
"""Start and end in monotonic seconds, which on Linux is also the clock of the load generator."""


class Counters(Struct, frozen=True):
    """Counters of a server, summed over its engine cores (lanes: data-parallel ranks); None: not reported."""

    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    preemptions: float | None = None
    cache_hits: float | None = None
    """Tokens found in the prefix cache."""
    cache_queries: float | None = None
    finished: float | None = None
    """Finished requests, with any finish reason."""
    prefill_s: float | None = None
    """Seconds that requests spent in prefill, summed."""
    prefills: float | None = None
    """Number of requests in `prefill_s`."""
    steps: float | None = None
    """Engine steps; None also with several engine cores, because a step is of one core's batch only."""
    spec_accepted_tokens: float | None = None
    """Tokens that speculative decoding drafted and the model accepted."""
    spec_draft_tokens: float | None = None
    spec_drafts: float | None = None
    failed: float | None = None
    """Finished requests that the server counts as failed."""
    aborted: float | None = None
    """Finished requests that the client aborted."""

    def since(self, before: Counters) -> Counters:
        """Return the growth of each counter since `before`; negative if the server was restarted.

        The growth of a counter is None if this reading or the reading `before` lacks it.
        """
        return Counters(
            *(_minus(now, then) for now, then in zip(self._values(), before._values(), strict=True))
        )

    def plus(self, other: Counters) -> Counters:
        """Return this and the `other` reading, added counter by counter; None where either is unknown."""
        return Counters(*(_plus(one, two) for one, two in zip(self._values(), other._values(), strict=True)))

    def fell(self) -> bool:
        """Return whether any value is negative. In a result of `since` this means a restart of the server."""
        return any(value is not None and value < 0 for value in self._values())

    def _values(self) -> list[float | None]:
        return [*astuple(self)]


class ServerPoint(Struct, frozen=True):
    """What a sweep needs of a server's sample, summed over its engine cores (data-parallel ranks)."""

    at: float
    running: float | None
    waiting: float | None
    kv_cache_percent: float | None
    counters: Counters
    start_time: float | None
    kv_fullest_percent: float | None = None
    """KV cache usage (0 to 100) of the engine core that has the highest."""

    @property
    def idle(self) -> bool | None:
        """True if no request is running or waiting; None if unknown."""
        if self.running is None:
            return None
        return self.running == 0 and not self.waiting


class NodePoint(Struct, frozen=True):
    """The values of a machine's sample that a sweep needs, summarised over its GPUs; None: not reported."""

    at: float
    gpu_c: float | None
    """Temperature of the hottest GPU in °C."""
    power_w: float | None
    """Sum over GPUs."""
    sm_clock_mhz: float | None
    """Mean over GPUs."""
    throttled_percent: float | None
    """Throttled time since the previous sample in percent: the maximum over GPUs and throttle reasons."""
    headroom_bytes: int | None
    unified: bool = False
    """True if the GPUs use the machine's main memory."""
    is_idle: bool = False
    """True if all GPUs report 0 % utilisation. Clock and power are then not those under load."""


def server_point(sample: EngineSample) -> ServerPoint:
    """Return the values of an engine's sample that a sweep needs, summed over its engine cores."""
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
            spec_draft_tokens=lane_sum(lanes, lambda lane: lane.spec_draft_tokens),
            spec_drafts=lane_sum(lanes, lambda lane: lane.spec_drafts),
        ),
        start_time=sample.start_time,
    )


def node_point(sample: NodeSample) -> NodePoint:
    """Return the values of a machine's sample that a sweep needs, summarised over its GPUs."""
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
    """Return the names of the watched servers that compute a target's requests, in configured order.

    These are the target itself, or the backends behind it if it is a router; empty if none is watched.
    """
    by_url = {view.url: view.name for view in snapshot.backends}
    names = {view.name for view in snapshot.backends}
    if target.kind is TargetKind.ENGINE:
        found = by_url.get(target.url) or (target.name if target.name in names else None)
        return (found,) if found else ()
    reported = [by_url.get(url) or (name if name in names else None) for name, url in target.backends.items()]
    if not reported:
        views = [view for view in snapshot.routers if view.url == target.url]
        reported = [name for view in views for name in view.backends if name in names]
    return tuple(dict.fromkeys(name for name in reported if name is not None))


def watched_sums(
    plan: Plan, snapshot: Snapshot, figure: Callable[[BackendView], Number | None]
) -> dict[str, Number]:
    """Return the sum of a figure over the servers of each target, where all of them report it."""
    figures = {view.name: figure(view) for view in snapshot.backends}
    found: dict[str, Number] = {}
    for target in plan.targets:
        each = [figures.get(name) for name in watched_backends(target, snapshot)]
        known = [value for value in each if value is not None]
        if known and len(known) == len(each):
            found[target.name] = sum(known)
    return found


def watched_contexts(plan: Plan, snapshot: Snapshot) -> dict[str, int]:
    """Return the most tokens that a request may have, by name of the plan's servers that report it."""
    names = {name for target in plan.targets for name in watched_backends(target, snapshot)}
    return {
        view.name: view.max_model_len
        for view in snapshot.backends
        if view.name in names and view.max_model_len is not None
    }


def watched_nodes(target: SweepTarget, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the names of the watched machines that a target's servers run on; empty if none is known."""
    backends = watched_backends(target, snapshot)
    placed = [node for view in snapshot.backends if view.name in backends for node in view.nodes]
    known = {view.name for view in snapshot.nodes}
    return tuple(dict.fromkeys(node for node in (*target.nodes, *placed) if node in known))


def is_mdns(url: str) -> bool:
    """Return whether the host name in `url` ends in .local, so that it is resolved by multicast DNS.

    Such look-ups fail for seconds at a time.
    """
    return (urlsplit(url).hostname or "").removesuffix(".").endswith(".local")


class ServerLog:
    """The samples of servers, routers and machines since the sweep began, less those dropped by `forget`."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        """Start without samples."""
        self._clock = clock
        self._servers: dict[str, list[ServerPoint]] = {}
        self._nodes: dict[str, list[NodePoint]] = {}
        self._routers: dict[str, list[RouterSample]] = {}
        """Samples by router, for routers that count failed requests."""
        self._silent: dict[str, tuple[float, Failure]] = {}
        """(time of the first failure in a row, newest failure) of each server that does not answer."""
        self.limits = LimitLog()
        self._news = asyncio.Event()

    def accept(self, key: SourceKey, reading: Reading) -> None:
        """Store a sample or a failure of the source `key`, and wake up pending `wait_for` calls."""
        if key.kind is SourceKind.BACKEND:
            if isinstance(reading, EngineSample):
                self._servers.setdefault(key.name, []).append(server_point(reading))
                self.limits.accept_server(key.name, reading)
                self._silent.pop(key.name, None)
            elif isinstance(reading, Failure):
                since = self._silent.get(key.name, (reading.at, reading))[0]
                self._silent[key.name] = (since, reading)
        elif isinstance(reading, NodeSample):
            self._nodes.setdefault(key.name, []).append(node_point(reading))
            self.limits.accept_machine(key.name, reading)
        elif isinstance(reading, RouterSample) and reading.failures is not None:
            self._routers.setdefault(key.name, []).append(reading)
        self.wake()

    def wake(self) -> None:
        """Make every pending `wait_for` and `settled` check its condition again."""
        self._news.set()

    def newest(self, name: str) -> ServerPoint | None:
        """Return the newest sample of a server; None if there is none."""
        points = self._servers.get(name)
        return points[-1] if points else None

    def silence(self, name: str) -> tuple[float, Failure] | None:
        """Return (time of the first failed poll in a row, newest failure); None if polls succeed."""
        return self._silent.get(name)

    def servers(self, name: str, spans: Sequence[Span]) -> list[ServerPoint]:
        """Return the samples of a server that lie in any of the spans of time, in order."""
        return [one for one in self._servers.get(name, ()) if _inside(one.at, spans)]

    def nodes(self, name: str, spans: Sequence[Span]) -> list[NodePoint]:
        """Return the samples of a machine that lie in any of the spans of time, in order."""
        return [one for one in self._nodes.get(name, ()) if _inside(one.at, spans)]

    def router_failures(self, name: str, since: float) -> dict[str, float] | None:
        """Return a router's own count of failed answers since the time `since`, by deployment (backend id).

        This is the difference between the router's last sample before `since` and its newest sample. None if
        one of these samples is missing, if the router does not count failures, or if it was restarted.
        """
        samples = self._routers.get(name, [])
        first = max(0, bisect_right([one.at for one in samples], since) - 1)
        if len(samples) - first < 2:  # noqa: PLR2004 - a difference is of two
            return None
        before, now = samples[first].failures or {}, samples[-1].failures or {}
        grown = {one: count - before.get(one, 0.0) for one, count in now.items()}
        return None if any(count < 0 for count in grown.values()) else grown

    def forget(self, before: float) -> None:
        """Drop samples older than the time `before`, except the newest sample of each source."""
        self.limits.forget(before)
        kept: list[list[Any]] = [*self._servers.values(), *self._nodes.values(), *self._routers.values()]
        for points in kept:
            del points[: min(bisect_left([one.at for one in points], before), len(points) - 1)]

    async def wait_for(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Wait until `done` returns True, for at most `limit_s` seconds; return the last result of `done`.

        `done` is called after each reading and each `wake`.
        """
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
        """Wait until servers are idle, and return their newest samples by name.

        A server is idle once its last two samples, both later than `after`, show no requests and the same
        counters. Servers that do not report running requests are left out. Return None if a server is not
        idle after `limit_s` seconds, or when `stopping` returns True.
        """
        telling = [name for name in names if self._reports_load(name)]
        await self.wait_for(
            lambda: stopping() or all(self._at_rest(name, after) for name in telling), limit_s
        )
        points = {name: self._at_rest(name, after) for name in telling}
        found = {name: point for name, point in points.items() if point is not None}
        return found if len(found) == len(telling) else None

    def _reports_load(self, name: str) -> bool:
        newest = self.newest(name)
        return newest is not None and newest.idle is not None

    def _at_rest(self, name: str, after: float) -> ServerPoint | None:
        points = self._servers.get(name, [])[-2:]
        if len(points) < 2 or points[0].at <= after:  # noqa: PLR2004 - two samples must agree
            return None
        before, newest = points
        still = before.idle and newest.idle and before.counters == newest.counters
        return newest if still and before.start_time == newest.start_time else None


def node_side(points: Sequence[NodePoint]) -> NodeSide:
    """Summarise the samples of a machine that were taken while requests were in flight.

    Samples with idle GPUs, for example between two bursts, do not count in means. A value that no sample has
    is None.
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
    """Return the (start, end) spans in which at least one request was in flight, in order.

    `requests` has the (start, end) of each request in any order.
    """
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
    """Return how many requests ended for one of `reasons` in an engine core (lane: data-parallel rank).

    None if the engine core reports no number for any of these reasons.
    """
    reported = [count for reason, count in lane.finished.items() if reason in reasons]
    return sum(reported) if reported else None


def _steps(lanes: Sequence[LaneSample]) -> float | None:
    """Return the number of engine steps of a server with a single engine core (lane); None otherwise."""
    steps = lanes[0].step_tokens if len(lanes) == 1 else None
    return None if steps is None else steps.count


def _minus(now: float | None, then: float | None) -> float | None:
    return None if now is None or then is None else now - then


def _plus(one: float | None, two: float | None) -> float | None:
    return None if one is None or two is None else one + two
