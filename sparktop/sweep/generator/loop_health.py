"""The health of the load generator during a load run: lag of its event loop, and its CPU use."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time

from sparktop.sweep.generator.wire import ClientHealth, LagFigures
from sparktop.sweep.terms.statistics import quantile

_EVERY_S = 0.01
"""Interval of the lag samples in seconds: a hundred per second use 0.1 % of a core."""
TIMER_MS = 1.0
"""Part of the lag in milliseconds that is ignored, because event loops round their timers to milliseconds."""
_SCHEDSTAT = Path("/proc/thread-self/schedstat")
"""Nanoseconds on a core, nanoseconds of waiting for one, and number of times on a core, of this thread."""


class LoopHealth:
    """Samples the lag of the running event loop, and measures CPU use, from construction until `stop`."""

    def __init__(self) -> None:
        """Start sampling."""
        self._loop = asyncio.get_running_loop()
        self._lags_ms: list[float] = []
        self._began = perf_counter()
        self._cpu_began_s = process_time()
        self._waits_began = _core_waits()
        self._due = 0.0
        self._timer = self._next()

    def stop(self, connect_ms: Sequence[float]) -> ClientHealth:
        """Stop sampling; return the health since construction.

        `connect_ms` has the milliseconds that it took to open each connection.
        """
        self._timer.cancel()
        wall_s = perf_counter() - self._began
        cpu_s = process_time() - self._cpu_began_s
        return ClientHealth(
            loop=loop_name(),
            cpu_percent=100 * cpu_s / wall_s if wall_s > 0 else 0.0,
            loop_lag_ms=lag_figures(self._lags_ms),
            connect_ms=statistics.fmean(connect_ms) if connect_ms else None,
            core_wait_ms=_mean_wait_ms(self._waits_began, _core_waits()),
        )

    def _next(self) -> asyncio.TimerHandle:
        self._due = perf_counter() + _EVERY_S
        return self._loop.call_later(_EVERY_S, self._sample)

    def _sample(self) -> None:
        self._lags_ms.append(max(0.0, 1000 * (perf_counter() - self._due) - TIMER_MS))
        self._timer = self._next()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of uvloop's event loops; None if uvloop is not installed.

    Timestamps of a burst of 256 requests are up to 2 ms late with uvloop, up to 5 ms with asyncio.
    """
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def loop_name() -> str:
    """Return "uvloop" or "asyncio", depending on the running loop."""
    module = type(asyncio.get_running_loop()).__module__
    return "uvloop" if module.startswith("uvloop") else "asyncio"


def lag_figures(lags_ms: Sequence[float]) -> LagFigures | None:
    """Return figures of the lags, which are in milliseconds; None without lags."""
    if not lags_ms:
        return None
    ordered = sorted(lags_ms)
    return LagFigures(
        mean=statistics.fmean(ordered),
        p50=quantile(ordered, 0.5),
        p99=quantile(ordered, 0.99),
        max=ordered[-1],
        p90=quantile(ordered, 0.9),
    )


def _core_waits() -> tuple[int, int] | None:
    """Return (nanoseconds of waiting for a core, times on a core) of this thread; None if not counted."""
    try:
        _, waited, times = _SCHEDSTAT.read_text().split()
        return int(waited), int(times)
    except (OSError, ValueError):
        return None


def _mean_wait_ms(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    if before is None or after is None or after[1] <= before[1]:
        return None
    return (after[0] - before[0]) / (after[1] - before[1]) / 1e6
