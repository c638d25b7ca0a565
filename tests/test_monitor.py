"""The monitor: from targets to readings in the store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from sparktop.discovery import Found
from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.router import LITELLM, RouterSample
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch
from sparktop.monitor import DISCOVER_AGAIN_S, SELF_EVERY_S, Monitor, RealWays, UnsupportedSource
from sparktop.sources.source import Reading, Source
from sparktop.store import Store


class FakeSource:
    """Answers at once, and knows who it is after its first answer."""

    def __init__(self, name: str, reading: Callable[[], Reading], identity: object) -> None:
        """Answer with what `reading` gives."""
        self.name = name
        self.identity: object = None
        self.closed = False
        self._reading = reading
        self._then = identity

    async def poll(self, deadline_s: float) -> Reading:  # noqa: ARG002 - the protocol's
        """Answer."""
        self.identity = self._then
        return self._reading()

    async def close(self) -> None:
        """Note that it was closed."""
        self.closed = True


@dataclass
class FakeWays:
    """Sources without I/O."""

    found: list[Found] = field(default_factory=list)
    """What each look of discovery finds, first to last."""
    looked: list[list[str]] = field(default_factory=list)
    made: list[FakeSource] = field(default_factory=list)
    groups: list[list[str]] = field(default_factory=list)

    def modules(self, watch: Watch) -> Sequence[str]:  # noqa: ARG002 - the protocol's
        """Name nothing: these sources need nothing."""
        return ()

    def backends(self, targets: Sequence[BackendTarget]) -> Sequence[Source]:
        """Give sources whose lane runs one request."""
        self.groups.append([target.name for target in targets])
        identity = EngineIdentity("0.32.0", "m", 4096)
        return [self._make(target.name, _engine_sample, identity) for target in targets]

    def node(self, target: NodeTarget) -> Source:
        """Give a source of a machine of which nothing is known."""
        return self._make(target.name, lambda: NodeSample(time.monotonic()), NodeIdentity(os="Linux"))

    def routers(self, targets: Sequence[RouterTarget]) -> Sequence[Source]:
        """Give sources of routers that tell no more than that they are alive."""
        return [self._make(target.name, _router_sample, None) for target in targets]

    async def discover(self, hosts: Sequence[str]) -> Found:
        """Find what the test put there."""
        self.looked.append(list(hosts))
        return self.found.pop(0)

    def _make(self, name: str, reading: Callable[[], Reading], identity: object) -> FakeSource:
        source = FakeSource(name, reading, identity)
        self.made.append(source)
        return source


def _engine_sample() -> EngineSample:
    return EngineSample(time.monotonic(), "vllm", (LaneSample("0", running=1.0),), models=("m",))


def _router_sample() -> RouterSample:
    return RouterSample(time.monotonic(), LITELLM, alive=True)


class WatchedStore(Store):
    """A store that tells when something reached it."""

    def __init__(self, watch: Watch) -> None:
        """Keep what `watch` says."""
        self.changed = asyncio.Event()
        super().__init__(watch)

    def accept(self, *args: object, **named: object) -> None:
        """Take a reading, and tell."""
        super().accept(*args, **named)  # type: ignore[arg-type]  # passed on as it came
        self.changed.set()

    def measure_self(self, cpu_percent: float | None, rss_bytes: int | None) -> None:
        """Take our own cost, and tell."""
        super().measure_self(cpu_percent, rss_bytes)
        self.changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds; the test's timeout ends it otherwise."""
        while not holds():
            self.changed.clear()
            await self.changed.wait()

    def backend(self, name: str) -> BackendView:
        """Give a backend as it is now."""
        return next(view for view in self.snapshot().backends if view.name == name)


