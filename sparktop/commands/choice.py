"""Decides what to watch: the TARGET arguments, else the configuration file, else this machine."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import TypeVar

from sparktop.colors.palette import find_palette, palettes
from sparktop.commands.output import tell
from sparktop.errors import UsageError
from sparktop.files import FILE_NAME, find_config, is_named
from sparktop.model.targets import ARGUMENTS, BackendTarget, NodeTarget, PrometheusTarget, Watch
from sparktop.model.text import clean
from sparktop.nearest import did_you_mean

UNTRUSTED_HOOK = (
    f"{FILE_NAME}: key 'events.hook' is not used: a file found in the current folder runs no program;"
    " name it with --config"
)
Target = TypeVar("Target", BackendTarget, NodeTarget, PrometheusTarget)


def choose(arguments: argparse.Namespace, env: Mapping[str, str]) -> Watch:
    """Return the targets and settings for watching; print warnings about the configuration file.

    TARGET arguments replace all nodes, backends and routers of the file. Without arguments and without
    targets in the file, this machine is watched. The file's interval, theme, keys and thresholds always hold,
    unless an option overrides them.

    Raises:
        UsageError: a target or the theme cannot be used.
        ConfigError: the file cannot be used.
    """
    watch = configured_watch(arguments.config, env)
    return chosen_of(watch or Watch(), arguments, has_file=watch is not None)


def configured_watch(name: str | None, env: Mapping[str, str]) -> Watch | None:
    """Return what the configuration file names, and print its warnings; None without a file.

    `name` is the file's name if the user gave one.

    Raises:
        ConfigError: the file cannot be used.
    """
    path = find_config(name, env)
    if path is None:
        return None
    from sparktop.config.cache import configured  # late: without a file it is not needed

    watch, warnings = configured(path, env)
    trusted = with_trusted_hook(watch, path, is_named=is_named(name, env))
    if trusted is not watch:
        warnings = [*warnings, UNTRUSTED_HOOK]
    for line in warnings:
        tell(line)
    return trusted


def with_trusted_hook(watch: Watch, path: Path, *, is_named: bool) -> Watch:
    """Return `watch` without its hook program if the user did not name the configuration file `path`.

    This holds only for a file found in the current folder (a relative path): otherwise a downloaded folder
    could run any program as soon as sparktop starts in it. `is_named` is whether the user named the file.
    """
    if not watch.events.hook or is_named or path.is_absolute():
        return watch
    return replace(watch, events=replace(watch.events, hook=()))


def chosen_of(watch: Watch, arguments: argparse.Namespace, *, has_file: bool) -> Watch:
    """Return `watch`, the content of the configuration file, with the command-line arguments applied.

    TARGET arguments replace all nodes, backends and routers. Without arguments and without targets in
    `watch`, this machine is watched. `has_file` is whether there is a configuration file.

    Raises:
        UsageError: a target or the theme cannot be used.
    """
    if arguments.targets:
        watch = _of_targets(watch, arguments.targets)
    elif not (watch.nodes or watch.backends or watch.prometheus or watch.target_files or watch.sparkrun):
        source = f"{watch.source}, this machine" if has_file else "this machine"
        watch = replace(watch, nodes=(this_machine(),), discover=("127.0.0.1",), source=source)
    interval_s = getattr(arguments, "interval", None) or watch.interval_s
    theme = checked_theme(getattr(arguments, "theme", None)) or watch.theme
    low_bandwidth = getattr(arguments, "low_bandwidth", False) or watch.low_bandwidth
    timeout_s = getattr(arguments, "timeout", None) or watch.timeout_s
    watch = replace(watch, timeout_s=timeout_s)
    return replace(watch, interval_s=interval_s, theme=theme, low_bandwidth=low_bandwidth)


def checked_theme(name: str | None) -> str | None:
    """Return `name` unchanged if it is None or the name of a theme.

    Raises:
        UsageError: there is no such theme; the message suggests the most similar name.
    """
    if name is not None and find_palette(name) is None:
        near = did_you_mean(name, palettes()) or f" (known: {', '.join(palettes())})"
        raise UsageError(f"there is no theme '{clean(name, 40)}'{near}")
    return name


def this_machine() -> NodeTarget:
    """Return this machine as a local target, named after its host name."""
    return NodeTarget(clean(socket.gethostname(), 64) or "this machine")


def _of_targets(watch: Watch, texts: Sequence[str]) -> Watch:
    """Return `watch` with its targets replaced by those that the TARGET arguments `texts` name."""
    # Late: a start from the configuration file parses no targets.
    from urllib.parse import urlsplit

    from sparktop.watch.discovery import parse_target
    from sparktop.watch.prometheus.argument import parse_prometheus

    here = this_machine()
    backends: dict[str, BackendTarget] = {}
    agents: dict[str, NodeTarget] = {}
    hosts: dict[str, None] = {}
    through = {one.url: one for text in texts if (one := parse_prometheus(text)) is not None}
    for text in texts:
        if parse_prometheus(text) is not None:
            continue
        target = parse_target(text)
        if isinstance(target, str):
            hosts[target] = None
        elif isinstance(target, NodeTarget):
            agents.setdefault(target.url or "", target)
        else:
            backends.setdefault(target.url, target)

    def machine(host: str) -> str:
        """Return a key for the machine named `host`: "" for this machine, else the host in lower case."""
        return "" if _is_here(host, here.name) else host.lower()

    nodes = _with_unique_names(agents.values())
    # If several agents run on one machine, its backends are assigned to the first.
    node_of = {machine(urlsplit(node.url or "").hostname or ""): node.name for node in reversed(nodes)}
    places = {url: machine(urlsplit(url).hostname or "") for url in backends}
    if "" not in node_of and any(place == "" for place in [*places.values(), *map(machine, hosts)]):
        nodes = (here, *nodes)
        node_of[""] = here.name
    placed = [
        replace(backend, nodes=(node_of[places[url]],)) if places[url] in node_of else backend
        for url, backend in backends.items()
    ]
    return replace(
        watch,
        nodes=_with_unique_names(nodes),
        backends=_with_unique_names(placed),
        routers=(),
        prometheus=_with_unique_names(through.values()),
        discover=tuple(hosts),
        source=ARGUMENTS,
    )


def _is_here(host: str, own_name: str) -> bool:
    """Return True if `host` is this machine: localhost, `own_name`, a loopback or an unspecified address."""
    import ipaddress  # late: as above

    if host.lower() in {"localhost", own_name.lower()}:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _with_unique_names(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Return the targets in the same order, with a number appended to repeated names: spark-a, spark-a-2."""
    named: dict[str, Target] = {}
    for target in targets:
        numbered = (f"{target.name}-{number}" for number in count(2))
        name = next(free for free in chain((target.name,), numbered) if free not in named)
        named[name] = replace(target, name=name)
    return tuple(named.values())
