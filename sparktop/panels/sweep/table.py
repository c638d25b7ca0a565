"""Draws the levels of a sweep as a table; a level is a target with a concurrency.

Planned levels have only a state, the running level has a bar, and finished levels have results.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit
from sparktop.model.load import LoadKind
from sparktop.model.sweep_comparison import level_name
from sparktop.model.sweep_view import LevelKey, LevelState, PlannedLevel, Rank, ResultRow, SweepView
from sparktop.panels.parts.figures import bar_runs, label
from sparktop.panels.parts.roles import part_role
from sparktop.panels.parts.rows import Row, Run, fit_row, row_width, spread_row
from sparktop.panels.sweep.capacity import verdict_sign
from sparktop.panels.sweep.columns import COLUMNS, SHOWN, Column, columns_of, search_columns
from sparktop.panels.sweep.tracks import letters

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
_WORDS, _MOST_WORDS, _WIDE_WORDS = 10, 24, 30
"""Least and greatest width in cells of the column of marks in narrow tables, and its width in wide ones."""
_SIGNS = 4
"""Width in cells of the column of marks in tables beside one another, which show only the signs."""
_WIDE = 90
_NARROW = 48
"""Width in cells below which a table shows only the signs of marks."""
_APART = 2
"""Cells between two tables beside one another."""


def columns_for(view: SweepView, width: int) -> list[Column]:
    """Return the columns that fit into a table of `width` cells, beside the names and the marks of levels.

    Columns in which no value is known are left out.
    """
    room = width - _name_width(view) - _marks_width(view, width)
    chosen: list[Column] = []
    for column in (*search_columns(view), *columns_of(view, _kind(view))):
        if view.rows and all(column.text(row) == numbers.UNKNOWN for row in view.rows):
            continue
        if column.width + 1 <= room:
            chosen.append(column)
            room -= column.width + 1
        else:
            break
    return sorted(chosen, key=_place)


def _place(column: Column) -> int:
    """Return the place of a column in the table; those of a search come first."""
    return SHOWN.index(column.heading) if column.heading in SHOWN else -1


def _marks_width(view: SweepView, width: int) -> int:
    """Return the width in cells of the column of marks: the first mark of each level is whole.

    It has only their signs where words would leave no room for the two most important values.
    """
    values = sum(column.width + 1 for column in columns_of(view, _kind(view))[:2])
    if width < _NARROW:
        return _SIGNS
    if width >= _WIDE:
        return _WIDE_WORDS
    for brief, most in ((False, _MOST_WORDS), (True, width)):
        longest = max((row_width(_first_mark(row, brief=brief)) for row in view.rows), default=0)
        words = max(_WORDS, 2 + longest)
        if words <= most and _name_width(view) + values + words <= width:
            return words
    return _SIGNS


def _kind(view: SweepView) -> LoadKind:
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


def _load_words(view: SweepView, key: LevelKey) -> str:
    return level_name(key.point, key.prompt_tokens, lengths=view.several_lengths, depth=key.depth)


def table_heading(view: SweepView, width: int) -> Row:
    """Return the heading row of the table of levels."""
    name = _name_width(view)
    columns = columns_for(view, width)
    row: Row = [(fit("   level", name), "muted")]
    row += [label(" " + fit(column.heading, column.width, "right")) for column in columns]
    return fit_row([*row, label("  warnings" if _marks_width(view, width) > _SIGNS else "")], width)


def levels_beside(view: SweepView, width: int, height: int) -> list[Row]:
    """Return the levels of a sweep as at most `height` rows: a table with heading, without legend.

    If the rows are too few for all levels, several tables with fewer columns stand beside one another. Of
    levels that have no place even then, those next to the best one are shown.
    """
    room, count = height - 1, len(all_levels(view))
    least = _name_width(view) + _SIGNS + COLUMNS[0].width + 1 + _APART
    beside = max(1, min(-(-count // max(1, room)), (width + _APART) // least))
    levels = shown_levels(view, beside * room + 2, best_key(view))
    tall = -(-len(levels) // beside)
    cells = (width + _APART) // beside - _APART
    made = {row.key: row for row in view.rows}
    tables = []
    for first in range(0, len(levels), max(1, tall)):
        part = levels[first : first + tall]
        rows = [table_heading(view, cells), *(level_row(view, one, made.get(one.key), cells) for one in part)]
        tables.append([*rows, *([fit_row([], cells)] * (tall - len(part)))])
    return [fit_row(_joined(parts), width) for parts in zip(*tables, strict=True)]


def _joined(parts: Sequence[Row]) -> Row:
    row: Row = []
    for index, part in enumerate(parts):
        row += [(" " * _APART, "text"), *part] if index else part
    return row


def marks_key(view: SweepView, room: int) -> Row:
    """Return the meaning of the marks of a sweep's levels in at most `room` cells, for a frame's lower edge.

    The words of the marks stand behind each sign where they fit, else what the sign means.
    """
    marks = [mark for row in view.rows for mark in row.marks]
    signs = [(DOUBT, True, "warning"), (SLOW, False, "why slow")]
    found = [
        (sign, list(dict.fromkeys(one.word for one in marks if one.doubt is doubt)), word)
        for sign, doubt, word in signs
        if any(one.doubt is doubt for one in marks)
    ]
    for complete, short in ((True, False), (False, False), (False, True)):
        row: Row = []
        for sign, word in _ranks(view):
            row += [(f" {sign}", "good"), label(f" {'alike' if short and sign == ALIKE else word} ")]
        for sign, words, meaning in found:
            row += [
                (f" {sign}", "warn"),
                label(f" {meaning}: {', '.join(words)} " if complete else f" {meaning} "),
            ]
        if row_width(row) <= room:
            return row
    return []


def _ranks(view: SweepView, width: int | None = None) -> list[tuple[str, str]]:
    """Return (sign, meaning) of the signs of ranks in the table of levels, of `width` cells where given."""
    columns = columns_of(view, _kind(view)) if width is None else columns_for(view, width)
    shown = {column.metric for column in columns}
    known = {rank for row in view.rows for name, rank in row.ranks.items() if name in shown}
    signs = ((Rank.BEST, BEST, "best"), (Rank.LEVEL, ALIKE, "no clear difference"))
    return [(sign, word) for rank, sign, word in signs if rank in known]


def table_rows(view: SweepView, width: int, height: int, *, chosen: LevelKey | None = None) -> list[Row]:
    """Return the table of levels with heading and legend as `height` rows.

    The level `chosen`, or else that of `default_key`, is visible.
    """
    levels = all_levels(view)
    room = max(1, height - 2)
    made = {row.key: row for row in view.rows}
    shown = shown_levels(view, height, chosen)
    rows = [level_row(view, level, made.get(level.key), width, chosen=level.key == chosen) for level in shown]
    above = levels.index(shown[0]) if shown else 0
    key = _key(view, above, len(levels) - len(shown) - above, width)
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


def newest_levels(view: SweepView, count: int) -> tuple[PlannedLevel, ...]:
    """Return at most `count` levels in their order: up to the one begun last, and those ahead if few have."""
    levels = all_levels(view)
    first = max(0, _newest_begun(levels) + 1 - count)
    return levels[first : first + count]


def default_key(view: SweepView) -> LevelKey | None:
    """Return the level to show where none is selected: the best of a finished sweep, else the newest begun.

    None if there is no level.
    """
    levels = all_levels(view)
    best = best_key(view) if view.status.over else None
    return best or (levels[_newest_begun(levels)].key if levels else None)


def best_key(view: SweepView) -> LevelKey | None:
    """Return the key of the level with the best token rate; None if levels are not ranked."""
    return next((row.key for row in view.rows if row.ranks.get(row.rate or "") is Rank.BEST), None)


def _newest_begun(levels: Sequence[PlannedLevel]) -> int:
    """Return the index of the last of `levels` that has begun; 0 if none has begun."""
    begun = [
        index for index, level in enumerate(levels) if level.state not in {*_WITHOUT_RUNS, LevelState.REFUSED}
    ]
    return max(begun, default=0)


def _key(view: SweepView, above: int, below: int, width: int) -> Row:
    """Return the legend of the signs in the table, as far as it fits, and how many levels are hidden.

    `above` and `below` are the numbers of levels that are hidden there.
    """
    hidden = [f"{sign} {count}" for sign, count in (("↑", above), ("↓", below)) if count]
    more: Row = [label(f"{' '.join(hidden)} more, {'PgDn' if below else 'PgUp'}")] if hidden else []
    marks = [mark.doubt for row in view.rows for mark in row.marks]
    signs = [(sign, "good", word) for sign, word in _ranks(view, width)]
    signs += [(DOUBT, "warn", "warning")] if True in marks else []
    signs += [(SLOW, "warn", "why slow")] if False in marks else []
    tried = [one for search in view.searches for one in search.tried if one.holds is not None]
    signs += [("?", "warn", "not certain (97.5 %)")] if any(not one.certain for one in tried) else []
    row: Row = [label("  ")]
    for sign, role, word in signs:
        piece: Row = [(f" {sign}", role), label(f" {word} ")]
        if row_width([*row, *piece, *more]) <= width:
            row += piece
    return spread_row(row, more, width)


def level_row(
    view: SweepView, level: PlannedLevel, row: ResultRow | None, width: int, *, chosen: bool = False
) -> Row:
    """Return one level of a sweep as a row: its values or, if it has none, its state with a progress bar."""
    sign, role = _sign(view, level)
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
        return fit_row([*result, *_state(level, width - row_width(result))], width)
    columns = columns_for(view, width)
    for column in columns:
        result += _cell(row, column)
    result.append(("  ", "text"))
    if not row.complete:
        result += [*bar_runs(level.share, 8, "generation"), (" ", "text")]
    return fit_row([*result, *marks_words(row, width - row_width(result))], width)


def _sign(view: SweepView, level: PlannedLevel) -> Run:
    """Return (sign, role) of a level's state; of a complete one in a search whether it holds."""
    if level.state is LevelState.DONE:
        for search in view.searches:
            for one in search.tried:
                if one.point == level.key.point and search.target == level.key.target:
                    return verdict_sign(one)
    return STATES[level.state]


