"""Whether two names mean the same machine."""

from __future__ import annotations

from urllib.parse import urlsplit

from sparktop.model.targets import NodeTarget


def is_same_machine(known: NodeTarget, found: NodeTarget) -> bool:
    """Return whether the agent `found` by discovery runs on the watched node `known`.

    True where both have the same URL, or where `known` is read on this machine and the agent's host is
    localhost or the node's name.
    """
    if found.ssh is not None:
        host = bare_host(found.ssh.rpartition("@")[2])
        own = (known.name, (known.ssh or "").rpartition("@")[2], urlsplit(known.url or "").hostname or "")
        return host in {bare_host(word) for word in own if word}
    host = bare_host(urlsplit(found.url or "").hostname or "")
    if known.via == "local":
        return host in {"localhost", known.name.lower()}
    return known.url == found.url


def bare_host(host: str) -> str:
    """Return a host in lower case without brackets, loopback addresses as "localhost".

    Discovery compares these, so that it polls each machine only once.
    """
    host = host.strip("[]").lower()
    return "localhost" if host in {"127.0.0.1", "::1"} else host
