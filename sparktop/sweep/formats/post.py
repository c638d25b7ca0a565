"""Writes a sweep's result as a post for a forum: the answer, a matrix a figure, and how to repeat it.

Forums break lines themselves, so each paragraph and each item is one line. Everything else is in the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.judgement import NOT_TESTED, UNFAIR, UNPROVEN, USEFUL_RUNS, trend, whole_percent_change
from sparktop.model.load import Level, LoadKind, LoadMode
from sparktop.model.statistics import P95_FROM
from sparktop.model.text import names_in_words
from sparktop.report.document.document import Cell, Grid, Untrusted, bullets, escaped, rows_in_markdown
from sparktop.report.markdown import code
from sparktop.sweep.compare.compare import compare, comparison_of, engines_sentences, judging
from sparktop.sweep.compare.ratio import NOISE_FLOOR_PERCENT, main_rate
from sparktop.sweep.compare.series import (
    PREFIX,
    UNSTATED_WORDS,
    LevelSeries,
    are_comparable,
    has_like_lengths,
    load_reference,
    other_load_words,
    series_of,
    without_lengths,
)
from sparktop.sweep.formats.report import (
    FALSE_WINNERS,
    SMALL_ERRORS,
    answer,
    caveats,
    doubts_of,
    effort_words,
    launches,
    lengths_words,
    machine_facts,
    mode_words,
    one_sided_routers,
    server_facts,
    varies_in_length,
    version_facts,
    warning_letters,
    winner_rules,
)
from sparktop.sweep.formats.tables import (
    EVEN_SIGN,
    REFUSED_SIGN,
    SLOTS_SIGN,
    known_columns,
    load_words,
    points_head,
    row_loads,
    winners,
)
from sparktop.sweep.result.results import ComparisonResult, LevelResult, ProbeResult, SweepResult, level_of
from sparktop.sweep.terms.definitions import (
    DECODE_IN_POSTS,
    MAIN_RATES,
    METRICS,
    TERMS,
    Metric,
    in_sentence,
    shown,
)
from sparktop.sweep.view.capacity import sign
from sparktop.sweep.view.result import result_view
from sparktop.sweep.view.words import Choice, choices, incomplete_words, limits_of_best

MOST_LINES = 40
"""Tables with too many levels for this are thinned out; the first and the last level stay."""
_LEAST_LEVELS = 3
"""Levels that a matrix has at least."""
_MOST_NAMED = 6
"""Most levels that are named where they are left out."""
_TABLE_LINES = 3
"""The heads of a table with the empty line before."""
_LATENCIES = ("ttft_due_ms", "ttft_ms")
"""The latency of the last table: that of an open loop is from the time at which a request was due."""
_MOST_COMMANDS, _MOST_AGAIN = 3, 2
"""Command lines of servers that a post shows, and commands that repeat a sweep."""
_MOST_PUBLISHED = 4
"""Published series of other names that a single target is compared with."""
_DECODE = "decode_tps"
_FIGURES = {
    _DECODE: DECODE_IN_POSTS,
    "prefill_tps": "prompt tokens / time until all requests of a run have a first token, waiting included",
    "ttft_ms": "mean of first token − start of its request",
}
"""What the figures of most posts are, for readers who know other tools' windows."""


