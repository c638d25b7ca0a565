"""A sweep played to a `LiveView` without any server: its events in order, on a clock of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from sparktop.model.instant import TimeRange
from sparktop.model.load import (
    AnswerRead,
    EndReason,
    LoadEvent,
    RequestEnded,
    RequestStarted,
    RunStarted,
    concurrency_point,
)
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import BackendHistory, BackendView, Latency, NodeHistory, NodeView, Snapshot
from sparktop.sweep.generator.wire import Batch, TokenBin
from sparktop.sweep.plan.plan import Plan, SweepTarget, TargetKind
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.progress import (
    PhaseChanged,
    ResultChanged,
    SweepPhase,
)
from sparktop.sweep.view.live import LiveView

BACKENDS = ("spark-a", "spark-b")
TTFT_S, E2E_S, RATE = 0.5, 2.0, 100.0
"""Of every request that is played; tokens a second of all together."""


@dataclass
class Clock:
    """A clock that the test sets."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def plan_of(result: SweepResult) -> Plan:
    """Return a plan with a result's levels: the target "proxy" is a router in front of two servers."""
    urls = {name: f"http://127.0.0.1/{name}" for name in BACKENDS}
    targets = tuple(
        SweepTarget(
            one.name,
            one.url,
            TargetKind.ROUTER if one.name == "proxy" else TargetKind.ENGINE,
            backends=urls if one.name == "proxy" else {},
        )
        for one in result.targets
    )
    asked = result.plan
    return Plan(
        targets,
        asked.concurrency,
        pp=asked.pp or 1,
        tg=asked.tg or 1,
        runs=asked.runs or 1,
        warmup=asked.warmup,
        preset=asked.preset,
    )


@dataclass
class PlayedSweep:
    """Plays the levels of a result one after the other."""

    result: SweepResult
    clock: Clock = field(default_factory=Clock)
    view: LiveView = field(init=False)
    histories: dict[str, HistoryTable] = field(init=False)

    def __post_init__(self) -> None:
        self.plan = plan_of(self.result)
        self.view = LiveView(self.plan, clock=self.clock)
        kept = [*BackendHistory.__struct_fields__, *NodeHistory.__struct_fields__]
        self.histories = {name: HistoryTable(dict.fromkeys(kept)) for name in BACKENDS}

    def snapshot(self, *, running: float = 0.0) -> Snapshot:
        """Return a snapshot in which each server runs `running` requests, and each machine draws 60 W."""
        for table in self.histories.values():
            table.append(
                self.clock.now,
                {
                    "running": running,
                    "waiting": 1.0,
                    "kv_cache_percent": 25.0,
                    "power_w": 60.0,
                    "temperature_c": 61.0,
                    "sm_clock_mhz": 2400.0,
                },
            )
        series = {name: table.series() for name, table in self.histories.items()}
        backends = tuple(
            BackendView(
                name,
                f"http://127.0.0.1/{name}",
                "proxy",
                age_s=0.1,
                nodes=(name,),
                running=running,
                waiting=1.0,
                prefill=Latency(mean_s=0.2, count=10.0, window_s=60.0),
                history=BackendHistory(
                    **{key: found[key] for key in ("running", "waiting", "kv_cache_percent")}
                ),
            )
            for name, found in series.items()
        )
        nodes = tuple(
            NodeView(
                name,
                "local",
                age_s=0.1,
                history=NodeHistory(
                    **{key: found[key] for key in ("power_w", "temperature_c", "sm_clock_mhz")}
                ),
            )
            for name, found in series.items()
        )
        return Snapshot(datetime.now(UTC), self.clock.now, 1.0, 1.0, nodes=nodes, backends=backends)

    def tell(self, *events: LoadEvent, flying: int = 0) -> None:
        """Pass events of the load generator to the view, as of the present phase."""
        self.view.take(Batch("run", self.clock.now, flying, events, ()))

    def run(
        self, target: str, concurrency: int, run: int, *, upto_s: float = E2E_S, warm_up: bool = False
    ) -> None:
        """Play one run, or its first seconds: first tokens after half a second, ends after two."""
        level = self.plan.level(target, concurrency_point(concurrency))
        phase = SweepPhase.WARMING_UP if warm_up else SweepPhase.RUNNING
        self.view.take(PhaseChanged(phase, target, level, run, self.plan.runs, TimeRange(24.0, 60.0)))
        began, names = self.clock.now, [f"{target}-{concurrency}-{run}-{i}" for i in range(concurrency)]
        starts = [RequestStarted(name, began, run, 100) for name in names]
        self.tell(RunStarted(began, run), *starts, flying=len(names))
        while self.clock.now < began + upto_s - 1e-6:
            self.clock.now = round(self.clock.now + 0.1, 6)
            since = self.clock.now - began
            first = [AnswerRead(name, began + TTFT_S) for name in names] if abs(since - TTFT_S) < 0.01 else []
            bins = (
                (TokenBin(round(self.clock.now - 0.1, 6), BACKENDS[run % 2], int(RATE / 10)),)
                if since > TTFT_S
                else ()
            )
            self.view.take(Batch("run", self.clock.now, len(names), tuple(first), bins))
            if abs(since - 1.0) < 0.01:
                self.view.sample(self.snapshot(running=float(concurrency)))
        if upto_s < E2E_S:
            return
        server = BACKENDS[run % 2] if target == "proxy" else None
        ends = [RequestEnded(name, self.clock.now, EndReason.LENGTH, served_by=server) for name in names]
        self.tell(*ends)

    def level(self, target: str, concurrency: int, *, runs: int | None = None) -> None:
        """Play a level to its end, or only its first runs."""
        level = self.plan.level(target, concurrency_point(concurrency))
        self.view.sample(self.snapshot())
        for run in range(self.plan.runs if runs is None else runs):
            self.run(target, concurrency, run)
        if runs is not None:
            return
        self.view.take(PhaseChanged(SweepPhase.SETTLING, target, level, None, None, TimeRange(16.0, 40.0)))
        self.clock.now += 1.0
        made = self.result.target(target)
        assert made is not None
        found = next(one for one in made.levels if one.concurrency == concurrency)
        self.view.take(ResultChanged(self._so_far(target, concurrency), target, found))

    def _so_far(self, target: str, concurrency: int) -> SweepResult:
        """Return the result up to and including this level."""
        targets, over = [], False
        for one in self.result.targets:
            kept = () if over else one.levels
            if one.name == target:
                kept = tuple(level for level in one.levels if level.concurrency <= concurrency)
                over = True
            targets.append(one.model_copy(update={"levels": kept}))
        return self.result.model_copy(
            update={"targets": tuple(targets), "status": None, "finished_at": None, "comparison": None}
        )

    def whole(self) -> None:
        """Play everything."""
        for target in self.result.targets:
            for level in target.levels:
                self.level(target.name, level.concurrency)
        self.view.take(ResultChanged(self.result))
