"""Errors of an HTTP request, classified as a `FailureKind` with a one-line message for the user.

Also what a URL and its settings say about a server without a request: its name in messages, key, certificates
and addresses.
"""

from __future__ import annotations

import asyncio
import errno
import json
import re
import socket
import ssl
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence
from concurrent.futures import Future
from math import ceil
from pathlib import Path
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus, urljoin, urlsplit, urlunsplit

from sparktop.files import connections_that_fit
from sparktop.model.failure import FailureError, FailureKind
from sparktop.model.text import clean, reason_of, short_seconds

_APART = r"[\W_]{0,6}"
"""What may stand between two letters or digits of a secret that is repeated."""
_SHORTEST_FORM = 6
"""Encoded forms of a secret are searched from as many characters on, since shorter ones stand in any text.

A shorter secret is searched as it is."""
_STATUS_WORDS = frozenset({"unauthorized", "forbidden", "not found", "404 page not found", "404 not found"})
"""Messages of web frameworks that repeat the status and say no more."""
WORDS_LIMIT = 90
"""Most characters quoted from a server's own words."""
_TLS_RECORD = re.compile(rb"[\x14-\x17]\x03[\x00-\x04]")
"""Beginning of a TLS record (RFC 8446, 5.1), which is what a TLS port sends in answer to plain HTTP."""
NOT_FOUND = 404
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# "[Errno 111] Connection refused".
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_UNREACHABLE_WORDS = {
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network unreachable",
    errno.EHOSTDOWN: "host is down",
    errno.ENETDOWN: "network is down",
}


_LONGEST_TOKEN = 4096
"""Most bytes of a token in a file."""
HOW_TO_GIVE_A_KEY = "--api-key-env NAME, or api_key_env in the config"
"""How a user gives the key that a server wants: an option of the commands, or a key of the configuration."""
_PROXY_BODY = re.compile(rb"\s*(?:<|no healthy upstream|upstream connect error|no available server)")
"""Bodies of nginx, HAProxy and others (HTML), Envoy and Traefik."""
HOW_TO_TRUST = "tls_ca in the config names the file that signs it"
"""How a user names the signer of a certificate that the system does not know."""
_UNKNOWN_SIGNERS = frozenset({18, 19, 20, 21})
"""OpenSSL's codes for a certificate whose signer is not trusted, not one that has expired, for instance."""


class AnswerError(FailureError):
    """Raised where an HTTP answer is missing or unusable."""


def status_error(
    status: int, where: str, *, location: str, words: str, has_key: bool, by_proxy: bool = False
) -> AnswerError:
    """Return, without raising it, the error for an HTTP status other than 200.

    `where` is the server's host and port, `location` its Location header, and `words` the message quoted from
    its body by `server_words` ("" for none). `has_key` is whether the request carried an API key, `by_proxy`
    whether the body is one of a proxy (`is_of_proxy`).
    """
    quoted = f": {words}" if words else ""
    match status:
        case 401 | 403:
            wish = "refuses the key" if has_key else "wants a key"
            kind, message = FailureKind.UNAUTHORIZED, f"{where} {wish} ({HOW_TO_GIVE_A_KEY})"
        case 429:
            kind = FailureKind.LATE
            message = f"{where} limits how often it is asked: a longer --interval asks less"
        case 503 if by_proxy:
            kind = FailureKind.HTTP
            message = f"a proxy in front of {where} has no server for it, or limits requests"
        case 503:
            kind, message = FailureKind.LOADING, f"{where} is loading or not ready"
        case _ if status == NOT_FOUND:
            return not_found(f"{where} has no such page", "an inference server", words)
        case _ if status in REDIRECTS:
            return redirect_error(status, where, location)
        case _:
            return AnswerError(FailureKind.HTTP, f"{where} answered with HTTP status {status}{quoted}")
    return AnswerError(kind, f"{status}: {message}{quoted}")


def is_of_proxy(body: bytes) -> bool:
    """Return whether the body of a status is one that proxies write, and no inference server does."""
    return _PROXY_BODY.match(body) is not None