def render(result: SweepResult, beside: Sequence[LevelSeries] = (), commands: Sequence[str] = ()) -> str:
    """Return a sweep's result as a post of at most `MOST_LINES` lines, without server addresses.

    `beside` are published series: a column has what a target has more or less than the series of its name.
    `commands` repeat the sweep; a report without names has none.
    """
    series = series_of(result)
    comparison = comparison_of(result.comparison, series) if len(series) > 1 else None
    result = result.model_copy(update={"comparison": comparison})
    metrics = _metrics(result)
    changes, left_out = _published_cells(result, beside, metrics)
    letters = warning_letters(result)
    grids = list(_matrix_tables(result, series, metrics, changes, letters))
    if not grids and metrics:
        grids = [_level_table(result, metrics, changes, letters)]
    view = result_view(result)
    picks = [] if view.topologies is None else choices(result, view.topologies, code)
    incomplete = incomplete_words(result).capitalize()
    lead = [f"**{incomplete}.**"] if incomplete else []
    if not picks:
        lines = answer(result, view, above_tables=True) or answer(result, view) or ["No figure was measured"]
        answer_line, *further_lines = lines
        further_lines += _against_published(changes, metrics)
        lead = [" ".join([f"**{answer_line}.**", *_with_full_stops(further_lines)])]
    pick_table = rows_in_markdown(_choices_grid(picks, len(series))) if picks else ""
    engines = () if comparison is None else engines_sentences(comparison.independent_engines)
    routers = " ".join(_with_full_stops(map(escaped, engines)))
    about = [
        _setup_item(result),
        *([f"**Router:** {routers}"] if routers else []),
        _load_item(result),
        *_limits_item(result),
        " ".join([_warnings_words(result, letters), *_sign_words(grids), *left_out]),
    ]
    figures = _how_to_read(result, comparison, metrics, grids)
    used = 2 + 2 * len(lead) + (len(pick_table.splitlines()) + 1 if picks else 0) + len(about)
    room = MOST_LINES - used - len(figures)
    open_signs = [sign for sign in (UNPROVEN, "*") if sign in _signs(grids)]
    commands_block, commands_item = _commands(result, commands, open_signs)
    block_lines = len(commands_block) + 1 if commands_block else 0
    thin, lost = _fitted(grids, room - block_lines)
    if lost and commands_block:  # tables are worth more than commands of a line each
        commands_block = []
        thin, lost = _fitted(grids, room - 1)
    if lost:  # and more than an item a subject
        joined = [" ".join(about[:-2]), " ".join(about[-2:])], [" ".join(figures)]
        saved = len(about) + len(figures) - sum(map(len, joined))
        (about, figures), (thin, lost) = joined, _fitted(grids, room - 1 + saved)
    if thin:
        lost_words = [f"Left out here: {'; '.join(lost)}."] if lost else []
        figures[0] = " ".join([figures[0], *_published_items(beside, changes), *lost_words])
    last = [*figures, *([commands_item] if commands_item and not commands_block else [])]
    blocks = [*lead, pick_table, bullets(about), *map(rows_in_markdown, thin), bullets(last)]
    blocks.append("\n".join(commands_block))
    return f"## {_title(result)}\n" + "\n\n".join(filter(None, blocks)) + "\n"


