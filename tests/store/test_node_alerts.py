"""Alerts about nodes: raised at one level, cleared at another, in one clean line with figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.event import Alert, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import GpuReading, MemoryReading, NetworkReading, NodeSample, SensorReading
from sparktop.model.targets import NodeTarget, NodeThresholds, Watch
from sparktop.model.text import clean
from sparktop.store import SourceKey

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import
MakeWorld = Callable[..., World]

GIB, MIB = 2**30, 2**20
WARN, BAD, INFO = Severity.WARNING, Severity.CRITICAL, Severity.INFO
NODE = SourceKey.node("n")


def watching(make_world: MakeWorld, thresholds: NodeThresholds | None = None) -> World:
    return make_world(Watch(nodes=(NodeTarget("n"),), node_thresholds=thresholds or NodeThresholds()))


def alerts(world: World, sample: NodeSample) -> dict[str, Alert]:
    world.at = sample.at
    world.store.accept(NODE, sample)
    found = {alert.id.removeprefix("node:n:"): alert for alert in world.snapshot().alerts}
    for alert in found.values():
        assert alert.message == clean(alert.message, 400)
        assert alert.subject == "n"
    return found


def unified(at: float, gib: float) -> NodeSample:
    return NodeSample(at, memory=MemoryReading(unified=True, headroom_bytes=round(gib * GIB)))


def margin(at: float, degrees: float) -> NodeSample:
    return NodeSample(at, gpus=(GpuReading(0, temperature_c=94 - degrees, limit_margin_c=degrees),))


def swapping(at: float, mib: float) -> NodeSample:
    return NodeSample(at, memory=MemoryReading(swap_in_bytes_per_s=mib * MIB))


def errors(at: float, rate: float) -> NodeSample:
    port = NetworkReading("roce0", "rdma", up=True, errors_per_s=rate, errors={"out_of_sequence": rate})
    return NodeSample(at, network=(port, NetworkReading("eth0", "ethernet", errors_per_s=1e6)))


def sensor(at: float, degrees: float) -> NodeSample:
    return NodeSample(at, sensors=(SensorReading("nvme", degrees, 85.0), SensorReading("wifi", 200.0)))


def throttled(at: float, percent: float) -> NodeSample:
    return NodeSample(at, gpus=(GpuReading(0, throttled_percent={"software thermal": percent}),))


def capped(at: float, percent: float) -> NodeSample:
    return NodeSample(at, gpus=(GpuReading(0, throttled_percent={"software power cap": percent}),))


def clocked(at: float, mhz: float) -> NodeSample:
    gpu = GpuReading(0, "NVIDIA GB10", utilization_percent=95.0, sm_clock_mhz=round(mhz), power_w=16.0)
    return NodeSample(at, gpus=(gpu,))


MakeSample = Callable[[float, float], NodeSample]
BANDS: dict[str, tuple[MakeSample, float, float, float]] = {
    "headroom": (unified, 11.9, 12.1, 13.1),
    "thermal": (margin, 4.9, 5.0, 6.9),
    "swap-in": (swapping, 1.1, 0.6, 0.99),
    "rdma-errors": (errors, 1.1, 0.6, 0.99),
    "sensors": (sensor, 85.1, 82.1, 84.9),
    "throttled": (throttled, 30.0, 7.5, 9.9),
    "power-cap": (capped, 30.0, 7.5, 9.9),
    "slow-clock": (clocked, 611.0, 1001.0, 1199.0),
}
"""Of each alert: how to make a sample, a value that raises it, and a band that neither raises nor clears."""


@pytest.mark.parametrize("name", BANDS)
@given(wavering=st.lists(st.floats(0, 1), min_size=5, max_size=60))
@settings(max_examples=15, deadline=None)
def test_a_signal_that_wavers_about_its_limit_changes_an_alert_once(
    name: str, wavering: list[float], make_world: MakeWorld
) -> None:
    """Anything between what raises it and the far end of the band: raised at most once, never cleared."""
    make, beyond, low, high = BANDS[name]
    ends = sorted((beyond, low, high))
    world, changes, held = watching(make_world), 0, False
    for step, share in enumerate(wavering):
        now = name in alerts(world, make(1000 + 2 * step, ends[0] + share * (ends[2] - ends[0])))
        changes += now != held
        held = now
    assert changes <= 1


def test_the_messages_have_figures(make_world: MakeWorld) -> None:
    """Each alert says in one line what it saw."""
    world = watching(make_world)
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
    assert {name: (alert.severity, alert.message) for name, alert in alerts(world, sample).items()} == {
        "headroom": (BAD, "4.0 GiB of memory left (4 %)"),
        "thermal": (BAD, "GPU 3 at 88 °C: 1 °C below its thermal limit"),
        "swap-in": (WARN, "2.5 MiB/s come back from swap: memory is short"),
        "rdma-errors": (WARN, "roce0: 13.5 RDMA errors/s (out_of_sequence 10/s, b 2/s, a 1/s)"),
        "sensors": (BAD, "sensor nvme at 86 °C, critical from 84.8 °C, and 1 more"),
    }


def test_a_limit_that_is_near_in_time_is_an_alert_before_memory_is_short(make_world: MakeWorld) -> None:
    """From 60 GiB at 5.4 GiB a minute, it warns half an hour ahead and is critical five minutes ahead."""
    world = watching(make_world)
    seen: dict[str, Severity] = {}
    for second in range(0, 560, 2):
        left = 60.0 - 0.09 * max(0, second - 60)
        for name, alert in alerts(world, unified(1000 + second, left)).items():
            seen.setdefault(f"{name} {alert.severity}", alert.severity)
            until = world.snapshot().nodes[0].headroom.until_limit_s
            assert name != "headroom" or left < 12.1
            assert name != "headroom-limit" or until is None or (alert.severity is BAD) >= (until < 300)
    assert list(seen)[:2] == ["headroom-limit warning", "headroom-limit critical"]


def test_plenty_of_memory_that_falls_for_minutes_is_an_alert(make_world: MakeWorld) -> None:
    """From 60 of 120 GiB at 5.4 GiB a minute: not in the first two minutes, but five before the limit."""
    world = watching(make_world)
    seen: list[tuple[int, float]] = []
    for second in range(0, 400, 2):
        left = 60.0 - 0.09 * second
        memory = MemoryReading(unified=True, total_bytes=120 * GIB, headroom_bytes=round(left * GIB))
        if alerts(world, NodeSample(1000 + second, memory=memory)):
            seen.append((second, left))
    first, left = seen[0]
    assert first > 120
    assert left > 8 + 5 * 5.4
    assert [second for second, _ in seen] == list(range(first, 400, 2))


def test_programs_that_start_do_not_use_up_the_memory(make_world: MakeWorld) -> None:
    """7.6 of 23.5 GiB taken within a minute raise nothing while 15.9 are left; the fall itself is shown."""
    world = watching(make_world)
    total = 23.5
    shown = []
    for second in range(0, 181, 2):
        left = total - 7.6 * min(max(second - 20, 0), 60) / 60
        memory = MemoryReading(
            unified=False, total_bytes=round(total * GIB), available_bytes=round(left * GIB)
        )
        assert alerts(world, NodeSample(1000 + second, memory=memory)) == {}
        shown.append(world.snapshot().nodes[0].headroom.until_limit_s)
    falls = [until for until in shown if until is not None]
    assert falls
    assert min(falls) < 300


def test_throttling_says_reason_and_share(make_world: MakeWorld) -> None:
    """Heat is a warning and a power limit an information; limits set by the user are neither."""
    world = watching(make_world)
    shares = {
        "software thermal": 34.0,
        "software power cap": 90.0,
        "sync boost": 99.0,
        "hardware thermal": 5.0,
    }
    for second in range(0, 14, 2):
        assert alerts(world, NodeSample(1000 + second, gpus=(GpuReading(0, throttled_percent=shares),))) == {}
    for second in range(14, 20, 2):
        held = alerts(world, NodeSample(1000 + second, gpus=(GpuReading(0, throttled_percent=shares),)))
    assert {name: (alert.severity, alert.message) for name, alert in held.items()} == {
        "throttled": (WARN, "throttled 34 % of the last minute: software thermal"),
        "power-cap": (INFO, "throttled 90 % of the last minute: software power cap"),
    }


def test_a_slow_clock_names_cause_and_fix(make_world: MakeWorld) -> None:
    """After ten seconds; an idle GPU does not clear it, a healthy one does, and five minutes without load."""
    world = watching(make_world)
    for second in range(0, 12, 2):
        held = alerts(world, clocked(1000 + second, 611))
    alert = held["slow-clock"]
    assert alert.severity is WARN
    assert alert.message.startswith(
        "slow clock: 611 MHz at 95 % load, 16 W. Likely cause: USB-PD power delivery: the clock is pinned"
    )
    assert "Fix: use the 240 W adapter" in alert.message
    idle = GpuReading(0, "NVIDIA GB10", utilization_percent=0.0, sm_clock_mhz=208, power_w=4.0)
    seen = ["slow-clock" in alerts(world, NodeSample(1012 + 10 * step, gpus=(idle,))) for step in range(40)]
    assert seen == [12 + 10 * step < 10 + 300 for step in range(40)]


def test_a_node_that_is_down_has_no_other_alert(make_world: MakeWorld) -> None:
    """It is unknown whether the memory of a machine that does not answer is short."""
    world = watching(make_world)
    alerts(world, unified(1000, 3))
    for at in (1001, 1002, 1003):
        world.at = at
        world.store.accept(NODE, Failure(FailureKind.REFUSED, "nothing listens there", at))
    assert [alert.id for alert in world.snapshot().alerts] == ["node:n:unreachable"]
