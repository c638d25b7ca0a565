"""Ends a sweep early: the first reason counts, and whoever makes load is told at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

Early = Literal["cancelled", "stopped_by_guard", "failed"]


class Brake:
    """Pulled once; stays so."""

    def __init__(self) -> None:
        """Be loose."""
        self.status: Early | None = None
        self.reason: str | None = None
        self.on_pull: Callable[[], None] | None = None
        """Called when it is pulled for the first time."""

    @property
    def pulled(self) -> bool:
        """True once somebody ended the sweep."""
        return self.status is not None

    def pull(self, status: Early, reason: str) -> None:
        """End the sweep; does nothing when it is ending already."""
        if self.pulled:
            return
        self.status, self.reason = status, reason
        if self.on_pull is not None:
            self.on_pull()
