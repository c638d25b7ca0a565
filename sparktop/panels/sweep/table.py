"""Draws the levels of a sweep as a table; a level is a target with a concurrency.

Planned levels have only a state, the running level has a bar, and finished levels have results. Above the
table of a capacity search stand the loads that it tried and how its conditions are met.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from functools import cache, partial

from msgspec import Struct

from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit
from sparktop.model.load import Level, LoadKind
from sparktop.model.sweep import (
    ColumnRank,
    ConditionBar,
    LevelState,
    Mark,
    MarkKind,
    PlannedLevel,
    ResultRow,
    SearchView,
    SweepView,
    TriedLoad,
    Value,
    level_name,
)
from sparktop.panels.parts.figures import bar_runs, label, part_role, sentence_rows
from sparktop.panels.parts.text import (
    Row,
    Run,
    fit_row,
    fit_rows,
    fitted_names,
    frame_role,
    frame_rows,
    merge_runs,
    row_width,
    side_by_side,
    spread_row,
    tab,
)
from sparktop.panels.sweep.live import letters

_FULL, _EMPTY, _LIMIT = "█", "·", "┃"
_BAR_END_IN_LIMITS = 1.5
"""Right end of a bar, in limits."""
_NEAR = 0.8
"""Share of its limit from which on a value is near it."""
_LEAST_BAR, _MOST_BAR = 12, 60
_TABLE_GAP = 2
_CUT = "… "
_MOST_HINT = 3


def capacity_rows(searches: Sequence[SearchView], width: int, most_rows: int, *, named: bool) -> list[Row]:
    """Draw searches, one below the other, as at most `most_rows` rows of `width` cells.

    With `named` each begins with the name of its target. The line of tried loads comes first, then the
    conditions, then what may come or the answer.
    """
    rows: list[Row] = []
    for search in searches:
        rows += [_tried_row(search, width, named=named), *_condition_rows(search, width)]
        if search.ahead:
            rows.append([label("next    "), (search.ahead, "text")])
        if search.hint:
            rows += sentence_rows(("hint    ", "muted"), search.hint, "text", width)[:_MOST_HINT]
    return [merge_runs(fit_row(row, width)) for row in rows[:most_rows]]


def _tried_row(view: SearchView, width: int, *, named: bool) -> Row:
    """Return the tried loads with their verdicts; the smallest are left out where they do not fit."""
    head: Row = [label("tried   ")]
    if named:
        head = [(f"{view.target} ", "title"), label("tried ")]
    parts: list[Row] = []
    for load in view.tried:
        now: Row = [("▸", "accent"), (load.label, "title")] if load.now else [(load.label, "text")]
        parts.append([*now, verdict_sign(load), (" " * _TABLE_GAP, "text")])
    room, cut = width - row_width(head), 0
    while len(parts) > 1 and sum(map(row_width, parts)) + cut > room:
        parts.pop(0)
        cut = len(_CUT)
    if not parts:
        return [*head, label("nothing yet")]
    return [*head, *([label(_CUT)] if cut else []), *(run for part in parts for run in part)]


def verdict_sign(load: TriedLoad) -> Run:
    """Return (✓, ✗, ? or a space; its colour) for a tried load."""
    if load.holds is None:
        return " ", "muted"
    sign = "✓" if load.holds else "✗"
    if not load.certain:
        sign = "?"
    return sign, "good" if load.holds else "bad"


def _condition_rows(view: SearchView, width: int) -> list[Row]:
    """Return a row per condition: name, bar, value and limit, and the share that met it where it fits."""
    if not view.bars:
        return []
    names = max(len(bar.name) for bar in view.bars) + 1
    values = [f" {bar.value} of {bar.limit}" for bar in view.bars]
    shares = []
    for bar in view.bars:
        needs = "" if bar.needed_percent is None else f", needs {bar.needed_percent:.0f} %"
        shares.append("" if bar.met_percent is None else f"  met by {bar.met_percent:.0f} %{needs}")
    value_width, share_width = max(map(len, values)), max(map(len, shares))
    room = width - names - value_width
    if room - share_width < _LEAST_BAR:
        shares, share_width = [""] * len(shares), 0
    bar_width = max(_LEAST_BAR, min(_MOST_BAR, room - share_width))
    rows: list[Row] = []
    for bar, value, share in zip(view.bars, values, shares, strict=True):
        row = [*fit_row([label(bar.name)], names), *_limit_bar(bar, bar_width)]
        rows.append([*row, *fit_row([(value, "text")], value_width), label(share)])
    return [[label(f"{view.at}:")], *rows] if view.at else rows


def _limit_bar(bar: ConditionBar, width: int) -> Row:
    """Draw a value beside its limit, which is at two thirds of the bar; the colour says how near it is.

    A ratio above 1 misses the limit. Of a minimum it is limit / value, so that the bar has its inverse.
    """
    limit_cell, ratio = round((width - 1) / _BAR_END_IN_LIMITS), bar.ratio
    filled, role = 0, "muted"
    if ratio is not None:
        value_in_limits = 1 / ratio if bar.at_least and ratio else ratio
        filled = max(1, min(width, round(value_in_limits * limit_cell)))
        role = "good" if ratio < _NEAR else "warn"
        if ratio > 1:
            role = "bad"
    cells = [(_FULL, role) if cell < filled else (_EMPTY, "bar_empty") for cell in range(width)]
    cells[limit_cell] = (_LIMIT, "title")
    return cells


class ValueColumn(Struct, frozen=True):
    """One column of values in the table of levels."""

    heading: str
    width: int
    priority: int
    """Narrow screens show only the columns with the smallest ones."""
    metric: str | None
    """Key of the column's rank in `ResultRow.ranks`; None for a column without ranks."""
    text: Callable[[ResultRow], str]


