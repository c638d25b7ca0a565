"""A comparison as Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from sparktop.report.markdown import code
from sparktop.sweep.comparison_notes import NO_TEST
from sparktop.sweep.comparison_result import ComparisonResult
from sparktop.sweep.definitions import METRICS, lines
from sparktop.sweep.formats.grid import in_markdown
from sparktop.sweep.formats.layouts import versus, winners
from sparktop.sweep.series import Series


def to_json(comparison: ComparisonResult) -> str:
    """Give a comparison as JSON: the object that a sweep's file holds under "comparison"."""
    values = comparison.model_dump(mode="json", by_alias=True)
    return json.dumps(values, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def to_markdown(comparison: ComparisonResult, series: Sequence[Series]) -> str:
    """Give a comparison as Markdown: a table a metric, crossovers, notes, what each figure means."""
    names = [one.name for one in series]
    told = [metric for metric in METRICS if any(row.metric == metric for row in comparison.rows)]
    blocks = ["## sparktop compare", "\n".join(_sources(series))]
    blocks += [in_markdown(winners(comparison, metric, names)) for metric in told]
    if comparison.baseline is not None:
        grids = (versus(comparison, metric) for metric in told)
        blocks += [in_markdown(grid) for grid in grids if grid.rows]
    if not told:
        blocks.append("Nothing to compare: no two of them have a figure under the same concurrency.")
    blocks += notes_in_markdown(comparison)
    blocks += _definitions(comparison, told)
    return "\n\n".join(blocks) + "\n"


def notes_in_markdown(comparison: ComparisonResult) -> Iterator[str]:
    """Give the crossovers and the notes, each as a list under a heading."""
    if comparison.crossovers:
        found = (
            f"- {METRICS[one.metric].title}: from {code(one.from_)} to {code(one.to)} "
            f"between c{one.between[0]} and c{one.between[1]}"
            for one in comparison.crossovers
            if one.metric in METRICS
        )
        yield "### Crossovers\n\n" + "\n".join(found)
    # All but that one hold names from outside.
    notes = [f"- {note if note == NO_TEST else code(note)}" for note in comparison.notes]
    floor = max(comparison.noise_floor_percent.values(), default=None)
    if floor is not None and any(row.significant is not None for row in comparison.rows):
        notes.append(
            f"- a difference counts where the 95 % interval of the ratio leaves out 1 and it is beyond "
            f"{floor:.1f} % of noise; else: no difference shown"
        )
    if notes:
        yield "### Notes\n\n" + "\n".join(notes)


def _sources(series: Sequence[Series]) -> Iterator[str]:
    by_source: dict[tuple[str, ...], list[str]] = {}
    for one in series:
        parts = (one.source, one.tool, one.model or "", one.shape.value if one.shape else "")
        by_source.setdefault(parts, []).append(one.name)
    for about, names in by_source.items():
        who = ", ".join(code(name) for name in names)
        yield f"- {who}: {' · '.join(code(part) for part in about if part)}"


def _definitions(comparison: ComparisonResult, told: Sequence[str]) -> Iterator[str]:
    if not told:
        return
    found = [f"- {line}" for line in lines([name for name in told if name not in comparison.definitions])]
    for metric, means in comparison.definitions.items():
        by_text: dict[str, list[str]] = {}
        for name, text in means.items():
            by_text.setdefault(text, []).append(name)
        for text, names in by_text.items():
            who = ", ".join(code(name) for name in names)
            found.append(f"- {METRICS[metric].title} ({METRICS[metric].unit}) of {who}: {text}.")
    yield "### What the figures mean\n\n" + "\n".join(found)
