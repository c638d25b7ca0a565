"""Means, intervals and quantiles against known values.

Failures are counted under words that distinguish them.
"""

from __future__ import annotations

import errno
import ssl

import pytest

from sparktop.model.failure import FailureKind
from sparktop.model.statistics import student_t, wilson
from sparktop.sweep.terms.request_errors import connect_failure, status_failure


@pytest.mark.parametrize(
    ("share", "freedom", "expected"),
    [
        (0.975, 1, 12.7062),
        (0.975, 4, 2.77645),
        (0.025, 2, -4.30265),
        (0.975, 100_000, 1.95999),
    ],
)
def test_students_t_is_that_of_the_tables(share: float, freedom: int, expected: float) -> None:
    """Quantiles as printed tables have them."""
    assert student_t(share, freedom) == pytest.approx(expected, abs=6e-5 * abs(expected))


@pytest.mark.parametrize(
    ("met", "count", "low", "high"),
    [
        (73, 73, 0.9500, 1.0),
        (381, 381, 0.99002, 1.0),
        (8, 10, 0.4902, 0.9433),
        (0, 20, 0.0, 0.1611),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_intervals(met: int, count: int, low: float, high: float) -> None:
    """Without a miss, 73 of 73 cases show 95 % and 381 of 381 show 99 %; others as in tables."""
    assert wilson(met, count) == pytest.approx((low, high), abs=5e-5)


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
    ("status", "words", "router", "served_by", "word", "kind"),
    [
        (429, "slow down", True, None, "router_rejection", FailureKind.HTTP),
        (429, "slow down", True, "spark-a", "http:429", FailureKind.HTTP),
        (503, "loading", False, None, "http:503", FailureKind.LOADING),
        (404, "The model `x` does not exist.", False, None, "wrong_model", FailureKind.NOT_FOUND),
        (400, "min_tokens must be positive", False, None, "http:400", FailureKind.HTTP),
        (500, "No deployments available for selected model", True, "x", "router_rejection", FailureKind.HTTP),
    ],
)
def test_what_a_status_means(
    status: int, words: str, served_by: str | None, word: str, kind: FailureKind, *, router: bool
) -> None:
    """A status is counted with its number, unless it says that model or backends are missing."""
    found = status_failure(
        status, words, 1.0, "spark-a:8000", router=router, has_key=False, served_by=served_by
    )
    assert (found.word, found.kind, found.status) == (word, kind, status)
