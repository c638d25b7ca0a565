"""The tables of reports on sweeps and on compared series.

A series is the list of one target's levels. Comparisons have the layouts of published benchmarks of DGX
Sparks, and accept series from any source, so that own results have the same rows and columns as the
published table that they are compared with. `TABLES` are those of a target of a sweep, with a row for each
level: a column more is one line. A mark is a reason to doubt a level's metrics, or a reason why the level
is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sparktop.graphics.numbers import UNKNOWN, signed
from sparktop.model.judgement import (
    NO_DIFFERENCE,
    UNFAIR,
    UNPROVEN,
    Outcome,
    is_too_scattered,
    open_words,
    outcome,
    slots_words,
    whole_percent_change,
)
from sparktop.model.load import Level, LoadKind, LoadPoint
from sparktop.model.sweep import MarkKind, Value, value_of_range
from sparktop.model.yardsticks import LIMIT, PUBLISHED, YARDSTICK_KEYS, YARDSTICK_WORDS
from sparktop.report.document.document import Cell, Grid, Untrusted
from sparktop.report.markdown import code
from sparktop.sweep.compare.ratio import ratio_of
from sparktop.sweep.compare.series import LevelSeries, are_same_row
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.level import run_shares
from sparktop.sweep.result.results import (
    ComparisonResult,
    ComparisonRow,
    LevelResult,
    Rate,
    TargetResult,
    level_of,
)
from sparktop.sweep.terms.definitions import CALL_LATENCIES, METRICS, Metric
from sparktop.sweep.view.marks import PADDING, REFUSED, marks_of


def figure(value: Value | None, metric: Metric) -> str:
    """Return a value without its unit, a range as "low to high"; "–" for None."""
    if value is None:
        return metric.text(None)
    return " to ".join(map(metric.text, value.span or (value.mean,)))


def load_words(load: Level, *, lengths: bool = True) -> str:
    """Return a load such as "c16, 1,024 in, 128 out": its point on the axis, prompt tokens, output tokens.

    Unknown lengths are left out. If `lengths` is False, all lengths are left out.
    """
    words = load.point.short + (f" @ {load.depth:,}" if load.depth else "")
    if lengths and load.pp is not None:
        words += f", {load.pp:,} in"
    if lengths and load.tg is not None:
        words += f", {load.tg:,} out"
    return words


def points_head(points: Iterable[LoadPoint]) -> str:
    """Return the heading of a column with points on an axis: "Rate", "Agents"; "Load" for several axes."""
    kinds = {point.kind for point in points} or {LoadKind.CONCURRENCY}
    return kinds.pop().value.capitalize() if len(kinds) == 1 else "Load"


def by_concurrency(series: LevelSeries, metrics: Sequence[str], title: str) -> Grid:
    """Return a table of one series: a row per level or refused load, a column per metric with values."""
    shown_metrics = [METRICS[name] for name in metrics if name in series.metrics()]
    rows: list[tuple[Level, tuple[Cell, ...]]] = []
    for level in series.levels:
        figures = (figure(level.figures.get(metric.name), metric) for metric in shown_metrics)
        rows.append((level.load, (load_words(level.load, lengths=series.has_lengths), *figures)))
    unknown = [UNKNOWN] * len(shown_metrics)
    rows += [(load, (f"{REFUSED_SIGN} {load_words(load)}", *unknown)) for load in series.refused]
    heads = tuple(f"{metric.title} ({metric.unit})" for metric in shown_metrics)
    axis = points_head(level.load.point for level in series.levels)
    return Grid(title, (axis, *heads), _in_order_of_load(rows))


SLOTS_SIGN = "†"
"""Behind a lead at a level at which requests wait for slots at the next best target alone."""
EVEN_SIGN = "≈"
"""In place of a winner, where the difference of the two best is within the noise."""


def winners(
    comparison: ComparisonResult, metric: str, series: Sequence[LevelSeries], *, signs: bool = False
) -> Grid:
    """Return a table that compares series in one metric: point | each series | Winner (percent).

    With `signs` a level without a winner has `EVEN_SIGN` or `UNPROVEN`, and a lead beyond the noise.

    There is one row per compared load, and one per load that a target refused. `series` are in the order of
    columns; those without a value are left out.
    """
    rows = [row for row in comparison.rows if row.metric == metric]
    columns = [a_series for a_series in series if any(a_series.name in row.values for row in rows)]
    meaning = METRICS[metric]
    kinds = {row.winner_vs for row in rows if row.percent is not None and row.significant is not False}
    vs = next((kind for kind in ("baseline", "runner-up") if kind in kinds), None)
    body: list[tuple[Level, tuple[Cell, ...]]] = []
    for row in rows:
        load = level_of(row)
        values = [_value_text(row, column.name, meaning) for column in columns]
        cells = [
            REFUSED_SIGN if value == UNKNOWN and _is_refused(column, load) else value
            for column, value in zip(columns, values, strict=True)
        ]
        winner = _winner_cell(row, vs)
        if signs and outcome(row) is Outcome.SLOTS:
            winner = f"({code(row.ahead or '')} {whole_percent_change(row.percent or 0.0)} {SLOTS_SIGN})"
        elif signs and winner != UNKNOWN and outcome(row) is Outcome.OPEN:
            floor, lead = comparison.noise_floor_percent.get(metric, 0.0), row.percent or 0.0
            winner = UNPROVEN if row.percent is None or abs(lead) > floor else EVEN_SIGN
            if is_too_scattered(row.ratio_ci95) and not row.beats:
                winner = open_words([row])
            elif row.ahead is not None and abs(lead) > floor:
                whom = _against_words(row, meaning)
                winner = f"{UNKNOWN} ({code(row.ahead)} {whole_percent_change(lead)}{whom}, {UNPROVEN})"
        body.append((load, (load_words(load), *cells, winner)))
    loads = row_loads(comparison, metric, series)
    has_lengths = not rows or any(row.pp is not None or row.tg is not None for row in rows)
    body += [(load, _refused_row(load, metric, columns, lengths=has_lengths)) for load in loads[len(body) :]]
    better = "higher" if meaning.more_is_better else "lower"
    against = {
        "baseline": f", against {code(comparison.baseline or '')}",
        "runner-up": ", against the next best",
    }
    heads: tuple[Cell, ...] = (
        points_head(row.point for row in rows),
        *(Untrusted(column.name) for column in columns),
        f"Winner{against.get(vs or '', '')}",
    )
    title = f"{meaning.title} ({meaning.unit}, {better} is better)"
    return Grid(title, heads, _in_order_of_load(body), frozenset({0, len(heads) - 1}))


def row_loads(comparison: ComparisonResult, metric: str, series: Sequence[LevelSeries]) -> list[Level]:
    """Return the loads of the rows of `winners`: those compared, then those that a target refused."""
    loads = [level_of(row) for row in comparison.rows if row.metric == metric]
    names = {name for row in comparison.rows if row.metric == metric for name in row.values}
    for load in (load for a_series in series if a_series.name in names for load in a_series.refused):
        if not any(are_same_row(load, other) for other in loads):
            loads.append(load)
    return loads


def versus(comparison: ComparisonResult, metric: str, ours: Sequence[str], theirs: Collection[str]) -> Grid:
    """Return a table of one metric with the columns: Source | point | Theirs | each of `ours`.

    The value of each series in `ours` is followed by its difference from theirs, of a range from its end.
    """
    meaning = METRICS[metric]
    rows: list[tuple[Cell, ...]] = []
    for name in theirs:
        source: Cell = Untrusted(name)  # named once
        for row in comparison.rows:
            compared = [target for target in ours if row.values.get(target) is not None]
            if row.metric == metric and row.values.get(name) is not None and compared:
                texts = {
                    target: f"{_value_text(row, target, meaning)} ({_difference_text(row, target, name)})"
                    for target in compared
                }
                cells = (texts.get(target, UNKNOWN) for target in ours)
                rows.append((source, load_words(level_of(row)), _value_text(row, name, meaning), *cells))
                source = ""
    axis = points_head(row.point for row in comparison.rows)
    heads: list[Cell] = ["Source", axis, f"Theirs ({meaning.unit})", *map(Untrusted, ours)]
    return Grid(f"{meaning.title}: theirs and ours", tuple(heads), tuple(rows))


def _winner_cell(row: ComparisonRow, vs: str | None) -> Cell:
    """Return the table cell with the best series of a row and its lead in percent.

    If no series is clearly the best, the cell says so. `vs` is the reference of percentages that the column's
    heading names; if this row's percentage has another reference, the cell names that one. A "*" marks a
    lead that could not be tested.
    """
    verdict = outcome(row)
    if row.ahead is None or row.percent is None:
        return UNKNOWN if row.significant is None else NO_DIFFERENCE
    if verdict is Outcome.OPEN:
        lead = (
            f"{code(row.ahead)} {whole_percent_change(row.percent)}"
            + _against_words(row, METRICS[row.metric] if vs == "runner-up" else None)
            if round(row.percent)
            else "less than 0.5 % apart"
        )
        return f"{open_words([row])} ({'not clear: ' if row.beats else ''}{lead})"
    if verdict is Outcome.SLOTS:
        return f"{UNFAIR} ({code(row.ahead)} {whole_percent_change(row.percent)}; {slots_words(row, code)})"
    mark = "*" if row.significant is None else ""
    ahead = " ahead" if verdict is Outcome.AHEAD else ""
    over = _against_words(row) if row.winner_vs != vs else ""
    return Untrusted(row.ahead, f"{ahead} ({whole_percent_change(row.percent)}{over}){mark}")


def _against_words(row: ComparisonRow, metric: Metric | None = None) -> str:
    """Return whom a lead refers to; with `metric` "" for the next best, to which the column refers."""
    best_first = sorted(filter(None, row.values.values()), reverse=metric is None or metric.more_is_better)
    is_next = metric is not None and row.values.get(row.against or "") in best_first[:2]
    return f" against {code(row.against)}" if row.against and not is_next else ""


def _value_text(row: ComparisonRow, name: str, metric: Metric) -> str:
    """Return the value of the series `name` in a row as text; a range as "low to high", "–" if unknown."""
    return " to ".join(map(metric.text, row.ranges.get(name) or (row.values.get(name),)))


def _difference_text(row: ComparisonRow, ours: str, theirs: str) -> str:
    """Return by how many percent the value of target `ours` differs from that of `theirs`: "+4.2 %".

    Both are targets in `row`. Return "within" for a value in their range, and "–" if a value is unknown.
    """
    mine, other = row.values.get(ours), row.values.get(theirs)
    if mine is None or other is None:
        return UNKNOWN
    ratio = ratio_of(
        value_of_range(mine, row.ranges.get(ours)), value_of_range(other, row.ranges.get(theirs))
    )
    unknown_text = "within" if row.ranges.get(theirs) else UNKNOWN
    return unknown_text if ratio is None else f"{signed(ratio.percent, 1)} %"


REFUSED_SIGN = "❌"


def _refused_row(
    load: Level, metric: str, columns: Sequence[LevelSeries], *, lengths: bool
) -> tuple[Cell, ...]:
    """Return the table row of a load that cannot be compared, because too few targets accepted it."""
    figures = [
        next((level.figures.get(metric) for level in column.levels if are_same_row(load, level.load)), None)
        for column in columns
    ]
    cells = [
        REFUSED_SIGN if _is_refused(target, load) else figure(value, METRICS[metric])
        for target, value in zip(columns, figures, strict=True)
    ]
    measured = [target.name for target, value in zip(columns, figures, strict=True) if value is not None]
    only: Cell = Untrusted(measured[0], " alone") if len(measured) == 1 else UNKNOWN
    return (load_words(load, lengths=lengths), *cells, only)


def _is_refused(series: LevelSeries, load: Level) -> bool:
    return any(are_same_row(load, refused) for refused in series.refused)


def _in_order_of_load(rows: Sequence[tuple[Level, tuple[Cell, ...]]]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(row for _, row in sorted(rows, key=lambda pair: pair[0].order))


_WITH_SPREAD = ("decode_tps", "sustained_tps")
_RATES = (
    "prefill_tps",
    "decode_tps",
    "sustained_tps",
    "pure_decode_tps",
    "peak_tps",
    "output_tps",
    "total_tps",
)


class LevelColumn(Struct, frozen=True):
    """A column of a table with one row per level."""

    head: str
    cell: Callable[[LevelResult], str]
    """Returns the text of the column's cell for a level; "–" if the value is unknown."""
    metric: str | None = None
    """Name of the metric whose definition the report must include."""


