"""Follows the starts of servers whose processes are visible on a watched node, also while ports are closed.

Earlier starts come from a file on the viewer's machine (`Store.learn`), and each start that is seen is added.
So the second start of a model on a machine has an expected duration.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from msgspec import Struct, structs
from msgspec.structs import replace

from sparktop.analysis.loading import StartClock, best_past, is_warm
from sparktop.analysis.placement import server_process
from sparktop.analysis.start_memory import newest_start, room_of
from sparktop.model.engine import EngineSample
from sparktop.model.event import Event, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.instant import Instant
from sparktop.model.node import NodeSample, Workload, Workloads
from sparktop.model.series import known_sum
from sparktop.model.snapshot import BackendState, Loading, PastStart, StartMemory, minutes
from sparktop.store.backend import BackendTrack
from sparktop.store.node import NodeTrack
from sparktop.store.sources import SourceKey

_MOST_PAST = 400
"""Earlier starts that are kept."""
_LONGEST_S = 7200.0
"""A server that has not answered for longer than this is not called loading."""
_SLACK_S = 10.0
"""A process that is older than this at the last answer is not a new start; readings are up to 10 s old."""
_FREE_KEPT = 24
"""Samples of a node's free memory that are kept: a server's process is seen some seconds after its begin."""
_NEW_S = 3.0
"""A reading of processes that is older was seen before."""
_BEFORE_READY = frozenset({FailureKind.REFUSED, FailureKind.UNREACHABLE, FailureKind.LOADING})
"""Failures of a server whose port is not open yet, or that answers 503 until it has loaded. A port that is
forwarded by Docker accepts a connection and resets it."""


class _Start(Struct):
    """A start that goes on."""

    clock: StartClock
    server: StartMemory
    boot_id: str | None
    spread: int
    """Number of machines that share the weights."""
    begin_bytes: int | None = None
    """Memory that could be allocated at the begin; None if it was not seen."""
    least_bytes: int | None = None
    """The least since then."""
    peak_gpu_bytes: int = 0

    @property
    def peak_bytes(self) -> int | None:
        if self.begin_bytes is None or self.least_bytes is None or not self.peak_gpu_bytes:
            return None
        # Whatever else the machine did meanwhile, the start took at least its GPU memory.
        return max(self.begin_bytes - self.least_bytes, self.peak_gpu_bytes)


class ServerStarts:
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
        self._servers: dict[str, StartMemory] = {}
        """By backend: the newest server's process seen."""
        self._free: dict[str, deque[tuple[float, int]]] = {}
        """(time, memory that can be allocated) of the newest samples of each node with unified memory."""
        self._past: list[PastStart] = []
        self._finished: list[PastStart] = []

    @property
    def wanted(self) -> frozenset[tuple[str, str, str]]:
        """Keys (host, engine, model) of the starts that go on, and of servers that may start or wake."""
        waiting = {name for name, track in self._backends.items() if track.view.state is BackendState.ASLEEP}
        keys = (
            server.key for name, server in self._servers.items() if name in waiting or name in self._silent
        )
        return frozenset((*(start.server.key for start in self._starts.values()), *keys))

    def learn(self, starts: Iterable[PastStart]) -> None:
        """Add earlier starts; one that is known already is not added again."""
        before = {(past.key, past.ended_at) for past in self._past}
        self._past += [start for start in starts if (start.key, start.ended_at) not in before]
        del self._past[:-_MOST_PAST]

    def past(self) -> tuple[PastStart, ...]:
        """Return the earlier starts, the oldest first."""
        return tuple(self._past)

    def take_finished(self) -> tuple[PastStart, ...]:
        """Return the starts that ended since the last call."""
        finished, self._finished = tuple(self._finished), []
        return finished

    def go_on_at(self, node: str) -> bool:
        """Return whether a server of a node starts now."""
        return any(name in self._silent and node in self._silent[name].view.nodes for name in self._starts)

    def follow(self, name: str, sample: NodeSample) -> None:
        """Follow the starts of the backends on a node that do not answer, by the node's sample."""
        if sample.workloads is None:
            return
        if sample.memory.unified and sample.memory.headroom_bytes is not None:
            free = self._free.setdefault(name, deque(maxlen=_FREE_KEPT))
            free.append((sample.at, sample.memory.headroom_bytes))
        if (sample.workloads.age_s or 0.0) < _NEW_S:
            self._note_servers(name, sample.workloads)
        for track in self._silent.values():
            failure = track.health.failure
            if name in track.view.nodes and failure is not None and failure.kind in _BEFORE_READY:
                self._follow_start(name, track, sample, sample.workloads)

    def _note_servers(self, name: str, workloads: Workloads) -> None:
        """Remember the servers' processes on a node, and which of those before have ended."""
        for backend, track in self._backends.items():
            if name not in track.view.nodes:
                continue
            server, before = self._server_process(name, track, workloads), self._servers.get(backend)
            if server is not None:
                self._servers[backend] = StartMemory(name, self._host(name), server)
            elif before is not None and before.node == name:
                self._servers[backend] = replace(before, alive=False)

    def _host(self, name: str) -> str:
        node = self._nodes.get(name)
        return (node.view.identity.hostname if node is not None else None) or name

    def memory(self, name: str) -> StartMemory | None:
        """Return what is known of the memory that a start of a backend takes; None if it was never seen."""
        server, start = self._servers.get(name), self._starts.get(name)
        if server is None:
            return None
        begin_bytes = None if start is None else start.begin_bytes
        return replace(server, last=newest_start(self._past, server.key), begin_bytes=begin_bytes)

    def set_answered_until(self, name: str, until: float) -> None:
        """Set until when (monotonic seconds) a backend answered of which this store has no answer."""
        self._served[name] = until
        start = self._starts.get(name)
        if start is not None and start.clock.started_at < until - _SLACK_S:
            del self._starts[name]

    def _follow_start(self, name: str, track: BackendTrack, sample: NodeSample, workloads: Workloads) -> None:
        """Follow the start of a backend on the node `name`: begin it, go on with it, or end it.

        It is followed on one node only, and ends where its process does.
        """
        backend, read_at = track.target.name, sample.at - (workloads.age_s or 0.0)
        start = self._starts.get(backend)
        if start is not None and start.server.node != name:
            return
        server = self._server_process(name, track, workloads)
        if server is None:
            if start is not None:
                del self._starts[backend]
            return
        if start is None or start.server.process.pid != server.pid:
            start = self._begin(name, track, server, read_at)
            if start is None:
                return
            self._starts[backend] = start
        start.server = replace(start.server, process=server)
        mine = {process.pid: process for process in workloads.processes if process.server == server.pid}
        on_gpu = any(gpu.processes is not None for gpu in sample.gpus)
        memory = sum(process.memory_bytes or 0 for process in mine.values())
        if on_gpu:
            memory = sum(gpu.bytes_of(mine) for gpu in sample.gpus)
            start.peak_gpu_bytes = max(start.peak_gpu_bytes, memory)
        rates = (link.rx_bytes_per_s for link in sample.network if link.kind in {"ethernet", "wifi"})
        start.clock.note(
            sample.at,
            memory,
            on_gpu=on_gpu,
            has_engine=any(pid != server.pid for pid in mine),
            received_bytes_per_s=known_sum(rates),
        )
        room = room_of(sample, start.server.asks.ranks)
        if room is not None:
            if start.least_bytes is None and start.clock.from_begin:
                # The process is seen some seconds after its begin: what was free until then counts.
                before = [free for at, free in self._free.get(name, ()) if at <= start.clock.started_at]
                start.begin_bytes = before[-1] if before else room.free_bytes
            start.least_bytes = min(room.free_bytes, start.least_bytes or room.free_bytes)

    def _begin(self, name: str, track: BackendTrack, server: Workload, read_at: float) -> _Start | None:
        """Return the start of the process `server`; None if the process has answered, or is too old."""
        if server.age_s is None or server.age_s > _LONGEST_S:
            return None
        started_at, good_at = read_at - server.age_s, track.health.good_at
        if good_at is None:
            good_at = self._served.get(track.target.name)
        if good_at is not None and started_at < good_at - _SLACK_S:
            return None
        node, memory = self._nodes.get(name), StartMemory(name, self._host(name), server)
        boot_id = node.boot_id if node is not None else None
        return _Start(StartClock(started_at, read_at), memory, boot_id, max(1, len(track.view.nodes)))

    def server_of(self, track: BackendTrack) -> Workload | None:
        """Return the process of a backend's server on the first of its nodes that shows it, else None."""
        for name in track.view.nodes:
            node = self._nodes.get(name)
            sample = None if node is None else node.view.sample
            if sample is None or sample.workloads is None:
                continue
            if (result := self._server_process(name, track, sample.workloads)) is not None:
                return result
        return None

    def _server_process(self, name: str, track: BackendTrack, workloads: Workloads) -> Workload | None:
        """Return the process of the backend's server on a node."""
        backends_here = [backend for backend in self._backends.values() if name in backend.view.nodes]
        return server_process(track.target.url, track.view.engine, workloads, alone=len(backends_here) == 1)

    def note_failure(self, track: BackendTrack, failure: Failure) -> Failure:
        """Note a failed poll; return its failure, as one of kind LOADING where the server is seen to load.

        A start ends with a failure that no start has, and after `_LONGEST_S`.
        """
        self._silent[track.target.name] = track
        start = self._starts.get(track.target.name)
        if start is None:
            return failure
        if failure.kind not in _BEFORE_READY or failure.at - start.clock.started_at > _LONGEST_S:
            del self._starts[track.target.name]
            return failure
        if failure.kind is FailureKind.LOADING:
            return failure
        process = f"process {start.server.process.pid} on {start.server.node}"
        message = f"connections are refused while it loads ({process})"
        return structs.replace(failure, kind=FailureKind.LOADING, message=message)

    def note_answer(self, track: BackendTrack, sample: EngineSample, when: Instant) -> list[Event]:
        """Record that a server answers; return an event with the duration of the start that it ends."""
        self._silent.pop(track.target.name, None)
        start = self._starts.pop(track.target.name, None)
        if start is None:
            return []
        past_starts = [past for past in self._past if past.key == start.server.key]
        last_start = best_past(past_starts, start.boot_id)
        done = PastStart(
            *start.server.key,
            total_s=sample.at - start.clock.started_at,
            phases=start.clock.phases(sample.at),
            boot_id=start.boot_id,
            warm=is_warm(past_starts, start.boot_id),
            ended_at=when.wall.timestamp(),
            reported=sample.startup,
            peak_bytes=start.peak_bytes,
            gpu_peak_bytes=start.peak_gpu_bytes or None,
            gpu_bytes=start.clock.memory_bytes if start.peak_gpu_bytes else None,
            asks=start.server.process.asks,
        )
        self.learn((done,))
        self._finished.append(done)
        text = f"loaded in {minutes(done.total_s)}"
        if last_start is not None:
            text += f", {minutes(last_start.total_s)} last time"
        values = {
            "total_s": done.total_s,
            **_phase_values(done.phases),
            **_phase_values(done.reported, "reported_"),
        }
        about = f"{SourceKey.backend(track.target.name).label}:loaded"
        return [Event(when.wall, Severity.INFO, track.target.name, text, values, when.at, about)]

    def forget(self, name: str) -> None:
        """Forget the start of a backend that is not watched any more."""
        self._silent.pop(name, None)
        self._starts.pop(name, None)
        self._servers.pop(name, None)

    def view(self, track: BackendTrack, at: float) -> Loading | None:
        """Return what is known about a backend's start at the time `at`; None if it does not load."""
        failure = track.health.failure
        if failure is None or failure.kind is not FailureKind.LOADING:
            return None
        start = self._starts.get(track.target.name)
        if start is None:
            return Loading()
        past = best_past(
            [earlier for earlier in self._past if earlier.key == start.server.key], start.boot_id
        )
        size = start.server.process.checkpoint_bytes
        share = None if size is None else size / start.spread
        loading = start.clock.loading_at(at, past, checkpoint_bytes=share)
        return replace(loading, node=start.server.node, pid=start.server.process.pid)


def _phase_values(phases: Mapping[str, float], before: str = "") -> dict[str, float]:
    """Return durations of phases as an event's values: {"gpu_context_s": 12.0}."""
    return {f"{before}{name.lower().replace(' ', '_')}_s": took for name, took in phases.items()}
