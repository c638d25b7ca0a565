"""Alerts: when they are raised, when they clear, that they do not flap."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.event import Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import MemoryReading, NodeSample
from sparktop.model.snapshot import BackendState
from sparktop.model.targets import BackendTarget, NodeTarget, StateThresholds, Watch
from sparktop.store import SourceKey

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import
MakeWorld = Callable[..., World]

GIB = 2**30


def alerts(world: World) -> list[tuple[str, Severity]]:
    return [(alert.id, alert.severity) for alert in world.snapshot().alerts]


def lane(at: float, start_time: float | None = None, **told: Any) -> EngineSample:  # noqa: ANN401 - fields
    return EngineSample(at, "vllm", (LaneSample("0", running=1.0, **told),), start_time=start_time)


def test_three_failures_or_three_seconds_are_down(world: World) -> None:
    """Two quick failures raise nothing; the third does, as does a second one 3 s later, since the first."""
    world.fail(1000)
    world.fail(1001)
    assert alerts(world) == []
    world.fail(1002)
    assert alerts(world) == [("backend:b:unreachable", Severity.CRITICAL)]
    assert world.snapshot().alerts[0].since == world.view().failing_since
    world.feed(lane(1003))
    assert alerts(world) == []
    world.fail(1004)
    world.fail(1007)
    assert alerts(world) == [("backend:b:unreachable", Severity.CRITICAL)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (FailureKind.LOADING, []),
        (FailureKind.METRICS_DISABLED, [Severity.WARNING]),
        (FailureKind.UNSUPPORTED, [Severity.WARNING]),
        (FailureKind.TIMEOUT, [Severity.CRITICAL]),
    ],
)
def test_not_every_failure_is_an_outage(world: World, kind: FailureKind, expected: list[Severity]) -> None:
    """A loading server raises nothing, one that only reports no figures a warning."""
    for at in range(1000, 1005):
        world.fail(at, kind)
    assert [alert.severity for alert in world.snapshot().alerts] == expected
    assert [event.severity for event in world.snapshot().events] == expected


def test_a_dead_engine_is_an_alert_of_its_own(world: World) -> None:
    """It is not "unreachable", for it answers; when its server goes too the one alert follows the other."""
    for at in range(1000, 1004):
        world.fail(at, FailureKind.ENGINE_DEAD)
    assert alerts(world) == [("backend:b:engine-dead", Severity.CRITICAL)]
    assert world.view().state is BackendState.ENGINE_DEAD
    for at in range(1004, 1008):
        world.fail(at, FailureKind.REFUSED)
    assert alerts(world) == [("backend:b:unreachable", Severity.CRITICAL)]
    world.feed(lane(1009))
    assert alerts(world) == []
    assert [(event.severity, event.kind) for event in world.snapshot().events] == [
        (Severity.CRITICAL, "engine-dead"),
        (Severity.INFO, "engine-dead"),
        (Severity.CRITICAL, "unreachable"),
        (Severity.INFO, "unreachable"),
    ]


def test_a_full_cache_does_not_flap(world: World) -> None:
    """Raised at 98 %, kept while it wavers, cleared below 95 %, `since` kept throughout."""
    held: list[bool] = []
    for second, percent in enumerate((97.9, 98.0, 97.0, 98.5, 95.0, 94.9)):
        world.feed(lane(1000 + second, kv_cache_percent=percent))
        held.append(bool(alerts(world)))
        if held[-1]:
            assert (
                world.snapshot().alerts[0].since - world.snapshot().taken_at
            ).total_seconds() == 1 - second
    assert held == [False, True, True, True, True, False]


def test_preempting_holds_for_half_a_minute(world: World) -> None:
    """One preemption raises it; it clears when 30 s passed without another."""
    counts = {second: float(second >= 3) + 5 for second in range(40)}
    held = []
    for second, count in counts.items():
        world.feed(lane(1000 + second, preemptions=count))
        held.append(bool(alerts(world)))
    assert held == [3 <= second <= 33 for second in range(40)]


def node_alerts(world: World, at: float, memory: MemoryReading) -> list[Severity]:
    world.at = at
    world.store.accept(SourceKey.node("n"), NodeSample(at, memory=memory))
    return [alert.severity for alert in world.snapshot().alerts]


def test_headroom_of_unified_memory_has_its_own_limits(make_world: MakeWorld) -> None:
    """Below 12 GiB a warning, below 8 critical, each cleared a tenth above its limit."""
    world = make_world(Watch(nodes=(NodeTarget("n"),)))
    seen = [
        node_alerts(world, 1000 + step, MemoryReading(unified=True, headroom_bytes=int(gib * GIB)))
        for step, gib in enumerate((12.5, 11.9, 12.5, 7.9, 8.5, 9.0, 12.5, 13.3))
    ]
    warn, critical = [Severity.WARNING], [Severity.CRITICAL]
    assert seen == [[], warn, warn, critical, critical, warn, warn, []]


def test_the_gravest_comes_first(make_world: MakeWorld) -> None:
    """Alerts are sorted by severity, then by age."""
    world = make_world(Watch(nodes=(NodeTarget("n"), NodeTarget("m"))))
    node_alerts(world, 1000, MemoryReading(total_bytes=100, available_bytes=9))
    for at in (1001, 1002, 1003):
        world.store.accept(SourceKey.node("m"), Failure(FailureKind.INTERNAL, "broke", at))
    assert alerts(world) == [
        ("node:m:unreachable", Severity.CRITICAL),
        ("node:n:headroom", Severity.WARNING),
    ]


def test_a_server_that_restarts_again_and_again_is_one_alert(world: World) -> None:
    """Every 40 s, 8 s down each time: one line that counts, outlives outages, ends after ten minutes."""
    seen: list[tuple[int, str]] = []
    for second in range(1000):
        cycle, phase = divmod(second, 40)
        if phase >= 32 and cycle < 6:
            world.fail(1000 + second)
        else:
            start = float(min(cycle, 6) * 40)
            world.feed(lane(1000 + second, start_time=start, generation_tokens=second - start))
        seen += [
            (second, alert.message) for alert in world.snapshot().alerts if alert.id == "backend:b:restarts"
        ]
    counts = list(dict.fromkeys(message.partition(" times")[0] for _, message in seen))
    assert counts[:5] == [f"restarted {count}" for count in (2, 3, 4, 5, 6)]
    held = {second for second, _ in seen}
    assert held >= set(range(81, 640))
    assert 900 not in held


def stepping(at: float, step_ms: float, running: float = 8.0, batch: float = 8.0) -> EngineSample:
    """Return a page of a server that has made a step every `step_ms` since time 0."""
    steps = at * 1000.0 / step_ms
    tokens = Histogram((1e6, math.inf), (steps, steps), steps * batch)
    return EngineSample(
        at,
        "vllm",
        (LaneSample("0", running=running, generation_tokens=steps * batch, step_tokens=tokens),),
        ("m",),
    )


@pytest.mark.parametrize(
    ("slow", "slow_batch", "alerted"),
    [(60.0, 8.0, False), (170.0, 8.0, False), (500.0, 8.0, True), (500.0, 29.0, True), (500.0, 256.0, False)],
)
def test_steps_that_are_slow_beside_its_peer_s_are_an_alert(
    make_world: MakeWorld,
    slow: float,
    slow_batch: float,
    alerted: bool,  # noqa: FBT001 - a case
) -> None:
    """Steps of 3 times the peer's raise it for a like batch; a batch 32 times as large explains 8 times."""
    world = make_world(Watch(backends=(BackendTarget("b", "http://b"), BackendTarget("c", "http://c"))))
    for second in range(60):
        world.feed(stepping(1000 + second, 60.0), name="b")
        world.feed(stepping(1000 + second, slow, batch=slow_batch), name="c")
    found = [(alert.id, alert.message) for alert in world.snapshot().alerts]
    assert [name for name, _ in found] == (["backend:c:slow-steps"] if alerted else [])
    assert not alerted or "500 ms each at 8 running, b's take 60 ms at 8" in found[0][1]


