"""Live graphs as rows: a caption with the scale, braille below it, one colour a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sparktop.graphics.braille import area, stacked
from sparktop.model.series import Series
from sparktop.palette import LEVELS
from sparktop.panels.rows import Row, Run, merged, spread_row
from sparktop.panels.slots import slots_of


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The one time axis of everything on the screen."""

    end: float
    """Monotonic seconds of the right edge."""
    step: float
    """Seconds a dot column."""
    _read: dict[tuple[Series, int], list[float | None]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """What was read already: a group's scale and its graphs ask for the same."""

    @property
    def end_slot(self) -> int:
        """Absolute number of the newest slot."""
        return int(self.end // self.step)

    def values(self, series: Series, width: int) -> list[float | None]:
        """Give what `width` cells show of `series`: two slots a cell, aligned to even slots."""
        kept = self._read.get((series, width))
        if kept is None:
            end = self.end_slot
            kept = slots_of(series, end, self.step, 2 * width - (1 - end % 2))
            self._read[series, width] = kept
        return kept

    def span_s(self, width: int) -> float:
        """Give the seconds that `width` cells show."""
        return 2 * width * self.step


def row_role(gradient: str, row: int, height: int) -> str:
    """Give the role of a graph's row: the higher, the further up the gradient."""
    if height < 2:
        return f"{gradient}/{LEVELS - 1}"
    return f"{gradient}/{round((LEVELS - 1) * (height - 1 - row) / (height - 1))}"


def area_rows(
    values: Sequence[float | None], width: int, height: int, top: float, gradient: str, *, end_slot: int
) -> list[Row]:
    """Draw one filled curve."""
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
    """Draw one curve on top of another; the upper one has sparser dots, so colour is not the only sign."""
    rows: list[Row] = []
    for index, runs in enumerate(stacked(lower, upper, width, height, top, end_slot=end_slot)):
        roles = (row_role(gradients[0], index, height), row_role(gradients[1], index, height), "text")
        rows.append(merged((text, roles[layer]) for text, layer in runs))
    return rows


def caption(label: Sequence[Run], top: str, width: int) -> Row:
    """Give the row over a graph: what it shows at the left, where its upper edge lies at the right."""
    return spread_row(label, [(top, "muted")], width)
