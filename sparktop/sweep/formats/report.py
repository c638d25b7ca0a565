"""A sweep's result, or a comparison of several series, as the sections of a report.

Summary, warnings, tables and definitions of metrics; written as Markdown, HTML or JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from sparktop.engines.registry import ENGINES
from sparktop.graphics import numbers
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.load import Level, LoadKind, LoadMode, TokenSource
from sparktop.model.router import LITELLM
from sparktop.model.series import known_max, known_min
from sparktop.model.sweep import Mark, MarkKind, SweepView
from sparktop.model.text import names_in_words
from sparktop.model.yardsticks import FLAGS, NO_FLAGS
from sparktop.report.document.document import Cell, Grid, Section, Untrusted, escaped, to_markdown
from sparktop.report.markdown import code
from sparktop.sweep.compare.compare import (
    NO_TEST,
    compare,
    comparison_of,
    definitions_of,
    engines_sentences,
    judging,
    length_words,
    names_by_definition,
    notes_of_each,
    refused_words,
    unlike_notes,
    without_winners,
)
from sparktop.sweep.compare.series import (
    UNSTATED_WORDS,
    LevelSeries,
    SeriesLevel,
    align_rows,
    comparable_with,
    other_load_words,
    series_of,
    without_lengths,
)
from sparktop.sweep.formats.tables import (
    TABLES,
    by_concurrency,
    known_columns,
    level_words,
    split_grid,
    versus,
    winners,
)
from sparktop.sweep.plan.plan import Order, TargetKind, runs_words
from sparktop.sweep.result.level import run_shares
from sparktop.sweep.result.results import (
    ComparisonResult,
    LevelResult,
    NodeSide,
    PlanResult,
    SweepResult,
    TargetResult,
    level_of,
)
from sparktop.sweep.terms.definitions import (
    METRICS,
    QUEUE_LIMITED,
    WARNINGS,
    metric_lines,
    shown,
    term_lines,
)
from sparktop.sweep.view.capacity import capacity_sentences, compared_words, stored_words, tried_lines
from sparktop.sweep.view.levels import level_facts
from sparktop.sweep.view.marks import PADDING, REFUSED, marks_of
from sparktop.sweep.view.result import result_view, topologies
from sparktop.sweep.view.words import (
    beside_words,
    depth_sentences,
    headline,
    incomplete_words,
    judgements,
    left_words,
    main_sentences,
    slo_sentences,
)

COMPARISON_TITLE = "sparktop compare"
MEANINGS = "What the figures mean"
"""Heading of the definitions."""
_BESIDE = ("decode_tps", "prefill_tps", "sustained_tps", "output_tps", "ttft_ms")
"""Metrics of a sweep that are compared with other series."""
Facts = Mapping[str, Mapping[str, object]]
"""Facts that published tables state in addition: value by name of the fact, by name of the table."""


def comparison_json(
    comparison: ComparisonResult, series: Sequence[LevelSeries], facts: Facts | None = None
) -> str:
    """Return a comparison as JSON text, in the format of the key "comparison" of a result file.

    The JSON object also has the keys "series" and "facts" with the two arguments.
    """
    values = without_winners(comparison).model_dump(mode="json", by_alias=True)
    values |= {"series": list(map(_series_json, series)), "facts": dict(facts or {})}
    return json.dumps(values, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def comparison_markdown(comparison: ComparisonResult, series: Sequence[LevelSeries]) -> str:
    """Return a comparison, or a report on a single series, as Markdown."""
    title = COMPARISON_TITLE if len(series) > 1 else "sparktop report"
    return to_markdown(title, comparison_sections(comparison, series))


def comparison_sections(comparison: ComparisonResult, series: Sequence[LevelSeries]) -> list[Section]:
    """Return a comparison as sections of a report: one table per metric, crossovers, notes and definitions.

    If a metric of a series cannot be compared at every level of the series, the report also has a table of
    the metric for this series alone. Results on unlike loads have no winners and begin with a warning;
    others end with the answer in a sentence, if there is one.
    """
    unlike = unlike_notes(comparison)
    comparison = without_winners(comparison)
    metrics = [metric for metric in METRICS if any(row.metric == metric for row in comparison.rows)]
    parts = [Section(items=tuple(_source_lines(series)))]
    if comparison.capacity is not None:
        parts.insert(0, Section(paragraphs=(compared_words(comparison.capacity, code),)))
    parts[:0] = [
        Section(
            paragraphs=(
                (
                    f"**Not the same load** ({code(note.removeprefix('not alike: '))}): "
                    "differences below are not those of the targets alone"
                ),
            )
        )
        for note in unlike
    ]
    parts += [Section(table=known_columns(winners(comparison, metric, series))) for metric in metrics]
    parts += _versus_tables(comparison, series)
    if not metrics and len(series) > 1:
        words = "No two of them have a figure under the same concurrency: each has its own table."
        parts.append(Section(paragraphs=(words,)))
    lone = {
        a_series.name: _lone_metrics(a_series, levels, comparison)
        for a_series, levels in zip(series, align_rows(series), strict=True)
    }
    for a_series in series:
        for better, title in ((True, "rates"), (False, "latencies")):
            names = [name for name in lone[a_series.name] if METRICS[name].more_is_better is better]
            table = by_concurrency(a_series, names, f"{code(a_series.name)}: {title}")
            parts += [Section(table=table)] if names else []
    parts += note_sections(comparison)
    notes = tuple(f"{code(a_series.name)}: {escaped(note)}" for a_series in series for note in a_series.notes)
    parts += [Section("Notes", items=notes)] if notes and not comparison.notes else []
    listed = [name for name in METRICS if name in metrics or any(name in names for names in lone.values())]
    parts += _comparison_definitions(listed, series)
    answers = [] if unlike else main_sentences(topologies(comparison, series).metrics, code)
    if answers:
        parts.append(Section("Answer", paragraphs=(f"**{answers[0]}.**",)))
    return parts


def _lone_metrics(
    series: LevelSeries, levels: Mapping[Level, SeriesLevel], comparison: ComparisonResult
) -> list[str]:
    """Return the metrics of a series that have a value at a level where the comparison lacks it."""
    compared = {(row.metric, level_of(row)) for row in comparison.rows if series.name in row.values}
    return [
        name
        for name in METRICS
        if any(name in level.figures and (name, load) not in compared for load, level in levels.items())
    ]


def note_sections(comparison: ComparisonResult, said: Collection[str] = ()) -> Iterator[Section]:
    """Yield what routers reach of their engines, crossovers and notes, each as a list under a heading.

    Notes that the report has `said` elsewhere are left out.
    """
    engines = map(escaped, engines_sentences(comparison.independent_engines))
    crossovers = tuple(
        f"{METRICS[crossover.metric].title}: from {code(crossover.from_)} to {code(crossover.to)} "
        f"between {crossover.words}{'' if crossover.significant else ' (as published)'}"
        for crossover in comparison.crossovers
        if crossover.metric in METRICS
    )
    # All notes except those of `NO_TEST` contain untrusted names.
    notes = [
        note if note.startswith(NO_TEST) else escaped(note) for note in comparison.notes if note not in said
    ]
    lists = {
        "Independent engines at best": engines,
        "Crossovers": crossovers,
        "Notes": (*notes, *winner_rules(comparison)),
    }
    yield from _list_sections(lists)


def _list_sections(lists: Mapping[str, Iterable[str]]) -> Iterator[Section]:
    """Yield a section for each list of `lists`, by title, that is not empty."""
    for title, lines in lists.items():
        items = tuple(lines)
        if items:
            yield Section(title, items=items)


FALSE_WINNERS = "of 100 comparisons of equal targets, at most {:.0f} name a winner"
"""What the error rate of winners means."""


def winner_rules(comparison: ComparisonResult) -> Iterator[str]:
    """Yield a sentence on when a target counts as winner, if there was a test."""
    floor = max(comparison.noise_floor_percent.values(), default=None)
    rate = comparison.error_rate_percent
    if floor is not None and rate is not None and any(row.ratio_ci95 is not None for row in comparison.rows):
        yield (
            f"a target wins where it is better than every other by more than {floor:.1f} % (the noise), and "
            f"by more than chance: {FALSE_WINNERS.format(rate)}"
        )


def _versus_tables(comparison: ComparisonResult, series: Sequence[LevelSeries]) -> Iterator[Section]:
    """Yield a table for each metric: the baseline beside all others, else ours beside published series."""
    ours = [a_series.name for a_series in series if not a_series.published]
    ours = ours if comparison.baseline is None else [comparison.baseline]
    their_names = [a_series.name for a_series in series if a_series.name not in ours]
    grids = (versus(comparison, metric, ours, their_names) for metric in METRICS)
    yield from (Section(table=grid) for grid in grids if grid.rows)


def beside_sections(series: Sequence[LevelSeries], others: Sequence[LevelSeries]) -> Iterator[Section]:
    """Yield tables that compare a sweep's targets with other series, then the definitions that differ."""
    if not others:
        return
    own_names = {own_series.name for own_series in series}
    others = [
        replace(other, name=f"{other.name} ({other.source})") if other.name in own_names else other
        for other in others
    ]
    comparison = compare([*series, *others])
    alike = comparable_with(series, others)
    names, their_names = [own_series.name for own_series in series], [other.name for other in alike]
    grids = [versus(comparison, metric, names, their_names) for metric in _BESIDE]
    grids = [grid for grid in grids if grid.rows]
    sources = ", ".join(code(name) for name in dict.fromkeys(other.source for other in others))
    left_out = [f"{code(other.name)} {other_load_words(other)}." for other in others if other not in alike]
    unstated = without_lengths([*series, *alike])
    left_out += [f"{code(other.name)}: {UNSTATED_WORDS}." for other in alike if other in unstated]
    if not grids and not left_out:
        left_out = ["No level has the same load as one of this sweep."]
    yield Section(f"Beside {sources}", paragraphs=tuple(left_out), rank=2)
    yield from (Section(table=grid) for grid in grids)
    if comparison.definitions:
        yield Section("Defined differently", items=tuple(_definitions_by_source(comparison.definitions)))


