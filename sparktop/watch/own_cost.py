"""The cost of this process while it watches: its CPU and memory use, and pauses of its garbage collector.

A full collection visits every object: 0.1 s with 300 servers, several times a minute, in which no key is
answered. Nearly all of these objects live for long. So with many servers, what has survived a full
collection is left out of the next ones; of that, only cycles of references wait longer to be freed.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sparktop.store import Store

if TYPE_CHECKING:
    import psutil

SELF_EVERY_S = 2.0
"""Seconds between two measurements."""
MANY = 64
"""From so many sources on, a full collection of garbage takes longer than a key may wait."""
COLLECT_ALL_EVERY_S = 900.0
"""Seconds until a full collection again visits all objects."""
_RARELY = 50
"""Collections of the middle generation between two full ones, with many sources. With 1000, the cycles of
network code took 50 MiB more for 500 servers."""
_OLDEST = 2
"""Generation that a full collection collects, the last one."""


async def measure_self(store: Store, sleep: Callable[[float], Awaitable[object]]) -> None:
    """Record the CPU and memory use of this process in the store every `SELF_EVERY_S` seconds, for ever."""
    import psutil  # late: it takes longer to load than a picture to draw

    process = psutil.Process()
    process.cpu_percent(None)  # the first call has nothing to compare with and returns 0
    while True:
        await sleep(SELF_EVERY_S)
        store.measure_self(*_own_cost(process))


async def keep_pauses_short(store: Store, sleep: Callable[[float], Awaitable[object]]) -> None:
    """With many sources, make full collections of garbage rare, and leave what survives one out of the next.

    Values have no cycles, so that nearly all is freed without a collection.
    """
    usual = gc.get_threshold()

    def leave_out(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == _OLDEST and len(store.targets()) >= MANY:
            gc.freeze()

    gc.callbacks.append(leave_out)
    try:
        while True:
            many = len(store.targets()) >= MANY
            gc.set_threshold(*usual[:2], _RARELY if many else usual[2])
            if many:
                gc.unfreeze()
            await sleep(COLLECT_ALL_EVERY_S)
    finally:
        gc.callbacks.remove(leave_out)
        gc.set_threshold(*usual)


def _own_cost(process: psutil.Process) -> tuple[float | None, int | None]:
    """Return the percent of one core and the resident bytes of a process; None for both if not readable."""
    import psutil

    try:
        with process.oneshot():
            return process.cpu_percent(None), process.memory_info().rss
    except psutil.Error:  # /proc may be hidden from us
        return None, None
