"""Access control of servers: where one listens, with which certificate, and who may ask under which name."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import socket
import ssl
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from errno import EADDRINUSE
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from sparktop.analysis.placement import is_address
from sparktop.errors import UsageError
from sparktop.files import read_bounded
from sparktop.model.targets import AGENT_PORT
from sparktop.model.text import clean, host_port, lines_of, reason_of
from sparktop.net.failure import load_certificate

TOKEN_VARIABLE = "SPARKTOP_TOKEN"  # noqa: S105 - the variable's name, not a token
HOW_TO_MAKE_ONE = "`openssl rand -hex 32` makes one"
_LEAST_TOKEN, _MOST_TOKEN = 16, 1024
"""Characters of a token."""
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""The form of a bearer token in a header (RFC 6750, section 2.1)."""
_MOST_PORT = 65_535
"""The highest port number."""
_RESOLVER = Path("/etc/resolv.conf")
_MOST_LINES, _MOST_DOMAINS = 1000, 32
"""Lines of that file that are read, and words of each."""
# "[::1]:7777", "spark-a:7777", "spark-a": host or literal address, and port.
_HOST_PORT = re.compile(r"(?:\[(?P<literal>[^\[\]]+)\]|(?P<host>[^\[\]:]*))(?::(?P<port>[0-9]{1,5}))?")


def parse_listen(text: str, usual_port: int = AGENT_PORT) -> tuple[str, int]:
    """Parse HOST:PORT or [IPv6 ADDRESS]:PORT into (host, port); without a port, use `usual_port`.

    Raises:
        UsageError: the text has another form or the port is out of range.
    """
    match = _HOST_PORT.fullmatch(text.strip())
    host = (match["literal"] or match["host"]) if match else ""
    port = int(match["port"]) if match and match["port"] else usual_port
    if not host or host.isdigit() or port > _MOST_PORT:  # a number alone is meant as a port
        advice = f"write HOST:PORT, as 127.0.0.1:{usual_port}, [::1]:{usual_port} or 0.0.0.0:{usual_port}"
        raise UsageError(f"--listen {clean(text, 80)}: {advice}")
    return host, port


def bind(host: str, port: int) -> list[socket.socket]:
    """Return a socket bound to each address of `host`; all use the same port.

    If `port` is 0, the system chooses a free port.

    Raises:
        UsageError: the name has no address, or an address cannot be bound.
    """
    where = host_port(host, port)
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--listen {clean(where)}: {_error_text(error)}") from None
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(addresses):
            listener = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and len(addresses) > 1:
                # The IPv4 addresses have sockets of their own.
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address[0], port, *address[2:]))
            port = int(listener.getsockname()[1])
    except OSError as error:
        for opened in sockets:
            opened.close()
        remedy = ": choose another port, or end what listens there" if error.errno == EADDRINUSE else ""
        raise UsageError(f"--listen {clean(where)}: {_error_text(error)}{remedy}") from None
    return sockets


def is_local(sockets: list[socket.socket]) -> bool:
    """Return True if all sockets are bound to loopback addresses."""
    return all(_is_loopback(str(listener.getsockname()[0])) for listener in sockets)


def is_reachable_from_outside(host: str) -> bool:
    """Return False if all addresses of `host` are loopback addresses, else True.

    A name that cannot be resolved counts as reachable.
    """
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return True
    return not all(_is_loopback(str(address[0])) for *_, address in addresses)


def read_token(
    file: str | None, env: Mapping[str, str], variable: str = TOKEN_VARIABLE
) -> tuple[str | None, str | None]:
    """Return (token or None, warning or None).

    The token is read from `file`; if `file` is None, from the variable `variable` in `env`. The warning
    says that other users can read the file.

    Raises:
        UsageError: the file cannot be read, or its first line or the variable is not a valid token.
    """
    if file is None:
        given_token = env.get(variable)
        return (None, None) if given_token is None else (checked_token(given_token, variable), None)
    name = f"--token-file {clean(file, 300)}"
    try:
        content, about = read_bounded(Path(file), 2 * _MOST_TOKEN)
        open_to_others = bool(stat.S_IMODE(about.st_mode) & stat.S_IROTH)
        line = content.partition(b"\n")[0]
    except (OSError, ValueError) as error:
        raise UsageError(f"{name}: {_error_text(error)}") from None
    token = checked_token(line.decode("utf-8", "replace"), name)
    return token, f"{name}: every user of this machine can read it: chmod 600" if open_to_others else None


