"""The rules behind a group's word: what each asks of the figures of one window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from sparktop.analysis import balance_limits as limits
from sparktop.analysis.dispersion import Skew
from sparktop.analysis.group_pace import GroupPace
from sparktop.analysis.lead import Lead, Turns
from sparktop.analysis.load_grid import LoadGrid
from sparktop.analysis.swing_score import turn
from sparktop.model.balance import Arrivals, Convoys, Swing

if TYPE_CHECKING:  # it imports this module
    from sparktop.analysis.balance import GroupLoad


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """Everything that the rules look at, of one window."""

    load: GroupLoad
    grid: LoadGrid
    needed_s: float
    slots: Sequence[int]
    """Where the group has enough requests."""
    mean_total: float
    enough: bool
    """True when it has, in half of the window."""
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
    """Seconds in which each backend got no request, in stretches of two lives of a request and more."""
    away_any: float
    """Share of time in which one starved or was away while another had more than enough."""
    lost: float | None
    lost_for_certain: float | None
    """None also where the estimate may be more than 3 points off."""
    skew: Skew | None

    @property
    def failing(self) -> bool:
        """True where both backends of a pair failed again and again, as far as failures are known."""
        return limits.fail_by_turns([track.errors or 0 for track in self.grid.tracks])


def is_even(grid: LoadGrid) -> bool:
    """Say whether the loads hardly ever differ by more than one request."""
    beyond = [
        [load - share * total for load, total in zip(column, grid.totals, strict=True)]
        for column, share in zip(grid.loads, grid.shares, strict=True)
    ]
    # NaN compares as false.
    close: int = sum(
        [top - bottom <= 1 for top, bottom in zip(map(max, *beyond), map(min, *beyond), strict=True)]
    )
    known: int = sum(total >= 0 for total in grid.totals)
    return close >= limits.EVEN_SHARE * known


def is_mutual(figures: Figures) -> bool:
    """Say whether the others move against one: else its own load comes and goes alone, and nothing swings."""
    swing = figures.swing
    return swing is not None and swing.mutual is not None and swing.mutual >= limits.MUTUAL


def looks_explain(figures: Figures) -> bool:
    """Return whether looking at one backend later than at another could make the spread of these loads.

    Where the group's load jumps between two looks, a backend is seen after the jump and another before it as
    often as the time between the two is part of that between looks.
    """
    grid = figures.grid
    if grid.skew_s <= limits.LOOKS_APART_S:
        return False
    jumps = [(later - earlier) ** 2 for earlier, later in pairwise(grid.totals) if later - earlier < math.inf]
    apart = seen = 0.0
    for column, share in zip(grid.loads, grid.shares, strict=True):
        beyond = [
            (load - share * total) ** 2 for load, total in zip(column, grid.totals, strict=True) if load >= 0
        ]
        apart += sum(beyond) / max(1, len(beyond))
        seen += share**2 * sum(jumps) / max(1, len(jumps))
    return grid.skew_s / grid.step_s * seen >= limits.LOOKS_EXPLAIN * apart


def leads_alternate(figures: Figures) -> bool:
    """Say whether the lead changes again and again, far beyond what chance does."""
    swing, z, least = figures.swing, figures.z, limits.least_lead_changes(failing=figures.failing)
    if not figures.enough or figures.lead.changes < least or swing is None or z is None:
        return False
    if len(figures.grid.loads) == limits.PAIR:
        return z >= limits.SWING_Z and swing.relative_rms >= limits.SWING_RMS
    return z >= limits.SWING_Z_OF_MANY and swing.relative_rms >= limits.SWING_RMS_OF_MANY


def takes_turns(figures: Figures) -> bool:
    """Say whether backends go from full to empty and back, spread further than random routing ever is."""
    count, turns, swing = len(figures.grid.loads), figures.turns, figures.swing
    spread, size = limits.least_turning_spread(figures.convoys, failing=figures.failing)
    return (
        turning_spread(figures) >= spread
        and swing is not None
        and swing.relative_rms >= size
        and turns.turns >= limits.least_turns(count)
        and turns.most >= limits.TURNS_OF_ONE
    )


def turning_spread(figures: Figures) -> float:
    """Give the part of the spread that moves, beyond chance's 1, in units of two backends."""
    if figures.z is None or figures.swing is None:
        return 0.0
    return (figures.z * figures.swing.moving_share - 1) * math.sqrt(len(figures.grid.loads) - 1)


