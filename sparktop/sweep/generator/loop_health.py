"""How the generator itself fares: its event loop's lag and its share of a core, beside what it measures."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence
from time import perf_counter, process_time

from sparktop.sweep.generator.wire.messages import ClientHealth, LagFigures
from sparktop.sweep.terms.statistics import quantile

_EVERY_S = 0.01
"""A hundred looks a second cost 0.1 % of a core; the 99th percentile of a second is then one of them."""
_TIMER_MS = 1.0
"""Timers of either loop come on whole milliseconds: what is below that is no lag."""


class LoopHealth:
    """Looks at the running loop from its making until `stop`."""

    def __init__(self) -> None:
        """Begin to look."""
        self._loop = asyncio.get_running_loop()
        self._lags_ms: list[float] = []
        self._began = perf_counter()
        self._cpu_began_s = process_time()
        self._due = 0.0
        self._timer = self._next()

    def stop(self, connect_ms: Sequence[float], most_in_flight: int) -> ClientHealth:
        """End looking; give what was seen, with what the client itself knows."""
        self._timer.cancel()
        wall_s = perf_counter() - self._began
        cpu_s = process_time() - self._cpu_began_s
        return ClientHealth(
            loop=loop_name(),
            cpu_percent=100 * cpu_s / wall_s if wall_s > 0 else 0.0,
            loop_lag_ms=lag_figures(self._lags_ms),
            connect_ms=statistics.fmean(connect_ms) if connect_ms else None,
            connections=len(connect_ms),
            most_in_flight=most_in_flight,
        )

    def _next(self) -> asyncio.TimerHandle:
        self._due = perf_counter() + _EVERY_S
        return self._loop.call_later(_EVERY_S, self._look)

    def _look(self) -> None:
        self._lags_ms.append(max(0.0, 1000 * (perf_counter() - self._due) - _TIMER_MS))
        self._timer = self._next()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Give uvloop's loops where it installs: a burst of 256 is stamped 2 ms late with it, 5 without."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def loop_name() -> str:
    """Name the kind of the running loop."""
    module = type(asyncio.get_running_loop()).__module__
    return "uvloop" if module.startswith("uvloop") else "asyncio"


def lag_figures(lags_ms: Sequence[float]) -> LagFigures | None:
    """Give the figures of lags, None for none."""
    if not lags_ms:
        return None
    ordered = sorted(lags_ms)
    return LagFigures(
        mean=statistics.fmean(ordered),
        p50=quantile(ordered, 0.5),
        p99=quantile(ordered, 0.99),
        max=ordered[-1],
        count=len(ordered),
    )
