"""The request to end a sweep early: keeps the first reason, and calls back so that the load is stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

Early = Literal["cancelled", "stopped_by_guard", "failed"]


class Brake:
    """A request to end the sweep early. Only the first `pull` counts, and it cannot be withdrawn."""

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
        """Keep `status` and `reason` and call `on_pull`; do nothing if an early end was requested before."""
        if self.pulled:
            return
        self.status, self.reason = status, reason
        if self.on_pull is not None:
            self.on_pull()
