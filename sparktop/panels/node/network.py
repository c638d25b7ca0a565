"""Draws the network of one machine: interfaces and RDMA ports, and how much of their capacity is used."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sparktop.graphics import numbers
from sparktop.graphics.cells import fit
from sparktop.graphics.numbers import UNKNOWN, tick
from sparktop.model.node import NetworkReading
from sparktop.panels.parts.figures import figure, label, share_role
from sparktop.panels.parts.rows import Row
from sparktop.panels.parts.sections import Section

SINCE = "since the last poll"
RDMA = "rdma"
"""The `kind` of ports whose traffic no network interface counts."""
_WIDE, _NARROW = 66, 52
"""Widths in cells: from `_WIDE` on, link and bus have columns of their own; below `_NARROW`, use or speed is
left out."""
_KINDS = {"ethernet": "eth", "wifi": "wifi", "other": "other"}


class _Cells(Struct, frozen=True):
    """Widths in cells of the columns of the table of interfaces; 0 for a column that is left out."""

    name: int
    rate: int
    speed: int
    use: int
    errors: int
    wide: bool
    """Whether link, bus and kind have columns of their own."""


def _cells(width: int, *, rdma: bool) -> _Cells:
    if width >= _WIDE:
        return _Cells(width - 2 * 11 - 2 * 9 - 6 - 7, 11, 9, 6, 7, wide=True)
    speed, use = (9, 6) if width >= _NARROW else (0, 6) if rdma else (9, 0)
    return _Cells(width - 2 * 10 - speed - use - 4, 10, speed, use, 4, wide=False)


def used_percent_of(link: NetworkReading) -> float | None:
    """Return the traffic of the busier direction as a percentage (0 to 100) of the capacity; None if unknown.

    The capacity is what the link and its bus can carry.
    """
    rates = [rate for rate in (link.rx_bytes_per_s, link.tx_bytes_per_s) if rate is not None]
    capacity = link.capacity_bits_per_s
    return 100 * 8 * max(rates) / capacity if rates and capacity else None


def network_sections(links: Sequence[NetworkReading], width: int) -> list[Section]:
    """Return a list with the section of the interfaces, and with that of the RDMA ports if there are any."""
    # Up before down, each in the kernel's order: sorted by traffic, rows would jump.
    order = sorted(links, key=lambda link: link.up is False)
    ports = [link for link in order if link.kind == RDMA]
    others = [link for link in order if link.kind != RDMA]
    cells = _cells(width, rdma=False)
    rows = [_head("interface", "kind", cells), *(row for link in others for row in _link(link, cells, width))]
    sections = [Section("network", rows if others else [[label("no other interface")]], SINCE)]
    if ports:
        cells = _cells(width, rdma=True)
        rows = [_head("port", "bus", cells), *(row for link in ports for row in _link(link, cells, width))]
        sections.append(Section("RDMA", rows, f"beside the network · {SINCE}" if cells.wide else SINCE))
    return sections


def _head(name: str, last: str, cells: _Cells) -> Row:
    rates = f"{'in':>{cells.rate}}{'out':>{cells.rate}}"
    if cells.wide:
        tail = f"{'link':>{cells.speed}}{last:>{cells.speed}}{'use':>{cells.use}}{'errors':>{cells.errors}}"
    else:
        speed = ("limit" if last == "bus" else "link").rjust(cells.speed) if cells.speed else ""
        use = "use".rjust(cells.use) if cells.use else ""
        tail = f"{speed}{use}{'err':>{cells.errors}}"
    return [label(f"{name:<{cells.name}}{rates}{tail}")]


def _speed(bits_per_s: float | None, width: int) -> str:
    if bits_per_s is None:
        return UNKNOWN.rjust(width)
    digits = tick(bits_per_s)
    number = digits.rstrip("kMGTPE")
    return f"{number} {digits[len(number) :]}b/s".rjust(width)


def _link(link: NetworkReading, cells: _Cells, width: int) -> list[Row]:
    """Return a row with an interface's values, and below it a row with its rising error counters, if any."""
    shown = link.name
    if link.kind == RDMA and link.netdev and len(link.name) + len(link.netdev) + 3 <= cells.name:
        shown = f"{link.name} {link.netdev}"
    name = (fit(shown, cells.name - 1) + " ", "text")
    if link.up is False:
        return [[name, label("down".rjust(cells.rate))]]
    use, failed = used_percent_of(link), link.errors_per_s
    row: Row = [name]
    for value in (link.rx_bytes_per_s, link.tx_bytes_per_s):
        text = numbers.data_rate(value, cells.rate - 1).rjust(cells.rate)
        row.append(figure(text, known=value is not None))
    if cells.wide:
        row.append(label(_speed(link.link_bits_per_s, cells.speed)))
        last = _speed(link.bus_bits_per_s, cells.speed)
        row.append(
            label(last if link.kind == RDMA else fit(_KINDS.get(link.kind, link.kind), cells.speed, "right"))
        )
    elif cells.speed:
        row.append(label(_speed(link.capacity_bits_per_s, cells.speed)))
    if cells.use:
        row.append((numbers.percent(use, cells.use), share_role(use, 85, 101)))
    row.append(
        figure(
            numbers.count(failed, cells.errors), known=failed is not None, role="warn" if failed else "muted"
        )
    )
    return [row, *_errors(link, width)]


def _errors(link: NetworkReading, width: int) -> list[Row]:
    """Return a list with a row of the error counters that rise, the fastest first; empty if none rises.

    The counters have the driver's names.
    """
    moved = sorted(link.errors.items(), key=lambda error: (-error[1], error[0]))
    if not moved:
        return []
    words = ", ".join(f"{name} {numbers.rate(rate, 6).strip()}/s" for name, rate in moved)
    return [[label("  └ "), (fit(words, width - 4).rstrip(), "warn")]]
