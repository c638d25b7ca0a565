"""The made-up tokenizer: equal text gives equal tokens, and equal beginnings equal blocks."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.demo.engine_requests import (
    VOCABULARY,
    block_hashes,
    tokenize,
)


@given(text=st.text(max_size=200))
@settings(max_examples=60)
def test_every_text_has_tokens_of_the_vocabulary(text: str) -> None:
    """Any text gives tokens of the vocabulary, at most one per character, and none only if it is empty."""
    tokens = tokenize(text)
    assert len(tokens) <= len(text)
    assert bool(tokens) == bool(text)
    assert all(0 <= token < VOCABULARY for token in tokens)


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
