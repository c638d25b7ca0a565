"""The monitor: makes sources of what is to be watched, runs them, and hands what they tell to the store.

Importing it costs nothing: aiohttp, httpx and psutil are loaded by `start`, in a thread, so that a first
paint need not wait for them.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch
from sparktop.store import Reading, SourceKey, SourceKind, Store

if TYPE_CHECKING:
    import psutil

    from sparktop.discovery import Found
    from sparktop.sources.http_session import SharedSession
    from sparktop.sources.scheduler import PollGroup
    from sparktop.sources.source import Source

_log = logging.getLogger(__name__)

NODE_INTERVALS = 2.0
"""A node is asked this many times less often than a backend: its figures change slower."""
ROUTER_INTERVALS = 5.0
"""The same for a router: only whether it answers changes often."""
DISCOVER_AGAIN_S = 30.0
"""Hosts where nothing was found are looked at again after this."""
SELF_EVERY_S = 2.0


@runtime_checkable
class ShowsProcesses(Protocol):
    """A source whose samples can hold the process table."""

    show_processes: bool


@runtime_checkable
class TellsInterval(Protocol):
    """A source that tells the other end how often it is asked."""

    interval_s: float | None


class Ways(Protocol):
    """How sources are made; tests give their own."""

    def modules(self, watch: Watch) -> Sequence[str]:
        """Name what the other methods import, so that it can be loaded beforehand in a thread."""
        ...

    def backends(self, targets: Sequence[BackendTarget]) -> Sequence[Source]:
        """Give the sources of one group."""
        ...

    def node(self, target: NodeTarget) -> Source:
        """Give the source of a node."""
        ...

    def routers(self, targets: Sequence[RouterTarget]) -> Sequence[Source]:
        """Give the sources of routers."""
        ...

    async def discover(self, hosts: Sequence[str]) -> Found:
        """Tell what listens on the usual ports of `hosts`."""
        ...


class RealWays:
    """The ways in that this version has."""

    def __init__(self) -> None:
        """Make nothing yet."""
        self._agents: SharedSession | None = None

    def modules(self, watch: Watch) -> Sequence[str]:
        """Name no more than `watch` needs: httpx alone costs as much as an empty screen."""
        names = ["sparktop.sources.engine_http"]
        names += sorted({f"sparktop.sources.{node.via}" for node in watch.nodes})
        if watch.routers:
            names.append("sparktop.sources.router")
        if watch.discover:
            names += ["sparktop.discovery", "httpx"]
        return names

    def backends(self, targets: Sequence[BackendTarget]) -> Sequence[Source]:
        """Give HTTP sources that share one session."""
        from sparktop.sources.engine_http import EngineSource
        from sparktop.sources.http_session import SharedSession

        session = SharedSession()
        return [EngineSource(target, session=session) for target in targets]

    def node(self, target: NodeTarget) -> Source:
        """Give the source of this machine, or of another one through its agent or ssh."""
        if target.via == "agent":
            from sparktop.sources.agent import AgentSource
            from sparktop.sources.http_session import SharedSession

            self._agents = self._agents or SharedSession()
            return AgentSource(target, session=self._agents)
        if target.via == "ssh":
            from sparktop.sources.ssh import SshSource

            return SshSource(target)
        from sparktop.sources.local import LocalSource

        return LocalSource(target.name)

    def routers(self, targets: Sequence[RouterTarget]) -> Sequence[Source]:
        """Give HTTP sources that share one session."""
        from sparktop.sources.http_session import SharedSession
        from sparktop.sources.router import RouterSource

        session = SharedSession()
        return [RouterSource(target, session=session) for target in targets]

    async def discover(self, hosts: Sequence[str]) -> Found:
        """Try the usual ports of `hosts`."""
        from sparktop.discovery import discover

        return await discover(hosts)


class Monitor:
    """Runs everything that reads, on the running event loop."""

    def __init__(
        self,
        watch: Watch,
        store: Store,
        *,
        ways: Ways | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Watch what `watch` says and tell `store`; nothing happens before `start`."""
        self._watch = watch
        self._store = store
        self._ways = ways or RealWays()
        self._sleep = sleep
        self._interval_s = watch.interval_s
        self._sources: dict[SourceKey, Source] = {}
        self._told: dict[SourceKey, object] = {}
        """The identity of each source that the store knows."""
        self._nodes: list[NodeTarget] = list(watch.nodes)
        """Those that discovery found too."""
        self._processes_of: frozenset[str] = frozenset()
        """Nodes whose process table somebody looks at."""
        self._groups: list[tuple[PollGroup, float]] = []
        """Each with its interval as a multiple of ours."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = False

    @property
    def interval_s(self) -> float:
        """Seconds between two polls of a backend."""
        return self._interval_s

    def set_interval(self, interval_s: float) -> None:
        """Poll backends every `interval_s` seconds from now on, nodes and routers less often.

        Raises:
            ValueError: when it is not above 0.
        """
        if not interval_s > 0:
            raise ValueError(f"a poll interval is a number of seconds above 0, not {interval_s}")
        self._interval_s = self._store.interval_s = interval_s
        for group, multiple in self._groups:
            group.set_interval(interval_s * multiple)
        self._tell_nodes()

    def show_processes(self, names: Collection[str]) -> None:
        """Have the process tables of these nodes read from now on, and no others; holds for later nodes."""
        self._processes_of = frozenset(names)
        self._tell_nodes()

    async def start(self) -> None:
        """Load what reading needs and start to read; does nothing when it runs already."""
        if self._running:
            return
        self._running = True
        modules = (*self._ways.modules(self._watch), "sparktop.sources.scheduler", "psutil")
        await asyncio.to_thread(_load, modules)
        if not self._running:  # stopped while loading
            return
        watch = self._watch
        for name, targets in _grouped(watch):
            self._poll_backends(name, targets)
        self._poll_nodes("nodes", watch.nodes)
        self._poll_routers("routers", watch.routers)
        self._spawn(self._measure_self())
        if watch.discover:
            self._spawn(self._discover(list(watch.discover)))

    async def stop(self) -> None:
        """End all reading and give back every connection; `start` may follow."""
        self._running = False
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        self._groups.clear()
        self._sources.clear()
        self._told.clear()
        self._nodes = list(self._watch.nodes)

    def _poll_backends(self, name: str, targets: Sequence[BackendTarget]) -> None:
        self._poll(name, SourceKind.BACKEND, self._ways.backends(targets), 1.0)

    def _poll_routers(self, name: str, targets: Sequence[RouterTarget]) -> None:
        if targets:
            self._poll(name, SourceKind.ROUTER, self._ways.routers(targets), ROUTER_INTERVALS)

    def _poll_nodes(self, name: str, targets: Sequence[NodeTarget]) -> None:
        """Poll nodes as one group: each has a task of its own there, so one that hangs delays no other."""
        self._poll(name, SourceKind.NODE, [self._ways.node(target) for target in targets], NODE_INTERVALS)
        self._tell_nodes()

    def _tell_nodes(self) -> None:
        """Pass on to the nodes' sources what the other ends are to know."""
        for key, source in self._sources.items():
            if key.kind is SourceKind.NODE:
                if isinstance(source, ShowsProcesses):
                    source.show_processes = key.name in self._processes_of
                if isinstance(source, TellsInterval):
                    source.interval_s = self._interval_s * NODE_INTERVALS

    def _poll(self, name: str, kind: SourceKind, sources: Sequence[Source], multiple: float) -> None:
        from sparktop.sources.scheduler import PollGroup

        if not sources:
            return
        for source in sources:
            self._sources[SourceKey(kind, source.name)] = source
        group = PollGroup(name, sources, self._interval_s * multiple, partial(self._deliver, kind))
        self._groups.append((group, multiple))
        self._spawn(group.run())

    def _deliver(self, kind: SourceKind, name: str, reading: Reading, took_ms: float | None) -> None:
        """Hand a reading to the store, and the source's identity where that is new."""
        key = SourceKey(kind, name)
        identity = getattr(self._sources.get(key), "identity", None)
        if identity is not None and identity is not self._told.get(key):
            self._told[key] = identity
            self._store.identify(key, identity)
        self._store.accept(key, reading, took_ms)

    async def _discover(self, hosts: list[str]) -> None:
        """Look at `hosts` until each of them has a server to watch; an agent alone is watched meanwhile."""
        while hosts:
            self._store.searching = tuple(hosts)
            found = await self._ways.discover(hosts)
            for note in found.notes:
                self._store.note("discovery", note)
            nodes = await self._watch_found_nodes(found.nodes)
            self._watch_found(found.backends, nodes)
            self._watch_found_routers(found.routers)
            urls = [*(one.url for one in found.backends), *(one.url for one in found.routers)]
            there = {_bare(urlsplit(url).hostname or "") for url in urls}
            hosts = [host for host in hosts if _bare(host) not in there]
            self._store.searching = tuple(hosts)
            if hosts:
                await self._sleep(DISCOVER_AGAIN_S)

    async def _watch_found_nodes(self, found: Iterable[NodeTarget]) -> dict[str, str]:
        """Start to watch the nodes that are not watched yet; give the watched name of each found one."""
        named: dict[str, str] = {}
        new: list[NodeTarget] = []
        for target in found:
            same = next((one for one in [*self._nodes, *new] if _is_same_machine(one, target)), None)
            if same is None:
                taken = {one.name for one in [*self._nodes, *new]}
                name = target.name if target.name not in taken else urlsplit(target.url or "").netloc
                if name in taken:
                    continue
                same = replace(target, name=name)
                new.append(same)
            named[target.name] = same.name
        if new:
            # The agent's checks (pydantic) take a tenth of a second to load: not on the event loop.
            await asyncio.to_thread(_load, self._ways.modules(Watch(nodes=tuple(new))))
            self._nodes += new
            self._store.add(*new)
            self._poll_nodes(f"found {len(self._groups)}", new)
        return named

    def _watch_found(self, backends: Iterable[BackendTarget], nodes: Mapping[str, str]) -> None:
        """Start to watch what is not watched yet, under this or another name."""
        watched = {target.url for target in self._watch.backends}
        names = {key.name for key in self._sources if key.kind is SourceKind.BACKEND}
        new = [
            replace(target, nodes=tuple(nodes[name] for name in target.nodes if name in nodes))
            for target in backends
            if target.name not in names and target.url not in watched
        ]
        self._store.add(*new)
        if new:
            self._poll_backends(f"found {len(self._groups)}", new)

    def _watch_found_routers(self, routers: Iterable[RouterTarget]) -> None:
        watched = {target.url for target in self._watch.routers}
        names = {key.name for key in self._sources if key.kind is SourceKind.ROUTER}
        new = [target for target in routers if target.name not in names and target.url not in watched]
        self._store.add(*new)
        self._poll_routers(f"found {len(self._groups)}", new)

    async def _measure_self(self) -> None:
        """Measure what watching costs, every 2 s."""
        import psutil

        process = psutil.Process()
        process.cpu_percent(None)  # the first call has nothing to compare with and gives 0
        while True:
            await self._sleep(SELF_EVERY_S)
            self._store.measure_self(*_own_cost(process))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a part of the monitor ended", exc_info=error)
            self._store.note("sparktop", f"a part of watching ended: {type(error).__name__} (see the log)")


