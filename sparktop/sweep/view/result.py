"""The view of a sweep's result for the screen: of a stored one, a running one, or another tool's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from itertools import groupby
from typing import Protocol

from msgspec.structs import replace

from sparktop.graphics.numbers import count_words
from sparktop.model.load import Level, LoadKind, LoadMode
from sparktop.model.sweep import (
    ComparedLevel,
    ComparedMetric,
    CurvePlot,
    LevelEvidence,
    LevelState,
    Mark,
    PlannedLevel,
    ResultRow,
    SweepStatus,
    SweepView,
    SweptTarget,
    Topologies,
    Value,
)
from sparktop.model.yardsticks import Reference
from sparktop.sweep.compare.compare import compare, comparison_of, engines_sentences, names_by_definition
from sparktop.sweep.compare.series import LevelSeries, SeriesLevel, align_rows, series_of
from sparktop.sweep.plan.plan import Order, runs_words
from sparktop.sweep.result.results import ComparisonResult, ComparisonRow, PlanResult, SweepResult, level_of
from sparktop.sweep.terms.definitions import METRICS, main_rate_of
from sparktop.sweep.view.capacity import stored_searches
from sparktop.sweep.view.curves import curve_plots, sweep_plots
from sparktop.sweep.view.levels import (
    measured_state,
    ranks_of,
    result_rows,
    stored_evidence,
    stored_levels,
)
from sparktop.sweep.view.words import headline, main_sentences, verdict

_PAIR = 2


def topologies(compared: ComparisonResult, series: Sequence[LevelSeries]) -> Topologies:
    """Convert a comparison of `series` to the values that the screen shows, with one column per series."""
    metrics = tuple(
        _compared_metric(name, list(rows), compared, series)
        for name, rows in groupby(compared.rows, lambda row: row.metric)
    )
    metric_names = {metric.metric for metric in metrics}
    return Topologies(
        columns=tuple(a_series.name for a_series in series),
        metrics=metrics,
        crossovers=tuple(
            f"{METRICS[crossover.metric].title}: {crossover.from_} → {crossover.to} between {crossover.words}"
            f"{'' if crossover.significant else ' (as published)'}"
            for crossover in compared.crossovers
            if crossover.metric not in _LIKE_TTFT or "ttft_ms" not in metric_names
        ),
        engines=tuple(engines_sentences(compared.independent_engines)),
        sentences=tuple(main_sentences(metrics)),
        notes=compared.notes,
        definitions=tuple(
            f"{METRICS[metric].title} of {', '.join(names)}: {text}"
            if len(names) < len(compared.definitions[metric])
            else f"{METRICS[metric].title}: {text}"
            for metric, text, names in names_by_definition(compared.definitions)
        ),
        baseline=compared.baseline,
    )


def _compared_metric(
    name: str, rows: Sequence[ComparisonRow], compared: ComparisonResult, series: Sequence[LevelSeries]
) -> ComparedMetric:
    metric, aligned = METRICS[name], align_rows(series)
    levels = []
    for row, where in zip(rows, _level_names(rows), strict=True):
        key = level_of(row)
        measured = [of_series.get(key) for of_series in aligned]
        levels.append(
            ComparedLevel(
                key=key,
                values=tuple(None if level is None else level.figures.get(name) for level in measured),
                winner=row.winner,
                ahead=row.ahead,
                beats=row.beats,
                against=row.against,
                percent=row.percent,
                significant=row.significant,
                ratio_ci95=row.ratio_ci95,
                runs=row.runs,
                unequal_slots=row.unequal_slots,
                where=where,
            )
        )
    return ComparedMetric(
        metric=name,
        title=metric.title,
        unit=metric.unit,
        more_is_better=metric.more_is_better,
        levels=tuple(levels),
        # What percentages refer to: by default the runner-up.
        winner_vs="baseline" if any(row.winner_vs == "baseline" for row in rows) else "runner-up",
        decimals=metric.decimals,
        noise_floor_percent=compared.noise_floor_percent.get(name, 0.0),
    )


def _level_names(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return the levels' names within a sentence: "c16", "5,000 tokens in" where only lengths differ."""
    lengths = {row.pp for row in rows}
    names = [row.point.short + (f" @ {row.depth:,}" if row.depth else "") for row in rows]
    if len(lengths) == 1:
        return names
    inputs = [f"{row.pp or 0:,} tokens in" for row in rows]
    if len({row.point for row in rows}) == 1:
        return inputs
    return [f"{name} with {length}" for name, length in zip(names, inputs, strict=True)]


