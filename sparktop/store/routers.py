"""Routers: their samples, the backends behind them, what their own counts say, and how they are shown.

Also each Prometheus, with its servers and machines, each of them through one Prometheus only.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from statistics import median
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sparktop.analysis.placement import match_deployments
from sparktop.analysis.wall import kv_percent, ttft_s
from sparktop.graphics.numbers import count_words
from sparktop.model.event import Severity
from sparktop.model.failure import Failure
from sparktop.model.router import Fleet, FleetNode, FleetServer, FleetView, RouterSample, RouterView, stale_s
from sparktop.model.series import known_max, known_mean, known_sum
from sparktop.model.snapshot import BackendState, BackendView
from sparktop.model.targets import PrometheusTarget, RouterTarget
from sparktop.rates import SLEPT_S
from sparktop.store.backend import BackendTrack
from sparktop.store.load_log import LoadLog
from sparktop.store.plausible import without_impossible
from sparktop.store.sources import Health

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
        self.sample = RouterSample(-math.inf)
        """The newest good sample; before the first one that reports nothing."""
        self._answering_since: datetime | None = None
        self._recent: deque[RouterSample] = deque(maxlen=_COUNTS_KEPT)
        """The newest samples, oldest first."""
        self._restarted_at = -math.inf
        """Monotonic time of the first sample since the router restarted, or since this machine slept."""
        self._lead_s = math.inf
        """Seconds by which the wall clock led the monotonic one at the newest sample."""
        self.trouble_severity = Severity.WARNING
        """Severity of the newest alert about its deployments."""

    @property
    def strategy(self) -> str | None:
        """The routing strategy that the router reports, or else the configured one; None if unknown."""
        return self.sample.strategy or self.target.strategy

    def failures_since(self, since: float) -> RouterSample | None:
        """Return how much the failure counters grew from `since` on; None with fewer than two samples.

        The result is a sample whose counters are replaced by their growth.
        """
        since = max(since, self._restarted_at)
        counting = [sample for sample in self._recent if sample.at >= since and sample.failures is not None]
        if len(counting) < 2:  # noqa: PLR2004 - a difference needs two
            return None
        oldest, newest = counting[0], counting[-1]
        return RouterSample(
            newest.at,
            failures=_growth_by_name(oldest.failures or {}, newest.failures or {}),
            cooldowns=_growth(oldest.cooldowns, newest.cooldowns),
            cooled=_growth_by_name(oldest.cooled, newest.cooled),
            refusals=_growth(oldest.refusals, newest.refusals),
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
        ended = [log.counts_since(recent[0].at).get("finished") for log in logs] if recent else []
        total = sum(count for count in ended if count is not None)
        if len(counts) > 1 and None not in ended and total >= 1 and counts[-1] >= counts[0]:
            passed = counts[-1] - counts[0] >= _PASSED_SHARE * total
        else:
            inside = known_mean(map(_requests_inside, recent))
            requests_now = known_sum(log.requests_now() for log in logs) or 0.0
            if inside is None or not requests_now > 0:
                return None
            passed = inside >= _PASSED_SHARE * requests_now
        return passed if passed or is_long else None

    def weights(self, deployments: Mapping[str, str | None]) -> dict[str, float]:
        """Return the weight of each backend by the router's own report; empty where it has none.

        `deployments` has the backend by deployment id. Only LiteLLM's simple-shuffle follows them.
        """
        if self.strategy not in {None, "simple-shuffle"}:
            return {}
        result: dict[str, float] = {}
        for deployment in self.sample.deployments or ():
            backend = deployments.get(deployment.id)
            if backend is not None and deployment.weight is not None:
                result[backend] = result.get(backend, 0.0) + deployment.weight
        return result

    @property
    def slowness(self) -> str | None:
        """What shows that the router itself is slow, in words; None if nothing does."""
        spent = [(sample.at, sample.cpu_s) for sample in self._recent if sample.cpu_s is not None]
        if spent:
            last_at, last_s = spent[-1]
            first_at, first_s = next(point for point in spent if point[0] >= last_at - _CPU_WINDOW_S)
            span_s, cores_s = last_at - first_at, last_s - first_s
            if span_s >= _CPU_WINDOW_S / 2 and cores_s >= _FULL_CORES * span_s:
                return f"its process uses {cores_s / span_s:.1f} CPU cores"
        answers = [sample.answer_ms for sample in self._recent if sample.answer_ms is not None]
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
        listed, troubles = self.sample.deployments or (), self.sample.troubles
        return bool(listed) and all(troubles.get(deployment.id) in _OUT for deployment in listed)

    def deployment_troubles(self) -> dict[str, str]:
        """Return what is wrong with each deployment that is not well, in words, by its id.

        These are the router's own word for it, its failed answers of the last minute, and how often the
        router took it out of service in that time.
        """
        sample = self.sample
        grown = self.failures_since(sample.at - _MINUTE_S) or RouterSample(sample.at)
        failures, cooled = grown.failures or {}, grown.cooled
        result: dict[str, str] = {}
        for name in dict.fromkeys((*sample.troubles, *failures, *cooled)):
            counts = [sample.troubles[name]] if name in sample.troubles else []
            if failures.get(name, 0.0) >= FAILS_A_MINUTE:
                counts.append(f"{failures[name]:.0f} failed answers within {_MINUTE_S:.0f} s")
            if cooled.get(name):
                counts.append(f"in cooldown {count_words(cooled[name], 'time')}")
            if counts:
                result[name] = ", ".join(counts)
        return result

    def accept_failure(self, failure: Failure, now: datetime, took_ms: float | None) -> None:
        """Record a failed poll; the last sample is kept."""
        self.health.bad(failure, now)
        self.poll_ms, self._answering_since = took_ms, None

    def accept_sample(self, sample: RouterSample, now: datetime, took_ms: float | None) -> None:
        """Record a successful poll of the router.

        The counters of earlier samples do not count if the router has restarted, so that a failure counter
        fell, or if this machine slept, so that the time between is unknown.
        """
        self.health.good(sample.at)
        before = next((earlier for earlier in reversed(self._recent) if earlier.failures is not None), sample)
        lead_s, led_s = now.timestamp() - sample.at, self._lead_s
        self._lead_s = lead_s
        if lead_s - led_s > SLEPT_S or (sample.failures is not None and _has_restarted(before, sample)):
            self._restarted_at = sample.at
        self.sample = sample
        self._recent.append(sample)
        self.poll_ms = sample.answer_ms if sample.answer_ms is not None else took_ms
        self._answering_since = self._answering_since or now

    def group(self, backend_urls: Mapping[str, str]) -> Group:
        """Return the backends behind this router.

        These are the backends that the configuration names for the router. If it names none, they are the
        watched backends whose URLs match the router's deployments; `backend_urls` has these URLs by backend
        name.
        """
        listed = self.sample.deployments
        deployments = match_deployments(
            listed,
            router_url=self.target.url,
            backend_urls=backend_urls,
            configured=self.target.deployments,
        )
        if self.target.backends:
            return Group(deployments, self.target.backends, {})
        backends = deployments or {}
        names = dict.fromkeys(name for name in backends.values() if name is not None)
        models: dict[str, str] = {}
        for deployment in listed or ():
            name = backends[deployment.id]
            if name is not None and deployment.model is not None:
                models.setdefault(name, deployment.model)
        return Group(deployments, tuple(names), models)

    def view(self, at: float, group: Group, backends: Iterable[BackendView]) -> RouterView:
        """Return the router as shown at `at` (monotonic), with the load of its backends."""
        views = {view.name: view for view in backends}
        loads = {name: view.running if view.ok else None for name, view in views.items()}
        behind = [views[name] for name in group.backends if name in views]
        return RouterView(
            self.target.name,
            self.target.url,
            failure=self.health.failure,
            failing_since=self.health.failing_since,
            answering_since=self._answering_since,
            age_s=self.health.age_s(at),
            sample=self.sample,
            strategy=self.strategy,
            strategy_read=self.sample.strategy is not None,
            backends=group.backends,
            deployments=group.deployments,
            running={name: loads.get(name) for name in group.backends},
            slow=self.slowness,
            stuck={view.name: _stuck_text(view) for view in behind if view.state in STUCK},
            deployment_troubles=self.deployment_troubles(),
            trouble_severity=self.trouble_severity,
            poll_ms=self.poll_ms,
        )

    def absent_models(self, group: Group, backends: Mapping[str, BackendTrack]) -> dict[str, str]:
        """Return the deployments whose model their backend does not serve: what is wrong, in words, by id.

        A backend that does not answer, or does not list its models, is not judged.
        """
        result: dict[str, str] = {}
        for deployment in self.sample.deployments or ():
            track = backends.get((group.deployments or {}).get(deployment.id) or "")
            if track is None or track.health.failure is not None or deployment.asks_for is None:
                continue
            served = track.served_models
            if served and not deployment.may_ask_for(served):
                result[deployment.id] = (
                    f"asks {track.target.name} for {deployment.asks_for}, which serves {served[0]}"
                )
        return result


def _stuck_text(view: BackendView) -> str:
    progress = view.progress
    return view.state.value if progress is None else f"{progress.word.in_words} ({progress.fact})"


def _requests_inside(sample: RouterSample) -> float | None:
    """Return the requests that a router has received or sent and that have not ended; None if unknown."""
    if sample.in_flight is not None:
        return sample.in_flight
    return None if sample.sent is None else sum(sample.sent.values())


def _growth(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


def _growth_by_name(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return by how much each counter grew, of those that did."""
    grown = {name: count - before.get(name, 0.0) for name, count in after.items()}
    return {name: more for name, more in grown.items() if more > 0}


