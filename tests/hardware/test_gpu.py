"""GPUs by the answers of their drivers: readings, throttling, MIG, and drivers that disappear.

Memory that is counted twice, or that contradicts itself: NUMA nodes of GPUs, odd totals, KHO.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.doctor.check import Status
from sparktop.doctor.machine import _check_memory
from sparktop.hardware.gpu import GpuReader, GpuReadings, throttle_fields
from sparktop.hardware.machine import Machine
from sparktop.model.node import CpuReading, GpuReading, MemoryReading, NodeIdentity, NodeSample
from sparktop.report.tables import memory_notes
from tests.hardware.fake_driver import (
    FIELDS_AT_0,
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
from tests.hardware.gb10_root import write
from tests.known import known

NOWHERE = Path("/nonexistent")
PROCESS_LISTS = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
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


def read(driver: FakeDriver, now: float = 0.0) -> GpuReadings:
    return GpuReader(NOWHERE, driver).read(now, MACHINE_BYTES)


def only(picture: GpuReadings) -> GpuReading:
    (gpu,) = picture.gpus
    return gpu


def test_a_discrete_gpu_has_memory_of_its_own() -> None:
    """Total and used memory are the GPU's own, and its processes hold none of the machine's memory."""
    picture = read(FakeDriver(h200()))
    gpu = only(picture)
    assert (picture.unified, picture.processes_bytes) == (False, None)
    assert (gpu.memory_total_bytes, gpu.memory_used_bytes) == (141 * GIB, 90 * GIB)
    assert (gpu.power_w, gpu.power_limit_w, gpu.energy_j) == (612.0, 700.0, 5_123_456.789)


@pytest.mark.parametrize("call", UNKNOWN_AFTER)
@pytest.mark.parametrize("code", [NOT_SUPPORTED, UNKNOWN_ERROR])
def test_one_failing_call_costs_no_other_reading(call: str, code: int) -> None:
    """If one call fails, only its own fields are unknown."""
    machine_bytes = MACHINE_BYTES * 4
    whole = only(GpuReader(NOWHERE, FakeDriver(h200())).read(0.0, machine_bytes))
    driver = FakeDriver(h200())
    driver.failing[call] = refuse(code)
    picture = GpuReader(NOWHERE, driver).read(0.0, machine_bytes)
    gpu = only(picture)
    lost = {name for name in GpuReading.__struct_fields__ if getattr(gpu, name) != getattr(whole, name)}
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


def test_names_of_processes_are_cleaned(spark: Path) -> None:
    """A process name comes from the driver, from /proc or is the pid, and is cleaned."""
    (spark / "proc/8").mkdir()
    (spark / "proc/8/comm").write_text("from-proc\n")
    listed = [process(7, 3), process(8, 2), process(9, 1)]
    driver = FakeDriver(gb10(**dict(zip(PROCESS_LISTS, (listed, []), strict=True))))
    driver.names = {7: "\x1b[31mred\u202e [bold]x[/bold]"}
    names = [entry.name for entry in only(GpuReader(spark, driver).read(1.0)).processes or ()]
    assert names == ["[31mred [bold]x[/bold]", "from-proc", "pid 9"]


SECOND_NS = 10**9


def shares(readings: list[tuple[float, int | None]]) -> list[float | None]:
    """Return the throttled share of the reason of field 74 at each reading of its counter."""
    fake = FakeDriver(gb10())
    reader = GpuReader(NOWHERE, fake)
    found = []
    for now, count in readings:
        fake.gpus[0]["fields"] = {**FIELDS_AT_0, 74: count}
        found.append(only(reader.read(now)).throttled_percent.get(throttle_fields(fake.driver)[74]))
    return found


def test_a_counter_in_another_unit_has_no_share() -> None:
    """A counter that grows by far more than 100 % of the time has another unit; by 1 % more it is 100 %."""
    for grown, share in ((SECOND_NS * 1000, None), (SECOND_NS * 101 // 100, 100.0)):
        assert shares([(0.0, 0), (1.0, grown)]) == [None, share]


@pytest.mark.parametrize(
    ("driver", "numbers"),
    [
        ("610.43.02", {74, 76, 269, 270, 271}),
        ("580.82.07", {74, 76, 269, 270, 271}),
        ("580.76.05", {74, 75, 76}),
        ("580.65.06", {74, 76, 251, 252, 253}),
        ("garbage", {74, 75, 76}),
    ],
)
def test_the_counters_numbers_belong_to_the_driver(driver: str | None, numbers: set[int]) -> None:
    """The numbers of the fields depend on the driver's version."""
    fields = throttle_fields(driver)
    assert set(fields) == numbers
    assert len(set(fields.values())) == len(fields)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=6))
