"""Draws a sweep: on the full screen, as a low panel on the overview, before it starts, and its notices.

The full screen has graphs over time or curves by concurrency, and the table of levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit
from sparktop.graphics.numbers import duration_words, range_words
from sparktop.model.instant import Countdown
from sparktop.model.load import Level, LoadKind
from sparktop.model.sweep import LevelState, SweepStatus, SweepView
from sparktop.panels.parts.figures import (
    bar_runs,
    figure,
    flow_pieces,
    heading,
    label,
    sentence_rows,
    wrap_sentence,
)
from sparktop.panels.parts.text import Row, fit_row, fit_rows, name_tab, row_width, side_by_side, tab
from sparktop.panels.sweep.curves import has_one_level, least_plots_height, legend_rows, plots_rows
from sparktop.panels.sweep.live import letters, live_rows
from sparktop.panels.sweep.table import (
    all_levels,
    capacity_rows,
    framed_sweep,
    level_row,
    marks_key,
    newest_levels,
    page_title,
    shown_levels,
    side_by_side_tables,
    table_heading,
    table_rows,
)
from sparktop.panels.sweep.topology import words_rows

STATUS_ROLES = {
    SweepStatus.STARTING: "accent",
    SweepStatus.RUNNING: "accent",
    SweepStatus.DONE: "good",
    SweepStatus.CANCELLED: "warn",
    SweepStatus.STOPPED_BY_GUARD: "bad",
    SweepStatus.FAILED: "bad",
    SweepStatus.BROKEN_OFF: "warn",
    SweepStatus.UNDER_WAY: "accent",
}
"""The role (colour) of each status; the status is always written out, too."""
_BAR = 20
_CORNERS = 6
"""Cells of an upper edge that are no text."""
_LEAST_PLAN = 12
"""Least cells of the words on a plan."""


def status_run(view: SweepView) -> Row:
    """Return a sweep's status as styled text for the right end of the frame's upper edge.

    The number of failed requests, if there are any, comes before the status.
    """
    status = tab((view.status.value, STATUS_ROLES[view.status]))
    failed = f"{numbers.count_words(view.failed, 'request')} failed "
    return [(failed, "warn"), *status] if view.failed else status


def _upper_edge(status: Row, sweep: SweepView | Countdown, width: int) -> dict[str, Any]:
    """Return title, plan and status for `framed_sweep`; the last parts of a plan without room go first."""
    name = name_tab("sweep", fit(sweep.title, min(30, cell_width(sweep.title))))
    simulated = len("simulated ") if sweep.simulated else 0
    room = width - _CORNERS - row_width(name) - simulated - row_width(status) - 2
    parts = sweep.plan_words.split(", ")
    while len(parts) > 1 and cell_width(", ".join(parts)) > room:
        parts.pop()
    words = ", ".join(parts)
    words = fit(words, min(room, cell_width(words))) if room > _LEAST_PLAN else ""
    title = [*name, label(f" {words} " if words else "")]
    return {"title": title, "simulated": sweep.simulated, "status": status}


def progress_pieces(view: SweepView) -> list[Row]:
    """Return a sweep's phase and progress as pieces of text for `flow_pieces`, the most important first."""
    if view.status.over:
        pieces: list[Row] = [[(view.words, "text")]]
        if view.elapsed_s is not None:
            pieces.append([label("took "), figure(duration_words(view.elapsed_s))])
        return pieces
    pieces = [[(view.words, "title")]]
    share = view.share
    if share is not None:
        pieces.append(
            [*bar_runs(share, _BAR, "generation"), figure(f" {numbers.percent(100 * share).strip()}")]
        )
    left = view.left
    text = (numbers.UNKNOWN, "muted") if left is None else (range_words(left.least_s, left.most_s), "text")
    pieces.append([label("left "), text])
    pieces.append([figure(duration_words(view.elapsed_s)), label(" so far")])
    return pieces


