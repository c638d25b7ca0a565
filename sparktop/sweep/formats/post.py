"""Writes a sweep's result as a post for a forum: the answer, one table, and how to repeat it.

Forums break lines themselves, so each paragraph is one line. Everything else is in the report.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.judgement import signed
from sparktop.model.text import names_in_words
from sparktop.report.document.document import Cell, Grid, Outside, plain, rows_in_markdown
from sparktop.report.markdown import code
from sparktop.sweep.compare.compare import compare, comparison_of
from sparktop.sweep.compare.ratio import main_rate
from sparktop.sweep.compare.series import PREFIX, Series, has_like_lengths, load_of, load_reference, series_of
from sparktop.sweep.formats.report import (
    answer,
    caveats,
    effort_words,
    lengths_words,
    machine_facts,
    mode_words,
    router_costs,
    rules,
    server_facts,
)
from sparktop.sweep.formats.tables import load_words, points_head
from sparktop.sweep.result.results import ComparisonResult, LevelResult, SweepResult, TargetResult
from sparktop.sweep.terms.definitions import METRICS, Metric, in_sentence
from sparktop.sweep.terms.statistics import P95_FROM
from sparktop.sweep.view.marks import marks_of
from sparktop.sweep.view.result import result_view

MOST_LINES = 60
"""A table with too many levels for this is thinned out; the first and the last level stay."""
_LEAST_LEVELS = 3
_HEAD_LINES = 2
_MUCH_DOUBT = 0.5
"""Share (0 to 1) of levels in doubt from which on the doubts follow the answer at once."""
_COMMAND_WIDTH = 90
_WORDS = r"(?:--[a-z-]+ (?!-))?(?:[^\s']|'[^']*')+"
"""Matches words of a shell command between which a line may end: an option stays with its value."""
_LLAMA_BENCHY = "t/s (total), t/s (req) and e2e_ttft"
"""The columns of llama-benchy that readers of its tables compare with those of the post."""


def render(
    result: SweepResult,
    beside: Sequence[Series] = (),
    commands: Sequence[str] = (),
    files: Sequence[str] = (),
) -> str:
    """Return a sweep's result as a post of at most `MOST_LINES` lines, without server addresses.

    `beside` are published series: those with the name of a target are compared in a sentence. `commands`
    repeat the sweep; `files` are the names of its result files, empty for a report without names.
    """
    series = series_of(result)
    comparison = comparison_of(result.comparison, series) if len(series) > 1 else None
    rate = main_rate([level for target in result.targets for level in target.levels if level.error is None])
    before = [f"## {_title(result)}", *_sentences(result, series, comparison, beside)]
    after = [*_repeat(commands), _data(files)]
    if rate is None:
        return "\n\n".join([*before, *after]) + "\n"
    marked = not _all_doubtful(result)
    notes = [_notes(METRICS[rate], comparison, marked=marked)]
    used = sum(block.count("\n") + 2 for block in [*before, *notes, *after])
    table = _table(result, METRICS[rate], comparison, MOST_LINES - used, marked=marked)
    return "\n\n".join([*before, *table, *notes, *after]) + "\n"


def _title(result: SweepResult) -> str:
    names = names_in_words([code(target.name) for target in result.targets]) if result.targets else "sweep"
    models = names_in_words(_models(result)) if _models(result) else "sparktop sweep"
    return f"{models} on {names}{' (simulated)' if result.simulated else ''}"


def _models(result: SweepResult) -> list[str]:
    return [code(model) for model in dict.fromkeys(one.model for one in result.targets) if model]


def _sentences(
    result: SweepResult,
    series: Sequence[Series],
    comparison: ComparisonResult | None,
    beside: Sequence[Series],
) -> Iterator[str]:
    """Yield the paragraphs before the table: answer, what was compared, levels, routers, warnings."""
    found = result_view(result)
    first, *others = answer(result, found) or ["Nothing was measured"]
    yield f"**{first}.**"
    doubtful = _doubtful(result)
    yield from filter(None, [doubtful])
    yield _compared(result)
    costs = router_costs(result, comparison)
    yield from filter(None, map(_sentence_each, ([*others, *_published(series, beside)], costs)))
    if not doubtful:
        yield _sentence_each(caveats(result)) or "No level has a warning."


def _all_doubtful(result: SweepResult) -> bool:
    """Return whether every level has a warning, so that a mark in each row would say nothing."""
    return all(
        any(mark.doubt for mark in marks_of(level)) for target in result.targets for level in target.levels
    )


def _doubtful(result: SweepResult) -> str:
    """Return the reasons for doubt if half of the levels or more have one, with a warning; else ""."""
    levels = [level for target in result.targets for level in target.levels]
    count = sum(any(mark.doubt for mark in marks_of(level)) for level in levels)
    if not levels or count < _MUCH_DOUBT * len(levels):
        return ""
    words = f"**Read with care: {count} of {len(levels)} levels have a warning.**"
    return f"{words} {_sentence_each(caveats(result))}"


def _compared(result: SweepResult) -> str:
    """Return a sentence with what was compared: machines, servers, load, time."""
    plan = result.plan
    sizes = f"{lengths_words(result)} tokens in, {plan.tg if plan.tg is not None else '?'} out"
    load = [
        f"workload {code(plan.workload)}" if plan.workload else "",
        sizes if plan.prompts is None else f"{sizes} on average",
        *map(plain, plan.request_words),
        mode_words(plan),
        effort_words(plan),
    ]
    machines = "; ".join(machine_facts(result)) or "not known"
    tool = f"sparktop {result.sparktop}, a terminal monitor and load generator for inference servers"
    when = f"{result.started_at:%Y-%m-%d}, with {tool}"
    parts = [f"Machines: {machines}", *server_facts(result), f"Load: {', '.join(filter(None, load))}; {when}"]
    return _sentence_each(parts)


def _sentence_each(parts: Iterable[str]) -> str:
    """Return `parts` as one paragraph, each with a full stop."""
    return " ".join(f"{part.removesuffix('.')}." for part in parts)


def _published(series: Sequence[Series], beside: Sequence[Series]) -> Iterator[str]:
    """Yield a sentence for each published series with the name of a target: its rate against the target's."""
    for one in beside:
        own = next((mine for mine in series if mine.name == one.name), None)
        rate = next((name for name in ("decode_tps", "output_tps") if name in one.metrics()), None)
        if own is None or rate is None:
            continue
        if not any(has_like_lengths(mine.load, level.load) for mine in own.levels for level in one.levels):
            yield f"{code(one.name)} of {_titled(one)} left out: other load, {_length_words(one)}"
            continue
        theirs = f"{one.name} ({one.source})"
        rows = [row for row in compare([own, replace(one, name=theirs)]).rows if row.metric == rate]
        pairs = [(row.point.short, row.values.get(own.name), row.values.get(theirs)) for row in rows]
        changes = [
            f"{signed(100 * (mine / known - 1))} at {point}" for point, mine, known in pairs if mine and known
        ]
        if changes:
            title = in_sentence(METRICS[rate].title)
            words = ", ".join(changes)
            yield f"{code(own.name)} against {code(one.name)} of {_titled(one)}, {title}: {words}"
    for source in dict.fromkeys(one.source for one in beside):
        names = [one.name for one in beside if one.source == source]
        if not {one.name for one in series} & set(names):
            known = names_in_words([code(name) for name in names])
            yield f"{code(source)} left out: none of its targets, {known}, has the name of a target here"


