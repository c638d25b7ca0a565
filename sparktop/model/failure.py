"""Failures as values: what polling a source yields when there is no sample."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """What went wrong, as a word that scripts can match."""

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
    """The answer was a redirect; metrics are read from where the user said or not at all."""
    TOO_LARGE = "too_large"
    """The body, compressed or not, is larger than the limit."""
    MALFORMED = "malformed"
    """The answer is not a metrics page: HTML, garbage, broken HTTP."""
    METRICS_DISABLED = "metrics_disabled"
    """A metrics page without any name of the engine's (vLLM's --disable-log-stats)."""
    LOADING = "loading"
    """HTTP 503 of a server that answers so while it loads (SGLang, llama.cpp, TGI), or of an unknown
    server."""
    ENGINE_DEAD = "engine_dead"
    """HTTP 503 of vLLM: its API server answers, its engine process has died. (While it loads, vLLM refuses
    connections.)"""
    ROUTER = "router"
    """It answers like a router, but was configured as an inference server."""
    UNSUPPORTED = "unsupported"
    """This version of sparktop, or this machine, cannot read that."""
    HOST_KEY = "host_key"
    """ssh does not know the host's key, or knows a different one."""
    COMMAND_NOT_FOUND = "command_not_found"
    """The other machine has no sparktop where ssh looks for it."""
    VERSION = "version"
    """The sparktop there uses a format that this one does not support."""
    ENDED = "ended"
    """The program at the other end ended."""
    INTERNAL = "internal"
    """A programming error in sparktop; its traceback is in the log."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a source has no sample, in words for the user."""

    kind: FailureKind
    message: str
    """One clean line: what failed and, where known, what to do."""
    at: float
    """Monotonic time, on this machine, when it was noticed."""
