"""Reads the IP addresses of a machine from /proc/net; they show on which node a backend runs."""

from __future__ import annotations

import contextlib
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from sparktop.hardware.kernel_file import read_bytes

_MOST = 64
"""Upper limit of addresses returned."""
_LOCAL = b"/32 host LOCAL"
"""A line in /proc/net/fib_trie: the line above it holds one of this machine's own addresses."""


def read_addresses(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the machine's IP addresses, IPv4 first, without loopback and link-local addresses.

    /proc is read below `root`; at most `_MOST` addresses are returned.
    """
    # Of the namespace that `root` belongs to; psutil would ask the program's own kernel, whatever the root.
    trie = read_bytes(str(root / "proc/net/fib_trie")) or b""
    interfaces = read_bytes(str(root / "proc/net/if_inet6")) or b""
    found: list[IPv4Address | IPv6Address] = [*_parse_trie(trie), *_parse_if_inet6(interfaces)]
    useful = (
        address
        for address in found
        if not (address.is_loopback or address.is_link_local or address.is_unspecified)
    )
    return tuple(dict.fromkeys(map(str, useful)))[:_MOST]


def _parse_trie(content: bytes) -> list[IPv4Address]:
    """Return the machine's own IPv4 addresses in /proc/net/fib_trie, sorted and without duplicates.

    The file lists each address twice, in the tables `Main:` and `Local:`.
    """
    found: list[IPv4Address] = []
    above = b""
    for line in content.splitlines():
        text = line.strip()
        if text == _LOCAL and above.startswith(b"|-- "):
            with contextlib.suppress(ValueError):
                found.append(IPv4Address(above[4:].decode("ascii", "replace")))
        above = text
    return sorted(set(found))


def _parse_if_inet6(content: bytes) -> list[IPv6Address]:
    """Return the addresses in /proc/net/if_inet6, sorted: one per line, as 32 hexadecimal digits."""
    found: list[IPv6Address] = []
    for line in content.splitlines():
        digits = line.split()[:1]
        try:
            found += [IPv6Address(bytes.fromhex(address.decode("ascii"))) for address in digits]
        except ValueError:
            continue
    return sorted(set(found))
