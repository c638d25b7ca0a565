"""Figures of a server over its lanes, by the same rule for the board, the balance and the levels of a sweep.

If a lane does not report a figure, the server's figure is unknown: the sum of the other lanes would be too
low.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparktop.model.engine import LaneSample


def lane_sum(lanes: Sequence[LaneSample], of: Callable[[LaneSample], float | None]) -> float | None:
    """Return the sum of a figure over all lanes; None where one of them does not report it."""
    known = [value for lane in lanes if (value := of(lane)) is not None]
    return sum(known) if known and len(known) == len(lanes) else None


def kv_used_percent(lanes: Sequence[LaneSample]) -> float | None:
    """Return the used share of all lanes' KV caches together; None where a lane does not report its share.

    Weighted by capacity if every lane reports it; otherwise all caches count equally.
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
    """Return the used share of the fullest lane's KV cache: its requests wait, whatever room others have."""
    return max((lane.kv_cache_percent for lane in lanes if lane.kv_cache_percent is not None), default=None)
