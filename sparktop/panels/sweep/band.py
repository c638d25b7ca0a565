"""Draws a sweep (a benchmark) as a low panel on the overview: progress and findings, graphs beside them."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.sweep_view import SweepStatus, SweepView
from sparktop.panels.parts.frame import frame_role, framed
from sparktop.panels.parts.rows import Row, fit_row, merged
from sparktop.panels.sweep.capacity import capacity_rows
from sparktop.panels.sweep.curves import plots_rows
from sparktop.panels.sweep.live import live_rows
from sparktop.panels.sweep.table import level_row, levels_beside, marks_key, newest_levels, table_heading
from sparktop.panels.sweep.tracks import letters
from sparktop.panels.sweep.words import (
    found_sentences,
    guard_rows,
    headline_rows,
    now_rows,
    status_run,
    title_run,
)

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
    whole = " enter whole sweep " if selected else ""  # else both keys open the selected panel
    legend = marks_key(view, inner - len(whole)) if view.status.over else []
    rows = _answer(view, inner, inside) if view.status.over else _running(view, inner, inside)
    return [
        merged(row)
        for row in framed(
            [[(" ", "text"), *row] for row in rows],
            width,
            height,
            role=frame_role("sweep", selected=selected),
            title=title_run(view, width),
            status=status_run(view),
            footnote=legend,
            note=[(whole, "muted")],
        )
    ]


def _running(view: SweepView, width: int, height: int) -> list[Row]:
    """Draw a running sweep as exactly `height` rows: its progress and newest levels, and graphs over time."""
    names = letters([target.name for target in view.targets])
    if view.live is not None and width + 4 >= _BESIDE_FROM and height >= _LEAST_TRACKS:
        cells = max(_WORDS, int(_WORDS_SHARE * width))
        tracks = live_rows(view.live, names, width - cells - 2, height, lengths=view.several_lengths)
        return _beside(_words(view, cells, height), tracks)
    if view.searches and height > _LEAST_TRACKS:
        rows = capacity_rows(view.searches, width, height - 2, named=len(view.targets) > 1)
        return [*_words(view, width, height - len(rows)), *rows]
    if view.live is not None and height >= _LEAST_TRACKS + 2:
        tracks = live_rows(view.live, names, width, height - 2, lengths=view.several_lengths)
        return [*_words(view, width, 2), *tracks]
    return _words(view, width, height)


def _beside(left: list[Row], right: list[Row]) -> list[Row]:
    return [[*a, ("  ", "text"), *b] for a, b in zip(left, right, strict=True)]


def _answer(view: SweepView, width: int, height: int) -> list[Row]:
    """Draw a finished sweep as exactly `height` rows: its answer, the table of levels, and curves beside."""
    if view.plots and width + 4 >= _BESIDE_FROM and height >= _LEAST_CURVES:
        cells = max(_TABLE, int(_TABLE_SHARE * width))
        words = levels_and_findings(view, cells, height)
        return _beside(words, plots_rows(view.plots, width - cells - 2, height))
    return levels_and_findings(view, width, height)


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
        rows += levels_beside(view, width, room)
    rows += [*end, *_that_fit(found_sentences(view, width), height - len(rows) - len(end))]
    return [fit_row(rows[index] if index < len(rows) else (), width) for index in range(height)]


def _that_fit(sentences: Sequence[list[Row]], room: int) -> list[Row]:
    """Return the rows of the first `sentences` that fit whole into `room` rows."""
    rows: list[Row] = []
    for sentence in sentences:
        if len(rows) + len(sentence) > room:
            break
        rows += sentence
    return rows


def _words(view: SweepView, width: int, height: int) -> list[Row]:
    """Return `height` rows of text on a running sweep: its progress, then its levels, then what guards it.

    Of levels that do not fit, those that have begun last are shown; levels ahead only where rows are left.
    """
    rows = now_rows(view, width)
    room = height - len(rows) - 1
    if room >= _LEAST_LEVELS - 1 and view.rows:
        made = {row.key: row for row in view.rows}
        rows.append(table_heading(view, width))
        rows += [level_row(view, one, made.get(one.key), width) for one in newest_levels(view, room)]
    rows += _that_fit([guard_rows(view, width), *found_sentences(view, width)], height - len(rows))
    return [fit_row(rows[index] if index < len(rows) else (), width) for index in range(height)]
