"""The summary of a sweep in a few sentences: the best level or target, and whether it is significant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sparktop.model.load import LoadKind
from sparktop.model.sweep_comparison import NO_DIFFERENCE, AdviceRow, Topologies
from sparktop.model.sweep_view import Rank, ResultRow
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.terms.definitions import METRICS
from sparktop.sweep.view.prefix import context_sentences

_PRIMARY = ("sustained_tps", "decode_tps")


def verdict(result: SweepResult, rows: Sequence[ResultRow], compared: Topologies | None) -> tuple[str, ...]:
    """Return the sentences that explain a sweep's headline; empty if there is nothing to report yet.

    `rows` are the rows of the result table, `compared` is the comparison of several targets.
    """
    names = [target.name for target in result.targets if target.levels]
    sentences: list[str] = list(context_sentences(result))[1:]  # the first is the headline
    sentences += advised(compared.advice if compared is not None else ())
    sentences += best_level(rows, str if len(names) > 1 else None)
    made = [row for row in rows if row.error is None]
    doubtful = [row for row in made if any(mark.doubt for mark in row.marks)]
    if doubtful and (sentences or result.status is not None):
        marked = "has a mark: see why before you trust it"
        if len(doubtful) > 1:
            marked = "have a mark: see why before you trust them"
        who = "the level" if len(made) == 1 else f"{len(doubtful)} of {len(made)} levels"
        sentences.append(f"{who} {marked}")
    return tuple(sentences)


def advised(rows: Sequence[AdviceRow], name: Callable[[str], str] = str) -> Iterator[str]:
    """Yield one sentence for each piece of advice: which target to use at which concurrencies, and why.

    `name` escapes names for the output format.
    """
    for row in rows:
        untested = row.sure is None
        best = (
            f"{name(row.target)} is {'ahead' if untested else 'best'}"
            if row.target is not None
            else ""
            if row.leaders or row.unproven
            else "no difference between the targets is shown"
        )
        doubt = " (single runs: no test possible)" if untested and row.target is not None else ""
        why = name(row.why) if row.target is not None or row.unproven or row.leaders else ""
        yield ": ".join(part for part in (row.loads, best + doubt, why) if part)


def best_level(rows: Sequence[ResultRow], name: Callable[[str], str] | None = None) -> Iterator[str]:
    """Yield for each prompt length a sentence on which level has the highest token rate.

    `name` escapes the target's name for the output format; if it is None, targets are not named.
    """
    key = next((one for one in _PRIMARY if any(row.ranks.get(one) is Rank.BEST for row in rows)), None)
    if key is None:
        return
    if any(row.key.depth or row.key.point.kind is LoadKind.POOLS for row in rows):
        return  # the highest rate is that without context
    lengths = list(dict.fromkeys(row.key.prompt_tokens for row in rows))
    for length in lengths:
        alike = [row for row in rows if row.key.prompt_tokens == length and key in row.ranks]
        best = next((row for row in alike if row.ranks[key] is Rank.BEST), None)
        if best is not None:
            others = [_where(row, name) for row in alike if row is not best]
            also = f"; {', '.join(others)}: {NO_DIFFERENCE}" if others else ""
            among = f" of {length:,} in" if len(lengths) > 1 and length is not None else ""
            title = METRICS[key].title.lower()
            yield f"most {title}{among} at {_where(best, name)}: {_sure(best, key)}{also}"


def _sure(row: ResultRow, key: str) -> str:
    """Return the value of the metric `key` as text, with its unit and 95 % confidence interval if known."""
    metric, figure = METRICS[key], row.figures[key]
    words = f"{metric.text(figure.mean)} {metric.unit}"
    if figure.low is None or figure.high is None:
        return f"{words} (a single run: no interval)"
    return f"{words} (95 % interval {metric.text(figure.low)} to {metric.text(figure.high)})"


def _where(row: ResultRow, name: Callable[[str], str] | None) -> str:
    words = row.key.point.short
    return words if name is None else f"{name(row.key.target)} {words}"
