"""Routers, each Prometheus, and the tracks of all sources: what belongs together and runs on which node.

A *track* is what the store keeps of one source. A *wall* shows many servers and machines by group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from sparktop.analysis.placement import address_of, match_deployments, place_backends, with_backends
from sparktop.analysis.speed_state import SLOW_CLOCK, THROTTLED, StepPace
from sparktop.analysis.state import kv_percent, ttft_s
from sparktop.model.engine import EngineIdentity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.instant import Instant
from sparktop.model.known import known_max
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.router import Fleet, FleetNode, FleetServer, FleetView, RouterSample, RouterView, stale_s
from sparktop.model.snapshot import BackendState, BackendView
from sparktop.model.targets import (
    BackendTarget,
    NodeTarget,
    PrometheusTarget,
    RouterTarget,
    Target,
    Thresholds,
)
from sparktop.store.backend import BackendTrack
from sparktop.store.event_log import ActiveAlerts
from sparktop.store.load_log import LoadLog
from sparktop.store.node import NodeTrack
from sparktop.store.sources import Health, SourceKey, SourceKind

_COUNTS_KEPT = 130
"""Samples whose counters are kept: enough for the widest window of a balance with a sample every 5 s."""
_MINUTE_S = 60.0
"""Seconds over which failed answers are counted."""
_OUT = frozenset({"outage", "unhealthy", "circuit open"})
"""Words of routers for a deployment that gets no requests."""
FAILS_A_MINUTE = 3
"""Failed answers of one deployment in a minute from which on it is said to fail."""
STUCK = {BackendState.STUCK, BackendState.SUSPECT}
_PASSED_SHARE = 0.5
"""Share of its backends' requests that a router must count to be what distributes them."""
_BYPASSED_S = 30.0
"""Seconds of samples from which on too few counted requests mean that they do not pass it."""
_SLOW_MS, _SLOW_RATIO, _ALWAYS_SLOW_MS = 200.0, 4.0, 1000.0
"""A router is slow if it answers its health check in so many ms and in so many times its usual time, or in
`_ALWAYS_SLOW_MS`."""
_FEWEST_ANSWERS, _NEWEST_ANSWERS = 15, 5
"""Answers with which the usual time is known, and newest ones that are compared with it."""
_FULL_CORES, _CPU_WINDOW_S = 0.9, 30.0
"""CPU cores that LiteLLM's process, which has one busy thread, uses when it is full."""


class Group(Struct, frozen=True):
    """The backends behind one router, as far as they are known."""

    deployments: Mapping[str, str | None] | None
    """Backend name by deployment id of the router, None for a deployment that no known backend matches; None
    instead of the mapping if the router lists no deployments."""
    backends: tuple[str, ...]
    models: Mapping[str, str]
    """By backend name: the model name under which the router offers it. Empty if the config names the
    backends."""


