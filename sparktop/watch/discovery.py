"""Determines what to watch: parses TARGET arguments and searches the usual ports of hosts."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from msgspec import Struct

from sparktop.analysis.placement import ServerAddress, address_of
from sparktop.errors import UsageError
from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import Deployment
from sparktop.model.targets import (
    AGENT_PORT,
    ENGINE_PORTS,
    ROUTER_PORT,
    BackendTarget,
    NodeTarget,
    RouterTarget,
    server_path,
)
from sparktop.model.text import clean, host_port
from sparktop.net.failure import HOW_TO_GIVE_A_KEY, look_up

_RESOLVE_TIMEOUT_S = 5.0
"""Seconds that resolving a host name may take; mDNS gives up after this time."""
_CONNECT_TIMEOUT_S = 1.0
"""Seconds that a connection may take."""
_ADDRESSES_MAX = 4
"""The most addresses of a host name that are tried."""
_PORT_MAX = 65535
"""Highest port number."""
_HOST_MAX = 253
"""Most characters of a host name (RFC 1035)."""
_SAMPLE_PATH = "/v1/sample"
_HEALTH_PATH = "/healthz"
_LABEL = re.compile(r"\w(?:[\w-]{0,61}\w)?")
"""A part of a host name between dots."""


_ROUTER = "router"
_NO_AGENT = frozenset(
    {
        FailureKind.MALFORMED,
        FailureKind.NOT_FOUND,
        FailureKind.REDIRECT,
        FailureKind.TLS,
        FailureKind.UNREACHABLE,
    }
)
"""Failures of what is not an agent; one that reads its machine with trouble is an agent all the same."""


class Found(Struct, frozen=True):
    """The servers, routers and agents that a search found, in the order of the hosts and their ports."""

    backends: tuple[BackendTarget, ...] = ()
    routers: tuple[RouterTarget, ...] = ()
    nodes: tuple[NodeTarget, ...] = ()
    """Machines whose sparktop agent answers without a token."""
    agents: tuple[str, ...] = ()
    """`host:port` of each sparktop agent, including agents that need a token."""
    notes: tuple[str, ...] = ()
    """Messages about what was left out and why: a host without any server, or a server that needs a key."""


class Ports(Struct, frozen=True):
    """The ports that are tried on each host."""

    engines: tuple[int, ...] = ENGINE_PORTS
    router: int = ROUTER_PORT
    agent: int = AGENT_PORT

    @property
    def http(self) -> tuple[int, ...]:
        """The ports of engines and of the router, each once."""
        return tuple(dict.fromkeys((*self.engines, self.router)))


USUAL_PORTS = Ports()


def parse_target(text: str) -> BackendTarget | NodeTarget | str:
    """Parse a TARGET argument; return a target, or the host (str) if it names neither a port nor a URL.

    The target is the agent of a node if the URL ends in /v1/sample, or has the agent's port and no
    path but /metrics or that of its health, else a backend.

    Raises:
        UsageError: the argument is neither a host nor an http(s) address.
    """
    word = text.strip()
    if not word or not word.isprintable() or " " in word:
        raise _usage_error(text, "no TARGET")
    if "@" in word:
        # Not quoted: it may contain a password, and errors end up in logs.
        raise UsageError(
            "a TARGET holds no user name or password: put the server's key into an environment variable "
            f"and name that: {HOW_TO_GIVE_A_KEY}"
        )
    if "/" in word:
        return _parse_url(word if "://" in word else f"http://{word}", text)
    if _is_ipv6(word):
        return word
    if word.startswith("[") and word.endswith("]") and _is_ipv6(word[1:-1]):
        return word[1:-1]
    if word.isdecimal() or word.startswith(":"):
        port = word.lstrip(":")
        raise _usage_error(text, f"a port without a host: write localhost:{port}" if port else "no TARGET")
    if ":" in word:
        return _parse_url(f"http://{word}", text)
    _check_host(word, text)
    return word


def _parse_url(url: str, text: str) -> BackendTarget | NodeTarget:
    """Return the target that a URL means; raise `UsageError` for one that cannot be watched."""
    try:
        url_parts = urlsplit(url)
        port, host = url_parts.port, url_parts.hostname
    except ValueError as error:
        raise _usage_error(text, "its host or port cannot be read") from error
    if url_parts.scheme not in {"http", "https"}:
        raise _usage_error(
            text, f"{clean(url_parts.scheme, 20)}:// is not watched, only http:// and https:// are"
        )
    if not host:
        raise _usage_error(text, "no host in it")
    if port == 0 or url_parts.netloc.endswith(":"):
        raise _usage_error(text, f"a port is a number from 1 to {_PORT_MAX}")
    if url_parts.query or url_parts.fragment:
        raise _usage_error(text, "leave out what follows ? or #")
    _check_host(host, text)
    path = url_parts.path.rstrip("/")
    host_part = f"[{host}]" if ":" in host else host
    address = host_part if port is None else f"{host_part}:{port}"
    is_sample = path.endswith(_SAMPLE_PATH)
    if is_sample or (port == AGENT_PORT and path in {"", "/metrics", _HEALTH_PATH}):
        path_above = path.removesuffix(_SAMPLE_PATH).rstrip("/") if is_sample else ""
        name = f"{host_part if port == AGENT_PORT else address}{path_above}"
        return NodeTarget(name, via="agent", url=f"{url_parts.scheme}://{address}{path_above}")
    path = server_path(path)
    return BackendTarget(name=f"{address}{path}", url=f"{url_parts.scheme}://{address}{path}")


def shortened_message(text: str, target: BackendTarget) -> str | None:
    """Return a note that the TARGET `text` was shortened to its server `target`.

    None if no more than /metrics or /v1 was cut, as of the addresses that servers are known by.
    """
    path = urlsplit(text if "://" in text else f"//{text}").path.rstrip("/")
    if path.removeprefix(urlsplit(target.url).path) in {"", "/metrics", "/v1"}:
        return None
    return f"{clean(text, 100)} is the address of a request: its server {target.url} is taken"


def _check_host(host: str, text: str) -> None:
    """Raise the error for the TARGET `text` if its `host` can be neither a name nor an address."""
    if ":" in host:
        if not _is_ipv6(host):
            raise _usage_error(text, "no IPv6 address in the brackets")
        return
    labels = host.removesuffix(".").split(".")
    if len(host) > _HOST_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise _usage_error(text, "no host name")
    if all(label.isdecimal() for label in labels):
        try:
            ipaddress.IPv4Address(host)
        except ValueError as error:
            raise _usage_error(text, "no IPv4 address") from error


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _usage_error(text: str, reason: str) -> UsageError:
    word = clean(text, 60) or "(empty)"
    return UsageError(f"{word}: {reason}; a TARGET is a host, host:port or URL (http://host:8000)")


async def discover(
    hosts: Iterable[str],
    *,
    answer_timeout_s: float = 3.0,
    ports: Ports = USUAL_PORTS,
) -> Found:
    """Search the usual ports of all hosts at the same time, and identify the servers that listen there.

    Only GET requests that change nothing are sent: those of a poll.
    """
    by_label: dict[str, str] = {}
    for host in hosts:  # each host once: 127.0.0.1 and localhost are one
        by_label.setdefault(_label(host).lower(), host)
    searches = [_HostSearch(host, answer_timeout_s, ports) for host in by_label.values()]
    results = await asyncio.gather(*(search.run() for search in searches))
    return Found(
        backends=tuple(backend for result in results for backend in result.backends),
        routers=tuple(router for result in results for router in result.routers),
        nodes=tuple(node for result in results for node in result.nodes),
        agents=tuple(agent for result in results for agent in result.agents),
        notes=tuple(note for result in results for note in result.notes),
    )


def _label(host: str) -> str:
    return "localhost" if host in {"127.0.0.1", "::1"} else clean(host, 80)


class _HostSearch:
    """The search for servers on one host."""

    def __init__(self, host: str, answer_timeout_s: float, ports: Ports) -> None:
        self._host = host
        self._label = _label(host)
        self._answer_timeout_s = answer_timeout_s
        self._ports = ports

    async def run(self) -> Found:
        # Once for all ports: a resolution per port would queue for the few resolver threads.
        try:
            async with asyncio.timeout(_RESOLVE_TIMEOUT_S):
                resolved = await look_up(self._host, None)
        except (OSError, UnicodeError):
            resolved = []
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in resolved))[:_ADDRESSES_MAX]
        if not addresses:
            return Found(notes=(f"{self._label}: the host name does not resolve; is it right?",))
        ports = (*self._ports.http, self._ports.agent)
        pairs = [(address, port) for port in ports for address in addresses]
        connected = await asyncio.gather(*(self._can_connect(*pair) for pair in pairs))
        open_ports = {port for (_, port), is_open in zip(pairs, connected, strict=True) if is_open}
        http_ports = [port for port in self._ports.http if port in open_ports]
        agent, *kinds = await asyncio.gather(
            self._ask_agent(is_open=self._ports.agent in open_ports), *map(self._ask_port, http_ports)
        )
        return self._describe_found(dict(zip(http_ports, kinds, strict=True)), agent)

    def _describe_found(self, kinds: dict[int, str | None], agent: str | None) -> Found:
        """Return what was found as targets, and notes on the rest.

        `kinds` has the result of `_ask_port` by port, `agent` is the result of `_ask_agent`.
        """
        engines = [port for port, kind in kinds.items() if kind not in {None, _ROUTER, "locked"}]
        agent_port = self._ports.agent
        node = NodeTarget(self._label, via="agent", url=self._url(agent_port))
        nodes = (node,) if agent == "agent" else ()
        backends = tuple(
            BackendTarget(
                name=self._label if len(engines) == 1 else self._name(port),
                url=self._url(port),
                engine=kinds[port] or "auto",
                nodes=tuple(node.name for node in nodes),
            )
            for port in engines
        )
        routers = tuple(
            RouterTarget(name=self._name(port), url=self._url(port))
            for port, kind in kinds.items()
            if kind == _ROUTER
        )
        agents = (self._name(agent_port),) if agent in {"agent", "locked"} else ()
        notes = self._notes(kinds, agent)
        if not (backends or routers or agents or notes):
            ports = ", ".join(map(str, self._ports.http))
            reason = "what listens there is not an inference server" if kinds else "nothing listens there"
            notes.append(
                f"{self._label}: nothing to watch on ports {ports} ({reason}); write host:port or a URL"
            )
        return Found(backends, routers, nodes, agents, tuple(notes))

    def _notes(self, kinds: dict[int, str | None], agent: str | None) -> list[str]:
        """Return messages about servers that cannot be watched without a key, a token or an https:// URL."""
        notes = [
            f"{self._name(port)} wants a key: host:port with {HOW_TO_GIVE_A_KEY}"
            for port, kind in kinds.items()
            if kind == "locked"
        ]
        name = self._name(self._ports.agent)
        if agent == "locked":
            notes.append(f"the agent at {name} wants a token: set token_env or token_file in the config")
        elif agent == "other":
            notes.append(
                f"{name} answers as no agent does; one with TLS needs its https:// URL in the config"
            )
        return notes

    async def _can_connect(self, address: str, port: int) -> bool:
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    asyncio.Protocol, address, port
                )
        except OSError:  # includes TimeoutError
            return False
        transport.abort()
        return True

    async def _ask_port(self, port: int) -> str | None:
        """Return what answers at `port`: an engine's name, "auto", "router", "locked", or None.

        "auto" is a server of which only the models are known, "locked" a server that needs a key;
        None means that nothing answers there or that it is none of these.
        """
        from sparktop.sources.engine_http import EngineSource  # late: arguments are parsed before that

        source = EngineSource(BackendTarget(self._name(port), self._url(port)))
        try:
            reading = await source.poll(self._answer_timeout_s)
        finally:
            await source.close()
        if isinstance(reading, EngineSample):
            return reading.engine if reading.note is None else "auto"
        return {FailureKind.ROUTER: _ROUTER, FailureKind.UNAUTHORIZED: "locked"}.get(reading.kind)

    async def _ask_agent(self, *, is_open: bool) -> str | None:
        """Return what answers at the agent's port: "agent", "locked", "other" or None.

        "locked" is an agent that needs a token, "other" a server that is not an agent. Return None if the
        port is closed, which the caller states by `is_open`.
        """
        if not is_open:
            return None
        from sparktop.sources.agent import AgentSource  # late, see above

        source = AgentSource(NodeTarget(self._label, via="agent", url=self._url(self._ports.agent)))
        try:
            reading = await source.poll(self._answer_timeout_s)
        finally:
            await source.close()
        if not isinstance(reading, Failure):
            return "agent"
        if reading.kind is FailureKind.UNAUTHORIZED:
            return "locked"
        return "other" if reading.kind in _NO_AGENT else "agent"

    def _name(self, port: int) -> str:
        return host_port(self._label, port)

    def _url(self, port: int) -> str:
        return f"http://{host_port(self._host, port)}"


