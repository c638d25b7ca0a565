"""Converts a sweep's result to the screen's view: a stored result, or that of a sweep still running."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from sparktop.model.capacity_view import SearchView
from sparktop.model.load import LoadKind, LoadMode
from sparktop.model.sweep_comparison import CurvePlot, Topologies
from sparktop.model.sweep_view import (
    LevelKey,
    ResultRow,
    Slo,
    SloAnswer,
    SweepStatus,
    SweepView,
    SweptTarget,
)
from sparktop.sweep.compare.compare import comparison_of
from sparktop.sweep.compare.references import Reference
from sparktop.sweep.compare.series import series_of
from sparktop.sweep.plan.plan import Order
from sparktop.sweep.result.results import PlanResult, SweepResult
from sparktop.sweep.view.capacity import stored_searches
from sparktop.sweep.view.curves import sweep_plots
from sparktop.sweep.view.levels import stored_levels
from sparktop.sweep.view.rows import result_rows
from sparktop.sweep.view.topologies import topologies
from sparktop.sweep.view.words.headline import headline
from sparktop.sweep.view.words.verdict import verdict

_STATUSES = {
    "done": SweepStatus.DONE,
    "cancelled": SweepStatus.CANCELLED,
    "stopped_by_guard": SweepStatus.STOPPED_BY_GUARD,
    "failed": SweepStatus.FAILED,
}
_PAIR = 2


class Findings(Struct, frozen=True, eq=False):
    """Everything that a screen shows of completed levels; recomputed after each level."""

    rows: tuple[ResultRow, ...] = ()
    plots: tuple[CurvePlot, ...] = ()
    topologies: Topologies | None = None
    headline: str | None = None
    verdict: tuple[str, ...] = ()
    targets: tuple[SweptTarget, ...] = ()
    slo: Slo | None = None
    searches: tuple[SearchView, ...] = ()
    doubts: tuple[str, ...] = ()
    simulated: bool = False


def findings(
    result: SweepResult,
    *,
    references: Sequence[Reference] = (),
    unfinished: Iterable[LevelKey] = (),
) -> Findings:
    """Compute the findings over all measured levels of a result.

    `references` are published tables to draw; levels in `unfinished` are marked as incomplete.
    """
    series = series_of(result)
    comparison = comparison_of(result.comparison, series) if len(series) >= _PAIR else None
    rows = result_rows(result, unfinished, comparison)
    compared = None if comparison is None else topologies(comparison, series, result=result)
    return Findings(
        rows=rows,
        plots=sweep_plots(result, references),
        topologies=compared,
        headline=headline(result, compared),
        verdict=verdict(result, rows, compared),
        targets=tuple(
            SweptTarget(one.name, one.kind.value, one.model, one.engine, one.error) for one in result.targets
        ),
        slo=_slo(result),
        searches=stored_searches(result),
        doubts=result.client.reasons,
        simulated=result.simulated,
    )


def status_of(result: SweepResult) -> SweepStatus:
    """Return the status of a stored sweep: how it ended, or that its end is missing."""
    return SweepStatus.BROKEN_OFF if result.status is None else _STATUSES[result.status]


def result_view(result: SweepResult, *, title: str = "", references: Sequence[Reference] = ()) -> SweepView:
    """Return the view of a stored sweep.

    `title` defaults to the name of the preset; `references` are published tables whose curves are drawn.
    """
    found = findings(result, references=references)
    status = status_of(result)
    finished = result.finished_at
    return SweepView(
        title=title or result.plan.preset or "sweep",
        status=status,
        words=end_words(status, result),
        plan_words=plan_words(result.plan, result.prompt_lengths()),
        guard=result.guard,
        started_at=result.started_at,
        elapsed_s=None if finished is None else (finished - result.started_at).total_seconds(),
        simulated=found.simulated,
        targets=found.targets,
        levels=stored_levels(result),
        rows=found.rows,
        plots=found.plots,
        topologies=found.topologies,
        slo=found.slo,
        searches=found.searches,
        doubts=found.doubts,
        headline=found.headline,
        verdict=found.verdict,
    )


def end_words(status: SweepStatus, result: SweepResult) -> str:
    """Return a line of text that states how a sweep ended, why, and how many levels were measured."""
    made = sum(len(target.levels) for target in result.targets)
    refused = sum(level.error is not None for target in result.targets for level in target.levels)
    kept = f"{made - refused} level{'' if made - refused == 1 else 's'}"
    kept += f", {refused} refused by the server" if refused else ""
    failed = sum(level.requests.failed for target in result.targets for level in target.levels)
    kept += f", {failed:,} request{'' if failed == 1 else 's'} failed" if failed else ""
    if status is SweepStatus.DONE:
        return f"done: {kept}"
    why = f": {result.stop_reason}" if result.stop_reason else ""
    return f"{status.value}{why}; {kept} kept"


_SHAPES = {LoadMode.BURST: "bursts", LoadMode.STEADY: "steady", LoadMode.OPEN: "at a rate"}


def plan_words(plan: PlanResult, lengths: Sequence[int] = ()) -> str:
    """Return a line of text on a plan: prompt and output length, load mode, number of runs, and order.

    `lengths` are the prompt lengths if there are several.
    """
    order = ", interleaved" if plan.order is Order.ABBA else ""
    if plan.trace is not None:
        runs = "" if plan.runs in {None, 1} else f", {plan.runs} runs"
        return f"{plan.trace.words}{runs}{order}"
    several = f"{min(lengths)}–{max(lengths)}" if len(set(lengths)) > 1 else None
    if plan.load is LoadKind.AGENTS:
        return f"{plan.workload or '?'}{_each_s(plan)}"
    length = several or _known(plan.pp) if plan.prompts is None else plan.prompts.words
    tokens = ", ".join([f"{length} → {_known(plan.tg)} tokens", *_beside_prompts(plan)])
    shape = _SHAPES[plan.mode] + (
        f" ({plan.arrivals})" if plan.arrivals and plan.mode is LoadMode.OPEN else ""
    )
    more = "+" if plan.more_runs else ""
    runs = "" if plan.runs is None else f", {plan.runs}{more} run{'' if plan.runs == 1 and not more else 's'}"
    return f"{tokens}, {shape}{runs}{order}"


def _beside_prompts(plan: PlanResult) -> tuple[str, ...]:
    return plan.request_words if plan.prompts is None else plan.request_words[1:]


def _each_s(plan: PlanResult) -> str:
    return "" if plan.duration_s is None else f", {plan.duration_s:g} s each"


def _known(count: int | None) -> str:
    return "?" if count is None else str(count)


def _slo(result: SweepResult) -> Slo | None:
    if result.slo is None:
        return None
    answers = tuple(
        SloAnswer(name, holds.concurrency, *holds.interval) for name, holds in result.slo.holds_to.items()
    )
    return Slo(result.slo.conditions, answers)