def moment_pieces(view: SweepView) -> list[Row]:
    """Return values of the running load as pieces of text for `flow_pieces`; empty if none is running."""
    now = view.moment
    if now is None:
        return []
    at_a_rate = now.key is None or now.key.point.kind is LoadKind.RATE
    # With others' requests, more are in flight than these.
    beyond = now.key is None or at_a_rate or now.in_flight > now.key.point.value
    asked_point = "" if now.key is None or beyond else f" of {now.key.point.words}"
    of_all = "" if now.requests is None else f" of {now.requests:,}"
    pieces: list[Row] = [
        [figure(numbers.decimal(now.tps, 1)), label(" tok/s in the last 2 s")],
        [label("in flight "), figure(f"{now.in_flight}"), label(asked_point)],
        [label("TTFT p50 "), figure(numbers.milliseconds(now.ttft_p50_ms))],
        [figure(f"{now.ended}"), label(f"{of_all} requests of this level finished")],
    ]
    if now.requests_per_s is not None:
        sent_per_s, completed_per_s = now.requests_per_s
        words = [figure(f"{sent_per_s:.2f}"), label(" /s sent, "), figure(f"{completed_per_s:.2f}")]
        pieces.insert(0, [*words, label(" /s completed")])
    if now.trace_s is not None:
        words = [label("replayed "), figure(duration_words(now.trace_at_s))]
        pieces.insert(0, [*words, label(f" of {duration_words(now.trace_s)}")])
    if now.failed:
        pieces.append([(f"{now.failed} failed", "bad")])
    return pieces


def now_rows(view: SweepView, width: int) -> list[Row]:
    """Return rows with a sweep's phase, progress and current values, or how it ended."""
    first, *others = progress_pieces(view)
    if row_width(first) <= width:
        return flow_pieces([first, *others, *moment_pieces(view)], width)
    text, role = first[0]
    rows: list[Row] = [[(line, role)] for line in wrap_sentence(text, width)]
    return [*rows, *flow_pieces([*others, *moment_pieces(view)], width)]


def guard_rows(view: SweepView, width: int) -> list[Row]:
    """Return rows with the condition that would stop the sweep early, or a warning if there is none.

    Empty if it is not known which condition there is.
    """
    if view.guard is None:
        return []
    role = "warn" if view.guard.startswith("no guard") else "muted"
    return sentence_rows(("· ", "muted"), view.guard, role, width)


def headline_rows(view: SweepView, width: int, most_rows: int | None = None) -> list[Row]:
    """Return rows with the answer of a finished sweep; empty while it runs, and without measured levels.

    Of an answer that needs more than `most_rows` rows, only the first clauses are returned, at least one.
    """
    if not view.status.over or view.headline is None:
        return []
    clauses = view.headline.split("; ")
    lines = wrap_sentence(view.headline, width)
    while most_rows is not None and len(lines) > most_rows and len(clauses) > 1:
        clauses.pop()
        lines = wrap_sentence("; ".join(clauses), width)
    return [[(line, "title")] for line in lines]


def word_rows(view: SweepView, width: int, most_rows: int) -> list[Row]:
    """Return a sweep's progress and findings in `most_rows` rows; the last row counts sentences left out.

    Sentences are left out whole, except that the first one is cut if it does not fit.
    """
    parts = [now_rows(view, width), *finding_rows(view, width)]
    if view.status.over:
        parts.insert(0, headline_rows(view, width, most_rows - 1))
    else:
        parts.insert(1, guard_rows(view, width))
    parts = [part for part in parts if part]
    rows = [row for part in parts for row in part]
    if len(rows) > most_rows:
        rows = _first_sentences(parts, most_rows)
    return [fit_row(row, width) for row in rows]


def _first_sentences(parts: Sequence[list[Row]], most_rows: int) -> list[Row]:
    """Return the rows of the first `parts` that fit into `most_rows`, with a row that counts the others."""
    rows, *others = parts
    while others and len(rows) + len(others[0]) < most_rows:
        rows = [*rows, *others.pop(0)]
    if not others or most_rows < 2:
        return rows[:most_rows]
    hidden = numbers.count_words(len(others), "more sentence")
    return [*rows[: most_rows - 1], [label(f"… {hidden}: n shows all")]]


def finding_rows(view: SweepView, width: int) -> list[list[Row]]:
    """Return the findings of a finished sweep, or the newest notice of a running one.

    Each is a list of rows.
    """
    sentences = view.verdict if view.status.over else view.notices[-1:]
    return [sentence_rows(("· ", "muted"), sentence, "muted", width) for sentence in sentences]


def countdown_band(countdown: Countdown, width: int, height: int, *, selected: bool = False) -> list[Row]:
    """Draw a sweep that is about to start, as exactly `height` rows of `width` cells."""
    inner, room = width - 4, height - 2
    left = max(0.0, countdown.left_s)
    share = left / countdown.whole_s if countdown.whole_s > 0 else 0.0
    when = f"in {left:.0f} s " if left >= 1 else "now "
    bar = bar_runs(share, max(8, min(40, inner - 16)), "generation")
    rows: list[Row] = [[("starts ", "text"), (f"{when:<7}", "title"), *bar]]
    rows += flow_pieces(_countdown_pieces(countdown), inner)
    keys: Row = [("esc", "key"), label(" stops it")]
    # The keys have a row even where other rows must be left out: a user must see how to stop it.
    shown_rows = [*rows[: room - 1], keys] if room > 1 else rows[:room]
    body, status = [fit_row(row, inner) for row in shown_rows], tab(("about to start", "accent"))
    return framed_sweep(body, width, height, **_upper_edge(status, countdown, width), selected=selected)


