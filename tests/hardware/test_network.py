"""Network interfaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.hardware.network import NetworkReader
from tests.hardware.conftest import net_dev_line, write


def test_interfaces_have_their_kind_state_and_speed(spark: Path) -> None:
    """Kind, state and speed are read from /sys; a speed of -1 and a state of "unknown" are unknown."""
    found = {link.name: (link.kind, link.up, link.link_bits_per_s) for link in NetworkReader(spark).read(0.0)}
    assert found == {
        "enP7s7": ("ethernet", True, 10e9),
        "enp1s0f0np0": ("ethernet", False, None),
        "wlP9s9": ("wifi", True, None),
        "tun0": ("other", None, None),
    }


def test_loopback_and_container_plumbing_are_left_out(spark: Path) -> None:
    """lo, docker0, veth and br- are left out: their traffic is local or also on another interface."""
    names = " ".join(link.name for link in NetworkReader(spark).read(0.0))
    assert not any(word in names for word in ("lo ", "docker", "veth", "br-"))


def test_rates_are_of_the_time_between_readings(spark: Path) -> None:
    """Bytes and errors are rates over the time between readings; a decreased counter gives None."""
    reader = NetworkReader(spark)
    first = reader.read(0.0)[0]
    assert (first.rx_bytes_per_s, first.tx_bytes_per_s, first.errors_per_s) == (None, None, None)
    write(spark, "proc/net/dev", "h\nh\n" + net_dev_line("enP7s7", 3_000_000, 6, 1_000, 1))
    second = reader.read(2.0)[0]
    assert (second.rx_bytes_per_s, second.tx_bytes_per_s, second.errors_per_s) == (1e6, None, 2.0)


def test_packets_and_errors_have_rates_and_names(spark: Path) -> None:
    """Packets and errors have rates; errors that occurred are listed by their names in /sys."""
    reader = NetworkReader(spark)
    reader.read(0.0)
    line = (
        net_dev_line("enP7s7", 3_000_000, 6, 3_000_000, 1).replace(" 5000 ", " 5020 ").replace("6000", "6040")
    )
    write(spark, "proc/net/dev", "h\nh\n" + line)
    link = reader.read(2.0)[0]
    assert (link.rx_packets_per_s, link.tx_packets_per_s) == (10.0, 20.0)
    assert (link.errors_per_s, link.errors) == (2.0, {"rx_errors": 2.0})


@pytest.mark.parametrize(
    "files",
    [
        {"uevent": "DEVTYPE=bridge\nINTERFACE=enbr0\n"},
        {"uevent": "DEVTYPE=vlan\nINTERFACE=enbr0\n"},
        {"bridge/bridge_id": "8000.0\n"},
        {"bonding/mode": "balance-rr 0\n"},
        {"tun_flags": "0x1002\n"},
    ],
)
def test_what_only_looks_like_ethernet_is_other(spark: Path, files: dict[str, str]) -> None:
    """Bridges, bonds, VLANs and tunnels are "other", because their traffic is also on another interface."""
    write(spark, "proc/net/dev", "h\nh\n" + net_dev_line("enbr0", 1, 0, 1, 0))
    write(spark, "sys/class/net/enbr0/type", "1\n")
    assert [link.kind for link in NetworkReader(spark).read(0.0)] == ["ethernet"]
    for path, content in files.items():
        write(spark, f"sys/class/net/enbr0/{path}", content)
    assert [link.kind for link in NetworkReader(spark).read(0.0)] == ["other"]
