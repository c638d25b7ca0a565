"""What the simulated RAS thread of an engine over several machines reports, from its steps and faults."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random

from sparktop.demo.machine_reader import MachineReader
from sparktop.model.ranks import Communicator, MissingRank, Rank, RanksAnswer

NCCL = "2.30.7"
DEAD_AFTER_S = 60.0
"""Seconds after which NCCL considers a process dead that does not answer."""
_SLOW_S, _QUICK_S = 5.002, 0.001
"""Seconds that gathering takes with a process that does not answer, and without one."""
_CALLS_PER_STEP = 156
"""AllReduces that each rank launches for one engine step."""
_BEFORE = 1937
"""AllReduces that were launched while the engine warmed up."""


class SimulatedJob:
    """The communicators of one engine, with one rank on each of its machines.

    As in a vLLM engine, there are three: one that was used once, one for messages between the processes, and
    that of tensor parallelism, whose AllReduces run all the time.
    """

    def __init__(
        self, readers: Sequence[MachineReader], *, seed: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Report on the engine of the machines `readers`; `seed` makes its hashes differ from other jobs'."""
        self._readers = tuple(readers)
        self._clock = clock
        dice = Random(f"ras/{seed}")  # noqa: S311 - a simulation
        self._hashes = [f"{dice.getrandbits(60):016x}" for _ in range(3)]
        self._gone_since: float | None = None

    def report(self) -> RanksAnswer:
        """Return what NCCL reports at present."""
        gone = [place for place, reader in enumerate(self._readers) if reader.symptoms.engine_gone]
        now = self._clock()
        if not gone:
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = now
        dead = self._gone_since is not None and now - self._gone_since >= DEAD_AFTER_S
        steps = max(reader.steps for reader in self._readers)
        counts = ({"AllReduce": 1}, {"AllGather": 23}, {"AllReduce": _BEFORE + _CALLS_PER_STEP * steps})
        comms = (
            self._communicator(name, one, set(gone), dead=dead)
            for name, one in zip(self._hashes, counts, strict=True)
        )
        slow = bool(gone) and not dead
        return RanksAnswer(
            NCCL,
            communicators=tuple(comms),
            timeouts=int(slow),
            took_s=_SLOW_S if slow else _QUICK_S,
        )

    def _communicator(self, name: str, counts: dict[str, int], gone: set[int], *, dead: bool) -> Communicator:
        lagging = {place for place, reader in enumerate(self._readers) if reader.symptoms.rank_lags}
        ranks, missing = [], []
        for place, reader in enumerate(self._readers):
            host, pid = reader.address, 285 + 13 * place
            if place in gone:
                missing.append(MissingRank(place, host, pid, 0, dead))
                continue
            behind = int(place in lagging and counts.get("AllReduce", 0) > 1)
            launched = {operation: count - behind for operation, count in counts.items()}
            ranks.append(Rank(place, host, pid, 0, counts=launched))
        secondary = f"0x{name[:12]}:0x{name[4:]}"
        return Communicator(name, secondary, len(self._readers), tuple(ranks), tuple(missing))
