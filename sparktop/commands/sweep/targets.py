"""Finds the targets of a sweep from names in the configuration, hosts and URLs; asks whether to load them.

Also decides which servers and machines are watched while the sweep runs.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from msgspec.structs import replace

from sparktop.commands.arguments import target_keys
from sparktop.commands.choice import checked_key, this_machine
from sparktop.commands.observation import wait_for
from sparktop.commands.output import tell
from sparktop.errors import UnreachableError, UsageError, did_you_mean
from sparktop.hardware.identity import is_here, own_hosts
from sparktop.model.router import LITELLM, RouterSample
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import BackendTarget, EventSettings, NodeTarget, RouterTarget, Watch
from sparktop.model.text import clean, free_name
from sparktop.sources.router import RouterSource
from sparktop.store import Store
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.plan.watched_targets import engine_target, others_load, router_target, strangers
from sparktop.sweep.run.preparation import beyond_contexts
from sparktop.watch.discovery import discover, parse_target, shortened_message
from sparktop.watch.monitor import Monitor
from sparktop.watch.state_files import announced_loads

INTERVAL_S = 0.5
"""Longest poll interval in seconds of servers during a sweep from the command line."""
_ROUTER_DEADLINE_S = 3.0
"""Seconds for the poll that tells a router from a server."""
_GLANCE_S = 3.0
"""Longest wait in seconds for the servers' pages before the first request."""
_CONTEXT_S = 1.5
"""Longest wait in seconds for their context lengths, which come with the next poll; some have none."""


_Server = BackendTarget | RouterTarget
"""A server or router to put load on."""


def is_named(word: str) -> bool:
    """Return whether a TARGET is NAME=URL; a URL alone may have "=" after its host."""
    name, sign, _ = word.partition("=")
    return bool(sign) and not {"/", ":", "?"} & set(name)


def named_target(text: str) -> tuple[str, str]:
    """Parse a TARGET written NAME=URL into (name, URL).

    Raises:
        UsageError: the text is not NAME=URL, or the name has invisible characters or over 64 characters.
    """
    name, sign, url = (part.strip() for part in text.partition("="))
    if not sign or not name or not url or clean(name, 64) != name:
        raise UsageError(f"{clean(text, 60)}: write NAME=URL, as in solo=http://127.0.0.1:8000")
    return name, url


def asked_targets(
    texts: Sequence[str], options: Sequence[str], model: str | None, watch: Watch, usual: Sequence[str] = ()
) -> tuple[tuple[SweepTarget, ...], Watch]:
    """Return the targets that the TARGET arguments `texts` mean, and what to watch meanwhile.

    Without texts, these are the `usual` names, see `choose_targets`. `options` are the values of
    --api-key-env.

    Raises:
        UsageError: a text or an option cannot be used.
        UnreachableError: nothing was found.
    """
    named = [named_target(text) for text in texts if is_named(text)]
    words = [text for text in texts if not is_named(text)]
    given = [*words, *(text for pair in named for text in pair)]
    keys = target_keys(options, given, os.environ, targets=len(texts))
    return asyncio.run(choose_targets(words if texts else usual, named, watch, model, keys))


async def choose_targets(
    words: Sequence[str],
    named: Sequence[tuple[str, str]],
    watch: Watch,
    model: str | None,
    keys: Mapping[str, str],
) -> tuple[tuple[SweepTarget, ...], Watch]:
    """Return the targets that the TARGET arguments `words` and the (name, URL) pairs `named` mean.

    With them comes what to watch while the sweep runs: their servers and machines.

    `watch` is the content of the configuration. Without words and pairs, return all servers and routers of
    `watch`, or else those found on this machine's usual ports. `model` is the model to request, None for the
    server's first. `keys` has API keys by word, name or URL.

    Raises:
        UsageError: a word cannot be used.
        UnreachableError: nothing was found.
    """
    configured = _configured(watch)
    servers = [(server.name, server) for word in words for server in await _find(word, configured, keys)]
    for name, url in named:
        key = {url: keys[name]} if name in keys else keys
        servers += [(name, server) for server in await _find(url, configured, key)]
    if not words and not named:
        # A router that is configured only for sweeps must be named to be used.
        usual: list[_Server] = [*watch.backends, *watch.routers] or await _discover("127.0.0.1")
        servers = [(server.name, server) for server in usual]
    extra: list[BackendTarget] = []
    unique: dict[tuple[str, str], _Server] = {}
    configured_urls = {server.url for server in configured}
    for name, server in servers:
        unique[name, server.url], behind = (
            (server, []) if server.url in configured_urls else await _as_router(server)
        )
        extra += behind
    if len({name for name, _ in unique}) < len(unique):
        raise UsageError("two targets have the same name: write them NAME=URL")
    return _choose([(name, server) for (name, _), server in unique.items()], watch, extra, model)