def _column(
    heading: str, width: int, priority: int, name: str, write: Callable[[float | None], str], metric: str = ""
) -> ValueColumn:
    """Return the column of a figure: a mean as in comparisons, one of agents, or a field of rows."""

    def text(row: ResultRow) -> str:
        figure = row.figures.get(name)
        value = row.conversations.get(name, getattr(row, name, None)) if figure is None else figure.mean
        return write(value)

    return ValueColumn(heading, width, priority, metric or None, text)


def _number_text(number_format: str, value: float | None) -> str:
    return numbers.UNKNOWN if value is None else number_format.format(value)


_count_text, _percent_text = partial(_number_text, "{:,.0f}"), partial(_number_text, "{:,.0f} %")
_milliseconds = numbers.milliseconds


def rate_text(value: float | None) -> str:
    """Format a token rate as reports do: "56.2", "408.3", "11,466"; "–" if unknown."""
    return numbers.decimal(value, 1)


def interval_text(figure: Value | None) -> str:
    """Format a 95 % confidence interval as its half-width in percent of the mean, such as "±2.1 %".

    "–" without an interval.
    """
    if figure is None or figure.low is None or figure.high is None or figure.mean <= 0:
        return numbers.UNKNOWN
    half = 100 * (figure.high - figure.low) / 2 / figure.mean
    return f"±{half:.1f} %" if half < 9.95 else f"±{half:.0f} %"


def _failed_text(row: ResultRow) -> str:
    ended = row.ok + row.failed
    # Files of other tools may lack the number of requests.
    return f"{row.failed}/{ended}" if ended or row.cancelled else numbers.UNKNOWN


_ACCEPTED = _column("accepted", 8, 35, "spec_accept_percent", _percent_text)
"""The share of drafted tokens that was accepted; known only of servers with speculative decoding."""
_BESIDE = _column("ITL beside", 10, 37, "beside_itl_ms", partial(_number_text, "{:,.1f} ms"))
"""The token gap of the requests while long prompts arrive; known only where these were sent."""
_OUTPUT = _column("output", 8, 32, "output_tps", rate_text, "output_tps")
_TTFT_P95 = _column("TTFT p95", 9, 80, "ttft_p95_ms", _milliseconds)
_ENDS = (
    _column("tok/s each", 10, 95, "stream_p50_tps", rate_text),
    ValueColumn("failed", 7, 90, None, _failed_text),
    ValueColumn("runs", 5, 98, None, lambda row: str(row.runs) if row.runs else numbers.UNKNOWN),
)
"""The last columns of all tables."""


