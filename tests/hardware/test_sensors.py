"""Temperature sensors and power rails."""

from __future__ import annotations

from pathlib import Path

from sparktop.hardware.sensors import PowerRailReader, SensorReader
from sparktop.model.node import PowerRail
from tests.hardware.gb10_root import write

CHIP = "sys/class/hwmon/hwmon7"


def sensors(root: Path) -> dict[str, tuple[float, float | None]]:
    return {one.name: (one.temperature_c, one.critical_c) for one in SensorReader(root).read(0.0)}


def test_each_sensor_has_its_own_name_and_critical_value(spark: Path) -> None:
    """Chips of the same name are named by their RDMA device if they have one, else numbered."""
    known = sensors(spark)
    assert known["acpitz 1"] == (91.5, None)
    assert known["nvme Composite"] == (46.85, 84.85)
    assert (known["rocep1s0f0 asic"], known["rocep1s0f1 asic"]) == ((55.0, 105.0), (56.0, 105.0))


def test_what_a_chip_does_not_know_is_left_out(spark: Path) -> None:
    """Impossible temperatures and critical values are left out."""
    write(spark, "sys/class/hwmon/hwmon1/temp1_crit", "65261850\n")
    write(spark, "sys/class/hwmon/hwmon2/temp1_input", "-273150\n")
    write(spark, "sys/class/hwmon/hwmon3/temp1_input", "n/a\n")
    known = sensors(spark)
    assert known["nvme Composite"] == (46.85, None)
    assert {"rocep1s0f0 asic", "rocep1s0f1 asic"}.isdisjoint(known)


def test_rails_are_watts_and_joules(spark: Path) -> None:
    """Power and energy with the same label are one rail, in watts and joules; energy may be missing."""
    assert PowerRailReader(spark).read(0.0) == (
        PowerRail("sys_total", 61.5),
        PowerRail("soc_pkg", 44.25, 7200.0),
        PowerRail("cpu_p", 9.1),
        PowerRail("cpu_e", 2.4),
        PowerRail("gpu", 30.75, 5100.5),
        PowerRail("dc_input", 66.0),
    )


def test_a_rail_that_does_not_answer_is_unknown(spark: Path) -> None:
    """A missing, invalid or impossible value is unknown, not 0; a rail without label is numbered."""
    (spark / f"{CHIP}/power1_input").unlink()
    write(spark, f"{CHIP}/power2_label", "soc\x1b[31m\n")
    (spark / f"{CHIP}/power6_label").unlink()
    for name, content in (("power3", "n/a"), ("power4", "-5"), ("power5", f"{10**15}"), ("energy1", "-1")):
        write(spark, f"{CHIP}/{name}_input", content + "\n")
    assert {rail.name: (rail.power_w, rail.energy_j) for rail in PowerRailReader(spark).read(0.0)} == {
        "soc [31m": (44.25, None),
        "cpu_p": (None, None),
        "cpu_e": (None, None),
        "gpu": (None, 5100.5),
        "rail 6": (66.0, None),
        "soc_pkg": (None, None),
    }
