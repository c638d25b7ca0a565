"""The checks of a machine's readings: drivers, shared memory, limits, library versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.doctor.check import Status
from sparktop.doctor.machine import (
    RESERVED_FILES,
    check_machine,
    check_open_files,
    check_versions,
    look_at_machine,
    open_file_limits,
)
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import GpuReading, MemoryReading, NodeIdentity, NodeSample

GIB = 1024**3
SPARK = NodeIdentity(driver="580.95", product="NVIDIA DGX Spark")
PLAIN = NodeIdentity(product="Laptop")
GB10 = GpuReading(
    index=0,
    name="NVIDIA GB10",
    utilization_percent=5.0,
    temperature_c=40.0,
    power_w=12.0,
    sm_clock_mhz=2400,
    throttle_reasons=(),
    processes=(),
)
UNIFIED = MemoryReading(unified=True, total_bytes=122 * GIB, headroom_bytes=90 * GIB)


def statuses(sample: NodeSample, identity: NodeIdentity) -> dict[str, Status]:
    return {check.name: check.status for check in check_machine(sample, identity)}


def test_a_spark_with_all_of_it_passes() -> None:
    """GPU, driver and shared memory are recognised; values that the driver does not report are listed."""
    gpu, memory = check_machine(NodeSample(1.0, memory=UNIFIED, gpus=(GB10,)), SPARK)
    assert (gpu.status, memory.status) == (Status.OK, Status.OK)
    assert gpu.message == "NVIDIA GB10, driver 580.95; not reported: power limit, memory"
    assert memory.message == "122.0 GiB shared with the GPU (unified), headroom 90.0 GiB"


def test_a_machine_without_a_gpu_is_no_failure() -> None:
    """A machine without a GPU does not fail, as one that only watches servers elsewhere."""
    sample = NodeSample(1.0, gpu_note="no NVIDIA driver on this machine")
    assert statuses(sample, PLAIN) == {"driver": Status.SKIP, "memory": Status.OK}


def test_a_spark_without_a_driver_is_a_failure() -> None:
    """A Spark without a driver fails, and its memory is a warning."""
    sample = NodeSample(1.0, gpu_note="no NVIDIA driver on this machine")
    assert statuses(sample, SPARK) == {"driver": Status.FAIL, "memory": Status.WARN}


@pytest.mark.parametrize(
    "note", ["the NVIDIA driver was updated: reload it", "GPU 0 does not answer any more"]
)
def test_a_driver_in_trouble_is_a_failure(note: str) -> None:
    """A driver that is installed but does not work is a failure on every machine."""
    assert statuses(NodeSample(1.0, gpu_note=note), PLAIN)["driver"] is Status.FAIL


def test_a_gpu_that_tells_nothing_is_a_warning() -> None:
    """A GPU without any reported value is a warning."""
    sample = NodeSample(1.0, gpus=(GpuReading(index=0, throttle_reasons=None),))
    assert statuses(sample, PLAIN)["gpu 0"] is Status.WARN


def test_a_discrete_gpu_has_memory_of_its_own() -> None:
    """The memory check states that a discrete GPU has its own memory."""
    memory = MemoryReading(unified=False, total_bytes=64 * GIB)
    sample = NodeSample(1.0, memory=memory, gpus=(GpuReading(index=0, name="NVIDIA H200", power_w=90.0),))
    check = check_machine(sample, PLAIN)[-1]
    assert (check.status, check.message) == (Status.OK, "64.0 GiB; the GPU has memory of its own")


def test_a_driver_that_hangs_is_a_failure() -> None:
    """If reading this machine takes too long, there is one line that says so."""
    (check,) = check_machine(Failure(FailureKind.TIMEOUT, "reading hangs", 1.0), PLAIN)
    assert (check.name, check.status, check.message) == ("driver", Status.FAIL, "reading hangs")


@pytest.mark.outside
async def test_this_machine_can_be_looked_at() -> None:
    """The real machine gives a reading that can be judged."""
    checks = check_machine(*await look_at_machine())
    assert {"memory"} <= {check.name for check in checks}


@given(st.integers(0, 1 << 20), st.one_of(st.none(), st.integers(0, 1 << 20)), st.integers(0, 4096))
def test_open_files_say_what_a_sweep_reaches(soft: int, hard: int | None, wanted: int) -> None:
    """The stated concurrency fits into the limit, and is fine exactly if it reaches the requested one."""
    check = check_open_files(soft, hard, wanted)
    reach = int(check.message.rpartition("= ")[2])
    assert 0 <= reach <= max(0, soft - RESERVED_FILES)
    assert (check.status is Status.OK) is (reach >= max(wanted, 256))
    assert bool(check.advice) is (check.status is Status.WARN)


def test_no_limit_is_fine() -> None:
    """Without a limit the check is fine; the real limits can be read."""
    assert check_open_files(None, None).status is Status.OK
    soft, hard = open_file_limits()
    assert soft is None or soft > 0
    assert hard is None or soft is not None


def test_the_advice_respects_the_hard_limit() -> None:
    """`ulimit -n` is advised only up to the hard limit."""
    assert check_open_files(256, 4096).advice == "for c = 256: ulimit -n 320"
    assert "raise the hard limit (300) to 320" in check_open_files(256, 300).advice


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"textual": "8.2.8"}, [Status.OK, Status.OK, Status.FAIL]),
        ({"textual": "9.0"}, [Status.OK, Status.WARN, Status.FAIL]),
        ({}, [Status.OK, Status.FAIL, Status.FAIL]),
    ],
    ids=["good", "newer", "none"],
)
def test_libraries_that_are_missing_are_named(versions: dict[str, str], expected: list[Status]) -> None:
    """Missing libraries, and a Textual that is missing or too new, each have a line."""
    assert [check.status for check in check_versions(versions.get)] == expected
    assert "aiohttp" in check_versions(versions.get)[2].message


def test_the_installed_libraries_are_all_there() -> None:
    """All needed libraries are installed here."""
    assert {check.status for check in check_versions()} == {Status.OK}
