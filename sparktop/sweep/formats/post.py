"""Writes a sweep's result as a post for a forum: the answer, a matrix a figure, and how to repeat it.

Forums break lines themselves, so each paragraph and each item is one line. Everything else is in the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.judgement import metric_sentence, signed
from sparktop.model.load import LoadMode
from sparktop.model.sweep import Topologies
from sparktop.model.text import names_in_words
from sparktop.report.document.document import Cell, Grid, Outside, bullets, plain, rows_in_markdown
from sparktop.report.markdown import code
from sparktop.sweep.compare.compare import compare, comparison_of
from sparktop.sweep.compare.ratio import main_rate
from sparktop.sweep.compare.series import (
    PREFIX,
    Load,
    Series,
    has_like_lengths,
    load_of,
    load_reference,
    series_of,
)
from sparktop.sweep.formats.report import (
    answer,
    caveats,
    effort_words,
    lengths_words,
    machine_facts,
    mode_words,
    router_costs,
    server_facts,
    version_facts,
    winner_rules,
)
from sparktop.sweep.formats.tables import known_columns, load_words, points_head, winners
from sparktop.sweep.result.results import ComparisonResult, LevelResult, SweepResult, TargetResult
from sparktop.sweep.terms.definitions import METRICS, Metric, in_sentence
from sparktop.sweep.terms.statistics import P95_FROM
from sparktop.sweep.view.marks import marks_of
from sparktop.sweep.view.result import result_view
from sparktop.sweep.view.words import main_metrics

MOST_LINES = 40
"""Tables with too many levels for this are thinned out; the first and the last level stay."""
_LEAST_LEVELS = 3
_HEAD_LINES = 2
_FRAME_LINES = 5
"""The title, the answer, and the empty lines below these and below the first items."""
_LATENCIES = ("ttft_due_ms", "ttft_ms")
"""The latency of the last table: that of an open loop is from the time at which a request was due."""
_MOST_COMMANDS = 4
_MODES = {LoadMode.BURST: " (all of a run at once)", LoadMode.STEADY: " (the next as soon as one ends)"}
"""What modes mean, in words for readers who know other tools."""


def render(result: SweepResult, beside: Sequence[Series] = (), commands: Sequence[str] = ()) -> str:
    """Return a sweep's result as a post of at most `MOST_LINES` lines, without server addresses.

    `beside` are published series: a column has what a target has more or less than the series of its name.
    `commands` repeat the sweep; a report without names has none.
    """
    series = series_of(result)
    comparison = comparison_of(result.comparison, series) if len(series) > 1 else None
    metrics = _metrics(result)
    changes, left_out = _published_cells(series, beside, metrics)
    sources = list(dict.fromkeys(a_series.source for a_series in beside))
    against = f"Against {code(sources[0]) if len(sources) == 1 else 'published'}"
    grids = list(_matrix_tables(comparison, series, metrics, changes, against))
    is_matrix = bool(grids)
    if not grids and metrics:
        grids = [_level_table(result, metrics[0], changes, against)]
    named = _without_common_warnings(result)
    view = result_view(named)
    first, *others = answer(named, view, above_tables=True) or ["Nothing was measured"]
    others += _other_metrics(view.topologies, first) if is_matrix else []
    lead = " ".join([f"**{first}.**", *_with_full_stops(others)])
    costs = " ".join(_with_full_stops(router_costs(named, comparison)))
    about = [
        " ".join(_setup_parts(result)),
        *([f"**Router:** {costs}"] if costs else []),
        _load_item(result, series),
        " ".join([f"**Warnings:** {_warnings_words(result)}", *left_out]),
    ]
    notes = list(_repeat_item(commands))
    used = _FRAME_LINES + len(about) + len(notes) + len(grids) * (_HEAD_LINES + 1)
    most = max(_LEAST_LEVELS, (MOST_LINES - used) // max(1, len(grids)))
    thin = [replace(grid, rows=tuple(_evenly_spaced(grid.rows, most))) for grid in grids]
    lost = max((len(grid.rows) - len(short.rows) for grid, short in zip(grids, thin, strict=True)), default=0)
    if grids:
        has_marks = _has_marks(result)
        reading = _how_to_read(comparison, lost, is_matrix=is_matrix, has_marks=has_marks)
        about[-1] = f"{about[-1]} {reading}".rstrip()
    blocks = [f"## {_title(result)}", lead, bullets(about), *map(rows_in_markdown, thin), bullets(notes)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _without_common_warnings(result: SweepResult) -> SweepResult:
    """Return a result whose levels lack the warnings that all of them have, which are said once."""
    levels = list(_levels(result))
    common = (
        set.intersection(*({mark.code for mark in level.validity} for level in levels)) if levels else set()
    )
    if not common or len(levels) == 1:
        return result
    targets = [
        target.model_copy(
            update={
                "levels": tuple(
                    level.model_copy(
                        update={"validity": tuple(mark for mark in level.validity if mark.code not in common)}
                    )
                    for level in target.levels
                )
            }
        )
        for target in result.targets
    ]
    return result.model_copy(update={"targets": tuple(targets)})


def _other_metrics(compared: Topologies | None, first: str) -> list[str]:
    """Return where which target is best in metrics that the first sentence does not name."""
    metrics = () if compared is None else main_metrics(compared.metrics)
    others = [metric for metric in metrics if in_sentence(metric.title) not in first]
    return [metric_sentence(metric.title, metric.levels, code) for metric in others]


def _title(result: SweepResult) -> str:
    names = names_in_words([code(target.name) for target in result.targets]) if result.targets else "sweep"
    models = [code(model) for model in dict.fromkeys(target.model for target in result.targets) if model]
    title = names_in_words(models) if models else "sparktop sweep"
    return f"{title} on {names}{' (simulated)' if result.simulated else ''}"


def _with_full_stops(parts: Iterable[str]) -> Iterator[str]:
    return (f"{part.removesuffix('.')}." for part in parts)


def _metrics(result: SweepResult) -> list[Metric]:
    """Return the metrics of the post's tables, those that a level has: decode or its like, prefill, TTFT."""
    levels = [level for target in result.targets for level in target.levels if level.error is None]
    decode = "decode_tps" if any(level.rate("decode_tps") for level in levels) else main_rate(levels)
    prefill = "prefill_tps" if any(level.rate("prefill_tps") for level in levels) else None
    latency = next((name for name in _LATENCIES if any(level.latency(name) for level in levels)), None)
    return [METRICS[name] for name in (decode, prefill, latency) if name is not None]


