"""The GPUs of a machine, read through NVML with every field optional."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparktop.hardware.gpu_process import GpuProcessReader
from sparktop.hardware.nvml import GpuLostError, Nvml, NvmlModule
from sparktop.hardware.throttling import ThrottleShares, reason_words, throttle_fields
from sparktop.model.node import GpuProcess, GpuReading
from sparktop.model.text import clean

_TEMPERATURE_GPU = 0
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_MILLI = 1000.0
_UNIFIED_NAMES = ("GB10",)
_NEAR = 0.10
"""A GPU whose memory is that near to the machine's can be the same memory."""
_MEMORY_V2, _MEMORY_V1, _MEMORY_CLOCK = "memory v2", "memory v1", "memory clock"
"""Keys of fields that share a function."""
_RANGES = {
    "utilization": (0.0, 100.0),
    "temperature": (-50.0, 200.0),
    "margin": (-100.0, 200.0),
    "power": (0.0, 20_000.0),
    "clock": (0.0, 20_000.0),
}
"""Percent, degrees, degrees, watts, megahertz: what lies outside is no answer."""


@dataclass(frozen=True, slots=True)
class GpuPicture:
    """All GPUs at one moment, and what they say of the machine's memory."""

    gpus: tuple[GpuReading, ...] = ()
    note: str | None = None
    """Why a GPU is missing; None when none is."""
    unified: bool | None = None
    """True when a GPU lives in the machine's memory; None when no GPU told."""
    processes_bytes: int | None = None
    """What the processes of the GPUs in the machine's memory hold."""


@dataclass(slots=True)
class _Device:
    """What is known of one GPU since the library was opened."""

    index: int
    handle: object
    shares: ThrottleShares
    name: str | None = None
    uuid: str | None = None
    sm_clock_max_mhz: int | None = None
    unified: bool | None = None
    """It lives in the machine's memory; None until the driver told."""


@dataclass(frozen=True, slots=True)
class _Memory:
    """A GPU's memory as it answers."""

    unified: bool | None = None
    total_bytes: int | None = None
    used_bytes: int | None = None


