"""Alerts of servers and machines: when they are raised, when they clear, that they do not flap.

What the store makes of a node's samples: histories, late samples, throttling, headroom, speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.graphics import numbers
from sparktop.model.engine import Histogram
from sparktop.model.event import Alert, Phase, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.instant import Instant
from sparktop.model.node import (
    GpuReading,
    MemoryReading,
    NetworkReading,
    NodeSample,
    SensorReading,
)
from sparktop.model.snapshot import BackendState, Snapshot
from sparktop.model.targets import BackendTarget, NodeTarget, NodeThresholds, Watch
from sparktop.model.text import clean
from sparktop.panels.board.events import events_screen
from sparktop.panels.parts.text import row_text
from sparktop.store import SourceKey
from sparktop.store.alerts import judge_health
from sparktop.store.event_log import ActiveAlerts, EventLog
from sparktop.store.sources import Health
from tests.store.conftest import EPOCH, World

GIB = 2**30


def alerts(world: World) -> list[tuple[str, Severity]]:
    return [(alert.id, alert.severity) for alert in world.snapshot().alerts]


def test_three_failures_or_three_seconds_are_down(world: World) -> None:
    """Two quick failures raise nothing; the third does, as does a second one 3 s later, since the first."""
    world.fail(1000)
    world.fail(1001)
    assert alerts(world) == []
    world.fail(1002)
    assert alerts(world) == [("backend:b:unreachable", Severity.CRITICAL)]
    assert world.snapshot().alerts[0].since == world.view().failing_since
    world.lane(1003)
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


def test_what_is_said_of_a_start_stays_while_its_server_does_not_answer() -> None:
    """A start that hangs or lacks memory does so before the server answers; other alerts end then."""
    active, key, health = ActiveAlerts(EventLog()), SourceKey.backend("b"), Health()
    kinds = ("restarts", "start-short", "start-short/spark-a", "start-stuck", "kv-full")
    for kind in kinds:
        active.hold(f"{key.label}:{kind}", Severity.WARNING, "b", kind, {}, Instant(1.0, EPOCH))
    for at in (1.0, 5.0):
        health.bad(Failure(FailureKind.REFUSED, "nothing listens", at), EPOCH)
    judge_health(active, key, health, Instant(5.0, EPOCH))
    left = [kind for kind in (*kinds, "unreachable") if active.get(f"{key.label}:{kind}") is not None]
    assert left == ["restarts", "start-short", "start-short/spark-a", "start-stuck", "unreachable"]


def test_an_alert_keeps_since_when_it_is_critical() -> None:
    """Its beginning is that of the warning; the screen names both, while it is critical."""
    active, start = ActiveAlerts(EventLog()), Instant(1.0, EPOCH)
    for after_s, severity in ((0.0, Severity.WARNING), (44.0, Severity.CRITICAL), (50.0, Severity.CRITICAL)):
        active.hold("node:m:headroom", severity, "m", "7.9 GiB of memory left", {}, start.before(-after_s))
    (alert,) = active.view()
    assert (alert.since, alert.worst_since) == (EPOCH, EPOCH + timedelta(seconds=44))
    for shown, is_said in ((alert, True), (replace(alert, severity=Severity.WARNING), False)):
        rows = events_screen(Snapshot(EPOCH, 60.0, 1.0, 2.0, alerts=(shown,)), 120, 5)
        assert (", critical since " in "".join(map(row_text, rows))) == is_said
        assert (", critical since 00:00:44" in shown.since_words(lambda at: f"{at:%H:%M:%S}")) == is_said


def test_a_dead_engine_is_an_alert_of_its_own(world: World) -> None:
    """It is not "unreachable", for it answers; when its server goes too the one alert follows the other."""
    for at in range(1000, 1004):
        world.fail(at, FailureKind.ENGINE_DEAD)
    assert alerts(world) == [("backend:b:engine-dead", Severity.CRITICAL)]
    assert world.view().state is BackendState.ENGINE_DEAD
    for at in range(1004, 1008):
        world.fail(at, FailureKind.REFUSED)
    assert alerts(world) == [("backend:b:unreachable", Severity.CRITICAL)]
    world.lane(1009)
    assert alerts(world) == []
    assert [(event.severity, event.kind) for event in world.snapshot().events] == [
        (Severity.CRITICAL, "engine-dead"),
        (Severity.INFO, "engine-dead"),
        (Severity.CRITICAL, "unreachable"),
        (Severity.INFO, "unreachable"),
    ]


def test_a_full_cache_does_not_flap(world: World) -> None:
    """Raised at 98 %, kept while it wavers, with the value of now; cleared below 95 %; `since` stays."""
    held: list[bool] = []
    for second, percent in enumerate((97.9, 98.0, 97.0, 98.5, 95.0, 94.9)):
        world.lane(1000 + second, kv_cache_percent=percent)
        held.append(bool(alerts(world)))
        if held[-1]:
            assert world.snapshot().alerts[0].message == f"KV cache {percent:.0f} % full"
            assert (
                world.snapshot().alerts[0].since - world.snapshot().taken_at
            ).total_seconds() == 1 - second
    assert held == [False, True, True, True, True, False]


def test_the_gravest_comes_first() -> None:
    """Alerts are sorted by severity, then by age."""
    world = World(Watch(nodes=(NodeTarget("n"), NodeTarget("m"))))
    short = MemoryReading(total_bytes=100, available_bytes=9)
    world.store.accept(NODE, NodeSample(1000, memory=short))
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
            world.lane(1000 + second, running=1.0, start_time=start, generation_tokens=second - start)
        seen += [
            (second, alert.message) for alert in world.snapshot().alerts if alert.id == "backend:b:restarts"
        ]
    assert seen[0][1] == "restarted 2 times in 40 s: its log says why it ends", "only that time was watched"
    assert len({message for _, message in seen if "restarted 2 times" in message}) == 1, "not until now"
    counts = list(dict.fromkeys(message.partition(" times")[0] for _, message in seen))
    assert counts[:5] == [f"restarted {count}" for count in (2, 3, 4, 5, 6)]
    held = {second for second, _ in seen}
    assert held >= set(range(81, 640))
    assert 900 not in held


@pytest.mark.parametrize(
    ("slow", "slow_batch", "alerted"),
    [
        (170.0, 8.0, ""),
        (500.0, 8.0, "500 ms each at 8 requests; b would need about 60 ms for such a batch: 8.3 × as long"),
        (500.0, 256.0, ""),
        (2000.0, 16.0, "2,000 ms each at 8 requests; b would need about 85 ms for such a batch: 23.6 × "),
    ],
)
def test_steps_that_are_slow_beside_its_peer_s_are_an_alert(
    slow: float, slow_batch: float, alerted: str
) -> None:
    """Steps of 3 times the peer's raise it for a like batch; a batch 32 times as large explains 8 times."""
    world = World(Watch(backends=(BackendTarget("b", "http://b"), BackendTarget("c", "http://c"))))
    for second in range(60):
        for name, step_ms, batch in (("b", 60.0, 8.0), ("c", slow, slow_batch)):
            steps = (1000 + second) * 1000.0 / step_ms
            made = Histogram((1e6, math.inf), (steps, steps), steps * batch)
            world.lane(1000 + second, name, running=8.0, generation_tokens=steps * batch, step_tokens=made)
    found = [(alert.id, alert.message) for alert in world.snapshot().alerts]
    assert [name for name, _ in found] == (["backend:c:slow-steps"] if alerted else [])
    assert not alerted or alerted in found[0][1]


