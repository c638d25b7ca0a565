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
    MEMORY_CLOCK,
    NOT_SUPPORTED,
    UNKNOWN_ERROR,
    FakeDriver,
    gb10,
    h100,
    h200,
    memory,
    mig_slice,
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


def test_a_discrete_gpu_can_have_as_much_memory_as_its_machine() -> None:
    """A GPU with as much memory as its machine, like an H200, is discrete if it has a memory clock."""
    reader = GpuReader(NOWHERE, FakeDriver(h200()))
    assert reader.read(0.0, 135 * GIB).unified is False


def test_a_gb10_is_unified_whatever_clock_it_tells() -> None:
    """A GB10 is unified by its name, even if the driver reports a memory clock."""
    answers = gb10(nvmlDeviceGetMemoryInfo=memory(MACHINE_BYTES)) | {MEMORY_CLOCK: 8533}
    assert read(FakeDriver(answers)).unified is True
    other = h200(nvmlDeviceGetName="NVIDIA GB100", nvmlDeviceGetMemoryInfo=memory(MACHINE_BYTES))
    assert read(FakeDriver(other)).unified is False


def test_a_gb10_is_unified_though_its_memory_cannot_be_asked_for() -> None:
    """An unknown error of the memory call does not change that a GB10 is unified."""
    picture = read(FakeDriver(gb10(nvmlDeviceGetMemoryInfo=refuse(UNKNOWN_ERROR))))
    assert (picture.unified, picture.processes_bytes) == (True, (102_625 + 60) * 1024**2)


def test_a_passing_error_does_not_make_memory_unified() -> None:
    """A memory clock that cannot be read once does not make a discrete GPU unified."""
    answers = h200() | {MEMORY_CLOCK: refuse(UNKNOWN_ERROR)}
    assert GpuReader(NOWHERE, FakeDriver(answers)).read(0.0, 141 * GIB).unified is False


def test_a_discrete_gpu_without_the_memory_call_is_not_unified() -> None:
    """A GPU with a memory clock is discrete, even if the memory call is NOT_SUPPORTED."""
    picture = read(FakeDriver(h200(nvmlDeviceGetMemoryInfo=refuse(NOT_SUPPORTED))))
    assert (picture.unified, picture.processes_bytes) == (False, None)


def test_memory_that_fails_leaves_the_question_open() -> None:
    """After an unknown error of the memory call, only a memory clock decides; without one it is unknown."""
    answers = h200(nvmlDeviceGetMemoryInfo=refuse(UNKNOWN_ERROR))
    assert read(FakeDriver(answers)).unified is False
    assert read(FakeDriver(answers | {MEMORY_CLOCK: refuse(NOT_SUPPORTED)})).unified is None


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


def test_a_function_newer_than_the_driver_is_no_answer() -> None:
    """A function that the driver lacks counts as no answer, though its error is not an NVMLError."""
    driver = FakeDriver(gb10())
    driver.failing["nvmlDeviceGetComputeRunningProcesses"] = driver.NVMLLibraryMismatchError("too new")
    assert [held.pid for held in only(read(driver)).processes or ()] == [900]


def test_without_either_list_processes_are_unknown() -> None:
    """Without both process lists the processes are None, not empty."""
    driver = FakeDriver(gb10())
    for kind in ("Compute", "Graphics"):
        driver.failing[f"nvmlDeviceGet{kind}RunningProcesses"] = refuse(NOT_SUPPORTED)
    picture = read(driver)
    assert (only(picture).processes, picture.processes_bytes) == (None, None)


def test_what_the_driver_does_not_know_is_not_asked_for_ten_minutes() -> None:
    """A NOT_SUPPORTED call is repeated after ten minutes, because the driver may have been replaced."""
    driver = FakeDriver(gb10(nvmlDeviceGetMarginTemperature=refuse(NOT_SUPPORTED)))
    reader = GpuReader(NOWHERE, driver)
    for now in (0.0, 1.0, 599.0):
        assert only(reader.read(now, MACHINE_BYTES)).limit_margin_c is None
    assert driver.calls["nvmlDeviceGetMarginTemperature"] == 1
    driver.gpus[0]["nvmlDeviceGetMarginTemperature"] = 20
    assert only(reader.read(600.0, MACHINE_BYTES)).limit_margin_c == 20.0


def test_memory_stays_unified_while_it_is_not_asked_for() -> None:
    """Unified memory is queried once, in both versions of the call, and then remembered."""
    driver = FakeDriver(gb10(nvmlDeviceGetName="NVIDIA Thor"))
    reader = GpuReader(NOWHERE, driver)
    assert [reader.read(now, MACHINE_BYTES).unified for now in (0.0, 1.0, 2.0)] == [True, True, True]
    assert driver.calls["nvmlDeviceGetMemoryInfo"] == 2


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