def _configured(watch: Watch) -> list[_Server]:
    return [*watch.backends, *watch.routers, *watch.sweep_routers]


async def _find(word: str, configured: Sequence[_Server], keys: Mapping[str, str]) -> list[_Server]:
    """Return the servers and routers that a TARGET means: one, or all that a host has.

    Raises:
        UsageError: it means none.
    """
    target = next((server for server in configured if server.name == word), None)
    if target is None:
        parsed = parse_target(word)
        checked_key(parsed, word, keys)  # of a host or an agent there is none
        if isinstance(parsed, NodeTarget):
            raise UsageError(f"{clean(word, 60)}: is a node's agent; a sweep needs a server or a router")
        if isinstance(parsed, str):
            try:
                return await _discover(parsed)
            except UnreachableError as error:
                names = [server.name for server in configured]
                hint = did_you_mean(word, names).removeprefix(": ") or f"configured: {', '.join(names)}"
                raise UnreachableError(f"{error} ({hint})" if names else str(error)) from None
        if (note := shortened_message(word, parsed)) is not None:
            tell(note)
        target = next((server for server in configured if server.url == parsed.url), parsed)
    return [replace(target, api_key=checked_key(target, word, keys) or target.api_key)]


async def _discover(host: str) -> list[_Server]:
    discovered = await discover([host])
    if not discovered.backends and not discovered.routers:
        raise UnreachableError(f"nothing to put load on: {'; '.join(discovered.notes) or clean(host, 80)}")
    return [*discovered.backends, *discovered.routers]


async def _as_router(target: _Server) -> tuple[_Server, list[BackendTarget]]:
    """Return a server that is not configured as a router if one poll shows that it is a LiteLLM.

    With it come the backends behind it; any other server is returned unchanged, without backends.
    """
    source = RouterSource(RouterTarget(target.name, target.url, api_key=target.api_key))
    try:
        reading = await source.poll(_ROUTER_DEADLINE_S)
    finally:
        await source.close()
    if not isinstance(reading, RouterSample) or reading.kind != LITELLM:
        return target, []
    behind: dict[str, BackendTarget] = {}
    for deployment in reading.deployments or ():
        with suppress(UsageError):  # a provider's own address: nothing to watch there
            backend = parse_target(deployment.address or "")
            if isinstance(backend, BackendTarget):
                behind[backend.url] = backend
    names = tuple(backend.name for backend in behind.values())
    router = RouterTarget(target.name, target.url, backends=names, api_key=target.api_key)
    return router, list(behind.values())


def _choose(
    servers: Sequence[tuple[str, _Server]], watch: Watch, extra: Sequence[BackendTarget], model: str | None
) -> tuple[tuple[SweepTarget, ...], Watch]:
    """Return servers by name as targets, and what is watched while they are loaded.

    `extra` has backends behind routers that are not in the configuration.
    """
    backends_by_name = {backend.name: backend for backend in [*extra, *watch.backends]}
    configured_urls, own_names = {server.url for server in _configured(watch)}, own_hosts()
    targets = []
    backends: dict[str, BackendTarget] = {}
    routers: dict[str, RouterTarget] = {}
    for name, target in servers:
        is_configured = target.url in configured_urls
        known_here = (is_configured and watch.is_trusted) or is_here(urlsplit(target.url).hostname, own_names)
        if isinstance(target, RouterTarget):
            behind = [backends_by_name[name] for name in target.backends if name in backends_by_name]
            routers[target.url] = replace(target, name=name)
            backends |= {backend.url: backend for backend in behind}
            sweep_target = router_target(routers[target.url], behind, model=model, known=known_here)
        else:
            taken_names = {backend.name for backend in backends.values()}
            watched_name = target.name if is_configured else free_name(name, taken_names)
            backends.setdefault(target.url, replace(target, name=watched_name))
            sweep_target = engine_target(replace(target, name=name), model=model, known=known_here)
        targets.append(sweep_target)
    chosen_backends = tuple(backends.values())
    return (
        tuple(targets),
        replace(
            watch,
            nodes=_machines_to_watch(watch.nodes, chosen_backends, own_names),
            backends=chosen_backends,
            routers=tuple(routers.values()),
            discover=(),
            interval_s=min(INTERVAL_S, watch.interval_s),
        ),
    )


