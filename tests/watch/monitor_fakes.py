"""Sources, a store and a sleep for the tests of the monitor: nothing in them reads or waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.router import LITELLM, RouterSample
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch
from sparktop.sources.source import PollResult, Source
from sparktop.store import Store
from sparktop.watch.discovery import Found
from sparktop.watch.monitor import Monitor
from sparktop.watch.ways import Ways


class FakeSource:
    """Answers at once, and has an identity after its first answer."""

    def __init__(self, name: str, reading: Callable[[], PollResult], identity: object) -> None:
        """Answer with what `reading` gives."""
        self.name = name
        self.identity: object = None
        self.closed = False
        self.show_processes = False
        self.interval_s: float | None = None
        self._reading = reading
        self._then = identity

    async def poll(self, deadline_s: float) -> PollResult:  # noqa: ARG002 - as of the class
        """Answer."""
        self.identity = self._then
        return self._reading()

    async def close(self) -> None:
        """Note that it was closed."""
        self.closed = True


class StuckSource(FakeSource):
    """Never answers."""

    async def poll(self, deadline_s: float) -> PollResult:  # noqa: ARG002 - as of the class
        """Wait until cancelled."""
        await asyncio.Event().wait()
        raise AssertionError


class Polled(FakeSource):
    """A server that runs one request, or to which nothing connects."""

    def __init__(self, target: BackendTarget, *, fails: bool) -> None:
        """Answer, or fail."""
        super().__init__(target.name, _refusal if fails else _engine_sample, None)


@dataclass
class FakeWays(Ways):
    """Sources without I/O."""

    found: list[Found] = field(default_factory=list)
    """What each search of discovery finds, first to last."""
    looked: list[list[str]] = field(default_factory=list)
    made: list[FakeSource] = field(default_factory=list)
    groups: list[list[str]] = field(default_factory=list)
    stuck: frozenset[str] = frozenset()
    """Nodes that never answer."""
    readings: dict[str, Callable[[], PollResult]] = field(default_factory=dict)
    """What backends answer that do not run one request."""
    node_reading: Callable[[], PollResult] | None = None
    """What nodes answer, if not a sample without readings."""

    def modules(self, watch: Watch) -> Sequence[str]:  # noqa: ARG002 - as of the class
        """Return no module: these sources need none."""
        return ()

    def backends(self, targets: Sequence[BackendTarget]) -> Sequence[Source]:
        """Return sources whose lane runs one request."""
        self.groups.append([target.name for target in targets])
        identity = EngineIdentity("0.32.0", "m", 4096)
        return [
            self._make(target.name, self.readings.get(target.name, _engine_sample), identity)
            for target in targets
        ]

    def node(self, target: NodeTarget) -> Source:
        """Return a source of a machine without known readings."""
        kind = StuckSource if target.name in self.stuck else FakeSource
        return self._make(target.name, self.node_reading or _node_sample, NodeIdentity(os="Linux"), kind)

    def routers(self, targets: Sequence[RouterTarget]) -> Sequence[Source]:
        """Return sources of routers that only report being alive."""
        return [self._make(target.name, _router_sample, None) for target in targets]

    async def discover(self, hosts: Sequence[str]) -> Found:
        """Return what the test put there."""
        self.looked.append(list(hosts))
        return self.found.pop(0)

    def _make(
        self,
        name: str,
        reading: Callable[[], PollResult],
        identity: object,
        kind: type[FakeSource] = FakeSource,
    ) -> FakeSource:
        source = kind(name, reading, identity)
        self.made.append(source)
        return source


def _refusal() -> Failure:
    return Failure(FailureKind.REFUSED, "nothing listens there", time.monotonic())


def _node_sample() -> NodeSample:
    return NodeSample(time.monotonic())


def _engine_sample() -> EngineSample:
    return EngineSample(
        time.monotonic(), "vllm", (LaneSample("0", running=1.0),), models=("m",), answer_ms=1.0
    )


def _router_sample() -> RouterSample:
    return RouterSample(time.monotonic(), LITELLM, alive=True)


class WatchedStore(Store):
    """A store that signals when something reached it."""

    def __init__(self, watch: Watch) -> None:
        """Keep what `watch` says."""
        self.changed = asyncio.Event()
        self.judgements = 0
        super().__init__(watch)

    def judge(self) -> None:
        """Judge, and count it."""
        super().judge()
        self.judgements += 1

    def accept(self, *args: object, **named: object) -> None:
        """Record a reading, and notify."""
        super().accept(*args, **named)  # type: ignore[arg-type]  # passed on as it came
        self.changed.set()

    def measure_self(self, cpu_percent: float | None, rss_bytes: int | None) -> None:
        """Record the program's own cost, and notify."""
        super().measure_self(cpu_percent, rss_bytes)
        self.changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds; the test's timeout ends it otherwise."""
        while not holds():
            self.changed.clear()
            await self.changed.wait()

    def backend(self, name: str) -> BackendView:
        """Return the current view of a backend."""
        return next(view for view in self.snapshot().backends if view.name == name)


class Sleeper:
    """A sleep that ends when the test says so."""

    def __init__(self) -> None:
        """Start without sleepers."""
        self.asleep: list[tuple[float, asyncio.Event]] = []
        self.fell_asleep = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        """Sleep until woken."""
        alarm = asyncio.Event()
        self.asleep.append((seconds, alarm))
        self.fell_asleep.set()
        await alarm.wait()

    async def until_asleep(self, seconds: float) -> asyncio.Event:
        """Wait until something sleeps for `seconds`, and return what wakes the first."""
        while not (found := [alarm for length, alarm in self.asleep if length == seconds]):
            self.fell_asleep.clear()
            await self.fell_asleep.wait()
        return found[0]

    async def wake(self, seconds: float) -> None:
        """Wake the first that sleeps for `seconds`, once there is one."""
        alarm = await self.until_asleep(seconds)
        self.asleep.remove((seconds, alarm))
        alarm.set()


@asynccontextmanager
async def watching(
    watch: Watch, ways: FakeWays, sleeper: Sleeper | None = None
) -> AsyncIterator[tuple[Monitor, WatchedStore]]:
    """Yield a monitor that polls these sources, and its store; all sources are closed at the end."""
    store = WatchedStore(watch)
    monitor = Monitor(watch, store, ways=ways, sleep=sleeper or Sleeper())
    await monitor.start()
    try:
        yield monitor, store
    finally:
        await monitor.stop()
    assert all(source.closed for source in ways.made)