def _has_restarted(before: RouterSample, after: RouterSample) -> bool:
    counts = after.failures or {}
    return any(counts.get(name, 0.0) < count for name, count in (before.failures or {}).items())


Routed = Sequence[tuple[RouterTrack, Group]]
"""Each router with the backends behind it."""


def group_names(routed: Routed) -> dict[str, str]:
    """Return the group name by backend, for backends behind a router.

    A group has the router's name. If the router offers several models, each model is a group, because only
    backends that serve the same model can be compared. A backend behind several routers belongs to the router
    whose configuration names the backend, or else to the first router.
    """
    names: dict[str, str] = {}
    for router, group in sorted(routed, key=lambda pair: not pair[0].target.backends):
        for backend in group.backends:
            names.setdefault(backend, _group_name(router, group, backend))
    return names


def _group_name(router: RouterTrack, group: Group, backend: str) -> str:
    several = len(set(group.models.values())) > 1
    model = group.models.get(backend)
    return f"{router.target.name}: {model}" if several and model else router.target.name


def routers_of_groups(routed: Routed) -> dict[str, tuple[RouterTrack, Group]]:
    """Return (router, all backends behind that router) by group name."""
    result: dict[str, tuple[RouterTrack, Group]] = {}
    for router, group in routed:
        for backend in group.backends:
            result.setdefault(_group_name(router, group, backend), (router, group))
    return result


