"""Machines among the series of a Prometheus: their exporters, their figures, and the servers on them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import fields, replace

from sparktop.hardware.gpu import reason_words
from sparktop.model import node as node_metrics
from sparktop.model.node import (
    PREFIX,
    CpuReading,
    FieldMetric,
    GpuReading,
    MemoryPart,
    MemoryReading,
    NodeSample,
)
from sparktop.model.router import rate_window_s
from sparktop.model.text import clean, free_name
from sparktop.sources.prometheus.client import Labels, PrometheusClient, TimeSeries, any_of, selector
from sparktop.sources.prometheus.found import KEY_LABELS, FoundServer, ScrapeKey, key_of
from sparktop.stopping import gather_or_cancel

# Four exporters are known: sparktop's agent, NVIDIA's dcgm-exporter, nvidia_gpu_exporter, and
# node_exporter.


AGENT, DCGM, SMI, NODE = "agent", "dcgm", "nvidia-smi", "node"
"""Kinds of exporters: sparktop agent, dcgm-exporter, nvidia_gpu_exporter, node_exporter."""
KINDS = (AGENT, DCGM, SMI, NODE)
"""The exporters; where several report a field, the first of them counts."""
CPU, MEMORY, GPU = "cpu", "memory", "gpu"
"""Parts of a sample that a figure belongs to."""
_MIB = float(1 << 20)
FREE, SWAP_FREE, REASONS, GPUS = "memory_free_bytes", "swap_free_bytes", "reasons", "gpus"
"""Figures that are no field of a sample, but lead to one; `REASONS` is NVML's mask of throttle reasons."""
_PERCENT = 100.0
"""Factor from a ratio to percent."""
_BLANK = float(1 << 47)
"""DCGM marks an unknown value by this number or a larger one."""


class ScrapedField(NamedTuple):
    """The field that a metric is, and the factor from the metric's unit to the field's."""

    kind: str
    part: str
    field: str
    scale: float = 1.0

    def field_value(self, value: float) -> float | None:
        """Return a value of the metric as one of the field; None where it stands for "unknown".

        A ratio above 1 is a percentage already: DCGM 4.5 gave its percentage the name that is a ratio in 4.7.
        """
        if self.kind == DCGM and value >= _BLANK:
            return None
        is_percent = self.kind == DCGM and self.scale == _PERCENT and value > 1
        return value if is_percent else value * self.scale


def _agent_figures() -> dict[str, ScrapedField]:
    parts: tuple[tuple[str, tuple[FieldMetric, ...]], ...] = (
        (CPU, node_metrics.CPU),
        (MEMORY, node_metrics.MEMORY),
        (GPU, node_metrics.GPU),
    )
    return {
        metric.full_name: ScrapedField(AGENT, part, metric.field, metric.field_value(1.0))
        for part, metrics in parts
        for metric in metrics
    } | {f"{PREFIX}{node_metrics.GPUS}": ScrapedField(AGENT, CPU, GPUS)}