@cache
def _rate_columns(rate: str) -> tuple[ValueColumn, ...]:
    """Return the columns for requests at once, in their order; `rate` is that which judges the levels."""
    return (
        _column("prefill", 8, 40, "prefill_tps", _count_text, "prefill_tps"),
        _column(_RATE_HEADINGS.get(rate, "decode"), _RATE, 10, rate, rate_text, rate),
        _ACCEPTED,
        _BESIDE,
        ValueColumn("95 % CI", 7, 50, None, lambda row: interval_text(row.figures.get(rate))),
        _column("peak", 8, 70, "peak_tps", rate_text, "peak_tps"),
        _column("TTFT mean", 10, 20, "ttft_ms", _milliseconds, "ttft_ms"),
        _column("TTFT p50", 9, 99, "ttft_p50_ms", _milliseconds),
        _TTFT_P95,
        *_ENDS,
    )


def _ttft_due_text(row: ResultRow) -> str:
    """Return the TTFT, or by how much it grows where the server does not keep up."""
    if row.ttft_growth is not None:
        return f"{numbers.signed(row.ttft_growth, 2)} s/s"
    due = row.figures.get("ttft_due_ms")
    return _milliseconds(None if due is None else due.mean)


RATE_COLUMNS = (
    _column("done /s", 8, 20, "requests_per_s", partial(_number_text, "{:.2f}")),
    _OUTPUT,
    ValueColumn("TTFT due", 10, 10, "ttft_due_ms", _ttft_due_text),
    _column("E2E due", 10, 85, "e2e_due_ms", _milliseconds, "e2e_due_ms"),
    _ACCEPTED,
    _TTFT_P95,
    *_ENDS,
)
"""The columns for requests at a rate."""
AGENT_COLUMNS = (
    _column("tool p50", 9, 10, "tool_p50_ms", _milliseconds),
    _column("tool p90", 9, 20, "tool_p90_ms", _milliseconds),
    _column("human p50", 9, 30, "human_p50_ms", _milliseconds),
    _column("human p90", 9, 80, "human_p90_ms", _milliseconds),
    _column("answer p50", 10, 85, "request_p50_ms", _milliseconds),
    _column("cached", 6, 31, "cached_percent", _percent_text),
    _OUTPUT,
    _column("fit KV", 6, 70, "fit", _count_text),
    _column("calls", 6, 97, "calls", _count_text),
    _ACCEPTED,
    *_ENDS[:2],
)
"""The columns for agents: TTFT after a tool and after a person, model time of a person's whole request."""
_COLUMNS_OF = {
    LoadKind.RATE: RATE_COLUMNS,
    LoadKind.AGENTS: AGENT_COLUMNS,
}
"""Columns of the kinds of load that have some of their own."""
_RATE, _RATE_HEADINGS = 8, {"output_tps": "output", "total_tps": "total"}
"""Width in cells of the column of the token rate that judges the levels, and its headings."""


def columns_of(view: SweepView, kind: LoadKind) -> tuple[ValueColumn, ...]:
    """Return the columns for a kind of load; the first token rate is the one that judges the levels."""
    return _COLUMNS_OF.get(kind) or _rate_columns(next((row.rate for row in view.rows if row.rate), ""))


_LEAST_CONDITION = 6