def _setup_parts(result: SweepResult) -> Iterator[str]:
    """Yield the sentences on machines and on servers: versions, slots, launch options."""
    hottest = max(
        (side.gpu_c_max for level in _levels(result) for side in level.hardware.values() if side.gpu_c_max),
        default=None,
    )
    parts = [*machine_facts(result), *([] if hottest is None else [f"hottest GPU {hottest:.0f} °C"])]
    machines = f"**Machines:** {'; '.join(parts) or 'not known'}"
    yield " ".join(_with_full_stops([machines, *version_facts(result)]))
    if servers := list(_with_full_stops(server_facts(result))):
        yield f"**Servers:** {' '.join(servers)}"


def _levels(result: SweepResult) -> Iterator[LevelResult]:
    return (level for target in result.targets for level in target.levels)


def _load_item(result: SweepResult, series: Sequence[Series]) -> str:
    """Return the item on the load: lengths, runs and their spread, seed, date, tool."""
    plan = result.plan
    sizes = f"{lengths_words(result)} tokens in, {plan.tg if plan.tg is not None else '?'} out"
    if len(lengths := result.prompt_lengths()) == 1 and plan.prompts is None and plan.tg is not None:
        sizes += f" (pp{lengths[0]} tg{plan.tg})"
    parts = [
        f"workload {code(plan.workload)}" if plan.workload else "",
        sizes if plan.prompts is None else f"{sizes} on average",
        *map(plain, plan.request_words),
        f"{mode_words(plan)}{_MODES.get(plan.mode, '')}",
        f"{effort_words(plan)}{_spread_words(series)}",
        "" if plan.seed is None else f"seed {plan.seed}",
    ]
    made = f"{result.started_at:%Y-%m-%d}, sparktop {result.sparktop}"
    return f"**Load:** {', '.join(filter(None, parts))}; {made}."


def _spread_words(series: Sequence[Series]) -> str:
    """Return how far the runs of a level lie apart in decode; "" for single runs."""
    shares = [
        100 * figure.std / figure.mean
        for a_series in series
        for level in a_series.levels
        if (figure := level.figures.get("decode_tps")) and figure.std is not None and figure.mean
    ]
    if not shares:
        return ""
    low, high = (f"{share:.1f}" for share in (min(shares), max(shares)))
    return f" (decode: std {low if low == high else f'{low} to {high}'} % of the mean)"


def _warnings_words(result: SweepResult) -> str:
    """Return all that limits the result."""
    words = " ".join(_with_full_stops(caveats(result, why_slow=False)))
    return words.removeprefix("Warnings: ") or "none."


