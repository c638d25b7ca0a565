"""What a sweep found, in a few sentences: which level or target is best, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.model.sweep_comparison import AdviceRow, Topologies
from sparktop.model.sweep_view import Rank, ResultRow
from sparktop.sweep.definitions import METRICS
from sparktop.sweep.results import SweepResult
from sparktop.sweep.slo_words import slo_sentences

_PRIMARY = ("sustained_tps", "decode_tps")


def verdict(result: SweepResult, rows: Sequence[ResultRow], compared: Topologies | None) -> tuple[str, ...]:
    """Give the sentences; empty while there is nothing to say."""
    names = [target.name for target in result.targets if target.levels]
    told = list(slo_sentences(result))
    told += _advised(compared.advice if compared is not None else ())
    told += _best_level(rows, several=len(names) > 1)
    made = [row for row in rows if row.error is None]
    doubtful = [row for row in made if any(mark.doubt for mark in row.marks)]
    if doubtful and (told or result.status is not None):
        told.append(f"{len(doubtful)} of {len(made)} levels have a mark: see why before you believe them")
    return tuple(told)


def _advised(rows: Sequence[AdviceRow]) -> Iterator[str]:
    for row in rows:
        untested = row.sure is None
        best = (
            f"{row.target} is {'ahead' if untested else 'best'}"
            if row.target is not None
            else "no difference between the targets is shown"
        )
        doubt = " (single runs: no test possible)" if untested and row.target is not None else ""
        why = f": {row.why}" if row.target is not None else ""
        yield f"{row.loads}: {best}{doubt}{why}"


def _best_level(rows: Sequence[ResultRow], *, several: bool) -> Iterator[str]:
    for name in _PRIMARY:
        best = next((row for row in rows if row.ranks.get(name) is Rank.BEST), None)
        if best is None:
            continue
        metric, figure = METRICS[name], best.figures[name]
        alike = [_where(row, several=several) for row in rows if row.ranks.get(name) is Rank.LEVEL]
        if figure.low is not None and figure.high is not None:
            sure = f" (95 % interval {metric.text(figure.low)} to {metric.text(figure.high)})"
        else:
            sure = " (a single run: no interval)"
        also = f"; {', '.join(alike)}: no difference shown" if alike else ""
        words = f"most {metric.title.lower()} at {_where(best, several=several)}"
        yield f"{words}: {metric.text(figure.mean)} {metric.unit}{sure}{also}"
        return


def _where(row: ResultRow, *, several: bool) -> str:
    return f"{row.key.target} c{row.key.concurrency}" if several else f"c{row.key.concurrency}"
