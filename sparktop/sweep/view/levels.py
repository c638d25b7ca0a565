"""The levels of a plan with the state of each, updated from the events of a sweep."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sparktop.model.load import LoadMode
from sparktop.model.sweep_view import LevelKey, LevelState, PlannedLevel
from sparktop.sweep.plan.order import Load, loads
from sparktop.sweep.plan.plan import Order, Plan
from sparktop.sweep.result.results import LevelResult, SweepResult
from sparktop.sweep.run.progress import LevelMeasured, Phase, PhaseChanged, RunTold
from sparktop.sweep.terms.doubts import CUT_SHORT

_STATES = {
    Phase.WARMING_UP: LevelState.WARMING_UP,
    Phase.RUNNING: LevelState.RUNNING,
    Phase.SETTLING: LevelState.SETTLING,
}
_GOING_ON = frozenset(_STATES.values())


_OVER = frozenset({LevelState.DONE, LevelState.CUT_SHORT, LevelState.REFUSED})


def key_of(target: str, load: Load) -> LevelKey:
    """Return the key of a load on a target."""
    return LevelKey(target, load.concurrency, load.prompt_tokens)


def result_key(target: str, level: LevelResult, prompt_tokens: int | None) -> LevelKey:
    """Return the key of a level of a result; `prompt_tokens` is the plan's, for a level that has none."""
    return LevelKey(target, level.concurrency, level.pp if level.pp is not None else prompt_tokens)


def planned(plan: Plan) -> list[LevelKey]:
    """Return the levels of a plan in the order in which they begin; empty for a search for SLO limits."""
    if plan.slo:
        return []
    names = [target.name for target in plan.targets]
    if plan.order is Order.ASCENDING:
        return [key_of(name, load) for name in names for load in loads(plan)]
    return [key_of(name, load) for load in loads(plan) for name in names]


@dataclass(slots=True, eq=False)
class PlanLedger:
    """Keep the state of each level of a running sweep."""

    plan: Plan
    _levels: dict[LevelKey, PlannedLevel] = field(init=False)
    _began_at: float | None = None
    """Time when the present run began; None between runs."""
    present: LevelKey | None = None

    def __post_init__(self) -> None:
        self._levels = {key: self._new(key) for key in planned(self.plan)}

    def levels(self, now: float, ended: int) -> tuple[PlannedLevel, ...]:
        """Return all levels with their progress; `ended` requests of the present run are over."""
        self._advance(now, ended)
        return tuple(self._levels.values())

    def change(self, event: PhaseChanged, now: float) -> None:
        """Record a change of phase."""
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
        self._began_at = now if state is LevelState.RUNNING else None
        self._levels[key] = replace(before, state=state, runs=event.runs or before.runs)

    def run_over(self, event: RunTold) -> None:
        """Record the end of a run; warm-up runs do not count."""
        key = key_of(event.target, event.load)
        level = self._levels.get(key)
        if level is None or event.warm_up:
            return
        done = level.runs_done + 1
        share = None if level.runs is None else min(1.0, done / level.runs)
        self._levels[key] = replace(level, runs_done=done, share=share)
        self._began_at = None

    def measured(self, event: LevelMeasured) -> None:
        """Record that a level is measured."""
        key = result_key(event.target, event.level, event.result.plan.pp)
        level = self._levels.get(key) or self._new(key)
        cut = any(mark.code == CUT_SHORT for mark in event.level.validity)
        state = _measured_state(event.level, cut=cut)
        share = level.share if cut else 1.0
        self._levels[key] = replace(level, state=state, runs_done=event.level.runs, share=share)
        if self.present == key:
            self.present = None

    def ended(self, result: SweepResult) -> None:
        """Record the end of the sweep: levels that have not begun will not be made."""
        self.present = None
        self._levels = {key: _at_end(level, result) for key, level in self._levels.items()}

    def left_out(self, target: str) -> None:
        """Record that a target was dropped: its unfinished levels are left out."""
        for key, level in self._levels.items():
            if key.target == target and level.state not in _OVER:
                self._levels[key] = replace(level, state=LevelState.LEFT_OUT)

    def _new(self, key: LevelKey) -> PlannedLevel:
        return PlannedLevel(key, runs=self.plan.runs_of(key.concurrency), share=0.0)

    def _leave(self) -> None:
        """Mark the present level as partly done: another level continues while this one has runs left."""
        level = None if self.present is None else self._levels.get(self.present)
        if level is not None and level.state in _GOING_ON:
            self._levels[level.key] = replace(level, state=LevelState.PART)

    def _advance(self, now: float, ended: int) -> None:
        level = self._levels.get(self.present) if self.present is not None else None
        if level is None or level.state is not LevelState.RUNNING or self._began_at is None:
            return
        inside = self._inside_run(level.key.concurrency, now - self._began_at, ended)
        if level.runs is None:
            # Without a fixed number of runs, only the time says how much is done.
            return
        share = None if inside is None else min(1.0, (level.runs_done + inside) / level.runs)
        self._levels[level.key] = replace(level, share=share)

    def _inside_run(self, concurrency: int, since_s: float, ended: int) -> float | None:
        """Return the completed share of the present run, 0 to 1; None if unknown.

        A burst is complete when all its requests have ended.
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
    """Return the levels of a stored result: those made, and those that were planned but not made."""
    plan = result.plan
    made: dict[LevelKey, PlannedLevel] = {}
    for target in result.targets:
        for level in target.levels:
            key = result_key(target.name, level, plan.pp)
            cut = any(mark.code == CUT_SHORT for mark in level.validity)
            state = _measured_state(level, cut=cut)
            share = level.runs / plan.runs if cut and plan.runs else 1.0
            made[key] = PlannedLevel(key, state, level.runs, plan.runs, min(1.0, share))
    if result.slo is not None or plan.pp is None:
        return tuple(made.values())
    names = plan.targets or tuple(target.name for target in result.targets)
    keys = [LevelKey(name, concurrency, plan.pp) for name in names for concurrency in plan.concurrency]
    if plan.order is Order.ABBA:
        keys.sort(key=lambda key: key.concurrency)
    ahead = [_at_end(PlannedLevel(key, runs=plan.runs, share=0.0), result) for key in keys if key not in made]
    known = {level.key: level for level in (*made.values(), *ahead)}
    return (*(known[key] for key in keys), *(level for key, level in made.items() if key not in set(keys)))
