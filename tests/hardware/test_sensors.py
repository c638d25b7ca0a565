"""Temperature sensors."""

from __future__ import annotations

from pathlib import Path

from sparktop.hardware.sensors import SensorReader
from tests.hardware.conftest import write
from tests.hardware.gb10_root import RDMA_DEVICES


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


def test_the_four_cards_of_a_spark_are_named_after_their_rdma_devices(gb10_tree: Path) -> None:
    """The four chips of the network card are named after the RDMA devices on the same PCI functions."""
    found = {sensor.name: sensor for sensor in SensorReader(gb10_tree).read(0.0)}
    cards = [f"{device} asic" for device in RDMA_DEVICES]
    assert [name for name in found if name.startswith("roce")] == cards
    assert [found[name].temperature_c for name in cards] == [55.0, 56.0, 57.0, 58.0]
    assert {found[name].critical_c for name in cards} == {105.0}
    assert [name for name in found if name.startswith("acpitz")] == [f"acpitz {n}" for n in range(1, 6)]
    assert (found["nvme Sensor 1"].critical_c, found["mt7925_phy0"].temperature_c) == (None, 48.0)


def test_cards_without_rdma_devices_are_numbered(gb10_tree: Path) -> None:
    """Without RDMA devices the chips are numbered."""
    for device in RDMA_DEVICES:
        (gb10_tree / f"sys/class/infiniband/{device}").unlink()
    found = [sensor.name for sensor in SensorReader(gb10_tree).read(0.0)]
    assert [name for name in found if "mlx5" in name] == [f"mlx5 asic {n}" for n in range(1, 5)]


def test_what_a_chip_does_not_know_is_left_out(spark: Path) -> None:
    """Impossible temperatures and critical values are left out."""
    write(spark, "sys/class/hwmon/hwmon1/temp1_crit", "65261850\n")
    write(spark, "sys/class/hwmon/hwmon2/temp1_input", "-273150\n")
    write(spark, "sys/class/hwmon/hwmon10/temp1_input", "n/a\n")
    found = {sensor.name: sensor.critical_c for sensor in SensorReader(spark).read(0.0)}
    assert found == {"acpitz 1": None, "acpitz 2": None, "nvme Composite": None}


def test_temperatures_are_read_every_5_seconds(spark: Path) -> None:
    """Temperatures are read every 5 s, because a reading may be a command to a disk."""
    reader = SensorReader(spark)
    reader.read(0.0)
    write(spark, "sys/class/hwmon/hwmon0/temp1_input", "70000\n")
    assert reader.read(4.0)[0].temperature_c == 91.5
    assert reader.read(5.0)[0].temperature_c == 70.0


def test_new_sensors_are_found_after_a_minute(spark: Path) -> None:
    """New sensors are found after a minute."""
    reader = SensorReader(spark)
    reader.read(0.0)
    write(spark, "sys/class/hwmon/hwmon11/name", "late\n")
    write(spark, "sys/class/hwmon/hwmon11/temp1_input", "30000\n")
    assert "late" not in {sensor.name for sensor in reader.read(10.0)}
    assert "late" in {sensor.name for sensor in reader.read(60.0)}


def test_no_sensors_are_normal(bare: Path) -> None:
    """A container without sensors is not an error."""
    assert SensorReader(bare).read(0.0) == ()
