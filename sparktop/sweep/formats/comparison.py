"""A comparison of several series (measured targets, published tables) as a report, Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from pydantic import JsonValue

from sparktop.model.sweep_comparison import Value
from sparktop.report.document.section import Section
from sparktop.report.document.section import to_markdown as in_markdown
from sparktop.report.markdown import code
from sparktop.sweep.compare.compare import NO_TEST, compare, unlike_notes, without_winners
from sparktop.sweep.compare.independent import beyond_sentences, by_engines, engines_sentence
from sparktop.sweep.compare.references import fact_lines
from sparktop.sweep.compare.series import Load, Series, SeriesLevel, aligned
from sparktop.sweep.formats.tables import (
    all_versus,
    at_best,
    load_of,
    rates_and_refused,
    versus,
    winners_and_refused,
)
from sparktop.sweep.result.results import ComparisonResult
from sparktop.sweep.terms.definitions import METRICS, lines
from sparktop.sweep.view.topologies import topologies
from sparktop.sweep.view.words.capacity import compared_words
from sparktop.sweep.view.words.targets import main_sentences

TITLE = "sparktop compare"
MEANINGS = "What the figures mean"
"""Heading of the definitions."""
_BESIDE = ("decode_tps", "prefill_tps", "sustained_tps", "output_tps", "ttft_ms")
"""Metrics of a sweep that are compared with other series."""
Facts = Mapping[str, Mapping[str, JsonValue]]
"""Facts that published tables state in addition: value by name of the fact, by name of the table."""


def to_json(comparison: ComparisonResult, series: Sequence[Series] = (), facts: Facts | None = None) -> str:
    """Return a comparison as JSON text, in the format of the key "comparison" of a result file.

    If `series` are given, the JSON object also has the keys "series" and "facts" with the two arguments.
    """
    values = without_winners(comparison).model_dump(mode="json", by_alias=True)
    if series:
        values["series"] = [_series(one) for one in series]
        values["facts"] = dict(facts or {})
    return json.dumps(values, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def to_markdown(comparison: ComparisonResult, series: Sequence[Series], facts: Facts | None = None) -> str:
    """Return a comparison as Markdown."""
    return in_markdown(TITLE, sections(comparison, series, facts))


def sections(
    comparison: ComparisonResult, series: Sequence[Series], facts: Facts | None = None
) -> list[Section]:
    """Return a comparison as sections of a report: one table per metric, crossovers, notes and definitions.

    If a metric of a series cannot be compared at every level of the series, the report also has a table of
    the metric for this series alone. Results on unlike loads have no winners.
    """
    unlike = unlike_notes(comparison)
    comparison = without_winners(comparison)
    metrics = [metric for metric in METRICS if any(row.metric == metric for row in comparison.rows)]
    found = [Section(items=tuple(_sources(series)))]
    if comparison.capacity is not None:
        found.insert(0, Section(paragraphs=(compared_words(comparison.capacity, code),)))
    found[:0] = [
        Section(
            paragraphs=(
                (
                    f"**Not the same load** ({code(one.removeprefix('not alike: '))}): "
                    "differences below are not those of the targets alone"
                ),
            )
        )
        for one in unlike
    ]
    found += _tables(comparison, metrics, series)
    found += _versus(comparison, series)
    if not metrics and len(series) > 1:
        words = "No two of them have a figure under the same concurrency: each has its own table."
        found.append(Section(paragraphs=(words,)))
    lone = {
        one.name: _lone_metrics(one, levels, comparison)
        for one, levels in zip(series, aligned(series), strict=True)
    }
    found += [table for one in series for table in _lone_tables(one, lone[one.name])]
    found += [*engine_sections(comparison), *note_sections(comparison)]
    found += _lone_notes(series) if not comparison.notes else []
    found += fact_sections(facts or {})
    shown = [name for name in METRICS if name in metrics or any(name in names for names in lone.values())]
    found += _definitions(comparison, shown, series)
    if not unlike and (answers := main_sentences(topologies(comparison, series).metrics, code)):
        found.append(Section("Answer", paragraphs=(f"**{answers[0]}.**",)))
    return found


def _tables(
    comparison: ComparisonResult, metrics: Sequence[str], series: Sequence[Series]
) -> Iterator[Section]:
    """Yield the table of each of `metrics`, or a line in its place if one before has the same cells."""
    seen: dict[tuple[object, ...], str] = {}
    for metric in metrics:
        grid, meaning = winners_and_refused(comparison, metric, series), METRICS[metric]
        same = seen.setdefault((grid.heads, grid.rows, meaning.unit, meaning.more_is_better), meaning.title)
        if same == meaning.title:
            yield Section(table=grid)
        else:
            yield Section(paragraphs=(f"{meaning.title}: the same figures as {same}.",))


def _lone_metrics(
    series: Series, levels: Mapping[Load, SeriesLevel], comparison: ComparisonResult
) -> list[str]:
    """Return the metrics of a series that have a value at a level where the comparison lacks it."""
    placed = {(row.metric, load_of(row)) for row in comparison.rows if series.name in row.values}
    return [
        name
        for name in METRICS
        if any(name in level.figures and (name, load) not in placed for load, level in levels.items())
    ]


def _lone_tables(series: Series, metrics: Sequence[str]) -> Iterator[Section]:
    """Yield tables of one series with the rates, then the latencies, among `metrics`."""
    for better, title in ((True, "rates"), (False, "latencies")):
        names = [name for name in metrics if METRICS[name].more_is_better is better]
        if names:
            yield Section(table=rates_and_refused(series, names, f"{code(series.name)}: {title}"))


def engine_sections(comparison: ComparisonResult) -> Iterator[Section]:
    """Yield a section for each set of engines that routers distribute requests to.

    A table and a list of sentences show an upper bound (the sum of the values of N engines, each measured
    alone at 1/N of the concurrency), the percentage of it that each router reached, and targets that
    exceeded it.
    """
    for group in by_engines(comparison.independent_engines):
        lines = [engines_sentence(group)]
        lines += dict.fromkeys(sentence for one in group for sentence in beyond_sentences(one))
        yield Section(table=at_best(group), items=tuple(map(code, lines)))


def note_sections(comparison: ComparisonResult) -> Iterator[Section]:
    """Yield the crossovers and the notes of a comparison, each as a list under a heading."""
    found = tuple(
        f"{METRICS[one.metric].title}: from {code(one.from_)} to {code(one.to)} "
        f"between {one.words}{'' if one.significant else ' (as published)'}"
        for one in comparison.crossovers
        if one.metric in METRICS
    )
    # All notes except `NO_TEST` contain untrusted names.
    notes = [note if note == NO_TEST else code(note) for note in comparison.notes]
    for title, items in (("Crossovers", found), ("Notes", (*notes, *rules(comparison)))):
        if items:
            yield Section(title, items=tuple(items))


def rules(comparison: ComparisonResult) -> Iterator[str]:
    """Yield a sentence on when a target counts as winner, if there was a test."""
    floor = max(comparison.noise_floor_percent.values(), default=None)
    rate = comparison.error_rate_percent
    if floor is not None and rate is not None and any(row.significant is not None for row in comparison.rows):
        yield (
            f"a winner is better than every other target by more than the noise of {floor:.1f} %, and the "
            f"difference is significant: of tables whose targets are all alike, at most {rate:.0f} % would "
            "name any winner"
        )


def _versus(comparison: ComparisonResult, series: Sequence[Series]) -> Iterator[Section]:
    """Yield a table for each metric that compares one series ("ours") with others ("theirs").

    "Ours" is the baseline, and "theirs" are all other series. Without a baseline, "ours" is each measured
    series in turn, and "theirs" are the published series.
    """
    if comparison.baseline is not None:
        others = {comparison.baseline: [one.name for one in series if one.name != comparison.baseline]}
    else:
        published = [one.name for one in series if one.published]
        others = {one.name: published for one in series if not one.published}
    for ours, theirs in others.items():
        grids = [versus(comparison, metric, ours, theirs) for metric in METRICS]
        grids = [grid for grid in grids if grid.rows]
        if grids and len(others) > 1:
            yield Section(f"Ours: {code(ours)}", rank=2)
        yield from (Section(table=grid) for grid in grids)


def beside_sections(own: Sequence[Series], others: Sequence[Series]) -> Iterator[Section]:
    """Yield tables that compare a sweep's targets with other series, then the definitions that differ."""
    if not others:
        return
    taken = {one.name for one in own}
    others = [replace(one, name=f"{one.name} ({one.source})") if one.name in taken else one for one in others]
    found = compare([*own, *others])
    names, theirs = [one.name for one in own], [one.name for one in others]
    grids = [grid for metric in _BESIDE if (grid := all_versus(found, metric, names, theirs)).rows]
    sources = ", ".join(code(name) for name in dict.fromkeys(one.source for one in others))
    none = () if grids else ("No level has the same load as one of this sweep.",)
    yield Section(f"Beside {sources}", paragraphs=none, rank=2)
    yield from (Section(table=grid) for grid in grids)
    if found.definitions:
        yield Section("Defined differently", items=tuple(_different(found)))