def _fitted(grids: Sequence[Grid], lines: int) -> tuple[list[Grid], list[str]]:
    """Return (tables that fit into so many lines, what was left out of them).

    Levels are left out first of prefill, the second of three tables, then of all.
    """
    if not grids:
        return [], []
    levels = len(grids[0].rows)
    least_levels = min(levels, _LEAST_LEVELS)
    room = lines - _TABLE_LINES * len(grids)
    has_prefill = len(grids) == len(_FIGURES)
    prefill = max(least_levels, min(levels, room - 2 * levels)) if has_prefill else 0
    others = len(grids) - has_prefill
    size = max(least_levels, min(levels, (room - prefill) // others))
    sizes = [size] * len(grids)
    if has_prefill:
        sizes[1] = min(size, prefill)
    thin_grids = [
        replace(grid, rows=tuple(_evenly_spaced(grid.rows, size)))
        for grid, size in zip(grids, sizes, strict=True)
    ]
    lost_rows = [_lost_rows(grid, thin_grid) for grid, thin_grid in zip(grids, thin_grids, strict=True)]
    titles = ["decode and TTFT", "prefill"] if has_prefill else ["all tables"]
    return thin_grids, [f"{title} {names}" for title, names in zip(titles, lost_rows, strict=False) if names]


def _lost_rows(grid: Grid, left: Grid) -> str:
    """Return the levels of a table that are left out, as text: "c2, c4", "8 levels"."""
    kept_names = {row[0] for row in left.rows}
    names = [str(row[0]) for row in grid.rows if row[0] not in kept_names]
    return ", ".join(names) if len(names) <= _MOST_NAMED else f"{len(names)} levels"


def _choices_grid(picks: Sequence[Choice], targets: int) -> Grid:
    """Return the table of which target to pick for which use, by how much it leads, what is not proven."""
    rival = ", against the next best" if targets > 2 else ""  # noqa: PLR2004 - else there is one only
    heads = [
        *("Use", "Pick", f"By how much{rival}", "Not proven"),
        "Per request tok/s (median)",
    ]
    rows = [
        (use, f"**{pick}**", leads or UNKNOWN, open_leads or "nothing", speeds or UNKNOWN)
        for use, pick, leads, open_leads, speeds in picks
    ]
    shown = len(heads) if any(speeds for *_, speeds in picks) else len(heads) - 1
    return Grid("", tuple(heads[:shown]), tuple(row[:shown] for row in rows), frozenset(range(shown)))


def _title(result: SweepResult) -> str:
    """Return the model, the machines, and what is compared: "`m` on 2 × NVIDIA DGX Spark: `a` or `b`?"."""
    models = [code(model) for model in dict.fromkeys(target.model for target in result.targets) if model]
    machines = {name: words for target in result.targets for name, words in target.machines.items()}
    counts = Counter(words.partition(",")[0] for words in machines.values())
    where = ", ".join(escaped(f"{count} × {name}" if count > 1 else name) for name, count in counts.items())
    names = [code(target.name) for target in result.targets]
    question = f"{', '.join(names[:-1])} or {names[-1]}?" if len(names) > 1 else "".join(names)
    title = f"{', '.join(models) or 'sparktop sweep'}{f' on {where}' if where else ''}: {question}"
    return f"{title.removesuffix(': ')}{' (simulated)' if result.simulated else ''}"


def _with_full_stops(parts: Iterable[str]) -> Iterator[str]:
    return (f"{part.removesuffix('.')}." for part in parts)


def _metrics(result: SweepResult) -> list[Metric]:
    """Return the metrics of the post's tables, those that a level has: the main rate, prefill, TTFT."""
    levels = list(_levels(result))
    of_targets = () if result.comparison is None else judging(result.comparison)
    main = next((name for name in of_targets if name in MAIN_RATES), None) or main_rate(levels)
    prefill = "prefill_tps" if any(level.rate("prefill_tps") for level in levels) else None
    latency = next((name for name in _LATENCIES if any(level.latency(name) for level in levels)), None)
    return [METRICS[name] for name in (main, prefill, latency) if name is not None]


def _setup_item(result: SweepResult) -> str:
    """Return the item on what all targets have in common, and on what differs between them."""
    simulated = (
        ["All servers and machines are simulated: nothing was measured on these"] if result.simulated else []
    )
    servers = list(server_facts(result))
    if any(" slots" in facts for facts in servers):
        servers.append("Slots: requests that run at once (vLLM: max-num-seqs), as the servers report it")
    machines = "; ".join(machine_facts(result)) or "machines not known"
    known_launches = launches(result)
    start_facts = [
        f"Started, as the processes show it: {names_in_words([*map(code, names)])} with {words}"
        for words, names, is_command in known_launches
        if not is_command
    ]
    if not known_launches:
        start_facts = ["How servers were started is not known: `sparktop agent` on their machines reads it"]
    elif any("options `" in words for words in start_facts):
        start_facts.append("Of options, there are only those that change the speed")
    parts = [machines, *version_facts(result), *servers, *start_facts, *simulated]
    return f"**Set-up:** {' '.join(_with_full_stops(parts))}"


def _commands(result: SweepResult, again: Sequence[str], open_signs: Sequence[str]) -> tuple[list[str], str]:
    """Return the commands of a post as the lines of a block, and as an item in its place.

    They are the servers' command lines as their processes show them, `again`, which repeats the sweep, and
    the command that compares with the post. `open_signs` are the tables' signs on leads that are not proven.
    """
    launch_commands = [(words, names) for words, names, is_command in launches(result) if is_command]
    commands = []
    for line, names in launch_commands[:_MOST_COMMANDS]:
        hidden = ", … for what may be secret" if "…" in line else ""
        commands.append((f"{', '.join(names)}, as the process shows it{hidden}", line))
    if len(launch_commands) > _MOST_COMMANDS:
        words, line = commands[-1]
        commands[-1] = (f"{words} ({len(launch_commands) - _MOST_COMMANDS} more in the report)", line)
    if again:
        runs = ""
        if open_signs and result.plan.runs is not None and result.plan.runs < USEFUL_RUNS:
            runs = f"; --runs {USEFUL_RUNS} may prove leads with {' or '.join(open_signs)}"
        words = f"the same load again, with your addresses (sparktop: make install in its repository){runs}"
        commands += [(words, command) for command in again[:_MOST_AGAIN]]
        words = "to compare: save this post as post.md; this shows your newest sweep beside it"
        commands.append((words, "sparktop report last post.md"))
    if not commands:
        return [], ""
    item = "; ".join(f"{words}: {code(line)}" for words, line in commands)
    return ["```sh", *(f"{line}  # {words}" for words, line in commands), "```"], f"**Commands:** {item}."


def _levels(result: SweepResult) -> Iterator[LevelResult]:
    return (level for target in result.targets for level in target.levels)


def _load_item(result: SweepResult) -> str:
    """Return the item on the load: lengths, runs, what was warm, seed, date, tool."""
    plan = result.plan
    sizes = f"{lengths_words(result)} tokens in, {plan.tg if plan.tg is not None else '?'} out"
    if varies_in_length(plan):
        sizes += " on average"
    elif len(lengths := result.prompt_lengths()) == 1 and plan.tg is not None:
        sizes += f" (pp{lengths[0]} tg{plan.tg})"
    parts = [
        f"workload {code(plan.workload)}" if plan.workload else "",
        sizes,
        "@: tokens of context, sent before" if any(level.depth for level in _levels(result)) else "",
        *_condition_words(result),
        *map(escaped, plan.request_words),
        mode_words(plan),
        effort_words(result),
        "" if plan.seed is None else f"seed {plan.seed}",
    ]
    made_by = f"{result.started_at:%Y-%m-%d}, sparktop {result.sparktop}"
    return f"**Load:** {', '.join(filter(None, parts))}; {made_by}."


def _condition_words(result: SweepResult) -> Iterator[str]:
    """Yield whether answers have the length that was asked for, what was warmed up, and what was cached."""
    plan, levels = result.plan, [level for level in _levels(result) if level.is_measured]
    if not levels:
        return
    answered = [(level.tokens.generated, level.requests.ok) for level in levels if level.requests.ok]
    if answered and not varies_in_length(plan) and all(made == (plan.tg or 0) * ok for made, ok in answered):
        yield "every answer of this length"
    if plan.load is not LoadKind.AGENTS:
        yield "each level after a warm-up" if plan.warmup else "no warm-up"
    hits = [
        level.server.prefix_cache_hit_percent
        for level in levels
        if level.server is not None and level.server.prefix_cache_hit_percent is not None
    ]
    if len(hits) == len(levels):
        yield f"prefix cache hits {'0 %' if max(hits) < 1 else f'up to {max(hits):.0f} %'}"
    elif (
        plan.load in {LoadKind.CONCURRENCY, LoadKind.RATE}  # others repeat what was said before
        and plan.seed is not None
        and plan.prompts is None
        and not plan.depths
    ):
        yield "every prompt new to the prefix cache"


def _limits_item(result: SweepResult) -> Iterator[str]:
    """Yield the item on what limited the best level of each target, with the evidence."""
    several = len(result.targets) > 1
    words = [
        f"{code(target.name)}, {escaped(limit)}" if several else escaped(limit)
        for target in result.targets
        for limit in limits_of_best(target)
    ]
    if words:
        yield f"**Best level:** {' '.join(_with_full_stops(words))}"


def _warnings_words(result: SweepResult, letters: Mapping[str, str]) -> str:
    """Return all that limits the result; the `letters` of warnings mark the levels in the tables."""
    words = " ".join(_with_full_stops([*caveats(result, in_post=True), *one_sided_routers(result)]))
    if not words or words.startswith(SMALL_ERRORS):
        return f"**Warnings:** none. {words}".strip()
    where = " (letters in tables)" if letters else ""
    return f"**Warnings{where}:** {words.removeprefix('Warnings: ')}"


_Changes = Mapping[tuple[str, str], Mapping[Level, tuple[str, float]]]
"""(The published value with what the target has more; the same in percent) by load, by metric and by name of
the target, of a single one by that of the series."""


def _published_cells(
    result: SweepResult, beside: Sequence[LevelSeries], metrics: Sequence[Metric]
) -> tuple[_Changes, list[str]]:
    """Return (cells of the columns with published values, items on published series that have none).

    A series is compared with the target of its name, or with the router whose strategy has its name; a single
    target that none has the name of with all, in the first metric alone if these are several.
    """
    series = series_of(result)
    by_strategy = {target.strategy: target.name for target in result.targets if target.strategy}
    cells: dict[tuple[str, str], dict[Level, tuple[str, float]]] = {}
    left_out = []
    pairs = [
        (mine, theirs)
        for mine in series
        for theirs in beside
        if mine.name in {theirs.name, by_strategy.get(theirs.name)}
    ]
    is_alone = len(series) == 1
    if is_alone and not pairs:
        pairs = [(series[0], theirs) for theirs in beside[:_MOST_PUBLISHED]]
    shown_metrics = {metric.name for metric in (metrics[:1] if is_alone and len(pairs) > 1 else metrics)}
    for measured, a_series in pairs:
        if not are_comparable(measured, a_series):
            words = other_load_words(a_series)
            left_out.append(f"{code(a_series.name)} of {code(a_series.source)} {words}.")
            continue
        if a_series in without_lengths([measured, a_series]):
            left_out.append(f"{code(a_series.name)} of {code(a_series.source)}: {UNSTATED_WORDS}.")
        theirs = f"{a_series.name} ({a_series.source})"
        for row in compare([measured, replace(a_series, name=theirs)]).rows:
            mine, published = row.values.get(measured.name), row.values.get(theirs)
            if mine and published:
                percent = 100 * (mine / published - 1)
                words = f"{METRICS[row.metric].text(published)} ({whole_percent_change(percent)})"
                column = a_series.name if is_alone else measured.name
                cells.setdefault((row.metric, column), {}).setdefault(level_of(row), (words, percent))
    compared = {theirs.source for _, theirs in pairs}
    left_out += [
        f"{code(source)} left out: none of its targets is named as one here."
        for source in dict.fromkeys(a_series.source for a_series in beside)
        if source not in compared
    ]
    return {key: changes for key, changes in cells.items() if key[0] in shown_metrics}, left_out


def _against_published(changes: _Changes, metrics: Sequence[Metric]) -> Iterator[str]:
    """Yield how far targets are from their published values in each metric, from first to last level."""
    targets = []
    for name in dict.fromkeys(name for _, name in changes):
        parts = []
        for metric in metrics:
            values = changes.get((metric.name, name), {})
            percents = [(load_words(load, lengths=False), percent) for load, (_, percent) in values.items()]
            parts += [f"{in_sentence(metric.title)} {trend(percents)}"] if percents else []
        targets.append(f"{code(name)} {', '.join(parts)}")
    if targets:
        yield f"Against published values: {'; '.join(targets)}"


def _published_items(beside: Sequence[LevelSeries], changes: _Changes) -> Iterator[str]:
    """Yield an item on what is compared with: where it was published, how it was measured, what is unlike."""
    if not changes:
        return
    parts = [_made_words(source) or code(source) for source in dict.fromkeys(one.source for one in beside)]
    unlike = dict.fromkeys(
        f"Its {in_sentence(METRICS[metric].title)}: {shown(words)}."
        for a_series in beside
        for metric, words in a_series.definitions.items()
        if metric == _DECODE and words != METRICS[metric].definition
    )
    meaning = "Columns 'published': its values, in brackets what is more or less here."
    words = " ".join([f"{'; '.join(parts)}.", meaning, *unlike])
    yield f"**Published:** {words}"


def _made_words(source: str) -> str:
    """Return where a published table is from, and its tool, runs, machines and switches; "" of a file."""
    if not source.startswith(PREFIX):
        return ""
    table = load_reference(source)
    details = [table.tool or "", f"{table.runs} runs" if table.runs else "", table.hardware]
    details += [f"--{name.replace('_', '-')}" for name, value in table.settings.items() if value is True]
    origin = ", ".join(map(escaped, filter(None, (table.source, table.url))))
    return f"{origin} ({escaped(', '.join(filter(None, details)))})"


def _is_row(load: Level, other: Level) -> bool:
    """Return whether two loads are of one row of a table, as far as their lengths are known."""
    return (load.point, load.depth) == (other.point, other.depth) and has_like_lengths(load, other)


def _matrix_tables(
    result: SweepResult,
    series: Sequence[LevelSeries],
    metrics: Sequence[Metric],
    changes: _Changes,
    letters: Mapping[str, str],
) -> Iterator[Grid]:
    """Yield a table of levels by targets for each metric that targets have in common, with the winner."""
    comparison = result.comparison
    if comparison is None:
        return
    for metric in metrics:
        loads = sorted(row_loads(comparison, metric.name, series), key=lambda load: load.order)
        grid = winners(comparison, metric.name, series, signs=True)
        if not grid.rows:
            continue
        axis, *names, _ = grid.heads
        title = in_sentence(metric.title)
        title += ", waiting included" if metric.name == "prefill_tps" else ""
        heads = (f"{axis} ({title}, {metric.unit})", *names, "Winner")
        rows = tuple(_with_deviations(grid, loads, result, metric, letters))
        if all(row[-1] in {UNPROVEN, UNKNOWN} for row in rows):
            heads, rows = heads[:-1], tuple(row[:-1] for row in rows)
        grid = replace(grid, heads=heads, rows=rows)
        yield _with_changes(grid, loads, changes, metric)


def _with_deviations(
    grid: Grid, loads: Sequence[Level], result: SweepResult, metric: Metric, letters: Mapping[str, str]
) -> Iterator[tuple[Cell, ...]]:
    """Yield the rows of a matrix, of `loads`, with what is known of the spread behind each value.

    A value of a level with a warning has its letter.
    """
    names = [head.name for head in grid.heads if isinstance(head, Untrusted)]
    for load, (load_cell, *cells, winner) in zip(loads, grid.rows, strict=True):
        texts = []
        for name, cell in zip(names, cells, strict=True):
            target = result.target(name)
            levels = () if target is None or cell in {UNKNOWN, REFUSED_SIGN} else target.levels
            level = next((level for level in levels if _is_row(level_of(level), load)), None)
            spread = "" if level is None else f"{_spread_text(level, metric)}{_letters_of(level, letters)}"
            texts.append(f"{cell}{spread}")
        yield (load_cell, *texts, winner)


def _with_changes(
    grid: Grid, loads: Sequence[Level], all_changes: _Changes, metric: Metric, title: str = ""
) -> Grid:
    """Return a table with a last column for each name that has published values, with what is more here."""
    changes = {target: values for (name, target), values in all_changes.items() if name == metric.name}
    for target, values in changes.items():
        texts = [
            next((words for at, (words, _) in values.items() if _is_row(load, at)), UNKNOWN) for load in loads
        ]
        rows = tuple((*row, text) for row, text in zip(grid.rows, texts, strict=True))
        grid = replace(grid, heads=(*grid.heads, f"{title}{code(target)}, published"), rows=rows)
    return grid


def _level_table(
    result: SweepResult, metrics: Sequence[Metric], changes: _Changes, letters: Mapping[str, str]
) -> Grid:
    """Return the table of levels, a row for each of a target: the main rate, others, latency, published."""
    main, ttft = metrics[0], metrics[-1] if metrics[-1].name in _LATENCIES else METRICS[_LATENCIES[-1]]
    columns: tuple[tuple[str, Callable[[LevelResult], str]], ...] = (
        (f"{main.title} tok/s", lambda level: f"{_rate_text(level, main.name)}{_spread_text(level, main)}"),
        ("Per request tok/s", lambda level: METRICS[_DECODE].text(getattr(level.stream_tps, "p50", None))),
        ("Prefill tok/s", lambda level: _rate_text(level, "prefill_tps")),
        ("Peak tok/s", lambda level: _rate_text(level, "peak_tps")),
        (f"{ttft.title} ms", lambda level: ttft.text(getattr(level.latency(ttft.name), "mean", None))),
        (f"{ttft.title} p95 ms", lambda level: ttft.text(getattr(level.latency(ttft.name), "p95", None))),
    )
    levels = [
        (target, level)
        for target in result.targets
        for level in sorted(target.levels, key=lambda level: (level.depth, level.pp or 0, level.point))
    ]
    rows: list[tuple[Cell, ...]] = []
    answers = {} if result.capacity is None else result.capacity.answers
    for target, level in levels:
        answer = answers.get(target.name)
        probe = None if answer is None else answer.probe(level.point.value)
        where = load_words(level_of(level), lengths=len({level.pp for level in target.levels}) > 1)
        cells = ["left out", *[UNKNOWN] * (len(columns) - 1)]
        if level.error is None:
            where += _letters_of(level, letters)
            cells = [text(level) for _, text in columns]
        rows.append((where, Untrusted(target.name), _verdict_text(probe), *cells))
    axis = points_head(level.point for level in _levels(result))
    heads: tuple[Cell, ...] = (axis, "Target", "Condition", *(head for head, _ in columns))
    grid = Grid("", heads, tuple(rows), frozenset({0, 1}))
    for metric in metrics:
        grid = _with_changes(
            grid, [level_of(level) for _, level in levels], changes, metric, f"{metric.title}, "
        )
    return known_columns(grid, without={1} if len(result.targets) == 1 else ())


def _verdict_text(probe: ProbeResult | None) -> str:
    """Return the verdict of a capacity search on a level: "✓", "✗", "79 % ?"; "–" without."""
    if probe is None:
        return UNKNOWN
    chance = "" if probe.certain or probe.fails_percent is None else f"{100 - probe.fails_percent:.0f} % "
    return f"{chance}{sign(probe)}"


def _letters_of(level: LevelResult, letters: Mapping[str, str]) -> str:
    """Return the letters of a level's warnings; "" without one that has a letter."""
    return "".join(sorted(letters[word] for word in letters.keys() & doubts_of(level)))


def _after(cell: Cell) -> str:
    """Return a cell without the name that it begins with."""
    return cell.after if isinstance(cell, Untrusted) else cell


def _spread_text(level: LevelResult, metric: Metric) -> str:
    """Return the deviation of the runs, and of a latency the 95 % quantile: " (std 4, p95 812)"."""
    value, latency = level.figure(metric.name), level.latency(metric.name)
    spreads = {"std": None if value is None else value.std, "p95": None if latency is None else latency.p95}
    parts = [f"{word} {metric.text(number)}" for word, number in spreads.items() if number is not None]
    return f" ({', '.join(parts)})" if parts else ""


def _rate_text(level: LevelResult, name: str) -> str:
    rate = level.rate(name)
    return METRICS[name].text(None if rate is None else rate.mean)


def _evenly_spaced(rows: Sequence[tuple[Cell, ...]], most: int) -> Sequence[tuple[Cell, ...]]:
    """Return at most `most` of `rows`, evenly spaced, the first and the last among them."""
    last = len(rows) - 1
    return rows if len(rows) <= most else [rows[round(step * last / (most - 1))] for step in range(most)]


def _how_to_read(
    result: SweepResult, comparison: ComparisonResult | None, metrics: Sequence[Metric], grids: Sequence[Grid]
) -> list[str]:
    """Return the items on what the figures of the tables are and who wins, and on llama-benchy's names."""
    parts = [
        f"{in_sentence(metric.title)} = {shown(_FIGURES.get(metric.name, metric.definition))}"
        for metric in metrics
    ]
    heads = {head for grid in grids for head in grid.heads}
    cells = [_after(cell) for grid in grids for row in grid.rows for cell in row]
    parts += [f"std = {TERMS['std']}"] if any(" (std " in cell for cell in cells) else []
    parts += ["per request = median of each stream's rate"] if "Per request tok/s" in heads else []
    parts += ["peak = most tokens in a second"] if "Peak tok/s" in heads else []
    has_p95 = any(" p95 ms" in _after(head) for head in heads) or any("p95 " in cell for cell in cells)
    parts += [f"p95 only of {P95_FROM} requests or more"] if has_p95 else []
    if comparison is not None and "Winner" in heads and any(True for _ in winner_rules(comparison)):
        floor, rate = max(comparison.noise_floor_percent.values()), comparison.error_rate_percent or 0.0
        parts.append(
            f"a winner leads the next best by over {floor:.1f} % (its lead in brackets), and by more than "
            f"chance: {FALSE_WINNERS.format(rate)}"
        )
    lines = [f"**Figures:** {'; '.join(parts)}", *_in_llama_benchy(result, heads)] if parts else []
    return [*_with_full_stops(lines)]


def _in_llama_benchy(result: SweepResult, heads: Collection[Cell]) -> Iterator[str]:
    """Yield where llama-benchy's table has the figures of a burst of prompts of one length."""
    plan, lengths = result.plan, result.prompt_lengths()
    if plan.mode is not LoadMode.BURST or len(lengths) != 1 or plan.tg is None or plan.prompts or plan.depths:
        return
    each = ", per request the t/s (req) there" if "Per request tok/s" in heads else ""
    yield (
        f"**In llama-benchy's table:** decode is t/s (total) of tg{plan.tg}{each}, prefill t/s (total) of "
        f"pp{lengths[0]}; TTFT is e2e_ttft; ttfr and est_ppt are shorter, up to the first event of an answer"
    )


def _signs(grids: Sequence[Grid]) -> set[str]:
    """Return the signs in the cells of the tables, and other last words and characters of cells."""
    cells = [_after(cell) for grid in grids for row in grid.rows for cell in row]
    return {cell.rpartition(" ")[2].removesuffix(")") for cell in cells} | {cell[-1:] for cell in cells}


def _sign_words(grids: Sequence[Grid]) -> Iterator[str]:
    """Yield what the signs in the cells of the tables mean."""
    signs = (
        (UNPROVEN, f"the lead is over {NOISE_FLOOR_PERCENT:.0f} % and may be chance"),
        (EVEN_SIGN, f"the lead is under {NOISE_FLOOR_PERCENT:.0f} %"),
        (SLOTS_SIGN, f"{UNFAIR}: the next best has fewer slots, so requests wait"),
        ("*", NOT_TESTED),
        ("✓", "the condition holds"),
        ("✗", "the condition does not hold"),
        ("?", "not certain, before it the probability that the condition holds"),
    )
    words = [f"{sign}: {meaning}" for sign, meaning in signs if sign in _signs(grids)]
    if words:
        yield f"**Signs:** {'; '.join(words)}."
