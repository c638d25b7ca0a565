"""The gauges that a simulated engine shows on its metrics page."""

from __future__ import annotations

from msgspec import Struct


class Gauges(Struct, frozen=True):
    """Values of an engine's gauges; they stand still while something holds the engine up."""

    running: int
    waiting: int
    kv_usage: float
    """Share of the KV blocks held by requests, 0 to 1."""
    deferred: int = 0
    """Waiting requests that wait for the KV cache of another server; part of `waiting`."""
    asleep: bool = False
    """Whether the engine is in sleep mode."""
