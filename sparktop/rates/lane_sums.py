"""Values of a server, combined from the values of its lanes, which are engine cores (data-parallel ranks).

The board, the balance and the levels of a sweep use the same rule for sums: if a lane does not report a
value, the server's value is unknown, because the sum of the other lanes would be too low.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparktop.model.engine import LaneSample


def lane_sum(lanes: Sequence[LaneSample], of: Callable[[LaneSample], float | None]) -> float | None:
    """Return the sum of `of(lane)` over all lanes.

    None if `lanes` is empty, or if `of` returns None for any lane.
    """
    if len(lanes) == 1:
        value = of(lanes[0])
        return None if value is None else 0 + value
    known = [value for lane in lanes if (value := of(lane)) is not None]
    return sum(known) if known and len(known) == len(lanes) else None


def kv_used_percent(lanes: Sequence[LaneSample]) -> float | None:
    """Return the used share (0 to 100) of all lanes' KV caches taken together.

    The mean of the lanes' shares is weighted by KV cache capacity if every lane reports its capacity, else
    unweighted. None without lanes, or where a lane does not report its share.
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
    """Return the highest used share (0 to 100) of any lane's KV cache; None if no lane reports its share.

    This matters beside the mean of the lanes: a request that waits for a full lane cannot use the free space
    of another lane.
    """
    return max((lane.kv_cache_percent for lane in lanes if lane.kv_cache_percent is not None), default=None)
