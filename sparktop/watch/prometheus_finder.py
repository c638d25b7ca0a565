"""Finds servers and machines that a Prometheus scrapes, and reads the machines, as often as it can answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import chain, pairwise
from statistics import median

from msgspec import structs
from msgspec.structs import replace

from sparktop.analysis.speed_state import ClockPace, advance_pace
from sparktop.analysis.wall import node_of
from sparktop.engines.tables import RUNNING
from sparktop.errors import UsageError
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity
from sparktop.model.router import FleetNode, Scrape
from sparktop.model.snapshot import NodeView
from sparktop.model.targets import BackendTarget, NodeTarget, PrometheusTarget
from sparktop.model.text import clean
from sparktop.net.client import in_reader
from sparktop.net.failure import AnswerError
from sparktop.sources.prometheus.client import Labels, PrometheusClient, TimeSeries, any_of, selector
from sparktop.sources.prometheus.found import (
    NOT_A_ROUTER,
    ActiveTarget,
    FoundServer,
    ScrapeKey,
    active_targets,
    down_query,
    found_routers,
    found_servers,
    groups_fault,
    is_federated,
    key_of,
    keys_of_doubles,
    keys_to_leave_out,
    past_query,
    replicas_query,
    routers_query,
    servers_query,
    target_keys,
    times_query,
)
from sparktop.sources.prometheus.machines import (
    Exporter,
    Known,
    MachinesOf,
    Origin,
    ScrapedMachine,
    aggregates,
    found_exporters,
    gpus_of,
    host_of,
    join_exporters,
    kinds_of,
    machines_query,
    newest_samples,
    placing_among,
    sample_of,
)
from sparktop.sources.source import PollResult
from sparktop.stopping import gather_or_cancel
from sparktop.store import SourceKey, Store
from sparktop.store.node import memory_limits
from sparktop.watch.discovery import parse_target

_MOST_TARGETS = 1000
"""Servers up to which the list of targets is read: it takes 0.6 MB for 1,000."""
_TARGETS = "/api/v1/targets?state=active"
"""The route that lists what a Prometheus scrapes at present."""
_SAMPLED, _SAMPLED_S = 3, 600.0
"""Servers whose samples of this many seconds show how often they are scraped."""
_NEW_S = 120.0
"""Seconds for which a Prometheus without servers may have just begun to scrape."""
_ASKED_EACH = 10
"""Searches after which a target that stays down, and was no server, is asked for once more."""


class Finder:
    """Finds the servers of one Prometheus again and again."""

    def __init__(self, target: PrometheusTarget, client: PrometheusClient) -> None:
        """Query by `client`."""
        self._target = target
        self._client = client
        self.servers: tuple[FoundServer, ...] = ()
        self.routers: dict[ScrapeKey, tuple[str, ...]] = {}
        """The URLs that each router sends to."""
        self.groups_fault = ""
        """What is wrong with the labels that name the groups, in one line; "" for nothing."""
        self.federated = False
        """Whether an instance repeats under several exported ones: then `up` is not that of the servers."""
        self.active: dict[ScrapeKey, ActiveTarget] = {}
        """What the list of targets says, where there is one and it is not too long."""
        self.labels: dict[ScrapeKey, Labels] = {}
        """The labels of targets, from their series `up`, as far as they were wanted."""
        self.dead: frozenset[ScrapeKey] = frozenset()
        """The targets whose newest scrape failed (`up` is 0)."""
        self.down: frozenset[ScrapeKey] = frozenset()
        """All targets that were down at the newest search, also those that are no servers; the first 500."""
        self._past: dict[ScrapeKey, list[TimeSeries]] = {}
        """The series by which targets that are down were found to be servers."""
        self._no_servers: dict[ScrapeKey, int] = {}
        """Other targets that are down, which had no such series, with the number of searches since."""
        self._left_out: dict[ScrapeKey, float] = {}
        """Targets that are another one's server once more, with the Unix times of their newest samples."""
        self.replicated = False
        """Whether several replicas of a Prometheus may have written the series of one target."""
        self._sampled_s: float | None = None
        """Seconds between two samples of a server, where the list of targets does not say it."""
        self._new_since: float | None = None
        """Since when (monotonic seconds) no server, or no two samples of one, are known; None if they are."""

    @property
    def every_s(self) -> float | None:
        """Seconds between two scrapes, by the list of targets, else by samples; None while unknown."""
        intervals = [target.every_s for target in self.active.values() if target.every_s]
        return median(intervals) if intervals else self._sampled_s

    def every_s_of(self, key: ScrapeKey) -> float | None:
        """Return the seconds between two scrapes of a target, by the list of targets; None if unknown."""
        active = self.active.get(key.target)
        return None if active is None else active.every_s

    async def find(self) -> None:
        """Search for servers and routers; a server that is down has no series, and is remembered.

        Raises:
            AnswerError: a query failed.
        """
        more, group_by = self._target.selector, self._target.group_by
        asked = (servers_query(more, group_by), routers_query(more), replicas_query(more), down_query())
        answer, routers, replicas, down = await gather_or_cancel(*map(self._client.query, asked))
        self.replicated = bool(replicas)
        if len(answer) <= _MOST_TARGETS:
            try:
                self.active = active_targets(await self._client.get(_TARGETS))
            except AnswerError:
                self.active = {}  # Mimir and others have no such list
        self.down = frozenset(key_of(series.labels) for series in down)
        await self._find_past(answer)
        answering = await self._servers_once(answer)
        silent = await self._servers_down(answering)
        listed = tuple(sorted((*answering, *silent), key=lambda server: server.name)) if silent else answering
        keys = {server.key for server in answering}
        self.servers, self.routers = listed, found_routers(routers)
        self.groups_fault, self.federated = groups_fault(answer, group_by), is_federated(keys)
        if self.every_s is None and answering:
            # By samples of a few servers; those that are down may have none: then by their series `up`.
            only = f"instance=~{any_of({server.key.instance for server in answering[:_SAMPLED]})}"
            gauges = selector(RUNNING, NOT_A_ROUTER, only, more)
            self._sampled_s = await self._median_step_s(gauges) or await self._median_step_s(
                selector(("up",), only)
            )

    async def _servers_down(self, answering: Sequence[FoundServer]) -> list[FoundServer]:
        """Return the servers of the search before that are not among `answering` because they are down."""
        keys, names = {server.key for server in answering}, {server.name for server in answering}
        missing = [
            server
            for server in self.servers
            if server.key not in keys and server.name not in names and server.key not in self._left_out
        ]
        if any(server.key.target not in self.dead for server in missing):
            self.dead |= await down_targets(self._client, {server.key.job for server in missing})
        return [server for server in missing if server.key.target in self.dead]

    async def _servers_once(self, series: Sequence[TimeSeries]) -> tuple[FoundServer, ...]:
        """Return the servers in the answer, and those that are down; each once, also if two jobs have it.

        Of several targets that are one server the others are left out: by their newest samples. A target that
        was left out before, and has no double any more, is back only with a newer sample: the series of a
        removed job stay for five minutes.
        """
        past, more, group_by = [*chain(*self._past.values())], self._target.selector, self._target.group_by
        servers = await in_reader(partial(found_servers, series, self.active, group_by, past))
        left_out_before, doubles = self._left_out, await in_reader(partial(keys_of_doubles, servers))
        single = [server.key for server in servers if server.key in left_out_before]
        groups = [*doubles, *([key] for key in single)]
        if not groups:
            self._left_out = {}
            return servers
        answer = await self._client.query(times_query(more, groups))
        times = {key_of(answered.labels): answered.value or 0.0 for answered in answer}
        earlier = {server.key for server in self.servers}
        left_out = keys_to_leave_out(groups, times, self.active, earlier, self.every_s or USUAL_S)
        left_out |= {key for key in single if times.get(key, 0.0) <= left_out_before[key]}
        self._left_out = {key: times.get(key, 0.0) for key in left_out}
        return await in_reader(partial(found_servers, series, self.active, group_by, past, left_out))

    async def _find_past(self, series: Sequence[TimeSeries]) -> None:
        """Find which targets that are down were servers; `series` are those of servers that are not."""
        self._past = {key: past for key, past in self._past.items() if key in self.down}
        self._no_servers = {
            key: searches + 1
            for key, searches in self._no_servers.items()
            if key in self.down and searches < _ASKED_EACH
        }
        wanted_targets = self.down - self._past.keys() - self._no_servers.keys()
        wanted_targets -= {server.key.target for server in self.servers}
        if wanted_targets:
            wanted_targets -= await in_reader(partial(target_keys, series))
        if not wanted_targets:
            return
        try:
            answer = await self._client.query(
                past_query(self._target.selector, self._target.group_by, wanted_targets)
            )
        except AnswerError:
            return  # too much, or a server of the API without that function: as if there were none
        for answered in answer:
            if (key := key_of(answered.labels).target) in wanted_targets:
                self._past.setdefault(key, []).append(answered)
        self._no_servers |= dict.fromkeys(wanted_targets - self._past.keys(), 1)

    async def _median_step_s(self, selector_text: str) -> float | None:
        answer = await self._client.query(f"{selector_text}[{_SAMPLED_S:.0f}s]")
        steps = [later[0] - earlier[0] for series in answer for earlier, later in pairwise(series.samples)]
        return max(0.1, round(median(steps), 1)) if steps else None

    async def has_just_begun(self, every_s: float, now: float) -> bool:
        """Return whether the Prometheus may have scraped its servers less than twice so far.

        Where servers are known: while nothing says how often it scrapes. Where none is: until its series `up`
        are two scrapes (of `every_s` seconds) old. Either holds for `_NEW_S` seconds at most, from the first
        call on with which it may be so. `now` is in monotonic seconds.

        Raises:
            AnswerError: the query failed.
        """
        if self.servers and self.every_s is not None:
            self._new_since = None
            return False
        if self._new_since is None:
            self._new_since = now
        if now - self._new_since > _NEW_S:
            return False
        if self.servers:
            return True
        answer = await self._client.query(f"count({selector(('up',))} offset {2 * every_s:.0f}s)")
        return not answer

    async def read_up(self, jobs: Collection[str], servers: Iterable[FoundServer]) -> None:
        """Find which targets of these jobs and of the servers' jobs are down, and the labels of `servers`.

        Raises:
            AnswerError: a query failed.
        """
        all_jobs = {*jobs, *({server.key.job for server in self.servers} if not self.federated else ())}
        if not all_jobs:
            return
        self.dead = await down_targets(self._client, all_jobs)
        unknown = {server.key.instance for server in servers if server.key.target not in self.labels}
        if unknown and not self.federated:
            query = selector(("up",), f"instance=~{any_of(sorted(unknown))}")
            answer = await self._client.query(query)
            for series in answer:
                labels = {name: value for name, value in series.labels.items() if name != "__name__"}
                self.labels[key_of(series.labels)] = labels

    async def newest_up(self, jobs: Collection[str]) -> float | None:
        """Return the Unix time of the newest scrape of any target of these jobs and of the servers' jobs.

        Raises:
            AnswerError: the query failed.
        """
        all_jobs = {*jobs, *(server.key.job for server in self.servers)}
        up = selector(("up",), f"job=~{any_of(sorted(all_jobs))}")
        answer = await self._client.query(f"max(timestamp({up}))")
        return answer[0].value if answer else None


