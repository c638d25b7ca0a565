"""The possible targets of a sweep: all watched servers and routers, or those of a selected panel."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec.structs import replace

from sparktop.analysis.placement import address_of
from sparktop.graphics.numbers import count_words
from sparktop.hardware.identity import is_here, own_hosts
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import ARGUMENTS, BackendTarget, RouterTarget, Watch
from sparktop.sweep.plan.plan import Plan, SweepTarget, TargetKind

MOST_UNMARKED = 16
"""Servers that a key loads all together where none of them is marked."""
_GROUPS = frozenset({"balance", "evidence"})
"""Kinds of panels of a balance group."""
_MOST_LINES = 6
"""Lines of a question that name servers."""
_WALL_GROUPS = frozenset({"wall", "members"})
"""Kinds of a line of the wall, and of a group that was opened there."""
_NODES = frozenset({"node", "processes"})
"""Kinds of panels of a machine."""


def watched_targets(watch: Watch, snapshot: Snapshot) -> tuple[SweepTarget, ...]:
    """Return all watched routers, then all watched backends, as targets, in the order of the screen.

    Routers that the configuration lists only for sweeps follow the watched routers. `watch` has the targets
    known at the start, with API keys; `snapshot` also has those found since. Those in `watch` may be loaded
    without confirmation, unless the user typed them or the configuration file was only found.
    """
    typed = watch.source == ARGUMENTS
    routers = {router.name: router for router in (*watch.routers, *watch.sweep_routers)}
    backends = {backend.name: backend for backend in watch.backends}
    configured = () if typed or not watch.is_trusted else {*routers, *backends}
    own_names = own_hosts()
    views = {view.name: view for view in snapshot.routers}
    shown = {}
    for server in snapshot.backends:
        # One that is not configured has no key; if no machines are configured, it has the discovered ones.
        backend = backends.pop(server.name, BackendTarget(server.name, server.url))
        shown[server.name] = backend if backend.nodes else replace(backend, nodes=server.nodes)
    backends = shown | backends
    targets = []
    for name in dict.fromkeys((*views, *routers)):
        view = views.get(name)
        router = routers[name] if name in routers else RouterTarget(name, views[name].url)
        names = dict.fromkeys((*router.backends, *(view.backends if view is not None else ())))
        reported = (view.deployments if view is not None else None) or {}
        targets.append(
            router_target(
                router,
                [backends[backend] for backend in names if backend in backends],
                deployments={id_: backend for id_, backend in reported.items() if backend is not None},
                known=name in configured or is_here(urlsplit(router.url).hostname, own_names),
            )
        )
    for backend in backends.values():
        is_known = backend.name in configured or is_here(urlsplit(backend.url).hostname, own_names)
        targets.append(engine_target(backend, known=is_known))
    return tuple(targets)


def chosen_names(
    targets: Sequence[SweepTarget],
    snapshot: Snapshot,
    kind: str,
    name: str,
    *,
    shown: Collection[str] | None = None,
) -> tuple[str, ...]:
    """Return the names of the targets to load if the panel with the key (`kind`, `name`) is selected.

    For the panel of a backend or router, return its name. For a group, return its router, or its backends if
    it has no router. For a machine, return the backends on it. In all other cases, return all watched
    routers, or all backends if no router is watched.

    `shown` has the names of the backends that a filter leaves; None without a filter. It narrows a group of a
    wall to those that are shown, and all other cases to all that are shown.
    """
    # A router that is not watched is only chosen by name.
    watched = {view.name for view in snapshot.routers}
    all_routers = [target.name for target in targets if target.kind is TargetKind.ROUTER]
    routers = [router for router in all_routers if router in watched]
    engines = [target.name for target in targets if target.kind is TargetKind.ENGINE]
    members = _members_of_panel(targets, snapshot, kind, name)
    chosen = [engine for engine in engines if engine in members]
    if kind in _WALL_GROUPS and shown is not None and not set(chosen) <= set(shown):
        chosen = [engine for engine in chosen if engine in shown]
    elif kind == "router" or (kind in {*_GROUPS, *_WALL_GROUPS} and name in routers):
        chosen = [router for router in routers if router == name]
    if not chosen and shown is not None:
        return tuple(engine for engine in engines if engine in shown)
    return tuple(chosen or routers or engines)


def _members_of_panel(
    targets: Sequence[SweepTarget], snapshot: Snapshot, kind: str, name: str
) -> Collection[str]:
    """Return the names of the backends that the panel with the key (`kind`, `name`) is about."""
    if kind in _NODES:
        on_machine = {view.name for view in snapshot.backends if name in view.nodes}
        return on_machine | {target.name for target in targets if name in target.nodes}
    if kind in _WALL_GROUPS:
        from sparktop.analysis.wall import wall_of  # late: most boards have no wall

        groups = (group for group in wall_of(snapshot).groups if group.name == name)
        return {server.server.name for group in groups for server in group.servers}
    if kind not in _GROUPS:
        return {name}
    members = {view.name for view in snapshot.backends if view.group == name}
    balances = (balance for balance in snapshot.balance if balance.group == name)
    members |= {backend for balance in balances for backend in balance.backends}
    # The engine cores (data-parallel ranks) of one server are a group that has its name.
    is_of_engines = any(target.kind is TargetKind.ENGINE and target.name in members for target in targets)
    return members if is_of_engines else {name}


def others_load(plan: Plan, snapshot: Snapshot | None, announced: Mapping[int, Collection[str]]) -> list[str]:
    """Return what others load of the servers of `plan`: a line for each sweep, and for each busy server.

    `announced` has the addresses that other sweeps load by process ID. A server is busy if requests run or
    wait on it; many are counted in the last line.
    """
    lines = []
    for view in () if snapshot is None else snapshot.backends:
        gauges = ((view.running, "running"), (view.waiting, "waiting"))
        counts = [(round(number), word) for number, word in gauges if number is not None]
        if view.name in plan.loaded and any(number for number, _ in counts):
            lines.append(f"{view.name}: {', '.join(f'{number:,} {word}' for number, word in counts)}")
    if (omitted := len(lines) - _MOST_LINES) > 0:
        lines[_MOST_LINES:] = [f"and on {count_words(omitted, 'more server')}"]
    own_addresses = {address_of(url) for url in plan.loaded_urls} - {None}
    sweeps = [pid for pid, urls in announced.items() if not own_addresses.isdisjoint(map(address_of, urls))]
    return [*(f"process {pid}: a sweep of the same server" for pid in sweeps), *lines]


def why_too_many(
    targets: Sequence[SweepTarget],
    names: Sequence[str],
    *,
    kind: str = "",
    shown: Collection[str] | None = None,
) -> str:
    """Return why one key does not load the targets `names`, which are all of many servers; else "".

    They are all of `targets`, or, where the selected panel is not of a `kind` that chooses servers, all that
    a filter leaves (`shown`, as above).
    """
    engines = {target.name for target in targets if target.kind is TargetKind.ENGINE}
    loaded = engines.intersection(names)
    is_marked = shown is None or kind in _GROUPS | _WALL_GROUPS | _NODES
    if len(loaded) <= MOST_UNMARKED or (is_marked and loaded != engines):
        return ""
    which = f"all {len(loaded)} servers" if is_marked else f"the {len(loaded)} servers that the filter leaves"
    fewer = f"filter (/) until at most {MOST_UNMARKED} are left"
    return f"this would load {which}: mark a server or a group, {fewer}, or choose in the editor (S)"


def engine_target(backend: BackendTarget, *, model: str | None = None, known: bool) -> SweepTarget:
    """Return a server as a sweep target; `known` is True if it may be loaded without confirmation."""
    return SweepTarget(
        backend.name,
        backend.url,
        model=model,
        api_key=backend.api_key,
        tls_ca=backend.tls_ca,
        nodes=backend.nodes,
        known=known,
    )


def router_target(
    router: RouterTarget,
    behind: Iterable[BackendTarget],
    *,
    deployments: Mapping[str, str] | None = None,
    model: str | None = None,
    known: bool,
) -> SweepTarget:
    """Return a router as a sweep target that knows its backends and their machines.

    `behind` are the watched backends of the router. `deployments` maps the deployment ids that the router
    reports to names of backends; for an id that the configuration of `router` also maps, the configured name
    is used. `known` is True if the target may be loaded without confirmation.
    """
    servers = list(behind)
    return SweepTarget(
        router.name,
        router.url,
        TargetKind.ROUTER,
        model=model,
        api_key=router.api_key,
        tls_ca=router.tls_ca,
        backends={server.name: server.url for server in servers},
        deployments={**(deployments or {}), **router.deployments},
        strategy=router.strategy,
        nodes=tuple(dict.fromkeys(node for server in servers for node in server.nodes)),
        known=known,
    )


def strangers(targets: Iterable[SweepTarget]) -> list[SweepTarget]:
    """Return the targets that are neither on this machine nor in a configuration that the user trusts."""
    return [target for target in targets if not target.known]
