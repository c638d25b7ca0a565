"""Network interfaces, RDMA ports, PCIe links and the counters behind their rates."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.hardware.kernel_file import CounterRates
from sparktop.hardware.network import CONGESTION_COUNTERS, NetworkReader, RdmaReader
from sparktop.model.node import NetworkReading
from tests.hardware import gb10_root
from tests.hardware.gb10_root import write

PORT = "sys/class/infiniband/rocep1s0f0/ports/1"


def traffic(root: Path, name: str, rx: int, tx: int, packets: int = 5000, errors: int = 0) -> None:
    """Write /proc/net/dev with one interface."""
    line = f"{name}: {rx} {packets} {errors} 0 0 0 0 0 {tx} {packets} 0 0 0 0 0 0\n"
    write(root, "proc/net/dev", "h\nh\n" + line)


def test_interfaces_have_their_kind_state_and_speed(spark: Path) -> None:
    """A speed of -1 is unknown; what is local or a container's is counted elsewhere, so it is left out."""
    lines = "".join(f"{name}: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n" for name in ("vethab12", "br-5f00", "tun0"))
    with (spark / "proc/net/dev").open("a") as file:
        file.write(lines)
    write(spark, "sys/class/net/tun0/operstate", "unknown\n")
    write(spark, "sys/class/net/tun0/type", "65534\n")
    shown = {link.name: (link.kind, link.up, link.link_bits_per_s) for link in NetworkReader(spark).read(0.0)}
    assert shown == {
        "enP7s7": ("ethernet", True, 10e9),
        "wlP9s9": ("wifi", True, None),
        "tun0": ("other", None, None),
        "enp1s0f0np0": ("ethernet", True, 200e9),
        "enp1s0f1np1": ("ethernet", False, None),
        "enP2p1s0f0np0": ("ethernet", True, 200e9),
        "enP2p1s0f1np1": ("ethernet", False, None),
    }


def test_rates_are_of_the_time_between_readings(spark: Path) -> None:
    """Bytes, packets and errors are rates between readings; a decreased counter gives None."""
    reader = NetworkReader(spark)
    traffic(spark, "enP7s7", 1_000_000, 2_000_000)
    first = reader.read(0.0)[0]
    assert (first.rx_bytes_per_s, first.tx_bytes_per_s, first.errors_per_s) == (None, None, None)
    traffic(spark, "enP7s7", 3_000_000, 1_000, packets=5020, errors=4)
    link = reader.read(2.0)[0]
    assert (link.rx_bytes_per_s, link.tx_bytes_per_s, link.rx_packets_per_s) == (1e6, None, 10.0)
    assert (link.errors_per_s, link.errors) == (2.0, {"rx_errors": 2.0})


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("uevent", "DEVTYPE=bridge\nINTERFACE=enbr0\n"),
        ("uevent", "DEVTYPE=vlan\nINTERFACE=enbr0\n"),
        ("bridge/bridge_id", "8000.0\n"),
        ("bonding/mode", "balance-rr 0\n"),
        ("tun_flags", "0x1002\n"),
    ],
)
def test_what_only_looks_like_ethernet_is_other(spark: Path, path: str, content: str) -> None:
    """Bridges, bonds, VLANs and tunnels are "other", because their traffic is also on another interface."""
    traffic(spark, "enbr0", 1, 1)
    write(spark, "sys/class/net/enbr0/type", "1\n")
    assert [link.kind for link in NetworkReader(spark).read(0.0)] == ["ethernet"]
    write(spark, f"sys/class/net/enbr0/{path}", content)
    assert [link.kind for link in NetworkReader(spark).read(0.0)] == ["other"]


@pytest.fixture
def ports(spark: Path) -> RdmaReader:
    """Return a reader of the four functions of a Spark's card, which has read them at 0 s."""
    reader = RdmaReader(spark)
    reader.read(0.0)
    return reader


def port(reader: RdmaReader, now: float) -> NetworkReading:
    """Return the first port of the first card."""
    return reader.read(now)[2]