class Columns(Struct, frozen=True):
    """The definition of a table with one row per level; columns without any known value are left out."""

    title: str
    columns: tuple[LevelColumn, ...]
    notes: bool = False
    """True to put the sources of yardsticks below the table."""

    def grid(self, target: TargetResult, title: str) -> Grid:
        """Return the table of a target's levels under the heading `title`.

        The table has no rows if no value of any column is known.
        """
        columns = self._columns_of(target)
        levels = target.in_order() if columns else ()
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (
                f"{'' if level.error is None else '❌ '}{level_words(level, target)}",
                *(column.cell(level) for column in columns),
            )
            for level in levels
        )
        notes = tuple(_yardstick_lines(target, levels)) if self.notes else ()
        left = {number for number, column in enumerate(columns, start=1) if column.head == "Remarks"}
        return Grid(title, ("Load", *(column.head for column in columns)), rows, frozenset({0, *left}), notes)

    def metrics(self, targets: Iterable[TargetResult]) -> set[str]:
        """Return the names of the metrics that this table shows for at least one of `targets`."""
        return {
            column.metric
            for target in targets
            for column in self._columns_of(target)
            if column.metric is not None
        }

    def _columns_of(self, target: TargetResult) -> list[LevelColumn]:
        return [
            column for column in self.columns if any(column.cell(level) != UNKNOWN for level in target.levels)
        ]


