"""Which servers, machines and deployments belong together: by configuration or address, never by a guess."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from sparktop.model.node import GpuReading, NodeIdentity, Workload, Workloads
from sparktop.model.router import Deployment
from sparktop.model.snapshot import EngineProcess
from sparktop.model.targets import BackendTarget, NodeTarget

# The deployments of a router are matched with backends by address, else by the configuration, else by name.


ServerAddress = tuple[str, int, str]
"""(host, port, path), normalized so that two spellings of the same address are equal."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_HERE = "localhost"
_THIS_MACHINE = frozenset({_HERE, "127.0.0.1", "::1", "0.0.0.0", "::", "host.docker.internal"})  # noqa: S104 - compared, not bound
"""Host names that mean the machine of the program that uses them."""


@lru_cache(maxsize=4096)
def address_of(url: str, speaker: str = _HERE) -> ServerAddress | None:
    """Return the address that `url` means when it is used on the host `speaker`; None when it is not a URL.

    localhost and its aliases become `speaker`, default ports are filled in, and a `/v1` at the end of the
    path is dropped.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    host = (host or "").removesuffix(".").lower()
    if not host or port is None:
        return None
    return (speaker if host in _THIS_MACHINE else host), port, path


def match_deployments(
    reported: Iterable[Deployment] | None,
    *,
    router_url: str,
    backend_urls: Mapping[str, str],
    configured: Mapping[str, str],
) -> dict[str, str | None] | None:
    """Return {deployment id: backend name}, where None means that the deployment is not a watched backend.

    The first argument has the deployments that the router reports. If it is None, return `configured`,
    which also maps ids to backend names, or None if `configured` is empty too.
    """
    if reported is None:
        return {**configured} or None
    router_address = address_of(router_url)
    speaker = router_address[0] if router_address else _HERE
    by_address: dict[ServerAddress, str] = {}
    for name, url in backend_urls.items():
        address = address_of(url)
        if address is not None:
            by_address.setdefault(address, name)
    result: dict[str, str | None] = {}
    for deployment in reported:
        deployed_at = address_of(deployment.address, speaker) if deployment.address else None
        backend = by_address.get(deployed_at) if deployed_at else None
        result[deployment.id] = (
            backend
            or configured.get(deployment.id)
            or (deployment.id if deployment.id in backend_urls else None)
        )
    return result


# Whether an agent that was found runs on a machine that is watched already.


def is_same_machine(watched: NodeTarget, target: NodeTarget) -> bool:
    """Return whether the agent `target` by discovery runs on the watched node `watched`.

    An agent that is reached through ssh does if its host is the name of `watched`, or the host of its ssh
    target or URL. Another one does if its host is localhost or the name of `watched`, where that is read on
    this machine; else if both have the same URL.
    """
    if target.ssh is not None:
        hosts = (watched.name, _ssh_host(watched.ssh), url_host(watched.url))
        return normal_host(_ssh_host(target.ssh)) in {normal_host(host) for host in hosts if host}
    if watched.via == "local":
        return normal_host(url_host(target.url)) in {_HERE, normal_host(watched.name)}
    return watched.url == target.url


# Assigns backends to the nodes that they run on: by the configuration, else by address, never by a guess.
#
# A backend is on a node if the host of the backend's URL is the host of the agent's URL or of the ssh
# target, one of the addresses of the machine's interfaces, or its host name. A loopback address means the
# node that is read on this machine. If two nodes match, the node is unknown and none is returned.


_ENGINES = (
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("llama-server", "llamacpp"),
    ("trtllm", "trtllm"),
    ("tensorrt_llm", "trtllm"),
    ("tensorrt-llm", "trtllm"),
    ("ollama", "ollama"),
    ("text-generation", "tgi"),
)
"""(first word of a process name, engine), for names such as "VLLM::Worker_TP0" or "ollama_llama_server"."""
_RANK = re.compile(r"_(PP|TP)(\d{1,4})(?!\d)")
"""Kinds and numbers of ranks in the name of a worker process."""

WorkerRank = tuple[int, int]
"""A worker's rank: (pipeline stage, rank within that stage's tensor-parallel group)."""


Backend = tuple[BackendTarget, str | None]
"""A backend and the name of its engine; None while that is unknown."""
PlacedMachine = tuple[NodeTarget, NodeIdentity, tuple[EngineProcess, ...]]
"""A node, its identity, and the engine processes on its GPUs."""


@lru_cache(maxsize=1024)
def engine_of(process_name: str) -> str | None:
    """Return the name of the engine whose processes have names like `process_name`; None for no engine."""
    name = process_name.lower()
    return next((engine for word, engine in _ENGINES if _begins_with(name, word)), None)


def _begins_with(name: str, word: str) -> bool:
    return name.startswith(word) and not name[len(word) :][:1].isalnum()


@lru_cache(maxsize=1024)
def rank_of(process_name: str) -> WorkerRank | None:
    """Return the rank in the name of an engine's worker process; None where the name contains none."""
    ranks = {kind: int(number) for kind, number in _RANK.findall(process_name)}
    return (ranks.get("PP", 0), ranks.get("TP", 0)) if ranks else None