def _machines_to_watch(
    nodes: Sequence[NodeTarget], backends: Sequence[BackendTarget], own_names: frozenset[str]
) -> tuple[NodeTarget, ...]:
    """Return the machines to watch during the sweep.

    These are the nodes on which the backends are configured to run, or all nodes if a backend is configured
    without nodes. This machine, with the host names and addresses `own_names`, is added if a backend runs on
    it and it is not among the nodes.
    """
    named_machines = {node for backend in backends for node in backend.nodes}
    chosen = tuple(nodes) if any(not backend.nodes for backend in backends) else ()
    chosen = chosen or tuple(node for node in nodes if node.name in named_machines)
    is_loaded = any(is_here(urlsplit(backend.url).hostname, own_names) for backend in backends)
    if is_loaded and all(node.via != "local" for node in chosen):
        chosen = (*chosen, this_machine())
    return chosen


def ask_first(plan: Plan, watch: Watch, *, is_sure: bool) -> Snapshot:
    """Ask the user for confirmation if a target is neither here nor configured, or others load a server.

    With `is_sure`, ask nothing. Without a terminal to ask on, or with `is_sure`, say what others load. Return
    what the servers reported: each was polled once.

    Raises:
        UsageError: no server takes what is to be sent, the answer is no, or there is no terminal to ask
            whether a stranger may be loaded.
    """
    parts = []
    can_ask = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
    if not is_sure and (unknown := strangers(plan.targets)):
        names = ", ".join(clean(target.url, 80) for target in unknown)
        parts.append(f"{names}: neither on this machine nor in the configuration")
        if not can_ask:
            raise UsageError(f"{parts[0]}; say --yes to put load on it")
    snapshot = asyncio.run(_poll_once(watch))
    reason, is_all = beyond_contexts(plan, snapshot)
    if plan.capacity is None and is_all:
        raise UsageError(f"nothing can be measured: {reason}")
    # The load of simulated servers is the demo's own, which pauses meanwhile.
    if lines := others_load(plan, None if snapshot.simulated else snapshot, announced_loads()):
        others = f"{'; '.join(clean(line, 200) for line in lines)}: others' load distorts the figures"
        if is_sure or not can_ask:
            tell(others)
        parts.append(others)
    if is_sure or not can_ask or not parts:
        return snapshot
    sys.stderr.write(f"sparktop: {'. '.join(parts)}. Put load on it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise UsageError("nothing was sent")
    return snapshot


async def _poll_once(watch: Watch) -> Snapshot:
    """Return what one poll of each server of `watch` reports."""
    watch = replace(watch, nodes=(), events=EventSettings())
    store = Store(watch)
    monitor = Monitor(watch, store)
    await monitor.start()
    try:
        await wait_for(lambda: _have_answered(store), _GLANCE_S, asyncio.Event())
        await wait_for(lambda: _have_said_context(store), _CONTEXT_S, asyncio.Event())
    finally:
        await monitor.stop()
    return store.snapshot()


def _have_said_context(store: Store) -> bool:
    views = store.snapshot().backends
    return all(view.failure is not None or view.max_model_len is not None for view in views)


def _have_answered(store: Store) -> bool:
    return all(view.failure is not None or view.age_s is not None for view in store.snapshot().backends)
