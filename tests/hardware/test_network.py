"""Facts about network interfaces and RDMA ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.hardware.network import NetworkReader
from sparktop.hardware.rdma import RdmaReader
from tests.hardware.conftest import net_dev_line, write

PORT = "sys/class/infiniband/rocep1s0f0/ports/1"


def test_interfaces_have_their_kind_state_and_speed(spark: Path) -> None:
    """Kind, up and link speed come from /sys; a speed of -1 and a state of "unknown" are unknown."""
    found = {link.name: (link.kind, link.up, link.link_bits_per_s) for link in NetworkReader(spark).read(0.0)}
    assert found == {
        "enP7s7": ("ethernet", True, 10e9),
        "enp1s0f0np0": ("ethernet", False, None),
        "wlP9s9": ("wifi", True, None),
        "tun0": ("other", None, None),
    }


def test_loopback_and_container_plumbing_are_left_out(spark: Path) -> None:
    """What passes lo, docker0, veth and br- passes another interface as well or never leaves the machine."""
    names = " ".join(link.name for link in NetworkReader(spark).read(0.0))
    assert not any(word in names for word in ("lo ", "docker", "veth", "br-"))


def test_rates_are_of_the_time_between_readings(spark: Path) -> None:
    """Bytes and errors per second; a counter that went back gives None."""
    reader = NetworkReader(spark)
    first = reader.read(0.0)[0]
    assert (first.rx_bytes_per_s, first.tx_bytes_per_s, first.errors_per_s) == (None, None, None)
    write(spark, "proc/net/dev", "h\nh\n" + net_dev_line("enP7s7", 3_000_000, 6, 1_000, 1))
    second = reader.read(2.0)[0]
    assert (second.rx_bytes_per_s, second.tx_bytes_per_s, second.errors_per_s) == (1e6, None, 2.0)


def test_a_link_that_came_up_is_looked_at_again(spark: Path) -> None:
    """The speed is read once a minute, and at once when the state changed."""
    reader = NetworkReader(spark)
    reader.read(0.0)
    write(spark, "sys/class/net/enp1s0f0np0/operstate", "up\n")
    write(spark, "sys/class/net/enp1s0f0np0/speed", "200000\n")
    write(spark, "sys/class/net/enP7s7/speed", "1000\n")
    speeds = [link.link_bits_per_s for link in reader.read(1.0)[:2]]
    assert speeds == [10e9, 200e9]
    assert reader.read(61.0)[0].link_bits_per_s == 1e9


def test_a_container_without_sys_is_judged_by_names(bare: Path) -> None:
    """eth0 is Ethernet and wl… is wifi where /sys tells nothing; up is unknown, not down."""
    found = {link.name: (link.kind, link.up) for link in NetworkReader(bare).read(0.0)}
    assert found["eth0"] == ("ethernet", None)
    assert found["wlP9s9"] == ("wifi", None)
    assert found["tun0"] == ("other", None)


@pytest.mark.parametrize("content", [b"", b"a\nb\n", b"h\nh\n x: 1 2\n y: " + b"z " * 16, b"\xff" * 100])
def test_garbage_is_no_interface(bare: Path, content: bytes) -> None:
    """Lines that are not what the kernel writes are left out."""
    write(bare, "proc/net/dev", content)
    assert NetworkReader(bare).read(0.0) == ()


def test_a_name_is_cleaned(bare: Path) -> None:
    """An interface can be called nearly anything; an escape sequence in it reaches no screen."""
    write(bare, "proc/net/dev", "h\nh\n a\x1b[31mb: " + "1 " * 16)
    assert [link.name for link in NetworkReader(bare).read(0.0)] == ["a [31mb"]


def test_rdma_counts_words(spark: Path) -> None:
    """The InfiniBand counters are in words of 4 bytes."""
    reader = RdmaReader(spark)
    first = reader.read(0.0)
    assert [(port.name, port.kind, port.up, port.link_bits_per_s) for port in first] == [
        ("rocep1s0f0", "rdma", True, 200e9),
        ("rocep1s0f1", "rdma", False, None),
    ]
    assert (first[0].rx_bytes_per_s, first[0].tx_bytes_per_s) == (None, None)
    write(spark, f"{PORT}/counters/port_rcv_data", "1500000\n")
    second = reader.read(2.0)
    assert (second[0].rx_bytes_per_s, second[0].tx_bytes_per_s) == (1e6, 0.0)
    assert second[1].rx_bytes_per_s is None


def test_rdma_errors_are_counted_by_name_and_seldom(spark: Path) -> None:
    """Only counters that are errors, every 5 s: congestion marks are none."""
    reader = RdmaReader(spark)
    assert reader.read(0.0)[0].errors_per_s is None
    write(spark, f"{PORT}/hw_counters/out_of_sequence", "15\n")
    write(spark, f"{PORT}/hw_counters/np_cnp_sent", "999999\n")
    assert reader.read(1.0)[0].errors_per_s is None
    assert reader.read(5.0)[0].errors_per_s == 2.0
    assert reader.read(6.0)[0].errors_per_s == 2.0


def test_several_ports_carry_their_number(spark: Path) -> None:
    """A device with two ports gives two readings with names of their own."""
    write(spark, "sys/class/infiniband/rocep1s0f0/ports/2/state", "4: ACTIVE\n")
    names = [port.name for port in RdmaReader(spark).read(0.0)]
    assert names == ["rocep1s0f0/1", "rocep1s0f0/2", "rocep1s0f1"]


def test_no_rdma_is_normal(bare: Path) -> None:
    """A machine without RDMA has no ports, and no error."""
    assert RdmaReader(bare).read(0.0) == ()


@pytest.mark.parametrize("rate", ["", "fast", "x Gb/sec", "inf Gb/sec", "-2 Gb/sec", "200 Mb/sec"])
def test_a_strange_link_rate_is_unknown(spark: Path, rate: str) -> None:
    """A rate that cannot be read is no rate."""
    write(spark, f"{PORT}/rate", rate)
    assert RdmaReader(spark).read(0.0)[0].link_bits_per_s is None
