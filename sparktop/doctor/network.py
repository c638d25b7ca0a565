"""The doctor's network operations, and the checks of host names.

The operations are name resolution and TCP connections.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from urllib.parse import urlsplit

from sparktop.analysis.placement import is_address
from sparktop.doctor.check import Check, Status
from sparktop.model.text import clean, host_port
from sparktop.net.failure import look_up, timeout_error, transport_error

RESOLVE_TIMEOUT_S = 5.0
"""As long as mDNS waits before it gives up."""
CONNECT_TIMEOUT_S = 3.0
"""Seconds for a TCP connection."""
POLL_TIMEOUT_S = 15.0
"""Seconds for a poll, which may take several requests."""
_PORTS = {"http": 80, "https": 443}
"""Usual ports by scheme."""


def shown_address(host: str, port: int) -> str:
    """Return "host:port" for messages, without control characters; IPv6 in square brackets."""
    return host_port(clean(host, 80), port)


def host_port_of(url: str) -> tuple[str, int] | None:
    """Return (host, port) of a URL; without a port in the URL, the usual port of the scheme.

    None if the URL has no host, or neither a port nor a scheme with a known port.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname and port else None


class Network:
    """Network operations that the checks use."""

    def __init__(self, poll_timeout_s: float = POLL_TIMEOUT_S) -> None:
        """Limit each poll of a server or router to this time in seconds."""
        self.poll_timeout_s = poll_timeout_s

    async def resolve(self, host: str) -> tuple[tuple[str, ...], float]:
        """Return (the addresses of `host` by the system's resolver, seconds that this took).

        Raises:
            OSError: the name does not resolve.
        """
        began = time.monotonic()
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                entries = await look_up(host, None)
        except UnicodeError as error:  # a label too long for the encoding of host names
            raise OSError(str(error)) from error
        addresses = tuple(dict.fromkeys(str(address) for *_, (address, *_) in entries))
        return addresses, time.monotonic() - began

    async def connect(self, host: str, port: int) -> None:
        """Open a TCP connection and close it at once.

        Raises:
            AnswerError: the connection failed.
        """
        where = shown_address(host, port)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    asyncio.Protocol, host, port
                )
        except TimeoutError as error:
            raise timeout_error(where, CONNECT_TIMEOUT_S, answering=False, body_bytes=0) from error
        except (OSError, UnicodeError) as error:
            raise transport_error(error, where) from error
        transport.abort()


_SLOW_S = 0.5
"""Seconds; a resolver slower than this noticeably delays each new connection."""
_MOST_SHOWN = 3
"""Addresses of a name that are shown."""
_LOCAL = (
    "mDNS names crashed benchmark runs at concurrency 64, and do not resolve in containers: use {address}"
)
"""Advice on names of mDNS."""


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


async def _check_name(host: str, network: Network) -> Check:
    """Return the check of a host name, of multicast DNS too (RFC 6762: names below .local)."""
    name, is_mdns = f"name {clean(host, 60)}", host.endswith(".local")
    try:
        addresses, took_s = await network.resolve(host)
    except OSError:
        advice = _LOCAL.format(address="its IP address") if is_mdns else "is it right? use its IP address"
        return Check(name, Status.FAIL, "does not resolve", advice)
    if not addresses:
        return Check(name, Status.FAIL, "does not resolve", "use its IP address")
    listed = ", ".join(clean(address, 60) for address in addresses[:_MOST_SHOWN])
    message = f"resolves to {listed} in {took_s * 1000:.0f} ms"
    if is_mdns:
        return Check(name, Status.WARN, message, _LOCAL.format(address=clean(addresses[0], 60)))
    if took_s > _SLOW_S:
        return Check(name, Status.WARN, message, "the resolver is slow: use the IP address")
    return Check(name, Status.OK, message)
