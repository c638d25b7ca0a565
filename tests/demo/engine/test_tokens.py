"""The made-up tokenizer: equal text, equal tokens; equal beginnings, equal blocks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.demo.engine.tokens import (
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
    """Any text gives numbers of the vocabulary, at most one a character, and none only when it is empty."""
    tokens = tokenize(text)
    assert len(tokens) <= len(text)
    assert bool(tokens) == bool(text)
    assert all(0 <= token < VOCABULARY for token in tokens)


@given(text=st.text(max_size=120), more=st.text(max_size=40))
@settings(max_examples=60)
def test_a_text_that_goes_on_with_a_word_keeps_its_tokens(text: str, more: str) -> None:
    """What follows after a line's end changes nothing before it."""
    assert tokenize(f"{text}\n{more}") == [*tokenize(f"{text}\n"), *tokenize(more)]


def test_each_word_of_an_answer_is_one_token() -> None:
    """An answer of n words counts n tokens again, with the same numbers."""
    words = answer_words("seed", 300)
    assert tokenize("".join(words)) == [word_id(word) for word in words]
    assert all(len(tokenize(f" {word}")) == 1 for word in WORDS)


@given(seed=st.integers(), count=st.integers(0, 200))
@settings(max_examples=40)
def test_no_word_of_an_answer_follows_itself(seed: int, count: int) -> None:
    """An answer never repeats a chunk at once, which proxies take for a loop, and a seed gives it again."""
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
    """Two prompts share the blocks that lie wholly in their common beginning, and no others."""
    first, second = block_hashes([*shared, *one], 16), block_hashes([*shared, *other], 16)
    assert len(first) == (len(shared) + len(one)) // 16
    common = [a == b for a, b in zip(first, second, strict=False)]
    assert common == [(place + 1) * 16 <= len(shared) for place in range(len(common))]


def test_another_salt_shares_nothing() -> None:
    """The same tokens under two salts have no block in common, and the same salt gives the same ones."""
    tokens = list(range(64))
    plain, salted, other = (block_hashes(tokens, 16, salt) for salt in (None, "a", "b"))
    assert not {*plain} & {*salted}
    assert not {*salted} & {*other}
    assert block_hashes(tokens, 16, "a") == salted


def test_a_chat_has_seven_tokens_beside_one_of_text() -> None:
    """Markers and roles are counted, and a second message begins where the first one ends."""
    one = tokenize_chat([("user", "hi")])
    assert len(one) == 7
    two = tokenize_chat([("user", "hi"), ("user", "hi")])
    assert two[:5] == one[:5]
    assert len(two) == 12


@pytest.mark.parametrize("text", ["a b", "x" * 30, "1234567", "ä ö", "\ud800"])
def test_the_same_text_has_the_same_tokens(text: str) -> None:
    """Twice the same, and half a surrogate is no error."""
    assert tokenize(text) == tokenize(text) != []