def _countdown_pieces(countdown: Countdown) -> list[Row]:
    """Return a sweep's targets, concurrencies and number of requests as pieces for `flow_pieces`."""
    first, *others = countdown.targets or ("nothing",)
    pieces: list[Row] = [[label("on "), (first, "title")], *([(name, "title")] for name in others)]
    if countdown.levels:
        levels = ", ".join(level.words for level in countdown.levels)
        pieces.append([label(f"{countdown.levels[0].kind.amount} "), figure(levels)])
    if countdown.climb_to is not None:
        pieces.append(
            [label("may go on to "), figure(f"c = {countdown.climb_to}"), label(" while tok/s rise")]
        )
    if countdown.time:
        pieces.append([label("takes "), figure(countdown.time)])
    if countdown.requests is not None:
        more = f" + {countdown.warm_ups} warm-up" if countdown.warm_ups else ""
        least = [label("at least ")] if countdown.at_least else []
        pieces.append([*least, figure(f"{countdown.requests}{more}"), label(" requests")])
    return pieces


def notices_screen(view: SweepView, width: int, height: int) -> list[Row]:
    """Draw a sweep's answer, findings and notices in a frame: `height` rows, or more to scroll."""
    inner = width - 4
    answer = (view.headline,) if view.status.over and view.headline is not None else ()
    end = (view.words,) if view.status.over and view.status is not SweepStatus.DONE else ()
    parts = {
        "answer": (*end, *answer),
        "findings": view.verdict,
        "notices, the newest first": view.notices[::-1],
    }
    if view.plan_words and any(parts.values()):
        parts = {"load": (view.plan_words,)} | parts
    rows: list[Row] = []
    for word, sentences in parts.items():
        rows += [heading(word, "", inner)] if sentences else []
        for sentence in sentences:
            rows += sentence_rows(("· ", "muted"), sentence, "text", inner)
    return _page("notices", view, rows or [[label("no notices")]], width, height)


def curves_screen(view: SweepView, width: int, height: int) -> list[Row]:
    """Draw all plots of a sweep in a frame of `width` cells: `height` rows, or more, which scroll."""
    inner = width - 4
    legend = legend_rows(view.plots, inner)
    room = max(least_plots_height(view.plots, inner), height - 2 - len(legend))
    return _page("curves", view, [*plots_rows(view.plots, inner, room), *legend], width, height)


def _page(word: str, view: SweepView, rows: Sequence[Row], width: int, height: int) -> list[Row]:
    body = [fit_row(row, width - 4) for row in rows]
    return framed_sweep(body, width, height, title=page_title(word, view.title), simulated=view.simulated)


_BESIDE_FROM = 110
"""Width in cells from which on text and graphs stand side by side."""
_WORDS, _WORDS_SHARE = 44, 0.36
"""Least width in cells of the text beside graphs, and its share of the width of wide panels."""
_LEAST_TRACKS = 4
_TABLE, _TABLE_SHARE = 52, 0.48
"""Least width in cells of the table of levels beside curves, and its share of the width of wide panels."""
_LEAST_CURVES = 8
_LEAST_LEVELS = 3
"""Rows kept for the table of levels below the text: its heading, and two levels."""


def sweep_band(view: SweepView, width: int, height: int, *, selected: bool = False) -> list[Row]:
    """Draw a sweep (a benchmark), running or finished, as exactly `height` rows of `width` cells."""
    inner, inside = width - 4, height - 2
    key_hint = "enter whole sweep" if selected else ""  # else both keys open the selected panel
    if not view.status.over:
        rows = _running_rows(view, inner, inside)
    elif view.plots and width >= _BESIDE_FROM and inside >= _LEAST_CURVES:
        cells = max(_TABLE, int(_TABLE_SHARE * inner))
        plots = plots_rows(view.plots, inner - cells - 2, inside)
        words = levels_and_findings(view, cells, inside)
        rows = side_by_side([words, plots], [cells, inner - cells - 2])
    else:
        rows = levels_and_findings(view, inner, inside)
    footnote = marks_key(view, inner - len(key_hint) - _CORNERS, rows) if view.status.over else []
    edges = _upper_edge(status_run(view), view, width) | {"note": key_hint, "footnote": footnote}
    return framed_sweep(rows, width, height, **edges, selected=selected)


