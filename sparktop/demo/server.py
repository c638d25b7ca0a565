"""The simulated engines' process: one HTTP server each, on 127.0.0.1, until standard input ends.

Run as `python -m sparktop.demo.server`; prints one JSON line when it serves (`{"ports": [...]}`) or cannot
(`{"error": "..."}`).
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable

from aiohttp import web

from sparktop.demo.load import Swing
from sparktop.demo.model import EngineModel, EngineSpec
from sparktop.demo.page import render_page

VERSION = "0.32.0+simulated"
HOST = "127.0.0.1"
_WARM_UP_S = 30.0
"""Model time that has passed when a server starts: its first page already shows load."""
_CATCH_UP_S = 10.0
"""Model time that one request for a page makes up for at most: after hours of suspend, not hours of steps."""
_PR_SET_PDEATHSIG = 1


class SimulatedServer:
    """An engine and the clock that moves it, as an aiohttp application."""

    def __init__(self, engine: EngineModel, clock: Callable[[], float], started_unix_s: float) -> None:
        """Start the engine warm; `clock` gives monotonic seconds."""
        self._engine = engine
        self._clock = clock
        self._seen_s = clock()
        self._model_s = _WARM_UP_S
        self._started_unix_s = started_unix_s - _WARM_UP_S
        engine.advance(self._model_s)

    def page(self) -> str:
        """Move the engine to now and write its metrics page."""
        now = self._clock()
        self._model_s += min(now - self._seen_s, _CATCH_UP_S)
        self._seen_s = now
        self._engine.advance(self._model_s)
        return render_page(self._engine, self._started_unix_s)

    def application(self) -> web.Application:
        """Give the application that answers /metrics, /v1/models, /version and /health."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/version", self._version)
        app.router.add_get("/health", self._health)
        return app

    async def _metrics(self, _: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=self.page().encode(), headers=headers)

    async def _models(self, _: web.Request) -> web.Response:
        spec = self._engine.spec
        model = {
            "id": spec.model,
            "object": "model",
            "created": int(self._started_unix_s),
            "owned_by": "sparktop demo",
            "root": spec.model,
            "parent": None,
            "max_model_len": spec.max_model_len,
        }
        return web.json_response({"object": "list", "data": [model]})

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": VERSION})

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()


def make_engines(backends: int, seed: int) -> list[EngineModel]:
    """Make engines whose load swings one after the other, so that while one is full another is not."""
    swings = [Swing(phase=index / backends) for index in range(backends)]
    return [EngineModel(EngineSpec(), swing, f"{seed}/{index}") for index, swing in enumerate(swings)]


def main(arguments: list[str] | None = None) -> int:
    """Serve until standard input ends, the parent dies or a signal comes."""
    parser = argparse.ArgumentParser(prog="python -m sparktop.demo.server")
    parser.add_argument("--backends", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    # Two ways to notice the parent's end: the signal is at once, the end of stdin also covers a parent that
    # died before this line.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    try:
        asyncio.run(_serve(options.backends, options.seed))
    except OSError as error:
        _say({"error": str(error)})
        return 1
    return 0


async def _serve(backends: int, seed: int) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    loop.add_reader(sys.stdin.fileno(), _stop_at_end, sys.stdin.fileno(), stop)
    runners: list[web.AppRunner] = []
    ports: list[int] = []
    try:
        for engine in make_engines(backends, seed):
            server = SimulatedServer(engine, time.monotonic, time.time())
            runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=0.5)
            runners.append(runner)
            await runner.setup()
            await web.TCPSite(runner, HOST, 0).start()
            ports.append(runner.addresses[0][1])
        _say({"ports": ports})
        await stop.wait()
    finally:
        for runner in runners:
            await runner.cleanup()


def _say(word: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(word) + "\n")
    sys.stdout.flush()


def _stop_at_end(descriptor: int, stop: asyncio.Event) -> None:
    if not os.read(descriptor, 4096):
        stop.set()


if __name__ == "__main__":
    sys.exit(main())
