"""A machine as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from sparktop.hardware.machine import Machine
from sparktop.model.node import MemoryPart, MemoryReading
from tests.hardware.fake_driver import FakeDriver, gb10
from tests.hardware.gb10_root import advance
from tests.known import known


def ticking() -> Callable[[], float]:
    """Return a clock that advances half a second at each call."""
    now = [0.0]

    def read() -> float:
        now[0] += 0.5
        return now[0]

    return read


def test_a_whole_spark_is_read_to_the_last_rail(spark: Path) -> None:
    """A sample of a Spark has core groups, memory parts with the GPU's, rails and card temperatures."""
    machine = Machine(spark, nvml=FakeDriver(gb10()), clock=ticking())
    machine.read()
    advance(spark, 1)
    sample = machine.read()
    assert [(group.name, group.percent) for group in sample.cpu.groups] == [
        ("Cortex-X925", 50.0),
        ("Cortex-A725", 10.0),
    ]
    assert sample.memory.parts[0] == MemoryPart("GPU processes", sample.memory.gpu_processes_bytes or 0)
    assert sum(part.size_bytes for part in sample.memory.parts) == sample.memory.total_bytes
    assert [rail.name for rail in sample.rails][:2] == ["sys_total", "soc_pkg"]
    assert {sensor.critical_c for sensor in sample.sensors if sensor.name.startswith("roce")} == {105.0}
    assert known(machine.identity).cpu == "10 x Cortex-X925 + 10 x Cortex-A725"
    assert sample.processes is None


def test_an_empty_root_gives_a_sample_of_nothing(tmp_path: Path) -> None:
    """An empty root gives a sample of unknown values, without an error."""
    driver = FakeDriver()
    machine = Machine(tmp_path, nvml=driver, clock=ticking())
    machine.read()
    sample = machine.read()
    assert sample.memory == MemoryReading()
    assert set(structs.astuple(sample.cpu)) == {None, ()}
    assert sample.network == ()
