"""A failure in two or three words, for rows that have no room for its message."""

from __future__ import annotations

from collections.abc import Mapping

from sparktop.model.failure import Failure, FailureKind

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
