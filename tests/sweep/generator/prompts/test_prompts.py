"""Prompts have the length asked for whatever words cost, and none begins like another."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.sweep.generator.prompts import (
    FILLER,
    NOUNS,
    Book,
    Passage,
    PromptMaker,
    PromptTokens,
    pieces,
)

SPLIT = re.compile(r" [\w']+|[.,:]")


@cache
def book() -> Book:
    return Book(1, 5000)


@given(
    st.integers(0, 40),
    st.dictionaries(st.sampled_from([piece for piece in pieces() if piece != FILLER]), st.integers(1, 5)),
    st.integers(100, 3000),
    st.integers(0, 10**6),
)
@settings(max_examples=25, deadline=None)
def test_the_cost_of_a_prompt_is_the_length_asked_for(
    overhead: int, costs: dict[str, int], length: int, number: int
) -> None:
    """With any cost of words, as long as one word costs 1, template and pieces add up to the length."""
    tokens = PromptTokens(overhead, {piece: float(cost) for piece, cost in costs.items()})
    prompt, reckoned = PromptMaker(book(), tokens).prompt(length, number, "salt")
    words = SPLIT.findall(prompt.removeprefix("Notes"))
    assert reckoned == length
    assert overhead + sum(tokens.of(word) for word in words) == length


def test_prompts_of_a_run_differ_from_the_start() -> None:
    """The first line holds the request's number, so that no two prompts share their first block of tokens."""
    maker = PromptMaker(book(), PromptTokens())
    prompts = [maker.prompt(64, number, "run")[0] for number in range(500)]
    assert len({tuple(prompt.split()[:4]) for prompt in prompts}) == 500
    assert all(prompt.isascii() and prompt.isprintable() for prompt in prompts)


@given(st.integers(0, 400), st.sampled_from([0, 3, 12]), st.integers(0, 10**9), st.text(max_size=5))
@settings(max_examples=25, deadline=None)
def test_every_order_of_a_passage_holds_the_same_words(cut: int, names: int, number: int, salt: str) -> None:
    """The same pieces, first and last in their places, and the first line all names."""
    parts = list(zip(book().kinds, book().pieces, strict=True))[:cut]
    passage = Passage([f" {word}" for word in NOUNS[:names]], parts, " so so", 77)
    (text, tokens), (other, _) = passage.prompt(number, salt), passage.prompt(number + 1, salt)
    assert tokens == 77
    assert Counter(SPLIT.findall(text)) == Counter(SPLIT.findall(other))
    assert len(SPLIT.findall(text)) == len(parts) + names + bool(names) + 2
    assert text.startswith("Notes")
    assert text.endswith(f"{parts[-1][1] if parts else ''} so so")
    if names:
        assert sorted(SPLIT.findall(text)[:names]) == sorted(f" {word}" for word in NOUNS[:names])
        assert SPLIT.findall(text)[0] != SPLIT.findall(other)[0]
