"""Machines whose driver is a C library behind the real nvidia-ml-py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.hardware import gb10_root
from tests.nvml_shim import shim_states as states
from tests.nvml_shim.conftest import Shim, Steps

MACHINE_BYTES = gb10_root.TOTAL_KIB * 1024
GIB = 2**30
SHARES = ("software power cap", "sync boost", "software thermal", "hardware thermal", "hardware power brake")
GB10 = {
    "index": 0,
    "memory_note": None,
    "name": "NVIDIA GB10",
    "uuid": "GPU-11111111-2222-3333-4444-555555555555",
    "utilization_percent": 96.0,
    "temperature_c": 81.0,
    "limit_margin_c": 13.0,
    "power_w": 38.25,
    "power_limit_w": None,
    "sm_clock_mhz": 2411,
    "sm_clock_max_mhz": 3003,
    "memory_total_bytes": None,
    "memory_used_bytes": None,
    "throttle_reasons": ["software power cap"],
    "throttled_percent": {**dict.fromkeys(SHARES, 0.0), "software power cap": 25.0},
    "energy_j": None,
    "slowdown_c": None,
    "mig": None,
    "mig_instances": [],
}
PROCESSES = [
    (4242, "VLLM::Worker_TP0", states.ENGINE_MIB * 2**20, "compute"),
    (900, "Xorg", 60 * 2**20, "graphics"),
]
Read = dict[str, list[dict[str, Any]]]
UNIFIED = {
    "not supported": None,
    "nearly the machine's total": f"{MACHINE_BYTES * 94 // 100} {100 * GIB}",
}


def steps(make: Any, *arguments: object, **changes: object) -> Steps:  # noqa: ANN401 - each machine takes its own
    """Return a machine at its start and two seconds later."""
    return [(float(second), make(*arguments, seconds=second, **changes)) for second in (0, 2)]


@pytest.fixture(scope="module")
def read(shim: Shim, spark_root: Path) -> Read:
    """Return the readings of every machine, made in one process."""
    machines = {f"gb10, {kind}": steps(states.gb10, memory) for kind, memory in UNIFIED.items()}
    machines["eight"] = steps(states.eight_h100)
    machines["not loaded"] = [(0.0, "* nvmlInitWithFlags !9\n")]
    machines["no device"] = [(0.0, states.driver(0))]
    return shim.read(spark_root, machines)


@pytest.mark.parametrize("kind", UNIFIED)
def test_a_gb10_is_read_whole_whatever_it_says_of_memory(read: Read, kind: str) -> None:
    """A GB10 is read completely and drawn, for each way to report that its memory is the machine's."""
    found = read[f"gb10, {kind}"][-1]
    (gpu,) = found["gpus"]
    processes = gpu.pop("processes")
    assert gpu == GB10
    assert [(one["pid"], one["name"], one["memory_bytes"], one["kind"]) for one in processes] == PROCESSES
    assert (found["unified"], found["note"], found["driver"]) == (True, None, "580.126.09")
    assert found["processes_bytes"] == sum(one[2] for one in PROCESSES)
    for text in (found["panel"], found["detail"]):
        assert all(word in text for word in ("NVIDIA GB10", "96 %", "38", "81", "2411"))
    assert "mem " in found["panel"]
    assert all(word in found["detail"] for word in ("unified memory", "limit 94", "25 %", "VLLM::Worker_TP0"))


def test_eight_gpus_are_read_each_for_itself_and_mig_is_named(read: Read) -> None:
    """Each of eight GPUs is read; the split one lists its instances and has no utilization."""
    found = read["eight"][-1]
    assert [gpu["index"] for gpu in found["gpus"]] == list(range(8))
    assert [gpu["temperature_c"] for gpu in found["gpus"]] == [52.0 + index for index in range(8)]
    assert [gpu["mig"] for gpu in found["gpus"]] == [index == 3 for index in range(8)]
    split = found["gpus"][3]
    named = [
        (one["index"], one["name"], one["memory_total_bytes"], one["memory_used_bytes"])
        for one in split["mig_instances"]
    ]
    assert named == [(0, "1g.10gb", 10 * GIB, 7 * GIB), (2, "3g.40gb", 40 * GIB, GIB)]
    assert [one["uuid"][:7] for one in split["mig_instances"]] == ["MIG-aaa", "MIG-bbb"]
    assert [(one["pid"], one["mig_index"]) for one in split["processes"]] == [(11, 0)]
    assert [gpu["utilization_percent"] for gpu in found["gpus"]] == [
        None if index == 3 else 87.0 for index in range(8)
    ]
    assert "H100" in found["panel"]
    assert all(word in found["detail"] for word in ("1g.10gb", "3g.40gb"))


@pytest.mark.parametrize(
    ("name", "note"),
    [("not loaded", "the NVIDIA driver is not loaded"), ("no device", "no NVIDIA GPU on this machine")],
)
def test_a_library_without_a_gpu_is_one_honest_line(read: Read, name: str, note: str) -> None:
    """A driver that is not loaded, or without a device, is a note, shown in the panel."""
    (found,) = read[name]
    assert (found["gpus"], found["note"], found["unified"]) == ([], note, None)
    assert note in found["panel"]
    assert note in found["detail"]


@pytest.mark.outside
def test_a_library_that_is_none_is_no_driver(tmp_path: Path, spark_root: Path) -> None:
    """An empty library file counts as no driver."""
    (tmp_path / "libnvidia-ml.so.1").touch()
    ((found,),) = Shim(tmp_path).read(spark_root, {"absent": [(0.0, "")]}).values()
    assert (found["gpus"], found["note"]) == ([], "no NVIDIA driver on this machine")
    assert "no NVIDIA driver on this machine" in found["panel"]
    assert found["total_bytes"] == MACHINE_BYTES