def fact_sections(facts: Facts) -> Iterator[Section]:
    """Yield for each published table a list of the further facts that it states."""
    for name, stated in facts.items():
        if stated:
            yield Section(f"What {code(name)} also says", items=tuple(fact_lines(stated)))


def _lone_notes(series: Sequence[Series]) -> Iterator[Section]:
    notes = tuple(f"{code(one.name)}: {code(note)}" for one in series for note in one.notes)
    if notes:
        yield Section("Notes", items=notes)


def _series(series: Series) -> dict[str, Any]:
    """Return a series as a JSON object."""
    return {
        "name": series.name,
        "source": series.source,
        "tool": series.tool,
        "model": series.model,
        "published": series.published,
        "simulated": series.simulated,
        "notes": list(series.notes),
        "levels": [
            {
                **_load(level.load),
                "runs": level.runs,
                "validity": list(level.validity),
                "figures": {name: _figure(figure) for name, figure in level.figures.items()},
            }
            for level in series.levels
        ],
        "refused": [{**_load(load), "error": words} for load, words in series.refused.items()],
    }


def _load(load: Load) -> dict[str, Any]:
    point = load.point
    return {
        "concurrency": load.concurrency if load.position is None else None,
        "load": point.kind.value,
        "value": point.value,
        "pp": load.pp,
        "tg": load.tg,
        "depth": load.depth,
    }


