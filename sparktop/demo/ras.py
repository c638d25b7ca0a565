"""A simulated RAS thread of NCCL for engines that span several machines: its server, report and JSON."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from random import Random

from sparktop.demo.machine import MachineReader
from sparktop.model.ranks import Communicator, MissingRank, Rank, RanksAnswer, RankStatus

_HOST = "127.0.0.1"
_LONGEST_LINE = 1024
"""Most bytes of a command."""


class RasServer:
    """A simulated RAS thread of a new NCCL, which listens on a free port of 127.0.0.1."""

    def __init__(self, report: Callable[[], RanksAnswer], *, gather_s: float = 0.0) -> None:
        """Answer each `STATUS` with what `report` returns at that time, after `gather_s` seconds.

        A stopped process makes gathering take 5 s and more.
        """
        self._report = report
        self._gather_s = gather_s
        self.asked: list[str] = []
        """Every command received, in order."""
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> tuple[str, int]:
        """(host, port) at which it listens."""
        assert self._server is not None  # noqa: S101 - opened by the caller
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve_client, _HOST, 0, limit=_LONGEST_LINE)

    async def close(self) -> None:
        """Stop to listen, and close all connections."""
        if self._server is not None:
            self._server.close()
            for writer in self._open:
                writer.close()
            await self._server.wait_closed()

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._answer_commands(reader, writer)
        except (OSError, ValueError):
            return
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer_commands(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            command = line.decode("utf-8", "replace").strip()
            self.asked.append(command)
            if command == "STATUS":
                await asyncio.sleep(self._gather_s)
                writer.write(as_json(self._report()).encode())
                await writer.drain()
                return
            is_first = command.startswith("CLIENT PROTOCOL ")
            writer.write(b"SERVER PROTOCOL 2\n" if is_first else b"OK\n")
            await writer.drain()


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
        gone_ranks = [rank for rank, reader in enumerate(self._readers) if reader.symptoms.engine_gone]
        now_s = self._clock()
        if not gone_ranks:
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = now_s
        is_dead = self._gone_since is not None and now_s - self._gone_since >= DEAD_AFTER_S
        steps = max(reader.steps for reader in self._readers)
        counts = ({"AllReduce": 1}, {"AllGather": 23}, {"AllReduce": _BEFORE + _CALLS_PER_STEP * steps})
        comms = (
            self._communicator(name, collective_counts, set(gone_ranks), dead=is_dead)
            for name, collective_counts in zip(self._hashes, counts, strict=True)
        )
        slow = bool(gone_ranks) and not is_dead
        return RanksAnswer(
            NCCL,
            communicators=tuple(comms),
            timeouts=int(slow),
            took_s=_SLOW_S if slow else _QUICK_S,
        )

    def _communicator(self, name: str, counts: dict[str, int], gone: set[int], *, dead: bool) -> Communicator:
        lagging = {rank for rank, reader in enumerate(self._readers) if reader.symptoms.rank_lags}
        ranks, missing_ranks = [], []
        for rank, reader in enumerate(self._readers):
            host, pid = reader.address, 285 + 13 * rank
            if rank in gone:
                missing_ranks.append(MissingRank(rank, host, pid, 0, dead))
                continue
            operations_behind = int(rank in lagging and counts.get("AllReduce", 0) > 1)
            launched = {operation: count - operations_behind for operation, count in counts.items()}
            ranks.append(Rank(rank, host, pid, 0, counts=launched))
        secondary = f"0x{name[:12]}:0x{name[4:]}"
        return Communicator(name, secondary, len(self._readers), tuple(ranks), tuple(missing_ranks))


_OPERATIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def as_json(answer: RanksAnswer) -> str:
    """Return a report as JSON, indented as NCCL writes it."""
    document = {
        "nccl_version": answer.nccl,
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": "2026-09-30 14:02:11",
        "communicators_count": len(answer.communicators),
        "communicators": [_comm_json(comm) for comm in answer.communicators],
        "ras": {"collection_time_sec": answer.took_s or 0.0, "timeouts_count": answer.timeouts},
    }
    return json.dumps(document, indent=2)


def _comm_json(comm: Communicator) -> dict[str, object]:
    return {
        "hash": f"0x{comm.hash.lstrip('0')}",
        "secondary_hash": comm.secondary_hash,
        "size": comm.size,
        "ranks_count": len(comm.ranks),
        "missing_ranks_count": len(comm.missing),
        "ranks": [_rank_json(rank) for rank in comm.ranks],
        "missing_ranks": [
            {**_place_json(rank), "status": {"unresponsive": True, "considered_dead": rank.dead}}
            for rank in comm.missing
        ],
    }


def _place_json(rank: Rank | MissingRank) -> dict[str, object]:
    host, pid = rank.host or "unknown", -1 if rank.pid is None else rank.pid
    return {"rank": rank.rank, "host": host, "pid": pid, "cuda_dev": rank.device, "nvml_dev": rank.device}


def _rank_json(rank: Rank) -> dict[str, object]:
    stopping = rank.status is RankStatus.STOPPING
    begun_state = {RankStatus.STARTING: 7, RankStatus.FAILED: 2}.get(rank.status, 0)
    return {
        **_place_json(rank),
        "status": {
            "init_state": begun_state,
            "async_error": rank.error or 0,
            "finalize_called": False,
            "destroy_flag": False,
            "abort_flag": stopping,
        },
        "collective_counts": {name: rank.counts.get(name, 0) for name in _OPERATIONS},
    }
