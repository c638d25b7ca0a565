"""Readings of GPUs, by the answers of their drivers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparktop.hardware.gpu import GpuPicture, GpuReader
from sparktop.model.node import GpuProcess, GpuReading
from tests.hardware.fake_driver import (
    FUNCTION_NOT_FOUND,
    GIB,
    MACHINE_BYTES,
    NOT_SUPPORTED,
    UNKNOWN_ERROR,
    FakeDriver,
    gb10,
    h200,
    memory,
    process,
    refuse,
)

NOWHERE = Path("/nonexistent")
UNKNOWN_AFTER = {
    "nvmlDeviceGetName": {"name"},
    "nvmlDeviceGetUUID": {"uuid"},
    "nvmlDeviceGetMemoryInfo": {"memory_total_bytes", "memory_used_bytes"},
    "nvmlDeviceGetUtilizationRates": {"utilization_percent"},
    "nvmlDeviceGetTemperature": {"temperature_c"},
    "nvmlDeviceGetMarginTemperature": {"limit_margin_c"},
    "nvmlDeviceGetPowerUsage": {"power_w"},
    "nvmlDeviceGetEnforcedPowerLimit": set(),
    "nvmlDeviceGetPowerManagementLimit": set(),
    "nvmlDeviceGetClockInfo": {"sm_clock_mhz"},
    "nvmlDeviceGetMaxClockInfo": {"sm_clock_max_mhz"},
    "nvmlDeviceGetCurrentClocksEventReasons": {"throttle_reasons"},
    "nvmlDeviceGetFieldValues": {"throttled_percent"},
    "nvmlDeviceGetMigMode": {"mig"},
    "nvmlDeviceGetTotalEnergyConsumption": {"energy_j"},
    "nvmlDeviceGetComputeRunningProcesses": {"processes"},
    "nvmlDeviceGetGraphicsRunningProcesses": {"processes"},
    "nvmlSystemGetProcessName": {"processes"},
    "nvmlSystemGetDriverVersion": {"throttled_percent"},
}
"""What differs when one call fails; the two power limits stand in for each other."""


def read(driver: FakeDriver, now: float = 0.0) -> GpuPicture:
    return GpuReader(NOWHERE, driver).read(now, MACHINE_BYTES)


def only(picture: GpuPicture) -> GpuReading:
    (gpu,) = picture.gpus
    return gpu


def test_a_gb10_tells_all_but_its_memory() -> None:
    """NOT_SUPPORTED for memory and power limit affects no other reading."""
    picture = read(FakeDriver(gb10()))
    reasons = (
        "software power cap",
        "sync boost",
        "software thermal",
        "hardware thermal",
        "hardware power brake",
    )
    assert only(picture) == GpuReading(
        index=0,
        name="NVIDIA GB10",
        uuid="GPU-11111111-2222-3333-4444-555555555555",
        utilization_percent=96.0,
        temperature_c=81.0,
        limit_margin_c=13.0,
        power_w=38.25,
        sm_clock_mhz=2411,
        sm_clock_max_mhz=3003,
        throttle_reasons=("software power cap",),
        throttled_percent=dict.fromkeys(reasons),
        processes=(
            GpuProcess(4242, "VLLM::Worker_TP0", 102_625 * 1024**2, "compute"),
            GpuProcess(900, "Xorg", 60 * 1024**2, "graphics"),
        ),
    )
    assert picture.note is None
    assert picture.processes_bytes == (102_625 + 60) * 1024**2


@pytest.mark.parametrize(
    "answer",
    [refuse(NOT_SUPPORTED), memory(0), memory(MACHINE_BYTES, 100 * GIB), memory(int(MACHINE_BYTES * 0.91))],
    ids=["not supported", "total 0", "the machine's total", "nearly the machine's total"],
)
@pytest.mark.parametrize("name", ["NVIDIA GB10", "NVIDIA Thor"])
def test_memory_is_unified_in_each_of_its_disguises(answer: object, name: str) -> None:
    """Memory is unified for each answer of drivers that means so, and is not reported as the GPU's own."""
    picture = read(FakeDriver(gb10(nvmlDeviceGetMemoryInfo=answer, nvmlDeviceGetName=name)))
    assert picture.unified is True
    assert (only(picture).memory_total_bytes, only(picture).memory_used_bytes) == (None, None)