class GpuReader:
    """Reads every GPU; the library is opened at the first reading and again after a loss."""

    def __init__(self, root: Path = Path("/"), module: NvmlModule | None = None) -> None:
        """Ask `module` (nvidia-ml-py when None); names of processes can come from /proc below `root`."""
        self._nvml = Nvml(module)
        self._processes = GpuProcessReader(root)
        self._devices: dict[int, _Device] = {}
        self._generation = 0
        self._unified: bool | None = None  # a machine stays what it is when its driver goes away

    @property
    def driver(self) -> str | None:
        """The driver's version, once the library is open."""
        return self._nvml.driver

    def read(self, now: float, machine_bytes: int | None = None) -> GpuPicture:
        """Take a reading at `now`; `machine_bytes` is MemTotal, to tell a GPU that shares it."""
        handles = self._nvml.handles(now)
        if self._nvml.generation != self._generation:
            self._generation, self._devices = self._nvml.generation, {}
        readings: list[GpuReading] = []
        unified: list[bool] = []
        held: list[int] = []
        for index, handle in handles.items():
            try:
                device = self._devices.get(index) or self._meet(index, handle)
                reading = self._read_one(now, device, machine_bytes)
            except GpuLostError:
                self._devices.pop(index, None)
                self._nvml.lose(now, index)
                continue
            readings.append(reading)
            if device.unified is not None:
                unified.append(device.unified)
            if device.unified and reading.processes is not None:
                held.append(_sum_bytes(reading.processes))
        if unified:
            self._unified = any(unified)
        return GpuPicture(
            gpus=tuple(readings),
            note=self._nvml.note,
            unified=self._unified,
            processes_bytes=sum(held) if held else None,
        )

    def close(self) -> None:
        """Close the library."""
        self._nvml.close()

    def _meet(self, index: int, handle: object) -> _Device:
        """Begin to know a GPU."""
        shares = ThrottleShares(throttle_fields(self._nvml.driver))
        return self._devices.setdefault(index, _Device(index, handle, shares))

    def _identify(self, now: float, device: _Device) -> None:
        """Read what does not change while the library is open, until it has been answered."""
        if device.name is None:
            device.name = clean(self._ask(now, device, "nvmlDeviceGetName") or "") or None
        if device.uuid is None:
            device.uuid = clean(self._ask(now, device, "nvmlDeviceGetUUID") or "", 96) or None
        if device.sm_clock_max_mhz is None:
            clock = self._ask(now, device, "nvmlDeviceGetMaxClockInfo", _CLOCK_SM)
            device.sm_clock_max_mhz = _whole(_sane("clock", clock))

    def _read_one(self, now: float, device: _Device, machine_bytes: int | None) -> GpuReading:
        """Read one GPU; raises GpuLostError when it is gone."""
        self._identify(now, device)
        memory = self._memory(now, device, machine_bytes)
        power_limit = self._watts(now, device, "nvmlDeviceGetEnforcedPowerLimit")
        if power_limit is None:
            power_limit = self._watts(now, device, "nvmlDeviceGetPowerManagementLimit")
        rates = self._ask(now, device, "nvmlDeviceGetUtilizationRates")
        clock = self._ask(now, device, "nvmlDeviceGetClockInfo", _CLOCK_SM)
        return GpuReading(
            index=device.index,
            name=device.name,
            uuid=device.uuid,
            utilization_percent=_sane("utilization", getattr(rates, "gpu", None)),
            temperature_c=_sane(
                "temperature", self._ask(now, device, "nvmlDeviceGetTemperature", _TEMPERATURE_GPU)
            ),
            limit_margin_c=_sane("margin", self._ask(now, device, "nvmlDeviceGetMarginTemperature")),
            power_w=self._watts(now, device, "nvmlDeviceGetPowerUsage"),
            power_limit_w=power_limit,
            sm_clock_mhz=_whole(_sane("clock", clock)),
            sm_clock_max_mhz=device.sm_clock_max_mhz,
            memory_total_bytes=memory.total_bytes,
            memory_used_bytes=memory.used_bytes,
            throttle_reasons=self._throttle_reasons(now, device),
            throttled_percent=self._throttled_percent(now, device),
            processes=self._processes.read(self._nvml, device.index, device.handle, now),
        )

    def _ask(self, now: float, device: _Device, function: str, *args: object) -> Any:  # noqa: ANN401 - as Nvml.ask
        """One answer about a GPU."""
        return self._nvml.ask(now, device.index, function, device.handle, *args)

    def _watts(self, now: float, device: _Device, function: str) -> float | None:
        """An answer in milliwatts."""
        milliwatts = self._ask(now, device, function)
        return None if milliwatts is None else _sane("power", milliwatts / _MILLI)

    def _throttle_reasons(self, now: float, device: _Device) -> tuple[str, ...] | None:
        """The reasons that are active; drivers before 535 know the question by its old name."""
        bits = self._ask(now, device, "nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            bits = self._ask(now, device, "nvmlDeviceGetCurrentClocksThrottleReasons")
        return None if bits is None else reason_words(int(bits))

    def _throttled_percent(self, now: float, device: _Device) -> Mapping[str, float | None]:
        """Share of the time since the reading before, by reason."""
        return device.shares.read(self._nvml, device.index, device.handle, now)

    def _memory(self, now: float, device: _Device, machine_bytes: int | None) -> _Memory:
        """The GPU's memory, or that it has none of its own.

        Drivers of a GB10 say so in three ways: NOT_SUPPORTED, a total of 0, or the machine's own total. A
        discrete GPU can have about as much memory as its machine (an H200 in a machine of 128 GiB), but
        it has a memory clock.
        """
        nvml, index, handle = self._nvml, device.index, device.handle
        answer, version = None, nvml.constant("nvmlMemory_v2")
        if version is not None:
            answer = nvml.ask(now, index, "nvmlDeviceGetMemoryInfo", handle, version, key=_MEMORY_V2)
        # The first version counts what the driver reserves as used: only for drivers without the second.
        if answer is None and (version is None or nvml.is_unknown(now, index, _MEMORY_V2)):
            answer = nvml.ask(now, index, "nvmlDeviceGetMemoryInfo", handle, key=_MEMORY_V1)
        if answer is None:
            if nvml.says_unsupported(index, _MEMORY_V1):
                device.unified = True
            return _Memory(device.unified)
        total = int(answer.total)
        near = machine_bytes is not None and abs(total - machine_bytes) <= _NEAR * machine_bytes
        device.unified = not total or (near and not self._has_memory_clock(now, device))
        if device.unified:
            return _Memory(unified=True)
        return _Memory(unified=False, total_bytes=total, used_bytes=int(answer.used))

    def _has_memory_clock(self, now: float, device: _Device) -> bool:
        """True for a GPU with memory of its own, which runs at a clock of its own."""
        if any(name in (device.name or "") for name in _UNIFIED_NAMES):
            return False
        args = (device.handle, _CLOCK_MEMORY)
        clock = self._nvml.ask(now, device.index, "nvmlDeviceGetMaxClockInfo", *args, key=_MEMORY_CLOCK)
        if clock is None:
            return not self._nvml.is_unknown(now, device.index, _MEMORY_CLOCK)
        return bool(clock)


def _sane(quantity: str, value: float | None) -> float | None:
    """`value` as a number within its quantity's range; None otherwise."""
    low, high = _RANGES[quantity]
    return float(value) if value is not None and low <= value <= high else None


def _whole(value: float | None) -> int | None:
    """A clock as a whole number."""
    return None if value is None else int(value)


def _sum_bytes(processes: tuple[GpuProcess, ...]) -> int:
    """What processes hold together, as far as it is known."""
    return sum(process.memory_bytes or 0 for process in processes)
