"""Pages for Prometheus, text format 0.0.4 or OpenMetrics on request, and that of a node's reading.

Unknown values have no series. In OpenMetrics each family whose name ends with a base unit declares it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from operator import attrgetter
from typing import Any, Generic, TypeVar

from msgspec import Struct
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from sparktop import __version__
from sparktop.model.node import (
    CPU,
    GPU,
    GPU_INFO,
    GPUS,
    MEMORY,
    MEMORY_PART,
    PREFIX,
    THROTTLE_REASON,
    THROTTLE_REASONS,
    CoreGroup,
    CpuReading,
    FieldMetric,
    GpuReading,
    MemoryPart,
    MemoryReading,
    MigInstance,
    NetworkReading,
    NodeIdentity,
    NodeSample,
    PowerRail,
    SensorReading,
)
from sparktop.model.text import clean

# Unknown values have no series. In OpenMetrics each family whose name ends with a base unit declares it.


LABEL_LIMIT = 120
"""Most characters of a label's value."""
_ACCEPT_LIMIT = 1000
_UNITS = (
    *("bytes_per_second", "packets_per_second", "tokens_per_second", "requests_per_second"),
    *("seconds", "bytes", "ratio", "hertz", "celsius", "watts", "joules"),
)
"""Units that end a metric's name, the longer one first where two fit."""

Part = TypeVar("Part")
Labels = Mapping[str, str]


class Figure(Struct, Generic[Part], frozen=True):
    """A Prometheus metric: its name, its help text, and how to read its value from a part of a sample."""

    name: str
    """Name without the prefix of all names of its page, and for a counter without the suffix `_total`."""
    text: str
    read: Callable[[Part], float | None]
    is_counter: bool = False


def encoded(families: Callable[[], Iterable[Metric]], accept: str | None) -> tuple[bytes, str]:
    """Return the page of the families that `families` returns, and its content type.

    The format is the one that the Accept header `accept` prefers.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    encode, content_type = choose_encoder(_known_accept(accept))
    return encode(registry), content_type


def content_type_of(accept: str | None) -> str:
    """Return the content type of the page that `encoded` returns for the Accept header `accept`."""
    return choose_encoder(_known_accept(accept))[1]


class _Families(Collector):
    """Prometheus collector of families that a function returns."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        """Return nothing, because describing the metrics at registration would build the page twice."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return every metric family that has at least one series."""
        return self._families()


def unit_of(name: str) -> str:
    """Return the base unit at the end of a metric's name, such as "bytes_per_second"; "" if there is none."""
    return next((unit for unit in _UNITS if name.endswith(f"_{unit}")), "")


def gauge(name: str, text: str) -> GaugeMetricFamily:
    """Return an empty family of gauges."""
    return GaugeMetricFamily(name, text, unit=unit_of(name))


def _known_accept(accept: str | None) -> str:
    """Return an Accept header reduced to the formats that this page supports.

    This is needed because the encoders copy any requested version into the Content-Type.
    """
    kept: list[str] = []
    for part in (accept or "")[:_ACCEPT_LIMIT].lower().split(","):
        kind, *settings = (word.strip() for word in part.split(";"))
        versions = [word.removeprefix("version=") for word in settings if word.startswith("version=")]
        if kind == "application/openmetrics-text" and versions in ([], ["0.0.1"], ["1.0.0"]):
            kept.append(f"{kind};version=1.0.0")
        elif kind == "text/plain" and versions in ([], ["0.0.4"]):
            kept.append(f"{kind};version=0.0.4")
            break  # later entries are less preferred
    return ",".join(kept)


def counter(name: str, text: str) -> CounterMetricFamily:
    """Return an empty family of counters; `name` is without "_total", which its samples end with."""
    return CounterMetricFamily(name, text, unit=unit_of(name))


