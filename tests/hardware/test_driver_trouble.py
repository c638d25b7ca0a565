"""Drivers that are absent, refuse access or disappear."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from sparktop.hardware.gpu import GpuReader
from sparktop.hardware.machine import Machine
from tests.hardware.fake_driver import FakeDriver, gb10, h200, refuse

NOWHERE = Path("/nonexistent")


@pytest.mark.parametrize(
    ("code", "note"),
    [
        (12, "no NVIDIA driver on this machine"),
        (9, "the NVIDIA driver is not loaded"),
        (4, "no permission to ask the NVIDIA driver"),
        (18, "the NVIDIA driver was updated: reload it or restart the machine"),
        (999, "the NVIDIA driver does not answer: Unknown Error"),
    ],
)
def test_no_driver_is_one_honest_line(code: int, note: str) -> None:
    """A machine without a driver has a note that says so."""
    driver = FakeDriver(h200())
    driver.init_error = refuse(code)
    picture = GpuReader(NOWHERE, driver).read(0.0)
    assert (picture.gpus, picture.note, picture.unified) == ((), note, None)


def test_without_the_library_the_real_module_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the real nvidia-ml-py without its shared library is reported as no driver."""

    def missing(*_: object) -> None:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    monkeypatch.setattr("sparktop.hardware.gpu.has_library", lambda: True)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)
    assert GpuReader(NOWHERE).read(0.0).note == "no NVIDIA driver on this machine"


def test_a_lost_gpu_leaves_the_others_and_comes_back() -> None:
    """The note names the lost GPU, the others are read; the library is closed and later opened again."""
    driver = FakeDriver(h200(), h200())
    reader = GpuReader(NOWHERE, driver)
    assert len(reader.read(0.0).gpus) == 2
    driver.lost = {1}
    for now in (1.0, 2.0):
        picture = reader.read(now)
        assert [gpu.index for gpu in picture.gpus] == [0]
        assert picture.note == "GPU 1 does not answer any more: the driver lost it"
    picture = reader.read(31.0)
    assert [gpu.index for gpu in picture.gpus] == [0]
    assert picture.note == "GPU 1 does not answer: GPU is lost"
    driver.lost = set()
    picture = reader.read(61.0)
    assert ([gpu.index for gpu in picture.gpus], picture.note) == ([0, 1], None)
    assert driver.opened == 1


@pytest.mark.parametrize("code", [1, 9, 15, 16])
def test_a_driver_that_goes_away_in_mid_run_is_a_line(code: int) -> None:
    """If the driver disappears during a run there is a note and no GPU, until it answers again."""
    driver = FakeDriver(gb10())
    reader = GpuReader(NOWHERE, driver)
    reader.read(0.0)
    driver.failing["nvmlDeviceGetUtilizationRates"] = refuse(code)
    picture = reader.read(1.0)
    assert picture.gpus == ()
    assert picture.note is not None
    del driver.failing["nvmlDeviceGetUtilizationRates"]
    assert len(reader.read(31.0).gpus) == 1


def test_the_machine_is_read_without_its_gpu(spark: Path) -> None:
    """Without its GPU the machine is read all the same, and the kind of memory and driver stay known."""
    driver = FakeDriver(gb10())
    now = [0.0]
    machine = Machine(spark, nvml=driver, clock=lambda: now[0])
    sample = machine.read()
    assert (sample.memory.unified, len(sample.gpus), sample.gpu_note) == (True, 1, None)
    assert sample.memory.gpu_processes_bytes == (102_625 + 60) * 1024**2
    driver.lost = {0}
    driver.init_error = refuse(9)
    now[0] = 40.0
    machine.read()
    now[0] = 80.0
    sample = machine.read()
    assert (sample.memory.unified, sample.gpus) == (True, ())
    assert sample.memory.gpu_processes_bytes is None
    assert sample.gpu_note == "the NVIDIA driver is not loaded"
    assert sample.memory.used_bytes
    assert sample.sensors
    assert machine.identity is not None
    assert machine.identity.driver == "580.126.09"