def _figure(figure: Value) -> dict[str, Any]:
    return {
        "mean": figure.mean,
        "std": figure.std,
        "values": list(figure.runs),
        "range": None if figure.span is None else list(figure.span),
    }


def _sources(series: Sequence[Series]) -> Iterator[str]:
    by_source: dict[tuple[str, ...], list[str]] = {}
    for one in series:
        parts = (one.source, one.tool, one.model or "", one.shape.value if one.shape else "")
        by_source.setdefault(parts, []).append(one.name)
    for about, names in by_source.items():
        who = ", ".join(code(name) for name in names)
        yield f"{who}: {' · '.join(code(part) for part in about if part)}"


def _definitions(
    comparison: ComparisonResult, metrics: Sequence[str], series: Sequence[Series]
) -> Iterator[Section]:
    if not metrics:
        return
    own = {name: one.definitions[name] for one in series for name in metrics if name in one.definitions}
    apart = {name for name in metrics if name not in comparison.definitions and name in own}
    found = lines([name for name in metrics if name not in comparison.definitions and name not in apart])
    found += [
        f"{METRICS[name].title} ({METRICS[name].unit}): {own[name]}." for name in metrics if name in apart
    ]
    found += _different(comparison)
    yield Section(MEANINGS, items=tuple(found), folded=True)


def _different(comparison: ComparisonResult) -> Iterator[str]:
    """Yield one line per definition, for each metric that a source defines differently from sparktop.

    The line names the series that use the definition.
    """
    for metric, text, names in comparison.names_by_definition:
        who = ", ".join(code(name) for name in names)
        yield f"{METRICS[metric].title} ({METRICS[metric].unit}) of {who}: {text}."
