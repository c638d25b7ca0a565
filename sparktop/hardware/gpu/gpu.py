"""Reads the GPUs of a machine through NVML; values that the driver does not report are None."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparktop.hardware.gpu.memory import GpuMemoryReader
from sparktop.hardware.gpu.mig import MigReader
from sparktop.hardware.gpu.process import GpuProcessReader
from sparktop.hardware.nvml import GpuLostError, Nvml, NvmlModule
from sparktop.hardware.throttling import ThrottleShares, reason_words, throttle_fields
from sparktop.model.node import GpuProcess, GpuReading, LostGpu
from sparktop.model.text import clean
from sparktop.values import dataclass

_TEMPERATURE_GPU, _THRESHOLD_SLOWDOWN, _CLOCK_SM = 0, 1, 1
"""NVML_TEMPERATURE_GPU, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, NVML_CLOCK_SM."""
_MARGIN = "nvmlDeviceGetMarginTemperature"
_MILLI = 1000.0
_LIMIT_AGAIN_S = 30.0
"""Seconds between two reads of the power limit, which is changed only by hand."""
_RANGES = {
    "utilization": (0.0, 100.0),
    "temperature": (-50.0, 200.0),
    "threshold": (1.0, 200.0),
    "margin": (-100.0, 200.0),
    "power": (0.0, 20_000.0),
    "power limit": (1.0, 20_000.0),
    "clock": (0.0, 20_000.0),
    "energy": (1.0, 2.0**63),
}
"""Plausible ranges, in %, °C (temperature, threshold, margin), W (power, power limit), MHz and mJ; a value
outside its range is discarded."""


@dataclass(frozen=True, slots=True)
class GpuPicture:
    """The readings of all GPUs at one time, and their use of the machine's own memory (unified memory)."""

    gpus: tuple[GpuReading, ...] = ()
    note: str | None = None
    """Why a GPU is missing, in one line; None when no GPU is missing."""
    lost: tuple[LostGpu, ...] = ()
    """GPUs that the driver reports as lost or in need of a reset."""
    unified: bool | None = None
    """True if a GPU has no memory of its own and uses the machine's; None if no GPU has reported yet."""
    processes_bytes: int | None = None
    """Bytes that processes hold on the GPUs that use the machine's memory."""


@dataclass(frozen=True, slots=True)
class _Device:
    """The NVML handle and the readers of one GPU, valid until NVML is opened again."""

    index: int
    handle: object
    shares: ThrottleShares
    memory: GpuMemoryReader
    mig: MigReader


