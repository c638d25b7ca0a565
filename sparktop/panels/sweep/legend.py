"""Letters and names of the curves of a sweep's plots, and the legend below the plots."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics.cells import cell_width, fit
from sparktop.model.sweep_comparison import CurveLine, CurvePlot
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.roles import part_letter, part_role
from sparktop.panels.parts.rows import Row, fit_row
from sparktop.panels.parts.sentences import flowed, wrapped


def better_words(*, more: bool, mean: bool = True) -> str:
    """Return the text beside a plot's title: whether `more` is better.

    Latencies are means over requests if `mean`, else the quantile that the title names.
    """
    return "higher is better" if more else f"{'mean, ' if mean else ''}lower is better"


def line_letter(lines: Sequence[CurveLine], index: int) -> str:
    """Return the character of line `index`: "A", "B" … for targets, "1", "2" … for published references."""
    before = [line for line in lines[:index] if (line.reference is None) == (lines[index].reference is None)]
    if lines[index].reference is None:
        return part_letter(len(before))
    return str(1 + len(before) % 9)


def legend_pieces(plots: Sequence[CurvePlot], *, short: bool = False) -> list[Row]:
    """Return the legend of the plots as pieces of text: letter, line, and name of each line.

    The name of a published reference is followed by its source. With `short`, lines that were measured here
    have their letter only.
    """
    lines = max((plot.lines for plot in plots), key=len, default=())
    pieces: list[Row] = []
    for index, line in enumerate(lines):
        sample = "⠄ ⠄ " if line.reference is not None else "" if short else "⠶⠶⠶ "
        name = fit(line.name, min(24, cell_width(line.name)))
        where = [label(f" ({line.reference})")] if line.reference is not None else []
        letter = line_letter(lines, index)
        pieces.append([(f"{letter} {sample}", part_role(index)), (name, "text"), *where])
    if any(point.value.low is not None for line in lines for point in line.points):
        pieces.append([("┬┴", "text"), label(f" 95 %{'' if short else ' interval'}, where there is room")])
    if any(point.missed for plot in plots for line in plot.lines for point in line.points):
        pieces.append([("A", "bad"), label(" misses the limit")])
    return pieces


def legend_rows(plots: Sequence[CurvePlot], width: int) -> list[Row]:
    """Return rows with the plots' legend, their limits, and definitions of metrics that differ by source."""
    rows = flowed(legend_pieces(plots), width)
    if len(rows) > 1:
        rows = flowed(legend_pieces(plots, short=True), width)
    limits = dict.fromkeys(limit.words for plot in plots for limit in plot.limits)
    for words in limits:
        upright = any(limit.upright for plot in plots for limit in plot.limits if limit.words == words)
        rows.append([("┊ " if upright else "┄ ", "title"), label(words)])
    own = dict.fromkeys(
        f"{plot.title} of {line.reference or line.name}: {line.definition}"
        for plot in plots
        for line in plot.lines
        if line.definition is not None
    )
    for text in own:
        rows += [[label(part)] for part in wrapped(text, width)]
    return [fit_row(row, width) for row in rows]
