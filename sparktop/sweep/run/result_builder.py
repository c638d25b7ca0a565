"""The result of a running sweep, built step by step from plan, targets, levels and the generator's health."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal

from sparktop import __version__
from sparktop.model.load import Level, LoadMode, TokenSource
from sparktop.model.series import known_mean
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import series_of
from sparktop.sweep.generator.wire import ClientHealth
from sparktop.sweep.plan.own_requests import request_digest, without_texts
from sparktop.sweep.plan.plan import Capacity, Plan, SloCondition
from sparktop.sweep.plan.slo import words_of
from sparktop.sweep.plan.texts import texts_digest
from sparktop.sweep.result.results import (
    CapacityAnswer,
    CapacityResult,
    ClientResult,
    Holds,
    LevelResult,
    PlanResult,
    PromptPlan,
    Quantiles,
    RanRun,
    SloResult,
    SweepResult,
    TargetResult,
    Validity,
    axis_fields,
    level_of,
)
from sparktop.sweep.run.guard import Early
from sparktop.sweep.run.open_loop import trace_plan
from sparktop.sweep.run.preparation import PreparedTarget, unmeasured
from sparktop.sweep.run.search import SloSearch
from sparktop.sweep.run.validity import with_clock_shifts
from sparktop.sweep.terms.definitions import CLIENT_LAG, DRIFT

_PERCENT = 100.0
_LAGS = ("mean", "p50", "p99", "max")
"""Figures of the lag of the generator's event loop that a result file holds."""


class ResultBuilder:
    """Builds the result of a sweep: each method replaces the immutable `result` by an updated one."""

    def __init__(self, plan: Plan, started_at: datetime, *, simulated: bool = False) -> None:
        """Start with a result that has the plan and its targets, but no levels."""
        self._plan = plan
        self._health: dict[tuple[str, Level], Sequence[ClientHealth]] = {}
        """The load generator's health in each run, by target and level."""
        looks_for_slo = bool(plan.slo) and plan.searches_concurrency_or_rate
        self.result = SweepResult(
            started_at=started_at.astimezone(UTC),
            sparktop=__version__,
            simulated=simulated,
            plan=plan_result(plan),
            targets=tuple(map(unmeasured, plan.targets)),
            slo=SloResult(conditions=_conditions(plan.slo)) if looks_for_slo else None,
            capacity=None if plan.capacity is None else capacity_result(plan.capacity, {}),
        )

    def enter_target(self, prepared: PreparedTarget) -> None:
        """Store what the preparation of a target found: its engine and model, or why it cannot be used."""
        self.mark_simulated(simulated="simulated" in (prepared.result.version or ""))
        self.result = self.result.with_target(prepared.result)

    def enter_guard(self, words: str) -> None:
        """Store the text `words`, which describes the limits at which the sweep stops itself."""
        self._change(guard=words)

    def mark_simulated(self, *, simulated: bool) -> None:
        """Mark the result as simulated if `simulated` is True; False leaves an earlier mark in place."""
        self._change(simulated=self.result.simulated or simulated)

    def enter_failure(self, name: str, error: str) -> None:
        """Store the message `error`: why the target `name` was not measured completely."""
        target = self.result.target(name)
        if target is not None:
            self.result = self.result.with_target(target.model_copy(update={"error": error}))

    def enter_run(self, level: Level, run: int, started_at: datetime) -> None:
        """Append a measured run that begins at `started_at` to the list of executed runs."""
        run_entry = RanRun(
            **axis_fields(level.point.most_in_flight, level.point),
            target=level.target,
            run=run,
            started_at=started_at.astimezone(UTC),
        )
        self._change(ran=(*self.result.ran, run_entry))

    def enter_level(self, target: str, level: LevelResult, health: Sequence[ClientHealth]) -> LevelResult:
        """Store the result of a level, and the load generator's `health` in each run of the level.

        Replace an earlier result of the same load. Return the level as stored: with the reasons for doubt
        that depend on other levels.
        """
        self._health[target, level_of(level)] = health
        result = self.result.with_level(target, level)
        targets = with_clock_shifts(result.targets)
        sources = {measured.tokens_from for target in targets for measured in target.levels} - {None}
        least_exact = next((source for source in reversed(TokenSource) if source in sources), None)
        plan = result.plan.model_copy(update={"tokens_from": least_exact})
        self.result = result.model_copy(
            update={"targets": targets, "plan": plan, "client": self._client_result(targets)}
        )
        entered = self.result.target(target)
        assert entered is not None  # noqa: S101 - `with_level` raises for a target that is not there
        return next(stored for stored in entered.levels if level_of(stored) == level_of(level))

    def enter_drift(self, target: str, level: LevelResult, message: str) -> None:
        """Store that `level` had another result when it was measured again at the end of a search."""
        marks = (*level.validity, Validity(code=DRIFT, message=message))
        self.result = self.result.with_level(target, level.model_copy(update={"validity": marks}))

    def enter_slo_range(self, target: str, search: SloSearch, *, is_certain: bool = True) -> None:
        """Store the range of concurrencies in which `target` meets the SLO conditions, as found so far.

        Of a server that changed during the search no end is certain.
        """
        slo = self.result.slo
        assert slo is not None  # noqa: S101 - the plan of a search has conditions
        holds = Holds(
            concurrency=search.holds_to,
            interval=search.interval if is_certain else (None, None),
            from_concurrency=search.holds_from,
            from_interval=search.from_interval,
        )
        self._change(slo=slo.model_copy(update={"holds_to": {**slo.holds_to, target: holds}}))

    def enter_capacity(self, target: str, answer: CapacityAnswer) -> None:
        """Store the answer of a capacity search for `target` so far, beside those for other targets."""
        search = self.result.capacity
        assert search is not None  # noqa: S101 - the plan of a search has it
        self._change(capacity=search.model_copy(update={"answers": {**search.answers, target: answer}}))

    def finish(
        self, status: Literal["done"] | Early, reason: str | None, finished_at: datetime
    ) -> SweepResult:
        """Store how the sweep ended, compare the targets if several were measured, and return the result."""
        self._change(status=status, stop_reason=reason, finished_at=finished_at.astimezone(UTC))
        series = [curve for curve in series_of(self.result) if curve.levels]
        if len(series) > 1:
            self._change(comparison=compare(series))
        return self.result

    def _change(self, **parts: object) -> None:
        self.result = self.result.model_copy(update=parts)

    def _client_result(self, targets: Sequence[TargetResult]) -> ClientResult:
        """Return the load generator's health over the whole sweep.

        CPU use and event loop lag are the maximum over all runs, because a single bad run is a reason to
        doubt.
        """
        health = [run for runs in self._health.values() for run in runs]
        if not health:
            return ClientResult()
        lags = [run.loop_lag_ms for run in health if run.loop_lag_ms]
        largest = {name: max(lag[name] for lag in lags) for name in _LAGS} if lags else None
        reasons = tuple(
            f"{target.name}, {level_of(level).label}: {mark.message}"
            for target in targets
            for level in target.levels
            for mark in level.validity
            if mark.code == CLIENT_LAG
        )
        return ClientResult(
            loop="uvloop" if health[-1].loop == "uvloop" else "asyncio",
            cpu_percent=max(run.cpu_percent for run in health),
            loop_lag_ms=None if largest is None else Quantiles(**largest),
            connect_ms=known_mean(run.connect_ms for run in health),
            trustworthy=not reasons,
            reasons=reasons,
        )


