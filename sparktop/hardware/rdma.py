"""RDMA ports (InfiniBand, RoCE), from /sys/class/infiniband.

Their traffic never shows in the counters of the network interface: 5.6 MB were seen there while 325 GB moved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from sparktop.hardware.counters import CounterRates
from sparktop.hardware.kernel_file import entries, read_int, read_text
from sparktop.model.node import NetworkReading
from sparktop.model.text import clean

_WORD_BYTES = 4
"""`port_rcv_data` and `port_xmit_data` count words of 32 bits."""
_LOOK_AGAIN_S = 5.0
"""State, link speed and error counters are read this often: each read is a question to the firmware."""
_MOST = 32
"""Ports shown, at most."""
_ERRORS = (
    "out_of_sequence",
    "packet_seq_err",
    "out_of_buffer",
    "rnr_nak_retry_err",
    "req_transport_retries_exceeded",
    "local_ack_timeout_err",
)
"""Counters below hw_counters that are errors, by name: reading all that lie there takes 100 ms."""
_GIGA = 1e9


@dataclass(frozen=True, slots=True)
class _Port:
    """What is read seldom about a port."""

    up: bool | None
    link_bits_per_s: float | None
    errors_per_s: float | None


class RdmaReader:
    """Reads the traffic of every RDMA port since its reading before."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._class = root / "sys/class/infiniband"
        self._rates: CounterRates[tuple[str, str]] = CounterRates()
        self._error_rates: CounterRates[str] = CounterRates()
        self._looked_at: float | None = None
        self._folders: dict[str, Path] = {}
        self._ports: dict[str, _Port] = {}

    def read(self, now: float) -> tuple[NetworkReading, ...]:
        """Take a reading at `now`; no device is a normal state."""
        if self._looked_at is None or not 0 <= now - self._looked_at < _LOOK_AGAIN_S:
            self._look(now)
        counted: dict[tuple[str, str], int] = {}
        for name, folder in self._folders.items():
            for part, counter in (("rx", "port_rcv_data"), ("tx", "port_xmit_data")):
                words = read_int(f"{folder}/counters/{counter}")
                if words is not None:
                    counted[name, part] = words * _WORD_BYTES
        rates = self._rates.step(counted, now)
        return tuple(
            NetworkReading(
                name=clean(name, 64),
                kind="rdma",
                up=port.up,
                rx_bytes_per_s=rates.get((name, "rx")),
                tx_bytes_per_s=rates.get((name, "tx")),
                link_bits_per_s=port.link_bits_per_s,
                errors_per_s=port.errors_per_s,
            )
            for name, port in self._ports.items()
        )

    def _look(self, now: float) -> None:
        """Find the ports and read what is read seldom."""
        self._looked_at = now
        found = _find_ports(self._class)
        self._folders = dict(found[:_MOST])
        errors = {name: _errors(folder) for name, folder in self._folders.items()}
        known = {name: count for name, count in errors.items() if count is not None}
        rates = self._error_rates.step(known, now)
        self._ports = {
            name: _Port(
                up=_is_active(read_text(f"{folder}/state")),
                link_bits_per_s=_link_bits_per_s(read_text(f"{folder}/rate")),
                errors_per_s=rates.get(name),
            )
            for name, folder in self._folders.items()
        }


def _find_ports(folder: Path) -> list[tuple[str, Path]]:
    """Ports with their folders; a port is named after its device, with its number where there are several."""
    found: list[tuple[str, Path]] = []
    for device in entries(folder):
        ports = folder / device / "ports"
        numbers = entries(ports)
        found += [
            (device if len(numbers) == 1 else f"{device}/{number}", ports / number) for number in numbers
        ]
    return found


def _errors(port: Path) -> int | None:
    """Sum of the error counters that this driver has; None when it has none."""
    counts = [read_int(f"{port}/hw_counters/{name}") for name in _ERRORS]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _is_active(state: str | None) -> bool | None:
    """`4: ACTIVE` is up; anything else that the driver says is not."""
    return None if state is None else state.endswith("ACTIVE")


def _link_bits_per_s(rate: str | None) -> float | None:
    """`200 Gb/sec (4X HDR)` as a number."""
    fields = (rate or "").split()
    if len(fields) < len(("200", "Gb/sec")) or fields[1] != "Gb/sec":
        return None
    try:
        gigabits = float(fields[0])
    except ValueError:
        return None
    return gigabits * _GIGA if math.isfinite(gigabits) and gigabits > 0 else None
