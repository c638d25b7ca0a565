"""The early end of a sweep: the first reason is kept, and the load generator is informed at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

Early = Literal["cancelled", "stopped_by_guard", "failed"]


class Brake:
    """A stop request that can be made once and stays in force."""

    def __init__(self) -> None:
        """Start without a stop request."""
        self.status: Early | None = None
        self.reason: str | None = None
        self.on_pull: Callable[[], None] | None = None
        """Called when the brake is pulled for the first time."""

    @property
    def pulled(self) -> bool:
        """True once an early end was requested."""
        return self.status is not None

    def pull(self, status: Early, reason: str) -> None:
        """Request the end of the sweep for `reason`; do nothing if an end was requested before."""
        if self.pulled:
            return
        self.status, self.reason = status, reason
        if self.on_pull is not None:
            self.on_pull()
