"""Request rate limits per client address, with token buckets."""

from __future__ import annotations

from collections.abc import Callable


class Bucket:
    """A token bucket: admits `burst` requests at once, and `per_s` requests per second in the long run."""

    __slots__ = ("_at", "_burst", "_left", "_per_s")

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        """Start with a full bucket at the time `now` (seconds)."""
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._at = now

    def take(self, now: float) -> bool:
        """Return whether a request at the time `now` (seconds) is admitted; if so, remove a token."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Rates:
    """A token bucket for each client, for a limited number of clients."""

    def __init__(
        self, per_s: float, burst: float, clock: Callable[[], float], *, most_peers: int = 1024
    ) -> None:
        """Admit `burst` requests of a client at once, and `per_s` requests per second in the long run.

        `clock` returns seconds. At most `most_peers` clients are remembered: those with the newest requests.
        """
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._most_peers = most_peers
        self._buckets: dict[object, Bucket] = {}
        """By client, sorted by the time of the client's last request, oldest first."""

    def __len__(self) -> int:
        """Return the number of clients that have a token bucket."""
        return len(self._buckets)

    def take(self, peer: object) -> bool:
        """Return whether a request of the client `peer` is admitted now.

        If so, remove a token from its bucket.
        """
        now = self._clock()
        bucket = self._buckets.pop(peer, None) or Bucket(self._per_s, self._burst, now)
        self._buckets[peer] = bucket
        if len(self._buckets) > self._most_peers:
            # The peer with the oldest request has the fullest bucket, so forgetting it gives away least.
            del self._buckets[next(iter(self._buckets))]
        return bucket.take(now)