def checked_token(text: str, source: str) -> str:
    """Return `text` without white space around it if it is a valid token.

    `source` names the origin of the text in error messages.

    Raises:
        UsageError: the token is too short or too long, or has characters that no header can carry. The
            message never includes the token.
    """
    token = text.strip()
    if len(token) < _LEAST_TOKEN:
        what = f"has {len(token)} characters" if token else "holds none"
        raise UsageError(f"{source}: a token needs {_LEAST_TOKEN} characters, this {what}: {HOW_TO_MAKE_ONE}")
    if len(token) > _MOST_TOKEN or not _TOKEN.fullmatch(token):
        raise UsageError(
            f"{source}: a token is one word of letters, digits and -._~+/ (= at its end), "
            f"{_MOST_TOKEN} characters at most: {HOW_TO_MAKE_ONE}"
        )
    return token


class Guard:
    """Checks the bearer tokens of requests; stores only the digest of the correct token."""

    def __init__(self, token: str | None) -> None:
        """Require `token` of every request; None: admit every request."""
        self._digest = None if token is None else _sha256_of(token)

    @property
    def wants_token(self) -> bool:
        """True if requests need a token."""
        return self._digest is not None

    def admits(self, authorization: str | None) -> bool:
        """Return True if the Authorization header carries the token, or if no token is required.

        The comparison takes the same time for every wrong token.
        """
        if self._digest is None:
            return True
        scheme, _, given_credentials = (authorization or "").partition(" ")
        is_same = hmac.compare_digest(_sha256_of(given_credentials.strip()), self._digest)
        return is_same and scheme.lower() == "bearer"


def own_names(host: str, more: Collection[str] = (), resolver: Path = _RESOLVER) -> frozenset[str]:
    """Return the names under which clients may address a server, in lower case.

    These are localhost, this machine's own name, alone, in `local` and in the domains that `resolver` lists,
    `host` (which the user gave to listen on) and `more`.
    """
    hostname = socket.gethostname().lower()
    domains = {"local"}
    with suppress(OSError):
        for line in lines_of(resolver.read_text(encoding="utf-8", errors="replace"))[:_MOST_LINES]:
            word, *domains_listed = line.lower().split()[:_MOST_DOMAINS] or [""]
            if word in {"search", "domain"}:
                domains.update(domain.strip(".") for domain in domains_listed)
    short = hostname.partition(".")[0]
    full = {f"{short}.{domain}" for domain in domains if domain}
    return frozenset({"localhost", hostname, short, host.lower(), *full, *(name.lower() for name in more)})


