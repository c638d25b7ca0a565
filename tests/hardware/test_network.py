"""Network interfaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.hardware.network import NetworkReader
from tests.hardware import gb10_root
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


def test_a_link_that_came_up_is_looked_at_again(spark: Path) -> None:
    """The state is read every 5 s; the speed once a minute and after a change of state."""
    reader = NetworkReader(spark)
    reader.read(0.0)
    write(spark, "sys/class/net/enp1s0f0np0/operstate", "up\n")
    write(spark, "sys/class/net/enp1s0f0np0/speed", "200000\n")
    write(spark, "sys/class/net/enP7s7/speed", "1000\n")
    assert reader.read(4.0)[1].up is False
    speeds = [link.link_bits_per_s for link in reader.read(5.0)[:2]]
    assert speeds == [10e9, 200e9]
    assert reader.read(61.0)[0].link_bits_per_s == 1e9


def test_a_container_without_sys_is_judged_by_names(bare: Path) -> None:
    """Without /sys, eth0 is Ethernet and wl… is wifi by name, and the state is unknown."""
    found = {link.name: (link.kind, link.up) for link in NetworkReader(bare).read(0.0)}
    assert found["eth0"] == ("ethernet", None)
    assert found["wlP9s9"] == ("wifi", None)
    assert found["tun0"] == ("other", None)


@pytest.mark.parametrize("content", [b"", b"a\nb\n", b"h\nh\n x: 1 2\n y: " + b"z " * 16, b"\xff" * 100])
def test_garbage_is_no_interface(bare: Path, content: bytes) -> None:
    """Unexpected lines are ignored."""
    write(bare, "proc/net/dev", content)
    assert NetworkReader(bare).read(0.0) == ()


def test_a_name_is_cleaned(bare: Path) -> None:
    """Interface names are cleaned."""
    write(bare, "proc/net/dev", "h\nh\n a\x1b[31mb: " + "1 " * 16)
    assert [link.name for link in NetworkReader(bare).read(0.0)] == ["a [31mb"]


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


def test_a_narrow_counter_that_wraps_keeps_its_rate(spark: Path) -> None:
    """A 32-bit counter that wraps keeps its rate if the link's speed rules out a restart."""
    write(spark, "proc/net/dev", "h\nh\n" + net_dev_line("enP7s7", 2**32 - 500, 0, 3_000_000, 0))
    reader = NetworkReader(spark)
    reader.read(0.0)
    write(spark, "proc/net/dev", "h\nh\n" + net_dev_line("enP7s7", 1_500, 0, 1_000, 0))
    link = reader.read(1.0)[0]
    assert (link.rx_bytes_per_s, link.tx_bytes_per_s) == (2000.0, None)


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


def test_an_interface_knows_what_its_bus_carries(tmp_path: Path) -> None:
    """The capacity is limited by PCIe: 100.8 Gb/s for a 200 Gb/s interface on Gen5 x4."""
    links = {link.name: link for link in NetworkReader(gb10_root.build(tmp_path)).read(0.0)}
    fast = links["enp1s0f0np0"]
    assert fast.link_bits_per_s == 200e9
    assert fast.capacity_bits_per_s == fast.bus_bits_per_s == pytest.approx(100.8e9, rel=1e-3)
    assert (links["enP7s7"].bus_bits_per_s, links["enP7s7"].capacity_bits_per_s) == (None, 10e9)