# Each Prometheus: its servers and machines, each of them through one Prometheus only.


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
        self._fleet = _with_credible_figures(fleet)
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
            fleet = self._fleet = _with_credible_figures(replace(fleet, at=at, nodes=nodes))
        age_s = None if newest is None else max(0.0, at - newest)
        failure, since = self.health.failure, self.health.failing_since
        return FleetView(self.target.name, self.target.url, fleet, failure, since, age_s)


def _with_credible_figures(fleet: Fleet) -> Fleet:
    """Return an answer without impossible figures, and those of servers whose newest scrape is too old."""
    late_at = fleet.late_at
    servers = (
        without_impossible(server)
        if server.at is None or server.at >= late_at
        else FleetServer(server.name, server.url, server.group, server.at, server.down, nodes=server.nodes)
        for server in fleet.servers
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

    def leave_each_once(self, views: tuple[FleetView, ...]) -> tuple[FleetView, ...]:
        """Return the views without what stands in another one."""
        if len(views) < 2:  # noqa: PLR2004 - two share
            return views
        answers = tuple((view.fleet, view.ok) for view in views)
        is_unchanged = len(answers) == len(self._from) and all(
            fleet is fleet_before and is_ok == was_ok
            for (fleet, is_ok), (fleet_before, was_ok) in zip(answers, self._from, strict=True)
        )
        if not is_unchanged:
            self._from, self._made = answers, _each_server_once(views)
        return tuple(
            view if fleet is view.fleet else replace(view, fleet=fleet)
            for view, fleet in zip(views, self._made, strict=True)
        )


_ServerKey = tuple[str, str, str]
_Claimed = TypeVar("_Claimed", str, _ServerKey)


def _server_key(server: FleetServer) -> _ServerKey:
    """Return what says that a server is the same; pods of two clusters may have equal addresses."""
    return server.url, server.name, server.group


def _claim(
    claims: dict[_Claimed, tuple[bool, int]], key: _Claimed, index: int, *, is_current: bool
) -> int | None:
    """Note that answer `index` shows what has this key: the first that is current, else the first, keeps it.

    Return the index of the answer that had it before; None without one.
    """
    was_current, other = claims.get(key, (False, None))
    if other is None or (is_current and not was_current):
        claims[key] = (is_current, index)
    return other


def _each_server_once(views: Sequence[FleetView]) -> tuple[Fleet | None, ...]:
    """Return the answers without servers that stand in another one, and without the machines beside these."""
    servers: dict[_ServerKey, tuple[bool, int]] = {}
    nodes: dict[str, tuple[bool, int]] = {}
    shared: set[int] = set()
    answered = [(index, view.fleet, view.ok) for index, view in enumerate(views) if view.fleet is not None]
    for index, fleet, is_ok in answered:
        for server in fleet.servers:
            is_current = is_ok and not server.down and server.at is not None and server.at >= fleet.late_at
            other = _claim(servers, _server_key(server), index, is_current=is_current)
            if other is not None:
                shared |= {other, index}
    answered = [answer for answer in answered if answer[0] in shared]
    for index, fleet, is_ok in answered:
        for node in fleet.nodes:
            is_current = is_ok and not node.down and node.at is not None
            _claim(nodes, node.name, index, is_current=is_current)
    result = [view.fleet for view in views]
    for index, fleet, _ in answered:
        own_servers = tuple(server for server in fleet.servers if servers[_server_key(server)][1] == index)
        machines = tuple(machine for machine in fleet.nodes if nodes[machine.name][1] == index)
        left_out = len(fleet.servers) - len(own_servers)
        left_out_words = f"{left_out:,} of its servers are shown by another Prometheus" if left_out else ""
        note = "; ".join(part for part in (left_out_words, fleet.note) if part) or None
        result[index] = replace(fleet, servers=own_servers, nodes=machines, note=note)
    return tuple(result)


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

    def with_rows(self, views: Sequence[FleetView], backends: Sequence[BackendView]) -> tuple[FleetView, ...]:
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
        answer, with_rows = self._made.get(name, (None, None))
        if answer is fleet and with_rows is not None and with_rows.servers == servers:
            return with_rows
        with_rows = replace(fleet, servers=servers)
        self._made[name] = fleet, with_rows
        return with_rows


def _with_figures_of_row(server: FleetServer, row: BackendView, late_at: float) -> FleetServer:
    """Return a server with the figures of its row; unchanged while it does not answer, or has no row yet."""
    answers = not server.down and server.at is not None and server.at >= late_at
    if not answers or not row.ok or row.age_s is None:
        return server
    return replace(
        server,
        running=row.running,
        waiting=row.waiting,
        kv_cache_percent=kv_percent(row),
        generation_tps=row.generation_tps,
        prompt_tps=row.prompt_tps,
        preemptions_per_s=row.preemptions_per_s,
        ttft_p95_s=ttft_s(row),
        itl_p95_s=None if row.itl.p95 is None else row.itl.p95.seconds,
    )