def _running_rows(view: SweepView, width: int, height: int) -> list[Row]:
    """Draw a running sweep as exactly `height` rows: its progress and newest levels, and graphs over time."""
    names = letters([target.name for target in view.targets])
    if view.live is not None and width + 4 >= _BESIDE_FROM and height >= _LEAST_TRACKS:
        cells = max(_WORDS, int(_WORDS_SHARE * width))
        tracks = live_rows(view.live, names, width - cells - 2, height, lengths=view.several_lengths)
        return side_by_side([_words_rows(view, cells, height), tracks], [cells, width - cells - 2])
    if view.searches and height > _LEAST_TRACKS:
        rows = capacity_rows(view.searches, width, height - 2, named=len(view.targets) > 1)
        return [*_words_rows(view, width, height - len(rows)), *rows]
    if view.live is not None and height >= _LEAST_TRACKS + 2:
        tracks = live_rows(view.live, names, width, height - 2, lengths=view.several_lengths)
        return [*_words_rows(view, width, 2), *tracks]
    return _words_rows(view, width, height)


def levels_and_findings(view: SweepView, width: int, height: int) -> list[Row]:
    """Return `height` rows: a sweep's headline, how it ended, its table of levels, and its findings.

    Where rows are few, the findings go first and then the levels furthest from the best one.
    """
    room = max(1, height - _LEAST_LEVELS)
    rows, end = headline_rows(view, width, room), now_rows(view, width)
    if not rows or view.status is not SweepStatus.DONE:
        rows, end = [*rows, *end][: max(room, len(rows))], []
    room = height - len(rows)
    if view.rows and room > 1:
        rows += side_by_side_tables(view, width, room)
    rows += end
    _add_that_fit(rows, finding_rows(view, width), height)
    return fit_rows(rows, width, height)


def _add_that_fit(rows: list[Row], sentences: Sequence[list[Row]], height: int) -> None:
    """Add the rows of the first `sentences` that fit whole into `height` rows."""
    for sentence in sentences:
        if len(rows) + len(sentence) > height:
            return
        rows += sentence


def _words_rows(view: SweepView, width: int, height: int) -> list[Row]:
    """Return `height` rows of text on a running sweep: its progress, then its levels, then what guards it.

    Of levels that do not fit, those that have begun last are shown; levels ahead only where rows are left.
    """
    rows = now_rows(view, width)
    room = height - len(rows) - 1
    if room >= _LEAST_LEVELS - 1 and view.rows:
        results = {row.key: row for row in view.rows}
        levels = newest_levels(view, room)
        rows.append(table_heading(view, width, len(levels)))
        rows += [level_row(view, level, results.get(level.key), width) for level in levels]
    _add_that_fit(rows, [guard_rows(view, width), *finding_rows(view, width)], height)
    return fit_rows(rows, width, height)


_WIDE = 170
"""Width in cells from which on graphs and table stand side by side."""
_SCREEN_TABLE_SHARE = 0.48
"""Share of the width for the table beside graphs."""
_FILLED = 0.5
"""Least share of the height that the column beside the graphs fills; else all of it stands below them."""
_SCREEN_LEAST_TRACKS, _SCREEN_LEAST_CURVES, _LEAST_PICTURE = 9, 7, 5
"""Least rows of graphs over time, of curves above a table with all levels, and of curves where no more are
left."""
_LEAST_TABLE = 6
_LEAST_BELOW, _LEAST_GRAPHS = 3, 7
"""Least rows below a capacity search for any picture, and for graphs or curves."""


