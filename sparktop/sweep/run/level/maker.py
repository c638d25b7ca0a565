"""Makes the runs of levels: rest, warm-up, runs, rest again, with an eye on the guard's limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from time import monotonic

from sparktop.model.failure import FailureKind
from sparktop.model.load import (
    FirstToken,
    LevelEnded,
    LevelStarted,
    LoadEvent,
    LoadMode,
    RequestEnded,
    ResponseStarted,
)
from sparktop.sweep.generator.wire.messages import Batch, Calibrated, Refused, RunLoad, WorkerEnded
from sparktop.sweep.plan.order import Load, Stint
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.run.brake import Brake
from sparktop.sweep.run.context_length import REFUSING
from sparktop.sweep.run.estimate import Estimate
from sparktop.sweep.run.guard import GuardWatch
from sparktop.sweep.run.level.record import LevelRecord, named
from sparktop.sweep.run.preparation import PreparedTarget, WorkerGoneError
from sparktop.sweep.run.progress import LoadTold, Phase, PhaseChanged, RunTold, SweepEvent
from sparktop.sweep.run.record import RunRecord
from sparktop.sweep.run.server_side import ServerLog, ServerPoint
from sparktop.sweep.run.validity import Asked
from sparktop.sweep.run.worker_process import SweepWorker
from sparktop.sweep.terms.request_errors import CANCELLED, count_errors, error_word

LEAST_REST_S = 5.0
REST_INTERVALS = 6.0
"""Servers get this long to come to rest, counted in the intervals at which they are looked at."""


class TargetFailedError(Exception):
    """No run of this target can begin."""


class LevelRefusedError(Exception):
    """The server refuses the requests of this level for what they ask: others may go well."""


@dataclass(slots=True, eq=False)
class LevelMaker:
    """Makes one stint after the other with one load generator."""

    plan: Plan
    worker: SweepWorker
    log: ServerLog
    brake: Brake
    guard: GuardWatch
    estimate: Estimate
    tell: Callable[[SweepEvent], None]
    note_run: Callable[[str, Load, int], None]
    """Called as a measured run begins."""
    sweep_id: str
    interval_s: float = 1.0
    """At which servers are looked at."""
    eta_s: Callable[[int], float | None] = lambda _: None
    """Tells what is left when so many runs of the present stint are done."""
    clock: Callable[[], float] = monotonic
    present: PreparedTarget | None = None
    """The target that has load on it now."""
    heard_at: float = 0.0
    """When a stream last gave a sign of life."""
    rest: dict[str, ServerPoint] = field(default_factory=dict)
    """The newest look at each server at rest: what the next level counts from."""
    _ended: int = 0
    _failed: int = 0
    _refused: int = 0
    """Requests of the present level that the server refused for what they ask."""
    _newest_failure: str = ""
    _made: int = 0
    """Runs of the present stint."""
    _run_from: dict[str, ServerPoint] = field(default_factory=dict)
    """The servers at rest ahead of the present run, where their counters tell who served it."""

    async def make(self, stint: Stint, record: LevelRecord) -> None:
        """Make a stint and enter it into the record of its level.

        Raises:
            TargetFailedError: the target cannot be asked at all.
            LevelRefusedError: it refused every request of a level's first run for what they ask.
            WorkerGoneError: the load generator ended by itself.
        """
        names = record.prepared.backends
        before = self._at_rest(names)
        if stint.first:
            self._ended = self._failed = self._refused = 0
        self._made = 0
        self._tell_load(stint, LevelStarted(self.clock(), record.level))
        measured_from = self._run_from = before
        paused_s = 0.0
        try:
            if stint.first and self.plan.warmup:
                await self._run(stint, record, 0, warm_up=True)
                # Counters are read at rest: what the warm-up added to them is no part of the level's figures.
                paused_s = await self._pause(names)
                measured_from = self._run_from = self._at_rest(names)
            for run in self._numbers(stint):
                if self.brake.pulled:
                    break
                tells = await self._run(stint, record, run, warm_up=False)
                if record.prepared.names is not None and not tells:
                    await self._count_run(stint, record)
        finally:
            self.present = None
            self._tell_load(stint, LevelEnded(self.clock(), record.level))
        if not self.brake.pulled:
            began = self.clock()
            self.tell(self._phase(Phase.SETTLING, stint))
            record.unsettled = await self.settle(names) or record.unsettled
            self.estimate.learn_pause(paused_s + self.clock() - began)
            record.add_growth(before, measured_from, self.rest)

    async def _pause(self, names: tuple[str, ...]) -> float:
        """Let the servers come to rest after a warm-up; return the seconds that took."""
        began = self.clock()
        if not self.brake.pulled:
            await self.settle(names)
        return self.clock() - began

    async def _count_run(self, stint: Stint, record: LevelRecord) -> None:
        """Count by the servers' own counters who served a run, since the router does not name them.

        Not between runs that a time bounds: the wait would be taken from them.
        """
        names = record.prepared.backends
        if stint.runs is None or len(names) <= 1 or self.brake.pulled:
            return
        if await self.settle(names) is None:
            record.add_run_finished(self._run_from, self.rest)
        self._run_from = self._at_rest(names)

    def _at_rest(self, names: tuple[str, ...]) -> dict[str, ServerPoint]:
        return {name: self.rest[name] for name in names if name in self.rest}

    async def settle(self, names: tuple[str, ...]) -> str | None:
        """Wait until servers are at rest and keep how they stand; give why they are not, or None."""
        limit_s = max(LEAST_REST_S, REST_INTERVALS * self.interval_s)
        found = await self.log.settled(names, self.clock(), limit_s, lambda: self.brake.pulled)
        if found is not None:
            self.rest |= found
            return None
        busy = []
        for name in names:
            point = self.log.newest(name)
            if point is None:
                continue
            self.rest[name] = point
            if not point.idle:
                busy.append(f"{name} ran {point.running or 0:.0f} requests")
        what = ", ".join(busy) or "the counters still moved"
        return f"the servers did not come to rest within {limit_s:.0f} s of our last request: {what}"

    def _numbers(self, stint: Stint) -> Iterator[int]:
        if stint.runs is not None:
            yield from stint.runs
            return
        end = self.clock() + (self.plan.duration_s or 0.0)
        run = 0
        while run == 0 or self.clock() < end:
            yield run
            run += 1

    async def _run(self, stint: Stint, record: LevelRecord, run: int, *, warm_up: bool) -> bool:
        """Make one run; tell whether somebody named who served."""
        command = self._command(stint, record, run, warm_up=warm_up)
        self.tell(self._phase(Phase.WARMING_UP if warm_up else Phase.RUNNING, stint, run))
        if not warm_up:
            self.note_run(stint.target.name, stint.load, run)
        told = RunRecord(command.id)
        self.present, self.heard_at = record.prepared, self.clock()
        gone: WorkerEnded | None = None
        refused: Refused | None = None
        async for message in self.worker.run(command):
            told.add(message)
            match message:
                case Batch() if message.id == command.id:
                    self._take(stint, record.prepared, message, warm_up=warm_up)
                case Calibrated():
                    record.asked = record.asked.plus(calibration_asked(message))
                case Refused() if message.id == command.id:
                    refused = message
                case WorkerEnded():
                    gone = message
                case _:
                    pass
        events = named(told.events(), record.prepared)
        record.add_run(told, events, warm_up=warm_up)
        self.tell(RunTold(stint.target.name, stint.load, run, events, warm_up))
        if gone is not None:
            raise WorkerGoneError(gone.failure)
        if refused is not None and refused.failure.word != CANCELLED:
            raise TargetFailedError(refused.failure.message)
        if told.finished is not None and not told.finished.cancelled:
            self._made += not warm_up
            took_s = told.finished.ended_at - told.finished.started_at
            self.estimate.learn_run(stint.target.name, stint.load, took_s)
            self._look_at_run(stint.target.name, events)
        return any(isinstance(event, RequestEnded) and event.served_by is not None for event in events)

    def _command(self, stint: Stint, record: LevelRecord, run: int, *, warm_up: bool) -> RunLoad:
        plan, load = self.plan, stint.load
        number = [one.name for one in plan.targets].index(stint.target.name)
        which = "w" if warm_up else str(run)
        run_id = f"{self.sweep_id}-{number}-{load.prompt_tokens}x{load.concurrency}-{which}"
        # The same seed gives the same prompts; where no salt keeps them from the cache, only their likes.
        fresh = "" if record.prepared.takes_salt else f"/{run_id}"
        steady = plan.mode is LoadMode.STEADY and not warm_up
        return RunLoad(
            id=run_id,
            target=record.prepared.asks,
            concurrency=load.concurrency,
            prompt_tokens=load.prompt_tokens,
            output_tokens=plan.tg,
            mode=LoadMode.STEADY if steady else LoadMode.BURST,
            run=run,
            requests=plan.requests if steady else None,
            duration_s=plan.duration_s if steady else None,
            seed=plan.seed,
            prompt_salt=f"{plan.seed}/{load.prompt_tokens}x{load.concurrency}-{which}{fresh}",
            cache_salt=run_id,
            timeouts=plan.timeouts,
            warm_up=warm_up,
        )

    def _phase(self, phase: Phase, stint: Stint, run: int | None = None) -> PhaseChanged:
        runs = None if stint.runs is None else self.plan.runs_of(stint.load.concurrency)
        if stint.runs is not None and stint.first and stint.last:
            runs = len(stint.runs)  # a search makes more than the plan has
        return PhaseChanged(phase, stint.target.name, stint.load, run, runs, self.eta_s(self._made))

    def _tell_load(self, stint: Stint, event: LoadEvent) -> None:
        self.tell(LoadTold(stint.target.name, stint.load, (event,)))

    def _take(self, stint: Stint, prepared: PreparedTarget, batch: Batch, *, warm_up: bool) -> None:
        events = named(list(batch.events), prepared)
        names = prepared.names
        bins = batch.bins
        if names is not None:
            bins = tuple(replace(one, served_by=names.name(one.served_by)) for one in bins)
        for event in events:
            if isinstance(event, RequestEnded):
                self._ended += 1
                if event.error is not None:
                    self._failed += 1
                    self._refused += error_word(event.error) in REFUSING
                    self._newest_failure = event.error.message
        if bins or any(isinstance(event, FirstToken | ResponseStarted) for event in events):
            self.heard_at = self.clock()
        target = stint.target.name
        self.tell(LoadTold(target, stint.load, tuple(events), bins, batch.in_flight, warm_up, batch.at))
        if self._refused < self._ended:  # else it is the level that cannot be, and not the server
            self._stop(self.guard.look_at_requests(target, self._ended, self._failed, self._newest_failure))

    def _look_at_run(self, target: str, events: list[LoadEvent]) -> None:
        if self._ended and self._refused == self._ended:
            raise LevelRefusedError(self._newest_failure)
        ends = [event for event in events if isinstance(event, RequestEnded)]
        ok = sum(end.ok for end in ends)
        own = (end.error for end in ends if end.error is not None)
        if any(error.kind is FailureKind.UNSUPPORTED for error in own):
            return  # descriptors of our own: no word about the server
        self._stop(self.guard.look_at_run(target, ok, count_errors(events), self._newest_failure))

    def _stop(self, reason: str | None) -> None:
        if reason is not None:
            self.brake.pull("stopped_by_guard", reason)


def calibration_asked(found: Calibrated) -> Asked:
    """Give what a calibration asked for and got."""
    return Asked(
        generated=found.generated_tokens_used,
        prompt=found.prompt_tokens_used,
        most=max(found.generated_tokens_used, found.requests * (found.tried_tokens or 1)),
    )
