"""The demo's scenarios by name: servers, a routing strategy, a load, and faults.

Faults are engines that hang or only seem to, with what their machines then show. Figures of hangs are those
reported from GB10 machines: 13 to 21 W at 96 % utilisation for a kernel that never ends, 46 W in a long
prefill. A hang keeps all gauges on vLLM's metrics page at their last values.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.demo.machine import NO_SYMPTOMS, SLOW_MHZ, MachineReader, SimulatedMachine, Symptoms, setup_of
from sparktop.model.node import ProcessReading
from sparktop.simulation.calibration import (
    CLUSTER_TP2,
    GX10_PATCHED,
    GX10_VANILLA,
    LONG_CONTEXT,
    SHORT_CONTEXT,
    SOLO,
)
from sparktop.simulation.engine import DrawLengths, EngineProfile, Gauges
from sparktop.simulation.routers import RouterSettings
from sparktop.simulation.thermal import AMBIENT_C, NodeThermal


class Fault(Struct, frozen=True):
    """Something that stops a simulated engine between two steps, for a time."""

    name: str
    symptoms: tuple[Symptoms, ...]
    """What each of the engine's machines shows; the last value is repeated for further machines."""
    power_w: tuple[float | None, ...] = (None,)
    """Power of each of the engine's machines meanwhile, None for an idle GPU; the last value is repeated for
    further machines."""
    gauges: Callable[[Gauges], Gauges] = lambda gauges: gauges
    """Returns the gauges on the metrics page meanwhile, from those at the begin; those of an engine that
    hangs keep their values."""
    bursts: tuple[float, float, float] | None = None
    """Short bursts of GPU work while no step is completed: their power in watts, their duration in seconds,
    and the seconds from one to the next."""
    stuck: bool = True
    """Whether a monitor should call the engine stuck; False: it goes on by itself, or rests on purpose."""


_FIRST_S, _FOR_S, _EVERY_S = 45.0, 240.0, 420.0
"""Seconds from the start of a server to its fault, of the fault, and from one begin to the next."""
_SPINNING = Symptoms(engine_cpu_percent=100.0)
"""A worker that waits for its GPU polls without a pause, and keeps one core busy."""
_AT_REST = Symptoms(engine_cpu_percent=1.0)
_ASLEEP = Symptoms(engine_cpu_percent=1.0, engine_bytes=1 << 30, others_bytes=52 << 30)
"""What it gave back is partly another program's."""
_COMPILERS = tuple(
    ProcessReading(pid, name, mib << 20, cpu_percent)
    for pid, name, mib, cpu_percent in (
        (7301, "ninja", 14, 0.4),
        (7302, "nvcc", 38, 1.0),
        (7303, "cicc", 890, 99.0),
    )
)


def _gauges_deferred(gauges: Gauges) -> Gauges:
    """Return gauges of an engine whose requests all wait for the KV cache of another server."""
    requests = max(1, gauges.running + gauges.waiting)
    return Gauges(0, requests, gauges.kv_usage, deferred=requests)


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("hang-a", (_SPINNING, replace(_SPINNING, rank_lags=True)), (19.0, 20.4)),
        Fault("hang-b", (_SPINNING,), (18.6,)),
        Fault("hang-blocked", (_AT_REST,)),
        Fault("dead-rank", (_SPINNING, Symptoms(engine_gone=True)), (18.9, None)),
        Fault("huge-step", (_SPINNING,), (46.0,), stuck=False),
        Fault("compile", (Symptoms(engine_cpu_percent=3.0, programs=_COMPILERS),), stuck=False),
        Fault(
            "graph-capture",
            (Symptoms(engine_cpu_percent=96.0),),
            gauges=lambda gauges: replace(gauges, running=max(1, gauges.running)),
            bursts=(38.0, 1.5, 4.0),
            stuck=False,
        ),
        Fault("sleep", (_ASLEEP,), gauges=lambda gauges: replace(gauges, asleep=True), stuck=False),
        Fault("swap-storm", (Symptoms(engine_cpu_percent=6.0, swap_in_bytes_per_s=210e6),), stuck=False),
        Fault("kv-wait", (_AT_REST,), gauges=_gauges_deferred, stuck=False),
        Fault("cpu-step", (Symptoms(engine_cpu_percent=99.5),), stuck=False),
    )
}
"""All faults by name; `sparktop demo --help` describes them."""


Hold = Callable[[Gauges | None, Sequence[float | None]], None]
"""Holds up an engine as `Engine.hold` does, at the current time."""
CallLater = Callable[[float, Callable[[], object]], object]
"""Schedules a call, a number of seconds from now."""