def not_found(sentence: str, expected: str, words: str) -> AnswerError:
    """Return the error for the status 404: `sentence`, the server's `words`, and the question what it is.

    `sentence` is such as "HOST has no such page", `expected` what the page is expected of: "a Prometheus".
    """
    quoted = f": {words};" if words else ":"
    hint = f"is it {expected}, and is the path in its URL right?"
    return AnswerError(FailureKind.NOT_FOUND, f"{NOT_FOUND}: {sentence}{quoted} {hint}")


def redirect_error(status: int, where: str, location: str) -> AnswerError:
    """Return the error for a redirect that is not followed; parameters as of `status_error`."""
    if not (goal := clean(location, WORDS_LIMIT)):
        return AnswerError(FailureKind.REDIRECT, f"{status}: {where} redirects without saying where to")
    is_path = location.startswith("/") and not location.startswith("//")  # "//host/path" names another host
    is_here = is_path or where.lower() in location.lower().split("/")
    hint = (
        "is there a login in front of it, or another path?" if is_here else "give that address if it is right"
    )
    message = f"{status}: {where} redirects to {goal}; not followed: {hint}"
    return AnswerError(FailureKind.REDIRECT, message)


def timeout_error(where: str, deadline_s: float, *, answering: bool, body_bytes: int) -> AnswerError:
    """Return the error for a missed deadline of `deadline_s` seconds.

    `answering` is whether the response headers had arrived, and `body_bytes` the number of bytes of the body
    that had arrived.
    """
    within = f"within {short_seconds(deadline_s)}"
    message = f"no answer from {where} {within}: is the host up, is the server stuck?"
    if answering:
        message = f"{where} is too slow: only {body_bytes} B of its answer came {within}"
    return AnswerError(FailureKind.TIMEOUT, message)


def no_name_server(where: str, deadline_s: float) -> AnswerError:
    """Return the error for a host name of which no name server has said anything within `deadline_s`."""
    message = f"no DNS answer for {where} in {short_seconds(deadline_s)}: check DNS or use its IP address"
    return AnswerError(FailureKind.DNS, message)


def unusable_address(where: str) -> AnswerError:
    """Return the error for a URL to which no request can be sent."""
    message = f"{where} is not a usable address: write http://host:port or https://host:port"
    return AnswerError(FailureKind.UNSUPPORTED, message)


def not_http(where: str, seen: bytes) -> AnswerError:
    """Return the error for an answer that begins with `seen` and is not HTTP."""
    if _TLS_RECORD.search(seen):
        return AnswerError(FailureKind.TLS, f"{where} speaks TLS: write https:// in its URL")
    return AnswerError(FailureKind.MALFORMED, f"{where} does not answer in proper HTTP: is the port right?")


def broken_off(where: str, *, is_reset: bool) -> AnswerError:
    """Return the error for an answer that ended early; `is_reset` is whether by a reset of the connection."""
    kind = FailureKind.UNREACHABLE if is_reset else FailureKind.MALFORMED
    how = "connection reset" if is_reset else "short or broken"
    return AnswerError(kind, f"the answer of {where} broke off in the middle ({how})")


def no_answer(where: str) -> AnswerError:
    """Return the error for a connection that the server closed before it answered."""
    message = f"{where} closed the connection without an answer: does it want https://?"
    return AnswerError(FailureKind.UNREACHABLE, message)


def transport_error(error: Exception, where: str) -> AnswerError:
    """Return, without raising it, the `AnswerError` for an exception of the operating system or of TLS.

    `where` (host and port) names the server in the message. `error` loses its traceback.
    """
    forget_frames(error)
    match error:
        case socket.gaierror() | UnicodeError():
            return unresolved(where)
        case ssl.SSLError():
            return tls_failed(where, error)
        case _:
            return AnswerError(*_os_error(error, where))


def unresolved(where: str) -> AnswerError:
    """Return the error for a host name that has no address."""
    return AnswerError(FailureKind.DNS, f"the host name of {where} does not resolve: is it right?")


def forget_frames(error: BaseException) -> BaseException:
    """Drop the tracebacks of an exception and of all that led to it, and return it.

    Their frames hold the exceptions in turn: such cycles would be garbage of every refused connection.
    """
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


