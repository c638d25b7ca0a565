"""Writes the report of a simulated RAS thread, as NCCL's JSON and as its text."""

from __future__ import annotations

import json
from collections.abc import Iterator

from sparktop.model.ranks import Communicator, MissingRank, Rank, RanksAnswer, RankStatus

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
