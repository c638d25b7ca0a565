"""HTTP servers with scripted figures: at the edges of the buckets, or none at all."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from sparktop.demo.engine_page import EngineHistograms, engine_page
from sparktop.simulation.calibration import SOLO
from sparktop.simulation.engine import Engine, EngineTally
from tests.web_server import answering

HOST = "127.0.0.1"
TICKS_PER_S = 10
BUSY_S = 65
"""How long the server that stops is busy: a minute later its windows are empty."""
FEW_EVERY_S = 20


def _idle(histograms: EngineHistograms, tally: EngineTally, tick: int) -> None:
    """Serve no request."""


def _at_the_edges(histograms: EngineHistograms, tally: EngineTally, tick: int) -> None:
    """Observe times in the first buckets and beyond the last finite bounds; for first tokens, both."""
    histograms.by_name["time_to_first_token_seconds"].observe(0.0004 if tick % 5 else 9000.0)
    histograms.by_name["inter_token_latency_seconds"].observe(100.0)
    histograms.by_name["e2e_request_latency_seconds"].observe(9000.0)
    histograms.by_name["request_queue_time_seconds"].observe(0.0)
    tally.generation_tokens += 1


def _until_it_stops(histograms: EngineHistograms, tally: EngineTally, tick: int) -> None:
    """Observe ordinary times until requests stop."""
    if tick < BUSY_S * TICKS_PER_S:
        _serve(histograms, tally, tick)


def _few(histograms: EngineHistograms, tally: EngineTally, tick: int) -> None:
    """Serve three requests a minute: too few for quantiles."""
    number, between = divmod(tick, FEW_EVERY_S * TICKS_PER_S)
    if not between:
        _serve(histograms, tally, number)


def _serve(histograms: EngineHistograms, tally: EngineTally, number: int) -> None:
    share = number * 0.618 % 1  # spreads over 0…1, also in few steps
    histograms.by_name["time_to_first_token_seconds"].observe(0.02 + 0.7 * share)
    histograms.by_name["inter_token_latency_seconds"].observe(0.012 + 0.1 * share)
    histograms.by_name["e2e_request_latency_seconds"].observe(0.4 + 12 * share)
    histograms.by_name["request_queue_time_seconds"].observe(0.31 + 4 * share)
    tally.generation_tokens += 1


SCRIPTS: Mapping[str, Callable[[EngineHistograms, EngineTally, int], None]] = {
    "idle": _idle,
    "edges": _at_the_edges,
    "stops": _until_it_stops,
    "few": _few,
}


class ScriptedServer:
    """A metrics page with vLLM's names whose counts are a function of time alone."""

    def __init__(self, script: Callable[[EngineHistograms, EngineTally, int], None]) -> None:
        """Begin to count now."""
        self._engine = Engine(SOLO)
        self._histograms = EngineHistograms(SOLO.max_model_len)
        self._script = script
        self._began = time.monotonic()
        self._started_unix_s = time.time()
        self._ticks = 0

    async def metrics(self, _: web.Request) -> web.Response:
        """Count what is due since the last request; return the page."""
        due = int((time.monotonic() - self._began) * TICKS_PER_S)
        for tick in range(self._ticks, due):
            self._script(self._histograms, self._engine.tally, tick)
        self._ticks = due
        page = engine_page([(self._engine, self._histograms)], self._started_unix_s)
        return web.Response(body=page, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


@asynccontextmanager
async def scripted_servers() -> AsyncIterator[dict[str, str]]:
    """Serve a page for each script on the running loop; yield the URLs by name."""
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(answering("/metrics", ScriptedServer(script).metrics))
            for name, script in SCRIPTS.items()
        }
