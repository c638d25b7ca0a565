"""The demo in virtual time: its simulated engines and the real store, without clock and network.

Screenshots and screen tests use it, because equal arguments always produce the same picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from sparktop.demo.engine_page import VERSION, engine_page
from sparktop.demo.machine import MachineReader, SimulatedMachine
from sparktop.demo.scenario import Fault, FaultRun, Scenario, backend_name
from sparktop.engines import read_page
from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import LITELLM, Deployment, RouterSample
from sparktop.model.targets import BackendTarget, ModelFacts, NodeTarget, RouterTarget, Watch
from sparktop.simulation.calibration import BYTES_PER_TOKEN_GB, CLUSTER_TP2, SOLO
from sparktop.simulation.thermal import NodeThermal
from sparktop.store import SourceKey, Store
from sparktop.store.store import Journal
from stage.arrivals import Swing
from stage.clients import VirtualTime
from stage.load import OpenLoad, RehearsedTime, routed_load

START = datetime(2026, 1, 15, 9, 0, 0, tzinfo=UTC)
"""Wall-clock time at the start of every rehearsal."""
_ANSWER_S = 0.012
_SLOTS, _KV_BLOCKS = 16, 768
"""Requests at once and KV cache blocks of an engine: few, so that a handful of users fill it, queue and cause
preemption."""


class Outage(Struct, frozen=True):
    """A backend that stops answering at the virtual time `at_s`."""

    backend: int
    at_s: float


class RouterPart(Struct, frozen=True):
    """Properties of the simulated LiteLLM router in front of all backends."""

    reports_setup: bool = True
    """Whether the router reports its strategy and its deployments."""
    unwatched: int = 0
    """Number of the router's deployments that do not belong to watched backends."""
    down_at_s: float | None = None
    """Virtual time at which the router stops answering; None for never."""


_LOOKED_AT_S = 5
_DRAWN_S = 0.35
"""Seconds from the begin of a poll until the screen is drawn."""
_ROUTER_EVERY_S = 5