class FaultRun:
    """One fault of one engine: `begin` and `end` may follow each other any number of times."""

    def __init__(
        self,
        fault: Fault,
        gauges: Callable[[], Gauges],
        machines: Sequence[MachineReader],
        *,
        hold: Hold,
        later: CallLater,
    ) -> None:
        """Prepare the fault; `gauges` returns those of the engine, and `machines` are those it runs on."""
        self._fault = fault
        self._gauges = gauges
        self._machines = machines
        self._hold = hold
        self._later = later
        self._shown: Gauges | None = None
        """The gauges while the fault lasts; None before and after."""

    def begin(self) -> None:
        """Hold up the engine, and let its machines show the fault."""
        fault = self._fault
        self._shown = fault.gauges(self._gauges())
        self._hold(self._shown, fault.power_w)
        for index, machine in enumerate(self._machines):
            machine.symptoms = fault.symptoms[min(index, len(fault.symptoms) - 1)]
        if fault.bursts is not None:
            self._repeat_bursts(*fault.bursts)

    def end(self) -> None:
        """End the fault, after which the engine continues; do nothing if the fault has not begun."""
        if self._shown is not None:
            self._shown = None
            self._hold(None, (None,))
        for machine in self._machines:
            machine.symptoms = NO_SYMPTOMS

    def repeat(self, after_s: float = _FIRST_S) -> None:
        """Begin the fault in `after_s` seconds for 4 minutes, and again every 7 minutes, for ever."""
        self._later(after_s, self.begin)
        self._later(after_s + _FOR_S, self.end)
        self._later(after_s, lambda: self.repeat(_EVERY_S))

    def _repeat_bursts(self, power_w: float, for_s: float, every_s: float) -> None:
        def end_burst() -> None:
            if self._shown is not None:
                self._hold(self._shown, self._fault.power_w)

        if self._shown is not None:
            self._hold(self._shown, (power_w,))
            self._later(for_s, end_burst)
            self._later(every_s, lambda: self._repeat_bursts(power_w, for_s, every_s))


_GIB = 2**30
QUIET_S = 10.0
"""Seconds from the end of another client's last request until the load resumes."""
BURST_COUNTS = RouterSettings(increment_lag_s=0.03)
"""Router settings: its counts of running requests show a new request 30 ms late, about as long as a burst
takes to arrive through loopback. So most of a burst goes to one server, as in the least-busy column of spark-
topologies-2026-03. The lag fitted to that column (`HOP_S`) is for a burst that arrives within 1.3 ms; real
sockets take longer."""
OLD_COUNTS = RouterSettings(poll_s=3.0)
"""Router settings: its counts of running requests are read every 3 s, so that all requests of these seconds
go to one server."""
WAVE_S = 25.0
"""Seconds for which each number of `Scenario.waves` holds."""
_FRESH_COUNTS = RouterSettings(increment_lag_s=0.002)


class Restarts(Struct, frozen=True):
    """Periodic restarts of the first server."""

    every_s: float
    down_s: float
    """Seconds for which the port is closed at each restart; a real server takes minutes to start."""
    boot_s: float = 0.0
    """Seconds of `down_s` for which the machine itself is down, as it reboots; 0: only the server ends."""
    loads: bool = False
    """Whether the server's processes are visible meanwhile: it loads its model. Otherwise they are gone."""
    hangs: bool = False
    """Whether it hangs while it captures graphs, from the usual time of this phase to the end of `down_s`."""
    then: EngineProfile | None = None
    """The engine after the restart, of which there is then only one; None: the same, again and again."""


def slow_down(profile: EngineProfile, times: float) -> EngineProfile:
    """Return an engine whose steps take `times` as long to read weights and to compute."""
    if times == 1.0:
        return profile
    cost = profile.cost
    slow = replace(
        cost,
        weights_one_s=times * cost.weights_one_s,
        weights_all_s=times * cost.weights_all_s,
        row_s=times * cost.row_s,
        read_bytes_per_s=cost.read_bytes_per_s / times,
    )
    return replace(profile, cost=slow)


class DemoServer(Struct, frozen=True):
    """A simulated server: its name and the properties of its engine."""

    name: str
    profile: EngineProfile
    lanes: int = 1
    """Number of its engine cores (data-parallel ranks), each with an engine and machines of its own."""
    lane_counts: RouterSettings = _FRESH_COUNTS
    """How late the server knows how many requests each of its engine cores has."""
    aborts: bool = True
    """Whether it aborts a request whose client has hung up."""

    @property
    def machines(self) -> int:
        """Number of the machines that the server runs on."""
        return self.lanes * self.profile.nodes


