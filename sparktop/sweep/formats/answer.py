"""Writes the first sentences of a report, which answer the sweep's question: those of the screen."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.report.markdown import code
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.view.result import Findings
from sparktop.sweep.view.words.capacity import capacity_sentences
from sparktop.sweep.view.words.headline import headline
from sparktop.sweep.view.words.slo import slo_sentences
from sparktop.sweep.view.words.verdict import judgements


def answer(result: SweepResult, found: Findings) -> list[str]:
    """Return the first sentences of a report as Markdown, the most important first; the list may be empty."""
    searched = [*capacity_sentences(result, code), *slo_sentences(result, code)]
    if searched:
        sentences = searched
    else:
        first = headline(result, found.topologies, code)
        sentences = [first] if first is not None else []
        sentences += judgements(result, found.rows, found.topologies, code)
    first, *others = map(_capital, sentences) if sentences else ("",)
    # The headline may say the same with fewer words.
    return [*filter(None, [first]), *(one for one in others if not first.startswith(one)), *_refusals(result)]


def _refusals(result: SweepResult) -> Iterator[str]:
    """Yield one sentence per target with the prompt lengths that the server refused."""
    for target in result.targets:
        refused = [level for level in target.levels if level.error is not None]
        lengths = sorted({level.pp for level in refused if level.pp is not None})
        if refused and not lengths:
            yield f"{code(target.name)} refused the prompts"
        if lengths:
            yield f"{code(target.name)} refused {', '.join(f'{pp:,}' for pp in lengths)} tokens in"


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
