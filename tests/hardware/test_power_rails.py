"""Power rails."""

from __future__ import annotations

from pathlib import Path

from sparktop.hardware.sensors import PowerRailReader
from sparktop.model.node import PowerRail
from tests.hardware.conftest import write

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


def test_a_label_is_cleaned_and_a_missing_one_is_numbered(gb10_tree: Path) -> None:
    """Labels are cleaned, and a rail without one is numbered."""
    write(gb10_tree, f"{CHIP}/power1_label", "sys\x1b[31m\n")
    (gb10_tree / f"{CHIP}/power2_label").unlink()
    names = [rail.name for rail in PowerRailReader(gb10_tree).read(0.0)]
    assert names[:2] == ["sys [31m", "rail 2"]
