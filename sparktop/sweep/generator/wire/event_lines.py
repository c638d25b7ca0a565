"""Encode and decode load events as short JSON arrays, because a load run may have thousands of them."""

from __future__ import annotations

from typing import Any

from sparktop.model.conversation import CallStart, ConversationCall
from sparktop.model.failure import FailureKind
from sparktop.model.load import (
    EndReason,
    FirstToken,
    LoadEvent,
    RequestEnded,
    RequestStarted,
    ResponseStarted,
    RunEnded,
    RunStarted,
    Tokens,
    TokenSource,
)
from sparktop.sweep.terms.request_errors import RequestFailure, error_word


def encode_event(event: LoadEvent) -> list[Any]:  # noqa: PLR0911 - one for each kind of event
    """Return an event as a list for JSON that starts with a letter for the event's type.

    Raises:
        TypeError: the event is a level's start or end, which the load generator does not send.
    """
    match event:
        case RequestStarted():
            place = None if event.call is None else _place(event.call)
            return [
                "s",
                event.request_id,
                event.at,
                event.run,
                event.prompt_tokens,
                event.due,
                place,
                event.resent,
            ]
        case ResponseStarted():
            return ["r", event.request_id, event.at]
        case FirstToken():
            return ["f", event.request_id, event.at, event.count, event.reasoning]
        case Tokens():
            return ["t", event.request_id, event.at, event.count, event.reasoning]
        case RequestEnded():
            return ["e", *_ended(event)]
        case RunStarted():
            return ["R", event.at, event.run, event.measured]
        case RunEnded():
            return ["E", event.at, event.run]
        case _:
            raise TypeError(f"no event of a run: {type(event).__name__}")


def decode_event(found: list[Any]) -> LoadEvent:  # noqa: PLR0911 - as above
    """Return the event that `encode_event` encoded as the list `found`.

    Raises:
        ValueError: the list starts with an unknown letter.
    """
    letter, rest = found[0], found[1:]
    match letter:
        case "s":
            request_id, at, run, prompt, due, place, resent = rest
            call = None if place is None else _read_place(place)
            return RequestStarted(request_id, at, run, prompt, due, call, resent)
        case "r":
            return ResponseStarted(*rest)
        case "f":
            return FirstToken(*rest)
        case "t":
            return Tokens(*rest)
        case "e":
            return _read_ended(rest)
        case "R":
            at, run, measured = rest
            return RunStarted(at, run, None if measured is None else (measured[0], measured[1]))
        case "E":
            return RunEnded(*rest)
        case _:
            raise ValueError(f"no event of a run: {letter!r}")


def encode_failure(failure: RequestFailure) -> list[Any]:
    """Return a failure as a list for JSON: [kind, message, time, code, HTTP status, seconds to retry]."""
    return [failure.kind.value, failure.message, failure.at, failure.word, failure.status, failure.retry_s]


def decode_failure(found: list[Any]) -> RequestFailure:
    """Return the failure that `encode_failure` encoded as the list `found`."""
    return RequestFailure(FailureKind(found[0]), *found[1:])


def _place(call: ConversationCall) -> list[Any]:
    return [
        call.lane,
        call.conversation,
        call.turn,
        call.request,
        call.start.value,
        None if call.then is None else call.then.value,
        call.known_tokens,
        call.new_tokens,
        call.compacted,
        call.measured,
    ]


def _read_place(found: list[Any]) -> ConversationCall:
    lane, conversation, turn, request, start, then, *more = found
    after = None if then is None else CallStart(then)
    return ConversationCall(lane, conversation, turn, request, CallStart(start), after, *more)


def _ended(event: RequestEnded) -> list[Any]:
    error = event.error
    if error is not None and not isinstance(error, RequestFailure):
        error = RequestFailure(error.kind, error.message, error.at, error_word(error))
    return [
        event.request_id,
        event.at,
        event.reason.value,
        None if error is None else encode_failure(error),
        event.prompt_tokens,
        event.cached_tokens,
        event.generated_tokens,
        None if event.token_source is None else event.token_source.value,
        event.served_by,
        event.hidden_before,
        event.spans_all,
        event.router_ms,
    ]


def _read_ended(rest: list[Any]) -> RequestEnded:
    request_id, at, reason, error, prompt, cached, generated, source, served_by, *more = rest
    hidden_before, spans_all, router_ms = more
    return RequestEnded(
        request_id=request_id,
        at=at,
        reason=EndReason(reason),
        error=None if error is None else decode_failure(error),
        prompt_tokens=prompt,
        cached_tokens=cached,
        generated_tokens=generated,
        token_source=None if source is None else TokenSource(source),
        served_by=served_by,
        hidden_before=hidden_before,
        spans_all=spans_all,
        router_ms=router_ms,
    )
