"""The identity of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.hardware.identity import IdentityReader, read_addresses, read_identity
from sparktop.model.node import NodeIdentity
from tests.hardware.conftest import write

DMI = "sys/devices/virtual/dmi/id"


def test_a_spark_says_who_it_is(spark: Path) -> None:
    """Distribution, kernel, maker, product, driver and boot id are read."""
    assert read_identity(spark, driver="580.126.09") == NodeIdentity(
        os="Ubuntu 24.04.3 LTS, Linux 6.14.0-1013-nvidia",
        driver="580.126.09",
        product="NVIDIA DGX Spark",
        boot_id="0f1e2d3c-0000-4000-8000-000000000001",
        maker="NVIDIA",
    )


def test_a_whole_machine_has_a_name_and_addresses(gb10_tree: Path) -> None:
    """Addresses leave out loopback and link-local ones and repetitions, IPv4 first."""
    identity = read_identity(gb10_tree, cpu="10 x Cortex-X925 + 10 x Cortex-A725")
    assert (identity.hostname, identity.maker) == ("spark-1", "NVIDIA")
    assert identity.cpu == "10 x Cortex-X925 + 10 x Cortex-A725"
    assert identity.addresses == ("10.100.0.11", "192.168.1.11", "2001:db8::11", "fd00::11")


def test_a_maker_that_left_its_name_out_is_unknown(spark: Path) -> None:
    """A maker's placeholder is unknown."""
    write(spark, f"{DMI}/sys_vendor", "To Be Filled By O.E.M.\n")
    assert read_identity(spark).maker is None


def test_an_identity_is_the_same_object_while_nothing_changed(gb10_tree: Path) -> None:
    """The identity is the same object until it changes; it is read once a minute."""
    reader = IdentityReader(gb10_tree)
    first = reader.read(0.0)
    assert reader.read(30.0) is reader.read(90.0) is reader.identity is first
    write(gb10_tree, "proc/sys/kernel/hostname", "spark-2\n")
    assert reader.read(149.0) is first
    renamed = reader.read(150.0)
    assert (renamed.hostname, renamed.addresses) == ("spark-2", first.addresses)
    assert reader.identity is renamed


def test_a_driver_is_told_as_soon_as_it_is_known(gb10_tree: Path) -> None:
    """A driver is added at once, and stays in the identity when it disappears."""
    reader = IdentityReader(gb10_tree)
    assert reader.read(0.0).driver is None
    loaded = reader.read(1.0, driver="580.126.09")
    assert loaded.driver == "580.126.09"
    assert reader.read(2.0) is loaded


def test_an_address_that_came_and_went_shows_within_a_minute(gb10_tree: Path) -> None:
    """An address that comes or goes is noticed within a minute."""
    reader = IdentityReader(gb10_tree)
    reader.read(0.0)
    write(gb10_tree, "proc/net/fib_trie", "Local:\n  |-- 10.0.0.9\n     /32 host LOCAL\n")
    (gb10_tree / "proc/net/if_inet6").unlink()
    assert reader.read(60.0).addresses == ("10.0.0.9",)


def test_addresses_that_are_none_are_left_out(tmp_path: Path) -> None:
    """Invalid addresses are left out without an error."""
    write(tmp_path, "proc/net/fib_trie", b"  |-- 10.0.0\xff\n /32 host LOCAL\n/32 host LOCAL\n |-- 0.0.0.0\n")
    write(tmp_path, "proc/net/if_inet6", b"zz 01\n\nfd00\n\xff\xfe\n")
    assert read_addresses(tmp_path) == ()


def test_a_bare_container_is_nobody(bare: Path) -> None:
    """Values that are not available are None."""
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
    """The product begins with its maker, once; placeholders are left out."""
    for entry, value in (("sys_vendor", vendor), ("product_family", family), ("product_name", name)):
        write(spark, f"{DMI}/{entry}", value + "\n")
    assert read_identity(spark).product == product


def test_a_board_without_dmi_has_a_device_tree(bare: Path) -> None:
    """The model of a device tree is read without its trailing zero byte."""
    write(bare, "sys/firmware/devicetree/base/model", b"NVIDIA Jetson AGX Orin\0")
    assert read_identity(bare).product == "NVIDIA Jetson AGX Orin"


def test_names_are_cleaned(spark: Path) -> None:
    """Product and distribution names are cleaned."""
    write(spark, f"{DMI}/product_family", "DGX\x1b[31m Spark\u202e")
    write(spark, "etc/os-release", 'PRETTY_NAME="Ubuntu \x1b]0;x\x07\n')
    identity = read_identity(spark)
    assert identity.product == "NVIDIA DGX [31m Spark"
    assert identity.os == "Ubuntu ]0;x , Linux 6.14.0-1013-nvidia"
