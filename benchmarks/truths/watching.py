"""Check what panels and reports show of servers whose truth is defined here.

A scripted server on loopback answers by a virtual clock, so every count at every moment is known; pages go
through the real socket, parser and store.
"""

from __future__ import annotations

import asyncio
import math
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta

from tables import Figure, relative

from sparktop.model.failure import Failure
from sparktop.model.snapshot import BackendView, Latency
from sparktop.model.targets import BackendTarget, Watch
from sparktop.sources.engine_http import EngineSource
from sparktop.store import SourceKey, Store

AREA = "watching"
BOUNDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Upper bounds of the scripted server's TTFT buckets in seconds."""
LOADED_S, WATCHED_S = 90, 80
"""Seconds of load, and seconds of polls, which end while the load rises."""
Page = Callable[[float], tuple[int, str]]
"""Function from a virtual time in seconds to (HTTP status, body)."""


class Truth:
    """A server's requests: the start and end of each, its tokens and its TTFT."""

    def __init__(self, seed: int) -> None:
        """Draw a load that rises and falls, with pauses."""
        dice = random.Random(seed)  # noqa: S311 - a load, no secret
        self.ttfts: list[tuple[float, float]] = []
        self._token_at: list[float] = []
        self._spans: list[tuple[float, float]] = []
        at = 0.0
        while at < LOADED_S:
            at += dice.expovariate(4.0)
            if math.sin(at / 9.0) < -0.6 and dice.random() < 0.98:
                continue
            ttft, tokens, pace = dice.lognormvariate(-1.2, 0.6), dice.randrange(5, 60), 0.03
            self.ttfts.append((at + ttft, ttft))
            self._token_at += [at + ttft + number * pace for number in range(tokens)]
            self._spans.append((at, at + ttft + tokens * pace))
        self.ttfts.sort()
        self._token_at.sort()

    def tokens(self, at: float) -> int:
        """Return the number of tokens generated up to a time."""
        return bisect_right(self._token_at, at)

    def running(self, at: float) -> int:
        """Return the number of requests running at a time."""
        return sum(begin <= at < end for begin, end in self._spans)

    def page(self, at: float, *, exemplars: bool = False) -> tuple[int, str]:
        """Return (HTTP status, vLLM's metrics page) at a time."""
        seen = [ttft for came, ttft in self.ttfts if came <= at]
        name, model = "vllm:time_to_first_token_seconds", 'model_name="m"'
        after = ' # {trace_id="0af7"} 0.07 1700000000.0' if exemplars else ""
        lines = [
            f"vllm:num_requests_running{{{model}}} {self.running(at)}",
            f"vllm:num_requests_waiting{{{model}}} 0",
            f"vllm:generation_tokens_total{{{model}}} {self.tokens(at)}{after}",
            *(f'{name}_bucket{{{model},le="{b}"}} {sum(t <= b for t in seen)}{after}' for b in BOUNDS),
            f'{name}_bucket{{{model},le="+Inf"}} {len(seen)}{after}',
            f"{name}_sum{{{model}}} {math.fsum(seen)}",
            f"{name}_count{{{model}}} {len(seen)}",
            "process_start_time_seconds 1.7e9",
        ]
        return 200, "\n".join(lines) + "\n"


