"""Pages for Prometheus: metrics as families with help and units, and the page of a node's reading.

A page is in text format 0.0.4. Names begin with `sparktop_`, those of a node's page with `sparktop_node_`,
and use base units (https://prometheus.io/docs/practices/naming/): bytes, seconds, celsius, watts, joules,
hertz, and ratios from 0 to 1 where the rest of sparktop has percent. Unknown values have no series.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

from msgspec import Struct
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from sparktop import __version__
from sparktop.model.node import (
    CPU,
    GPU,
    GPUS,
    MEMORY,
    MEMORY_PART,
    THROTTLE_REASON,
    THROTTLE_REASONS,
    CoreGroup,
    CpuReading,
    FieldMetric,
    GpuReading,
    MemoryReading,
    MigInstance,
    NetworkReading,
    NodeIdentity,
    NodeSample,
    PowerRail,
    SensorReading,
)
from sparktop.model.node import PREFIX as NODE_PREFIX
from sparktop.model.text import clean, free_name

PREFIX = "sparktop_"
"""Begins the name of every metric."""
LABEL_LIMIT = 120
"""Most characters of a label's value."""
Subject = TypeVar("Subject")
Labels = Mapping[str, str]


Point = tuple[tuple[str, ...], float | None]
"""The values of a metric's own labels, and its value; None if that is unknown."""


class PageMetric(Struct, Generic[Subject], frozen=True):
    """A metric: its name, labels and help text, and how it is read from a part, such as a server or a GPU."""

    name: str
    """Name without `PREFIX`, and for a counter without the suffix `_total`."""
    text: str
    """The help text: one sentence, or more."""
    read: Callable[[Subject], Iterable[Point]]
    """Returns one point for each series of the part."""
    labels: tuple[str, ...] = ()
    """The metric's own labels, beside those that name the part."""
    is_counter: bool = False

    @property
    def full_name(self) -> str:
        """The name as it is on the page."""
        return f"{PREFIX}{self.name}{'_total' if self.is_counter else ''}"


def single(
    name: str, text: str, read: Callable[[Subject], float | None], *, is_counter: bool = False
) -> PageMetric[Subject]:
    """Return a metric with one series for each part."""
    return PageMetric(name, text, lambda part: (((), read(part)),), is_counter=is_counter)


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of a page."""


def encode_page(families: Callable[[], Iterable[Family]]) -> bytes:
    """Return the page of the families that `families` returns."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_FamilyCollector(families))
    return generate_latest(registry)


class _FamilyCollector(Collector):
    """Prometheus collector of families that a function returns."""

    def __init__(self, families: Callable[[], Iterable[Family]]) -> None:
        self._families = families

    def describe(self) -> Iterable[Family]:
        """Return nothing, because describing the metrics at registration would build the page twice."""
        return ()

    def collect(self) -> Iterable[Family]:
        """Return every metric family that has at least one series."""
        return self._families()


def families(
    metrics: Iterable[PageMetric[Subject]], parts: Sequence[tuple[Labels, Subject]]
) -> Iterator[Family]:
    """Yield a family for each of `metrics` that has a finite value in at least one part.

    `parts` has pairs (labels that name the part, part). Of two values with the same labels the first is kept:
    Prometheus refuses a page with repeated series.
    """
    for metric in metrics:
        make = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
        family = make(f"{PREFIX}{metric.name}", metric.text)
        for labels, part in parts:
            taken_labels: set[tuple[str, ...]] = set()
            for values, number in metric.read(part):
                label_values = tuple(clean(value, LABEL_LIMIT) for value in values)
                if number is not None and math.isfinite(number) and label_values not in taken_labels:
                    taken_labels.add(label_values)
                    series = {**labels, **dict(zip(metric.labels, label_values, strict=True))}
                    family.add_sample(metric.full_name, series, float(number))
        if family.samples:
            yield family


def share(percent: float | None) -> float | None:
    """Return a percentage as a ratio; None for None."""
    return None if percent is None else percent / 100


def label_parts(
    label: str, parts: Iterable[Subject], name: Callable[[Subject], str]
) -> list[tuple[dict[str, str], Subject]]:
    """Return ({`label`: name of the part}, part) for each part.

    Where names repeat, a number is appended, because Prometheus rejects a page with duplicate series.
    """
    taken_texts: set[str] = set()
    labelled: list[tuple[dict[str, str], Subject]] = []
    for part in parts:
        part_label = free_name(clean(name(part), LABEL_LIMIT), taken_texts, "{} {}")
        taken_texts.add(part_label)
        labelled.append(({label: part_label}, part))
    return labelled


def page(identity: NodeIdentity | None, sample: NodeSample | None, *, simulated: bool = False) -> bytes:
    """Return the Prometheus page for a sample.

    If `sample` is None, the page holds only the identity and whether the machine is simulated.
    """
    return encode_page(lambda: node_families(identity, sample, simulated=simulated))


