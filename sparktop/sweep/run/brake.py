"""The early end of a sweep: stores the first request to end it, and calls back so that the load stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

Early = Literal["cancelled", "stopped_by_guard", "failed"]


class Brake:
    """Stores whether the sweep is to end early, and why. Only the first call of `pull` has an effect."""

    def __init__(self) -> None:
        """Start without a request to end the sweep."""
        self.status: Early | None = None
        self.reason: str | None = None
        self.on_pull: Callable[[], None] | None = None
        """Called when the brake is pulled for the first time."""

    @property
    def pulled(self) -> bool:
        """True once an early end was requested."""
        return self.status is not None

    def pull(self, status: Early, reason: str) -> None:
        """Request the end of the sweep: store `status` and `reason`, and call `on_pull`.

        Do nothing if an earlier call has requested the end.
        """
        if self.pulled:
            return
        self.status, self.reason = status, reason
        if self.on_pull is not None:
            self.on_pull()
