"""Follows the starts of servers whose processes are visible on a watched node, also while ports are closed.

Earlier starts come from a file on the viewer's machine (`Store.learn_starts`), and each start that is seen
is added. So the second start of a model on a machine has an expected duration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from sparktop.analysis.loading import Look, StartClock, best_past, is_warm
from sparktop.model.engine import EngineSample
from sparktop.model.event import Event, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.instant import Instant
from sparktop.model.loading import Loading, PastStart, minutes
from sparktop.model.node import NodeSample
from sparktop.model.workload import Workload, Workloads
from sparktop.store.backend import BackendTrack
from sparktop.store.node import NodeTrack
from sparktop.store.sources import SourceKey

_MOST_PAST = 400
_LONGEST_S = 7200.0
"""A server that has not answered for longer than this is not called loading."""
_SLACK_S = 10.0
"""A process that is older than this at the last answer is not a new start; readings are up to 10 s old."""
_BEFORE_READY = frozenset({FailureKind.REFUSED, FailureKind.UNREACHABLE, FailureKind.LOADING})
"""Failures of a server whose port is not open yet, or that answers 503 until it has loaded. A port that is
forwarded by Docker accepts a connection and resets it."""


class _Start(Struct):
    """A start that goes on."""

    clock: StartClock
    node: str
    host: str
    server: Workload
    engine: str
    boot_id: str | None
    spread: int
    """Number of machines that share the weights."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.host, self.engine, self.server.model or ""


