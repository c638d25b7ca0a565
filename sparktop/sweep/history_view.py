"""Stored results as rows of the history, and the words by which they are found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparktop.model.sweep_comparison import HistoryRow
from sparktop.sweep.result_store import StoredSweep
from sparktop.sweep.result_view import status_of
from sparktop.sweep.results import LevelResult, SweepResult

Remarks = Mapping[str, tuple[tuple[str, ...], str]]
"""Tags and a note by the name of a file."""


def history_rows(stored: Iterable[StoredSweep], remarks: Remarks | None = None) -> list[HistoryRow]:
    """Give a row for each, newest first; a file that cannot be read is a row too."""
    known = remarks or {}
    rows = []
    for one in stored:
        tags, note = known.get(one.path.name, ((), ""))
        rows.append(_row(one, tags, note))
    return list(reversed(rows))


def _row(one: StoredSweep, tags: tuple[str, ...], note: str) -> HistoryRow:
    result, name = one.result, one.path.stem
    if result is None:
        return HistoryRow(one.path.name, None, name, "unreadable", tags=tags, note=note, problem=one.problem)
    levels = [level for target in result.targets for level in target.levels]
    models = dict.fromkeys(target.model for target in result.targets if target.model is not None)
    return HistoryRow(
        key=one.path.name,
        started_at=result.started_at,
        name=result.plan.preset or name,
        status=status_of(result).value,
        targets=tuple(target.name for target in result.targets),
        model=", ".join(models) or None,
        levels=len(levels),
        most_concurrency=max((level.concurrency for level in levels), default=None),
        decode_tps=_best_decode(levels),
        ttft_ms=_first_ttft(result),
        doubtful=sum(bool(level.validity) for level in levels),
        simulated=result.simulated,
        tags=tags,
        note=note,
    )


def _best_decode(levels: Sequence[LevelResult]) -> float | None:
    rates = [level.sustained_tps or level.decode_tps for level in levels]
    return max((rate.mean for rate in rates if rate is not None), default=None)


def _first_ttft(result: SweepResult) -> float | None:
    """Give the best mean time to first token under the lowest concurrency."""
    known = [
        (level.concurrency, level.ttft_ms.mean)
        for target in result.targets
        for level in target.levels
        if level.ttft_ms is not None
    ]
    return min(known)[1] if known else None


def found_rows(rows: Sequence[HistoryRow], query: str) -> list[HistoryRow]:
    """Give the rows in whose name, targets, model, status, tags, note or day all words of `query` occur."""
    words = query.casefold().split()
    return [row for row in rows if all(word in _haystack(row) for word in words)]


def _haystack(row: HistoryRow) -> str:
    day = "" if row.started_at is None else f"{row.started_at.astimezone():%Y-%m-%d %H:%M}"
    parts = (row.name, *row.targets, row.model or "", row.status, *row.tags, row.note, day)
    return " ".join((*parts, "simulated" if row.simulated else "")).casefold()
