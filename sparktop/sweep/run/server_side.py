"""What servers, routers and machines report during a sweep: samples, counters, queues, and limits."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import add, sub
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from sparktop.analysis.bandwidth import bandwidth_gb_per_s, read_percent
from sparktop.analysis.evidence import Evidence, MachineEvidence, Peer, Poll
from sparktop.analysis.limited_by import limited_by
from sparktop.analysis.speed_state import ClockPace, advance_pace, worst_state
from sparktop.model.engine import EngineSample, LaneSample, kv_fullest_percent, kv_used_percent, lane_sum
from sparktop.model.failure import Failure
from sparktop.model.node import NodeSample
from sparktop.model.series import known_max, known_mean, known_min, known_sum, known_values, sum_if_all_known
from sparktop.model.snapshot import Limit, LimitKind, Snapshot
from sparktop.model.targets import NodeThresholds
from sparktop.store import Reading, SourceKey
from sparktop.store.load_log import ABORTED_REASONS, FAILED_REASONS
from sparktop.store.node import machine_poll
from sparktop.store.plausible import Plausibility
from sparktop.store.sources import SourceKind
from sparktop.sweep.plan.plan import Plan, SweepTarget, TargetKind
from sparktop.sweep.result.results import NodeSide

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
        return self._combine(before, sub)

    def plus(self, other: Counters) -> Counters:
        """Return this and the `other` reading, added counter by counter; None where either is unknown."""
        return self._combine(other, add)

    def _combine(self, other: Counters, operator: Callable[[float, float], float]) -> Counters:
        """Return the counters that `operator` makes of both readings; None where one of them is."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Counters(
            *(None if mine is None or theirs is None else operator(mine, theirs) for mine, theirs in pairs)
        )

    def has_fallen(self) -> bool:
        """Return whether any value is negative. In a result of `since` this means a restart of the server."""
        return any(value is not None and value < 0 for value in astuple(self))


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
    poll: Poll = Poll(0.0)
    """The same sample as the analysis of limits takes it."""
    read_bytes: float | None = None
    """Bytes that one GPU of each engine core has read so far, summed over the cores."""
    cores: int = 1
    kv_capacity_tokens: float | None = None
    """Tokens for which the KV cache of one engine core has room."""
    speculates: bool = False

    @property
    def idle(self) -> bool | None:
        """True if no request is running or waiting; None if unknown."""
        if self.running is None:
            return None
        return self.running == 0 and not self.waiting


def server_point(sample: EngineSample) -> ServerPoint:
    """Return the values of an engine's sample that a sweep needs, summed over its engine cores."""
    lanes = sample.lanes
    total = partial(lane_sum, lanes)
    capacity = total(lambda lane: lane.kv_capacity_tokens)
    steps = total(lambda lane: None if lane.step_tokens is None else lane.step_tokens.count)
    counters = Counters(
        generation_tokens=total(lambda lane: lane.generation_tokens),
        prompt_tokens=total(lambda lane: lane.prompt_tokens),
        preemptions=total(lambda lane: lane.preemptions),
        cache_hits=total(lambda lane: lane.prefix_cache_hits),
        cache_queries=total(lambda lane: lane.prefix_cache_queries),
        finished=total(lambda lane: sum(lane.finished.values()) if lane.finished else None),
        prefill_s=total(lambda lane: lane.prefill.sum if lane.prefill is not None else None),
        prefills=total(lambda lane: lane.prefill.count if lane.prefill is not None else None),
        steps=steps if len(lanes) == 1 else None,
        failed=total(lambda lane: _finished_for(lane, FAILED_REASONS)),
        aborted=total(lambda lane: _finished_for(lane, ABORTED_REASONS)),
        spec_accepted_tokens=total(lambda lane: lane.spec_accepted_tokens),
        spec_draft_tokens=total(lambda lane: lane.spec_draft_tokens),
        spec_drafts=total(lambda lane: lane.spec_drafts),
    )
    poll = Poll(
        sample.at,
        total(lambda lane: lane.running),
        total(lambda lane: lane.waiting),
        total(lambda lane: lane.waiting_for_capacity),
        kv_fullest_percent(lanes),
        steps,
        counters.generation_tokens,
        total(
            lambda lane: (
                lane.prompt_tokens if lane.prompt_tokens_computed is None else lane.prompt_tokens_computed
            )
        ),
        counters.preemptions,
        counters.finished,
    )
    return ServerPoint(
        at=sample.at,
        running=poll.running,
        waiting=poll.waiting,
        kv_cache_percent=kv_used_percent(lanes),
        kv_fullest_percent=poll.kv_percent,
        counters=counters,
        start_time=sample.start_time,
        poll=poll,
        read_bytes=total(lambda lane: lane.read_bytes_per_gpu),
        cores=len(lanes),
        kv_capacity_tokens=None if capacity is None else capacity / len(lanes),
        speculates=any(lane.spec_drafts for lane in lanes),
    )