_DCGM = {
    "DCGM_FI_DEV_GPU_UTIL": ScrapedField(DCGM, GPU, "utilization_percent"),
    "DCGM_FI_DEV_GPU_TEMP": ScrapedField(DCGM, GPU, "temperature_c"),
    "DCGM_FI_DEV_SLOWDOWN_TEMP": ScrapedField(DCGM, GPU, "slowdown_c"),
    "DCGM_FI_DEV_POWER_USAGE": ScrapedField(DCGM, GPU, "power_w"),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": ScrapedField(DCGM, GPU, "power_limit_w"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ScrapedField(DCGM, GPU, "energy_j", 1e-3),
    "DCGM_FI_DEV_SM_CLOCK": ScrapedField(DCGM, GPU, "sm_clock_mhz"),
    "DCGM_FI_DEV_MAX_SM_CLOCK": ScrapedField(DCGM, GPU, "sm_clock_max_mhz"),
    "DCGM_FI_DEV_FB_USED": ScrapedField(DCGM, GPU, "memory_used_bytes", _MIB),
    "DCGM_FI_DEV_FB_FREE": ScrapedField(DCGM, GPU, FREE, _MIB),
    "DCGM_FI_DEV_FB_TOTAL": ScrapedField(DCGM, GPU, "memory_total_bytes", _MIB),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ScrapedField(DCGM, GPU, REASONS),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ScrapedField(DCGM, GPU, REASONS),
    # Newer names of the same fields, as their identifiers were renamed.
    "DCGM_FI_DEV_GPU_UTIL_RATIO": ScrapedField(DCGM, GPU, "utilization_percent", _PERCENT),
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": ScrapedField(DCGM, GPU, "temperature_c"),
    "DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS": ScrapedField(DCGM, GPU, "limit_margin_c"),
    "DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS": ScrapedField(DCGM, GPU, "slowdown_c"),
    "DCGM_FI_DEV_BOARD_POWER_WATTS": ScrapedField(DCGM, GPU, "power_w"),
    "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS": ScrapedField(DCGM, GPU, "power_limit_w"),
}
_SMI = {
    "nvidia_smi_utilization_gpu_ratio": ScrapedField(SMI, GPU, "utilization_percent", _PERCENT),
    "nvidia_smi_temperature_gpu": ScrapedField(SMI, GPU, "temperature_c"),
    "nvidia_smi_temperature_gpu_tlimit": ScrapedField(SMI, GPU, "limit_margin_c"),
    "nvidia_smi_power_draw_watts": ScrapedField(SMI, GPU, "power_w"),
    "nvidia_smi_enforced_power_limit_watts": ScrapedField(SMI, GPU, "power_limit_w"),
    "nvidia_smi_clocks_current_sm_clock_hz": ScrapedField(SMI, GPU, "sm_clock_mhz", 1e-6),
    "nvidia_smi_clocks_max_sm_clock_hz": ScrapedField(SMI, GPU, "sm_clock_max_mhz", 1e-6),
    "nvidia_smi_memory_used_bytes": ScrapedField(SMI, GPU, "memory_used_bytes"),
    "nvidia_smi_memory_free_bytes": ScrapedField(SMI, GPU, FREE),
    "nvidia_smi_memory_total_bytes": ScrapedField(SMI, GPU, "memory_total_bytes"),
    "nvidia_smi_clocks_event_reasons_active": ScrapedField(SMI, GPU, REASONS),
    "nvidia_smi_clocks_throttle_reasons_active": ScrapedField(SMI, GPU, REASONS),
}
SMI_INFO = "nvidia_smi_gpu_info"
"""nvidia_gpu_exporter's series with index and name of each GPU; its figures have only the label `uuid`."""
_NODE = {
    "node_memory_MemTotal_bytes": ScrapedField(NODE, MEMORY, "total_bytes"),
    "node_memory_MemAvailable_bytes": ScrapedField(NODE, MEMORY, "available_bytes"),
    "node_memory_CmaFree_bytes": ScrapedField(NODE, MEMORY, "cma_free_bytes"),
    "node_memory_SwapTotal_bytes": ScrapedField(NODE, MEMORY, "swap_total_bytes"),
    "node_memory_SwapFree_bytes": ScrapedField(NODE, MEMORY, SWAP_FREE),
    "node_load1": ScrapedField(NODE, CPU, "load1"),
}
FIGURES: Mapping[str, ScrapedField] = MappingProxyType({**_agent_figures(), **_DCGM, **_SMI, **_NODE})
"""The figure of each metric, by its full name."""
MARKS: Mapping[str, str] = MappingProxyType(
    {
        node_metrics.INFO: AGENT,
        "DCGM_FI_DEV_GPU_TEMP": DCGM,
        "DCGM_FI_DEV_GPU_TEMP_CELSIUS": DCGM,
        SMI_INFO: SMI,
        "node_uname_info": NODE,
    }
)
"""The exporter by the name of the metric that marks it."""
AGENT_REASON = f"{PREFIX}{node_metrics.THROTTLE_REASON}"
"""The agent's series for each active throttle reason, which is its label `reason`."""
AGENT_REASONS = f"{PREFIX}{node_metrics.THROTTLE_REASONS}"
"""The agent's number of these reasons: where it has a series, no reason is known to be active."""
AGENT_PART = f"{PREFIX}{node_metrics.MEMORY_PART}"
"""The agent's series for each part of the memory bar, which is its label `part`."""
AGENT_MORE = (AGENT_REASON, AGENT_REASONS, AGENT_PART, node_metrics.GPU_INFO)
"""Series of the agent that a sample needs beside those of `FIGURES`."""
IDLE_CPU = "node_cpu_seconds_total"
MIG = "GPU_I_ID"
"""dcgm-exporter's label of a part of a GPU in MIG mode, of which it then writes only the parts. With time
slicing it writes the same figures once for each share (label `vgpu`)."""
GPU_LABELS = ("gpu", "UUID", "uuid")
"""Labels that tell the GPUs of a machine apart."""


