"""Compares a sweep with published tables and with results of other files: theirs, ours, the difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sparktop.report.markdown import code
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import Series
from sparktop.sweep.formats.comparison import versus_sections
from sparktop.sweep.formats.section import Section
from sparktop.sweep.result.comparison import ComparisonResult
from sparktop.sweep.terms.definitions import METRICS


@dataclass(frozen=True, slots=True)
class Beside:
    """Series of other sources (published tables, other files) that a report compares a sweep with."""

    series: tuple[Series, ...]

    def sections(self, own: Sequence[Series]) -> Iterator[Section]:
        """Yield report sections that compare the series `own` with those of the other sources.

        They are a table for each metric that both sides have, then the metrics that sources define
        differently.
        """
        taken = {one.name for one in own}
        others = [
            replace(one, name=f"{one.name} ({one.source})") if one.name in taken else one
            for one in self.series
        ]
        found = compare([*own, *others])
        tables = list(versus_sections(found, {one.name: [other.name for other in others] for one in own}))
        sources = ", ".join(code(name) for name in dict.fromkeys(one.source for one in others))
        none = () if tables else ("No level has the same load as one of this sweep.",)
        yield Section(f"Beside {sources}", paragraphs=none, rank=2)
        yield from tables
        if definitions := tuple(_definitions(found)):
            yield Section("Defined differently", items=definitions)


def _definitions(found: ComparisonResult) -> Iterator[str]:
    for metric, texts in found.definitions.items():
        for text in dict.fromkeys(texts.values()):
            names = ", ".join(code(name) for name, own in texts.items() if own == text)
            yield f"{METRICS[metric].title} of {names}: {text}"
