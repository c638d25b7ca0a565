"""Checks of a server's address and key that need no request."""

from __future__ import annotations

from urllib.parse import urlsplit

from sparktop.model.text import clean


def host_and_port(url: str) -> str:
    """Return the host and port of `url`, which name the server in messages; omits user name and password."""
    try:
        return clean(urlsplit(url).netloc.rpartition("@")[2] or url, 80)
    except ValueError:
        return clean(url, 80)


def key_problem(api_key: str | None) -> str | None:
    """Return why a key cannot be sent; None for a usable key or no key."""
    if api_key is None or (api_key.isascii() and api_key.isprintable()):
        return None
    return "the key holds characters that no HTTP header may hold: look at api_key_env in the config"
