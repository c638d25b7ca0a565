"""The IP addresses of a machine, from /proc/net: by them a backend's node is known."""

from __future__ import annotations

import contextlib
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from sparktop.hardware.kernel_file import read_bytes

_MOST = 64
"""Addresses told, at most."""
_LOCAL = b"/32 host LOCAL"
"""In /proc/net/fib_trie: the address in the line above is this machine's own."""


def read_addresses(root: Path = Path("/")) -> tuple[str, ...]:
    """Give the addresses below `root`, IPv4 first; those of loopback and of one link only are left out."""
    # Of this network namespace. psutil asks the kernel of the program itself, wherever the root is.
    trie = read_bytes(str(root / "proc/net/fib_trie")) or b""
    interfaces = read_bytes(str(root / "proc/net/if_inet6")) or b""
    found: list[IPv4Address | IPv6Address] = [*_parse_trie(trie), *_parse_if_inet6(interfaces)]
    useful = (one for one in found if not (one.is_loopback or one.is_link_local or one.is_unspecified))
    return tuple(dict.fromkeys(map(str, useful)))[:_MOST]


def _parse_trie(content: bytes) -> list[IPv4Address]:
    """Own addresses; each stands in the tables `Main:` and `Local:`."""
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
    """One address a line, as 32 hexadecimal digits."""
    found: list[IPv6Address] = []
    for line in content.splitlines():
        digits = line.split()[:1]
        try:
            found += [IPv6Address(bytes.fromhex(one.decode("ascii"))) for one in digits]
        except ValueError:
            continue
    return sorted(set(found))
