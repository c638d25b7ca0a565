"""Servers and machines of sparkrun: those of its jobs that answer, and the machines of its default cluster.

Clusters are in ~/.config/sparkrun/clusters/NAME.yaml (`hosts`, `user`), and `.default` there names one;
jobs are in ~/.cache/sparkrun/jobs/*.yaml (`hosts`, the first of which serves, `ssh_user`, `port`,
`model`, `served_model_name`, `api_key`, `started_at`), named by a hash. A host is HOST or USER@HOST.
Files of jobs that have ended stay there for a month, so a server is watched only once it answers, and of
several jobs with the same host and port the newest counts, also one that begins later. A key is kept in
memory only.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.engines.document import amount
from sparktop.errors import UsageError
from sparktop.model.targets import BackendTarget, NodeTarget
from sparktop.model.text import clean, host_port
from sparktop.store import Store
from sparktop.watch.discovery import parse_target
from sparktop.watch.listed import MOST_NAME_CHARACTERS, READ_EVERY_S, find_answering, load_yaml, read_file

if TYPE_CHECKING:
    from sparktop.watch.ways import Ways

CLUSTERS, JOBS = Path(".config/sparkrun/clusters"), Path(".cache/sparkrun/jobs")
"""Folders below the home directory."""
CACHE_VARIABLE = "SPARKRUN_CACHE_DIR"
"""Environment variable that names another folder than ~/.cache/sparkrun."""
MOST_TABLES, MOST_TABLE_BYTES, MOST_HOSTS = 64, 1 << 16, 64
"""Most files of a folder, most bytes of each, and most machines of one file and of all together."""
_PORT = 8000
"""Port of a job that names none: vLLM's."""
_MANIFEST_ENDING = ".manifest.yaml"
"""Ending of the files beside the clusters that describe no cluster, but what sparkrun installed there."""
_LATEST_S = 1e12
"""Above every time in seconds since 1970."""
_USER_NAMES = ("ssh_user", "user")
"""Where a table names the user for ssh: jobs and clusters."""
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}")
"""A user name that ssh takes and that is no option."""
SPARKRUN_NO_YAML = "its files need PyYAML: install sparktop with the extra sparkrun, or PyYAML beside it"


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


def read_sparkrun(home: Path, env: Mapping[str, str] | None = None) -> Listed:
    """Return what the files below a home directory list; `env` is this process' environment if None."""
    folder = _folder_of_jobs(home, os.environ if env is None else env)
    try:
        importlib.import_module("yaml")
    except ImportError:
        return Listed(problems=(SPARKRUN_NO_YAML,) if any(folder.glob("*.yaml")) else ())
    problems: list[str] = []
    default_name = _name_of_default(home / CLUSTERS)
    clusters = _read_tables(home / CLUSTERS, problems, first=default_name)
    jobs = sorted(_read_tables(folder, problems).values(), key=_started_s, reverse=True)
    backends: dict[str, BackendTarget] = {}
    for job in jobs:
        target = _job_server(job)
        if target is not None:
            backends.setdefault(target.url, target)
    users = _user_by_host((*jobs, *clusters.values()))
    default = tuple(_hosts_and_users(clusters.get(default_name, {})))
    hosts = dict.fromkeys((*default, *(host for backend in backends.values() for host in backend.nodes)))
    if len(hosts) > MOST_HOSTS:
        problems.append(f"{len(hosts)} machines listed; the first {MOST_HOSTS} are used")
    nodes = {host: _node_of(host, users.get(host)) for host in islice(hosts, MOST_HOSTS)}
    return Listed(tuple(backends.values()), nodes, default, tuple(problems))


def _folder_of_jobs(home: Path, env: Mapping[str, str]) -> Path:
    """Return the folder with the files of jobs, whether it exists or not."""
    cache = env.get(CACHE_VARIABLE, "")
    if not cache:
        return home / JOBS
    return (home / cache[2:] if cache.startswith("~/") else Path(cache)) / JOBS.name


def _name_of_default(folder: Path) -> str:
    """Return the name of the default cluster in a folder of clusters; "" without one."""
    with suppress(OSError, UnicodeDecodeError):
        return read_file(folder / ".default", MOST_TABLE_BYTES).decode().partition("\n")[0].strip()
    return ""


def _node_of(host: str, user: str | None) -> NodeTarget:
    """Return a machine as it is watched: this one itself, others through ssh."""
    if host in {"localhost", "127.0.0.1", "::1"}:
        return NodeTarget(host)
    return NodeTarget(host, "ssh", ssh=host if user is None else f"{user}@{host}")