def search_columns(view: SweepView) -> tuple[ValueColumn, ...]:
    """Return the columns of a capacity search: probability that a level holds, then each condition.

    Empty for other sweeps.
    """
    tried = {
        (search.target, load.point): load for search in view.searches for load in search.tried if load.point
    }
    names = next(([bar.name for bar in load.bars] for load in tried.values() if load.bars), [])

    def load_of(row: ResultRow) -> TriedLoad:
        return tried.get((row.key.target, row.key.point), TriedLoad(""))

    def condition_text(row: ResultRow, index: int) -> str:
        bars = load_of(row).bars
        return _bar_value_text(bars[index]) if index < len(bars) else numbers.UNKNOWN

    def chance_text(row: ResultRow) -> str:
        """Return the probability: nothing measured is quite certain."""
        percent = load_of(row).holds_percent
        if percent is None:
            return numbers.UNKNOWN
        if percent < 1:
            return "< 1 %"
        return "> 99 %" if percent > 99 else f"{percent:.0f} %"

    columns = [ValueColumn("holds", 6, 0, None, chance_text)]
    for index, name in enumerate(names):
        heading = name.replace(" TTFT after a ", " ")
        width = max(_LEAST_CONDITION, len(heading))
        columns.append(ValueColumn(heading, width, 0, None, partial(condition_text, index=index)))
    return tuple(columns) if tried else ()


def _bar_value_text(bar: ConditionBar) -> str:
    """Return the value of a condition in few cells: a rate without its unit, "> 2 s" if over the limit."""
    return f"> {bar.limit}" if bar.over_limit else bar.value.removesuffix(" tok/s")


BEST, ALIKE, SCATTERED = "◆", "◇", "◌"
"""Marks of the best value of a column, of one that does not differ significantly from it, and of one so
scattered that it cannot be told from it."""
_RANK_SIGNS = {
    ColumnRank.BEST: (BEST, "best value", "best"),
    ColumnRank.TIED: (ALIKE, "no clear difference from it", "unclear"),
    ColumnRank.SCATTERED: (SCATTERED, "may be as good: its runs are few or differ much", "may be as good"),
}
"""(Sign, meaning, meaning in few words) of each rank."""
MARK_SIGNS = {MarkKind.WARNING: "!", MarkKind.SLOW: "▾", MarkKind.NOTE: "·"}
_MARK_ROLES = {MarkKind.WARNING: "warn", MarkKind.SLOW: "warn", MarkKind.NOTE: "muted"}
MORE = "…"
"""Sign of marks that have no room: all are on the level's own page."""
STATES = {
    LevelState.AHEAD: ("·", "muted"),
    LevelState.WARMING_UP: ("○", "accent"),
    LevelState.RUNNING: ("●", "accent"),
    LevelState.SETTLING: ("○", "accent"),
    LevelState.PART: ("◐", "text"),
    LevelState.DONE: ("✓", "good"),
    LevelState.CUT_SHORT: ("◔", "warn"),
    LevelState.NOT_MADE: ("–", "muted"),
    LevelState.LEFT_OUT: ("✗", "bad"),
    LevelState.REFUSED: ("✘", "bad"),
}
"""(sign, role) of each state of a level."""
_STATE_WORDS = {LevelState.AHEAD: "to come", LevelState.SETTLING: "waiting until idle"}
"""States whose value, which recordings have, says less."""
_WITH_VALUES = (LevelState.DONE, LevelState.PART, LevelState.CUT_SHORT)
"""States of an ended sweep's levels whose rows have values in place of the state's word."""
_WITHOUT_RUNS = frozenset({LevelState.AHEAD, LevelState.NOT_MADE, LevelState.LEFT_OUT})
_BAR = 14
_WORDS, _MOST_WORDS, _WIDE_WORDS = 10, 24, 30
"""Least and greatest width in cells of the column of marks in narrow tables, and its width in wide ones."""
_SIGNS = 4
"""Width in cells of the column of marks in tables beside one another, which show only the signs."""
_WIDE = 90
_NARROW = 48
"""Width in cells below which a table shows only the signs of marks."""


def framed_sweep(
    body: Sequence[Row],
    width: int,
    height: int,
    *,
    title: Row,
    simulated: bool = False,
    status: Sequence[Run] = (),
    note: str = "",
    footnote: Row | None = None,
    selected: bool = False,
) -> list[Row]:
    """Draw rows in the frame of a sweep: `height` rows, or more where `body` has more, which scroll."""
    rows = [[(" ", "text"), *row] for row in body]
    drawn = frame_rows(
        rows,
        width,
        max(height, len(rows) + 2),
        role=frame_role("sweep", selected=selected),
        title=title,
        status=[*([("simulated ", "warn")] if simulated else []), *status],
        note=[(f" {note} ", "muted")] if note else [],
        footnote=footnote or [],
    )
    return [merge_runs(row) for row in drawn]


