"""Execution of levels: warm-up run, measured runs, then a wait until the servers are idle.

During the runs, the limits of failed requests are checked. A stint is a series of consecutive runs of one
level on one target; in `abba` order a level has several stints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import (
    FirstToken,
    LevelEnded,
    LevelStarted,
    LoadEvent,
    LoadMode,
    RequestEnded,
    ResponseStarted,
)
from sparktop.model.node import NodeSample
from sparktop.model.time_range import TimeRange
from sparktop.store import Reading, SourceKey
from sparktop.store.sources import SourceKind
from sparktop.sweep.generator.refusals import is_refusal
from sparktop.sweep.generator.wire.messages import (
    Batch,
    Calibrated,
    Refused,
    RunFinished,
    RunLoad,
    WorkerEnded,
)
from sparktop.sweep.plan.order import Load, Stint
from sparktop.sweep.plan.plan import ENOUGH_S, Plan
from sparktop.sweep.run.brake import Brake
from sparktop.sweep.run.context.depth import context_command
from sparktop.sweep.run.estimate import MOST_RUNS, Estimate
from sparktop.sweep.run.guard import GuardWatch
from sparktop.sweep.run.level.commands import run_command
from sparktop.sweep.run.level.counts import named
from sparktop.sweep.run.level.record import LevelRecord
from sparktop.sweep.run.preparation import PreparedTarget, WorkerGoneError
from sparktop.sweep.run.progress import LoadTold, Notice, Phase, PhaseChanged, RunTold, SweepEvent
from sparktop.sweep.run.record import RunRecord
from sparktop.sweep.run.server_side import ServerLog, ServerPoint, node_point
from sparktop.sweep.run.validity import Asked
from sparktop.sweep.run.worker_process import SweepWorker
from sparktop.sweep.terms.request_errors import CANCELLED, RequestFailure, count_errors

LEAST_REST_S = 5.0
REST_INTERVALS = 6.0
"""Maximum wait until servers are idle, in poll intervals; at least `LEAST_REST_S` seconds."""


class TargetFailedError(Exception):
    """No run can begin on this target: its requests fail for a reason that does not depend on the level."""


class LevelRefusedError(Exception):
    """The server rejected every request of this level, for example as too long; other levels may succeed."""


class LevelMaker(Struct, eq=False):
    """Executes stints (series of consecutive runs of one level) in sequence, with one load generator."""

    plan: Plan
    worker: SweepWorker
    log: ServerLog
    brake: Brake
    guard: GuardWatch
    estimate: Estimate
    tell: Callable[[SweepEvent], None]
    note_run: Callable[[str, Load, int], None]
    """Called at the start of each measured run with target, load and run number."""
    sweep_id: str
    interval_s: float = 1.0
    """Seconds between two polls of a server."""
    left: Callable[[int], TimeRange | None] = lambda _: None
    """Returns the range of the sweep's remaining seconds after the given number of runs of the present
    stint."""
    clock: Callable[[], float] = monotonic
    present: PreparedTarget | None = None
    """The target of the present run; None between two stints."""
    newest_data_at: float = 0.0
    """When data of any answer last arrived, in monotonic seconds."""
    rest: dict[str, ServerPoint] = field(default_factory=dict)
    """Newest sample of each server while idle; the growth of counters in the next level is counted from
    here."""
    _ended: int = 0
    _failed: int = 0
    _refused: int = 0
    """Number of requests of the present level that the server rejected as such (HTTP 400, 413, 422)."""
    _newest_failure: str = ""
    _made: int = 0
    """Completed runs of the present stint; -1 until its warm-up is over."""
    _before_s: float = 0.0
    """Seconds that it took to send the context of the next run."""
    _run_from: dict[str, ServerPoint] = field(default_factory=dict)
    """Sample of each server while idle before the present run, to count the requests that it serves in the
    run. """

    async def make(self, stint: Stint, record: LevelRecord) -> None:
        """Execute a stint (series of runs of a level) and its warm-up, and fill in the level's `record`.

        Before it returns, wait until the servers are idle again.

        Raises:
            TargetFailedError: requests to the target fail for a reason that does not depend on the level.
            LevelRefusedError: the server rejected every request of the level.
            WorkerGoneError: the load generator's process exited.
        """
        names = record.prepared.backends
        before = self._at_rest(names)
        if stint.first:
            self._ended = self._failed = self._refused = 0
        self._made = -1 if stint.first and self.plan.warmup else 0
        self._emit_load(stint, LevelStarted(self.clock(), record.level))
        measured_from = self._run_from = before
        paused_s = 0.0
        try:
            if stint.first and self.plan.warmup:
                await self._run(stint, record, 0, Phase.WARMING_UP)
                # Counters are read at rest, so that the growth by the warm-up is not part of the level's
                # figures.
                self._made = 0
                if stint.load.depth:  # a warm-up without context says nothing about the requests with it
                    self._ended = self._failed = self._refused = 0
                paused_s = await self._pause(names)
                measured_from = self._run_from = self._at_rest(names)
            for run in self._numbers(stint, record):
                if self.brake.pulled:
                    break
                tells = await self._measure(stint, record, run)
                if record.prepared.names is not None and not tells:
                    await self._count_run(stint, record)
        finally:
            self.present = None
            self._emit_load(stint, LevelEnded(self.clock(), record.level))
        if not self.brake.pulled:
            began = self.clock()
            self.tell(self._phase(Phase.SETTLING, stint))
            record.unsettled = await self.settle(names) or record.unsettled
            self.estimate.learn_pause(paused_s + self.clock() - began)
            record.add_growth(before, measured_from, self.rest)

    async def _pause(self, names: tuple[str, ...]) -> float:
        """Wait until the servers are idle after a warm-up run; return the seconds that this took."""
        began = self.clock()
        if not self.brake.pulled:
            await self.settle(names)
        return self.clock() - began

    async def _count_run(self, stint: Stint, record: LevelRecord) -> None:
        """Enter into `record` how many requests of the last run each server finished, by its own counters.

        Called if the router's answers do not name backends. Do nothing for a level limited by a duration,
        because waiting for idle servers between runs would use up that duration.
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
        """Wait until the servers `names` are idle, and store the newest sample of each in `rest`.

        Return None, or a message for the user if a server is not idle when the time limit has passed.
        """
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
                count = (
                    "requests"
                    if point.running is None
                    else f"{point.running:.0f} request{'' if point.running == 1 else 's'}"
                )
                busy.append(f"{name} still ran {count}")
        what = ", ".join(busy) or "the counters of a server still moved"
        return f"{what} {limit_s:.0f} s after our last request ended: of others, or ours and not cancelled"

    def _numbers(self, stint: Stint, record: LevelRecord) -> Iterator[int]:
        """Yield the numbers of the stint's runs, from 0, as long as another run is to be made."""
        if stint.runs is not None:
            yield from stint.runs
            run = len(stint.runs)
            while run < MOST_RUNS and self.plan.more_runs and record.lasted_s < ENOUGH_S:
                yield run
                run += 1
            return
        end = self.clock() + (self.plan.duration_s or 0.0)
        run = 0
        while run == 0 or self.clock() < end:
            yield run
            run += 1

    async def _measure(self, stint: Stint, record: LevelRecord, run: int) -> bool:
        """Execute a measured run, after the one that sends its context; see `_run`."""
        if stint.load.depth:
            await self._run(stint, record, run, Phase.CONTEXT)
            if self.brake.pulled:
                return False
        return await self._run(stint, record, run, Phase.RUNNING)

    async def _run(self, stint: Stint, record: LevelRecord, run: int, phase: Phase) -> bool:
        """Execute one load run and enter it into `record`; return whether any answer named its backend.

        In the phase CONTEXT it sends what comes before the measured run number `run`.

        Raises:
            TargetFailedError: requests to the target fail for a reason that does not depend on the level.
            LevelRefusedError: the server rejected every request of the level.
            WorkerGoneError: the load generator's process exited.
        """
        warm_up, context = phase is Phase.WARMING_UP, phase is Phase.CONTEXT
        command = run_command(self.plan, self.sweep_id, stint, record, run, fit=self._fit, warm_up=warm_up)
        if context:
            command = context_command(command)
        uncounted = phase is not Phase.RUNNING
        self.tell(self._phase(phase, stint, run))
        if not uncounted:
            self.note_run(stint.target.name, stint.load, run)
        run_record = RunRecord(command.id)
        self.present, self.newest_data_at = record.prepared, self.clock()
        gone, refused = await self._send(stint, record, command, run_record, warm_up=uncounted)
        events = named(run_record.events(), record.prepared)
        record.add_run(run_record, events, warm_up=uncounted and not context, context=context)
        self.tell(RunTold(stint.target.name, stint.load, run, events, uncounted))
        if gone is not None:
            raise WorkerGoneError(gone.failure)
        if refused is not None and refused.failure.word != CANCELLED:
            raise TargetFailedError(refused.failure.message)
        if run_record.finished is not None and not run_record.finished.cancelled:
            self._learn(stint, run_record.finished, phase)
            self._check_run(stint.target.name, events)
        return any(isinstance(event, RequestEnded) and event.served_by is not None for event in events)

    async def _send(
        self, stint: Stint, record: LevelRecord, command: RunLoad, made: RunRecord, *, warm_up: bool
    ) -> tuple[WorkerEnded | None, Refused | None]:
        """Send a command for a run to the load generator, and enter its messages into `made`.

        Return (the end of the process, the refusal of the command), each None if it did not occur.
        """
        gone: WorkerEnded | None = None
        refused: Refused | None = None
        async for message in self.worker.run(command):
            made.add(message)
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
        return gone, refused

    def _learn(self, stint: Stint, finished: RunFinished, phase: Phase) -> None:
        """Count a complete run, and note its duration, with what came before it, to estimate the rest.

        The warm-up of an open loop is a single request, that of a level with depth has no context: their
        durations say nothing.
        """
        self._made += phase is Phase.RUNNING
        took_s = self._before_s + finished.ended_at - finished.started_at
        alone = not stint.load.depth and self.plan.mode is not LoadMode.OPEN
        if phase is Phase.RUNNING or (phase is Phase.WARMING_UP and alone):
            self.estimate.learn_run(stint.target.name, stint.load, took_s)
        self._before_s = took_s if phase is Phase.CONTEXT else 0.0

    @property
    def _fit(self) -> int | None:
        """The most connections that the limit of open files allows; None if unknown."""
        return self.worker.ready.most_connections if self.worker.ready is not None else None

    def _phase(self, phase: Phase, stint: Stint, run: int | None = None) -> PhaseChanged:
        runs = None if stint.runs is None else self.plan.runs_of(stint.load.concurrency)
        if stint.runs is not None and stint.first and stint.last:
            # A search makes more runs than the plan has, and a level of short runs may too.
            runs = max(self.estimate.runs_of(stint) or 0, 0 if run is None else run + 1)
        return PhaseChanged(phase, stint.target.name, stint.load, run, runs, self.left(self._made))

    def _emit_load(self, stint: Stint, event: LoadEvent) -> None:
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
                    self._refused += isinstance(event.error, RequestFailure) and is_refusal(event.error)
                    self._newest_failure = event.error.message
        if bins or any(isinstance(event, FirstToken | ResponseStarted) for event in events):
            self.newest_data_at = self.clock()
        target = stint.target.name
        self.tell(LoadTold(target, stint.load, tuple(events), bins, batch.in_flight, warm_up, batch.at))
        if self._refused < self._ended:  # otherwise the level is impossible, not the server broken
            self._stop(self.guard.check_requests(target, self._ended, self._failed, self._newest_failure))

    def _check_run(self, target: str, events: list[LoadEvent]) -> None:
        if self._ended and self._refused == self._ended:
            raise LevelRefusedError(self._newest_failure)
        ends = [event for event in events if isinstance(event, RequestEnded)]
        ok = sum(end.ok for end in ends)
        own = (end.error for end in ends if end.error is not None)
        if any(error.kind is FailureKind.UNSUPPORTED for error in own):
            return  # our own limit of open files says nothing about the server
        self._stop(self.guard.check_run(target, ok, count_errors(events), self._newest_failure))

    def check_reading(self, key: SourceKey, reading: Reading) -> None:
        """Stop the sweep if a sample or failure of a source of the present target violates a limit."""
        present = self.present
        if present is None:
            return
        reason: str | None = None
        if isinstance(reading, NodeSample) and key.name in present.nodes:
            reason = self.guard.check_node(key.name, node_point(reading))
        elif isinstance(reading, Failure) and key.kind is SourceKind.NODE and key.name in present.nodes:
            words = self.guard.check_failure(key.name, reading)
            if words is not None:
                self.tell(Notice(words))
        elif isinstance(reading, Failure) and key.kind is SourceKind.BACKEND:
            reason = self._silence(present)
        self._stop(reason)

    def _silence(self, present: PreparedTarget) -> str | None:
        """Return why to stop if no server of the target answers polls or sends data any more; else None."""
        silences = [self.log.silence(name) for name in present.backends]
        silent = [one for one in silences if one is not None]
        if not silent or len(silent) < len(silences):
            return None
        newest = max(silent, key=lambda one: one[0])
        return self.guard.check_silence(present.target.name, newest, self.newest_data_at, self.clock())

    def _stop(self, reason: str | None) -> None:
        if reason is not None:
            self.brake.pull("stopped_by_guard", reason)


def calibration_asked(found: Calibrated) -> Asked:
    """Return the counts of the tokens that the requests of a calibration asked for and received."""
    return Asked(
        generated=found.generated_tokens_used,
        prompt=found.prompt_tokens_used,
        most=max(found.generated_tokens_used, found.requests * (found.tried_tokens or 1)),
    )