def known_columns(grid: Grid, without: Collection[int] = ()) -> Grid:
    """Return a table without the columns in which no cell is known, and without those numbered `without`."""
    known_numbers = [
        number
        for number in range(len(grid.heads))
        if number not in without and any(row[number] != UNKNOWN for row in grid.rows)
    ]
    return replace(
        grid,
        heads=tuple(grid.heads[number] for number in known_numbers),
        rows=tuple(tuple(row[number] for number in known_numbers) for row in grid.rows),
        left=frozenset(index for index, number in enumerate(known_numbers) if number in grid.left),
    )


def level_words(level: LevelResult, target: TargetResult) -> str:
    """Return a level's load as text such as "c16"; with its lengths if the concurrency alone is ambiguous."""
    several = len({(level.point, level.depth) for level in target.levels}) < len(target.levels)
    return load_words(level_of(level), lengths=several)


def _yardstick_lines(target: TargetResult, levels: Sequence[LevelResult]) -> Iterator[str]:
    """Yield a line for each source of published rates and limits: what it has for which level."""
    for name in (PUBLISHED, LIMIT):
        rates: dict[str, list[str]] = {}
        unlike: dict[str, list[str]] = {}
        sticks = [(level, stick) for level in levels for stick in level.yardsticks if stick.name == name]
        for level, stick in sticks:
            words = level_words(level, target)
            if stick.tps:
                source, _, _ = stick.source.partition("; ")  # what follows is of this level alone
                rates.setdefault(source, []).append(f"{words} {stick.tps:,.1f}")
            elif stick.prompt_tokens or stick.output_tokens:
                unlike.setdefault(stick.source, []).append(words)
        meaning = f"{_of(name)}: 100 % is {YARDSTICK_WORDS[name]}"
        yield from (f"{meaning} ({code(source)}): {', '.join(rates[source])} tok/s" for source in rates)
        yield from (f"{_of(name)}, {source}: {', '.join(unlike[source])} not compared" for source in unlike)


