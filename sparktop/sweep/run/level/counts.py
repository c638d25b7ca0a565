"""What the requests of a run asked for, who answered, and the time in which samples of its servers count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from sparktop.model.load import LoadEvent, RequestEnded, RequestStarted, RunStarted
from sparktop.sweep.generator.wire.messages import RunFinished
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.run.preparation import PreparedTarget
from sparktop.sweep.run.server_side import Span
from sparktop.sweep.run.validity import Asked


def asked_of(traces: Sequence[RequestTrace], output_tokens: int) -> Asked:
    """Return the counts of the tokens that the requests of a run asked for and received.

    `output_tokens` is the number of tokens that each request asked for. In conversations it varies; there the
    longest answer stands for it.
    """
    if any(trace.call is not None for trace in traces):
        output_tokens = max(trace.tokens for trace in traces)  # their lengths vary
    whole = [trace for trace in traces if trace.ok]
    broken = [trace for trace in traces if not trace.ok]
    prompts = [trace.prompt_tokens for trace in traces if trace.arrivals]
    known = [count for count in prompts if count is not None]
    came = sum(trace.tokens for trace in broken)
    return Asked(
        generated=sum(trace.tokens for trace in whole) + came,
        prompt=sum(known) if len(known) == len(prompts) else None,
        most=output_tokens * len(traces),
        open=max(0, output_tokens * len(broken) - came),
        open_requests=len(broken),
    )


def sampled_span(events: Iterable[LoadEvent], end: RunFinished) -> Span:
    """Return the time of a run in which samples of its servers count.

    The warm-up calls of conversations precede it.
    """
    measured: Span | None = None
    for event in events:
        if isinstance(event, RunStarted):
            measured = event.measured
        elif isinstance(event, RequestStarted) and event.call is None:
            measured = None
            break
    return measured or (end.started_at, end.ended_at)


def named(events: list[LoadEvent], prepared: PreparedTarget) -> list[LoadEvent]:
    """Return the events with names of watched backends in place of the ids or URLs that a router reports."""
    names = prepared.names
    if names is None:
        return events
    return [
        replace(event, served_by=names.name(event.served_by))
        if isinstance(event, RequestEnded) and event.served_by is not None
        else event
        for event in events
    ]