def families(
    prefix: str, figures: Iterable[Figure[Part]], parts: Sequence[tuple[Labels, Part]]
) -> Iterator[Metric]:
    """Yield a metric family for each of `figures` that has a finite value in at least one part.

    `parts` has pairs (labels, part): a part, such as a GPU, is the object that the value is read from. Each
    pair adds one series to a family. `prefix` begins the names of all families.
    """
    for figure in figures:
        name = prefix + figure.name
        family = counter(name, figure.text) if figure.is_counter else gauge(name, figure.text)
        series = f"{name}_total" if figure.is_counter else name
        for labels, part in parts:
            value = figure.read(part)
            if value is not None and math.isfinite(value):
                family.add_sample(series, dict(labels), float(value))
        if family.samples:
            yield family


def named(
    label: str, parts: Iterable[Part], name: Callable[[Part], str]
) -> list[tuple[dict[str, str], Part]]:
    """Return ({`label`: name of the part}, part) for each part.

    Where names repeat, a number is appended, because Prometheus rejects a page with duplicate series.
    """
    taken: dict[str, None] = {}
    found: list[tuple[dict[str, str], Part]] = []
    for part in parts:
        base = clean(name(part), LABEL_LIMIT)
        numbered = (f"{base} {number}" for number in count(2))
        own = next(one for one in chain((base,), numbered) if one not in taken)
        taken[own] = None
        found.append(({label: own}, part))
    return found


# Prometheus page of a node's reading: text format 0.0.4, or OpenMetrics on request.
#
# Names begin with `sparktop_node_` and use base units (https://prometheus.io/docs/practices/naming/):
# bytes, seconds, celsius, watts, joules, hertz, and ratios from 0 to 1 where the rest of sparktop has
# percent. Unknown values have no series.


_BITS = 8
_MEGA = 1e6


def page(
    identity: NodeIdentity | None, sample: NodeSample | None, *, accept: str | None, simulated: bool = False
) -> tuple[bytes, str]:
    """Return the Prometheus page for a sample and its content type, which fits the Accept header `accept`.

    If `sample` is None, the page holds only the identity and whether the machine is simulated.
    """
    return encoded(lambda: node_families(identity, sample, simulated=simulated), accept)


def node_families(
    identity: NodeIdentity | None, sample: NodeSample | None, *, simulated: bool
) -> Iterator[Metric]:
    """Yield every metric family of a node that has at least one series."""
    yield _who(identity or NodeIdentity())
    yield from _families((_SIMULATED,), [({}, simulated)])
    if sample is None:
        return
    yield from _families(_WHOLE, [({}, sample)])
    yield from _families(_CPU, [({}, sample.cpu)])
    cores = [({"core": str(number)}, percent) for number, percent in enumerate(sample.cpu.core_percent)]
    yield from _families((_CORE,), cores)
    yield from _families(_GROUP, named("group", sample.cpu.groups, lambda group: group.name))
    yield from _families(_MEMORY, [({}, sample.memory)])
    yield from _families((_MEMORY_PART,), named("part", sample.memory.parts, lambda part: part.name))
    yield from _gpus(sample.gpus)
    yield from _links(sample.network)
    yield from _families(_SENSOR, named("sensor", sample.sensors, lambda sensor: sensor.name))
    yield from _families(_RAIL, named("rail", sample.rails, lambda rail: rail.name))


def _who(identity: NodeIdentity) -> Metric:
    labels = {
        "hostname": identity.hostname,
        "os": identity.os,
        "product": identity.product,
        "maker": identity.maker,
        "cpu": identity.cpu,
        "driver": identity.driver,
        "version": __version__,
    }
    family = InfoMetricFamily(
        PREFIX.removesuffix("_"), "What the machine is, and the sparktop that reads it."
    )
    family.add_metric((), {name: clean(value, LABEL_LIMIT) for name, value in labels.items() if value})
    return family