def test_ports_have_state_speed_bus_and_interface(spark: Path) -> None:
    """State, speed, bus and interface of a port are known before its rates."""
    shown = RdmaReader(spark).read(0.0)
    assert [(one.name, one.kind, one.up, one.netdev) for one in shown] == [
        ("roceP2p1s0f0", "rdma", True, "enP2p1s0f0np0"),
        ("roceP2p1s0f1", "rdma", False, "enP2p1s0f1np1"),
        ("rocep1s0f0", "rdma", True, "enp1s0f0np0"),
        ("rocep1s0f1", "rdma", False, "enp1s0f1np1"),
    ]
    assert shown[2].link_bits_per_s == 200e9
    assert shown[2].capacity_bits_per_s == shown[2].bus_bits_per_s == pytest.approx(100.8e9, rel=1e-3)
    assert (shown[2].rx_bytes_per_s, shown[2].errors_per_s, shown[2].errors) == (None, None, {})


def test_traffic_is_in_words_of_four_bytes(spark: Path, ports: RdmaReader) -> None:
    """Traffic counters are in words of four bytes; packets are read every 5 s."""
    gb10_root.advance(spark, 1)
    first = port(ports, 1.0)
    assert first.tx_bytes_per_s == 4 * gb10_root.RDMA_TX_WORDS_PER_S
    assert first.rx_bytes_per_s == 4 * gb10_root.RDMA_RX_WORDS_PER_S
    assert first.tx_packets_per_s is None
    gb10_root.advance(spark, 5)
    assert port(ports, 5.0).tx_packets_per_s == gb10_root.RDMA_TX_PACKETS_PER_S
    assert port(ports, 6.0).rx_packets_per_s == gb10_root.RDMA_RX_PACKETS_PER_S


def test_a_counter_at_the_end_of_its_32_bits_has_no_rate(spark: Path) -> None:
    """InfiniBand's old counters stop there: the rate is unknown, not 0."""
    write(spark, f"{PORT}/counters/port_rcv_data", f"{2**32 - 1}\n")
    reader = RdmaReader(spark)
    reader.read(0.0)
    assert port(reader, 1.0).rx_bytes_per_s is None


def test_errors_are_read_by_name_and_seldom(spark: Path, ports: RdmaReader) -> None:
    """Errors are read every 5 s, with rates of their own and a sum, to which congestion does not belong."""
    counters = {"out_of_sequence": 30, "local_ack_timeout_err": 10} | dict.fromkeys(CONGESTION_COUNTERS, 500)
    for name, count in counters.items():
        write(spark, f"{PORT}/hw_counters/{name}", f"{count}\n")
    assert port(ports, 4.0).errors_per_s is None
    reading = port(ports, 5.0)
    assert (reading.errors_per_s, reading.errors) == (8.0, {name: n / 5 for name, n in counters.items()})
    assert port(ports, 6.0).errors == reading.errors
    reading = port(ports, 10.0)
    assert (reading.errors_per_s, reading.errors) == (0.0, {})


def test_a_counter_that_went_back_has_no_rate_once() -> None:
    """A counter that decreased has no rate once, and then continues from its new value."""
    rates = CounterRates[str]()
    rates.step({"a": 100}, 0.0)
    assert rates.step({"a": 4}, 1.0) == {"a": None}
    assert rates.step({"a": 6}, 2.0) == {"a": 2.0}


_readings = st.tuples(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 2**64 - 1)),
    st.floats(-1e6, 1e6, allow_nan=False),
)


@given(st.lists(_readings, max_size=8))
def test_no_rate_is_ever_negative(readings: list[tuple[dict[str, int], float]]) -> None:
    """Whatever the counters and clocks, a rate is None or at least 0."""
    rates = CounterRates[str]()
    for values, now in readings:
        given_rates = rates.step(values, now)
        assert given_rates.keys() == values.keys()
        assert all(rate is None or rate >= 0 for rate in given_rates.values())