async def down_targets(client: PrometheusClient, jobs: Collection[str]) -> frozenset[ScrapeKey]:
    """Return the targets of these jobs whose newest scrape failed.

    Raises:
        AnswerError: the query failed.
    """
    up = selector(("up",), f"job=~{any_of(sorted(jobs))}")
    answer = await client.query(f"{up} == 0")
    return frozenset(key_of(series.labels) for series in answer if series.value == 0)


# How often a Prometheus is queried, and for how many servers at a time; less where it answers "too much".


USUAL_S = 15.0
"""Seconds between two scrapes where nothing is known of it."""
LEAST_S, LONGEST_S = 1.0, 120.0
"""Shortest and longest time between two queries, in seconds."""
MOST_AT_ONCE = 16
"""Servers in one query of raw samples: 0.4 to 1.3 MB of JSON, whose reading delays no key for long."""
_RECOVERS_AFTER = 20
"""Answers in a row after which more is asked for again."""
_QUERIES_A_SCRAPE = 3.0
"""Queries within a scrape's interval: a sample is seen at most a third of it after Prometheus has it."""


class QueryPace:
    """The size of queries and the time between two of them."""

    def __init__(self) -> None:
        """Start at the usual pace."""
        self.every_s = USUAL_S
        """Seconds between two scrapes."""
        self.at_once = MOST_AT_ONCE
        self.slowed = 1
        """How many times the usual time between two queries; doubled by each refusal."""
        self.reason = ""
        """The message of the refusal; "" at the usual pace."""
        self._good = 0

    def period_s(self, servers: int) -> float:
        """Return the seconds between two queries for the raw samples of this many servers."""
        queries = _QUERIES_A_SCRAPE if servers <= MOST_AT_ONCE else 1.0
        return min(LONGEST_S, max(LEAST_S, self.every_s / queries) * self.slowed)

    def slow_down(self, message: str) -> None:
        """Ask for half as many servers half as often."""
        self.at_once = max(1, self.at_once // 2)
        self.slowed = min(self.slowed * 2, max(1, round(LONGEST_S / self.every_s)))
        self.reason, self._good = message, 0

    def count_answer(self) -> None:
        """Count an answer; after enough of them in a row, ask for twice as many servers twice as often."""
        self._good += 1
        if self.reason and self._good >= _RECOVERS_AFTER:
            self.at_once, self.slowed = min(MOST_AT_ONCE, 2 * self.at_once), max(1, self.slowed // 2)
            self._good = 0
            if self.slowed == 1 and self.at_once == MOST_AT_ONCE:
                self.reason = ""

    @property
    def note(self) -> str:
        """What is asked for less than usual, in one line; "" at the usual pace."""
        if not self.reason:
            return ""
        seldom = f", {self.slowed} × less often" if self.slowed > 1 else ""
        return f"asks for {self.at_once} servers at a time{seldom}: {self.reason}"


# Parses a TARGET argument that names a Prometheus.


_SCHEME = "prometheus+"


def parse_prometheus(text: str) -> PrometheusTarget | None:
    """Return the Prometheus that a TARGET argument names, as in prometheus+http://host:9090; None for others.

    Raises:
        UsageError: what follows is not an http(s) address.
    """
    word = text.strip()
    if not word.startswith(_SCHEME):
        return None
    url = word.removeprefix(_SCHEME).rstrip("/").removesuffix("/api/v1")
    target = parse_target(url) if "://" in url else None
    if not isinstance(target, BackendTarget):
        raise UsageError(f"{clean(text, 60)}: no Prometheus; write prometheus+http://host:9090")
    return PrometheusTarget(target.name, target.url)


# The machines of servers that are read sample by sample are nodes in the store, as those that are polled. All
# others are in the fleet view, by a few aggregates. Trouble with them never stops the figures of servers.


MACHINES_AGAIN_S, MACHINES_LONGEST_S = 60.0, 300.0
"""Seconds between two readings of all machines, where there are more than `MOST_OFTEN`: for each thousand of
them so many, so that machines cost a tenth of what their servers do."""
MOST_OFTEN = 64
"""Machines up to which all are read at the pace of scrapes."""
MOST_NODES = 64
"""Machines that are nodes in the store."""
DUE_SHARE = 0.9
"""Share of a period after which its query is due, so that a slightly early one waits no whole period more."""
_REST_S = 120.0
"""Seconds of rest after trouble."""
_SHIFT_S = 0.5
"""Seconds by which a sample must be newer than the one before."""


DeliverScraped = Callable[[SourceKey, PollResult, float | None], None]
"""Accepts a reading of a source, and the milliseconds that it took."""


class MachineFeed:
    """Reads the machines of one Prometheus."""

    def __init__(
        self,
        target: PrometheusTarget,
        client: PrometheusClient,
        store: Store,
        deliver: DeliverScraped,
        clock: Callable[[], float],
    ) -> None:
        """Query by `client`, and hand over samples by `deliver`; nodes are added to `store`."""
        self._target = target
        self._client = client
        self._store = store
        self._deliver = deliver
        self._clock = clock
        self.machines: tuple[ScrapedMachine, ...] = ()
        """Those of servers, and others with GPUs."""
        self.jobs: frozenset[str] = frozenset()
        """The jobs of all their exporters."""
        self.nodes: tuple[FleetNode, ...] = ()
        """The same as the fleet view shows them, from the newest answer."""
        self.problem = ""
        """Why the newest figures of machines are missing, in one line; "" if they are not."""
        self._exporters: dict[tuple[Origin, str], Exporter] = {}
        self._machines_of_server: MachinesOf = lambda _: ()
        self._last: dict[str, FleetNode] = {}
        """The machines as they were read last, by name."""
        self._found_at = self._read_at = self._raw_at = float("-inf")
        self._rest_until = float("-inf")
        """After trouble, nothing is asked before this time (monotonic seconds)."""
        self._paces: dict[str, ClockPace] = {}
        self._seen: dict[str, float] = {}
        """Time of the newest sample that was delivered, by name of the machine, of those that are nodes."""

    def of(self, server: FoundServer) -> tuple[str, ...]:
        """Return the names of the machines of a server."""
        return self._machines_of_server(server)

    async def find(self, servers: Iterable[FoundServer], dead: Collection[ScrapeKey]) -> None:
        """Search for machines; an exporter that is down is remembered."""
        now_s = self._clock()
        is_each_time = self._again_s <= MACHINES_AGAIN_S  # few machines: with each search for servers
        is_recent = now_s - self._found_at < DUE_SHARE * self._again_s
        if self._is_resting() or (is_recent and not is_each_time):
            return
        self._found_at = now_s
        try:
            answer = await self._client.query(machines_query(self._target.machine_selector))
            exporters = await in_reader(partial(found_exporters, answer))
            present = {(exporter.place, exporter.kind): exporter for exporter in exporters}
            missing = {key: self._exporters[key] for key in self._exporters.keys() - present.keys()}
            if not all(exporter.place[0] in dead for exporter in missing.values()):
                # It may have gone down since `dead` was read: forgotten now, it would never be dead.
                jobs = {exporter.place[0].job for exporter in missing.values()}
                dead = {*dead, *await down_targets(self._client, jobs)}
        except AnswerError as error:
            self._rest_after(error)
            return
        down = {key: exporter for key, exporter in missing.items() if exporter.place[0] in dead}
        self._exporters = {**down, **present}
        self.machines, self._machines_of_server = await in_reader(partial(self._place_servers, servers))
        self.jobs = frozenset(
            exporter.place[0].job for machine in self.machines for exporter in machine.exporters
        )

    def _place_servers(self, servers: Iterable[FoundServer]) -> tuple[tuple[ScrapedMachine, ...], MachinesOf]:
        """Return the machines to show, and what finds those of a server."""
        machines = join_exporters(self._exporters.values())
        among_all = placing_among(machines, self._target.machines)
        used = {name for server in servers for name in among_all(server)}
        shown_machines = tuple(machine for machine in machines if machine.has_gpus or machine.name in used)
        return shown_machines, placing_among(shown_machines, self._target.machines)

    async def read_all(
        self,
        servers: Sequence[FoundServer],
        dead: Collection[ScrapeKey],
        to_monotonic_s: float,
        every_s: float,
    ) -> None:
        """Read the figures of all machines if it is time, and judge them."""
        now_s = self._clock()
        again_s = self._again_s if len(self.machines) > MOST_OFTEN else every_s
        if self.machines and not self._is_resting() and now_s - self._read_at >= DUE_SHARE * again_s:
            self._read_at = now_s
            try:
                more = self._target.machine_selector
                gathered = await aggregates(self._client, more, kinds_of(self.machines))
            except AnswerError as error:
                self._rest_after(error)
            else:
                self.problem = ""

                def judge_nodes() -> dict[str, FleetNode]:
                    return {
                        machine.name: self._judge_node(machine, gathered, to_monotonic_s, every_s)
                        for machine in self.machines
                    }

                self._last = await in_reader(judge_nodes)
        self.nodes = await in_reader(partial(self._fleet_nodes, servers, dead))

    def _fleet_nodes(
        self, servers: Iterable[FoundServer], dead: Collection[ScrapeKey]
    ) -> tuple[FleetNode, ...]:
        """Return all machines with the names of their servers; no figure stays of one that is down."""
        servers_on: dict[str, list[str]] = {}
        for server in servers:
            for name in self.of(server):
                servers_on.setdefault(name, []).append(server.name)
        nodes = []
        for machine in self.machines:
            node = self._last.get(machine.name, FleetNode(machine.name))
            if _is_down(machine, dead):
                node = FleetNode(machine.name, node.at, down=True, state="unreachable")
            nodes.append(replace(node, backends=tuple(servers_on.get(machine.name, ()))))
        return tuple(nodes)

    async def read_raw(
        self,
        servers: Iterable[FoundServer],
        dead: Collection[ScrapeKey],
        to_monotonic_s: float,
        every_s: float,
    ) -> None:
        """Deliver new samples of the machines of `servers`, which are nodes of the store from now on."""
        machines = [machine for machine in self._machines_of(servers) if machine.name in self._seen]
        now_s = self._clock()
        if not machines or self._is_resting() or now_s - self._raw_at < DUE_SHARE * every_s:
            return
        self._raw_at = now_s
        try:
            gathered = await newest_samples(self._client, self._target.machine_selector, machines, every_s)
        except AnswerError as error:
            self._rest_after(error)
            return
        took_ms = (self._clock() - now_s) * 1000
        for machine in machines:
            key, sample = SourceKey.node(machine.name), sample_of(machine, gathered, to_monotonic_s)
            if _is_down(machine, dead):
                message = f"{self._target.name} cannot scrape it (up is 0)"
                self._deliver(key, Failure(FailureKind.UNREACHABLE, clean(message), self._clock()), None)
            elif sample is not None and sample.at > self._seen[machine.name] + _SHIFT_S:
                self._seen[machine.name] = sample.at
                self._deliver(key, structs.replace(sample, at=min(sample.at, self._clock())), took_ms)

    def add_nodes(self, servers: Iterable[FoundServer], every_s: float) -> None:
        """Make the machines of `servers` nodes of the store, and forget the others that were."""
        machines_by_name = {machine.name: machine for machine in self._machines_of(servers)[:MOST_NODES]}
        for name in self._seen.keys() - machines_by_name.keys():
            del self._seen[name]
            self._store.remove(SourceKey.node(name))
        other_nodes = [
            target
            for target in self._store.targets()
            if isinstance(target, NodeTarget)
            and (target.scrape is None or target.scrape.source != self._target.name)
        ]
        names = {target.name for target in other_nodes}
        addresses = {host_of(target.url or (target.ssh or "").rpartition("@")[2]) for target in other_nodes}
        for name, machine in machines_by_name.items():
            if name in self._seen or name in names or addresses & machine.hosts:
                continue  # watched directly, or by another Prometheus
            self._seen[name] = float("-inf")
            self._store.add(NodeTarget(name, "prometheus", scrape=Scrape(self._target.name, every_s)))
            self._store.identify(SourceKey.node(name), _identity_of(machine))

    def _machines_of(self, servers: Iterable[FoundServer]) -> list[ScrapedMachine]:
        names = dict.fromkeys(name for server in servers for name in self.of(server))
        by_name = {machine.name: machine for machine in self.machines}
        return [by_name[name] for name in names if name in by_name]

    @property
    def _again_s(self) -> float:
        return min(MACHINES_LONGEST_S, MACHINES_AGAIN_S * max(1.0, len(self.machines) / 1000))

    def _is_resting(self) -> bool:
        return self._clock() < self._rest_until

    def _rest_after(self, error: AnswerError) -> None:
        """Ask for nothing for a while."""
        self._rest_until = self._clock() + _REST_S
        self.problem = clean(f"machines: {error.message}", 200)

    def _judge_node(
        self, machine: ScrapedMachine, gathered: Known, to_monotonic_s: float, every_s: float
    ) -> FleetNode:
        """Return a machine as the fleet view shows it, as long as it is not down.

        What is known of its GPU's clock is kept for the next sample.
        """
        sample, thresholds = sample_of(machine, gathered, to_monotonic_s), self._store.thresholds.nodes
        if sample is None:
            return FleetNode(machine.name)
        alerts: set[str] = set()
        left_bytes, warn_bytes, _ = memory_limits(sample.memory, thresholds) or (math.inf, 0.0, 0.0)
        if left_bytes < warn_bytes:
            alerts.add("headroom")
        pace = ClockPace()
        for gpu in sample.gpus[:1]:  # which stands for all of them
            pace = self._paces[machine.name] = advance_pace(
                self._paces.get(machine.name, pace),
                gpu,
                sample.at,
                unified=sample.memory.unified,
                shares={},
                thresholds=thresholds,
            )
            if gpu.margin_c is not None and gpu.margin_c < thresholds.thermal_margin_warn_c:
                alerts.add("thermal")
        scrape = Scrape(self._target.name, every_s)
        view = NodeView(machine.name, "prometheus", sample, speed=pace.state, scrape=scrape)
        return replace(node_of(view, frozenset(alerts)), gpus=gpus_of(machine, gathered))


def _is_down(machine: ScrapedMachine, dead: Collection[ScrapeKey]) -> bool:
    return all(exporter.place[0] in dead for exporter in machine.exporters)


def _identity_of(machine: ScrapedMachine) -> NodeIdentity:
    return NodeIdentity(
        os=machine.fact("os"),
        driver=machine.fact("driver", "DCGM_FI_DRIVER_VERSION"),
        product=machine.fact("product"),
        cpu=machine.fact("cpu"),
        addresses=tuple(sorted(machine.hosts)),
        hostname=machine.name,
    )