def names_of(kinds: frozenset[str], *fields: str) -> list[str]:
    """Return the metrics of these exporters that are one of these fields; without fields, all metrics."""
    return [
        name
        for name, figure in FIGURES.items()
        if figure.kind in kinds and (not fields or figure.field in fields)
    ]


# Finds machines among the series of a Prometheus, joins their exporters, and places servers on them.
#
# Exporters of one machine are joined by the host name that they report, or by the host of their addresses;
# a server is placed by its pod, by its node in Kubernetes, or by the host of its address. What fits two
# machines is joined with none.


PLACE_LABELS = (*KEY_LABELS, "Hostname")
"""The labels of a `Origin`: one dcgm-exporter may be scraped as several hosts'."""
_HOST_NAMES = ("hostname", "nodename", "Hostname")
"""Labels with a host name, by preference."""
_FACTS = ("product", "os", "cpu", "driver", "modelName", "name", "DCGM_FI_DRIVER_VERSION", "driver_version")
"""Labels with facts of a machine."""
_PODS = (("exported_namespace", "exported_pod"), ("namespace", "pod"))
"""Labels with namespace and name of a pod that uses a GPU."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""Addresses behind which there may be tunnels to several machines."""
_CONTAINER = re.compile(r"[0-9a-f]{12}")
"""The number of a container, which serves as its host name."""
_LONGEST = 48
"""Most characters of a name."""
Origin = tuple[ScrapeKey, str]
"""A target, and the host that a dcgm-exporter reports for it; "" for other exporters."""


class Exporter(Struct, frozen=True):
    """An exporter of a machine."""

    place: Origin
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


class ScrapedMachine(Struct, frozen=True):
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
        return any(exporter.kind != NODE for exporter in self.exporters)

    def fact(self, *names: str) -> str | None:
        """Return the first of these facts that an exporter reports."""
        values = (exporter.facts.get(name) for exporter in self.exporters for name in names)
        return next((value for value in values if value), None)


def machines_query(more: str) -> str:
    """Return the query for exporters of machines; `more` has further matchers."""
    more_labels = (
        "__name__",
        *_HOST_NAMES,
        "node",
        "cluster",
        *_FACTS,
        *(label for pair in _PODS for label in pair),
        *GPU_LABELS,
    )
    labels = ", ".join(dict.fromkeys((*PLACE_LABELS, *more_labels)))
    return f"count by ({labels}) ({selector(MARKS, more)})"


def place_of(labels: Labels) -> Origin:
    """Return the place that a series of an exporter belongs to."""
    return key_of(labels), labels.get("Hostname", "")


def host_of(address: str) -> str:
    """Return the host of `host:port` or a URL in small letters; "" where it cannot be read."""
    try:
        host = urlsplit(address if "://" in address else f"//{address}").hostname
    except ValueError:
        return ""
    return (host or "").rstrip(".")


def found_exporters(series: Iterable[TimeSeries]) -> tuple[Exporter, ...]:
    """Return the exporters in the answer to `machines_query`, each once."""
    result: dict[tuple[Origin, str], Exporter] = {}
    for a_series in series:
        labels, kind = a_series.labels, MARKS.get(a_series.labels.get("__name__", ""))
        if kind is None:
            continue
        key = place_of(labels)
        pods = frozenset(
            (labels.get(namespace, ""), labels[pod]) for namespace, pod in _PODS if labels.get(pod)
        )
        gpu = labels.get("UUID") or labels.get("uuid") or labels.get("gpu")
        gpus = frozenset({gpu} if gpu else ())
        exporter = result.get((key, kind))
        if exporter is not None:
            result[key, kind] = replace(exporter, pods=exporter.pods | pods, gpus=exporter.gpus | gpus)
            continue
        host = next((labels[name] for name in _HOST_NAMES if labels.get(name)), "")
        facts = {name: clean(labels[name], 80) for name in _FACTS if labels.get(name)}
        result[key, kind] = Exporter(
            key,
            kind,
            clean(host, _LONGEST).lower(),
            labels.get("node", "").lower(),
            labels.get("cluster", ""),
            facts,
            pods,
            gpus,
            host_of(key[0].address),
        )
    return tuple(result.values())


