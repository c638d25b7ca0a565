"""The host and port of a server's URL for messages, and a check of its API key; neither sends a request."""

from __future__ import annotations

from urllib.parse import urlsplit

from sparktop.model.text import clean


def host_and_port(url: str) -> str:
    """Return the host and port of `url`, without user name and password, to name the server in messages.

    If `url` cannot be parsed or has no host, return all of it as one printable line of at most 80 characters.
    """
    try:
        return clean(urlsplit(url).netloc.rpartition("@")[2] or url, 80)
    except ValueError:
        return clean(url, 80)


def key_problem(api_key: str | None) -> str | None:
    """Return a message if an HTTP header cannot hold `api_key`; None for a usable key or no key."""
    if api_key is None or (api_key.isascii() and api_key.isprintable()):
        return None
    return "the key holds characters that no HTTP header may hold: look at api_key_env in the config"