def is_own(header: str | None, names: Collection[str]) -> bool:
    """Return whether the Host header `header` is an address, or one of `names`, with or without a port.

    A web page of another name, even one that points to this machine, so gets no answer; it cannot have an
    address as its name. A request without the header does not come from a browser.
    """
    if header is None:
        return True
    try:
        url_parts = urlsplit(f"//{header.strip()}")
        host = url_parts.hostname or ""
        _ = url_parts.port  # raises ValueError if it is no number
    except ValueError:
        return False
    if url_parts.netloc != header.strip() or "@" in url_parts.netloc:
        return False
    return is_address(host) or host.lower() in names


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Return whether a request was made by a page of another server, as far as its browser says so.

    Browsers send Origin with what scripts request, and Sec-Fetch-Site with everything, but only to https and
    loopback addresses. A link that a person follows is not foreign: it shows a page to that person alone.
    """
    if not is_same_origin(headers.get("Origin"), headers.get("Host")):
        return True
    if headers.get("Sec-Fetch-Site", "none").lower() in {"none", "same-origin"}:
        return False
    return (headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")) != ("navigate", "document")


def is_same_origin(origin: str | None, host: str | None) -> bool:
    """Return whether the Origin header `origin` is of the server that the Host header `host` names.

    The scheme may be either: a proxy may add TLS. A request without the header is not of another page.
    """
    if origin is None:
        return True
    return host is not None and origin.lower() in {f"http://{host.lower()}", f"https://{host.lower()}"}


def open_tls(cert: str, key: str) -> ssl.SSLContext:
    """Return a server-side TLS context for the certificate and key files.

    Raises:
        UsageError: a file cannot be read or used.
    """
    for option, name in (("--tls-cert", cert), ("--tls-key", key)):
        try:
            with Path(name).open("rb"):
                pass
        except (OSError, ValueError) as error:
            raise UsageError(f"{option} {clean(name, 300)}: {_error_text(error)}") from None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    where = f"--tls-cert {clean(cert, 300)} --tls-key {clean(key, 300)}"
    try:
        load_certificate(context, cert, key)
    except ValueError as error:
        raise UsageError(f"--tls-key {clean(key, 300)}: {error}") from None
    except OSError as error:  # includes ssl.SSLError
        raise UsageError(f"{where}: no certificate with its key in PEM: {_error_text(error)}") from None
    return context


def _is_loopback(text: str) -> bool:
    return ipaddress.ip_address(text.partition("%")[0]).is_loopback


def _sha256_of(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _error_text(error: Exception) -> str:
    """Return the system's text for an error, without the error number and beginning in lower case."""
    text = str(getattr(error, "reason", None) or reason_of(error))  # errors of TLS have a reason
    return clean(text[:1].lower() + text[1:])


class Service(Struct, frozen=True):
    """What an agent needs to serve requests: sockets, token and TLS context.

    The sockets are already bound, so an address that is in use is reported before anything else starts.
    """

    listeners: list[socket.socket]
    token: str | None
    tls: ssl.SSLContext | None

    @property
    def urls(self) -> list[str]:
        """URLs at which viewers can reach the agent, one for each socket."""
        scheme = "http" if self.tls is None else "https"
        return [f"{scheme}://{host_port(*listener.getsockname()[:2])}" for listener in self.listeners]

    def about(self, name: str = "agent", page: str = "") -> str:
        """Return a line for the user: the name of the server, its URLs, and whether a token is required.

        `page` is the path that the URLs are to have.
        """
        who = "no token wanted" if self.token is None else "token wanted"
        urls = " and ".join(f"{url}{page}" for url in self.urls)
        return f"{name} on {urls}: {who}; Ctrl+C ends"

    def warning(self) -> str | None:
        """Return a warning for the user that TLS or a token is missing.

        None if the agent listens on loopback addresses only, or uses TLS.
        """
        if is_local(self.listeners) or self.tls is not None:
            return None
        if self.token is None:
            return "insecure: anyone who reaches this address can read what this machine does"
        return "no TLS: the token can be read on the way; --tls-cert and --tls-key give it"


def prepare(
    listen: tuple[str, int],
    token: str | None,
    *,
    cert: str | None,
    key: str | None,
    insecure: bool,
    variable: str = TOKEN_VARIABLE,
) -> Service:
    """Bind the sockets and load the certificate; return them as a `Service`.

    `variable` is the environment variable that the message about a missing token names.

    Raises:
        UsageError: a socket or a file cannot be used, or the agent would be reachable from outside without a
            token.
    """
    tls = None
    if cert is not None and key is not None:
        tls = open_tls(cert, key)
    elif cert is not None or key is not None:
        raise UsageError("--tls-cert and --tls-key go together")
    listeners = bind(*listen)
    if token is None and not insecure and not is_local(listeners):
        for listener in listeners:
            listener.close()
        raise UsageError(
            f"--listen {host_port(*listen)} is reachable from outside and wants a token: "
            f"--token-file FILE or {variable} ({HOW_TO_MAKE_ONE}), or --insecure to do without"
        )
    return Service(listeners, token, tls)
