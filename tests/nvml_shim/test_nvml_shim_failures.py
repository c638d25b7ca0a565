"""Each call to the driver fails in turn, which may affect its own field only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.nvml_shim import shim_states as states
from tests.nvml_shim.conftest import Shim, Steps

NOT_SUPPORTED, UNKNOWN = 3, 999
MACHINES = {"gb10": states.gb10, "h200": states.h200, "split": states.split_h100}
MEMORY = {"memory_total_bytes", "memory_used_bytes"}


def everywhere(*fields: str) -> dict[str, set[str]]:
    """Return the same fields for each machine."""
    return {machine: set(fields) for machine in MACHINES}


LOST: dict[str, dict[str, set[str]]] = {
    "nvmlSystemGetDriverVersion": everywhere("driver", "throttled_percent"),
    "nvmlSystemGetProcessName": everywhere("processes"),
    "nvmlDeviceGetName": {"gb10": {"name"}, "h200": {"name"}, "split": {"name", "mig_instances"}},
    "nvmlDeviceGetUUID": {"gb10": {"uuid"}, "h200": {"uuid"}, "split": {"uuid", "mig_instances"}},
    "nvmlDeviceGetMemoryInfo_v2": {"h200": MEMORY, "split": MEMORY | {"mig_instances"}},
    "nvmlDeviceGetUtilizationRates": {"gb10": {"utilization_percent"}, "h200": {"utilization_percent"}},
    "nvmlDeviceGetTemperature": everywhere("temperature_c"),
    "nvmlDeviceGetMarginTemperature": everywhere("limit_margin_c"),
    "nvmlDeviceGetPowerUsage": everywhere("power_w"),
    "nvmlDeviceGetEnforcedPowerLimit": {},
    "nvmlDeviceGetPowerManagementLimit": {},
    "nvmlDeviceGetTotalEnergyConsumption": {"h200": {"energy_j"}, "split": {"energy_j"}},
    "nvmlDeviceGetClockInfo": everywhere("sm_clock_mhz"),
    "nvmlDeviceGetMaxClockInfo": everywhere("sm_clock_max_mhz"),
    "nvmlDeviceGetCurrentClocksEventReasons": {},
    "nvmlDeviceGetFieldValues": everywhere("throttled_percent"),
    "nvmlDeviceGetComputeRunningProcesses_v3": {
        "gb10": {"processes", "processes_bytes"},
        "h200": {"processes"},
        "split": {"processes"},
    },
    "nvmlDeviceGetGraphicsRunningProcesses_v3": {"gb10": {"processes", "processes_bytes"}},
    "nvmlDeviceGetMigMode": {"h200": {"mig"}, "split": {"mig", "mig_instances", "processes"}},
    "nvmlDeviceGetMaxMigDeviceCount": {},
    "nvmlDeviceGetMigDeviceHandleByIndex": {"split": {"mig_instances", "processes"}},
    "nvmlDeviceGetGpuInstanceId": {"split": {"processes"}},
    "nvmlDeviceGetComputeInstanceId": {"split": {"processes"}},
    "nvmlDeviceGetAttributes_v2": {"split": {"mig_instances"}},
}
"""What each call tells, by machine; the power limits, the memory calls and the reasons have stand-ins."""
BEGINNING = ("nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2")
"""Calls without which there is no GPU at all."""
STAND_INS = {
    ("nvmlDeviceGetMemoryInfo_v2", NOT_SUPPORTED): MEMORY | {"mig_instances"},
    ("nvmlDeviceGetMarginTemperature", NOT_SUPPORTED): set(),
}
"""What another call then tells instead."""
Runs = dict[str, dict[str, Any]]


def steps(machine: str, function: str | None = None, code: int = 0) -> Steps:
    """Return three steps of a machine in which one function always fails."""
    made = [(float(second), MACHINES[machine](seconds=second)) for second in (0, 2, 12)]
    return [(at, states.failing(state, function, code) if function else state) for at, state in made]


@pytest.fixture(scope="module")
def runs(shim: Shim, spark_root: Path) -> Runs:
    """Return the last reading of each machine, complete and with each function failing in each way."""
    wanted = {machine: steps(machine) for machine in MACHINES}
    wanted |= {
        f"{machine} {function} {code}": steps(machine, function, code)
        for machine in MACHINES
        for function in (*LOST, *BEGINNING)
        for code in (NOT_SUPPORTED, UNKNOWN)
    }
    return {name: found[-1] for name, found in shim.read(spark_root, wanted).items()}


def test_every_call_is_in_the_table(shim: Shim, spark_root: Path) -> None:
    """The calls of our code on healthy machines are exactly those of the table of failures."""
    (shim.folder / "log").unlink(missing_ok=True)
    shim.read(spark_root, {machine: steps(machine) for machine in MACHINES})
    assert shim.asked() == {*LOST, *BEGINNING, "nvmlShutdown"}


@pytest.mark.parametrize("code", [NOT_SUPPORTED, UNKNOWN])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("function", LOST)
def test_a_failing_call_costs_its_own_field_only(runs: Runs, function: str, machine: str, code: int) -> None:
    """A failing call affects its own field only, and no unknown value becomes 0."""
    whole, found = runs[machine], runs[f"{machine} {function} {code}"]
    (gpu,), (whole_gpu,) = found["gpus"], whole["gpus"]
    lost = {field for field, value in whole_gpu.items() if gpu[field] != value}
    lost |= {field for field in ("driver", "unified", "processes_bytes") if found[field] != whole[field]}
    expected = LOST[function].get(machine, set()) - STAND_INS.get((function, code), set())
    if function == "nvmlDeviceGetMarginTemperature" and code == NOT_SUPPORTED and machine != "gb10":
        expected = expected | {"slowdown_c"}
        assert gpu["slowdown_c"] == 87.0
    assert lost == expected
    assert not any(gpu[field] == 0 and gpu[field] is not False for field in lost if field in gpu)
    assert found["note"] is None


@pytest.mark.parametrize("code", [NOT_SUPPORTED, UNKNOWN])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("function", BEGINNING)
def test_a_driver_that_does_not_begin_is_a_line(runs: Runs, function: str, machine: str, code: int) -> None:
    """If the driver cannot be initialised there is no GPU and a note, and the machine itself is read."""
    found = runs[f"{machine} {function} {code}"]
    assert found["gpus"] == []
    assert found["note"]
    assert found["total_bytes"] == runs[machine]["total_bytes"]