def status_of(result: SweepResult) -> SweepStatus:
    """Return the status of a stored sweep: how it ended, or that its end is missing."""
    return SweepStatus.BROKEN_OFF if result.status is None else SweepStatus(result.status.replace("_", " "))


def result_view(
    result: SweepResult,
    *,
    title: str = "",
    references: Sequence[Reference] = (),
    unfinished: Iterable[Level] = (),
) -> SweepView:
    """Return the view of a stored sweep, or of what a running one has measured.

    `title` defaults to the name of the preset; `references` are published tables whose curves are drawn;
    levels in `unfinished` are marked as incomplete.
    """
    series = series_of(result)
    comparison = comparison_of(result.comparison, series) if len(series) >= _PAIR else None
    rows = result_rows(result, unfinished, comparison)
    compared = None if comparison is None else topologies(comparison, series)
    status, finished = status_of(result), result.finished_at
    answer = headline(result, compared)
    return SweepView(
        title=title or result.plan.preset or "sweep",
        status=status,
        words=end_words(status, result),
        plan_words=plan_words(
            # A search repeats levels as it needs them.
            result.plan if result.capacity is None else result.plan.model_copy(update={"runs": None}),
            result.prompt_lengths(),
        ),
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
        searches=tuple(stored_searches(result)),
        headline=answer,
        verdict=tuple(sentence for sentence in verdict(result, rows, compared) if sentence != answer),
    )


def end_words(status: SweepStatus, result: SweepResult) -> str:
    """Return a line of text that states how a sweep ended, why, and how many levels were measured."""
    levels = [level for target in result.targets for level in target.levels]
    counts = Counter(map(measured_state, levels))
    failed = sum(level.requests.failed for level in levels)
    done = counts[LevelState.DONE]
    words = count_words(done, "level")
    more = [
        f"{counts[state]} {word}"
        for state, word in ((LevelState.CUT_SHORT, "unfinished"), (LevelState.REFUSED, "left out"))
        if counts[state]
    ]
    more += [f"{count_words(failed, 'request')} failed"] if failed else []
    if status is SweepStatus.DONE:
        return ", ".join((f"done: {words}", *more))
    because = f": {result.stop_reason}" if result.stop_reason else ""
    return ", ".join((f"{status.value}{because}; {words} done", *more))


_LIKE_TTFT = frozenset({"ttfr_ms", "first_answer_ms"})
"""Latencies whose crossovers are not named beside those of the TTFT; the file has them."""
_SHAPES = {
    LoadMode.BURST: "all requests of a run sent together",
    LoadMode.STEADY: "steady",
    LoadMode.OPEN: "at a rate",
    LoadMode.AGENTS: "agents",
}


