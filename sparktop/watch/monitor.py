"""The monitor: creates the sources of everything watched, polls them, and delivers the results to the store.

Importing it is cheap: `start` loads what polls in a thread, while the first picture is drawn.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import math
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from sparktop.analysis.placement import address_of, is_same_machine, normal_host
from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import RouterSample
from sparktop.model.snapshot import NODE_INTERVALS
from sparktop.model.targets import (
    ARGUMENTS,
    BackendTarget,
    NodeTarget,
    RouterTarget,
    Watch,
    poll_groups,
    search_again_s,
)
from sparktop.model.text import clean
from sparktop.store import SourceKey, SourceKind, Store
from sparktop.watch.ranks import RankAsker
from sparktop.watch.scheduler import LoadCadence, PollGroup
from sparktop.watch.through import Through
from sparktop.watch.ways import Ways, poll_once

if TYPE_CHECKING:
    from sparktop.sources.source import PollResult, Source


_log = logging.getLogger(__name__)
ROUTER_INTERVALS = 5.0
"""The poll interval of routers in backend intervals, because routers change less often."""
TRY_AGAIN_S = 30.0
"""Seconds after which a server that a router lists and that did not answer may be tried again."""
JUDGE_EVERY_S = 1.0
"""Seconds between two calls of `Store.judge`."""
QUICKEN_EVERY_S = 1.0
"""Seconds between two updates of the groups' poll rates."""
TRY_WITHIN_S = 3.0
"""Seconds that a server listed by a router may take for its first answer."""
_PAUSES_S = (3.0, 12.0, 60.0)
"""Seconds after which a part of watching that ended by an error goes on: the first time, and so on."""
_READING = ("sparktop.watch.discovery", "sparktop.watch.state_files")
"""Modules that every watch needs, loaded in a thread."""


