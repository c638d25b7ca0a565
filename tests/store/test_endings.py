"""Events about processes of engines that ended, faults in the kernel's log, and reboots."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pytest

from sparktop.model.event import Event, Severity
from sparktop.model.node import (
    OOM,
    XID,
    GpuProcess,
    GpuReading,
    KernelLine,
    KernelLog,
    LastBoot,
    MemoryReading,
    NodeIdentity,
    NodeSample,
    Workload,
    Workloads,
)
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.store import SourceKey

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import
MakeWorld = Callable[..., World]

NODE = SourceKey.node("spark-2")
GIB = 2**30
SERVER = Workload(10, "vllm", "server", None, "m", 8000, 10, age_s=60.0)
CORE = Workload(11, "vllm", "engine core", None, "m", None, 10, age_s=50.0)
WORKERS = tuple(Workload(pid, "vllm", "worker", f"TP{pid - 12}", "m", None, 10) for pid in (12, 13))
READABLE = KernelLog()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    node = NodeTarget("spark-2", "agent", "http://192.168.1.12:9750")
    return make_world(
        Watch(nodes=(node,), backends=(BackendTarget("v", "http://192.168.1.12:8000", "vllm"),))
    )


def sample(
    at: float,
    *running: Workload,
    kills: int | None = 0,
    kernel: KernelLog | None = READABLE,
    used: float = 118.9,
) -> NodeSample:
    memory = MemoryReading(
        unified=True, total_bytes=round(121.6 * GIB), used_bytes=round(used * GIB), oom_kills=kills
    )
    held = tuple(GpuProcess(one.pid, "VLLM::EngineCore", GIB) for one in running if one.role != "server")
    gpu = GpuReading(0, temperature_c=71.0, power_w=84.0, processes=held)
    return NodeSample(at, memory=memory, gpus=(gpu,), workloads=Workloads(running, 0, 0.0), kernel=kernel)


def see(world: World, reading: NodeSample) -> list[Event]:
    before = len(world.snapshot().events)
    world.at = reading.at
    world.store.accept(NODE, reading)
    events: tuple[Event, ...] = world.snapshot().events
    return list(events[before:])


def clock(world: World, at: float) -> str:
    return f"{datetime.fromtimestamp(world.wall(at), UTC).astimezone():%H:%M:%S}"


def test_an_engine_core_that_ended_is_an_event_with_what_is_known(world: World) -> None:
    """When, which process, what the kernel says, and the machine's last figures; its server still runs."""
    assert see(world, sample(1000, SERVER, CORE)) == []
    (event,) = see(world, sample(1005, SERVER))
    assert event.message == (
        f"vllm ended: engine core 11, between {clock(world, 1000)} and {clock(world, 1005)}; "
        "no OOM kill, no Xid: its own log says why, or a user ended it; "
        "its server (process 10) still runs; "
        "before it 118.9 of 121.6 GiB, 71 °C, 84 W"
    )
    assert (event.subject, event.severity, event.kind) == ("v", Severity.CRITICAL, "engine-ended")


def test_a_kill_for_memory_is_named(world: World) -> None:
    """By the kernel's counter; by its log where that may be read."""
    see(world, sample(1000, SERVER, CORE))
    (event,) = see(world, sample(1005, SERVER, kills=1))
    assert "the kernel killed 1 process for lack of memory (OOM)" in event.message
    see(world, sample(1010, SERVER, CORE, kills=1))
    log = KernelLog((KernelLine(77.0, OOM, "Out of memory: Killed process 11", pid=11),))
    (event,) = see(world, sample(1015, SERVER, kills=2, kernel=log))
    assert "the kernel killed it for lack of memory (OOM)" in event.message


def test_what_cannot_be_read_is_said(world: World) -> None:
    """With the group that would allow it."""
    denied = KernelLog(unreadable="the kernel log is not readable: group adm")
    see(world, sample(1000, SERVER, CORE, kernel=denied))
    (event,) = see(world, sample(1005, SERVER, kernel=denied))
    assert "no OOM kill; the kernel log is not readable: group adm" in event.message


def test_a_new_xid_is_an_event_with_advice(world: World) -> None:
    """Lines that were there at first sight are old."""
    old, new = KernelLine(5.0, XID, "x", 31), KernelLine(9.0, XID, "x", 79, 11)
    assert see(world, sample(1000, CORE, kernel=KernelLog((old,)))) == []
    (event,) = see(world, sample(1002, CORE, kernel=KernelLog((old, new))))
    assert event.message == "Xid 79: GPU fell off the bus; reboot the machine (process 11)"
    assert (event.subject, event.severity) == ("spark-2", Severity.CRITICAL)
    assert see(world, sample(1004, CORE, kernel=KernelLog((old, new)))) == []


def test_a_reboot_says_when_and_how_the_machine_was_last_seen(world: World) -> None:
    """Nearly all memory was used; a second event follows with what the machine has read about it."""
    world.store.identify(NODE, NodeIdentity(boot_id="one"))
    see(world, sample(1000, SERVER, CORE))
    world.at = 1230
    booted_at = world.wall(1200)
    booted = f"{datetime.fromtimestamp(booted_at, UTC).astimezone():%H:%M}"
    world.store.identify(NODE, NodeIdentity(boot_id="two", booted_at=booted_at))
    assert world.snapshot().events[-1].message == (
        f"rebooted at {booted}; last seen {clock(world, 1000)} at 118.9 of 121.6 GiB, "
        "71 °C, 84 W: memory wedge?"
    )
    last = LastBoot(clean=False, last_line="14:03:11 spark-2 kernel: swap", unreadable="pstore: root")
    world.store.identify(NODE, NodeIdentity(boot_id="two", booted_at=booted_at, last_boot=last))
    assert world.snapshot().events[-1].message == (
        "how it went down: it was not shut down in order; last line of its journal: "
        "14:03:11 spark-2 kernel: swap; pstore: root"
    )
    assert see(world, sample(1232)) == []


def test_one_end_of_an_engine_is_one_event(world: World) -> None:
    """However many readings its processes take to go, also if the children lose their server's number."""
    orphan = Workload(11, "vllm", "engine core", None, "m", None, None)
    see(world, sample(1000, SERVER, CORE, *WORKERS))
    assert len(see(world, sample(1002, SERVER, CORE, WORKERS[1]))) == 1
    assert see(world, sample(1004, SERVER, CORE)) == []
    assert see(world, sample(1006, orphan)) == []
    assert see(world, sample(1008)) == []
    again = (
        Workload(20, "vllm", "server", None, "m", 8000, 20),
        Workload(21, "vllm", "worker", "TP0", "m", None, 20),
    )
    see(world, sample(1010, *again))
    assert len(see(world, sample(1012, again[0]))) == 1
    assert see(world, sample(1014)) == []


def test_a_core_that_its_server_starts_again_may_end_again(world: World) -> None:
    """A process that began after the reported end is another end."""
    second = Workload(31, "vllm", "engine core", None, "m", None, 10)
    see(world, sample(1000, SERVER, CORE))
    assert len(see(world, sample(1002, SERVER))) == 1
    assert see(world, sample(1004, SERVER, second)) == []
    assert len(see(world, sample(1006, SERVER))) == 1
