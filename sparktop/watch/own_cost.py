"""The CPU and memory use of this process, measured while it watches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sparktop.store import Store

if TYPE_CHECKING:
    import psutil

SELF_EVERY_S = 2.0
"""Seconds between two measurements."""


async def measure_self(store: Store, sleep: Callable[[float], Awaitable[object]]) -> None:
    """Record the CPU and memory use of this process in the store every `SELF_EVERY_S` seconds, for ever."""
    import psutil  # late: it takes longer to load than a picture to draw

    process = psutil.Process()
    process.cpu_percent(None)  # the first call has nothing to compare with and returns 0
    while True:
        await sleep(SELF_EVERY_S)
        store.measure_self(*_own_cost(process))


def _own_cost(process: psutil.Process) -> tuple[float | None, int | None]:
    """Return the percent of one core and the resident bytes of a process; None for both if not readable."""
    import psutil

    try:
        with process.oneshot():
            return process.cpu_percent(None), process.memory_info().rss
    except psutil.Error:  # /proc may be hidden from us
        return None, None
