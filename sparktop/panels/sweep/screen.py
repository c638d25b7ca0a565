"""Draws a sweep on the full screen: graphs over time or curves by concurrency, and the table of levels."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.sweep_view import LevelKey, SweepView
from sparktop.panels.parts.frame import frame_role, framed
from sparktop.panels.parts.rows import Row, fit_row, merged
from sparktop.panels.parts.sections import heading
from sparktop.panels.sweep.capacity import capacity_rows
from sparktop.panels.sweep.conversations import conversations_height, conversations_rows
from sparktop.panels.sweep.curves import plots_rows
from sparktop.panels.sweep.legend import legend_rows
from sparktop.panels.sweep.level_bars import has_one_level
from sparktop.panels.sweep.live import live_rows
from sparktop.panels.sweep.table import all_levels, shown_levels, table_rows
from sparktop.panels.sweep.topology import words_rows
from sparktop.panels.sweep.tracks import letters
from sparktop.panels.sweep.words import status_run, title_run, word_rows

_WIDE = 170
"""Width in cells from which on graphs and table stand side by side."""
_TABLE_SHARE = 0.48
"""Share of the width for the table beside graphs."""
_FILLED = 0.5
"""Least share of the height that the column beside the graphs fills; else all of it stands below them."""
_LEAST_TRACKS, _LEAST_CURVES, _LEAST_PICTURE = 9, 7, 5
"""Least rows of graphs over time, of curves above a table with all levels, and of curves where no more are
left."""
_LEAST_TABLE = 6
_LEAST_BELOW, _LEAST_GRAPHS = 3, 7
"""Least rows below a capacity search for any picture, and for graphs or curves."""


class TablePlace(Struct, frozen=True):
    """Position and size of the table of a sweep's levels on the screen, in terminal cells."""

    x: int
    y: int
    width: int
    height: int

    def moved(self, x: int, y: int) -> TablePlace:
        """Return the rectangle moved right by `x` and down by `y` cells."""
        return replace(self, x=self.x + x, y=self.y + y)


class DrawnSweep(Struct, frozen=True):
    """The drawn screen of a sweep, and where its levels are on the screen (for mouse clicks)."""

    rows: list[Row]
    spots: dict[int, LevelKey]
    """The level shown in each row of the screen, by row index."""
    first_cell: int
    """The left edge of the rows in `spots` in cells; they extend to the right edge of the screen."""


