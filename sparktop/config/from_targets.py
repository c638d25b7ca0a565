"""A configuration file written from what was found, with comments, from the template `found.toml.jinja`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from sparktop.analysis.placement import address_of
from sparktop.config.toml_text import toml_value
from sparktop.errors import ConfigError
from sparktop.files import FILE_NAME, filled_template
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import RouterView
from sparktop.model.snapshot import BackendView, NodeView, Snapshot
from sparktop.model.targets import (
    ARGUMENTS,
    BackendTarget,
    NodeTarget,
    PrometheusTarget,
    RouterTarget,
    Target,
    Watch,
)
from sparktop.model.text import clean

_LONGEST_NAME = 64
"""Most characters of a name in the file."""


def check_origin(watch: Watch) -> None:
    """Check that the targets of `watch` come from arguments or a search: a file's settings would get lost.

    Raises:
        ConfigError: they are those of a configuration file.
    """
    targets = (*watch.nodes, *watch.backends, *watch.prometheus)
    if targets and watch.source != ARGUMENTS and not watch.discover:
        raise ConfigError(f"{clean(watch.source, 300)} has targets already: edit it, or name other TARGETs")


def toml_of_targets(targets: Sequence[Target], snapshot: Snapshot) -> str:
    """Return a configuration file with `targets` and comments on them from `snapshot`.

    Backends are matched with machines and routers as in the snapshot. Targets that did not answer are in the
    file too, with the reason as a comment.

    Raises:
        ConfigError: there are no targets.
    """
    if not targets:
        raise ConfigError("nothing was found to write: name TARGETs")
    machines = [target for target in targets if isinstance(target, NodeTarget) and target.scrape is None]
    servers = [target for target in targets if isinstance(target, BackendTarget) and target.scrape is None]
    nodes = {view.name: view for view in snapshot.nodes}
    backends = {view.name: view for view in snapshot.backends}
    routers = {view.name: view for view in snapshot.routers}
    placed = {server.name: _machines_of(server, backends.get(server.name), snapshot) for server in servers}
    return (
        filled_template(
            Path(__file__).with_name("found.toml.jinja"),
            toml=toml_value,
            host_of=_host_of,
            unauthorized=FailureKind.UNAUTHORIZED,
            day=snapshot.taken_at.date().isoformat(),
            file_name=FILE_NAME,
            machines=[(machine, _about_machine(nodes.get(machine.name))) for machine in machines],
            unknown_hosts=dict.fromkeys(_host_of(server) for server in servers if not placed[server.name]),
            servers=[
                (server, view := backends.get(server.name), _about_server(view), placed[server.name])
                for server in servers
            ],
            server_names=[server.name for server in servers],
            routers=[
                (target, *_about_router(routers.get(target.name), servers))
                for target in targets
                if isinstance(target, RouterTarget)
            ],
            prometheus=[target for target in targets if isinstance(target, PrometheusTarget)],
        ).rstrip()
        + "\n"
    )


def without_router(targets: Sequence[Target]) -> str | None:
    """Return a line for the user if `targets` are several servers without a router; else None."""
    servers = sum(isinstance(target, BackendTarget) and target.scrape is None for target in targets)
    if servers < 2 or any(isinstance(target, RouterTarget) for target in targets):  # noqa: PLR2004 - several
        return None
    return "no router was found: if these servers are behind one, add its address, such as HOST:4000"


def _machines_of(target: BackendTarget, view: BackendView | None, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the machines of a backend: those of its target, else those on which a process of it runs."""
    nodes = target.nodes or (() if view is None else view.nodes)
    return nodes or tuple(
        node.name
        for node in snapshot.nodes
        if any(process.backend == target.name for process in node.engine_processes)
    )


def _host_of(target: BackendTarget) -> str:
    return clean(urlsplit(target.url).hostname or "", _LONGEST_NAME)


def _about_machine(view: NodeView | None) -> Iterator[str]:
    """Yield why a machine did not answer, and what it is."""
    if view is None:
        return
    yield from _why_unanswered(view.failure)
    gpus = () if view.sample is None else dict.fromkeys(gpu.name for gpu in view.sample.gpus)
    facts = view.identity
    yield from _in_a_line(facts.product, *gpus, facts.os, facts.driver and f"driver {facts.driver}")


def _about_server(view: BackendView | None) -> Iterator[str]:
    """Yield why a server did not answer, and what it is."""
    if view is None:
        return
    yield from _why_unanswered(view.failure)
    length = None if view.max_model_len is None else f"context {view.max_model_len:,} tokens"
    yield from _in_a_line(" ".join(word for word in (view.engine, view.version) if word), view.model, length)


def _about_router(
    view: RouterView | None, servers: Sequence[BackendTarget]
) -> tuple[list[str], tuple[str, ...], dict[str, str], list[str]]:
    """Return comments on a router, its backends, those by deployment, and addresses of the others."""
    if view is None:
        return [], (), {}, []
    sample = view.sample
    comments = [
        *_why_unanswered(view.failure),
        *_in_a_line(sample.kind, sample.version, view.strategy_read and view.strategy),
    ]
    matched = {name: backend for name, backend in (view.deployments or {}).items() if backend}
    backends = tuple(dict.fromkeys(matched.values())) or view.backends
    return comments, backends, matched, list(_unwatched_deployments(view, servers))


def _unwatched_deployments(view: RouterView, servers: Sequence[BackendTarget]) -> Iterator[str]:
    """Yield the address of each deployment that is not among the backends."""
    watched = {address_of(target.url) for target in servers}
    for deployment in view.sample.deployments or ():
        if view.deployments is not None and view.deployments.get(deployment.id) is None:
            address = deployment.address and address_of(deployment.address)
            if not address or address not in watched:
                yield clean(deployment.address or deployment.id, 200)


def _why_unanswered(failure: Failure | None) -> Iterator[str]:
    if failure is not None:
        yield f"It did not answer: {clean(failure.message, 200)}"


def _in_a_line(*facts: object) -> Iterator[str]:
    """Yield those facts that are known, if any, in one line."""
    if known_facts := [clean(fact, 120) for fact in facts if fact]:
        yield ", ".join(known_facts)
