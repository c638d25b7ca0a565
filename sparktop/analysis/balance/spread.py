"""How unevenly a group's requests are distributed over its backends, and how often that changes.

The *share* of a backend is its part (0 to 1) of the group's load under an even split. A *slot* is a time
slot of the `LoadGrid`. The *lead* is the backend with clearly most load.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, compress, groupby, pairwise
from operator import ne, sub
from statistics import fmean, median
from typing import NamedTuple

from sparktop.analysis.balance.load_grid import LoadGrid
from sparktop.analysis.balance.step_time import slots_of, with_slope
from sparktop.model.balance import StepTime

STARVED_SHARE = 0.1
"""A backend with at most this part of its share has next to no work."""
AWAY_LIVES = 2.0
"""A backend below its share is away after this many lives of a request without a new request; a herd leaves a
backend out for about one life only."""
LOST_WITHIN = 0.03
"""Largest uncertainty of a throughput loss that is shown without it, as a share of the throughput."""
_ERRORS = 2.0
"""Half-width of the slope's confidence interval, in standard errors."""
_ITERATIONS = 12
"""Iterations in which the time of prompts is found; each doubles the exact digits."""
_ROUNDING = 1e-6
"""Part of a slot by which times may be off through floating-point arithmetic."""
_FULL = 1.5
"""A backend with more than this multiple of its share has more than enough work."""


def fewest_requests(backends: int) -> int:
    """Return how many requests a group of this many `backends` needs, so that its balance can be judged."""
    return max(16, 8 * backends)


def loaded_slots(grid: LoadGrid, least: float) -> list[int]:
    """Return the indexes of the grid's time slots in which the group has at least `least` requests."""
    return [slot for slot, total in enumerate(grid.totals) if total >= least]


def unevenness(grid: LoadGrid, slot: int) -> float:
    """Return how unevenly the requests of a time slot are split: about 1 if routing is random; 0 without any.

    This is Pearson's χ² against the backends' due shares, per degree of freedom.
    """
    total = grid.totals[slot]
    if not total > 0:
        return 0.0
    deviations = [
        (column[slot] - share * total) ** 2 / share
        for column, share in zip(grid.loads, grid.shares, strict=True)
    ]
    return sum(deviations) / total / (len(grid.loads) - 1)


def dispersion(grid: LoadGrid, slots: Sequence[int]) -> float | None:
    """Return how far the backends' loads are from an even split, relative to random routing.

    The result is the mean `unevenness` over the time slots `slots`. It is 1 for multinomial chance. Where all
    shares are equal it is the index of dispersion. None if `slots` is empty.
    """
    return sum(unevenness(grid, slot) for slot in slots) / len(slots) if slots else None


def starved_shares(
    grid: LoadGrid, slots: Sequence[int], life_s: float | None = None
) -> tuple[Sequence[float], float, Sequence[float], float]:
    """Return how much of the time slots `slots` backends starved or were away.

    The result is (share of the time, 0 to 1, in which each backend starved; share in which at least one did,
    without stretches at the end of the window in which a backend may turn out to be away; seconds in which
    each was away; share in which at least one starved or was away).

    A backend starves if it has next to no work (at most one request, or a tenth of its even share if that
    is more) while another has more than enough (a queue, or more than 1.5 times its even share). A backend
    that gets no request for `AWAY_LIVES` times `life_s`, the duration of a request, does not starve but is
    away: drained, or not in the router yet. If `life_s` is None, no backend is away.
    """
    if not slots:
        nothing = tuple(0.0 for _ in grid.loads)
        return nothing, 0.0, nothing, 0.0
    hungry = [
        [slot for slot in slots if column[slot] <= max(1.0, STARVED_SHARE * share * grid.totals[slot])]
        for column, share in zip(grid.loads, grid.shares, strict=True)
    ]
    full = _slots_full(grid, set().union(*hungry))
    times_full = Counter(chain.from_iterable(full))
    generous = set(times_full)
    chosen = frozenset(slots)
    counted = [slot in chosen for slot in range(len(grid.totals))]
    breaks = [_slots_away(grid, index, counted, life_s) for index in range(len(grid.loads))]
    starving = [generous.intersection(idle) - gone for idle, (gone, _) in zip(hungry, breaks, strict=True)]
    # Of a single request, the backend that has it is the full one.
    alone = [{slot for slot in slots_full if times_full[slot] == 1} for slots_full in full]
    certain = [starved - possible for starved, (_, possible) in zip(starving, breaks, strict=True)]
    return (
        [len(starved - only) / len(slots) for starved, only in zip(starving, alone, strict=True)],
        len(set().union(*certain)) / len(slots),
        [len(gone) * grid.step_s for gone, _ in breaks],
        len(generous) / len(slots),
    )