def _read_tables(folder: Path, problems: list[str], *, first: str = "") -> dict[str, Mapping[str, object]]:
    """Return the tables in the newest YAML files of a folder, by name without the ending, newest first.

    The file named `first` comes before all others. What is left out, and each file that cannot be used, adds
    to `problems`.
    """
    result: dict[str, Mapping[str, object]] = {}
    paths = [path for path in folder.glob("*.yaml") if not path.name.endswith(_MANIFEST_ENDING)]
    paths.sort(key=lambda path: (path.stem == first, _changed_s(path), path), reverse=True)
    if len(paths) > MOST_TABLES:
        problems.append(f"{clean(folder, 120)}: {len(paths)} files; the newest {MOST_TABLES} are used")
    for path in paths[:MOST_TABLES]:
        try:
            table = load_yaml(read_file(path, MOST_TABLE_BYTES))
        except (OSError, ValueError, RecursionError):
            table = None  # an error may quote the file, which may hold a key
        if isinstance(table, dict):
            result[path.stem] = table
        else:
            problems.append(f"{clean(path, 120)}: cannot be used: no table in YAML")
    return result


def _changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _started_s(job: Mapping[str, object]) -> float:
    """Return when a job was started, in seconds since 1970; 0 where its file does not say it."""
    return amount(job.get("started_at"), _LATEST_S) or 0.0


def _hosts_and_users(table: Mapping[str, object]) -> dict[str, str | None]:
    """Return the hosts of a cluster or a job that can be hosts, each with the user named before it."""
    given_hosts = table.get("hosts")
    hosts: dict[str, str | None] = {}
    for entry in (given_hosts if isinstance(given_hosts, list) else [])[:MOST_HOSTS]:
        pair = _host_and_user(entry)
        if pair is not None:
            hosts.setdefault(*pair)
    return hosts


def _host_and_user(value: object) -> tuple[str, str | None] | None:
    """Return host and user of HOST or USER@HOST; None for anything else, such as an option of ssh."""
    if not isinstance(value, str):
        return None
    user, sign, rest = value.rpartition("@")
    try:
        host = parse_target(rest)
    except UsageError:
        return None
    if not isinstance(host, str) or (sign and not _USER.fullmatch(user)):
        return None
    return host, user or None


def _user_by_host(tables: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """Return the user for ssh of each host for which one is named, by the first table that names one.

    In a table, a user before a host counts more than that of the whole table.
    """
    users: dict[str, str] = {}
    for table in tables:
        values = (table.get(name) for name in _USER_NAMES)
        shared = next((name for name in values if isinstance(name, str) and _USER.fullmatch(name)), None)
        for host, given_user in _hosts_and_users(table).items():
            user = given_user or shared
            if user is not None:
                users.setdefault(host, user)
    return users


def _job_server(table: Mapping[str, object]) -> BackendTarget | None:
    """Return the server of a job; None where its host or port cannot be used."""
    hosts, port = table.get("hosts"), table.get("port", _PORT)
    host_and_user = _host_and_user(hosts[0]) if isinstance(hosts, list) and hosts else None
    if host_and_user is None or isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 1 << 16:
        return None
    host = host_and_user[0]
    where = host_port(host, port)
    names = (table.get(key) for key in ("served_model_name", "model"))
    model = next((name for name in names if isinstance(name, str) and name), None)
    key = table.get("api_key")
    return BackendTarget(
        where,
        f"http://{where}",
        nodes=tuple(_hosts_and_users(table)),
        api_key=key if isinstance(key, str) and key else None,
        group=None if model is None else clean(model, MOST_NAME_CHARACTERS),
    )


WatchBackends = Callable[[Iterable[BackendTarget], Mapping[str, str]], None]
"""Watches servers, whose machines are named by host; called with the name of each watched machine by host."""
WatchNodes = Callable[[Iterable[NodeTarget]], Awaitable[Mapping[str, str]]]
"""Watches machines; returns the name under which each is watched by host."""


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
        listed = await asyncio.to_thread(read_sparkrun, home or Path.home())
        for problem in listed.problems:
            note(problem)
        watched = {_host_and_port(target.url) for target in store.targets() if target.url}
        listed_now = {_host_and_port(backend.url): backend for backend in listed.backends}
        # New addresses, and those of which another job was followed last.
        changed = [
            backend
            for address, backend in listed_now.items()
            if address not in watched or followed.get(address, backend) != backend
        ]
        jobs = {_host_and_port(job.url): job for job in await find_answering(ways, changed)}
        job_hosts = (host for job in jobs.values() for host in job.nodes)
        hosts = dict.fromkeys((*listed.default, *job_hosts))
        names_by_host = await watch_nodes([listed.nodes[host] for host in hosts if host in listed.nodes])
        watch_backends([job for address, job in jobs.items() if address not in watched], names_by_host)
        for address, job in jobs.items():
            if address in watched:
                names = tuple(names_by_host[host] for host in job.nodes if host in names_by_host)
                store.add(replace(job, nodes=names))
        followed |= {address: listed_now[address] for address in jobs}
        await sleep(READ_EVERY_S)


def _host_and_port(url: str) -> tuple[str | None, int | None]:
    parts = urlsplit(url)
    return parts.hostname, parts.port
