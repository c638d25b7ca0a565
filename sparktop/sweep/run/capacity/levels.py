"""Measures the levels that a capacity search chooses on one target, and stores the answer after each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.model.load import LoadKind, LoadPoint
from sparktop.model.time_range import TimeRange
from sparktop.sweep.plan.capacity import Pace, level_plan, longest_seconds
from sparktop.sweep.plan.order import Stint, level_of, load_at
from sparktop.sweep.plan.plan import Capacity, Plan
from sparktop.sweep.result.results import CapacityAnswer, LevelResult
from sparktop.sweep.run.capacity.answer import JudgedRun, capacity_answer, capacity_result, drift_of
from sparktop.sweep.run.capacity.judgement import Judged, judge
from sparktop.sweep.run.capacity.search import CapacitySearch, Probe
from sparktop.sweep.run.drift import value_to_repeat
from sparktop.sweep.run.level.maker import LevelMaker, LevelRefusedError, TargetFailedError
from sparktop.sweep.run.level.record import LevelRecord
from sparktop.sweep.run.open_loop.knee import alone_per_s
from sparktop.sweep.run.preparation import PreparedTarget
from sparktop.sweep.run.progress import CapacityTold, Phase, PhaseChanged
from sparktop.sweep.run.result_book import ResultBook
from sparktop.sweep.run.worker_process import SweepWorker

LEVEL_OVERHEAD = 1.25
"""Duration of a level with its start, its end and the rest after it, in its measured time."""

Make = Callable[[LevelMaker, Stint, LevelRecord], Awaitable[LevelResult | None]]
"""Executes a stint and stores its result; None if nothing was measured."""


async def find_capacities(
    maker: LevelMaker,
    targets: Iterable[PreparedTarget],
    worker: SweepWorker,
    book: ResultBook,
    make: Make,
) -> None:
    """Search for the largest load on one target after the other; `book` gets the answers."""
    for prepared in targets:
        if not maker.brake.pulled:
            await CapacityLevels(maker, prepared, make, book).run(worker)


class CapacityLevels(Struct, eq=False):
    """The levels of a search on one target; call `run` once."""

    maker: LevelMaker
    prepared: PreparedTarget
    make: Make
    book: ResultBook
    """Gets the answer so far after each run."""
    _records: dict[float, LevelRecord] = field(default_factory=dict)
    _levels: dict[float, LevelResult] = field(default_factory=dict)
    _pace: Pace = field(default_factory=Pace)
    _runs: dict[float, list[JudgedRun]] = field(default_factory=dict)
    """The runs of each level by its load, in order."""
    _newest: float | None = None
    """The load of the newest run."""

    async def run(self, worker: SweepWorker) -> None:
        """Measure levels until the largest load under which the conditions hold is found.

        `worker` sends requests one after the other first, where the search is for a rate.
        """
        plan = self.maker.plan
        capacity = plan.capacity
        assert capacity is not None  # noqa: S101 - the caller's reason to search
        fit = None if worker.ready is None else worker.ready.most_connections
        if fit is not None and capacity.kind is not LoadKind.RATE:
            capacity = replace(capacity, most=min(capacity.most, float(fit)))
        first = await self._first(plan, worker) if capacity.kind is LoadKind.RATE else 1.0
        search = CapacitySearch(capacity, first)
        try:
            while (probe := search.next()) is not None and not self.maker.brake.pulled:
                self._expect(search, plan, probe)
                judged = await self._measure(capacity, plan, probe)
                if judged is None:
                    break
                search.add(probe.point.value, judged)
                self._store(capacity_answer(search, self._levels, complete=False))
        finally:
            self.maker.plan = plan
        ended = search.next() is None and not self.maker.brake.pulled
        if ended:
            await self._again(capacity, plan, search)
        if search.judged:
            self._store(capacity_answer(search, self._levels, complete=ended, drift=drift_of(self._runs)))

    async def _again(self, capacity: Capacity, plan: Plan, search: CapacitySearch) -> None:
        """Measure the largest level again that held in its first run, unless it was measured last.

        Its run is not counted for the answer: it shows whether the server is what it was at the start.
        """
        held = {value: runs[0].judged.holds for value, runs in self._runs.items()}
        value = value_to_repeat(held, search.holds, self._newest)
        if value is None:
            return
        try:
            await self._measure(
                capacity, plan, Probe(LoadPoint(capacity.kind, value), len(self._runs[value]), decides=True)
            )
        finally:
            self.maker.plan = plan

    def _store(self, answer: CapacityAnswer) -> None:
        capacity = self.maker.plan.capacity
        if capacity is not None:
            self.book.capacity(capacity_result(capacity, {self.prepared.target.name: answer}))
            if (found := self.book.result.capacity) is not None:
                self.maker.tell(CapacityTold(found))

    async def _first(self, plan: Plan, worker: SweepWorker) -> float:
        """Return the rate of requests one after the other, with which the search begins."""
        maker, prepared = self.maker, self.prepared
        name = prepared.target.name
        maker.tell(PhaseChanged(Phase.PREPARING, name))
        alone = await alone_per_s(plan, prepared, worker, f"{maker.sweep_id}-{name}")
        await maker.settle(prepared.backends)
        self._pace = Pace(None if alone is None else 1 / alone)
        return alone or 1.0

    async def _measure(self, capacity: Capacity, plan: Plan, probe: Probe) -> Judged | None:
        """Make one run of a level; return the judgement by all its runs, None if it was not completed."""
        value = probe.point.value
        made = self.maker.plan = level_plan(plan, probe.point, self._pace, decides=probe.decides)
        load = load_at(plan, probe.point, plan.pp)
        first = probe.run == 0
        record = self._records.get(value)
        if record is None:
            level = level_of(made, self.prepared.target, load)
            record = self._records[value] = LevelRecord(made, self.prepared, level)
        record.level = replace(record.level, runs=probe.run + 1)
        stint = Stint(self.prepared.target, load, (probe.run,), first=first, last=True)
        try:
            found = await self.make(self.maker, stint, record)
        except (TargetFailedError, LevelRefusedError) as error:
            self.book.target_failed(self.prepared.target.name, str(error))
            return None
        if found is None or self.maker.brake.pulled:
            return None
        self._levels[value] = found
        loop = found.open_loop
        unstable = "" if loop is None or not (loop.unstable or loop.overloaded) else _unstable_words(found)
        judged = judge(capacity, record.traces, max_error_share=made.max_error_share, unstable=unstable)
        own = [one for one in record.traces if one.run == probe.run]
        alone = judge(capacity, own, max_error_share=made.max_error_share)
        self._runs.setdefault(value, []).append(JudgedRun(alone, datetime.now(UTC)))
        self._newest = value
        seconds = (made.duration_s or 0.0) * record.level.runs
        self._pace = self._pace.after(judged.median_s, judged.requests, value, seconds)
        return judged

    def _expect(self, search: CapacitySearch, plan: Plan, probe: Probe) -> None:
        """Set how long the search may go on, which the maker announces with the levels.

        At a slow rate the run `probe` lasts longer than the plan's levels, and those after it about as long.
        """
        next_s = level_plan(plan, probe.point, self._pace, decides=probe.decides).duration_s or 0.0
        is_rate = probe.point.kind is LoadKind.RATE
        each_s = LEVEL_OVERHEAD * (next_s if is_rate and probe.decides else plan.duration_s or 0.0)
        usual, most = search.levels_left(), search.runs_left()
        longest_s = LEVEL_OVERHEAD * max(longest_seconds(plan), next_s)
        self.maker.left = lambda made: TimeRange(
            max(0.0, (min(usual, most) - made) * each_s), max(longest_s, (most - made) * longest_s)
        )


def _unstable_words(level: LevelResult) -> str:
    loop = level.open_loop
    if loop is None:
        return ""
    if loop.unstable:
        return f"unstable: {loop.growth_words}" if loop.growth_words else "unstable"
    return f"{loop.in_flight_limit} requests in flight, the limit of the client"