def _slots_away(
    grid: LoadGrid, backend: int, counted: Sequence[bool], life_s: float | None
) -> tuple[set[int], set[int]]:
    """Return the time slots in which the backend with the index `backend` got no new request.

    The result is (those in stretches that are long enough to call it away, those of the last stretch, which
    has not ended and may still become long enough).

    `life_s` is the duration of a request: the backend is away after several of these without a new
    request. If `life_s` is None, the result is empty. `counted` has True for each slot to examine: others
    neither end a stretch nor make it long enough. It is ignored for a backend that does not count its
    requests, where slots without load are used instead.
    """
    away: set[int] = set()
    last: set[int] = set()
    if life_s is None:
        return away, last
    track, column, share = grid.tracks[backend], grid.loads[backend], grid.shares[backend]
    least = AWAY_LIVES * life_s / grid.step_s
    if track.arrived is None:
        counted = without = [load == 0 and total > 0 for load, total in zip(column, grid.totals, strict=True)]
    else:
        idle = _without_arrivals(track.times_s, track.arrived, grid)
        without = [
            is_idle and not (is_counted and load >= share * total)
            for is_idle, is_counted, load, total in zip(idle, counted, column, grid.totals, strict=True)
        ]
    begin = 0
    for none, run in groupby(without):
        end = begin + len(list(run))
        stretch = range(begin, end)
        if none and sum(counted[begin:end]) >= least:
            away.update(stretch)
        elif none and end == len(without) and track.arrived is not None:
            last = set(stretch)
        begin = end
    return away, last


def _without_arrivals(times: Sequence[float], arrived: Sequence[float], grid: LoadGrid) -> list[bool]:
    """Return for each time slot of `grid` whether the backend is known to have got no request in it.

    `arrived` has the backend's number of requests so far at each of `times`; NaN where the number is
    unknown, which gives False.
    """
    count = len(grid.totals)
    newest_s = max(track.times_s[-1] for track in grid.tracks)

    def slot_of(at_s: float) -> int:
        return count - 1 - int((newest_s - at_s) / grid.step_s + _ROUNDING)

    without = [True] * count
    # NaN equals nothing, so an unknown count ends a stretch, too.
    for at_s in compress(times[1:], map(ne, arrived, arrived[1:])):
        if (slot := slot_of(at_s)) >= 0:
            without[slot] = False
    for at_s, until_s in compress(pairwise((*times, newest_s)), map(ne, arrived, arrived)):
        first_slot, end_slot = max(0, slot_of(at_s)), slot_of(until_s) + 1
        without[first_slot:end_slot] = [False] * max(0, end_slot - first_slot)
    return without


def _slots_full(grid: LoadGrid, slots: set[int]) -> list[set[int]]:
    """Return for each backend those of `slots` in which it has a queue, or over 1.5 times its even share."""
    return [
        {
            slot
            for slot in slots
            if column[slot] > _FULL * share * grid.totals[slot] or (queue is not None and queue[slot] > 0)
        }
        for column, queue, share in zip(grid.loads, grid.waiting, grid.shares, strict=True)
    ]