def _column(
    head: str,
    value: Callable[[LevelResult], Any],
    text: Callable[[Any], str] = "{:,.0f}".format,
    metric: str | None = None,
) -> LevelColumn:
    """Return the column of a figure that `text` writes; "–" where it is unknown."""

    def cell(level: LevelResult) -> str:
        figure = value(level)
        return UNKNOWN if figure is None or figure == "" else text(figure)

    return LevelColumn(head, cell, metric)


def _part(part: str, head: str, name: str, number_format: str = "{:,.0f}") -> LevelColumn:
    """Return the column of the field `name` of a level's `part`, which levels of other kinds of load lack."""
    return _column(head, lambda level: getattr(getattr(level, part), name, None), number_format.format)


def _rate(name: str) -> LevelColumn:
    metric = METRICS[name]

    def text(rate: Rate) -> str:
        shows_std = rate.std is not None and name in _WITH_SPREAD
        return metric.text(rate.mean) + (f" (std {metric.text(rate.std)})" if shows_std else "")

    return _column(metric.title, lambda level: level.rate(name), text, name)


def _latency(name: str, part: str) -> LevelColumn:
    metric = METRICS[name]
    head = metric.title if part == "mean" else f"{metric.title} {part}"
    return _column(head, lambda level: getattr(level.latency(name), part, None), metric.text, name)