def tls_failed(where: str, error: ssl.SSLError | None = None) -> AnswerError:
    """Return the error for a failure of TLS; `error` is its cause, None where that is unknown."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = clean(error.verify_message, WORDS_LIMIT) or "not trusted"
        remedy = f": {HOW_TO_TRUST}" if error.verify_code in _UNKNOWN_SIGNERS else ""
        message = f"the certificate of {where} cannot be verified: {why}{remedy}"
    else:
        reason = clean(getattr(error, "reason", None) or "no TLS", 60).replace("_", " ").lower()
        message = f"TLS with {where} failed ({reason}): if it speaks plain HTTP, write http:// in its URL"
    return AnswerError(FailureKind.TLS, message)


def _os_error(error: Exception, where: str) -> tuple[FailureKind, str]:
    """Return kind and message of an error of the operating system."""
    numbers = {getattr(error, "errno", None)}
    # If several addresses of a name failed differently, they arrive as one error with all the texts.
    numbers.update(int(number) for number in _ERRNO.findall(str(error)))
    if errno.ECONNREFUSED in numbers:
        return FailureKind.REFUSED, f"nothing listens on {where} (connection refused)"
    if errno.ETIMEDOUT in numbers:
        return FailureKind.TIMEOUT, f"{where} does not answer (connection timed out)"
    if errno.EMFILE in numbers:
        fit = f"the limit of open files allows {connections_that_fit()} connections"
        return FailureKind.UNSUPPORTED, f"{where} is not watched: {fit}: raise it (ulimit -n)"
    for number, words in _UNREACHABLE_WORDS.items():
        if number in numbers:
            return FailureKind.UNREACHABLE, f"{where} cannot be reached ({words})"
    return FailureKind.UNREACHABLE, f"the connection to {where} was lost: {clean(error, 80)}"


def server_words(body: bytes, secret: str | Sequence[str] | None, limit: int = WORDS_LIMIT) -> str:
    """Return the server's message from an error body, cleaned and cut to `limit` characters.

    Return "" for HTML, an empty body, or a mere name of the status. From JSON as inference servers write it
    (`{"error": {"message": …}}`, `{"detail": …}`) only the message is returned. Where the server repeats
    `secret`, also encoded or backwards, "…" replaces it; there may be several.
    """
    text = body.decode("utf-8", "replace").strip()
    if text.startswith("<"):
        return ""
    if text.startswith("{"):
        text = _json_message(text)
    if "&" in text:
        from html import unescape  # late: few answers have entities

        text = unescape(text)
    texts_to_hide = [secret] if isinstance(secret, str) else secret or ()
    for text_to_hide in texts_to_hide:
        text = without_secret(text, text_to_hide)
    words = clean(text, limit)
    return "" if words.strip(" .!").lower() in _STATUS_WORDS else words


def without_secret(text: str, secret: str | None) -> str:
    """Return `text` with "…" for a secret that it repeats, also backwards or encoded.

    The encodings are percent signs, hexadecimal and base64. Between its letters and digits may stand whatever
    is none, such as line ends or characters that are not shown.
    """
    if not secret:
        return text
    raw = secret.encode()
    quoted = quote(secret, safe="")
    forms = {
        secret,
        secret[::-1],
        quoted,
        quote(quoted),
        quote(secret),
        quote_plus(secret),
        *_base64_insides(raw),
    }
    percent = "".join(f"%{byte:02x}" for byte in raw)
    for spelling in sorted({*forms, percent, raw.hex()}, key=len, reverse=True):
        if len(spelling) >= min(len(secret), _SHORTEST_FORM):
            text = re.sub(re.escape(spelling), "…", text, flags=re.IGNORECASE)
            letters = [letter for letter in spelling if letter.isalnum()]
            if len(letters) >= _SHORTEST_FORM:
                text = re.sub(_APART.join(letters), "…", text, flags=re.IGNORECASE)
    return text


def _base64_insides(raw: bytes) -> list[str]:
    """Return the characters that base64 of any text with the bytes `raw` has, for each place in the text.

    They depend on these bytes alone. A character has 6 bits: the first ones hold bits of what stands before,
    the last ones of what stands after.
    """
    return [
        encode(b"\0" * shift + raw).decode()[ceil(8 * shift / 6) :].rstrip("=")[: 8 * len(raw) // 6 - 1]
        for shift in range(3)
        for encode in (b64encode, urlsafe_b64encode)
    ]


def _json_message(text: str) -> str:
    """Return the message in a JSON error, in its fields `error`, `message` or `detail`; else `text`."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        return text
    for key in ("error", "message", "detail"):
        if isinstance(document, dict) and key in document:
            document = document[key]
    return document if isinstance(document, str) else text