def _state(level: PlannedLevel, room: int) -> Row:
    """Return a level's state with its progress in at most `room` cells: the bar goes first, then the runs."""
    state, sign_role = level.state.value, STATES[level.state][1]
    if level.state in _WITHOUT_RUNS:
        return [(f" {state}", "muted")]
    of = "" if level.runs is None else f"/{level.runs}"
    bar: Row = [(" ", "text"), *bar_runs(level.share, _BAR, "generation")]
    words: Row = [(f" {state}", sign_role), label(f" {level.runs_done}{of} runs")]
    return next((row for row in ([*bar, *words], words) if row_width(row) <= room), words[:1])


def _cell(row: ResultRow, column: Column) -> Row:
    text = column.text(row)
    rank = row.ranks.get(column.metric) if column.metric else None
    sign = {Rank.BEST: BEST, Rank.LEVEL: ALIKE, None: ""}[rank]
    known = text != numbers.UNKNOWN
    if not known:
        rank, sign = None, ""
    role = "good" if rank is Rank.BEST else "text" if known else "muted"
    if column.heading == "failed" and row.failed:
        role = "bad"
    pad = column.width - cell_width(sign) - cell_width(text)
    return [(" " * (1 + max(0, pad)), "text"), (sign, "good"), (text, role)]


