"""What a URL and its settings say about a server: its name in messages, key, certificate and addresses.

Nothing here sends a request.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any
from urllib.parse import urljoin, urlsplit, urlunsplit

from sparktop.model.failure import FailureKind
from sparktop.model.text import clean
from sparktop.net.failure import AnswerError

_MOST_THREADS = 16

_Found = list[tuple[Any, ...]]
"""As `socket.getaddrinfo` returns it."""


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


class Trust:
    """The certificates of `tls_ca` as a TLS context, which is loaded when it is needed."""

    def __init__(self, tls_ca: str | None, where: str) -> None:
        """Use the file `tls_ca`, or the system's certificates if it is None; `where` names the server."""
        self._file = tls_ca
        self._where = where
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext | None:
        """Return a TLS context that trusts the certificates in the file; None for the system's certificates.

        Raises:
            AnswerError: the file cannot be read or holds no certificate.
        """
        if self._file is None:
            return None
        if self._context is None:
            try:
                self._context = ssl.create_default_context(cafile=str(Path(self._file).expanduser()))
            except (OSError, ssl.SSLError, RuntimeError) as error:  # RuntimeError: an unknown user's home
                system = getattr(error, "strerror", None)
                why = "holds no certificate" if isinstance(error, ssl.SSLError) else system
                shown = clean(self._file, 80)
                message = f"tls_ca of {self._where}: {shown} cannot be used: {why or 'unreadable'}"
                raise AnswerError(FailureKind.TLS, message) from None
        return self._context

    def forget(self) -> None:
        """Drop the TLS context, so that the next request reads the file again."""
        self._context = None


class _Lookups:
    """A queue of lookups, and the threads that carry them out: daemons, which do not delay the end."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[str, int | None, Future[_Found]]] = SimpleQueue()
        self._idle = Semaphore(0)
        self._threads = 0

    def add(self, host: str, port: int | None) -> Future[_Found]:
        """Return the future result of a lookup."""
        future: Future[_Found] = Future()
        self._waiting.put((host, port, future))
        if not self._idle.acquire(blocking=False) and self._threads < _MOST_THREADS:
            Thread(target=self._work, name="lookup", daemon=True).start()
            self._threads += 1
        return future

    def _work(self) -> None:
        while True:
            host, port, future = self._waiting.get()
            if future.set_running_or_notify_cancel():  # no poll has given up waiting
                try:
                    found = socket.getaddrinfo(
                        host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
                    )
                except Exception as error:  # noqa: BLE001 - for whoever waits
                    future.set_exception(error.with_traceback(None))  # its frame holds the future
                else:
                    future.set_result(found)
            del future
            self._idle.release()


_lookups = _Lookups()


async def look_up(host: str, port: int | None) -> _Found:
    """Return the addresses of a host name, as `socket.getaddrinfo` does.

    Raises:
        OSError: it has none, or no name server answers.
        UnicodeError: the host cannot be a name of a host.
    """
    return await asyncio.wrap_future(_lookups.add(host, port))
