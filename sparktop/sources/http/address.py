"""Addresses of servers: what a request needs of a URL, host and port for messages, a check of the API key.

Nothing here sends a request.
"""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from sparktop.model.text import clean
from sparktop.values import dataclass

_KEPT_ADDRESSES = 4096
"""Parsed URLs that are kept: three each of hundreds of servers."""
_PORTS = {"http": 80, "https": 443}
_KEPT_IN_PATHS = "%/:=&?~+!$,;'@()*[]-._"
"""Characters of a path or query that are sent as they are."""


@dataclass(frozen=True, slots=True)
class Address:
    """What a request needs of an http:// or https:// URL."""

    secure: bool
    host: str
    """Name or IP address, ASCII, an IPv6 address without brackets."""
    port: int
    target: str
    """Path and query, percent-encoded."""
    host_field: str
    """Value of the Host field."""
    basic: str | None
    """Value of the Authorization field for the URL's user name and password; None without these."""


@lru_cache(_KEPT_ADDRESSES)
def parse_address(url: str) -> Address:
    """Return the parsed `url`.

    Raises:
        UnicodeError: the host cannot be a name of a host.
        ValueError: `url` is not a usable URL.
    """
    parts = urlsplit(url)
    host, usual = parts.hostname or "", _PORTS.get(parts.scheme)
    if usual is None or not host or not host.isprintable() or " " in host:
        raise ValueError(url)
    host = host.replace("%25", "%") if host.isascii() else host.encode("idna").decode()  # of an IPv6 zone
    port = usual if parts.port is None else parts.port
    target = quote(parts.path or "/", _KEPT_IN_PATHS)
    if parts.query:
        target += "?" + quote(parts.query, _KEPT_IN_PATHS)
    bracketed = f"[{host}]" if ":" in host else host
    basic = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        basic = f"Basic {b64encode(pair.encode()).decode()}"
    return Address(
        secure=parts.scheme == "https",
        host=host,
        port=port,
        target=target,
        host_field=bracketed if port == usual else f"{bracketed}:{port}",
        basic=basic,
    )


def same_page(url: str, location: str) -> str | None:
    """Return the URL to ask after a redirect of `url` to the same path but for its last slash, else None.

    Web frameworks redirect `/metrics` to `/metrics/` where an application is mounted there. The URL returned
    is always of the host, port and scheme of `url`, so that a key goes nowhere else: behind a proxy, the
    Location header often names the host or scheme by which the proxy reaches the server.
    """
    try:
        asked, found = urlsplit(url), urlsplit(urljoin(url, location))
    except ValueError:
        return None
    if asked.path == found.path or asked.path.rstrip("/") != found.path.rstrip("/"):
        return None
    return urlunsplit((asked.scheme, asked.netloc, found.path, asked.query, ""))


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
    return "the key holds characters that no HTTP header may hold: look at its environment variable"