def free_slot_share(grid: LoadGrid) -> float | None:
    """Return the part of the time (0 to 1) in which a backend had room while another, full one had a queue.

    Room means fewer requests than can run at once, and no queue. A request that waits beside free slots
    awaits the next step, or room in the KV cache, which the other may not have either. None if a backend does
    not report its queue or how many requests it can run at once.
    """
    limits = [track.slots for track in grid.tracks]
    if any(limit is None for limit in limits) or any(queue is None for queue in grid.waiting):
        return None
    result = 0
    loaded_slots = sum([total > 0 for total in grid.totals])
    # Queues are rare, and only slots with one matter.
    longest = map(max, *(queue or [] for queue in grid.waiting))
    for slot in [slot for slot, queue in enumerate(longest) if queue > 0]:
        if grid.totals[slot] > 0:
            states = [
                (queue is not None and queue[slot] > 0, column[slot] - (limit or 0))
                for column, queue, limit in zip(grid.loads, grid.waiting, limits, strict=True)
            ]
            is_overfull = any(waits and beyond > 0 for waits, beyond in states)
            if is_overfull and any(not waits and beyond < 0 for waits, beyond in states):
                result += 1
    return result / loaded_slots if loaded_slots else None


def lost_share(grid: LoadGrid, slots: Sequence[int], step: StepTime | None) -> Lost | None:
    """Estimate which part of the throughput is lost, compared with equal loads, over time slots.

    The share is 1 - Σ T(x) / Σ T(share), where T(x) is the throughput with x requests. None if `step` (the
    time of a decode step by batch size) is None, or if `slots` is empty. A swing has loads near nothing and
    near all, and says little of those between, by which equal loads are judged: of the curves that fit as
    well the mean counts, and the error includes each.

    Prompts take time, too: for each token the time that decode steps leave unexplained in what was really
    generated. Where requests arrive together now, equal loads may leave them fewer prompts to share a step
    with. How much longer prompts then take depends on the model: as long as now if a step costs the same for
    each prompt token, several times as long if it reads weights once for all: an even split of what comes
    together over n servers takes up to n times as long. Answers that end one by one scatter it further, to
    one prompt a step at most, of which the geometric mean counts. The share is the middle of the first and
    the second; of the first and the third where step times grow with the root of the batch, as prompts then
    share reads, too. The error includes the first two, and `within` all three.
    """
    if step is None or not slots:
        return None
    made_tps = _made_tps(grid)
    limits = list(map(slots_of, grid.tracks))
    filled = [slot for slot, total in enumerate(grid.totals) if total >= 0]
    in_window, now = _batches(grid, filled, limits), _batches(grid, slots, limits)
    even = _batches(grid, slots, limits, is_even=True)
    together = _bunching(grid)
    divided = max(math.sqrt(together), min(float(len(grid.loads)), together**2))
    singly = max(divided, math.sqrt(divided * together))

    def lost(curve: StepTime, errors: float) -> tuple[float, ...]:
        """Return what is lost if prompts take as long under an even split, or longer, divided or singly."""
        line = with_slope(curve, errors)
        prompt_s = _prompt_seconds(in_window, line, made_tps * len(filled))
        now_tps = _sum_of_tps(now, line, prompt_s)
        return tuple(1 - now_tps / _sum_of_tps(even, line, prompt_s * by) for by in (1.0, divided, singly))

    curves = step.curves or (step,)
    usual = [lost(curve, 0.0) for curve in curves]
    steeper = [lost(curve, errors) for curve in curves for errors in (-_ERRORS, _ERRORS)]
    share = fmean(
        (alike + (apart if curve.exponent == 1 else alone)) / 2
        for curve, (alike, apart, alone) in zip(curves, usual, strict=True)
    )
    error = max(abs(end - share) for *ends, _ in (*usual, *steeper) for end in ends)
    within = max(error, *(share - alone for *_, alone in usual))
    return Lost(max(0.0, share), error, within, max(alike - apart for alike, apart, _ in usual) > error)