def watched_backends(target: SweepTarget, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the names of the watched servers that compute a target's requests, in configured order.

    These are the target itself, or the backends behind it if it is a router; empty if none is watched.
    """
    by_url = {view.url: view.name for view in snapshot.backends}
    names = {view.name for view in snapshot.backends}
    if target.kind is TargetKind.ENGINE:
        name = by_url.get(target.url) or (target.name if target.name in names else None)
        return (name,) if name else ()
    reported = [by_url.get(url) or (name if name in names else None) for name, url in target.backends.items()]
    if not reported:
        views = [view for view in snapshot.routers if view.url == target.url]
        reported = [name for view in views for name in view.backends if name in names]
    return tuple(dict.fromkeys(name for name in reported if name is not None))


def watched_slots(plan: Plan, snapshot: Snapshot) -> dict[str, int]:
    """Return how many requests the servers of each target run at once, where all of them report it."""
    slots = {view.name: view.slots for view in snapshot.backends}
    sums = {
        target.name: sum_if_all_known(slots.get(name) for name in watched_backends(target, snapshot))
        for target in plan.targets
    }
    return {name: total for name, total in sums.items() if total is not None}


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
    hosts = [node for view in snapshot.backends if view.name in backends for node in view.nodes]
    watched = {view.name for view in snapshot.nodes}
    return tuple(dict.fromkeys(node for node in (*target.nodes, *hosts) if node in watched))


def is_mdns(url: str) -> bool:
    """Return whether the host name in `url` ends in .local, so that it is resolved by multicast DNS.

    Such look-ups fail for seconds at a time.
    """
    return (urlsplit(url).hostname or "").removesuffix(".").endswith(".local")


class ServerLog:
    """The samples of servers and machines since the sweep began, less those dropped by `forget`."""

    def __init__(
        self, *, clock: Callable[[], float] = monotonic, thresholds: NodeThresholds | None = None
    ) -> None:
        """Start without samples; clocks of machines are judged by `thresholds`, or by the usual ones."""
        self._clock = clock
        self._thresholds = thresholds or NodeThresholds()
        self._servers: dict[str, list[ServerPoint]] = {}
        self._judged: dict[str, tuple[Plausibility, EngineSample]] = {}
        """What judges the samples of each server, and the newest one as it was read."""
        self._nodes: dict[str, _MachineSamples] = {}
        self._silent: dict[str, tuple[float, Failure]] = {}
        """(time of the first failure in a row, newest failure) of each server that does not answer."""
        self._news = asyncio.Event()

    def accept(self, key: SourceKey, reading: Reading) -> None:
        """Store a sample or a failure of the source `key`, and wake up pending `wait_for` calls."""
        if key.kind is SourceKind.BACKEND:
            if isinstance(reading, EngineSample):
                self._servers.setdefault(key.name, []).append(server_point(self._plausible(key, reading)))
                self._silent.pop(key.name, None)
            elif isinstance(reading, Failure):
                since = self._silent.get(key.name, (reading.at, reading))[0]
                self._silent[key.name] = (since, reading)
        elif isinstance(reading, NodeSample):
            self._nodes.setdefault(key.name, _MachineSamples(self._thresholds)).add(reading)
        self.wake()

    def _plausible(self, key: SourceKey, sample: EngineSample) -> EngineSample:
        """Return a sample without figures that no server can have, by the one before of the same process."""
        plausibility, before = self._judged.get(key.name, (Plausibility(), sample))
        self._judged[key.name] = plausibility, replace(sample, page=None)
        continues = before.start_time == sample.start_time
        return replace(sample, lanes=plausibility.lanes(sample, before if continues else None))

    def wake(self) -> None:
        """Make every pending `wait_for` and `wait_until_idle` check its condition again."""
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
        return [point for point in self._servers.get(name, ()) if _is_within(point.at, spans)]

    def nodes(self, name: str, spans: Sequence[Span]) -> list[NodeSample]:
        """Return the samples of a machine that lie in any of the spans of time, in order."""
        machine = self._nodes.get(name)
        return [] if machine is None else machine.within(spans)

    def forget(self, before: float) -> None:
        """Drop samples older than the time `before`, except the newest sample of each source."""
        sample_lists: list[list[Any]] = [*self._servers.values()]
        sample_lists += [node.samples for node in self._nodes.values()]
        for points in sample_lists:
            del points[: min(bisect_left([point.at for point in points], before), len(points) - 1)]

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

    async def wait_until_idle(
        self, names: Iterable[str], after: float, limit_s: float, stopping: Callable[[], bool]
    ) -> Mapping[str, ServerPoint] | None:
        """Wait until servers are idle, and return their newest samples by name.

        A server is idle once its last two samples, both later than `after`, show no requests and the same
        counters. Servers that do not report running requests are left out. Return None if a server is not
        idle after `limit_s` seconds, or when `stopping` returns True.
        """
        newest = {name: self.newest(name) for name in names}
        reporting = [name for name, point in newest.items() if point is not None and point.idle is not None]
        await self.wait_for(
            lambda: stopping() or all(self._at_rest(name, after) for name in reporting), limit_s
        )
        points = {name: self._at_rest(name, after) for name in reporting}
        at_rest = {name: point for name, point in points.items() if point is not None}
        return at_rest if len(at_rest) == len(reporting) else None

    def _at_rest(self, name: str, after: float) -> ServerPoint | None:
        """Return the newest sample of a server that is idle, see `wait_until_idle`; None if it is not."""
        points = self._servers.get(name, [])[-2:]
        if len(points) < 2 or points[0].at <= after:  # noqa: PLR2004 - two samples must agree
            return None
        earlier, newest = points
        still = earlier.idle and newest.idle and earlier.counters == newest.counters
        return newest if still and earlier.start_time == newest.start_time else None

    def limits(
        self,
        machines_of: Mapping[str, Sequence[str]],
        slots: Mapping[str, int],
        spans: Sequence[Span],
        router: str | None,
    ) -> dict[str, Limit]:
        """Return what held each server of a level back during its runs (`spans`), by name.

        `machines_of` has the names of the machines of each server, `slots` the most requests that a server
        runs at once, where it reports that. A server of which there are too few samples is left out.
        """
        samples = {name: tuple(_polls_during(self._servers.get(name, ()), spans)) for name in machines_of}
        limits: dict[str, Limit] = {}
        for name, machines in machines_of.items():
            watched = {machine: self._nodes[machine] for machine in machines if machine in self._nodes}
            newest = self.newest(name) or ServerPoint(0.0, None, None, None, Counters(), None)
            bandwidth = bandwidth_gb_per_s([machine.samples[-1] for machine in watched.values()])
            reads = _read_gb_per_s(self._servers.get(name, ()), spans)
            evidence = Evidence(
                samples[name],
                slots=slots.get(name),
                kv_capacity_tokens=newest.kv_capacity_tokens,
                machines=tuple(
                    MachineEvidence(
                        machine,
                        tuple(map(machine_poll, watched[machine].within(spans))),
                        worst_state(watched[machine].paces),
                        watched[machine].usual_mhz,
                    )
                    for machine in watched
                ),
                spans=max(1, len(machines)),
                peers=tuple(
                    Peer(other, samples[other], slots.get(other)) for other in machines_of if other != name
                ),
                router=router,
                routed=None if router is None else True,  # the sweep sends all requests to it
                cores=newest.cores,
                read_percent=read_percent(bandwidth, reads, len(machines), newest.cores),
                read_gb_per_s=reads,
                speculates=newest.speculates,
                window_s=_LONGEST_S,
            )
            if (limit := limited_by(evidence)) is not None:
                limits[name] = limit
        return limits


class _MachineSamples(Struct):
    """The samples of one machine, and the state of its clocks up to the newest one."""

    thresholds: NodeThresholds
    samples: list[NodeSample] = field(default_factory=list)
    paces: dict[int, ClockPace] = field(default_factory=dict)
    """The state of each GPU's clock, by its index."""
    usual_mhz: float | None = None
    """The highest SM clock that its GPU had under load."""

    def add(self, sample: NodeSample) -> None:
        """Add a newer sample."""
        self.samples.append(sample)
        poll = machine_poll(sample)
        if poll.clock_mhz is not None and (poll.gpu_percent or 0.0) >= _BUSY_PERCENT:
            self.usual_mhz = max(self.usual_mhz or 0.0, poll.clock_mhz)
        self.paces = {
            gpu.index: advance_pace(
                self.paces.get(gpu.index, ClockPace()),
                gpu,
                sample.at,
                unified=sample.memory.unified,
                shares={name: share for name, share in gpu.throttled_percent.items() if share is not None},
                thresholds=self.thresholds,
            )
            for gpu in sample.gpus
        }

    def within(self, spans: Sequence[Span]) -> list[NodeSample]:
        """Return the samples that lie in any of the spans of time, in order."""
        return [sample for sample in self.samples if _is_within(sample.at, spans)]


def node_side(samples: Sequence[NodeSample]) -> NodeSide:
    """Summarise the samples of a machine that were taken while requests were in flight.

    Samples with idle GPUs, for example between two bursts, do not count in means. A value that no sample has
    is None.
    """
    gpus_of = [sample.gpus for sample in samples]
    busy = [gpus for gpus in gpus_of if any(gpu.utilization_percent != 0 for gpu in gpus)]
    return NodeSide(
        gpu_c_max=known_max(sample.hottest_c for sample in samples),
        power_w_mean=known_mean(known_sum(gpu.power_w for gpu in gpus) for gpus in busy),
        sm_clock_mhz_mean=known_mean(known_mean(gpu.sm_clock_mhz for gpu in gpus) for gpus in busy),
        throttled_percent=known_mean(
            known_max(share for gpu in gpus for share in gpu.throttled_percent.values()) for gpus in busy
        ),
        headroom_min_bytes=known_min(sample.memory.headroom_bytes for sample in samples),
    )


def in_flight(requests: Iterable[Span]) -> list[Span]:
    """Return the (start, end) spans in which at least one request was in flight, in order.

    `requests` has the (start, end) of each request in any order.
    """
    spans: list[Span] = []
    for begin, end in sorted(requests):
        last_begin, last_end = spans[-1] if spans else (begin, begin)
        if spans and begin <= last_end:
            spans[-1] = last_begin, max(end, last_end)
        else:
            spans.append((begin, end))
    return spans


def _is_within(at: float, spans: Sequence[Span]) -> bool:
    return any(begin <= at <= end for begin, end in spans)


def _finished_for(lane: LaneSample, reasons: frozenset[str]) -> float | None:
    """Return how many requests ended for one of `reasons` in an engine core (lane: data-parallel rank).

    None if the engine core reports no number for any of these reasons.
    """
    reported = [count for reason, count in lane.finished.items() if reason in reasons]
    return sum(reported) if reported else None


_APART_S = 0.9
"""Least seconds between two samples of a server that its limit is judged by: it is polled up to four times a
second, and one look a second is enough."""
_LONGEST_S = 600.0
"""Seconds of a longer level of which the newest part is judged."""
_BUSY_PERCENT = 80.0
"""GPU use in percent from which on its clock is that under load."""
_GAP_S = 0.01
"""Seconds after a run at which an unknown sample stands for the pause before the next one."""


def _polls_during(points: Iterable[ServerPoint], spans: Sequence[Span]) -> Iterator[Poll]:
    """Yield a server's samples during `spans`, about one a second, with an unknown one between two spans.

    Without the unknown one, the pause between two runs would count as work.
    """
    thinned: list[Poll] = []
    for point in points:
        if not thinned or point.at - thinned[-1].at >= _APART_S:
            thinned.append(point.poll)
    last_at: float | None = None
    for begin, end in spans:
        for number, poll in enumerate([poll for poll in thinned if begin <= poll.at <= end]):
            if number == 0 and last_at is not None:
                yield Poll(last_at + _GAP_S)
            yield poll
            last_at = poll.at


def _read_gb_per_s(points: Sequence[ServerPoint], spans: Sequence[Span]) -> float | None:
    """Return the gigabytes per second that a server's GPUs read during `spans`; None if unknown."""
    read = lasted_s = 0.0
    for begin, end in spans:
        totals = [(point.at, point.read_bytes) for point in points if begin <= point.at <= end]
        reported = [(at, total) for at, total in totals if total is not None]
        if len(reported) > 1:
            (first_at, first_total), (last_at, last_total) = reported[0], reported[-1]
            read += last_total - first_total
            lasted_s += last_at - first_at
    return read / lasted_s / 1e9 if read > 0 and lasted_s > 0 else None


def level_limit(limits: Mapping[str, Limit], busy: Mapping[str, float]) -> tuple[str, Limit]:
    """Return (name, limit) of the server that speaks for its level, one of `limits`.

    It is one that its router limits, or else the one with the largest mean batch in `busy`.
    """
    return max(
        limits.items(),
        key=lambda limit: (limit[1].kind is LimitKind.ROUTER, busy.get(limit[0], 0.0), limit[0]),
    )


SAME_TIME_S = 0.25
"""Samples of several servers up to this many seconds apart count as simultaneous."""
FULL_PERCENT = 98.0
"""KV cache usage in percent from which on requests wait for memory."""

Of = Callable[[ServerPoint], float | None]
"""Reads a gauge from a sample."""


def most_at_once(requests: Iterable[Span]) -> int:
    """Return the most requests that were in flight at the same time, by the (start, end) of each."""
    changes = sorted((moment, step) for start, end in requests for moment, step in ((start, 1), (end, -1)))
    return max(accumulate(step for _, step in changes), default=0)


def sums_at_same_time(samples: Mapping[str, Sequence[ServerPoint]], value_of: Of, most: float) -> list[float]:
    """Return the sum of a gauge over all servers, once for each moment at which all of them were sampled.

    `samples` has the samples by server; the function `value_of` reads the gauge from a sample. Samples of
    different moments are not added, because requests that moved between servers would count twice. A sum is
    at most `most`, the number of requests in flight. For a single server, return the gauge of each sample
    unchanged. Return an empty list if a server never reports the gauge.
    """
    reporting = {
        name: [point for point in points if value_of(point) is not None] for name, points in samples.items()
    }
    if not reporting or not all(reporting.values()):
        return []
    fewest, *others = sorted(reporting.values(), key=len)
    if not others:
        return known_values(map(value_of, fewest))
    times = [[point.at for point in points] for points in others]
    sums = []
    for point in fewest:
        group = [point]
        for points, ats in zip(others, times, strict=True):
            after = bisect_left(ats, point.at)
            group.append(min(points[max(0, after - 1) : after + 1], key=lambda near: abs(near.at - point.at)))
        if max(near.at for near in group) - min(near.at for near in group) <= SAME_TIME_S:
            sums.append(min(most, sum(value_of(near) or 0.0 for near in group)))
    return sums


def busy_batch(points: Sequence[ServerPoint], grown: Counters | None) -> float | None:
    """Return the mean batch size of a server while it was computing; None if unknown.

    If `grown`, the growth of the server's counters, includes engine steps, the result is exact: a step yields
    one token per request of its batch, plus those added by speculative decoding. Otherwise it is the mean
    number of running requests, over the samples in `points` with at least one running request.
    """
    tokens = None if grown is None else grown.generation_tokens
    if grown is not None and grown.steps and tokens:
        # A step that only computes part of a long prompt yields no token, but still has a request in its
        # batch.
        return max(1.0, (tokens - (grown.spec_accepted_tokens or 0.0)) / grown.steps)
    busy = [point.running for point in points if point.running]
    return sum(busy) / len(busy) if busy else None


def queue_reason(
    points: Sequence[ServerPoint], slots: int | None, at_once: int | None, concurrency: int
) -> str | None:
    """Return why requests queued at a server, by its samples `points`: too few slots or a full KV cache.

    `slots` is the most requests that the server runs at the same time; it is ignored if a sample shows more.
    `at_once` is the most requests of the level at this server at the same time, which of all servers together
    is `concurrency`. For both, None means unknown.

    In a burst, requests also wait for each other's prefill, on any server. This does not count as a queue if
    all requests were seen running at the same time, or if the slots are known to suffice and the cache is not
    full. Return None if no request queued.
    """
    waiting = known_values(point.waiting for point in points)
    running_max = known_max(point.running for point in points)
    if slots is not None and (running_max or 0.0) > slots:
        slots = None  # it ran more, so this number is not its limit
    too_few_slots = False
    if slots is not None:
        queued = [point for point in points if (point.waiting or 0.0) > 0]
        all_taken = any((point.running or 0.0) >= slots for point in queued)
        too_few_slots = all_taken or (at_once or 0) > slots
    waits = sum(count > 0 for count in waiting)
    if not waits and (waiting or not too_few_slots):
        return None
    words = "requests waited"
    if waiting:
        words = f"up to {max(waiting):.0f} requests waited ({waits} of {len(waiting)} polls)"
    if too_few_slots and slots is not None and at_once is not None:
        if max(waiting, default=0.0) > max(0, at_once - slots):
            words += ", not only for slots"  # in a burst, prompts wait for one another
        return f"{slots} slots for up to {at_once} requests at once: {words}"
    if too_few_slots:
        return f"{words} while all of its {slots} slots were taken"
    if any((point.kv_fullest_percent or 0.0) >= FULL_PERCENT for point in points):
        return f"{words}: its KV cache is full"
    all_ran = running_max is not None and running_max >= (concurrency if at_once is None else at_once)
    return None if all_ran or slots is not None else words


def are_all_sampled(plan: Plan, snapshot: Snapshot, log: ServerLog) -> bool:
    """Return whether each server, router and machine of the plan has a sample or a failed poll.

    A server's sample must be in `log`, which has only those from after the start of the sweep. Where the plan
    chooses its workload by the servers' context, which is asked for beside the first samples, that too.
    """
    backends, nodes = set(), set()
    for target in plan.targets:
        backends |= set(watched_backends(target, snapshot))
        nodes |= set(watched_nodes(target, snapshot))
    urls = {target.url for target in plan.targets}
    servers = [
        backend for backend in snapshot.backends if backend.name in backends and backend.failure is None
    ]
    if any(log.newest(server.name) is None and log.silence(server.name) is None for server in servers):
        return False
    by_context = plan.conversations is not None and plan.capacity is not None
    if by_context and any(server.max_model_len is None for server in servers):
        return False
    answers = [
        *((node.failure, node.age_s) for node in snapshot.nodes if node.name in nodes),
        *((router.failure, router.age_s) for router in snapshot.routers if router.url in urls),
    ]
    return all(failure is not None or age_s is not None for failure, age_s in answers)