def node_families(
    identity: NodeIdentity | None, sample: NodeSample | None, *, simulated: bool
) -> Iterator[Family]:
    """Yield every metric family of a node that has at least one series."""
    yield _identity_family(identity or NodeIdentity())
    yield from families((_SIMULATED,), [({}, simulated)])
    if sample is None:
        return
    yield from families(_SAMPLE, [({}, sample)])
    yield from families(_CPU, [({}, sample.cpu)])
    yield from families(_GROUP, label_parts("group", sample.cpu.groups, lambda group: group.name))
    yield from families(_MEMORY, [({}, sample.memory)])
    yield from _gpu_families(sample.gpus)
    links = label_parts("device", sample.network, lambda link: link.name)
    kinds = [
        ({**labels, **_known_labels({"kind": link.kind, "netdev": link.netdev})}) for labels, link in links
    ]
    yield from _info_family("network", "What kind of interface a device is.", kinds)
    yield from families(_LINK, links)
    yield from families(_SENSOR, label_parts("sensor", sample.sensors, lambda sensor: sensor.name))
    yield from families(_RAIL, label_parts("rail", sample.rails, lambda rail: rail.name))


def _identity_family(identity: NodeIdentity) -> Family:
    facts = ("hostname", "os", "product", "maker", "cpu", "driver")
    labels = {**{name: getattr(identity, name) for name in facts}, "version": __version__}
    title = "What the machine is, and the sparktop that reads it."
    family = InfoMetricFamily(NODE_PREFIX.removesuffix("_"), title)
    family.add_metric((), {name: clean(value, LABEL_LIMIT) for name, value in labels.items() if value})
    return family


def _info_family(name: str, text: str, rows: Iterable[Labels]) -> Iterator[Family]:
    """Yield a family whose series have only labels; nothing without any."""
    family = InfoMetricFamily(f"{NODE_PREFIX}{name}", text)
    for labels in rows:
        family.add_sample(f"{NODE_PREFIX}{name}_info", dict(labels), 1)
    if family.samples:
        yield family


def _gpu_families(gpus: Sequence[GpuReading]) -> Iterator[Family]:
    parts = label_parts("gpu", gpus, lambda gpu: str(gpu.index))
    identities = [{**labels, **_known_labels({"uuid": gpu.uuid, "name": gpu.name})} for labels, gpu in parts]
    yield from _info_family("gpu", "Which GPU an index is.", identities)
    yield from families(_GPU, parts)
    instances = [
        ({**labels, **instance_labels, **_known_labels({"profile": instance_part.name})}, instance_part)
        for labels, gpu in parts
        for instance_labels, instance_part in label_parts(
            "instance", gpu.mig_instances, lambda instance: str(instance.index)
        )
    ]
    yield from families(_MIG, instances)


def _memory_by_program(gpu: GpuReading) -> Iterator[Point]:
    """Yield the GPU memory in bytes that processes hold, summed by program name.

    A sum is None if one of the program's processes has an unknown size. Sums are not by process id, because
    each start of a server would then begin a new time series.
    """
    sizes: dict[str, float | None] = {}
    for process in gpu.processes or ():
        name = clean(process.name, LABEL_LIMIT)
        size_before = sizes.get(name, 0.0)
        more_bytes = process.memory_bytes
        sizes[name] = None if size_before is None or more_bytes is None else size_before + more_bytes
    return (((name,), size) for name, size in sizes.items())


def _known_labels(labels: Mapping[str, str | None]) -> dict[str, str]:
    """Return the labels that have a value, cleaned."""
    return {name: clean(value, LABEL_LIMIT) for name, value in labels.items() if value is not None}


def _by_name(values: Mapping[str, float | None], factor: float = 1.0) -> list[Point]:
    """Return a point for each value, whose label is its name."""
    return [((name,), None if value is None else value * factor) for name, value in values.items()]


def _node(name: str, text: str, read: Callable[[Subject], float | None]) -> PageMetric[Subject]:
    return single(f"node_{name}", text, read)


def _field(metric: FieldMetric) -> PageMetric[Any]:
    """Return the metric whose value is a field of its part."""
    field = attrgetter(metric.field)
    return single(
        f"node_{metric.name}",
        metric.text,
        lambda part: metric.metric_value(field(part)),
        is_counter=metric.is_counter,
    )


def _size(things: Sequence[object] | None) -> int | None:
    return None if things is None else len(things)


