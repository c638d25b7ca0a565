"""Memory that is counted twice, or that contradicts itself: NUMA nodes of GPUs, odd totals, KHO."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.doctor.check import Status
from sparktop.doctor.machine import _check_memory
from sparktop.hardware.gpu import GpuReader
from sparktop.hardware.machine import Machine
from sparktop.model.node import CpuReading, MemoryReading, NodeIdentity, NodeSample
from sparktop.model.snapshot import NodeView
from sparktop.report.text_snapshot import node_sentences
from tests.hardware.fake_driver import (
    GIB,
    MEMORY_CLOCK,
    NOT_SUPPORTED,
    FakeDriver,
    gb10,
    h200,
    memory,
    process,
    refuse,
)
from tests.hardware.gb10_root import write

ATS = {"nvmlDeviceGetAddressingMode": 2}
NOWHERE = Path("/nonexistent")


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
    lines = "\n".join(node_sentences(NodeView("n", "local", sample=sample)))
    assert f"left out: {gpus * 96}.0 GiB" in lines


def test_an_expansion_card_is_the_machine_s_memory(tmp_path: Path) -> None:
    """A node without CPUs that is not as large as a GPU's memory is counted, also beside a GPU."""
    gh200(tmp_path, hbm_gib=256)
    sample = Machine(tmp_path, nvml=FakeDriver(h200())).read()
    assert (sample.memory.total_bytes, sample.memory.gpu_nodes_bytes) == (736 * GIB, None)


def test_a_process_that_holds_more_than_there_is_is_a_contradiction() -> None:
    """8 GiB reported and 60 GiB held: the GPU uses the machine's memory, and the contradiction is shown."""
    held = {
        "nvmlDeviceGetComputeRunningProcesses": [process(4242, 60 * GIB)],
        "nvmlDeviceGetGraphicsRunningProcesses": [],
    }
    reader = GpuReader(NOWHERE, FakeDriver(h200(nvmlDeviceGetMemoryInfo=memory(8 * GIB, GIB)) | held))
    for now in (1.0, 2.0):
        picture = reader.read(now, 128 * GIB)
        (gpu,) = picture.gpus
        assert (picture.unified, gpu.memory_total_bytes) == (True, None)
        assert gpu.memory_note is not None
        assert "reports 8.0 GiB, but processes hold 60.0 GiB" in gpu.memory_note
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
    cause = sample.memory.handover_cause
    assert cause is not None
    assert cause.startswith("9.7 GiB")
    assert "kho=off" in cause
    lines = "\n".join(node_sentences(NodeView("n", "local", sample=sample)))
    assert "kho=off" in lines
    assert "ENOMEM" in lines
    check = _check_memory(sample, NodeIdentity())
    assert (check.status, "kho=off" in check.advice) == (Status.WARN, True)
