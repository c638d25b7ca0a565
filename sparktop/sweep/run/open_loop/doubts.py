"""Reasons to doubt an open-loop level: the server did not keep up, or the client did not."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.sweep.result.results import LevelResult, Validity
from sparktop.sweep.terms.definitions import LATE_SENDS, OVERLOADED, UNANSWERED, UNSTABLE


def open_loop_doubts(level: LevelResult) -> Iterator[Validity]:
    """Yield the reasons to doubt the latencies of a level with requests at a rate."""
    found = level.open_loop
    if found is None:
        return
    if found.unstable:
        queue = "" if found.queue_growth_per_s is None else f", the queue {found.queue_growth_per_s:.2f} /s"
        completed = "" if found.completed_per_s is None else f"; {found.completed_per_s:.2f} /s completed"
        message = f"the server does not keep up: {found.growth_words}{queue}{completed}"
        yield Validity(code=UNSTABLE, message=message)
    if found.overloaded:
        message = f"{found.in_flight_limit} requests were in flight, the limit of the client: latencies are "
        yield Validity(code=OVERLOADED, message=f"{message}lower bounds")
    if found.unanswered and not found.unstable:
        message = f"{found.unanswered} of {found.requests} requests had no answer when the run ended: they "
        yield Validity(code=UNANSWERED, message=f"{message}count with their age")
    if level.replay is not None and (count := level.replay.not_due):
        message = f"{count} turns of conversations were not sent: the answer before had not come"
        yield Validity(code=UNANSWERED, message=message)
    if found.late and not found.overloaded:
        wait = "" if found.client_wait_p99_ms is None else f" (p99 {found.client_wait_p99_ms:.1f} ms)"
        message = f"requests were sent later than they were due{wait}; TTFT due and E2E due include that"
        yield Validity(code=LATE_SENDS, message=message)