def plan_words(plan: PlanResult, lengths: Sequence[int] = ()) -> str:
    """Return a line of text on a plan: prompt and output length, number of runs, load mode, and order.

    `lengths` are the prompt lengths, of which the plan itself has a single one only.
    """
    order = ", interleaved" if plan.order is Order.ABBA else ""
    if plan.trace is not None:
        runs = "" if plan.runs in {None, 1} else f", {plan.runs} runs"
        return f"{plan.trace.words}{runs}{order}"
    if plan.load is LoadKind.AGENTS:
        each_text = "" if plan.duration_s is None else f", {plan.duration_s:g} s each"
        return f"{plan.workload or '?'}{each_text}"
    # The user's own prompts are the first of the words on each request: they stand in place of a length.
    ends = dict.fromkeys((min(lengths), max(lengths))) if lengths else filter(None, (plan.pp,))
    length, more_words = "–".join(f"{tokens:,}" for tokens in ends) or "?", plan.request_words
    if plan.prompts is not None:
        length, more_words = plan.prompts.words, more_words[1:]
    tokens = ", ".join([f"{length} → {'?' if plan.tg is None else f'{plan.tg:,}'} tokens", *more_words])
    shape = _SHAPES[plan.mode] + (
        f" ({plan.arrivals})" if plan.arrivals and plan.mode is LoadMode.OPEN else ""
    )
    runs = "" if plan.runs is None else f", {runs_words(plan.runs, more_runs=plan.more_runs)}"
    return f"{tokens}{runs}, {shape}{order}"


class SweepSource(Protocol):
    """What the sweep screen can show: a running sweep, a stored result, or another tool's benchmark."""

    @property
    def result(self) -> SweepResult | None:
        """The sweep's result so far; None before the first level, and for another tool's stored result."""
        ...

    def view(self) -> SweepView:
        """Return the view at the current time."""
        ...

    def evidence(self, key: Level) -> LevelEvidence | None:
        """Return the details of the level `key`, shown when its row is opened; None if nothing is known."""
        ...

    def refer(self, references: Sequence[Reference]) -> None:
        """Draw the curves of the published tables `references` in the plots, replacing earlier ones."""
        ...


class StoredSource:
    """What the sweep screen shows of a file: a result of sparktop's, or that of another tool."""

    def __init__(
        self,
        view: SweepView,
        plots: Callable[[Sequence[Reference]], tuple[CurvePlot, ...]],
        evidence: Callable[[Level], LevelEvidence | None],
        shown: SweepResult | Sequence[LevelSeries],
    ) -> None:
        """Show `view`; `plots` draws it beside published tables, `evidence` returns details of a level.

        `shown` is what the view was made of: a result, or the series of another tool's file.
        """
        self.shown = shown
        self._view, self._plots = view, plots
        self.evidence = cache(evidence)

    @property
    def result(self) -> SweepResult | None:
        """The result of a sweep of sparktop's; None for another tool's."""
        return self.shown if isinstance(self.shown, SweepResult) else None

    def view(self) -> SweepView:
        """Return the view; the same object until `refer` is called."""
        return self._view

    def refer(self, references: Sequence[Reference]) -> None:
        """Draw the curves of the published tables `references` in the plots, replacing earlier ones."""
        self._view = replace(self._view, plots=self._plots(references))


def stored_source(
    result: SweepResult, title: str = "", status: SweepStatus | None = None, words: str = ""
) -> StoredSource:
    """Return the source of a stored result; `status` and `words` are known better than by the file, if given.

    Call it in a thread, because it may take long.
    """
    view = result_view(result, title=title)
    view = replace(view, status=status or view.status, words=words or view.words)
    return StoredSource(view, partial(sweep_plots, result), partial(stored_evidence, result), result)


_ImportedLevels = Mapping[Level, tuple[LevelSeries, SeriesLevel]]
"""Levels of another tool's result by their keys, each with its series."""
_FAILED = Mark("errors", "failed requests", "requests of this level failed, as its tool reported")
_NO_TIMELINE = "of another tool's file figures are kept, no single requests"