def test_that_most_clients_leave_is_said_once_it_is_many(world: World) -> None:
    """Half of a minute's requests and at least 20; a quarter is the usual of editors, and clears it."""
    world.lane(1000, running=1.0, finished={"length": 100.0, "abort": 0.0})
    world.lane(1030, running=1.0, finished={"length": 110.0, "abort": 19.0})
    assert alerts(world) == []
    world.lane(1040, running=1.0, finished={"length": 115.0, "abort": 24.0})
    (alert,) = world.snapshot().alerts
    assert (alert.id, alert.severity) == ("backend:b:aborted", Severity.INFO)
    assert alert.message == "24 of 39 requests ended in the last 60 s because their client left"
    world.lane(1099, running=1.0, finished={"length": 215.0, "abort": 30.0})
    assert alerts(world) == []


@pytest.mark.parametrize(("waiting", "named"), [(2.0, True), (40.0, False)])
def test_clients_that_leave_are_seen_in_the_answers(world: World, waiting: float, *, named: bool) -> None:
    """An engine that counts no abort still counts the answer; answers counted as they begin are none."""
    for at, done, answered, in_queue in ((1000, 100.0, 100.0, 2.0), (1050, 102.0, 140.0, waiting)):
        finished, counts = {"length": done}, {"http_generated": answered}
        world.lane(at, running=1.0, waiting=in_queue, finished=finished, counts=counts)
    messages = [alert.message for alert in world.snapshot().alerts if alert.id.endswith("aborted")]
    assert messages == ["38 of 40 requests ended in the last 60 s because their client left"] * named


