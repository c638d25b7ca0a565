"""The cost of this process while it watches: its CPU and memory use, and pauses of its garbage collector.

A full collection visits every object: 0.1 s with 300 servers, several times a minute, in which no key is
answered. Nearly all of these objects live for long. So with many servers, what has survived a full
collection is left out of the next ones; of that, only cycles of references wait longer to be freed.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Awaitable, Callable

from sparktop.hardware.kernel_file import read_small
from sparktop.store import Store

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
    at_s, used_s = time.monotonic(), time.process_time()
    while True:
        await sleep(SELF_EVERY_S)
        before, at_s, used_before, used_s = at_s, time.monotonic(), used_s, time.process_time()
        percent = round(100 * (used_s - used_before) / (at_s - before), 1) if at_s > before else None
        store.measure_self(percent, _resident_bytes())


def _resident_bytes() -> int | None:
    """Return the resident memory of this process in bytes; None if /proc is hidden from it."""
    pages = (read_small("/proc/self/statm") or b"").split()[1:2]
    return int(pages[0]) * resource.getpagesize() if pages else None


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
