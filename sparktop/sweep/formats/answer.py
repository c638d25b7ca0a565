"""Writes the first sentences of a report, which answer the sweep's question.

The headline comes first: where the SLO conditions hold, or else which target or which level is best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from sparktop.model.sweep_comparison import (
    NO_DIFFERENCE,
    NO_WINNER,
    NONE_OF_LEADERS,
    ComparedLevel,
    ComparedMetric,
    Topologies,
)
from sparktop.model.text import names_in_words
from sparktop.report.markdown import code
from sparktop.sweep.compare.advice import percents
from sparktop.sweep.compare.proof import main_metrics
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.terms.definitions import in_sentence
from sparktop.sweep.view.prefix import context_sentences
from sparktop.sweep.view.result import Findings
from sparktop.sweep.view.words.capacity import capacity_sentences
from sparktop.sweep.view.words.headline import headline
from sparktop.sweep.view.words.slo import slo_sentences
from sparktop.sweep.view.words.verdict import best_level


def answer(result: SweepResult, found: Findings) -> list[str]:
    """Return the first sentences of a report as Markdown, the most important first; the list may be empty."""
    several = sum(bool(target.levels) for target in result.targets) > 1
    first = headline(result, found.topologies, code)
    searched = [*capacity_sentences(result, code), *slo_sentences(result, code)]
    sentences = searched or ([first] if first is not None else [])
    sentences += list(context_sentences(result, code))[1:]  # the first is the headline
    if not searched and found.topologies is not None:
        sentences += _targets(found.topologies)
    elif not searched:
        sentences += best_level(found.rows, code if several else None)
    first, *others = map(_capital, sentences) if sentences else ("",)
    # The headline may say the same with fewer words.
    return [*filter(None, [first]), *(one for one in others if not first.startswith(one)), *_refusals(result)]


def targets_words(compared: Topologies) -> list[str]:
    """Return one sentence of Markdown for each main metric: which target is the best, and at which loads."""
    return list(_targets(compared))


def _targets(compared: Topologies) -> Iterator[str]:
    """Yield one sentence for each main metric: which target is the best, and at which loads.

    If no difference between targets is shown in any main metric, yield a single sentence that says so.
    """
    known = {one.metric: one for one in compared.metrics}
    metrics = [known[name] for name in main_metrics(known)]
    if metrics and all(_state(level) == NO_DIFFERENCE for metric in metrics for level in metric.levels):
        titles = [in_sentence(metric.title) for metric in metrics]
        *most, last = titles
        yield f"No difference between the targets is shown in {', '.join(most)}{' or ' if most else ''}{last}"
        return
    for metric in metrics:
        yield f"{metric.title}: {_best(metric)}"


def _best(metric: ComparedMetric) -> str:
    """Return the best target by load in one metric: "`a` best at c1–c4; no difference shown at c16"."""
    places: dict[str, list[str]] = {}
    for state, levels in groupby(metric.levels, _state):
        places.setdefault(state, []).append(_stretch(list(levels), metric.levels))
    parts = [f"{state} at {', '.join(where)}" for state, where in places.items()]
    untested = any(level.significant is None and level.winner is None for level in metric.levels)
    return "; ".join(parts) + (" (single runs: no test possible)" if untested else "")


def won_words(metric: ComparedMetric) -> str:
    """Return as `_best`, with leads: "`a` best at c1–c4 (+20 to +33 % against `b`); no difference at c16"."""
    parts = []
    for state, group in groupby(metric.levels, _state):
        levels = list(group)
        lead = ""
        if levels[0].winner is not None:
            rivals = {level.against for level in levels}
            rival = code(rivals.pop() or "") if len(rivals) == 1 else "the runner-up"
            lead = f" ({percents(levels).replace(' % to', ' to')} against {rival})"
        parts.append(f"{state} at {_stretch(levels, metric.levels)}{lead}")
    return "; ".join(parts)


def _state(level: ComparedLevel) -> str:
    """Return the outcome of a comparison at one level as text: "`a` best", or that no difference is shown."""
    if level.winner is not None:
        return f"{code(level.winner)} best"
    if level.significant is None and level.ahead is not None:
        return f"{code(level.ahead)} ahead"
    if level.leaders:
        return f"{names_in_words([code(name) for name in level.leaders])} lead, {NONE_OF_LEADERS},"
    return NO_WINNER if level.beats else NO_DIFFERENCE


def _stretch(levels: Sequence[ComparedLevel], among: Sequence[ComparedLevel]) -> str:
    """Return a text for consecutive levels: "c1–c4", "5,000–39,000 in" (prompt tokens), or "c1 5,000 in".

    The text names the concurrency, the prompt length or both, whichever differ between the levels `among`,
    which are all levels of the comparison.
    """
    lengths = {level.prompt_tokens for level in among}
    if len({level.point for level in among}) == 1 < len(lengths):
        words = [f"{level.prompt_tokens or 0:,}" for level in levels]
        return f"{_range(words, '–')} in"
    names = [level.point.short + (f" @ {level.depth:,}" if level.depth else "") for level in levels]
    if len(lengths) == 1:
        return _range(names, " to " if any(level.depth for level in among) else "–")
    pairs = zip(names, levels, strict=True)
    return _range([f"{name} {level.prompt_tokens or 0:,} in" for name, level in pairs], " to ")


def _range(words: Sequence[str], between: str) -> str:
    return words[0] if len(words) == 1 else f"{words[0]}{between}{words[-1]}"


def _refusals(result: SweepResult) -> Iterator[str]:
    """Yield one sentence per target with the prompt lengths that the server refused."""
    for target in result.targets:
        lengths = sorted({level.pp or 0 for level in target.levels if level.error is not None})
        if lengths:
            yield f"{code(target.name)} refused {', '.join(f'{pp:,}' for pp in lengths)} tokens in"


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
