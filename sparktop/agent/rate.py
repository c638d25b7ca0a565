"""How often a peer may ask: token buckets."""

from __future__ import annotations

from collections.abc import Callable


class Bucket:
    """Lets `burst` requests pass at once and `per_s` of them in the long run."""

    __slots__ = ("_at", "_burst", "_left", "_per_s")

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        """Start full."""
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._at = now

    def take(self, now: float) -> bool:
        """Let one request pass, or not."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Rates:
    """A bucket for each peer, for a bounded number of peers."""

    def __init__(
        self, per_s: float, burst: float, clock: Callable[[], float], *, most_peers: int = 1024
    ) -> None:
        """Give each peer `burst` requests at once and `per_s` in the long run."""
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._most_peers = most_peers
        self._buckets: dict[object, Bucket] = {}
        """The one that asked longest ago comes first."""

    def __len__(self) -> int:
        """Count the peers that are remembered."""
        return len(self._buckets)

    def take(self, peer: object) -> bool:
        """Let one request of `peer` pass, or not."""
        now = self._clock()
        bucket = self._buckets.pop(peer, None) or Bucket(self._per_s, self._burst, now)
        self._buckets[peer] = bucket
        if len(self._buckets) > self._most_peers:
            # The one that asked longest ago has the fullest bucket of all: it loses least.
            del self._buckets[next(iter(self._buckets))]
        return bucket.take(now)