def test_a_discrete_gpu_has_memory_of_its_own() -> None:
    """Total and used memory are the GPU's own, and its processes hold none of the machine's memory."""
    picture = read(FakeDriver(h200()))
    gpu = only(picture)
    assert (picture.unified, picture.processes_bytes) == (False, None)
    assert (gpu.memory_total_bytes, gpu.memory_used_bytes) == (141 * GIB, 90 * GIB)
    assert (gpu.power_w, gpu.power_limit_w, gpu.throttle_reasons) == (612.0, 700.0, ())


def test_an_old_driver_is_asked_in_the_old_way() -> None:
    """A driver that has only the older calls for memory, reasons and power limit is read by these."""
    answers = {
        "nvmlDeviceGetCurrentClocksEventReasons": refuse(FUNCTION_NOT_FOUND),
        "nvmlDeviceGetCurrentClocksThrottleReasons": 0x40,
        "nvmlDeviceGetEnforcedPowerLimit": refuse(NOT_SUPPORTED),
    }
    driver = FakeDriver(h200(**answers))
    driver.old_memory_only = True
    gpu = only(read(driver))
    assert gpu.throttle_reasons == ("hardware thermal",)
    assert gpu.power_limit_w == 700.0
    assert gpu.memory_total_bytes == 141 * GIB


@pytest.mark.parametrize("call", UNKNOWN_AFTER)
@pytest.mark.parametrize("code", [NOT_SUPPORTED, 4, UNKNOWN_ERROR])
def test_one_failing_call_costs_no_other_reading(call: str, code: int) -> None:
    """If one call fails, only its own fields are unknown."""
    machine_bytes = MACHINE_BYTES * 4
    whole = only(GpuReader(NOWHERE, FakeDriver(h200())).read(0.0, machine_bytes))
    driver = FakeDriver(h200())
    driver.failing[call] = refuse(code)
    picture = GpuReader(NOWHERE, driver).read(0.0, machine_bytes)
    gpu = only(picture)
    lost = {name for name in GpuReading.__slots__ if getattr(gpu, name) != getattr(whole, name)}
    # The threshold is read only if the driver has no margin, and then replaces it.
    if call == "nvmlDeviceGetMarginTemperature" and code != UNKNOWN_ERROR:
        assert gpu.slowdown_c == 87.0
        lost.remove("slowdown_c")
    assert lost == UNKNOWN_AFTER[call]
    assert all(getattr(gpu, name) is None for name in lost - {"processes", "throttled_percent"})
    assert picture.note is None


def test_what_the_driver_does_not_know_is_not_asked_for_ten_minutes() -> None:
    """A NOT_SUPPORTED call is repeated after ten minutes, because the driver may have been replaced."""
    driver = FakeDriver(gb10(nvmlDeviceGetMarginTemperature=refuse(NOT_SUPPORTED)))
    reader = GpuReader(NOWHERE, driver)
    for now in (0.0, 1.0, 599.0):
        assert only(reader.read(now, MACHINE_BYTES)).limit_margin_c is None
    assert driver.calls["nvmlDeviceGetMarginTemperature"] == 1
    driver.gpus[0]["nvmlDeviceGetMarginTemperature"] = 20
    assert only(reader.read(600.0, MACHINE_BYTES)).limit_margin_c == 20.0


