"""The view of a sweep's result for the screen: of a stored one, a running one, or another tool's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Protocol

from msgspec.structs import replace

from sparktop.model.load import LoadKind, LoadMode
from sparktop.model.sweep import (
    ComparedLevel,
    ComparedMetric,
    DeviationRow,
    LevelEvidence,
    LevelKey,
    LevelState,
    Mark,
    PlannedLevel,
    ResultRow,
    SplitRow,
    SweepStatus,
    SweepView,
    SweptTarget,
    Topologies,
    Value,
)
from sparktop.sweep.compare.compare import compare, comparison_of, engines_sentences
from sparktop.sweep.compare.series import Load, Reference, Series, SeriesLevel, aligned, load_of, series_of
from sparktop.sweep.plan.plan import Order
from sparktop.sweep.result.level import split_words
from sparktop.sweep.result.results import ComparisonResult, ComparisonRow, PlanResult, SweepResult
from sparktop.sweep.terms.definitions import METRICS, Metric, main_rate_of
from sparktop.sweep.view.capacity import stored_searches
from sparktop.sweep.view.curves import curve_plots, sweep_plots
from sparktop.sweep.view.levels import (
    overhead_words,
    ranks_of,
    result_key,
    result_rows,
    stored_evidence,
    stored_levels,
)
from sparktop.sweep.view.marks import balance_word
from sparktop.sweep.view.words import headline, main_sentences, verdict

LEAST_RUNS = 5
"""Minimum runs for a ratio of standard deviations: with three runs, 5 % of ratios exceed 6 by chance."""
_DEVIATIONS_OF = ("decode_tps", "sustained_tps")
_PAIR = 2
_GIVEN = ("table", "baseline")
"""Values of `winner_vs` other than the runner-up, which percentages refer to by default."""

_Aligned = Sequence[Mapping[Load, SeriesLevel]]


def topologies(
    compared: ComparisonResult,
    series: Sequence[Series],
    *,
    result: SweepResult | None = None,
) -> Topologies:
    """Convert a comparison of `series` to the values that the screen shows, with one column per series.

    If `result` is given, it adds which backends answered the requests of routers, and their batch sizes.
    """
    metrics = tuple(
        _compared_metric(name, list(rows), compared, series)
        for name, rows in groupby(compared.rows, lambda row: row.metric)
    )
    return Topologies(
        columns=tuple(a_series.name for a_series in series),
        metrics=metrics,
        crossovers=tuple(
            f"{METRICS[crossover.metric].title}: {crossover.from_} → {crossover.to} between {crossover.words}"
            f"{'' if crossover.significant else ' (as published)'}"
            for crossover in compared.crossovers
        ),
        splits=tuple(_split_rows(result)),
        deviations=tuple(_deviation_rows(metrics, series)),
        engines=tuple(engines_sentences(compared.independent_engines)),
        sentences=tuple(main_sentences(metrics)),
        notes=compared.notes,
        definitions=tuple(_definitions(compared)),
        baseline=compared.baseline,
    )


def _definitions(compared: ComparisonResult) -> Iterator[str]:
    """Yield one line per definition, for each metric that a source defines differently from sparktop."""
    for metric, text, names in compared.names_by_definition:
        whose = "" if len(names) == len(compared.definitions[metric]) else f" of {', '.join(names)}"
        yield f"{METRICS[metric].title}{whose}: {text}"


def _compared_metric(
    name: str, rows: Sequence[ComparisonRow], compared: ComparisonResult, series: Sequence[Series]
) -> ComparedMetric:
    metric = METRICS[name]
    placed = aligned(series)
    return ComparedMetric(
        metric=name,
        title=metric.title,
        unit=metric.unit,
        more_is_better=metric.more_is_better,
        levels=tuple(
            _compared_level(row, metric, placed, words)
            for row, words in zip(rows, _level_names(rows), strict=True)
        ),
        winner_vs=next((vs for vs in _GIVEN if any(row.winner_vs == vs for row in rows)), "runner-up"),
        decimals=metric.decimals,
        noise_floor_percent=compared.noise_floor_percent.get(name, 0.0),
    )


def _compared_level(row: ComparisonRow, metric: Metric, levels: _Aligned, where: str) -> ComparedLevel:
    load = load_of(row)
    return ComparedLevel(
        point=row.point,
        values=tuple(_value(level.get(load), metric.name) for level in levels),
        winner=row.winner,
        ahead=row.ahead,
        beats=row.beats,
        against=row.against,
        percent=row.percent,
        significant=row.significant,
        prompt_tokens=row.pp,
        depth=load.depth,
        where=where,
    )


def _level_names(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return the levels' names within a sentence: "c16", "5,000 in" where only lengths differ, or both."""
    lengths = {row.pp for row in rows}
    names = [row.point.short + (f" @ {row.depth:,}" if row.depth else "") for row in rows]
    if len(lengths) == 1:
        return names
    inputs = [f"{row.pp or 0:,} in" for row in rows]
    if len({row.point for row in rows}) == 1:
        return inputs
    return [f"{name} {length}" for name, length in zip(names, inputs, strict=True)]


