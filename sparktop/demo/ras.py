"""A simulated RAS thread of NCCL for engines that span several machines."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random

from msgspec import Struct

from sparktop.demo.machine import MachineReader
from sparktop.model.ranks import Communicator, MissingRank, Rank, RanksAnswer, RankStatus

_HOST = "127.0.0.1"
_LONGEST_LINE = 1024


class Habits(Struct, frozen=True):
    """How a simulated RAS thread differs from that of the newest NCCL."""

    json: bool = True
    """Whether `SET FORMAT json` is known (2.28.7 and newer)."""
    comma: bool = True
    """False: the JSON of missing ranks lacks a comma (2.28.7 and 2.28.9)."""
    gather_s: float = 0.0
    """Seconds that gathering takes; a stopped process makes it take 5 s and more."""
    ends_after: int | None = None
    """Bytes of the answer after which the connection breaks off; None: it is sent completely."""
    body: bytes | None = None
    """Sent in place of the report; None: the report is sent."""
    deaf: bool = False
    """True: connections are accepted and nothing is ever said, as by a stopped process."""


class RasServer:
    """A simulated RAS thread that listens on a free port of 127.0.0.1."""

    def __init__(self, report: Callable[[], RanksAnswer], habits: Habits = Habits()) -> None:
        """Answer each `STATUS` with what `report` returns at that time."""
        self._report = report
        self.habits = habits
        """How it answers; may be changed at any time."""
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
        self._server = await asyncio.start_server(self._talk, _HOST, 0, limit=_LONGEST_LINE)

    async def close(self) -> None:
        """Stop to listen, and close all connections."""
        if self._server is not None:
            self._server.close()
            for writer in self._open:
                writer.close()
            await self._server.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            with suppress(OSError, ValueError):
                await self._answer(reader, writer)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        in_json = False
        while line := await reader.readline():
            command = line.decode("utf-8", "replace").strip()
            self.asked.append(command)
            word = command.lower()
            if self.habits.deaf:
                continue
            if word in {"status", "verbose status"}:
                await asyncio.sleep(self.habits.gather_s)
                writer.write(self._body(in_json=in_json))
                await writer.drain()
                return
            writer.write(self._said(word, command))
            in_json = in_json or (word == "set format json" and self.habits.json)
            await writer.drain()

    def _said(self, word: str, command: str) -> bytes:
        if word.startswith("client protocol "):
            return b"SERVER PROTOCOL 2\n"
        known = word.startswith("timeout ") or (self.habits.json and word.startswith("set format "))
        return b"OK\n" if known else f"ERROR: Unknown command {command}\n".encode()

    def _body(self, *, in_json: bool) -> bytes:
        if self.habits.body is not None:
            return self.habits.body
        report = self._report()
        text = as_json(report, comma=self.habits.comma) if in_json else as_text(report)
        return text.encode()[: self.habits.ends_after]


# What the simulated RAS thread of an engine over several machines reports, from its steps and faults.


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


# Writes the report of a simulated RAS thread, as NCCL's JSON and as its text.


_OPERATIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
_STATUS_WORDS = {
    RankStatus.RUNNING: "RUNNING",
    RankStatus.STARTING: "INIT",
    RankStatus.STOPPING: "ABORT",
    RankStatus.FAILED: "INIT",
    RankStatus.ABSENT: "NOCOMM",
}
_CUDA = "13.0"


def as_json(answer: RanksAnswer, *, timestamp: str = "2026-09-30 14:02:11", comma: bool = True) -> str:
    """Return a report as JSON, indented as NCCL writes it.

    Without `comma`, the fault of NCCL 2.28.7 and 2.28.9 is reproduced: missing ranks lack a comma.
    """
    document = {
        "nccl_version": answer.nccl,
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": timestamp,
        "communicators_count": len(answer.communicators),
        "communicators": [_comm_json(comm) for comm in answer.communicators],
        "ras": {"collection_time_sec": answer.took_s or 0.0, "timeouts_count": answer.timeouts},
    }
    text = json.dumps(document, indent=2)
    if comma:
        return text
    parts = text.split('"missing_ranks": [')
    return '"missing_ranks": ['.join(
        [
            parts[0],
            *(
                part.replace('"nvml_dev": 0,\n', '"nvml_dev": 0\n') if _lists(part) else part
                for part in parts[1:]
            ),
        ]
    )


def _lists(part: str) -> bool:
    """Return whether the text after the beginning of a list of missing ranks begins with a missing rank."""
    return part.lstrip().startswith("{")


def _comm_json(comm: Communicator) -> dict[str, object]:
    return {
        "hash": f"0x{comm.hash.lstrip('0')}",
        "secondary_hash": comm.secondary_hash,
        "size": comm.size,
        "ranks_count": len(comm.ranks),
        "missing_ranks_count": len(comm.missing),
        "ranks": [_rank_json(rank) for rank in comm.ranks],
        "missing_ranks": [_missing_json(rank) for rank in comm.missing],
    }


def _place_json(rank: Rank | MissingRank) -> dict[str, object]:
    host, pid = rank.host or "unknown", -1 if rank.pid is None else rank.pid
    return {"rank": rank.rank, "host": host, "pid": pid, "cuda_dev": rank.device, "nvml_dev": rank.device}


def _rank_json(rank: Rank) -> dict[str, object]:
    stopping = rank.status is RankStatus.STOPPING
    begun = {RankStatus.STARTING: 7, RankStatus.FAILED: 2}.get(rank.status, 0)
    return {
        **_place_json(rank),
        "status": {
            "init_state": begun,
            "async_error": rank.error or 0,
            "finalize_called": False,
            "destroy_flag": False,
            "abort_flag": stopping,
        },
        "collective_counts": {name: rank.counts.get(name, 0) for name in _OPERATIONS},
    }


def _missing_json(rank: MissingRank) -> dict[str, object]:
    return {**_place_json(rank), "status": {"unresponsive": True, "considered_dead": rank.dead}}


def as_text(answer: RanksAnswer) -> str:
    """Return a report as text, for jobs with one GPU a process whose communicators all have one size."""
    lines = [*_head(answer), *_groups(answer), "", "Errors", "======", ""]
    lines += [*_dead(answer), *_incomplete(answer), "Warnings", "========", ""]
    if answer.timeouts:
        what = f"  Encountered {answer.timeouts} communication timeout"
        lines += ["TIMEOUT", f"{what} while gathering communicator data", ""]
    for group, comms in enumerate(_grouped(answer)):
        for place, comm in enumerate(comms):
            lines += _mismatch(group, place, comm)
    return "\n".join(lines) + "\n"


def _head(answer: RanksAnswer) -> Iterator[str]:
    places = {(rank.host, rank.pid) for comm in answer.communicators for rank in comm.ranks}
    places |= {(rank.host, rank.pid) for comm in answer.communicators for rank in comm.missing}
    nodes = len({host for host, _ in places}) or 1
    yield f"NCCL version {answer.nccl} compiled with CUDA {_CUDA}"
    yield "CUDA runtime version 13000, driver version 13000"
    yield from ("", "Job summary", "===========", "")
    yield "  Nodes  Processes         GPUs  Processes     GPUs"
    yield "(total)   per node  per process    (total)  (total)"
    yield f"{nodes:7}  {len(places) // nodes:9}  {1:11}  {len(places):9}  {len(places):7}"
    yield from ("", f"Communicators... ({answer.took_s or 0.0:.3f}s)", "=============", "")
    yield "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors"
    yield "    #  in group  per comm  per node  per comm  in group"


def _grouped(answer: RanksAnswer) -> list[list[Communicator]]:
    """Return the communicators in groups that the table of the text shows as one row each."""
    groups: dict[tuple[int, str, str], list[Communicator]] = {}
    for comm in answer.communicators:
        groups.setdefault((len(comm.missing), _errors(comm), _status(comm)), []).append(comm)
    return [groups[key] for key in sorted(groups, key=lambda key: (-key[0], key[1] == "OK"))]


def _groups(answer: RanksAnswer) -> Iterator[str]:
    for number, comms in enumerate(_grouped(answer)):
        first = comms[0]
        nodes = len({rank.host for rank in first.ranks}) or 1
        each = len(first.ranks) // nodes
        row = f"{number:5}  {len(comms):8}  {nodes:8}  {each:8}  {first.size:8}  "
        yield f"{row}{len(first.ranks):8}  {_status(first):>8}  {_errors(first):>6}"


def _status(comm: Communicator) -> str:
    words = dict.fromkeys(_STATUS_WORDS[rank.status] for rank in comm.ranks)
    return ",".join(words) or "RUNNING"


def _errors(comm: Communicator) -> str:
    if comm.missing:
        return "INCOMPLETE"
    return "MISMATCH" if _unequal(comm) else "OK"


def _unequal(comm: Communicator) -> list[str]:
    """Return the names of the operations of which the ranks have launched different numbers."""
    return [name for name in _OPERATIONS if len({rank.counts.get(name, 0) for rank in comm.ranks}) > 1]


def _dead(answer: RanksAnswer) -> list[str]:
    dead = {
        (rank.host, rank.pid): rank for comm in answer.communicators for rank in comm.missing if rank.dead
    }
    if not dead:
        return []
    are = " is" if len(dead) == 1 else "es are"
    rows = [f"  Process {rank.pid} on node {rank.host} managing GPU {rank.device}" for rank in dead.values()]
    title = f"  {len(dead)} job process{are} considered dead (unreachable via the RAS network)"
    return ["DEAD", title, *rows, ""]


def _incomplete(answer: RanksAnswer) -> Iterator[str]:
    for group, comms in enumerate(_grouped(answer)):
        for place, comm in enumerate(comms):
            if comm.missing:
                yield f"#{group}-{place} ({comm.hash}) INCOMPLETE"
                many = "s" if len(comm.missing) > 1 else ""
                yield f"  Missing communicator data from {len(comm.missing)} rank{many}"
                yield from (f"  Rank {rank.rank} -- {_where(rank)}" for rank in comm.missing)
                yield ""


def _mismatch(group: int, place: int, comm: Communicator) -> list[str]:
    names = [] if comm.missing else _unequal(comm)
    if not names:
        return []
    lines = [f"#{group}-{place} ({comm.hash}) MISMATCH"]
    for name in names:
        lines.append(f"  Communicator ranks have different {name} operation counts")
        ranks = sorted(comm.ranks, key=lambda one: -one.counts.get(name, 0))
        counts = (_launched(rank.counts.get(name, 0)) for rank in ranks)
        lines += [
            f"  Rank {rank.rank} {said} -- {_where(rank)}" for rank, said in zip(ranks, counts, strict=True)
        ]
    return [*lines, ""]


def _launched(count: int) -> str:
    return f"has launched up to operation {count}" if count else "has not launched any operations"


def _where(rank: Rank | MissingRank) -> str:
    return f"GPU {rank.device} managed by process {rank.pid} on node {rank.host}"