_MOST_THREADS = 16
"""Threads that look up host names."""

_Addresses = list[tuple[Any, ...]]
"""As `socket.getaddrinfo` returns it."""


def same_page(url: str, location: str) -> str | None:
    """Return the URL to ask after a redirect of `url` to the same path but for its last slash, else None.

    Web frameworks redirect `/metrics` to `/metrics/` where an application is mounted there. The URL returned
    is always of the host, port and scheme of `url`, so that a key goes nowhere else: behind a proxy, the
    Location header often names the host or scheme by which the proxy reaches the server.
    """
    try:
        asked_parts, target = urlsplit(url), urlsplit(urljoin(url, location))
    except ValueError:
        return None
    if asked_parts.path == target.path or asked_parts.path.rstrip("/") != target.path.rstrip("/"):
        return None
    return urlunsplit((asked_parts.scheme, asked_parts.netloc, target.path, asked_parts.query, ""))


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


def first_line(file: str, whose: str) -> str:
    """Return the first line of a file with a token, without white space around it.

    Raises:
        AnswerError: it cannot be read; `whose` begins the message.
    """
    try:
        with Path(file).expanduser().open("rb") as opened:
            return opened.readline(_LONGEST_TOKEN).decode("utf-8", "replace").strip()
    except (OSError, RuntimeError) as error:  # RuntimeError: an unknown user's home
        message = f"{whose}{clean(file, 100)} cannot be read: {reason_of(error)}"
        raise AnswerError(FailureKind.UNAUTHORIZED, message) from None


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
                shown_file = clean(self._file, 80)
                message = f"tls_ca of {self._where}: {shown_file} cannot be used: {why or 'unreadable'}"
                raise AnswerError(FailureKind.TLS, message) from None
        return self._context

    def forget(self) -> None:
        """Drop the TLS context, so that the next request reads the file again."""
        self._context = None


def load_certificate(context: ssl.SSLContext, cert: str, key: str | None) -> None:
    """Load a certificate and its key, from the file of the certificate if `key` is None.

    Raises:
        OSError: a file cannot be read or used.
        ValueError: the key has a password.
    """

    def refuse_password() -> NoReturn:
        # Otherwise OpenSSL would prompt on the terminal, and everything would wait.
        raise ValueError("the key has a password: give one without")

    context.load_cert_chain(cert, key, password=refuse_password)


class _Lookups:
    """A queue of lookups, and the threads that carry them out: daemons, which do not delay the end."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[str, int | None, Future[_Addresses]]] = SimpleQueue()
        self._idle = Semaphore(0)
        """Threads that wait for a lookup, less those that one was given to."""
        self._threads = 0

    def add(self, host: str, port: int | None) -> Future[_Addresses]:
        """Return the future result of a lookup; a thread is started if none is idle."""
        future: Future[_Addresses] = Future()
        self._waiting.put((host, port, future))
        if not self._idle.acquire(blocking=False) and self._threads < _MOST_THREADS:
            Thread(target=self._look_up_names, name="lookup", daemon=True).start()
            self._threads += 1
        return future

    def _look_up_names(self) -> None:
        while True:
            host, port, future = self._waiting.get()
            if future.set_running_or_notify_cancel():  # no poll has given up waiting
                try:
                    addresses = socket.getaddrinfo(
                        host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
                    )
                except Exception as error:  # noqa: BLE001 - for whoever waits
                    future.set_exception(error.with_traceback(None))  # its frame holds the future
                else:
                    future.set_result(addresses)
            del future
            self._idle.release()


_lookups = _Lookups()


async def look_up(host: str, port: int | None) -> _Addresses:
    """Return the addresses of a host name, as `socket.getaddrinfo` does.

    Raises:
        OSError: it has none, or no name server answers.
        UnicodeError: the host cannot be a name of a host.
    """
    return await asyncio.wrap_future(_lookups.add(host, port))