class Sleeper:
    """A sleep that ends when the test says so."""

    def __init__(self) -> None:
        """Start with nobody asleep."""
        self.asleep: list[tuple[float, asyncio.Event]] = []
        self.fell_asleep = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        """Sleep until woken."""
        alarm = asyncio.Event()
        self.asleep.append((seconds, alarm))
        self.fell_asleep.set()
        await alarm.wait()

    async def wake(self, seconds: float) -> None:
        """Wake the first that sleeps for `seconds`, once there is one."""
        while not (found := [entry for entry in self.asleep if entry[0] == seconds]):
            self.fell_asleep.clear()
            await self.fell_asleep.wait()
        self.asleep.remove(found[0])
        found[0][1].set()


B, C, D = (BackendTarget(name, f"http://{name}:8000") for name in "bcd")


async def test_readings_and_identities_reach_the_store() -> None:
    """Backends and nodes are polled at once, and who they are follows with the reading."""
    watch = Watch(nodes=(NodeTarget("b"),), backends=(B,))
    store, ways = WatchedStore(watch), FakeWays()
    monitor = Monitor(watch, store, ways=ways, sleep=Sleeper())
    await monitor.start()
    await store.until(lambda: store.backend("b").ok and store.snapshot().nodes[0].ok)
    await monitor.stop()
    assert store.backend("b").version == "0.32.0"
    assert store.snapshot().nodes[0].identity.os == "Linux"
    assert all(source.closed for source in ways.made)


async def test_backends_of_one_router_are_one_group() -> None:
    """What is judged against each other is read at the same instants."""
    watch = Watch(backends=(B, C, D), routers=(RouterTarget("proxy", "http://p", backends=("b", "d")),))
    ways = FakeWays()
    monitor = Monitor(watch, Store(watch), ways=ways, sleep=Sleeper())
    await monitor.start()
    await monitor.stop()
    assert ways.groups == [["b", "d"], ["c"]]


async def test_routers_are_polled_a_fifth_as_often() -> None:
    """A router's first answer reaches the store, and its interval is five times that of a backend."""
    watch = Watch(backends=(B,), routers=(RouterTarget("b", "http://p:4000"),), interval_s=0.5)
    store, ways = WatchedStore(watch), FakeWays()
    monitor = Monitor(watch, store, ways=ways, sleep=Sleeper())
    await monitor.start()
    await store.until(lambda: store.snapshot().routers[0].ok and store.backend("b").ok)
    intervals = {group.name: group.interval_s for group, _ in monitor._groups}
    await monitor.stop()
    assert intervals["routers"] == 2.5
    assert all(source.closed for source in ways.made)
    assert "sparktop.sources.router" in RealWays().modules(watch)
    assert "sparktop.sources.router" not in RealWays().modules(Watch())


async def test_routers_that_discovery_finds_are_polled_once() -> None:
    """A found router is watched like a configured one, unless it is configured already."""
    known = RouterTarget("proxy", "http://p:4000")
    watch = Watch(routers=(known,), discover=("spark",))
    found = RouterTarget("spark:4000", "http://spark:4000")
    ways = FakeWays([Found(backends=(B,), routers=(found, RouterTarget("p:4000", known.url))), Found()])
    store = WatchedStore(watch)
    monitor = Monitor(watch, store, ways=ways, sleep=Sleeper())
    await monitor.start()
    await store.until(lambda: [one.ok for one in store.snapshot().routers] == [True, True])
    await monitor.stop()
    assert [one.name for one in store.snapshot().routers] == ["proxy", "spark:4000"]


async def test_discovery_looks_again_until_something_is_there() -> None:
    """A host where nothing listens is tried again every 30 s; what is found is watched, and once."""
    watch = Watch(backends=(B,), discover=("spark", "other"))
    there = BackendTarget("spark", "http://spark:8000", engine="vllm")
    again = BackendTarget("other name of b", B.url)
    late = BackendTarget("other", "http://other:8000")
    ways = FakeWays(
        [Found(notes=("nothing listens there",)), Found(backends=(there, again)), Found(backends=(late,))]
    )
    store, sleeper = WatchedStore(watch), Sleeper()
    monitor = Monitor(watch, store, ways=ways, sleep=sleeper)
    await monitor.start()
    await sleeper.wake(DISCOVER_AGAIN_S)
    await store.until(lambda: any(view.name == "spark" and view.ok for view in store.snapshot().backends))
    await sleeper.wake(DISCOVER_AGAIN_S)
    await store.until(lambda: any(view.name == "other" and view.ok for view in store.snapshot().backends))
    await monitor.stop()
    assert ways.looked == [["spark", "other"], ["spark", "other"], ["other"]]
    assert [view.name for view in store.snapshot().backends] == ["b", "spark", "other"]
    assert [event.message for event in store.snapshot().events] == ["nothing listens there"]


