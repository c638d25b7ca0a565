"""Alerts: when they are raised, when they clear, that they do not flap."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
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


def test_events_have_no_countdown(world: World) -> None:
    """An alert that holds says when the next attempt begins; the event in the list was true only then."""
    for at, kind in enumerate((FailureKind.METRICS_DISABLED,) * 3 + (FailureKind.TIMEOUT,)):
        left_s = 9 - at
        world.feed(Failure(kind, f"b is away · reconnecting in {left_s} s", 1000.0 + at))
    assert [alert.message for alert in world.snapshot().alerts] == ["b is away · reconnecting in 6 s"]
    assert [event.message for event in world.snapshot().events] == ["b is away", "b is away"]


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


def test_a_cache_that_is_no_longer_reported_is_no_alert(world: World) -> None:
    """Without a reading nothing says that the cache is still full."""
    world.feed(lane(1000, kv_cache_percent=99.0))
    assert alerts(world) == [("backend:b:kv-full", Severity.WARNING)]
    world.feed(lane(1001))
    assert alerts(world) == []


def test_preempting_holds_for_half_a_minute(world: World) -> None:
    """One preemption raises it; it clears when 30 s passed without another."""
    counts = {second: float(second >= 3) + 5 for second in range(40)}
    held = []
    for second, count in counts.items():
        world.feed(lane(1000 + second, preemptions=count))
        held.append(bool(alerts(world)))
    assert held == [3 <= second <= 33 for second in range(40)]


def test_an_unreachable_backend_has_no_other_alert(world: World) -> None:
    """It is unknown whether the cache of a server that does not answer is full."""
    world.feed(lane(1000, kv_cache_percent=99.0))
    for at in (1001, 1002, 1003):
        world.fail(at)
    assert alerts(world) == [("backend:b:unreachable", Severity.CRITICAL)]


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


def test_headroom_of_other_machines_is_a_share(make_world: MakeWorld) -> None:
    """With GPU memory of its own, a tenth and a twentieth of the total count; unknown raises nothing."""
    world = make_world(Watch(nodes=(NodeTarget("n"),)))
    seen = [
        node_alerts(world, 1000 + step, MemoryReading(total_bytes=100, available_bytes=left))
        for step, left in enumerate((10, 9, 4, 50))
    ]
    assert seen == [[], [Severity.WARNING], [Severity.CRITICAL], []]
    assert node_alerts(world, 1010, MemoryReading()) == []


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


def test_what_happens_again_and_again_is_one_event(world: World) -> None:
    """Six outages in four minutes are a line with its count and rate, not a list of twelve."""
    for second in range(240):
        if second % 40 >= 32:
            world.fail(1000 + second)
        else:
            world.feed(lane(1000 + second))
    world.feed(lane(1240))
    messages = [event.message for event in world.snapshot().events]
    assert messages == ["down 6 times in 3 min: nothing listens there"]


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


def test_a_slow_server_stays_named_while_its_peer_is_away(make_world: MakeWorld) -> None:
    """With nothing to compare it with, the alert is believed for two minutes."""
    world = make_world(Watch(backends=(BackendTarget("b", "http://b"), BackendTarget("c", "http://c"))))
    held = []
    for second in range(300):
        if second < 60:
            world.feed(stepping(1000 + second, 60.0), name="b")
        else:
            world.store.accept(SourceKey.backend("b"), Failure(FailureKind.REFUSED, "gone", 1000 + second))
        world.feed(stepping(1000 + second, 500.0), name="c")
        held.append("backend:c:slow-steps" in dict(alerts(world)))
    assert held[40]
    assert held[170]
    assert not held[200]


@pytest.mark.parametrize("hours", [1, -1])
def test_a_step_of_the_wall_clock_neither_raises_nor_clears_slow_steps(
    hours: int, make_world: MakeWorld
) -> None:
    """Raised after ten seconds and kept for two minutes without a peer, both by the readings' own time."""
    world = make_world(Watch(backends=(BackendTarget("b", "http://b"), BackendTarget("c", "http://c"))))
    plain, held = world.store._now, []
    world.store._now = lambda: plain() + timedelta(hours=hours if world.at % 40 >= 20 else 0)
    for second in range(300):
        if second < 60:
            world.feed(stepping(1000 + second, 60.0), name="b")
        else:
            world.store.accept(SourceKey.backend("b"), Failure(FailureKind.REFUSED, "gone", 1000 + second))
        world.feed(stepping(1000 + second, 500.0), name="c")
        held.append("backend:c:slow-steps" in dict(alerts(world)))
    first = held.index(True)
    assert 15 <= first <= 30
    assert all(held[first:170])
    assert not held[200]


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
