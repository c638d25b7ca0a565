"""GPUs that are split into MIG instances."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from sparktop.hardware.gpu import GpuReader, profile_name
from sparktop.model.node import GpuReading, MigInstance
from tests.hardware.fake_driver import (
    GIB,
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


def only(reader: GpuReader, now: float = 0.0) -> GpuReading:
    (gpu,) = reader.read(now).gpus
    return gpu


def test_instances_have_profile_uuid_and_memory() -> None:
    """An instance has the profile from the end of its name, UUID and memory; empty indexes are skipped."""
    driver = FakeDriver(
        h100(
            mig_slice((7, 0)),
            None,
            mig_slice((2, 0), nvmlDeviceGetName="NVIDIA H100 80GB HBM3 MIG 3g.40gb"),
        )
    )
    gpu = only(GpuReader(NOWHERE, driver))
    assert gpu.mig is True
    assert gpu.mig_instances == (
        MigInstance(0, "1g.10gb", "MIG-00000007-0000-0000-0000-000000000000", 10 * GIB, 3 * GIB),
        MigInstance(2, "3g.40gb", "MIG-00000002-0000-0000-0000-000000000000", 10 * GIB, 3 * GIB),
    )
    assert (gpu.utilization_percent, gpu.memory_total_bytes) == (None, 80 * GIB)


@pytest.mark.parametrize(("gpu", "mig"), [(gb10(), None), (h200(), False), (h100(), True)])
def test_whether_a_gpu_is_split(gpu: dict[str, object], mig: bool | None) -> None:  # noqa: FBT001 - an expectation
    """A GPU may be unable to be split, not be split, or be split without any instance."""
    reading = only(GpuReader(NOWHERE, FakeDriver(gpu)))
    assert (reading.mig, reading.mig_instances) == (mig, ())


def test_processes_name_their_instance() -> None:
    """With permission to see all processes, each one has the index of its instance, if it is known."""
    listed = [process(11, 3 * GIB, (7, 0)), process(12, GIB, (9, 1)), process(13, GIB, (4, 4))]
    driver = FakeDriver(
        h100(mig_slice((7, 0)), mig_slice((9, 1)), nvmlDeviceGetComputeRunningProcesses=listed)
    )
    found = {held.pid: held.mig_index for held in only(GpuReader(NOWHERE, driver)).processes or ()}
    assert found == {11: 0, 12: 1, 13: None, 900: None}


def test_without_permission_each_instance_lists_its_own() -> None:
    """Without permission for the GPU's process list, each instance's own list is read."""
    one = mig_slice((7, 0), nvmlDeviceGetComputeRunningProcesses=[process(11, 3 * GIB, (7, 0))])
    other = mig_slice((9, 1), nvmlDeviceGetComputeRunningProcesses=refuse(UNKNOWN_ERROR))
    refused = dict.fromkeys(
        ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"), refuse(4)
    )
    gpu = only(GpuReader(NOWHERE, FakeDriver(h100(one, other, **refused))))
    assert [(held.pid, held.mig_index) for held in gpu.processes or ()] == [(11, 0)]


def test_an_instance_that_is_taken_away_is_no_lost_gpu() -> None:
    """An instance that is gone does not count as a lost GPU; the layout is read again."""
    driver = FakeDriver(h100(mig_slice((7, 0)), mig_slice((8, 0))))
    reader = GpuReader(NOWHERE, driver)
    only(reader)
    driver.lost = {(0, 1)}
    gpu = only(reader, 5.0)
    assert [one.memory_total_bytes for one in gpu.mig_instances] == [10 * GIB, None]
    driver.gpus[0]["slices"] = (mig_slice((7, 0)),)
    assert len(only(reader, 6.0).mig_instances) == 1


@pytest.mark.parametrize(
    ("slices", "compute", "held_mib", "gpu_gib", "name"),
    [
        (1, 1, 4_864, 39.5, "1g.5gb"),
        (1, 1, 9_984, 79.6, "1g.10gb"),
        (3, 1, 40_320, 79.6, "1c.3g.40gb"),
        (7, 7, 81_152, 79.6, "7g.80gb"),
        (1, 1, 16_384, 140.4, "1g.18gb"),
    ],
)
def test_a_profile_is_named_by_its_slices(
    slices: int, compute: int, held_mib: int, gpu_gib: float, name: str
) -> None:
    """If an instance's name lacks the profile, it is computed from slices and memory (A100, H100, H200)."""
    attributes = SimpleNamespace(
        gpuInstanceSliceCount=slices, computeInstanceSliceCount=compute, memorySizeMB=held_mib
    )
    assert profile_name(attributes, int(gpu_gib * GIB)) == name
    unnamed = mig_slice(nvmlDeviceGetName="NVIDIA H100", nvmlDeviceGetAttributes=attributes)
    driver = FakeDriver(h100(unnamed, nvmlDeviceGetMemoryInfo=memory(int(gpu_gib * GIB))))
    assert only(GpuReader(NOWHERE, driver)).mig_instances[0].name == name