async def watched(page: Page, seconds: int, *, health: Page | None = None) -> list[tuple[float, BackendView]]:
    """Poll a server on loopback each virtual second; return (time, what the store shows) of each poll."""
    clock = 0.0
    answers: set[asyncio.Task[None] | None] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers.add(asyncio.current_task())
        with closing(writer):
            while path := await _path(reader):
                asked = {b"/metrics": page, b"/health": health}.get(path)
                status, body = asked(clock) if asked else (404, "")
                head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body.encode())

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    target = BackendTarget("b", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    epoch = datetime(2026, 1, 1, tzinfo=UTC)
    store = Store(
        Watch(backends=(target,)), clock=lambda: clock, now=lambda: epoch + timedelta(seconds=clock)
    )
    source = EngineSource(target, clock=lambda: clock)
    shown: list[tuple[float, BackendView]] = []
    for second in range(seconds):
        clock = float(second)
        reading = await source.poll(5.0)
        store.accept(SourceKey.backend("b"), reading, 1.0)
        (view,) = store.snapshot().backends
        shown.append((clock, view))
        await asyncio.sleep(0)  # background requests are answered between polls
        if source.identity is None or isinstance(reading, Failure):
            await asyncio.sleep(0.01)
    await source.close()
    server.close()
    await asyncio.gather(*(one for one in answers if one is not None))
    await asyncio.sleep(0)  # a closed transport releases its socket in the loop's next iteration
    return shown


async def _path(reader: asyncio.StreamReader) -> bytes:
    """Return the path of the next request; b"" if the client has disconnected."""
    try:
        return (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


def figures(*, short: bool) -> Iterator[Figure]:
    """Yield the rows of rates, quantiles and state words."""
    for seed in (1,) if short else range(1, 9):
        yield from _rates_and_quantiles(seed)
    yield from _words(1 if short else 8)
    yield from _dead_engines()


def _rates_and_quantiles(seed: int) -> Iterator[Figure]:
    truth = Truth(seed)
    plain = asyncio.run(watched(truth.page, WATCHED_S))
    at, view = plain[-1]
    rate = (truth.tokens(at) - truth.tokens(at - 10.0)) / 10.0
    yield relative(AREA, f"tokens/s over 10 s, load {seed}", rate, view.generation_tps, 0.4, " /s")
    live = (truth.tokens(at) - truth.tokens(at - 1.0)) / 1.0
    yield relative(AREA, f"tokens/s live, load {seed}", live, view.generation_tps_1s, 0.4, " /s")
    window = [ttft for came, ttft in truth.ttfts if at - 60.0 < came <= at]
    yield relative(
        AREA,
        f"TTFT mean over 60 s, load {seed}",
        math.fsum(window) / len(window),
        view.ttft.mean_s,
        0.01,
        " s",
    )
    yield from _quantiles(f"load {seed}", window, view.ttft)
    marked = asyncio.run(watched(lambda now: truth.page(now, exemplars=True), WATCHED_S))
    yield from _quantiles(f"load {seed}, page with exemplars", window, marked[-1][1].ttft)


def _quantiles(condition: str, window: Sequence[float], shown: Latency) -> Iterator[Figure]:
    """Yield p50 and p95; the truth is interpolated in its bucket as by histogram_quantile."""
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        rank = share * len(window)
        edge = next(bound for bound in BOUNDS if sum(ttft <= bound for ttft in window) >= rank)
        below = max((bound for bound in BOUNDS if bound < edge), default=0.0)
        under, inside = sum(ttft <= below for ttft in window), sum(below < ttft <= edge for ttft in window)
        quantile = getattr(shown, name)
        seconds = None if quantile is None else quantile.seconds
        truth = below + (edge - below) * (rank - under) / inside
        yield relative(AREA, f"TTFT {name} over 60 s, {condition}", truth, seconds, 0.01, " s")


def _words(loads: int) -> Iterator[Figure]:
    """Count the polls after which the state word contradicts the figures beside it."""
    looks = wrong = idle = 0
    for seed in range(100, 100 + loads):
        truth = Truth(seed)
        for at, view in asyncio.run(watched(truth.page, WATCHED_S)):
            looks += 1
            moving = truth.tokens(at) > truth.tokens(at - 10.0)
            idle += view.state_text == "idle"
            wrong += view.state_text == "idle" and moving
            wrong += view.state_text in {"busy", "bored"} and not truth.running(at)
            wrong += view.state_text == "queueing" and not view.waiting
    yield Figure(
        AREA,
        "state words beside figures of another window",
        "0",
        f"{wrong} of {looks} looks",
        f"{wrong} of {looks}",
        "0 looks",
        holds=wrong == 0 and looks > idle,
    )


def _dead_engines() -> Iterator[Figure]:
    vllm = Truth(7)
    sglang = 'sglang:num_running_reqs{tp_rank="0"} 1\n'
    cases: tuple[tuple[str, str, Page, Page | None], ...] = (
        ("vLLM, page alive, /health 503", "engine dead", vllm.page, lambda at: (503 if at > 5 else 200, "")),
        ("vLLM, page 503", "engine dead", lambda at: (503, "") if at > 5 else vllm.page(at), None),
        ("SGLang, page 503", "loading", lambda at: (503, "") if at > 5 else (200, sglang), None),
        ("never seen, page 503", "loading", lambda _: (503, ""), None),
    )
    for name, word, page, health in cases:
        shown = asyncio.run(watched(page, 30, health=health))[-1][1].state.value
        yield Figure(AREA, name, word, shown, "–", "the word", holds=shown == word)