def _prompt_plan(plan: Plan) -> PromptPlan | None:
    if plan.texts:
        return PromptPlan(
            name="built-in texts", digest=texts_digest(), texts=plan.texts, about_tokens=plan.pp
        )
    return None if plan.prompts is None else PromptPlan.model_validate(plan.prompts)


_CONVERTED = frozenset(
    {
        *("targets", "concurrency", "points", "pp", "lengths", "runs"),
        *("prompts", "extra_body", "headers", "arrivals", "trace"),
    }
)
"""Settings that a result file holds in another form, without secrets."""
_UNCHANGED = tuple(name for name in PlanResult.model_fields if hasattr(Plan, name) and name not in _CONVERTED)
"""Settings that it holds as they are."""


def _conditions(conditions: Iterable[SloCondition]) -> tuple[str, ...]:
    return tuple(map(words_of, conditions))


def capacity_result(capacity: Capacity, answers: dict[str, CapacityAnswer]) -> CapacityResult:
    """Return what a search looked for and its answers by target."""
    return CapacityResult(
        load=capacity.kind,
        conditions=_conditions(capacity.conditions),
        share_percent=_PERCENT * capacity.share,
        limits=capacity.limits,
        most=capacity.most,
        answers=answers,
    )


def plan_result(plan: Plan) -> PlanResult:
    """Return a plan as the result file holds it."""
    lengths = () if plan.guesses_length else plan.lengths
    return PlanResult(
        **{name: getattr(plan, name) for name in _UNCHANGED},
        targets=tuple(target.name for target in plan.targets),
        concurrency=() if plan.points else plan.concurrency,
        load=plan.kind,
        points=tuple(point.words for point in plan.points),
        pp=lengths[0] if len(lengths) == 1 else None,
        lengths=lengths,
        depth_slo=_conditions(plan.slo) if plan.depths else (),
        runs=plan.runs_of(plan.highest_concurrency),
        prompts=_prompt_plan(plan),
        extra_body=without_texts(plan.extra_body),
        headers=tuple(plan.headers),
        request_digest=request_digest(plan.extra_body, plan.headers),
        timeout_s=plan.timeouts.token_s,
        arrivals=plan.arrivals if plan.mode is LoadMode.OPEN and plan.trace is None else None,
        trace=trace_plan(plan.trace),
        find_knee=plan.search_rate,
        workload=None if plan.conversations is None else plan.conversations.name,
    )