def engine_processes(gpus: Iterable[GpuReading]) -> tuple[EngineProcess, ...]:
    """Return the processes on these GPUs that belong to an engine, each process once."""
    result: dict[int, EngineProcess] = {}
    for gpu in gpus:
        for process in gpu.processes or ():
            engine = engine_of(process.name)
            if engine is not None:
                result.setdefault(process.pid, EngineProcess(process.pid, process.name, engine))
    return tuple(result.values())


def place_backends(backends: Sequence[Backend], nodes: Sequence[PlacedMachine]) -> dict[str, tuple[str, ...]]:
    """Return the names of each backend's nodes, the node with rank 0 first; empty where they are unknown.

    A node on which an engine has only worker processes of ranks above 0 belongs to a backend that spans
    several nodes. It is assigned if exactly one backend of this engine has rank 0 and lacks these ranks,
    and the nodes of this backend are not configured.
    """
    by_host = _nodes_by_host(nodes)
    nodes_of = {target.name: target.nodes or _nodes_by_address(target, by_host) for target, _ in backends}
    claims: dict[str, dict[str, frozenset[WorkerRank]]] = {}
    for (node, engine), ranks in _followers(backends, nodes, nodes_of).items():
        leaders = [
            target
            for target, other_engine in backends
            if other_engine == engine and _may_lead(nodes_of[target.name], engine, ranks, nodes)
        ]
        if len(leaders) == 1 and not leaders[0].nodes:
            claims.setdefault(leaders[0].name, {})[node] = ranks
    for name, ranks_by_node in claims.items():
        claimed_ranks = [rank for ranks in ranks_by_node.values() for rank in ranks]
        if len(claimed_ranks) == len(set(claimed_ranks)):  # else two nodes claim the same rank
            nodes_of[name] = (*nodes_of[name], *ranks_by_node)
    return nodes_of


def orphaned_pids(workloads: Workloads | None) -> frozenset[int]:
    """Return the PIDs of processes whose server has ended, so that they serve nobody."""
    processes = workloads.processes if workloads else ()
    return frozenset(process.pid for process in processes if process.adopted)


def with_backends(
    processes: Iterable[EngineProcess], engines: Mapping[str, str | None], orphaned: Container[int] = ()
) -> tuple[EngineProcess, ...]:
    """Return the engine processes of one node, each with the name of the backend that it belongs to.

    `engines` holds the engine of each backend on the node, None if not known yet. A process gets a name if
    exactly one of these backends has its engine, and the engines of all of them are known. `orphaned` has
    the PIDs of processes that belong to no backend.
    """
    result: list[EngineProcess] = []
    for process in processes:
        owners = [name for name, engine in engines.items() if engine == process.engine]
        # A backend whose engine is not known yet may own the process.
        sure = len(owners) == 1 and None not in engines.values() and process.pid not in orphaned
        result.append(EngineProcess(process.pid, process.name, process.engine, owners[0] if sure else None))
    return tuple(result)


def server_process(url: str, engine: str | None, loads: Workloads, *, alone: bool) -> Workload | None:
    """Return the process of a server on a machine: by the port of its URL, else the only one there.

    `engine` is the server's engine, None if unknown; `alone` says whether no other server is watched there.
    """
    wanted_engine = engine if engine != "openai" else None
    servers = [
        process
        for process in loads.processes
        if process.role == "server" and wanted_engine in {None, process.engine}
    ]
    port = port_of(url)
    exact = [server for server in servers if server.port == port]
    if len(exact) == 1:
        return exact[0]
    # In a container, a server's port can differ from the one that is forwarded to it.
    return servers[0] if alone and len(servers) == 1 and (servers[0].container or port is None) else None


