"""Servers and machines of sparkrun: those of its jobs that answer, and the machines of its default cluster.

Clusters are in ~/.config/sparkrun/clusters/NAME.yaml (`hosts`, `user`), and `.default` there names one; jobs
are in ~/.cache/sparkrun/jobs/*.yaml (`hosts`, the first of which serves, `ssh_user`, `port`, `model`,
`served_model_name`, `api_key`, `started_at`), named by a hash. A host is HOST or USER@HOST. Files of jobs
that have ended stay there for a month, so a server is watched only once it answers, and of several jobs with
the same host and port the newest counts, also one that begins later. A key is kept in memory only.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.errors import UsageError
from sparktop.model.targets import BackendTarget, NodeTarget
from sparktop.model.text import clean
from sparktop.store import Store
from sparktop.watch.discovery import parse_target
from sparktop.watch.target_files import AGAIN_S, answering

if TYPE_CHECKING:
    from sparktop.watch.ways import Ways

CLUSTERS, JOBS = Path(".config/sparkrun/clusters"), Path(".cache/sparkrun/jobs")
"""Folders below the home directory."""
CACHE_VARIABLE = "SPARKRUN_CACHE_DIR"
"""Environment variable that names another folder than ~/.cache/sparkrun."""
MOST_FILES, MOST_BYTES, MOST_HOSTS = 64, 1 << 16, 64
_PORT = 8000
_NO_CLUSTER = ".manifest.yaml"
"""How a file beside the clusters ends that says what sparkrun installed there."""
_NAME = 64
_LATEST_S = 1e12
"""Above every time in seconds since 1970."""
_USER_NAMES = ("ssh_user", "user")
"""Where a table names the user for ssh: jobs and clusters."""
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}")
NO_YAML = "its files need PyYAML: install sparktop with the extra sparkrun, or PyYAML beside it"


class Listed(Struct, frozen=True):
    """What sparkrun's files list."""

    backends: tuple[BackendTarget, ...] = ()
    """The server of each job, with the hosts of the job as its machines."""
    nodes: Mapping[str, NodeTarget] = field(default_factory=dict)
    """Every known machine by host."""
    default: tuple[str, ...] = ()
    """The hosts of the default cluster."""
    problems: tuple[str, ...] = ()
    """A clean line for each file that cannot be used."""


def listed(home: Path, env: Mapping[str, str] | None = None) -> Listed:
    """Return what the files below a home directory list; `env` is this process' environment if None."""
    folder = _jobs(home, os.environ if env is None else env)
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        return Listed(problems=(NO_YAML,) if any(folder.glob("*.yaml")) else ())
    problems: list[str] = []
    name = _default(home)
    clusters = {path.stem: one for path, _, one in _files(home / CLUSTERS, yaml, problems, first=name)}
    dated = [(_started_s(one, changed_s), one) for _, changed_s, one in _files(folder, yaml, problems)]
    jobs = [one for _, one in sorted(dated, key=lambda job: job[0], reverse=True)]
    backends: dict[str, BackendTarget] = {}
    for one in jobs:
        target = _server(one)
        if target is not None:
            backends.setdefault(target.url, target)
    users = _users((*jobs, *clusters.values()))
    default = tuple(_hosts(clusters.get(name, {})))
    hosts = dict.fromkeys((*default, *(host for one in backends.values() for host in one.nodes)))
    if len(hosts) > MOST_HOSTS:
        problems.append(f"{len(hosts)} machines listed; the first {MOST_HOSTS} are used")
    nodes = {host: _node(host, users.get(host)) for host in islice(hosts, MOST_HOSTS)}
    return Listed(tuple(backends.values()), nodes, default, tuple(problems))


def _jobs(home: Path, env: Mapping[str, str]) -> Path:
    """Return the folder of the jobs: below the cache that the environment names for sparkrun, if any."""
    cache = env.get(CACHE_VARIABLE, "")
    if not cache:
        return home / JOBS
    return (home / cache[2:] if cache.startswith("~/") else Path(cache)) / JOBS.name


def _files(
    folder: Path,
    yaml: Any,  # noqa: ANN401 - a module that may be missing
    problems: list[str],
    *,
    first: str = "",
) -> list[tuple[Path, float, Mapping[str, object]]]:
    """Return the newest YAML files of a folder, newest first: path, time of change and table of each.

    The file named `first` comes before all others. What is left out, and each file that cannot be used, adds
    to `problems`.
    """
    found: list[tuple[Path, float, Mapping[str, object]]] = []
    paths = [path for path in folder.glob("*.yaml") if not path.name.endswith(_NO_CLUSTER)]
    dated = sorted(((_changed_s(path), path) for path in paths), reverse=True)
    dated.sort(key=lambda one: one[1].stem != first)
    if len(dated) > MOST_FILES:
        problems.append(f"{clean(folder, 120)}: {len(dated)} files; the newest {MOST_FILES} are used")
    for changed_s, path in dated[:MOST_FILES]:
        try:
            table = _table(path, yaml)
        except (OSError, ValueError, RecursionError, yaml.YAMLError):
            table = None  # an error may quote the file, which may hold a key
        if isinstance(table, dict):
            found.append((path, changed_s, table))
        else:
            problems.append(f"{clean(path, 120)}: cannot be used: no table in YAML")
    return found


