"""A sweep's result as a report, also in Markdown: summary, doubts, tables and definitions of metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.model.load import LoadKind, LoadMode
from sparktop.model.text import names_in_words
from sparktop.report.document.grid import Grid
from sparktop.report.document.prose import plain
from sparktop.report.document.section import Section, to_markdown
from sparktop.report.markdown import code
from sparktop.sweep.compare.compare import comparison_of
from sparktop.sweep.compare.series import Series, series_of
from sparktop.sweep.formats import doubts
from sparktop.sweep.formats.answer import answer
from sparktop.sweep.formats.comparison import MEANINGS, beside_sections, engine_sections, note_sections
from sparktop.sweep.formats.evidence import evidence_sections, hardware_grid
from sparktop.sweep.formats.servers import machine_facts, server_facts
from sparktop.sweep.formats.tables.layouts import batch_scaling, contexts, interactive, spread
from sparktop.sweep.formats.tables.level_rows import TABLES
from sparktop.sweep.formats.tables.refused_rows import winners_and_refused
from sparktop.sweep.formats.tables.replay_grid import phases_grid
from sparktop.sweep.formats.tables.split_grid import split_grid
from sparktop.sweep.plan.plan import ENOUGH_S
from sparktop.sweep.result.axis import PlanResult
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.terms.definitions import lines, term_lines
from sparktop.sweep.terms.doubts import CLIENT_LAG
from sparktop.sweep.view.result import findings

TITLE = "sparktop sweep"
_FIRST = ("decode_tps", "prefill_tps", "sustained_tps", "ttft_due_ms", "e2e_due_ms", "ttft_ms")
"""Metrics that get a table of winners when there are several targets."""
_PAIR = 2
_LOADS = {
    LoadKind.CONCURRENCY: "c16: 16 requests at once",
    LoadKind.RATE: "2/s: two requests per second arrive, however many are in flight",
    LoadKind.AGENTS: "8 agents: as many conversations at once, with pauses of tools and people",
}
_DEPTH = (
    "c16 @ 4,096: 16 requests at once, each after 4,096 tokens of context, which were sent before with a few "
    "more words (see *Context*), so that the server's prefix cache has them. Prefill counts what comes after "
    "the context."
)
_LENGTHS = "; in, out: tokens of each prompt and of each answer"


def render(result: SweepResult, beside: Sequence[Series] = (), more: Sequence[Section] = ()) -> str:
    """Return a sweep's result as Markdown, without server addresses.

    `beside` adds a comparison with other series; the sections `more` are placed before the definitions.
    """
    title = f"{TITLE} (simulated)" if result.simulated else TITLE
    return to_markdown(title, sections(result, beside, more=more))


def sections(
    result: SweepResult,
    beside: Sequence[Series] = (),
    plots: Sequence[str] = (),
    more: Sequence[Section] = (),
) -> list[Section]:
    """Return a sweep's result as the sections of a report.

    `beside` adds a comparison with other series, `plots` are SVG elements, and the sections `more` are placed
    before the definitions.
    """
    series = series_of(result)
    found = findings(result)
    first, *others = answer(result, found) or ("",)
    parts = [Section(paragraphs=(f"**{first}**",) if first else (), items=tuple(others))]
    parts += [Section(paragraphs=tuple(_about(result))), Section(plots=tuple(plots))]
    grids = _several(result, series) if len(series) > 1 else _single(result, series)
    tables = [*(Section(table=grid) for grid in grids), *_tables(result)]
    tables = [one for one in tables if one.table is None or one.table.rows]
    parts += tables
    if len(series) > 1:
        comparison = comparison_of(result.comparison, series)
        parts += [*engine_sections(comparison), *note_sections(comparison)]
    parts += beside_sections(series, beside)
    marks = tuple(doubts.details(result))
    parts += [Section("Warnings, and why levels are slow", items=marks)] if marks else []
    parts += evidence_sections(result)
    return [*parts, *more, _meanings(result, series, [one.table for one in tables if one.table is not None])]


def _meanings(result: SweepResult, series: Sequence[Series], grids: Sequence[Grid]) -> Section:
    """Return a section with the definitions of all metrics and terms that occur in the tables."""
    targets = [target for target in result.targets if target.levels]
    shown = set().union(*(table.metrics(targets) for table in TABLES))
    if not shown:
        return Section(paragraphs=("Nothing was measured.",))
    load = f"{_LOADS[result.plan.load]}{_LENGTHS if any(one.has_lengths for one in series) else ''}."
    if any(level.depth for target in targets for level in target.levels):
        load += f" {_DEPTH}"
    return Section(MEANINGS, items=(load, *lines(shown), *term_lines(_terms(grids))), folded=True)


def _terms(grids: Sequence[Grid]) -> set[str]:
    """Return all column headings and all words in the tables' cells.

    The report uses them to decide which terms need a definition.
    """
    found = {head for grid in grids for head in grid.heads if isinstance(head, str)}
    cells = (cell for grid in grids for row in grid.rows for cell in row)
    return found | {sign for cell in cells if isinstance(cell, str) for sign in cell.split()}


def _about(result: SweepResult) -> Iterator[str]:
    """Yield paragraphs about the plan, about errors, and about reasons to doubt the results."""
    plan = result.plan
    models = list(dict.fromkeys(target.model for target in result.targets if target.model))
    more = " or more" if result.slo is not None else ""
    varies = plan.trace is not None or plan.load is LoadKind.AGENTS or plan.prompts is not None
    mean = " on average" if varies else ""
    parts = [
        ", ".join(code(model) for model in models),
        "" if plan.trace is None else plain(plan.trace.words),
        f"workload {code(plan.workload)}" if plan.load is LoadKind.AGENTS and plan.workload else "",
        f"{lengths_words(result)} tokens in, {plan.tg if plan.tg is not None else '?'} out{mean}",
        *map(plain, plan.request_words),
        f"{mode_words(plan)}, {effort_words(plan)}{more}",
        plan.api.value,
        f"tokens counted from {plan.tokens_from.value}" if plan.tokens_from else "",
        f"order {plan.order.value}",
        _prompts(result),
        f"{result.started_at:%Y-%m-%d %H:%M} UTC",
        f"sparktop {result.sparktop}",
        f"from {names_in_words([code(name) for name in result.joined_from])}" if result.joined_from else "",
    ]
    yield " · ".join(part for part in parts if part)
    yield from server_facts(result)
    yield from machine_facts(result)
    if result.guard is not None:
        yield plain(result.guard)
    yield from caveats(result)


def caveats(result: SweepResult) -> Iterator[str]:
    """Yield what limits the results: an early end, errors of targets, and reasons for doubt."""
    if result.status != "done":
        why = f": {code(result.stop_reason)}" if result.stop_reason else ""
        yield f"**Not complete** ({result.status or 'it was still running'}){why}"
    for target in result.targets:
        if target.error:
            yield f"{code(target.name)}: {code(target.error)}"
    summary = doubts.summary(result)
    if summary is not None:
        yield summary
    marks = (mark.code for target in result.targets for level in target.levels for mark in level.validity)
    if result.client.trustworthy is False and CLIENT_LAG not in marks:
        yield f"**The load generator was too slow**: {code('; '.join(result.client.reasons) or '–')}"


def lengths_words(result: SweepResult) -> str:
    """Return the requested prompt lengths as text: "128", or "5,000, 20,000 and 39,000"; "?" if unknown.

    Of the user's own prompts, return the mean that the servers counted.
    """
    if result.plan.prompts is not None:
        counted = result.counted_prompt_tokens
        return "an unknown number of" if counted is None else f"{counted:,.0f}"
    *most, last = [f"{length:,}" for length in result.prompt_lengths()] or ["?"]
    return f"{', '.join(most)} and {last}" if most else last


def mode_words(plan: PlanResult) -> str:
    """Return how requests follow one another, such as "steady" or "open loop, poisson arrivals"."""
    if plan.mode is LoadMode.AGENTS:
        return plan.load.value
    if plan.mode is not LoadMode.OPEN:
        return plan.mode.value
    how = "arrivals as recorded" if plan.trace is not None else f"{plan.arrivals or '?'} arrivals"
    return f"open loop, {how}"


def effort_words(plan: PlanResult) -> str:
    """Return the planned size of a level as text: its number of runs, or its duration in seconds."""
    if plan.mode in {LoadMode.OPEN, LoadMode.AGENTS} and plan.trace is None and plan.duration_s is not None:
        return f"{'?' if plan.runs is None else plan.runs} × {plan.duration_s:g} s a level"
    if plan.runs is None and plan.duration_s is not None:
        return f"{plan.duration_s:g} s or more a level"
    more = f" or more, {ENOUGH_S:.0f} s" if plan.more_runs else ""
    return f"{'?' if plan.runs is None else plan.runs} run{'' if plan.runs == 1 else 's'}{more} a level"


def _prompts(result: SweepResult) -> str:
    """Return a text with the seed that prompts were generated from, to reproduce them; "" if unknown."""
    ways = {target.fresh_by for target in result.targets if target.fresh_by is not None}
    if result.plan.seed is not None and result.plan.prompts is not None:
        return f"prompts chosen with seed {result.plan.seed}"
    if result.plan.seed is None or not ways:
        return ""
    word = " and a word of this sweep" if "nonce" in ways else ""
    return f"prompts from seed {result.plan.seed}{word}"


def _several(result: SweepResult, series: Sequence[Series]) -> Iterator[Grid]:
    comparison = comparison_of(result.comparison, series)
    for metric in _FIRST:
        yield winners_and_refused(comparison, metric, series)
    if len(series) == _PAIR:
        yield spread(series[0], series[1])


def _single(result: SweepResult, series: Sequence[Series]) -> Iterator[Grid]:
    """Yield the tables of a sweep with one target, in the layout of published tables that fits the levels."""
    for one in series:
        if result.plan.preset == "batch-scaling":
            yield batch_scaling(one)
        alone = [level for level in one.levels if level.load.concurrency == 1]
        if any(level.load.depth for level in one.levels):
            continue
        if len(alone) > 1:
            yield contexts(one)
        elif len(one.levels) == len(alone):
            yield interactive(one)


def _tables(result: SweepResult) -> Iterator[Section]:
    """Yield each target's tables (throughput, latencies, levels, backends), then that of the machines."""
    several = len(result.targets) > 1
    for target in result.targets:
        if several:
            yield Section(code(target.name), rank=2, on_page_only=True)
        for table in TABLES:
            title = f"{table.title}: {code(target.name)}" if several else table.title
            yield Section(table=table.grid(target, title))
        yield Section(table=phases_grid(target, several=several))
        yield Section(table=split_grid(target))
    if several:
        yield Section("Behind the figures", rank=2, on_page_only=True)
    yield Section(table=hardware_grid(result))
