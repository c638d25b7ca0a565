"""Finds work for nobody: requests without a client, and engine processes that outlived their server.

A request whose connection is closed has nobody to answer. Its engine should abort it, but some go on to its
last token, and some never end. No page tells such requests from others, but the server's machine lists its
connections (`Sockets`). They are read every few seconds, so that a single reading can fall between two
requests of a healthy server. Therefore all of this must hold for `HOLD_S` and `LEAST_POLLS` polls: the same
requests run at every poll, from before each reading of the connections on: none begins, none finishes; and at
`LEAST_READINGS` readings nobody is connected but monitors. In between, others may come and go (a Prometheus
that scrapes it).

A monitor is this program, by its own end of a connection, and whoever asks again and again over one while
the same requests run: HTTP/1.1 answers one request at a time, so that none of them came that way. The kernel
of the server's machine tells when each connection last brought a request (`Sockets.asked_s`).

A router keeps connections open that carry no request. Where all clients are on the router's machine, its own
count of requests in flight stands for them, if that has covered what its servers run until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf

from msgspec import Struct

from sparktop.analysis.placement import normal_host, port_of, server_process, url_host
from sparktop.graphics import numbers
from sparktop.model.event import Finding, FindingKind, Severity, Sure, Values
from sparktop.model.explained import FINDINGS
from sparktop.model.node import GIB, Sockets, Workload, end_marks
from sparktop.model.router import UNKNOWN_KIND, RouterView
from sparktop.model.series import known_sum
from sparktop.model.snapshot import BackendState, BackendView, EachServer, Situation

FOR_NOBODY, ORPHANED = FindingKind.FOR_NOBODY, FindingKind.ORPHANED_ENGINE
"""Kinds of findings."""
HOLD_S = 30.0
"""Seconds for which requests must have had no client: an abort takes a second or two."""
LEAST_POLLS, LEAST_READINGS = 20, 3
"""Polls of the server and readings of its connections for which that must hold."""
_BEFORE_S = 2.0
"""Seconds before a reading of the connections since which requests must run: readings and polls are not
simultaneous."""
_SAME_READING_S = 0.5
"""A reading whose time differs by less is the same one: its age is rounded."""
_OWN_S = 180.0
"""Seconds for which a connection of this program is remembered, which keeps idle ones for 120 s."""
_LEAST_COVERED = 20
_MOST_UNCOVERED = 0.1
"""A router's count is believed once it covered what its servers ran at this many polls, and fell short at
most at this share of them: of several workers, some count only their own requests."""
_LEAST_BYTES = 1 << 29
"""GPU memory from which on an orphaned process is named: less is a mere context."""
_QUIET = frozenset({BackendState.LOADING, BackendState.ASLEEP, BackendState.STALE, BackendState.ENGINE_DEAD})
ORPHAN_S = 60.0
"""Seconds for which a process must have been orphaned: an engine that ends outlives its server by some."""
_LOOPBACK = ("127.0.0.1", "::1")


class _RouterTrust(Struct):
    """Whether a router's count of requests in flight can be believed."""

    at: float = -inf
    covered: int = 0
    uncovered: int = 0

    @property
    def is_believed(self) -> bool:
        """Whether the count has covered what its servers ran."""
        return self.covered >= _LEAST_COVERED and self.uncovered <= _MOST_UNCOVERED * self.covered

    def compare(self, router: RouterView, now: Situation) -> None:
        """Compare a router's count with what its servers run, once for each situation."""
        loads = [now.backends[name].running for name in router.backends if name in now.backends]
        # A count of 0 says nothing either way: an abandoned request leaves it, too.
        if not router.ok or not router.sample.in_flight or None in loads or now.at <= self.at:
            return
        self.at, total = now.at, sum(load or 0.0 for load in loads)
        if total:
            self.covered += router.sample.in_flight >= total
            self.uncovered += router.sample.in_flight < total