def join_exporters(exporters: Iterable[Exporter]) -> tuple[ScrapedMachine, ...]:
    """Return the machines of these exporters, sorted by name."""
    ordered = sorted(exporters, key=lambda exporter: (KINDS.index(exporter.kind), exporter.place))
    full_names = _full_names(ordered)
    by_name: dict[tuple[str, str], list[int]] = defaultdict(list)
    by_address: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, exporter in enumerate(ordered):
        for name in {full_names.get((exporter.cluster, exporter.host), exporter.host), exporter.node} - {""}:
            by_name[exporter.cluster, name].append(number)
        if exporter.address:
            by_address[exporter.cluster, exporter.address].append(number)
    parents = list(range(len(ordered)))
    for numbers in by_name.values():
        _join_groups(parents, numbers)
    for key, numbers in by_address.items():
        if _are_one_machine([ordered[number] for number in numbers], key[1]):
            _join_groups(parents, numbers + by_name.get(key, []))
    groups: dict[int, list[Exporter]] = defaultdict(list)
    for number, exporter in enumerate(ordered):
        groups[_root_of(parents, number)].append(exporter)
    return _name_machines(groups.values())


def _are_one_machine(exporters: Sequence[Exporter], address: str) -> bool:
    """Return whether exporters at one address belong to one machine: no two of a kind name two hosts.

    In a container an exporter may report a host name that no other has. Behind loopback there may be tunnels
    to several machines: there all names must agree.
    """
    loopback = address in _LOOPBACK
    names = {(None if loopback else exporter.kind, exporter.host) for exporter in exporters if exporter.host}
    return len(names) == len({kind for kind, _ in names})


def _root_of(parents: Sequence[int], number: int) -> int:
    """Return the smallest number of the group of `number`; `parents` is that of `_join_groups`."""
    while parents[number] != number:
        number = parents[number]
    return number


def _join_groups(parents: list[int], numbers: Iterable[int]) -> None:
    """Make one group of these numbers (union-find): `parents` leads from each to a smaller one of its group.

    The smallest of a group, its root, has itself as its parent.
    """
    roots = sorted({_root_of(parents, number) for number in numbers})
    for root in roots:
        parents[root] = roots[0]


def _full_names(exporters: Sequence[Exporter]) -> dict[tuple[str, str], str]:
    """Return the only name with a domain that begins with a short one, by (cluster, short name)."""
    longer: dict[tuple[str, str], set[str]] = defaultdict(set)
    for exporter in exporters:
        if "." in exporter.host:
            longer[exporter.cluster, exporter.host.partition(".")[0]].add(exporter.host)
    return {short: next(iter(names)) for short, names in longer.items() if len(names) == 1}


def _name(exporters: Sequence[Exporter]) -> str:
    """Return the host name that the first exporter reports, else its node or address, else its job.

    The number of a container is a name only where there is no other.
    """
    names = [exporter.host for exporter in exporters if exporter.host]
    names += [word for exporter in exporters for word in (exporter.node, exporter.address) if word]
    host_names = [name for name in names if not _CONTAINER.fullmatch(name)]
    return clean(next(iter(host_names or names), exporters[0].place[0].job), _LONGEST) or "machine"


def _name_machines(groups: Iterable[Sequence[Exporter]]) -> tuple[ScrapedMachine, ...]:
    """Return the machines; where names repeat, with their cluster or a number."""
    ordered = sorted(groups, key=lambda group: (_name(group), group[0].place))
    machines: dict[str, ScrapedMachine] = {}
    for exporters in ordered:
        name, cluster = _name(exporters), exporters[0].cluster
        plain = clean(f"{cluster}/{name}", _LONGEST) if name in machines and cluster else name
        unique = free_name(plain, machines)
        hosts = {word for exporter in exporters for word in (exporter.host, exporter.node, exporter.address)}
        pods = frozenset(pod for exporter in exporters for pod in exporter.pods)
        machines[unique] = ScrapedMachine(unique, tuple(exporters), frozenset(hosts - {""}), pods)
    return tuple(machines.values())


