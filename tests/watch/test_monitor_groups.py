"""The monitor and groups: a faster pace while a balance is judged, and servers that a router names."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import LITELLM, Deployment, RouterSample
from sparktop.model.targets import BackendTarget, RouterTarget, Watch
from sparktop.sources.source import Reading, Source
from sparktop.store import SourceKind, Store
from sparktop.watch.monitor import DISCOVER_AGAIN_S, JUDGE_EVERY_S, Monitor
from tests.watch.monitor_fakes import FakeSource, FakeWays, Sleeper, WatchedStore

PAIR = tuple(BackendTarget(name, f"http://{name}:8000") for name in "ab")
PROXY = RouterTarget("proxy", "http://10.0.0.9:4000", backends=("a", "b"))


def loaded(at: float, load: float = 8.0) -> EngineSample:
    return EngineSample(
        at, "vllm", (LaneSample("0", running=load, waiting=0.0),), models=("m",), answer_ms=2.0
    )


@dataclass
class Paced:
    """A started monitor of two backends, and readings handed to it as its poll groups would."""

    watch: Watch = field(default_factory=lambda: Watch(backends=PAIR, routers=(PROXY,)))
    at: float = field(default_factory=lambda: time.monotonic() + 60.0)

    def __post_init__(self) -> None:
        self.store = Store(self.watch, clock=lambda: self.at)
        self.monitor = Monitor(self.watch, self.store, ways=FakeWays(), sleep=Sleeper())

    @property
    def quickened(self) -> dict[str, int]:
        """Return the polls per interval of all quickened backends."""
        return {
            name: looks for group in self.monitor._backend_groups for name, looks in group.quickened.items()
        }

    def pass_time(self, seconds: int, *, load: float = 8.0, judging: bool = True) -> None:
        """Deliver a reading of each backend a second, and judge as the monitor's timer does."""
        for _ in range(seconds):
            self.at += 1.0
            for target in PAIR:
                self.monitor._deliver(SourceKind.BACKEND, target.name, loaded(self.at, load), 2.0)
            if judging:
                self.store.judge()


async def test_a_loaded_group_that_is_judged_is_polled_four_times_a_second() -> None:
    """The pace rises with the load, falls after it, and a new interval starts over."""
    paced = Paced()
    await paced.monitor.start()
    paced.pass_time(8)
    assert paced.quickened == {"a": 4, "b": 4}
    assert [group.interval_s for group in paced.monitor._backend_groups] == [1.0]
    paced.pass_time(14, load=0.0)
    assert paced.quickened == {}
    paced.pass_time(8)
    assert paced.quickened == {"a": 4, "b": 4}
    paced.monitor.set_interval(2.0)
    assert paced.quickened == {}
    paced.pass_time(2)
    assert paced.quickened == {}
    paced.pass_time(8)
    assert paced.quickened == {"a": 8, "b": 8}
    await paced.monitor.stop()


async def test_a_monitor_judges_by_its_own_timer() -> None:
    """Without any snapshot the store judges once at the start, and again whenever the timer wakes."""
    watch = Watch(backends=PAIR, routers=(PROXY,))
    sleeper, store = Sleeper(), WatchedStore(watch)
    monitor = Monitor(watch, store, ways=FakeWays(), sleep=sleeper)
    await monitor.start()
    await sleeper.until_asleep(JUDGE_EVERY_S)
    assert store.judgements == 1
    await sleeper.wake(JUDGE_EVERY_S)
    await sleeper.until_asleep(JUDGE_EVERY_S)
    assert store.judgements == 2
    await monitor.stop()


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

    def _reading_of(self, url: str) -> Callable[[], Reading]:
        def read() -> Reading:
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
    store, sleeper = WatchedStore(watch), Sleeper()
    monitor = Monitor(watch, store, ways=ways, sleep=sleeper)
    await monitor.start()
    await store.until(lambda: [one.name for one in store.snapshot().backends if one.ok] == ["spark-1"])
    told = [event.message for event in store.snapshot().events]
    assert any("api.example.com" in one and "[[backends]]" in one for one in told)
    assert any("http://10.0.0.2:8000, which is not watched: nothing listens there" in one for one in told)
    assert not any("example" in url for url in ways.asked)
    running = len(monitor._tasks)
    monitor._look_behind("proxy", ways._listing())
    assert len(monitor._tasks) == running, "what did not answer a moment ago is not asked again yet"
    ways.answering.add("http://10.0.0.2:8000")
    await sleeper.wake(DISCOVER_AGAIN_S)
    monitor._look_behind("proxy", ways._listing())
    await store.until(lambda: len([one for one in store.snapshot().backends if one.ok]) == 2)
    assert store.snapshot().routers[0].backends == ("spark-1", "spark-2")
    monitor._look_behind("proxy", ways._listing())
    assert ways.asked.count("http://10.0.0.1:8000") == 2
    await monitor.stop()
    assert all(source.closed for source in ways.made)