def _length_words(one: Series) -> str:
    """Return the lengths of the levels of a series: "1,024 tokens in, 128 out", "?" for what is unknown."""
    lengths = dict.fromkeys((level.load.pp, level.load.tg) for level in one.levels)
    known = [["?" if count is None else f"{count:,}" for count in pair] for pair in lengths]
    return names_in_words([f"{pp} tokens in, {tg} out" for pp, tg in known])


def _titled(one: Series) -> str:
    """Return the source of a series, with the title of a published table."""
    if not one.source.startswith(PREFIX):
        return code(one.source)
    return f"{code(one.source)} ({plain(load_reference(one.source).title)})"


def _table(
    result: SweepResult, metric: Metric, comparison: ComparisonResult | None, most: int, *, marked: bool
) -> Iterator[str]:
    """Yield the table of all targets by level in at most `most` lines, and a line on levels left out.

    With `marked`, a level that has a warning has a question mark.
    """
    rows_of = Counter(
        (one.depth, one.pp or 0, one.point) for target in result.targets for one in target.levels
    )
    loads = sorted(rows_of)
    fits = rows_of.total() + _HEAD_LINES <= most
    fitting = (most - _HEAD_LINES - 2) // max(rows_of.values())  # a line says that some are left out
    kept = set(loads if fits else _thinned(loads, max(_LEAST_LEVELS, fitting)))
    rows = [
        _row(target, level, metric, comparison, marked=marked)
        for load in loads
        if load in kept
        for target in result.targets
        for level in target.levels
        if (level.depth, level.pp or 0, level.point) == load
    ]
    axis = points_head(level.point for target in result.targets for level in target.levels)
    heads = (axis, "Target", f"{metric.title} {metric.unit}", "per request", "TTFT ms", "p95")
    yield rows_in_markdown(Grid("", heads, tuple(rows), frozenset({0, 1})))
    if len(kept) < len(loads):
        yield f"Left out here: {len(loads) - len(kept)} of {len(loads)} levels, which the report has."


