"""Builds the table of the equal parts of a replay of recorded traffic."""

from __future__ import annotations

from sparktop.graphics.numbers import UNKNOWN
from sparktop.report.document.grid import Cell, Grid
from sparktop.report.markdown import code
from sparktop.sweep.formats.tables.level_rows import level_words
from sparktop.sweep.result.replay.parts import ReplayPhase
from sparktop.sweep.result.results import TargetResult
from sparktop.sweep.terms.definitions import METRICS

_HEADS = ("Load", "Part", "Requests", "Arrived (/s)", "Completed (/s)", "TTFT p50", "TTFT p90")
_NOTE = "The parts are equally long; times are those of the file. TTFT in ms, from due time."


def phases_grid(target: TargetResult, *, several: bool) -> Grid:
    """Return a table of the phases of each replay of a target; empty without phases.

    `several` is True if the report has several targets, so that the title must name this one.
    """
    title = f"The replay in parts: {code(target.name)}" if several else "The replay in parts"
    rows: list[tuple[Cell, ...]] = []
    for level in target.in_order():
        where = level_words(level, target)
        for phase in level.replay.phases if level.replay is not None else ():
            rows.append((where, *_cells(phase)))
            where = ""
    return Grid(title, _HEADS, tuple(rows), frozenset({0, 1}), (_NOTE,) if rows else ())


def _cells(phase: ReplayPhase) -> tuple[str, ...]:
    ttft = METRICS["ttft_due_ms"]
    return (
        phase.words,
        f"{phase.requests:,}",
        _per_s(phase.arrived_per_s),
        _per_s(phase.completed_per_s),
        ttft.text(phase.ttft_due_p50_ms),
        ttft.text(phase.ttft_due_p90_ms),
    )


def _per_s(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"
