"""Families of engines that sleep, start or have ended, on machines with more or less memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.event import Finding
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import (
    GpuProcess,
    GpuReading,
    MemoryAsk,
    MemoryReading,
    NodeIdentity,
    NodeSample,
    Workload,
    Workloads,
)
from sparktop.model.snapshot import Kept, PastStart
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.store import SourceKey, Store
from tests.findings.study import UNKNOWN, Run, of_kind

GIB = 1 << 30
TOTAL = 121.6
STEP_S = 5
EPOCH = datetime(2026, 11, 1, tzinfo=UTC)
NODE, BACKEND = SourceKey.node("spark"), SourceKey.backend("b")
SHORT, HELD = "start-short", "memory-held"
CONTEXT = 2.6
"""GiB that vLLM's process takes before it looks at free memory."""


class Spark:
    """A store of one server on one GB10, whose memory the family moves; sizes are in GiB."""

    def __init__(self, dice: random.Random, *, engine: str = "vllm", asks: MemoryAsk | None = None) -> None:
        """Start with an idle machine."""
        self.at, self.dice, self.engine, self.asks = 1000.0, dice, engine, asks
        watch = Watch(
            nodes=(NodeTarget("spark", "local"),),
            backends=(BackendTarget("b", "http://127.0.0.1:8000", nodes=("spark",)),),
        )
        self.store = Store(watch, clock=lambda: self.at, now=lambda: EPOCH + timedelta(seconds=self.at))
        self.store.identify(NODE, NodeIdentity(hostname="spark"))
        self.base, self.cache = dice.uniform(5, 9), dice.uniform(5, 30)
        self.gpu = self.host = self.hidden = self.others = 0.0
        """What the engine holds by the driver, and on the host; what nothing counts; other programs."""
        self.server: float | None = None
        """When the engine's process began; None without one."""
        self.answers = self.sleeps = False
        self.training, self.sees_all, self.cma_free = False, True, dice.choice((0.0, 2.0, 8.8))
        self.found: list[Finding] = []

    @property
    def headroom(self) -> float:
        """What programs can allocate, in GiB."""
        used = self.base + self.gpu + self.host + self.hidden + self.others
        return max(0.3, TOTAL - used - self.cma_free)

    def _sample(self) -> NodeSample:
        noise = self.dice.gauss(0, 0.1)
        cache = min(self.cache, self.headroom)
        ours: tuple[Workload, ...] = ()
        held: tuple[GpuProcess, ...] = (GpuProcess(9, "Xorg", 40 << 20, "graphics"),)
        if self.server is not None:
            age = self.at - self.server
            ours = (
                Workload(10, self.engine, "server", None, "m", 8000, 10, age_s=age, asks=self.asks),
                Workload(11, self.engine, "engine core", None, "m", None, 10, age_s=age),
            )
            held += (GpuProcess(11, "VLLM::EngineCore", round(self.gpu * GIB), "compute"),)
        if self.training:
            held += (GpuProcess(77, "python3", 3 * GIB, "compute"),)
        memory = MemoryReading(
            unified=True,
            total_bytes=round(TOTAL * GIB),
            available_bytes=round((self.headroom + self.cma_free + noise) * GIB),
            headroom_bytes=round((self.headroom + noise) * GIB),
            page_cache_bytes=round(cache * GIB),
            cma_free_bytes=round(self.cma_free * GIB),
            unattributed_bytes=round((3 + self.hidden + noise) * GIB),
            swap_total_bytes=0,
            swap_used_bytes=0,
        )
        loads = Workloads(ours, 0, 0.0, (), self.sees_all)
        return NodeSample(
            self.at, memory=memory, gpus=(GpuReading(0, "NVIDIA GB10", processes=held),), workloads=loads
        )

    def run(self, seconds: float, each: Callable[[float], None] = lambda _: None) -> None:
        """Go on for `seconds`, with a sample every 5 s; `each` is called with the seconds since the begin."""
        for step in range(0, int(seconds), STEP_S):
            each(float(step))
            self.store.accept(NODE, self._sample())
            if self.answers:
                lane = LaneSample(
                    "0", running=0.0, waiting=0.0, generation_tokens=self.at, asleep=self.sleeps
                )
                self.store.accept(BACKEND, EngineSample(self.at, "vllm", (lane,), ("m",)))
            else:
                self.store.accept(BACKEND, Failure(FailureKind.REFUSED, "nothing listens there", self.at))
            self.store.judge()
            snapshot = self.store.snapshot()
            self.found += (*snapshot.backends[0].findings, *snapshot.nodes[0].findings)
            self.at += STEP_S

    def start(self, gpu: float, host: float, takes_s: float = 60.0) -> None:
        """Load an engine that holds these GiB at its end."""
        self.server, self.answers = self.at, False

        def grow(second: float) -> None:
            self.gpu = gpu * min(1.0, max(0.0, second - 10) / (takes_s - 20))
            self.host = host * min(1.0, second / 10)

        self.run(takes_s, grow)
        self.answers = True
        self.run(10)

    def end(self) -> None:
        """End the engine; all of its memory is free again."""
        self.server, self.answers, self.sleeps = None, False, False
        self.gpu = self.host = 0.0

    def judged(self) -> Sequence[Finding]:
        """Return what was found in the next 20 s alone."""
        self.found = []
        self.run(20)
        return self.found