def drawn_sweep(
    view: SweepView,
    width: int,
    height: int,
    *,
    chosen: LevelKey | None = None,
    curves: bool = True,
    note: str = "",
) -> DrawnSweep:
    """Draw a sweep on the full screen as exactly `height` rows of `width` cells.

    `curves`: a finished sweep shows curves by concurrency instead of graphs over time. `chosen` is the
    selected level; `note` is a text on the lower edge.
    """
    inner, inside = width - 4, height - 2
    words = word_rows(view, inner, max(2, inside // 4))
    room = inside - len(words)
    cells = int(_TABLE_SHARE * inner)
    if width >= _WIDE and room >= _LEAST_TRACKS and _fills(view, cells, room):
        left_width = inner - cells - 2
        left = _picture(view, left_width, room, curves=curves)
        right, table = _table_and_words(view, cells, room, chosen)
        table = table.moved(left_width + 2, 0)
        body = [[*a, ("  ", "text"), *b] for a, b in zip(left, right, strict=True)]
    else:
        body, table = _stacked(view, inner, room, chosen, curves=curves)
    rows = [[(" ", "text"), *row] for row in [*words, *body]]
    drawn = framed(
        rows,
        width,
        height,
        role=frame_role("sweep"),
        title=title_run(view, width),
        status=status_run(view),
        note=[(f" {note} ", "muted")] if note else [],
    )
    table = table.moved(2, 1 + len(words))
    levels = shown_levels(view, table.height, chosen)
    spots = {table.y + 1 + index: level.key for index, level in enumerate(levels)}
    return DrawnSweep([merged(row) for row in drawn], spots, table.x)


def sweep_screen(
    view: SweepView, width: int, height: int, *, chosen: LevelKey | None = None, curves: bool = True
) -> list[Row]:
    """Draw a sweep on the full screen; return only the rows of `drawn_sweep`."""
    return drawn_sweep(view, width, height, chosen=chosen, curves=curves).rows


def _stacked(
    view: SweepView, width: int, height: int, chosen: LevelKey | None, *, curves: bool
) -> tuple[list[Row], TablePlace]:
    """Draw the graphs of a sweep above its table of levels; return (rows, place of the table).

    The table gets at most as many rows as it needs.
    """
    levels = len(all_levels(view))
    # What a sweep found is in its table, what it does is in its graphs.
    least = _least_picture(view, width, height) if view.status.over else _LEAST_TRACKS
    table = min(levels + 2, max(_LEAST_TABLE, height - least - 1 if view.status.over else height * 2 // 5))
    if height - table - 1 < least:
        table = max(_LEAST_TABLE, height - least - 1)
    made = sum(row.complete for row in view.rows)
    rule = [heading("levels", f"{made} of {levels} done", width)]
    if height < least + _LEAST_TABLE:
        table, rule = levels + 2, []
    above = height - table - len(rule)
    if above < _LEAST_PICTURE:
        return table_rows(view, width, height, chosen=chosen), TablePlace(0, 0, width, height)
    picture = _picture(view, width, above, curves=curves)
    rows = [*picture, *rule, *table_rows(view, width, table, chosen=chosen)]
    return rows, TablePlace(0, above + len(rule), width, table)


def _least_picture(view: SweepView, width: int, height: int) -> int:
    """Return the least rows of a finished sweep's picture; a search needs no more where curves do not fit."""
    if not view.searches:
        return _LEAST_CURVES
    own = len(capacity_rows(view.searches, width, height, named=len(view.targets) > 1))
    fits = height - len(all_levels(view)) - 3 >= own + _LEAST_GRAPHS
    return max(_LEAST_PICTURE, _LEAST_CURVES if fits else own)


def _fills(view: SweepView, width: int, height: int) -> bool:
    """Return whether the table and the words beside the graphs fill most of `height` rows.

    The words of a running sweep do not count, because they come and go.
    """
    words = len(words_rows(view.topologies, width)) if view.topologies and view.status.over else 0
    return len(all_levels(view)) + 3 + words >= _FILLED * height


def _table_and_words(
    view: SweepView, width: int, height: int, chosen: LevelKey | None
) -> tuple[list[Row], TablePlace]:
    """Draw the table of levels above the comparison of targets as text; return (rows, place of the table).

    Text that does not fit is left out.
    """
    levels = len(all_levels(view))
    below = [] if view.topologies is None else words_rows(view.topologies, width)
    table = min(height, levels + 3) if below else height
    rows = [*table_rows(view, width, table, chosen=chosen), *below][:height]
    filled = [fit_row(row, width) for row in [*rows, *([[]] * (height - len(rows)))]]
    return filled, TablePlace(0, 0, width, table)


def _picture(view: SweepView, width: int, height: int, *, curves: bool) -> list[Row]:
    """Draw a sweep's graphs over time, or its curves by concurrency.

    Curves are drawn if there is no time series, or if the sweep is over, `curves` is True and there are
    plots.
    """
    if view.searches:
        several, over = len(view.targets) > 1, view.status.over
        rows = capacity_rows(view.searches, width, height if over else height - 1, named=several)
        rest = height - len(rows)
        if rest < _LEAST_BELOW:
            return [*rows, *([[]] * rest)]
        return [*rows, *_load_picture(view, width, rest, curves=curves)]
    return _load_picture(view, width, height, curves=curves)


def _load_picture(view: SweepView, width: int, height: int, *, curves: bool) -> list[Row]:
    """Draw graphs or curves below a search, if there is one: of a few rows what each agent does."""
    live = view.live
    doing = None if live is None else live.activities
    if view.searches and live is not None and doing is not None and not view.status.over:
        agents = conversations_height(doing, height)
        if height - agents < _LEAST_GRAPHS:
            return conversations_rows(doing, width, height)
        names = letters([target.name for target in view.targets])
        graphs = live_rows(replace(live, activities=None), names, width, height - agents)
        return [*graphs, *conversations_rows(doing, width, agents)]
    if view.searches and view.status.over and height < _LEAST_GRAPHS:
        return [[]] * height
    if live is not None and not (view.status.over and curves and view.plots):
        names = letters([target.name for target in view.targets])
        return live_rows(live, names, width, height, lengths=view.several_lengths)
    legend = [] if has_one_level(view.plots) else legend_rows(view.plots, width)[: max(0, height // 4)]
    return [*plots_rows(view.plots, width, height - len(legend)), *legend]
