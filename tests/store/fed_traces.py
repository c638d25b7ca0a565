"""Recorded loads fed to a store sample by sample, as pages of two servers behind one router."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import BackendTarget, RouterTarget, Watch
from sparktop.store import Reading, SourceKey
from tests.store.conftest import World

TRACES = Path(__file__).resolve().parent.parent / "data" / "traces"
LIFE_BOUNDS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, math.inf)
NAMES = ("spark-a", "spark-b")
ROUTER = RouterTarget("proxy", "http://p:4000", "least-busy", NAMES)


@dataclass(frozen=True, slots=True)
class Look:
    """What both servers reported at one time, in seconds from the trace's beginning."""

    at: float
    running: tuple[float, float]
    waiting: tuple[float, float]
    tokens: tuple[float, float]


def looks(name: str, *, every: int = 1) -> list[Look]:
    """Read every `every`-th row of a trace: at 4 Hz, or less."""
    with (TRACES / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Look(
            float(row["t_s"]),
            (float(row["running_a"]), float(row["running_b"])),
            (float(row["waiting_a"]), float(row["waiting_b"])),
            (float(row["generated_a"]), float(row["generated_b"])),
        )
        for row in rows[::every]
    ]


def lane(name: str, running: float, waiting: float, tokens: float, **told: object) -> LaneSample:
    """Return a lane that made `tokens` in requests of `answer` tokens, which live for `life_s`."""
    answer, life_s = float(str(told.get("answer", 64.0))), told.get("life_s")
    ended = math.floor(tokens / answer)
    failed = float(str(told.get("failed", 0.0)))
    return LaneSample(
        name,
        running=running,
        waiting=waiting,
        generation_tokens=tokens,
        finished={"length": float(ended), "error": failed, "abort": 0.0},
        e2e=None if life_s is None else lives(ended, float(str(life_s))),
        answer_tokens=Histogram((1.0, 1000.0, math.inf), (0.0, ended, ended), ended * answer),
    )


def lives(ended: int, life_s: float) -> Histogram:
    """Return the histogram of `ended` requests that all lived for `life_s`."""
    counts = tuple(float(ended) if bound >= life_s else 0.0 for bound in LIFE_BOUNDS)
    return Histogram(LIFE_BOUNDS, counts, ended * life_s)


class Pair(World):
    """A store that watches two servers behind a router, and a clock that a test moves."""

    def __init__(
        self,
        router: RouterTarget | None = ROUTER,
        backends: tuple[str, ...] = NAMES,
    ) -> None:
        super().__init__(
            Watch(
                backends=tuple(BackendTarget(name, f"http://{name}:8000") for name in backends),
                routers=(router,) if router else (),
            )
        )
        self.backends = backends

    def tell(self, name: str, *lanes: LaneSample) -> None:
        """Accept a page of a backend now."""
        self.give(name, EngineSample(self.at, "vllm", lanes, models=("m",), answer_ms=3.0))

    def give(self, name: str, reading: Reading) -> None:
        """Accept a reading of a backend."""
        self.store.accept(SourceKey.backend(name), reading, 3.0)

    def look(self) -> Snapshot:
        """Judge what is due, as the monitor's timer does; return a snapshot."""
        self.store.judge()
        return self.store.snapshot()

    def play(
        self,
        trace: list[Look],
        *,
        life_s: float | None = None,
        failed: Callable[[float], Mapping[str, float]] = lambda _: {},
        snapshot_every_s: float = 1.0,
    ) -> Iterator[Snapshot]:
        """Feed a trace from now on; yield a snapshot every `snapshot_every_s`."""
        begin, shown = self.at, -math.inf
        for look in trace:
            self.at = begin + look.at
            errors = failed(look.at)
            for index, name in enumerate(self.backends):
                part = (look.running[index], look.waiting[index], look.tokens[index])
                self.tell(name, lane("0", *part, life_s=life_s, failed=errors.get(name, 0.0)))
            if self.at - shown >= snapshot_every_s:
                shown = self.at
                yield self.look()
