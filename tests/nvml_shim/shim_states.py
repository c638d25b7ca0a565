"""States of machines for the shim: lines of its state file."""

from __future__ import annotations

GIB = 1024**3
MIB = 1024**2
SECOND_NS = 10**9
NO_SLICE = 2**32 - 1
"""Instances of a process on a GPU that is not split."""
ENGINE_MIB = 102_625
Answers = dict[str, str]


def refused(code: int) -> str:
    """Return an answer that is an error code."""
    return f"!{code}"


def driver(gpus: int, version: str = "580.126.09", **changes: str) -> str:
    """Return the lines of the driver itself, with the names of the processes that the GPUs list."""
    answers = {
        "nvmlInitWithFlags": "0",
        "nvmlSystemGetDriverVersion": version,
        "nvmlDeviceGetCount_v2": str(gpus),
        "process:4242": "VLLM::Worker_TP0",
        "process:900": "/usr/lib/xorg/Xorg -core :0",
        "process:11": "VLLM::EngineCore",
    }
    return _lines("-", answers | changes)


def gb10(memory: str | None = None, *, seconds: int = 0, **changes: str) -> str:
    """Return a GB10; `memory` is "TOTAL USED", or None for NOT_SUPPORTED; `seconds` since its first state."""
    answers = {
        "nvmlDeviceGetName": "NVIDIA GB10",
        "nvmlDeviceGetUUID": "GPU-11111111-2222-3333-4444-555555555555",
        "nvmlDeviceGetUtilizationRates": "96",
        "nvmlDeviceGetTemperature": "81",
        "nvmlDeviceGetMarginTemperature": "13",
        "nvmlDeviceGetPowerUsage": "38250",
        "nvmlDeviceGetClockInfo": "2411",
        "nvmlDeviceGetMaxClockInfo": "3003",
        "nvmlDeviceGetCurrentClocksEventReasons": "0x4",
        "nvmlDeviceGetFieldValues": _throttled(seconds, software_power_share=4),
        "nvmlDeviceGetComputeRunningProcesses_v3": f"4242:{ENGINE_MIB * MIB}:{NO_SLICE}:{NO_SLICE}",
        "nvmlDeviceGetGraphicsRunningProcesses_v3": f"900:{60 * MIB}:{NO_SLICE}:{NO_SLICE}",
    }
    if memory is not None:
        answers["nvmlDeviceGetMemoryInfo"] = memory
    return driver(1) + _lines("0", answers | changes)


def discrete(index: int, *, seconds: int = 0, **changes: str) -> str:
    """Return the lines of an H200, without those of the driver."""
    answers = {
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetUUID": f"GPU-{index:08}-2222-3333-4444-555555555555",
        "nvmlDeviceGetMemoryInfo": f"{141 * GIB} {90 * GIB}",
        "nvmlDeviceGetUtilizationRates": "87",
        "nvmlDeviceGetTemperature": str(52 + index),
        "nvmlDeviceGetMarginTemperature": "35",
        "nvmlDeviceGetTemperatureThreshold": "87",
        "nvmlDeviceGetPowerUsage": "612000",
        "nvmlDeviceGetEnforcedPowerLimit": "700000",
        "nvmlDeviceGetPowerManagementLimit": "700000",
        "nvmlDeviceGetTotalEnergyConsumption": str(5_123_456_000 + 612_000 * seconds),
        "nvmlDeviceGetClockInfo": "1830",
        "nvmlDeviceGetMaxClockInfo": "1980 3201",
        "nvmlDeviceGetCurrentClocksEventReasons": "0",
        "nvmlDeviceGetFieldValues": _throttled(seconds, software_power_share=0),
        "nvmlDeviceGetComputeRunningProcesses_v3": f"4242:{88 * GIB}:{NO_SLICE}:{NO_SLICE}",
        "nvmlDeviceGetGraphicsRunningProcesses_v3": "none",
        "nvmlDeviceGetMigMode": "0 0",
    }
    return _lines(str(index), answers | changes)


def h200(*, seconds: int = 0, **changes: str) -> str:
    """Return a machine with one H200."""
    return driver(1) + discrete(0, seconds=seconds, **changes)


def eight_h100(*, seconds: int = 0) -> str:
    """Return eight H100; GPU 3 is split into a 1g.10gb and a 3g.40gb, with an empty index between."""
    plain = {
        "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetMemoryInfo": f"{80 * GIB} {20 * GIB}",
        "nvmlDeviceGetComputeRunningProcesses_v3": "none",
    }
    whole = "".join(discrete(index, seconds=seconds, **plain) for index in range(8) if index != 3)
    return driver(8) + whole + _split(3, seconds)


def _split(gpu: int, seconds: int) -> str:
    """Return a GPU with two instances; the name of the second lacks its profile, so attributes are needed."""
    whole = {
        "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetMemoryInfo": f"{80 * GIB} {20 * GIB}",
        "nvmlDeviceGetMigMode": "1 1",
        "nvmlDeviceGetMaxMigDeviceCount": "7",
        "nvmlDeviceGetUtilizationRates": refused(3),
        "nvmlDeviceGetComputeRunningProcesses_v3": f"11:{7 * GIB}:9:0",
    }
    first = {
        "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "nvmlDeviceGetUUID": "MIG-aaaaaaaa-0000-0000-0000-000000000000",
        "nvmlDeviceGetMemoryInfo": f"{10 * GIB} {7 * GIB}",
        "nvmlDeviceGetGpuInstanceId": "9",
        "nvmlDeviceGetComputeInstanceId": "0",
    }
    second = {
        "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "nvmlDeviceGetUUID": "MIG-bbbbbbbb-0000-0000-0000-000000000000",
        "nvmlDeviceGetMemoryInfo": f"{40 * GIB} {GIB}",
        "nvmlDeviceGetGpuInstanceId": "2",
        "nvmlDeviceGetComputeInstanceId": "0",
    }
    slices = _lines(f"{gpu}.0", first) + _lines(f"{gpu}.2", second)
    return discrete(gpu, seconds=seconds, **whole) + slices


def _throttled(seconds: int, *, software_power_share: int) -> str:
    """Return throttle counters in ns; `software_power_share` divides the time so throttled, 0 for none."""
    grown = seconds * SECOND_NS // software_power_share if software_power_share else 0
    counters = {74: 7 * SECOND_NS + grown, 75: 0, 76: 0, 269: 0, 270: 0, 271: 0}
    return " ".join(f"{number}={count}" for number, count in counters.items())


def _lines(place: str, answers: Answers) -> str:
    return "".join(f"{place} {function} {answer}\n" for function, answer in answers.items())