_Changes = Mapping[tuple[str, Load], Sequence[tuple[str, str]]]
"""(Name of a target, how far it is from a published value), by metric and load."""


def _published_cells(
    series: Sequence[Series], beside: Sequence[Series], metrics: Sequence[Metric]
) -> tuple[_Changes, list[str]]:
    """Return (cells of the column with published values, items on published series that have none).

    A series is compared with the target of its name; if there is one of each, these two are compared.
    """
    cells: dict[tuple[str, Load], list[tuple[str, str]]] = {}
    left_out = []
    for a_series in beside:
        measured = next((mine for mine in series if mine.name == a_series.name), None)
        measured = series[0] if measured is None and len(series) == len(beside) == 1 else measured
        if measured is None:
            continue
        if not any(
            has_like_lengths(mine.load, level.load) for mine in measured.levels for level in a_series.levels
        ):
            left_out.append(
                f"{code(a_series.name)} of {_source_words(a_series)} left out: other load, "
                f"{_length_words(a_series)}."
            )
            continue
        theirs = f"{a_series.name} ({a_series.source})"
        for row in compare([measured, replace(a_series, name=theirs)]).rows:
            mine, published = row.values.get(measured.name), row.values.get(theirs)
            if mine and published:
                words = signed(100 * (mine / published - 1))
                cells.setdefault((row.metric, load_of(row)), []).append((measured.name, words))
    for source in dict.fromkeys(a_series.source for a_series in beside):
        names = [a_series.name for a_series in beside if a_series.source == source]
        if not {a_series.name for a_series in series} & set(names) and len(beside) > 1:
            known_names = names_in_words([code(name) for name in names])
            left_out.append(
                f"{code(source)} left out: none of its targets, {known_names}, is named as one here."
            )
    shown = {metric.name for metric in metrics}
    return {key: changes for key, changes in cells.items() if key[0] in shown}, left_out


def _is_row(load: Load, other: Load) -> bool:
    """Return whether two loads are of one row of a table, as far as their lengths are known."""
    return (load.point, load.depth) == (other.point, other.depth) and has_like_lengths(load, other)


def _length_words(a_series: Series) -> str:
    """Return the lengths of the levels of a series: "1,024 tokens in, 128 out", "?" for what is unknown."""
    lengths = dict.fromkeys((level.load.pp, level.load.tg) for level in a_series.levels)
    texts = [["?" if count is None else f"{count:,}" for count in pair] for pair in lengths]
    return names_in_words([f"{pp} tokens in, {tg} out" for pp, tg in texts])


def _source_words(a_series: Series) -> str:
    """Return the source of a series, with the title of a published table."""
    if not a_series.source.startswith(PREFIX):
        return code(a_series.source)
    return f"{code(a_series.source)} ({plain(load_reference(a_series.source).title)})"


def _matrix_tables(
    comparison: ComparisonResult | None,
    series: Sequence[Series],
    metrics: Sequence[Metric],
    changes: _Changes,
    against: str,
) -> Iterator[Grid]:
    """Yield a table of levels by targets for each metric that targets have in common, with the winner.

    `against` is the heading of the column with published values, where there are any.
    """
    for metric in metrics if comparison is not None else ():
        assert comparison is not None  # noqa: S101 - else there are no metrics here
        loads = [load_of(row) for row in comparison.rows if row.metric == metric.name]
        grid = winners(comparison, metric.name, series)
        if not grid.rows:
            continue
        axis, *heads = grid.heads
        grid = replace(grid, heads=(f"{axis} ({in_sentence(metric.title)}, {metric.unit})", *heads))
        of_metric = {load: pairs for (name, load), pairs in changes.items() if name == metric.name}
        yield _with_changes(grid, loads, of_metric, against)


def _with_changes(
    grid: Grid, loads: Sequence[Load], changes: Mapping[Load, Sequence[tuple[str, str]]], against: str
) -> Grid:
    """Return a table with a last column of what the published values are exceeded by, if any is."""
    if not changes or len(loads) != len(grid.rows):
        return grid
    names = list(dict.fromkeys(name for pairs in changes.values() for name, _ in pairs))
    head = against if len(names) > 1 else f"{code(names[0])} a{against[1:]}"
    cells = []
    for load in loads:
        pairs = next((pairs for changed, pairs in changes.items() if _is_row(load, changed)), ())
        parts = [words if len(names) == 1 else f"{code(name)} {words}" for name, words in pairs]
        cells.append(", ".join(parts) or UNKNOWN)
    rows = tuple((*row, cell) for row, cell in zip(grid.rows, cells, strict=True))
    heads = (*grid.heads, head)
    return replace(grid, heads=heads, rows=rows, left=grid.left | {len(heads) - 1})


