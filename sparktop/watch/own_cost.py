"""The cost of this process while it watches: its CPU and memory use, and pauses of its garbage collector.

Values have no cycles of references, so that nearly all is freed without a collection. What is left are errors
of network code: a few hundred objects for each poll of a server that does not answer. Python collects after
700 new objects, with 500 servers several times a second, and visits each time objects that are freed a second
later anyway: this took a tenth of all CPU time. So with many servers it collects by the clock, or when there
are far more new objects than freed ones.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count

from sparktop.model.targets import PrometheusTarget
from sparktop.store import Store

SELF_EVERY_S = 2.0
"""Seconds between two measurements."""
MANY = 64
"""From so many sources on, a full collection of garbage takes longer than a key may wait."""
COLLECT_EVERY_S = 60.0
"""Seconds between two collections of what was made since the last one, with many sources."""
_ALL_EVERY = 15
"""So many of these, and then one that visits all objects: 0.2 s with 500 servers."""
_SELDOM = (400_000, 2)
"""By how many objects more must have been made than freed for a collection before its time, and how many such
collections come before one that also visits what survived them. Between two drawings 35,000 come and go, and
8,000 a second stay with 500 servers: until old pictures are compressed, and in histories."""


async def measure_self(store: Store, sleep: Callable[[float], Awaitable[object]]) -> None:
    """Record the CPU and memory use of this process in the store every `SELF_EVERY_S` seconds, for ever."""
    import psutil  # late: the first picture does not wait for it

    process = psutil.Process()
    process.cpu_percent()  # counts from here
    while True:
        await sleep(SELF_EVERY_S)
        resident_bytes = None
        with suppress(psutil.Error):  # /proc may be hidden from this process
            resident_bytes = process.memory_info().rss
        store.measure_self(process.cpu_percent(), resident_bytes)


def return_memory() -> None:
    """Return freed memory to the system, where the C library is glibc's, which keeps it otherwise.

    Pages of 65 kB and packed pictures come and go among values that stay.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _may_be_many(store: Store) -> bool:
    return any(isinstance(one, PrometheusTarget) for one in store.targets())


async def maintain_memory(store: Store, sleep: Callable[[float], Awaitable[object]]) -> None:
    """Return freed memory each minute; with many sources also collect garbage then, and rarely between.

    How many a Prometheus brings is not known in the first minute.
    """
    usual = gc.get_threshold()
    try:
        for turn in count(1):
            many = store.size() >= MANY or (turn == 1 and _may_be_many(store))
            gc.set_threshold(*(_SELDOM if many else usual[:2]), usual[2])
            await sleep(COLLECT_EVERY_S)
            if many:
                gc.collect(2 if turn % _ALL_EVERY == 0 else 1)
            return_memory()
    finally:
        gc.set_threshold(*usual)
