"""The monitor: from targets to readings in the store."""

from __future__ import annotations

import asyncio

import pytest

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import ARGUMENTS, BackendTarget, NodeTarget, RouterTarget, Watch
from sparktop.store import Store
from sparktop.watch.discovery import Found
from sparktop.watch.monitor import (
    DISCOVER_AGAIN_S,
    Monitor,
    RealWays,
)
from tests.watch.monitor_fakes import FakeWays, Sleeper, WatchedStore

B, C, D = (BackendTarget(name, f"http://{name}:8000") for name in "bcd")


async def test_readings_and_identities_reach_the_store() -> None:
    """Backends and nodes are polled at once, and their identities follow with the readings."""
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


async def test_a_target_that_is_a_router_is_watched_as_one() -> None:
    """LiteLLM given as TARGET leaves the list of servers and comes into that of routers, at its URL."""
    proxy = BackendTarget("proxy:4000", "http://proxy:4000")
    watch = Watch(backends=(B, proxy), source=ARGUMENTS)
    store, ways = WatchedStore(watch), FakeWays()
    ways.readings["proxy:4000"] = lambda: Failure(FailureKind.ROUTER, "is a router", 1.0)
    monitor = Monitor(watch, store, ways=ways, sleep=Sleeper())
    await monitor.start()
    await store.until(lambda: any(view.ok for view in store.snapshot().routers))
    picture = store.snapshot()
    await monitor.stop()
    assert [view.name for view in picture.backends] == ["b"]
    assert [(view.name, view.url) for view in picture.routers] == [("proxy:4000", "http://proxy:4000")]
    assert all(source.closed for source in ways.made)