def imported_source(
    series: Sequence[LevelSeries], title: str = "", started_at: datetime | None = None
) -> StoredSource:
    """Return the source of another tool's result, with one of `series` for each target.

    `title` defaults to the names of the tools; `started_at` is when they measured, None if not known. The
    table has one row per concurrency and prompt length. If the levels of such a row differ in output length,
    the first one is shown.
    """
    levels: dict[Level, tuple[LevelSeries, SeriesLevel]] = {}
    for a_series in series:
        for level in a_series.levels:
            key = replace(level.load, target=a_series.name, tg=None)
            levels.setdefault(key, (a_series, level))
    view = _imported_view(series, levels, title, started_at)
    rows = {row.key: row for row in view.rows}

    def evidence(key: Level) -> LevelEvidence | None:
        if key not in rows:
            return None
        return LevelEvidence(rows[key], tuple(_imported_facts(*levels[key])), why_no_timeline=_NO_TIMELINE)

    return StoredSource(view, partial(curve_plots, series), evidence, series)


def _imported_view(
    series: Sequence[LevelSeries], levels: _ImportedLevels, title: str, started_at: datetime | None
) -> SweepView:
    compared = compare(series) if len(series) >= _PAIR else None
    figures = {key: level.figures for key, (_, level) in levels.items()}
    ranks, rate = ranks_of(figures, compared), main_rate_of(figures.values())
    tools = " and ".join(dict.fromkeys(a_series.tool for a_series in series))
    when = "" if started_at is None else f", of {started_at.astimezone():%Y-%m-%d %H:%M}"
    return SweepView(
        title=title or tools,
        status=SweepStatus.DONE,
        words=f"imported from {tools}{when}: {count_words(len(levels), 'level')}",
        plan_words=", ".join(_imported_plan_words(series)),
        started_at=started_at,
        simulated=any(a_series.simulated for a_series in series),
        targets=tuple(SweptTarget(a_series.name, "imported", a_series.model) for a_series in series),
        levels=tuple(
            PlannedLevel(key, LevelState.DONE, level.runs or 0, level.runs, 1.0)
            for key, (_, level) in levels.items()
        ),
        rows=tuple(
            ResultRow(
                key=key,
                figures=level.figures,
                runs=level.runs or 0,
                marks=(_FAILED,) if "errors" in level.validity else (),
                ranks=ranks[key],
                rate=rate,
            )
            for key, (_, level) in levels.items()
        ),
        plots=curve_plots(series),
        topologies=None if compared is None else topologies(compared, series),
        verdict=tuple(dict.fromkeys(note for a_series in series for note in a_series.notes)),
    )


def _imported_facts(series: LevelSeries, level: SeriesLevel) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of the figures of a level, each with the tool's definition, and of its load."""
    for name, metric in METRICS.items():
        if name in level.figures:
            words = _figure_words(name, level.figures[name]).removeprefix(f"{metric.title} ")
            definition = series.definitions.get(name)
            yield metric.title, words if definition is None else f"{words}: {definition}"
    prompt, output = ("?" if count is None else str(count) for count in (level.load.pp, level.load.tg))
    if {prompt, output} != {"?"}:
        yield "Tokens", f"{prompt} of the prompt, {output} generated, each request"
    yield "Runs", "not reported" if level.runs is None else str(level.runs)
    if level.label:
        yield "Called", level.label
    yield "From", f"{series.source}, {series.tool}"


def _imported_plan_words(series: Sequence[LevelSeries]) -> Iterator[str]:
    """Yield the lengths of the levels, if they all have the same, and how requests follow one another."""
    loads = {(level.load.pp, level.load.tg) for a_series in series for level in a_series.levels}
    if len(loads) == 1 and loads != {(None, None)}:
        yield " → ".join("?" if count is None else str(count) for count in loads.pop()) + " tokens"
    yield from dict.fromkeys(a_series.shape.noun for a_series in series if a_series.shape is not None)


def _figure_words(name: str, value: Value) -> str:
    """Return a metric with its value and interval: "TTFT 84 ms (80 to 88)"."""
    metric = METRICS[name]
    words = f"{metric.title} {metric.text(value.mean)} {metric.unit}"
    if value.low is None or value.high is None:
        return words
    return f"{words} ({metric.text(value.low)} to {metric.text(value.high)})"