def _gpus(gpus: Sequence[GpuReading]) -> Iterator[Metric]:
    parts = named("gpu", gpus, lambda gpu: str(gpu.index))
    info = InfoMetricFamily(f"{PREFIX}gpu", "Which GPU an index is.")
    for labels, gpu in parts:
        identity = {"uuid": gpu.uuid, "name": gpu.name}
        info.add_sample(GPU_INFO, {**labels, **_known(identity)}, 1)
    if info.samples:
        yield info
    yield from _families(_GPU, parts)
    yield from _families(
        (_THROTTLED,),
        [
            ({**labels, **more}, percent)
            for labels, gpu in parts
            for more, (_, percent) in named("reason", gpu.throttled_percent.items(), lambda item: item[0])
        ],
    )
    yield from _families(
        (_THROTTLE_REASON,),
        [
            ({**labels, **more}, True)
            for labels, gpu in parts
            for more, _ in named("reason", gpu.throttle_reasons or (), str)
        ],
    )
    processes = [
        ({**labels, "process": name}, size_bytes)
        for labels, gpu in parts
        for name, size_bytes in _memory_by_program(gpu).items()
    ]
    yield from _families((_GPU_PROCESS,), processes)
    slices = [
        ({**labels, **more, **_known({"profile": one.name})}, one)
        for labels, gpu in parts
        for more, one in named("instance", gpu.mig_instances, lambda instance: str(instance.index))
    ]
    yield from _families(_MIG, slices)


def _memory_by_program(gpu: GpuReading) -> dict[str, float | None]:
    """Return the GPU memory in bytes that processes hold, summed by program name.

    A sum is None if one of the program's processes has an unknown size. Sums are not by process id, because
    each start of a server would then begin a new time series.
    """
    sizes: dict[str, float | None] = {}
    for process in gpu.processes or ():
        name = clean(process.name, LABEL_LIMIT)
        before = sizes.get(name, 0.0)
        more = process.memory_bytes
        sizes[name] = None if before is None or more is None else before + more
    return sizes


def _links(network: Sequence[NetworkReading]) -> Iterator[Metric]:
    parts = named("device", network, lambda link: link.name)
    info = InfoMetricFamily(f"{PREFIX}network", "What kind of interface a device is.")
    for labels, link in parts:
        kinds = {"kind": link.kind, "netdev": link.netdev}
        info.add_sample(f"{PREFIX}network_info", {**labels, **_known(kinds)}, 1)
    if info.samples:
        yield info
    yield from _families(_LINK, parts)
    errors = [
        ({**labels, **more}, per_s)
        for labels, link in parts
        for more, (_, per_s) in named("counter", link.errors.items(), lambda item: item[0])
    ]
    yield from _families((_LINK_ERROR,), errors)


def _families(figures: Iterable[Figure[Part]], parts: Sequence[tuple[Labels, Part]]) -> Iterator[Metric]:
    return families(PREFIX, figures, parts)


def _known(labels: Mapping[str, str | None]) -> dict[str, str]:
    return {name: clean(value, LABEL_LIMIT) for name, value in labels.items() if value is not None}


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else value * factor


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _field(metric: FieldMetric) -> Figure[Any]:
    """Return the figure whose value is a field of its part."""
    field = attrgetter(metric.field)
    return Figure(
        metric.name, metric.text, lambda part: metric.written(field(part)), is_counter=metric.is_counter
    )


def _size(things: Sequence[object] | None) -> int | None:
    return None if things is None else len(things)


