"""The simulated RAS thread of an engine over two machines: its reports under each fault."""

from __future__ import annotations

from sparktop.analysis.ranks import judge_ranks
from sparktop.demo.faults import FAULTS
from sparktop.demo.machine import NO_SYMPTOMS, Machine, MachineHeat, MachineReader, Symptoms
from sparktop.demo.ras import DEAD_AFTER_S, SimulatedJob
from sparktop.model.ranks import RanksReading, RanksVerdict, RanksWord
from sparktop.simulation.calibration import CLUSTER_TP2
from sparktop.simulation.engine import Engine


class Cluster:
    """An engine on two machines, whose clock only the test advances."""

    def __init__(self) -> None:
        self.at = 1000.0
        heats = [MachineHeat(ambient_c=24.0, at=self.at) for _ in range(2)]
        self.readers = [
            MachineReader(
                heat,
                Machine(rank=rank),
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


def test_a_fault_that_ends_leaves_nothing_behind() -> None:
    """After a fault, all ranks answer with equal counts."""
    cluster = Cluster()
    cluster.show(FAULTS["dead-rank"].symptoms)
    cluster.job.report()
    cluster.show((NO_SYMPTOMS,))
    report = cluster.job.report()
    assert report.timeouts == 0
    assert not any(comm.missing for comm in report.communicators)