def _load(modules: Iterable[str]) -> None:
    for name in modules:
        importlib.import_module(name)


def _own_cost(process: psutil.Process) -> tuple[float | None, int | None]:
    import psutil

    try:
        with process.oneshot():
            return process.cpu_percent(None), process.memory_info().rss
    except psutil.Error:  # /proc may be hidden from us
        return None, None


def _grouped(watch: Watch) -> list[tuple[str, list[BackendTarget]]]:
    """Give the backends of each router as a group, and all others as one: read at the same instants."""
    router_of: dict[str, str] = {}
    for router in watch.routers:
        for name in router.backends:
            router_of.setdefault(name, router.name)
    groups: dict[str, list[BackendTarget]] = {}
    for target in watch.backends:
        groups.setdefault(router_of.get(target.name, ""), []).append(target)
    return list(groups.items())


def _is_same_machine(known: NodeTarget, found: NodeTarget) -> bool:
    """Tell whether a found agent is of a node that is watched already: at its URL, or as this machine."""
    host = _bare(urlsplit(found.url or "").hostname or "")
    if known.via == "local":
        return host in {"localhost", known.name.lower()}
    return known.url == found.url


def _bare(host: str) -> str:
    """Give a host so that two spellings of one compare equal, as discovery looks at each only once."""
    host = host.strip("[]").lower()
    return "localhost" if host in {"127.0.0.1", "::1"} else host
