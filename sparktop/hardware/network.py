"""Network interfaces, from /proc/net/dev and /sys/class/net.

RDMA traffic does not pass through these counters; the module `rdma` reads RDMA ports.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sparktop.hardware.counters import CounterRates
from sparktop.hardware.kernel_file import parse_int, read_bytes, read_int, read_text
from sparktop.hardware.pcie import link_bits_per_s
from sparktop.model.node import NetworkReading
from sparktop.model.text import clean
from sparktop.values import dataclass

_LEFT_OUT = ("docker", "veth", "br-")
"""Prefixes of interfaces that container engines create; their traffic is also counted on other interfaces."""
_MOST = 64
"""Upper limit of interfaces shown."""
_STATE_AGAIN_S = 5.0
_LOOK_AGAIN_S = 60.0
"""Seconds between two reads of a link's speed, which can be a query to the card's firmware."""
_ETHERNET_TYPE = 1
"""ARPHRD_ETHER in /sys/class/net/*/type."""
_SPEED_MAX_MBPS = 100_000_000
_BITS_PER_MEGABIT = 1_000_000
_MARGIN = 1.25
"""Tolerance for counters that are read a little late: an increase per second of up to this multiple of the
link's rate is accepted."""
_COLUMNS = 16
_RATES = {"rx": 0, "rx packets": 1, "tx": 8, "tx packets": 9}
_ERRORS = {"rx_errors": 2, "tx_errors": 10}
"""Indexes of columns in /proc/net/dev; the error counters have the names that /sys uses for them."""


@dataclass(frozen=True, slots=True)
class _Link:
    """Values of an interface that change seldom: state, type, link rate and rate of its PCIe link."""

    up: bool | None
    kind: str
    bits_per_s: float | None
    bus_bits_per_s: float | None
    state_at: float
    looked_at: float


class NetworkReader:
    """Reads the traffic of every interface since the previous reading."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._dev = str(root / "proc/net/dev")
        self._class = root / "sys/class/net"
        self._rates: CounterRates[tuple[str, str]] = CounterRates()
        self._links: dict[str, _Link] = {}

    def read(self, now: float) -> tuple[NetworkReading, ...]:
        """Return a reading of each interface at `now` (seconds), in the kernel's order.

        Rates are None in the first reading. Loopback and interfaces of container engines are left out.
        """
        counters = _parse_dev(read_bytes(self._dev) or b"")
        flat = {(name, part): value for name, parts in counters.items() for part, value in parts.items()}
        self._links = {name: self._link(name, now) for name in counters}
        # Some cards have 32-bit counters, which wrap every few seconds on a fast link.
        most = {
            (name, part): link.bits_per_s / 8 * _MARGIN
            for name, link in self._links.items()
            if link.bits_per_s is not None
            for part in ("rx", "tx")
        }
        rates = self._rates.step(flat, now, most)
        return tuple(_reading(name, link, rates) for name, link in self._links.items())

    def _link(self, name: str, now: float) -> _Link:
        """Return state, type, link rate and PCIe rate of an interface, some of them from a cache.

        The state is read again after some seconds, the other values after a minute or when the state has
        changed.
        """
        known = self._links.get(name)
        if known is not None and 0 <= now - known.state_at < _STATE_AGAIN_S:
            return known
        folder = self._class / name
        up = {"up": True, "down": False, "lowerlayerdown": False, "notpresent": False}.get(
            read_text(f"{folder}/operstate") or ""
        )
        if known is not None and known.up == up and 0 <= now - known.looked_at < _LOOK_AGAIN_S:
            return replace(known, state_at=now)
        megabits = read_int(f"{folder}/speed") if up is not False else None
        fast = megabits is not None and 0 < megabits < _SPEED_MAX_MBPS
        bits_per_s = float(megabits * _BITS_PER_MEGABIT) if megabits is not None and fast else None
        return _Link(up, _kind(name, folder), bits_per_s, link_bits_per_s(f"{folder}/device"), now, now)


def _reading(name: str, link: _Link, rates: dict[tuple[str, str], float | None]) -> NetworkReading:
    """Return the reading of the interface `name`.

    `link` has the values that change seldom. `rates` has the increase per second of each counter, by
    (interface, counter).
    """
    errors = {counter: rates[name, counter] for counter in _ERRORS}
    known = {counter: rate for counter, rate in errors.items() if rate is not None}
    return NetworkReading(
        name=clean(name, 64),
        kind=link.kind,
        up=link.up,
        rx_bytes_per_s=rates[name, "rx"],
        tx_bytes_per_s=rates[name, "tx"],
        rx_packets_per_s=rates[name, "rx packets"],
        tx_packets_per_s=rates[name, "tx packets"],
        link_bits_per_s=link.bits_per_s,
        bus_bits_per_s=link.bus_bits_per_s,
        errors_per_s=sum(known.values()) if len(known) == len(errors) else None,
        errors={counter: rate for counter, rate in known.items() if rate},
    )


def _kind(name: str, folder: Path) -> str:
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
    found: dict[str, dict[str, int]] = {}
    for line in content.splitlines()[2:]:
        name_bytes, _, rest = line.rpartition(b":")
        name = name_bytes.strip().decode("utf-8", "replace")
        columns = [parse_int(field) for field in rest.split()]
        known = [column for column in columns if column is not None]
        if not name or name == "lo" or name.startswith(_LEFT_OUT) or "/" in name:
            continue
        if len(known) == len(columns) >= _COLUMNS and len(found) < _MOST:
            found[name] = {part: known[column] for part, column in (_RATES | _ERRORS).items()}
    return found
