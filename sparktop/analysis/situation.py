"""What the rules for findings look at: everything that is watched, at one time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from sparktop.model.finding import Finding
from sparktop.model.router import RouterView
from sparktop.model.snapshot import BackendView, NodeView, PastStart


class Situation(Struct, frozen=True, eq=False):
    """Servers, machines and routers as they are now, by name."""

    at: float
    """Monotonic seconds."""
    wall: datetime
    """UTC."""
    backends: Mapping[str, BackendView] = {}
    nodes: Mapping[str, NodeView] = {}
    routers: tuple[RouterView, ...] = ()
    starts: tuple[PastStart, ...] = ()
    """Earlier starts of servers."""


class Rule(Protocol):
    """Finds one kind of trouble; may keep what it saw before."""

    def look(self, now: Situation) -> Iterable[Finding]:
        """Return what holds now; called once a second, with situations in the order of time."""
        ...
