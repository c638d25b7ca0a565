"""Temperature sensors other than the GPU's, from /sys/class/hwmon, each with its own critical value."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from sparktop.hardware.kernel_file import by_number, entries, read_int, read_text
from sparktop.model.node import SensorReading
from sparktop.model.text import clean

_READ_AGAIN_S = 5.0
"""Seconds between two reads: temperatures change slowly, and reading one can be a command to a disk or to a
network card's firmware."""
_SEARCH_AGAIN_S = 60.0
_MOST = 64
"""Upper limit of sensors shown."""
_MILLI = 1000.0
_SANE_C = (-100.0, 200.0)
"""Values outside are what chips report when they do not know: 65261 degrees, or absolute zero."""


@dataclass(frozen=True, slots=True)
class _Sensor:
    """The files of a temperature sensor."""

    name: str
    input: str
    critical_c: float | None


class SensorReader:
    """Reads the machine's temperatures; returns the last ones while they are fresh."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._searched_at: float | None = None
        self._sensors: tuple[_Sensor, ...] = ()
        self._read_at: float | None = None
        self._readings: tuple[SensorReading, ...] = ()

    def read(self, now: float) -> tuple[SensorReading, ...]:
        """Return a reading at `now`; a sensor that does not answer is left out."""
        if self._searched_at is None or not 0 <= now - self._searched_at < _SEARCH_AGAIN_S:
            self._searched_at, self._sensors = now, _find_sensors(self._root)
        if self._read_at is None or not 0 <= now - self._read_at < _READ_AGAIN_S:
            self._read_at = now
            taken = [(sensor, _celsius(sensor.input)) for sensor in self._sensors]
            self._readings = tuple(
                SensorReading(sensor.name, value, sensor.critical_c)
                for sensor, value in taken
                if value is not None
            )
        return self._readings


def _celsius(path: str) -> float | None:
    """Read a temperature file in °C; None when the chip does not know."""
    milli = read_int(path)
    if milli is None or not _SANE_C[0] < milli / _MILLI < _SANE_C[1]:
        return None
    return milli / _MILLI


def _find_sensors(root: Path) -> tuple[_Sensor, ...]:
    """Return every temperature input, under unique names."""
    found: list[_Sensor] = []
    rdma_names = _rdma_names(root)
    chips = root / "sys/class/hwmon"
    for chip in sorted(entries(chips), key=by_number):
        folder = chips / chip
        chip_name = rdma_names.get(_device(folder / "device")) or read_text(f"{folder}/name") or chip
        inputs = [name for name in entries(folder) if name.startswith("temp") and name.endswith("_input")]
        for name in sorted(inputs, key=by_number):
            stem = str(folder / name.removesuffix("_input"))
            label = read_text(f"{stem}_label")
            critical_c = _celsius(f"{stem}_crit")
            shown = clean(f"{chip_name} {label}" if label else chip_name, 64)
            above = critical_c if critical_c is not None and critical_c > 0 else None
            found.append(_Sensor(shown, f"{stem}_input", above))
    return _numbered(found[:_MOST])


def _rdma_names(root: Path) -> dict[Path | None, str]:
    """Return RDMA devices by the hardware below them: a machine can have four chips all named mlx5."""
    devices = root / "sys/class/infiniband"
    return {device: name for name in entries(devices) if (device := _device(devices / name / "device"))}


def _device(link: Path) -> Path | None:
    """Resolve a `device` link; None when there is none."""
    try:
        return link.resolve(strict=True)
    except (OSError, RuntimeError):
        return None


def _numbered(sensors: list[_Sensor]) -> tuple[_Sensor, ...]:
    """Return the sensors with a number appended to names that occur more than once."""
    shared = {name for name, count in Counter(sensor.name for sensor in sensors).items() if count > 1}
    seen: Counter[str] = Counter()
    named = []
    for sensor in sensors:
        seen[sensor.name] += 1
        name = f"{sensor.name} {seen[sensor.name]}" if sensor.name in shared else sensor.name
        named.append(_Sensor(name, sensor.input, sensor.critical_c))
    return tuple(named)
