"""Parse the events of a completion stream, most of them without a full JSON parser to save time."""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import Struct

from sparktop.model.text import clean

DONE = b"[DONE]"
"""Beginning of the data of the event that ends a stream."""
FAST_BYTES = 4096
"""Minimum size in bytes from which on events, which are rare, are parsed as JSON."""
_WORDS_LIMIT = 4000
"""Maximum characters kept of an error message: more than are shown, because a key that the server repeats is
masked before it is cut."""
# A quote inside a JSON string is escaped as \", so these bytes can only be a key and its value.
_TOKEN_IDS = re.compile(rb'"token_ids":\s?\[([0-9, ]+)\]')
_TEXT = re.compile(rb'"(?:content|text)":\s?"[^"]')
_ROLE = b'"delta":{"role":"assistant","content":""}'
_ROLE_WITHIN_BYTES = 512
"""The role is searched for only in this number of bytes at the start of an event, because the token ids of a
long prompt may follow in the same event."""
_PROMPT_IDS = b'"prompt_token_ids":'
_TOTAL = b'"completion_tokens":'
_NUMBER = re.compile(rb"\s?([0-9]{1,9})[,}]")
_TEXT_KEYS = ("content",)
_REASONING_KEYS = ("reasoning_content", "reasoning")
_CALL_KEYS = ("tool_calls", "function_call")


class BadEventError(Exception):
    """An event that is not a JSON object."""


class Usage(Struct, frozen=True):
    """The server's own token counts of a request; None for a count that the server does not send."""

    prompt_tokens: int | None
    cached_tokens: int | None
    generated_tokens: int | None


class StreamEvent(Struct, frozen=True):
    """What one event of the stream says about the answer: its tokens, and how it ends."""

    tokens: int = 0
    """Number of token ids; without ids, 1 if there is text, reasoning or part of a tool call, else 0."""
    has_ids: bool = False
    """True if the event has token ids."""
    total: int | None = None
    """Running total of the request's generated tokens, sent because of `continuous_usage_stats`."""
    is_empty: bool = False
    """True for an empty text without a role: it may stand for a token that has no text."""
    reasoning: bool = False
    """True if the event has reasoning, but no text and no tool call."""
    finish_reason: str | None = None
    usage: Usage | None = None
    error: str | None = None
    """Error message of the server, cleaned; "" for an error without a message, None for no error."""
    model: str | None = None
    is_plain: bool = False
    """True if the event has nothing of interest but its tokens, so that no other field was read."""


_BY_IDS = tuple(StreamEvent(count, has_ids=True, is_plain=True) for count in range(65))
_BY_TEXT = StreamEvent(1, is_plain=True)
_BY_ROLE = StreamEvent(is_plain=True)
_BY_TOTAL = tuple(StreamEvent(1, total=count, is_plain=True) for count in range(4097))


def read_event(data: bytes) -> StreamEvent:
    """Parse the data of an event, which must not begin with `DONE`.

    Raises:
        BadEventError: the data is not a JSON object.
    """
    if len(data) >= FAST_BYTES:
        head = data[:_ROLE_WITHIN_BYTES]
        return _BY_ROLE if _ROLE in head and b'"finish_reason":null' in head else _read_all(data)
    if (
        b'"reasoning' not in data
        and b'"error"' not in data
        and (
            b'"finish_reason":null' in data
            or b'"finish_reason": null' in data
            or (b'"finish_reason"' not in data and b'"choices"' in data)
        )
        and data.endswith(b"}")
    ):
        total = data.rfind(_TOTAL)
        found = _TOKEN_IDS.search(data)
        if found is not None:
            count = found[1].count(b",") + 1
            if total >= 0 or count >= len(_BY_IDS):
                return StreamEvent(count, has_ids=True, total=_number_at(data, total), is_plain=True)
            return _BY_IDS[count]
        if _TEXT.search(data) is not None:
            return _BY_TEXT if total < 0 else _with_total(data, total)
        if _ROLE in data:
            return _BY_ROLE
    return _read_all(data)


def _with_total(data: bytes, key: int) -> StreamEvent:
    """Parse an event that has text and a running token total.

    `key` is the offset in `data` of the JSON key of this total.
    """
    made = _number_at(data, key)
    if made is None:
        return _read_all(data)
    return _BY_TOTAL[made] if made < len(_BY_TOTAL) else StreamEvent(1, total=made, is_plain=True)


def _number_at(data: bytes, key: int) -> int | None:
    """Return the integer value of the JSON key `completion_tokens` at the offset `key` of `data`.

    Return None if the value is not an integer, or if `key` is negative.
    """
    found = _NUMBER.match(data, key + len(_TOTAL)) if key >= 0 else None
    return None if found is None else int(found[1])


def _read_all(data: bytes) -> StreamEvent:
    try:
        found = json.loads(without_prompt_ids(data))
    except (ValueError, RecursionError) as error:
        raise BadEventError from error
    if not isinstance(found, dict):
        raise BadEventError
    failure = found.get("error")
    if failure or found.get("object") == "error":
        return StreamEvent(error=_words(failure or found))
    choices = found.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    model = found.get("model")
    return _from_choice(
        choice if isinstance(choice, dict) else {},
        _usage(found.get("usage")),
        clean(model) if isinstance(model, str) else None,
    )


def _from_choice(choice: dict[str, Any], usage: Usage | None, model: str | None) -> StreamEvent:
    delta = choice.get("delta")
    fields = delta if isinstance(delta, dict) else {}
    ids = choice.get("token_ids")
    id_count = len(ids) if isinstance(ids, list) else 0
    text = bool(choice.get("text")) or any(fields.get(key) for key in _TEXT_KEYS)
    answers = text or any(fields.get(key) for key in _CALL_KEYS)
    reasons = any(fields.get(key) for key in _REASONING_KEYS)
    finish = choice.get("finish_reason")
    shown = id_count or int(answers or reasons)
    # A usage without a choice, or beside an empty one, closes the stream and is not a running total.
    is_chunk = bool(shown or finish) or _is_empty(choice)
    return StreamEvent(
        tokens=shown,
        has_ids=id_count > 0,
        total=usage.generated_tokens if usage is not None and is_chunk else None,
        is_empty=not shown and not finish and "role" not in fields and _is_empty(choice),
        reasoning=reasons and not answers,
        finish_reason=clean(finish, 40) if finish else None,
        usage=usage,
        model=model,
    )


def _is_empty(choice: dict[str, Any]) -> bool:
    """Return whether a choice has a text field, and its text is empty."""
    delta = choice.get("delta")
    return choice.get("text") == "" or (isinstance(delta, dict) and delta.get("content") == "")


def without_prompt_ids(data: bytes) -> bytes:
    """Return an event's data with the token ids of the prompt replaced by null.

    With long prompts they are most of the first event, and are not needed.
    """
    key = data.find(_PROMPT_IDS)
    if key < 0:
        return data
    begin = key + len(_PROMPT_IDS)
    while data[begin : begin + 1] == b" ":
        begin += 1
    end = data.find(b"]", begin)
    if data[begin : begin + 1] != b"[" or end < 0:
        return data
    return data[:begin] + b"null" + data[end + 1 :]


def _usage(found: object) -> Usage | None:
    if not isinstance(found, dict):
        return None
    details = found.get("prompt_tokens_details")
    return Usage(
        prompt_tokens=_count(found.get("prompt_tokens")),
        cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else None,
        generated_tokens=_count(found.get("completion_tokens")),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _words(found: object) -> str:
    if isinstance(found, dict):
        found = found.get("message") or found.get("detail") or found.get("type") or ""
    return clean(found, _WORDS_LIMIT)
