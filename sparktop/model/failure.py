"""`Failure`: what a poll of a server, router or machine returns without a sample; the error behind it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from sparktop.model.text import TextEnum, clean


class FailureKind(TextEnum):
    """Category of a failure, as a fixed word that scripts can match."""

    REFUSED = "refused"
    """Nothing listens on that port."""
    TIMEOUT = "timeout"
    """No complete answer within the deadline."""
    DNS = "dns"
    """The host name does not resolve."""
    UNREACHABLE = "unreachable"
    """No route, network down, connection reset."""
    TLS = "tls"
    UNAUTHORIZED = "unauthorized"
    """HTTP 401 or 403."""
    NOT_FOUND = "not_found"
    """HTTP 404."""
    HTTP = "http"
    """Any other HTTP status that is not 200."""
    REDIRECT = "redirect"
    """The answer was a redirect, which is never followed."""
    TOO_LARGE = "too_large"
    """The body, compressed or not, is larger than the limit."""
    MALFORMED = "malformed"
    """The answer is not a metrics page: HTML, garbage, broken HTTP."""
    METRICS_DISABLED = "metrics_disabled"
    """A metrics page without any name of the engine's (vLLM's --disable-log-stats)."""
    OTHER_PROGRAM = "other_program"
    """A metrics page of a program that is no inference engine and no router."""
    LOADING = "loading"
    """HTTP 503 of a server that answers so while it loads (SGLang, llama.cpp, TGI), or of an unknown
    server; also a Prometheus that has hardly begun to scrape."""
    ENGINE_DEAD = "engine_dead"
    """HTTP 503 of vLLM: its API server answers, its engine process has died. (While it loads, vLLM refuses
    connections.)"""
    ROUTER = "router"
    """The server answers like a router, but was configured as an inference server."""
    UNSUPPORTED = "unsupported"
    """This version of sparktop, or this machine, cannot read the server's answer or make the connection."""
    HOST_KEY = "host_key"
    """ssh does not know the host's key, or knows a different one."""
    COMMAND_NOT_FOUND = "command_not_found"
    """The other machine has no sparktop where ssh looks for it."""
    VERSION = "version"
    """The sparktop on the other machine uses a format that this one does not support."""
    ENDED = "ended"
    """The program at the other end ended."""
    LATE = "late"
    """The newest sample of a server through a Prometheus is old; of a Prometheus, those of all servers."""
    INTERNAL = "internal"
    """A programming error in sparktop; its traceback is in the log."""


_COUNTDOWN = " · reconnecting"


def without_retry_time(message: str) -> str:
    """Return the message of a failure without the time to the next attempt, which soon is another."""
    return message.partition(_COUNTDOWN)[0]


class Failure(Struct, frozen=True):
    """Why a poll of a server, router or machine returned no sample."""

    kind: FailureKind
    message: str
    """One clean line: what failed and, where known, what to do."""
    at: float
    """When the failure was noticed, in monotonic seconds of this machine."""


class FailureError(Exception):
    """Raised where something could not be read; whoever polls makes a `Failure` of it.

    Attributes:
        kind: category of the fault.
        message: what is wrong, in one clean line.
    """

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = clean(message)

    def failure(self, at: float) -> Failure:
        """Return the failure, noticed at `at` (monotonic seconds)."""
        return Failure(self.kind, self.message, at)


class RequestFailure(Failure, frozen=True):
    """Why a request of a load test failed."""

    word: str = ""
    """Error code under which result files count it, see `sweep/terms/request_errors.py`; "": its kind."""
    status: int | None = None
    """HTTP status of the response, if it was not 200."""
    retry_s: float | None = None
    """Seconds after which the server says that it may be tried again; None if it does not say."""


# A failure in two or three words, for rows that have no room for its message.


NO_ANSWER = "no answer"
_WORDS: Mapping[FailureKind, str] = {
    FailureKind.REFUSED: "connection refused",
    FailureKind.TIMEOUT: NO_ANSWER,
    FailureKind.DNS: "no such host",
    FailureKind.UNREACHABLE: "no connection",
    FailureKind.TLS: "TLS failed",
    FailureKind.UNAUTHORIZED: "access refused",
    FailureKind.NOT_FOUND: "HTTP 404",
    FailureKind.HTTP: "HTTP error",
    FailureKind.REDIRECT: "redirect",
    FailureKind.TOO_LARGE: "answer too large",
    FailureKind.MALFORMED: "unexpected answer",
    FailureKind.METRICS_DISABLED: "no metrics",
    FailureKind.OTHER_PROGRAM: "another program",
    FailureKind.LOADING: "loading",
    FailureKind.ENGINE_DEAD: "engine dead",
    FailureKind.ROUTER: "is a router",
    FailureKind.UNSUPPORTED: "not supported",
    FailureKind.HOST_KEY: "host key not trusted",
    FailureKind.COMMAND_NOT_FOUND: "program missing",
    FailureKind.VERSION: "other version there",
    FailureKind.ENDED: "program ended",
    FailureKind.LATE: "stale",
    FailureKind.INTERNAL: "internal error",
}


def failure_words(failure: Failure, via: str = "") -> str:
    """Return a failure in words; `via` is how a machine is read: ssh has keys, an agent has a token."""
    if failure.kind is FailureKind.UNAUTHORIZED and via.startswith(("ssh", "agent")):
        return "key refused" if via.startswith("ssh") else "token refused"
    return _WORDS[failure.kind]
