"""Figures of a server over its lanes: one rule for the board, the balance and the levels of a sweep.

A lane that does not report a figure leaves the server's unknown: the sum of the others is not the server's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparktop.model.engine import LaneSample


def lane_sum(lanes: Sequence[LaneSample], of: Callable[[LaneSample], float | None]) -> float | None:
    """Return the sum of a figure over all lanes; None where one of them does not report it."""
    known = [value for lane in lanes if (value := of(lane)) is not None]
    return sum(known) if known and len(known) == len(lanes) else None


def kv_used_percent(lanes: Sequence[LaneSample]) -> float | None:
    """Return the used share of all lanes' KV caches together; None where a lane does not report its own.

    Weighted by capacity, where every lane reports one; else all caches count the same.
    """
    shares = [lane.kv_cache_percent for lane in lanes]
    known = [share for share in shares if share is not None]
    if not known or len(known) < len(shares):
        return None
    capacities = [lane.kv_capacity_tokens or 0.0 for lane in lanes]
    if not all(capacity > 0 for capacity in capacities):
        return sum(known) / len(known)
    used = sum(share * capacity for share, capacity in zip(known, capacities, strict=True))
    return used / sum(capacities)


def kv_fullest_percent(lanes: Sequence[LaneSample]) -> float | None:
    """Return the used share of the fullest lane's KV cache: its requests wait, whatever the others have."""
    return max((lane.kv_cache_percent for lane in lanes if lane.kv_cache_percent is not None), default=None)
