"""The generated tokens per second of each group of a wall over the last minutes, as a graph of one row.

They are sums over histories that each server has anyway. A sum of a time slot that is over never changes, so
that it is computed once: a drawing in between reads no history.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from sparktop.analysis.wall import WallGroup
from sparktop.graphics import numbers
from sparktop.model.series import Series
from sparktop.model.snapshot import BackendView
from sparktop.panels.parts.graph import area_rows
from sparktop.panels.parts.rows import Row

CELLS = 15
"""Width of a graph in cells; each has two time slots."""
_LEAST_STEP_S, _POLLS = 4.0, 2.0
"""Least length of a slot in seconds and in intervals between polls: each server has a sample in each."""
_MOST_GROUPS = 128
"""Most groups whose sums are kept, also of earlier filters."""
_Sums = dict[int, float | None]
"""Tokens per second by number of the slot; None where no server has a sample."""


class GroupTrends:
    """The sums of a board's groups, kept from drawing to drawing."""

    def __init__(self) -> None:
        """Start without sums."""
        self._kept: dict[tuple[str, frozenset[str], float], _Sums] = {}
        """By (group, names of its servers, seconds of a slot), the last drawn at the end."""

    def until(self, at: float, interval_s: float) -> Trend:
        """Return how graphs are drawn at the time `at` of a board that polls every `interval_s` seconds."""
        step = max(_LEAST_STEP_S, _POLLS * interval_s)
        # The newest slot is not over yet, and of the one before the last answers may still arrive.
        return Trend(self, int((at - interval_s) // step) - 1, step)

    def sums(self, group: WallGroup, slots: range, step: float) -> list[float | None]:
        """Return the tokens per second of a group in each of `slots`, which are `step` seconds long."""
        views = [one.server for one in group.servers if isinstance(one.server, BackendView)]
        key = (group.name, frozenset(view.name for view in views), step)
        known = self._kept.pop(key, {})
        missing = [slot for slot in slots if slot not in known]
        if missing:
            histories = [view.history.generation_tps for view in views]
            known |= slot_sums(histories, range(missing[0], missing[-1] + 1), step)
            known = {slot: known[slot] for slot in slots}
        self._kept[key] = known
        while len(self._kept) > _MOST_GROUPS:
            del self._kept[next(iter(self._kept))]
        return [known[slot] for slot in slots]


class Trend(Struct, frozen=True):
    """How the graphs of a wall's groups are drawn: their time axis, and where their sums are kept."""

    trends: GroupTrends
    end_slot: int
    """Number of the newest slot that is drawn; slot 0 begins at time 0 of the monotonic clock."""
    step: float
    """Seconds of a slot."""

    @property
    def heading(self) -> str:
        """The words above the graphs."""
        return f"tok/s, {numbers.age(2 * CELLS * self.step)}"

    def row(self, group: WallGroup) -> Row:
        """Return the graph of a group in `CELLS` cells; the largest sum in it is as high as the row."""
        count = 2 * CELLS - (1 - self.end_slot % 2)
        slots = range(self.end_slot - count + 1, self.end_slot + 1)
        sums = self.trends.sums(group, slots, self.step)
        top = max((value for value in sums if value is not None), default=0.0)
        return area_rows(sums, CELLS, 1, top or 1.0, "generation", end_slot=self.end_slot)[0]


def slot_sums(histories: Sequence[Series], slots: range, step: float) -> Mapping[int, float | None]:
    """Return the sum over `histories` of their means in each of `slots`, which are `step` seconds long.

    A history without a sample in a slot counts with its mean of the slot before: its poll was late. It is
    left out of further slots, as servers that do not answer are.
    """
    totals: _Sums = dict.fromkeys(slots)
    for history in histories:
        found: dict[int, list[float]] = {}
        for time, value in zip(*history.arrays((slots[0] - 1) * step), strict=True):
            slot = int(time // step)
            if slot > slots[-1]:
                break
            if not math.isnan(value):
                found.setdefault(slot, []).append(value)
        for slot in slots if found else ():
            values = found.get(slot) or found.get(slot - 1)
            if values:
                totals[slot] = (totals[slot] or 0.0) + sum(values) / len(values)
    return totals
