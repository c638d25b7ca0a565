"""Builds the complete `/metrics` page of a simulated server: engine cores, process and HTTP server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest

from sparktop.demo.engine.exposition import Families
from sparktop.demo.engine.ledger import Ledger
from sparktop.demo.engine.page import HTTP_SHARE, engine_families
from sparktop.simulation.engine import Engine


def server_page(
    cores: Sequence[tuple[Engine, Ledger]], started_unix_s: float, http: CollectorRegistry
) -> bytes:
    """Return the complete page of a server with these engine cores (data-parallel ranks).

    `http` holds the metrics of its HTTP server, `started_unix_s` is the process start time on the page.
    """
    registry = CollectorRegistry(auto_describe=False)
    GCCollector(registry=registry)
    PlatformCollector(registry=registry)
    cpu_s = HTTP_SHARE * sum(engine.tally.busy_s for engine, _ in cores)
    registry.register(Families(_process(started_unix_s, cpu_s)))
    registry.register(Families(_families(cores, started_unix_s)))
    return generate_latest(registry) + generate_latest(http)


def _families(cores: Sequence[tuple[Engine, Ledger]], started_unix_s: float) -> list[Metric]:
    """Return the metric families of all engine cores; those without a label `engine` once."""
    first, *others = (
        engine_families(engine, ledger, started_unix_s, whole=True, rank=rank)
        for rank, (engine, ledger) in enumerate(cores)
    )
    for families in others:
        for metric, more in zip(first, families, strict=True):
            metric.samples += [sample for sample in more.samples if "engine" in sample.labels]
    return first


def _process(started_unix_s: float, cpu_s: float) -> Iterator[Metric]:
    """Yield the metrics of this process, which several engines share, with an engine's start and CPU time."""
    own = {"process_start_time_seconds": started_unix_s, "process_cpu_seconds": cpu_s}
    for metric in ProcessCollector(registry=None).collect():
        if metric.name in own:
            metric.samples = [sample._replace(value=own[metric.name]) for sample in metric.samples]
        yield metric