class Lost(NamedTuple):
    """A share of the throughput that is lost."""

    share: float
    """0 to 1."""
    error: float
    """By how much `share` may be off if an even split only divides what comes together."""
    within: float
    """The same if requests also come more singly than now, as they do once their answers end one by one."""
    by_prompts: bool
    """Whether this is mostly so because nobody knows how prompts would share steps under an even split."""


def _made_tps(grid: LoadGrid) -> float:
    """Return the group's mean tokens per second in the grid's time; infinite if a backend's are unknown."""
    begin_s = max(track.times_s[-1] for track in grid.tracks) - grid.span_s
    speeds = ((track.generation_tps or ())[bisect_left(track.times_s, begin_s) :] for track in grid.tracks)
    return sum(mean_without_gaps(speed, math.inf) for speed in speeds)


def mean_without_gaps(values: Sequence[float], unknown: float) -> float:
    """Return the mean of the values that are not NaN, `unknown` without any."""
    known = [value for value in values if value >= 0]
    return sum(known) / len(known) if known else unknown


def _bunching(grid: LoadGrid) -> float:
    """Return how many requests arrive together, against those that come by chance; at least 1.

    This is the mean number that came to a backend between two samples, as a request sees it. Where a backend
    does not count its requests, a rise of its load stands for them.
    """
    begin_s = max(track.times_s[-1] for track in grid.tracks) - grid.span_s
    came: list[float] = []
    for track, column in zip(grid.tracks, grid.loads, strict=True):
        arrived = column
        if track.arrived is not None:
            arrived = list(track.arrived[bisect_left(track.times_s, begin_s) :])
        changes = list(map(sub, arrived[1:], arrived))
        came += [max(0.0, change) for change in changes if not math.isnan(change)]
    total = sum(came)
    return max(1.0, sum(count * count for count in came) / total / (1 + total / len(came))) if total else 1.0


def _batches(
    grid: LoadGrid, slots: Sequence[int], limits: Sequence[int | None], *, is_even: bool = False
) -> Counter[float]:
    """Return in how many time slots of how many backends a batch had each size; `is_even`: would have had.

    `limits` has for each backend the requests that it runs at once.
    """
    sizes: Counter[float] = Counter()
    for column, limit in zip(grid.loads, limits, strict=True):
        loads = (grid.totals[slot] / len(grid.loads) if is_even else column[slot] for slot in slots)
        sizes.update(load if limit is None else min(load, limit) for load in loads if load > 0)
    return sizes


def _sum_of_tps(batches: Mapping[float, int], step: StepTime, prompt_s: float) -> float:
    """Return Σ T(batch) if each token takes `prompt_s` more than its part of a decode step."""
    return sum(times * batch / (step.seconds(batch) + prompt_s * batch) for batch, times in batches.items())


def _prompt_seconds(batches: Mapping[float, int], step: StepTime, made: float) -> float:
    """Return the seconds by which each token takes longer than its part of a decode step, at least 0.

    `made` is Σ T(batch) as it was measured. Newton's method, from below on a convex curve.
    """
    prompt_s = 0.0
    for _ in range(_ITERATIONS):
        beyond = _sum_of_tps(batches, step, prompt_s) - made
        if beyond <= 0 or made <= 0:
            break
        prompt_s += beyond / sum(
            times * (batch / (step.seconds(batch) + prompt_s * batch)) ** 2
            for batch, times in batches.items()
        )
    return prompt_s


