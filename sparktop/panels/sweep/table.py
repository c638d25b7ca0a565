"""Draws the levels of a sweep as a table; a level is a target with a concurrency.

Planned levels have only a state, the running level has a bar, and finished levels have results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit
from sparktop.model.sweep_comparison import Measured, level_name
from sparktop.model.sweep_view import LevelKey, LevelState, PlannedLevel, Rank, ResultRow, SweepView
from sparktop.panels.parts.figures import bar_runs, label
from sparktop.panels.parts.roles import part_role
from sparktop.panels.parts.rows import Row, fit_row, row_width, spread_row
from sparktop.panels.sweep.tracks import letters
from sparktop.values import dataclass

BEST, ALIKE = "◆", "◇"
"""Marks of the best value of a column, and of a value that does not differ significantly from the best."""
DOUBT, SLOW = "!", "▾"
"""Marks of a reason not to trust a level's result, and of a reason why a level is slow."""
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
_WITHOUT_RUNS = frozenset({LevelState.AHEAD, LevelState.NOT_MADE, LevelState.LEFT_OUT})
_BAR = 14
_WORDS, _WIDE_WORDS = 10, 30
"""Least width in cells of the column of marks, and its width in wide tables."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of values in the table of levels."""

    heading: str
    width: int
    metric: str | None
    """Key of the column's rank in `ResultRow.ranks`; None for a column without ranks."""
    text: Callable[[ResultRow], str]


def _rate(name: str, *, other: str | None = None) -> Callable[[ResultRow], str]:
    def text(row: ResultRow) -> str:
        figure = row.figures.get(name) or (row.figures.get(other) if other else None)
        return rate_text(None if figure is None else figure.mean)

    return text


def rate_text(value: float | None) -> str:
    """Format a rate with at most six digits: "56.2", "408", "11,466", "123k"; "–" if unknown."""
    text = numbers.rate(value, 6).strip()
    return f"{int(text):,}" if text.isdigit() else text


def _ms(value: float | None) -> str:
    return numbers.duration(None if value is None else value / 1000, 7).strip()


def _spread(row: ResultRow) -> str:
    figure = row.figures.get("sustained_tps") or row.figures.get("decode_tps")
    return interval_text(figure)


def interval_text(figure: Measured | None) -> str:
    """Format a 95 % confidence interval as its half-width in percent of the mean, such as "±2.1 %".

    "–" without an interval.
    """
    if figure is None or figure.low is None or figure.high is None or figure.mean <= 0:
        return numbers.UNKNOWN
    half = 100 * (figure.high - figure.low) / 2 / figure.mean
    return f"±{half:.1f} %" if half < 9.95 else f"±{half:.0f} %"


def _failed(row: ResultRow) -> str:
    ended = row.ok + row.failed
    # Files of other tools may lack the number of requests.
    return f"{row.failed}/{ended}" if ended or row.cancelled else numbers.UNKNOWN


_COLUMNS = (
    Column("decode", 8, "decode_tps", _rate("sustained_tps", other="decode_tps")),
    Column("TTFT p50", 9, "ttft_ms", lambda row: _ms(row.ttft_p50_ms)),
    Column("prefill", 8, "prefill_tps", _rate("prefill_tps")),
    Column("95 %", 7, None, _spread),
    Column("peak", 8, "peak_tps", _rate("peak_tps")),
    Column("p95", 8, None, lambda row: _ms(row.ttft_p95_ms)),
    Column("failed", 7, None, _failed),
    Column("tok/s each", 10, None, lambda row: rate_text(row.stream_p50_tps)),
    Column("runs", 5, None, lambda row: str(row.runs) if row.runs else numbers.UNKNOWN),
)
"""Columns in order of importance: narrow screens show only the first ones."""
_SHOWN = ("prefill", "decode", "95 %", "peak", "TTFT p50", "p95", "tok/s each", "failed", "runs")
"""Headings in the order in which columns stand in the table."""