# Servers that a router lists and that are not watched yet: which of them may be polled, and their names.
#
# A router's list may include other people's servers. Only addresses of the local network are polled; other
# servers are reported by host name and watched only if the user configures them.


MOST_FOUND = 64
"""The most servers that are accepted from one router."""
_LOCAL_ENDINGS = (".local", ".lan", ".internal", ".home.arpa", ".localdomain")
"""Ends of names of the local network."""
_CARRIER_GRADE = ipaddress.ip_network("100.64.0.0/10")
"""Address range (RFC 6598) in which overlay networks such as Tailscale place machines."""
_METADATA = frozenset({"169.254.169.254", "fd00:ec2::254", "metadata.google.internal"})
"""Addresses and name at which clouds give a machine its secrets: no server of models has them."""
_HASH = re.compile(r"[0-9a-f]{24,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""An id that LiteLLM or a program made."""
_LONGEST_NAME = 24
"""Most characters of an id that serves as a name."""


def servers_behind_router(
    router: RouterTarget,
    deployments: Iterable[Deployment],
    *,
    watched_urls: Iterable[str],
    taken_names: Collection[str],
) -> tuple[list[BackendTarget], list[str]]:
    """Return the servers in `deployments` that are not watched yet, and hosts outside the local network.

    Servers outside the local network are not polled, and only their hosts are kept. "localhost" in a
    deployment's address means the router's own machine. `watched_urls` are the addresses of watched backends
    and routers, `taken_names` the backend names in use; each returned target gets a name that is still free.
    """
    router_address = address_of(router.url)
    router_host = router_address[0] if router_address else "localhost"
    seen_addresses: set[ServerAddress | None] = {address_of(url) for url in watched_urls}
    names = set(taken_names)
    targets: list[BackendTarget] = []
    elsewhere: dict[str, None] = {}
    for deployment in deployments:
        behind_at = address_of(deployment.address, router_host) if deployment.address else None
        if behind_at is None or behind_at in seen_addresses:
            continue
        seen_addresses.add(behind_at)
        host, port, path = behind_at
        if host != router_host and not is_nearby(host):
            elsewhere.setdefault(host)
            continue
        if len(targets) == MOST_FOUND:
            continue
        scheme = "https" if (deployment.address or "").startswith("https:") else "http"
        where = host_port(host, port)
        url = f"{scheme}://{where}{path}"
        ids = () if _is_opaque(deployment.id) else (deployment.id,)
        name = next((name for name in (*ids, where, f"{where}{path}") if name not in names), url)
        names.add(name)
        targets.append(BackendTarget(name, url))
    return targets, list(elsewhere)


def _is_opaque(deployment_id: str) -> bool:
    """Return whether an id cannot serve as a name: a URL, a hash made by LiteLLM, or what is too long."""
    is_hash = _HASH.fullmatch(deployment_id.lower()) is not None
    return is_hash or "://" in deployment_id or len(deployment_id) > _LONGEST_NAME


def is_nearby(host: str) -> bool:
    """Return whether a host is in the local network.

    These are private, loopback and link-local addresses, names without a dot, and names such as "x.local";
    a cloud's service of secrets is none of them.
    """
    address = _read_address(host.partition("%")[0])
    if (host if address is None else str(address)) in _METADATA:
        return False
    if address is None:
        return "." not in host or host.endswith(_LOCAL_ENDINGS)
    if address.version == 4 and address in _CARRIER_GRADE:  # noqa: PLR2004 - the range is IPv4 only
        return True
    return address.is_private or address.is_loopback or address.is_link_local


def _read_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a system takes a host for, also one written as "0x8080808"; None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, UnicodeEncodeError):
            return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
