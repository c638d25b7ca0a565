"""Families of machines whose free memory falls: engines that read weights, and leaks.

The alert `headroom-limit` is counted as a finding. Machines are polled every 2 s, through a store.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.event import Finding
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import GIB, MemoryReading, NodeSample, Workload, Workloads
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.store import SourceKey, Store
from tests.findings.study import Family

KIND = "headroom-limit"
TOTAL_GIB, CRITICAL_GIB = 119.7, 4.0
POLL_S, LOOK_S = 2.0, 10.0


class Spark(NamedTuple):
    """A machine with an engine: GiB left and the engine's age at a time; whether the engine answers."""

    left_gib: Callable[[float], float]
    age_s: Callable[[float], float]
    answers: Callable[[float], bool] = lambda _: True
    watched: bool = True
    noise_gib: float = 0.02


def played(spark: Spark, lasts_s: float, chance: random.Random) -> list[Finding]:
    """Return the alert as a finding, where it is raised before the memory is nearly used up."""
    names = ("spark-1", "spark-2")
    watch = Watch(
        nodes=tuple(NodeTarget(name, via="ssh", ssh=name) for name in names),
        backends=(BackendTarget("b", "http://spark-1:8000", engine="vllm", nodes=names),)
        if spark.watched
        else (),
    )
    at, start = 1000.0, 1000.0
    store = Store(watch, clock=lambda: at, now=lambda: datetime.fromtimestamp(1.7e9 + at, UTC))
    while at < start + lasts_s:
        since = at - start
        left = spark.left_gib(since) + chance.gauss(0, spark.noise_gib)
        if spark.watched:
            lane = LaneSample("0", running=0.0)
            refused = Failure(FailureKind.REFUSED, "nothing listens there", at)
            page = EngineSample(at, "vllm", (lane,), models=("m",))
            store.accept(SourceKey.backend("b"), page if spark.answers(since) else refused, 2.0)
        for number, name in enumerate(names):
            role = "worker" if number else "server"
            engine = Workload(100, "vllm", role, port=None if number else 8000, age_s=spark.age_s(since))
            memory = MemoryReading(
                unified=True, total_bytes=int(TOTAL_GIB * GIB), headroom_bytes=int(left * GIB)
            )
            sample = NodeSample(at, memory=memory, workloads=Workloads((engine,), age_s=0.0))
            store.accept(SourceKey.node(name), sample, 2.0)
        store.judge()
        is_looked_at = since % LOOK_S == 0 and left > CRITICAL_GIB + 1
        if is_looked_at and any(alert.id.endswith(KIND) for alert in store.snapshot().alerts):
            return [Finding(KIND, "spark-1", "")]  # type: ignore[arg-type]  # an alert without a finding
        at += POLL_S
    return []


def _start(chance: random.Random, *, watched: bool, longest_s: float) -> Spark:
    """Return an engine that reads weights for a while, at any pace, to near the limit; then it serves."""
    began, takes = chance.uniform(20, 60), chance.uniform(40, longest_s)
    least, most = chance.uniform(6, 40), chance.uniform(80, 110)
    waits = takes + chance.uniform(5, 300)
    return Spark(
        lambda at: most - (most - least) * min(1.0, max(0.0, at - began) / takes),
        lambda at: max(0.0, at - began + 8),
        lambda at: not began - 15 <= at < began + waits,
        watched,
    )


def loads(chance: random.Random) -> list[Finding]:
    """A watched engine on two machines starts, in one to fifteen minutes."""
    return played(_start(chance, watched=True, longest_s=900), 1300, chance)


def loads_unwatched(chance: random.Random) -> list[Finding]:
    """An engine that nobody watches starts, in up to four and a half minutes."""
    return played(_start(chance, watched=False, longest_s=270), 450, chance)


def leaks_after_start(chance: random.Random) -> list[Finding]:
    """An engine starts, and leaks from then on: found once its process is five minutes old."""
    start = _start(chance, watched=True, longest_s=200)
    pace = chance.uniform(0.5, 1.5) / 60
    begins = next(at for at in range(60, 900) if start.answers(at)) + chance.uniform(0, 100)
    level = chance.uniform(25, 40)
    spark = start._replace(left_gib=lambda at: max(start.left_gib(at), level) - pace * max(0.0, at - begins))
    return played(spark, begins + (level - CRITICAL_GIB) / pace, chance)


FAMILIES = (
    Family("leak after a start", KIND, KIND, leaks_after_start),
    Family("an engine reads weights", KIND, None, loads, tuned=True),
    Family("an engine that is not watched reads weights", KIND, None, loads_unwatched),
)
