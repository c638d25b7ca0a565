"""What to watch: chosen from the arguments, the configuration file and this machine."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count

from sparktop.commands.output import tell
from sparktop.config_places import find_config
from sparktop.errors import UsageError
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.model.text import clean
from sparktop.nearest import did_you_mean
from sparktop.palette import find_palette, palettes


def choose(arguments: argparse.Namespace, env: Mapping[str, str]) -> Watch:
    """Give what to watch: the targets, else what the configuration file says, else this machine.

    Interval, theme, keys and thresholds of the file hold in each case, unless an argument says otherwise.

    Raises:
        UsageError: a target or the theme cannot be used.
        ConfigError: the file cannot be used.
    """
    path = find_config(arguments.config, env)
    watch = Watch()
    if path is not None:
        from sparktop.config_cache import configured  # late: without a file there is nothing to look up

        watch, warnings = configured(path, env)
        for line in warnings:
            tell(line)
    return chosen_of(watch, arguments, has_file=path is not None)


def chosen_of(watch: Watch, arguments: argparse.Namespace, *, has_file: bool) -> Watch:
    """Give what to watch, where `watch` is what the configuration file says.

    Raises:
        UsageError: a target or the theme cannot be used.
    """
    if arguments.targets:
        watch = _of_targets(watch, arguments.targets)
    elif not watch.nodes and not watch.backends:
        source = f"{watch.source}, this machine" if has_file else "this machine"
        watch = replace(watch, nodes=(this_machine(),), discover=("127.0.0.1",), source=source)
    interval_s = getattr(arguments, "interval", None) or watch.interval_s
    theme = checked_theme(getattr(arguments, "theme", None)) or watch.theme
    low_bandwidth = getattr(arguments, "low_bandwidth", False) or watch.low_bandwidth
    return replace(watch, interval_s=interval_s, theme=theme, low_bandwidth=low_bandwidth)


def checked_theme(name: str | None) -> str | None:
    """Give `name` if it is a theme's.

    Raises:
        UsageError: with the nearest theme's name.
    """
    if name is not None and find_palette(name) is None:
        near = did_you_mean(name, palettes()) or f" (known: {', '.join(palettes())})"
        raise UsageError(f"there is no theme '{clean(name, 40)}'{near}")
    return name


def this_machine() -> NodeTarget:
    """Give this machine as something to watch, by its host name."""
    return NodeTarget(clean(socket.gethostname(), 64) or "this machine")


def _of_targets(watch: Watch, texts: Sequence[str]) -> Watch:
    """Give `watch` with what TARGET… names instead of what it had to watch."""
    # Late: a start from the configuration file reads no targets.
    from urllib.parse import urlsplit

    from sparktop.discovery import parse_target

    node = this_machine()
    backends: dict[str, BackendTarget] = {}
    hosts: dict[str, None] = {}
    here = False
    for text in texts:
        target = parse_target(text)
        if isinstance(target, str):
            hosts[target] = None
            here = here or _is_here(target, node.name)
            continue
        if _is_here(urlsplit(target.url).hostname or "", node.name):
            here = True
            target = replace(target, nodes=(node.name,))
        backends.setdefault(target.url, target)
    return replace(
        watch,
        nodes=(node,) if here else (),
        backends=_with_unique_names(backends.values()),
        routers=(),
        discover=tuple(hosts),
        source="arguments",
    )


def _is_here(host: str, own_name: str) -> bool:
    """Tell whether a host is this machine: loopback, or its own name."""
    import ipaddress  # late: as above

    if host.lower() in {"localhost", own_name.lower()}:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _with_unique_names(backends: Iterable[BackendTarget]) -> tuple[BackendTarget, ...]:
    """Number names that come twice: spark-a, spark-a-2."""
    named: dict[str, BackendTarget] = {}
    for backend in backends:
        numbered = (f"{backend.name}-{number}" for number in count(2))
        name = next(one for one in chain((backend.name,), numbered) if one not in named)
        named[name] = replace(backend, name=name)
    return tuple(named.values())