class Scenario(Struct, frozen=True):
    """A situation that the demo shows: servers, machines, routing, load and faults."""

    name: str
    strategy: str = "round-robin"
    load: int = 32
    """Number of requests in flight; a request that ends is replaced at once."""
    prompt_tokens: int = 256
    output_tokens: int = 40
    """Number of tokens in each answer; `prompt_tokens` is the number in each prompt. `spread` varies both."""
    spread: float = 0.0
    """Variation of lengths: a random factor between 1 - `spread` and 1 + `spread` for the prompt and the
    answer of each request; 0: all requests are equal."""
    agents: bool = False
    """Whether the clients are agents, each with a conversation and pauses; else they send single requests."""
    dated: bool = False
    """Whether agents begin each call with a line of its own, so that nothing of it is in the prefix cache."""
    counts: RouterSettings = _FRESH_COUNTS
    broken_share: float = 0.0
    """Share of the requests that the router breaks off in the midst of their answers."""
    profile: EngineProfile = SOLO
    ambient_c: float = AMBIENT_C
    """Temperature of the machines' air intake, in °C."""
    machines: Mapping[int, SimulatedMachine] = field(default_factory=dict)
    """Machines with special properties, by machine index; all other machines are normal."""
    lanes: int = 1
    """Number of engine cores (data-parallel ranks) of each server behind the router."""
    lane_counts: RouterSettings = _FRESH_COUNTS
    """How late the first server knows the load of its engine cores; the others know it at once."""
    slower: Mapping[int, float] = field(default_factory=dict)
    """Factor by which each engine step takes longer than in `profile`, by backend index."""
    restarts: Restarts | None = None
    fault: Fault | None = None
    """A fault that stops the first server for 4 minutes in every 7."""
    waves: tuple[int, ...] = ()
    """How many of the `load` requests are in flight, by turns of `WAVE_S`; (): all of them, always."""
    rests: tuple[float, float] | None = None
    """Seconds of a period, and seconds at its end in which the clients are gone; None: they never are."""
    aborts: bool = True
    """Whether servers abort the requests of clients that are gone."""
    rival: str | None = None
    """Routing strategy of the second proxy, which only sweeps use; None: random choice, or in turn where
    `strategy` is that."""
    named: tuple[DemoServer, ...] = ()
    """Name and engine of the first servers behind the router, if they differ from those of the other
    servers."""
    beside: tuple[DemoServer, ...] = ()
    """Servers that are not behind the router, for comparison."""

    def servers(self, backends: int) -> tuple[DemoServer, ...]:
        """Return all servers: `backends` servers behind the router, then the servers in `beside`."""
        counts = (self.lane_counts, *[_FRESH_COUNTS] * (backends - 1))
        routed = (
            DemoServer(self.name_of(index), self.profile_of(index), self.lanes, counts[index], self.aborts)
            for index in range(backends)
        )
        return (*routed, *self.beside)

    def name_of(self, backend: int) -> str:
        """Return the name of the server with the index `backend` behind the router."""
        return self.named[backend].name if backend < len(self.named) else backend_name(backend)

    @property
    def second_strategy(self) -> str:
        """Routing strategy of the second proxy, which only sweeps use; it always differs from `strategy`."""
        other_strategy = "round-robin" if self.strategy == "simple-shuffle" else "simple-shuffle"
        return other_strategy if self.rival in {None, self.strategy} else str(self.rival)

    def profile_of(self, backend: int) -> EngineProfile:
        """Return the engine properties of the server with the index `backend`.

        If the server has a factor in `slower`, reading weights and computing take that many times as long.
        """
        profile = self.named[backend].profile if backend < len(self.named) else self.profile
        return slow_down(profile, self.slower.get(backend, 1.0))

    def machine_of(self, node: int, *, start_s: float) -> SimulatedMachine:
        """Return the machine with the index `node`; its memory leak, if any, begins at `start_s` seconds."""
        node_count = self.profile.nodes
        profile = self.profile_of(node // node_count)
        limits = f"--max-model-len {profile.max_model_len}", f"--max-num-seqs {profile.max_num_seqs}"
        machine = replace(self.machines.get(node, SimulatedMachine()), leak_from_s=start_s, limits=limits)
        return replace(machine, rank=node % node_count) if node_count > 1 else machine

    def thermal_of(self, node: int, *, start_s: float) -> NodeThermal:
        """Return the thermal model of the machine with the index `node`.

        At the time `start_s` (seconds), the machine is idle and its temperature has settled.
        """
        thermal = NodeThermal(ambient_c=self.ambient_c, at=start_s)
        if self.machines.get(node, SimulatedMachine()).slow_clock:
            thermal.pinned_mhz = SLOW_MHZ
        return thermal


_SLOW_PREFILL = replace(
    LONG_CONTEXT,
    name="slow-prefill",
    cost=replace(LONG_CONTEXT.cost, row_s=0.0029),
    max_num_batched_tokens=4096,
)
"""An engine that computes 350 prompt tokens/s or fewer: a prompt of 110,000 tokens takes about 6 min."""
_FEW_BLOCKS = replace(SOLO, name="few-blocks", kv_blocks=420)
"""An engine whose KV cache has room for about 20 requests of this demo."""


_HYBRID = replace(
    GX10_PATCHED,
    name="hybrid",
    cost=replace(GX10_PATCHED.cost, row_s=GX10_PATCHED.cost.row_s / 3),
    block_tokens=1600,
    kv_blocks=400,
)
"""An engine with large blocks and fast prefill, as models with few attention layers have."""
_DRAFTING = replace(SOLO, name="drafting", drafts=(0.72,), draft_token_s=0.003)
_OVERDRAFTING = replace(_DRAFTING, drafts=(0.72, 0.31, 0.12, 0.05, 0.02))
"""Engines with drafts of one token, and of five, of which the last are hardly ever accepted."""
_SLOW_PAIR = replace(
    CLUSTER_TP2,
    name="slow-pair",
    cost=replace(CLUSTER_TP2.cost, weights_one_s=0.006, weights_exponent=0.0),
    link_bytes_per_s=0.075e9,
)
"""A small dense model on two machines whose link carries 0.6 Gb/s."""


def _pairs(profile: EngineProfile = CLUSTER_TP2) -> tuple[DemoServer, ...]:
    """Return servers of two machines each, with names that no machine has."""
    return (DemoServer("pair-1", profile), DemoServer("pair-2", profile))


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "oscillation",
            # Short prompts: long ones of requests that herd share steps, which costs less than an even split.
            strategy="least-busy",
            prompt_tokens=32,
            output_tokens=48,
            spread=0.1,
            counts=OLD_COUNTS,
        ),
        Scenario(
            "cooldown",
            strategy="least-busy",
            load=64,
            output_tokens=128,
            broken_share=0.9,
        ),
        Scenario("steady", spread=0.5),
        Scenario(
            "answers",
            # Answers end at different times, so that each server has one, also after the restart: a best is
            # that of a batch size.
            strategy="least-busy",
            load=2,
            prompt_tokens=64,
            output_tokens=1500,
            spread=0.3,
            restarts=Restarts(90.0, 8.0, then=slow_down(SOLO, 1.25)),
        ),
        Scenario("hot", load=64, spread=0.5, ambient_c=AMBIENT_C + 15),
        Scenario(
            "memory",
            spread=0.5,
            machines={0: SimulatedMachine(leak_bytes_per_s=0.09 * _GIB)},
        ),
        Scenario(
            "faulty",
            strategy="least-busy",
            spread=0.5,
            slower={1: 8.0},
            restarts=Restarts(40.0, 8.0),
        ),
        Scenario(
            "slow-start",
            spread=0.5,
            restarts=Restarts(150.0, 80.0, loads=True),
        ),
        Scenario(
            "stuck-start",
            spread=0.5,
            restarts=Restarts(1260.0, 1230.0, loads=True, hangs=True),
        ),
        Scenario(
            "reboot",
            spread=0.5,
            machines={0: SimulatedMachine(leak_bytes_per_s=0.34 * _GIB, leak_most_bytes=round(22.3 * _GIB))},
            restarts=Restarts(150.0, 75.0, boot_s=20.0, loads=True),
        ),
        Scenario(
            "pd-fault",
            strategy="simple-shuffle",
            spread=0.5,
            machines={1: SimulatedMachine(slow_clock=True)},
        ),
        Scenario(
            "orphan",
            strategy="simple-shuffle",
            spread=0.5,
            machines={1: SimulatedMachine(orphan_bytes=9 * _GIB)},
        ),
        Scenario(
            "memory-held",
            spread=0.5,
            machines={0: SimulatedMachine(held_bytes=33 * _GIB)},
            restarts=Restarts(240.0, 200.0),
        ),
        Scenario(
            "lanes",
            spread=0.5,
            lanes=2,
            lane_counts=OLD_COUNTS,
        ),
        Scenario("tp2", spread=0.5, profile=CLUSTER_TP2, named=_pairs()),
        Scenario(
            "mixed-pair",
            spread=0.5,
            profile=CLUSTER_TP2,
            named=_pairs(),
            machines={1: SimulatedMachine(setup=setup_of(1500, "2.29.2", "0c44d1e7"))},
        ),
        Scenario(
            "small-memlock",
            spread=0.5,
            profile=CLUSTER_TP2,
            named=_pairs(),
            machines={1: SimulatedMachine(setup=setup_of(memlock=8 << 20))},
        ),
        Scenario(
            "topologies",
            strategy="simple-shuffle",
            rival="least-busy",
            load=16,
            spread=0.5,
            counts=BURST_COUNTS,
            beside=(DemoServer("cluster-tp2", CLUSTER_TP2),),
        ),
        Scenario(
            "recipes",
            load=10,
            spread=0.5,
            profile=GX10_PATCHED,
            named=(DemoServer("with-5-10", GX10_PATCHED), DemoServer("without-5-10", GX10_VANILLA)),
        ),
        Scenario(
            "long-context",
            load=2,
            prompt_tokens=8192,
            output_tokens=128,
            spread=0.5,
            profile=LONG_CONTEXT,
            named=(DemoServer("spark-131k", LONG_CONTEXT), DemoServer("spark-20k", SHORT_CONTEXT)),
        ),
        Scenario(
            "agents",
            strategy="simple-shuffle",
            load=6,
            prompt_tokens=4096,
            output_tokens=150,
            spread=0.5,
            agents=True,
            profile=GX10_PATCHED,
        ),
        Scenario(
            "prefix-cold",
            strategy="least-busy",
            load=2,
            prompt_tokens=4096,
            output_tokens=150,
            agents=True,
            dated=True,
            profile=_HYBRID,
        ),
        *(
            Scenario(
                fault.name,
                "simple-shuffle",
                load=16,
                spread=0.5,
                profile=CLUSTER_TP2 if len(fault.symptoms) > 1 else SOLO,
                fault=fault,
            )
            for fault in FAULTS.values()
        ),
        Scenario(
            "long-prefill",
            load=2,
            prompt_tokens=110_000,
            output_tokens=200,
            profile=_SLOW_PREFILL,
        ),
        Scenario(
            "kv-starved",
            load=64,
            output_tokens=128,
            spread=0.5,
            profile=_FEW_BLOCKS,
        ),
        Scenario(
            "client-gone",
            spread=0.5,
            rests=(180.0, 120.0),
        ),
        Scenario(
            "abandoned",
            load=4,
            output_tokens=12_000,
            profile=LONG_CONTEXT,
            rests=(170.0, 140.0),
            aborts=False,
        ),
        Scenario(
            "long-drafts",
            strategy="least-busy",
            load=8,
            prompt_tokens=32,
            output_tokens=300,
            spread=0.5,
            profile=_DRAFTING,
            restarts=Restarts(90.0, 3.0, then=_OVERDRAFTING),
        ),
        Scenario(
            "slow-link",
            load=64,
            prompt_tokens=16,
            output_tokens=80,
            spread=0.5,
            profile=_SLOW_PAIR,
            named=_pairs(_SLOW_PAIR),
            waves=(16, 64, 32),
        ),
    )
}
"""Scenarios by name; the first is the default."""
DEFAULT_SCENARIO = "oscillation"


