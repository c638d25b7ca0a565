"""Finds machines among the series of a Prometheus, joins their exporters, and places servers on them.

Exporters of one machine are joined by the host name that they report, or by the host of their addresses; a
server is placed by its pod, by its node in Kubernetes, or by the host of its address. What fits two machines
is joined with none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.model.text import clean
from sparktop.sources.prometheus.answer import Labels, Series
from sparktop.sources.prometheus.found import KEY_LABELS, FoundServer, Key, key_of
from sparktop.sources.prometheus.machines.exporters import GPU_LABELS, KINDS, MARKS, NODE
from sparktop.sources.prometheus.promql import selector
from sparktop.sources.prometheus.steps import Steps

PLACE_LABELS = (*KEY_LABELS, "Hostname")
"""The labels of a `Place`: one dcgm-exporter may be scraped as several hosts'."""
_HOST_NAMES = ("hostname", "nodename", "Hostname")
_FACTS = ("product", "os", "cpu", "driver", "modelName", "name", "DCGM_FI_DRIVER_VERSION", "driver_version")
_PODS = (("exported_namespace", "exported_pod"), ("namespace", "pod"))
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_CONTAINER = re.compile(r"[0-9a-f]{12}")
_PLAIN = re.compile(r"([\w.-]+)(?::\d*)?", re.ASCII)
"""Host and port without a scheme, user or brackets."""
_LONGEST = 48
Place = tuple[Key, str]
"""A target, and the host that a dcgm-exporter reports for it; "" for other exporters."""


class Exporter(Struct, frozen=True):
    """An exporter of a machine."""

    place: Place
    kind: str
    host: str
    """The host name that it reports, in small letters; "" where it reports none."""
    node: str
    """Its node in Kubernetes; "" where it is not known."""
    cluster: str
    facts: Mapping[str, str]
    pods: frozenset[tuple[str, str]]
    """(namespace, name) of pods that use its GPUs."""
    gpus: frozenset[str] = frozenset()
    """UUIDs of its GPUs, or their indices where it reports none."""
    address: str = ""
    """The host of its address, in small letters; "" where that cannot be read."""


class Machine(Struct, frozen=True):
    """A machine: all its exporters, and the names by which servers on it are known."""

    name: str
    """Unique, clean, at most 64 characters."""
    exporters: tuple[Exporter, ...]
    hosts: frozenset[str] = frozenset()
    """Host names and addresses, in small letters."""
    pods: frozenset[tuple[str, str]] = frozenset()

    @property
    def has_gpus(self) -> bool:
        """Whether it is of interest without any server: more than node_exporter runs there."""
        return any(one.kind != NODE for one in self.exporters)

    def fact(self, *names: str) -> str | None:
        """Return the first of these facts that an exporter reports."""
        known = (one.facts.get(name) for one in self.exporters for name in names)
        return next((value for value in known if value), None)


def machines_query(more: str) -> str:
    """Return the query for exporters of machines; `more` has further matchers."""
    more_labels = (
        "__name__",
        *_HOST_NAMES,
        "node",
        "cluster",
        *_FACTS,
        *(one for pair in _PODS for one in pair),
        *GPU_LABELS,
    )
    labels = ", ".join(dict.fromkeys((*PLACE_LABELS, *more_labels)))
    return f"count by ({labels}) ({selector(MARKS, more)})"


def place_of(labels: Labels) -> Place:
    """Return the place that a series of an exporter belongs to."""
    return key_of(labels), labels.get("Hostname", "")


def host_of(address: str) -> str:
    """Return the host of `host:port` or a URL in small letters; "" where it cannot be read."""
    plain = _PLAIN.fullmatch(address)
    if plain is not None:  # nearly all: ten times as fast
        return plain[1].lower().rstrip(".")
    try:
        host = urlsplit(address if "://" in address else f"//{address}").hostname
    except ValueError:
        return ""
    return (host or "").rstrip(".")


def found_exporters(series: Iterable[Series]) -> Steps[tuple[Exporter, ...]]:
    """Return, in steps, the exporters in the answer to `machines_query`, each once."""
    found: dict[tuple[Place, str], Exporter] = {}
    for one in series:
        yield
        labels, kind = one.labels, MARKS.get(one.labels.get("__name__", ""))
        if kind is None:
            continue
        place = place_of(labels)
        pods = frozenset(
            (labels.get(namespace, ""), labels[pod]) for namespace, pod in _PODS if labels.get(pod)
        )
        gpu = labels.get("UUID") or labels.get("uuid") or labels.get("gpu")
        gpus = frozenset({gpu} if gpu else ())
        known = found.get((place, kind))
        if known is not None:
            found[place, kind] = replace(known, pods=known.pods | pods, gpus=known.gpus | gpus)
            continue
        host = next((labels[name] for name in _HOST_NAMES if labels.get(name)), "")
        facts = {name: clean(labels[name], 80) for name in _FACTS if labels.get(name)}
        found[place, kind] = Exporter(
            place,
            kind,
            clean(host, _LONGEST).lower(),
            labels.get("node", "").lower(),
            labels.get("cluster", ""),
            facts,
            pods,
            gpus,
            host_of(place[0].address),
        )
    return tuple(found.values())