def page_title(word: str, about: str = "") -> Row:
    """Return the name of a page and what it is about, for the upper edge of its frame."""
    return [*tab((word, "title")), *([label(f" {about} ")] if about else [])]


_FOR_SOME = frozenset({_ACCEPTED.heading, _BESIDE.heading})
"""Headings of columns that few sweeps have, which are shown once a level has a value."""


def columns_for(view: SweepView, width: int) -> list[ValueColumn]:
    """Return the columns that fit into a table of `width` cells, beside the names and the marks of levels.

    Columns in which no value is known are left out.
    """
    room = width - _name_width(view) - _marks_column_width(view, width)
    chosen: list[ValueColumn] = []
    columns = (*search_columns(view), *columns_of(view, _load_kind(view)))
    for column in sorted(columns, key=lambda column: column.priority):
        if all(column.text(row) == numbers.UNKNOWN for row in view.rows) and (
            view.rows or column.heading in _FOR_SOME
        ):
            continue
        if column.width + 1 <= room:
            chosen.append(column)
            room -= column.width + 1
        else:
            break
    return [column for column in columns if column in chosen]


def _marks_column_width(view: SweepView, width: int) -> int:
    """Return the width in cells of the column of marks in a table of `width` cells.

    The first mark of each level is whole, else in one word. The column has only the signs of marks in narrow
    tables, and where words would leave no room for the two most important values.
    """
    columns = sorted(columns_of(view, _load_kind(view)), key=lambda column: column.priority)
    values = sum(column.width + 1 for column in columns[:2])
    if width < _NARROW:
        return _SIGNS
    if width >= _WIDE:
        return _WIDE_WORDS
    for brief, most_cells in ((False, _MOST_WORDS), (True, width)):
        longest = max((row_width(_first_mark(row, brief=brief)) for row in view.rows), default=0)
        words = max(_WORDS, 2 + longest)
        if words <= most_cells and _name_width(view) + values + words <= width:
            return words
    return _SIGNS


def _load_kind(view: SweepView) -> LoadKind:
    return next((level.key.point.kind for level in all_levels(view)), LoadKind.CONCURRENCY)


def _name_width(view: SweepView) -> int:
    """Return the width in cells of the column of level names, such as "▶✓ a c64".

    The target's name is part of a level's name if there are several targets.
    """
    load = max((len(_load_words(view, level.key)) for level in all_levels(view)), default=0)
    if len(view.targets) < 2:
        return max(8, 4 + load)
    longest = max(cell_width(target.name) for target in view.targets)
    return max(10, 6 + load) + min(14, longest)


def _load_words(view: SweepView, key: Level) -> str:
    return level_name(key, lengths=view.several_lengths)


def table_heading(view: SweepView, width: int, shown: int | None = None) -> Row:
    """Return the heading row of the table of levels; it says how many are `shown` where not all are."""
    name, count = _name_width(view), len(all_levels(view))
    columns = columns_for(view, width)
    is_part = shown is not None and shown < count
    titles = (f"{shown} of {count} shown", f"{shown} shown") if is_part else ("   level",)
    title = next((words for words in titles if len(words) <= name), titles[-1])
    row: Row = [(fit(title, name), "muted")]
    row += [label(" " + fit(column.heading, column.width, "right")) for column in columns]
    return fit_row([*row, label("  remarks" if _marks_column_width(view, width) > _SIGNS else "")], width)


