"""Check what panels and reports show of servers whose truth is defined here.

A scripted server has a page by a virtual clock, so every count at every moment is known; pages go through the
real parser and store.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from tables import Figure, relative

from sparktop.engines import read_page
from sparktop.model.snapshot import BackendView, Latency
from sparktop.model.targets import BackendTarget, Watch
from sparktop.store import SourceKey, Store

AREA = "watching"
BOUNDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Upper bounds of the scripted server's TTFT buckets in seconds."""
LOADED_S, WATCHED_S = 90, 80
"""Seconds of load, and seconds of polls, which end while the load rises."""


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

    def page(self, at: float, *, exemplars: bool = False) -> str:
        """Return vLLM's metrics page at a time."""
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
        return "\n".join(lines) + "\n"


def watched(truth: Truth, *, exemplars: bool = False) -> list[tuple[float, BackendView]]:
    """Poll a server each virtual second; return (time, what the store shows) of each poll."""
    clock = 0.0
    target = BackendTarget("b", "http://127.0.0.1:8000")
    epoch = datetime(2026, 1, 1, tzinfo=UTC)
    store = Store(
        Watch(backends=(target,)), clock=lambda: clock, now=lambda: epoch + timedelta(seconds=clock)
    )
    shown: list[tuple[float, BackendView]] = []
    for second in range(WATCHED_S):
        clock = float(second)
        sample = read_page(truth.page(clock, exemplars=exemplars).encode(), at=clock)
        store.accept(SourceKey.backend("b"), sample, 1.0)
        (view,) = store.snapshot().backends
        shown.append((clock, view))
    return shown


def figures(*, short: bool) -> Iterator[Figure]:
    """Yield the rows of rates, quantiles and state words."""
    for seed in (1,) if short else range(1, 9):
        yield from _rates_and_quantiles(seed)
    yield from _words(1 if short else 8)


def _rates_and_quantiles(seed: int) -> Iterator[Figure]:
    truth = Truth(seed)
    plain = watched(truth)
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
    marked = watched(truth, exemplars=True)
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
        for at, view in watched(truth):
            looks += 1
            moving = truth.tokens(at) > truth.tokens(at - 10.0)
            idle += view.state_text == "idle"
            wrong += view.state_text == "idle" and moving
            wrong += view.state_text == "busy" and not truth.running(at)
            wrong += view.state_text == "bored" and not (moving or truth.running(at))
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
