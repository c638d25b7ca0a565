"""Network interfaces (/proc/net/dev, /sys/class/net) and RDMA ports (/sys/class/infiniband) of a machine.

RDMA traffic does not pass through the counters of the interface: these showed 5.6 MB while 325 GB moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from sparktop.hardware.kernel_file import (
    GIGA,
    CounterRates,
    entries,
    link_bits_per_s,
    parse_int,
    read_bytes,
    read_int,
    read_quantity,
    read_text,
)
from sparktop.model.node import NetworkReading
from sparktop.model.text import clean

_LEFT_OUT = ("docker", "veth", "br-")
"""Prefixes of interfaces that container engines create; their traffic is also counted on other interfaces."""
_MOST_INTERFACES = 64
"""Upper limit of interfaces shown."""
_LINKS_AGAIN_S = 5.0
"""Seconds between two reads of state, type and speed of the interfaces; of the speed, which can be a query to
the card's firmware, too."""
_ETHERNET_TYPE = 1
"""ARPHRD_ETHER in /sys/class/net/*/type."""
_SPEED_MAX_MBPS = 100_000_000
"""Faster than any link, in Mb/s: drivers write impossible numbers for an unknown speed."""
_BITS_PER_MEGABIT = 1_000_000
_COLUMNS = 16
"""Counters in a line of /proc/net/dev."""
_RATES = {"rx": 0, "rx packets": 1, "tx": 8, "tx packets": 9}
_ERRORS = {"rx_errors": 2, "tx_errors": 10}
"""Indexes of columns in /proc/net/dev; the error counters have the names that /sys uses for them."""


