"""Servers and machines of sparkrun: those of its jobs that answer, and the machines of its default cluster.

Clusters are in ~/.config/sparkrun/clusters/NAME.yaml (`hosts`, `user`), and `.default` there names one; jobs
are in ~/.cache/sparkrun/jobs/*.yaml (`hosts`, the first of which serves, `port`, `model`,
`served_model_name`, `api_key`). Files of jobs that crashed stay there, so a server is watched only once it
answers. A key is kept in memory only.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sparktop.errors import UsageError
from sparktop.model.targets import BackendTarget, NodeTarget
from sparktop.model.text import clean
from sparktop.store import Store
from sparktop.values import dataclass, replace
from sparktop.watch.discovery import parse_target
from sparktop.watch.target_files import AGAIN_S, answering

if TYPE_CHECKING:
    from sparktop.watch.ways import Ways

CLUSTERS, JOBS = Path(".config/sparkrun/clusters"), Path(".cache/sparkrun/jobs")
"""Folders below the home directory."""
MOST_FILES, MOST_BYTES, MOST_HOSTS = 64, 1 << 16, 64
_PORT = 8000
_NAME = 64
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}")
NO_YAML = "its files need PyYAML: install sparktop with the extra sparkrun, or PyYAML beside it"


@dataclass(frozen=True, slots=True)
class Listed:
    """What sparkrun's files list."""

    backends: tuple[BackendTarget, ...] = ()
    """The server of each job, with the hosts of the job as its machines."""
    nodes: Mapping[str, NodeTarget] = field(default_factory=dict)
    """Every known machine by host."""
    default: tuple[str, ...] = ()
    """The hosts of the default cluster."""
    problems: tuple[str, ...] = ()
    """A clean line for each file that cannot be used."""


def listed(home: Path) -> Listed:
    """Return what the files below a home directory list."""
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        return Listed(problems=(NO_YAML,) if any((home / JOBS).glob("*.yaml")) else ())
    problems: list[str] = []
    clusters = {path.stem: one for path, one in _files(home / CLUSTERS, yaml, problems)}
    users: dict[str, str] = {}
    for one in clusters.values():
        user = one.get("user")
        if isinstance(user, str) and _USER.fullmatch(user):
            users.update(dict.fromkeys(_hosts(one), user))
    backends: dict[str, BackendTarget] = {}
    for _, one in _files(home / JOBS, yaml, problems):
        target = _server(one)
        if target is not None:
            backends.setdefault(target.url, target)
    default = tuple(_hosts(clusters.get(_default(home), {})))
    hosts = dict.fromkeys((*default, *(host for one in backends.values() for host in one.nodes)))
    nodes = {host: _node(host, users.get(host)) for host in islice(hosts, MOST_HOSTS)}
    return Listed(tuple(backends.values()), nodes, default, tuple(problems))


def _files(folder: Path, yaml: Any, problems: list[str]) -> list[tuple[Path, Mapping[str, object]]]:  # noqa: ANN401 - a module that may be missing
    """Return the tables in the YAML files of a folder; a file that cannot be used adds to `problems`."""
    found: list[tuple[Path, Mapping[str, object]]] = []
    for path in islice(sorted(folder.glob("*.yaml")), MOST_FILES):
        try:
            with path.open("rb") as stream:
                body = stream.read(MOST_BYTES + 1)
            table = yaml.safe_load(body) if len(body) <= MOST_BYTES else None
        except (OSError, ValueError, RecursionError, yaml.YAMLError):
            table = None  # an error may quote the file, which may hold a key
        if isinstance(table, dict):
            found.append((path, table))
        else:
            problems.append(f"{clean(path, 120)}: cannot be used: no table in YAML")
    return found


def _default(home: Path) -> str:
    try:
        with (home / CLUSTERS / ".default").open(encoding="utf-8") as stream:
            return stream.readline(_NAME).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _hosts(table: Mapping[str, object]) -> list[str]:
    """Return the hosts of a cluster or a job that can be hosts."""
    given = table.get("hosts")
    return [host for host in (given if isinstance(given, list) else [])[:MOST_HOSTS] if _is_host(host)]


def _is_host(host: object) -> bool:
    try:
        return isinstance(host, str) and isinstance(parse_target(host), str)
    except UsageError:
        return False


def _server(table: Mapping[str, object]) -> BackendTarget | None:
    """Return the server of a job; None where its host or port cannot be used."""
    hosts, port = _hosts(table), table.get("port", _PORT)
    if not hosts or not isinstance(port, int) or not 0 < port < 1 << 16:
        return None
    where = f"[{hosts[0]}]:{port}" if ":" in hosts[0] else f"{hosts[0]}:{port}"
    names = (table.get(key) for key in ("served_model_name", "model"))
    model = next((name for name in names if isinstance(name, str) and name), None)
    key = table.get("api_key")
    return BackendTarget(
        where,
        f"http://{where}",
        nodes=tuple(dict.fromkeys(hosts)),
        api_key=key if isinstance(key, str) and key else None,
        group=None if model is None else clean(model, _NAME),
    )


def _node(host: str, user: str | None) -> NodeTarget:
    if host in {"localhost", "127.0.0.1", "::1"}:
        return NodeTarget(host)
    return NodeTarget(host, "ssh", ssh=host if user is None else f"{user}@{host}")


WatchBackends = Callable[[Iterable[BackendTarget], Mapping[str, str]], None]
WatchNodes = Callable[[Iterable[NodeTarget]], Awaitable[Mapping[str, str]]]


async def follow_sparkrun(
    ways: Ways,
    store: Store,
    watch_backends: WatchBackends,
    watch_nodes: WatchNodes,
    sleep: Callable[[float], Awaitable[None]],
    home: Path | None = None,
) -> None:
    """Read sparkrun's files again and again; watch the servers that answer, and their machines.

    `watch_nodes` returns the name under which each machine is watched, for `watch_backends`.
    """
    note = partial(store.note, "sparkrun")
    while True:
        found = await asyncio.to_thread(listed, home or Path.home())
        for problem in found.problems:
            note(problem)
        watched = {_place(one.url) for one in store.targets() if one.url}
        new = [one for one in found.backends if _place(one.url) not in watched]
        answered = await answering(ways, [replace(one, nodes=()) for one in new])
        hosts = {one.url: one.nodes for one in new}
        wanted = dict.fromkeys((*found.default, *(host for one in answered for host in hosts[one.url])))
        named = await watch_nodes([found.nodes[host] for host in wanted if host in found.nodes])
        watch_backends([replace(one, nodes=hosts[one.url]) for one in answered], named)
        await sleep(AGAIN_S)


def _place(url: str) -> tuple[str | None, int | None]:
    parts = urlsplit(url)
    return parts.hostname, parts.port