def test_a_share_is_a_share(counts: list[int]) -> None:
    """Whatever a driver counts, a share is None or between 0 and 100."""
    found = shares([(float(second), count) for second, count in enumerate(counts)])
    assert all(share is None or 0.0 <= share <= 100.0 for share in found)


def test_processes_name_their_instance() -> None:
    """With permission to see all processes, each one has the index of its instance, if it is known."""
    listed = [process(11, 3 * GIB, (7, 0)), process(12, GIB, (9, 1)), process(13, GIB, (4, 4))]
    driver = FakeDriver(
        h100(mig_slice((7, 0)), mig_slice((9, 1)), nvmlDeviceGetComputeRunningProcesses=listed)
    )
    found = {held.pid: held.mig_index for held in only(read(driver)).processes or ()}
    assert found == {11: 0, 12: 1, 13: None, 900: None}


def test_without_permission_each_instance_lists_its_own() -> None:
    """Without permission for the GPU's process list, each instance's own list is read."""
    one = mig_slice((7, 0), nvmlDeviceGetComputeRunningProcesses=[process(11, 3 * GIB, (7, 0))])
    other = mig_slice((9, 1), nvmlDeviceGetComputeRunningProcesses=refuse(UNKNOWN_ERROR))
    gpu = only(read(FakeDriver(h100(one, other, **dict.fromkeys(PROCESS_LISTS, refuse(4))))))
    assert [(held.pid, held.mig_index) for held in gpu.processes or ()] == [(11, 0)]


def test_an_instance_that_is_taken_away_is_no_lost_gpu() -> None:
    """An instance that is gone does not count as a lost GPU; the layout is read again."""
    driver = FakeDriver(h100(mig_slice((7, 0)), mig_slice((8, 0))))
    reader = GpuReader(NOWHERE, driver)
    reader.read(0.0)
    driver.lost = {(0, 1)}
    gpu = only(reader.read(5.0))
    assert [one.memory_total_bytes for one in gpu.mig_instances] == [10 * GIB, None]
    driver.gpus[0]["slices"] = (mig_slice((7, 0)),)
    assert len(only(reader.read(6.0)).mig_instances) == 1


def test_a_lost_gpu_leaves_the_others_and_comes_back() -> None:
    """The note names the lost GPU, the others are read; the library is closed and later opened again."""
    driver = FakeDriver(h200(), h200())
    reader = GpuReader(NOWHERE, driver)
    assert len(reader.read(0.0).gpus) == 2
    driver.lost = {1}
    any_more = "GPU 1 does not answer any more: the driver lost it"
    for now, note in ((1.0, any_more), (2.0, any_more), (31.0, "GPU 1 does not answer: GPU is lost")):
        picture = reader.read(now)
        assert ([gpu.index for gpu in picture.gpus], picture.note) == ([0], note)
    driver.lost = set()
    picture = reader.read(61.0)
    assert ([gpu.index for gpu in picture.gpus], picture.note) == ([0, 1], None)
    assert driver.opened == 1


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
    for now[0] in (40.0, 80.0):
        sample = machine.read()
    assert (sample.memory.unified, sample.gpus) == (True, ())
    assert sample.memory.gpu_processes_bytes is None
    assert sample.gpu_note == "the NVIDIA driver is not loaded"
    assert sample.memory.used_bytes
    assert sample.sensors
    assert known(machine.identity).driver == "580.126.09"


ATS = {"nvmlDeviceGetAddressingMode": 2}


def gh200(root: Path, *, gpus: int = 1, host_gib: int = 480, hbm_gib: int = 96) -> None:
    """Write /proc and /sys of a machine whose GPUs' memory is a NUMA node without CPUs each."""
    kib = 1024 * 1024
    total = host_gib + gpus * hbm_gib
    free = host_gib // 2 + gpus * hbm_gib // 4
    write(
        root,
        "proc/meminfo",
        f"MemTotal: {total * kib} kB\nMemFree: {free * kib} kB\nMemAvailable: {free * kib} kB\n"
        "Buffers: 0 kB\nCached: 0 kB\nShmem: 0 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
    )
    node = "sys/devices/system/node/node{}/"
    write(root, node.format(0) + "cpulist", "0-71\n")
    write(root, node.format(0) + "meminfo", f"Node 0 MemTotal: {host_gib * kib} kB\n")
    for index in range(1, gpus + 1):
        write(root, node.format(index) + "cpulist", "\n")
        lines = (f"MemTotal: {hbm_gib * kib}", f"MemFree: {hbm_gib // 4 * kib}", "FilePages: 0")
        write(root, node.format(index) + "meminfo", "".join(f"Node {index} {line} kB\n" for line in lines))
    write(root, node.format(9) + "cpulist", "\n")  # for MIG instances: without memory
    write(root, node.format(9) + "meminfo", "Node 9 MemTotal: 0 kB\n")