_SIMULATED: PageMetric[bool] = _node("simulated", "1 where the readings are made up by the demo.", float)
_SAMPLE: tuple[PageMetric[NodeSample], ...] = (
    _field(FieldMetric("sample_cost_seconds", "What taking this sample cost.", "cost_ms", times=1e-3)),
    _node(
        GPUS,
        "GPUs that are read; no series where the driver does not report them.",
        lambda reading: len(reading.gpus) if reading.gpus or reading.gpu_note is None else None,
    ),
    _node(
        "gpus_lost",
        "GPUs that the driver calls lost or in need of a reset.",
        lambda reading: (
            len(reading.gpus_lost) if reading.gpus or reading.gpus_lost or reading.gpu_note is None else None
        ),
    ),
    _node(
        "processes",
        "Processes of the machine.",
        lambda reading: reading.processes.count if reading.processes else None,
    ),
)
_CPU: tuple[PageMetric[CpuReading], ...] = (
    *map(_field, CPU),
    PageMetric(
        "node_cpu_core_usage_ratio",
        "Share of a core's time in use.",
        lambda cpu: [((str(core),), share(percent)) for core, percent in enumerate(cpu.core_percent)],
        ("core",),
    ),
)
_GROUP: tuple[PageMetric[CoreGroup], ...] = (
    _field(FieldMetric("cpu_group_usage_ratio", "Use of all cores of one design.", "percent", per=100)),
    _field(FieldMetric("cpu_group_max_frequency_hertz", "Highest clock of a design.", "max_mhz", times=1e6)),
)
_MEMORY: tuple[PageMetric[MemoryReading], ...] = (
    *map(_field, MEMORY),
    PageMetric(
        f"node_{MEMORY_PART}",
        "Parts of memory that add up to its total.",
        lambda memory: [((part.name,), part.size_bytes) for part in memory.parts],
        ("part",),
    ),
)
_GPU: tuple[PageMetric[GpuReading], ...] = (
    *map(_field, GPU),
    _node(
        THROTTLE_REASONS, "Reasons active at this moment.", lambda reading: _size(reading.throttle_reasons)
    ),
    _node("gpu_processes", "Processes that hold its memory.", lambda reading: _size(reading.processes)),
    _node("gpu_mig_enabled", "1 where it is split into instances.", lambda reading: reading.mig),
    PageMetric(
        "node_gpu_throttled_ratio",
        "Share of the time since the sample before that it was slowed.",
        lambda gpu: _by_name(gpu.throttled_percent, 0.01),
        ("reason",),
    ),
    PageMetric(
        f"node_{THROTTLE_REASON}",
        "1 for each reason that slows it at this moment.",
        lambda gpu: _by_name(dict.fromkeys(gpu.throttle_reasons or (), 1.0)),
        ("reason",),
    ),
    PageMetric("node_gpu_process_memory_bytes", "GPU memory by program.", _memory_by_program, ("process",)),
)
_MIG: tuple[PageMetric[MigInstance], ...] = (
    _field(FieldMetric("gpu_mig_memory_total_bytes", "Memory of a MIG instance.", "memory_total_bytes")),
    _field(FieldMetric("gpu_mig_memory_used_bytes", "Of that, in use.", "memory_used_bytes")),
)
_LINK_FIELDS = (
    FieldMetric("network_up", "1 where the link is up.", "up"),
    FieldMetric("network_receive_bytes_per_second", "Bytes that came.", "rx_bytes_per_s"),
    FieldMetric("network_transmit_bytes_per_second", "Bytes that went.", "tx_bytes_per_s"),
    FieldMetric("network_receive_packets_per_second", "Packets that came.", "rx_packets_per_s"),
    FieldMetric("network_transmit_packets_per_second", "Packets that went.", "tx_packets_per_s"),
    FieldMetric(
        "network_link_bytes_per_second", "What the port agreed on with its peer.", "link_bits_per_s", per=8
    ),
    FieldMetric("network_bus_bytes_per_second", "What its PCIe link carries.", "bus_bits_per_s", per=8),
    FieldMetric("network_errors_per_second", "Errors, all together.", "errors_per_s"),
)
_LINK: tuple[PageMetric[NetworkReading], ...] = (
    *map(_field, _LINK_FIELDS),
    PageMetric(
        "node_network_named_errors_per_second",
        "Errors by the name of their counter, of those that moved.",
        lambda link: _by_name(link.errors),
        ("counter",),
    ),
)
_SENSOR: tuple[PageMetric[SensorReading], ...] = (
    _field(FieldMetric("sensor_temperature_celsius", "Temperature of a sensor.", "temperature_c")),
    _field(FieldMetric("sensor_critical_celsius", "Where it becomes critical.", "critical_c")),
)
_RAIL: tuple[PageMetric[PowerRail], ...] = (
    _field(FieldMetric("rail_power_watts", "Power of a rail.", "power_w")),
    _field(FieldMetric("rail_energy_joules", "Energy of a rail.", "energy_j", is_counter=True)),
)