@pytest.mark.parametrize(
    ("count", "kind", "message"),
    [
        (
            "refused",
            "refused",
            "refused 3 requests in the last 60 s: its queue is full; send fewer at once, or add a server",
        ),
        (
            "lmcache_failures",
            "lmcache-failures",
            "LMCache counted 3 failures in the last 60 s: it keeps or finds less",
        ),
    ],
)
def test_what_fails_is_an_alert_until_a_minute_passed_without(
    world: World, count: str, kind: str, message: str
) -> None:
    """Two are too few, more raise it; older ones do not count; whatever LMCache says of its health."""
    for at, failed in ((1000, 7.0), (1010, 9.0)):
        world.lane(at, running=1.0, counts={count: failed})
    assert alerts(world) == []
    world.lane(1020, running=1.0, counts={count: 10.0})
    (alert,) = world.snapshot().alerts
    assert (alert.id, alert.severity) == (f"backend:b:{kind}", Severity.WARNING)
    assert alert.message == message
    assert alert.values == {count: 3, "limit_per_min": 3.0, "window_s": 60.0}
    for at in range(1021, 1082):
        world.lane(at, running=1.0, counts={count: 10.0})
    assert alerts(world) == []
    assert [(one.kind, one.phase) for one in world.snapshot().events] == [(kind, "begin"), (kind, "end")]


def test_a_sweep_preempts_on_purpose_and_an_lmcache_gets_well(world: World) -> None:
    """While this program loads a server its preemptions are no alert; none unhealthy is no fault."""
    for at, preemptions, unhealthy in ((1000, 0.0, 1.0), (1001, 3.0, 1.0)):
        world.lane(at, running=1.0, preemptions=preemptions, gauges={"lmcache_unhealthy": unhealthy})
    assert {name for name, _ in alerts(world)} == {"backend:b:preempting", "backend:b:lmcache"}
    world.store.begin_own_load(frozenset({"b"}))
    world.lane(1002, running=1.0, preemptions=6.0, gauges={"lmcache_unhealthy": 0.0})
    assert alerts(world) == []


# Alerts about nodes: raised at one level, cleared at another, in one clean line with figures.

MIB = 2**20
WARN, BAD = Severity.WARNING, Severity.CRITICAL
NODE = SourceKey.node("n")


def watching(thresholds: NodeThresholds | None = None) -> World:
    return World(Watch(nodes=(NodeTarget("n"),), node_thresholds=thresholds or NodeThresholds()))


def alerts_of_node(world: World, sample: NodeSample) -> dict[str, Alert]:
    world.see(sample)
    found = {alert.id.removeprefix("node:n:"): alert for alert in world.snapshot().alerts}
    for alert in found.values():
        assert alert.message == clean(alert.message, 400)
        assert alert.subject == "n"
    return found


def unified(at: float, gib: float) -> NodeSample:
    return NodeSample(at, memory=MemoryReading(unified=True, headroom_bytes=round(gib * GIB)))


def with_gpu(at: float, **told: Any) -> NodeSample:  # noqa: ANN401 - fields
    return NodeSample(at, gpus=(GpuReading(0, **told),))


def errors(at: float, rate: float) -> NodeSample:
    port = NetworkReading("roce0", "rdma", up=True, errors_per_s=rate, errors={"out_of_sequence": rate})
    return NodeSample(at, network=(port, NetworkReading("eth0", "ethernet", errors_per_s=1e6)))


def sensor(at: float, degrees: float) -> NodeSample:
    return NodeSample(at, sensors=(SensorReading("nvme", degrees, 85.0), SensorReading("wifi", 200.0)))


def clocked(at: float, mhz: float) -> NodeSample:
    return with_gpu(at, name="NVIDIA GB10", utilization_percent=95.0, sm_clock_mhz=round(mhz), power_w=16.0)