_SIMULATED: Figure[bool] = Figure("simulated", "1 where the readings are made up by the demo.", float)
_WHOLE: tuple[Figure[NodeSample], ...] = (
    Figure("sample_cost_seconds", "What taking this sample cost.", lambda one: _times(1e-3, one.cost_ms)),
    Figure(
        GPUS,
        "GPUs that are read; no series where the driver does not report them.",
        lambda one: len(one.gpus) if one.gpus or one.gpu_note is None else None,
    ),
    Figure(
        "gpus_lost",
        "GPUs that the driver calls lost or in need of a reset.",
        lambda one: len(one.gpus_lost) if one.gpus or one.gpus_lost or one.gpu_note is None else None,
    ),
    Figure(
        "processes", "Processes of the machine.", lambda one: one.processes.count if one.processes else None
    ),
)
_CPU: tuple[Figure[CpuReading], ...] = tuple(map(_field, CPU))
_CORE: Figure[float] = Figure("cpu_core_usage_ratio", "Share of a core's time in use.", _share)
_GROUP: tuple[Figure[CoreGroup], ...] = (
    Figure("cpu_group_usage_ratio", "Use of all cores of one design.", lambda one: _share(one.percent)),
    Figure(
        "cpu_group_max_frequency_hertz", "Highest clock of a design.", lambda one: _times(_MEGA, one.max_mhz)
    ),
)
_MEMORY: tuple[Figure[MemoryReading], ...] = tuple(map(_field, MEMORY))
_MEMORY_PART: Figure[MemoryPart] = Figure(
    MEMORY_PART, "Parts of memory that add up to its total.", lambda one: one.size_bytes
)
_GPU: tuple[Figure[GpuReading], ...] = (
    *map(_field, GPU),
    Figure(THROTTLE_REASONS, "Reasons active at this moment.", lambda one: _size(one.throttle_reasons)),
    Figure("gpu_processes", "Processes that hold its memory.", lambda one: _size(one.processes)),
    Figure("gpu_mig_enabled", "1 where it is split into instances.", lambda one: one.mig),
)
_THROTTLED: Figure[float | None] = Figure(
    "gpu_throttled_ratio", "Share of the time since the sample before that it was slowed.", _share
)
_THROTTLE_REASON: Figure[bool] = Figure(
    THROTTLE_REASON, "1 for each reason that slows it at this moment.", float
)
_GPU_PROCESS: Figure[float | None] = Figure(
    "gpu_process_memory_bytes", "GPU memory by program.", lambda one: one
)
_MIG: tuple[Figure[MigInstance], ...] = (
    Figure("gpu_mig_memory_total_bytes", "Memory of a MIG instance.", lambda one: one.memory_total_bytes),
    Figure("gpu_mig_memory_used_bytes", "Of that, in use.", lambda one: one.memory_used_bytes),
)
_LINK: tuple[Figure[NetworkReading], ...] = (
    Figure("network_up", "1 where the link is up.", lambda one: one.up),
    Figure("network_receive_bytes_per_second", "Bytes that came.", lambda one: one.rx_bytes_per_s),
    Figure("network_transmit_bytes_per_second", "Bytes that went.", lambda one: one.tx_bytes_per_s),
    Figure("network_receive_packets_per_second", "Packets that came.", lambda one: one.rx_packets_per_s),
    Figure("network_transmit_packets_per_second", "Packets that went.", lambda one: one.tx_packets_per_s),
    Figure(
        "network_link_bytes_per_second",
        "What the port agreed on with its peer.",
        lambda one: _times(1 / _BITS, one.link_bits_per_s),
    ),
    Figure(
        "network_bus_bytes_per_second",
        "What its PCIe link carries.",
        lambda one: _times(1 / _BITS, one.bus_bits_per_s),
    ),
    Figure("network_errors_per_second", "Errors, all together.", lambda one: one.errors_per_s),
)
_LINK_ERROR: Figure[float] = Figure(
    "network_named_errors_per_second",
    "Errors by the name of their counter, of those that moved.",
    lambda one: one,
)
_SENSOR: tuple[Figure[SensorReading], ...] = (
    Figure("sensor_temperature_celsius", "Temperature of a sensor.", lambda one: one.temperature_c),
    Figure("sensor_critical_celsius", "Where it becomes critical.", lambda one: one.critical_c),
)
_RAIL: tuple[Figure[PowerRail], ...] = (
    Figure("rail_power_watts", "Power of a rail.", lambda one: one.power_w),
    Figure("rail_energy_joules", "Energy of a rail.", lambda one: one.energy_j, is_counter=True),
)
