"""A real Prometheus: a server's row, read sample by sample, and its line on the wall say the same."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from sparktop.model.router import Sum
from sparktop.model.snapshot import Snapshot
from sparktop.store import Store
from tests.sources.installed import installed
from tests.watch.prometheus.scraped import Pages, look_until, pages, scraping, watched

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]
RAY = (
    "ray_vllm_num_requests_running{{{labels}}} {running}\n"
    "ray_vllm_generation_tokens{{{labels}}} {tokens}\n"
    "ray_vllm_generation_tokens_total{{{labels}}} {tokens}\n"
)


def server(model: str, running: int, more: str = "") -> str:
    """Return a page of vLLM with a gauge of requests."""
    return f'vllm:num_requests_running{{engine="0",model_name="{model}"{more}}} {running}\n'


def requests(shown: Snapshot) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """Return the running requests of each server: of the rows, and of the wall."""
    walls = [one.fleet.servers for one in shown.fleets if one.fleet is not None]
    rows = {one.name: one.running for one in shown.backends}
    return rows, {one.name: one.running for servers in walls for one in servers}


def agree(store: Store, wanted: dict[str, float]) -> bool:
    """Return whether rows and wall both have these numbers of requests."""
    rows, wall = requests(store.snapshot())
    return rows == wall == wanted


async def test_servers_whose_gauges_have_several_series(tmp_path: Path) -> None:
    """Two models on a page or on two paths of one address are added; API servers report one number each."""
    installed("prometheus", "prometheus")
    async with pages() as found:
        found.add("vllm", "page:8000", server("m1", 3) + server("m2", 3))
        found.add("vllm", "paths:8000", server("m1", 3))
        found.add("vllm", "paths:8000", server("m2", 4))
        found.add("vllm", "pids:8000", server("m1", 3, ',pid="1"') + server("m1", 3, ',pid="2"'))
        found.add("sglang", "ranks:8000", ranks())
        wanted = {"page:8000": 6.0, "paths:8000": 7.0, "pids:8000": 3.0, "ranks:8000": 5.0}
        async with scraping(found, tmp_path) as url, watched(url) as (feed, store):
            await look_until(feed, store, lambda store: agree(store, wanted), most=40)
            for _ in range(6):
                await feed.look()
                assert agree(store, wanted), requests(store.snapshot())
                await asyncio.sleep(0.4)


def ranks() -> str:
    """Return a page of SGLang on which two ranks report the requests of one engine."""
    return "".join(f'sglang:num_running_reqs{{model_name="m",tp_rank="{rank}"}} 5\n' for rank in (0, 1))


def node(found: Pages, name: str, began: float, *replicas: tuple[str, str, int]) -> None:
    """Set the page of a node of Ray; each replica has (its labels, model, requests), and 100 tokens/s."""
    tokens = round(100 * (time.monotonic() - began), 3)
    found.text[name] = "".join(
        RAY.format(labels=f'{ids},engine="0",model_name="{model}"', running=running, tokens=tokens)
        for ids, model, running in replicas
    )


async def test_replicas_of_ray_are_servers(tmp_path: Path) -> None:
    """Each has its own name, group and rate, by ReplicaId, without that by WorkerId; one that ends goes."""
    installed("prometheus", "prometheus")
    began = time.monotonic()
    first = ('ReplicaId="q3v8",WorkerId="4f1c"', "m-one", 3)
    second = ('ReplicaId="zz01",WorkerId="77aa"', "m-one", 5)
    third = ('ReplicaId="ab12",WorkerId="88bb"', "m-two", 2)
    async with pages() as found:
        new, old = found.add("ray", "10.0.0.1:8085", ""), found.add("ray", "10.0.0.2:8085", "")
        wanted = {
            "10.0.0.1:8085/q3v8": 3.0,
            "10.0.0.1:8085/zz01": 5.0,
            "10.0.0.1:8085/ab12": 2.0,
            "10.0.0.2:8085/99cc": 1.0,
        }

        def grown(store: Store) -> bool:
            node(found, new, began, first, second, third)
            node(found, old, began, ('WorkerId="99cc"', "m-one", 1))
            shown = store.snapshot()
            return agree(store, wanted) and min(rates(shown)) > 60

        async with scraping(found, tmp_path) as url, watched(url) as (feed, store):
            await look_until(feed, store, grown)
            shown = store.snapshot()
            assert {one.group for one in shown.backends} == {"m-one", "m-two"}
            assert {one.engine for one in shown.backends} == {"ray"}
            assert max(rates(shown)) < 150
            assert shown.totals.running == Sum(11.0, 4, 4)
            assert shown.fleets[0].by_rows
            rates_shown = [one.generation_tps or 0.0 for one in shown.backends]
            assert shown.totals.generation_tps.value == pytest.approx(sum(rates_shown))
            node(found, new, began, first)
            del found.text[old]
            await look_until(feed, store, is_down)
            assert not is_failed(store, "10.0.0.1:8085/q3v8")


def is_down(store: Store) -> bool:
    """Return whether the node without an answer is down, and the replicas that ended are known to have."""
    names = ("10.0.0.2:8085/99cc", "10.0.0.1:8085/zz01", "10.0.0.1:8085/ab12")
    return all(is_failed(store, name) for name in names)


def is_failed(store: Store, name: str) -> bool:
    """Return whether a server has a failure."""
    return next(one for one in store.snapshot().backends if one.name == name).failure is not None


def rates(shown: Snapshot) -> list[float]:
    """Return the tokens/s of all servers: of the rows, and of the wall."""
    walls = [one.fleet.servers for one in shown.fleets if one.fleet is not None]
    on_walls = [one.generation_tps or 0.0 for servers in walls for one in servers]
    return [*(one.generation_tps or 0.0 for one in shown.backends), *on_walls]