async def test_own_cost_is_measured() -> None:
    """CPU and resident memory of this process reach the store."""
    store, sleeper = WatchedStore(Watch()), Sleeper()
    monitor = Monitor(Watch(), store, ways=FakeWays(), sleep=sleeper)
    await monitor.start()
    await sleeper.wake(SELF_EVERY_S)
    await store.until(lambda: store.snapshot().self_cost.rss_bytes is not None)
    await monitor.stop()
    cost = store.snapshot().self_cost
    assert (cost.rss_bytes or 0) > 2**20
    assert cost.cpu_percent is not None


async def test_the_interval_reaches_every_group_and_the_store() -> None:
    """Nodes are asked half as often as backends; the store must know what a missed sample is."""
    watch = Watch(nodes=(NodeTarget("n"),), backends=(B,))
    store = Store(watch)
    monitor = Monitor(watch, store, ways=FakeWays(), sleep=Sleeper())
    await monitor.start()
    monitor.set_interval(0.25)
    intervals = [group.interval_s for group, _ in monitor._groups]
    await monitor.stop()
    assert intervals == [0.25, 0.5]
    assert (monitor.interval_s, store.interval_s) == (0.25, 0.25)
    with pytest.raises(ValueError, match="above 0"):
        monitor.set_interval(0)


async def test_a_node_behind_an_agent_says_that_it_cannot_be_read() -> None:
    """This version has no agents: the panel says so instead of staying empty."""
    source = RealWays().node(NodeTarget("n", via="agent", url="http://n:9750"))
    reading = await source.poll(1.0)
    await source.close()
    assert isinstance(source, UnsupportedSource)
    assert isinstance(reading, Failure)
    assert reading.kind is FailureKind.UNSUPPORTED
    assert reading.message == 'via = "agent" is not supported by this version'


async def test_a_part_that_breaks_is_told_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """A fault in discovery is logged, becomes an event, and backends are still polled."""
    watch = Watch(backends=(B,), discover=("spark",))
    store, ways = WatchedStore(watch), FakeWays()  # nothing to find: its list is empty and raises
    monitor = Monitor(watch, store, ways=ways, sleep=Sleeper())
    await monitor.start()
    await store.until(lambda: store.backend("b").ok)
    await monitor.stop()
    assert "IndexError" in store.snapshot().events[0].message
    assert "a part of the monitor ended" in caplog.text


async def test_stop_before_start_is_done_leaves_nothing_running() -> None:
    """Quitting while the imports are still running starts no polling afterwards."""
    ways = FakeWays()
    monitor = Monitor(Watch(backends=(B,)), Store(Watch(backends=(B,))), ways=ways, sleep=Sleeper())
    starting = asyncio.ensure_future(monitor.start())
    await asyncio.sleep(0)
    await monitor.stop()
    await starting
    assert ways.groups == []


def test_importing_the_monitor_loads_nothing_heavy() -> None:
    """The first paint need not wait for HTTP clients, psutil or pydantic."""
    heavy = ["aiohttp", "httpx", "psutil", "pynvml", "pydantic", "textual", "rich", "plotext"]
    program = (
        "import sys, sparktop.monitor, sparktop.store; "
        f"sys.exit(' '.join(name for name in {heavy!r} if name in sys.modules) or None)"
    )
    done = subprocess.run(  # noqa: S603 - our own interpreter with a fixed program
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