def columns_for(view: SweepView, width: int) -> list[Column]:
    """Return the columns that fit into a table of `width` cells, beside the names and the marks of levels.

    Columns in which no value is known are left out.
    """
    room = width - _name_width(view) - (_WORDS if width < 100 else _WIDE_WORDS)
    chosen: list[Column] = []
    for column in _COLUMNS:
        if view.rows and all(column.text(row) == numbers.UNKNOWN for row in view.rows):
            continue
        if column.width + 1 <= room:
            chosen.append(column)
            room -= column.width + 1
        else:
            break
    return sorted(chosen, key=lambda column: _SHOWN.index(column.heading))


def _name_width(view: SweepView) -> int:
    """Return the width in cells of the column of level names, such as "▶✓ a c64".

    The target's name is part of a level's name if there are several targets.
    """
    load = max((len(_load_words(view, level.key)) for level in all_levels(view)), default=0)
    if len(view.targets) < 2:
        return max(8, 4 + load)
    longest = max(cell_width(target.name) for target in view.targets)
    return max(10, 6 + load) + min(14, longest)


def _load_words(view: SweepView, key: LevelKey) -> str:
    return level_name(key.point, key.prompt_tokens, lengths=view.several_lengths)


def table_heading(view: SweepView, width: int) -> Row:
    """Return the heading row of the table of levels."""
    name = _name_width(view)
    columns = columns_for(view, width)
    row: Row = [(fit("   level", name), "muted")]
    row += [label(" " + fit(column.heading, column.width, "right")) for column in columns]
    return fit_row([*row, label("  marks")], width)


def table_rows(view: SweepView, width: int, height: int, *, chosen: LevelKey | None = None) -> list[Row]:
    """Return the table of levels with heading and legend as `height` rows.

    The level `chosen`, or else that of `default_key`, is visible.
    """
    levels = all_levels(view)
    room = max(1, height - 2)
    made = {row.key: row for row in view.rows}
    shown = shown_levels(view, height, chosen)
    rows = [level_row(view, level, made.get(level.key), width, chosen=level.key == chosen) for level in shown]
    hidden = len(levels) - len(shown)
    key = _key(hidden, width)
    blank: list[Row] = [[]] * (room - len(rows))
    return [fit_row(row, width) for row in [table_heading(view, width), *rows, *blank, key]][:height]


def all_levels(view: SweepView) -> tuple[PlannedLevel, ...]:
    """Return a sweep's planned levels, or the measured levels where its plan is not known."""
    return view.levels or tuple(PlannedLevel(row.key, LevelState.DONE, share=1.0) for row in view.rows)


