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
