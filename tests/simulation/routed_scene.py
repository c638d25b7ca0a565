"""Two simulated engines behind a router under a closed loop, for the tests of single mechanisms."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from msgspec.structs import replace

from sparktop.model.load import EndReason, Level, LoadEvent, LoadMode, RequestEnded, RequestStarted
from sparktop.simulation.calibration import SOLO
from sparktop.simulation.engine import Engine
from sparktop.simulation.routers import RouterSettings, make_router
from stage.clients import ClosedLoop, ProxySettings, RoutedDestination, VirtualTime
from stage.load_trace import LoadTrace, imbalance, period_s

ROOMY = replace(SOLO, max_num_seqs=128)
"""No request waits for a slot: what is slow is slow because of the batch alone."""

AS_GIVEN = RouterSettings()
SPREAD = ProxySettings(arrival_spread_s=0.002)


@dataclass(frozen=True, slots=True)
class Scene:
    """What is simulated."""

    strategy: str = "least-busy"
    settings: RouterSettings = AS_GIVEN
    habits: ProxySettings = SPREAD
    clients: int = 64
    prompt: int = 64
    output: int = 128
    variable: bool = False
    workers: int = 1
    seconds: float = 240.0
    warm_s: float = 60.0
    stagger_s: float = 0.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Seen:
    """The results, after the warm-up unless said otherwise."""

    tps: float
    loads: Sequence[tuple[int, ...]]
    """Four a second, from the start on."""
    steady: Sequence[tuple[int, ...]]
    imbalance: float
    period_s: float | None
    e2e_s: float
    """Median of the requests that an engine worked on, failed ones included."""
    way: RoutedDestination
    events: Sequence[LoadEvent]


def play(scene: Scene) -> Seen:
    """Run a scene."""
    engines = [Engine(ROOMY, seed=at, token_events=False) for at in range(2)]
    virtual = VirtualTime(engines)
    routers = [make_router(scene.strategy, 2, scene.settings, seed=worker) for worker in range(scene.workers)]
    way = RoutedDestination(virtual, routers, scene.habits, seed=scene.seed)
    level = Level(
        "scene",
        scene.clients,
        scene.prompt,
        scene.output,
        mode=LoadMode.STEADY,
        duration_s=scene.seconds + 1,
    )

    def lengths(source: random.Random) -> tuple[int, int]:
        return scene.prompt, round(source.uniform(0.5, 1.5) * scene.output)

    drawn = lengths if scene.variable else None
    loop = ClosedLoop(virtual, way, level, seed=scene.seed, lengths=drawn, stagger_s=scene.stagger_s)
    loop.start()
    trace = LoadTrace(virtual, way, until_s=scene.seconds)
    virtual.run(scene.warm_s)
    before = sum(engine.tally.generation_tokens for engine in engines)
    virtual.run(scene.seconds)
    made = sum(engine.tally.generation_tokens for engine in engines) - before
    steady = trace.since(scene.warm_s)
    uneven = imbalance(steady)
    assert uneven is not None
    return Seen(
        tps=made / (scene.seconds - scene.warm_s),
        loads=trace.loads,
        steady=steady,
        imbalance=uneven,
        period_s=period_s(steady, trace.every_s),
        e2e_s=median(lives(loop.events, scene.warm_s)),
        way=way,
        events=loop.events,
    )


def lives(events: Sequence[LoadEvent], since_s: float) -> list[float]:
    """Return the durations of requests that ended after a time and had a token."""
    started = {event.request_id: event.at for event in events if isinstance(event, RequestStarted)}
    return [
        event.at - started[event.request_id]
        for event in events
        if isinstance(event, RequestEnded)
        and event.at >= since_s
        and event.generated_tokens
        and event.reason is not EndReason.ABORT
    ]


def one_sided(rows: Sequence[tuple[int, ...]]) -> float:
    """Return the share of the rows in which one of two backends has nine tenths of the load or more."""
    return sum(max(row) >= 0.9 * sum(row) > 0 for row in rows) / len(rows)


def skew(rows: Sequence[tuple[int, ...]]) -> list[float]:
    """Return (first - second) / both for each row with load."""
    return [(first - second) / (first + second) for first, second in rows if first + second]