@pytest.mark.outside
async def test_a_router_behind_a_router_is_watched_as_one() -> None:
    """What a router lists may be another router: it becomes one, also with a configuration file."""
    watch = Watch(routers=(RouterTarget("proxy", "http://10.0.0.9:4000"),), source="sparktop.toml")
    ways = ListingWays(deployments=LISTED[:2], answering={"http://10.0.0.1:8000"})
    ways.fronts.add("http://10.0.0.2:8000")
    store = WatchedStore(watch)
    monitor = Monitor(watch, store, ways=ways, sleep=Sleeper())
    await monitor.start()
    await store.until(lambda: len([one for one in store.snapshot().routers if one.ok]) == 2)
    ways.answering.clear()  # a page that was one server's turns out to be forwarded
    ways.fronts.add("http://10.0.0.1:8000")
    await store.until(lambda: len(store.snapshot().routers) == 3)
    seen = store.snapshot()
    await monitor.stop()
    assert seen.backends == ()
    assert {one.url for one in seen.routers} == {
        f"http://10.0.0.{n}:{p}" for n, p in ((9, 4000), (1, 8000), (2, 8000))
    }


async def test_a_config_that_names_backends_is_kept_to() -> None:
    """The config's group is the group: what else the router sends to is not asked."""
    router = RouterTarget("proxy", "http://10.0.0.9:4000", backends=("a",))
    ways, store, tried = await watched_once(router)
    assert tried == set()
    assert ways.asked == ["http://10.0.0.1:8000"]
    assert [one.name for one in store.snapshot().backends] == ["a"]


async def test_what_is_watched_already_is_not_tried_again() -> None:
    """Under another name than the router's: one server, polled once."""
    ways, store, tried = await watched_once(RouterTarget("proxy", "http://10.0.0.9:4000"), also="spark-2")
    assert tried == {"http://10.0.0.2:8000"}
    assert ways.asked.count("http://10.0.0.1:8000") == 1
    assert [one.name for one in store.snapshot().backends] == ["a", "spark-2"]


async def watched_once(
    router: RouterTarget, also: str | None = None
) -> tuple[ListingWays, WatchedStore, set[str]]:
    """Watch a configured backend and a router that names it and another, until all expected answer.

    Returns the URLs that were tried, too.
    """
    watch = Watch(backends=(BackendTarget("a", "http://10.0.0.1:8000"),), routers=(router,))
    up = {"http://10.0.0.1:8000", "http://10.0.0.2:8000"}
    ways, store = ListingWays(deployments=LISTED[:2], answering=up), WatchedStore(watch)
    monitor = Monitor(watch, store, ways=ways, sleep=Sleeper())
    await monitor.start()
    expected = {"a", also} - {None}

    def all_answer() -> bool:
        seen = store.snapshot()
        return seen.routers[0].ok and {one.name for one in seen.backends if one.ok} == expected

    await store.until(all_answer)
    tried = set(monitor._tried)
    await monitor.stop()
    return ways, store, tried
