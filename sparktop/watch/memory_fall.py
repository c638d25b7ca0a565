"""Reads the memory of a node several times a second while it falls so steeply that it may soon be used up.

The last seconds before the kernel kills processes are then in the recordings.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from sparktop.model.node import MemoryReading, MemorySample, NodeSample

if TYPE_CHECKING:
    from sparktop.watch.scheduler import PollGroup

EVERY_S = 0.2
"""Seconds between two readings of a local node while its memory falls steeply."""
REMOTE_S = 0.25
"""Seconds between two polls of any other node then: agents take at most four samples a second."""
USED_UP_WITHIN_S = 60.0
"""The memory falls steeply if nothing would be left after this many seconds at the present rate."""
WINDOW_S = 5.0
"""The rate is that of the samples of this many seconds, but at least of two samples."""


@runtime_checkable
class ReadsMemory(Protocol):
    """A source of node samples that can read the memory alone."""

    async def read_memory(self, last: MemoryReading) -> MemorySample:
        """Return a reading of the memory; what only a driver reports is taken from `last`."""
        ...


class MemoryFall:
    """The recent free memory of one node."""

    def __init__(self) -> None:
        """Start without samples."""
        self._points: deque[tuple[float, int]] = deque()

    def add(self, at: float, memory: MemoryReading) -> None:
        """Add a sample of the time `at` (monotonic seconds); it is ignored unless newer than all others."""
        left = memory.headroom_bytes if memory.headroom_bytes is not None else memory.available_bytes
        points = self._points
        if left is None or (points and at <= points[-1][0]):
            return
        points.append((at, left))
        while len(points) > 2 and points[0][0] < at - WINDOW_S:  # noqa: PLR2004 - a slope needs two
            points.popleft()

    @property
    def is_steep(self) -> bool:
        """Whether the memory would be used up within `USED_UP_WITHIN_S` at its present rate."""
        if len(self._points) < 2:  # noqa: PLR2004 - a slope needs two
            return False
        (begin, first), (end, last) = self._points[0], self._points[-1]
        return first > last and last * (end - begin) <= USED_UP_WITHIN_S * (first - last)


class MemoryWatch:
    """Finds the nodes whose memory falls steeply, and reads the memory of the local node while it does."""

    def __init__(
        self, deliver: Callable[[str, MemorySample], None], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        """Pass readings of the memory, with the node's name, to `deliver`; `sleep` waits between them."""
        self._deliver = deliver
        self._sleep = sleep
        self.falling: set[str] = set()
        """Names of the nodes whose memory falls steeply and that only polls can show."""
        self._falls: dict[str, MemoryFall] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}

    def add(self, name: str, source: object, sample: NodeSample) -> bool:
        """Add a sample of the node `name`, polled from `source`; return whether `falling` has changed.

        If the memory falls steeply and `source` can read it alone, begin to do so.
        """
        fall = self._falls.setdefault(name, MemoryFall())
        for one in (*sample.missed, sample):
            fall.add(one.at, one.memory)
        before = name in self.falling
        self.falling.discard(name)
        if fall.is_steep:
            if isinstance(source, ReadsMemory):
                self._begin(name, source, sample.memory)
            else:
                self.falling.add(name)
        return before != (name in self.falling)

    def interval_s(self, name: str, usual_s: float) -> float:
        """Return the seconds between two polls of the node `name`: `usual_s`, or less if in `falling`."""
        return min(usual_s, REMOTE_S) if name in self.falling else usual_s

    def quicken(self, groups: Iterable[PollGroup]) -> None:
        """Poll the nodes in `falling` every `REMOTE_S` seconds, and the other nodes of `groups` as usual."""
        for group in groups:
            group.quicken(dict.fromkeys(self.falling, max(1, int(group.interval_s / REMOTE_S))))

    def _begin(self, name: str, source: ReadsMemory, memory: MemoryReading) -> None:
        if name not in self._reading:
            task = asyncio.get_running_loop().create_task(self._read(name, source, memory))
            self._reading[name] = task
            task.add_done_callback(lambda _: self._reading.pop(name, None))

    async def _read(self, name: str, source: ReadsMemory, memory: MemoryReading) -> None:
        """Read and deliver the node's memory until it no longer falls steeply."""
        fall = self._falls[name]
        while fall.is_steep:
            await self._sleep(EVERY_S)
            sample = await source.read_memory(memory)
            fall.add(sample.at, sample.memory)
            self._deliver(name, sample)

    async def stop(self) -> None:
        """End all readings and forget all samples."""
        tasks = list(self._reading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._falls.clear()
        self.falling.clear()
