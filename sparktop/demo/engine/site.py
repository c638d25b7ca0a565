"""Life cycle of a simulated server at one address: start, restarts and shutdown of its engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from aiohttp import web

from sparktop.demo.engine.cores import LiveCores
from sparktop.demo.engine.ledger import Ledger
from sparktop.demo.engine.live import LiveEngine
from sparktop.demo.engine.server import EngineServer
from sparktop.demo.faults.fault import FaultTimes
from sparktop.demo.faults.run import FaultRun
from sparktop.demo.machine_reader import MachineReader
from sparktop.demo.scenario import Restarts, Server
from sparktop.demo.visitors import Visitors
from sparktop.simulation.engine import Engine
from sparktop.simulation.routers import Router, make_router
from sparktop.simulation.thermal import NodeThermal

HOST = "127.0.0.1"
_CLOSING_S = 0.1


class EngineSite:
    """A simulated server and the machines that it runs on; its address stays the same over restarts."""

    def __init__(
        self,
        server: Server,
        thermals: Sequence[NodeThermal],
        readers: Sequence[MachineReader],
        *,
        seed: str,
        visitors: Visitors | None = None,
    ) -> None:
        """Store the settings without listening.

        `thermals` and `readers` have the thermal model and the sample reader of each machine of the engine;
        `visitors` is notified of requests that are not the demo's own load.
        """
        self._visitors = visitors
        self._server = server
        self._thermals = tuple(thermals)
        self._readers = tuple(readers)
        self._seed = seed
        self._starts = 0
        self._cores: tuple[LiveEngine, ...] = ()
        """The engine cores; empty while the server is down."""
        self._runner: web.AppRunner | None = None
        self._restarting: asyncio.Task[None] | None = None
        self.port = 0
        """Port of the server; 0 before the first `open`, then the same over restarts."""

    async def open(self) -> None:
        """Create a new engine, let it run on the machines, and listen for requests.

        Raises:
            OSError: the address cannot be used.
        """
        now = time.monotonic()
        seed = f"{self._seed}/{self._starts}"
        self._starts += 1
        self._cores = tuple(
            self._core(rank, f"{seed}/{rank}" if rank else seed, now) for rank in range(self._server.lanes)
        )
        several = len(self._cores) > 1
        live = LiveCores(self._cores, self._router(seed)) if several else self._cores[0]
        server = EngineServer(
            live,
            started_unix_s=time.time(),
            seed=seed,
            name=f"{self._server.name}-{self._starts}",
            visitors=self._visitors,
        )
        # A handler is cancelled when its client disconnects, which ends the request in the engine too.
        self._runner = web.AppRunner(
            server.application(), access_log=None, shutdown_timeout=_CLOSING_S, handler_cancellation=True
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, self.port, reuse_address=True).start()
        self.port = int(self._runner.addresses[0][1])

    def _core(self, rank: int, seed: str, now: float) -> LiveEngine:
        """Create the engine core with the data-parallel rank `rank` on the machines of its own."""
        profile = self._server.profile
        own = slice(rank * profile.nodes, (rank + 1) * profile.nodes)
        ledger = Ledger(profile.max_model_len)
        engine = Engine(profile, nodes=self._thermals[own], seed=seed, start_s=now, on_end=ledger.finished)
        for reader in self._readers[own]:
            reader.attach(engine)
        return LiveEngine(engine, ledger)

    def _router(self, seed: str) -> Router:
        """Return what chooses the engine core of each request, by the numbers of requests it knows of."""
        return make_router("least-busy", self._server.lanes, self._server.lane_counts, seed=seed)

    async def shut(self) -> None:
        """Stop the engine and close the port; responses in progress are cut off, as when a server dies."""
        cores, runner, self._cores, self._runner = self._cores, self._runner, (), None
        for core in cores:
            core.close()
        for reader in self._readers:
            reader.attach(None)
        if runner is not None:
            await runner.cleanup()

    async def close(self) -> None:
        """End periodic restarts, stop the engine and close the port."""
        if self._restarting is not None:
            self._restarting.cancel()
            with suppress(asyncio.CancelledError):
                await self._restarting
        await self.shut()

    def keep_restarting(self, restarts: Restarts) -> None:
        """Start a task that stops and restarts the server periodically; `close` ends this task."""
        self._restarting = asyncio.get_running_loop().create_task(self._restart(restarts))

    def keep_failing(self, times: FaultTimes) -> None:
        """Schedule a fault of the server at `times`, counted from now, repeated until `close`."""
        loop = asyncio.get_running_loop()
        if self._cores:
            live = self._cores[0]
            run = FaultRun(
                times.fault, lambda: live.engine.gauges, self._readers, hold=live.hold, later=loop.call_later
            )
            run.repeat(times)

    async def _restart(self, restarts: Restarts) -> None:
        while True:
            await asyncio.sleep(restarts.every_s - restarts.down_s)
            await self.shut()
            for reader in self._readers:
                if restarts.boot_s:
                    reader.reboot(restarts.boot_s)
            await asyncio.sleep(restarts.boot_s)
            if restarts.loads:
                for reader in self._readers:
                    reader.begin_start(restarts.down_s - restarts.boot_s)
            await asyncio.sleep(restarts.down_s - restarts.boot_s)
            await self.open()