def _context(head: str, name: str) -> LevelColumn:
    """Return the column of a rate or latency of the runs that sent contexts alone."""

    def value(level: LevelResult) -> float | None:
        figure = level.context.figure(name) if level.context is not None and level.depth else None
        return None if figure is None else figure.mean

    return _column(head, value, METRICS[name].text, name)


def _marks_text(level: LevelResult) -> str:
    """Return the name of a level's most serious mark, and whether there are others; "–" without marks.

    A mark is a reason to doubt the level's metrics, or a reason why it is slow; the report's list has all.
    Padding and refusals are left out, because the table shows them elsewhere, and notes on small errors.
    """
    marks = [
        mark
        for mark in marks_of(level)
        if mark.code not in {PADDING, REFUSED} and mark.kind is not MarkKind.NOTE
    ]
    if not marks:
        return UNKNOWN
    return marks[0].word + (", more below" if len(marks) > 1 else "")


_PERCENT = "{:.0f} %"


def _yardstick(name: str) -> LevelColumn:
    """Return the column of a level's decode rate in percent of a yardstick; old files have the limit only."""

    def percent(level: LevelResult) -> float | None:
        old = {LIMIT: level.roofline_percent}
        return ({stick.name: stick.percent for stick in level.yardsticks} or old).get(name)

    return _column(_of(name), percent, _PERCENT.format)


def _of(name: str) -> str:
    """Return the heading of a yardstick's column."""
    return f"Of {YARDSTICK_KEYS[name].replace('_', ' ')}"


