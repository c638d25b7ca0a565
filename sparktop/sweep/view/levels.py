"""The levels of a sweep's plan with the progress of each, updated from the events of the sweep.

A level is one load on one target; it is measured in several runs. In interleaved order the runs of
different levels alternate.
"""

from __future__ import annotations

from msgspec.structs import replace

from sparktop.model.load import LoadKind, LoadMode, LoadPoint
from sparktop.model.sweep_view import LevelKey, LevelState, PlannedLevel
from sparktop.sweep.plan.order import Load, loads
from sparktop.sweep.plan.plan import MOST_IN_FLIGHT, Order, Plan
from sparktop.sweep.result.results import LevelResult, PlanResult, SweepResult
from sparktop.sweep.run.progress import LevelMeasured, Phase, PhaseChanged, RunTold
from sparktop.sweep.terms.definitions import CUT_SHORT

_STATES = {
    Phase.WARMING_UP: LevelState.WARMING_UP,
    Phase.CONTEXT: LevelState.RUNNING,
    Phase.RUNNING: LevelState.RUNNING,
    Phase.SETTLING: LevelState.SETTLING,
}
_GOING_ON = frozenset(_STATES.values())


_OVER = frozenset({LevelState.DONE, LevelState.CUT_SHORT, LevelState.REFUSED})


def key_of(target: str, load: Load) -> LevelKey:
    """Return the key of the level that puts `load` on `target`."""
    length = None if load.own_prompts else load.prompt_tokens
    return LevelKey(target, load.concurrency, length, load.position, load.depth)


def result_key(target: str, level: LevelResult, prompt_tokens: int | None) -> LevelKey:
    """Return the key of a measured level.

    `prompt_tokens` is the plan's prompt length, used if the level itself states none.
    """
    length = level.pp if level.pp is not None else prompt_tokens
    position = None if level.load is LoadKind.CONCURRENCY else level.point
    return LevelKey(target, level.concurrency, length, position, level.depth)


def _key_at(target: str, point: LoadPoint, plan: PlanResult) -> LevelKey:
    """Return the key of a level of a stored plan."""
    if point.kind is LoadKind.CONCURRENCY:
        return LevelKey(target, int(point.value), plan.pp)
    most = MOST_IN_FLIGHT if point.kind is LoadKind.RATE else int(point.value)
    return LevelKey(target, most, plan.pp, point)


def planned(plan: Plan) -> list[LevelKey]:
    """Return the keys of a plan's levels in the order in which they begin.

    Return an empty list for a search, whose levels are not known in advance.
    """
    if plan.searches or plan.capacity is not None:
        return []
    names = [target.name for target in plan.targets]
    if plan.order is Order.ASCENDING:
        return [key_of(name, load) for name in names for load in loads(plan)]
    return [key_of(name, load) for load in loads(plan) for name in names]


