"""Failures are counted under words that distinguish them."""

from __future__ import annotations

import errno
import ssl
from dataclasses import dataclass

import pytest

from sparktop.model.failure import FailureKind
from sparktop.sweep.terms.request_errors import (
    connect_failure,
    status_failure,
)


@dataclass(frozen=True)
class Place:
    """A server, as far as messages need it."""

    where: str = "spark-a:8000"
    router: bool = False
    secret: str | None = None


@pytest.mark.parametrize(
    ("error", "word", "kind"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "no"), "refused", FailureKind.REFUSED),
        (TimeoutError(), "timeout:connect", FailureKind.TIMEOUT),
        (OSError(errno.EMFILE, "no"), "descriptors", FailureKind.UNSUPPORTED),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong"), "tls", FailureKind.TLS),
    ],
)
def test_why_no_connection_opened(error: OSError, word: str, kind: FailureKind) -> None:
    """Each way in which a connection can fail to open has an error word and a kind."""
    found = connect_failure(error, 1.0, where="spark-a:8000")
    assert (found.word, found.kind, found.at) == (word, kind, 1.0)


@pytest.mark.parametrize(
    ("status", "words", "router", "word", "kind"),
    [
        (503, "loading", False, "http:503", FailureKind.LOADING),
        (404, "The model `x` does not exist.", False, "wrong_model", FailureKind.NOT_FOUND),
        (400, "Invalid model name passed in model=x", True, "wrong_model", FailureKind.NOT_FOUND),
        (400, "min_tokens must be positive", False, "http:400", FailureKind.HTTP),
        (500, "No deployments available for selected model", True, "router_rejection", FailureKind.HTTP),
        (500, "No deployments available for selected model", False, "http:500", FailureKind.HTTP),
    ],
)
def test_what_a_status_means(
    status: int,
    words: str,
    router: bool,  # noqa: FBT001 - one column of the table above
    word: str,
    kind: FailureKind,
) -> None:
    """A status is counted with its number, unless it says that model or backends are missing."""
    found = status_failure(status, words, 1.0, Place(router=router), None)
    assert (found.word, found.kind, found.status) == (word, kind, status)
