"""Requests to a simulated server, as vLLM reads and refuses them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.demo.engine.asked import (
    Asked,
    RefusedError,
    check_model,
    read_body,
    read_completion,
    read_prompt,
)

LENGTH = 100


def completion(**body: object) -> Asked:
    return read_completion({"prompt": "one two", **body}, chat=False, max_model_len=LENGTH)


def refusal(body: dict[str, object], *, chat: bool = False) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        read_completion(body, chat=chat, max_model_len=LENGTH)
    return caught.value


def test_what_nobody_says_has_vllms_defaults() -> None:
    """A completion makes 16 tokens, a chat as many as fit."""
    asked = completion()
    assert (asked.max_tokens, asked.min_tokens, asked.stream, asked.ignore_eos) == (16, 0, False, False)
    messages = {"messages": [{"role": "user", "content": "one two"}]}
    chat = read_completion(messages, chat=True, max_model_len=LENGTH)
    assert chat.max_tokens == LENGTH - len(chat.prompt)


def test_everything_that_is_asked_for_is_kept() -> None:
    """Each field that vLLM knows reaches the engine."""
    asked = completion(
        max_tokens=7,
        min_tokens=3,
        ignore_eos=True,
        stream=True,
        stream_options={"include_usage": True},
        return_token_ids=True,
        cache_salt="s",
        seed=5,
        temperature=0.5,
    )
    expected = Asked(
        chat=False,
        prompt=asked.prompt,
        max_tokens=7,
        min_tokens=3,
        ignore_eos=True,
        stream=True,
        include_usage=True,
        return_token_ids=True,
        cache_salt="s",
        seed=5,
    )
    assert asked == expected


def test_a_prompt_is_text_or_tokens_or_one_of_them_in_a_list() -> None:
    """All four forms of the same prompt are read; the tokens of text are those of /tokenize."""
    tokens = read_prompt({"prompt": "one two"}, chat=False)
    for form in (["one two"], list(tokens), [list(tokens)]):
        assert read_prompt({"prompt": form}, chat=False) == tokens


def test_a_chats_parts_of_text_are_its_text() -> None:
    """A message in parts has the tokens of its text in one piece; an image is passed over."""
    parts = [{"type": "text", "text": "one"}, {"type": "image_url"}, {"type": "text", "text": " two"}]
    whole = read_prompt({"messages": [{"role": "user", "content": "one two"}]}, chat=True)
    assert read_prompt({"messages": [{"role": "user", "content": parts}]}, chat=True) == whole


def test_the_newer_name_of_max_tokens_wins_in_a_chat() -> None:
    """`max_completion_tokens` stands before `max_tokens`, in a chat alone."""
    both = {"max_tokens": 9, "max_completion_tokens": 4}
    messages = {"messages": [{"role": "user", "content": "one"}]}
    assert read_completion({**messages, **both}, chat=True, max_model_len=LENGTH).max_tokens == 4
    assert completion(**both).max_tokens == 9


def too_long(count: str, value: int) -> str:
    """Return what vLLM 0.32 says of so many tokens where the context is 100."""
    return (
        f"This model's maximum context length is 100 tokens. However, your prompt contains {count} input "
        "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the "
        f"input prompt. (parameter=input_tokens, value={value})"
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"),
        ({"min_tokens": 20}, "min_tokens must be less than or equal to max_tokens=16, got 20."),
        ({"min_tokens": -1}, "min_tokens must be greater than or equal to 0, got -1."),
        ({"cache_salt": ""}, "Parameter 'cache_salt' must be a non-empty string if provided."),
        ({"prompt": [1, 10**9]}, "Token id 1000000000 is out of vocabulary"),
        ({"prompt": ""}, "The decoder prompt cannot be empty"),
        ({"n": 2}, "the simulated engine gives one choice: n must be 1"),
        ({"n": 0}, "the simulated engine gives one choice: n must be 1"),
        ({"prompt": [1] * 150}, too_long("150", 150)),
        ({"prompt": [1] * 101}, too_long("at least 101", 101)),
        ({"prompt": "a " * 200}, too_long("at least 101", 101)),
        ({"prompt": [1] * 100}, "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"),
        (
            {"prompt": [1] * 90, "max_tokens": 20, "min_tokens": 20},
            "min_tokens must be less than or equal to max_tokens=10, got 20.",
        ),
    ],
)
def test_refusals_have_vllms_words(body: dict[str, object], words: str) -> None:
    """What cannot be served is answered 400 with the sentence that vLLM has for it."""
    error = refusal({"prompt": "a", **body})
    assert (error.status, str(error)) == (400, words)
    assert error.body() == {
        "error": {"message": words, "type": "BadRequestError", "param": error.param, "code": 400}
    }


def test_an_answer_that_does_not_fit_is_cut() -> None:
    """Behind a prompt of 90 tokens a context of 100 has room for 10, whatever was asked for."""
    assert completion(prompt=[1] * 90, max_tokens=20).max_tokens == 10
    assert completion(prompt=[1] * 90).max_tokens == 10


@pytest.mark.parametrize("key", ["max_tokens", "stream", "seed", "ignore_eos", "messages"])
def test_a_value_of_a_wrong_kind_names_its_field(key: str) -> None:
    """A string where a number, a yes or a list belongs is told by the field's place."""
    chat = key == "messages"
    body: dict[str, object] = {"prompt": "a", "messages": [], key: "seven"}
    assert f"('body', '{key}')" in str(refusal(body, chat=chat))


def test_a_missing_prompt_is_told() -> None:
    """Without prompt or messages the answer says which field is required."""
    assert "'missing'" in str(refusal({}))
    assert "('body', 'messages')" in str(refusal({}, chat=True))


def test_another_model_is_not_found() -> None:
    """No model and the served one pass; any other is 404 with its name, clean."""
    check_model({}, "m")
    check_model({"model": "m"}, "m")
    with pytest.raises(RefusedError, match="The model `a b` does not exist") as caught:
        check_model({"model": "a\x1bb"}, "m")
    assert caught.value.status == 404


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@settings(max_examples=80)
def test_any_body_is_read_or_refused(body: bytes) -> None:
    """No bytes raise anything but the refusal, and that is always 400."""
    statuses: list[int] = []
    try:
        read_completion(read_body(body), chat=True, max_model_len=LENGTH)
    except RefusedError as error:
        statuses.append(error.status)
    assert set(statuses) <= {400}


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
@settings(max_examples=150)
def test_any_object_is_read_or_refused(body: dict[str, object], *, chat: bool) -> None:
    """Whatever the fields hold, what is read fits the model's context."""
    try:
        asked = read_completion(read_body(json.dumps(body).encode()), chat=chat, max_model_len=LENGTH)
    except RefusedError:
        return
    assert asked.max_tokens >= 1
    assert asked.min_tokens <= asked.max_tokens
    assert len(asked.prompt) + asked.max_tokens <= LENGTH
