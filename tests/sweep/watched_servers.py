"""Simulated servers in this process, a hundred times as fast as a Spark, and a monitor that watches them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

from aiohttp.test_utils import TestServer
from msgspec.structs import replace

from sparktop.demo.engine import EngineServer, LiveCores, LiveEngine
from sparktop.demo.engine_page import EngineHistograms
from sparktop.demo.proxy import Proxy
from sparktop.model.targets import BackendTarget, ModelFacts, RouterTarget, Watch
from sparktop.simulation.calibration import MODEL, SOLO
from sparktop.simulation.engine import Engine, EngineProfile
from sparktop.simulation.routers import Router
from sparktop.store import Store
from sparktop.sweep.plan.plan import Plan, SweepTarget, TargetKind, Timeouts
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.progress import SweepEvent
from sparktop.sweep.run.runner import SweepRunner
from sparktop.watch.monitor import Monitor

QUICK = replace(
    SOLO,
    cost=replace(SOLO.cost, weights_one_s=4e-4, weights_all_s=4e-3, row_s=1e-6),
    wake_s=1e-4,
    jitter=0.0,
)
"""Steps of less than a millisecond for one request."""
PATIENT = Timeouts(connect_s=10.0, first_token_s=30.0, between_tokens_s=30.0, whole_s=50.0)
INTERVAL_S = 0.1


@asynccontextmanager
async def engine(
    profile: EngineProfile = QUICK, cores: Callable[[Sequence[LiveEngine]], LiveCores] = LiveCores
) -> AsyncIterator[str]:
    """Serve an engine on a free port; yield its URL."""
    histograms = EngineHistograms(profile.max_model_len)
    live = LiveEngine(
        Engine(profile, seed=1, start_s=time.monotonic(), on_end=histograms.count_end), histograms
    )
    application = EngineServer(cores([live]), started_unix_s=time.time()).application()
    server = TestServer(application, handler_cancellation=True)
    await server.start_server()
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        live.close()
        await server.close()


@dataclass
class Watched:
    """Servers that are watched, and the events and results of sweeps of them."""

    store: Store
    targets: tuple[SweepTarget, ...]
    events: list[SweepEvent] = field(default_factory=list)
    saved: list[SweepResult] = field(default_factory=list)

    def runner(self, plan: Plan, models: Mapping[str, ModelFacts] | None = None) -> SweepRunner:
        """Return a sweep whose events are collected in `events`."""
        made = SweepRunner(plan, self.store, models=models, save=self.saved.append)
        made.listen(self.events.append)
        return made

    def plan(self, targets: Sequence[SweepTarget] | None = None, **changes: object) -> Plan:
        """Return a small plan."""
        plan = Plan(
            targets=tuple(self.targets if targets is None else targets),
            concurrency=(1, 4),
            pp=64,
            tg=16,
            runs=2,
            timeouts=PATIENT,
        )
        return replace(plan, **changes)  # type: ignore[arg-type]  # fields of Plan, by name


@asynccontextmanager
async def watched(
    count: int = 1,
    *,
    strategy: str | None = None,
    profile: EngineProfile = QUICK,
    cores: Callable[[Sequence[LiveEngine]], LiveCores] = LiveCores,
    capture_sizes: Mapping[str, tuple[int, ...] | None] = MappingProxyType({}),
) -> AsyncIterator[Watched]:
    """Serve and watch engines, with a proxy before them where a strategy is named.

    `capture_sizes` are those that the configuration says of single servers.
    """
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(engine(profile, cores)) for _ in range(count)]
        names = [f"spark-{letter}" for letter, _ in zip("abcdef", urls, strict=False)]
        backends = tuple(
            BackendTarget(name, url, engine="vllm", capture_sizes=capture_sizes.get(name))
            for name, url in zip(names, urls, strict=True)
        )
        targets = [SweepTarget(name, url, known=True) for name, url in zip(names, urls, strict=True)]
        routers: tuple[RouterTarget, ...] = ()
        if strategy is not None:
            upstreams = {f"id-{name}": url for name, url in zip(names, urls, strict=True)}
            proxy = TestServer(Proxy(upstreams, Router(strategy, count), model=MODEL).application())
            await proxy.start_server()
            stack.push_async_callback(proxy.close)
            url = str(proxy.make_url("")).rstrip("/")
            deployments = {f"id-{name}": name for name in names}
            routers = (RouterTarget("proxy", url, strategy, tuple(names), deployments),)
            targets.append(
                SweepTarget(
                    "proxy",
                    url,
                    TargetKind.ROUTER,
                    backends=dict(zip(names, urls, strict=True)),
                    deployments=deployments,
                    known=True,
                )
            )
        watch = Watch(backends=backends, routers=routers, interval_s=INTERVAL_S)
        store = Store(watch)
        monitor = Monitor(watch, store)
        await monitor.start()
        stack.push_async_callback(monitor.stop)
        yield Watched(store, tuple(targets))
