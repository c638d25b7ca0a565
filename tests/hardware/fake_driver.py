"""A replacement of `pynvml` for machines that are not here, which raises its real errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 1024**3
MACHINE_BYTES = 127_600_000_000
"""MemTotal of the fake machine with unified memory."""
Handle = int | tuple[int, int]
NOT_SUPPORTED = 3
NOT_FOUND = 6
FUNCTION_NOT_FOUND = 13
LOST = 15
UNKNOWN_ERROR = 999
MEMORY_CLOCK = "memory clock"
"""Key of a device's answer for the second clock domain."""

FIELDS_AT_0 = dict.fromkeys((74, 75, 76, 269, 270, 271), 0)


def refuse(code: int) -> Exception:
    """Return the library's error for a return code."""
    error: Exception = pynvml.NVMLError(code)
    return error


def process(pid: int, used_bytes: int | None, ids: tuple[int, int] = (2**32 - 1,) * 2) -> SimpleNamespace:
    """Return a line of a process list; `ids` are GPU and compute instance, all bits set without MIG."""
    return SimpleNamespace(pid=pid, usedGpuMemory=used_bytes, gpuInstanceId=ids[0], computeInstanceId=ids[1])


def memory(total: int, used: int = 0) -> SimpleNamespace:
    return SimpleNamespace(total=total, used=used, free=total - used)


def field_value(number: int, answer: int | None, value_type: int = 3) -> SimpleNamespace:
    """Return an element of nvmlDeviceGetFieldValues; None is a field that the driver lacks."""
    return SimpleNamespace(
        fieldId=number,
        nvmlReturn=NOT_SUPPORTED if answer is None else 0,
        valueType=value_type,
        value=SimpleNamespace(ullVal=answer or 0),
    )


def gb10(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - answers have as many types as fields
    """Return the answers of a GB10 with drivers 580.95 to 580.173; `changes` replaces answers by function."""
    answers: dict[str, Any] = {
        "nvmlDeviceGetName": "NVIDIA GB10",
        "nvmlDeviceGetUUID": "GPU-11111111-2222-3333-4444-555555555555",
        "nvmlDeviceGetMemoryInfo": refuse(NOT_SUPPORTED),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=96, memory=0),
        "nvmlDeviceGetTemperature": 81,
        "nvmlDeviceGetMarginTemperature": 13,
        "nvmlDeviceGetPowerUsage": 38_250,
        "nvmlDeviceGetEnforcedPowerLimit": refuse(NOT_SUPPORTED),
        "nvmlDeviceGetPowerManagementLimit": refuse(NOT_SUPPORTED),
        "nvmlDeviceGetClockInfo": 2411,
        "nvmlDeviceGetMaxClockInfo": 3003,
        MEMORY_CLOCK: refuse(NOT_SUPPORTED),
        "nvmlDeviceGetMigMode": refuse(NOT_SUPPORTED),
        "nvmlDeviceGetTotalEnergyConsumption": refuse(NOT_SUPPORTED),
        "nvmlDeviceGetTemperatureThreshold": refuse(NOT_SUPPORTED),
        "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
        "fields": dict(FIELDS_AT_0),
        "nvmlDeviceGetComputeRunningProcesses": [process(4242, 102_625 * 1024**2)],
        "nvmlDeviceGetGraphicsRunningProcesses": [process(900, 60 * 1024**2)],
    }
    return answers | changes


