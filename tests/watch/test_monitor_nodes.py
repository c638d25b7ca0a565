"""The monitor and its nodes: ways to them, those that discovery finds, and their settings."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.watch.discovery import Found
from sparktop.watch.monitor import DISCOVER_AGAIN_S, Monitor, RealWays, ShowsProcesses, TellsInterval
from tests.watch.monitor_fakes import FakeWays, Sleeper, WatchedStore

AGENT = NodeTarget("spark", via="agent", url="http://spark:9750")


async def test_an_agent_that_discovery_finds_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A found node is polled, its backend belongs to it, and the host is searched on for servers."""
    watch = Watch(discover=("spark",))
    late = BackendTarget("spark", "http://spark:8000", nodes=("spark",))
    ways = FakeWays([Found(nodes=(AGENT,)), Found(backends=(late,), nodes=(AGENT,))])
    loaded: list[Sequence[NodeTarget]] = []

    def modules(watch: Watch) -> Sequence[str]:
        loaded.append(watch.nodes)
        return ()

    monkeypatch.setattr(ways, "modules", modules)
    store, sleeper = WatchedStore(watch), Sleeper()
    monitor = Monitor(watch, store, ways=ways, sleep=sleeper)
    await monitor.start()
    await store.until(lambda: [one.ok for one in store.snapshot().nodes] == [True])
    assert store.snapshot().searching == ("spark",)
    await sleeper.wake(DISCOVER_AGAIN_S)
    await store.until(lambda: bool(store.snapshot().backends) and store.backend("spark").ok)
    await monitor.stop()
    assert [one.name for one in ways.made] == ["spark", "spark"]
    assert store.backend("spark").nodes == ("spark",)
    assert loaded == [(), (AGENT,)]


async def test_the_agent_of_this_machine_is_not_watched_beside_it() -> None:
    """A machine that is read directly is not read through its agent too; its backends belong to it."""
    watch = Watch(nodes=(NodeTarget("here"),), discover=("127.0.0.1",))
    agent = NodeTarget("localhost", via="agent", url="http://127.0.0.1:9750")
    there = BackendTarget("localhost", "http://127.0.0.1:8000", nodes=("localhost",))
    store = WatchedStore(watch)
    ways = FakeWays([Found(backends=(there,), nodes=(agent,))])
    monitor = Monitor(watch, store, ways=ways, sleep=Sleeper())
    await monitor.start()
    await store.until(lambda: bool(store.snapshot().backends) and store.backend("localhost").ok)
    await monitor.stop()
    assert [one.name for one in store.snapshot().nodes] == ["here"]
    assert store.backend("localhost").nodes == ("here",)


async def test_a_found_agent_of_a_known_name_keeps_its_own() -> None:
    """Two machines are never one because their names are; a configured agent is not watched twice."""
    known = NodeTarget("a", via="agent", url="http://a:9750")
    other = NodeTarget("spark", via="ssh", ssh="spark")
    watch = Watch(nodes=(known, other), discover=("a", "spark"))
    again = replace(known, name="other name of a")
    on_a = BackendTarget("x", "http://a:1", nodes=("other name of a",))
    on_spark = BackendTarget("y", "http://spark:1", nodes=("spark",))
    ways = FakeWays([Found(backends=(on_a, on_spark), nodes=(again, AGENT))])
    store = WatchedStore(watch)
    monitor = Monitor(watch, store, ways=ways, sleep=Sleeper())
    await monitor.start()
    await store.until(lambda: len(store.snapshot().backends) == 2 and store.backend("y").ok)
    await monitor.stop()
    assert [one.name for one in store.snapshot().nodes] == ["a", "spark", "spark:9750"]
    assert (store.backend("x").nodes, store.backend("y").nodes) == (("a",), ("spark:9750",))


async def test_process_tables_are_read_where_somebody_looks() -> None:
    """The tables of nodes on the screen are requested, those of others are not, also of nodes found later."""
    watch = Watch(nodes=(NodeTarget("n"), NodeTarget("m")), discover=("spark",))
    ways, sleeper, store = FakeWays([Found(), Found(nodes=(AGENT,))]), Sleeper(), WatchedStore(watch)
    monitor = Monitor(watch, store, ways=ways, sleep=sleeper)
    monitor.show_processes(["n", "spark"])
    await monitor.start()
    assert [one.show_processes for one in ways.made] == [True, False]
    await sleeper.wake(DISCOVER_AGAIN_S)
    await store.until(lambda: len(store.snapshot().nodes) == 3 and store.snapshot().nodes[2].ok)
    assert [one.show_processes for one in ways.made] == [True, False, True]
    monitor.show_processes([])
    assert [one.show_processes for one in ways.made] == [False, False, False]
    await monitor.stop()


async def test_a_node_that_hangs_delays_no_other() -> None:
    """Nodes have one group and a task each: one that never answers leaves the others to their samples."""
    watch = Watch(nodes=(NodeTarget("stuck"), NodeTarget("well")))
    ways, store = FakeWays(stuck=frozenset({"stuck"})), WatchedStore(watch)
    monitor = Monitor(watch, store, ways=ways, sleep=Sleeper())
    await monitor.start()
    await store.until(lambda: store.snapshot().nodes[1].ok)
    await monitor.stop()
    assert not store.snapshot().nodes[0].ok
    assert all(source.closed for source in ways.made)


@pytest.mark.parametrize(
    ("target", "module"),
    [
        (NodeTarget("n"), "sparktop.sources.local"),
        (AGENT, "sparktop.sources.agent"),
        (NodeTarget("n", via="ssh", ssh="n"), "sparktop.sources.ssh"),
    ],
)
async def test_each_way_to_a_node_has_its_source(target: NodeTarget, module: str) -> None:
    """Local, agent and ssh nodes get their own source, whose module was loaded beforehand."""
    ways = RealWays()
    source = ways.node(target)
    await source.close()
    assert type(source).__module__ == module
    assert isinstance(source, ShowsProcesses)
    assert isinstance(source, TellsInterval) == (target.via != "local")
    assert [one for one in ways.modules(Watch(nodes=(target,))) if one == module] == [module]
