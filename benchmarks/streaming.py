"""Measure how late simulated engines stream: 16 of them at 300 tokens/s each, on one core.

The engines' process is bound to one core, this one to the others. All use the same monotonic clock, so a
token's time in the model and its arrival here can be compared: how late it is, and how much of that had
passed before the engines' event loop handled it.

usage: streaming.py [--backends 16] [--tps 300] [--batch 8] [--seconds 20]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
from aiohttp import web
from msgspec.structs import replace

from sparktop.demo.engine import EngineServer, LiveEngine
from sparktop.demo.engine_page import Ledger
from sparktop.demo.process import event_loop_factory
from sparktop.model.load import RequestEnded
from sparktop.simulation.calibration import SOLO
from sparktop.simulation.engine import Engine, EngineEvent, EngineProfile

GOAL_MEDIAN_MS = 2.0
WARM_UP_S = 2.0
ID = re.compile(rb'"id":"([^"]+)"')
TOKEN_IDS = re.compile(rb'"token_ids":\[([0-9,]+)\]')

Times = dict[str, list[float]]
"""Times of the tokens of each request."""


class RecordingLedger(Ledger):
    """A ledger that also records when the model made each token."""

    def __init__(self, max_model_len: int, times: Times) -> None:
        """Record the times in `times`."""
        super().__init__(max_model_len)
        self._times = times
        self.late_s: list[float] = []
        """Seconds from each token's time in the model until the event loop handled it."""

    def hear(self, event: EngineEvent) -> None:
        """Count an event; record the time of a token."""
        super().hear(event)
        if not isinstance(event, RequestEnded):
            self._times[event.request_id].append(event.at)
            self.late_s.append(time.monotonic() - event.at)


def even_profile(tps: float, batch: int) -> EngineProfile:
    """Return an engine that makes `tps` tokens per second with `batch` requests of any context length."""
    cost = replace(SOLO.cost, weights_one_s=batch / tps, weights_exponent=0.0, row_s=0.0, context_token_s=0.0)
    cost = replace(cost, attention_pair_s=0.0, weights_clock_share=0.0)
    return replace(SOLO, cost=cost, jitter=0.0, max_model_len=1 << 20)


async def serve(backends: int, profile: EngineProfile) -> None:
    """Serve until standard input ends, then print the model's times and the CPU time used."""
    times: Times = defaultdict(list)
    ledgers: list[RecordingLedger] = []
    ports: list[int] = []
    for backend in range(backends):
        ledger = RecordingLedger(profile.max_model_len, times)
        ledgers.append(ledger)
        engine = Engine(profile, seed=backend, start_s=time.monotonic(), on_end=ledger.finished)
        server = EngineServer(LiveEngine(engine, ledger), started_unix_s=time.time(), name=f"b{backend}")
        runner = web.AppRunner(server.application(), access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ports.append(runner.addresses[0][1])
    print(json.dumps(ports), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    loop_ms = 1000 * statistics.median(late_s for ledger in ledgers for late_s in ledger.late_s)
    print(json.dumps({"times": times, "cpu_s": time.process_time(), "loop_ms": loop_ms}), flush=True)


async def keep_streaming(session: aiohttp.ClientSession, url: str, arrived: Times, tokens: int) -> None:
    """Request one answer after another; record the arrival of each token."""
    body = {
        "prompt": [1, 2, 3],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
    }
    while True:
        async with session.post(f"{url}/v1/completions", json=body) as response:
            rest = b""
            async for part in response.content.iter_any():
                at = time.monotonic()
                *events, rest = (rest + part).split(b"\n\n")
                for event in events:
                    name, ids = ID.search(event), TOKEN_IDS.search(event)
                    if name and ids:
                        arrived[name[1].decode()].extend([at] * (ids[1].count(b",") + 1))


async def load(urls: list[str], batch: int, seconds: float, tokens: int) -> Times:
    """Keep every engine's batch full for `seconds`; return the arrival times of tokens."""
    arrived: Times = defaultdict(list)
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        clients = [
            asyncio.ensure_future(keep_streaming(session, url, arrived, tokens))
            for url in urls
            for _ in range(batch)
        ]
        await asyncio.wait(clients, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    return arrived


@contextmanager
def engines(options: argparse.Namespace, core: int) -> Iterator[subprocess.Popen[str]]:
    """Run the engines' process on one core until the end of the block."""
    words = [sys.executable, __file__, "--serve", "--backends", str(options.backends)]
    words += ["--tps", str(options.tps), "--batch", str(options.batch)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        os.sched_setaffinity(process.pid, {core})
        try:
            yield process
        finally:
            process.kill()


def lateness_ms(model: Times, arrived: Times, since_s: float) -> list[float]:
    """Return the sorted delays in ms, from model to arrival, of tokens made after `since_s`."""
    return sorted(
        1000 * (came - made)
        for name, times in arrived.items()
        for came, made in zip(times, model.get(name, []), strict=False)
        if made >= since_s
    )


def measure(options: argparse.Namespace) -> int:
    """Print the table; return 1 if the goal is missed, else 0."""
    first, *others = sorted(os.sched_getaffinity(0))
    with engines(options, first) as process:
        if others:
            os.sched_setaffinity(0, set(others))
        assert process.stdin is not None  # noqa: S101 - opened as pipes
        assert process.stdout is not None  # noqa: S101 - as above
        urls = [f"http://127.0.0.1:{port}" for port in json.loads(process.stdout.readline())]
        began = time.monotonic()
        with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            arrived = runner.run(load(urls, options.batch, options.seconds + WARM_UP_S, int(2 * options.tps)))
        process.stdin.close()
        told = json.loads(process.stdout.readline())
    late = lateness_ms(told["times"], arrived, began + WARM_UP_S)
    wanted = options.backends * options.tps * options.seconds
    cuts = statistics.quantiles(late, n=100)
    print(
        "| engines | tokens/s wanted | came | told, median ms late | came, median | p90 | p99 | most | core |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    cpu_percent = 100 * told["cpu_s"] / (options.seconds + WARM_UP_S)
    print(
        f"| {options.backends} | {wanted / options.seconds:,.0f} | {len(late) / options.seconds:,.0f} "
        f"| {told['loop_ms']:.2f} | {cuts[49]:.2f} | {cuts[89]:.2f} | {cuts[98]:.2f} | {late[-1]:.1f} "
        f"| {cpu_percent:.0f} % |"
    )
    missed = cuts[49] > GOAL_MEDIAN_MS or len(late) < 0.95 * wanted
    print(
        f"goal: median within {GOAL_MEDIAN_MS:g} ms and 95 % of the tokens: {'missed' if missed else 'met'}"
    )
    return int(missed)


def main() -> int:
    """Measure, or run the engines with --serve."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backends", type=int, default=16)
    parser.add_argument("--tps", type=float, default=300.0, help="tokens per second of each engine")
    parser.add_argument("--batch", type=int, default=8, help="requests that each engine runs")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.serve:
        return measure(options)
    with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
        runner.run(serve(options.backends, even_profile(options.tps, options.batch)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
