"""Converts stored results to rows of the history, and searches in these rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sparktop.model.load import LoadKind
from sparktop.model.sweep_comparison import HistoryRow
from sparktop.model.text import clean
from sparktop.sweep.compare.series import Series
from sparktop.sweep.plan.presets import DEFAULT
from sparktop.sweep.result.results import LevelResult, SweepResult
from sparktop.sweep.result.store import StoredSweep
from sparktop.sweep.view.result import status_of
from sparktop.sweep.view.words.capacity import capacity_title

IMPORTED = "imported"
"""Status of another tool's result, whose file does not state how the measurement ended."""
UNFINISHED = "unfinished"
"""Status of a recently written result without an end: its sweep may still be running."""
_NAME_LENGTH = 60


def stored_row(one: StoredSweep, key: str | None = None) -> HistoryRow:
    """Return the row of a stored sweep; `key` defaults to the file's name.

    The row of an unreadable file has the status "unreadable" and the reason as `problem`.
    """
    result, name = one.result, clean(one.path.stem, _NAME_LENGTH)
    wanted = one.path.name if key is None else key
    if result is None:
        return HistoryRow(wanted, None, name, "unreadable", problem=one.problem)
    levels = [level for target in result.targets for level in target.levels]
    models = dict.fromkeys(target.model for target in result.targets if target.model is not None)
    return HistoryRow(
        key=wanted,
        started_at=result.started_at,
        name=_traffic_name(result) or result.plan.preset or name,
        status=status_of(result).value,
        targets=tuple(target.name for target in result.targets),
        model=", ".join(models) or None,
        levels=len(levels),
        most=max((level.point for level in levels), default=None),
        decode_tps=_best_decode(levels),
        ttft_ms=_first_ttft(result),
        doubtful=sum(bool(level.validity) for level in levels),
        simulated=result.simulated,
    )


def _traffic_name(result: SweepResult) -> str | None:
    """Return what a search found, recorded traffic or a workload; None for a sweep that its preset names."""
    plan = result.plan
    if result.capacity is not None:
        return clean(capacity_title(result.capacity), _NAME_LENGTH)
    if plan.trace is not None:
        return clean(f"trace {plan.trace.name}", _NAME_LENGTH)
    if plan.load is LoadKind.AGENTS and plan.preset in {None, DEFAULT}:
        return clean(f"agents {plan.workload or ''}", _NAME_LENGTH)
    return None


def imported_row(key: str, series: Sequence[Series], started_at: datetime | None) -> HistoryRow:
    """Return the row of another tool's result; `series` are its targets."""
    levels = [level for one in series for level in one.levels]
    models = dict.fromkeys(one.model for one in series if one.model is not None)
    rates = [level.figures.get("sustained_tps") or level.figures.get("decode_tps") for level in levels]
    waits = [(level.load.point, level.figures.get("ttft_ms")) for level in levels]
    return HistoryRow(
        key=key,
        started_at=started_at,
        name=" ".join(dict.fromkeys(one.tool for one in series)),
        status=IMPORTED,
        targets=tuple(one.name for one in series),
        model=", ".join(models) or None,
        levels=len(levels),
        most=max((level.load.point for level in levels), default=None),
        decode_tps=max((rate.mean for rate in rates if rate is not None), default=None),
        ttft_ms=min(((at.order, wait.mean) for at, wait in waits if wait is not None), default=(0, None))[1],
        doubtful=sum(bool(level.validity) for level in levels),
        simulated=any(one.simulated for one in series),
    )


def _best_decode(levels: Sequence[LevelResult]) -> float | None:
    rates = [level.sustained_tps or level.decode_tps for level in levels]
    rates += [one.output_tps for one in levels if one.open_loop or one.agents]
    return max((rate.mean for rate in rates if rate is not None), default=None)


def _first_ttft(result: SweepResult) -> float | None:
    """Return the mean time to first token in milliseconds at the lowest concurrency; None if unknown.

    If several levels have this concurrency, the smallest mean is returned.
    """
    known = [
        (level.point.order, level.ttft_ms.mean)
        for target in result.targets
        for level in target.levels
        if level.ttft_ms is not None
    ]
    return min(known)[1] if known else None


def found_rows(rows: Sequence[HistoryRow], query: str) -> list[HistoryRow]:
    """Return the rows that contain every word of `query`, ignoring case; all rows for an empty query.

    Words are searched in name, targets, model, status, date and file name.
    """
    words = query.casefold().split()
    return [row for row in rows if all(word in _haystack(row) for word in words)]


def _haystack(row: HistoryRow) -> str:
    day = "" if row.started_at is None else f"{row.started_at.astimezone():%Y-%m-%d %H:%M}"
    file = row.key.removesuffix(".json")
    parts = (row.name, *row.targets, row.model or "", row.status, day, file)
    return " ".join((*parts, "simulated" if row.simulated else "")).casefold()
