"""A sweep on the whole screen: while it runs its tracks and its table, then curves instead of the tracks."""

from __future__ import annotations

from sparktop.model.sweep_view import LevelKey, SweepView
from sparktop.panels.frame import framed
from sparktop.panels.rows import Row, fit_row, merged
from sparktop.panels.sections import heading
from sparktop.panels.sweep_curves import legend_rows, plots_rows
from sparktop.panels.sweep_live import live_rows
from sparktop.panels.sweep_table import table_rows
from sparktop.panels.sweep_topology import words_rows
from sparktop.panels.sweep_tracks import letters
from sparktop.panels.sweep_words import status_run, title_run, word_rows

_WIDE = 170
"""Width from which on tracks and table stand beside each other."""
_TABLE_SHARE = 0.48
"""Of the width, for the table beside tracks."""
_LEAST_TRACKS = 9
_LEAST_TABLE = 6


def sweep_screen(
    view: SweepView, width: int, height: int, *, chosen: LevelKey | None = None, curves: bool = True
) -> list[Row]:
    """Draw a sweep, running or done, as exactly `height` rows of `width` cells.

    `curves`: a sweep that is over shows its curves where its tracks were; without, the tracks stay.
    """
    inner, inside = width - 4, height - 2
    words = word_rows(view, inner, max(2, inside // 4))
    room = inside - len(words)
    if width >= _WIDE and room >= _LEAST_TRACKS:
        cells = int(_TABLE_SHARE * inner)
        left_width = inner - cells - 2
        left = _picture(view, left_width, room, curves=curves)
        right = _table_and_words(view, cells, room, chosen)
        body = [[*a, ("  ", "text"), *b] for a, b in zip(left, right, strict=True)]
    else:
        body = _stacked(view, inner, room, chosen, curves=curves)
    rows = [[(" ", "text"), *row] for row in [*words, *body]]
    note: Row = [(f" {_keys(view)} ", "muted")]
    drawn = framed(
        rows, width, height, role="selected", title=title_run(view), status=status_run(view), note=note
    )
    return [merged(row) for row in drawn]


def _stacked(view: SweepView, width: int, height: int, chosen: LevelKey | None, *, curves: bool) -> list[Row]:
    """Put the picture over the table; the table gets no more rows than it has levels for."""
    levels = len(view.levels) or len(view.rows)
    table = min(levels + 2, max(_LEAST_TABLE, height * 2 // 5))
    if height - table - 1 < _LEAST_TRACKS:
        table = max(_LEAST_TABLE, height - _LEAST_TRACKS - 1)
    if height < _LEAST_TRACKS + _LEAST_TABLE:
        return table_rows(view, width, height, chosen=chosen)
    picture = _picture(view, width, height - table - 1, curves=curves)
    made = sum(row.complete for row in view.rows)
    rule = heading("levels", f"{made} of {levels} done", width)
    return [*picture, rule, *table_rows(view, width, table, chosen=chosen)]


def _table_and_words(view: SweepView, width: int, height: int, chosen: LevelKey | None) -> list[Row]:
    """Put what the comparison says below the table, as far as there is room."""
    levels = len(view.levels) or len(view.rows)
    below = [] if view.topologies is None else words_rows(view.topologies, width)
    table = min(height, levels + 3) if below else height
    rows = [*table_rows(view, width, table, chosen=chosen), *below][:height]
    return [fit_row(row, width) for row in [*rows, *([[]] * (height - len(rows)))]]


def _picture(view: SweepView, width: int, height: int, *, curves: bool) -> list[Row]:
    """Draw the tracks; the curves of a sweep that is over, or that has no tracks."""
    live = view.live
    if live is not None and not (view.status.over and curves and view.plots):
        names = letters([target.name for target in view.targets])
        return live_rows(live, names, width, height)
    legend = legend_rows(view.plots, width)[: max(0, height // 4)]
    return [*plots_rows(view.plots, width, height - len(legend)), *legend]


def _keys(view: SweepView) -> str:
    if not view.status.over:
        return "enter why · x x stops · z full screen"
    return "enter why · c compare · esc back"
