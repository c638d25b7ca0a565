"""Draws a sweep (a benchmark) as a low panel on the overview: progress and findings, graphs beside them."""

from __future__ import annotations

from sparktop.model.sweep_view import SweepView
from sparktop.panels.parts.frame import frame_role, framed
from sparktop.panels.parts.rows import Row, fit_row, merged
from sparktop.panels.sweep.live import live_rows
from sparktop.panels.sweep.table import level_row, table_heading
from sparktop.panels.sweep.tracks import letters
from sparktop.panels.sweep.words import found_rows, now_rows, status_run, title_run

_BESIDE_FROM = 110
"""Width in cells from which on text and graphs stand side by side."""
_WORDS, _WORDS_SHARE = 44, 0.3
"""Least width in cells of the text beside graphs, and its share of the width of wide panels."""
_LEAST_TRACKS = 4


def sweep_band(view: SweepView, width: int, height: int, *, selected: bool = False) -> list[Row]:
    """Draw a sweep (a benchmark), running or finished, as exactly `height` rows of `width` cells."""
    inner, inside = width - 4, height - 2
    names = letters([target.name for target in view.targets])
    if view.live is not None and width >= _BESIDE_FROM and inside >= _LEAST_TRACKS:
        cells = max(_WORDS, int(_WORDS_SHARE * inner))
        words = _words(view, cells, inside)
        tracks = live_rows(view.live, names, inner - cells - 2, inside, lengths=view.several_lengths)
        rows = [[*a, ("  ", "text"), *b] for a, b in zip(words, tracks, strict=True)]
    elif view.live is not None and inside >= _LEAST_TRACKS + 2:
        words = _words(view, inner, 2)
        rows = [*words, *live_rows(view.live, names, inner, inside - 2, lengths=view.several_lengths)]
    else:
        rows = _words(view, inner, inside)
    return [
        merged(row)
        for row in framed(
            [[(" ", "text"), *row] for row in rows],
            width,
            height,
            role=frame_role("sweep", selected=selected),
            title=title_run(view),
            status=status_run(view),
            note=[(" enter whole sweep " if selected else " z whole sweep ", "muted")],
        )
    ]


def _words(view: SweepView, width: int, height: int) -> list[Row]:
    """Return `height` rows of text on a sweep: its progress, and newest levels or findings if they fit."""
    rows = now_rows(view, width)
    room = height - len(rows)
    if room >= 3 and view.rows and not view.status.over:
        rows.append(table_heading(view, width))
        planned = {level.key: level for level in view.levels}
        newest = [row for row in view.rows if row.key in planned][-(room - 1) :]
        rows += [level_row(view, planned[row.key], row, width) for row in newest]
    else:
        rows += found_rows(view, width)
    return [fit_row(rows[index] if index < len(rows) else (), width) for index in range(height)]