def _table(path: Path, yaml: Any) -> object:  # noqa: ANN401 - a module that may be missing
    """Return what a YAML file holds; None where it is too large, or a pipe, which would be waited for."""
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        body = stream.read(MOST_BYTES + 1)
    return yaml.safe_load(body) if len(body) <= MOST_BYTES else None


def _changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _started_s(job: Mapping[str, object], changed_s: float) -> float:
    """Return when a job was started, in seconds since 1970; without that when its file was changed."""
    given = job.get("started_at")
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < _LATEST_S:
        return changed_s
    return float(given)


def _default(home: Path) -> str:
    try:
        with (home / CLUSTERS / ".default").open(encoding="utf-8") as stream:
            return stream.readline(_NAME).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _hosts(table: Mapping[str, object]) -> dict[str, str | None]:
    """Return the hosts of a cluster or a job that can be hosts, each with the user named before it."""
    given = table.get("hosts")
    hosts: dict[str, str | None] = {}
    for one in (given if isinstance(given, list) else [])[:MOST_HOSTS]:
        found = _host(one)
        if found is not None:
            hosts.setdefault(*found)
    return hosts


def _host(given: object) -> tuple[str, str | None] | None:
    """Return host and user of HOST or USER@HOST; None for anything else, such as an option of ssh."""
    if not isinstance(given, str):
        return None
    user, at, rest = given.rpartition("@")
    try:
        host = parse_target(rest)
    except UsageError:
        return None
    if not isinstance(host, str) or (at and not _USER.fullmatch(user)):
        return None
    return host, user or None


def _users(tables: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """Return the user for ssh of each host for which one is named, by the first table that names one.

    In a table, a user before a host counts more than that of the whole table.
    """
    users: dict[str, str] = {}
    for table in tables:
        given = (table.get(name) for name in _USER_NAMES)
        shared = next((one for one in given if isinstance(one, str) and _USER.fullmatch(one)), None)
        for host, own in _hosts(table).items():
            user = own or shared
            if user is not None:
                users.setdefault(host, user)
    return users


def _server(table: Mapping[str, object]) -> BackendTarget | None:
    """Return the server of a job; None where its host or port cannot be used."""
    given, port = table.get("hosts"), table.get("port", _PORT)
    first = _host(given[0]) if isinstance(given, list) and given else None
    if first is None or isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 1 << 16:
        return None
    host = first[0]
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    names = (table.get(key) for key in ("served_model_name", "model"))
    model = next((name for name in names if isinstance(name, str) and name), None)
    key = table.get("api_key")
    return BackendTarget(
        where,
        f"http://{where}",
        nodes=tuple(_hosts(table)),
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

    `watch_nodes` returns the name under which each machine is watched, for `watch_backends`. If a newer job
    has the address of an earlier one, its server gets the machines and the group of that job once it answers.
    """
    note = partial(store.note, "sparkrun")
    followed: dict[tuple[str | None, int | None], BackendTarget] = {}
    while True:
        found = await asyncio.to_thread(listed, home or Path.home())
        for problem in found.problems:
            note(problem)
        watched = {_place(one.url) for one in store.targets() if one.url}
        listed_now = {_place(one.url): one for one in found.backends}
        new = [
            one
            for place, one in listed_now.items()
            if place not in watched or followed.get(place, one) != one
        ]
        answered = await answering(ways, [replace(one, nodes=()) for one in new])
        hosts = {one.url: one.nodes for one in new}
        wanted = dict.fromkeys((*found.default, *(host for one in answered for host in hosts[one.url])))
        named = await watch_nodes([found.nodes[host] for host in wanted if host in found.nodes])
        jobs = [replace(one, nodes=hosts[one.url]) for one in answered]
        watch_backends([one for one in jobs if _place(one.url) not in watched], named)
        store.add(
            *(
                replace(one, nodes=tuple(named[host] for host in one.nodes if host in named))
                for one in jobs
                if _place(one.url) in watched
            )
        )
        followed |= {(place := _place(one.url)): listed_now[place] for one in answered}
        await sleep(AGAIN_S)


def _place(url: str) -> tuple[str | None, int | None]:
    parts = urlsplit(url)
    return parts.hostname, parts.port
