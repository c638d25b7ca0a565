"""Readings of a simulated machine while its engine works, and its RAS thread under each fault."""

from __future__ import annotations

from sparktop.analysis.ranks import judge_ranks
from sparktop.demo.faults import FAULTS
from sparktop.demo.machine import MachineHeat, MachineReader, SimulatedMachine, Symptoms
from sparktop.demo.ras import DEAD_AFTER_S, SimulatedJob
from sparktop.model.failure import Failure
from sparktop.model.node import NodeSample
from sparktop.model.ranks import RanksReading, RanksVerdict, RanksWord
from sparktop.simulation.calibration import CLUSTER_TP2, SOLO
from sparktop.simulation.engine import Engine, SimulatedRequest
from sparktop.simulation.thermal import AMBIENT_C
from tests.demo.quick_engines import Clock

GIB = 2**30


class Bench:
    """An engine on its machine under a steady load, with its reader, advanced by the test."""

    def __init__(self, clock: Clock) -> None:
        """Start without load."""
        self.clock = clock
        heat = MachineHeat(ambient_c=AMBIENT_C, at=clock.now)
        self.engine = Engine(SOLO, nodes=[heat], start_s=clock.now, token_events=False)
        self.reader = MachineReader(heat, SimulatedMachine(), name="spark-a", clock=clock)
        self.reader.attach(self.engine)
        self._made = 0

    def load(self, requests: int, seconds: int) -> NodeSample:
        """Keep `requests` in flight for some seconds, with a sample each second; return the last sample."""
        for _ in range(seconds):
            while len(self.engine.in_flight) < requests:
                self._made += 1
                self.engine.submit(SimulatedRequest(str(self._made), 256, 128), self.clock.now)
            self.clock.now += 1.0
            self.engine.advance(self.clock.now)
            sample = self.reader.sample()
        return sample


def test_a_start_shows_its_phases(clock: Clock) -> None:
    """During a start, GPU memory grows with the weights, stays, then jumps to its end."""
    reader = MachineReader(
        MachineHeat(ambient_c=20.0, at=clock.now), SimulatedMachine(), name="a", clock=clock
    )
    reader.begin_start(100.0)
    held = []
    for _ in range(10):
        clock.now += 10.0
        sample = reader.sample()
        processes = sample.gpus[0].processes or ()
        held.append(sum(one.memory_bytes or 0 for one in processes if one.kind == "compute") // GIB)
    assert held == sorted(held)
    assert (held[0], held[5], held[6], held[-1]) == (0, 57, 57, 83)
    assert sample.workloads is not None
    assert [(one.role, one.age_s) for one in sample.workloads.processes] == [
        ("server", 102.0),
        ("engine core", 100.0),
    ]


async def test_a_machine_that_reboots_is_silent_and_comes_back_with_another_boot_id(clock: Clock) -> None:
    """A rebooting machine does not answer, then has another boot id."""
    reader = MachineReader(
        MachineHeat(ambient_c=20.0, at=clock.now), SimulatedMachine(), name="a", clock=clock
    )
    before = reader.identity
    reader.reboot(20.0)
    clock.now += 19.0
    assert isinstance(await reader.poll(1.0), Failure)
    clock.now += 2.0
    assert isinstance(await reader.poll(1.0), NodeSample)
    assert before is not None
    assert reader.identity is not None
    assert (before.boot_id, reader.identity.boot_id) == ("simulated-a", "simulated-a-2")


class Cluster:
    """An engine on two machines, whose clock only the test advances."""

    def __init__(self) -> None:
        self.at = 1000.0
        heats = [MachineHeat(ambient_c=24.0, at=self.at) for _ in range(2)]
        self.readers = [
            MachineReader(
                heat,
                SimulatedMachine(rank=rank),
                name=f"spark-{'ab'[rank]}",
                clock=lambda: self.at,
                address=f"192.168.100.{11 + rank}",
            )
            for rank, heat in enumerate(heats)
        ]
        self.engine = Engine(CLUSTER_TP2, nodes=heats, seed="0", start_s=self.at)
        for reader in self.readers:
            reader.attach(self.engine)
        self.job = SimulatedJob(self.readers, seed="0", clock=lambda: self.at)

    def show(self, symptoms: tuple[Symptoms, ...]) -> None:
        """Set the symptoms of the machines."""
        for place, reader in enumerate(self.readers):
            reader.symptoms = symptoms[min(place, len(symptoms) - 1)]

    def verdict(self) -> RanksVerdict:
        """Return the verdict on three reports within 10 s while the engine stands still."""
        since, readings = self.at, []
        for _ in range(3):
            readings.append(RanksReading(self.at, "spark-a", self.job.report()))
            self.at += 5.0
        return judge_ranks(readings, since, lambda host: host or "?")


def test_diverged_ranks_of_hang_a() -> None:
    """In hang A, the rank on the second machine lags by one AllReduce."""
    cluster = Cluster()
    cluster.show(FAULTS["hang-a"].symptoms)
    found = cluster.verdict()
    assert (found.word, found.least and found.least.rank) == (RanksWord.DIVERGED, 1)


def test_a_dead_rank_is_held_to_be_dead_after_a_minute() -> None:
    """A dead rank is missing at first, with a timeout, and reported as dead after a minute."""
    cluster = Cluster()
    cluster.show(FAULTS["dead-rank"].symptoms)
    first = cluster.job.report()
    assert (first.timeouts, first.communicators[0].missing[0].dead) == (1, False)
    cluster.at += DEAD_AFTER_S
    assert cluster.job.report().communicators[0].missing[0].dead
    found = cluster.verdict()
    assert (found.word, [one.rank for one in found.missing]) == (RanksWord.MISSING, [1])
