"""Facts about who a machine is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.hardware.identity import read_identity
from sparktop.model.node import NodeIdentity
from tests.hardware.conftest import write

DMI = "sys/devices/virtual/dmi/id"


def test_a_spark_says_who_it_is(spark: Path) -> None:
    """Distribution and kernel, maker and product, driver and boot."""
    assert read_identity(spark, driver="580.126.09") == NodeIdentity(
        os="Ubuntu 24.04.3 LTS, Linux 6.14.0-1013-nvidia",
        driver="580.126.09",
        product="NVIDIA DGX Spark",
        boot_id="0f1e2d3c-0000-4000-8000-000000000001",
    )


def test_a_bare_container_is_nobody(bare: Path) -> None:
    """What nothing tells is None."""
    assert read_identity(bare) == NodeIdentity()


@pytest.mark.parametrize(
    ("vendor", "family", "name", "product"),
    [
        ("ASUSTeK", "DGX Spark", "Ascent GX10", "ASUSTeK DGX Spark"),
        ("Dell Inc.", "PowerEdge", "PowerEdge R750", "Dell Inc. PowerEdge R750"),
        ("To Be Filled By O.E.M.", "Default string", "X570", "X570"),
        ("QEMU", "", "Standard PC", "QEMU Standard PC"),
        ("NVIDIA", "", "NVIDIA Jetson", "NVIDIA Jetson"),
    ],
)
def test_a_product_is_its_maker_and_its_most_telling_name(
    spark: Path, vendor: str, family: str, name: str, product: str
) -> None:
    """The maker stands once, and what a maker left unfilled is no name."""
    for entry, value in (("sys_vendor", vendor), ("product_family", family), ("product_name", name)):
        write(spark, f"{DMI}/{entry}", value + "\n")
    assert read_identity(spark).product == product


def test_a_board_without_dmi_has_a_device_tree(bare: Path) -> None:
    """The model of the device tree ends in a zero byte, which is no part of the name."""
    write(bare, "sys/firmware/devicetree/base/model", b"NVIDIA Jetson AGX Orin\0")
    assert read_identity(bare).product == "NVIDIA Jetson AGX Orin"


def test_names_are_cleaned(spark: Path) -> None:
    """An escape sequence in a product's or a distribution's name reaches no screen."""
    write(spark, f"{DMI}/product_family", "DGX\x1b[31m Spark\u202e")
    write(spark, "etc/os-release", 'PRETTY_NAME="Ubuntu \x1b]0;x\x07\n')
    identity = read_identity(spark)
    assert identity.product == "NVIDIA DGX [31m Spark"
    assert identity.os == "Ubuntu ]0;x , Linux 6.14.0-1013-nvidia"
