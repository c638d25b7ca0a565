"""How a request can fail, as words that a result file counts and a line for a person.

The words are finer than `FailureKind`: `timeout:first_token` and `timeout:whole` mean different things to who
tunes a server, and `http:429` of a server is not the rejection by a router in front of it.
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
"""Nothing listens there."""
DNS = "dns"
UNREACHABLE = "unreachable"
TLS = "tls"
DESCRIPTORS = "descriptors"
"""This process may open no more connections."""
TIMEOUT_CONNECT = "timeout:connect"
TIMEOUT_FIRST_TOKEN = "timeout:first_token"  # noqa: S105 - tokens of a language model, no secret
TIMEOUT_BETWEEN_TOKENS = "timeout:between_tokens"
TIMEOUT_WHOLE = "timeout:whole"
DISCONNECTED = "disconnected"
"""The connection was closed before an answer began."""
TRUNCATED = "truncated"
"""The stream stopped before its end."""
MALFORMED = "malformed"
"""No HTTP, no event stream, or events that are no JSON."""
NO_STREAM = "no_stream"
"""A whole answer came where a stream was asked for: its tokens have no times."""
NO_TOKENS = "no_tokens"
"""The stream came to its end without one token."""
ENDLESS = "endless"
"""Many more tokens than were asked for, or an event without an end."""
ERROR_EVENT = "error_event"
"""The server told of an error inside a stream that began well."""
WRONG_MODEL = "wrong_model"
"""The server does not have the model that was asked for."""
ROUTER_REJECTION = "router_rejection"
"""The router had no backend to give the request to."""
CANCELLED = "cancelled"
"""Called off before it began; of a whole command, never of a request."""
HTTP = "http"
"""Any other status than 200; the word is `http:` and the status."""

WORDS_LIMIT = 150
"""Characters of a server's words that are kept: refusals name the context behind the first hundred."""

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
    """A request's failure with the word that it is counted under."""

    word: str = HTTP
    status: int | None = None
    """The HTTP status, where the server answered with another one than 200."""


def request_failure(word: str, message: str, at: float, status: int | None = None) -> RequestFailure:
    """Make a failure that is counted under `word`."""
    if word.startswith("timeout"):
        kind = FailureKind.TIMEOUT
    elif status is not None and word.startswith(HTTP):
        kind = _STATUS_KINDS.get(status, FailureKind.HTTP)
    else:
        kind = _KINDS.get(word, FailureKind.MALFORMED)
    return RequestFailure(kind, clean(message), at, word, status)


def error_word(failure: Failure) -> str:
    """Give the word that a failure is counted under."""
    return failure.word if isinstance(failure, RequestFailure) else failure.kind.value


def count_errors(events: Iterable[LoadEvent]) -> Counter[str]:
    """Count failed requests by word."""
    ends = (event for event in events if isinstance(event, RequestEnded))
    return Counter(error_word(end.error) for end in ends if end.error is not None)


class Server(Protocol):
    """What a message about a server needs to know of it."""

    @property
    def where(self) -> str:
        """Host and port."""

    @property
    def router(self) -> bool:
        """True where a router stands."""


def status_failure(
    status: int, words: str, at: float, server: Server, served_by: str | None
) -> RequestFailure:
    """Tell what another status than 200 means; `words` is what the server said, clean and short, or ""."""
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
    """Tell what an error inside a stream means; `words` as for `status_failure`."""
    if server.router and _names_no_backend(words):
        message = f"{server.where} gave the request to no backend: {words}"
        return request_failure(ROUTER_REJECTION, message, at)
    quoted = f": {words}" if words else " (no words)"
    return request_failure(ERROR_EVENT, f"{server.where} told of an error in mid-stream{quoted}", at)


def _names_no_backend(words: str) -> bool:
    lower = words.lower()
    return any(phrase in lower for phrase in _NO_BACKEND)


def connect_failure(error: BaseException, at: float, *, where: str) -> RequestFailure:
    """Tell why no connection could be opened."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, socket.gaierror | UnicodeError):
        return request_failure(DNS, f"the host name of {where} does not resolve: is it right?", at)
    if isinstance(error, ssl.SSLError):
        # Neither attribute is there on errors that OpenSSL did not make.
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