def h200(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - as gb10
    """Return the answers of a discrete GPU that supports everything."""
    discrete: dict[str, Any] = {
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetUUID": "GPU-99999999-2222-3333-4444-555555555555",
        "nvmlDeviceGetMemoryInfo": memory(141 * GIB, 90 * GIB),
        "nvmlDeviceGetTemperature": 52,
        "nvmlDeviceGetPowerUsage": 612_000,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetPowerManagementLimit": 700_000,
        "nvmlDeviceGetClockInfo": 1830,
        "nvmlDeviceGetMaxClockInfo": 1980,
        MEMORY_CLOCK: 3201,
        "nvmlDeviceGetMigMode": [0, 0],
        "nvmlDeviceGetTotalEnergyConsumption": 5_123_456_789,
        "nvmlDeviceGetTemperatureThreshold": 87,
        "nvmlDeviceGetCurrentClocksEventReasons": 0,
    }
    return gb10() | discrete | changes


def mig_slice(ids: tuple[int, int] = (7, 0), **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - as gb10
    """Return the answers of a MIG instance."""
    answers: dict[str, Any] = {
        "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "nvmlDeviceGetUUID": f"MIG-{ids[0]:08}-0000-0000-0000-{ids[1]:012}",
        "nvmlDeviceGetMemoryInfo": memory(10 * GIB, 3 * GIB),
        "nvmlDeviceGetGpuInstanceId": ids[0],
        "nvmlDeviceGetComputeInstanceId": ids[1],
    }
    return answers | changes


def h100(*slices: dict[str, Any] | None, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - as gb10
    """Return the answers of a GPU in MIG mode with `slices` at its indexes; None is an empty index."""
    return h200(
        **{
            "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
            "nvmlDeviceGetMemoryInfo": memory(80 * GIB, 20 * GIB),
            "nvmlDeviceGetUtilizationRates": refuse(NOT_SUPPORTED),
            "nvmlDeviceGetMigMode": [1, 1],
            "nvmlDeviceGetMaxMigDeviceCount": 7,
            "slices": slices,
            **changes,
        }
    )


class FakeDriver:
    """Answers like the module `pynvml`; a handle is a GPU's index, with a second one for a MIG instance."""

    NVMLError = pynvml.NVMLError
    NVMLLibraryMismatchError = pynvml.NVMLLibraryMismatchError
    nvmlMemory_v2 = pynvml.nvmlMemory_v2  # noqa: N815 - the library's name

    def __init__(self, *gpus: dict[str, Any], driver: str = "580.126.09") -> None:
        self.gpus = list(gpus)
        self.driver = driver
        self.init_error: Exception | None = None
        self.failing: dict[str, Exception] = {}
        """Functions that fail for every GPU."""
        self.lost: set[Handle] = set()
        self.names: dict[int, str] = {4242: "VLLM::Worker_TP0", 900: "/usr/lib/xorg/Xorg -core :0"}
        self.calls: Counter[str] = Counter()
        self.opened = 0

    def nvmlInit(self) -> None:  # noqa: N802 - the library's name
        """Open the library, or raise the error that is set."""
        self._count("nvmlInit")
        if self.init_error is not None:
            raise self.init_error
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802 - the library's name
        """Close the library."""
        self._count("nvmlShutdown")
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - the library's name
        """Return the number of GPUs."""
        self._count("nvmlDeviceGetCount")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> object:  # noqa: N802 - the library's name
        """Return the index as the handle."""
        self._count("nvmlDeviceGetHandleByIndex")
        if index in self.lost:
            raise refuse(LOST)
        return index

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802 - the library's name
        """Return the driver's version."""
        self._count("nvmlSystemGetDriverVersion")
        return self.driver

    def nvmlSystemGetProcessName(self, pid: int) -> str:  # noqa: N802 - the library's name
        """Return a process's name; raise NVML_ERROR_NOT_FOUND for an unknown one."""
        self._count("nvmlSystemGetProcessName")
        if pid not in self.names:
            raise refuse(NOT_FOUND)
        return self.names[pid]

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, place: int) -> object:  # noqa: N802 - its name
        """Return the handle of a MIG instance; raise NVML_ERROR_NOT_FOUND for an empty index."""
        self._count("nvmlDeviceGetMigDeviceHandleByIndex")
        slices = self.gpus[handle].get("slices", ())
        if place >= len(slices) or slices[place] is None:
            raise refuse(NOT_FOUND)
        return (handle, place)

    def nvmlDeviceGetFieldValues(self, handle: int, numbers: list[int]) -> list[Any]:  # noqa: N802 - its name
        """Return the answer for each field."""
        fields = self._answer("nvmlDeviceGetFieldValues", handle, "fields")
        return [field_value(number, fields.get(number)) for number in numbers]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)

        def ask(handle: Handle, argument: int = 0, **_: object) -> Any:  # noqa: ANN401 - as many types as fields
            memory_clock = name == "nvmlDeviceGetMaxClockInfo" and argument == pynvml.NVML_CLOCK_MEM
            return self._answer(name, handle, MEMORY_CLOCK if memory_clock else name)

        return ask

    def _count(self, name: str) -> None:
        self.calls[name] += 1
        if name in self.failing:
            raise self.failing[name]

    def _answer(self, name: str, handle: Handle, key: str) -> Any:  # noqa: ANN401 - as many types as fields
        self._count(name)
        gpu, place = handle if isinstance(handle, tuple) else (handle, None)
        if gpu in self.lost or (gpu, place) in self.lost:
            raise refuse(LOST)
        answers = self.gpus[gpu] if place is None else self.gpus[gpu]["slices"][place]
        answer = answers.get(key, refuse(FUNCTION_NOT_FOUND))
        if isinstance(answer, Exception):
            raise answer
        return answer
