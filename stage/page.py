"""Metrics pages of simulated engines in virtual time, byte for byte as prometheus_client does.

A simulation in virtual time builds hundreds of pages a second, and all of them have the same series: each
name with its labels is written once and kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.utils import floatToGoString

from sparktop.demo.engine_page import HTTP_SHARE, Families, Ledger, engine_families
from sparktop.simulation.engine import Engine

_START_HELP = "Start time of the process since unix epoch in seconds."


def engine_page(engine: Engine, ledger: Ledger, started_unix_s: float) -> bytes:
    """Return the metrics page of an engine, with only those metrics that viewers read.

    `started_unix_s` is the process start time on the page.
    """
    start = Metric("process_start_time_seconds", _START_HELP, "gauge")
    start.add_sample(start.name, {}, started_unix_s)
    cpu = Metric("process_cpu_seconds", "Total user and system CPU time spent in seconds.", "counter")
    cpu.add_sample("process_cpu_seconds_total", {}, HTTP_SHARE * engine.tally.busy_s)
    return exposition((start, cpu, *engine_families(engine, ledger, started_unix_s)))


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
