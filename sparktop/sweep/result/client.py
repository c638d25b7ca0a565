"""Part of a result file for the load generator: its own speed, and whether it can be trusted."""

from __future__ import annotations

from typing import Literal

from sparktop.sweep.result.parts import Number, Part, Text


class LoopLag(Part):
    """How late the timers of the load generator's event loop fired, in milliseconds."""

    mean: Number = None
    p50: Number = None
    p99: Number = None
    max: Number = None


class ClientResult(Part):
    """The load generator's own speed during a sweep, and whether its measurements can be trusted."""

    loop: Literal["uvloop", "asyncio"] | None = None
    cpu_percent: Number = None
    loop_lag_ms: LoopLag | None = None
    connect_ms: Number = None
    trustworthy: bool | None = None
    reasons: tuple[Text, ...] = ()
