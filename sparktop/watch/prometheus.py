"""Reads what a Prometheus scrapes and delivers it to the store: raw samples of a few servers, a fleet of all.

The raw samples of a server become the pages that were scraped, so that everything behind the store is as with
servers that are polled. At most `MOST_RAW` servers are read so; of more, one group that is asked for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from sparktop.analysis.placement import address_of
from sparktop.engines import PageError, read_page
from sparktop.engines.router_pages import STACK
from sparktop.engines.tables import names_beside
from sparktop.model.engine import EngineSample
from sparktop.model.event import Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import Deployment, Fleet, RouterSample, Scrape
from sparktop.model.series import known_max
from sparktop.model.targets import BackendTarget, PrometheusTarget, RouterTarget
from sparktop.model.text import clean
from sparktop.net.client import in_reader
from sparktop.net.failure import AnswerError
from sparktop.sources.prometheus.client import PrometheusClient, TooMuchError, any_of, selector
from sparktop.sources.prometheus.figures import (
    Figures,
    fleet_servers,
    fullest_group,
    gauges_and_rates,
    pages,
    quantiles,
)
from sparktop.sources.prometheus.found import (
    GROUPS_ADVICE,
    NOT_A_ROUTER,
    FoundServer,
    ScrapeKey,
    no_server_text,
)
from sparktop.store import SourceKey, Store
from sparktop.watch.prometheus_finder import DUE_SHARE, DeliverScraped, Finder, MachineFeed, QueryPace

_log = logging.getLogger(__name__)
MOST_RAW = 64
"""Servers whose raw samples are read; 100 of them cost a Prometheus 0.2 s at each query."""
MOST_IN_GROUP = 16
"""Servers of one group whose raw samples are read, where there are more than `MOST_RAW`."""
FIND_AGAIN_S = 60.0
"""Seconds between two searches for servers."""
_QUANTILES_AGAIN_S = 60.0
"""Seconds between two queries for quantiles, which cost a Prometheus most."""
_LATE_SCRAPES = 2.0
_LATE_S = 5.0
"""A Prometheus is late if its newest sample is older than so many scrapes, and so many seconds more."""
_GONE_AFTER_S = 300.0
"""Seconds after which a server that is no target any more is forgotten."""
_CLOCK_STEP_S = 2.0
"""Smaller changes between the clocks are ignored."""
_SKEW_S = 5.0
"""A clock that is wrong by more is mentioned."""
_MOST_ROUTERS, _MOST_DEPLOYMENTS, _LONGEST_NAME = 16, 256, 64
"""Most routers, servers behind each, and characters of a name."""


class PrometheusFeed:
    """Watches what one Prometheus scrapes."""

    def __init__(
        self,
        target: PrometheusTarget,
        store: Store,
        deliver: DeliverScraped,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Read `target`, and hand over what is read by `deliver`; targets are added to `store`."""
        self.target = target
        self._store = store
        self._deliver = deliver
        self._clock = clock
        self._sleep = sleep
        self._key = SourceKey.prometheus(target.name)
        self._client = PrometheusClient(target, clock=clock)
        self.pace = QueryPace()
        """How much is asked for, and how often."""
        self._shift_s: float | None = None
        """Plus a Unix time of the Prometheus: monotonic seconds of this machine; None while unknown."""
        self._finder = Finder(target, self._client)
        self._found_at: float | None = None
        self._machines = MachineFeed(target, self._client, store, deliver, clock)
        self._samples = SampleReader(target, self._client, self._finder, deliver, clock)
        self._raw: dict[ScrapeKey, FoundServer] = {}
        """The servers whose raw samples are read."""
        self._placed: dict[ScrapeKey, tuple[str, ...]] = {}
        """The machines of these servers, as the store knows them."""
        self.names: dict[str, FoundServer] = {}
        """The same by name."""
        self._routers: set[str] = set()
        """Names of the routers that were added to the store."""
        self._paused: frozenset[str] = frozenset()
        """Names of the servers that are polled directly at present."""
        self._gone: dict[ScrapeKey, float] = {}
        self._group: str | None = None
        """The group whose raw samples are wanted, where there are too many servers for all."""
        self._quantiles: Figures = {}
        self._quantiles_at = float("-inf")
        self._fleet_at = float("-inf")

    async def run(self) -> None:
        """Read until cancelled."""
        try:
            while True:
                began = self._clock()
                await self.query()
                period_s = self.pace.period_s(len(self._raw))
                await self._sleep(max(0.5, period_s - (self._clock() - began)))
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def pause(self, names: Iterable[str]) -> None:
        """Read no raw samples of these servers until `resume`, because they are polled directly."""
        self._paused |= frozenset(names)

    def resume(self, names: Iterable[str]) -> None:
        """Read the raw samples of these servers again."""
        self._paused -= frozenset(names)

    def want_group(self, group: str | None) -> None:
        """Read the raw samples of this group from now on, if there are too many servers for all."""
        if group != self._group:
            self._group = group
            self._choose_raw()

    async def query(self) -> None:
        """Query once, and deliver what is new; a failure is delivered as one of the Prometheus."""
        began = self._clock()
        try:
            await self._query_once(began)
        except TooMuchError as error:
            self.pace.slow_down(error.message)
            self._deliver_failure(error)
        except AnswerError as error:
            self._deliver_failure(error)
        else:
            self.pace.count_answer()

    def _deliver_failure(self, error: AnswerError) -> None:
        self._deliver(self._key, error.failure(self._clock()), None)

    async def _query_once(self, began: float) -> None:
        """Query what is due, in this order: clocks, `up`, servers, figures of all, samples of a few."""
        await self._update_clocks()
        is_fleet_due = began - self._fleet_at >= DUE_SHARE * self.pace.every_s * self.pace.slowed
        if is_fleet_due or len(self._finder.servers) <= MOST_RAW:
            # It reads `up` of all targets: of 10,000 servers and their machines half a second of CPU time.
            await self._read_up()
        if self._found_at is None or began - self._found_at >= FIND_AGAIN_S * self.pace.slowed:
            self._found_at = await self._find(began)
        if self._found_at is None:
            raise AnswerError(
                FailureKind.LOADING, "has just begun to scrape: servers appear after two scrapes"
            )
        if is_fleet_due:
            self._fleet_at = began
            await self._read_fleet(began)
        await self._read_raw()

    async def _update_clocks(self) -> None:
        """Find how the clocks differ; small changes are ignored, so that samples keep their distances."""
        shift_s, ahead_s = await self._client.clock_shift()
        if self._shift_s is None or abs(shift_s - self._shift_s) > _CLOCK_STEP_S:
            self._shift_s = shift_s
            if abs(ahead_s) > _SKEW_S:
                way = "ahead of" if ahead_s > 0 else "behind"
                message = f"its clock is {abs(ahead_s):.0f} s {way} this machine's: ages are by its clock"
                self._store.note(self.target.name, message)

    async def _find(self, began: float) -> float | None:
        """Search for servers; return when, or None where the Prometheus has hardly begun to scrape.

        The first time counts as earlier, so that servers whose first scrape comes later are found soon.
        """
        is_first = not self._finder.servers
        await self._finder.find()
        self.pace.every_s = self._finder.every_s or self.pace.every_s
        if await self._finder.has_just_begun(self.pace.every_s, began):
            return None
        if fault := self._finder.groups_fault:
            self._store.note(self.target.name, f"{fault}: {GROUPS_ADVICE}", Severity.WARNING)
        if is_first and len(self._finder.servers) > MOST_RAW:
            # The screen has the figures of all before the machines of so many servers are found.
            await self._read_up()
            await self._read_fleet(began, is_first=True)
        await self._machines.find(self._finder.servers, self._finder.dead)
        self._choose_raw()
        if not is_first:
            return began
        await self._read_up()  # the jobs of the machines and the servers to read raw are known only now
        return began - max(0.0, FIND_AGAIN_S - 2 * self.pace.every_s)

    async def _read_up(self) -> None:
        await self._finder.read_up(self._machines.jobs, self._raw.values())

    def _choose_raw(self) -> None:
        """Choose the servers whose raw samples are read, and add them to the store."""
        servers, source = self._finder.servers, self.target.name
        if len(servers) > MOST_RAW:
            servers = tuple(server for server in servers if server.group == self._group)[:MOST_IN_GROUP]
        candidates = {server.key: server for server in unwatched_elsewhere(servers, self._store, source)}
        self._forget_unwanted(candidates, self._clock())
        self._machines.add_nodes(candidates.values(), self.pace.every_s)
        new_servers = [server for key, server in candidates.items() if key not in self._raw]
        self._raw.update((server.key, server) for server in new_servers)
        self.names = {server.name: server for server in self._raw.values()}
        for key in candidates:
            self._gone.pop(key, None)
        machines = {key: self._machines.of(server) for key, server in candidates.items()}
        changed = [server for key, server in candidates.items() if self._placed.get(key) != machines[key]]
        self._placed.update(machines)
        if changed:
            own_s, usual_s = self._finder.every_s_of, self.pace.every_s
            self._store.add(
                *(
                    as_backend(server, machines[server.key], source, own_s(server.key) or usual_s)
                    for server in changed
                )
            )

    def _forget_unwanted(self, candidates: Mapping[ScrapeKey, FoundServer], now: float) -> None:
        """Forget the servers that are not wanted any more.

        A wanted server of the same name goes on in its place. One that is still a target, such as one of
        another group, is forgotten at once. One that was removed from the targets was removed on purpose:
        that is an event, and no alert. It is forgotten at once if it could not be scraped any more; else it
        is shown as late for five minutes.
        """
        names = {server.name: server for server in candidates.values()}
        for key in self._raw.keys() - candidates.keys():
            server, message = self._raw[key], f"it is no target of {self.target.name} any more"
            if (successor := names.get(server.name)) is not None:
                self._hand_on(server, successor)
            elif any(server.key == key for server in self._finder.servers):
                self._forget(key)
            elif key not in self._gone:
                self._gone[key] = now
                self._store.note(server.name, clean(message))
                if key in self._samples.silent:
                    self._forget(key)
                else:
                    late = Failure(FailureKind.LATE, clean(message), now)
                    self._deliver(SourceKey.backend(server.name), late, None)
            elif now - self._gone[key] >= _GONE_AFTER_S:
                self._forget(key)

    def _hand_on(self, server: FoundServer, successor: FoundServer) -> None:
        """Let the same server go on as another target, with its history, as after its job was renamed."""
        if (server.url, server.engine, server.group) != (successor.url, successor.engine, successor.group):
            self._forget(server.key)
            return
        del self._raw[server.key]
        self._samples.hand_on(server.key, successor.key)
        for by_name in (self._gone, self._placed):
            by_name.pop(server.key, None)

    def _forget(self, key: ScrapeKey) -> None:
        server = self._raw.pop(key)
        self._samples.forget(key)
        for by_name in (self._gone, self._placed):
            by_name.pop(key, None)
        self._store.remove(SourceKey.backend(server.name))

    async def _read_raw(self) -> None:
        left_out, dead, shift_s = self._paused, self._finder.dead, self._shift_s
        servers = [
            server
            for server in self._raw.values()
            if server.key.target not in dead and server.name not in left_out
        ]
        if shift_s is not None:
            await self._samples.read(servers, self.pace, len(self._raw), shift_s)
            await self._machines.read_raw(self._raw.values(), self._finder.dead, shift_s, self.pace.every_s)
        self._samples.deliver_dead(self._raw.values())
        self._deliver_routers()

    def _deliver_routers(self) -> None:
        """Deliver each router with the servers behind it, which form a group if they are read."""
        finder, now_s = self._finder, self._clock()
        for key, urls in list(finder.routers.items())[:_MOST_ROUTERS]:
            name = clean(key.address or key.job, _LONGEST_NAME)
            url = finder.active[key].url if key in finder.active else f"http://{key.address}"
            if name not in self._routers:
                self._routers.add(name)
                self._store.add(RouterTarget(name, url))
            deployments = tuple(Deployment(url, url) for url in urls[:_MOST_DEPLOYMENTS])
            sample = RouterSample(now_s, STACK, alive=key not in finder.dead, deployments=deployments)
            self._deliver(SourceKey.router(name), sample, None)

    async def _read_fleet(self, began: float, *, is_first: bool = False) -> None:
        """Deliver the figures of all servers; at first those that need few queries, without machines."""
        shift_s = self._shift_s
        if shift_s is None:
            return
        matchers, every_s, servers = self.target.selector, self.pace.every_s, self._finder.servers
        replicated, engines = self._finder.replicated, {server.engine for server in servers}
        began_reading = self._clock()
        figures = await gauges_and_rates(
            self._client, matchers, every_s, replicated=replicated, engines=engines
        )
        if not is_first and servers and began - self._quantiles_at >= _QUANTILES_AGAIN_S * self.pace.slowed:
            self._quantiles_at = began
            self._quantiles = await quantiles(self._client, matchers, servers, figures, every_s)
        if len(servers) > MOST_RAW and all(server.group != self._group for server in servers):
            self.want_group(fullest_group(servers, figures))
        now_s = self._clock()
        took_ms = (now_s - began_reading) * 1000
        dead = self._finder.dead
        await self._machines.read_all(servers, dead, shift_s, every_s)
        fleet_rows = await in_reader(
            partial(fleet_servers, servers, figures, self._quantiles, dead, shift_s, self._machines.of)
        )
        newest = known_max(server.at for server in fleet_rows)
        note = self._limits_note()
        fleet = Fleet(now_s, every_s, fleet_rows, note, took_ms, self._machines.nodes)
        if newest is not None and await self._is_late(newest, now_s, shift_s):
            message = f"itself is late: its newest sample is {now_s - newest:.0f} s old"
            self._deliver(self._key, Failure(FailureKind.LATE, message, now_s), None)
        elif not servers:
            message = no_server_text(self._finder.down)
            self._deliver(self._key, Failure(FailureKind.METRICS_DISABLED, clean(message), now_s), None)
        else:
            self._deliver(self._key, fleet, fleet.answer_ms)

    async def _is_late(self, newest: float, now: float, shift_s: float) -> bool:
        """Return whether the Prometheus itself is behind; the newest sample of a server is of time `newest`.

        If machines or `up` have fresh samples, only the servers are stale, and it is not.
        """
        after = now - _LATE_SCRAPES * self.pace.every_s - _LATE_S
        if newest >= after or any(node.at is not None and node.at >= after for node in self._machines.nodes):
            return False
        up_at = await self._finder.newest_up(self._machines.jobs)
        return up_at is None or up_at + shift_s < after

    def _limits_note(self) -> str | None:
        """Return what limits the figures, in one line."""
        federated = "it federates another Prometheus: whether a server is down is not known"
        parts = (
            self.pace.note,
            federated if self._finder.federated else "",
            self._client.take_warning(),
            self._machines.problem,
        )
        return clean("; ".join(part for part in parts if part), 200) or None


