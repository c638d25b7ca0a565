"""How a request can fail: an error code that result files count, and a line for a person.

The codes are finer than `FailureKind`: `timeout:first_token` and `timeout:whole` mean different things to a
person who tunes a server, and `http:429` of a server is not the rejection by a router in front of it.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import LoadEvent, RequestEnded
from sparktop.model.text import clean

REFUSED = "refused"
"""Nothing listens at the address."""
DNS = "dns"
UNREACHABLE = "unreachable"
TLS = "tls"
DESCRIPTORS = "descriptors"
"""The limit of open files of this process is reached."""
TIMEOUT_CONNECT = "timeout:connect"
TIMEOUT_FIRST_TOKEN = "timeout:first_token"  # noqa: S105 - tokens of a language model, no secret
TIMEOUT_BETWEEN_TOKENS = "timeout:between_tokens"
TIMEOUT_WHOLE = "timeout:whole"
DISCONNECTED = "disconnected"
"""The connection was closed before a response began."""
TRUNCATED = "truncated"
"""The stream stopped before its end."""
MALFORMED = "malformed"
"""Not HTTP, not an event stream, or events that are not JSON."""
NO_STREAM = "no_stream"
"""A complete answer instead of a stream: the times of its tokens are unknown."""
NO_TOKENS = "no_tokens"
"""The stream ended without a token."""
ENDLESS = "endless"
"""Many more tokens than requested, or an event without an end."""
ERROR_EVENT = "error_event"
"""The server sent an error inside a stream that had begun."""
WRONG_MODEL = "wrong_model"
"""The server does not have the requested model."""
ROUTER_REJECTION = "router_rejection"
"""The router had no backend for the request."""
CANCELLED = "cancelled"
"""Cancelled before it began; applies to a command as a whole, never to a request."""
HTTP = "http"
"""Any HTTP status other than 200; the code is `http:` with the status appended."""

WORDS_LIMIT = 150
"""Maximum characters kept of a server's message: refusals mention the context after the first hundred."""

_KINDS = {
    REFUSED: FailureKind.REFUSED,
    DNS: FailureKind.DNS,
    UNREACHABLE: FailureKind.UNREACHABLE,
    TLS: FailureKind.TLS,
    DESCRIPTORS: FailureKind.UNSUPPORTED,
    DISCONNECTED: FailureKind.UNREACHABLE,
    NO_STREAM: FailureKind.UNSUPPORTED,
    ENDLESS: FailureKind.TOO_LARGE,
    WRONG_MODEL: FailureKind.NOT_FOUND,
    ROUTER_REJECTION: FailureKind.HTTP,
    ERROR_EVENT: FailureKind.HTTP,
}
_STATUS_KINDS = {
    401: FailureKind.UNAUTHORIZED,
    403: FailureKind.UNAUTHORIZED,
    404: FailureKind.NOT_FOUND,
    503: FailureKind.LOADING,
}
_TOO_MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_TOO_MANY_REQUESTS = 429
_IS_MISSING = ("not exist", "not found", "not be found", "unknown", "invalid model")
_NO_BACKEND = ("no deployments available", "no healthy deployment", "no available backend")


@dataclass(frozen=True, slots=True)
class RequestFailure(Failure):
    """A request's failure with the error code that it is counted under."""

    word: str = HTTP
    status: int | None = None
    """HTTP status of the response, if it was not 200."""


def request_failure(word: str, message: str, at: float, status: int | None = None) -> RequestFailure:
    """Return a failure that is counted under the error code `word`."""
    if word.startswith("timeout"):
        kind = FailureKind.TIMEOUT
    elif status is not None and word.startswith(HTTP):
        kind = _STATUS_KINDS.get(status, FailureKind.HTTP)
    else:
        kind = _KINDS.get(word, FailureKind.MALFORMED)
    return RequestFailure(kind, clean(message), at, word, status)


def error_word(failure: Failure) -> str:
    """Return the error code that a failure is counted under."""
    return failure.word if isinstance(failure, RequestFailure) else failure.kind.value


def count_errors(events: Iterable[LoadEvent]) -> Counter[str]:
    """Return the number of failed requests by error code."""
    ends = (event for event in events if isinstance(event, RequestEnded))
    return Counter(error_word(end.error) for end in ends if end.error is not None)


class Server(Protocol):
    """What a message needs to know of a server."""

    @property
    def where(self) -> str:
        """Host and port."""

    @property
    def router(self) -> bool:
        """True if the server is a router."""


def status_failure(
    status: int, words: str, at: float, server: Server, served_by: str | None
) -> RequestFailure:
    """Return the failure for an HTTP status other than 200; `words`: the server's message, cleaned, or ""."""
    lower = words.lower()
    quoted = f": {words}" if words else ""
    if server.router and (_names_no_backend(words) or (status == _TOO_MANY_REQUESTS and served_by is None)):
        message = f"{server.where} gave the request to no backend (HTTP {status}){quoted}"
        return request_failure(ROUTER_REJECTION, message, at, status)
    if status in {400, 404} and "model" in lower and any(phrase in lower for phrase in _IS_MISSING):
        message = f"{server.where} does not have that model (HTTP {status}){quoted}"
        return request_failure(WRONG_MODEL, message, at, status)
    message = f"{server.where} answered with HTTP {status}{quoted}"
    return request_failure(f"{HTTP}:{status}", message, at, status)


def event_failure(words: str, at: float, server: Server) -> RequestFailure:
    """Return the failure for an error inside a stream; `words` as in `status_failure`."""
    if server.router and _names_no_backend(words):
        message = f"{server.where} gave the request to no backend: {words}"
        return request_failure(ROUTER_REJECTION, message, at)
    quoted = f": {words}" if words else " (no words)"
    return request_failure(ERROR_EVENT, f"{server.where} reported an error in mid-stream{quoted}", at)


def _names_no_backend(words: str) -> bool:
    lower = words.lower()
    return any(phrase in lower for phrase in _NO_BACKEND)


def connect_failure(error: BaseException, at: float, *, where: str) -> RequestFailure:
    """Return the failure for a connection that could not be opened."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, socket.gaierror | UnicodeError):
        return request_failure(DNS, f"the host name of {where} does not resolve: is it right?", at)
    if isinstance(error, ssl.SSLError):
        # Errors that do not come from OpenSSL have neither attribute.
        said = getattr(error, "verify_message", None) or getattr(error, "reason", None)
        reason = clean(said or "no TLS", 90)
        return request_failure(TLS, f"TLS with {where} failed: {reason}", at)
    if isinstance(error, TimeoutError) or number == errno.ETIMEDOUT:
        return request_failure(TIMEOUT_CONNECT, f"no connection to {where} in time: is the host up?", at)
    if number in _TOO_MANY_FILES:
        message = "no file descriptor left for another connection: raise the limit with `ulimit -n`"
        return request_failure(DESCRIPTORS, message, at)
    if isinstance(error, ConnectionRefusedError):
        return request_failure(REFUSED, f"nothing listens on {where} (connection refused)", at)
    said = clean(error, 80) or type(error).__name__
    return request_failure(UNREACHABLE, f"{where} cannot be reached: {said}", at)
