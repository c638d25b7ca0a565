"""A machine as a whole."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sparktop.hardware.kernel_file import entries, read_bytes, read_int, read_text
from sparktop.hardware.machine import Machine
from sparktop.model.node import MemoryPart, MemoryReading, NodeIdentity, ProcessTable
from tests.hardware.conftest import STAT, stat_line, write
from tests.hardware.fake_driver import FakeDriver, gb10, refuse
from tests.hardware.gb10_root import advance


def ticking() -> Callable[[], float]:
    """Return a clock that advances half a second at each call."""
    now = [0.0]

    def read() -> float:
        now[0] += 0.5
        return now[0]

    return read


def test_a_spark_gives_a_whole_sample(spark: Path) -> None:
    """Every part of a sample comes from the given tree and driver."""
    machine = Machine(spark, nvml=FakeDriver(gb10()), clock=ticking())
    before = machine.identity
    machine.read()
    write(spark, "proc/stat", STAT.replace("cpu  1000", "cpu  1100").replace("cpu0 600", "cpu0 700"))
    sample = machine.read()
    assert (sample.at, sample.cost_ms) == (1.5, 500.0)
    assert (sample.cpu.percent, sample.cpu.load1) == (100.0, 7.25)
    assert sample.memory.unified is True
    assert [gpu.name for gpu in sample.gpus] == ["NVIDIA GB10"]
    assert [(link.name, link.kind) for link in sample.network][-2:] == [
        ("rocep1s0f0", "rdma"),
        ("rocep1s0f1", "rdma"),
    ]
    assert sample.network[0].rx_bytes_per_s == 0.0
    assert len(sample.sensors) == 5
    assert before is None
    assert machine.identity is not None
    assert (machine.identity.product, machine.identity.driver) == ("NVIDIA DGX Spark", "580.126.09")


def test_a_whole_spark_is_read_to_the_last_rail(gb10_tree: Path) -> None:
    """A sample of a Spark has core groups, memory parts with the GPU's, rails and card temperatures."""
    machine = Machine(gb10_tree, nvml=FakeDriver(gb10()), clock=ticking())
    machine.read()
    advance(gb10_tree, 1)
    sample = machine.read()
    assert [(group.name, group.percent) for group in sample.cpu.groups] == [
        ("Cortex-X925", 50.0),
        ("Cortex-A725", 10.0),
    ]
    assert sample.memory.parts[0] == MemoryPart("GPU processes", sample.memory.gpu_processes_bytes or 0)
    assert sum(part.size_bytes for part in sample.memory.parts) == sample.memory.total_bytes
    assert [rail.name for rail in sample.rails][:2] == ["sys_total", "soc_pkg"]
    assert {sensor.critical_c for sensor in sample.sensors if sensor.name.startswith("roce")} == {105.0}
    assert machine.identity is not None
    assert machine.identity.cpu == "10 x Cortex-X925 + 10 x Cortex-A725"
    assert sample.processes is None


def test_the_process_table_is_read_when_asked_for(gb10_tree: Path) -> None:
    """The process table is read on request only; without any process its count is unknown."""
    machine = Machine(gb10_tree, nvml=FakeDriver(), clock=ticking())
    assert machine.read(processes=True).processes == ProcessTable(age_s=0.0)
    write(gb10_tree, "proc/4242/stat", stat_line(4242, "vllm", rss_pages=100))
    assert machine.read().processes is None
    table = Machine(gb10_tree, nvml=FakeDriver(), clock=ticking()).read(processes=True).processes
    assert table is not None
    assert (table.count, table.processes[0].name) == (1, "vllm")


def test_what_is_static_is_read_once(gb10_tree: Path) -> None:
    """Constant information is read once: its files may disappear afterwards."""
    machine = Machine(gb10_tree, nvml=FakeDriver(), clock=ticking())
    machine.read()
    before = machine.identity
    for path in ("proc/cpuinfo", "etc/os-release", "sys/devices/virtual/dmi/id/product_family"):
        (gb10_tree / path).unlink()
    advance(gb10_tree, 1)
    assert [group.name for group in machine.read().cpu.groups] == ["Cortex-X925", "Cortex-A725"]
    assert machine.identity is before


def test_a_bare_container_gives_a_sample_too(bare: Path) -> None:
    """In a bare container the available values are read, and the others are unknown."""
    driver = FakeDriver()
    driver.init_error = refuse(12)
    machine = Machine(bare, nvml=driver, clock=ticking())
    machine.read()
    sample = machine.read()
    assert (sample.cpu.percent, sample.gpus, sample.sensors) == (None, (), ())
    assert sample.gpu_note == "no NVIDIA driver on this machine"
    assert sample.memory.total_bytes == 4 * 1024**3
    assert machine.identity == NodeIdentity()


def test_an_empty_root_gives_a_sample_of_nothing(tmp_path: Path) -> None:
    """An empty root gives a sample of unknown values, without an error."""
    driver = FakeDriver()
    machine = Machine(tmp_path, nvml=driver, clock=ticking())
    machine.read()
    sample = machine.read()
    assert sample.memory == MemoryReading()
    assert set(dataclasses.astuple(sample.cpu)) == {None, ()}
    assert sample.network == ()


def test_this_machine_is_read() -> None:
    """The real /proc of this machine gives plausible values."""
    machine = Machine()
    first = machine.read()
    while time.monotonic() < first.at + 0.05:
        sum(range(1000))
    sample = machine.read()
    machine.close()
    assert sample.cpu.percent is not None
    assert 0.0 <= sample.cpu.percent <= 100.0
    assert sample.cpu.cores
    assert len(sample.cpu.core_percent) in {0, sample.cpu.cores}
    memory = sample.memory
    assert memory.total_bytes is not None
    assert memory.used_bytes is not None
    assert 2**20 < memory.used_bytes < memory.total_bytes < 2**50
    assert sample.gpus or sample.gpu_note
    assert all((link.rx_bytes_per_s or 0.0) >= 0 for link in sample.network)
    assert machine.identity is not None
    assert machine.identity.os
    assert sample.cost_ms is not None
    assert sample.cost_ms >= 0


@pytest.mark.outside
def test_reading_a_machine_loads_the_standard_library_only() -> None:
    """Importing it loads the standard library only, neither NVML nor another slow module."""
    code = (
        "import sys, sparktop.sources.local;"
        "print(*sorted({'pynvml', 'psutil', 'textual', 'httpx', 'aiohttp', 'pydantic'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)  # noqa: S603 - fixed
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("path", ["missing", "folder", "nul\0byte"])
def test_a_file_that_cannot_be_read_is_none(tmp_path: Path, path: str) -> None:
    """A missing file, a folder and an invalid path are read as None."""
    (tmp_path / "folder").mkdir()
    target = f"{tmp_path}/{path}"
    assert (read_bytes(target), read_text(target), read_int(target)) == (None, None, None)
    assert entries(tmp_path / "missing") == ()
