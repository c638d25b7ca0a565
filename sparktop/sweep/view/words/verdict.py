"""The sentences below a sweep's headline: where which target or level is the best, and what to read first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.model.judgement import NO_DIFFERENCE, NOT_TESTED, Name
from sparktop.model.sweep_comparison import Topologies
from sparktop.model.sweep_view import Rank, ResultRow
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.terms.definitions import FEW_RUNS, METRICS, in_sentence
from sparktop.sweep.view.depth import depth_sentences
from sparktop.sweep.view.words.targets import main_sentences


def verdict(
    result: SweepResult, rows: Sequence[ResultRow], compared: Topologies | None, name: Name = str
) -> tuple[str, ...]:
    """Return the sentences that explain a sweep's headline; empty if there is nothing to report yet.

    They are those of `judgements`, and how many levels have a warning.
    """
    sentences = judgements(result, rows, compared, name)
    made = [row for row in rows if row.error is None]
    warned = [row for row in made if any(mark.doubt for mark in row.marks)]
    if warned and (sentences or result.status is not None):
        ending = "have a warning: see why before you trust them"
        if len(warned) == 1:
            ending = "has a warning: see why before you trust it"
        who = "the level" if len(made) == 1 else f"{len(warned)} of {len(made)} levels"
        sentences.append(f"{who} {ending}")
    return tuple(sentences)


def judgements(
    result: SweepResult, rows: Sequence[ResultRow], compared: Topologies | None, name: Name = str
) -> list[str]:
    """Return in sentences where which target, or which level of the only target, is the best.

    `rows` are the rows of the result table, `compared` is the comparison of several targets. `name` escapes
    names for the output format.
    """
    sentences: list[str] = list(depth_sentences(result, name))[1:]  # the first is the headline
    if compared is not None:
        sentences += main_sentences(compared.metrics, name)
    elif sum(bool(target.levels) for target in result.targets) == 1:
        sentences += best_levels(rows)
    return sentences


def best_levels(rows: Sequence[ResultRow]) -> Iterator[str]:
    """Yield for each prompt length of one target which level has the highest token rate, with its interval.

    It is the level that the table of levels marks as the best.
    """
    key = next((row.rate for row in rows if row.rate is not None), None)
    if key is None or any(row.key.depth for row in rows):
        return  # the highest rate is that without context
    lengths = list(dict.fromkeys(row.key.prompt_tokens for row in rows))
    for length in lengths:
        ranked = [row for row in rows if row.key.prompt_tokens == length and key in row.ranks]
        best = next((row for row in ranked if row.ranks[key] is Rank.BEST), None)
        if best is not None:
            others = ", ".join(row.key.point.short for row in ranked if row is not best)
            also = f"; {others}: {NO_DIFFERENCE}" if others else ""
            among = f" of {length:,} in" if len(lengths) > 1 and length is not None else ""
            title = in_sentence(METRICS[key].title)
            yield f"most {title}{among} at {best.key.point.short}: {_sure(best, key)}{also}"


def _sure(row: ResultRow, key: str) -> str:
    """Return the value of the metric `key` as text, with its unit and 95 % confidence interval if known."""
    metric, figure = METRICS[key], row.figures[key]
    words = f"{metric.text(figure.mean)} {metric.unit}"
    if any(mark.code == FEW_RUNS for mark in row.marks) and row.runs > 1:
        return f"{words} ({row.runs} runs: too few for an interval)"
    if figure.low is None or figure.high is None:
        return f"{words} ({NOT_TESTED})"
    return f"{words} (95 % interval {metric.text(figure.low)} to {metric.text(figure.high)})"
