"""Reads samples of a simulated machine, from what its engine did since the previous sample."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from sparktop.demo.faults import NO_SYMPTOMS
from sparktop.demo.gb10 import ENGINE_BYTES, IDENTITY, Condition, Machine, sample_of
from sparktop.model.ending import LastBoot
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.simulation.engine import Engine
from sparktop.simulation.thermal import BARE_W, IDLE_CLOCK_MHZ, LOADED_W, NodeThermal

_SHORTEST_S = 0.05
"""Seconds; a sample sooner than this after the previous one repeats the previous condition of the machine."""
_START_W = 32.0
"""Power of the GPU's work during a start, in watts above that at rest."""
_ALONE_BYTES_PER_S = 1.9e6
"""At full load, bytes per second through the ports of a machine whose engine runs on this machine alone."""


class MachineHeat(NodeThermal):
    """A thermal model of a machine that also counts the seconds spent in engine steps.

    A step in progress is counted up to the time for which the seconds are requested.
    """

    def __init__(self, *, ambient_c: float, at: float) -> None:
        """Start idle at the time `at` (seconds), at the temperature that settles with a loaded model."""
        super().__init__(ambient_c=ambient_c, at=at)
        self._busy_s = self._host_s = 0.0
        self._busy_since_s: float | None = None
        self._gpu_share = 1.0

    def draw(self, at: float, power_w: float | None, gpu_share: float = 1.0) -> None:
        """Set the GPU's power in watts from the time `at` on; None means that no engine step runs.

        In a step, the GPU computes for the share `gpu_share` of the time, and waits for the CPU in the rest.
        """
        self._busy_s, self._host_s = self.busy_s(at), self.host_s(at)
        self._busy_since_s = None if power_w is None else at
        self._gpu_share = gpu_share
        super().draw(at, power_w, gpu_share)

    def busy_s(self, at: float) -> float:
        """Return the seconds in which the GPU computed from the start to the time `at`.

        `at` must not be before the last call of `draw`.
        """
        return self._busy_s + self._gpu_share * self._in_step_s(at)

    def host_s(self, at: float) -> float:
        """Return the seconds in which steps waited for the CPU from the start to the time `at`."""
        return self._host_s + (1.0 - self._gpu_share) * self._in_step_s(at)

    def _in_step_s(self, at: float) -> float:
        return 0.0 if self._busy_since_s is None else max(0.0, at - self._busy_since_s)