def _value(level: SeriesLevel | None, metric: str) -> Value | None:
    return None if level is None else level.figures.get(metric)


def _split_rows(result: SweepResult | None) -> Iterator[SplitRow]:
    if result is None:
        return
    for target in result.targets:
        for level in target.levels:
            if level.served_by or level.busy_batch:
                yield SplitRow(
                    target=target.name,
                    point=level.point,
                    requests=level.served_by,
                    overhead=overhead_words(level),
                    runs=split_words(level),
                    batches=level.busy_batch,
                    balance_word=balance_word(level),
                    prompt_tokens=result_key(target.name, level, result.plan.pp).prompt_tokens,
                    depth=level.depth,
                )


def _deviation_rows(metrics: Sequence[ComparedMetric], series: Sequence[Series]) -> Iterator[DeviationRow]:
    """Yield for each level which targets have the smallest and the largest standard deviation over runs.

    Only targets with at least `LEAST_RUNS` runs are compared. Levels with fewer than two such targets are
    left out.
    """
    names = [a_series.name for a_series in series]
    for metric in metrics:
        if metric.metric not in _DEVIATIONS_OF:
            continue
        for level in metric.levels:
            known = [
                (value.std, name)
                for name, value in zip(names, level.values, strict=True)
                if value is not None and value.std is not None and not 0 < len(value.runs) < LEAST_RUNS
            ]
            if len(known) >= _PAIR:
                (low, steady), (high, restless) = min(known), max(known)
                yield DeviationRow(
                    metric.title,
                    level.point,
                    steady,
                    low,
                    restless,
                    high,
                    level.prompt_tokens,
                    level.depth,
                )


_STATUSES = {
    "done": SweepStatus.DONE,
    "cancelled": SweepStatus.CANCELLED,
    "stopped_by_guard": SweepStatus.STOPPED_BY_GUARD,
    "failed": SweepStatus.FAILED,
}


def status_of(result: SweepResult) -> SweepStatus:
    """Return the status of a stored sweep: how it ended, or that its end is missing."""
    return SweepStatus.BROKEN_OFF if result.status is None else _STATUSES[result.status]


