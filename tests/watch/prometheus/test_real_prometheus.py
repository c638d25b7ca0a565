"""A real Prometheus that scrapes simulated servers: what is delivered is what it scraped, death is seen."""

from __future__ import annotations

import asyncio
import json
import socket
from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp import web

from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure
from sparktop.model.targets import PrometheusTarget, Watch
from sparktop.sources.source import Reading
from sparktop.store import SourceKey, Store
from sparktop.watch.prometheus import PrometheusFeed
from tests.prometheus.prometheus_server import configured_prometheus
from tests.sources.installed import installed

PAGE = Path(__file__).resolve().parents[2] / "data" / "vllm-0.32" / "t010.prom"
LOOKS = 60


class Server:
    """A server with the page of a real vLLM, whose number of running requests is the number of scrapes."""

    def __init__(self) -> None:
        self.scrapes = 0
        self.runner = web.AppRunner(self._app(), access_log=None)
        self.port = 0

    def _app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/metrics", self._page)
        return app

    async def _page(self, _: web.Request) -> web.Response:
        self.scrapes += 1
        lines = [
            line.rpartition(" ")[0] + f" {self.scrapes}"
            if line.startswith("vllm:num_requests_running{")
            else line
            for line in PAGE.read_text(encoding="utf-8").splitlines()
        ]
        return web.Response(text="\n".join([*lines, ""]), content_type="text/plain")

    async def start(self) -> None:
        """Listen on a free port."""
        await self.runner.setup()
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        await web.SockSite(self.runner, listener).start()


@pytest.mark.process
@pytest.mark.timeout(600)
async def test_samples_are_those_that_were_scraped(tmp_path: Path) -> None:
    """In order, none twice, each with the figures of the page; a stopped server is dead by `up`."""
    installed("prometheus", "prometheus")
    servers = [Server(), Server()]
    for server in servers:
        await server.start()
    scraped = [{"targets": [f"127.0.0.1:{one.port}" for one in servers], "labels": {"namespace": "llm"}}]
    job = {"job_name": "vllm", "static_configs": scraped}
    config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job]}
    started = configured_prometheus(json.dumps(config), tmp_path)
    url = await asyncio.to_thread(started.__enter__)
    readings: dict[str, list[Reading]] = {}
    target = PrometheusTarget("main", url)
    store = Store(Watch(prometheus=(target,), source="test"), clock=asyncio.get_running_loop().time)

    def deliver(key: SourceKey, reading: Reading, took_ms: float | None) -> None:
        readings.setdefault(key.label, []).append(reading)
        store.accept(key, reading, took_ms)

    feed = PrometheusFeed(target, store, deliver, clock=asyncio.get_running_loop().time)
    first, second = (f"backend:127.0.0.1:{one.port}" for one in servers)
    try:
        for look in range(LOOKS):
            await feed.look()
            if look > 3 and len(readings.get(first, ())) > 4 and servers[1].port:
                await servers[1].runner.cleanup()
            if any(isinstance(one, Failure) for one in readings.get(second, ())):
                break
            await asyncio.sleep(0.5)
            feed.find_again()
    finally:
        await feed.close()
        await asyncio.to_thread(started.__exit__, None, None, None)
        for server in servers:
            await server.runner.cleanup()
    samples = [one for one in readings[first] if isinstance(one, EngineSample)]
    running = [one.lanes[0].running for one in samples]
    assert running == sorted({one for one in running if one is not None})
    assert len(running) > 4
    assert all(later.at > one.at for one, later in pairwise(samples))
    assert samples[0].lanes[0].ttft is not None
    (failure,) = [one for one in readings[second] if isinstance(one, Failure)][:1]
    assert failure.message.startswith("main cannot scrape it (up is 0)")
    shown = store.snapshot()
    assert {one.group for one in shown.backends} == {shown.backends[0].model}
    assert shown.backends[0].scrape is not None
    assert shown.backends[0].scrape.every_s == 1.0