def test_a_process_that_computes_and_draws_is_one() -> None:
    """A process in both of the driver's lists is one process, whose memory counts once."""
    answers = {
        "nvmlDeviceGetComputeRunningProcesses": [process(7, 5 * GIB), process(8, None)],
        "nvmlDeviceGetGraphicsRunningProcesses": [process(7, 5 * GIB), process(9, 2**64 - 1)],
    }
    picture = read(FakeDriver(gb10(**answers)))
    held = [(entry.pid, entry.memory_bytes, entry.kind) for entry in only(picture).processes or ()]
    assert held == [(7, 5 * GIB, "both"), (8, None, "compute"), (9, None, "graphics")]
    assert picture.processes_bytes == 5 * GIB


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


def test_a_number_used_again_is_looked_up_again() -> None:
    """A pid that is used again by another process is looked up again."""
    driver = FakeDriver(gb10(nvmlDeviceGetGraphicsRunningProcesses=[]))
    reader = GpuReader(NOWHERE, driver)
    reader.read(0.0)
    driver.gpus[0]["nvmlDeviceGetComputeRunningProcesses"] = []
    reader.read(1.0)
    driver.gpus[0]["nvmlDeviceGetComputeRunningProcesses"] = [process(4242, 1)]
    driver.names[4242] = "another"
    assert [entry.name for entry in only(reader.read(2.0)).processes or ()] == ["another"]


@pytest.mark.parametrize("name", ["NVIDIA\x1b[2J GB10\u202e", "NVIDIA\n[2J GB10"])
def test_names_of_devices_are_cleaned(name: str) -> None:
    """Device names are cleaned."""
    assert only(read(FakeDriver(gb10(nvmlDeviceGetName=name)))).name == "NVIDIA [2J GB10"


def test_names_that_are_no_utf8_are_unknown() -> None:
    """A name that is not valid UTF-8, for which nvidia-ml-py raises, is unknown."""
    driver = FakeDriver(gb10(nvmlDeviceGetName=UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")))
    assert only(read(driver)).name is None


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


def test_the_slowdown_threshold_is_for_drivers_that_tell_no_margin() -> None:
    """The slowdown threshold is read only if the driver reports no margin: newer drivers deprecate it."""
    driver = FakeDriver(h200(), h200(nvmlDeviceGetMarginTemperature=refuse(FUNCTION_NOT_FOUND)))
    first, second = read(driver).gpus
    assert (first.limit_margin_c, first.slowdown_c) == (13.0, None)
    assert (second.limit_margin_c, second.slowdown_c) == (None, 87.0)
    assert driver.calls["nvmlDeviceGetTemperatureThreshold"] == 1


def test_a_power_limit_of_nothing_is_no_limit() -> None:
    """A power limit of 0 W is unknown."""
    assert only(read(FakeDriver(h200(nvmlDeviceGetEnforcedPowerLimit=0)))).power_limit_w == 700.0


def test_a_changed_power_limit_is_seen_within_half_a_minute() -> None:
    """The power limit is read again after half a minute."""
    driver = FakeDriver(h200())
    reader = GpuReader(NOWHERE, driver)
    reader.read(0.0)
    driver.gpus[0]["nvmlDeviceGetEnforcedPowerLimit"] = 500_000
    assert only(reader.read(29.0)).power_limit_w == 700.0
    assert only(reader.read(30.0)).power_limit_w == 500.0


def test_a_gpu_that_answers_nothing_is_said() -> None:
    """A GPU of which only name and UUID are known gets a note, rather than a row of dashes only."""
    silent = {"nvmlDeviceGetName": "NVIDIA GB10", "nvmlDeviceGetUUID": "GPU-1"}
    picture = GpuReader(NOWHERE, FakeDriver(h200(), silent)).read(0.0)
    assert [gpu.name for gpu in picture.gpus] == ["NVIDIA H200", "NVIDIA GB10"]
    assert picture.note == "GPU 1 reports nothing: the driver answers no query about it"


@pytest.mark.parametrize(
    ("gpus", "most"),
    [
        ([gb10()], 8.5),
        ([gb10(nvmlDeviceGetName="Thor", nvmlDeviceGetMemoryInfo=memory(MACHINE_BYTES))], 8.5),
        ([gb10(nvmlDeviceGetName="Thor", nvmlDeviceGetMemoryInfo=memory(0))], 8.5),
        ([h200()], 10.5),
        ([h200()] * 8, 84.0),
        ([h100(*[mig_slice((place, 0)) for place in range(7)])], 12.0),
    ],
    ids=["GB10", "with the machine's total", "with total 0", "H200", "eight", "seven slices"],
)
def test_a_sample_costs_few_calls(gpus: list[dict[str, Any]], most: float) -> None:
    """Over a minute at one sample a second, constants are never read again and other calls are limited."""
    driver = FakeDriver(*gpus)
    reader = GpuReader(NOWHERE, driver)
    reader.read(0.0, MACHINE_BYTES)
    driver.calls.clear()
    for second in range(1, 61):
        reader.read(float(second), MACHINE_BYTES)
    assert driver.calls.total() / 60 <= most
    once = {"nvmlDeviceGetName", "nvmlDeviceGetMaxClockInfo", "nvmlSystemGetDriverVersion"}
    assert not once & driver.calls.keys()
