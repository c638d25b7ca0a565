"""Limits that make requests wait: an uneven split over several servers, slots, and the KV cache."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import floor
from statistics import fmean

from sparktop.analysis.limited_by.evidence import Evidence, Look, Peer
from sparktop.analysis.limited_by.load import Load, newest
from sparktop.model.balance import Balance, BalanceWord, balance_cost
from sparktop.model.limit import Limit, LimitKind

_PAIR = 2
_APART_S = 1.6
"""Polls of two servers are compared if they are at most this far apart."""
_FEWEST_HELD = 4
"""Requests that a server must hold before an idle server beside it means anything."""
_IDLE_SHARE = 0.25
"""A server beside one with many requests counts as idle up to this share of its requests."""
_OFTEN = 0.6
"""Share of the polls in which one server must be loaded and another idle."""
_FULL_PERCENT = 95.0
"""A KV cache is not filled above this when room is computed: requests still grow."""
_TIGHT = 2.0
"""Multiple of the mean prompt that may not fit: the longest prompts wait longest."""
_SLOTS_FULL = 0.98
"""Share of the slots from which on they count as full: a request has just ended, the next has not begun."""


def split_limit(evidence: Evidence) -> Limit | None:
    """Return the limit by requests that are split unevenly over this server and others; None if they are not.

    The verdict on the group's balance decides, so that a server's limit never contradicts it. The router is
    blamed only where its own counts show that the requests pass it. Where the balance cannot be judged, or
    the router does not count, a plain difference between two servers is stated without a culprit. A level of
    a sweep has no verdict on its balance, but all its requests pass the router.
    """
    split = evidence.split
    if split is not None and split.in_sweep and not evidence.routed:
        return None  # the sweep chose what each server has
    if split is not None and split.word in _SWINGS and _takes_part(evidence, split):
        cost = balance_cost(split)
        said = f"{split.word.value}, {cost}" if cost else split.word.value
        if evidence.routed:
            return Limit(LimitKind.ROUTER, f"{split.group} is {said}", None, split.lost_percent, None, "%")
        return Limit(LimitKind.UNKNOWN, f"the loads of {split.group} are {said}")
    if evidence.router is None:
        return None
    mine = newest(evidence.looks, evidence.window_s)
    for peer in evidence.peers:
        pairs = _pairs(mine, newest(peer.looks, evidence.window_s))
        if len(pairs) < len(mine) / 2 or not pairs:
            continue
        apart = [
            (one, other)
            for one, other in pairs
            if _overlooked(one, other, slots=peer.slots) or _overlooked(other, one, slots=evidence.slots)
        ]
        if len(apart) >= _OFTEN * len(pairs):
            return _uneven(evidence, peer, apart)
    return None


_SWINGS = {BalanceWord.OSCILLATING, BalanceWord.STARVED}


def _takes_part(evidence: Evidence, split: Balance) -> bool:
    """Return whether a verdict on the group is about this server: of a starved one, only some are."""
    if split.word is BalanceWord.OSCILLATING or len(split.backends) == _PAIR:
        return True
    mine = newest(evidence.looks, evidence.window_s)
    return any(
        _overlooked(one, other, slots=peer.slots) or _overlooked(other, one, slots=evidence.slots)
        for peer in evidence.peers
        for one, other in _pairs(mine, newest(peer.looks, evidence.window_s))
    )


def _uneven(evidence: Evidence, peer: Peer, apart: Sequence[tuple[Look, Look]]) -> Limit:
    """Return the limit of a server that has far more or fewer requests than `peer`, at the times `apart`."""
    here, there = (sum(_held(pair[side]) for pair in apart) / len(apart) for side in (0, 1))
    heavier = sum(_held(one) > _held(other) for one, other in apart)
    if min(heavier, len(apart) - heavier) > len(apart) / 5:
        most, least = (fmean([pick(map(_held, pair)) for pair in apart]) for pick in (max, min))
        said = f"{peer.name} and this server take turns: {most:.0f} requests at one, {least:.0f} at the other"
    else:
        plural = "" if round(here) == 1 else "s"
        said = f"{here:.0f} request{plural} here while {peer.name} has {there:.0f}"
    split, even = evidence.split, (here + there) / 2
    if evidence.routed and (split is None or split.word.bad):
        hint = f"even would be {even:.0f} each"
        return Limit(LimitKind.ROUTER, said, hint, here, even, "requests")
    return Limit(LimitKind.UNKNOWN, f"uneven: {said}", None, here, even, "requests")


def _pairs(mine: Sequence[Look], others: Sequence[Look]) -> list[tuple[Look, Look]]:
    """Return each poll of a server with the poll of another server that is nearest in time."""
    times = [look.at for look in others]
    pairs = []
    for look in mine:
        place = bisect_left(times, look.at)
        near = min(others[max(0, place - 1) : place + 1], key=lambda one: abs(one.at - look.at), default=None)
        known = near is not None and None not in {look.running, near.running}
        if near is not None and known and abs(near.at - look.at) <= _APART_S:
            pairs.append((look, near))
    return pairs


def _overlooked(loaded: Look, other: Look, *, slots: int | None) -> bool:
    """Return whether `other` could take requests that `loaded` has, at one moment.

    It is nearly idle beside it, or `loaded` lets requests wait while half of the `slots` of `other` are free.
    """
    held, there = _held(loaded), _held(other)
    if held < _FEWEST_HELD or other.waiting:
        return False
    half_free = slots is not None and there <= slots / 2
    return there <= _IDLE_SHARE * held or bool(loaded.waiting and half_free and there <= held / 2)


def _held(look: Look) -> float:
    return (look.running or 0.0) + (look.waiting or 0.0)


def slots_limit(evidence: Evidence, load: Load) -> Limit | None:
    """Return the limit by the most requests that the server runs at once; None if there is none.

    Where that number is not known, it is inferred: the running requests stay at their maximum while others
    wait, although the KV cache has room for the next.
    """
    slots, most = evidence.slots, load.running_most
    if not _slots_are_full(evidence, load):
        return None
    if slots is not None:
        said = f"{most:.0f} of {slots} run, {load.waiting:.0f} wait"
    else:
        said = f"never more than {most:.0f} run, while {load.waiting:.0f} wait"
    kv = load.kv_percent
    if kv is not None:
        said += f"; KV cache {kv:.0f} %"
    return Limit(LimitKind.SLOTS, said, _room(load), most, float(slots or most), "requests")


def _slots_are_full(evidence: Evidence, load: Load) -> bool:
    """Return whether all slots are in use while requests wait, or seem to be where their number is unknown.

    A server reports its load at the end of a step. A request that ended in it has left its slot, and the next
    request enters it in the following step, which also computes a prompt. So while prompts are computed, a
    slot of each engine core seems free. At a given time, that is so for about half of the cores at most:
    where prompts take more of the time, they are the limit. If the number of slots is known and was reached,
    each core may have one that seems free.
    """
    most, cores, slots = load.running_most, evidence.cores, evidence.slots
    if slots is not None and most < min(_SLOTS_FULL * slots, slots - cores // 2):
        return False
    stays = load.usual >= most - cores // 2
    if slots is None:
        return stays and not kv_is_tight(evidence, load)
    return stays or (load.usual >= slots - cores and not kv_is_tight(evidence, load))


def _room(load: Load) -> str | None:
    """Return for how many more requests of the present length the KV cache has room, in words."""
    if load.kv_percent is None or not load.running_most or load.kv_percent <= 0:
        return None
    each = load.kv_percent / load.running_most
    more = floor((_FULL_PERCENT - load.kv_percent) / each)
    if more < 1:
        return "no room for more requests either"
    return f"room for about {_round(more)} more of this length"


def _round(count: int) -> int:
    """Round a count to two significant digits."""
    digits = max(0, len(str(count)) - 2)
    return round(count, -digits)


def kv_limit(evidence: Evidence, load: Load) -> Limit | None:
    """Return the limit by the KV cache: requests are preempted, or the next one does not fit."""
    kv = load.kv_percent
    if load.preempted:
        full = "" if kv is None else f"{kv:.0f} % used, "
        times = "preemption" if round(load.preempted) == 1 else "preemptions"
        reason = f"{full}{load.preempted:.0f} {times} in {load.span_s:.0f} s"
        return Limit(LimitKind.KV, reason, _fit(load), kv, 100.0, "%")
    if kv is None or not kv_is_tight(evidence, load):
        return None
    reason = f"{kv:.0f} % used by {load.running:.0f} requests, {100 - kv:.0f} % free; {load.waiting:.0f} wait"
    return Limit(LimitKind.KV, reason, _fit(load), kv, 100.0, "%")


def kv_is_tight(evidence: Evidence, load: Load) -> bool:
    """Return whether the free part of the KV cache is too small for the next prompt.

    A prompt's share is computed from the mean prompt and the capacity, or else from what running requests
    hold on average. The next request may also be a preempted one, which needs as much as it held.
    """
    kv, capacity = load.kv_percent, evidence.kv_capacity_tokens
    if kv is None or not load.running:
        return False
    each = kv / load.running * evidence.cores
    need = 100 * load.prompt_tokens / capacity if load.prompt_tokens and capacity else each
    return 100.0 - kv <= max(_TIGHT * min(need, each), each)


def _fit(load: Load) -> str | None:
    if not load.kv_percent or not load.running:
        return None
    each = load.kv_percent / load.running
    return f"{each:.1f} % each: about {floor(100 / each)} of this length fit"