class RouterTrack:
    """One router: its newest sample, its failure counters and whether it answers."""

    def __init__(self, target: RouterTarget) -> None:
        """Start without any sample."""
        self.target = target
        self.health = Health()
        self.poll_ms: float | None = None
        self._sample: RouterSample | None = None
        """The newest good sample."""
        self._answering_since: datetime | None = None
        self._counted: deque[RouterSample] = deque(maxlen=_COUNTS_KEPT)
        """The newest samples that have failure counters, oldest first."""
        self._recent: deque[RouterSample] = deque(maxlen=_COUNTS_KEPT)
        """The newest samples, oldest first."""

    @property
    def strategy(self) -> str | None:
        """The routing strategy that the router reports, or else the configured one; None if unknown."""
        return (self._sample.strategy if self._sample else None) or self.target.strategy

    @property
    def cooldowns_disabled(self) -> bool:
        """Whether the router reports that it never takes a failing deployment out of rotation."""
        return bool(self._sample and self._sample.cooldowns_disabled)

    def counted(self, since: float) -> RouterSample | None:
        """Return how much the failure counters grew from `since` on; None with fewer than two samples.

        The result is a sample whose counters are replaced by their growth.
        """
        inside = [sample for sample in self._counted if sample.at >= since]
        if len(inside) < 2:  # noqa: PLR2004 - a difference needs two
            return None
        first, last = inside[0], inside[-1]
        before = first.failures or {}
        return RouterSample(
            last.at,
            failures={
                name: count - before.get(name, 0.0)
                for name, count in (last.failures or {}).items()
                if count > before.get(name, 0.0)
            },
            cooldowns=_growth(first.cooldowns, last.cooldowns),
            cooled={
                name: count - first.cooled.get(name, 0.0)
                for name, count in last.cooled.items()
                if count > first.cooled.get(name, 0.0)
            },
            refusals=_growth(first.refusals, last.refusals),
        )

    def passes(self, logs: Sequence[LoadLog], since: float) -> bool | None:
        """Return whether the router's own counts show that the requests of its backends pass it.

        Compared are the requests that it answered with those that ended at the backends, whose logs are
        `logs`, from `since` (monotonic seconds) on as far as its samples are kept; where it does not count
        answers, the requests inside it with those that the backends hold. None if it counts neither, or
        nothing has ended; also None where they do not seem to for less than `_BYPASSED_S`, because polls of
        the two are not simultaneous.
        """
        recent = [sample for sample in self._recent if sample.at >= since]
        is_long = bool(recent) and recent[-1].at - recent[0].at >= _BYPASSED_S
        counts = [sum(sample.answered.values()) for sample in recent if sample.answered is not None]
        ended = [log.counted(recent[0].at).get("finished") for log in logs] if recent else []
        total = sum(count for count in ended if count is not None)
        if len(counts) > 1 and None not in ended and total >= 1 and counts[-1] >= counts[0]:
            return counts[-1] - counts[0] >= _PASSED_SHARE * total or (False if is_long else None)
        inside = [load for sample in recent if (load := _requests_inside(sample)) is not None]
        held = sum(load for log in logs if (load := log.load()) is not None)
        if not inside or not held > 0:
            return None
        return sum(inside) / len(inside) >= _PASSED_SHARE * held or (False if is_long else None)

    def weights(self, deployments: Mapping[str, str | None]) -> dict[str, float]:
        """Return the weight of each backend by the router's own report; empty where it has none.

        `deployments` has the backend by deployment id. Only LiteLLM's simple-shuffle follows them.
        """
        sample = self._sample
        if sample is None or self.strategy not in {None, "simple-shuffle"}:
            return {}
        result: dict[str, float] = {}
        for deployment in sample.deployments or ():
            backend = deployments.get(deployment.id)
            if backend is not None and deployment.weight is not None:
                result[backend] = result.get(backend, 0.0) + deployment.weight
        return result

    @property
    def inside(self) -> float | None:
        """Requests that the router had received and that had not ended, by its newest sample."""
        return None if self._sample is None else self._sample.in_flight

    @property
    def queued(self) -> float | None:
        """Requests that wait in the router, by its newest sample."""
        return None if self._sample is None else self._sample.queued

    @property
    def slow(self) -> str | None:
        """What shows that the router itself is slow, in words; None if nothing does."""
        spent = [(one.at, one.cpu_s) for one in self._recent if one.cpu_s is not None]
        if spent:
            last_at, last_s = spent[-1]
            first_at, first_s = next(one for one in spent if one[0] >= last_at - _CPU_WINDOW_S)
            span_s, cores_s = last_at - first_at, last_s - first_s
            if span_s >= _CPU_WINDOW_S / 2 and cores_s >= _FULL_CORES * span_s:
                return f"its process uses {cores_s / span_s:.1f} CPU cores"
        answers = [one.answer_ms for one in self._recent if one.answer_ms is not None]
        if len(answers) < _NEWEST_ANSWERS:
            return None
        now_ms = median(islice(reversed(answers), _NEWEST_ANSWERS))
        usual_ms = sorted(answers)[len(answers) // 5]
        if len(answers) >= _FEWEST_ANSWERS and now_ms >= max(_SLOW_MS, _SLOW_RATIO * usual_ms):
            return f"it answers in {now_ms:.0f} ms, {usual_ms:.0f} ms before"
        return f"it answers in {now_ms / 1000:.1f} s" if now_ms >= _ALWAYS_SLOW_MS else None

    @property
    def all_deployments_out(self) -> bool:
        """Whether the router reports that something is wrong with each of its deployments."""
        listed = (self._sample.deployments or ()) if self._sample is not None else ()
        troubles = self._sample.troubles if self._sample is not None else {}
        return bool(listed) and all(troubles.get(one.id) in _OUT for one in listed)

    def shown_name(self, deployment: str) -> str:
        """Return the host and port of a deployment, by which people know it better than by its id."""
        listed = (self._sample.deployments or ()) if self._sample is not None else ()
        address = next((one.address for one in listed if one.id == deployment), None) or deployment
        return address.partition("://")[2] or address

    def deployment_troubles(self) -> dict[str, str]:
        """Return what is wrong with each deployment that is not well, in words, by its id.

        These are the router's own word for it, its failed answers of the last minute, and how often the
        router took it out of service in that time.
        """
        sample = self._sample
        if sample is None:
            return {}
        grown = self.counted(sample.at - _MINUTE_S)
        failed = grown.failures or {} if grown is not None else {}
        cooled = grown.cooled if grown is not None else {}
        result: dict[str, str] = {}
        for name in dict.fromkeys((*sample.troubles, *failed, *cooled)):
            counts = [sample.troubles[name]] if name in sample.troubles else []
            if failed.get(name, 0.0) >= FAILS_A_MINUTE:
                counts.append(f"{failed[name]:.0f} failed answers in {_MINUTE_S:.0f} s")
            if cooled.get(name):
                counts.append(f"in cooldown {cooled[name]:.0f} time{'' if cooled[name] == 1 else 's'}")
            if counts:
                result[name] = ", ".join(counts)
        return result

    def accept_failure(self, failure: Failure, now: datetime, took_ms: float | None) -> None:
        """Record a failed poll; the last sample is kept."""
        self.health.bad(failure, now)
        self.poll_ms, self._answering_since = took_ms, None

    def accept_sample(self, sample: RouterSample, now: datetime, took_ms: float | None) -> None:
        """Record a successful poll of the router.

        If a failure counter fell, the router has restarted: forget the counters of earlier samples.
        """
        self.health.good(sample.at)
        self._sample = sample
        self._recent.append(sample)
        if sample.failures is not None:
            if self._counted and _has_restarted(self._counted[-1], sample):
                self._counted.clear()  # it restarted
            self._counted.append(sample)
        self.poll_ms = sample.answer_ms if sample.answer_ms is not None else took_ms
        self._answering_since = self._answering_since or now

    def group(self, backend_urls: Mapping[str, str]) -> Group:
        """Return the backends behind this router.

        These are the backends that the configuration names for the router. If it names none, they are the
        watched backends whose URLs match the router's deployments; `backend_urls` has these URLs by backend
        name.
        """
        told = self._sample.deployments if self._sample else None
        deployments = match_deployments(
            told,
            router_url=self.target.url,
            backend_urls=backend_urls,
            configured=self.target.deployments,
        )
        if self.target.backends:
            return Group(deployments, self.target.backends, {})
        found = deployments or {}
        names = dict.fromkeys(name for name in found.values() if name is not None)
        models: dict[str, str] = {}
        for one in told or ():
            name = found[one.id]
            if name is not None and one.model is not None:
                models.setdefault(name, one.model)
        return Group(deployments, tuple(names), models)

    def view(self, at: float, group: Group, backends: Iterable[BackendView]) -> RouterView:
        """Return the router as shown at `at` (monotonic), with the load of its backends."""
        sample = self._sample or RouterSample(at)
        known = {view.name: view for view in backends}
        loads = {name: view.running if view.ok else None for name, view in known.items()}
        behind = [known[name] for name in group.backends if name in known]
        return RouterView(
            self.target.name,
            self.target.url,
            failure=self.health.failure,
            failing_since=self.health.failing_since,
            answering_since=self._answering_since,
            age_s=self.health.age_s(at),
            kind=sample.kind,
            alive=sample.alive,
            version=sample.version,
            strategy=self.strategy,
            strategy_read=sample.strategy is not None,
            backends=group.backends,
            deployments=group.deployments,
            told=sample.deployments,
            running={name: loads.get(name) for name in group.backends},
            slow=self.slow,
            stuck={view.name: self._stuck_text(at, view, group) for view in behind if view.state in STUCK},
            cooldown_s=sample.cooldown_s,
            cooldowns_disabled=sample.cooldowns_disabled,
            failures=sample.failures,
            cooldowns=sample.cooldowns,
            refusals=sample.refusals,
            deployment_troubles=self.deployment_troubles(),
            sent=sample.sent,
            queued=sample.queued,
            in_flight=sample.in_flight,
            note=sample.note,
            poll_ms=self.poll_ms,
        )

    def absent(self, group: Group, backends: Mapping[str, BackendTrack]) -> dict[str, str]:
        """Return the deployments whose model their backend does not serve: what is wrong, in words, by id.

        A backend that does not answer, or does not list its models, is not judged.
        """
        result: dict[str, str] = {}
        for deployment in (self._sample.deployments if self._sample else None) or ():
            track = backends.get((group.deployments or {}).get(deployment.id) or "")
            if track is None or track.health.failure is not None or deployment.asks_for is None:
                continue
            served = track.served
            names = {deployment.asks_for, deployment.asks_for.partition("/")[2]}
            if served and not names & set(served):
                result[deployment.id] = (
                    f"asks {track.target.name} for {deployment.asks_for}, which serves {served[0]}"
                )
        return result

    def _stuck_text(self, at: float, view: BackendView, group: Group) -> str:
        """Return the standstill of a backend, and how the router goes on to use it, in words."""
        words = view.state.value if view.progress is None else f"{view.state.value}, {view.progress.fact}"
        own = [name for name, backend in (group.deployments or {}).items() if backend == view.name]
        sent = self._sample.sent if self._sample is not None else None
        there = sum((sent or {}).get(name, 0.0) for name in own)
        counted = None if view.progress is None else self.counted(at - view.progress.seconds)
        failed = sum(((counted and counted.failures) or {}).get(name, 0.0) for name in own)
        if there:
            return f"{words}; {there:.0f} of the router's requests are there"
        if failed:
            return f"{words}; {failed:.0f} failed answers meanwhile"
        return f"{words}; the router still lists it" if own else words


def _requests_inside(sample: RouterSample) -> float | None:
    """Return the requests that a router has received or sent and that have not ended; None if unknown."""
    if sample.in_flight is not None:
        return sample.in_flight
    return None if sample.sent is None else sum(sample.sent.values())


def _growth(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


def _has_restarted(before: RouterSample, after: RouterSample) -> bool:
    counts = after.failures or {}
    return any(counts.get(name, 0.0) < count for name, count in (before.failures or {}).items())


def group_names(routers: Sequence[RouterTrack], groups: Sequence[Group]) -> dict[str, str]:
    """Return the group name by backend, for backends behind a router.

    A group has the router's name. If the router offers several models, each model is a group, because only
    backends that serve the same model can be compared. A backend behind several routers belongs to the router
    whose configuration names the backend, or else to the first router.
    """
    names: dict[str, str] = {}
    configured_first = sorted(zip(routers, groups, strict=True), key=lambda one: not one[0].target.backends)
    for router, group in configured_first:
        for backend in group.backends:
            names.setdefault(backend, _group_name(router, group, backend))
    return names


def _group_name(router: RouterTrack, group: Group, backend: str) -> str:
    several = len(set(group.models.values())) > 1
    model = group.models.get(backend)
    return f"{router.target.name}: {model}" if several and model else router.target.name


def routers_of_groups(
    routers: Sequence[RouterTrack], groups: Sequence[Group]
) -> dict[str, tuple[RouterTrack, Group]]:
    """Return (router, all backends behind that router) by group name."""
    result: dict[str, tuple[RouterTrack, Group]] = {}
    for router, group in zip(routers, groups, strict=True):
        for backend in group.backends:
            result.setdefault(_group_name(router, group, backend), (router, group))
    return result


# A Prometheus, and the walls of servers and machines that come through several of them.


class FleetTrack:
    """One Prometheus: the servers that it scrapes, and whether it answers."""

    def __init__(self, target: PrometheusTarget) -> None:
        """Start without any answer."""
        self.target = target
        self.health = Health()
        self._fleet: Fleet | None = None
        self._newest: float | None = None
        """Monotonic time of the newest scrape of any server."""
        self._fresh_at: float | None = None
        """The same of the newest answer; where all its servers are down, when that came."""

    def accept_failure(self, failure: Failure, now: datetime, took_ms: float | None) -> None:  # noqa: ARG002 - as of all tracks
        """Record failed queries; the last answer is kept."""
        self.health.bad(failure, now)

    def accept_fleet(self, fleet: Fleet) -> None:
        """Record an answer."""
        self.health.good(fleet.at)
        self._fleet = _without_stale_figures(fleet)
        newest = known_max(server.at for server in fleet.servers)
        self._newest = self._newest if newest is None else newest
        self._fresh_at = fleet.at if newest is None else newest

    @property
    def size(self) -> int:
        """Number of servers and machines in the newest answer."""
        return 0 if self._fleet is None else len(self._fleet.servers) + len(self._fleet.nodes)

    def view(self, at: float) -> FleetView:
        """Return the Prometheus as shown at `at` (monotonic seconds).

        Once the newest scrape of all servers is too old, the figures of all servers and machines are unknown.
        """
        fleet, newest, fresh_at = self._fleet, self._newest, self._fresh_at
        if fleet is not None and fresh_at is not None and fleet.at <= fresh_at + stale_s(fleet.every_s) < at:
            nodes = tuple(FleetNode(node.name, node.at, backends=node.backends) for node in fleet.nodes)
            fleet = self._fleet = _without_stale_figures(replace(fleet, at=at, nodes=nodes))
        age_s = None if newest is None else max(0.0, at - newest)
        failure, since = self.health.failure, self.health.failing_since
        return FleetView(self.target.name, self.target.url, fleet, failure, since, age_s)


def _without_stale_figures(fleet: Fleet) -> Fleet:
    """Return an answer without the figures of servers whose newest scrape is too old."""
    late_at = fleet.late_at
    if all(server.at is None or server.at >= late_at for server in fleet.servers):
        return fleet
    servers = (
        one
        if one.at is None or one.at >= late_at
        else FleetServer(one.name, one.url, one.group, one.at, one.down, nodes=one.nodes)
        for one in fleet.servers
    )
    return replace(fleet, servers=tuple(servers))


class EachOnce:
    """Leaves each server and machine in one of several Prometheus, as pairs for high availability need it.

    That is the first one through which it answers, else the first that knows it.
    """

    def __init__(self) -> None:
        """Start without answers."""
        self._from: tuple[tuple[Fleet | None, bool], ...] = ()
        self._made: tuple[Fleet | None, ...] = ()
        """What was made of the newest answers, so that the same answers stay the same objects."""

    def of(self, views: tuple[FleetView, ...]) -> tuple[FleetView, ...]:
        """Return the views without what stands in another one."""
        if len(views) < 2:  # noqa: PLR2004 - two share
            return views
        answers = tuple((view.fleet, view.ok) for view in views)
        if len(answers) != len(self._from) or any(
            new[0] is not old[0] or new[1] != old[1] for new, old in zip(answers, self._from, strict=True)
        ):
            self._from, self._made = answers, _each_server_once(views)
        return tuple(
            view if fleet is view.fleet else replace(view, fleet=fleet)
            for view, fleet in zip(views, self._made, strict=True)
        )


_Key = tuple[str, str, str]


def _server_key(one: FleetServer) -> _Key:
    """Return what says that a server is the same; pods of two clusters may have equal addresses."""
    return one.url, one.name, one.group


def _each_server_once(views: Sequence[FleetView]) -> tuple[Fleet | None, ...]:
    """Return the answers without servers that stand in another one, and without the machines beside these."""
    servers: dict[_Key, tuple[bool, int]] = {}
    nodes: dict[str, tuple[bool, int]] = {}
    shared: set[int] = set()
    answered = [(index, view.fleet, view.ok) for index, view in enumerate(views) if view.fleet is not None]
    for index, fleet, is_ok in answered:
        for one in fleet.servers:
            key, known = _server_key(one), servers.get(_server_key(one))
            is_current = is_ok and not one.down and one.at is not None and one.at >= fleet.late_at
            if known is None or (is_current and not known[0]):
                servers[key] = (is_current, index)
            if known is not None:
                shared |= {known[1], index}
    for index, fleet, is_ok in answered:
        for node in fleet.nodes if index in shared else ():
            is_current = is_ok and not node.down and node.at is not None
            if node.name not in nodes or (is_current and not nodes[node.name][0]):
                nodes[node.name] = (is_current, index)
    result = [view.fleet for view in views]
    for index, fleet, _ in answered:
        if index not in shared:
            continue
        kept = tuple(server for server in fleet.servers if servers[_server_key(server)][1] == index)
        machines = tuple(one for one in fleet.nodes if nodes[one.name][1] == index)
        left_out = len(fleet.servers) - len(kept)
        said = f"{left_out:,} of its servers are shown by another Prometheus" if left_out else ""
        note = "; ".join(part for part in (said, fleet.note) if part) or None
        result[index] = replace(fleet, servers=kept, nodes=machines, note=note)
    return tuple(result)


# Which backend runs on which node, and which node its slow steps can be attributed to.


MOST_PEERS = 16
"""Peers that a backend is compared with: the median of as many is no worse than that of hundreds."""


class Placement:
    """Determines which backends run on each node, when asked to `update` after a change."""

    def __init__(self, backends: Mapping[str, BackendTrack], nodes: Mapping[str, NodeTrack]) -> None:
        """Keep references to `backends` and `nodes` (by name), which may gain and lose entries later."""
        self._backends = backends
        self._nodes = nodes
        self._on_node: dict[str, list[str]] = {}
        """Names of the backends that run on a node, by node name."""
        self._without_stale_figures = False
        self._by_model: dict[str, list[BackendTrack]] = {}
        self._calls_left = 0
        """Calls of `peers` until backends are grouped by model again: one for each backend."""

    def outdate(self) -> None:
        """Make the next `update` determine the placement again, because something has changed."""
        self._without_stale_figures = False

    def update(self) -> None:
        """Determine which backend runs on which node, and store the result in the views of both.

        Do nothing if nothing has changed since the last call.
        """
        if self._without_stale_figures:
            return
        self._without_stale_figures = True
        found = place_backends(
            [(backend.target, backend.view.engine) for backend in self._backends.values()],
            [(one.target, one.view.identity, one.processes) for one in self._nodes.values()],
        )
        self._on_node = {}
        for name, nodes in found.items():
            self._backends[name].place(nodes)
            for node in nodes:
                self._on_node.setdefault(node, []).append(name)
        for name, track in self._nodes.items():
            engines = {one: self._backends[one].view.engine for one in self._on_node.get(name, ())}
            track.assign(with_backends(track.processes, engines, track.orphans))

    def steps_on(self, node: str) -> tuple[StepPace, ...]:
        """Return the step time comparison of the backend on `node`, as a tuple of at most one element.

        The tuple is empty if there is not exactly one backend, if its step times have no comparison, or if
        another of its nodes has a slow or throttled GPU, which may slow the steps.
        """
        names = self._on_node.get(node, [])
        backend = self._backends[names[0]] if len(names) == 1 else None
        if backend is None or backend.step_pace is None:
            return ()
        beside = [self._nodes[one] for one in backend.view.nodes if one != node and one in self._nodes]
        held_up = any(one.view.speed.word in {SLOW_CLOCK, THROTTLED} for one in beside)
        return () if held_up else (backend.step_pace,)

    def peers(self, track: BackendTrack) -> list[BackendView]:
        """Return at most `MOST_PEERS` other answering backends that serve the same model as `track`.

        They are those watched next after it. Backends known to run on other GPU models are left out. The
        result is empty if the model or the step time of `track` is unknown.
        """
        model = track.view.model
        if model is None or track.view.step_ms is None:
            return []
        gpus, result = self._gpu_names(track.view), list[BackendView]()
        for one in self._others_alike(track, model):
            view = one.view
            if view.model != model or one.health.failure is not None:
                continue
            if not gpus or (self._gpu_names(view) or gpus) == gpus:
                result.append(view)
                if len(result) == MOST_PEERS:
                    break
        return result

    def _others_alike(self, track: BackendTrack, model: str) -> Iterator[BackendTrack]:
        """Yield the other backends with this model, beginning after `track`.

        Backends are grouped by model once for as many calls as there are backends, so that a call costs the
        same with two and with hundreds.
        """
        if self._calls_left <= 0:
            self._calls_left, self._by_model = len(self._backends), {}
            for backend in self._backends.values():
                if backend.view.model is not None:
                    self._by_model.setdefault(backend.view.model, []).append(backend)
        self._calls_left -= 1
        alike = self._by_model.get(model, [])
        own = alike.index(track) if track in alike else -1
        yield from islice(alike, own + 1, None)
        yield from islice(alike, max(own, 0))

    def _gpu_names(self, view: BackendView) -> set[str | None]:
        samples = [self.node_sample(name) for name in view.nodes]
        return {gpu.name for sample in samples if sample is not None for gpu in sample.gpus}

    def node_sample(self, name: str) -> NodeSample | None:
        """Return the newest sample of the node `name`; None if there is none or the node is not watched."""
        node = self._nodes.get(name)
        return node.view.sample if node else None


# The tracks of all watched sources, and which backends belong together behind the routers.


_STALE = "its figures are stale"
Track = BackendTrack | NodeTrack | RouterTrack | FleetTrack


class Tracks:
    """The track of each watched backend, node and router, by name."""

    def __init__(self, thresholds: Thresholds) -> None:
        """Start with no source; tracks added later judge by `thresholds`."""
        self.backends: dict[str, BackendTrack] = {}
        self.nodes: dict[str, NodeTrack] = {}
        self.routers: dict[str, RouterTrack] = {}
        self.fleets: dict[str, FleetTrack] = {}
        self.thresholds = thresholds
        self._each_once = EachOnce()
        self._wall_figures = WallFigures()

    def add(self, targets: Iterable[Target]) -> None:
        """Add an empty track for each target, except where its type and name have a track already.

        A backend that has one is updated (`BackendTarget.updated_by`).
        """
        for target in targets:
            if isinstance(target, BackendTarget):
                known = self.backends.get(target.name)
                if known is not None:
                    known.target = known.target.updated_by(target)
                else:
                    self.backends[target.name] = BackendTrack(
                        target, self.thresholds.states, self.thresholds.nodes.slow_step_ratio
                    )
            elif isinstance(target, NodeTarget):
                self.nodes.setdefault(target.name, NodeTrack(target, self.thresholds.nodes))
            elif isinstance(target, PrometheusTarget):
                self.fleets.setdefault(target.name, FleetTrack(target))
            elif target.name not in self.routers:
                self.routers[target.name] = RouterTrack(target)

    def set_thresholds(self, thresholds: Thresholds) -> None:
        """Judge the next sample of each source, and all later ones, by `thresholds`."""
        self.thresholds = thresholds
        for backend in self.backends.values():
            backend.set_thresholds(thresholds.states, thresholds.nodes.slow_step_ratio)
        for node in self.nodes.values():
            node.set_thresholds(thresholds.nodes)

    def get(self, key: SourceKey) -> Track | None:
        """Return the track of a source; None if it is not watched."""
        return self._tracks_of_kind(key.kind).get(key.name)

    def remove(self, key: SourceKey) -> None:
        """Forget the track of a source, if there is one."""
        self._tracks_of_kind(key.kind).pop(key.name, None)

    def _tracks_of_kind(
        self, kind: SourceKind
    ) -> dict[str, BackendTrack] | dict[str, NodeTrack] | dict[str, RouterTrack] | dict[str, FleetTrack]:
        match kind:
            case SourceKind.BACKEND:
                return self.backends
            case SourceKind.NODE:
                return self.nodes
            case SourceKind.ROUTER:
                return self.routers
            case SourceKind.PROMETHEUS:
                return self.fleets

    def targets(self) -> tuple[Target, ...]:
        """Return everything that is watched: nodes, backends, routers and each Prometheus."""
        homes = (self.nodes, self.backends, self.routers, self.fleets)
        tracks: Iterable[Track] = (track for home in homes for track in home.values())
        return tuple(track.target for track in tracks)

    def size(self) -> int:
        """Return the number of sources, and of servers and machines on the walls of Prometheus servers."""
        return len(self.targets()) + sum(fleet.size for fleet in self.fleets.values())

    def identities(self) -> dict[SourceKey, EngineIdentity | NodeIdentity]:
        """Return the newest identity of each backend and node."""
        return {
            **{SourceKey.backend(name): track.identity for name, track in self.backends.items()},
            **{SourceKey.node(name): track.view.identity for name, track in self.nodes.items()},
        }

    def routing(self) -> tuple[list[RouterTrack], list[Group], Mapping[str, str]]:
        """Return (routers, the backends behind each of them, name of the group of each backend by name)."""
        routers = list(self.routers.values())
        fronts = {address_of(track.target.url) for track in routers}
        urls = {
            name: track.target.url
            for name, track in self.backends.items()
            if address_of(track.target.url) not in fronts  # a router is no backend of its own group
        }
        groups = [track.group(urls) for track in routers]
        return routers, groups, group_names(routers, groups)

    def groups_by_name(self, behind: Mapping[str, str]) -> dict[str, str]:
        """Return the name of the group of each backend, by backend name.

        This is the group in `behind`, which has the backends behind a router. For other backends it is the
        group that labels in Prometheus name, else the model; backends of unknown model are left out.
        """
        known = {
            name: behind.get(name) or track.target.group or track.view.model
            for name, track in self.backends.items()
        }
        return {name: group for name, group in known.items() if group is not None}

    def fleet_views(self, at: float, backends: Sequence[BackendView] = ()) -> tuple[FleetView, ...]:
        """Return each Prometheus as shown at `at` (monotonic seconds), each server through one of them.

        Where all of its servers are among `backends`, their figures are those of `backends`.
        """
        views = self._each_once.of(tuple(track.view(at) for track in self.fleets.values()))
        return self._wall_figures.of(views, backends)

    def note_stale(self, alerts: ActiveAlerts, instant: Instant) -> None:
        """Record a failure of each backend and node whose newest sample through a Prometheus is old by now.

        Its alerts end, and it gets none: where the Prometheus fails, that has one for all that it scrapes.
        """
        for name, backend in self.backends.items():
            if self._becomes_stale(backend, instant):
                alerts.clear_source(SourceKey.backend(name), instant, _STALE)
        for name, node in self.nodes.items():
            if self._becomes_stale(node, instant):
                alerts.clear_source(SourceKey.node(name), instant, _STALE)

    def _becomes_stale(self, track: BackendTrack | NodeTrack, instant: Instant) -> bool:
        """Record a failure if the newest sample is old and that is not known; return whether it was."""
        scrape, good_at = track.target.scrape, track.health.good_at
        if scrape is None or good_at is None or instant.at - good_at <= stale_s(scrape.every_s):
            return False
        known = track.health.failure
        if known is not None and known.kind is not FailureKind.LATE:
            return False
        message = f"no new sample through {scrape.source}"
        fleet = self.fleets.get(scrape.source)
        failed = None if fleet is None else fleet.health.failure
        if failed is not None and failed.kind is not FailureKind.LATE:
            message = f"{message}: {failed.message}"
        if known is not None and known.message == message:
            return False
        at = good_at + stale_s(scrape.every_s)  # a gap now would hide samples that come late
        track.accept_failure(Failure(FailureKind.LATE, message, at), instant.wall, None)
        return True

    def begin_own_load(self, names: Iterable[str]) -> None:
        """Record that a sweep of this program loads the backends among `names`."""
        for track in self._backends_named(names):
            track.begin_own_load()

    def end_own_load(self, names: Iterable[str], at: float) -> None:
        """Record that the sweep that loaded the backends among `names` has ended at `at` (monotonic)."""
        for track in self._backends_named(names):
            track.end_own_load(at)

    def _backends_named(self, names: Iterable[str]) -> list[BackendTrack]:
        return [self.backends[name] for name in names if name in self.backends]

    def poll_ms(self) -> dict[str, float]:
        """Return the duration of the newest poll in ms, by the label of the source; unknown ones left out."""
        took = {
            **{SourceKey.backend(name): one.view.poll_ms for name, one in self.backends.items()},
            **{SourceKey.node(name): one.took_ms for name, one in self.nodes.items()},
            **{SourceKey.router(name): one.poll_ms for name, one in self.routers.items()},
        }
        return {key.label: ms for key, ms in took.items() if ms is not None}


# The figures of a wall whose servers are all read one by one: those of their rows, so that sums agree.
#
# A Prometheus computes rates over a minute, rows have theirs over 10 s. The answer of a Prometheus with
# more servers than are read one by one stays as it is.


class WallFigures:
    """Returns walls with the figures of rows."""

    def __init__(self) -> None:
        """Start without answers."""
        self._made: dict[str, tuple[Fleet, Fleet]] = {}
        """By Prometheus: its newest answer, and what was made of it; equal ones stay the same object."""

    def of(self, views: Sequence[FleetView], backends: Sequence[BackendView]) -> tuple[FleetView, ...]:
        """Return the views; where each server has a row, with the figures of the rows."""
        rows: dict[str, BackendView] | None = None
        result: list[FleetView] = []
        for view in views:
            fleet = view.fleet
            if fleet is None or not 0 < len(fleet.servers) <= len(backends):
                result.append(view)
                continue
            rows = {backend.url: backend for backend in backends} if rows is None else rows
            if all(server.url in rows for server in fleet.servers):
                result.append(replace(view, fleet=self._with_rows(view.name, fleet, rows), by_rows=True))
            else:
                result.append(view)
        return tuple(result)

    def _with_rows(self, name: str, fleet: Fleet, rows: Mapping[str, BackendView]) -> Fleet:
        servers = tuple(
            _with_figures_of_row(server, rows[server.url], fleet.late_at) for server in fleet.servers
        )
        answer, made = self._made.get(name, (None, None))
        if answer is fleet and made is not None and made.servers == servers:
            return made
        made = replace(fleet, servers=servers)
        self._made[name] = fleet, made
        return made


def _with_figures_of_row(one: FleetServer, row: BackendView, late_at: float) -> FleetServer:
    """Return a server with the figures of its row; unchanged while it does not answer, or has no row yet."""
    if one.down or one.at is None or one.at < late_at or not row.ok or row.age_s is None:
        return one
    return replace(
        one,
        running=row.running,
        waiting=row.waiting,
        kv_cache_percent=kv_percent(row),
        generation_tps=row.generation_tps,
        prompt_tps=row.prompt_tps,
        preemptions_per_s=row.preemptions_per_s,
        ttft_p95_s=ttft_s(row),
        itl_p95_s=None if row.itl.p95 is None else row.itl.p95.seconds,
    )