class PlanLedger:
    """The progress of each level of a running sweep, updated from its events."""

    def __init__(self, plan: Plan) -> None:
        """Start with the levels of `plan`, none of which has begun."""
        self.plan = plan
        self.present: LevelKey | None = None
        """The level that is being measured; None before the first and between levels."""
        self._began_at: float | None = None
        """Time in monotonic seconds when the current run began; None between runs."""
        self._levels = {key: self._new(key) for key in planned(plan)}

    def levels(self, now: float, ended: int) -> tuple[PlannedLevel, ...]:
        """Return all levels with their progress at the time `now`, in the order of the plan.

        `ended` is the number of requests of the current run that have ended.
        """
        self._advance(now, ended)
        return tuple(self._levels.values())

    def change(self, event: PhaseChanged, now: float) -> None:
        """Record that the sweep entered another phase, such as warming up or running a level, at `now`."""
        if event.target is None or event.load is None:
            return
        key = key_of(event.target, event.load)
        state = _STATES.get(event.phase)
        if state is None:
            return
        before = self._levels.get(key) or self._new(key)
        if self.present not in {None, key}:
            self._leave()
        self.present = key
        self._began_at = now if event.phase is Phase.RUNNING else None
        self._enter(replace(before, state=state, runs=event.runs or before.runs))

    def _enter(self, level: PlannedLevel) -> None:
        """Store the new state of a level; insert a level that was not planned in order of concurrency.

        The order is that among the levels of the same target and prompt length; without these, the level
        comes last.
        """
        key = level.key
        alike = [
            one for one in self._levels if (one.target, one.prompt_tokens) == (key.target, key.prompt_tokens)
        ]
        if key in self._levels or not alike:
            self._levels[key] = level
            return
        found = list(self._levels.items())
        below = [one for one in alike if one.point < key.point]
        place = list(self._levels).index(below[-1]) + 1 if below else list(self._levels).index(alike[0])
        found.insert(place, (key, level))
        self._levels = dict(found)

    def run_over(self, event: RunTold) -> None:
        """Record that a run of a level has ended; warm-up runs are ignored."""
        key = key_of(event.target, event.load)
        level = self._levels.get(key)
        if level is None or event.warm_up:
            return
        done = level.runs_done + 1
        share = None if level.runs is None else min(1.0, done / level.runs)
        self._levels[key] = replace(level, runs_done=done, share=share)
        self._began_at = None

    def measured(self, event: LevelMeasured) -> None:
        """Record the result of a level, which is complete or was cut short."""
        key = result_key(event.target, event.level, event.result.plan.pp)
        level = self._levels.get(key) or self._new(key)
        cut = any(mark.code == CUT_SHORT for mark in event.level.validity)
        state = _measured_state(event.level, cut=cut)
        share = level.share if cut else 1.0
        self._levels[key] = replace(level, state=state, runs_done=event.level.runs, share=share)
        if self.present == key:
            self.present = None

    def ended(self, result: SweepResult) -> None:
        """Record the end of the sweep: give each unfinished level its final state.

        The state is `LEFT_OUT` if the level's target failed, else `CUT_SHORT` if the level had begun, else
        `NOT_MADE`.
        """
        self.present = None
        self._levels = {key: _at_end(level, result) for key, level in self._levels.items()}

    def left_out(self, target: str) -> None:
        """Mark the unfinished levels of `target` as left out: the sweep continues without this target."""
        for key, level in self._levels.items():
            if key.target == target and level.state not in _OVER:
                self._levels[key] = replace(level, state=LevelState.LEFT_OUT)

    def _new(self, key: LevelKey) -> PlannedLevel:
        return PlannedLevel(key, runs=self.plan.runs_of(key.concurrency), share=0.0)

    def _leave(self) -> None:
        """Mark the current level as partly done unless it is complete, because another level begins."""
        level = None if self.present is None else self._levels.get(self.present)
        if level is not None and level.state in _GOING_ON:
            self._levels[level.key] = replace(level, state=LevelState.PART)

    def _advance(self, now: float, ended: int) -> None:
        level = self._levels.get(self.present) if self.present is not None else None
        if level is None or level.state is not LevelState.RUNNING or self._began_at is None:
            return
        inside = self._inside_run(level.key.concurrency, now - self._began_at, ended)
        if level.runs is None:
            # Without a fixed number of runs, the completed share is unknown.
            return
        share = None if inside is None else min(1.0, (level.runs_done + inside) / level.runs)
        self._levels[level.key] = replace(level, share=share)

    def _inside_run(self, concurrency: int, since_s: float, ended: int) -> float | None:
        """Return the completed part (0 to 1) of the current run; None if unknown.

        `since_s` is the time in seconds since the run began, `ended` the number of its requests that have
        ended.
        """
        if self.plan.mode is LoadMode.BURST:
            return min(1.0, ended / concurrency)
        if self.plan.duration_s is not None:
            return min(1.0, since_s / self.plan.duration_s)
        return None if not self.plan.requests else min(1.0, ended / self.plan.requests)


def _measured_state(level: LevelResult, *, cut: bool) -> LevelState:
    if level.error is not None:
        return LevelState.REFUSED
    return LevelState.CUT_SHORT if cut else LevelState.DONE


def _at_end(level: PlannedLevel, result: SweepResult) -> PlannedLevel:
    if level.state in _OVER:
        return level
    target = result.target(level.key.target)
    if target is not None and target.error is not None:
        return replace(level, state=LevelState.LEFT_OUT)
    started = level.state is not LevelState.AHEAD
    return replace(level, state=LevelState.CUT_SHORT if started else LevelState.NOT_MADE)


def stored_levels(result: SweepResult) -> tuple[PlannedLevel, ...]:
    """Return the levels of a stored result with their state, also those planned but not measured."""
    plan = result.plan
    searched = result.slo is not None or result.capacity is not None
    made: dict[LevelKey, PlannedLevel] = {}
    for target in result.targets:
        for level in target.levels if searched else target.in_order():
            key = result_key(target.name, level, plan.pp)
            cut = any(mark.code == CUT_SHORT for mark in level.validity)
            state = _measured_state(level, cut=cut)
            share = level.runs / plan.runs if cut and plan.runs else 1.0
            made[key] = PlannedLevel(key, state, level.runs, plan.runs, min(1.0, share))
    if searched or plan.pp is None:
        return tuple(made.values())
    names = plan.targets or tuple(target.name for target in result.targets)
    keys = [_key_at(name, point, plan) for name in names for point in plan.axis]
    if plan.order is Order.ABBA:
        keys.sort(key=lambda key: key.point)
    ahead = [_at_end(PlannedLevel(key, runs=plan.runs, share=0.0), result) for key in keys if key not in made]
    known = {level.key: level for level in (*made.values(), *ahead)}
    return (*(known[key] for key in keys), *(level for key, level in made.items() if key not in set(keys)))
