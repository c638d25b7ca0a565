"""A real Prometheus that scrapes pages of our own: samples, rows and walls, machines, deaths by `up`.

One server has the pages of all tests; each test reads those of its scene. A job and an instance that one
test takes away must not be those of another, for `up` is asked by these two.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from itertools import count, pairwise
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from sparktop.analysis.state import scraped_state
from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure
from sparktop.model.router import FleetNode, Sum
from sparktop.model.snapshot import Snapshot
from sparktop.panels.machine.panel import figure_rows
from sparktop.panels.parts.figures import read_by
from sparktop.panels.parts.text import row_text
from sparktop.sources.source import PollResult
from sparktop.store import Store
from tests.known import known
from tests.sources.installed import installed
from tests.watch.prometheus.proxy import proxied
from tests.watch.prometheus.scraped import (
    GIB,
    VLLM,
    Pages,
    agent_text,
    dcgm_page,
    is_complete,
    known_nodes,
    look_until,
    node_page,
    one_machine,
    pages,
    scraping,
    watched,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.process, pytest.mark.timeout(600)]
RAY = (
    "ray_vllm_num_requests_running{{{labels}}} {running}\n"
    "ray_vllm_generation_tokens{{{labels}}} {tokens}\n"
    "ray_vllm_generation_tokens_total{{{labels}}} {tokens}\n"
)
PATH = "/select/0/prometheus"


class Prometheus(NamedTuple):
    """A server that runs, and the pages that it scrapes."""

    url: str
    pages: Pages


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prometheus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prometheus]:
    """Yield a Prometheus that scrapes the pages of all scenes every second."""
    installed("prometheus", "prometheus")
    async with pages() as found:
        for instance in ("one:8000", "two:8000"):
            found.add("vllm", instance, counting_page(), scene="counted", namespace="llm")
        several_series(found)
        for instance in ("10.0.0.1:8085", "10.0.0.2:8085"):
            found.add("ray", instance, "", scene="ray")
        four_machines(found)
        found.add("vllm", "spark-9:8000", VLLM, scene="dying")
        found.add("dcgm", "spark-9:9400", dcgm_page("spark-9"), scene="dying")
        found.add("node", "spark-9:9100", node_page("spark-9"), scene="dying")
        found.add("vllm", "service:8000", VLLM, scene="configured")
        for number, cluster in ((1, "a"), (2, "a"), (3, "b")):
            host = f"spark-{number}"
            found.add("dcgm", f"{host}:9400", dcgm_page(host), scene="configured", cluster=cluster)
        one_machine(found, scene="proxied")
        async with scraping(found, tmp_path_factory.mktemp("prometheus")) as url:
            yield Prometheus(url, found)


def counting_page() -> Callable[[], str]:
    """Return what makes a page of vLLM whose number of running requests is the number of scrapes."""
    scrapes = count(1)
    gauge = re.compile(r"^(vllm:num_requests_running{.*}) .*$", re.MULTILINE)
    return lambda: gauge.sub(rf"\1 {next(scrapes)}", VLLM)


async def test_samples_are_those_that_were_scraped(prometheus: Prometheus) -> None:
    """In order, none twice, each with the figures of the page; a stopped server is dead by `up`."""
    readings: list[tuple[str, PollResult]] = []
    dead = "main cannot scrape it (up is 0)"

    def of(name: str, kind: type[PollResult]) -> list[Any]:
        return [one for source, one in readings if source == name and isinstance(one, kind)]

    async with watched(prometheus.url, "counted", readings=readings) as (feed, store):
        await look_until(feed, store, lambda _: len(of("one:8000", EngineSample)) > 2)
        del prometheus.pages.text["counted-vllm-two:8000"]
        await look_until(
            feed, store, lambda _: any(one.message.startswith(dead) for one in of("two:8000", Failure))
        )
        await look_until(feed, store, lambda store: known(store.snapshot().backends[0].scrape).every_s == 1.0)
        shown = store.snapshot()
    samples = of("one:8000", EngineSample)
    running = [one.lanes[0].running for one in samples]
    assert running == sorted(set(running))
    assert len(running) > 2
    assert all(later.at > one.at for one, later in pairwise(samples))
    assert samples[0].lanes[0].ttft is not None
    assert {one.group for one in shown.backends} == {shown.backends[0].model}


# Rows, read sample by sample, and lines of the wall say the same.


def gauge(model: str, running: int, more: str = "") -> str:
    return f'vllm:num_requests_running{{engine="0",model_name="{model}"{more}}} {running}\n'


def several_series(found: Pages) -> None:
    """Serve pages of servers whose gauges have several series."""
    ranks = (f'sglang:num_running_reqs{{model_name="m",tp_rank="{rank}"}} 5\n' for rank in (0, 1))
    for job, instance, page in (
        ("vllm", "page:8000", gauge("m1", 3) + gauge("m2", 3)),
        ("vllm", "paths:8000", gauge("m1", 3)),
        ("vllm", "paths:8000", gauge("m2", 4)),
        ("vllm", "pids:8000", gauge("m1", 3, ',pid="1"') + gauge("m1", 3, ',pid="2"')),
        ("sglang", "ranks:8000", "".join(ranks)),
    ):
        found.add(job, instance, page, scene="series")


def agree(store: Store, wanted: dict[str, float]) -> bool:
    """Return whether rows and wall both have these numbers of running requests."""
    shown = store.snapshot()
    rows = {one.name: one.running for one in shown.backends}
    return rows == {one.name: one.running for one in on_walls(shown)} == wanted


def on_walls(shown: Snapshot) -> list[Any]:
    return [one for view in shown.fleets if view.fleet is not None for one in view.fleet.servers]


async def test_servers_whose_gauges_have_several_series(prometheus: Prometheus) -> None:
    """Two models on a page or on two paths of one address are added; API servers report one number each."""
    wanted = {"page:8000": 6.0, "paths:8000": 7.0, "pids:8000": 3.0, "ranks:8000": 5.0}
    async with watched(prometheus.url, "series") as (feed, store):
        for _ in range(3):
            await look_until(feed, store, lambda store: agree(store, wanted))
            await asyncio.sleep(0.4)


async def test_replicas_of_ray_are_servers(prometheus: Prometheus) -> None:
    """Each has its own name, group and rate, by ReplicaId, without that by WorkerId; one that ends goes."""
    began = time.monotonic()
    first = ('ReplicaId="q3v8",WorkerId="4f1c"', "m-one", 3)
    second = ('ReplicaId="zz01",WorkerId="77aa"', "m-one", 5)
    third = ('ReplicaId="ab12",WorkerId="88bb"', "m-two", 2)
    new, old = (f"ray-ray-10.0.0.{number}:8085" for number in (1, 2))
    names = ["10.0.0.1:8085/q3v8", "10.0.0.1:8085/zz01", "10.0.0.1:8085/ab12", "10.0.0.2:8085/99cc"]

    def serve(name: str, *replicas: tuple[str, str, int]) -> None:
        """Serve (labels, model, requests) of replicas that make 100 tokens/s each."""

        def page() -> str:
            tokens = round(100 * (time.monotonic() - began), 3)
            return "".join(
                RAY.format(labels=f'{ids},engine="0",model_name="{model}"', running=running, tokens=tokens)
                for ids, model, running in replicas
            )

        prometheus.pages.text[name] = page

    def grown(store: Store) -> bool:
        served = dict(zip(names, (3.0, 5.0, 2.0, 1.0), strict=True))
        return agree(store, served) and min(rates(store)) > 60 and max(rates(store)) < 150

    def rates(store: Store) -> list[float]:
        shown = store.snapshot()
        return [one.generation_tps or 0.0 for one in (*shown.backends, *on_walls(shown))]

    def is_failed(store: Store, name: str) -> bool:
        return next(one for one in store.snapshot().backends if one.name == name).failure is not None

    serve(new, first, second, third)
    serve(old, ('WorkerId="99cc"', "m-one", 1))
    async with watched(prometheus.url, "ray") as (feed, store):
        await look_until(feed, store, grown)
        shown = store.snapshot()
        assert {(one.group, one.engine) for one in shown.backends} == {("m-one", "ray"), ("m-two", "ray")}
        assert shown.totals.running == Sum(11.0, 4, 4)
        assert shown.fleets[0].by_rows
        total = sum(one.generation_tps or 0.0 for one in shown.backends)
        assert shown.totals.generation_tps.value == pytest.approx(total)
        serve(new, first)
        del prometheus.pages.text[old]
        await look_until(feed, store, lambda store: all(is_failed(store, name) for name in names[1:]))
        assert not is_failed(store, names[0])


# Machines: joined from their exporters, placed under servers, dead by `up`.


def four_machines(found: Pages) -> None:
    """Serve the exporters of four machines, and a server on each of three of them."""
    pod = {"namespace": "llm", "pod": "llm-0"}
    large = dcgm_page(
        "H100-A",
        8,
        model="NVIDIA H100",
        more=',namespace="llm",pod="llm-0"',
        FB_USED=60_000.0,
        FB_FREE=21_000.0,
    )
    for job, instance, page, labels in (
        ("vllm", "spark-1:8000", VLLM, {}),
        ("dcgm", "spark-1:9400", dcgm_page("0a1b2c3d4e5f", CLOCK_THROTTLE_REASONS=0.0), {}),
        ("node", "spark-1:9100", node_page("spark-1"), {}),
        ("vllm", "10.0.0.2:8000", VLLM, {}),
        ("agent", "10.0.0.2:9750", agent_text("spark-2"), {}),
        ("vllm", "10.244.0.9:8000", VLLM, pod),
        ("dcgm", "10.244.0.3:9400", large, {}),
        ("node", "10.0.0.3:9100", node_page("h100-a.lab", free=4 * GIB, total=512 * GIB), {}),
        ("node", "10.0.0.4:9100", node_page("web-1"), {}),
    ):
        found.add(job, instance, page, scene="machines", **labels)


def fleet_nodes(store: Store) -> dict[str, FleetNode]:
    """Return the machines on the wall by name."""
    (view,) = store.snapshot().fleets
    return {one.name: one for one in view.fleet.nodes} if view.fleet else {}


def figures_known(store: Store, number: int) -> bool:
    """Return whether `number` machines have a sample, and figures of all their exporters on the wall."""
    machines = [one for one in fleet_nodes(store).values() if one.gpu_percent is not None and one.backends]
    complete = [one for one in machines if one.headroom_bytes is not None]
    return len(known_nodes(store)) == len(complete) == number


async def test_exporters_are_joined_to_machines_and_servers_are_placed_on_them(
    prometheus: Prometheus,
) -> None:
    """By address, by host name and by pod; the machine without GPU or server is left out."""
    async with watched(prometheus.url, "machines") as (feed, store):
        await look_until(feed, store, lambda one: figures_known(one, 3))
        shown, wall = store.snapshot(), fleet_nodes(store)
    assert {one.name: one.nodes for one in shown.backends} == {
        "10.0.0.2:8000": ("spark-2",),
        "llm-0": ("h100-a",),
        "spark-1:8000": ("spark-1",),
    }
    nodes = {one.name: one for one in shown.nodes}
    assert set(nodes) == set(wall) == {"spark-1", "spark-2", "h100-a"}
    spark, agent, large = wall["spark-1"], wall["spark-2"], wall["h100-a"]
    assert (spark.state, spark.gpus, spark.gpu_percent, spark.power_w) == ("busy", 1, 96, 41)
    assert spark.headroom_bytes == 38 * GIB
    assert spark.backends == ("spark-1:8000",)
    assert (agent.state, agent.gpu_percent, agent.headroom_bytes) == ("busy", 50, 57 * GIB)
    assert (large.state, large.gpus, large.power_w) == ("low memory", 8, 8 * 41)
    assert re.fullmatch(r" main every \d+ s, \d+ s old ", row_text(read_by(nodes["spark-1"])))
    text = "".join(row_text(row) for row in figure_rows(nodes["spark-1"], 60, 9))
    assert "memory left  38.0 GiB" in text
    assert "no network" not in text
    sample = known(nodes["spark-1"].sample)
    assert (sample.memory.unified, sample.cpu.load1, sample.gpus[0].memory_total_bytes) == (True, 3.5, None)
    assert (sample.gpus[0].name, sample.gpus[0].throttle_reasons) == ("NVIDIA GB10", ())
    assert nodes["spark-2"].identity is not None
    assert nodes["spark-2"].identity.product == "NVIDIA DGX Spark"


async def test_a_machine_whose_exporters_are_down_is_dead(prometheus: Prometheus) -> None:
    """All of them: one that still answers shows that the machine lives; servers that die stay on the wall."""
    text = prometheus.pages.text
    async with watched(prometheus.url, "dying") as (feed, store):
        await look_until(feed, store, lambda one: known_nodes(one) == ["spark-9"])
        del text["dying-dcgm-spark-9:9400"], text["dying-vllm-spark-9:8000"]
        await look_until(
            feed,
            store,
            lambda one: (
                one.snapshot().backends[0].failure is not None and not fleet_nodes(one)["spark-9"].down
            ),
        )
        del text["dying-node-spark-9:9100"]
        await look_until(feed, store, lambda one: one.snapshot().nodes[0].failure is not None)
        await look_until(feed, store, lambda one: fleet_nodes(one)["spark-9"].state == "unreachable")
        assert [scraped_state(one) for one in on_walls(store.snapshot())] == ["unreachable"]


async def test_the_configuration_places_what_labels_do_not_show(prometheus: Prometheus) -> None:
    """A server over two machines, by its instance; a selector leaves the other machines out."""
    settings: dict[str, Any] = {
        "machines": {"service:8000": ("spark-1", "SPARK-2")},
        "machine_selector": 'scene="configured",cluster="a"',
    }
    async with watched(prometheus.url, "configured", **settings) as (feed, store):
        await look_until(feed, store, lambda one: len(known_nodes(one)) == 2 and len(fleet_nodes(one)) > 1)
        assert store.snapshot().backends[0].nodes == ("spark-1", "spark-2")
        assert set(fleet_nodes(store)) == {"spark-1", "spark-2"}


async def test_below_a_path_with_a_tenant_and_a_token(prometheus: Prometheus) -> None:
    """Each request is below the path and carries both; Thanos' parameters go along; warnings are shown."""
    warning = "fetch series for store 10.0.0.7: connection refused"

    def partial(query: str, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "warnings": [warning]} if "num_requests_running" in query else body

    settings: dict[str, Any] = {"headers": {"X-Scope-OrgID": "a|b"}, "bearer": "secret"}
    async with (
        proxied(prometheus.url, PATH, partial) as (base, asked),
        watched(base, "proxied", **settings) as (feed, store),
    ):
        await look_until(feed, store, is_complete)
        (view,) = store.snapshot().fleets
    assert known(view.fleet).note == warning
    assert {one.path for one in asked} == {f"{PATH}/api/v1/query", f"{PATH}/api/v1/targets"}
    assert {(one.headers["X-Scope-OrgID"], one.headers["Authorization"]) for one in asked} == {
        ("a|b", "Bearer secret")
    }
    queries = [one.form for one in asked if one.form]
    assert {(one["dedup"], one["partial_response"]) for one in queries} == {("true", "true")}
