"""A real Prometheus, or another server of its API, that scrapes pages of our own; and pages of exporters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

from aiohttp import web

from sparktop.agent.exposition import page as agent_page
from sparktop.model.node import CpuReading, GpuReading, MemoryReading, NodeIdentity, NodeSample
from sparktop.model.targets import PrometheusTarget, Watch
from sparktop.sources.source import PollResult
from sparktop.store import SourceKey, Store
from sparktop.watch.prometheus import PrometheusFeed
from tests.prometheus.prometheus_server import configured_prometheus
from tests.web_server import answering

VLLM = (Path(__file__).resolve().parents[2] / "data" / "vllm-0.32" / "t010.prom").read_text(encoding="utf-8")
GIB = float(1 << 30)
Start = Callable[[str, Path], AbstractContextManager[str]]
"""Starts a server of the API with a configuration of Prometheus, in a folder; yields its URL."""


def dcgm_page(
    host: str, gpus: int = 1, *, model: str = "NVIDIA GB10", more: str = "", **values: float
) -> str:
    """Return a page as dcgm-exporter writes it; `values` are those of fields, by name without DCGM_FI_DEV_.

    `more` has further labels, such as those of a pod.
    """
    usual = {"GPU_UTIL": 96.0, "GPU_TEMP": 61.0, "POWER_USAGE": 41.0, "SM_CLOCK": 2411.0}
    lines = []
    for name, value in {**usual, **values}.items():
        lines += [f"# HELP DCGM_FI_DEV_{name} {name}", f"# TYPE DCGM_FI_DEV_{name} gauge"]
        for gpu in range(gpus):
            labels = (
                f'gpu="{gpu}",UUID="GPU-{host}-{gpu}",device="nvidia{gpu}",modelName="{model}",'
                f'Hostname="{host}",DCGM_FI_DRIVER_VERSION="580.95.05"{more}'
            )
            lines.append(f"DCGM_FI_DEV_{name}{{{labels}}} {value}")
    return "\n".join([*lines, ""])


def node_page(host: str, *, total: float = 119.7 * GIB, free: float = 40 * GIB, cma: float = 2 * GIB) -> str:
    """Return a page as node_exporter writes it."""
    cpus = "".join(
        f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}} {seconds}\n'
        for cpu in range(2)
        for mode, seconds in (("idle", 100.0), ("user", 50.0))
    )
    return (
        f'node_uname_info{{domainname="(none)",machine="aarch64",nodename="{host}",release="6.11",'
        f'sysname="Linux",version="1"}} 1\n'
        f"node_memory_MemTotal_bytes {total}\nnode_memory_MemAvailable_bytes {free}\n"
        f"node_memory_CmaFree_bytes {cma}\nnode_load1 3.5\n{cpus}"
    )


def agent_text(host: str, **gpu: float) -> str:
    """Return the page of an agent on a GB10."""
    reading = GpuReading(
        0,
        "NVIDIA GB10",
        "GPU-1",
        **{"utilization_percent": 50.0, "temperature_c": 55.0, "power_w": 30.0, **gpu},  # type: ignore[arg-type]  # fields of a GPU
        sm_clock_mhz=2400,
        throttle_reasons=(),
    )
    memory = MemoryReading(
        unified=True, total_bytes=128 << 30, available_bytes=60 << 30, headroom_bytes=57 << 30
    )
    sample = NodeSample(1.0, CpuReading(percent=12.0, cores=20, load1=2.0), memory, (reading,))
    identity = NodeIdentity(hostname=host, product="NVIDIA DGX Spark", os="DGX OS 7")
    body = agent_page(identity, sample)
    return body.decode()


class Pages:
    """Pages of one HTTP server by path, each a target of a Prometheus."""

    def __init__(self) -> None:
        self.text: dict[str, str | Callable[[], str]] = {}
        """A page, or what makes it, by its name; one that is removed answers with an error."""
        self.targets: dict[str, list[dict[str, object]]] = {}
        """`static_configs` by job."""
        self.place = ""

    def add(self, job: str, instance: str, page: str | Callable[[], str], **labels: str) -> str:
        """Serve a page as a target of this job, with these labels; return its name."""
        name = "-".join([labels.get("scene", ""), job, instance])
        name = f"{name}-{len(self.text)}" if name in self.text else name
        self.text[name] = page
        more = {"instance": instance, "__metrics_path__": f"/{name}", **labels}
        self.targets.setdefault(job, []).append({"targets": [self.place], "labels": more})
        return name

    def config(self, every: str = "1s") -> str:
        """Return a configuration that scrapes all pages; JSON is YAML."""
        jobs = [{"job_name": job, "static_configs": some} for job, some in self.targets.items()]
        return json.dumps(
            {"global": {"scrape_interval": every, "scrape_timeout": every}, "scrape_configs": jobs}
        )


@asynccontextmanager
async def pages() -> AsyncIterator[Pages]:
    """Yield pages that are served until the block ends."""
    found = Pages()

    async def answer(request: web.Request) -> web.Response:
        text = found.text.get(request.match_info["name"])
        if text is None:
            return web.Response(status=503)
        return web.Response(text=text if isinstance(text, str) else text(), content_type="text/plain")

    async with answering("/{name}", answer) as url:
        found.place = url.removeprefix("http://")
        yield found


@asynccontextmanager
async def scraping(found: Pages, folder: Path, start: Start = configured_prometheus) -> AsyncIterator[str]:
    """Yield the URL of a server of the API that scrapes these pages every second."""
    started = start(found.config(), folder)
    url = await asyncio.to_thread(started.__enter__)
    try:
        yield url
    finally:
        await asyncio.to_thread(started.__exit__, None, None, None)


async def look_until(
    feed: PrometheusFeed, store: Store, done: Callable[[Store], bool], *, most: int = 500
) -> None:
    """Query until `done`, at most `most` times.

    On a busy machine scrapes are late or fail: what holds between two of them is asked for here, too.
    """
    for _ in range(most):
        await feed.query()
        if done(store):
            return
        await asyncio.sleep(0.5)
        feed._found_at = None  # search with the next query
    shown = store.snapshot()
    failures = [one.failure for one in shown.fleets], [one.failure for one in shown.backends]
    raise AssertionError(f"not seen in {most} queries; failures: {failures}")


@asynccontextmanager
async def watched(
    url: str, scene: str = "", *, readings: list[tuple[str, PollResult]] | None = None, **settings: object
) -> AsyncIterator[tuple[PrometheusFeed, Store]]:
    """Yield a feed on the pages of a scene at `url` (all without one), and the store that it feeds.

    `readings` gets what is delivered, with the names of the sources.
    """
    only = f'scene="{scene}"' if scene else ""
    settings = {"selector": only, "machine_selector": only, **settings}
    target = PrometheusTarget("main", url, **settings)  # type: ignore[arg-type]  # any settings of the target
    clock = asyncio.get_running_loop().time
    store = Store(Watch(prometheus=(target,), source="test"), clock=clock)

    def deliver(key: SourceKey, reading: PollResult, took_ms: float | None) -> None:
        if readings is not None:
            readings.append((key.name, reading))
        store.accept(key, reading, took_ms)

    feed = PrometheusFeed(target, store, deliver, clock=clock)
    try:
        yield feed, store
    finally:
        await feed.close()


def known_nodes(store: Store) -> list[str]:
    """Return the names of the nodes with a sample."""
    return [one.name for one in store.snapshot().nodes if one.sample is not None]


def one_machine(found: Pages, **labels: str) -> None:
    """Serve two servers of one model, one of them with its machine."""
    found.add("vllm", "spark-1:8000", VLLM, **labels)
    found.add("vllm", "spark-2:8000", VLLM, **labels)
    found.add("dcgm", "spark-1:9400", dcgm_page("spark-1"), **labels)
    found.add("node", "spark-1:9100", node_page("spark-1"), **labels)


def is_complete(store: Store) -> bool:
    """Return whether wall, group and machine of `one_machine` are there, with figures."""
    shown = store.snapshot()
    (view,) = shown.fleets
    servers = view.fleet.servers if view.fleet else ()
    machines = view.fleet.nodes if view.fleet else ()
    return (
        [one.running is not None for one in servers] == [True, True]
        and [one.running is not None for one in shown.backends] == [True, True]
        and [one.gpu_percent for one in machines] == [96]
        and known_nodes(store) == ["spark-1"]
    )
