"""The monitor: from targets to readings in the store; routers, nodes, memory that falls."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import LITELLM, Deployment, RouterSample
from sparktop.model.targets import (
    ARGUMENTS,
    SEARCH_ELSEWHERE_S,
    SEARCH_HERE_S,
    BackendTarget,
    NodeTarget,
    RouterTarget,
    Watch,
)
from sparktop.sources.source import PollResult, Source
from sparktop.watch import listed, monitor, sparkrun
from sparktop.watch.discovery import Found
from sparktop.watch.monitor import (
    TRY_AGAIN_S,
    Monitor,
)
from tests.watch.monitor_fakes import FakeSource, FakeWays, Sleeper, WatchedStore, watching

B = BackendTarget("b", "http://b:8000")


async def test_readings_and_identities_reach_the_store() -> None:
    """Backends and nodes are polled at once, and their identities follow with the readings."""
    watch = Watch(nodes=(NodeTarget("b"),), backends=(B,))
    ways = FakeWays()
    async with watching(watch, ways) as (_, store):
        await store.until(lambda: store.backend("b").ok and store.snapshot().nodes[0].ok)
    assert store.backend("b").version == "0.32.0"
    assert store.snapshot().nodes[0].identity.os == "Linux"


async def test_discovery_looks_again_until_something_is_there() -> None:
    """A host where nothing listens is tried again every 30 s; what is found is watched, and once."""
    watch = Watch(backends=(B,), discover=("spark", "other"))
    there = BackendTarget("spark", "http://spark:8000", engine="vllm")
    again = BackendTarget("other name of b", B.url)
    late = BackendTarget("other", "http://other:8000")
    ways = FakeWays(
        [Found(notes=("nothing listens there",)), Found(backends=(there, again)), Found(backends=(late,))]
    )
    sleeper = Sleeper()
    async with watching(watch, ways, sleeper) as (_, store):
        await sleeper.wake(SEARCH_ELSEWHERE_S)
        await store.until(lambda: any(view.name == "spark" and view.ok for view in store.snapshot().backends))
        await sleeper.wake(SEARCH_ELSEWHERE_S)
        await store.until(lambda: any(view.name == "other" and view.ok for view in store.snapshot().backends))
    assert ways.looked == [["spark", "other"], ["spark", "other"], ["other"]]
    assert [view.name for view in store.snapshot().backends] == ["b", "spark", "other"]
    assert [event.message for event in store.snapshot().events] == ["nothing listens there"]


async def test_a_part_that_breaks_is_told_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """A fault in discovery is logged and becomes an event; backends are polled, and it is tried again."""
    watch = Watch(backends=(B,), discover=("spark",))
    ways, sleeper = FakeWays(), Sleeper()  # nothing to find: its list is empty and raises
    async with watching(watch, ways, sleeper) as (_, store):
        await store.until(lambda: store.backend("b").ok)
        ways.found.append(Found(backends=(BackendTarget("spark", "http://spark:8000", engine="vllm"),)))
        await sleeper.wake(monitor._PAUSES_S[0])
        await store.until(lambda: any(view.name == "spark" and view.ok for view in store.snapshot().backends))
    assert "IndexError (see the log); it goes on in" in store.snapshot().events[0].message
    assert "a part of the monitor ended" in caplog.text


async def test_a_list_that_breaks_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in following target files leaves sparkrun's followed, until the monitor stops."""
    ended = asyncio.Event()

    async def break_off(*_: object) -> None:
        raise IndexError

    async def follow(*_: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(listed, "follow_files", break_off)
    monkeypatch.setattr(sparkrun, "follow_sparkrun", follow)
    watch = Watch(backends=(B,), target_files=("a.json",), sparkrun=True)
    async with watching(watch, FakeWays()) as (_, store):
        await store.until(lambda: bool(store.snapshot().events))
        assert not ended.is_set()
    assert ended.is_set()


async def test_a_target_that_is_a_router_is_watched_as_one() -> None:
    """LiteLLM given as TARGET leaves the list of servers and comes into that of routers, at its URL."""
    proxy = BackendTarget("proxy:4000", "http://proxy:4000")
    watch = Watch(backends=(B, proxy), source=ARGUMENTS)
    ways = FakeWays()
    ways.readings["proxy:4000"] = lambda: Failure(FailureKind.ROUTER, "is a router", 1.0)
    async with watching(watch, ways) as (_, store):
        await store.until(lambda: any(view.ok for view in store.snapshot().routers))
        picture = store.snapshot()
    assert [view.name for view in picture.backends] == ["b"]
    assert [(view.name, view.url) for view in picture.routers] == [("proxy:4000", "http://proxy:4000")]


# The monitor and groups: a faster pace while a balance is judged, and servers that a router names.


def loaded(at: float, load: float = 8.0) -> EngineSample:
    return EngineSample(
        at, "vllm", (LaneSample("0", running=load, waiting=0.0),), models=("m",), answer_ms=2.0
    )


@dataclass
class ListingWays(FakeWays):
    """Routers that name servers, some of which answer."""

    deployments: tuple[Deployment, ...] = ()
    answering: set[str] = field(default_factory=set)
    """URLs of servers that are up."""
    fronts: set[str] = field(default_factory=set)
    """URLs where a router answers instead of a server."""
    asked: list[str] = field(default_factory=list)

    def backends(self, targets: Sequence[BackendTarget]) -> Sequence[Source]:
        """Return sources that answer, or refuse."""
        made: list[Source] = []
        for target in targets:
            self.asked.append(target.url)
            source = FakeSource(target.name, self._reading_of(target.url), None)
            self.made.append(source)
            made.append(source)
        return made

    def routers(self, targets: Sequence[RouterTarget]) -> Sequence[Source]:
        """Return sources of routers that list their deployments."""
        return [FakeSource(one.name, self._listing, None) for one in targets]

    def _listing(self) -> RouterSample:
        return RouterSample(time.monotonic(), LITELLM, alive=True, deployments=self.deployments)

    def _reading_of(self, url: str) -> Callable[[], PollResult]:
        def read() -> PollResult:
            if url in self.answering:
                return loaded(time.monotonic())
            if url in self.fronts:
                return Failure(FailureKind.ROUTER, "is a router (vllm-router)", time.monotonic())
            return Failure(FailureKind.REFUSED, "nothing listens there", time.monotonic())

        return read


LISTED = (
    Deployment("spark-1", "http://10.0.0.1:8000/v1", "m"),
    Deployment("spark-2", "http://10.0.0.2:8000/v1", "m"),
    Deployment("cloud", "https://api.example.com/v1", "m"),
)


@pytest.mark.outside
async def test_servers_that_a_router_names_are_watched_where_they_answer() -> None:
    """Without backends in the config, those that answer are watched and judged, others named and retried."""
    watch = Watch(routers=(RouterTarget("proxy", "http://10.0.0.9:4000"),))
    ways = ListingWays(deployments=LISTED, answering={"http://10.0.0.1:8000"})
    sleeper = Sleeper()
    async with watching(watch, ways, sleeper) as (monitor, store):
        await store.until(lambda: [one.name for one in store.snapshot().backends if one.ok] == ["spark-1"])
        told = [event.message for event in store.snapshot().events]
        assert any("api.example.com" in one and "[[backends]]" in one for one in told)
        assert any("http://10.0.0.2:8000, which is not watched: nothing listens there" in one for one in told)
        assert not any("example" in url for url in ways.asked)
        running = len(monitor._tasks)
        monitor._try_behind_router("proxy", ways._listing())
        assert len(monitor._tasks) == running, "what did not answer a moment ago is not asked again yet"
        ways.answering.add("http://10.0.0.2:8000")
        await sleeper.wake(TRY_AGAIN_S)
        monitor._try_behind_router("proxy", ways._listing())
        await store.until(lambda: len([one for one in store.snapshot().backends if one.ok]) == 2)
        assert store.snapshot().routers[0].backends == ("spark-1", "spark-2")
        monitor._try_behind_router("proxy", ways._listing())
        assert ways.asked.count("http://10.0.0.1:8000") == 2


async def test_a_server_that_starts_on_this_machine_is_found_without_a_new_start() -> None:
    """Its ports are tried more often than those of other machines; then nothing is searched any more."""
    ways = FakeWays([Found(), Found(backends=(BackendTarget("here", "http://127.0.0.1:8080"),))])
    sleeper = Sleeper()
    async with watching(Watch(discover=("127.0.0.1",)), ways, sleeper) as (_, store):
        await sleeper.wake(SEARCH_HERE_S)
        await store.until(lambda: bool(store.snapshot().backends) and store.backend("here").ok)
    assert store.snapshot().searching == ()


# The monitor and its nodes: ways to them, those that discovery finds, and their settings.

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
    sleeper = Sleeper()
    async with watching(watch, ways, sleeper) as (_, store):
        await store.until(lambda: [one.ok for one in store.snapshot().nodes] == [True])
        assert store.snapshot().searching == ("spark",)
        await sleeper.wake(SEARCH_ELSEWHERE_S)
        await store.until(lambda: bool(store.snapshot().backends) and store.backend("spark").ok)
    assert [one.name for one in ways.made] == ["spark", "spark"]
    assert store.backend("spark").nodes == ("spark",)
    assert loaded == [(), (AGENT,)]


async def test_the_agent_of_this_machine_is_not_watched_beside_it() -> None:
    """A machine that is read directly is not read through its agent too; its backends belong to it."""
    watch = Watch(nodes=(NodeTarget("here"),), discover=("127.0.0.1",))
    agent = NodeTarget("localhost", via="agent", url="http://127.0.0.1:9750")
    there = BackendTarget("localhost", "http://127.0.0.1:8000", nodes=("localhost",))
    ways = FakeWays([Found(backends=(there,), nodes=(agent,))])
    async with watching(watch, ways) as (_, store):
        await store.until(lambda: bool(store.snapshot().backends) and store.backend("localhost").ok)
    assert [one.name for one in store.snapshot().nodes] == ["here"]
    assert store.backend("localhost").nodes == ("here",)


async def test_process_tables_are_read_where_somebody_looks() -> None:
    """The tables of nodes on the screen are requested, those of others are not, also of nodes found later."""
    watch = Watch(nodes=(NodeTarget("n"), NodeTarget("m")), discover=("spark",))
    ways, sleeper, store = FakeWays([Found(), Found(nodes=(AGENT,))]), Sleeper(), WatchedStore(watch)
    monitor = Monitor(watch, store, ways=ways, sleep=sleeper)
    monitor.show_processes(["n", "spark"])
    await monitor.start()
    assert [one.show_processes for one in ways.made] == [True, False]
    await sleeper.wake(SEARCH_ELSEWHERE_S)
    await store.until(lambda: len(store.snapshot().nodes) == 3 and store.snapshot().nodes[2].ok)
    assert [one.show_processes for one in ways.made] == [True, False, True]
    monitor.show_processes([])
    assert [one.show_processes for one in ways.made] == [False, False, False]
    await monitor.stop()


# Memory that falls steeply is read several times a second, and no longer than that.


@pytest.mark.outside
def test_threads_of_a_monitor_share_one_memory_pool() -> None:
    """A thread that begins after it takes no pool of glibc for itself, as others do."""
    code = """
import ctypes, os, sys, threading
from sparktop.watch.monitor import share_memory_pool
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
if "shared" in sys.argv:
    share_memory_pool()
began, end = threading.Barrier(3), threading.Event()
def allocate():
    block = bytes(100_000)
    began.wait()
    end.wait()
for _ in range(2):
    threading.Thread(target=allocate).start()
began.wait()
stream = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, stream)
libc.fflush(stream)
end.set()
"""
    shared, apart = (
        subprocess.run(  # noqa: S603 - this interpreter, a script of this file
            [sys.executable, "-c", code, word], capture_output=True, text=True, check=True, timeout=40
        ).stdout.count("<heap nr=")
        for word in ("shared", "apart")
    )
    assert shared == 1 < apart
