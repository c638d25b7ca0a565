"""The identity of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.hardware.identity import IdentityReader, read_identity
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


def test_an_address_that_came_and_went_shows_within_a_minute(gb10_tree: Path) -> None:
    """An address that comes or goes is noticed within a minute."""
    reader = IdentityReader(gb10_tree)
    reader.read(0.0)
    write(gb10_tree, "proc/net/fib_trie", "Local:\n  |-- 10.0.0.9\n     /32 host LOCAL\n")
    (gb10_tree / "proc/net/if_inet6").unlink()
    assert reader.read(60.0).addresses == ("10.0.0.9",)


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
