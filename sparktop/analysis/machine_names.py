"""Whether two names mean the same machine."""

from __future__ import annotations

from urllib.parse import urlsplit

from sparktop.model.targets import NodeTarget


def is_same_machine(known: NodeTarget, found: NodeTarget) -> bool:
    """Return whether a found agent is on a watched node: at its URL, or on this machine."""
    host = bare_host(urlsplit(found.url or "").hostname or "")
    if known.via == "local":
        return host in {"localhost", known.name.lower()}
    return known.url == found.url


def bare_host(host: str) -> str:
    """Return a normalized host, so that discovery polls each machine only once."""
    host = host.strip("[]").lower()
    return "localhost" if host in {"127.0.0.1", "::1"} else host