TABLES: Sequence[Columns] = (
    Columns(
        "Throughput (tok/s)",
        (*map(_rate, _RATES), _part("server", "Accepted", "spec_accept_percent", _PERCENT)),
    ),
    Columns(
        "Agents (latencies in ms)",
        (
            *(_latency(name, part) for name in CALL_LATENCIES for part in ("p50", "p90")),
            _part("agents", "Calls", "calls"),
            _part("agents", "From cache", "cached_percent", _PERCENT),
            _part("agents", "By counters", "server_cached_percent", _PERCENT),
            _part("agents", "Amplification", "amplification", "{:,.1f}"),
            _part("agents", "Compactions", "compactions"),
            _part("agents", "Ended early", "early_words", "{}"),
            _part("agents", "Context", "context_tokens"),
            _part("agents", "Fit KV cache", "fit"),
            _part("agents", "Interactivity", "interactivity_tps", "{:,.1f}"),
            _part("agents", "In flight", "in_flight_mean", "{:,.1f}"),
        ),
    ),
    Columns(
        "Requests at a rate (latencies in ms)",
        (
            _part("open_loop", "Arrived (/s)", "arrived_per_s", "{:,.2f}"),
            _part("open_loop", "Completed (/s)", "completed_per_s", "{:,.2f}"),
            _part("open_loop", "In flight", "in_flight_mean", "{:,.1f}"),
            _part("open_loop", "Most", "in_flight_max"),
            *(_latency("ttft_due_ms", part) for part in ("mean", "p50", "p90", "p99")),
            _latency("e2e_due_ms", "mean"),
            _latency("e2e_due_ms", "p90"),
            _latency("client_wait_ms", "mean"),
            _part("open_loop", "Growth", "growth_words", "{}"),
        ),
    ),
    Columns(
        "Recorded traffic",
        (
            _part("replay", "Cached", "cached_percent", _PERCENT),
            _part("replay", "Repeated", "repeated_percent", _PERCENT),
            _column("Beyond context", lambda level: (level.replay and level.replay.beyond_context) or None),
            _column("Not due", lambda level: (level.replay and level.replay.not_due) or None),
        ),
    ),
    Columns(
        "Latency (ms)",
        (
            *(_latency("ttft_ms", part) for part in ("mean", "p50", "p90", "p99")),
            _latency("itl_ms", "mean"),
            _part("beside", "ITL beside", "mean_itl_ms", "{:,.1f}"),
            _latency("e2e_ms", "mean"),
            _latency("e2e_ms", "p90"),
        ),
    ),
    # The runs that sent the context of levels with depth, and how much of it the prompts found in the cache.
    Columns(
        "Context",
        (
            _context("Prefill (tok/s)", "prefill_tps"),
            _context("Decode (tok/s)", "decode_tps"),
            _context("TTFT (ms)", "ttft_ms"),
            _column(
                "In the cache",
                lambda level: level.context.found_percent if level.context and level.depth else None,
                _PERCENT.format,
            ),
        ),
    ),
    Columns(
        "Levels",
        (
            _column("Runs", lambda level: None if level.error else level.runs),
            _column("Requests", lambda level: None if level.error else level.requests.ok),
            _column("Failed", lambda level: level.requests.failed or None, str),
            _column("Padding", lambda level: level.padding_percent, _PERCENT.format),
            *map(_yardstick, YARDSTICK_KEYS),
            _column(
                "J/token",
                lambda level: level.joules_per_token,
                lambda joules: f"{joules:.3f}" if joules < 1 else f"{joules:,.2f}",
            ),
            LevelColumn("Remarks", _marks_text),
        ),
        notes=True,
    ),
)


_SPLIT_NOTE = (
    "Requests: the sum of all runs. Largest share: the most that one server got within a single run (two "
    "runs, each all to another server, add up to an even sum). Batch: requests in one step of the engine, or "
    "running where it counts no steps, on average while it computed."
)


def split_grid(target: TargetResult) -> Grid:
    """Return a table of a router: Concurrency | requests and batch size of each backend | largest share.

    The largest share is the percentage of a run's requests that a single backend answered. There is one
    row per level. The table is empty unless the target is a router with several backends.
    """
    names = sorted({name for level in target.levels for name in level.known_servers})
    title = f"Who answered: {code(target.name)}"
    if target.kind is not TargetKind.ROUTER or len(names) <= 1:
        return Grid(title, (), ())
    levels = [level for level in target.in_order() if level.error is None]
    rows: list[tuple[Cell, ...]] = []
    for level in levels:
        cells = [level_words(level, target)]
        for name in names:
            batch = level.busy_batch.get(name)
            count = level.served_by.get(name, 0 if level.served_by else None)
            cells += [UNKNOWN if count is None else str(count), UNKNOWN if batch is None else f"{batch:.1f}"]
        shares = [f"{share:.0f}" for share in sorted(run_shares(level.runs_split))]
        ends = dict.fromkeys((*shares[:1], *shares[-1:]))
        rows.append((*cells, f"{' to '.join(ends)} %" if ends else UNKNOWN))
    heads: list[Cell] = [points_head(level.point for level in levels)]
    for name in names:
        heads += [Untrusted(name, " requests"), Untrusted(name, " batch")]
    return Grid(title, (*heads, "Largest share of a run"), tuple(rows), notes=(_SPLIT_NOTE,))