def shown_levels(view: SweepView, height: int, chosen: LevelKey | None) -> tuple[PlannedLevel, ...]:
    """Return the levels that `table_rows` shows, in the order of its rows below the heading."""
    levels, room = all_levels(view), max(1, height - 2)
    keys = [level.key for level in levels]
    wanted = chosen if chosen in keys else default_key(view)
    at = keys.index(wanted) if wanted in keys else 0
    first = max(0, min(len(levels) - room, at - room // 2))
    return levels[first : first + room]


def default_key(view: SweepView) -> LevelKey | None:
    """Return the level to show where none is selected: the best of a finished sweep, else the newest begun.

    None if there is no level.
    """
    levels = all_levels(view)
    best = best_key(view) if view.status.over else None
    return best or (levels[_newest_begun(levels)].key if levels else None)


def best_key(view: SweepView) -> LevelKey | None:
    """Return the key of the level with the best token rate; None if levels are not ranked."""
    names = ("sustained_tps", "decode_tps")
    best = (row.key for name in names for row in view.rows if row.ranks.get(name) is Rank.BEST)
    return next(best, None)


def _newest_begun(levels: Sequence[PlannedLevel]) -> int:
    """Return the index of the last of `levels` that has begun; 0 if none has begun."""
    begun = [
        index for index, level in enumerate(levels) if level.state not in {*_WITHOUT_RUNS, LevelState.REFUSED}
    ]
    return max(begun, default=0)


def _key(hidden: int, width: int) -> Row:
    """Return the legend of the table's marks, as far as it fits, with the number of hidden levels."""
    more: Row = [label(f"{hidden} more")] if hidden else []
    row: Row = [label("  ")]
    marks = ((BEST, "good", "best"), (ALIKE, "good", "no clear difference"))
    for sign, role, word in (*marks, (DOUBT, "warn", "doubt"), (SLOW, "warn", "why slow")):
        piece: Row = [(f" {sign}", role), label(f" {word} ")]
        if row_width([*row, *piece, *more]) <= width:
            row += piece
    return spread_row(row, more, width)


def level_row(
    view: SweepView, level: PlannedLevel, row: ResultRow | None, width: int, *, chosen: bool = False
) -> Row:
    """Return one level of a sweep as a row: its values or, if it has none, its state with a progress bar."""
    sign, role = STATES[level.state]
    name = _name_width(view)
    start: Row = [("▶" if chosen else " ", "selected"), (sign, role), (" ", "text")]
    if len(view.targets) > 1:
        names = [target.name for target in view.targets]
        letter = letters(names).get(level.key.target, " ")
        # The colour of the target's curve.
        letter_role = part_role(names.index(level.key.target)) if level.key.target in names else "accent"
        room = min(14, max(cell_width(target.name) for target in view.targets))
        start += [(f"{letter} ", letter_role), (f"{fit(level.key.target, room)} ", "text")]
    start.append((_load_words(view, level.key), "title"))
    result: Row = fit_row(start, name)
    if row is not None and row.error is not None:
        return fit_row([*result, (" refused: ", "bad"), (row.error, "text")], width)
    if row is None or not row.figures:
        return fit_row([*result, *_state(level)], width)
    columns = columns_for(view, width)
    for column in columns:
        result += _cell(row, column)
    result.append(("  ", "text"))
    if not row.complete:
        result += [*bar_runs(level.share, 8, "generation"), (" ", "text")]
    return fit_row([*result, *marks_words(row, width - row_width(result))], width)


def _state(level: PlannedLevel) -> Row:
    sign_role = STATES[level.state][1]
    if level.state in _WITHOUT_RUNS:
        return [(f" {level.state.value}", "muted")]
    of = "" if level.runs is None else f"/{level.runs}"
    return [
        (" ", "text"),
        *bar_runs(level.share, _BAR, "generation"),
        (f" {level.state.value}", sign_role),
        label(f" {level.runs_done}{of} runs"),
    ]


def _cell(row: ResultRow, column: Column) -> Row:
    text = column.text(row)
    metric = column.metric
    if metric == "decode_tps" and "sustained_tps" in row.figures:
        metric = "sustained_tps"
    rank = row.ranks.get(metric) if metric else None
    sign = {Rank.BEST: BEST, Rank.LEVEL: ALIKE, None: ""}[rank]
    known = text != numbers.UNKNOWN
    if not known:
        rank, sign = None, ""
    role = "good" if rank is Rank.BEST else "text" if known else "muted"
    if column.heading == "failed" and row.failed:
        role = "bad"
    pad = column.width - cell_width(sign) - cell_width(text)
    return [(" " * (1 + max(0, pad)), "text"), (sign, "good"), (text, role)]


def marks_words(row: ResultRow, room: int) -> Row:
    """Return the reasons to doubt a level, and the reasons why it is slow, as short labels in one row.

    Labels that do not fit into `room` cells are counted ("+2"); the first label is always included.
    """
    runs: Row = []
    used = 0
    for index, mark in enumerate(row.marks):
        left = len(row.marks) - index
        sign, role = (DOUBT, "warn") if mark.doubt else (SLOW, "warn")
        gap = ", " if runs else ""
        cells = cell_width(gap) + cell_width(sign) + cell_width(mark.word)
        more = cell_width(f" +{left - 1}") if left > 1 else 0
        if runs and used + cells + more > room:
            return [*runs, label(f" +{left}")]
        runs += [label(gap), (sign, role), (mark.word, "text" if mark.doubt else "warn")]
        used += cells
    return runs