def moves_enough(figures: Figures) -> bool:
    """Say whether the part of the spread that moves is at least what coin tosses give."""
    if figures.z is None or figures.swing is None:
        return False
    return figures.z * figures.factor * figures.swing.moving_share >= limits.RHYTHM_Z


def has_rhythm(figures: Figures) -> bool:
    """Say whether the load turns round and comes back in a way that neither chance nor drift shows."""
    swing = figures.swing
    if swing is None or swing.score is None:
        return False
    return (
        swing.relative_rms >= limits.RHYTHM_RMS
        and moves_enough(figures)
        and turn(swing) >= limits.RHYTHM_TURN
        and figures.grid.skew_s <= limits.LOOKS_APART_SHARE * (swing.period_s or 0.0)
        and swing.score
        >= limits.least_score(
            figures.mean_total,
            len(figures.grid.loads),
            figures.convoys,
            figures.arrivals,
            life_known=bool(figures.load.e2e_s),
        )
    )


def arrives_in_herds(figures: Figures) -> bool:
    """Say whether requests of one moment go the same way, to one and then to another, and the load moves."""
    swing = figures.swing
    return (
        limits.are_herds(figures.arrivals, figures.convoys)
        and swing is not None
        and swing.relative_rms >= limits.HERD_RMS
        and moves_enough(figures)
    )


def convoys_alternate(figures: Figures) -> bool:
    """Say whether whole convoys come and go by turns: an even split of all requests, a one-sided one of half.

    The one rule that needs no large swing and no rhythm, and that holds where few requests are in the group.
    """
    found, swing = figures.convoys, figures.swing
    return (
        found is not None
        and swing is not None
        and figures.grid.skew_s <= limits.LOOKS_APART_S
        and swing.relative_rms >= limits.CONVOY_RMS
        and min(found.full_times, found.part_times) >= limits.CONVOY_TIMES
        and found.least_leads >= limits.CONVOY_LEADS
        and found.part_share >= limits.CONVOY_SHARE
        and found.since_part_s is not None
        and found.since_part_s <= limits.CONVOY_SINCE * figures.grid.span_s
        and limits.splits_evenly(found)
        and found.part_spread is not None
        and found.part_spread >= limits.CONVOY_PART
        and found.part_chance is not None
        and found.part_chance <= limits.CONVOY_PART_CHANCE
        and found.chance is not None
        and found.chance <= limits.CONVOY_CHANCE
    )


WAYS_TO_SWING = (leads_alternate, takes_turns, has_rhythm, convoys_alternate, arrives_in_herds)
"""Any one is enough, where the swing is mutual."""


def rhythm_says_most(figures: Figures) -> bool:
    """Say whether a rhythm is what shows the swing best: not where convoys or herds do and it is faint."""
    swing = figures.swing
    if not has_rhythm(figures) or swing is None or swing.score is None:
        return False
    shown = convoys_alternate(figures) or arrives_in_herds(figures)
    return not shown or swing.score >= limits.COMING_SCORE


def starves(figures: Figures) -> bool:
    """Say whether somebody has next to nothing to do too often, and it costs."""
    return (
        figures.starved_any >= limits.STARVED_SHARE
        and figures.lost is not None
        and figures.lost >= limits.STARVED_LOSS
        and figures.z is not None
        and figures.z >= limits.STARVED_Z
    )


def gets_nothing(figures: Figures) -> bool:
    """Say whether a backend starves only because it gets nothing at all: drained, or not in the router yet.

    Such a backend has no share, so nothing starves; with it gone the others cannot be even.
    """
    return (
        any(figures.away) and not starves(figures) and starves(replace(figures, starved_any=figures.away_any))
    )


def is_uneven(figures: Figures) -> bool:
    """Say whether the same backend is always ahead."""
    found = figures.skew
    return (
        found is not None
        and found.mean >= limits.SKEW
        and found.steadiness >= limits.STEADY
        and figures.lead.changes <= limits.SKEW_CHANGES
        and not is_even(figures.grid)
    )
