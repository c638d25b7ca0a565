"""Figures of everything watched together: totals, and the cost of watching."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_NO_NUMBERS: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SelfView:
    """What watching costs."""

    cpu_percent: float | None = None
    """Of one core."""
    rss_bytes: int | None = None
    terminal_bytes_per_s: float | None = None
    """None when nothing draws."""
    poll_ms: Mapping[str, float] = field(default_factory=lambda: _NO_NUMBERS)


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals over all backends; None where no backend reports the figure."""

    generation_tps: float | None = None
    prompt_tps: float | None = None
    running: float | None = None
    waiting: float | None = None


NO_COST, NO_TOTALS = SelfView(), Totals()
"""Nothing known."""
