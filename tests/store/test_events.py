"""Events of the store: alerts that begin and end with their values, restarts, steps of the wall clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.event import Event, Phase, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import GpuReading, MemoryReading, NetworkReading, NodeIdentity, NodeSample
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.store import SourceKey, Store

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import
MakeWorld = Callable[..., World]

GIB = 2**30
NODE = SourceKey.node("n")


def lane(at: float, **told: Any) -> EngineSample:  # noqa: ANN401 - fields
    return EngineSample(at, "vllm", (LaneSample("0", running=1.0, **told),), ("m",))


def machine(at: float, gib: float, heat: float = 61.0) -> NodeSample:
    memory = MemoryReading(unified=True, headroom_bytes=round(gib * GIB), total_bytes=128 * GIB)
    return NodeSample(at, memory=memory, gpus=(GpuReading(0, temperature_c=heat, power_w=35.0),))


def of_node(make_world: MakeWorld) -> World:
    return make_world(Watch(nodes=(NodeTarget("n"),)))


def take(world: World, reading: NodeSample | Failure) -> None:
    world.at = reading.at
    world.store.accept(NODE, reading)


def phases(world: World) -> list[tuple[str | None, Phase | None]]:
    return [(event.kind, event.phase) for event in world.snapshot().events]


def test_an_alert_is_an_event_when_it_begins_and_when_it_ends(world: World) -> None:
    """Both have the measured value, the limit and the window; the end has the duration."""
    heard: list[Event] = []
    world.store.listen_events(heard.append)
    for at, percent in ((1000, 50.0), (1010, 99.0), (1070, 97.0), (1130, 90.0)):
        world.feed(lane(at, kv_cache_percent=percent))
    assert phases(world) == [("kv-full", Phase.BEGIN), ("kv-full", Phase.END)]
    begun, ended = heard
    assert begun.values == {
        "kv_cache_percent": 99.0,
        "limit_percent": 98.0,
        "clears_below_percent": 95.0,
        "window_s": 0.0,
    }
    assert (begun.about, begun.at_s, begun.severity) == ("backend:b:kv-full", 1010, Severity.WARNING)
    assert (ended.duration_s, ended.severity, ended.importance) == (120.0, Severity.INFO, Severity.WARNING)
    assert ended.message == "ended after 2 min: KV cache full"


def test_a_warning_that_becomes_critical_is_announced_once(make_world: MakeWorld) -> None:
    """Back and forth between warning and critical is one alert: it becomes worse once, and ends once."""
    world = of_node(make_world)
    for step, gib in enumerate((20, 11, 7, 9, 7, 9, 7, 20)):
        take(world, machine(1000 + 10 * step, gib))
    assert [(event.severity, event.phase) for event in world.snapshot().events] == [
        (Severity.WARNING, Phase.BEGIN),
        (Severity.CRITICAL, Phase.WORSE),
        (Severity.INFO, Phase.END),
    ]
    begun, worse, ended = world.snapshot().events
    assert begun.values == {
        "headroom_gib": 11.0,
        "limit_gib": 12.0,
        "clears_at_gib": pytest.approx(13.2),
        "window_s": 0.0,
        "total_gib": 128.0,
    }
    assert (worse.values["limit_gib"], worse.values["headroom_gib"]) == (8.0, 7.0)
    assert (ended.importance, ended.duration_s) == (Severity.CRITICAL, 60.0)


def test_every_alert_has_its_measured_value_its_limit_and_its_window(make_world: MakeWorld) -> None:
    """Whatever is raised: a name with "limit_", a window, and a known measured value."""
    nodes = (NodeTarget("n"), NodeTarget("pinned"))
    world = make_world(Watch(nodes=nodes, backends=(BackendTarget("b", "http://b"),)))
    slow = GpuReading(0, "NVIDIA GB10", utilization_percent=95.0, sm_clock_mhz=611, power_w=16.0)
    port = NetworkReading("roce0", "rdma", up=True, errors_per_s=5.0, errors={"out_of_sequence": 5.0})
    for second in range(0, 120, 2):
        gpu = GpuReading(
            0,
            limit_margin_c=1.0,
            temperature_c=93.0,
            throttled_percent={"software thermal": 50.0, "software power cap": 50.0},
        )
        memory = MemoryReading(
            unified=True, headroom_bytes=round((11 - 0.01 * second) * GIB), swap_in_bytes_per_s=5 * 2**20
        )
        take(world, NodeSample(1000 + second, memory=memory, gpus=(gpu,), network=(port,)))
        world.store.accept(SourceKey.node("pinned"), NodeSample(1000 + second, gpus=(slow,)))
        world.feed(lane(1000 + second, kv_cache_percent=99.0, preemptions=float(second)))
    alerts = {alert.id.rpartition(":")[2]: alert.values for alert in world.snapshot().alerts}
    assert set(alerts) == {
        *("headroom", "headroom-limit", "thermal", "throttled", "power-cap", "swap-in", "rdma-errors"),
        *("slow-clock", "kv-full", "preempting"),
    }
    for name, values in alerts.items():
        limits = [key for key in values if key.startswith("limit_")]
        assert limits, name
        assert values["window_s"] is not None, name
        measured = [key for key in values if not key.startswith(("limit_", "clears_", "window_s"))]
        assert all(values[key] is not None for key in measured if key != "total_gib"), name


def test_what_is_not_known_any_more_ends_too(make_world: MakeWorld) -> None:
    """An alert of a machine that went away ends with the reason, so that every beginning has an end."""
    world = of_node(make_world)
    take(world, machine(1000, 11))
    for at in (1002, 1004, 1006):
        take(world, Failure(FailureKind.TIMEOUT, "no answer", at))
    assert [event.message for event in world.snapshot().events][1:] == [
        "unknown after 6 s: low headroom (it does not answer)",
        "no answer",
    ]
    down = world.snapshot().events[-1]
    assert down.values["failures"] == 3
    assert (down.values["limit_failures"], down.values["window_s"]) == (3, 4)


def test_removing_a_source_leaves_those_whose_names_begin_alike(make_world: MakeWorld) -> None:
    """The alerts of "a:8001" are not those of "a"."""
    names = ("a", "a:8001")
    world = make_world(Watch(backends=tuple(BackendTarget(name, f"http://{name}") for name in names)))
    for name in names:
        world.feed(lane(1000, kv_cache_percent=99.0), name=name)
    world.store.remove(SourceKey.backend("a"))
    assert [alert.id for alert in world.snapshot().alerts] == ["backend:a:8001:kv-full"]


def test_a_boot_id_that_is_missing_for_a_while_hides_no_restart(make_world: MakeWorld) -> None:
    """It is compared with the last known one; without samples there are no last values."""
    world = of_node(make_world)
    for boot_id in ("one", None, "two"):
        world.store.identify(NODE, NodeIdentity(boot_id=boot_id))
    assert [event.message for event in world.snapshot().events] == ["rebooted"]


def scene(store: Store, set_time: Callable[[float], None]) -> list[tuple[Any, ...]]:
    """Play slow steps, a full cache, a flapping source and short memory; return what is seen every second."""
    seen: list[tuple[Any, ...]] = []
    for second in range(240):
        at = 1000.0 + second
        set_time(at)
        for name in ("b", "c"):
            if name == "c" and second % 40 >= 32:
                store.accept(SourceKey.backend(name), Failure(FailureKind.REFUSED, "nothing listens", at))
                continue
            full = 99.0 if 50 <= second < 90 else 40.0
            store.accept(SourceKey.backend(name), lane(at, kv_cache_percent=full, preemptions=0.0))
        store.accept(NODE, machine(at, 20 - abs(second - 120) * 0.0 - (10 if 60 <= second < 200 else 0)))
        store.judge()
        shot = store.snapshot()
        seen.append(
            (
                [(one.id, one.severity, one.message) for one in shot.alerts],
                [(one.at_s, one.message, one.duration_s, one.count) for one in shot.events],
                [one.state for one in shot.backends],
                [one.rate_window_s for one in shot.backends],
            )
        )
    return seen


@pytest.mark.parametrize("hours", [1, -1])
def test_a_step_of_the_wall_clock_changes_no_verdict_and_no_alert(hours: int, make_world: MakeWorld) -> None:
    """An hour forth or back in the middle, and back again, leaves alerts, events and states the same."""
    watch = Watch(
        nodes=(NodeTarget("n"),),
        backends=(BackendTarget("b", "http://b"), BackendTarget("c", "http://c")),
    )

    def play(step: timedelta) -> list[tuple[Any, ...]]:
        world = make_world(watch)
        plain = world.store._now

        def now() -> Any:  # noqa: ANN401 - a time
            return plain() + (step if 70 <= world.at - 1000 < 150 else timedelta())

        world.store._now = now
        return scene(world.store, lambda at: setattr(world, "at", at))

    assert play(timedelta(hours=hours)) == play(timedelta())