def _first_mark(row: ResultRow, *, brief: bool) -> Row:
    """Return the first mark of a level with its sign, and the number of others; with `brief`, in one word."""
    if not row.marks:
        return []
    mark, more = row.marks[0], len(row.marks) - 1
    first: Row = [
        (DOUBT if mark.doubt else SLOW, "warn"),
        ((brief and mark.brief) or mark.word, "text" if mark.doubt else "warn"),
    ]
    return [*first, label(f" +{more}")] if more else first


def marks_words(row: ResultRow, room: int) -> Row:
    """Return the reasons to doubt a level, and the reasons why it is slow, as short labels in one row.

    Labels that do not fit into `room` cells are counted ("+2"). If not even the first one fits, it is one
    word, without room for that only the signs, each once.
    """
    if not row.marks:
        return []
    for brief in (False, True):
        first = _first_mark(row, brief=brief)
        if row_width(first[:2]) <= room:
            break
    else:
        return [("".join(dict.fromkeys(DOUBT if mark.doubt else SLOW for mark in row.marks)), "warn")]
    runs: Row = []
    used = 0
    for index, mark in enumerate(row.marks):
        left = len(row.marks) - index
        sign, role = (DOUBT, "warn") if mark.doubt else (SLOW, "warn")
        gap, word = ", " if runs else "", (brief and mark.brief) or mark.word
        cells = cell_width(gap) + cell_width(sign) + cell_width(word)
        more = cell_width(f" +{left - 1}") if left > 1 else 0
        if runs and used + cells + more > room:
            others = f" +{left}"
            return [*runs, label(others)] if used + cell_width(others) <= room else runs
        runs += [label(gap), (sign, role), (word, "text" if mark.doubt else "warn")]
        used += cells
    return runs
