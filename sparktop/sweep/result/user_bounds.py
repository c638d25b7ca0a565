"""The two limits of a closed loop with think time, between which measured levels of users lie."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.sweep.result.results import LevelResult
from sparktop.values import dataclass

_RISE = 1.1
"""Increase up to which the rate of the highest level is the same as that of the one below."""


@dataclass(frozen=True, slots=True)
class UserBounds:
    """The most requests per second that users complete: few limit themselves, many are limited by the server.

    N users complete at most N / (response time alone + think time), and never more than the server's best.
    """

    cycle_s: float
    """Seconds from a user's request to the next at the lowest measured level: response and think time."""
    most_per_s: float
    """The highest rate of completed requests of any level."""
    is_full: bool
    """Whether the highest level completes hardly more than the one below, so that this is the limit."""

    def per_s(self, users: float) -> float:
        """Return the limit of `users` users that never wait for one another, in requests per second."""
        return users / self.cycle_s

    @property
    def knee(self) -> float:
        """The number of users at which both limits meet: with more of them, waits grow."""
        return self.most_per_s * self.cycle_s


def user_bounds(levels: Iterable[LevelResult]) -> UserBounds | None:
    """Return the limits of a target's levels of users; None where these do not show them."""
    ordered = sorted(levels, key=lambda level: level.point.value)
    found = [level.users for level in ordered if level.users is not None]
    known = [
        (one.response_s + one.think_s, one.requests_per_s)
        for one in found
        if one.response_s is not None and one.think_s is not None and one.requests_per_s is not None
    ]
    most = max((rate for _, rate in known), default=0.0)
    if most <= 0 or known[0][0] <= 0:
        return None
    is_full = len(known) > 1 and known[-1][1] <= _RISE * known[-2][1]
    return UserBounds(known[0][0], most, is_full)