def _sleep(dice: random.Random, left: float) -> Sequence[Finding]:
    """Put an engine to sleep and leave `left` GiB more than it needs to wake."""
    spark = Spark(dice, asks=MemoryAsk(share=0.5))
    gpu = dice.uniform(30, 60)
    spark.start(gpu, dice.uniform(2, 5))
    keeps = dice.uniform(0.5, 2)
    spark.sleeps, spark.gpu = True, keeps
    spark.hidden = dice.choice((0.0, 0.4 * gpu))  # the copy of its weights in host memory
    spark.others = spark.headroom - (gpu - keeps) - left
    return spark.judged()


def _again(dice: random.Random, left: float) -> Sequence[Finding]:
    """Start an engine, end it, and leave `left` GiB more than its next start needs."""
    spark = Spark(dice, engine="sglang", asks=MemoryAsk(share=0.5))
    gpu, host = dice.uniform(40, 80), dice.uniform(3, 8)
    spark.start(gpu, host)
    spark.end()
    spark.run(20)
    spark.others = max(0.0, spark.headroom - (gpu + host) - left)
    return spark.judged()


def _given_back_late(dice: random.Random) -> Sequence[Finding]:
    """End an engine whose memory is given back some seconds after its process is gone."""
    spark = Spark(dice, engine="sglang", asks=MemoryAsk(share=0.5))
    spark.start(dice.uniform(60, 80), dice.uniform(3, 8))
    held = spark.gpu + spark.host
    spark.end()
    spark.hidden, late_s, spark.found = held, dice.uniform(2, 9), []
    spark.run(40, lambda second: setattr(spark, "hidden", 0.0 if second >= late_s else held))
    return spark.found


def _other_options(dice: random.Random) -> Sequence[Finding]:
    """Start an engine that asks for less than last time, which is there, while what it took then is not."""
    spark = Spark(dice, asks=MemoryAsk(share=0.5))
    spark.start(0.5 * TOTAL - 4, CONTEXT + 4)
    spark.end()
    spark.run(20)
    spark.asks, spark.server = MemoryAsk(share=0.3), spark.at
    spark.others = spark.headroom - dice.uniform(0.3 * TOTAL + CONTEXT + 1, 0.5 * TOTAL - 2)
    return spark.judged()


def _load(dice: random.Random, left: float, *, busy: bool = False) -> Sequence[Finding]:
    """Start an engine that asks for a share of memory, of which `left` GiB more or less are free."""
    share = dice.uniform(0.4, 0.8)
    spark = Spark(dice, asks=MemoryAsk(share=share))
    spark.run(10)
    spark.others = max(0.0, spark.headroom - (share * TOTAL + CONTEXT) - left)
    if busy:
        spark.cache = 60.0
    if left < 0:
        spark.server = spark.at
        return spark.judged()
    spark.start(share * TOTAL - 4, CONTEXT + 4 - dice.uniform(0, 2), dice.uniform(60, 200))
    return spark.found


def _taken_meanwhile(dice: random.Random, gib: float) -> Sequence[Finding]:
    """Let another program take memory while an engine starts that has started before."""
    spark = Spark(dice, asks=MemoryAsk(share=0.6))
    gpu = 0.6 * TOTAL - 4
    spark.start(gpu, 5.0)
    spark.end()
    spark.run(10)
    spark.server = spark.at
    spark.gpu, spark.host = 0.3 * gpu, 5.0
    spark.others = spark.headroom - 0.7 * gpu + gib
    return spark.judged()


