"""The made-up tokenizer: equal text gives equal tokens, and equal beginnings equal blocks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.demo.engine_requests import (
    VOCABULARY,
    WORDS,
    answer_words,
    block_hashes,
    tokenize,
    tokenize_chat,
    word_id,
)


@given(text=st.text(max_size=200))
@settings(max_examples=60)
def test_every_text_has_tokens_of_the_vocabulary(text: str) -> None:
    """Any text gives tokens of the vocabulary, at most one per character, and none only if it is empty."""
    tokens = tokenize(text)
    assert len(tokens) <= len(text)
    assert bool(tokens) == bool(text)
    assert all(0 <= token < VOCABULARY for token in tokens)


@given(text=st.text(max_size=120), more=st.text(max_size=40))
@settings(max_examples=60)
def test_a_text_that_goes_on_with_a_word_keeps_its_tokens(text: str, more: str) -> None:
    """Text after the end of a line does not change the tokens before it."""
    assert tokenize(f"{text}\n{more}") == [*tokenize(f"{text}\n"), *tokenize(more)]


def test_each_word_of_an_answer_is_one_token() -> None:
    """Each word of an answer is one token, with the word's id."""
    words = answer_words("seed", 300)
    assert tokenize("".join(words)) == [word_id(word) for word in words]
    assert all(len(tokenize(f" {word}")) == 1 for word in WORDS)


@given(seed=st.integers(), count=st.integers(0, 200))
@settings(max_examples=40)
def test_no_word_of_an_answer_follows_itself(seed: int, count: int) -> None:
    """An answer never repeats a word directly, which proxies take for a loop; it depends on the seed only."""
    words = answer_words(seed, count)
    assert len(words) == count
    assert all(one != other for one, other in pairwise(words))
    assert answer_words(seed, count) == words


@given(
    shared=st.lists(st.integers(0, 9), max_size=70),
    one=st.lists(st.integers(10, 19), max_size=40),
    other=st.lists(st.integers(20, 29), max_size=40),
)
@settings(max_examples=60)
def test_blocks_are_shared_as_far_as_the_tokens_are(
    shared: list[int], one: list[int], other: list[int]
) -> None:
    """Two prompts share exactly the blocks that are complete in their common beginning."""
    first, second = block_hashes([*shared, *one], 16), block_hashes([*shared, *other], 16)
    assert len(first) == (len(shared) + len(one)) // 16
    common = [a == b for a, b in zip(first, second, strict=False)]
    assert common == [(place + 1) * 16 <= len(shared) for place in range(len(common))]


def test_another_salt_shares_nothing() -> None:
    """Blocks differ under different salts and are equal under the same one."""
    tokens = list(range(64))
    plain, salted, other = (block_hashes(tokens, 16, salt) for salt in (None, "a", "b"))
    assert not {*plain} & {*salted}
    assert not {*salted} & {*other}
    assert block_hashes(tokens, 16, "a") == salted


def test_a_chat_has_seven_tokens_beside_one_of_text() -> None:
    """A chat message has further tokens for markers and role; messages are appended."""
    one = tokenize_chat([("user", "hi")])
    assert len(one) == 7
    two = tokenize_chat([("user", "hi"), ("user", "hi")])
    assert two[:5] == one[:5]
    assert len(two) == 12


@pytest.mark.parametrize("text", ["a b", "x" * 30, "1234567", "ä ö", "\ud800"])
def test_the_same_text_has_the_same_tokens(text: str) -> None:
    """Tokenizing is repeatable, also with a lone surrogate."""
    assert tokenize(text) == tokenize(text) != []
