"""Prometheus metric families from values, and their page: text format 0.0.4, or OpenMetrics on request.

Unknown values have no series. In OpenMetrics each family whose name ends with a base unit declares it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Generic, TypeVar

from msgspec import Struct
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from sparktop.model.text import clean

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