def backend_name(index: int) -> str:
    """Return the name of a simulated server or machine: spark-a, spark-b, …, spark-z, spark-27, …."""
    letters = string.ascii_lowercase
    return f"spark-{letters[index] if index < len(letters) else index + 1}"


def lengths_of(scenario: Scenario) -> DrawLengths:
    """Return a function that draws (prompt tokens, answer tokens) of a request from a random generator."""

    def draw(dice: random.Random) -> tuple[int, int]:
        factor = [1 + dice.uniform(-scenario.spread, scenario.spread) for _ in range(2)]
        return round(scenario.prompt_tokens * factor[0]), max(2, round(scenario.output_tokens * factor[1]))

    return draw


class DemoPlan(Struct, frozen=True):
    """What the demo's process should simulate, as sent to it when it starts."""

    scenario: str = DEFAULT_SCENARIO
    backends: int = 2
    seed: int = 0
    strategy: str | None = None
    """Routing strategy that replaces that of the scenario; None: the scenario's own strategy is used."""
    load: int | None = None
    quiet_s: float = QUIET_S
    """Seconds from the last request of another client until the load resumes."""

    def effective_scenario(self) -> Scenario:
        """Return the plan's scenario, with the plan's strategy and load where these are set."""
        scenario = SCENARIOS[self.scenario]
        return replace(
            scenario,
            strategy=self.strategy or scenario.strategy,
            load=scenario.load if self.load is None else self.load,
        )
