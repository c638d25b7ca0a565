"""Power rails."""

from __future__ import annotations

from pathlib import Path

from sparktop.hardware.sensors import PowerRailReader
from sparktop.model.node import PowerRail
from tests.hardware.conftest import write
from tests.hardware.gb10_root import build

CHIP = "sys/class/hwmon/hwmon7"


def test_rails_are_watts_and_joules(gb10_tree: Path) -> None:
    """Power and energy with the same label are one rail, in watts and joules; energy may be missing."""
    assert PowerRailReader(gb10_tree).read(0.0) == (
        PowerRail("sys_total", 61.5),
        PowerRail("soc_pkg", 44.25, 7200.0),
        PowerRail("cpu_p", 9.1),
        PowerRail("cpu_e", 2.4),
        PowerRail("gpu", 30.75, 5100.5),
        PowerRail("dc_input", 66.0),
    )


def test_a_machine_without_the_driver_has_no_rails(tmp_path: Path) -> None:
    """Without the third-party driver there are no rails, and power of other chips is not used."""
    build(tmp_path, spbm=False)
    write(tmp_path, "sys/class/hwmon/hwmon0/power1_input", "1000000\n")
    assert PowerRailReader(tmp_path).read(0.0) == ()
    assert PowerRailReader(tmp_path / "nowhere").read(0.0) == ()


def test_a_rail_that_does_not_answer_is_unknown(gb10_tree: Path) -> None:
    """A missing, invalid, negative or impossible value is unknown, not 0."""
    (gb10_tree / f"{CHIP}/power1_input").unlink()
    write(gb10_tree, f"{CHIP}/power3_input", "n/a\n")
    write(gb10_tree, f"{CHIP}/power4_input", "-5\n")
    write(gb10_tree, f"{CHIP}/power5_input", f"{10**15}\n")
    write(gb10_tree, f"{CHIP}/energy1_input", "-1\n")
    rails = {rail.name: (rail.power_w, rail.energy_j) for rail in PowerRailReader(gb10_tree).read(0.0)}
    assert rails == {
        "soc_pkg": (44.25, None),
        "cpu_p": (None, None),
        "cpu_e": (None, None),
        "gpu": (None, 5100.5),
        "dc_input": (66.0, None),
    }


def test_a_rail_that_falls_silent_stays_in_its_place(gb10_tree: Path) -> None:
    """A rail whose file is missing keeps its position for a minute."""
    reader = PowerRailReader(gb10_tree)
    reader.read(0.0)
    (gb10_tree / f"{CHIP}/power1_input").unlink()
    assert reader.read(1.0)[0] == PowerRail("sys_total")
    assert reader.read(60.0)[0].name == "soc_pkg"


def test_rails_are_read_once_a_second(gb10_tree: Path) -> None:
    """Rails are read once a second at most."""
    reader = PowerRailReader(gb10_tree)
    reader.read(0.0)
    write(gb10_tree, f"{CHIP}/power1_input", "70000000\n")
    assert reader.read(0.5)[0].power_w == 61.5
    assert reader.read(1.0)[0].power_w == 70.0


def test_a_label_is_cleaned_and_a_missing_one_is_numbered(gb10_tree: Path) -> None:
    """Labels are cleaned, and a rail without one is numbered."""
    write(gb10_tree, f"{CHIP}/power1_label", "sys\x1b[31m\n")
    (gb10_tree / f"{CHIP}/power2_label").unlink()
    names = [rail.name for rail in PowerRailReader(gb10_tree).read(0.0)]
    assert names[:2] == ["sys [31m", "rail 2"]