def failing(at: float, **counts: float) -> EngineSample:
    return EngineSample(at, "vllm", (LaneSample("0", running=1.0, counts=counts),))


def test_refused_requests_are_an_alert_until_a_minute_passed_without(world: World) -> None:
    """Two refusals are too few, the third raises it; the figure follows; old refusals do not count."""
    for at, refused in ((1000, 7.0), (1010, 9.0)):
        world.feed(failing(at, refused=refused))
    assert alerts(world) == []
    world.feed(failing(1020, refused=10.0))
    (alert,) = world.snapshot().alerts
    assert (alert.id, alert.severity) == ("backend:b:refused", Severity.WARNING)
    assert alert.message == (
        "refused 3 requests in the last 60 s: its queue is full; send fewer at once, or add a server"
    )
    assert alert.values == {"refused": 3, "limit_per_min": 3.0, "window_s": 60.0}
    for at in range(1021, 1082):
        world.feed(failing(at, refused=10.0))
    assert alerts(world) == []
    assert [(one.kind, one.phase) for one in world.snapshot().events] == [
        ("refused", "begin"),
        ("refused", "end"),
    ]


def test_http_errors_are_an_alert_with_their_share(world: World) -> None:
    """Only 5xx count, as the server's fault, with their share of all answers; 4xx are the client's."""
    world.feed(failing(1000, http_answers=10.0, http_4xx=0.0, http_5xx=0.0))
    world.feed(failing(1010, http_answers=100.0, http_4xx=30.0, http_5xx=0.0))
    assert alerts(world) == []
    world.feed(failing(1020, http_answers=210.0, http_4xx=30.0, http_5xx=4.0))
    (alert,) = world.snapshot().alerts
    assert alert.id == "backend:b:http-errors"
    assert (
        alert.message == "answered 4 requests (2 % of all) with HTTP 5xx in the last 60 s: its log says why"
    )


@pytest.mark.parametrize("limit", [None, 0.0])
def test_alerts_about_failed_requests_can_be_off(make_world: MakeWorld, limit: float | None) -> None:
    """Without a limit nothing is raised."""
    off = StateThresholds(refused_warn_per_min=limit, http_5xx_warn_per_min=limit)
    world = make_world(Watch(backends=(BackendTarget("b", "http://b:8000"),), thresholds=off))
    for at in range(5):
        world.feed(failing(1000 + at, refused=50.0 * at, http_answers=50.0 * at, http_5xx=50.0 * at))
    assert alerts(world) == []