def _level_table(result: SweepResult, main: Metric, changes: _Changes, against: str) -> Grid:
    """Return the table of levels, a row for each of a target: the rate `main`, others, latency, published."""
    rows = [
        _level_row(target, level, main, changes, marked=_has_marks(result))
        for target in result.targets
        for level in sorted(target.levels, key=lambda level: (level.depth, level.pp or 0, level.point))
    ]
    axis = points_head(level.point for level in _levels(result))
    heads: tuple[Cell, ...] = (
        axis,
        "Target",
        f"{main.title} {main.unit}",
        "95 % interval",
        "per request",
        "Prefill tok/s",
        "Peak tok/s",
        "TTFT ms",
        "TTFT p95 ms",
        against,
    )
    grid = Grid("", heads, tuple(rows), frozenset({0, 1, len(heads) - 1}))
    return known_columns(grid, without={1} if len(result.targets) == 1 else ())


def _has_marks(result: SweepResult) -> bool:
    """Return whether the table marks levels with a warning: some have one, and the item does not say all."""
    return len(set(map(_is_doubted, _levels(result)))) > 1


def _is_doubted(level: LevelResult) -> bool:
    return any(mark.doubt for mark in marks_of(level))


def _level_row(
    target: TargetResult, level: LevelResult, main: Metric, changes: _Changes, *, marked: bool
) -> tuple[Cell, ...]:
    """Return a level's row; `marked`: a level with a warning has a "?"."""
    load = load_of(level)
    where = load_words(load, lengths=len({level.pp for level in target.levels}) > 1)
    if level.error is not None:
        return where, Outside(target.name), "refused", *[UNKNOWN] * 7
    words = _rate_text(level, main.name)
    if marked and _is_doubted(level):
        words += " ?"
    each, first = level.stream_tps, level.ttft_due_ms or level.ttft_ms
    ttft = METRICS["ttft_ms"]
    against = [
        f"{in_sentence(METRICS[name].title)} {words}"
        for (name, changed), pairs in changes.items()
        if _is_row(load, changed)
        for _, words in pairs
    ]
    return (
        where,
        Outside(target.name),
        words,
        _interval_text(level, main),
        METRICS["decode_tps"].text(None if each is None else each.p50),
        *(_rate_text(level, name) for name in ("prefill_tps", "peak_tps")),
        ttft.text(None if first is None else first.mean),
        ttft.text(None if first is None else first.p95),
        ", ".join(against) or UNKNOWN,
    )


def _interval_text(level: LevelResult, metric: Metric) -> str:
    rate = level.rate(metric.name)
    return UNKNOWN if rate is None or rate.ci95 is None else " to ".join(map(metric.text, rate.ci95))


def _rate_text(level: LevelResult, name: str) -> str:
    rate = level.rate(name)
    return METRICS[name].text(None if rate is None else rate.mean)


def _evenly_spaced(rows: Sequence[tuple[Cell, ...]], most: int) -> Sequence[tuple[Cell, ...]]:
    """Return at most `most` of `rows`, evenly spaced, the first and the last among them."""
    last = len(rows) - 1
    return rows if len(rows) <= most else [rows[round(step * last / (most - 1))] for step in range(most)]


def _how_to_read(comparison: ComparisonResult | None, lost: int, *, is_matrix: bool, has_marks: bool) -> str:
    """Return how the tables are read: who wins, which levels are left out."""
    parts = []
    if is_matrix and comparison is not None and any(True for _ in winner_rules(comparison)):
        floor, rate = max(comparison.noise_floor_percent.values()), comparison.error_rate_percent or 0.0
        parts.append(
            f"a winner is better than every other by over {floor:.1f} %, beyond chance ({rate:.0f} % error)"
        )
    if not is_matrix:
        parts += [
            f"p95 is given for levels of {P95_FROM} requests or more",
            *(["?: the level has a warning"] if has_marks else []),
        ]
    parts += [f"{lost} levels are left out here"] if lost else []
    return f"In the tables, {'; '.join(parts)}." if parts else ""


def _repeat_item(commands: Sequence[str]) -> Iterator[str]:
    """Yield the item with what measures the same again, and what compares it with this post."""
    if commands:
        shown = [code(command) for command in commands[:_MOST_COMMANDS]]
        more = f" ({len(commands) - len(shown)} more in the report)" if len(commands) > len(shown) else ""
        again = f"**To repeat it** (give each name its address: `NAME=URL`): {'; '.join(shown)}{more}."
        yield f"{again} **To compare yours**, save this post as post.md: `sparktop report last post.md`"
