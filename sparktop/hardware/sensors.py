"""Temperatures other than the GPU's, and power rails of a DGX Spark, from /sys/class/hwmon."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from sparktop.hardware.kernel_file import by_number, entries, number_in, read_int, read_text
from sparktop.model.node import PowerRail, SensorReading
from sparktop.model.text import clean

SENSORS_AGAIN_S = 5.0
"""Seconds between two reads: temperatures change slowly, and reading a temperature can send a command to a
disk or to a network card's firmware."""
_MOST_SENSORS = 64
"""Upper limit of sensors shown."""
_LONGEST_NAME = 64
"""Most characters of a sensor's name."""
_MILLI = 1000.0
_SANE_C = (-100.0, 200.0)
"""Plausible range in °C; chips that do not know the temperature report values outside, such as 65261 or
absolute zero."""


def _read_celsius(path: str) -> float | None:
    """Read a temperature file in °C; None when it cannot be read or holds an implausible value."""
    milli = read_int(path)
    if milli is None or not _SANE_C[0] < milli / _MILLI < _SANE_C[1]:
        return None
    return milli / _MILLI


def read_sensors(root: Path) -> tuple[SensorReading, ...]:
    """Return every temperature of the hwmon chips in /sys below `root`, each with a unique name.

    Cards' temperature chips, which are all named mlx5, have the names of their RDMA devices.
    """
    readings: list[SensorReading] = []
    devices = root / "sys/class/infiniband"
    rdma_names = {_device_path(devices / name / "device"): name for name in entries(devices)}
    rdma_names.pop(None, None)
    chips = root / "sys/class/hwmon"
    for chip in sorted(entries(chips), key=by_number):
        folder = chips / chip
        chip_name = rdma_names.get(_device_path(folder / "device")) or read_text(f"{folder}/name") or chip
        inputs = [name for name in entries(folder) if name.startswith("temp") and name.endswith("_input")]
        for name in sorted(inputs, key=by_number):
            stem = str(folder / name.removesuffix("_input"))
            label = read_text(f"{stem}_label")
            celsius, critical_c = _read_celsius(f"{stem}_input"), _read_celsius(f"{stem}_crit")
            if critical_c is not None and critical_c <= 0:
                critical_c = None  # not set
            if celsius is not None:
                reading_name = clean(f"{chip_name} {label}" if label else chip_name, _LONGEST_NAME)
                readings.append(SensorReading(reading_name, celsius, critical_c))
    return _with_unique_names(readings[:_MOST_SENSORS])


def _with_unique_names(readings: list[SensorReading]) -> tuple[SensorReading, ...]:
    """Return the readings; names that occur several times are numbered from 1 on, but for taken names."""
    names = Counter(reading.name for reading in readings)
    taken_names = set(names)
    unique: list[SensorReading] = []
    for reading in readings:
        name = reading.name
        if names[name] > 1:
            numbered = (f"{reading.name[: _LONGEST_NAME - 3]} {number}" for number in count(1))
            name = next(name for name in numbered if name not in taken_names)
            taken_names.add(name)
        unique.append(replace(reading, name=name))
    return tuple(unique)


def _device_path(link: Path) -> Path | None:
    """Return the path that a `device` link points to; None when there is no such link."""
    try:
        return link.resolve(strict=True)
    except (OSError, RuntimeError):
        return None


_DRIVER = "spbm"
"""The third-party hwmon driver that reports the power rails of a DGX Spark."""
RAILS_AGAIN_S = 0.9
"""Shortest time between two reads. With ten polls per second most polls skip the read; with one poll per
second every poll reads, even if the poll comes a little early."""
_MOST_RAILS = 32
"""Upper limit of rails shown."""
_MICRO = 1e-6
_POWER_MAX_W = 20_000.0
"""Values above it are discarded."""


def _read_millionths(path: str) -> float | None:
    """Read a file that holds a number of millionths, as of joules; None if missing or negative."""
    millionths = read_int(path)
    return millionths * _MICRO if millionths is not None and millionths >= 0 else None


def read_rails(root: Path) -> tuple[PowerRail, ...]:
    """Return the reading of every power rail of the chips of `_DRIVER`, below `root`, in the driver's order.

    A machine without this driver has none. Values that cannot be read are None. A power file (microwatts) and
    an energy file (microjoules) with the same label belong to one rail.
    """
    folder = root / "sys/class/hwmon"
    rails: dict[str, PowerRail] = {}
    for chip in entries(folder):
        if read_text(f"{folder}/{chip}/name") != _DRIVER:
            continue
        names = [name for name in entries(folder / chip) if name.endswith("_input")]
        names = [name for name in names if name.startswith(("power", "energy"))]
        for name in sorted(names, key=lambda name: (name.startswith("energy"), by_number(name))):
            stem = f"{folder}/{chip}/{name.removesuffix('_input')}"
            label = clean(read_text(f"{stem}_label") or "", 64) or f"rail {number_in(name)}"
            value = _read_millionths(f"{stem}_input")
            rail = rails.get(label, PowerRail(label))
            if name.startswith("energy"):
                rail = replace(rail, energy_j=value)
            elif value is not None and value <= _POWER_MAX_W:
                rail = replace(rail, power_w=value)
            rails[label] = rail
    return tuple(rails.values())[:_MOST_RAILS]
