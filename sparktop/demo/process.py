"""The demo's child process: all engines with their machines, the proxies in front of them, and the load.

The process reads its plan as a JSON line from standard input. It writes a JSON line to standard output when
it is ready (`{"engines": [...], "agents": [...], "proxies": [...]}`, lists of ports) or has failed
(`{"error": "..."}`). It ends when its standard input ends, when its parent ends, or by a signal.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

import msgspec
from aiohttp import web
from msgspec.structs import replace

from sparktop.agent.reader import Sampler
from sparktop.agent.server import AgentServer
from sparktop.analysis.placement import address_of
from sparktop.demo.engine import HOST, EngineSite
from sparktop.demo.load import Driver, LoadPause
from sparktop.demo.machine import MachineReader
from sparktop.demo.proxy import Proxy
from sparktop.demo.ras import RasServer, SimulatedJob
from sparktop.demo.scenario import DemoPlan, backend_name
from sparktop.hardware.ras import RasReader
from sparktop.simulation.routers import Router

_PR_SET_PDEATHSIG = 1
"""Option of prctl(2): the signal that this process gets when its parent ends."""
_CLOSING_S = 0.1
"""Seconds that responses in progress have when the proxy is stopped."""
_LONGEST_PLAN = 1 << 20
"""Most bytes of a plan."""


@asynccontextmanager
async def run_cluster(plan: DemoPlan) -> AsyncIterator[dict[str, list[int]]]:
    """Serve all engines, an agent for each machine and both proxies; send the scenario's load to the first.

    The second proxy has another strategy and is used only by sweeps. Yield the ports of engines, agents and
    proxies.
    """
    scenario, pause = plan.effective_scenario(), LoadPause(quiet_s=plan.quiet_s)
    async with AsyncExitStack() as stack:
        engines, agents = await _start_engines(stack, plan, pause)
        strategies = (scenario.strategy, scenario.second_strategy)
        proxies = [
            await _start_proxy(stack, plan, strategy, engines[: plan.backends], pause)
            for strategy in strategies
        ]
        pause.is_swept = partial(_is_swept, [*engines, *proxies])
        driver = Driver(f"http://{HOST}:{proxies[0]}", scenario, seed=plan.seed, pause=pause)
        # Ended before the servers: these would have to break off answers.
        stack.push_async_callback(_cancel, asyncio.get_running_loop().create_task(driver.run()))
        yield {"engines": engines, "agents": agents, "proxies": proxies}


def _is_swept(ports: Sequence[int]) -> bool:
    """Return whether a sweep of this user loads servers or proxies at these ports."""
    from sparktop.watch.state_files import announced_loads  # late: no other part of the demo needs a store

    own_addresses = {address_of(f"http://{HOST}:{port}") for port in ports}
    return any(address_of(url) in own_addresses for urls in announced_loads().values() for url in urls)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _start_engines(
    stack: AsyncExitStack, plan: DemoPlan, pause: LoadPause
) -> tuple[list[int], list[int]]:
    """Serve all engines, and an agent for each machine; return the ports of engines and of agents."""
    scenario, now_s, places = plan.effective_scenario(), time.monotonic(), count()
    ports: list[int] = []
    agents: list[int] = []
    for backend, server in enumerate(scenario.servers(plan.backends)):
        readers, spans = list[MachineReader](), server.profile.nodes > 1
        for rank in range(server.machines):
            index = next(places)
            heat = scenario.thermal_of(index, start_s=now_s)
            machine = replace(scenario.machine_of(index, start_s=now_s), rank=rank if spans else None)
            address = f"192.168.100.{11 + index}" if spans else None
            readers.append(MachineReader(heat, machine, name=backend_name(index), address=address))
        site = EngineSite(server, readers, seed=f"{plan.seed}/{backend}", pause=pause)
        stack.push_async_callback(site.close)
        await site.open()
        ports.append(site.port)
        # An engine on one machine has no RAS thread.
        job = SimulatedJob(readers[: server.profile.nodes], seed=f"{plan.seed}/{backend}") if spans else None
        ras = [] if job is None else [await _start_ras(stack, job)]
        agents += [_start_agent(stack, reader, ras) for reader in readers]
        if scenario.restarts is not None and not backend:
            site.keep_restarting(scenario.restarts)
        if scenario.fault is not None and not backend:
            site.keep_failing(scenario.fault)
    return ports, agents


async def _start_ras(stack: AsyncExitStack, job: SimulatedJob) -> tuple[str, int]:
    """Serve what NCCL's thread for reports (RAS) says of the ranks of a job; return the address."""
    thread = RasServer(job.report)
    await thread.open()
    stack.push_async_callback(thread.close)
    return thread.address


def _start_agent(stack: AsyncExitStack, reader: MachineReader, ras: Sequence[tuple[str, int]]) -> int:
    """Start an agent for a machine, with the HTTP server of `sparktop agent`, and return its port.

    It asks NCCL at the addresses `ras`, never this machine's own.
    """
    listener = socket.create_server((HOST, 0))
    ranks = RasReader(root=Path(os.devnull), addresses=ras)
    agent = AgentServer(Sampler(reader), simulated=True, ranks=ranks)
    agent.start([listener])
    stack.push_async_callback(agent.close)
    return int(listener.getsockname()[1])


async def _start_proxy(
    stack: AsyncExitStack, plan: DemoPlan, strategy: str, engines: Sequence[int], pause: LoadPause
) -> int:
    """Serve a proxy that routes by `strategy` to the engines at these ports, and return its port."""
    scenario = plan.effective_scenario()
    upstreams = {scenario.name_of(index): f"http://{HOST}:{port}" for index, port in enumerate(engines)}
    router = Router(strategy, len(upstreams), scenario.counts, seed=plan.seed)
    proxy = Proxy(
        upstreams,
        router,
        model=scenario.profile.model,
        broken_share=scenario.broken_share,
        seed=plan.seed,
        pause=pause,
    )
    runner = web.AppRunner(
        proxy.application(), access_log=None, shutdown_timeout=_CLOSING_S, handler_cancellation=True
    )
    stack.push_async_callback(runner.cleanup)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    _, port, *_ = runner.addresses[0]
    return int(port)


def main() -> int:
    """Run the demo; return the exit code once standard input or the parent ends, or a signal arrives."""
    # Two ways to notice the parent's end: the kernel's signal is immediate and ends even a stopped process;
    # the end of stdin also covers a parent that died before this line.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Unbuffered: the event loop reads the bytes after the line.
    line = os.fdopen(sys.stdin.fileno(), "rb", 0, closefd=False).readline(_LONGEST_PLAN)
    if not line.endswith(b"\n"):
        return 0
    plan = msgspec.json.decode(line, type=DemoPlan)
    with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
        try:
            runner.run(_run(plan))
        except OSError as error:
            _write_report({"error": str(error)})
            return 1
    return 0


async def _run(plan: DemoPlan) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)

    def stop_at_end() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            stop.set()

    loop.add_reader(sys.stdin.fileno(), stop_at_end)
    async with run_cluster(plan) as report:
        _write_report(report)
        await stop.wait()


def event_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop factory if it is installed; None means the default."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _write_report(word: Mapping[str, object]) -> None:
    # A parent that has gone cannot read; its end is noticed elsewhere.
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(word) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