@pytest.mark.parametrize("gpus", [1, 4])
def test_memory_of_coherent_gpus_is_counted_once(tmp_path: Path, gpus: int) -> None:
    """HBM in a NUMA node of its own is the GPU's, and is no part of the machine's memory."""
    gh200(tmp_path, gpus=gpus)
    hopper = h200(nvmlDeviceGetMemoryInfo=memory(95 * GIB, 70 * GIB), nvmlDeviceGetName="NVIDIA GH200") | ATS
    hopper["nvmlDeviceGetComputeRunningProcesses"] = [process(4242, 69 * GIB)]
    sample = Machine(tmp_path, nvml=FakeDriver(*[hopper] * gpus)).read()
    assert sample.memory.total_bytes == 480 * GIB
    assert sample.memory.available_bytes == sample.memory.headroom_bytes == 240 * GIB
    assert sample.memory.gpu_nodes_bytes == gpus * 96 * GIB
    assert sample.memory.unified is False
    assert [gpu.memory_total_bytes for gpu in sample.gpus] == [95 * GIB] * gpus
    (note,) = memory_notes(sample.memory)
    assert f"left out: {gpus * 96}.0 GiB" in note


def test_a_process_that_holds_more_than_there_is_is_a_contradiction() -> None:
    """8 GiB reported and 60 GiB held: the GPU uses the machine's memory, and the contradiction is shown."""
    held = dict(zip(PROCESS_LISTS, ([process(4242, 60 * GIB)], []), strict=True))
    reader = GpuReader(NOWHERE, FakeDriver(h200(nvmlDeviceGetMemoryInfo=memory(8 * GIB, GIB)) | held))
    for now in (1.0, 2.0):
        picture = reader.read(now, 128 * GIB)
        (gpu,) = picture.gpus
        assert (picture.unified, gpu.memory_total_bytes) == (True, None)
        assert "reports 8.0 GiB, but processes hold 60.0 GiB" in known(gpu.memory_note)
    shared = MemoryReading(unified=True, total_bytes=128 * GIB)
    check = _check_memory(NodeSample(1.0, CpuReading(), shared, picture.gpus), NodeIdentity())
    assert (check.status, "contradictory" in check.message) == (Status.WARN, True)


@pytest.mark.parametrize(("clock", "unified"), [(refuse(NOT_SUPPORTED), True), (0, True), (2619, False)])
def test_a_coherent_gpu_without_a_node_uses_the_machine_s_memory(clock: object, *, unified: bool) -> None:
    """ATS and no node: unified, whatever total the driver reports; with a memory clock it has its own."""
    one = gb10(nvmlDeviceGetName="NVIDIA N1X", nvmlDeviceGetMemoryInfo=memory(8 * GIB, GIB)) | ATS
    one |= {MEMORY_CLOCK: clock, "nvmlDeviceGetComputeRunningProcesses": []}
    picture = GpuReader(NOWHERE, FakeDriver(one)).read(1.0, 128 * GIB)
    assert picture.unified is unified
    assert (picture.gpus[0].memory_note is not None) is unified


def test_kexec_handover_is_named_as_the_cause(spark: Path) -> None:
    """CmaTotal 0 and CmaFree 9.7 GiB: the headroom's cause is KHO, and kho=off gives the memory back."""
    kept = [line for line in (spark / "proc/meminfo").read_text().splitlines() if not line.startswith("Cma")]
    added = ["CmaTotal: 0 kB", f"CmaFree: {int(9.7 * 1024**2)} kB", ""]
    write(spark, "proc/meminfo", "\n".join([*kept, *added]))
    sample = Machine(spark, nvml=FakeDriver(gb10())).read()
    cause = known(sample.memory.handover_cause)
    assert cause.startswith("9.7 GiB")
    assert "kho=off" in cause
    (note,) = memory_notes(sample.memory)
    assert "kho=off" in note
    assert "ENOMEM" in note
    check = _check_memory(sample, NodeIdentity())
    assert (check.status, "kho=off" in check.advice) == (Status.WARN, True)
