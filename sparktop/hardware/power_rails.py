"""Power rails of a DGX Spark, if the third-party hwmon driver `spbm` is loaded."""

from __future__ import annotations

from pathlib import Path

from sparktop.hardware.kernel_file import by_number, entries, read_int, read_text
from sparktop.model.node import PowerRail
from sparktop.model.text import clean
from sparktop.values import dataclass

_DRIVER = "spbm"
_READ_AGAIN_S = 0.9
"""Shortest time between two reads. With ten polls per second most polls skip the read; with one poll per
second every poll reads, even if the poll comes a little early."""
_SEARCH_AGAIN_S = 60.0
_MOST = 32
"""Upper limit of rails shown."""
_MICRO = 1e-6
_POWER_MAX_UW = 20_000_000_000
"""20 kW: values above it, and below 0, are discarded."""


@dataclass(frozen=True, slots=True)
class _Rail:
    """The paths of the files of a power rail, which can have a file for power, for energy or for both."""

    name: str
    power: str | None = None
    energy: str | None = None


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

        If the previous readings are less than `_READ_AGAIN_S` seconds old, they are returned again. Values
        that cannot be read are None.
        """
        if self._searched_at is None or not 0 <= now - self._searched_at < _SEARCH_AGAIN_S:
            self._searched_at, self._rails, self._read_at = now, _find_rails(self._class), None
        if self._read_at is None or not 0 <= now - self._read_at < _READ_AGAIN_S:
            self._read_at = now
            self._readings = tuple(
                PowerRail(rail.name, _watts(rail.power), _joules(rail.energy)) for rail in self._rails
            )
        return self._readings


def _watts(path: str | None) -> float | None:
    """Read a power*_input file, which holds microwatts, in watts; None if missing or implausible."""
    microwatts = None if path is None else read_int(path)
    sane = microwatts is not None and 0 <= microwatts <= _POWER_MAX_UW
    return microwatts * _MICRO if microwatts is not None and sane else None


def _joules(path: str | None) -> float | None:
    """Read an energy*_input file, which holds microjoules, in joules; None if missing or negative."""
    microjoules = None if path is None else read_int(path)
    return microjoules * _MICRO if microjoules is not None and microjoules >= 0 else None


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
            for kind, found in (("power", powers), ("energy", energies)):
                if name.startswith(kind):
                    stem = f"{folder}/{chip}/{name.removesuffix('_input')}"
                    label = clean(read_text(f"{stem}_label") or "", 64) or f"rail {name[len(kind) : -6]}"
                    found.setdefault(label, f"{stem}_input")
    names = dict.fromkeys((*powers, *energies))
    return tuple(_Rail(name, powers.get(name), energies.get(name)) for name in names)[:_MOST]