def _series_json(series: LevelSeries) -> dict[str, Any]:
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
                **_load_json(level.load),
                "runs": level.runs,
                "validity": list(level.validity),
                "figures": {
                    name: {
                        "mean": figure.mean,
                        "std": figure.std,
                        "values": list(figure.runs),
                        "range": None if figure.span is None else list(figure.span),
                    }
                    for name, figure in level.figures.items()
                },
            }
            for level in series.levels
        ],
        "refused": [{**_load_json(load), "error": words} for load, words in series.refused.items()],
    }


def _load_json(load: Level) -> dict[str, Any]:
    point = load.point
    return {
        "concurrency": point.concurrency or None,
        "load": point.kind.value,
        "value": point.value,
        "pp": load.pp,
        "tg": load.tg,
        "depth": load.depth,
    }


def _source_lines(series: Sequence[LevelSeries]) -> Iterator[str]:
    by_source: dict[tuple[str, ...], list[str]] = {}
    unstated = without_lengths(series)
    for a_series in series:
        lengths = length_words(a_series)
        length_part = f"prompt / output tokens {lengths}" if lengths else ""
        parts = (
            a_series.source,
            a_series.tool,
            a_series.model or "",
            UNSTATED_WORDS if a_series in unstated else length_part,
            a_series.shape.sentence if a_series.shape else "",
        )
        by_source.setdefault(parts, []).append(a_series.name)
    for about, names in by_source.items():
        target_names = ", ".join(code(name) for name in names)
        yield f"{target_names}: {' · '.join(code(part) for part in about if part)}"


