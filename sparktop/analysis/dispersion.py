"""How unevenly a group's requests lie on its backends, beside what random routing would do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparktop.analysis.load_grid import LoadGrid
from sparktop.analysis.step_time import throughput
from sparktop.model.balance import StepTime

STARVED_SHARE = 0.1
"""Of its share: a backend with no more has next to nothing to do."""
_FULL = 1.5
"""Times its share: another with more could give some away."""


def fewest_requests(backends: int) -> int:
    """Give the group's load below which counts are too small for any rule but that of repetition."""
    return max(16, 8 * backends)


def loaded_slots(grid: LoadGrid, least: float) -> list[int]:
    """Give the slots with at least `least` requests in the group."""
    return [slot for slot, total in enumerate(grid.totals) if total >= least]


def dispersion(grid: LoadGrid, slots: Sequence[int]) -> float | None:
    """Give the mean of Σ(x - share)² / share / (n - 1): 1 for multinomial chance; None without a slot.

    With equal shares this is Σ(x - x̄)² / x̄ / (n - 1), the index of dispersion.
    """
    if not slots:
        return None
    totals = [grid.totals[slot] for slot in slots]
    inverse = [1 / total if total > 0 else 0.0 for total in totals]
    whole = 0.0
    for column, share in zip(grid.loads, grid.shares, strict=True):
        # A plain list comprehension: this runs over every sample of the window.
        whole += (
            sum(
                [
                    (column[slot] - share * total) ** 2 * scale
                    for slot, total, scale in zip(slots, totals, inverse, strict=True)
                ]
            )
            / share
        )
    return whole / len(slots) / (len(grid.loads) - 1)


@dataclass(frozen=True, slots=True)
class Starved:
    """Shares of time, 0 to 1, with next to nothing to do while another has more than enough."""

    shares: tuple[float, ...]
    """By backend."""
    anyone: float
    """Of at least one of them."""


def starved_shares(grid: LoadGrid, slots: Sequence[int]) -> Starved:
    """Measure starvation over `slots`.

    Next to nothing is one request, or a tenth of its share if that is more; more than enough is a queue, or
    half as much again as its share.
    """
    if not slots:
        return Starved(tuple(0.0 for _ in grid.loads), 0.0)
    totals = grid.totals
    hungry = [
        [slot for slot in slots if column[slot] <= 1 or column[slot] <= STARVED_SHARE * share * totals[slot]]
        for column, share in zip(grid.loads, grid.shares, strict=True)
    ]
    generous = {slot for slot in set().union(*hungry) if _someone_full(grid, slot)}
    return Starved(
        tuple(len(generous.intersection(one)) / len(slots) for one in hungry), len(generous) / len(slots)
    )


def _someone_full(grid: LoadGrid, slot: int) -> bool:
    total = grid.totals[slot]
    for column, queue, share in zip(grid.loads, grid.waiting, grid.shares, strict=True):
        if column[slot] > _FULL * share * total or (queue is not None and queue[slot] > 0):
            return True
    return False


def free_slot_share(grid: LoadGrid) -> float | None:
    """Give the share of time in which one had a free slot and no queue while another's requests waited."""
    limits = [track.slots for track in grid.tracks]
    if any(limit is None for limit in limits) or any(queue is None for queue in grid.waiting):
        return None
    found = seen = 0
    for row in zip(grid.totals, *grid.loads, *(queue or [] for queue in grid.waiting), strict=True):
        loads, queues = row[1 : 1 + len(limits)], row[1 + len(limits) :]
        if row[0] > 0:
            seen += 1
            if max(queues) > 0 and any(
                queue <= 0 and load < (limit or 0)
                for load, queue, limit in zip(loads, queues, limits, strict=True)
            ):
                found += 1
    return found / seen if seen else None


def lost_share(grid: LoadGrid, slots: Sequence[int], step: StepTime | None) -> float | None:
    """Give 1 - Σ T(x) / Σ T(share): throughput lost by uneven loads, 0 to 1; None without a step time.

    T is concave, so for backends of one speed this cannot be below 0 (Jensen).
    """
    if step is None or not slots:
        return None
    mean = 1 / len(grid.loads)
    totals = [grid.totals[slot] for slot in slots]
    made = best = 0.0
    evenly: dict[tuple[float, int | None], float] = {}
    for track, column, share in zip(grid.tracks, grid.loads, grid.shares, strict=True):
        makes = throughput(step, track.slots)
        made += share / mean * _total_of(makes, [column[slot] for slot in slots])
        key = (share, track.slots)
        if key not in evenly:
            evenly[key] = share / mean * _total_of(makes, [share * total for total in totals])
        best += evenly[key]
    return max(0.0, 1 - made / best) if best > 0 else None


def _total_of(makes: Callable[[float], float], loads: Sequence[float]) -> float:
    # Loads are counts, so few are different: each is worked out once.
    known = {load: makes(load) for load in set(loads)}
    return sum([known[load] for load in loads])


@dataclass(frozen=True, slots=True)
class Skew:
    """Which backend has most beyond its share, and how steadily."""

    backend: int
    mean: float
    """Of (load - share) / share."""
    deviation: float
    """Standard deviation of that in time."""

    @property
    def steadiness(self) -> float:
        """Mean over deviation; infinite when it never changes."""
        return self.mean / self.deviation if self.deviation > 0 else math.inf


def skew(grid: LoadGrid, slots: Sequence[int]) -> Skew | None:
    """Give the skew of the backend that is furthest above its share on average; None without a slot.

    Of two equal backends A and B this is the mean of (A - B) / (A + B).
    """
    if not slots:
        return None
    totals = [grid.totals[slot] for slot in slots]
    most: Skew | None = None
    for index, (column, share) in enumerate(zip(grid.loads, grid.shares, strict=True)):
        beyond = [
            column[slot] / (share * total) - 1 if total > 0 else 0.0
            for slot, total in zip(slots, totals, strict=True)
        ]
        mean = sum(beyond) / len(beyond)
        if most is None or mean > most.mean:
            spread = sum((value - mean) ** 2 for value in beyond) / len(beyond)
            most = Skew(index, mean, math.sqrt(spread))
    return most
