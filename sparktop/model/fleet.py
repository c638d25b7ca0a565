"""Totals over all watched backends, and sparktop's own use of resources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from sparktop.values import dataclass

_NO_NUMBERS: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SelfView:
    """The resources that sparktop itself uses: CPU, memory, bytes to the terminal, duration of polls."""

    cpu_percent: float | None = None
    """100 is one CPU core."""
    rss_bytes: int | None = None
    terminal_bytes_per_s: float | None = None
    """Bytes per second to the terminal; None where nothing is drawn."""
    poll_ms: Mapping[str, float] = field(default_factory=lambda: _NO_NUMBERS)


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all backends: tokens per second, and running and waiting requests.

    A sum is None where no backend reports the value.
    """

    generation_tps: float | None = None
    prompt_tps: float | None = None
    running: float | None = None
    waiting: float | None = None


NO_COST, NO_TOTALS = SelfView(), Totals()
"""Values for use before the first measurement: every field is None or empty."""
