"""All measured values of one time window of a group that the verdict on its balance is based on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise, repeat
from operator import ge, le, mul, sub

from sparktop.analysis.balance import limits
from sparktop.analysis.balance.dispersion import Skew
from sparktop.analysis.balance.group_pace import GroupPace
from sparktop.analysis.balance.lead import Lead, Turns
from sparktop.analysis.balance.load_grid import GroupLoad, LoadGrid
from sparktop.model.balance import Arrivals, Convoys, Swing
from sparktop.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """The measured values of one time window of a group, as input of the rules on its balance."""

    load: GroupLoad
    grid: LoadGrid
    needed_s: float
    slots: Sequence[int]
    """Slots in which the group has enough requests."""
    mean_total: float
    loaded: float | None
    """Share of time, 0 to 1, in which the group has enough requests; None without a known total."""
    enough: bool
    """Whether `loaded` is high enough for the rules that count requests."""
    pace: GroupPace
    factor: float
    z: float | None
    lead: Lead
    turns: Turns
    swing: Swing | None
    arrivals: Arrivals | None
    convoys: Convoys | None
    starved: Sequence[float]
    starved_any: float
    away: Sequence[float]
    """For each backend, the seconds in which it got no request, in stretches of at least two lives of a
    request."""
    away_any: float
    """Share of time in which a backend starved or was away while another had more than enough."""
    lost: float | None
    lost_for_certain: float | None
    """As `lost`, but None also where the estimate may be off by more than 3 percentage points."""
    skew: Skew | None

    @property
    def failing(self) -> bool:
        """Whether the group is a pair of which both backends are known to have failed repeatedly."""
        return limits.fail_by_turns([track.errors or 0 for track in self.grid.tracks])


def even_share(grid: LoadGrid) -> float | None:
    """Return the share of time, 0 to 1, in which the backends' loads differ by at most one request.

    A faster backend may have more: each load counts as its difference from the backend's due share. None
    where no time slot of the grid has a known total.
    """
    beyond = [
        list(map(sub, column, map(mul, repeat(share), grid.totals)))
        for column, share in zip(grid.loads, grid.shares, strict=True)
    ]
    # NaN compares as false.
    spread = map(sub, map(max, *beyond), map(min, *beyond))
    close = sum(map(le, spread, repeat(1)))
    known = sum(map(ge, grid.totals, repeat(0)))
    return close / known if known else None


def looks_explain(grid: LoadGrid) -> float | None:
    """Return which part of the loads' spread can come from polling the backends at different times.

    The result is 0 for none of the spread and 1 for all of it; it may exceed 1. None if the polls are
    practically simultaneous. When the group's load jumps, one backend may be polled after the jump and
    another before it. The probability of this is (time between the two polls) / (polling interval).
    """
    if grid.skew_s <= limits.LOOKS_APART_S:
        return None
    jumps = [(later - earlier) ** 2 for earlier, later in pairwise(grid.totals) if later - earlier < math.inf]
    apart = seen = 0.0
    for column, share in zip(grid.loads, grid.shares, strict=True):
        beyond = [
            (load - share * total) ** 2 for load, total in zip(column, grid.totals, strict=True) if load >= 0
        ]
        apart += sum(beyond) / max(1, len(beyond))
        seen += share**2 * sum(jumps) / max(1, len(jumps))
    made = grid.skew_s / grid.step_s * seen
    return made / apart if apart > 0 else math.inf


def turning_spread(figures: Figures) -> float:
    """Return how widely the loads swing beyond chance; about 0 for random routing.

    This is the part of the loads' spread that varies in time, minus 1, times √(backends - 1). The last
    factor makes groups of different sizes comparable. 0 if the spread is unknown.
    """
    if figures.z is None or figures.swing is None:
        return 0.0
    return (figures.z * figures.swing.moving_share - 1) * math.sqrt(len(figures.grid.loads) - 1)
