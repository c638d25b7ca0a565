"""Draws live graphs as rows of text: a caption with the scale above braille dots, with a colour per row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sparktop.colors.palette import LEVELS
from sparktop.graphics.braille import area, stacked
from sparktop.model.series import Series
from sparktop.panels.parts.rows import Row, Run, merged, spread_row
from sparktop.panels.parts.slots import slots_of


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The time axis of several graphs: the time at the right edge, and the seconds per dot column."""

    end: float
    """Time of the right edge, in monotonic seconds."""
    step: float
    """Seconds per dot column, the length of a time slot; a cell is two dot columns wide."""
    _read: dict[tuple[Series, int], list[float | None]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Values by series and width: scales and graphs of the same series are computed only once."""

    @property
    def end_slot(self) -> int:
        """Number of the newest time slot; slot 0 begins at time 0 of the monotonic clock."""
        return int(self.end // self.step)

    def values(self, series: Series, width: int) -> list[float | None]:
        """Return the means of `series` in the time slots that `width` cells show; None where unknown.

        A cell shows two slots, an even one and the next, so the newest cell may show only one slot.
        """
        cached = self._read.get((series, width))
        if cached is None:
            end = self.end_slot
            cached = slots_of(series, end, self.step, 2 * width - (1 - end % 2))
            self._read[series, width] = cached
        return cached

    def span_s(self, width: int) -> float:
        """Return the seconds that `width` cells show."""
        return 2 * width * self.step


def row_role(gradient: str, row: int, height: int) -> str:
    """Return the role (colour name) of a graph's row, from the position of the row in `gradient`.

    Row 0 is at the top and has the last colour of the gradient.
    """
    if height < 2:
        return f"{gradient}/{LEVELS - 1}"
    return f"{gradient}/{round((LEVELS - 1) * (height - 1 - row) / (height - 1))}"


def area_rows(
    values: Sequence[float | None], width: int, height: int, top: float, gradient: str, *, end_slot: int
) -> list[Row]:
    """Draw `values` as a filled curve of `height` rows and `width` cells, on a scale from 0 to `top`.

    `end_slot` is the number of the newest value's time slot: two slots share a cell.
    """
    lines = area(values, width, height, top, end_slot=end_slot)
    return [[(line, row_role(gradient, index, height))] for index, line in enumerate(lines)]


def stacked_rows(
    lower: Sequence[float | None],
    upper: Sequence[float | None],
    width: int,
    height: int,
    top: float,
    gradients: tuple[str, str],
    *,
    end_slot: int,
) -> list[Row]:
    """Draw the curve `upper` stacked on the curve `lower`, as `height` rows of `width` cells.

    The scale goes from 0 to `top`. The upper curve has sparser dots, so that the curves differ in more
    than colour. `end_slot` is the number of the newest value's time slot.
    """
    rows: list[Row] = []
    for index, runs in enumerate(stacked(lower, upper, width, height, top, end_slot=end_slot)):
        roles = (row_role(gradients[0], index, height), row_role(gradients[1], index, height), "text")
        rows.append(merged((text, roles[layer]) for text, layer in runs))
    return rows


def caption(label: Sequence[Run], top: str, width: int) -> Row:
    """Return the row above a graph: `label` at the left, and `top`, the scale's upper end, at the right."""
    return spread_row(label, [(top, "muted")], width)
