"""A configuration file written from what was found: machines, servers and routers, with comments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import urlsplit

from sparktop.analysis.placement import address_of
from sparktop.config.toml_text import toml_value
from sparktop.errors import ConfigError
from sparktop.files import FILE_NAME
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

_HEAD = f"""\
# Written by sparktop from what answered on {{day}}. Every setting with its default: sparktop config --default
# After a change: sparktop config --check {FILE_NAME}
"""
_LONGEST_NAME = 64
"""Most characters of a name in the file."""
_NO_DEPLOYMENTS = (
    "# Its deployments are not known: with its key they are read and matched, else list what is behind it."
)
"""Comment on a router that does not say what is behind it."""
_KEY_HINT = "# The name of the environment variable that holds its API key."
"""Comment on the variable of a key."""


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
    blocks = [
        *(_node_table(machine, nodes.get(machine.name)) for machine in machines),
        *_unknown_machines([server for server in servers if not placed[server.name]]),
        *(_backend_table(server, backends.get(server.name), placed[server.name]) for server in servers),
        *(
            _router_table(target, routers.get(target.name), servers)
            for target in targets
            if isinstance(target, RouterTarget)
        ),
        *(
            [
                "[[prometheus]]",
                _toml_pair("name", target.name),
                _toml_pair("url", target.url),
                "# The name of the environment variable that holds its token.",
                '#bearer_env = "PROMETHEUS_TOKEN"',
            ]
            for target in targets
            if isinstance(target, PrometheusTarget)
        ),
    ]
    head = _HEAD.format(day=snapshot.taken_at.date().isoformat())
    return "\n".join([head, *("\n".join([*block, ""]) for block in blocks)])


def without_router(targets: Sequence[Target]) -> str | None:
    """Return a line for the user if `targets` are several servers without a router; else None."""
    servers = sum(isinstance(target, BackendTarget) and target.scrape is None for target in targets)
    if servers < 2 or any(isinstance(target, RouterTarget) for target in targets):  # noqa: PLR2004 - several
        return None
    return "no router was found: if these servers are behind one, add its address, such as HOST:4000"


def _machines_of(target: BackendTarget, view: BackendView | None, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the machines of a backend: those of its target, else those on which a process of it runs."""
    if target.nodes or (view is not None and view.nodes):
        return target.nodes or (() if view is None else view.nodes)
    return tuple(
        node.name
        for node in snapshot.nodes
        if any(process.backend == target.name for process in node.engine_processes)
    )


def _node_table(target: NodeTarget, view: NodeView | None) -> Iterator[str]:
    """Yield the table of a machine."""
    yield "[[nodes]]"
    yield from _node_facts(view)
    yield _toml_pair("name", target.name)
    yield _toml_pair("via", target.via)
    if target.url is not None:
        yield _toml_pair("url", target.url)
        yield "# The name of the environment variable that holds the agent's token."
        yield '#token_env = "SPARKTOP_TOKEN"'
    if target.ssh is not None:
        yield _toml_pair("ssh", target.ssh)


def _node_facts(view: NodeView | None) -> Iterator[str]:
    """Yield a comment on what a machine is."""
    if view is None:
        return
    yield from _failure_comment(view.failure)
    gpus = () if view.sample is None else dict.fromkeys(gpu.name for gpu in view.sample.gpus)
    facts = view.identity
    words = [facts.product, *gpus, facts.os, facts.driver and f"driver {facts.driver}"]
    if any(words):
        yield f"# {', '.join(clean(word, 60) for word in words if word)}"


def _unknown_machines(targets: Iterable[BackendTarget]) -> Iterator[list[str]]:
    """Yield a commented machine for each host of `targets`, to uncomment."""
    hosts = dict.fromkeys(urlsplit(target.url).hostname or "" for target in targets)
    for host in hosts:
        name = clean(host, _LONGEST_NAME)
        yield [
            f"# The machine {name} is not watched. Over ssh nothing has to be installed there.",
            "#[[nodes]]",
            f"#{_toml_pair('name', name)}",
            '#via = "ssh"',
            f"#{_toml_pair('ssh', name)}",
        ]


def _backend_table(target: BackendTarget, view: BackendView | None, nodes: tuple[str, ...]) -> Iterator[str]:
    """Yield the table of a backend; what is not known is a comment to fill in."""
    yield "[[backends]]"
    if view is not None:
        yield from _backend_facts(view)
    yield _toml_pair("name", target.name)
    yield _toml_pair("url", target.url)
    yield _toml_pair("engine", (view and view.engine) or target.engine)
    host = clean(urlsplit(target.url).hostname or "", _LONGEST_NAME)
    yield _toml_pair("nodes", nodes) if nodes else f"#{_toml_pair('nodes', (host,))}"
    if target.slots is not None:
        yield f"slots = {target.slots}"
    elif view is not None and view.slots is not None:
        yield "# How many requests it runs at once is read: to be written only where it is another number."
        yield f"#slots = {view.slots}"
    elif view is not None and view.engine == "vllm":
        yield "# How many requests it runs at once: write its --max-num-seqs, which vLLM does not report."
        yield "#slots = ?"
    if view is not None and view.failure is not None and view.failure.kind is FailureKind.UNAUTHORIZED:
        yield _KEY_HINT
        yield '#api_key_env = "VLLM_API_KEY"'


def _backend_facts(view: BackendView) -> Iterator[str]:
    yield from _failure_comment(view.failure)
    length = None if view.max_model_len is None else f"context {view.max_model_len:,} tokens"
    engine = " ".join(word for word in (view.engine, view.version) if word)
    if words := [clean(word, 120) for word in (engine, view.model, length) if word]:
        yield f"# {', '.join(words)}"


def _router_table(
    target: RouterTarget, view: RouterView | None, servers: Sequence[BackendTarget]
) -> Iterator[str]:
    """Yield the table of a router, with the backends that were matched."""
    yield "[[routers]]"
    if view is not None:
        yield from _failure_comment(view.failure)
        words = [view.sample.kind, view.sample.version, view.strategy_read and view.strategy]
        if parts := [clean(word, 60) for word in words if word]:
            yield f"# {', '.join(parts)}"
    yield _toml_pair("name", target.name)
    yield _toml_pair("url", target.url)
    matched = {} if view is None else {name: to for name, to in (view.deployments or {}).items() if to}
    backends = tuple(dict.fromkeys(matched.values())) or (() if view is None else view.backends)
    if backends:
        yield _toml_pair("backends", backends)
    else:
        yield _NO_DEPLOYMENTS
        yield f"#{_toml_pair('backends', tuple(server.name for server in servers))}"
    if matched:
        yield f"deployments = {toml_value(matched)}"
    if view is not None:
        yield from _unwatched_deployments(view, servers)
    yield _KEY_HINT
    yield '#api_key_env = "LITELLM_KEY"'


def _unwatched_deployments(view: RouterView, servers: Sequence[BackendTarget]) -> Iterator[str]:
    """Yield a comment for each deployment that is not among the backends."""
    watched = {address_of(target.url) for target in servers}
    for deployment in view.sample.deployments or ():
        if view.deployments is not None and view.deployments.get(deployment.id) is None:
            address = deployment.address and address_of(deployment.address)
            if not address or address not in watched:
                yield f"# Not watched: {clean(deployment.address or deployment.id, 200)}"


def _failure_comment(failure: Failure | None) -> Iterator[str]:
    if failure is not None:
        yield f"# It did not answer: {clean(failure.message, 200)}"


def _toml_pair(key: str, value: str | tuple[str, ...]) -> str:
    return f"{key} = {toml_value(value)}"