def _thinned(loads: Sequence[tuple[int, int, object]], most: int) -> Sequence[tuple[int, int, object]]:
    """Return at most `most` of `loads`, evenly spaced, the first and the last among them."""
    last = len(loads) - 1
    return loads if len(loads) <= most else [loads[round(step * last / (most - 1))] for step in range(most)]


def _row(
    target: TargetResult,
    level: LevelResult,
    metric: Metric,
    comparison: ComparisonResult | None,
    *,
    marked: bool,
) -> tuple[Cell, ...]:
    load = load_of(level)
    where = load_words(load, lengths=len({one.pp for one in target.levels}) > 1)
    if level.error is not None:
        return where, Outside(target.name), "refused", UNKNOWN, UNKNOWN, UNKNOWN
    rate, each, first = level.rate(metric.name), level.stream_tps, level.ttft_due_ms or level.ttft_ms
    words = UNKNOWN if rate is None else metric.text(rate.mean)
    if comparison is not None and _wins(target.name, level, metric, comparison):
        words = f"**{words}**"
    if rate is not None and rate.std is not None:
        words += f" (std {metric.text(rate.std)})"
    if marked and any(mark.doubt for mark in marks_of(level)):
        words += " ?"
    ttft = METRICS["ttft_ms"]
    return (
        where,
        Outside(target.name),
        words,
        metric.text(None if each is None else each.p50),
        ttft.text(None if first is None else first.mean),
        ttft.text(None if first is None else first.p95),
    )


def _wins(name: str, level: LevelResult, metric: Metric, comparison: ComparisonResult) -> bool:
    load = load_of(level)
    return any(
        row.metric == metric.name
        and row.winner == name
        and (load_of(row).point, row.depth) == (load.point, load.depth)
        and row.pp in {None, level.pp}
        for row in comparison.rows
    )


def _notes(metric: Metric, comparison: ComparisonResult | None, *, marked: bool) -> str:
    """Return one line that explains the table."""
    parts = [
        f"{metric.title}: {metric.definition}; std: standard deviation over runs",
        "per request: median",
        f"TTFT: first token - start, mean and 95th percentile ({UNKNOWN}: fewer than {P95_FROM} requests)",
    ]
    if marked:
        parts.append("?: has a warning, see above")
    if comparison is not None:
        parts += [f"**bold**: {next(rules(comparison), 'better than every other target')}"]
    return f"{'. '.join(parts)}. In llama-benchy's tables these are {_LLAMA_BENCHY}."


def _repeat(commands: Sequence[str]) -> Iterator[str]:
    if commands:
        yield "The same again, with your servers' names, or with `--target NAME=URL` in place of each name:"
        yield "\n".join(["```sh", *map(_continued, commands), "```"])


def _continued(command: str) -> str:
    """Return a shell command in lines of at most `_COMMAND_WIDTH` characters where its words allow it."""
    lines = [""]
    for word in re.findall(_WORDS, command):
        if lines[-1] and len(lines[-1]) + len(word) > _COMMAND_WIDTH:
            lines.append("  ")
        lines[-1] += f" {word}" if lines[-1].strip() else word
    return " \\\n".join(lines)


def _data(files: Sequence[str]) -> str:
    """Return the line with the data to attach, and where everything else is."""
    if not files:
        return "The report has everything else: each level with its limit, marks and definitions."
    command = f"sparktop report {shlex.join(files)}"
    data, page = code(f"{command} --format json -o post.json"), code(f"{command} -o report.html")
    return (
        f"Data, attached: `post.json` ({data} writes it, without addresses). "
        f"Everything else, such as what limited each level: {page}."
    )