def _comparison_definitions(metrics: Sequence[str], series: Sequence[LevelSeries]) -> Iterator[Section]:
    """Yield the section with the definitions of `metrics`, if there are any: sparktop's, then others."""
    if metrics:
        others = definitions_of(series, metrics)
        items = metric_lines([name for name in metrics if name not in others])
        items += _definitions_by_source(others)
        yield Section(MEANINGS, items=tuple(items), folded=True)


def _definitions_by_source(definitions: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield one line per definition, for each metric that a source defines differently from sparktop.

    The line names the series that use the definition.
    """
    for metric, text, names in names_by_definition(definitions):
        target_names = ", ".join(code(name) for name in names)
        yield f"{METRICS[metric].title} ({METRICS[metric].unit}) of {target_names}: {shown(text)}."


TITLE = "sparktop sweep"
_METRICS_FIRST = ("decode_tps", "prefill_tps", "sustained_tps", "ttft_due_ms", "e2e_due_ms", "ttft_ms")
"""Metrics that get a table of winners when there are several targets, beside those that judge these."""
_DEPTH = (
    "c16 @ 4,096: 16 requests at once, each after 4,096 tokens of context, which were sent before with a few "
    "more words (see *Context*), so that the server's prefix cache has them. Prefill counts what comes after "
    "the context."
)
_LENGTHS = "; in, out: tokens of each prompt and of each answer"


def sweep_markdown(
    result: SweepResult, beside: Sequence[LevelSeries] = (), more: Sequence[Section] = ()
) -> str:
    """Return a sweep's result as Markdown, without server addresses.

    `beside` adds a comparison with other series; the sections `more` are placed before the definitions.
    """
    title = f"{TITLE} (simulated)" if result.simulated else TITLE
    return to_markdown(title, sections(result, beside, more=more))


def sections(
    result: SweepResult,
    beside: Sequence[LevelSeries] = (),
    plots: Sequence[str] = (),
    more: Sequence[Section] = (),
) -> list[Section]:
    """Return a sweep's result as the sections of a report.

    `beside` adds a comparison with other series, `plots` are SVG elements, and the sections `more` are placed
    before the definitions.
    """
    series = series_of(result)
    view = result_view(result)
    first, *others = answer(result, view) or ("",)
    parts = [Section(paragraphs=(f"**{first}**",) if first else (), items=tuple(others))]
    parts += [Section(paragraphs=tuple(_paragraphs(result))), Section(plots=tuple(plots))]
    comparison = comparison_of(result.comparison, series) if len(series) > 1 else None
    grids = []
    if comparison is not None:
        names = dict.fromkeys((*judging(comparison)[:1], *_METRICS_FIRST))
        grids = [winners(comparison, name, series) for name in names]
    tables = [*(Section(table=grid) for grid in grids), *_target_tables(result)]
    tables = [section for section in tables if section.table is None or section.table.rows]
    parts += tables
    if comparison is not None:
        parts += note_sections(comparison, {*notes_of_each(series)})
    parts += beside_sections(series, beside)
    left, slowed = [], []
    for target in result.targets:
        for level in target.in_order():
            where = f"{code(target.name)}, {level.point.label}"
            if level.left is not None:
                received = f"{level.left.received_tokens:,} tokens received"
                left.append(f"{where}: {left_words(level)}; {level.left.requests} in flight, {received}")
            if level.beside is not None:
                answered = f"{level.beside.arrived} long prompts answered, {level.beside.failed} failed"
                slowed.append(f"{where}: {beside_words(level, code)}; {answered}")
    lists = {
        "Loads that were tried": tried_items(result),
        "When clients hang up": left,
        "While long prompts arrive": slowed,
        "Remarks on levels": mark_details(result),
    }
    parts += _list_sections(lists)
    parts += evidence_sections(result)
    return [
        *parts,
        *more,
        _sweep_definitions(
            result, series, [section.table for section in tables if section.table is not None]
        ),
    ]


def _sweep_definitions(result: SweepResult, series: Sequence[LevelSeries], grids: Sequence[Grid]) -> Section:
    """Return a section with the definitions of all metrics and terms that occur in the tables."""
    targets = [target for target in result.targets if target.levels]
    shown_metrics = set().union(*(table.metrics(targets) for table in TABLES))
    if not shown_metrics:
        return Section(paragraphs=() if result.status == "failed" else ("Nothing was measured.",))
    lengths = _LENGTHS if any(a_series.has_lengths for a_series in series) else ""
    load = f"{result.plan.load.example}{lengths}."
    if any(level.depth for target in targets for level in target.levels):
        load += f" {_DEPTH}"
    # Terms that occur in headings and cells have a definition.
    words = {head for grid in grids for head in grid.heads if isinstance(head, str)}
    cells = (cell for grid in grids for row in grid.rows for cell in row)
    words |= {sign.strip("()") for cell in cells if isinstance(cell, str) for sign in cell.split()}
    return Section(MEANINGS, items=(load, *metric_lines(shown_metrics), *term_lines(words)), folded=True)


def _paragraphs(result: SweepResult) -> Iterator[str]:
    """Yield paragraphs about the plan, about errors, and about reasons to doubt the results."""
    plan = result.plan
    models = list(dict.fromkeys(target.model for target in result.targets if target.model))
    seed = "" if plan.seed is None else f"prompts chosen with seed {plan.seed}"
    if plan.seed is not None and plan.prompts is None:
        fresh_ways = {target.fresh_by for target in result.targets if target.fresh_by is not None}
        word = " and a word of this sweep" if "nonce" in fresh_ways else ""
        seed = f"prompts from seed {plan.seed}{word}" if fresh_ways else ""
    mean = " on average" if varies_in_length(plan) else ""
    parts = [
        ", ".join(code(model) for model in models),
        "" if plan.trace is None else escaped(plan.trace.words),
        f"workload {code(plan.workload)}" if plan.load is LoadKind.AGENTS and plan.workload else "",
        f"{lengths_words(result)} tokens in, {plan.tg if plan.tg is not None else '?'} out{mean}",
        *map(escaped, plan.request_words),
        f"{mode_words(plan)}, {effort_words(result)}",
        f"{plan.api.value} API",
        f"tokens counted by {_TOKENS_FROM[plan.tokens_from]}" if plan.tokens_from else "",
        "runs of the targets in turns" if plan.order is Order.ABBA else "",
        seed,
        f"{result.started_at:%Y-%m-%d %H:%M} UTC",
        f"sparktop {result.sparktop}",
        f"from {names_in_words([code(name) for name in result.joined_from])}" if result.joined_from else "",
    ]
    yield " · ".join(part for part in parts if part)
    yield from server_facts(result)
    started = [
        f"{names_in_words([*map(code, names)])} with {code(words) if is_command else words}"
        for words, names, is_command in launches(result)
    ]
    if started:
        yield f"Started, as the processes show it: {'; '.join(started)}"
    yield from machine_facts(result)
    yield from version_facts(result)
    if result.guard is not None:
        yield escaped(result.guard)
    yield from caveats(result)


def varies_in_length(plan: PlanResult) -> bool:
    """Return whether requests have lengths of their own: of a trace, of agents, or the user's prompts."""
    return plan.trace is not None or plan.load is LoadKind.AGENTS or plan.prompts is not None


def caveats(result: SweepResult, *, in_post: bool = False) -> Iterator[str]:
    """Yield what limits the results: an early end, errors of targets, warnings, and why levels are slow.

    A post has no reasons to be slow, and its tables mark the levels that have warnings.
    """
    if incomplete := incomplete_words(result).capitalize():
        yield f"**{incomplete}**{f': {code(result.stop_reason)}' if result.stop_reason else ''}"
    for target in result.targets:
        if target.error and target.error not in (result.stop_reason or ""):
            is_named = target.error.startswith(target.name)
            yield code(target.error) if is_named else f"{code(target.name)}: {code(target.error)}"
    summary = mark_summary(result, warning_letters(result) if in_post else None)
    if summary is not None:
        yield summary


def lengths_words(result: SweepResult) -> str:
    """Return the requested prompt lengths as text: "128", or "5,000, 20,000 and 39,000"; "?" if unknown.

    Of the user's own prompts, return the mean that the servers counted.
    """
    if result.plan.prompts is not None:
        counted_tokens = result.counted_prompt_tokens
        return "an unknown number of" if counted_tokens is None else f"{counted_tokens:,.0f}"
    return names_in_words([f"{length:,}" for length in result.prompt_lengths()] or ["?"])


_TOKENS_FROM = {
    TokenSource.TOKEN_IDS: "the token ids in answers",
    TokenSource.CHUNK_USAGE: "the running totals in answers",
    TokenSource.USAGE: "the chunks of answers, held against the totals at their ends",
    TokenSource.CHUNKS: "the chunks of answers, since the server sends no counts",
}
"""How tokens were counted."""
_MODES = {
    LoadMode.BURST: "all of a run at the same moment",
    LoadMode.STEADY: "the next as soon as one ends",
}
"""What modes mean, in words for readers who know other tools."""


def mode_words(plan: PlanResult) -> str:
    """Return how requests follow one another: "burst (all of a run at the same moment)", "open loop, …"."""
    if plan.mode is LoadMode.AGENTS:
        return plan.load.value
    if plan.mode is not LoadMode.OPEN:
        return f"{plan.mode.value} ({_MODES[plan.mode]})"
    arrivals = "arrivals as recorded" if plan.trace is not None else f"{plan.arrivals or '?'} arrivals"
    return f"open loop, {arrivals}"


def effort_words(result: SweepResult) -> str:
    """Return the planned size of a level as text: its number of runs, or its duration in seconds."""
    plan = result.plan
    or_more = " or more" if (result.slo or result.capacity) and plan.runs is not None else ""
    words = "? runs a level" if plan.runs is None else runs_words(plan.runs, more_runs=plan.more_runs)
    if plan.runs is None and plan.duration_s is not None:
        words = f"{plan.duration_s:g} s or more a level"
    if plan.mode in {LoadMode.OPEN, LoadMode.AGENTS} and plan.trace is None and plan.duration_s is not None:
        words = f"{'?' if plan.runs is None else plan.runs} × {plan.duration_s:g} s a level"
    return f"{words}{or_more}"


def _target_tables(result: SweepResult) -> Iterator[Section]:
    """Yield each target's tables (throughput, latencies, levels, backends), then that of the machines."""
    several = len(result.targets) > 1
    for target in result.targets:
        if several:
            yield Section(code(target.name), rank=2, on_page_only=True)
        for table in TABLES:
            title = f"{table.title}: {code(target.name)}" if several else table.title
            yield Section(table=table.grid(target, title))
        yield Section(table=split_grid(target))
    if several:
        yield Section("Behind the figures", rank=2, on_page_only=True)
    yield Section(table=hardware_grid(result))


def answer(result: SweepResult, view: SweepView, *, above_tables: bool = False) -> list[str]:
    """Return the first sentences of a report as Markdown, the most important first; the list may be empty.

    `above_tables`: with sentences on depth in place of the judgements, which the tables below show.
    """
    searched = [*capacity_sentences(result, code), *slo_sentences(result, code)]
    if searched and (result.capacity is not None or result.status == "done"):
        sentences = searched
    else:
        first = headline(result, view.topologies, code)
        sentences = [first] if first is not None else []
        if above_tables:
            sentences += list(depth_sentences(result, code))[1:]
        else:
            sentences += judgements(result, view.topologies, code)
    first, *others = (sentence[:1].upper() + sentence[1:] for sentence in sentences) if sentences else ("",)
    # The headline may say the same with fewer words.
    search = result.capacity
    return [
        *filter(None, [first]),
        *(other for other in others if not first.startswith(other)),
        *([] if search is None or search.stored else [f"Condition: {stored_words(search)}"]),
        *_refusal_sentences(result),
    ]


def tried_items(result: SweepResult) -> Iterator[str]:
    """Yield a line for each load that a capacity search tried on a target: verdict and values."""
    if result.capacity is not None:
        for name, answer in result.capacity.answers.items():
            where = f"{code(name)}: " if len(result.targets) > 1 else ""
            yield from (f"{where}{escaped(line)}" for line in tried_lines(result.capacity, answer))


def _refusal_sentences(result: SweepResult) -> Iterator[str]:
    """Yield a sentence with the loads that a server does not take, once for all that do not take the same."""
    names: dict[str, list[str]] = {}
    for target in result.targets:
        refused = [level_of(level) for level in target.levels if level.error is not None]
        if refused:
            names.setdefault(refused_words(refused), []).append(code(target.name))
    for words, alike in names.items():
        do = "does" if len(alike) == 1 else "do"
        yield f"Left out: {words}, which {names_in_words(alike)} {do} not take"


SMALL_ERRORS = "Small errors"
"""Begins the sentence on errors whose size is known, which are no reason to doubt a level."""


_LETTERS = "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲ"
"""Mark levels of a post; further warnings share the last one."""


def warning_letters(result: SweepResult) -> dict[str, str]:
    """Return the letter of each warning that some levels have, but not all, by its name."""
    levels = [doubts_of(level) for target in result.targets for level in target.in_order()]
    words = dict.fromkeys(word for words in levels for word in words)
    words_of_some = [word for word in words if not all(word in words for words in levels)]
    return {word: _LETTERS[min(at, len(_LETTERS) - 1)] for at, word in enumerate(words_of_some)}


def doubts_of(level: LevelResult) -> list[str]:
    """Return the names under which the warnings of a level are counted, the gravest first."""
    return [_mark_kind(mark) for mark in marks_of(level) if mark.doubt and mark.code != REFUSED]


def mark_summary(result: SweepResult, letters: Mapping[str, str] | None = None) -> str | None:
    """Return sentences with the reasons to doubt levels and to be slow, and how many levels have each.

    Return None if no level has such a reason (a "mark"). A post, which has `letters`, has only reasons to
    doubt, those of some levels with their letter in place of the number.
    """
    levels = [marks_of(level) for target in result.targets for level in target.in_order()]
    sentences = []
    titles = {MarkKind.WARNING: "Warnings", MarkKind.SLOW: "Why levels are slow", MarkKind.NOTE: SMALL_ERRORS}
    for kind in titles if letters is None else (MarkKind.WARNING, MarkKind.NOTE):
        having: dict[str, list[Mark]] = {}
        for marks in levels:
            of_kind = [mark for mark in marks if mark.kind is kind and mark.code != REFUSED]
            for word, mark in {_mark_kind(mark): mark for mark in of_kind}.items():  # each once
                having.setdefault(word, []).append(mark)
        signs = letters or {} if kind is MarkKind.WARNING else {}
        parts = [_mark_part(word, marks, len(levels), signs.get(word, "")) for word, marks in having.items()]
        sentences += [f"{titles[kind]}: {'; '.join(parts)}."] if parts else []
    return " ".join(sentences) or None


def _mark_kind(mark: Mark) -> str:
    """Return the name under which a mark (a reason to doubt a level, or why it is slow) is counted.

    The name contains no values that differ between levels.
    """
    if mark.ttft_percent is not None:  # apart from those that lengthen more than the TTFT
        return mark.brief
    if mark.code == QUEUE_LIMITED:
        return WARNINGS[mark.code].word
    return PADDING if mark.code == PADDING else mark.word


def _mark_part(word: str, having: Sequence[Mark], count: int, letter: str) -> str:
    """Return a mark as text: "NAME (3 of 8 levels)"; with the `letter` of its levels "LETTER NAME".

    `having` are the marks of this name, of `count` levels. A TTFT has its largest error.
    """
    worst_mark = max(having, key=lambda mark: mark.ttft_percent or 0.0)
    warning = WARNINGS.get(worst_mark.code)
    mark_words = escaped(word)
    if worst_mark.ttft_percent is not None:
        cause = worst_mark.code if warning is None else warning.word
        largest = " (the most of these levels)" if letter and len({mark.word for mark in having}) > 1 else ""
        mark_words = f"{worst_mark.word}{largest}: {escaped(cause)}"
    elif warning is not None and warning.effect:
        mark_words = f"{mark_words}: {warning.effect}"
    if letter:
        return f"{letter} {mark_words}"
    where = f"all {count} levels" if len(having) == count > 1 else f"{len(having)} of {count} levels"
    return f"{mark_words} ({'the only level' if count == 1 else where})"


def mark_details(result: SweepResult) -> Iterator[str]:
    """Yield one line for each distinct mark: the levels that have it, its name, and its message.

    A mark is a reason to doubt a level's metrics, or a reason why the level is slow.
    """
    places: dict[tuple[str, str], list[str]] = {}
    for target in result.targets:
        for level in target.in_order():
            where = level_words(level, target)
            if len(result.targets) > 1:
                where = f"{code(target.name)} {where}"
            for mark in marks_of(level):
                places.setdefault((escaped(mark.word), mark.message), []).append(where)
    count = sum(len(target.levels) for target in result.targets)
    for (word, message), having in places.items():
        where = "every level" if len(having) == count > 1 else ", ".join(having)
        yield f"{where}: {word}: {escaped(message)}"


_ROUTERS = {LITELLM: "LiteLLM", "dynamo": "Dynamo"}


def server_facts(result: SweepResult) -> Iterator[str]:
    """Yield what is alike of all targets, then one line for all with the same further facts, as Markdown.

    Such as "All targets: vLLM 0.32.0", "`spark-a` and `spark-b`: 48 slots"; targets without facts have none.
    """
    parts_of = {target.name: server_parts(target) for target in result.targets}
    parts_of = {name: parts for name, parts in parts_of.items() if parts}
    first, *others = parts_of.values() or ([],)
    common = [part for part in first if others and all(part in parts for parts in others)]
    names_by_words: dict[str, list[str]] = {}
    for name, parts in parts_of.items():
        words = ", ".join(escaped(part) for part in parts if part not in common)
        names_by_words.setdefault(words, []).append(code(name))
    if common:
        yield f"All targets: {', '.join(map(escaped, common))}"
    yield from (f"{names_in_words(alike)}: {words}" for words, alike in names_by_words.items() if words)


def launches(result: SweepResult) -> list[tuple[str, list[str], bool]]:
    """Return (how servers were started, their names, whether that is a command line), once for all alike.

    Options are Markdown. A server that is a target has the target's name, also where it answers a router's
    requests, too.
    """
    names_by_launch: dict[tuple[str, bool], list[str]] = {}
    launches_said = set[tuple[str, str]]()
    for target in sorted(result.targets, key=lambda target: target.kind is TargetKind.ROUTER):
        is_one = len(target.setups) == 1 and target.kind is TargetKind.ENGINE
        for name, facts in target.setups.items():
            line, flags = target.commands.get(name), facts.get(FLAGS)
            words = line or (flags and f"options {code(flags)}")
            words = "default options" if flags == NO_FLAGS and not line else words
            if words and (name, words) not in launches_said:
                names_by_launch.setdefault((words, bool(line)), []).append(target.name if is_one else name)
                launches_said.add((name, words))
    return [(words, names, is_command) for (words, is_command), names in names_by_launch.items()]


_VERSIONS = {"model revision": "model revision ", "image": "container image ", "NCCL": "NCCL ", "kernel": ""}
"""Facts of a server's setup beside its engine's version, each with the word before it; the driver is that of
`machine_facts`."""


def version_facts(result: SweepResult) -> Iterator[str]:
    """Yield a line of Markdown for each set of versions that servers run on; a single one has no names.

    Such as "NCCL 2.28.9, Ubuntu 24.04 · Linux 6.11".
    """
    names: dict[str, list[str]] = {}
    machine_words = " ".join(words for target in result.targets for words in target.machines.values())
    setups = {name: facts for target in result.targets for name, facts in target.setups.items()}
    for name, facts in setups.items():
        # The words about the machine may say it already, joined by commas.
        parts = [
            f"{word}{escaped(facts[fact])}"
            for fact, word in _VERSIONS.items()
            if fact in facts and facts[fact].replace(" · ", ", ") not in machine_words
        ]
        if parts:
            names.setdefault(", ".join(parts), []).append(code(name))
    for words, alike in names.items():
        yield words if len(names) == 1 else f"{names_in_words(alike)}: {words}"


def machine_facts(result: SweepResult) -> Iterator[str]:
    """Yield one line of Markdown with all machines that computed; nothing if none is known.

    Such as "4 × NVIDIA DGX Spark, NVIDIA GB10, driver 580.95"; a single machine has no number.
    """
    words_by_name: dict[str, str] = {}
    for name, words in (machine for target in result.targets for machine in target.machines.items()):
        # A target of one machine does not tell how this is linked to others.
        words_by_name[name] = max(words, words_by_name.get(name, ""), key=len)
    counts = Counter(words_by_name.values()).items()
    parts = [f"{count} × {escaped(words)}" if count > 1 else escaped(words) for words, count in counts]
    if parts:
        yield "; ".join(parts)


def server_parts(target: TargetResult) -> list[str]:
    """Return engine and version, servers, machines, slots and context of a target, and its router.

    There is none if nothing of these but slots is known.
    """
    router = target.kind is TargetKind.ROUTER
    if not (target.version or target.router_version or target.strategy or target.context_tokens):
        return []
    kinds = target.engines if router else (target.engine,)
    titles = [ENGINES[kind].title if kind in ENGINES else kind for kind in kinds if kind]
    engine = " ".join(filter(None, (names_in_words(titles) if titles else "engine", target.version)))
    strategy = f"({target.strategy})" if target.strategy else ""
    count, machines = len(target.setups), len(target.machines)
    servers = f"{count} servers" if count > 1 else ""
    behind = (servers, "behind", _router_title(target), target.router_version, strategy)
    where = f"one server on {'one machine' if machines == 1 else f'{machines} machines'}" if machines else ""
    parts = [
        engine if titles or target.version else "",
        " ".join(filter(None, behind)) if router else where,
        "" if target.slots is None else f"{target.slots:,} slots",
        "" if target.context_tokens is None else f"context {target.context_tokens:,}",
    ]
    return [part for part in parts if part]


def _router_title(target: TargetResult) -> str:
    """Return a router's product; an engine's name is what a router of unknown product says of itself."""
    engine = target.engine or "a router"
    return f"a router that names itself {engine}" if engine in ENGINES else _ROUTERS.get(engine, engine)


_ONE_SIDED_PERCENT = 90.0
"""Share of each run's requests from which on a router used a single server."""


def one_sided_routers(result: SweepResult) -> Iterator[str]:
    """Yield a warning for each router that sent all requests, or nearly all, to one of its servers."""
    for target in result.targets:
        shares = sorted(share for level in target.levels for share in run_shares(level.runs_split))
        servers = {name for level in target.levels for name in level.known_servers}
        if len(servers) > 1 and min(shares, default=0.0) >= _ONE_SIDED_PERCENT:
            ends = " to ".join(dict.fromkeys(f"{share:.0f}" for share in (shares[0], shares[-1])))
            yield f"{code(target.name)} sent {ends} % of each run's requests to one server"


_MACHINE = ("Target", "Machine", "GPU max", "Power", "Clock", "Throttled", "Least memory left")
_UNITS = {"power_w_mean": " W", "sm_clock_mhz_mean": " MHz", "throttled_percent": " %"}
"""Figures of a machine that are means over a level, with their units."""


def hardware_grid(result: SweepResult) -> Grid:
    """Return a table with a row for each machine behind each target, over all levels of the target.

    The temperature is the highest of all levels, and the memory left the lowest. The
    other cells have the range of the levels' means. Columns without any known value are left out.
    """
    rows: list[tuple[Cell, ...]] = []
    for target in result.targets:
        machines: dict[str, list[NodeSide]] = {}
        for level in target.levels:
            for name, side in level.hardware.items():
                machines.setdefault(name, []).append(side)
        for name, sides in sorted(machines.items()):
            hottest = known_max(side.gpu_c_max for side in sides)
            least = known_min(side.headroom_min_bytes for side in sides)
            means = (
                _range_words([getattr(side, key) for side in sides], unit) for key, unit in _UNITS.items()
            )
            heat = UNKNOWN if hottest is None else f"{hottest:.0f} °C"
            cells = (heat, *means, numbers.data(least, 9).strip())
            rows.append((Untrusted(target.name), Untrusted(name), *cells))
    grid = Grid("Machines", _MACHINE, tuple(rows), frozenset({0, 1}))
    return known_columns(grid, without={0} if len(result.targets) == 1 else ())


def _range_words(values: Sequence[float | None], unit: str) -> str:
    texts = [f"{value:.0f}" for value in sorted(value for value in values if value is not None)]
    return f"{' to '.join(dict.fromkeys((texts[0], texts[-1])))}{unit}" if texts else UNKNOWN


def evidence_sections(result: SweepResult) -> Iterator[Section]:
    """Yield a section for each target with all facts of its levels, such as requests by server and run."""
    for target in result.targets:
        rows: list[tuple[Cell, ...]] = []
        for level in target.in_order():
            where = level_words(level, target)
            for name, words in level_facts(level):
                rows.append((where, Untrusted(name) if name in level.hardware else name, escaped(words)))
                where = ""
        if rows:
            grid = Grid("", ("Load", "Figure", "Value"), tuple(rows), frozenset({0, 1, 2}))
            title = f"Everything about {code(target.name)}"
            yield Section(title, table=grid, folded=True, on_page_only=True)
