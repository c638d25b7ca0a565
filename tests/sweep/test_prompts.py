"""Prompts have the length asked for whatever words cost, and none begins like another."""

from __future__ import annotations

import re
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.sweep.prompts import FILLER, Book, PromptMaker, PromptTokens, pieces

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
@settings(max_examples=60, deadline=None)
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
    prompts = [maker.prompt(64, number, "run")[0] for number in range(2000)]
    assert len({tuple(prompt.split()[:4]) for prompt in prompts}) == 2000
    assert all(prompt.isascii() and prompt.isprintable() for prompt in prompts)


def test_every_piece_can_be_counted_ahead() -> None:
    """The list of pieces holds all that a book is made of."""
    assert set(book().pieces) <= set(pieces())
    assert "".join(book().pieces) == book().text


def test_a_length_below_the_template_gives_the_shortest_prompt() -> None:
    """Where template and first word are longer than asked for, one word is left and its length told."""
    assert PromptMaker(book(), PromptTokens(30)).prompt(10, 0, "x") == ("Notes", 30)


def test_long_prompts_go_around_the_book() -> None:
    """A prompt may be as long as the book."""
    prompt, reckoned = PromptMaker(book(), PromptTokens()).prompt(5000, 3, "x")
    assert reckoned == 5000
    assert len(prompt) > 20_000


def test_the_same_words_with_the_same_seed() -> None:
    """A seed gives one book."""
    assert Book(4, 500).text == Book(4, 500).text
    assert Book(4, 500).text != Book(5, 500).text