class MachineReader:
    """Reads samples of one simulated GB10 machine for its agent; implements the agent's `NodeReader`."""

    def __init__(
        self,
        thermal: MachineHeat,
        machine: Machine,
        *,
        name: str,
        clock: Callable[[], float] = time.monotonic,
        address: str | None = None,
    ) -> None:
        """Start without an engine.

        `thermal` is the machine's thermal model, which uses the times of `clock`. `machine` has the machine's
        fixed properties, `name` is its host name, and `address` its IP address.
        """
        self.show_processes = False
        """Whether samples include the process table."""
        addresses = () if address is None else (address,)
        self._identity = dataclasses.replace(
            IDENTITY, hostname=name, boot_id=f"simulated-{name}", addresses=addresses
        )
        self.address = address
        """The machine's IP address on the link between the machines; None if it has none."""
        self.symptoms = NO_SYMPTOMS
        """What a fault changes in the samples."""
        self.thermal = thermal
        """The machine's thermal model."""
        self._machine = machine
        self._clock = clock
        self._engine: Engine | None = None
        self._down_until, self._boots = self._clock(), 1
        self._start: tuple[float, float] | None = None
        """When the engine's processes started, in seconds of `clock`, and how long their start takes."""
        self._at = clock()
        self._marks = self._read(self._at)
        self._condition: Condition | None = None

    @property
    def identity(self) -> NodeIdentity | None:
        """Identity of the machine."""
        return self._identity

    @property
    def steps(self) -> int:
        """Number of steps that the machine's engine has completed."""
        return 0 if self._engine is None else self._engine.tally.steps

    def attach(self, engine: Engine | None) -> None:
        """Run `engine` on the machine from now on.

        If `engine` is None, remove the current engine, which frees its memory and lets the GPU cool.
        """
        now = self._clock()
        self._engine = engine
        self._start = None if engine is None else self._start
        self.thermal.idle_w = BARE_W if engine is None else LOADED_W
        self.thermal.draw(now, None)
        self._at, self._marks, self._condition = now, self._read(now), None

    def begin_start(self, takes_s: float) -> None:
        """Show a server that starts now; `attach` is called with its engine after `takes_s` seconds."""
        self._start = (self._clock(), takes_s)
        self._condition = None

    def reboot(self, down_s: float) -> None:
        """Simulate a reboot: the machine is down for `down_s` seconds from now, then has a new boot id."""
        now = self._clock()
        self._down_until, self._boots = now + down_s, self._boots + 1
        self._machine = replace(self._machine, leak_from_s=now + down_s)
        name = self._identity.hostname
        self._identity = dataclasses.replace(
            self._identity,
            boot_id=f"simulated-{name}-{self._boots}",
            booted_at=time.time() + down_s,
            last_boot=LastBoot(clean=False),
        )

    def look(self) -> NodeSample:
        """Return a sample of the machine at the current time."""
        now = self._clock()
        if self._condition is None or now - self._at >= _SHORTEST_S:
            self._condition = self._judge(now)
            self._at, self._marks = now, self._read(now)
        sample = sample_of(now, self._condition, self._machine)
        return sample if self.show_processes else dataclasses.replace(sample, processes=None)

    async def poll(self, deadline_s: float) -> NodeSample | Failure:
        """Return a sample of the machine at the current time, without waiting."""
        del deadline_s
        now = self._clock()
        if now < self._down_until:
            return Failure(FailureKind.UNREACHABLE, "the simulated machine is down", now)
        return self.look()

    async def close(self) -> None:
        """Do nothing, because no resource is held."""

    def _read(self, now: float) -> tuple[float, float, float, float, int]:
        """Return (energy in joules, throttled seconds, GPU seconds, CPU seconds of steps, processed tokens).

        All five are totals up to the time `now`.
        """
        thermal = self.thermal
        rows = 0 if self._engine is None else self._engine.tally.rows
        return (
            thermal.energy_j(now),
            thermal.throttled_s(now),
            thermal.busy_s(now),
            thermal.host_s(now),
            rows,
        )

    def _judge(self, now: float) -> Condition:
        thermal, engine = self.thermal, self._engine
        took_s = now - self._at
        if took_s < _SHORTEST_S:
            in_step = thermal.clock_mhz(now) > IDLE_CLOCK_MHZ
            power_w, throttled, busy, host, rows_per_s = thermal.power_w(), 0.0, float(in_step), 0.0, 0.0
        else:
            power_w, throttled, busy, host, rows_per_s = (
                (after - before) / took_s for after, before in zip(self._read(now), self._marks, strict=True)
            )
        busy = min(1.0, busy)
        pair = _ALONE_BYTES_PER_S * busy
        if engine is not None and engine.profile.nodes > 1:
            pair = engine.profile.link_bytes_per_row * rows_per_s
        symptoms = self.symptoms
        holds_memory = engine is not None and not symptoms.engine_gone
        if engine is None and self._start is not None:
            return self._starting(now, *self._start)
        return Condition(
            busy,
            power_w,
            thermal.temperature_c(now),
            thermal.load_clock_mhz(now) if busy else IDLE_CLOCK_MHZ,
            min(1.0, throttled),
            pair,
            ENGINE_BYTES if holds_memory else 0,
            symptoms.engine_cpu_percent,
            symptoms.programs,
            symptoms.swap_in_bytes_per_s,
            None if self._start is None else now - self._start[0],
            min(1.0, host),
        )

    def _starting(self, now: float, started_at: float, takes_s: float) -> Condition:
        """Return the condition of a machine whose server starts."""
        shown, thermal = starting(now - started_at, takes_s), self.thermal
        return Condition(
            shown.busy,
            thermal.power_w() + _START_W * shown.busy,
            thermal.temperature_c(now),
            thermal.load_clock_mhz(now) if shown.busy else IDLE_CLOCK_MHZ,
            engine_bytes=shown.engine_bytes,
            engine_cpu_percent=shown.cpu_percent,
            age_s=now - started_at,
        )


# The start of a simulated server, phase by phase, as its machine shows it.


_GIB = 2**30
CONTEXT_BYTES, WEIGHTS_BYTES, WHOLE_BYTES = _GIB // 2, 57 * _GIB, 83 * _GIB
_CONTEXT, _WEIGHTS, _COMPILE, _POOL, _GRAPHS = 0.12, 0.2, 0.52, 0.78, 0.82
"""Shares of the start at which a phase begins."""
_BURST_S, _BURSTS_EVERY_S = 1.5, 4.0


class StartingMachine(NamedTuple):
    """What a machine shows while its server starts."""

    engine_bytes: int
    """GPU memory of the engine."""
    busy: float
    """Share of the time in which the GPU works."""
    cpu_percent: float
    """CPU use of the engine's process."""


def starting(passed_s: float, takes_s: float) -> StartingMachine:
    """Return what a machine shows `passed_s` seconds after the begin of a start that takes `takes_s`."""
    share = passed_s / takes_s if takes_s > 0 else 1.0
    burst = float(passed_s % _BURSTS_EVERY_S < _BURST_S)
    if share < _CONTEXT:
        return StartingMachine(0, 0.0, 94.0)
    if share < _WEIGHTS:
        return StartingMachine(CONTEXT_BYTES, 0.0, 60.0)
    if share < _COMPILE:
        read = (share - _WEIGHTS) / (_COMPILE - _WEIGHTS)
        return StartingMachine(CONTEXT_BYTES + round(read * (WEIGHTS_BYTES - CONTEXT_BYTES)), 0.05, 100.0)
    if share < _POOL:
        return StartingMachine(WEIGHTS_BYTES, 0.0, 100.0)
    if share < _GRAPHS:
        pool = (share - _POOL) / (_GRAPHS - _POOL)
        return StartingMachine(WEIGHTS_BYTES + round(pool * (WHOLE_BYTES - WEIGHTS_BYTES)), 0.3, 100.0)
    return StartingMachine(WHOLE_BYTES, burst, 98.0)
