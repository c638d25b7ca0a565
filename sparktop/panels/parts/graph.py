"""Live graphs as rows: a caption with the scale above braille dots, one colour per row."""

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
    """The time axis that several graphs share: the time at its right edge, and the time per dot column."""

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
        """Number of the newest time slot, counted from time 0."""
        return int(self.end // self.step)

    def values(self, series: Series, width: int) -> list[float | None]:
        """Return the mean values of `series` in the time slots that `width` cells show; None where unknown.

        A cell shows two slots, an even one and the next, so the newest cell may show only one.
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
    """Return the role (colour name) of a graph's row; row 0 is the top, where the gradient ends."""
    if height < 2:
        return f"{gradient}/{LEVELS - 1}"
    return f"{gradient}/{round((LEVELS - 1) * (height - 1 - row) / (height - 1))}"


def area_rows(
    values: Sequence[float | None], width: int, height: int, top: float, gradient: str, *, end_slot: int
) -> list[Row]:
    """Draw `values` as a filled curve of `height` rows and `width` cells, on a scale from 0 to `top`.

    `end_slot` is the number of the newest value's time slot.
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
    """Draw two curves, `upper` stacked on `lower`, as `height` rows of `width` cells with a scale to `top`.

    The upper curve has sparser dots, so that they differ in more than colour.
    """
    rows: list[Row] = []
    for index, runs in enumerate(stacked(lower, upper, width, height, top, end_slot=end_slot)):
        roles = (row_role(gradients[0], index, height), row_role(gradients[1], index, height), "text")
        rows.append(merged((text, roles[layer]) for text, layer in runs))
    return rows


def caption(label: Sequence[Run], top: str, width: int) -> Row:
    """Return the row above a graph: `label` at the left, at the right `top`, the value of its upper edge."""
    return spread_row(label, [(top, "muted")], width)