class _Watched(Struct):
    """What is known about the requests that one server runs now."""

    routed: Mapping[str, _RouterTrust]
    """By name of a router."""
    polled_at: float = -inf
    """Time of the newest sample."""
    same: tuple[object, ...] = ()
    """(start of its process, restarts, finished and running requests, prompt tokens): other values end what
    was seen; () while none run."""
    same_from: float = inf
    """Time of the first of the samples with these values."""
    since: float | None = None
    """Time of the first reading without clients; None before it."""
    readings: int = 0
    polls: int = 0
    read_at: float = -inf
    tokens: float | None = None
    """All tokens by the server's counters at `since`."""
    holds: bool = False
    by_router: bool = False
    """Whether the newest reading without clients relies on a router's count."""
    own_ends: dict[tuple[int, int], float] = {}
    """Until when ends of connections count as this program's."""
    monitors: int = 0
    """Connections of other monitors at the newest reading."""
    asked_at: dict[tuple[int, int], float] = {}
    """By end of a connection: when it first asked beside the requests that run now."""

    def look(self, now: Situation, view: BackendView) -> Iterator[Finding]:
        """Take into account what is new, and yield that the server works for nobody."""
        if not view.ok or view.age_s is None or view.state in _QUIET or not view.running:
            self.same, self.same_from = (), inf
            self._forget()
            return
        sampled_at = now.at - view.age_s
        if sampled_at > self.polled_at + 1e-3:
            self._note_sample(view, sampled_at)
        router = _router_of(view, now, self.routed)
        idle_router = router if router is not None and not router.sample.in_flight else None
        if self.by_router and idle_router is None:
            self._forget()
        reading = _connections(view, now)
        if reading is not None:
            self._note_connections(view, now, *reading, idle_router)
        elif router is not None or self.read_at == -inf:
            # Nothing lists its connections: the router's count alone says whether it has clients.
            self.by_router = idle_router is not None
            self._note_reading(view, sampled_at, is_free=self.by_router)
        elif sampled_at - self.read_at > HOLD_S:  # its machine may have missed a poll, but not for so long
            self._forget()
        lasted_s = 0.0 if self.since is None else sampled_at - self.since
        self.holds |= lasted_s >= HOLD_S and self.polls >= LEAST_POLLS and self.readings >= LEAST_READINGS
        if self.holds:
            yield self._finding(view, None if reading is None else reading[1], router, lasted_s)

    def _forget(self) -> None:
        """Begin anew: there were clients, or the requests are others."""
        self.since, self.readings, self.polls, self.holds = None, 0, 0, False

    def _note_sample(self, view: BackendView, at: float) -> None:
        finished = sum(view.finished.values())
        if view.rate_note is not None:  # its tokens are counted when a request finishes
            finished += view.generation_tokens or 0.0
        counters = view.start_time, view.restarts, finished, view.running, view.prompt_tokens
        if counters != self.same:
            self.same, self.same_from, self.asked_at = counters, at, {}
            self._forget()
        self.polled_at = at
        self.polls += 1
        if view.client is not None:
            self.own_ends = {end: until for end, until in self.own_ends.items() if until > at}
            self.own_ends[view.client] = at + _OWN_S

    def _note_connections(
        self, view: BackendView, now: Situation, at: float, sockets: Sockets, idle_router: RouterView | None
    ) -> None:
        """Note connections read at `at`; those of monitors and of an idle router carry no request."""
        if at <= self.read_at + _SAME_READING_S:
            return
        ages = dict(zip(sockets.clients, sockets.asked_s, strict=False))
        others = {client for client in sockets.clients if client not in self.own_ends}
        # Without a count of requests that began or ended, others may run that look the same.
        tells = bool(view.finished) or view.prompt_tokens is not None
        monitors = {client for client in others if tells and self._is_monitor(client, at, ages.get(client))}
        clients = others - monitors
        self.monitors = len(monitors)
        hosts = frozenset() if idle_router is None else _hosts(idle_router, view, now)
        is_free = all(host in hosts for host, _ in clients)
        self.by_router = is_free and bool(clients)
        self._note_reading(view, at, is_free=is_free)

    def _is_monitor(self, client: tuple[int, int], at: float, asked_s: float | None) -> bool:
        """Return whether a connection brought requests twice while those that run now ran already."""
        if asked_s is None or at - asked_s <= self.same_from + _BEFORE_S:
            return False
        return at - asked_s > self.asked_at.setdefault(client, at - asked_s) + _SAME_READING_S

    def _note_reading(self, view: BackendView, at: float, *, is_free: bool) -> None:
        """Take a reading of the connections into account; `is_free`: no client has a request."""
        if at <= self.read_at:
            return
        self.read_at = at
        if is_free and self.same_from <= at - _BEFORE_S:
            if self.since is None:
                self.since, self.polls, self.tokens = at, 0, _tokens(view)
            self.readings += 1

    def _finding(
        self, view: BackendView, sockets: Sockets | None, router: RouterView | None, lasted_s: float
    ) -> Finding:
        """Return the finding that a server works for nobody, and how sure that is."""
        running, now_tokens = view.running or 0.0, _tokens(view)
        generated_tokens: float | None = None
        if self.tokens is not None and now_tokens is not None:
            generated_tokens = max(0.0, now_tokens - self.tokens)
        count = "1 request" if running == 1 else f"{running:.0f} requests"
        # Where others are connected, only the router's count says that they ask nothing.
        counted_by = router if sockets is None or self.by_router else None
        nobody = "0 connections" if counted_by is None else f"0 in flight at {counted_by.name}"
        if self.monitors and counted_by is None:
            nobody = f"0 clients (monitors: {self.monitors})"
        words = f"{count}, {nobody} for {numbers.age(lasted_s)}"
        if generated_tokens is not None:
            words += f", {generated_tokens:,.0f} tokens"
        sure, line = Sure.LIKELY, f"works for nobody: {words}"
        # vLLM and SGLang work on requests with background: true while no client is connected.
        may_be_wanted = bool(view.responses) or (view.responses is None and view.engine == "vllm")
        if may_be_wanted:
            sure, line = Sure.UNKNOWN, f"no client: {words}; perhaps in the background"
        if sockets is None:
            sure, line = Sure.UNKNOWN, f"{line}; its connections cannot be seen"
        values: Values = {
            "running_requests": running,
            "connections": None if sockets is None or counted_by else 0.0,
            "monitor_connections": None if sockets is None else float(self.monitors),
            "router_in_flight_requests": None if counted_by is None else 0.0,
            "tokens_since": generated_tokens,
            "window_s": lasted_s,
            "limit_s": HOLD_S,
        }
        background = "an unknown number of" if view.responses is None else f"{view.responses:,.0f}"
        evidence = [
            ("requests", f"the same {running:.0f} run at every poll for {numbers.age(lasted_s)}"),
            ("clients", f"{nobody}; readings without a client: {self.readings} (from {LEAST_READINGS} on)"),
            ("in the background", f"{background} requests of the Responses API since its start"),
        ]
        if sockets is not None and sockets.hung_up:
            evidence.append(("hung up", f"{sockets.hung_up}: closed by the client, not yet by the server"))
        return Finding(
            FOR_NOBODY,
            view.name,
            line,
            fix=FINDINGS[FOR_NOBODY].advice("perhaps in the background" if may_be_wanted else "hung up"),
            sure=sure,
            severity=None if sure is Sure.UNKNOWN else Severity.WARNING,
            evidence=tuple(evidence),
            values=values,
            lasted_s=lasted_s,
        )