MakeSample = Callable[[float, float], NodeSample]
BANDS: dict[str, tuple[MakeSample, float, float, float]] = {
    "headroom": (unified, 11.9, 12.1, 13.1),
    "thermal": (lambda at, c: with_gpu(at, temperature_c=94 - c, limit_margin_c=c), 4.9, 5.0, 6.9),
    "swap-in": (
        lambda at, mib: NodeSample(at, memory=MemoryReading(swap_in_bytes_per_s=mib * MIB)),
        *(1.1, 0.6, 0.99),
    ),
    "rdma-errors": (errors, 1.1, 0.6, 0.99),
    "sensors": (sensor, 85.1, 82.1, 84.9),
    "throttled": (lambda at, n: with_gpu(at, throttled_percent={"software thermal": n}), 30.0, 7.5, 9.9),
    "power-cap": (lambda at, n: with_gpu(at, throttled_percent={"software power cap": n}), 30.0, 7.5, 9.9),
    "slow-clock": (clocked, 611.0, 1001.0, 1199.0),
}
"""Of each alert: how to make a sample, a value that raises it, and a band that neither raises nor clears."""


@pytest.mark.parametrize("name", BANDS)
@given(wavering=st.lists(st.floats(0, 1), min_size=5, max_size=60))
@settings(max_examples=8, deadline=None)
def test_a_signal_that_wavers_about_its_limit_changes_an_alert_once(name: str, wavering: list[float]) -> None:
    """Anything between what raises it and the far end of the band: raised at most once, never cleared."""
    make, beyond, low, high = BANDS[name]
    ends = sorted((beyond, low, high))
    world, changes, held = watching(), 0, False
    for step, share in enumerate(wavering):
        now = name in alerts_of_node(world, make(1000 + 2 * step, ends[0] + share * (ends[2] - ends[0])))
        changes += now != held
        held = now
    assert changes <= 1


def test_headroom_of_unified_memory_has_its_own_limits() -> None:
    """Below 12 GiB a warning, below 8 critical, each cleared a tenth above its limit."""
    world = watching()
    seen = [
        [alert.severity for alert in alerts_of_node(world, unified(1000 + step, gib)).values()]
        for step, gib in enumerate((12.5, 11.9, 12.5, 7.9, 8.5, 9.0, 12.5, 13.3))
    ]
    assert seen == [[], [WARN], [WARN], [BAD], [BAD], [WARN], [WARN], []]


def test_the_messages_have_figures() -> None:
    """Each alert says in one line what it saw."""
    world = watching()
    sample = NodeSample(
        1000,
        memory=MemoryReading(
            unified=False, total_bytes=100 * GIB, available_bytes=4 * GIB, swap_in_bytes_per_s=2.5 * MIB
        ),
        gpus=(
            GpuReading(0, limit_margin_c=30.0),
            GpuReading(3, temperature_c=88.0, slowdown_c=89.0),
        ),
        network=(
            NetworkReading(
                "roce0",
                "rdma",
                errors_per_s=13.5,
                errors={"a": 1.0, "out_of_sequence": 10.0, "np_cnp_sent": 99.0, "b": 2.0, "c": 0.5},
            ),
        ),
        sensors=(SensorReading("nvme", 86.0, 84.8), SensorReading("acpitz 1", 105.0, 105.0)),
    )
    assert {
        name: (alert.severity, alert.message) for name, alert in alerts_of_node(world, sample).items()
    } == {
        "headroom": (BAD, "4.0 GiB of memory left (4 %)"),
        "thermal": (BAD, "GPU 3 at 88 °C: 1 °C below its thermal limit of 89 °C"),
        "swap-in": (WARN, "2.6 MB/s come back from swap: programs wait for the disk"),
        "rdma-errors": (WARN, "roce0: RDMA errors 14/s (out_of_sequence 10/s, b 120/min, a 60/min)"),
        "sensors": (BAD, "sensor nvme at 86 °C, critical from 84.8 °C, and 1 more"),
    }


def test_a_limit_that_is_near_in_time_is_an_alert_before_memory_is_short() -> None:
    """From 60 GiB at 5.4 GiB a minute, it warns half an hour ahead and is critical five minutes ahead."""
    world = watching()
    seen: dict[str, Severity] = {}
    for second in range(0, 560, 2):
        left = 60.0 - 0.09 * max(0, second - 60)
        for name, alert in alerts_of_node(world, unified(1000 + second, left)).items():
            seen.setdefault(f"{name} {alert.severity}", alert.severity)
            until = world.snapshot().nodes[0].headroom.until_limit_s
            assert name != "headroom" or left < 12.1
            assert name != "headroom-limit" or until is None or (alert.severity is BAD) >= (until < 300)
            assert name != "headroom-limit" or not until or f" in {numbers.age(until)} (" in alert.message
    assert list(seen)[:2] == ["headroom-limit warning", "headroom-limit critical"]


