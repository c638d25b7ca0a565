"""Prompts of blocks: equal ids give equal text, other ids other text, and lengths are exact."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import takewhile

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.sweep.generator.prompts import FILLER, BlockPrompts, Book, PromptTokens, pieces
from sparktop.sweep.plan.traces import TracedRequest

SPLIT = re.compile(r" [\w']+|[.,:]")


@cache
def book() -> Book:
    return Book(1, 5000)


def request(length: int, blocks: tuple[int, ...] = (), *, number: int = 0, scope: str = "") -> TracedRequest:
    return TracedRequest(number, 0.0, length, 10, blocks, 64 if blocks else 0, scope)


def shared(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


@given(
    st.integers(0, 40),
    st.dictionaries(st.sampled_from([piece for piece in pieces() if piece != FILLER]), st.integers(1, 5)),
    st.integers(100, 3000),
    st.lists(st.integers(), max_size=20),
)
@settings(max_examples=25, deadline=None)
def test_the_length_is_exact_whatever_words_cost(
    overhead: int, costs: dict[str, int], length: int, blocks: list[int]
) -> None:
    """Template, blocks and the cut last block add up to the length, as long as one word costs 1."""
    tokens = PromptTokens(overhead, {piece: float(cost) for piece, cost in costs.items()})
    prompt, expected = BlockPrompts(book(), tokens, "seed").prompt(request(length, tuple(blocks)))
    words = SPLIT.findall(prompt.removeprefix("Notes"))
    assert expected == length
    assert overhead + sum(tokens.of(word) for word in words) == length


def test_equal_ids_give_equal_beginnings() -> None:
    """Two prompts share exactly the blocks whose ids they share at the begin."""
    prompts = BlockPrompts(book(), PromptTokens(), "seed")
    one, _ = prompts.prompt(request(256, (7, 8, 9, 10), number=0))
    other, _ = prompts.prompt(request(256, (7, 8, 99, 10), number=1))
    whole = [len(SPLIT.findall(prompts.text(64 * count, 64, iter([":7", ":8"]))[0])) for count in (1, 2)]
    same = shared(SPLIT.findall(one), SPLIT.findall(other))
    assert whole[1] == 128
    assert 128 <= same < 132
    assert one.endswith(other[-40:])