# Reads the raw samples of a few servers of a Prometheus, and delivers each scrape once, the oldest first.


_FIRST_WINDOW_S = 120.0
_MORE_WINDOW_S = 5.0
"""Seconds of samples that a first query asks for, and by how many a window is longer than the time since the
last one."""
_APART_SCRAPES = 3.0
"""Scrapes in the window of a server that several targets write: it holds the newest of each."""


class SampleReader:
    """Reads raw samples, and knows which of them were delivered."""

    def __init__(
        self,
        target: PrometheusTarget,
        client: PrometheusClient,
        finder: Finder,
        deliver: DeliverScraped,
        clock: Callable[[], float],
    ) -> None:
        """Query by `client` for servers that `finder` has found, and hand over what is read by `deliver`."""
        self._target = target
        self._client = client
        self._finder = finder
        self._deliver = deliver
        self._clock = clock
        self.silent: set[ScrapeKey] = set()
        """The servers of which no sample came since they could not be scraped."""
        self._seen: dict[ScrapeKey, float] = {}
        """Unix time of the newest sample that was delivered, by server."""
        self._handed_on: dict[ScrapeKey, float] = {}
        """Unix time of the newest sample of a server as another target, by the key that it has now."""
        self._apart: set[ScrapeKey] = set()
        """The servers that several targets write, at different times."""

    def hand_on(self, before: ScrapeKey, now: ScrapeKey) -> None:
        """Let a server go on as another target: samples that were delivered are not delivered again."""
        newest = self._seen.get(before, self._handed_on.get(before, float("-inf")))
        self.forget(before)
        self._handed_on[now] = newest

    def forget(self, key: ScrapeKey) -> None:
        """Forget what was delivered of a server."""
        for by_name in (self._seen, self._handed_on):
            by_name.pop(key, None)
        self.silent.discard(key)
        self._apart.discard(key)

    async def read(
        self, servers: Sequence[FoundServer], pace: QueryPace, count: int, to_monotonic_s: float
    ) -> None:
        """Read what is new of `servers`, which are some of the `count` that are read sample by sample.

        Raises:
            AnswerError: a query failed.
        """
        short_s = max(pace.every_s, pace.period_s(count)) + _MORE_WINDOW_S
        # A server without samples yet needs the long window, which costs more: apart from the others.
        windows: dict[float, list[FoundServer]] = {}
        for server in servers:
            window_s = max(_FIRST_WINDOW_S, 2 * short_s)
            if server.key in self._seen:
                apart_s = _APART_SCRAPES * pace.every_s if server.key in self._apart else 0.0
                window_s = max(short_s, apart_s)
            windows.setdefault(window_s, []).append(server)
        for window_s, some in sorted(windows.items(), reverse=True):
            for start in range(0, len(some), pace.at_once):
                await self._read_some(some[start : start + pace.at_once], window_s, to_monotonic_s)

    async def _read_some(
        self, servers: Sequence[FoundServer], window_s: float, to_monotonic_s: float
    ) -> None:
        """Read the raw samples of a few servers, and deliver those that are new, the oldest first."""
        began = self._clock()
        names = set().union(*(names_beside(server.gauge) for server in servers))
        only = (
            f"{label}=~{any_of({getattr(server.key, label) for server in servers})}"
            for label in ("job", "instance")
        )
        query = selector(names, NOT_A_ROUTER, *only, self._target.selector)
        series = await self._client.query(f"{query}[{window_s:.0f}s]")
        took_ms = (self._clock() - began) * 1000
        pages_of, mixed = pages(series, self._finder.labels)
        self._apart |= mixed
        for server in servers:
            newest_read_s = self._seen.get(server.key, self._handed_on.get(server.key, float("-inf")))
            times = [at for at in pages_of.get(server.key, ()) if at > newest_read_s]
            for at in times:
                self._deliver_page(server, pages_of[server.key][at], at + to_monotonic_s, took_ms)
                self._seen[server.key] = at
                self.silent.discard(server.key)
            await asyncio.sleep(0)  # keys and other sources come between two servers

    def _deliver_page(self, server: FoundServer, page: bytes, at: float, took_ms: float) -> None:
        key = SourceKey.backend(server.name)
        reading: EngineSample | Failure
        try:
            reading = read_page(page, at=min(at, self._clock()), engine=server.engine)
        except PageError as error:
            reading = error.failure(self._clock())
        self._deliver(key, reading, took_ms)

    def deliver_dead(self, servers: Iterable[FoundServer]) -> None:
        """Deliver a failure for each of `servers` that cannot be scraped."""
        now_s, active, dead = self._clock(), self._finder.active, self._finder.dead
        for down in [server for server in servers if server.key.target in dead]:
            self.silent.add(down.key)
            listed = active.get(down.key.target)
            error = f": {listed.error}" if listed is not None and listed.error else ""
            message = f"{self._target.name} cannot scrape it (up is 0){error}"
            failure = Failure(FailureKind.UNREACHABLE, clean(message), now_s)
            self._deliver(SourceKey.backend(down.name), failure, None)


# Which servers of a Prometheus are read through it, and how the store knows them.


def unwatched_elsewhere(servers: Iterable[FoundServer], store: Store, source: str) -> Iterator[FoundServer]:
    """Yield those servers that are not watched except through `source`, each with a name that is free."""
    others = [
        target
        for target in store.targets()
        if isinstance(target, BackendTarget) and (target.scrape is None or target.scrape.source != source)
    ]
    names, places = ({other.name for other in others}, {address_of(other.url) for other in others})
    for server in servers:
        if address_of(server.url) not in places:
            name = f"{source}/{server.name}" if server.name in names else server.name
            yield server if name == server.name else replace(server, name=name)


def as_backend(server: FoundServer, nodes: tuple[str, ...], source: str, every_s: float) -> BackendTarget:
    """Return a server on these machines, which `source` scrapes every `every_s` seconds, for the store."""
    return BackendTarget(
        server.name, server.url, server.engine, nodes, scrape=Scrape(source, every_s), group=server.group
    )
