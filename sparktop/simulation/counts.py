"""A simulated router's counts of requests in flight, which may be late, read periodically, or expire."""

from __future__ import annotations

import math
from collections import deque


class Counts:
    """A router's counts of requests in flight, one per backend, which can be late or reset.

    A count rises `increment_lag_s` after a request went to its backend, and falls `decrement_lag_s` after the
    request's end. With `poll_s`, the router sees the counts as they were at the last multiple of `poll_s`.
    With `expiry_s`, all counts are set to 0 `expiry_s` seconds after the first change, as when LiteLLM's
    cache entry expires. A request that ends after such a reset still lowers the count of its backend, which
    can then be negative. Times passed to the methods must not decrease.
    """

    def __init__(
        self,
        backends: int,
        *,
        increment_lag_s: float = 0.0,
        decrement_lag_s: float = 0.0,
        poll_s: float | None = None,
        expiry_s: float | None = None,
    ) -> None:
        """Start with no requests in flight.

        Raises:
            ValueError: a lag is negative, or `poll_s` or `expiry_s` is not above 0.
        """
        if min(increment_lag_s, decrement_lag_s) < 0:
            raise ValueError("a lag is not below 0")
        if any(span is not None and span <= 0 for span in (poll_s, expiry_s)):
            raise ValueError("poll_s and expiry_s are above 0")
        self._known = [0] * backends
        self._seen = self._known if poll_s is None else [0] * backends
        self._lags_s = {1: increment_lag_s, -1: decrement_lag_s}
        self._late: dict[int, deque[tuple[float, int]]] = {1: deque(), -1: deque()}
        self._poll_s = poll_s
        self._poll_at = -math.inf if poll_s is None else 0.0
        self._expiry_s = expiry_s
        self._forget_at = math.inf

    def at(self, now: float) -> list[int]:
        """Return the counts that the router sees at the time `now`, by backend.

        The list is the router's own and not a copy: it changes when the counts change.
        """
        self._catch_up(now)
        return self._seen

    def add(self, backend: int, change: int, now: float) -> None:
        """Record at the time `now` that a request on a backend started (`change` 1) or ended (-1)."""
        self._catch_up(now)
        lag_s = self._lags_s[change]
        if lag_s:
            self._late[change].append((now + lag_s, backend))
        else:
            self._write(backend, change, now)

    def _catch_up(self, now: float) -> None:
        if self._poll_s is not None and now >= self._poll_at:
            # Of the polls since the last call, only the newest is still visible.
            newest_at = math.floor(now / self._poll_s) * self._poll_s
            self._settle(newest_at)
            self._seen[:] = self._known
            self._poll_at = newest_at + self._poll_s
        self._settle(now)

    def _settle(self, now: float) -> None:
        rising, falling = self._late[1], self._late[-1]
        while rising or falling:
            change = 1 if rising and (not falling or rising[0] <= falling[0]) else -1
            at, backend = self._late[change][0]
            if at > now:
                break
            self._late[change].popleft()
            self._write(backend, change, at)
        self._forget(now)

    def _write(self, backend: int, change: int, at: float) -> None:
        self._forget(at)
        if self._expiry_s is not None and math.isinf(self._forget_at):
            self._forget_at = at + self._expiry_s
        self._known[backend] += change

    def _forget(self, now: float) -> None:
        if now >= self._forget_at:
            self._forget_at = math.inf
            self._known[:] = [0] * len(self._known)
