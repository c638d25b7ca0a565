"""Servers that a router lists and that are not watched yet: which of them may be polled, and their names.

A router's list may include other people's servers. Only addresses of the local network are polled; other
servers are reported by host name and watched only if the user configures them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from msgspec import Struct

from sparktop.analysis.deployments import Address, address_of
from sparktop.model.router import Deployment
from sparktop.model.targets import BackendTarget, RouterTarget

MOST_FOUND = 64
"""The most servers that are accepted from one router."""
_LOCAL_ENDINGS = (".local", ".lan", ".internal", ".home.arpa", ".localdomain")
_CARRIER_GRADE = ipaddress.ip_network("100.64.0.0/10")
"""Address range (RFC 6598) in which overlay networks such as Tailscale place machines."""
_HASH = re.compile(r"[0-9a-f]{24,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LONGEST_NAME = 24


class Behind(Struct, frozen=True):
    """Servers behind a router that are not watched yet.

    Servers that may be polled are separate from servers outside the local network, of which only hosts are
    kept.
    """

    targets: tuple[BackendTarget, ...] = ()
    """Servers in the local network that are not watched yet."""
    elsewhere: tuple[str, ...] = ()
    """Hosts outside the local network. They are not polled."""


def behind_router(
    router: RouterTarget,
    deployments: Iterable[Deployment],
    *,
    watched_urls: Iterable[str],
    taken: Collection[str],
) -> Behind:
    """Return the servers in `deployments` that are not watched yet, separated into local and remote ones.

    "localhost" in a deployment's address means the router's own machine. `watched_urls` are the addresses of
    watched backends, `taken` the backend names in use; each returned target gets a name that is still free.
    """
    own = address_of(router.url)
    router_host = own[0] if own else "localhost"
    seen: set[Address | None] = {address_of(url) for url in watched_urls}
    names = set(taken)
    targets: list[BackendTarget] = []
    elsewhere: dict[str, None] = {}
    for deployment in deployments:
        place = address_of(deployment.address, router_host) if deployment.address else None
        if place is None or place in seen:
            continue
        seen.add(place)
        host, port, path = place
        if not (host == router_host or is_nearby(host)):
            elsewhere.setdefault(host)
        elif len(targets) < MOST_FOUND:
            scheme = urlsplit(deployment.address or "").scheme
            written = f"[{host}]" if ":" in host else host
            url = f"{scheme if scheme in {'http', 'https'} else 'http'}://{written}:{port}{path}"
            short = () if _is_opaque(deployment.id) else (deployment.id,)
            choices = (*short, f"{written}:{port}", f"{written}:{port}{path}")
            name = next((name for name in choices if name not in names), url)
            names.add(name)
            targets.append(BackendTarget(name, url))
    return Behind(tuple(targets), tuple(elsewhere))


def is_nearby(host: str) -> bool:
    """Return whether a host is in the local network.

    These are private, loopback and link-local addresses, names without a dot, and names such as "x.local".
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "." not in host or host.endswith(_LOCAL_ENDINGS)
    if address.version == 4 and address in _CARRIER_GRADE:  # noqa: PLR2004 - the range is IPv4 only
        return True
    return address.is_private or address.is_loopback or address.is_link_local


def _is_opaque(deployment_id: str) -> bool:
    """Return whether a deployment id cannot serve as a name: a URL, a hash made by LiteLLM, or too long."""
    return (
        "://" in deployment_id
        or len(deployment_id) > _LONGEST_NAME
        or _HASH.fullmatch(deployment_id.lower()) is not None
    )