def side_by_side_tables(view: SweepView, width: int, height: int) -> list[Row]:
    """Return the levels of a sweep as at most `height` rows: a table with heading, without legend.

    If the rows are too few for all levels, several tables with fewer columns stand beside one another. Of
    levels that have no place even then, those next to the best one are shown.
    """
    room, count = height - 1, len(all_levels(view))
    least = _name_width(view) + _SIGNS + _RATE + 1 + _TABLE_GAP
    beside = max(1, min(-(-count // max(1, room)), (width + _TABLE_GAP) // least))
    levels = shown_levels(view, beside * room + 2, best_key(view))
    table_rows_each = -(-len(levels) // beside)
    cells = (width + _TABLE_GAP) // beside - _TABLE_GAP
    results = {row.key: row for row in view.rows}
    tables = []
    for first_level in range(0, len(levels), max(1, table_rows_each)):
        part = levels[first_level : first_level + table_rows_each]
        rows = [
            table_heading(view, cells, None if first_level else len(levels)),
            *(level_row(view, level, results.get(level.key), cells) for level in part),
        ]
        tables.append(rows)
    return [fit_row(row, width) for row in side_by_side(tables, [cells] * len(tables), _TABLE_GAP)][:height]


def marks_key(view: SweepView, room: int, shown: Sequence[Row]) -> Row:
    """Return the meaning of the signs in the rows `shown` in at most `room` cells, for a lower edge."""
    signs = {sign for row in shown for text, _ in row for sign in text}
    return _signs_row(view, columns_of(view, _load_kind(view)), room, signs)


def _signs_row(
    view: SweepView, columns: Sequence[ValueColumn], room: int, signs: Container[str] | None = None
) -> Row:
    """Return signs with their meanings, in fewer words if `room` cells are too few, and the first that fit.

    They are those of ranks in `columns`, of marks and of ended levels, and all among `signs`, if given.
    """
    legend: Row = []
    for short in (False, True):
        meanings = [one for one in _meanings(view, columns, short=short) if signs is None or one[0] in signs]
        legend = [run for sign, role, words in meanings for run in ((f" {sign}", role), label(f" {words} "))]
        if row_width(legend) <= room:
            return legend
    while row_width(legend) > room:
        legend = legend[:-2]
    return legend


def _meanings(
    view: SweepView, columns: Sequence[ValueColumn], *, short: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield (sign, its role, its meaning) for all signs in a table with these columns.

    In a search the signs of levels are verdicts, as another column says.
    """
    metrics = {column.metric for column in columns}
    ranks = {rank for row in view.rows for name, rank in row.ranks.items() if name in metrics}
    kinds = {mark.kind for row in view.rows for mark in row.marks}
    is_told = view.status.over and not view.searches
    states = {level.state for level in all_levels(view)} if is_told else set()
    for rank in filter(ranks.__contains__, _RANK_SIGNS):
        sign, meaning, brief = _RANK_SIGNS[rank]
        if rank is ColumnRank.BEST and LevelState.CUT_SHORT in states:
            meaning, brief = f"{meaning} of ✓", f"{brief} of ✓"
        yield sign, "good", brief if short else meaning
    for kind in filter(kinds.__contains__, MARK_SIGNS):
        yield MARK_SIGNS[kind], _MARK_ROLES[kind], kind.value
    for state in filter(states.__contains__, _WITH_VALUES):
        yield *STATES[state], state.value


def table_rows(view: SweepView, width: int, height: int, *, chosen: Level | None = None) -> list[Row]:
    """Return the table of levels with heading and legend as `height` rows.

    The level `chosen`, or else that of `default_key`, is visible.
    """
    levels = all_levels(view)
    room = max(1, height - 2)
    shown = shown_levels(view, height, chosen)
    result_of = {row.key: row for row in view.rows}.get
    rows = [level_row(view, each, result_of(each.key), width, chosen=each.key == chosen) for each in shown]
    above = levels.index(shown[0]) if shown else 0
    key = _legend_row(view, above, len(levels) - len(shown) - above, width)
    return [table_heading(view, width), *fit_rows(rows, width, room), fit_row(key, width)][:height]


def all_levels(view: SweepView) -> tuple[PlannedLevel, ...]:
    """Return a sweep's planned levels, or the measured levels where its plan is not known."""
    return view.levels or tuple(PlannedLevel(row.key, LevelState.DONE, share=1.0) for row in view.rows)


def shown_levels(view: SweepView, height: int, chosen: Level | None) -> tuple[PlannedLevel, ...]:
    """Return the levels that `table_rows` shows, in the order of its rows below the heading."""
    levels, room = all_levels(view), max(1, height - 2)
    keys = [level.key for level in levels]
    chosen_key = chosen if chosen in keys else default_key(view)
    chosen_index = keys.index(chosen_key) if chosen_key in keys else 0
    first_level = max(0, min(len(levels) - room, chosen_index - room // 2))
    return levels[first_level : first_level + room]


def newest_levels(view: SweepView, count: int) -> tuple[PlannedLevel, ...]:
    """Return at most `count` levels in their order: up to the one begun last, and those ahead if few have."""
    levels = all_levels(view)
    first_level = max(0, _newest_begun(levels) + 1 - count)
    return levels[first_level : first_level + count]


def default_key(view: SweepView) -> Level | None:
    """Return the level to show where none is selected: the best of a finished sweep, else the newest begun.

    None if there is no level.
    """
    levels = all_levels(view)
    best = best_key(view) if view.status.over else None
    return best or (levels[_newest_begun(levels)].key if levels else None)


def best_key(view: SweepView) -> Level | None:
    """Return the key of the level with the best token rate; None if levels are not ranked."""
    return next((row.key for row in view.rows if row.ranks.get(row.rate or "") is ColumnRank.BEST), None)


def _newest_begun(levels: Sequence[PlannedLevel]) -> int:
    """Return the index of the last of `levels` that has begun; 0 if none has begun."""
    begun = [
        index for index, level in enumerate(levels) if level.state not in {*_WITHOUT_RUNS, LevelState.REFUSED}
    ]
    return max(begun, default=0)


def _legend_row(view: SweepView, above: int, below: int, width: int) -> Row:
    """Return the legend of the signs in the table, as far as it fits, and how many levels are hidden.

    `above` and `below` are the numbers of levels that are hidden there.
    """
    hidden = [f"{sign} {count}" for sign, count in (("↑", above), ("↓", below)) if count]
    more: Row = [label(f"{' '.join(hidden)} more levels, {'PgDn' if below else 'PgUp'}")] if hidden else []
    row = [label("  "), *_signs_row(view, columns_for(view, width), width - row_width(more) - 2)]
    tried = [load for search in view.searches for load in search.tried if load.holds is not None]
    has_more = any(len(_main_marks(one)) > 1 for one in view.rows)
    is_unsure = not all(load.certain for load in tried)
    for sign, role, word, is_shown in (
        (MORE, "muted", "more: enter", has_more),
        ("?", "warn", "not certain: below 97.5 %", is_unsure),
    ):
        piece: Row = [(f" {sign}", role), label(f" {word} ")]
        if is_shown and row_width([*row, *piece, *more]) <= width:
            row += piece
    return spread_row(row, more, width)


def level_row(
    view: SweepView, level: PlannedLevel, row: ResultRow | None, width: int, *, chosen: bool = False
) -> Row:
    """Return one level of a sweep as a row: its values or, if it has none, its state with a progress bar."""
    loads = [
        load
        for search in view.searches
        for load in search.tried
        if load.point == level.key.point and search.target == level.key.target
    ]
    # Of a complete level of a search, whether it holds.
    is_judged = loads and level.state is LevelState.DONE
    sign, role = verdict_sign(loads[0]) if is_judged else STATES[level.state]
    name = _name_width(view)
    start: Row = [("▶" if chosen else " ", "selected"), (sign, role), (" ", "text")]
    if len(view.targets) > 1:
        names = [target.name for target in view.targets]
        letter = letters(names).get(level.key.target, " ")
        # The colour of the target's curve.
        letter_role = part_role(names.index(level.key.target)) if level.key.target in names else "accent"
        room = min(14, max(cell_width(target.name) for target in view.targets))
        start += [
            (f"{letter} ", letter_role),
            (f"{fitted_names((*names, level.key.target), room)[level.key.target]} ", "text"),
        ]
    start.append((_load_words(view, level.key), "title"))
    result: Row = fit_row(start, name)
    if row is not None and row.error is not None:
        return fit_row([*result, (" left out: ", "bad"), (row.error, "text")], width)
    if row is None or not row.figures:
        return fit_row([*result, *_state_cells(level, width - row_width(result))], width)
    columns = columns_for(view, width)
    for column in columns:
        result += _value_cell(row, column)
    result.append(("  ", "text"))
    if not row.complete:
        result += [*bar_runs(level.share, 8, "generation"), (" ", "text")]
    return fit_row([*result, *marks_words(row, width - row_width(result))], width)


def _state_cells(level: PlannedLevel, room: int) -> Row:
    """Return a level's state with its progress in at most `room` cells: the bar goes first, then the runs."""
    sign_role = STATES[level.state][1]
    state = _STATE_WORDS.get(level.state, level.state.value)
    if level.state in _WITHOUT_RUNS:
        return [(f" {state}", "muted")]
    of_runs = "" if level.runs is None else f"/{level.runs}"
    bar: Row = [(" ", "text"), *bar_runs(level.share, _BAR, "generation")]
    words: Row = [(f" {state}", sign_role), label(f", {level.runs_done}{of_runs} runs done")]
    return next((row for row in ([*bar, *words], words) if row_width(row) <= room), words[:1])


def _value_cell(row: ResultRow, column: ValueColumn) -> Row:
    text = column.text(row)
    rank = row.ranks.get(column.metric) if column.metric else None
    sign, role = "", "text"
    if text == numbers.UNKNOWN:
        role = "muted"
    elif rank is not None:
        sign, role = _RANK_SIGNS[rank][0], "good" if rank is ColumnRank.BEST else role
    if column.heading == "failed" and row.failed:
        role = "bad"
    pad = column.width - cell_width(sign) - cell_width(text)
    return [(" " * (1 + max(0, pad)), "text"), (sign, "good"), (text, role)]


def _main_marks(row: ResultRow) -> list[Mark]:
    """Return the marks of a level that are more than notes."""
    return [mark for mark in row.marks if mark.kind is not MarkKind.NOTE]


def _mark_run(mark: Mark, *, brief: bool) -> Row:
    """Return a mark with its sign; with `brief`, in one word."""
    role = "warn" if mark.kind is MarkKind.SLOW else "text"
    return [(MARK_SIGNS[mark.kind], _MARK_ROLES[mark.kind]), ((brief and mark.brief) or mark.word, role)]


def _first_mark(row: ResultRow, *, brief: bool) -> Row:
    """Return the first mark of a level that is no note, and "…" for others; with `brief`, in one word."""
    marks = _main_marks(row)
    if not marks:
        return []
    more = [label(f" {MORE}")] if len(marks) > 1 else []
    return [*_mark_run(marks[0], brief=brief), *more]


def marks_words(row: ResultRow, room: int) -> Row:
    """Return the reasons to doubt a level, and the reasons why it is slow, as short labels in one row.

    "…" stands for labels that do not fit into `room` cells, but for notes, which are left out then. If not
    even the first one fits, it is one word, without room for that only the signs, each once.
    """
    marks = _main_marks(row)
    brief = bool(marks) and row_width(_first_mark(row, brief=False)) > room
    if brief and row_width(_mark_run(marks[0], brief=True)) > room:
        return [("".join(dict.fromkeys(MARK_SIGNS[mark.kind] for mark in marks)), "warn")]
    more, runs = label(f" {MORE}"), list[Run]()
    for number, mark in enumerate(row.marks, start=1):
        longer = [*runs, *([label(", ")] if runs else []), *_mark_run(mark, brief=brief)]
        kept = [more] if number < len(marks) else []
        if row_width([*longer, *kept]) > room:
            return [*runs, more] if runs and number <= len(marks) else runs
        runs = longer
    return runs