def _unseen(dice: random.Random) -> Sequence[Finding]:
    """Watch a sleeping engine from now on, without knowing what it held awake."""
    spark = Spark(dice)
    spark.server, spark.gpu, spark.answers, spark.sleeps = spark.at - 9000, dice.uniform(0.5, 2), True, True
    spark.others = spark.headroom - dice.uniform(5, 60)
    return spark.judged()


def _no_past(dice: random.Random) -> Sequence[Finding]:
    """Start an engine of which neither an earlier start nor the weights are known."""
    spark = Spark(dice, engine="llamacpp")
    spark.others = spark.headroom - dice.uniform(5, 60)
    spark.server = spark.at
    return spark.judged()


def _old_file(dice: random.Random) -> Sequence[Finding]:
    """Start an engine whose earlier starts come from a file that has no memory in it."""
    spark = Spark(dice, engine="sglang")
    spark.store.learn(Kept((PastStart("spark", "sglang", "m", 200.0, ended_at=1.0),)))
    spark.others = spark.headroom - dice.uniform(5, 60)
    spark.server = spark.at
    return spark.judged()


def _dead(dice: random.Random, *, again: bool = False) -> Sequence[Finding]:
    """End an engine whose memory stays; with `again` another one starts beside it."""
    spark = Spark(dice, asks=MemoryAsk(share=0.5))
    spark.start(dice.uniform(40, 60), 4.0)
    spark.end()
    spark.hidden = dice.uniform(8, 40)
    spark.run(90)
    if again:
        spark.server = spark.at
        spark.gpu = 0.5
        spark.judged()
        return spark.found
    return spark.found


def _well(dice: random.Random, what: str) -> Sequence[Finding]:
    """Hold memory that nothing counts, for one of the reasons that are no fault."""
    spark = Spark(dice, asks=MemoryAsk(share=0.5))
    if what == "sleeps":
        spark.start(50, 4.0)
        spark.sleeps, spark.gpu, spark.hidden = True, 1.0, dice.uniform(15, 50)
    elif what == "ended":
        spark.start(50, 4.0)
        spark.end()
        spark.hidden = 50.0
        spark.run(dice.uniform(4, 40))
        spark.hidden = 0.0
    elif what == "pinned":
        spark.server, spark.hidden = spark.at, dice.uniform(8, 30)
    elif what == "training":
        spark.training, spark.hidden = True, dice.uniform(8, 60)
    elif what == "in a container":
        spark.sees_all, spark.hidden = False, dice.uniform(8, 100)
    else:
        spark.hidden = dice.uniform(0, 3)
    spark.found = []
    spark.run(120)
    return spark.found


_SHORT: Mapping[tuple[str, str | None], Run] = {
    ("wakes beside what took its memory", SHORT): lambda dice: _sleep(dice, -dice.uniform(2, 20)),
    ("a container starts again, its memory taken", SHORT): lambda dice: _again(dice, -dice.uniform(3, 20)),
    ("asks for more than is free", SHORT): lambda dice: _load(dice, -dice.uniform(2, 20)),
    ("another program takes memory meanwhile", SHORT): lambda dice: _taken_meanwhile(
        dice, dice.uniform(3, 20)
    ),
    ("sleeps, with room to wake", None): lambda dice: _sleep(dice, dice.uniform(1, 20)),
    ("memory is given back late", None): _given_back_late,
    ("a container starts again, with room", None): lambda dice: _again(dice, dice.uniform(1, 20)),
    ("starts with other options", None): _other_options,
    ("loads, with room", None): lambda dice: _load(dice, dice.uniform(1, 20)),
    ("loads, memory full of cached files", None): lambda dice: _load(dice, dice.uniform(1, 9), busy=True),
    ("never seen awake", UNKNOWN): _unseen,
    ("never seen to start", UNKNOWN): _no_past,
    ("an older version's earlier start", UNKNOWN): _old_file,
}
_HELD: Mapping[tuple[str, str | None], Run] = {
    ("a container that ended keeps memory", HELD): _dead,
    ("and another engine starts", HELD): partial(_dead, again=True),
    **{
        (f"memory that nothing counts: {what}", None): partial(_well, what=what)
        for what in ("sleeps", "ended", "pinned", "training", "in a container", "at rest")
    },
}
_TUNED = {name for name, _ in _SHORT if name.startswith(("wakes", "a container starts again, its", "sleeps"))}
FAMILIES = (*of_kind(SHORT, _SHORT, _TUNED), *of_kind(HELD, _HELD))