MachinesOf = Callable[[FoundServer], tuple[str, ...]]
"""Returns the names of the machines of a server; empty where they are not known for sure."""


def placing_among(machines: Iterable[ScrapedMachine], configured: Mapping[str, Sequence[str]]) -> MachinesOf:
    """Return what finds the machines of servers among `machines`.

    `configured` has hosts by `instance`, as the configuration names them.
    """
    by_pod: dict[tuple[str, str], list[str]] = defaultdict(list)
    by_host: dict[str, list[str]] = defaultdict(list)
    for machine in machines:
        for pod in machine.pods:
            by_pod[pod].append(machine.name)
        for host in {*machine.hosts, machine.name.lower()}:
            by_host[host].append(machine.name)

    def if_single(fitting: Sequence[str]) -> tuple[str, ...]:
        return tuple(fitting) if len(fitting) == 1 else ()

    def machines_of(server: FoundServer) -> tuple[str, ...]:
        listed = configured.get(server.key.address)
        if listed is not None:
            return tuple(name for host in listed for name in if_single(by_host.get(host.lower(), ())))
        fitting = (
            by_pod.get(server.pod, ()) if server.pod else (),
            by_host.get(server.node.lower(), ()),
            by_host.get(host_of(server.key.address), ()),
        )
        return if_single(next(filter(None, fitting), ()))

    return machines_of


# Figures of machines: of all of them from a few aggregates, and samples of a few from raw series.


def _by(*labels: str) -> str:
    """Return the clause that keeps apart metrics, exporters, and what differs in `labels`."""
    return f"by (__name__, {', '.join((*PLACE_LABELS, *labels))})"


_BY, _BY_GPU, _BY_PART = _by(), _by(*GPU_LABELS), _by(*GPU_LABELS, MIG)
_MEAN = ("utilization_percent",)
_LEAST = ("sm_clock_mhz", "sm_clock_max_mhz", "limit_margin_c", "slowdown_c")
_SUM, _SUM_OF_PARTS = ("power_w",), ("memory_total_bytes", "memory_used_bytes", FREE)
_MOST = (
    *("temperature_c", "total_bytes", "available_bytes", "cma_free_bytes", "headroom_bytes"),
    *("unified", "load1", GPUS),
)
"""Fields of which an aggregate over GPUs or series is the highest."""
_MOST_GPUS, _MOST_NAMED = 64, 16
"""Most GPUs of a machine, and most reasons or memory parts that are kept of one."""
_COUNTS = frozenset({"sm_clock_mhz", "sm_clock_max_mhz", "memory_used_bytes", "memory_total_bytes"})
"""Fields that are whole numbers."""
_INDEX_DIGITS = 3
"""Most digits of a GPU's index: no machine has a thousand."""