class Monitor:
    """Polls everything that is watched, on the running event loop."""

    def __init__(
        self,
        watch: Watch,
        store: Store,
        *,
        ways: Ways | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Prepare to watch what `watch` defines and to deliver to `store`; polling begins with `start`."""
        self._watch = watch
        self._store = store
        self._ways = ways or Ways()
        self._sleep = sleep
        self._interval_s = watch.interval_s
        self._sources: dict[SourceKey, Source] = {}
        self._identities: dict[SourceKey, object] = {}
        """The identity of each source that was delivered to the store last."""
        self._nodes: list[NodeTarget] = list(watch.nodes)
        """The configured nodes, and those that discovery found."""
        self._processes_of: frozenset[str] = frozenset()
        """Names of the nodes whose process table is on screen."""
        self._groups: list[tuple[PollGroup, float]] = []
        """Poll groups, each with its interval as a multiple of the backends' interval."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = False
        self._cadence = LoadCadence()
        self._backend_groups: list[PollGroup] = []
        self._quickened_at = -math.inf
        self._backends: dict[str, BackendTarget] = {}
        """All polled backends by name."""
        self._routers: dict[str, RouterTarget] = {}
        self.ranks = RankAsker(store, self._sources, self._spawn, sleep)
        """Asks NCCL about the ranks of a backend, on request."""
        self.through = Through(store, self._deliver, self._spawn, self._ways)
        """What is watched through a Prometheus."""
        self._tried: set[str] = set()
        """URLs listed by routers that are being tried or that failed a short time ago."""

    @property
    def interval_s(self) -> float:
        """Seconds between two polls of a backend."""
        return self._interval_s

    def set_interval(self, interval_s: float) -> None:
        """Poll backends every `interval_s` seconds from now on, nodes and routers less often.

        Raises:
            ValueError: `interval_s` is not above 0.
        """
        if not interval_s > 0:
            raise ValueError(f"a poll interval is a number of seconds above 0, not {interval_s}")
        self._interval_s = interval_s
        self._store.set_interval(interval_s)
        for group, multiple in self._groups:
            group.set_interval(interval_s * multiple)
        self._cadence.forget()
        self._set_up_nodes()

    def show_processes(self, names: Collection[str]) -> None:
        """From now on, request process tables from these nodes only; a name may be of a node found later."""
        self._processes_of = frozenset(names)
        self._set_up_nodes()

    async def start(self) -> None:
        """Load the modules that polling needs, and start to poll; do nothing if already started."""
        if self._running:
            return
        self._running = True
        share_memory_pool()
        await asyncio.to_thread(_import_modules, (*self._ways.modules(self._watch), *_READING))
        if not self._running:  # stopped while loading
            return
        from sparktop.watch.state_files import follow_announced, keep_setups, keep_starts

        watch = self._watch
        for name, targets in poll_groups(watch):
            self._poll_backends(name, targets)
        self._poll_nodes("nodes", watch.nodes)
        self._poll_routers("routers", watch.routers)
        self._keep_up(self._judge)
        for keep in (measure_self, keep_starts, keep_setups, follow_announced):
            self._keep_up(partial(keep, self._store, self._sleep))
        self._keep_up(partial(maintain_memory, self._sleep))
        if watch.events.hook or watch.events.webhook:
            from sparktop.events import deliver  # late: most starts need none of it

            self._keep_up(partial(deliver, watch.events, self._store))
        if watch.discover:
            self._keep_up(partial(self._discover, list(watch.discover)))
        self.through.start(watch.prometheus)
        self._follow_listed(watch)

    def _follow_listed(self, watch: Watch) -> None:
        ways, store, sleep = self._ways, self._store, self._sleep
        if watch.target_files:
            from sparktop.watch.listed import follow_files  # late: most starts need none of it

            files = watch.target_files
            found = partial(self._watch_found, nodes={})
            self._keep_up(partial(follow_files, files, ways, store, found, sleep))
        if watch.sparkrun:
            from sparktop.watch.sparkrun import follow_sparkrun  # late: as above

            found_nodes = self._watch_found_nodes
            self._keep_up(partial(follow_sparkrun, ways, store, self._watch_found, found_nodes, sleep))

    @asynccontextmanager
    async def running(self, beside: Coroutine[object, object, None]) -> AsyncIterator[None]:
        """Poll within the context, and run `beside` meanwhile."""
        await self.start()
        task = asyncio.get_running_loop().create_task(beside)
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await self.stop()

    async def stop(self) -> None:
        """Stop all polling and close all connections. `start` may be called again."""
        self._running = False
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(group.close() for group, _ in self._groups))
        self._tasks.clear()
        for collection in (self._groups, self._backend_groups, self._sources, self._backends, self._routers):
            collection.clear()
        self._tried.clear()
        self._identities.clear()
        self._cadence = LoadCadence()
        self._nodes = list(self._watch.nodes)

    def _poll_backends(self, name: str, targets: Sequence[BackendTarget]) -> None:
        self._backends.update({target.name: target for target in targets})
        group = self._poll(name, SourceKind.BACKEND, self._ways.backends(targets), 1.0)
        if group is not None:
            self._backend_groups.append(group)

    def _poll_routers(self, name: str, targets: Sequence[RouterTarget]) -> None:
        if targets:
            self._routers.update({target.name: target for target in targets})
            self._poll(name, SourceKind.ROUTER, self._ways.routers(targets), ROUTER_INTERVALS)

    def _poll_nodes(self, name: str, targets: Sequence[NodeTarget]) -> None:
        """Start to poll these nodes as one group; a node that does not answer delays no other node."""
        sources = [self._ways.node(target) for target in targets]
        self._poll(name, SourceKind.NODE, sources, NODE_INTERVALS)
        self._set_up_nodes()

    def _set_up_nodes(self) -> None:
        """Pass the interval and the process table setting to the sources of all nodes."""
        for key, source in self._sources.items():
            if key.kind is SourceKind.NODE:
                # Comparing with a protocol takes much longer, each second.
                if hasattr(source, "show_processes"):
                    asked = self._processes_of | self._store.standstills.nodes_asked
                    source.show_processes = key.name in asked
                if hasattr(source, "interval_s"):
                    source.interval_s = NODE_INTERVALS * self._interval_s

    def _poll(
        self, name: str, kind: SourceKind, sources: Sequence[Source], multiple: float
    ) -> PollGroup | None:
        """Start to poll `sources` as one group, every `multiple` intervals; None if there are none."""
        if not sources:
            return None
        for source in sources:
            self._sources[SourceKey(kind, source.name)] = source
        interval_s, clock = self._interval_s * multiple, asyncio.get_running_loop().time
        longest_s = self._watch.timeout_s

        def deliver(source: str, reading: PollResult, took_ms: float | None) -> None:
            self._deliver(SourceKey(kind, source), reading, took_ms)

        group = PollGroup(name, sources, interval_s, deliver, clock=clock, longest_s=longest_s)
        self._groups.append((group, multiple))
        self._spawn(group.run())
        return group

    def _deliver(self, key: SourceKey, reading: PollResult, took_ms: float | None) -> None:
        """Deliver the source's identity to the store if it has changed, then the result of the poll."""
        name = key.name
        identity = getattr(self._sources.get(key), "identity", None)
        if identity is not None and identity is not self._identities.get(key):
            self._identities[key] = identity
            self._store.identify(key, identity)
        if isinstance(reading, Failure) and reading.kind is FailureKind.ROUTER and self._reroute(name):
            return
        self._store.accept(key, reading, took_ms)
        if key.kind is SourceKind.BACKEND:
            self._quicken(name, reading)
        elif isinstance(reading, RouterSample):
            self._try_behind_router(name, reading)

    def _reroute(self, name: str) -> bool:
        """Stop watching the backend `name` and watch it as a router instead; return True.

        Change nothing and return False if the backend is of a configuration file, or is not watched.
        """
        target = self._backends.get(name)
        if target is None or (self._watch.source != ARGUMENTS and target in self._watch.backends):
            return False
        del self._backends[name]
        self._sources.pop(SourceKey.backend(name), None)
        self._store.remove(SourceKey.backend(name))
        for group in self._backend_groups:
            self._spawn(group.drop(name))
        self._watch_found_routers([RouterTarget(target.name, target.url, api_key=target.api_key)])
        return True

    def _quicken(self, name: str, reading: PollResult) -> None:
        """Record the poll result of the backend `name`; at most once a second, update all poll rates."""
        self._cadence.note(name, reading)
        if reading.at - self._quickened_at < QUICKEN_EVERY_S:
            return
        self._quickened_at = reading.at
        groups = self._store.judged_together()
        self._cadence.pace(self._backend_groups, groups, reading.at, self._interval_s)

    def _try_behind_router(self, name: str, sample: RouterSample) -> None:
        """Try to watch the servers that the router `name` lists, unless its backends are configured."""
        from sparktop.watch.discovery import servers_behind_router

        router = self._routers.get(name)
        if router is None or router.backends or not sample.deployments:
            return
        urls = [
            *(target.url for target in self._backends.values()),
            *(target.url for target in self._routers.values()),
        ]
        targets, elsewhere = servers_behind_router(
            router, sample.deployments, watched_urls=urls, taken_names=self._backends
        )
        for host in elsewhere:
            hint = "which is not an address of this network, so it is not polled: list it under [[backends]]"
            self._store.note(name, f"sends to {clean(host, 100)}, {hint} to watch it")
        untried = [target for target in targets if target.url not in self._tried]
        if untried:
            self._tried.update(target.url for target in untried)
            self._spawn(self._try_servers(name, untried))

    async def _try_servers(self, router: str, targets: Sequence[BackendTarget]) -> None:
        """Poll each server of `targets` once, and watch every server that answers.

        For a server that does not answer, add an event about the router `router`; it may be tried again
        later.
        """
        answers = await poll_once(self._ways, targets, TRY_WITHIN_S)
        self._watch_found([target for target, reading in answers if isinstance(reading, EngineSample)], {})
        failed_urls: list[str] = []
        for target, reading in answers:
            if not isinstance(reading, Failure):
                continue
            if reading.kind is FailureKind.ROUTER:
                self._watch_found_routers([RouterTarget(target.name, target.url, api_key=target.api_key)])
                continue
            failed_urls.append(target.url)
            message = f"sends to {target.url}, which is not watched: {reading.message}"
            self._store.note(router, clean(message, 300))
        if failed_urls:
            await self._sleep(TRY_AGAIN_S)
            self._tried.difference_update(failed_urls)

    async def _discover(self, hosts: list[str]) -> None:
        """Search `hosts` repeatedly until each has a server to watch; watch all servers and agents found."""
        while hosts:
            self._store.set_searching(tuple(hosts))
            result = await self._ways.discover(hosts)
            for note in result.notes:
                self._store.note("discovery", note)
            nodes = await self._watch_found_nodes(result.nodes)
            self._watch_found(result.backends, nodes)
            self._watch_found_routers(result.routers)
            urls = (*(backend.url for backend in result.backends), *(router.url for router in result.routers))
            reached = {normal_host(urlsplit(url).hostname or "") for url in urls}
            hosts = [host for host in hosts if normal_host(host) not in reached]
            self._store.set_searching(tuple(hosts))
            if hosts:
                await self._sleep(search_again_s(hosts))

    async def _watch_found_nodes(self, targets: Iterable[NodeTarget]) -> dict[str, str]:
        """Watch found nodes that are not watched yet.

        Return the name under which each found node is watched, by the name that the search gave the node.
        """
        names_by_host: dict[str, str] = {}
        new_nodes: list[NodeTarget] = []
        for target in targets:
            same = next((node for node in [*self._nodes, *new_nodes] if is_same_machine(node, target)), None)
            if same is None:
                taken_names = {node.name for node in [*self._nodes, *new_nodes]}
                name = target.name if target.name not in taken_names else urlsplit(target.url or "").netloc
                if name in taken_names:
                    continue
                same = replace(target, name=name)
                new_nodes.append(same)
            names_by_host[target.name] = same.name
        if new_nodes:
            # The agent's validator (pydantic) takes a tenth of a second to load: not on the event loop.
            await asyncio.to_thread(_import_modules, self._ways.modules(Watch(nodes=tuple(new_nodes))))
            self._nodes += new_nodes
            self._store.add(*new_nodes)
            self._poll_nodes(f"found {len(self._groups)}", new_nodes)
        return names_by_host

    def _watch_found(self, backends: Iterable[BackendTarget], nodes: Mapping[str, str]) -> None:
        """Watch found backends that are not watched yet; `nodes` maps found node names to watched ones."""
        targets = (*self._watch.backends, *self._backends.values())
        watched, names = {address_of(target.url) for target in targets}, self._backends
        new_backends = [
            replace(target, nodes=tuple(nodes[name] for name in target.nodes if name in nodes))
            for target in backends
            if target.name not in names and address_of(target.url) not in watched
        ]
        self._store.add(*new_backends)
        if new_backends:
            self._poll_backends(f"found {len(self._groups)}", new_backends)

    def _watch_found_routers(self, routers: Iterable[RouterTarget]) -> None:
        watched = {target.url for target in self._watch.routers}
        names = {key.name for key in self._sources if key.kind is SourceKind.ROUTER}
        new_routers = [target for target in routers if target.name not in names and target.url not in watched]
        self._store.add(*new_routers)
        self._poll_routers(f"found {len(self._groups)}", new_routers)

    async def _judge(self) -> None:
        """Call `Store.judge` every second, whether or not snapshots are taken."""
        while True:
            self._store.judge()
            self._set_up_nodes()
            if self._watch.ask_ranks:
                self.ranks.ask_suspects(asyncio.get_running_loop().time())
            await self._sleep(JUDGE_EVERY_S)

    def _keep_up(self, part: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a part of watching; each time that it ends by an error, again after a longer pause."""

        async def run() -> None:
            for pause_s in chain(_PAUSES_S, repeat(_PAUSES_S[-1])):
                try:
                    await part()
                except Exception as error:  # noqa: BLE001 - whatever it is, watching goes on
                    self._note_error(error, f"it goes on in {pause_s:.0f} s")
                    await self._sleep(pause_s)
                else:
                    return

        self._spawn(run())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._note_error(error, "it does not go on")

    def _note_error(self, error: BaseException, then: str) -> None:
        _log.error("a part of the monitor ended", exc_info=error)
        self._store.note(
            "sparktop", f"a part of watching ended: {type(error).__name__} (see the log); {then}"
        )


def _import_modules(modules: Iterable[str]) -> None:
    for name in modules:
        importlib.import_module(name)


# The cost of this process while it watches: its CPU and memory use, and pauses of its garbage collector.
#
# Values have no cycles of references, so that nearly all is freed without a collection. What is left are
# errors of network code: a few hundred objects for each poll of a server that does not answer. Python
# collects after 700 new objects, with 500 servers several times a second, and visits each time objects that
# are freed a second later anyway: this took a tenth of all CPU time. So it collects by the clock, or when
# there are far more new objects than freed ones.


SELF_EVERY_S = 2.0
"""Seconds between two measurements."""
COLLECT_EVERY_S = 60.0
"""Seconds between two collections of what was made since the last one."""
_ALL_EVERY = 15
"""So many of these, and then one that visits all objects: 0.2 s with 500 servers."""
_SELDOM = (400_000, 2)
"""By how many objects more must have been made than freed for a collection before its time, and how many such
collections come before one that also visits what survived them. Between two drawings 35,000 come and go, and
8,000 a second stay with 500 servers: until old pictures are compressed, and in histories."""


_ARENA_MAX = -8
"""M_ARENA_MAX of mallopt(3)."""


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


def share_memory_pool() -> None:
    """Let all threads that begin from now on share one pool of glibc: a pool for each holds 2 MiB more."""
    import ctypes  # late: the first picture needs none of it

    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


async def maintain_memory(sleep: Callable[[float], Awaitable[object]]) -> None:
    """Collect garbage and return freed memory to the system each minute, and rarely between.

    glibc keeps freed memory otherwise: pages of 65 kB and packed pictures come and go among values that stay.
    """
    import ctypes  # late: the first picture needs none of it

    thresholds = gc.get_threshold()
    gc.set_threshold(*_SELDOM, thresholds[2])
    try:
        for turn in count(1):
            await sleep(COLLECT_EVERY_S)
            gc.collect(2 if turn % _ALL_EVERY == 0 else 1)
            with suppress(OSError, AttributeError):  # only glibc has it
                ctypes.CDLL(None).malloc_trim(0)
    finally:
        gc.set_threshold(*thresholds)