def result_view(
    result: SweepResult,
    *,
    title: str = "",
    references: Sequence[Reference] = (),
    unfinished: Iterable[LevelKey] = (),
) -> SweepView:
    """Return the view of a stored sweep, or of what a running one has measured.

    `title` defaults to the name of the preset; `references` are published tables whose curves are drawn;
    levels in `unfinished` are marked as incomplete.
    """
    series = series_of(result)
    comparison = comparison_of(result.comparison, series) if len(series) >= _PAIR else None
    rows = result_rows(result, unfinished, comparison)
    compared = None if comparison is None else topologies(comparison, series, result=result)
    status, finished = status_of(result), result.finished_at
    return SweepView(
        title=title or result.plan.preset or "sweep",
        status=status,
        words=end_words(status, result),
        plan_words=plan_words(result.plan, result.prompt_lengths()),
        guard=result.guard,
        started_at=result.started_at,
        elapsed_s=None if finished is None else (finished - result.started_at).total_seconds(),
        simulated=result.simulated,
        targets=tuple(
            SweptTarget(target.name, target.kind.value, target.model, target.engine, target.error)
            for target in result.targets
        ),
        levels=stored_levels(result),
        rows=rows,
        plots=sweep_plots(result, references),
        topologies=compared,
        searches=stored_searches(result),
        doubts=result.client.reasons,
        headline=headline(result, compared),
        verdict=verdict(result, rows, compared),
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


_SHAPES = {
    LoadMode.BURST: "bursts",
    LoadMode.STEADY: "steady",
    LoadMode.OPEN: "at a rate",
    LoadMode.AGENTS: "agents",
}


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


class SweepSource(Protocol):
    """What the sweep screen can show: a running sweep, a stored result, or another tool's benchmark."""

    @property
    def result(self) -> SweepResult | None:
        """The sweep's result so far; None before the first level, and for another tool's stored result."""
        ...

    def view(self) -> SweepView:
        """Return the view at the current time."""
        ...

    def evidence(self, key: LevelKey) -> LevelEvidence | None:
        """Return the details of the level `key`, shown when its row is opened; None if nothing is known."""
        ...

    def refer(self, references: Sequence[Reference]) -> None:
        """Draw the curves of the published tables `references` in the plots, replacing earlier ones."""
        ...


class StoredView:
    """The full-screen view of a stored result. Construct it in a thread, because this may take long."""

    def __init__(self, result: SweepResult, title: str = "", words: str | None = None) -> None:
        """Show `result`; `words` replaces the line about the end of the sweep unless it is None."""
        self.result, self.title, self.words = result, title, words
        self._evidence: dict[LevelKey, LevelEvidence | None] = {}
        view = result_view(result, title=title)
        self._view = view if words is None else replace(view, words=words)

    def view(self) -> SweepView:
        """Return the view; the same object until `refer` is called."""
        return self._view

    def evidence(self, key: LevelKey) -> LevelEvidence | None:
        """Return the details of the level `key`; None if the result has no such level."""
        if key not in self._evidence:
            self._evidence[key] = stored_evidence(self.result, key)
        return self._evidence[key]

    def refer(self, references: Sequence[Reference]) -> None:
        """Draw the curves of the published tables `references` in the plots, replacing earlier ones."""
        self._view = replace(self._view, plots=sweep_plots(self.result, references))


_MOST_LISTED = 4
"""Maximum number of levels whose metrics without a table column are listed as text."""
_IN_TABLE = frozenset(("sustained_tps", "decode_tps", "prefill_tps", "peak_tps", "ttft_ms"))
_FAILED = Mark("errors", "errors", "requests of this level failed, as its tool reported")
_NO_TIMELINE = "of another tool's file figures are kept, no single requests"


class ForeignView:
    """The full-screen view of another tool's result, with one series per target. Computed on construction."""

    def __init__(self, series: Sequence[Series], title: str = "", started_at: datetime | None = None) -> None:
        """Show `series`; `started_at` is when they were measured, None where that is not known."""
        self.series, self.title, self.started_at = series, title, started_at
        self._levels: dict[LevelKey, tuple[Series, SeriesLevel]] = {}
        for a_series in self.series:
            for level in a_series.levels:
                # The table has one row per concurrency and prompt length. If the levels of such a row differ
                # in output length, the first one is shown.
                load = level.load
                key = LevelKey(a_series.name, load.point, load.pp, load.depth)
                self._levels.setdefault(key, (a_series, level))
        self._compared = compare(self.series) if len(self.series) >= _PAIR else None
        self._view = self._build_view()

    @property
    def result(self) -> SweepResult | None:
        """Always None, because another tool's result is not a sweep of sparktop."""
        return None

    def view(self) -> SweepView:
        """Return the view; the same object until `refer` is called."""
        return self._view

    def evidence(self, key: LevelKey) -> LevelEvidence | None:
        """Return the details of the level `key`; None if the result has no such level."""
        row = next((row for row in self._view.rows if row.key == key), None)
        if row is None:
            return None
        return LevelEvidence(row=row, facts=tuple(self._facts(key)), why_no_timeline=_NO_TIMELINE)

    def refer(self, references: Sequence[Reference]) -> None:
        """Draw the curves of the published tables `references` in the plots, replacing earlier ones."""
        self._view = replace(self._view, plots=curve_plots(self.series, references))

    def _build_view(self) -> SweepView:
        rows = self._rows()
        tools = " and ".join(dict.fromkeys(a_series.tool for a_series in self.series))
        many = len(self._levels)
        return SweepView(
            title=self.title or tools,
            status=SweepStatus.DONE,
            words=f"imported from {tools}{self._when()}: {many} level{'' if many == 1 else 's'}",
            plan_words=", ".join(_plan_words(self.series)),
            started_at=self.started_at,
            simulated=any(a_series.simulated for a_series in self.series),
            targets=tuple(SweptTarget(a_series.name, "imported", a_series.model) for a_series in self.series),
            levels=tuple(
                PlannedLevel(key, LevelState.DONE, level.runs or 0, level.runs, 1.0)
                for key, (_, level) in self._levels.items()
            ),
            rows=rows,
            plots=curve_plots(self.series),
            topologies=self._topologies(),
            verdict=tuple(self._verdict()),
        )

    def _when(self) -> str:
        return "" if self.started_at is None else f", of {self.started_at.astimezone():%Y-%m-%d %H:%M}"

    def _topologies(self) -> Topologies | None:
        return None if self._compared is None else topologies(self._compared, self.series)

    def _rows(self) -> tuple[ResultRow, ...]:
        figures = {key: level.figures for key, (_, level) in self._levels.items()}
        ranks = ranks_of(figures, self._compared)
        rate = main_rate_of(figures.values())
        rows = [
            ResultRow(
                key=key,
                figures=level.figures,
                runs=level.runs or 0,
                marks=(_FAILED,) if "errors" in level.validity else (),
                ranks=ranks[key],
                rate=rate,
            )
            for key, (_, level) in self._levels.items()
        ]
        return tuple(rows)

    def _verdict(self) -> Iterator[str]:
        """Yield one line per level with metrics that have no column in the table, then the source's notes."""
        several = len(self.series) > 1
        listed = [
            (key, figures)
            for key, (_, level) in self._levels.items()
            if (figures := {name: one for name, one in level.figures.items() if name not in _IN_TABLE})
            or "ttft_ms" in level.figures
        ]
        for key, figures in listed[:_MOST_LISTED]:
            level = self._levels[key][1]
            shown = {**figures, **{name: one for name, one in level.figures.items() if name == "ttft_ms"}}
            where = f"{key.target} {key.point.short}" if several else key.point.short
            words = (_figure_words(name, shown[name]) for name in METRICS if name in shown)
            yield f"{where}: {', '.join(words)}"
        if len(listed) > _MOST_LISTED:
            yield f"{len(listed) - _MOST_LISTED} more levels: enter on a level shows its figures"
        yield from dict.fromkeys(note for a_series in self.series for note in a_series.notes)

    def _facts(self, key: LevelKey) -> Iterator[tuple[str, str]]:
        series, level = self._levels[key]
        for name, metric in METRICS.items():
            if name not in level.figures:
                continue
            words = _figure_words(name, level.figures[name]).removeprefix(f"{metric.title} ")
            meant = series.definitions.get(name)
            yield metric.title, words if meant is None else f"{words}: {meant}"
        load = level.load
        if load.pp is not None or load.tg is not None:
            yield "Tokens", f"{_count(load.pp)} of the prompt, {_count(load.tg)} generated, each request"
        yield "Runs", "not reported" if level.runs is None else str(level.runs)
        if level.label:
            yield "Called", level.label
        yield "From", f"{series.source}, {series.tool}"


def _plan_words(series: Sequence[Series]) -> Iterator[str]:
    loads = {(level.load.pp, level.load.tg) for a_series in series for level in a_series.levels}
    if len(loads) == 1:
        prompt, output = loads.pop()
        if prompt is not None or output is not None:
            yield f"{_count(prompt)} → {_count(output)} tokens"
    shapes = dict.fromkeys(
        a_series.shape.value.partition(":")[0] for a_series in series if a_series.shape is not None
    )
    yield from shapes


def _count(value: int | None) -> str:
    return "?" if value is None else str(value)


def _figure_words(name: str, value: Value) -> str:
    metric = METRICS[name]
    words = f"{metric.title} {metric.text(value.mean)} {metric.unit}"
    if value.low is None or value.high is None:
        return words
    return f"{words} ({metric.text(value.low)} to {metric.text(value.high)})"
