"""Families of starts that hang, and of long ones that do not, seen through the clock of starts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

from msgspec import Struct

from sparktop.analysis.loading import STUCK, StartClock, StartStallRule
from sparktop.model.event import Finding
from sparktop.model.node import (
    GpuProcess,
    GpuReading,
    MemoryAsk,
    MemoryReading,
    NetworkReading,
    NodeSample,
    Workload,
    Workloads,
)
from sparktop.model.snapshot import (
    BackendState,
    BackendView,
    EachServer,
    Loading,
    NodeView,
    PastStart,
    Situation,
    StartMemory,
)
from tests.findings.study import UNKNOWN, Run, of_kind

GIB, MB = 1 << 30, 10**6
WALL = datetime(2026, 11, 1, tzinfo=UTC)
STEP_S = 10.0


class Seen(Struct):
    """What one machine shows at one time; sizes in bytes."""

    gpu: float = 0.0
    own: float = 3 * GIB
    cache: float = 20 * GIB
    read: float | None = 0.0
    used: float = 0.0
    power: float = 11.0
    cpu: float = 1.0
    net: float = 20e3
    rdma: float = 0.0
    swap: float = 0.0
    compilers: int = 0
    name: str = "NVIDIA GB10"
    gpus: str = "listed"
    """Its GPU: "listed" with its processes, "unlisted" or "unseen"."""


Shows = Callable[[float, Seen, random.Random], None]
"""Changes what a machine shows, by the seconds since it came to the phase in question."""


def spins(_: float, seen: Seen, dice: random.Random) -> None:
    """Keep the GPU in a kernel that never ends."""
    seen.used, seen.power, seen.cpu = dice.choice((95, 96, 97)), dice.uniform(13, 24), dice.uniform(95, 108)


def blocked(_: float, seen: Seen, dice: random.Random) -> None:
    """Wait in a lock, in a process of another user, of which it is not known what it reads."""
    seen.read = None
    seen.used, seen.cpu = dice.choice((0, 0, 0, 1)), dice.uniform(0.2, 4)


def compiles(_: float, seen: Seen, dice: random.Random) -> None:
    """Trace and compile, on one thread or many."""
    seen.cpu = dice.choice((dice.uniform(60, 101), dice.uniform(100, 1900)))


def compilers(_: float, seen: Seen, dice: random.Random) -> None:
    """Wait for programs that compile."""
    seen.cpu, seen.compilers = dice.uniform(1, 5), dice.randint(1, 20)


def autotunes(_: float, seen: Seen, dice: random.Random) -> None:
    """Try kernels on the GPU."""
    seen.used, seen.power, seen.cpu = dice.uniform(80, 100), dice.uniform(31, 60), dice.uniform(90, 105)


def captures(_: float, seen: Seen, dice: random.Random) -> None:
    """Capture graphs: bursts on the GPU, a busy core."""
    burst = dice.random() < 0.4
    seen.used, seen.power = (dice.uniform(30, 100), dice.uniform(31, 45)) if burst else (0, 12)
    seen.cpu = dice.uniform(90, 101)


def reads(second: float, seen: Seen, dice: random.Random, *, mb_per_s: float, shown: str) -> None:
    """Read shards of 4 GB from a slow disk; the GPU gets each when it is whole."""
    done = second * mb_per_s * MB
    shard, part = divmod(done, 4e9)
    seen.gpu, seen.cpu = seen.gpu + shard * 4e9, dice.uniform(0.5, 9)
    if shown == "files":
        seen.read = done
    elif shown == "cache":
        seen.read, seen.cache = None, seen.cache + done
    elif shown == "memory":
        seen.read, seen.own = None, seen.own + part
    else:
        seen.read, seen.net = None, mb_per_s * MB


def swaps(_: float, seen: Seen, dice: random.Random) -> None:
    """Wait for the disk, page by page."""
    seen.cpu, seen.swap = dice.uniform(1, 9), dice.uniform(5e6, 300e6)


def used_elsewhere(_: float, seen: Seen, dice: random.Random) -> None:
    """Use a GPU of which nobody knows at which power it waits."""
    seen.name, seen.used, seen.power, seen.cpu = "NVIDIA H200", 97, dice.uniform(110, 300), 100.0


def _sample(at: float, seen: Seen, rank: int, dice: random.Random) -> NodeSample:
    own = (
        Workload(
            10, "vllm", "server", None, "m", 8000, 10,
            memory_bytes=GIB, cpu_percent=dice.uniform(0, 3), read_bytes=None if seen.read is None else 0,
        ),
        Workload(
            11, "vllm", "worker", f"TP{rank}", "m", None, 10 if not rank else None,
            memory_bytes=int(seen.own), cpu_percent=seen.cpu,
            read_bytes=None if seen.read is None else int(seen.read),
        ),
    )  # fmt: skip
    held = (GpuProcess(11, f"VLLM::Worker_TP{rank}", int(seen.gpu)),) if seen.gpu else ()
    processes = held if seen.gpus == "listed" else None
    gpu = GpuReading(
        0,
        seen.name,
        utilization_percent=seen.used,
        power_w=seen.power,
        sm_clock_mhz=2405,
        processes=processes,
    )
    # What a process reads says more than the cache, which others use too.
    noise = dice.uniform(-2e6, 2e6) if seen.read is None else dice.uniform(-2e8, 2e8)
    memory = MemoryReading(
        unified="GB10" in seen.name,
        page_cache_bytes=int(seen.cache + noise),
        swap_in_bytes_per_s=seen.swap,
        pressure_full_avg10=0.0,
    )
    network = (
        NetworkReading("enP7s7", "ethernet", up=True, rx_bytes_per_s=seen.net * dice.uniform(0.8, 1.2)),
        NetworkReading("rocep1s0f0", "rdma", up=True, rx_bytes_per_s=seen.rdma, tx_bytes_per_s=seen.rdma),
    )
    desktop = Workload(
        12, None, "Xorg", None, None, None, None, memory_bytes=GIB, cpu_percent=0.0, read_bytes=0
    )
    loads = Workloads((*own[rank and 1 :], desktop), seen.compilers, dice.uniform(0, 9))
    gpus = () if seen.gpus == "unseen" else (gpu,)
    return NodeSample(at, memory=memory, gpus=gpus, network=network, workloads=loads)


def play(
    dice: random.Random,
    *shows: Shows,
    phase: str = "CUDA graphs",
    minutes: float | None = None,
    past_s: float | None = None,
    ranks: int | None = None,
    visible: bool = True,
    remembered: bool = True,
    gpus: str = "listed",
) -> Sequence[Finding]:
    """Play one start with a machine for each of `shows`, and return all findings of all its moments.

    It comes to `phase` in a healthy way, then does as `shows` says for `minutes`, 16 to 30 of them. If it is
    not `remembered`, nothing is known of the engine whose start it is.
    """
    rule, clock, found = EachServer(StartStallRule), StartClock(1000.0, 1002.0), list[Finding]()
    before = {"start": 20.0, "GPU context": 40.0, "weights": 100.0, "compile": 140.0, "CUDA graphs": 200.0}
    begins, lasts = before[phase], 60 * (dice.uniform(16, 30) if minutes is None else minutes)
    names = tuple(f"spark-{number}" for number in range(len(shows)))
    asks = MemoryAsk(0.7, None, len(shows) if ranks is None else ranks)
    last = None
    if past_s is not None:
        last = PastStart("spark-0", "vllm", "m", 2 * past_s, {phase: past_s})
    about = StartMemory("spark-0", "spark-0", Workload(10, "vllm", "server", asks=asks), last=last)
    second = 2.0
    while second < begins + lasts:
        at, second = 1000.0 + second, second + STEP_S
        nodes: dict[str, NodeView] = {}
        for rank, show in enumerate(shows):
            seen = Seen(gpus=gpus)
            healthy = min(second, begins)
            loaded = max(0.0, min(1.0, (healthy - 60) / 60))
            seen.gpu = (
                0.0 if healthy < 30 else 0.5 * GIB + 57 * GIB * loaded + (26 * GIB if healthy > 180 else 0)
            )
            if second < begins:
                seen.cpu = 95.0
            else:
                show(second - begins, seen, dice)
            if not rank:
                clock.note(at, int(seen.gpu), has_engine=second > 25)
            sample = _sample(at, seen, rank, dice)
            nodes[names[rank]] = NodeView(names[rank], "local", sample, age_s=0.0)
        loading = Loading()
        if visible:
            known = clock.loading_at(at, last)
            loading = Loading(
                known.elapsed_s, known.phase, known.step, phase_s=known.phase_s, node="spark-0", pid=10
            )
        view = BackendView(
            "b", "http://b:8000", "g", state=BackendState.LOADING, loading=loading,
            nodes=names if visible else (), start_memory=about if visible and remembered else None,
        )  # fmt: skip
        found += rule.look(Situation(at, WALL, {"b": view}, nodes))
    return found


def _cold(dice: random.Random, shown: str) -> Sequence[Finding]:
    rate = dice.uniform(5, 60)
    return play(dice, partial(reads, mb_per_s=rate, shown=shown), phase="weights")


def _built(*shows: Shows, phase: str = "CUDA graphs") -> Run:
    return lambda dice: play(dice, *shows, phase=phase)


_READING = partial(reads, mb_per_s=30, shown="cache")
FAMILIES = of_kind(
    STUCK,
    {
        ("graph capture, its GPU spins", STUCK): _built(spins),
        ("graph capture, the other rank has ended", STUCK): _built(spins, blocked),
        ("blocked while it compiles", STUCK): _built(blocked, phase="compile"),
        ("two ranks that never meet", STUCK): _built(spins, spins, phase="GPU context"),
        ("blocked before its weights", STUCK): _built(blocked, phase="GPU context"),
        ("torch.compile for half an hour", None): _built(compiles, phase="compile"),
        ("compilers beside a quiet engine", None): _built(compilers, phase="compile"),
        ("autotune on the GPU", None): _built(autotunes, phase="compile"),
        ("many graphs", None): _built(captures),
        **{
            (f"weights from a cold disk, seen by {shown}", None): partial(_cold, shown=shown)
            for shown in ("files", "cache", "memory", "link")
        },
        ("waits for a peer that reads a slow disk", None): _built(spins, _READING, phase="GPU context"),
        ("a phase as long and as quiet last time", None): lambda dice: play(
            dice, blocked, minutes=14, past_s=800.0
        ),
        ("compiles on a machine whose engine is not known", None): lambda dice: play(
            dice, spins, compiles, phase="compile", remembered=False
        ),
        ("swaps", None): _built(swaps, phase="compile"),
        ("four minutes of silence", None): lambda dice: play(dice, spins, minutes=4.5),
        ("a GPU whose waiting is not known", None): _built(used_elsewhere),
        ("the other rank's machine is not watched", UNKNOWN): lambda dice: play(dice, spins, ranks=2),
        ("a process that is not visible", UNKNOWN): lambda dice: play(dice, spins, visible=False, minutes=40),
    },
    tuned={"graph capture, its GPU spins"},
)
