"""The full-screen view of a result that another tool measured; values that its file lacks are unknown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec.structs import replace

from sparktop.model.sweep_comparison import Topologies, Value
from sparktop.model.sweep_view import (
    LevelEvidence,
    LevelKey,
    LevelState,
    Mark,
    PlannedLevel,
    ResultRow,
    SweepStatus,
    SweepView,
    SweptTarget,
)
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.references import Reference
from sparktop.sweep.compare.series import Series, SeriesLevel
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.terms.definitions import METRICS, main_rate_of
from sparktop.sweep.view.curves import curve_plots
from sparktop.sweep.view.rows import ranks_of
from sparktop.sweep.view.topologies import topologies

_PAIR = 2
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
        for one in self.series:
            for level in one.levels:
                # The table has one row per concurrency and prompt length. If the levels of such a row differ
                # in output length, the first one is shown.
                load = level.load
                key = LevelKey(one.name, load.concurrency, load.pp, load.position, load.depth)
                self._levels.setdefault(key, (one, level))
        self._compared = compare(self.series) if len(self.series) >= _PAIR else None
        self._view = self._made()

    @property
    def result(self) -> SweepResult | None:
        """Always None, because another tool's result is not a sweep of sparktop."""
        return None

    def view(self) -> SweepView:
        """Return the view; the same object until `refer` is called."""
        return self._view

    def evidence(self, key: LevelKey) -> LevelEvidence | None:
        """Return the details of the level `key`; None if the result has no such level."""
        row = next((one for one in self._view.rows if one.key == key), None)
        if row is None:
            return None
        return LevelEvidence(row=row, facts=tuple(self._facts(key)), why_no_timeline=_NO_TIMELINE)

    def refer(self, references: Sequence[Reference]) -> None:
        """Draw the curves of the published tables `references` in the plots, replacing earlier ones."""
        self._view = replace(self._view, plots=curve_plots(self.series, references))

    def _made(self) -> SweepView:
        rows = self._rows()
        tools = " and ".join(dict.fromkeys(one.tool for one in self.series))
        many = len(self._levels)
        return SweepView(
            title=self.title or tools,
            status=SweepStatus.DONE,
            words=f"imported from {tools}{self._when()}: {many} level{'' if many == 1 else 's'}",
            plan_words=", ".join(_plan_words(self.series)),
            started_at=self.started_at,
            simulated=any(one.simulated for one in self.series),
            targets=tuple(SweptTarget(one.name, "imported", one.model) for one in self.series),
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
            yield f"{where}: {', '.join(_words(name, shown[name]) for name in METRICS if name in shown)}"
        if len(listed) > _MOST_LISTED:
            yield f"{len(listed) - _MOST_LISTED} more levels: enter on a level shows its figures"
        yield from dict.fromkeys(note for one in self.series for note in one.notes)

    def _facts(self, key: LevelKey) -> Iterator[tuple[str, str]]:
        series, level = self._levels[key]
        for name, metric in METRICS.items():
            if name not in level.figures:
                continue
            words = _words(name, level.figures[name]).removeprefix(f"{metric.title} ")
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
    loads = {(level.load.pp, level.load.tg) for one in series for level in one.levels}
    if len(loads) == 1:
        prompt, output = loads.pop()
        if prompt is not None or output is not None:
            yield f"{_count(prompt)} → {_count(output)} tokens"
    shapes = dict.fromkeys(one.shape.value.partition(":")[0] for one in series if one.shape is not None)
    yield from shapes


def _count(value: int | None) -> str:
    return "?" if value is None else str(value)


def _words(name: str, value: Value) -> str:
    metric = METRICS[name]
    words = f"{metric.title} {metric.text(value.mean)} {metric.unit}"
    if value.low is None or value.high is None:
        return words
    return f"{words} ({metric.text(value.low)} to {metric.text(value.high)})"