class StartBook:
    """The starts that go on, by backend, and earlier starts."""

    def __init__(self, backends: Mapping[str, BackendTrack], nodes: Mapping[str, NodeTrack]) -> None:
        """Keep references to `backends` and `nodes` (by name), which may gain and lose entries later."""
        self._backends = backends
        self._nodes = nodes
        self._silent: dict[str, BackendTrack] = {}
        """The backends that did not answer when they were polled last: the only ones that may load."""
        self._starts: dict[str, _Start] = {}
        self._served: dict[str, float] = {}
        """When a backend ceased to answer, as a recording says of the time before its replayed part."""
        self._past: list[PastStart] = []
        self._finished: list[PastStart] = []

    @property
    def wanted(self) -> frozenset[tuple[str, str, str]]:
        """Keys (host, engine, model) of the starts that go on."""
        return frozenset(one.key for one in self._starts.values())

    def learn(self, starts: Iterable[PastStart]) -> None:
        """Add earlier starts; one that is known already is not added again."""
        known = set(self._past_ids())
        self._past += [one for one in starts if (one.key, one.ended_at) not in known]
        del self._past[:-_MOST_PAST]

    def _past_ids(self) -> list[tuple[tuple[str, str, str], float]]:
        return [(one.key, one.ended_at) for one in self._past]

    def take_finished(self) -> tuple[PastStart, ...]:
        """Return the starts that ended since the last call."""
        finished, self._finished = tuple(self._finished), []
        return finished

    def note(self, name: str, sample: NodeSample) -> None:
        """Follow the starts of the backends on a node that do not answer, by the node's sample."""
        if sample.workloads is None:
            return
        for track in self._silent.values():
            if name in track.view.nodes and self._may_load(track):
                self._follow(name, track, sample, sample.workloads)

    def served(self, name: str, until: float) -> None:
        """Set until when (monotonic seconds) a backend answered of which this store has no answer."""
        self._served[name] = until
        start = self._starts.get(name)
        if start is not None and start.clock.started_at < until - _SLACK_S:
            del self._starts[name]

    def _may_load(self, track: BackendTrack) -> bool:
        failure = track.health.failure
        return failure is not None and failure.kind in _BEFORE_READY

    def _follow(self, name: str, track: BackendTrack, sample: NodeSample, workloads: Workloads) -> None:
        backend, read_at = track.target.name, sample.at - (workloads.age_s or 0.0)
        start = self._starts.get(backend)
        if start is not None and start.node != name:
            return
        server = self._server(name, track, workloads)
        if server is None:
            if start is not None:
                del self._starts[backend]
            return
        if start is None or start.server.pid != server.pid:
            start = self._begin(name, track, server, read_at)
            if start is None:
                return
            self._starts[backend] = start
        start.server = server
        start.clock.note(_look(sample, workloads, server))

    def _begin(self, name: str, track: BackendTrack, server: Workload, read_at: float) -> _Start | None:
        """Return the start of the process `server`; None if the process has answered, or is too old."""
        if server.age_s is None or server.age_s > _LONGEST_S:
            return None
        started_at, good_at = read_at - server.age_s, track.health.good_at
        if good_at is None:
            good_at = self._served.get(track.target.name)
        if good_at is not None and started_at < good_at - _SLACK_S:
            return None
        node = self._nodes.get(name)
        host = (node.view.identity.hostname if node is not None else None) or name
        boot_id = node.boot_id if node is not None else None
        clock = StartClock(started_at, read_at)
        return _Start(clock, name, host, server, server.engine or "", boot_id, max(1, len(track.view.nodes)))

    def _server(self, name: str, track: BackendTrack, workloads: Workloads) -> Workload | None:
        """Return the process of the backend's server on a node: by its port, else the only one there."""
        engine = track.view.engine if track.view.engine not in {None, "openai"} else None
        servers = [
            one
            for one in workloads.processes
            if one.role == "server" and (engine is None or one.engine == engine)
        ]
        port = _port(track.target.url)
        exact = [one for one in servers if one.port == port]
        if len(exact) == 1:
            return exact[0]
        here = [one for one in self._backends.values() if name in one.view.nodes]
        # In a container, a server's port can differ from the one that is forwarded to it.
        alone = len(servers) == 1 and len(here) == 1 and (servers[0].container or port is None)
        return servers[0] if alone else None

    def explain(self, track: BackendTrack, failure: Failure) -> Failure:
        """Return the failure of a poll, as one of kind LOADING where the server's process is seen to load."""
        self._silent[track.target.name] = track
        start = self._starts.get(track.target.name)
        if start is None:
            return failure
        if failure.kind not in _BEFORE_READY or failure.at - start.clock.started_at > _LONGEST_S:
            del self._starts[track.target.name]
            return failure
        if failure.kind is FailureKind.LOADING:
            return failure
        from sparktop.engines import ENGINES  # late: the first picture needs no reader of pages

        title = ENGINES[start.engine].title if start.engine in ENGINES else "the server"
        message = f"{title} refuses connections while it loads (process {start.server.pid} on {start.node})"
        return dataclasses.replace(failure, kind=FailureKind.LOADING, message=message)

    def answered(self, track: BackendTrack, sample: EngineSample, when: Instant) -> list[Event]:
        """Record that a server answers; return an event with the duration of the start that it ends."""
        self._silent.pop(track.target.name, None)
        start = self._starts.pop(track.target.name, None)
        if start is None:
            return []
        earlier = [one for one in self._past if one.key == start.key]
        last = best_past(earlier, start.boot_id)
        done = PastStart(
            *start.key,
            total_s=sample.at - start.clock.started_at,
            phases=start.clock.phases(sample.at),
            boot_id=start.boot_id,
            warm=is_warm(earlier, start.boot_id),
            ended_at=when.wall.timestamp(),
            reported=sample.startup,
        )
        self.learn((done,))
        self._finished.append(done)
        said = f"loaded in {minutes(done.total_s)}"
        if last is not None:
            said += f", {minutes(last.total_s)} last time"
        values = {"total_s": done.total_s, **_seconds(done.phases), **_seconds(done.reported, "reported_")}
        about = f"{SourceKey.backend(track.target.name).label}:loaded"
        return [Event(when.wall, Severity.INFO, track.target.name, said, values, when.at, about)]

    def forget(self, name: str) -> None:
        """Forget the start of a backend that is not watched any more."""
        self._silent.pop(name, None)
        self._starts.pop(name, None)

    def view(self, track: BackendTrack, at: float) -> Loading | None:
        """Return what is known about a backend's start at the time `at`; None if it does not load."""
        failure = track.health.failure
        if failure is None or failure.kind is not FailureKind.LOADING:
            return None
        start = self._starts.get(track.target.name)
        if start is None:
            return Loading()
        past = best_past([one for one in self._past if one.key == start.key], start.boot_id)
        size = start.server.checkpoint_bytes
        share = None if size is None else size / start.spread
        loading = start.clock.loading(at, past, checkpoint_bytes=share)
        return replace(loading, node=start.node, pid=start.server.pid)


def _look(sample: NodeSample, workloads: Workloads, server: Workload) -> Look:
    mine = {one.pid: one for one in workloads.processes if one.server == server.pid}
    on_gpu = any(gpu.processes is not None for gpu in sample.gpus)
    if on_gpu:
        memory = sum(
            process.memory_bytes or 0
            for gpu in sample.gpus
            for process in gpu.processes or ()
            if process.pid in mine
        )
    else:
        memory = sum(one.memory_bytes or 0 for one in mine.values())
    rates = [link.rx_bytes_per_s for link in sample.network if link.kind in {"ethernet", "wifi"}]
    received = [rate for rate in rates if rate is not None]
    return Look(
        sample.at,
        memory,
        on_gpu,
        has_engine=any(pid != server.pid for pid in mine),
        received_bytes_per_s=sum(received) if received else None,
    )


def _seconds(phases: Mapping[str, float], before: str = "") -> dict[str, float]:
    """Return durations of phases as an event's values: {"gpu_context_s": 12.0}."""
    return {f"{before}{name.lower().replace(' ', '_')}_s": took for name, took in phases.items()}


def _port(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError:
        return None
