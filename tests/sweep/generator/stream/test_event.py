"""Events are read alike by the fast and by the careful way, and only reported tokens are counted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.sweep.generator import stream as stream_event
from sparktop.sweep.generator.stream import BadEventError, Usage, read_event

TEXTS = st.one_of(
    st.sampled_from(
        ["", '"', "\\", '"token_ids":[1,2]', '"error"', '"usage":{', '"reasoning":"x"', "é😀", "}"]
    ),
    st.text(max_size=12),
)


def chunk(
    text: str | None, ids: list[int] | None, finish: str | None, *, chat: bool, total: int | None = None
) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "logprobs": None}
    if finish != "absent":
        choice["finish_reason"] = finish
    if chat:
        choice["delta"] = {"content": text}
    else:
        choice["text"] = text
    if ids is not None:
        choice["token_ids"] = ids
    found: dict[str, Any] = {"id": "x", "model": "m", "choices": [choice], "prompt_token_ids": None}
    if total is not None:
        found["usage"] = {"prompt_tokens": 9, "total_tokens": 9 + total, "completion_tokens": total}
    return found


@given(
    TEXTS,
    st.one_of(st.none(), st.lists(st.integers(0, 200_000), max_size=80)),
    st.sampled_from([None, "length", "absent"]),
    st.one_of(st.none(), st.integers(0, 10_000)),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_the_fast_way_counts_as_the_careful_one(
    text: str,
    ids: list[int] | None,
    finish: str | None,
    total: int | None,
    chat: bool,  # noqa: FBT001 - drawn
    tight: bool,  # noqa: FBT001 - as above
    escaped: bool,  # noqa: FBT001 - as above
) -> None:
    """Whatever a token's text holds, JSON keys and quotes too, both ways count the same."""
    separators = (",", ":") if tight else None
    found = chunk(text, ids, finish, chat=chat, total=total)
    raw = json.dumps(found, separators=separators, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    fast, careful = read_event(raw), stream_event._read_all(raw)
    assert (fast.tokens, fast.has_ids, fast.reasoning) == (careful.tokens, careful.has_ids, careful.reasoning)
    assert (fast.finish_reason, fast.error, fast.total) == (
        careful.finish_reason,
        careful.error,
        careful.total,
    )
    assert fast.is_plain or fast.usage == careful.usage
    assert fast.tokens == (len(ids) if ids else int(bool(text)))


@pytest.mark.parametrize(
    ("delta", "tokens", "reasoning"),
    [
        ({"role": "assistant", "content": ""}, 0, False),
        ({"content": None, "reasoning_content": "hm"}, 1, True),
        ({"reasoning": "hm"}, 1, True),
        ({"content": "yes", "reasoning_content": "hm"}, 1, False),
        ({"content": "yes", "reasoning_content": None}, 1, False),
    ],
)
def test_reasoning_is_told_apart(delta: dict[str, str | None], tokens: int, reasoning: bool) -> None:  # noqa: FBT001 - a table
    """Reasoning under either name is a token; a role alone is not."""
    found: dict[str, Any] = {"choices": [{"delta": delta, "finish_reason": None}]}
    event = read_event(json.dumps(found, separators=(",", ":")).encode())
    assert (event.tokens, event.reasoning) == (tokens, reasoning)
    if tokens:
        found["choices"][0]["token_ids"] = [7, 8]
        event = read_event(json.dumps(found, separators=(",", ":")).encode())
        assert (event.tokens, event.reasoning) == (2, reasoning)


def test_usage_is_read_with_or_without_its_parts() -> None:
    """Usage gives counts where they are counts, and None for anything else."""
    whole = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 8}}
    assert read_event(json.dumps({"choices": [], "usage": whole}).encode()).usage == Usage(9, 8, 4)
    odd = {"prompt_tokens": "9", "completion_tokens": True, "prompt_tokens_details": None}
    assert read_event(json.dumps({"usage": odd}).encode()).usage == Usage(None, None, None)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"error": {"message": "no \x1b[31mmemory"}}, "no [31mmemory"),
        ({"error": "gone"}, "gone"),
        ({"object": "error", "message": "old style"}, "old style"),
        ({"error": {"code": 500}}, ""),
    ],
)
def test_errors_are_told_in_the_servers_words(found: dict[str, Any], words: str) -> None:
    """The forms of errors that servers put into a stream all give their words, clean."""
    assert read_event(json.dumps(found).encode()).error == words


@pytest.mark.parametrize("raw", [b"", b"<html>", b"[1]", b"3", b"{", b"[" * 100_000])
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    """HTML, arrays and half an object are not events."""
    with pytest.raises(BadEventError):
        read_event(raw)


def test_odd_shapes_hold_no_token() -> None:
    """Fields of another type than expected are passed over."""
    for found in ({"choices": 3}, {"choices": [4]}, {"choices": [{"delta": 5, "token_ids": "7"}]}, {}):
        assert read_event(json.dumps(found).encode()).tokens == 0
