"""Checks host names: whether they resolve, how fast, and whether they are mDNS names."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable

from sparktop.doctor.check import Check, Status
from sparktop.doctor.network import Network
from sparktop.model.text import clean

_SLOW_S = 0.5
"""Seconds; a resolver slower than this noticeably delays each new connection."""
_SHOWN = 3
_LOCAL = (
    "mDNS names crashed benchmark runs at concurrency 64, and do not resolve in containers: use {address}"
)


async def check_names(hosts: Iterable[str], network: Network) -> dict[str, Check]:
    """Check each distinct host name once; return the checks by host name (see `host_key`).

    IP addresses among `hosts` are ignored.
    """
    names = list(dict.fromkeys(host_key(host) for host in hosts if not is_address(host)))
    checks = await asyncio.gather(*(_check_name(name, network) for name in names))
    return dict(zip(names, checks, strict=True))


def host_key(host: str) -> str:
    """Return a host name in the spelling used for comparison: lower case, no trailing dot."""
    return host.lower().removesuffix(".")


def is_address(host: str) -> bool:
    """Return whether `host` is an IP address and not a name."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def is_mdns(host: str) -> bool:
    """Return whether `host` is a name of multicast DNS (RFC 6762: names below .local)."""
    return host_key(host).endswith(".local")


async def _check_name(host: str, network: Network) -> Check:
    name = f"name {clean(host, 60)}"
    try:
        found = await network.resolve(host)
    except OSError:
        advice = (
            _LOCAL.format(address="its IP address") if is_mdns(host) else "is it right? use its IP address"
        )
        return Check(name, Status.FAIL, "does not resolve", advice)
    if not found.addresses:
        return Check(name, Status.FAIL, "does not resolve", "use its IP address")
    addresses = ", ".join(clean(one, 60) for one in found.addresses[:_SHOWN])
    seen = f"resolves to {addresses} in {found.took_s * 1000:.0f} ms"
    if is_mdns(host):
        return Check(name, Status.WARN, seen, _LOCAL.format(address=clean(found.addresses[0], 60)))
    if found.took_s > _SLOW_S:
        return Check(name, Status.WARN, seen, "the resolver is slow: use the IP address")
    return Check(name, Status.OK, seen)
