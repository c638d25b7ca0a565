"""The capacity of PCIe links."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.hardware.kernel_file import link_bits_per_s
from tests.hardware.conftest import write


@pytest.mark.parametrize(
    ("speed", "width", "gigabits"),
    [
        ("2.5 GT/s PCIe", 1, 1.6),
        ("5 GT/s", 8, 25.6),
        ("8.0 GT/s PCIe", 16, 100.8),
        ("16.0 GT/s PCIe", 16, 201.6),
        ("32.0 GT/s PCIe", 4, 100.8),
        ("32.0 GT/s PCIe", 16, 403.3),
        ("64.0 GT/s PCIe", 16, 774.4),
    ],
)
def test_a_link_carries_what_encoding_and_packets_leave(
    tmp_path: Path, speed: str, width: int, gigabits: float
) -> None:
    """Encoding costs a fifth for Gen1 and Gen2, later 2 bits in 130; packets cost a fifth of the rest."""
    write(tmp_path, "current_link_speed", speed + "\n")
    write(tmp_path, "current_link_width", f"{width}\n")
    assert link_bits_per_s(str(tmp_path)) == pytest.approx(gigabits * 1e9, rel=1e-3)


@pytest.mark.parametrize(
    ("speed", "width"),
    [
        ("Unknown", "4"),
        ("Unknown speed", "4"),
        ("", "4"),
        ("x GT/s PCIe", "4"),
        ("inf GT/s", "4"),
        ("-8 GT/s", "4"),
        ("32.0 GT/s PCIe", "0"),
        ("32.0 GT/s PCIe", "63"),
        ("32.0 GT/s PCIe", "255"),
        ("32.0 GT/s PCIe", ""),
    ],
)
def test_a_link_that_tells_nothing_has_no_figure(tmp_path: Path, speed: str, width: str) -> None:
    """A link with an unknown speed or width has no capacity."""
    write(tmp_path, "current_link_speed", speed + "\n")
    write(tmp_path, "current_link_width", width + "\n")
    assert link_bits_per_s(str(tmp_path)) is None


def test_a_device_that_is_not_on_pcie_has_no_figure(tmp_path: Path) -> None:
    """A device that is not on PCIe, as a USB adapter or a virtual network card, has no capacity."""
    assert link_bits_per_s(str(tmp_path / "device")) is None