def draw_sweep(
    view: SweepView,
    width: int,
    height: int,
    *,
    chosen: Level | None = None,
    curves: bool = True,
    note: str = "",
) -> tuple[list[Row], dict[int, Level], int]:
    """Draw a sweep on the full screen as exactly `height` rows of `width` cells.

    Return (these rows, the level in each row by the row's index, the left edge of the levels in cells). For
    clicks: a level extends from there to the right edge of the screen.

    `curves`: a finished sweep shows curves by concurrency instead of graphs over time. `chosen` is the
    selected level; `note` is a text on the lower edge.
    """
    inner, inside = width - 4, height - 2
    words = word_rows(view, inner, max(2, inside // (4 if view.status is SweepStatus.DONE else 3)))
    room = inside - len(words)
    cells = int(_SCREEN_TABLE_SHARE * inner)
    # The words of a running sweep do not count, because they come and go.
    beside = len(words_rows(view.topologies, cells)) if view.topologies and view.status.over else 0
    is_filled = len(all_levels(view)) + 3 + beside >= _FILLED * room
    if width >= _WIDE and room >= _SCREEN_LEAST_TRACKS and is_filled:
        left_width = inner - cells - 2
        left = _picture_rows(view, left_width, room, curves=curves)
        right, table_height = _table_and_words(view, cells, room, chosen)
        first_cell, top = left_width + 2, 0
        body = side_by_side([left, right], [left_width, cells])
    else:
        body, top, table_height = _picture_above_table(view, inner, room, chosen, curves=curves)
        first_cell = 0
    edge = _upper_edge(status_run(view), view, width)
    drawn = framed_sweep([*words, *body], width, height, **edge, note=note)
    first_row = len(words) + top + 2  # below the frame and the table's heading
    levels = shown_levels(view, table_height, chosen)
    return drawn, {first_row + index: level.key for index, level in enumerate(levels)}, first_cell + 2


def sweep_screen(
    view: SweepView, width: int, height: int, *, chosen: Level | None = None, curves: bool = True
) -> list[Row]:
    """Draw a sweep on the full screen; return only the rows of `draw_sweep`."""
    rows, _, _ = draw_sweep(view, width, height, chosen=chosen, curves=curves)
    return rows


def _picture_above_table(
    view: SweepView, width: int, height: int, chosen: Level | None, *, curves: bool
) -> tuple[list[Row], int, int]:
    """Draw the graphs of a sweep above its table of levels; return (rows, first of the table, its height).

    The table gets at most as many rows as it needs.
    """
    count = len(all_levels(view))
    # What a sweep found is in its table, what it does is in its graphs.
    least = _least_picture(view, width, height) if view.status.over else _SCREEN_LEAST_TRACKS
    table_height = min(
        count + 2, max(_LEAST_TABLE, height - least - 1 if view.status.over else height * 2 // 5)
    )
    if height - table_height - 1 < least:
        table_height = max(_LEAST_TABLE, height - least - 1)
    done_count = sum(level.state is LevelState.DONE for level in all_levels(view))
    rule = [heading("levels", f"rates in tok/s · {done_count} of {count} levels done", width)]
    if height < least + _LEAST_TABLE:
        table_height, rule = count + 2, []
    above = height - table_height - len(rule)
    if above < _LEAST_PICTURE:
        return table_rows(view, width, height, chosen=chosen), 0, height
    picture = _picture_rows(view, width, above, curves=curves)
    rows = [*picture, *rule, *table_rows(view, width, table_height, chosen=chosen)]
    return rows, above + len(rule), table_height


def _least_picture(view: SweepView, width: int, height: int) -> int:
    """Return the least rows of a finished sweep's picture; a search needs no more where curves do not fit."""
    if not view.searches:
        return _SCREEN_LEAST_CURVES
    needed = len(capacity_rows(view.searches, width, height, named=len(view.targets) > 1))
    fits = height - len(all_levels(view)) - 3 >= needed + _LEAST_GRAPHS
    return max(_LEAST_PICTURE, _SCREEN_LEAST_CURVES if fits else needed)


def _table_and_words(view: SweepView, width: int, height: int, chosen: Level | None) -> tuple[list[Row], int]:
    """Draw the table of levels above the comparison of targets as text; return (rows, height of the table).

    Text that does not fit is left out.
    """
    levels = len(all_levels(view))
    below = [] if view.topologies is None else words_rows(view.topologies, width)
    table = min(height, levels + 3) if below else height
    return fit_rows([*table_rows(view, width, table, chosen=chosen), *below], width, height), table


def _picture_rows(view: SweepView, width: int, height: int, *, curves: bool) -> list[Row]:
    """Draw a sweep's graphs over time, or its curves by concurrency.

    Curves are drawn if there is no time series, or if the sweep is over, `curves` is True and there are
    plots.
    """
    several, room = len(view.targets) > 1, height if view.status.over else height - 1
    rows = capacity_rows(view.searches, width, room, named=several)
    rows_left = height - len(rows)
    if rows and rows_left < _LEAST_BELOW:
        return [*rows, *([[]] * rows_left)]
    return [*rows, *_load_rows(view, width, rows_left, curves=curves)]


def _load_rows(view: SweepView, width: int, height: int, *, curves: bool) -> list[Row]:
    """Draw graphs or curves below a search, if there is one."""
    live, names = view.live, letters([target.name for target in view.targets])
    if view.searches and view.status.over and height < _LEAST_GRAPHS:
        return [[]] * height
    if live is not None and not (view.status.over and curves and view.plots):
        return live_rows(live, names, width, height, lengths=view.several_lengths)
    legend = [] if has_one_level(view.plots) else legend_rows(view.plots, width)[: max(0, height // 4)]
    return [*plots_rows(view.plots, width, height - len(legend)), *legend]
