"""Decides what to watch: the TARGET arguments, else the configuration file, else this machine."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from sparktop.colors.palette import find_palette, palettes
from sparktop.commands.arguments import configured_watch, target_keys
from sparktop.commands.output import tell
from sparktop.errors import ConfigError, UsageError, did_you_mean
from sparktop.model.targets import ARGUMENTS, BackendTarget, NodeTarget, PrometheusTarget, RouterTarget, Watch
from sparktop.model.text import clean, free_name

NamedTarget = TypeVar("NamedTarget", BackendTarget, NodeTarget, PrometheusTarget)


def choose(arguments: argparse.Namespace, env: Mapping[str, str]) -> Watch:
    """Return the targets and settings for watching; print warnings about the configuration file.

    TARGET arguments replace all that the file watches. Without arguments and without
    targets in the file, this machine is watched. The file's interval, theme, keys and thresholds always hold,
    unless an option overrides them.

    Raises:
        UsageError: a target or the theme cannot be used.
        ConfigError: the file cannot be used.
    """
    try:
        watch = configured_watch(arguments.config, env, needed=not arguments.targets)
    except ConfigError:
        apply_arguments(Watch(), arguments, env, has_file=False)  # its errors come before those of a file
        raise
    return apply_arguments(watch or Watch(), arguments, env, has_file=watch is not None)


def apply_arguments(
    watch: Watch, arguments: argparse.Namespace, env: Mapping[str, str], *, has_file: bool
) -> Watch:
    """Return `watch`, the content of the configuration file, with the command-line arguments applied.

    TARGET arguments replace all that `watch` names. Without arguments and without targets in
    `watch`, this machine is watched. `has_file` is whether there is a configuration file; API keys come from
    `env`.

    Raises:
        UsageError: a target or the theme cannot be used.
    """
    keys = target_keys(getattr(arguments, "api_key_env", ()), arguments.targets, env)
    if arguments.targets:
        watch = _with_targets(watch, arguments.targets, keys)
    elif not any((watch.nodes, watch.backends, watch.prometheus, watch.target_files, watch.sparkrun)):
        source = f"{watch.source}, this machine" if has_file else "this machine"
        watch = replace(watch, nodes=(this_machine(),), discover=("127.0.0.1",), source=source)
    interval_s = getattr(arguments, "interval", None) or watch.interval_s
    theme = checked_theme(getattr(arguments, "theme", None)) or watch.theme
    low_bandwidth = getattr(arguments, "low_bandwidth", False) or watch.low_bandwidth
    timeout_s = getattr(arguments, "timeout", None) or watch.timeout_s
    return replace(
        watch, interval_s=interval_s, timeout_s=timeout_s, theme=theme, low_bandwidth=low_bandwidth
    )


def checked_key(target: object, text: str, keys: Mapping[str, str]) -> str | None:
    """Return the API key in `keys` for the TARGET argument `text`, parsed to `target`; None without one.

    Raises:
        UsageError: `target` is not one server or router, so that the key would go elsewhere too.
    """
    key = keys.get(text)
    if key is None or isinstance(target, BackendTarget | RouterTarget):
        return key
    shown = clean(text, 60)
    if isinstance(target, str):
        raise UsageError(f"--api-key-env: a key is for one address: write {shown}:PORT, not a host alone")
    raise UsageError(f"--api-key-env: {shown} is no server with an API key; its token goes into the config")


def checked_theme(name: str | None) -> str | None:
    """Return `name` unchanged if it is None or the name of a theme.

    Raises:
        UsageError: there is no such theme; the message suggests the most similar name.
    """
    if name is not None and find_palette(name) is None:
        hint = did_you_mean(name, palettes()) or f" (known: {', '.join(palettes())})"
        raise UsageError(f"there is no theme '{clean(name, 40)}'{hint}")
    return name


def this_machine() -> NodeTarget:
    """Return this machine as a local target, named after its host name."""
    return NodeTarget(clean(socket.gethostname(), 64) or "this machine")


def _with_targets(watch: Watch, texts: Sequence[str], keys: Mapping[str, str]) -> Watch:
    """Return `watch` with its targets replaced by those that the TARGET arguments `texts` name.

    `keys` has API keys by argument.
    """
    # Late: a start from the configuration file parses no targets.
    from sparktop.watch.discovery import parse_target, shortened_message
    from sparktop.watch.prometheus_finder import parse_prometheus

    backends: dict[str, BackendTarget] = {}
    agents: dict[str, NodeTarget] = {}
    hosts: dict[str, None] = {}
    sources = [source for source in map(parse_prometheus, texts) if source]
    through = {source.url: source for source in sources}
    for text in texts:
        if (prometheus := parse_prometheus(text)) is not None:
            checked_key(prometheus, text, keys)
            continue
        target = parse_target(text)
        key = checked_key(target, text, keys)
        if isinstance(target, str):
            hosts[target] = None
        elif isinstance(target, NodeTarget):
            agents.setdefault(target.url or "", target)
        else:
            if (note := shortened_message(text, target)) is not None:
                tell(note)
            backends.setdefault(target.url, replace(target, api_key=key))
    nodes, placed = _assign_machines(_with_unique_names(agents.values()), backends, hosts)
    return replace(
        watch,
        nodes=_with_unique_names(nodes),
        backends=_with_unique_names(placed),
        routers=(),
        prometheus=_with_unique_names(through.values()),
        discover=tuple(hosts),
        target_files=(),
        sparkrun=False,
        sweep_routers=(),
        source=ARGUMENTS,
    )


def _assign_machines(
    nodes: tuple[NodeTarget, ...], backends: Mapping[str, BackendTarget], hosts: Iterable[str]
) -> tuple[tuple[NodeTarget, ...], list[BackendTarget]]:
    """Return the nodes, and the backends with the node that each runs on where that is one of them.

    `backends` has them by URL. This machine joins the nodes if a backend or one of `hosts` is on it.
    """
    from urllib.parse import urlsplit  # late: as above

    from sparktop.hardware.identity import is_here, own_hosts  # late: as above

    this, own_names = this_machine(), own_hosts()

    def machine(host: str) -> str:
        """Return a key for the machine named `host`: "" for this machine, else the host in lower case."""
        return "" if is_here(host, own_names) else host.lower()

    # If several agents run on one machine, its backends are assigned to the first.
    node_of = {machine(urlsplit(node.url or "").hostname or ""): node.name for node in reversed(nodes)}
    places = {url: machine(urlsplit(url).hostname or "") for url in backends}
    if "" not in node_of and "" in {*places.values(), *map(machine, hosts)}:
        nodes = (this, *nodes)
        node_of[""] = this.name
    placed = [
        replace(backend, nodes=(node_of[places[url]],)) if places[url] in node_of else backend
        for url, backend in backends.items()
    ]
    return nodes, placed


def _with_unique_names(targets: Iterable[NamedTarget]) -> tuple[NamedTarget, ...]:
    """Return the targets in the same order, with a number appended to repeated names: spark-a, spark-a-2."""
    by_name: dict[str, NamedTarget] = {}
    for target in targets:
        name = free_name(target.name, by_name)
        by_name[name] = replace(target, name=name)
    return tuple(by_name.values())