class NetworkReader:
    """Reads the traffic of every interface since the previous reading."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._dev = str(root / "proc/net/dev")
        self._class = root / "sys/class/net"
        self._rates: CounterRates[tuple[str, str]] = CounterRates()
        self._links: dict[str, tuple[float, NetworkReading]] = {}
        """By name: when state, kind and speeds were read, and these."""

    def read(self, now: float) -> tuple[NetworkReading, ...]:
        """Return a reading of each interface at `now` (seconds), in the kernel's order.

        Rates are None in the first reading. Loopback and interfaces of container engines are left out.
        """
        counters = _parse_dev(read_bytes(self._dev) or b"")
        flat = {(name, part): value for name, parts in counters.items() for part, value in parts.items()}
        self._links = {name: self._read_link(name, now) for name in counters}
        rates = self._rates.step(flat, now)
        readings = []
        for name, (_, link) in self._links.items():
            errors = {counter: rates[name, counter] for counter in _ERRORS}
            readable = {counter: rate for counter, rate in errors.items() if rate is not None}
            readings.append(
                replace(
                    link,
                    rx_bytes_per_s=rates[name, "rx"],
                    tx_bytes_per_s=rates[name, "tx"],
                    rx_packets_per_s=rates[name, "rx packets"],
                    tx_packets_per_s=rates[name, "tx packets"],
                    errors_per_s=sum(readable.values()) if len(readable) == len(errors) else None,
                    errors={counter: rate for counter, rate in readable.items() if rate},
                )
            )
        return tuple(readings)

    def _read_link(self, name: str, now: float) -> tuple[float, NetworkReading]:
        """Return (when an interface was read, its reading without rates); it is read every few seconds."""
        cached = self._links.get(name)
        if cached is not None and 0 <= now - cached[0] < _LINKS_AGAIN_S:
            return cached
        folder = self._class / name
        up = {"up": True, "down": False, "lowerlayerdown": False, "notpresent": False}.get(
            read_text(f"{folder}/operstate") or ""
        )
        megabits = (read_int(f"{folder}/speed") if up is not False else None) or 0
        return now, NetworkReading(
            clean(name, 64),
            _interface_kind(name, folder),
            up,
            link_bits_per_s=float(megabits * _BITS_PER_MEGABIT) if 0 < megabits < _SPEED_MAX_MBPS else None,
            bus_bits_per_s=link_bits_per_s(f"{folder}/device"),
        )


def _interface_kind(name: str, folder: Path) -> str:
    """Return the type of an interface: "wifi", "ethernet" or "other".

    The files in /sys decide where they are present, else the usual prefixes of names.
    """
    if not folder.exists():
        return {"wl": "wifi", "en": "ethernet", "et": "ethernet"}.get(name[:2], "other")
    if (folder / "wireless").exists() or (folder / "phy80211").exists():
        return "wifi"
    # Bridges, bonds, VLANs and tunnels have Ethernet's type too, whatever their name; the kernel names their
    # kind, or they have no device. A container's interface has neither: there the name decides.
    if read_int(f"{folder}/type") != _ETHERNET_TYPE or "DEVTYPE=" in (read_text(f"{folder}/uevent") or ""):
        return "other"
    virtual = (folder / "bridge").exists() or (folder / "bonding").exists() or (folder / "tun_flags").exists()
    real = (folder / "device").exists() or name[:2] in {"en", "et"}
    return "ethernet" if real and not virtual else "other"


def _parse_dev(content: bytes) -> dict[str, dict[str, int]]:
    """Parse /proc/net/dev: return the counters by interface name and counter name."""
    counters: dict[str, dict[str, int]] = {}
    for line in content.splitlines()[2:]:
        name_bytes, _, numbers = line.rpartition(b":")
        name = name_bytes.strip().decode("utf-8", "replace")
        if not name or name == "lo" or name.startswith(_LEFT_OUT) or "/" in name:
            continue
        columns = list(map(parse_int, numbers.split()))
        counts = [count for count in columns if count is not None]
        if len(counts) == len(columns) >= _COLUMNS and len(counters) < _MOST_INTERFACES:
            counters[name] = {part: counts[column] for part, column in (_RATES | _ERRORS).items()}
    return counters


_WORD_BYTES = 4
"""`port_rcv_data` and `port_xmit_data` count words of 32 bits."""
_PORTS_AGAIN_S = 5.0
"""Seconds between two reads of all but the bytes: of state and speed, packets and errors of the ports."""
_MOST_PORTS = 32
"""Upper limit of ports shown."""
_PORT_ERRORS = (
    "out_of_sequence",
    "packet_seq_err",
    "out_of_buffer",
    "rnr_nak_retry_err",
    "req_transport_retries_exceeded",
    "local_ack_timeout_err",
)
CONGESTION_COUNTERS = ("np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets")
"""Counters of congestion control: listed beside the error counters, but not part of the sum of errors."""
_FULL_32_BITS = 2**32 - 1
"""InfiniBand's old 32-bit counters stop at this value instead of wrapping around, and then say nothing
more."""


class RdmaReader:
    """Reads the traffic of every RDMA port (InfiniBand, RoCE) since the previous reading.

    Reading a counter queries the card's firmware (0.4 ms). So only counters that are shown are read, each as
    seldom as its use allows, and no counters of a port that is down.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._class = root / "sys/class/infiniband"
        self._rates: CounterRates[tuple[str, str]] = CounterRates()
        self._packet_rates: CounterRates[tuple[str, str]] = CounterRates()
        self._error_rates: CounterRates[tuple[str, str]] = CounterRates()
        self._ports_read_at: float | None = None
        self._ports: dict[str, tuple[str, NetworkReading]] = {}
        """By name: the port's folder, and what is read of it seldom."""
        self._packets: Mapping[tuple[str, str], float | None] = {}
        """Packets per second by (port name, direction)."""
        self._errors: Mapping[tuple[str, str], float | None] = {}
        """Rates by (port name, error or congestion counter)."""

    def read(self, now: float) -> tuple[NetworkReading, ...]:
        """Return a reading of each port at `now` (seconds); empty where there is no RDMA device.

        Rates are None in the first reading.
        """
        if self._ports_read_at is None or not 0 <= now - self._ports_read_at < _PORTS_AGAIN_S:
            self._read_ports(now)
        words = self._count_both_ways("port_rcv_data", "port_xmit_data")
        rates = self._rates.step(words, now)
        return tuple(self._reading(name, port, rates) for name, (_, port) in self._ports.items())

    def _count_both_ways(self, rx: str, tx: str) -> dict[tuple[str, str], int]:
        """Return the values of two counters by (port name, direction); one at its upper limit is left out."""
        counts = {
            (name, way): read_int(f"{folder}/counters/{counter}")
            for name, folder in self._ports_not_down()
            for way, counter in (("rx", rx), ("tx", tx))
        }
        return {key: count for key, count in counts.items() if count not in {None, _FULL_32_BITS}}

    def _ports_not_down(self) -> list[tuple[str, str]]:
        """Return (name, folder) of the ports that are up or whose state is unknown."""
        return [(name, folder) for name, (folder, port) in self._ports.items() if port.up is not False]

    def _reading(
        self, name: str, port: NetworkReading, rates: Mapping[tuple[str, str], float | None]
    ) -> NetworkReading:
        """Return the reading of the port `name`.

        `rates` has 32-bit words per second by (port name, direction).
        """
        rx, tx = (rates.get((name, way)) for way in ("rx", "tx"))
        event_rates = {
            counter: rate
            for (port_name, counter), rate in self._errors.items()
            if port_name == name and rate is not None
        }
        errors = [event_rates[counter] for counter in _PORT_ERRORS if counter in event_rates]
        return replace(
            port,
            rx_bytes_per_s=None if rx is None else rx * _WORD_BYTES,
            tx_bytes_per_s=None if tx is None else tx * _WORD_BYTES,
            rx_packets_per_s=self._packets.get((name, "rx")),
            tx_packets_per_s=self._packets.get((name, "tx")),
            errors_per_s=sum(errors) if errors else None,
            errors={counter: rate for counter, rate in event_rates.items() if rate},
        )

    def _read_ports(self, now: float) -> None:
        """Find the ports, and store what is read seldom; counters that a driver lacks are left out."""
        self._ports_read_at = now
        self._ports = {}
        for name, device, number in find_ports(self._class)[:_MOST_PORTS]:
            folder = f"{device}/ports/{number}"
            state = read_text(f"{folder}/state")  # "4: ACTIVE"
            gigabits = read_quantity(f"{folder}/rate", "Gb/sec")  # "200 Gb/sec (4X HDR)"
            bus_bits_per_s, netdev = place_of_port(device, number)
            self._ports[name] = (
                folder,
                NetworkReading(
                    clean(name, 64),
                    "rdma",
                    None if state is None else state.endswith("ACTIVE"),
                    link_bits_per_s=None if gigabits is None else gigabits * GIGA,
                    bus_bits_per_s=bus_bits_per_s,
                    netdev=netdev,
                ),
            )
        packets = self._count_both_ways("port_rcv_packets", "port_xmit_packets")
        self._packets = self._packet_rates.step(packets, now)
        errors: dict[tuple[str, str], int] = {}
        for name, folder in self._ports_not_down():
            for counter in (*_PORT_ERRORS, *CONGESTION_COUNTERS):
                count = read_int(f"{folder}/hw_counters/{counter}")
                if count is not None:
                    errors[name, counter] = count
        self._errors = self._error_rates.step(errors, now)


def find_ports(folder: Path) -> list[tuple[str, str, str]]:
    """Return (name, device folder, port number) of each port.

    The name is that of the device, with the port number appended if the device has several ports.
    """
    ports: list[tuple[str, str, str]] = []
    for device in entries(folder):
        numbers = entries(folder / device / "ports")
        ports += [
            (device if len(numbers) == 1 else f"{device}/{number}", str(folder / device), number)
            for number in numbers
        ]
    return ports


def place_of_port(device: str, number: str) -> tuple[float | None, str | None]:
    """Return PCIe link rate and network interface of a port.

    `device` is the folder of the port's device, and `number` the port's number. The network interface is that
    of the port's first GID, else the device's only interface, else None.
    """
    netdev = read_text(f"{device}/ports/{number}/gid_attrs/ndevs/0")
    if netdev is None:
        beside = entries(Path(device) / "device/net")
        netdev = beside[0] if len(beside) == 1 else None
    return link_bits_per_s(f"{device}/device"), None if netdev is None else clean(netdev, 64) or None