def skew(grid: LoadGrid, slots: Sequence[int]) -> tuple[int, float, float] | None:
    """Return the backend whose load exceeds its even share most on average; None if `slots` is empty.

    The result is (its index, its mean excess, how constant that is: the mean divided by the standard
    deviation, infinite if it never changes).

    The excess is averaged over the time slots `slots`, relative to the share. For two equal backends with
    the loads A > B it is (A - B) / (A + B).
    """
    if not slots:
        return None
    excesses = [
        [_excess(column[slot], share * grid.totals[slot]) for slot in slots]
        for column, share in zip(grid.loads, grid.shares, strict=True)
    ]
    backend = max(range(len(excesses)), key=lambda index: sum(excesses[index]))
    mean = sum(excesses[backend]) / len(slots)
    spread = sum((value - mean) ** 2 for value in excesses[backend]) / len(slots)
    return backend, mean, mean / math.sqrt(spread) if spread > 0 else math.inf


def _excess(load: float, fair_load: float) -> float:
    """Return by how much a load exceeds the one that is due, as a part of this; 0 where none is due."""
    return load / fair_load - 1 if fair_load > 0 else 0.0


_SMALLEST, _LARGEST = 0.5, 0.9
"""Limits of the margin of a lead, in even shares."""
_DEVIATIONS = 3.0
"""Standard deviations by which a lead exceeds chance."""
_AROUND = 0.5
"""Half-width of the neutral range, as a part of the share: a backend is full from 1.5 times its share on, and
empty up to half of it."""


def lead_margin(total: float, backends: int, factor: float) -> float:
    """Return by how much a backend must exceed its even share to take the lead, as a part of this share.

    The result is 3 standard deviations of a load under random routing, limited to 0.5 to 0.9. `total` is the
    number of requests in the group; `factor` is the variance of a backend's load under random routing,
    relative to the multinomial's.
    """
    if total <= 0:
        return _LARGEST
    return min(_LARGEST, max(_SMALLEST, _DEVIATIONS * math.sqrt((backends - 1) * factor / total)))


def follow_lead(grid: LoadGrid, slots: Sequence[int], margin: float) -> tuple[int, float | None]:
    """Count how often the lead passes from one backend to another over the time slots `slots`.

    Return (number of changes, median seconds between them; None with fewer than two).

    A backend takes the lead when its load reaches (1 + `margin`) times its even share. Where two backends
    do so in the same slot with equal loads, the lead does not change until one of them has more load.
    """
    leader: int | None = None
    changed_at: list[int] = []
    for slot in slots:
        least = (1 + margin) * grid.totals[slot]
        # What the total would be if each backend had as much for its share.
        loads = [column[slot] / share for column, share in zip(grid.loads, grid.shares, strict=True)]
        top = max(loads)
        still_leads = leader is not None and loads[leader] >= least
        if top >= least and not still_leads and loads.count(top) == 1:
            if leader is not None:
                changed_at.append(slot)
            leader = loads.index(top)
    gaps = [(later - earlier) * grid.step_s for earlier, later in pairwise(changed_at)]
    return len(changed_at), median(gaps) if gaps else None


def follow_turns(grid: LoadGrid, slots: Sequence[int]) -> tuple[int, int, float | None]:
    """Count how often each backend went from 1.5 times its even share of the load to half of it, or back.

    Return (turns of all backends together, those of the one with most, median seconds from full over empty to
    full or the reverse; None when no backend did both).

    `slots` are the indexes of the time slots to examine. Unlike the number of lead changes, this count
    works for many backends too, where several are full at once while the one with most load stays the
    same.
    """
    counts: list[int] = []
    gaps: list[int] = []
    for column, share in zip(grid.loads, grid.shares, strict=True):
        was_full: bool | None = None
        turned_at: list[int] = []
        for slot in slots:
            load, fair_load = column[slot], share * grid.totals[slot]
            is_full = load >= (1 + _AROUND) * fair_load
            if is_full or load <= (1 - _AROUND) * fair_load:
                if was_full is not None and is_full is not was_full:
                    turned_at.append(slot)
                was_full = is_full
        counts.append(len(turned_at))
        gaps += [later - earlier for earlier, later in zip(turned_at, turned_at[2:], strict=False)]
    return sum(counts), max(counts, default=0), median(gaps) * grid.step_s if gaps else None
