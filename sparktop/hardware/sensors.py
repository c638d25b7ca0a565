"""Temperatures other than the GPU's, and power rails of a DGX Spark, from /sys/class/hwmon."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sparktop.hardware.kernel_file import by_number, entries, read_int, read_text
from sparktop.model.node import PowerRail, SensorReading
from sparktop.model.text import clean

_READ_AGAIN_S = 5.0
"""Seconds between two reads: temperatures change slowly, and reading a temperature can send a command to a
disk or to a network card's firmware."""
_SEARCH_AGAIN_S = 60.0
"""Seconds between two searches for chips."""
_MOST_SENSORS = 64
"""Upper limit of sensors shown."""
_MILLI = 1000.0
_SANE_C = (-100.0, 200.0)
"""Plausible range in °C; chips that do not know the temperature report values outside, such as 65261 or
absolute zero."""


_Sensor = tuple[str, str, float | None]
"""Name, path of the file and critical temperature of a temperature sensor."""


class SensorReader:
    """Reads the machine's temperatures; returns the previous readings while they are less than 5 s old."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._searched_at: float | None = None
        self._sensors: tuple[_Sensor, ...] = ()
        self._read_at: float | None = None
        self._readings: tuple[SensorReading, ...] = ()

    def read(self, now: float) -> tuple[SensorReading, ...]:
        """Return the temperature of every sensor; `now` is the time in seconds.

        If the previous readings are only a few seconds old, they are returned again. A sensor that cannot be
        read is left out.
        """
        if self._searched_at is None or not 0 <= now - self._searched_at < _SEARCH_AGAIN_S:
            self._searched_at, self._sensors = now, _find_sensors(self._root)
        if self._read_at is None or not 0 <= now - self._read_at < _READ_AGAIN_S:
            self._read_at = now
            self._readings = tuple(
                SensorReading(name, value, critical_c)
                for name, path, critical_c in self._sensors
                if (value := _read_celsius(path)) is not None
            )
        return self._readings


def _read_celsius(path: str) -> float | None:
    """Read a temperature file in °C; None when it cannot be read or holds an implausible value."""
    milli = read_int(path)
    if milli is None or not _SANE_C[0] < milli / _MILLI < _SANE_C[1]:
        return None
    return milli / _MILLI


def _find_sensors(root: Path) -> tuple[_Sensor, ...]:
    """Return every temperature input of the hwmon chips in /sys below `root`, each with a unique name."""
    sensors: list[_Sensor] = []
    rdma_names = _rdma_names(root)
    chips = root / "sys/class/hwmon"
    for chip in sorted(entries(chips), key=by_number):
        folder = chips / chip
        chip_name = rdma_names.get(_device_path(folder / "device")) or read_text(f"{folder}/name") or chip
        inputs = [name for name in entries(folder) if name.startswith("temp") and name.endswith("_input")]
        for name in sorted(inputs, key=by_number):
            stem = str(folder / name.removesuffix("_input"))
            label = read_text(f"{stem}_label")
            critical_c = _read_celsius(f"{stem}_crit")
            shown = clean(f"{chip_name} {label}" if label else chip_name, 64)
            above = critical_c if critical_c is not None and critical_c > 0 else None
            sensors.append((shown, f"{stem}_input", above))
    return _number_names(sensors[:_MOST_SENSORS])


def _rdma_names(root: Path) -> dict[Path | None, str]:
    """Return the name of each RDMA device by the path of its hardware.

    The caller uses these names for the cards' temperature chips, which are otherwise all named mlx5.
    """
    devices = root / "sys/class/infiniband"
    return {device: name for name in entries(devices) if (device := _device_path(devices / name / "device"))}


def _device_path(link: Path) -> Path | None:
    """Return the path that a `device` link points to; None when there is no such link."""
    try:
        return link.resolve(strict=True)
    except (OSError, RuntimeError):
        return None


def _number_names(sensors: list[_Sensor]) -> tuple[_Sensor, ...]:
    """Return the sensors; append a number to each name that occurs more than once."""
    shared = {name for name, count in Counter(name for name, *_ in sensors).items() if count > 1}
    seen: Counter[str] = Counter()
    named: list[_Sensor] = []
    for name, path, critical_c in sensors:
        seen[name] += 1
        named.append((f"{name} {seen[name]}" if name in shared else name, path, critical_c))
    return tuple(named)


_DRIVER = "spbm"
"""The third-party hwmon driver that reports the power rails of a DGX Spark."""
_RAILS_AGAIN_S = 0.9
"""Shortest time between two reads. With ten polls per second most polls skip the read; with one poll per
second every poll reads, even if the poll comes a little early."""
_MOST_RAILS = 32
"""Upper limit of rails shown."""
_MICRO = 1e-6
_POWER_MAX_W = 20_000.0
"""Values above it are discarded."""


_Rail = tuple[str, str | None, str | None]
"""Name of a power rail and the paths of its files for power and for energy; one of the two can be missing."""


class PowerRailReader:
    """Reads the power rails of the driver `spbm`; a machine without this driver has none."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._class = root / "sys/class/hwmon"
        self._searched_at: float | None = None
        self._rails: tuple[_Rail, ...] = ()
        self._read_at: float | None = None
        self._readings: tuple[PowerRail, ...] = ()

    def read(self, now: float) -> tuple[PowerRail, ...]:
        """Return the readings of all rails, in the driver's order; `now` is the time in seconds.

        If the previous readings are less than `_RAILS_AGAIN_S` seconds old, they are returned again. Values
        that cannot be read are None.
        """
        if self._searched_at is None or not 0 <= now - self._searched_at < _SEARCH_AGAIN_S:
            self._searched_at, self._rails, self._read_at = now, _find_rails(self._class), None
        if self._read_at is None or not 0 <= now - self._read_at < _RAILS_AGAIN_S:
            self._read_at = now
            self._readings = tuple(
                PowerRail(name, _read_watts(power), _read_millionths(energy))
                for name, power, energy in self._rails
            )
        return self._readings


def _read_watts(path: str | None) -> float | None:
    """Read a power*_input file, which holds microwatts, in watts; None if missing or implausible."""
    watts = _read_millionths(path)
    return watts if watts is not None and watts <= _POWER_MAX_W else None


def _read_millionths(path: str | None) -> float | None:
    """Read a file that holds a number of millionths, as of joules; None if missing or negative."""
    millionths = None if path is None else read_int(path)
    return millionths * _MICRO if millionths is not None and millionths >= 0 else None


def _find_rails(folder: Path) -> tuple[_Rail, ...]:
    """Return every power rail of the driver's chips.

    A power file and an energy file with the same label belong to one rail.
    """
    powers: dict[str, str] = {}
    energies: dict[str, str] = {}
    for chip in entries(folder):
        if read_text(f"{folder}/{chip}/name") != _DRIVER:
            continue
        inputs = [name for name in entries(folder / chip) if name.endswith("_input")]
        for name in sorted(inputs, key=by_number):
            for kind, paths in (("power", powers), ("energy", energies)):
                if name.startswith(kind):
                    stem = f"{folder}/{chip}/{name.removesuffix('_input')}"
                    number = name.removeprefix(kind).removesuffix("_input")
                    label = clean(read_text(f"{stem}_label") or "", 64) or f"rail {number}"
                    paths.setdefault(label, f"{stem}_input")
    names = dict.fromkeys((*powers, *energies))
    return tuple((name, powers.get(name), energies.get(name)) for name in names)[:_MOST_RAILS]
