"""The sweep: prepares targets, measures one level after the other, judges and stores the results.

The runner does not poll: samples of servers and machines come from the store, which polls them anyway. It
does not depend on the user interface: listeners receive its events.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic

from sparktop.errors import SparktopError, UsageError
from sparktop.model.judgement import USEFUL_RUNS
from sparktop.model.load import Level, LoadMode, LoadPoint, concurrency_point
from sparktop.model.targets import ModelFacts
from sparktop.model.text import with_subject
from sparktop.store import Reading, SourceKey, Store
from sparktop.sweep.compare.ratio import LEAST_RUNS as LEAST_RATIO_RUNS
from sparktop.sweep.generator.connection import limit_message
from sparktop.sweep.plan.capacity import with_fitting_conversations
from sparktop.sweep.plan.plan import Plan, RunBatch, run_batches, run_numbers
from sparktop.sweep.plan.slo import MOST_CONCURRENCY, rises, runs_needed
from sparktop.sweep.result.level import refused_level
from sparktop.sweep.result.results import LevelResult, SweepResult, level_of
from sparktop.sweep.run.capacity import (
    CapacityLevels,
    measured_again,
    pace_drift,
    rate_drift,
    times_apart,
    value_to_repeat,
)
from sparktop.sweep.run.forecast import Estimate
from sparktop.sweep.run.guard import Cancellation, GuardWatch, guard_words
from sparktop.sweep.run.judgement import Verdict, judge_level
from sparktop.sweep.run.level import LevelMaker, LevelRecord, LevelRefusedError, TargetFailedError
from sparktop.sweep.run.preparation import PreparedTarget, prepare, with_late_yardsticks
from sparktop.sweep.run.progress import (
    Notice,
    PhaseChanged,
    ResultChanged,
    SweepEvent,
    SweepPhase,
)
from sparktop.sweep.run.result_builder import ResultBuilder
from sparktop.sweep.run.search import (
    RateSearch,
    SloSearch,
    keeps_up,
    most_per_s,
    next_step,
    top_of,
)
from sparktop.sweep.run.server_side import ServerLog, are_all_sampled, watched_contexts
from sparktop.sweep.run.worker_process import SweepWorker, WorkerGoneError

FIRST_SAMPLE_S = 5.0
"""Maximum seconds to wait for a first sample of the watched servers and machines before the first request."""
_VERDICT_WORDS = {Verdict.HOLDS: "holds", Verdict.UNSURE: "may hold", Verdict.FAILS: "does not hold"}
"""How a notice states a verdict on a level."""


class SweepRunner:
    """Executes one sweep; call `run` once."""

    def __init__(
        self,
        plan: Plan,
        feed: Store,
        *,
        models: Mapping[str, ModelFacts] | None = None,
        save: Callable[[SweepResult], None] | None = None,
        simulated: bool = False,
        start_worker: Callable[[], Awaitable[SweepWorker]] = SweepWorker.start,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Prepare a sweep of `plan` with samples from `feed`; nothing is sent before `run`.

        `models` maps model names to known facts. `save` is called with the result after each level and at the
        end. If `save` raises a `SparktopError`, a notice is sent and the sweep continues.
        """
        self._plan = plan
        self._feed = feed
        self._models = models or {}
        self._save = save
        self._start_worker = start_worker
        self._clock = clock
        self._now = now
        self._log = ServerLog(clock=clock, thresholds=feed.thresholds.nodes)
        self._cancellation = Cancellation()
        self._guard = GuardWatch(plan.guard)
        self._estimate = Estimate(plan)
        self._builder = ResultBuilder(plan, now(), simulated=simulated)
        self._maker: LevelMaker | None = None
        self._listeners: list[Callable[[SweepEvent], None]] = []
        self._repeated: dict[Level, LevelResult] = {}
        """Results of levels that are measured again after those of their length."""
        self._todo: list[RunBatch] = []
        """The present batch and all that follow it."""
        self._calling_off: asyncio.Task[None] | None = None

    @property
    def result(self) -> SweepResult:
        """The sweep's result so far."""
        return self._builder.result

    def listen(self, listener: Callable[[SweepEvent], None]) -> None:
        """Call `listener` with each event, on the event loop; it must not raise or block."""
        self._listeners.append(listener)

    def cancel(self, reason: str = "cancelled") -> None:
        """Request the end of the sweep: requests in flight end within half a second, results are kept."""
        self._cancellation.request("cancelled", reason)

    async def run(self) -> SweepResult:
        """Execute the sweep and return its result, which also records failures of targets and the generator.

        Raises:
            UsageError: the limit of open files does not allow the connections of the plan.
        """
        end_listening = self._feed.listen(self._take_reading)
        try:
            worker = await self._start_worker()
            self._cancellation.on_request = lambda: self._call_off(worker)
            async with worker:
                highest, fit = self._plan.highest_concurrency, worker.most_connections
                if fit is not None and highest > fit and self._plan.mode is not LoadMode.OPEN:
                    raise UsageError(limit_message(highest, fit))
                if self._is_stopped():
                    self._call_off(worker)
                await self._measure_all(worker)
                if self._calling_off is not None:
                    await self._calling_off
        except WorkerGoneError as error:
            self._cancellation.request("failed", str(error))
        finally:
            end_listening()
        return self._finish()

    async def _measure_all(self, worker: SweepWorker) -> None:
        targets = {
            prepared.target.name: prepared
            for prepared in await self._prepare(worker)
            if prepared.result.error is None
        }
        if not targets or self._is_stopped():
            return
        maker = self._maker = self._new_maker(worker)
        self._emit(PhaseChanged(SweepPhase.SETTLING))
        for name, prepared in targets.items():
            trouble = await maker.settle(prepared.backends)
            if trouble is not None and not self._is_stopped():
                self._emit(Notice(f"{name}: {trouble}; the load of other clients is in these figures"))
        if self._plan.capacity is not None:
            for prepared in targets.values():
                if not self._is_stopped():
                    await CapacityLevels(maker, prepared, self._measure_batch, self._builder).run()
        elif self._plan.searches_concurrency_or_rate:
            for prepared in targets.values():
                await self._search(maker, prepared)
        else:
            await self._measure_levels(maker, targets)

    async def _prepare(self, worker: SweepWorker) -> list[PreparedTarget]:
        """Prepare the targets of the plan, store what is known of each, and announce the limits of the guard.

        Stop early if the sweep is stopped.
        """
        await self._log.wait_for(
            lambda: self._is_stopped() or are_all_sampled(self._plan, self._feed.snapshot(), self._log),
            FIRST_SAMPLE_S,
        )
        self._fit_conversations()
        targets: list[PreparedTarget] = []
        for target in self._plan.targets:
            if self._is_stopped():
                break
            self._emit(PhaseChanged(SweepPhase.PREPARING, target.name))
            prepared = await prepare(
                self._plan,
                target,
                worker,
                self._feed.snapshot,
                lambda words: self._emit(Notice(words)),
            )
            if self._is_stopped():
                break
            self._builder.enter_target(prepared)
            for note in prepared.notes:
                self._emit(Notice(note))
            if prepared.result.error is not None and len(self._plan.targets) > 1:
                self._emit(Notice(f"left out: {with_subject(target.name, prepared.result.error)}"))
            targets.append(prepared)
        snapshot = self._feed.snapshot()
        self._builder.mark_simulated(simulated=snapshot.simulated)
        nodes = {
            prepared.target.name: prepared.nodes for prepared in targets if prepared.result.error is None
        }
        if nodes:
            words = guard_words(self._plan.guard, nodes, snapshot.nodes)
            self._builder.enter_guard(words)
            self._emit(Notice(words, is_guard=True))
        return targets

    def _fit_conversations(self) -> None:
        """Fit the plan to the context of its servers, which is known by now, unless the user chose."""
        plan, words = with_fitting_conversations(
            self._plan, watched_contexts(self._plan, self._feed.snapshot())
        )
        if words:
            self._plan = plan
            self._estimate = Estimate(plan)
            self._builder = ResultBuilder(plan, self.result.started_at, simulated=self.result.simulated)
            self._emit(plan)
            self._emit(Notice(words))

    def _new_maker(self, worker: SweepWorker) -> LevelMaker:
        return LevelMaker(
            plan=self._plan,
            worker=worker,
            log=self._log,
            cancellation=self._cancellation,
            guard=self._guard,
            estimate=self._estimate,
            emit=self._emit,
            note_run=lambda level, run: self._builder.enter_run(level, run, self._now()),
            # Prompts depend on it, so that two sweeps never send the same ones.
            sweep_id=secrets.token_hex(4),
            interval_s=self._feed.snapshot().interval_s,
            left=lambda made: (
                None if self._plan.searches_concurrency_or_rate else self._estimate.range_s(self._todo, made)
            ),
            clock=self._clock,
        )

    async def _measure_levels(self, maker: LevelMaker, targets: dict[str, PreparedTarget]) -> None:
        """Measure the levels of the plan, and those that `_add_level` adds, until all have ended.

        A target that fails is left out from then on; of a level that its server refuses only that is stored,
        before the first level where the preparation has shown it.
        """
        plan = self._plan
        self._todo = list(run_batches(plan, targets))
        for batch in {batch.level: batch for batch in self._todo}.values():
            words = targets[batch.level.target].refused.get(plan.length_of(batch.level))
            if words is not None:
                await self._enter_refused(batch, words)
        for name, prepared in targets.items():
            for length in prepared.extra_lengths:
                extra = [plan.level(name, point, length) for point in plan.axis]
                self._todo += [RunBatch(level, run_numbers(plan, level)) for level in extra]
        if plan.climb_to is not None:  # more requests than slots would only wait
            fit = maker.worker.most_connections or plan.climb_to
            slots = {name: prepared.result.slots or plan.climb_to for name, prepared in targets.items()}
            self._estimate.most = {name: min(plan.climb_to, count, fit) for name, count in slots.items()}
        records: dict[Level, LevelRecord] = {}
        while self._todo and not self._is_stopped():
            batch = self._todo[0]
            prepared, name = targets[batch.level.target], batch.level.target
            record = records.setdefault(batch.level, LevelRecord(plan, prepared, batch.level))
            try:
                await self._measure_next(maker, batch, record)
            except TargetFailedError as error:
                self._leave_out(name, error)
            except LevelRefusedError as error:
                await self._enter_refused(batch, str(error))
            if batch.last:
                self._drop_records(records, batch.level)

    async def _measure_next(self, maker: LevelMaker, batch: RunBatch, record: LevelRecord) -> None:
        """Measure the first batch to do; after the last one of its level, decide what follows.

        Raises:
            TargetFailedError: requests to the target fail for a reason that does not depend on the level.
            LevelRefusedError: the server rejects the prompts of the level.
        """
        await self._measure_batch(maker, batch, record)
        self._todo.pop(0)
        if not batch.last:
            return
        if (first := self._repeated.pop(batch.level, None)) is not None:
            await self._enter_drift(batch.level.target, first, record)
        else:
            self._add_level(batch.level)

    def _leave_out(self, name: str, error: Exception) -> None:
        """Store and report why the target `name` is measured no further."""
        self._builder.enter_failure(name, str(error))
        self._emit(Notice(f"{name} is left out: {error}"))
        self._todo = [batch for batch in self._todo if batch.level.target != name]

    def _drop_records(self, records: dict[Level, LevelRecord], newest: Level) -> None:
        """Drop the records of ended levels on a target, and all samples that no record needs any more.

        While the levels of a prompt length go on to higher concurrencies, any of them may be measured again.
        """
        left = {batch.level for batch in self._todo if batch.level.target == newest.target}
        if self._plan.climb_to is None or not any(level.pp == newest.pp for level in left):
            for ended in [level for level in records if level.target == newest.target and level not in left]:
                del records[ended]
        starts = [record.spans[0][0] for record in records.values() if record.spans]
        self._log.forget(min(starts, default=self._clock()))

    def _add_level(self, newest: Level) -> None:
        """After the last planned level of a prompt length on a target, add the one that `next_step` suggests.

        Where it suggests none, its reason is sent as a notice, and the best level is added once more. Do
        nothing without `climb_to` in the plan.
        """
        name, length = newest.target, newest.pp
        limit = self._estimate.most.get(name)
        target = self.result.target(name)
        has_more = any((batch.level.target, batch.level.pp) == (name, length) for batch in self._todo)
        if limit is None or has_more or target is None or self._is_stopped():
            return
        levels = [level for level in target.levels if level.pp == length]
        concurrency, words = next_step(levels, limit, self._plan.max_error_share, target.slots)
        if words:
            self._emit(Notice(f"{name}: {words}"))
        if concurrency is not None:
            more = self._plan.level(name, concurrency_point(concurrency), length)
            self._todo.insert(0, RunBatch(more, run_numbers(self._plan, more)))
        else:
            self._repeat_best(newest, levels)

    def _repeat_best(self, newest: Level, levels: Sequence[LevelResult]) -> None:
        """After the levels of a prompt length, add the best of them again, unless it was measured last."""
        best = top_of(levels)
        holds_by_point = {
            level.concurrency: best is not None and level.concurrency <= best.concurrency for level in levels
        }
        last = newest.point.concurrency
        again = value_to_repeat(holds_by_point, None if best is None else best.concurrency, last)
        if best is None or again is None:
            return
        level = self._plan.level(newest.target, concurrency_point(again), newest.pp)
        runs = run_numbers(self._plan, level)
        if runs is None or len(runs) < LEAST_RATIO_RUNS:
            return
        self._repeated[level] = best
        more = tuple(best.runs + run for run in runs)
        self._todo.insert(0, RunBatch(level, more, first=False))

    async def _enter_drift(self, name: str, first: LevelResult, record: LevelRecord) -> bool:
        """Store and report how a level differs from its `first` result, now that it was measured again.

        Return whether it does. It does not if no run was added to its `record`, or the sweep was stopped.
        """
        if record.runs <= first.runs or self._is_stopped():
            return False
        began = [record.spans[run][0] for run in (0, first.runs)]
        times = times_apart(*(self._now() - timedelta(seconds=self._clock() - at) for at in began))
        last = measured_again(first, record)
        words = rate_drift(first, last, times)
        if self._plan.search_rate:
            words = pace_drift(first, last, times, self._plan.max_error_share)
        target = self.result.target(name)
        levels = () if target is None else target.levels
        level = next((level for level in levels if level_of(level) == level_of(first)), None)
        if words is None or level is None:
            return False
        self._builder.enter_drift(name, level, words)
        await asyncio.to_thread(self._save_now)
        self._emit(Notice(f"{name}: {words}"))
        return True

    async def _enter_refused(self, batch: RunBatch, words: str) -> None:
        """Store a level that the server refuses, with `words` as error; save, and skip the level's runs.

        A level that it refuses only when it is measured again keeps its first result.
        """
        name = batch.level.target
        if self._repeated.pop(batch.level, None) is not None:
            self._todo.pop(0)
            return
        level = self._builder.enter_level(name, refused_level(batch.level, words), ())
        self._todo = [later for later in self._todo if later.level != batch.level]
        await asyncio.to_thread(self._save_now)
        self._emit(ResultChanged(self.result, name, level))

    async def _search(self, maker: LevelMaker, prepared: PreparedTarget) -> None:
        """Measure levels on one target until the limit that the plan looks for is found.

        That is the range of concurrencies in which its SLO conditions hold, or the highest rate that the
        target keeps up with. At the end the highest level that held is measured again: the server may have
        changed meanwhile.
        """
        name = prepared.target.name
        search = await self._begin_search(maker, prepared)
        held: dict[float, bool] = {}
        best: tuple[LevelResult, LevelRecord] | None = None  # one record: each has the times of all tokens
        while not self._is_stopped():
            value = search.next()
            if value is None:
                break
            measured = await self._measure_searched(maker, prepared, LoadPoint(self._plan.kind, value))
            if measured is None:
                return
            held[value], words = self._judge_searched(name, search, *measured)
            if held[value] and value >= max(load for load, holds in held.items() if holds):
                best = measured
            if words:
                self._emit(Notice(f"{name}: {words}"))
        again = value_to_repeat(held, search.holds_to, next(reversed(held), None))
        if again is not None and best is not None and not self._is_stopped():
            first, record = best
            measured = await self._measure_searched(maker, prepared, first.point, record)
            if measured is not None:
                is_same = not await self._enter_drift(name, first, record)
                self._judge_searched(name, search, *measured, is_certain=is_same)
        if isinstance(search, RateSearch):
            self._emit(Notice(f"{name}: {search.words()}"))

    async def _begin_search(self, maker: LevelMaker, prepared: PreparedTarget) -> SloSearch | RateSearch:
        """Return the search of the plan.

        A search for a rate begins at that of requests sent one after the other, which is measured.
        """
        plan, name = self._plan, prepared.target.name
        if plan.search_rate:
            return RateSearch(await maker.measure_alone(prepared), most_per_s(plan))
        limit = min(MOST_CONCURRENCY, maker.worker.most_connections or MOST_CONCURRENCY)
        if plan.runs < USEFUL_RUNS:
            few = f"each level gets {USEFUL_RUNS} runs: fewer have no interval to judge by"
            self._emit(Notice(f"{name}: {few}"))
        of_server = [rises(condition) for condition in plan.slo]
        return SloSearch(plan.concurrency, limit, falls=not all(of_server), rises=any(of_server))

    def _judge_searched(
        self,
        name: str,
        search: SloSearch | RateSearch,
        level: LevelResult,
        record: LevelRecord,
        *,
        is_certain: bool = True,
    ) -> tuple[bool, str]:
        """Add a level to the search on the target `name`, and store the range that this has found so far.

        Return (whether what is searched for holds at the level, the verdict for the user). `is_certain` is
        False for a server that changed meanwhile.
        """
        plan = self._plan
        if isinstance(search, RateSearch):
            kept_up = keeps_up(level, plan.max_error_share)
            search.add(level.point.value, kept_up=kept_up)
            return kept_up, ""
        judged = judge_level(plan.slo, level, record.traces, plan.max_error_share)
        search.add(level.concurrency, judged)
        self._builder.enter_slo_range(name, search, is_certain=is_certain)
        words = f"with c = {level.concurrency} the SLO {_VERDICT_WORDS[judged.both]}: {judged.why}"
        return judged.both is Verdict.HOLDS, words

    async def _measure_searched(
        self,
        maker: LevelMaker,
        prepared: PreparedTarget,
        point: LoadPoint,
        again: LevelRecord | None = None,
    ) -> tuple[LevelResult, LevelRecord] | None:
        """Measure the level at `point`, which a search chose; None if the target failed or the sweep ended.

        Measured once more, its new runs are added to the record `again`.
        """
        plan = self._plan
        level = plan.level(prepared.target.name, point)
        runs = plan.runs if plan.search_rate else runs_needed(plan, point.most_in_flight)
        first_run = 0 if again is None else again.runs
        batch = RunBatch(level, tuple(range(first_run, first_run + runs)), first=again is None)
        record = again or LevelRecord(plan, prepared, level)
        try:
            result = await self._measure_batch(maker, batch, record)
        except (TargetFailedError, LevelRefusedError) as error:
            self._leave_out(prepared.target.name, error)
            return None
        return None if self._is_stopped() or result is None else (result, record)

    async def _measure_batch(
        self, maker: LevelMaker, batch: RunBatch, record: LevelRecord
    ) -> LevelResult | None:
        """Execute a batch of runs; save and return the level's result (None: nothing was measured)."""
        try:
            await maker.make(batch, record)
        except WorkerGoneError as error:
            self._cancellation.request("failed", str(error))
        if self._is_stopped():
            record.facts.cut_short = f"the sweep ended within this level: {self._cancellation.reason}"
        if not (record.runs or record.cut):
            return None
        record.prepared = with_late_yardsticks(record.prepared, self._feed.snapshot())
        # In a thread, because a hundred thousand tokens take long enough to freeze a screen.
        result = await asyncio.to_thread(record.result, self._log, self._models)
        level = self._builder.enter_level(batch.level.target, result, record.facts.health)
        await asyncio.to_thread(self._save_now)
        if batch.last or self._is_stopped():
            self._emit(ResultChanged(self.result, batch.level.target, level))
        return level

    def _finish(self) -> SweepResult:
        cancellation = self._cancellation
        reachable = [target for target in self.result.targets if target.error is None]
        if cancellation.status is not None:
            self._builder.finish(cancellation.status, cancellation.reason, self._now())
        elif not reachable:
            errors = "; ".join(
                with_subject(target.name, target.error) for target in self.result.targets if target.error
            )
            self._builder.finish("failed", f"nothing was measured: {errors}", self._now())
        else:
            self._builder.finish("done", None, self._now())
        self._builder.mark_simulated(simulated=self._feed.snapshot().simulated)
        self._save_now()
        self._emit(ResultChanged(self.result))
        return self.result

    def _save_now(self) -> None:
        if self._save is None:
            return
        try:
            self._save(self.result)
        except SparktopError as error:
            self._emit(Notice(str(error)))

    def _is_stopped(self) -> bool:
        return self._cancellation.requested

    def _call_off(self, worker: SweepWorker) -> None:
        self._calling_off = asyncio.get_running_loop().create_task(worker.cancel())
        self._log.wake()

    def _emit(self, event: SweepEvent) -> None:
        for listener in self._listeners:
            listener(event)

    def _take_reading(self, key: SourceKey, reading: Reading) -> None:
        """Store a sample or failure of a source; stop the sweep if it violates a limit of the guard."""
        self._log.accept(key, reading)
        if self._maker is not None and not self._is_stopped():
            self._maker.check_reading(key, reading)