def launched_slots(server: Workload, lanes: int) -> int | None:
    """Return how many requests a server runs at once by the option of its process; None without that option.

    vLLM does not report its `--max-num-seqs`, which is of one engine core, one of `lanes`.
    """
    count = launched_count(server, "--max-num-seqs")
    return None if count is None else count * max(1, lanes)


def launched_count(server: Workload, *names: str) -> int | None:
    """Return the number that the options `names` of a server's process have; None without one above 0."""
    options = (flag.partition(" ") for flag in server.flags or ())
    return next((int(value) for name, _, value in options if name in names and value.isdecimal()), 0) or None


def port_of(url: str) -> int | None:
    """Return the port that a URL names; None without one."""
    try:
        return urlsplit(url).port
    except ValueError:
        return None


def _nodes_by_host(nodes: Iterable[PlacedMachine]) -> dict[str, set[str]]:
    hosts: dict[str, set[str]] = {}
    for node, identity, _ in nodes:
        names = [url_host(node.url), _ssh_host(node.ssh), identity.hostname, *identity.addresses]
        own_hosts = {normal_host(name) for name in names}
        # Loopback counts only for the node read on this machine.
        if node.via == "local":
            own_hosts.add(_HERE)
        for host in own_hosts - {""}:
            hosts.setdefault(host, set()).add(node.name)
    return hosts


def _nodes_by_address(backend: BackendTarget, by_host: Mapping[str, set[str]]) -> tuple[str, ...]:
    fitting = by_host.get(normal_host(url_host(backend.url)), set())
    return tuple(fitting) if len(fitting) == 1 else ()


def _followers(
    backends: Sequence[Backend], nodes: Sequence[PlacedMachine], nodes_of: Mapping[str, tuple[str, ...]]
) -> dict[tuple[str, str], frozenset[WorkerRank]]:
    """Return (node, engine) where an engine has only workers of ranks above 0, without a placed backend.

    Each has these ranks; they are in the order of their lowest ones.
    """
    placed = {(node, engine) for target, engine in backends for node in nodes_of[target.name]}
    followers: dict[tuple[str, str], frozenset[WorkerRank]] = {}
    for node, _, processes in nodes:
        for engine in dict.fromkeys(process.engine for process in processes):
            ranks = _ranks(processes, engine)
            if ranks and (0, 0) not in ranks and (node.name, engine) not in placed:
                followers[node.name, engine] = ranks
    return dict(sorted(followers.items(), key=lambda follower: (min(follower[1]), follower[0])))


def _may_lead(
    places: tuple[str, ...], engine: str, ranks: frozenset[WorkerRank], nodes: Sequence[PlacedMachine]
) -> bool:
    """Return whether an engine's workers of these ranks can belong to the backend on the nodes `places`.

    They can if rank 0 of the engine is on these nodes, and none of `ranks` is.
    """
    own_ranks = [_ranks(processes, engine) for node, _, processes in nodes if node.name in places]
    ranks_here = frozenset().union(*own_ranks)
    return (0, 0) in ranks_here and not ranks & ranks_here


def _ranks(processes: Iterable[EngineProcess], engine: str) -> frozenset[WorkerRank]:
    ranks = (rank_of(process.name) for process in processes if process.engine == engine)
    return frozenset(rank for rank in ranks if rank is not None)


def url_host(url: str | None) -> str | None:
    """Return the host that a URL names; None without one."""
    try:
        return urlsplit(url).hostname if url else None
    except ValueError:
        return None


def public_url(url: str) -> str | None:
    """Return a URL without user name, password, query and fragment, which may be secrets; None for no URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl() or None


def _ssh_host(target: str | None) -> str | None:
    """Return the host of an ssh destination: host, user@host or ssh://user@host:port; None if it is empty."""
    if not target:
        return None
    if target.startswith("ssh://"):
        return url_host(target)
    return target.rsplit("@", 1)[-1]


def is_address(host: str) -> bool:
    """Return whether `host` is an IP address and not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def normal_host(name: str | None) -> str:
    """Return a host name or address in one normal spelling, any loopback as "localhost"; "" for no host."""
    plain = (name or "").strip("[]").partition("%")[0].lower().removesuffix(".").removesuffix(".local")
    try:
        address = ip_address(plain)
    except ValueError:
        return plain
    return _HERE if address.is_loopback or address.is_unspecified else address.compressed
