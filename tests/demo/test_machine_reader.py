"""Readings of a simulated machine while its engine works."""

from __future__ import annotations

import socket

import pytest

from sparktop.demo.machine import SLOW_MHZ, Machine, MachineHeat, MachineReader
from sparktop.model.failure import Failure
from sparktop.model.node import NodeSample, end_marks
from sparktop.simulation.calibration import CLUSTER_TP2, SOLO
from sparktop.simulation.engine import Engine, SimulatedRequest
from sparktop.simulation.thermal import AMBIENT_C
from tests.demo.quick_engines import Clock

GIB = 2**30


class Bench:
    """An engine on its machines under a steady load, with their readers, advanced by the test."""

    def __init__(self, clock: Clock, *, machine: Machine | None = None, ambient_c: float = AMBIENT_C) -> None:
        """Start without load."""
        profile = CLUSTER_TP2 if machine is not None and machine.rank is not None else SOLO
        self.clock = clock
        self.thermals = [MachineHeat(ambient_c=ambient_c, at=clock.now) for _ in range(profile.nodes)]
        if machine is not None and machine.slow_clock:
            self.thermals[0].pinned_mhz = SLOW_MHZ
        self.engine = Engine(profile, nodes=self.thermals, start_s=clock.now, token_events=False)
        self.reader = MachineReader(self.thermals[0], machine or Machine(), name="spark-a", clock=clock)
        self.reader.attach(self.engine)
        self._made = 0

    def load(self, requests: int, seconds: int) -> NodeSample:
        """Keep `requests` in flight for some seconds, with a sample each second; return the last sample."""
        for _ in range(seconds):
            while len(self.engine.in_flight) < requests:
                self._made += 1
                self.engine.submit(SimulatedRequest(str(self._made), 256, 128), self.clock.now)
            self.clock.now += 1.0
            self.engine.advance(self.clock.now)
            sample = self.reader.sample()
        return sample


def test_a_loaded_machine_warms_up_and_slows_down(clock: Clock) -> None:
    """At 64 streams the temperature rises for minutes to over 80 °C, which costs clock and time."""
    bench = Bench(clock)
    early = bench.load(64, 20).gpus[0]
    late = bench.load(64, 400).gpus[0]
    assert early.temperature_c is not None
    assert late.temperature_c is not None
    assert early.temperature_c < 60
    assert 80 <= late.temperature_c <= 90
    assert late.utilization_percent == 97
    assert 55 <= (late.power_w or 0) <= 80
    assert (late.sm_clock_mhz or 0) < (early.sm_clock_mhz or 0)
    assert late.throttle_reasons == ("software thermal",)
    assert (late.throttled_percent["software thermal"] or 0) > 0
    assert late.limit_margin_c == 94 - late.temperature_c


def test_a_start_shows_its_phases(clock: Clock) -> None:
    """During a start, GPU memory grows with the weights, stays, then jumps to its end."""
    reader = MachineReader(MachineHeat(ambient_c=20.0, at=clock.now), Machine(), name="a", clock=clock)
    reader.begin_start(100.0)
    held = []
    for _ in range(10):
        clock.now += 10.0
        sample = reader.sample()
        processes = sample.gpus[0].processes or ()
        held.append(sum(one.memory_bytes or 0 for one in processes if one.kind == "compute") // GIB)
    assert held == sorted(held)
    assert (held[0], held[5], held[6], held[-1]) == (0, 57, 57, 83)
    assert sample.workloads is not None
    assert [(one.role, one.age_s) for one in sample.workloads.processes] == [
        ("server", 102.0),
        ("engine core", 100.0),
    ]


async def test_a_machine_that_reboots_is_silent_and_comes_back_with_another_boot_id(clock: Clock) -> None:
    """A rebooting machine does not answer, then has another boot id."""
    reader = MachineReader(MachineHeat(ambient_c=20.0, at=clock.now), Machine(), name="a", clock=clock)
    before = reader.identity
    reader.reboot(20.0)
    clock.now += 19.0
    assert isinstance(await reader.poll(1.0), Failure)
    clock.now += 2.0
    assert isinstance(await reader.poll(1.0), NodeSample)
    assert before is not None
    assert reader.identity is not None
    assert (before.boot_id, reader.identity.boot_id) == ("simulated-a", "simulated-a-2")


@pytest.mark.outside
def test_connections_of_a_server_are_those_at_its_port(clock: Clock) -> None:
    """With a port, the kernel's list of this program's connections is part of the sample."""
    reader = Bench(clock).reader
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reader.port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", reader.port)) as client:
            loads = reader.sample().workloads
            assert loads is not None
            (server,) = [one for one in loads.processes if one.role == "server"]
            assert server.port == reader.port
            assert server.sockets is not None
            assert end_marks(*client.getsockname()) in server.sockets.clients
