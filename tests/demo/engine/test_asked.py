"""Requests to a simulated server are read and refused as by vLLM."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.demo.engine_requests import (
    RefusedError,
    read_body,
    read_completion,
)

LENGTH = 100


def refusal(body: dict[str, object], *, chat: bool = False) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        read_completion(body, chat=chat, max_model_len=LENGTH)
    return caught.value


def too_long(count: str, value: int) -> str:
    """Return the error of vLLM 0.32 for a prompt of this length, with a context of 100 tokens."""
    return (
        f"This model's maximum context length is 100 tokens. However, your prompt contains {count} input "
        "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the "
        f"input prompt. (parameter=input_tokens, value={value})"
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"min_tokens": 20}, "min_tokens must be less than or equal to max_tokens=16, got 20."),
        ({"cache_salt": ""}, "Parameter 'cache_salt' must be a non-empty string if provided."),
        ({"prompt": [1, 10**9]}, "Token id 1000000000 is out of vocabulary"),
        ({"n": 2}, "the simulated engine gives one choice: n must be 1"),
        ({"prompt": [1] * 101}, too_long("at least 101", 101)),
        ({"prompt": [1] * 100}, "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"),
    ],
)
def test_refusals_have_vllms_words(body: dict[str, object], words: str) -> None:
    """An invalid request gets 400 with vLLM's own sentence."""
    error = refusal({"prompt": "a", **body})
    assert (error.status, str(error)) == (400, words)
    assert error.body() == {
        "error": {"message": words, "type": "BadRequestError", "param": error.param, "code": 400}
    }


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 200) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = (
    "prompt",
    "messages",
    "max_tokens",
    "min_tokens",
    "stream",
    "stream_options",
    "cache_salt",
    "n",
    "seed",
)


@given(body=st.dictionaries(st.sampled_from(KEYS), VALUES), chat=st.booleans())
@settings(max_examples=40)
def test_any_object_is_read_or_refused(body: dict[str, object], *, chat: bool) -> None:
    """Any JSON object is refused, or gives a request that fits into the model's context."""
    try:
        asked = read_completion(read_body(json.dumps(body).encode()), chat=chat, max_model_len=LENGTH)
    except RefusedError:
        return
    assert asked.max_tokens >= 1
    assert asked.min_tokens <= asked.max_tokens
    assert len(asked.prompt) + asked.max_tokens <= LENGTH
