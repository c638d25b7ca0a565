"""Finds out which watched backend each deployment of a router is.

They are matched by address, else by the configuration, else by equal names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from sparktop.model.router import Deployment

Address = tuple[str, int, str]
"""(host, port, path), normalized so that two spellings of the same address are equal."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_HERE = "localhost"
_THIS_MACHINE = frozenset({_HERE, "127.0.0.1", "::1", "0.0.0.0", "::", "host.docker.internal"})  # noqa: S104 - compared, not bound
"""Host names that mean the machine of the program that uses them."""
_PLAIN = re.compile(r"(?:https?://)?([\w.-]+):([1-9]\d{0,3})", re.ASCII)
"""A host and a port of at most four digits, without a path."""


@lru_cache(maxsize=4096)
def address_of(url: str, speaker: str = _HERE) -> Address | None:
    """Return the address that `url` means when it is used on the host `speaker`; None when it is not a URL.

    localhost and its aliases become `speaker`, default ports are filled in, and a `/v1` at the end of the
    path is dropped.
    """
    plain = _PLAIN.fullmatch(url)
    host: str | None
    port: int | None
    if plain is not None:  # nearly all: ten times as fast
        host, port, path = plain[1], int(plain[2]), ""
    else:
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port
        except ValueError:
            return None
        port = port or _DEFAULT_PORTS.get(parts.scheme)
        path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    host = (host or "").removesuffix(".").lower()
    if not host or port is None:
        return None
    return (speaker if host in _THIS_MACHINE else host), port, path


def match_deployments(
    told: Iterable[Deployment] | None,
    *,
    router_url: str,
    backend_urls: Mapping[str, str],
    configured: Mapping[str, str],
) -> dict[str, str | None] | None:
    """Return {deployment id: backend name}, where None means that the deployment is not a watched backend.

    The first argument has the deployments that the router reports. If it is None, return `configured`,
    which also maps ids to backend names, or None if `configured` is empty too.
    """
    if told is None:
        return {**configured} or None
    own = address_of(router_url)
    speaker = own[0] if own else _HERE
    by_address: dict[Address, str] = {}
    for name, url in backend_urls.items():
        address = address_of(url)
        if address is not None:
            by_address.setdefault(address, name)
    found: dict[str, str | None] = {}
    for one in told:
        place = address_of(one.address, speaker) if one.address else None
        backend = by_address.get(place) if place else None
        found[one.id] = backend or configured.get(one.id) or (one.id if one.id in backend_urls else None)
    return found
