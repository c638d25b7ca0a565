"""One GET of a page with a deadline and a size limit.

The result is an `Answer`, or an `AnswerError` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable

from sparktop.sources.http.body import BODY_CAP_BYTES
from sparktop.sources.http.connection import OK
from sparktop.sources.http.failure import status_error
from sparktop.sources.http.session import Request, SharedSession
from sparktop.sources.server_words import server_words
from sparktop.values import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete HTTP response with status 200."""

    body: bytes
    at: float
    """When its headers arrived, in seconds on the caller's clock."""
    answer_ms: float
    """Milliseconds from the request to the last byte."""
    age_s: float | None = None
    """Seconds for which a cache has held it; None where no cache says so."""


async def fetch(
    session: SharedSession, request: Request, *, deadline_s: float, clock: Callable[[], float]
) -> Answer:
    """Send `request` and return the answer with status 200.

    Raises:
        AnswerError: a network error, another status, a missed deadline, or an unusable body.
    """
    began = clock()
    response = await session.get(request, deadline_s=deadline_s, clock=clock, cap_bytes=BODY_CAP_BYTES)
    if response.status != OK:
        raise status_error(
            response.status,
            request.where,
            location=response.location,
            words=server_words(response.body, request.token),
            has_key=bool(request.token),
        )
    return Answer(response.body, response.at, (clock() - began) * 1000, response.age_s)