def test_a_passing_error_is_asked_again_at_once() -> None:
    """After any other error the call is repeated at the next sample, also for a name."""
    failing = {call: refuse(UNKNOWN_ERROR) for call in ("nvmlDeviceGetTemperature", "nvmlDeviceGetName")}
    driver = FakeDriver(gb10(**failing))
    reader = GpuReader(NOWHERE, driver)
    first = only(reader.read(0.0))
    assert (first.temperature_c, first.name) == (None, None)
    driver.gpus[0] |= {"nvmlDeviceGetTemperature": 60, "nvmlDeviceGetName": "NVIDIA GB10"}
    second = only(reader.read(1.0))
    assert (second.temperature_c, second.name) == (60.0, "NVIDIA GB10")


@pytest.mark.parametrize(
    ("field", "call", "nonsense"),
    [
        ("utilization_percent", "nvmlDeviceGetUtilizationRates", SimpleNamespace(gpu=4_294_967_295)),
        ("temperature_c", "nvmlDeviceGetTemperature", 4_294_967_295),
        ("power_w", "nvmlDeviceGetPowerUsage", 4_294_967_295),
        ("sm_clock_mhz", "nvmlDeviceGetClockInfo", 4_294_967_295),
        ("limit_margin_c", "nvmlDeviceGetMarginTemperature", -2_147_483_648),
    ],
)
def test_a_figure_that_cannot_be_is_unknown(field: str, call: str, nonsense: Any) -> None:  # noqa: ANN401 - as answers
    """A value with all bits set, which some drivers use for "unknown", is unknown."""
    assert getattr(only(read(FakeDriver(gb10(**{call: nonsense})))), field) is None


def test_names_of_processes_are_looked_up_once_and_cleaned(spark: Path) -> None:
    """A process name comes from the driver, from /proc or is the pid; it is looked up once and cleaned."""
    (spark / "proc/8").mkdir()
    (spark / "proc/8/comm").write_text("from-proc\n")
    answers = {
        "nvmlDeviceGetComputeRunningProcesses": [process(7, 3), process(8, 2), process(9, 1)],
        "nvmlDeviceGetGraphicsRunningProcesses": [],
    }
    driver = FakeDriver(gb10(**answers))
    driver.names = {7: "\x1b[31mred\u202e [bold]x[/bold]"}
    reader = GpuReader(spark, driver)
    reader.read(0.0)
    names = [entry.name for entry in only(reader.read(1.0)).processes or ()]
    assert names == ["[31mred [bold]x[/bold]", "from-proc", "pid 9"]
    assert driver.calls["nvmlSystemGetProcessName"] == 3


def test_several_gpus_are_read_each_for_itself() -> None:
    """Eight discrete GPUs give eight readings in the driver's order."""
    driver = FakeDriver(*(h200(nvmlDeviceGetTemperature=40 + index) for index in range(8)))
    picture = read(driver)
    assert [(gpu.index, gpu.temperature_c) for gpu in picture.gpus] == [(i, 40.0 + i) for i in range(8)]
    assert picture.unified is False


def test_energy_is_in_joules_where_the_driver_counts_it() -> None:
    """Energy in millijoules since the driver was loaded becomes joules; 0 means that it is not counted."""
    assert only(read(FakeDriver(h200()))).energy_j == 5_123_456.789
    assert only(read(FakeDriver(gb10()))).energy_j is None
    assert only(read(FakeDriver(h200(nvmlDeviceGetTotalEnergyConsumption=0)))).energy_j is None


def test_a_gpu_that_answers_nothing_is_said() -> None:
    """A GPU of which only name and UUID are known gets a note, rather than a row of dashes only."""
    silent = {"nvmlDeviceGetName": "NVIDIA GB10", "nvmlDeviceGetUUID": "GPU-1"}
    picture = GpuReader(NOWHERE, FakeDriver(h200(), silent)).read(0.0)
    assert [gpu.name for gpu in picture.gpus] == ["NVIDIA H200", "NVIDIA GB10"]
    assert picture.note == "GPU 1 reports nothing: the driver answers no query about it"