def joined(exporters: Iterable[Exporter]) -> Steps[tuple[Machine, ...]]:
    """Return, in steps, the machines of these exporters, sorted by name."""
    listed = sorted(exporters, key=lambda one: (KINDS.index(one.kind), one.place))
    full = _full_names(listed)
    by_name: dict[tuple[str, str], list[int]] = defaultdict(list)
    by_address: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, one in enumerate(listed):
        for name in {full.get((one.cluster, one.host), one.host), one.node} - {""}:
            by_name[one.cluster, name].append(number)
        if one.address:
            by_address[one.cluster, one.address].append(number)
        yield
    first = list(range(len(listed)))
    for some in by_name.values():
        _join(first, some)
        yield
    for key, some in by_address.items():
        if _are_one_machine([listed[number] for number in some], key[1]):
            _join(first, some + by_name.get(key, []))
        yield
    groups: dict[int, list[Exporter]] = defaultdict(list)
    for number, one in enumerate(listed):
        groups[_root(first, number)].append(one)
        yield
    return (yield from _machines(groups.values()))


def _are_one_machine(exporters: Sequence[Exporter], address: str) -> bool:
    """Return whether exporters at one address belong to one machine: no two of a kind name two hosts.

    In a container an exporter may report a host name that no other has. Behind loopback there may be tunnels
    to several machines: there all names must agree.
    """
    apart = address in _LOOPBACK
    names = {(None if apart else one.kind, one.host) for one in exporters if one.host}
    return len(names) == len({kind for kind, _ in names})


def _root(first: Sequence[int], number: int) -> int:
    while first[number] != number:
        number = first[number]
    return number


def _join(first: list[int], numbers: Iterable[int]) -> None:
    """Make one group of these numbers; `first` has a smaller number of the same group for each, or itself."""
    roots = sorted({_root(first, number) for number in numbers})
    for root in roots:
        first[root] = roots[0]


def _full_names(exporters: Sequence[Exporter]) -> dict[tuple[str, str], str]:
    """Return the only name with a domain that begins with a short one, by (cluster, short name)."""
    longer: dict[tuple[str, str], set[str]] = defaultdict(set)
    for one in exporters:
        if "." in one.host:
            longer[one.cluster, one.host.partition(".")[0]].add(one.host)
    return {short: next(iter(names)) for short, names in longer.items() if len(names) == 1}


def _name(exporters: Sequence[Exporter]) -> str:
    """Return the host name that the first exporter reports, else its node or address, else its job.

    The number of a container is a name only where there is no other.
    """
    names = [one.host for one in exporters if one.host]
    names += [word for one in exporters for word in (one.node, one.address) if word]
    usual = [name for name in names if not _CONTAINER.fullmatch(name)]
    return clean(next(iter(usual or names), exporters[0].place[0].job), _LONGEST) or "machine"


def _machines(groups: Iterable[Sequence[Exporter]]) -> Steps[tuple[Machine, ...]]:
    named: list[tuple[str, Sequence[Exporter]]] = []
    for some in groups:
        named.append((_name(some), some))
        yield
    named.sort(key=lambda one: (one[0], one[1][0].place))
    taken: set[str] = set()
    found: list[Machine] = []
    for name, exporters in named:
        cluster = exporters[0].cluster
        plain = clean(f"{cluster}/{name}", _LONGEST) if name in taken and cluster else name
        number, own = 2, plain
        while own in taken:
            own, number = f"{plain}-{number}", number + 1
        taken.add(own)
        hosts = {word for one in exporters for word in (one.host, one.node, one.address)}
        pods = frozenset(pod for one in exporters for pod in one.pods)
        found.append(Machine(own, tuple(exporters), frozenset(hosts - {""}), pods))
        yield
    return tuple(found)


class Placing(Struct, frozen=True):
    """Finds the machines of servers."""

    by_pod: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    by_host: Mapping[str, Sequence[str]] = field(default_factory=dict)
    configured: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Hosts by `instance`, as the configuration names them."""

    def machines_of(self, server: FoundServer) -> tuple[str, ...]:
        """Return the names of the machines of a server; empty where they are not known for sure."""
        listed = self.configured.get(server.key.address)
        if listed is not None:
            return tuple(name for host in listed for name in self._only(self.by_host.get(host.lower(), ())))
        for fitting in (
            self.by_pod.get(server.pod, ()) if server.pod else (),
            self.by_host.get(server.node.lower(), ()) if server.node else (),
            self.by_host.get(host_of(server.key.address), ()),
        ):
            if fitting:
                return self._only(fitting)
        return ()

    @staticmethod
    def _only(fitting: Sequence[str]) -> tuple[str, ...]:
        return tuple(fitting) if len(fitting) == 1 else ()


def placing(machines: Iterable[Machine], configured: Mapping[str, Sequence[str]]) -> Steps[Placing]:
    """Return, in steps, what finds the machines of servers among `machines`."""
    by_pod: dict[tuple[str, str], list[str]] = defaultdict(list)
    by_host: dict[str, list[str]] = defaultdict(list)
    for one in machines:
        for pod in one.pods:
            by_pod[pod].append(one.name)
        for host in {*one.hosts, one.name.lower()}:
            by_host[host].append(one.name)
        yield
    return Placing(by_pod, by_host, configured)