class Rehearsal:
    """Simulated backends and their GB10 machines in a virtual time, which advances only in method calls."""

    def __init__(
        self,
        *,
        backends: int = 2,
        nodes: int = 1,
        seed: int = 0,
        outage: Outage | None = None,
        lanes: int = 1,
        speculative: bool = False,
        router: RouterPart | None = None,
        span: int = 1,
        machines: Mapping[int, SimulatedMachine] | None = None,
        scenario: Scenario | None = None,
        journal: Journal | None = None,
    ) -> None:
        """Start at virtual second 0, before the first poll; `nodes` is the number of nodes that are watched.

        Each backend has `lanes` engine cores (data-parallel ranks) and runs on `span` nodes of its own. With
        `speculative`, the cores count drafts of speculative decoding. `machines` has the special properties
        of nodes, by index. Without a `scenario`, each backend has users of its own, whose request rate rises
        and falls. With a `scenario`, engines, machines, clients and router are those of the scenario.
        """
        self._scenario = scenario or _scenario_without_router(span, machines or {})
        self._lanes = lanes
        self._speculative = speculative
        self._outage = outage
        self._router = RouterPart() if scenario is not None and router is None else router
        self._now_s = 0.0
        self._second = 0
        """The last second at which all sources were polled."""
        span = self._scenario.profile.nodes
        names = [backend_name(index) for index in range(backends)]
        hosts = [backend_name(index) for index in range(backends * span)]
        thermals = [self._scenario.thermal_of(index, start_s=0.0) for index in range(len(hosts))]
        self._time = self._make_engines(backends, thermals, seed)
        self._readers = [self._make_reader(index, hosts[index], thermals[index]) for index in range(nodes)]
        self._start_load(scenario, seed)
        self._schedule_fault(self._scenario.fault)
        self.watch = self._make_watch(names, hosts[:nodes], scenario)
        self.store = Store(
            self.watch,
            clock=lambda: self._now_s,
            now=lambda: START + timedelta(seconds=self._now_s),
            simulated=True,
            journal=journal,
        )
        for target, reader in zip(self.watch.nodes, self._readers, strict=True):
            if reader.identity is not None:
                self.store.identify(SourceKey.node(target.name), reader.identity)

    @property
    def time(self) -> VirtualTime:
        """The simulated engines and their virtual time."""
        return self._time

    @property
    def now_s(self) -> float:
        """The virtual time in seconds since the start."""
        return self._now_s

    @property
    def scenario(self) -> Scenario:
        """The scenario that defines engines and machines."""
        return self._scenario

    def play(self, seconds: float) -> Store:
        """Advance the virtual time by `seconds`, and poll at each full second; return the store.

        Backends are polled each second, nodes every second time. Afterwards, the virtual time is the moment
        at which a screen would be drawn after the last poll.
        """
        end_s = self._now_s + seconds
        while self._second + 1 <= end_s:
            self._poll_all()
            self._now_s = self._second + _DRAWN_S
        self.store.measure_terminal(9_600.0)
        return self.store

    def end_server(self, backend: int) -> None:
        """Let a server end: nothing listens on its port any more, and its processes leave its machines."""
        self._outage = Outage(backend, self._now_s)
        span = self._scenario.profile.nodes
        for reader in self._readers[backend * span : (backend + 1) * span]:
            reader.attach(None)

    def advance(self, until_s: float) -> None:
        """Advance the virtual time to `until_s`, and poll at each full second on the way."""
        while self._second + 1 + _ANSWER_S <= until_s:
            self._poll_all()
        self._now_s = max(self._now_s, until_s)
        self._time.run(self._now_s)

    def _poll_all(self) -> None:
        """Advance to the next full second and poll the backends; poll nodes and the router less often.

        Every `_LOOKED_AT_S` seconds, the balance is judged too.
        """
        self._second += 1
        self._now_s = self._second + _ANSWER_S
        self._time.run(self._now_s)
        for index, target in enumerate(self.watch.backends):
            self._poll_backend(index, target)
        if self._second % 2 == 0:
            for node, reader in zip(self.watch.nodes, self._readers, strict=True):
                self.store.accept(SourceKey.node(node.name), reader.sample(), 1.4)
        if self._router is not None and self._second % _ROUTER_EVERY_S == 1:
            self._poll_router(self._router)
        if self._second % _LOOKED_AT_S == 0:
            self._now_s = self._second + _DRAWN_S
            self.store.judge()

    def _make_watch(self, names: list[str], hosts: list[str], scenario: Scenario | None) -> Watch:
        profile = self._scenario.profile
        # The configured strategy and the one that the router reports need not be equal.
        label = "simple-shuffle" if scenario is None else scenario.strategy
        return Watch(
            nodes=tuple(NodeTarget(host) for host in hosts),
            backends=tuple(
                _backend_target(index, name, profile.nodes, profile.max_num_seqs)
                for index, name in enumerate(names)
            ),
            routers=() if self._router is None else (_router_target(names, label),),
            source="rehearsal",
            models={profile.model: ModelFacts(BYTES_PER_TOKEN_GB)},
        )

    def _make_engines(self, backends: int, thermals: list[NodeThermal], seed: int) -> RehearsedTime:
        span = self._scenario.profile.nodes
        places = [backend for backend in range(backends) for _ in range(self._lanes)]
        return RehearsedTime(
            [self._scenario.profile_of(backend) for backend in places],
            [thermals[backend * span : (backend + 1) * span] for backend in places],
            seed=seed,
        )

    def _make_reader(self, index: int, name: str, thermal: NodeThermal) -> MachineReader:
        machine = self._scenario.machine_of(index, start_s=0.0)
        reader = MachineReader(thermal, machine, name=name, clock=lambda: self._now_s)
        reader.attach(self._time.engines[index // self._scenario.profile.nodes * self._lanes])
        reader.show_processes = True
        return reader

    def _schedule_fault(self, fault: Fault | None) -> None:
        """Schedule the fault of the first engine; None for no fault."""
        if fault is None:
            return
        time, span = self._time, self._scenario.profile.nodes
        run = FaultRun(
            fault,
            lambda: time.engines[0].gauges,
            self._readers[:span],
            hold=partial(time.hold, 0),
            later=lambda after_s, call: time.call_at(time.now_s + after_s, call),
        )
        run.repeat()

    def _start_load(self, scenario: Scenario | None, seed: int) -> None:
        if scenario is not None:
            routed_load(self._time, scenario, seed=seed)
            return
        # The phases differ, so that one engine is busy while another is idle.
        count = len(self._time.engines)
        for index in range(count):
            OpenLoad(self._time, index, Swing(phase=index / count), f"{seed}/{index}")

    def _poll_backend(self, index: int, target: BackendTarget) -> None:
        key = SourceKey.backend(target.name)
        if self._outage is not None and self._outage.backend == index and self._now_s >= self._outage.at_s:
            words = f"nothing listens on {target.url.removeprefix('http://')} (connection refused)"
            self.store.accept(key, Failure(FailureKind.REFUSED, words, self._now_s), 0.8)
            return
        places = range(index * self._lanes, (index + 1) * self._lanes)
        pages = [self._read_page(place) for place in places]
        lanes = tuple(
            replace(self._with_drafts(page.lanes[0]), lane=str(rank)) for rank, page in enumerate(pages)
        )
        self.store.accept(key, replace(pages[0], lanes=lanes), 4.6)
        profile = self._time.engines[places[0]].profile
        self.store.identify(key, EngineIdentity(VERSION, profile.model, profile.max_model_len))

    def _poll_router(self, part: RouterPart) -> None:
        target = self.watch.routers[0]
        key = SourceKey.router(target.name)
        if part.down_at_s is not None and self._now_s >= part.down_at_s:
            words = f"nothing listens on {target.url.removeprefix('http://')} (connection refused)"
            self.store.accept(key, Failure(FailureKind.REFUSED, words, self._now_s), 0.8)
            return
        model = self._scenario.profile.model
        here = [
            Deployment(f"spark-{index + 1}", f"{backend.url}/v1", model)
            for index, backend in enumerate(self.watch.backends)
        ]
        elsewhere = [Deployment(f"cloud-{index + 1}", None, model) for index in range(part.unwatched)]
        sample = RouterSample(
            self._now_s,
            LITELLM,
            alive=True,
            version="1.106.2",
            strategy=self._scenario.strategy if part.reports_setup else None,
            deployments=(*here, *elsewhere) if part.reports_setup else None,
            note=None if part.reports_setup else "needs a key to list its deployments",
            answer_ms=2.4,
        )
        self.store.accept(key, sample, 2.6)

    def _read_page(self, place: int) -> EngineSample:
        engine, histograms = self._time.engines[place], self._time.histograms[place]
        page = engine_page([(engine, histograms)], START.timestamp() - 3600)
        return read_page(page, at=self._now_s, answer_ms=4.0)

    def _with_drafts(self, lane: LaneSample) -> LaneSample:
        """Return the sample of an engine core, with counters of speculative decoding added.

        These counters are missing on the simulated metrics page. If the rehearsal is not `speculative`, the
        sample is returned unchanged.
        """
        if not self._speculative or lane.generation_tokens is None:
            return lane
        drafts = float(lane.generation_tokens * 2 // 5)
        return replace(
            lane,
            spec_drafts=drafts,
            spec_draft_tokens=3 * drafts,
            spec_accepted_tokens=float(int(1.55 * drafts)),
        )


def _scenario_without_router(span: int, machines: Mapping[int, SimulatedMachine]) -> Scenario:
    """Return the scenario for backends that have users of their own and get no requests through a router.

    Its engines are so small that a few users fill them. The strategy of its router has no effect.
    """
    profile = replace(
        CLUSTER_TP2 if span > 1 else SOLO, max_num_seqs=_SLOTS, kv_blocks=_KV_BLOCKS, nodes=span
    )
    return Scenario("swings", "least-busy", profile=profile, machines=machines)


def _backend_target(index: int, name: str, span: int, slots: int) -> BackendTarget:
    first = span * index
    hosts = tuple(backend_name(place) for place in range(first, first + span))
    return BackendTarget(name, f"http://192.168.100.{11 + first}:8000", nodes=hosts, slots=slots)


def _router_target(backends: list[str], strategy: str) -> RouterTarget:
    return RouterTarget("proxy", "http://192.168.100.11:4000", strategy, tuple(backends))
