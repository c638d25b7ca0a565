"""A machine whose readings are set by the test, and a clock with timers that the test advances."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from msgspec.structs import replace

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity, NodeSample, ProcessReading, ProcessTable

TABLE = ProcessTable((ProcessReading(7, "engine", 1 << 30),), count=1, age_s=0.0)
BOOT_ID = "5f0c1c1e-0000-4000-8000-000000000001"


class Call:
    """A scheduled call of a timer."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Cancel it."""
        self.call = None


class Timers:
    """A clock that moves only when the test advances it, with the calls that are scheduled on it."""

    def __init__(self) -> None:
        self.now = 5000.0
        self._calls: list[tuple[float, int, Call]] = []
        self._order = itertools.count()

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now

    def later(self, delay_s: float, call: Callable[[], None]) -> Call:
        """Schedule `call` for `delay_s` seconds from now."""
        made = Call(call)
        heapq.heappush(self._calls, (self.now + delay_s, next(self._order), made))
        return made

    async def advance(self, seconds: float) -> None:
        """Advance the clock; make each due call at its own time and let everything run that it starts."""
        end = self.now + seconds
        while self._calls and self._calls[0][0] <= end:
            at, _, made = heapq.heappop(self._calls)
            self.now = max(self.now, at)
            if made.call is not None:
                made.call()
                await settle()
        self.now = end
        await settle()


async def settle() -> None:
    """Run the event loop until all tasks wait: no test here has a chain of more than a few steps."""
    for _ in range(20):
        await asyncio.sleep(0)


class FakeMachine:
    """A source that reads no machine: it returns samples at the clock's time, or the failure that is set."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.show_processes = False
        self.identity: NodeIdentity | None = None
        self.failure: Failure | None = None
        self.error: Exception | None = None
        self.free = asyncio.Event()
        """A reading waits for it."""
        self.free.set()
        self.taken: list[float] = []
        """When each reading began."""
        self.closed = False
        self.sample = NodeSample(0.0)
        self._clock = clock

    async def poll(self, deadline_s: float) -> NodeSample | Failure:
        """Return a sample, return the failure or raise the error, as the test has set."""
        assert deadline_s > 0
        assert not self.closed
        self.taken.append(self._clock())
        await self.free.wait()
        if self.error is not None:
            raise self.error
        if self.failure is not None:
            return self.failure
        self.identity = NodeIdentity(os="Debian", hostname="spark-a", boot_id=BOOT_ID)
        return replace(self.sample, at=self._clock(), processes=TABLE if self.show_processes else None)

    async def close(self) -> None:
        """Record the call."""
        self.closed = True


def hung(seconds: float = 12.0) -> Failure:
    """Return the failure that a source reports when the driver hangs."""
    return Failure(FailureKind.TIMEOUT, f"reading this machine has hung for {seconds:.0f} s", 0.0)
