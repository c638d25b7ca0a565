"""The machines that a Prometheus scrapes: found, placed under their servers, on the wall, as nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from msgspec.structs import replace

from sparktop.analysis.speed_state import IDLE_PERCENT, SLOW_CLOCK, THROTTLED, Pace, follow
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.fleet import FleetNode, Scrape
from sparktop.model.node import GpuReading, NodeIdentity, NodeSample
from sparktop.model.targets import NodeTarget, NodeThresholds, PrometheusTarget
from sparktop.model.text import clean
from sparktop.net.failure import AnswerError
from sparktop.sources.prometheus.client import PrometheusClient, Steps, in_steps
from sparktop.sources.prometheus.found import FoundServer, Key
from sparktop.sources.prometheus.machines import (
    Exporter,
    Known,
    Machine,
    Place,
    Placing,
    aggregates,
    found_exporters,
    gpus_of,
    host_of,
    joined,
    kinds_of,
    machines_query,
    placing,
    raw,
    sample_of,
)
from sparktop.sources.source import Reading
from sparktop.store import SourceKey, Store
from sparktop.store.node import memory_limits

# The machines of the servers that are read sample by sample are nodes in the store, as those that are
# polled.
# All others are on the wall, by a few aggregates. Trouble with them never stops the servers' figures.


AGAIN_S, LONGEST_S = 60.0, 300.0
"""Seconds between two readings of the machines on the wall, where there are more than `MOST_OFTEN`: for each
thousand of them so many, so that machines cost a tenth of what their servers do."""
MOST_OFTEN = 64
MOST_NODES = 64
"""Machines that are nodes in the store."""
_LONGEST_BACKOFF_S = 600.0
_SHIFT_S = 0.5
"""Seconds by which a sample must be newer than the one before."""


class Deliver(Protocol):
    """Accepts a reading of a source."""

    def __call__(self, key: SourceKey, reading: Reading, took_ms: float | None) -> None:
        """Hand over the reading."""
        ...


class MachineFeed:
    """Reads the machines of one Prometheus."""

    def __init__(
        self,
        target: PrometheusTarget,
        client: PrometheusClient,
        store: Store,
        deliver: Deliver,
        clock: Callable[[], float],
    ) -> None:
        """Query by `client`, and hand over samples by `deliver`; nodes are added to `store`."""
        self._target = target
        self._client = client
        self._store = store
        self._deliver = deliver
        self._clock = clock
        self.machines: tuple[Machine, ...] = ()
        """Those of servers, and others with GPUs."""
        self.jobs: frozenset[str] = frozenset()
        """The jobs of all their exporters."""
        self.nodes: tuple[FleetNode, ...] = ()
        """The same as the wall shows them, from the newest answer."""
        self.problem = ""
        """Why the newest figures of machines are missing, in one line; "" if they are not."""
        self._exporters: dict[tuple[Place, str], Exporter] = {}
        self._placing = Placing()
        self._placed: dict[Key, tuple[str, ...]] = {}
        """The machines of each server, as far as they were asked for since the last search."""
        self._shown_dead: Collection[Key] | None = None
        """The dead targets that `nodes` was made with; None where it must be made again."""
        self._last: dict[str, FleetNode] = {}
        """The machines as they were read last, by name."""
        self._found_at = self._read_at = self._raw_at = float("-inf")
        self._rest_until = float("-inf")
        """After trouble, nothing is asked before this time (monotonic seconds)."""
        self._backoff_s = 0.0
        self._paces: dict[str, Pace] = {}
        self._seen: dict[str, float] = {}
        """Time of the newest sample that was delivered, by name of the machine, of those that are nodes."""

    def of(self, server: FoundServer) -> tuple[str, ...]:
        """Return the names of the machines of a server."""
        known = self._placed.get(server.key)
        if known is None:
            known = self._placed[server.key] = self._placing.machines_of(server)
        return known

    async def find(self, servers: Iterable[FoundServer], dead: Collection[Key]) -> None:
        """Search for machines; an exporter that is down is remembered."""
        now = self._clock()
        if self._rests() or (self._again_s > AGAIN_S and now - self._found_at < 0.9 * self._again_s):
            return
        self._found_at = now
        try:
            answer = await self._client.query(machines_query(self._target.machine_selector))
        except AnswerError as error:
            self._failed(error)
            return
        exporters = await in_steps(found_exporters(answer.series))
        found = {(one.place, one.kind): one for one in exporters}
        gone = {place: one for place, one in self._exporters.items() if one.place[0] in dead}
        self._exporters = {**gone, **found}
        self.machines, self._placing, self._placed = await in_steps(self._place(servers))
        self.jobs = frozenset(one.place[0].job for machine in self.machines for one in machine.exporters)
        self._shown_dead = None

    def _place(
        self, servers: Iterable[FoundServer]
    ) -> Steps[tuple[tuple[Machine, ...], Placing, dict[Key, tuple[str, ...]]]]:
        """Return, in steps, the machines to show, what finds those of a server, and those of `servers`."""
        machines = yield from joined(self._exporters.values())
        among_all = yield from placing(machines, self._target.machines)
        used: set[str] = set()
        for one in servers:
            used.update(among_all.machines_of(one))
            yield
        shown = tuple(one for one in machines if one.has_gpus or one.name in used)
        found = among_all
        if len(shown) < len(machines):
            found = yield from placing(shown, self._target.machines)
        placed: dict[Key, tuple[str, ...]] = {}
        for one in servers:
            placed[one.key] = found.machines_of(one)
            yield
        return shown, found, placed

    async def read_wall(
        self, servers: Sequence[FoundServer], dead: Collection[Key], to_monotonic_s: float, every_s: float
    ) -> None:
        """Read the figures of all machines if it is time, and judge them."""
        now = self._clock()
        again_s = self._again_s if len(self.machines) > MOST_OFTEN else every_s
        if self.machines and not self._rests() and now - self._read_at >= 0.9 * again_s:
            self._read_at = now
            try:
                more = self._target.machine_selector
                known = await aggregates(self._client, more, kinds_of(self.machines))
            except AnswerError as error:
                self._failed(error)
            else:
                self.problem, self._backoff_s, self._shown_dead = "", 0.0, None
                self._last = await in_steps(self._judged(known, to_monotonic_s))
        if dead != self._shown_dead:
            self.nodes = await in_steps(self._shown(servers, dead))
            self._shown_dead = dead

    def _judged(self, known: Known, to_monotonic_s: float) -> Steps[dict[str, FleetNode]]:
        """Return, in steps, all machines by name with their figures and states."""
        found: dict[str, FleetNode] = {}
        for one in self.machines:
            found[one.name] = self._node(one, known, to_monotonic_s)
            yield
        return found

    def _shown(self, servers: Iterable[FoundServer], dead: Collection[Key]) -> Steps[tuple[FleetNode, ...]]:
        """Return, in steps, all machines for the wall, with the names of their servers."""
        on: dict[str, list[str]] = {}
        for server in servers:
            for name in self.of(server):
                on.setdefault(name, []).append(server.name)
            yield
        nodes: list[FleetNode] = []
        for one in self.machines:
            nodes.append(_shown(one, self._last.get(one.name), dead, tuple(on.get(one.name, ()))))
            yield
        return tuple(nodes)

    async def read_raw(
        self, servers: Iterable[FoundServer], dead: Collection[Key], to_monotonic_s: float, every_s: float
    ) -> None:
        """Deliver new samples of the machines of `servers`, which are nodes of the store from now on."""
        wanted = self._wanted(servers)
        now = self._clock()
        if not wanted or self._rests() or now - self._raw_at < 0.9 * every_s:
            return
        self._raw_at = now
        try:
            known = await raw(self._client, self._target.machine_selector, wanted, every_s)
        except AnswerError as error:
            self._failed(error)
            return
        took_ms = (self._clock() - now) * 1000
        for one in wanted:
            key, sample = SourceKey.node(one.name), sample_of(one, known, to_monotonic_s)
            if _is_down(one, dead):
                message = f"{self._target.name} cannot scrape it (up is 0)"
                self._deliver(key, Failure(FailureKind.UNREACHABLE, clean(message), self._clock()), None)
            elif sample is not None and sample.at > self._seen[one.name] + _SHIFT_S:
                self._seen[one.name] = sample.at
                self._deliver(key, dataclasses.replace(sample, at=min(sample.at, self._clock())), took_ms)

    def add_nodes(self, servers: Iterable[FoundServer], every_s: float) -> None:
        """Make the machines of `servers` nodes of the store, and forget the others that were."""
        wanted = {one.name: one for one in self._machines_of(servers)[:MOST_NODES]}
        for name in self._seen.keys() - wanted.keys():
            del self._seen[name]
            self._store.remove(SourceKey.node(name))
        others = [
            one for one in self._watched() if one.scrape is None or one.scrape.source != self._target.name
        ]
        own = {one.name for one in others}
        addresses = {host_of(one.url or (one.ssh or "").rpartition("@")[2]) for one in others}
        for name, one in wanted.items():
            if name in self._seen or name in own or addresses & one.hosts:
                continue  # watched directly, or by another Prometheus
            self._seen[name] = float("-inf")
            self._store.add(NodeTarget(name, "prometheus", scrape=Scrape(self._target.name, every_s)))
            self._store.identify(SourceKey.node(name), _identity(one))

    def _watched(self) -> list[NodeTarget]:
        return [one for one in self._store.targets() if isinstance(one, NodeTarget)]

    def _machines_of(self, servers: Iterable[FoundServer]) -> list[Machine]:
        names = dict.fromkeys(name for one in servers for name in self.of(one))
        known = {one.name: one for one in self.machines}
        return [known[name] for name in names if name in known]

    def _wanted(self, servers: Iterable[FoundServer]) -> list[Machine]:
        return [one for one in self._machines_of(servers) if one.name in self._seen]

    @property
    def _again_s(self) -> float:
        return min(LONGEST_S, AGAIN_S * max(1.0, len(self.machines) / 1000))

    def _rests(self) -> bool:
        return self._clock() < self._rest_until

    def _failed(self, error: AnswerError) -> None:
        """Ask for nothing for a while, twice as long after each failure."""
        self._backoff_s = min(_LONGEST_BACKOFF_S, max(AGAIN_S, 2 * self._backoff_s))
        self._rest_until = self._clock() + self._backoff_s
        self.problem = clean(f"machines: {error.message}", 200)

    def _node(self, machine: Machine, known: Known, to_monotonic_s: float) -> FleetNode:
        """Return a machine as the wall shows it, as long as it is not down."""
        sample = sample_of(machine, known, to_monotonic_s)
        if sample is None:
            return FleetNode(machine.name)
        gpu, memory = sample.gpus[0] if sample.gpus else GpuReading(0), sample.memory
        left = memory.headroom_bytes if memory.headroom_bytes is not None else memory.available_bytes
        return FleetNode(
            machine.name,
            sample.at,
            state=self._state(machine.name, sample, self._store.thresholds.nodes),
            gpus=gpus_of(machine, known),
            gpu_percent=gpu.utilization_percent,
            temperature_c=gpu.temperature_c,
            power_w=gpu.power_w,
            sm_clock_mhz=gpu.sm_clock_mhz,
            gpu_memory_percent=_share(gpu),
            memory_total_bytes=memory.total_bytes,
            headroom_bytes=left,
            load1=sample.cpu.load1,
        )

    def _state(self, name: str, sample: NodeSample, thresholds: NodeThresholds) -> str:
        limits = memory_limits(sample.memory, thresholds)
        if limits is not None and limits[0] < limits[1]:
            return "low memory"
        if not sample.gpus:
            return "unknown"
        gpu = sample.gpus[0]
        self._paces[name] = follow(
            self._paces.get(name, Pace()),
            gpu,
            sample.at,
            unified=sample.memory.unified,
            shares={},
            thresholds=thresholds,
        )
        word = self._paces[name].state.word
        if word in {THROTTLED, SLOW_CLOCK}:
            return word
        margin = gpu.limit_margin_c
        if margin is None and gpu.slowdown_c is not None and gpu.temperature_c is not None:
            margin = gpu.slowdown_c - gpu.temperature_c
        if margin is not None and margin < thresholds.thermal_margin_warn_c:
            return "hot"
        use = gpu.utilization_percent
        return "unknown" if use is None else "idle" if use < IDLE_PERCENT else "busy"


def _shown(
    machine: Machine, last: FleetNode | None, dead: Collection[Key], backends: tuple[str, ...]
) -> FleetNode:
    """Return a machine for the wall, of which no figure stays once it is down."""
    if _is_down(machine, dead):
        at = None if last is None else last.at
        return FleetNode(machine.name, at, down=True, state="unreachable", backends=backends)
    return replace(last or FleetNode(machine.name), backends=backends)


def _share(gpu: GpuReading) -> float | None:
    if gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
        return None
    return min(100.0, 100 * gpu.memory_used_bytes / gpu.memory_total_bytes)


def _is_down(machine: Machine, dead: Collection[Key]) -> bool:
    return all(one.place[0] in dead for one in machine.exporters)


def _identity(machine: Machine) -> NodeIdentity:
    return NodeIdentity(
        os=machine.fact("os"),
        driver=machine.fact("driver", "DCGM_FI_DRIVER_VERSION"),
        product=machine.fact("product"),
        cpu=machine.fact("cpu"),
        addresses=tuple(sorted(machine.hosts)),
        hostname=machine.name,
    )
