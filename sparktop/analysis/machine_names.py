"""When two names are of one machine."""

from __future__ import annotations

from urllib.parse import urlsplit

from sparktop.model.targets import NodeTarget


def is_same_machine(known: NodeTarget, found: NodeTarget) -> bool:
    """Tell whether a found agent is of a node that is watched already: at its URL, or as this machine."""
    host = bare_host(urlsplit(found.url or "").hostname or "")
    if known.via == "local":
        return host in {"localhost", known.name.lower()}
    return known.url == found.url


def bare_host(host: str) -> str:
    """Give a host so that two spellings of one compare equal, as discovery looks at each only once."""
    host = host.strip("[]").lower()
    return "localhost" if host in {"127.0.0.1", "::1"} else host
