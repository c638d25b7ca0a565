"""Servers that a router names and nobody watches yet: which of them may be asked, and under which name.

A router's list also holds other people's servers. Only addresses of the local network are ever asked: what
is elsewhere is named, and watched where the user says so.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from sparktop.analysis.deployments import Address, address_of
from sparktop.model.router import Deployment
from sparktop.model.targets import BackendTarget, RouterTarget

MOST_FOUND = 64
"""Servers taken from one router."""
_LOCAL_ENDINGS = (".local", ".lan", ".internal", ".home.arpa", ".localdomain")
_CARRIER_GRADE = ipaddress.ip_network("100.64.0.0/10")
"""Where overlay networks (Tailscale) put their machines."""
_HASH = re.compile(r"[0-9a-f]{24,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LONGEST_NAME = 24


@dataclass(frozen=True, slots=True)
class Behind:
    """What a router's list comes to."""

    targets: tuple[BackendTarget, ...] = ()
    """Servers nearby that are not watched yet."""
    elsewhere: tuple[str, ...] = ()
    """Hosts that are not asked."""


def behind_router(
    router: RouterTarget,
    deployments: Iterable[Deployment],
    *,
    watched_urls: Iterable[str],
    taken: Collection[str],
) -> Behind:
    """Give the servers among `deployments` that could be watched beside those at `watched_urls`.

    localhost means the router's own machine. `taken` are names of backends that are in use.
    """
    own = address_of(router.url)
    speaker = own[0] if own else "localhost"
    seen: set[Address | None] = {address_of(url) for url in watched_urls}
    names = set(taken)
    targets: list[BackendTarget] = []
    elsewhere: dict[str, None] = {}
    for one in deployments:
        place = address_of(one.address, speaker) if one.address else None
        if place is None or place in seen:
            continue
        seen.add(place)
        host, port, path = place
        if not (host == speaker or is_nearby(host)):
            elsewhere.setdefault(host)
        elif len(targets) < MOST_FOUND:
            scheme = urlsplit(one.address or "").scheme
            written = f"[{host}]" if ":" in host else host
            url = f"{scheme if scheme in {'http', 'https'} else 'http'}://{written}:{port}{path}"
            short = () if _is_opaque(one.id) else (one.id,)
            choices = (*short, f"{written}:{port}", f"{written}:{port}{path}")
            name = next((name for name in choices if name not in names), url)
            names.add(name)
            targets.append(BackendTarget(name, url))
    return Behind(tuple(targets), tuple(elsewhere))


def is_nearby(host: str) -> bool:
    """Tell whether a host is of the local network: a private address, a bare or a local name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "." not in host or host.endswith(_LOCAL_ENDINGS)
    if address.version == 4 and address in _CARRIER_GRADE:  # noqa: PLR2004 - the other version has no such network
        return True
    return address.is_private or address.is_loopback or address.is_link_local


def _is_opaque(deployment_id: str) -> bool:
    """Tell whether an id is one that LiteLLM made up, or too long for a name."""
    return len(deployment_id) > _LONGEST_NAME or _HASH.fullmatch(deployment_id.lower()) is not None