class ForNobody(EachServer):
    """Finds servers that work though nobody is connected."""

    def __init__(self) -> None:
        """Start without having seen anything."""
        self._routed: dict[str, _RouterTrust] = {}
        super().__init__(lambda: _Watched(self._routed))

    def look(self, now: Situation) -> Iterator[Finding]:
        """Yield the servers that have worked for nobody until now."""
        for router in now.routers:
            self._routed.setdefault(router.name, _RouterTrust()).compare(router, now)
        yield from super().look(now)


def _tokens(view: BackendView) -> float | None:
    return known_sum((view.prompt_tokens, view.generation_tokens))


def _connections(view: BackendView, now: Situation) -> tuple[float, Sockets] | None:
    """Return (time, connections) of a server's process, from the one machine on which it is seen."""
    readings: list[tuple[float, Sockets]] = []
    for name in view.nodes:
        node = now.nodes.get(name)
        if node is None or not node.ok or node.sample is None or node.sample.workloads is None:
            continue
        loads = node.sample.workloads
        own_count = sum(name in backend.nodes for backend in now.backends.values())
        server = server_process(view.url, view.engine, loads, alone=own_count == 1)
        if server is None or server.sockets is None:
            continue
        if server.sockets.bridged or port_of(view.url) == server.port:
            readings.append((node.sample.at - (loads.age_s or 0.0), server.sockets))
    return readings[0] if len(readings) == 1 else None


