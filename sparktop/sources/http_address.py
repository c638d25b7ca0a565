"""What is known of a server's address and key before anything is sent."""

from __future__ import annotations

from urllib.parse import urlsplit

from sparktop.model.text import clean


def host_and_port(url: str) -> str:
    """Give the part of `url` that names the server in messages, without user name and password."""
    try:
        return clean(urlsplit(url).netloc.rpartition("@")[2] or url, 80)
    except ValueError:
        return clean(url, 80)


def key_problem(api_key: str | None) -> str | None:
    """Tell why a key cannot be sent at all; None when it can, or when there is none."""
    if api_key is None or (api_key.isascii() and api_key.isprintable()):
        return None
    return "the key holds characters that no HTTP header may hold: look at api_key_env in the config"
