"""Live graphs as rows: a caption with the scale, braille dots below it, one colour per row."""

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
    """The time axis shared by all graphs of the screen."""

    end: float
    """Time of the right edge, in monotonic seconds."""
    step: float
    """Seconds per dot column."""
    _read: dict[tuple[Series, int], list[float | None]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Cache by series and width: a group's scale and its graphs read the same values."""

    @property
    def end_slot(self) -> int:
        """Absolute number of the newest slot."""
        return int(self.end // self.step)

    def values(self, series: Series, width: int) -> list[float | None]:
        """Return the values that `width` cells show of `series`: two slots a cell, aligned to even slots."""
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
    """Return the role of a graph's row, counted from the top: the higher up, the further up the gradient."""
    if height < 2:
        return f"{gradient}/{LEVELS - 1}"
    return f"{gradient}/{round((LEVELS - 1) * (height - 1 - row) / (height - 1))}"


def area_rows(
    values: Sequence[float | None], width: int, height: int, top: float, gradient: str, *, end_slot: int
) -> list[Row]:
    """Draw one filled curve as `height` rows of `width` cells, from 0 to `top`."""
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
    """Draw one curve on top of another; the upper one has sparser dots, to differ in more than colour."""
    rows: list[Row] = []
    for index, runs in enumerate(stacked(lower, upper, width, height, top, end_slot=end_slot)):
        roles = (row_role(gradients[0], index, height), row_role(gradients[1], index, height), "text")
        rows.append(merged((text, roles[layer]) for text, layer in runs))
    return rows


def caption(label: Sequence[Run], top: str, width: int) -> Row:
    """Return the row above a graph: what it shows at the left, the value of its upper edge at the right."""
    return spread_row(label, [(top, "muted")], width)