def test_a_forecast_that_came_true_is_not_made_again_while_its_alert_holds() -> None:
    """Memory that swings about the limit was forecast once; below it the alert itself is critical."""
    world = watching()
    for second in range(0, 460, 2):
        left = 30.0 - 0.09 * max(0, second - 60)
        swing = 1.4 if second > 310 and second % 8 < 4 else 0.0
        alerts_of_node(world, unified(1000 + second, max(7.6, left) + swing))
    ended = [event for event in world.snapshot().events if event.phase is Phase.END]
    assert [event.message.partition(" after ")[0] for event in ended] == [
        "memory left is below 8 GiB: forecast came true"
    ]


def test_rdma_is_no_part_of_the_network() -> None:
    """Wired and wireless add up, RDMA by itself; bridges, loopback and links that are down count nowhere."""
    links = (
        ("eth0", "ethernet", True, 1.0),
        ("wlan0", "wifi", None, 2.0),
        ("eth1", "ethernet", False, 40.0),
        ("docker0", "other", True, 80.0),
        ("roce0", "rdma", True, 100.0),
        ("roce1", "rdma", True, 200.0),
        ("roce2", "rdma", False, 4000.0),
    )
    network = tuple(NetworkReading(name, kind, up, rate, 2 * rate) for name, kind, up, rate in links)
    node = watching()
    history = node.see(NodeSample(1000, network=network)).history
    assert (history.rx_bytes_per_s.last, history.tx_bytes_per_s.last) == (3, 6)
    assert (history.rdma_rx_bytes_per_s.last, history.rdma_tx_bytes_per_s.last) == (300, 600)
    history = node.see(NodeSample(1002, network=network[3:4])).history
    assert (history.rx_bytes_per_s.last, history.rdma_rx_bytes_per_s.last) == (None, None)


def hot(at: float, percent: float | None, *missed: NodeSample) -> NodeSample:
    throttled = {"software thermal": percent}
    return replace(with_gpu(at, throttled_percent=throttled, utilization_percent=90.0), missed=missed)


def test_throttling_is_weighed_by_time_and_gaps_have_none() -> None:
    """The first sample, and the first one after a failure, cover no time; missed samples do."""
    node = watching()
    assert node.see(hot(1000, 100.0)).throttled_percent == {}
    node.see(hot(1010, 30.0))
    view = node.see(hot(1012, 90.0))
    assert view.throttled_percent == pytest.approx({"software thermal": (30 * 10 + 90 * 2) / 12})
    node.see(Failure(FailureKind.TIMEOUT, "slow", 1014))
    view = node.see(hot(1020, 100.0))
    assert view.throttled_percent == pytest.approx({"software thermal": 40})
    node.see(Failure(FailureKind.TIMEOUT, "slow", 1022))
    view = node.see(hot(1026, 0.0, hot(1022, 0.0), hot(1024, 0.0)))
    assert view.throttled_percent == pytest.approx({"software thermal": 480 / 18})


@pytest.mark.parametrize(
    ("begins_s", "is_known"), [(-1.0, True), (10.0, True), (16.0, False)], ids=["before", "soon", "late"]
)
def test_an_alert_of_a_recording_keeps_its_beginning_if_it_held_or_holds_soon(
    begins_s: float, *, is_known: bool
) -> None:
    """Twenty seconds after the announcement, samples show since when it holds; no event is added then."""
    log = EventLog()
    active, head = ActiveAlerts(log), Instant(1000.0, EPOCH)
    told = Alert("backend:b:x", Severity.WARNING, "b", "waits", EPOCH, {}, 900.0, Severity.WARNING)
    assert not active.adopt(told, head.at)
    now = head.before(-20.0)
    active.hold(told.id, told.severity, "b", "waits", {}, now, since=head.before(-begins_s))
    assert active.view()[0].since_s == (900.0 if is_known else head.at + begins_s)
    assert len(log) == (not is_known)
