"""Processes of the engine on a simulated machine, with their container."""

from __future__ import annotations

from sparktop.model.workload import Workload, Workloads

SERVER_PID, ENGINE_PID = 4001, 4242
MODEL = "openai/gpt-oss-120b"
_AGE_S = 5400.0
_READ_EVERY_S = 10.0
_MIB = 2**20


def workloads_at(
    at: float, rank: int | None, cpu_percent: float, *, age_s: float | None = None, compilers: int = 0
) -> Workloads:
    """Return the processes of a vLLM server at the time `at` in seconds, as an agent reads them.

    `rank` is the machine's rank in an engine that spans several machines, None for an engine on this one
    alone; only rank 0 has the server itself. `age_s` is the age of the processes,
    `compilers` the number of compiler processes.
    """
    age_s = _AGE_S + at if age_s is None else age_s
    solo = "sparkrun_5d1c0ffee5aa_"
    box = ("5d1c0ffee5aa", solo + ("solo" if rank is None else "head" if not rank else "worker"))
    worker = Workload(
        ENGINE_PID,
        "vllm",
        "engine core" if rank is None else "worker",
        None if rank is None else f"TP{rank}",
        MODEL,
        None,
        SERVER_PID if not rank else None,
        *box,
        age_s=age_s,
        memory_bytes=5310 * _MIB,
        cpu_percent=cpu_percent,
        oom_kills=0,
    )
    server = Workload(
        SERVER_PID,
        "vllm",
        "server",
        None,
        MODEL,
        None,
        SERVER_PID,
        *box,
        age_s=age_s + 2,
        memory_bytes=1480 * _MIB,
        cpu_percent=2.0,
        oom_kills=0,
    )
    return Workloads((worker,) if rank else (server, worker), compilers, round(at % _READ_EVERY_S, 1))