class GpuReader:
    """Reads every GPU; opens NVML at the first reading, and again some time after a GPU was lost."""

    def __init__(self, root: Path = Path("/"), module: NvmlModule | None = None) -> None:
        """Use the NVML module `module` (None: nvidia-ml-py).

        Names of processes that the driver does not report are read from /proc below `root`.
        """
        self._nvml = Nvml(module)
        self._processes = GpuProcessReader(root)
        self._devices: dict[int, _Device] = {}
        self._generation = 0
        self._has_own_node = False
        self._named: dict[int, tuple[str | None, str | None]] = {}
        """Name and UUID of each GPU that has answered, by index: a lost GPU no longer reports them."""
        self._unified: bool | None = None  # kept when the driver goes away: the hardware is the same

    @property
    def driver(self) -> str | None:
        """The NVIDIA driver's version; None while NVML, the driver's library, is not open."""
        return self._nvml.driver

    def read(self, now: float, machine_bytes: int | None = None, *, has_own_node: bool = False) -> GpuPicture:
        """Return a reading of every GPU at `now` (seconds).

        `machine_bytes` is the memory of NUMA nodes with CPUs: a GPU that reports the same size may be using
        it. `has_own_node` is whether there are nodes without CPUs, which may be the memory of GPUs.
        """
        self._has_own_node = has_own_node
        handles = self._nvml.handles(now)
        if self._nvml.generation != self._generation:
            self._generation, self._devices = self._nvml.generation, {}
        readings: list[GpuReading] = []
        unified: list[bool] = []
        held: list[int] = []
        for index, handle in handles.items():
            try:
                device = self._devices.get(index) or self._meet(index, handle)
                reading, shares_memory = self._read_one(now, device, machine_bytes)
            except GpuLostError as error:
                self._devices.pop(index, None)
                self._nvml.lose(now, index, error.code)
                continue
            readings.append(reading)
            self._named[index] = (reading.name, reading.uuid)
            if shares_memory is not None:
                unified.append(shares_memory)
            if shares_memory and reading.processes is not None:
                held.append(_sum_bytes(reading.processes))
        if unified:
            self._unified = any(unified)
        return GpuPicture(
            gpus=tuple(readings),
            note=self._nvml.note or _silent_note(readings),
            lost=tuple(
                LostGpu(index, *self._named.get(index, (None, None)), reason)
                for index, reason in sorted(self._nvml.lost.items())
            ),
            unified=self._unified,
            processes_bytes=sum(held) if held else None,
        )

    def close(self) -> None:
        """Close NVML, the driver's library."""
        self._nvml.close()

    def _meet(self, index: int, handle: object) -> _Device:
        """Create and store the readers of the GPU `index`, which has just been found; return them."""
        shares = ThrottleShares(throttle_fields(self._nvml.driver))
        device = _Device(index, handle, shares, GpuMemoryReader(index, handle), MigReader(index, handle))
        return self._devices.setdefault(index, device)

    def _read_one(
        self, now: float, device: _Device, machine_bytes: int | None
    ) -> tuple[GpuReading, bool | None]:
        """Return a GPU's reading, and whether the GPU uses the machine's memory (None: unknown).

        Raises GpuLostError when the GPU does not answer any more.
        """
        nvml, index, handle = self._nvml, device.index, device.handle
        name = clean(self._seldom(now, device, "nvmlDeviceGetName") or "") or None
        memory = device.memory.read(nvml, now, name, machine_bytes, has_own_node=self._has_own_node)
        mig, slices = device.mig.read(nvml, now, memory.total_bytes)
        processes = self._processes.read(nvml, index, handle, now, slices)
        if not slices and processes is not None:
            memory = device.memory.checked(memory, _sum_bytes(processes), machine_bytes)
        rates = self._ask(now, device, "nvmlDeviceGetUtilizationRates")
        clock = self._ask(now, device, "nvmlDeviceGetClockInfo", _CLOCK_SM)
        clock_max = self._seldom(now, device, "nvmlDeviceGetMaxClockInfo", _CLOCK_SM)
        heat = self._ask(now, device, "nvmlDeviceGetTemperature", _TEMPERATURE_GPU)
        reading = GpuReading(
            index=index,
            name=name,
            uuid=clean(self._seldom(now, device, "nvmlDeviceGetUUID") or "", 96) or None,
            utilization_percent=_sane("utilization", getattr(rates, "gpu", None)),
            temperature_c=_sane("temperature", heat),
            limit_margin_c=_sane("margin", self._ask(now, device, _MARGIN)),
            slowdown_c=self._slowdown_c(now, device),
            power_w=_from_milli("power", self._ask(now, device, "nvmlDeviceGetPowerUsage")),
            power_limit_w=self._power_limit_w(now, device),
            energy_j=_energy_j(self._ask(now, device, "nvmlDeviceGetTotalEnergyConsumption")),
            sm_clock_mhz=_as_int(_sane("clock", clock)),
            sm_clock_max_mhz=_as_int(_sane("clock", clock_max)),
            memory_total_bytes=memory.total_bytes,
            memory_used_bytes=memory.used_bytes,
            memory_note=memory.note,
            throttle_reasons=self._throttle_reasons(now, device),
            throttled_percent=self._throttled_percent(now, device),
            processes=processes,
            mig=mig,
            mig_instances=tuple(each.reading for each in slices),
        )
        return reading, memory.unified

    def _ask(self, now: float, device: _Device, function: str, *args: object) -> Any:  # noqa: ANN401 - as Nvml.ask
        """Call an NVML function for a GPU; return its result, or None on an error."""
        return self._nvml.ask(now, device.index, function, device.handle, *args)

    def _seldom(
        self, now: float, device: _Device, function: str, *args: object, every_s: float = math.inf
    ) -> Any:  # noqa: ANN401 - as Nvml.ask
        """Call an NVML function whose result changes seldom; the result is cached for `every_s` seconds."""
        return self._nvml.ask_seldom(now, device.index, function, device.handle, *args, every_s=every_s)

    def _power_limit_w(self, now: float, device: _Device) -> float | None:
        """Return the enforced power limit in watts, else the configured limit, else None."""
        for function in ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"):
            answer = self._seldom(now, device, function, every_s=_LIMIT_AGAIN_S)
            watts = _from_milli("power limit", answer)
            if watts is not None:
                return watts
        return None

    def _slowdown_c(self, now: float, device: _Device) -> float | None:
        """Return the temperature (°C) at which the GPU slows down; None if it is unknown.

        Some drivers report instead by how much the GPU is cooler than this temperature. For them, return
        None.
        """
        if not self._nvml.is_unknown(now, device.index, _MARGIN):
            return None
        threshold = self._seldom(now, device, "nvmlDeviceGetTemperatureThreshold", _THRESHOLD_SLOWDOWN)
        return _sane("threshold", threshold)

    def _throttle_reasons(self, now: float, device: _Device) -> tuple[str, ...] | None:
        """Return the names of the active throttle reasons; None when the driver does not report them.

        Drivers before 535 have NVML's function under an older name.
        """
        bits = self._ask(now, device, "nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            bits = self._ask(now, device, "nvmlDeviceGetCurrentClocksThrottleReasons")
        return None if bits is None else reason_words(int(bits))

    def _throttled_percent(self, now: float, device: _Device) -> Mapping[str, float | None]:
        """Return the percentage of throttled time since the previous reading, by throttle reason."""
        return device.shares.read(self._nvml, device.index, device.handle, now)


def _sane(quantity: str, value: float | None) -> float | None:
    """Return `value` as a float if it lies in the range of `quantity` in `_RANGES`, else None."""
    low, high = _RANGES[quantity]
    return float(value) if value is not None and low <= value <= high else None


def _from_milli(quantity: str, value: float | None) -> float | None:
    """Divide `value` by 1000; None when the result is outside the range of `quantity` in `_RANGES`."""
    return None if value is None else _sane(quantity, value / _MILLI)


def _energy_j(millijoules: int | None) -> float | None:
    """Convert the driver's energy counter, in millijoules since the driver was loaded, to joules.

    Return None for 0, because a driver that does not count energy reports 0; None also for implausible
    values.
    """
    return None if _sane("energy", millijoules) is None or millijoules is None else millijoules / _MILLI


def _silent_note(readings: Sequence[GpuReading]) -> str | None:
    """Return a note that names the GPUs for which no current value was read; None if there are none."""
    silent = [
        str(gpu.index)
        for gpu in readings
        if gpu.utilization_percent is gpu.temperature_c is gpu.power_w is gpu.sm_clock_mhz is None
        and gpu.throttle_reasons is None
        and gpu.processes is None
    ]
    return (
        f"GPU {', '.join(silent)} reports nothing: the driver answers no query about it" if silent else None
    )


def _as_int(value: float | None) -> int | None:
    """Return a clock in MHz as an integer; None for None."""
    return None if value is None else int(value)


def _sum_bytes(processes: tuple[GpuProcess, ...]) -> int:
    """Return the GPU memory of all processes in bytes; unknown sizes count as 0."""
    return sum(process.memory_bytes or 0 for process in processes)
