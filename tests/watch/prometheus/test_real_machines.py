"""Machines through a real Prometheus: joined from their exporters, placed under servers, dead by `up`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparktop.analysis.state import scraped_state
from sparktop.model.router import FleetNode
from sparktop.panels.machine.panel import figure_rows
from sparktop.panels.parts.figures import read_by
from sparktop.panels.parts.text import row_text
from sparktop.store import Store
from tests.sources.installed import installed
from tests.watch.prometheus.scraped import (
    GIB,
    VLLM,
    Pages,
    agent_text,
    dcgm_page,
    known_nodes,
    look_until,
    node_page,
    pages,
    scraping,
    watched,
)

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]
IN_POD = ',namespace="llm",pod="llm-0"'


def fleet_nodes(store: Store) -> dict[str, FleetNode]:
    """Return the machines on the wall by name."""
    (view,) = store.snapshot().fleets
    return {one.name: one for one in view.fleet.nodes} if view.fleet else {}


def four_machines(found: Pages) -> None:
    """Serve the exporters of four machines, and a server on each of three of them."""
    found.add("vllm", "spark-1:8000", VLLM)
    found.add("dcgm", "spark-1:9400", dcgm_page("0a1b2c3d4e5f", CLOCK_THROTTLE_REASONS=0.0))
    found.add("node", "spark-1:9100", node_page("spark-1"))
    found.add("vllm", "10.0.0.2:8000", VLLM)
    found.add("agent", "10.0.0.2:9750", agent_text("spark-2"))
    found.add("vllm", "10.244.0.9:8000", VLLM, namespace="llm", pod="llm-0")
    memory = {"FB_USED": 60_000.0, "FB_FREE": 21_000.0}
    found.add("dcgm", "10.244.0.3:9400", dcgm_page("H100-A", 8, model="NVIDIA H100", more=IN_POD, **memory))
    found.add("node", "10.0.0.3:9100", node_page("h100-a.lab", free=4 * GIB, total=512 * GIB))
    found.add("node", "10.0.0.4:9100", node_page("web-1"))


async def test_exporters_are_joined_to_machines_and_servers_are_placed_on_them(tmp_path: Path) -> None:
    """By address, by host name and by pod; the machine without GPU or server is left out."""
    installed("prometheus", "prometheus")
    async with pages() as found:
        four_machines(found)
        async with scraping(found, tmp_path) as url, watched(url) as (feed, store):
            await look_until(feed, store, lambda one: figures_known(one, 3))
            shown = store.snapshot()
            wall = fleet_nodes(store)
    assert {one.name: one.nodes for one in shown.backends} == {
        "10.0.0.2:8000": ("spark-2",),
        "llm-0": ("h100-a",),
        "spark-1:8000": ("spark-1",),
    }
    assert set(wall) == {"spark-1", "spark-2", "h100-a"}
    spark, agent, large = wall["spark-1"], wall["spark-2"], wall["h100-a"]
    assert (spark.state, spark.gpus, spark.gpu_percent, spark.power_w) == ("busy", 1, 96, 41)
    assert spark.headroom_bytes == 38 * GIB
    assert spark.gpu_memory_percent is None
    assert spark.backends == ("spark-1:8000",)
    assert (agent.state, agent.gpu_percent, agent.headroom_bytes) == ("busy", 50, 57 * GIB)
    assert (large.state, large.gpus, large.power_w) == ("low memory", 8, 8 * 41)
    assert large.gpu_memory_percent == pytest.approx(100 * 60 / 81)
    assert all(one.at is not None for one in wall.values())
    nodes = {one.name: one for one in shown.nodes}
    assert set(nodes) == set(wall)
    assert nodes["spark-1"].via == "prometheus"
    assert re.fullmatch(r" main every 1 s, \d+ s old ", row_text(read_by(nodes["spark-1"])))
    text = "".join(row_text(row) for row in figure_rows(nodes["spark-1"], 60, 9))
    assert "headroom  38.0 GiB" in text
    assert "no network" not in text
    sample = nodes["spark-1"].sample
    assert sample is not None
    assert sample.memory.unified
    assert sample.gpus[0].memory_total_bytes is None
    assert (sample.gpus[0].name, sample.gpus[0].throttle_reasons) == ("NVIDIA GB10", ())
    assert sample.cpu.load1 == 3.5
    assert len(nodes["h100-a"].sample.gpus) == 8  # type: ignore[union-attr]  # as above
    assert nodes["spark-2"].identity.product == "NVIDIA DGX Spark"


def figures_known(store: Store, count: int) -> bool:
    """Return whether `count` machines have a sample, and figures of all their exporters on the wall."""
    machines = [one for one in fleet_nodes(store).values() if one.gpu_percent is not None and one.backends]
    return (
        len(known_nodes(store)) == len([one for one in machines if one.headroom_bytes is not None]) == count
    )


async def test_a_machine_whose_exporters_are_down_is_dead(tmp_path: Path) -> None:
    """All of them: one that still answers shows that the machine lives; servers that die stay on the wall."""
    installed("prometheus", "prometheus")
    async with pages() as found:
        server = found.add("vllm", "spark-1:8000", VLLM)
        first = found.add("dcgm", "spark-1:9400", dcgm_page("spark-1"))
        second = found.add("node", "spark-1:9100", node_page("spark-1"))
        async with scraping(found, tmp_path) as url, watched(url) as (feed, store):
            await look_until(feed, store, lambda one: known_nodes(one) == ["spark-1"])
            del found.text[first], found.text[server]
            await look_until(feed, store, lambda one: one.snapshot().backends[0].failure is not None)
            assert not fleet_nodes(store)["spark-1"].down
            del found.text[second]
            await look_until(feed, store, lambda one: one.snapshot().nodes[0].failure is not None)
            await look_until(feed, store, lambda one: fleet_nodes(one)["spark-1"].state == "unreachable")
            (view,) = store.snapshot().fleets
            assert view.fleet is not None
            assert [scraped_state(one) for one in view.fleet.servers] == ["unreachable"]


async def test_the_configuration_places_what_labels_do_not_show(tmp_path: Path) -> None:
    """A server over two machines, by its instance; a selector leaves the other machines out."""
    installed("prometheus", "prometheus")
    async with pages() as found:
        found.add("vllm", "service:8000", VLLM)
        for host in ("spark-1", "spark-2"):
            found.add("dcgm", f"{host}:9400", dcgm_page(host), cluster="a")
        found.add("dcgm", "spark-3:9400", dcgm_page("spark-3"), cluster="b")
        settings = {"machines": {"service:8000": ("spark-1", "SPARK-2")}, "machine_selector": 'cluster="a"'}
        async with scraping(found, tmp_path) as url, watched(url, **settings) as (feed, store):
            await look_until(
                feed, store, lambda one: len(known_nodes(one)) == 2 and len(fleet_nodes(one)) > 1
            )
            assert store.snapshot().backends[0].nodes == ("spark-1", "spark-2")
            assert set(fleet_nodes(store)) == {"spark-1", "spark-2"}
