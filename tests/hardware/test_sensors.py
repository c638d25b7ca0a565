"""Temperature sensors."""

from __future__ import annotations

from pathlib import Path

from sparktop.hardware.sensors import SensorReader
from tests.hardware.conftest import write


def test_each_sensor_has_its_own_name_and_critical_value(spark: Path) -> None:
    """Chips of the same name are named by their RDMA device if they have one, else numbered."""
    found = [
        (sensor.name, sensor.temperature_c, sensor.critical_c) for sensor in SensorReader(spark).read(0.0)
    ]
    assert found == [
        ("acpitz 1", 91.5, None),
        ("acpitz 2", 88.0, None),
        ("nvme Composite", 46.85, 84.85),
        ("rocep1s0f0", 55.0, 105.0),
        ("rocep1s0f1", 56.0, 105.0),
    ]


def test_what_a_chip_does_not_know_is_left_out(spark: Path) -> None:
    """Impossible temperatures and critical values are left out."""
    write(spark, "sys/class/hwmon/hwmon1/temp1_crit", "65261850\n")
    write(spark, "sys/class/hwmon/hwmon2/temp1_input", "-273150\n")
    write(spark, "sys/class/hwmon/hwmon10/temp1_input", "n/a\n")
    found = {sensor.name: sensor.critical_c for sensor in SensorReader(spark).read(0.0)}
    assert found == {"acpitz 1": None, "acpitz 2": None, "nvme Composite": None}