class Gathered(Struct):
    """Values of one exporter: of the machine by field, and of each GPU."""

    machine: dict[str, float] = field(default_factory=dict)
    """By field of the CPU's or the memory's reading."""
    gpus: dict[int, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """By the GPU's index, then by field; aggregates are those of index 0."""
    reasons: dict[int, set[str]] = field(default_factory=dict)
    """Active throttle reasons by index, of GPUs whose reasons are reported."""
    named: dict[int, tuple[str, str]] = field(default_factory=dict)
    """(name, UUID) of a GPU by index, as far as reported."""
    parts: dict[str, float] = field(default_factory=dict)
    """Bytes of the parts of the memory bar."""
    at: float | None = None
    """Unix time of the newest sample."""
    of_parts: dict[tuple[int, str], dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """Values of the parts of a GPU in MIG mode ("" for a whole one), by its index and the field."""
    uuids: dict[str, int] = field(default_factory=dict)
    """Provisional indices of GPUs that are known by their UUIDs only."""
    indices: dict[int, int] = field(default_factory=dict)
    """The index that the driver gives a GPU, by the provisional one."""

    def index(self, labels: Labels) -> int:
        """Return the index of a series' GPU; 0 for an aggregate over GPUs."""
        text, uuid = labels.get("gpu", ""), labels.get("uuid", "")
        index = _index_or_none(text)
        if index is not None or text or not uuid:
            return index or 0
        provisional = self.uuids.setdefault(uuid, len(self.uuids))
        index = _index_or_none(labels.get("index", ""))
        if index is not None:
            self.indices[provisional] = index
        return provisional

    def driver_index(self, index: int) -> int:
        """Return the index that the driver gives a GPU."""
        return self.indices.get(index, index)


def _index_or_none(text: str) -> int | None:
    """Return the index of a GPU in a label; None for any other text."""
    return int(text) if text.isdecimal() and len(text) <= _INDEX_DIGITS else None


Known = Mapping[tuple[Origin, str], Gathered]
"""What is known of each exporter, by place and kind; times of aggregates are of the kind `_TIMES`."""
_TIMES = "times"


async def aggregates(client: PrometheusClient, more: str, kinds: Collection[str]) -> Known:
    """Return what is known of all machines with exporters of these kinds, by seven queries at most.

    Raises:
        AnswerError: a query failed.
    """
    wanted_kinds = frozenset(kinds)
    queries = {
        "mean": (_MEAN, f"avg {_BY} (max {_BY_GPU} (%s))"),
        "least": (_LEAST, f"min {_BY} (%s)"),
        "sum": (_SUM, f"sum {_BY} (max {_BY_GPU} (%s))"),
        "parts": (_SUM_OF_PARTS, f"sum {_BY} (max {_BY_PART} (%s))"),
        "most": (_MOST, f"max {_BY} (%s)"),
        "masks": ((REASONS,), f'count_values {_BY} ("mask", %s)'),
    }
    asked: dict[str, str] = {}
    for query_name, (fields_asked, query) in queries.items():
        if names := names_of(wanted_kinds, *fields_asked):
            asked[query_name] = query % selector(names, more)
    mark_names = [name for name, kind in MARKS.items() if kind in wanted_kinds]
    asked[_TIMES] = f"max {_BY} (timestamp({selector(mark_names, more)}))"
    if AGENT in wanted_kinds:
        asked["reasons"] = f"count {_by('reason')} ({selector((AGENT_REASON, AGENT_REASONS), more)})"
    return await _gather(client, asked)


async def newest_samples(
    client: PrometheusClient, more: str, machines: Sequence[ScrapedMachine], every_s: float
) -> Known:
    """Return the newest samples of these machines' exporters.

    Raises:
        AnswerError: a query failed.
    """
    kinds = kinds_of(machines)
    instances = {exporter.place[0].instance for machine in machines for exporter in machine.exporters}
    only = f"instance=~{any_of(instances)}"
    names = [*names_of(kinds), *(AGENT_MORE if AGENT in kinds else ()), *([SMI_INFO] if SMI in kinds else ())]
    queries = {"raw": f"{selector(names, only, more)}[{1.5 * every_s + 5:.0f}s]"}
    if NODE in kinds:
        window_s = rate_window_s(every_s)
        idle = selector((IDLE_CPU,), 'mode="idle"', only, more)
        queries["cpu"] = f"1 - avg by ({', '.join(KEY_LABELS)}) (rate({idle}[{window_s:.0f}s]))"
    return await _gather(client, queries)


async def _gather(client: PrometheusClient, queries: Mapping[str, str]) -> Known:
    """Return what the answers to these queries say.

    Raises:
        AnswerError: a query failed.
    """
    result: dict[tuple[Origin, str], Gathered] = defaultdict(Gathered)

    await gather_or_cancel(
        *(client.query(promql, partial(_add_series, result, name)) for name, promql in queries.items())
    )
    return result


def _add_series(by_exporter: dict[tuple[Origin, str], Gathered], query_name: str, series: TimeSeries) -> None:
    """Add a series of the answer to the query `query_name`."""
    value, labels = series.value, series.labels
    if value is None:
        return
    key, name = place_of(labels), labels.get("__name__", "")
    if query_name == _TIMES:  # a timestamp has no name
        by_exporter[key, _TIMES].at = value
        return
    if query_name == "cpu":
        by_exporter[key, NODE].machine["percent"] = 100 * min(1.0, max(0.0, value))
        return
    figure = FIGURES.get(name)
    exporter = SMI if name == SMI_INFO else AGENT
    gathered = by_exporter[key, exporter if figure is None else figure.kind]
    if query_name == "raw":
        gathered.at = max(gathered.at or 0.0, series.samples[-1][0])
    if figure is None:
        _add_reason_or_part(gathered, name, labels, value)
    elif figure.field == REASONS:
        _add_mask(gathered, labels, _float_of(labels.get("mask")) if query_name == "masks" else value)
    else:
        scaled = figure.field_value(value)
        if scaled is not None and figure.part == GPU:
            _add_figure(gathered, figure.field, labels, scaled)
        elif scaled is not None:
            gathered.machine[figure.field] = scaled
    if "gpu" in labels or "uuid" in labels:
        _add_gpu(gathered, labels)


def _add_figure(gathered: Gathered, name: str, labels: Labels, value: float) -> None:
    """Add a figure of a GPU, or of a part of it: memory is the sum of the parts, of other figures one counts.

    Where the whole GPU has the figure too, as with `--devices g+i`, the parts do not count.
    Time slicing repeats a figure for each share; where these differ, the largest is that of all.
    """
    index = gathered.index(labels)
    parts = gathered.of_parts[index, name]
    part = labels.get(MIG, "")
    parts[part] = max(value, parts.get(part, value))
    together = sum(parts.values()) if name in _SUM_OF_PARTS else max(parts.values())
    gathered.gpus[index][name] = parts.get("", together)


def _add_gpu(gathered: Gathered, labels: Labels) -> None:
    """Add the name and the UUID of a GPU, as far as these labels have them."""
    index = gathered.index(labels)
    name, uuid = gathered.named.get(index, ("", ""))
    gathered.named[index] = (
        clean(labels.get("modelName") or labels.get("name") or name, 60),
        clean(labels.get("UUID") or labels.get("uuid") or uuid, 60),
    )


def _add_reason_or_part(gathered: Gathered, name: str, labels: Labels, value: float) -> None:
    """Add a throttle reason or a part of memory that an agent reports, or that it reports reasons at all."""
    if name in {AGENT_REASON, AGENT_REASONS}:
        reasons = gathered.reasons.setdefault(gathered.index(labels), set())
        if name == AGENT_REASON and len(reasons) < _MOST_NAMED:
            reasons.add(clean(labels.get("reason", ""), 40))
    elif name == AGENT_PART and len(gathered.parts) < _MOST_NAMED:
        gathered.parts[clean(labels.get("part", ""), 40)] = value


def _float_of(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def _add_mask(gathered: Gathered, labels: Labels, mask: float) -> None:
    """Add the reasons in one of NVML's masks."""
    if 0 <= mask < 1 << 53:
        gathered.reasons.setdefault(gathered.index(labels), set()).update(reason_words(int(mask)))


def sample_of(machine: ScrapedMachine, by_exporter: Known, to_monotonic_s: float) -> NodeSample | None:
    """Return a machine's sample of what its exporters reported last; None where nothing is known.

    Of a figure that several report, the first exporter's in `KINDS` counts. Of aggregates, the only GPU of
    the sample stands for all.
    """
    ranked = sorted(machine.exporters, key=lambda exporter: KINDS.index(exporter.kind))
    keys = [(exporter.place, kind) for exporter in ranked for kind in (exporter.kind, _TIMES)]
    gathered_here = [by_exporter[key] for key in keys if key in by_exporter]
    times = [gathered.at for gathered in gathered_here if gathered.at is not None]
    if not times:
        return None
    merged = Gathered()
    for gathered in gathered_here:
        index_of = gathered.driver_index
        merged.machine = gathered.machine | merged.machine
        merged.parts = merged.parts or gathered.parts
        for index, reasons in gathered.reasons.items():
            merged.reasons.setdefault(index_of(index), reasons)
        for index, names in gathered.named.items():
            merged.named.setdefault(index_of(index), names)
        for index, values in gathered.gpus.items():
            merged.gpus[index_of(index)] = values | merged.gpus[index_of(index)]
    model = machine.fact("modelName", "name")
    gpus = tuple(_gpu_reading(index, merged, model) for index in sorted(merged.gpus)[:_MOST_GPUS])
    values = merged.machine
    return NodeSample(
        max(times) + to_monotonic_s,
        CpuReading(values.get("percent"), (), _round_or_none(values.get("cores")), values.get("load1")),
        _memory_reading(values, merged.parts, gpus),
        gpus,
        None if gpus else "no exporter reports a GPU",
    )


def _memory_reading(
    values: Mapping[str, float], parts: Mapping[str, float], gpus: Sequence[GpuReading]
) -> MemoryReading:
    """Return a machine's memory by its exporters; headroom, use and kind may be derived."""
    total, free = values.get("total_bytes"), values.get("available_bytes")
    headroom = values.get("headroom_bytes")
    if headroom is None and free is not None:
        headroom = free - values.get("cma_free_bytes", 0.0)  # a kernel without such an area reports none
    unified = values.get("unified")
    if unified is None and gpus:
        if any(gpu.memory_total_bytes is not None for gpu in gpus):
            unified = 0.0
        elif all("GB10" in (gpu.name or "") for gpu in gpus):
            unified = 1.0
    figures = {name: values[name] for name in _MEMORY_FIELDS if name in values}
    swap = values.get("swap_total_bytes")
    if swap is not None and SWAP_FREE in values:
        figures.setdefault("swap_used_bytes", swap - values[SWAP_FREE])
    if total is not None and free is not None:
        figures.setdefault("used_bytes", total - free)
    rounded = {name: value if name in _RATES else round(value) for name, value in figures.items()}
    return MemoryReading(
        unified=None if unified is None else bool(unified),
        headroom_bytes=_round_or_none(headroom),
        parts=tuple(MemoryPart(name, round(size)) for name, size in parts.items()),
        **rounded,  # type: ignore[arg-type]  # names and types are those of the fields
    )


_RATES = frozenset({"pressure_full_avg10", "swap_in_bytes_per_s", "swap_out_bytes_per_s"})
"""Fields of memory that are no whole numbers of bytes."""
_MEMORY_FIELDS = frozenset(figure.field for figure in FIGURES.values() if figure.part == MEMORY) - {
    *(SWAP_FREE, "unified", "headroom_bytes")
}
_GPU_FIELDS = frozenset(part.name for part in fields(GpuReading))


def _gpu_reading(index: int, merged: Gathered, model: str | None) -> GpuReading:
    """Return a GPU by what its exporters report; its total memory may be the sum of used and free."""
    values, reasons = merged.gpus[index], merged.reasons.get(index)
    name, uuid = merged.named.get(index, ("", ""))
    total, used_bytes = values.get("memory_total_bytes"), values.get("memory_used_bytes")
    if total is None and used_bytes is not None and FREE in values:
        total = used_bytes + values[FREE]
    figures = {field: value for field, value in values.items() if field in _GPU_FIELDS}
    if total is not None:
        figures["memory_total_bytes"] = total
    figures |= {field: round(figures[field]) for field in _COUNTS & figures.keys()}
    return GpuReading(
        index,
        name or model,
        uuid or None,
        throttle_reasons=None if reasons is None else tuple(sorted(reasons)),
        **figures,  # type: ignore[arg-type]  # names and types are those of the fields
    )


def _round_or_none(value: float | None) -> int | None:
    return None if value is None else round(value)


def gpus_of(machine: ScrapedMachine, by_exporter: Known) -> int | None:
    """Return the number of a machine's GPUs, as its agent counts them or its exporters name them."""
    for exporter in machine.exporters:
        gathered = by_exporter.get((exporter.place, exporter.kind))
        if exporter.kind == AGENT and gathered is not None and GPUS in gathered.machine:
            return round(gathered.machine[GPUS])
        if exporter.kind in {DCGM, SMI}:
            return len(exporter.gpus) or None
    return None


def kinds_of(machines: Iterable[ScrapedMachine]) -> frozenset[str]:
    """Return the kinds of exporters on these machines."""
    return frozenset(exporter.kind for machine in machines for exporter in machine.exporters)