def _router_of(view: BackendView, now: Situation, routed: Mapping[str, _RouterTrust]) -> RouterView | None:
    """Return the only router before a server, if its count of requests in flight can be believed."""
    mine = [router for router in now.routers if view.name in router.backends]
    router = mine[0] if len(mine) == 1 and mine[0].ok and mine[0].sample.kind != UNKNOWN_KIND else None
    if router is None or router.sample.in_flight is None or not routed[router.name].is_believed:
        return None
    return router


def _hosts(router: RouterView, view: BackendView, now: Situation) -> frozenset[int]:
    """Return marks of the addresses from which a router connects to a server, as far as they are known."""
    host = normal_host(url_host(router.url))
    addresses = {host} - {"localhost"}
    for node in now.nodes.values():
        names = set(map(normal_host, (node.name, node.identity.hostname, *node.identity.addresses)))
        if host in names or (host == "localhost" and node.via == "local"):
            addresses.update(node.identity.addresses, _LOOPBACK if node.name in view.nodes else ())
    return frozenset(end_marks(address, 0)[0] for address in addresses)


class Orphans:
    """Finds processes of engines that hold GPU memory though the server that started them has ended."""

    def __init__(self) -> None:
        """Start without having seen anything."""
        self._since: dict[tuple[str, int], float] = {}

    def look(self, now: Situation) -> Iterable[Finding]:
        """Return the processes that have been orphaned for `ORPHAN_S`."""
        orphans: dict[tuple[str, int], tuple[Workload, int]] = {}
        for name, node in now.nodes.items():
            loads = node.sample.workloads if node.ok and node.sample is not None else None
            for process in () if loads is None else loads.processes:
                held_bytes = sum(gpu.bytes_of({process.pid}) for gpu in node.gpus)
                if process.adopted and held_bytes >= _LEAST_BYTES:
                    orphans[name, process.pid] = process, held_bytes
        self._since = {key: self._since.get(key, now.at) for key in orphans}
        for (name, pid), (process, held_bytes) in orphans.items():
            lasted_s = now.at - self._since[name, pid]
            if lasted_s >= ORPHAN_S:
                yield _orphan_finding(name, process, held_bytes, lasted_s)


def _orphan_finding(node: str, process: Workload, held: int, lasted_s: float) -> Finding:
    """Return the finding about a process whose server has ended."""
    where, lasted = f" (container {process.box})" if process.box else "", numbers.age(lasted_s)
    return Finding(
        ORPHANED,
        node,
        f"orphaned {process.about} (process {process.pid}) holds {held / GIB:.1f} GiB: its server is gone",
        of_machine=True,
        fix=FINDINGS[ORPHANED].advice(PID=process.pid, MACHINE=f"{node}{where}"),
        severity=Severity.WARNING,
        evidence=(
            ("process", f"{process.pid}, {process.engine} {process.about}{where}"),
            ("GPU memory", f"{held / GIB:.1f} GiB"),
            ("parent", f"an init process, for at least {lasted}: the server that began it ended"),
        ),
        values={"pid": float(process.pid), "gpu_memory_bytes": float(held), "window_s": lasted_s},
        lasted_s=lasted_s,
        key=str(process.pid),
    )
