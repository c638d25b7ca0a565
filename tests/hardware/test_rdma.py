"""RDMA ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.hardware.network import CONGESTION_COUNTERS, RdmaReader
from sparktop.model.node import NetworkReading
from tests.hardware import gb10_root
from tests.hardware.conftest import write

DEVICE = "sys/class/infiniband/rocep1s0f0"
PORT = f"{DEVICE}/ports/1"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return the root of a DGX Spark with four functions, two of them connected."""
    return gb10_root.build(tmp_path)


def first(reader: RdmaReader, now: float) -> NetworkReading:
    return reader.read(now)[0]


def test_ports_have_state_speed_bus_and_interface(machine: Path) -> None:
    """State, speed, bus and interface of a port are known before its rates."""
    found = RdmaReader(machine).read(0.0)
    assert [(port.name, port.kind, port.up, port.netdev) for port in found] == [
        ("roceP2p1s0f0", "rdma", True, "enP2p1s0f0np0"),
        ("roceP2p1s0f1", "rdma", False, "enP2p1s0f1np1"),
        ("rocep1s0f0", "rdma", True, "enp1s0f0np0"),
        ("rocep1s0f1", "rdma", False, "enp1s0f1np1"),
    ]
    port = found[2]
    assert port.link_bits_per_s == 200e9
    assert port.capacity_bits_per_s == port.bus_bits_per_s == pytest.approx(100.8e9, rel=1e-3)
    assert (port.rx_bytes_per_s, port.errors_per_s, port.errors) == (None, None, {})


def test_traffic_is_in_words_of_four_bytes(machine: Path) -> None:
    """Traffic counters are in words of four bytes; packets are read every 5 s."""
    reader = RdmaReader(machine)
    reader.read(0.0)
    gb10_root.advance(machine, 1)
    port = reader.read(1.0)[2]
    assert port.tx_bytes_per_s == 4 * gb10_root.RDMA_TX_WORDS_PER_S
    assert port.rx_bytes_per_s == 4 * gb10_root.RDMA_RX_WORDS_PER_S
    assert port.tx_packets_per_s is None
    gb10_root.advance(machine, 5)
    port = reader.read(5.0)[2]
    assert port.tx_packets_per_s == gb10_root.RDMA_TX_PACKETS_PER_S
    assert port.rx_packets_per_s == gb10_root.RDMA_RX_PACKETS_PER_S
    assert reader.read(6.0)[2].tx_packets_per_s == gb10_root.RDMA_TX_PACKETS_PER_S
    assert reader.read(6.5)[3].tx_bytes_per_s is None


def test_a_counter_of_32_bits_wraps_where_the_link_leaves_no_doubt(machine: Path) -> None:
    """A 32-bit wrap is certain at 10 Gb/s; at 200 Gb/s several fit into a second: the rate is unknown."""
    for rate, expected in (("10 Gb/sec (4X SDR)", 4 * 2500), ("200 Gb/sec (2X NDR)", None)):
        write(machine, f"{PORT}/rate", rate + "\n")
        write(machine, f"{PORT}/counters/port_rcv_data", f"{2**32 - 1000}\n")
        reader = RdmaReader(machine)
        reader.read(0.0)
        write(machine, f"{PORT}/counters/port_rcv_data", "1500\n")
        assert reader.read(1.0)[2].rx_bytes_per_s == expected


def test_a_full_counter_tells_nothing(machine: Path) -> None:
    """An InfiniBand counter that stays at its 32-bit maximum is unknown, not idle."""
    write(machine, f"{PORT}/counters/port_rcv_data", f"{2**32 - 1}\n")
    reader = RdmaReader(machine)
    reader.read(0.0)
    assert reader.read(1.0)[2].rx_bytes_per_s is None


def test_errors_are_read_by_name_and_seldom(machine: Path) -> None:
    """Errors are read every 10 s; those that occurred have their own rates and a common sum."""
    reader = RdmaReader(machine)
    reader.read(0.0)
    write(machine, f"{PORT}/hw_counters/out_of_sequence", "30\n")
    write(machine, f"{PORT}/hw_counters/local_ack_timeout_err", "10\n")
    assert reader.read(9.0)[2].errors_per_s is None
    port = reader.read(10.0)[2]
    assert (port.errors_per_s, port.errors) == (4.0, {"out_of_sequence": 3.0, "local_ack_timeout_err": 1.0})
    assert reader.read(11.0)[2].errors == port.errors
    port = reader.read(20.0)[2]
    assert (port.errors_per_s, port.errors) == (0.0, {})


def test_congestion_is_named_but_no_error(machine: Path) -> None:
    """Congestion counters are listed by name, but are not part of the sum of errors."""
    reader = RdmaReader(machine)
    reader.read(0.0)
    for counter in CONGESTION_COUNTERS:
        write(machine, f"{PORT}/hw_counters/{counter}", "500\n")
    port = reader.read(10.0)[2]
    assert (port.errors_per_s, dict(port.errors)) == (0.0, dict.fromkeys(CONGESTION_COUNTERS, 50.0))
