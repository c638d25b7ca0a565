"""The reader of /proc and /sys, which also travels over ssh, agrees with psutil on this machine."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import psutil
import pytest

from sparktop.hardware.cpu import CpuReader
from sparktop.hardware.machine import Machine
from sparktop.model.node import NodeIdentity, NodeSample
from tests.hardware.gb10_root import write

_BYTES = 512 << 20
"""Bytes by which figures of memory may differ that are read one after the other on a busy machine."""


@pytest.fixture(scope="module")
def sample() -> NodeSample:
    """Return a sample of this machine with its processes."""
    return Machine().read(processes=True)


def test_processors_and_load(sample: NodeSample) -> None:
    """The number of processors and the load of the last minute are the same."""
    assert sample.cpu.cores == psutil.cpu_count()
    assert sample.cpu.load1 == pytest.approx(psutil.getloadavg()[0], abs=2.0)


def test_the_share_of_busy_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the same two states of /proc/stat, the busy share of all processors and of each is the same."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    reader = CpuReader(tmp_path)
    readings, shares, each = [], [], []
    for user, idle in ((1000, 7000), (1030, 7060)):
        lines = [f"{name} {user} 10 {user} {idle} 50 3 2 1 0 0" for name in ("cpu", "cpu0", "cpu1")]
        write(tmp_path, "proc/stat", "\n".join([*lines, "intr 1", "btime 1"]))
        readings.append(reader.read(float(user)))
        shares.append(psutil.cpu_percent())
        each.append(psutil.cpu_percent(percpu=True))
    assert readings[1].percent == pytest.approx(shares[1], abs=0.05)
    assert readings[1].core_percent == pytest.approx(each[1], abs=0.05)


def test_memory_and_swap(sample: NodeSample) -> None:
    """Total, available and used bytes of memory and swap are the same."""
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    assert sample.memory.total_bytes == memory.total
    assert sample.memory.available_bytes == pytest.approx(memory.available, abs=_BYTES)
    assert sample.memory.swap_total_bytes == swap.total
    assert sample.memory.swap_used_bytes == pytest.approx(swap.used, abs=_BYTES)


def test_network_interfaces(sample: NodeSample) -> None:
    """Every interface that is shown is one of psutil's, in the same state, with the same speed."""
    states = psutil.net_if_stats()
    shown = [link for link in sample.network if link.kind != "rdma"]
    assert {link.name for link in shown} <= psutil.net_io_counters(pernic=True).keys()
    for link in shown:
        if link.up is not None:
            assert link.up == states[link.name].isup
        if link.link_bits_per_s is not None:
            assert link.link_bits_per_s == states[link.name].speed * 1e6


def test_temperatures(sample: NodeSample) -> None:
    """Every temperature is one of psutil's, within what it changes between two readings."""
    known = [entry for chip in psutil.sensors_temperatures().values() for entry in chip]
    for sensor in sample.sensors:
        assert any(math.isclose(sensor.temperature_c, entry.current, abs_tol=5.0) for entry in known), sensor


def test_the_boot(sample: NodeSample) -> None:
    """The machine booted at the same second."""
    machine = Machine()
    machine.read()
    assert isinstance(machine.identity, NodeIdentity)
    assert sample.at <= time.monotonic()
    assert machine.identity.booted_at == pytest.approx(psutil.boot_time(), abs=1.0)


def test_processes(sample: NodeSample) -> None:
    """This process has the same name and memory; there are as many processes, kernel threads apart."""
    assert sample.processes is not None
    own = psutil.Process()
    (row,) = [one for one in sample.processes.processes if one.pid == os.getpid()]
    assert row.memory_bytes == pytest.approx(own.memory_info().rss, rel=0.2)
    assert row.name == own.name()
    listed = [one for one in psutil.process_iter() if one.pid != 2 and one.ppid() != 2]
    assert sample.processes.count == pytest.approx(len(listed), rel=0.3, abs=20)
