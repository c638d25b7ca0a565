"""Prompts have the length asked for whatever words cost, and none begins like another.

Prompts of blocks: equal ids give equal text, other ids other text, and lengths are exact.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import takewhile

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.sweep.generator.prompts import (
    FILLER,
    Book,
    PromptMaker,
    PromptTokens,
    pieces,
)
from sparktop.sweep.plan.traces import TracedRequest

SPLIT = re.compile(r" [\w']+|[.,:]")


@cache
def book() -> Book:
    return Book(1, 5000)


@given(
    st.integers(0, 40),
    st.dictionaries(st.sampled_from([piece for piece in pieces() if piece != FILLER]), st.integers(1, 5)),
    st.integers(100, 3000),
    st.integers(0, 10**6),
    st.lists(st.integers(), max_size=20),
)
@settings(max_examples=25, deadline=None)
def test_the_cost_of_a_prompt_is_the_length_asked_for(
    overhead: int, costs: dict[str, int], length: int, number: int, blocks: list[int]
) -> None:
    """With any cost of words, as long as one word costs 1, template and pieces or blocks add up."""
    tokens = PromptTokens(overhead, {piece: float(cost) for piece, cost in costs.items()})
    for prompt, reckoned in (
        PromptMaker(book(), tokens).prompt(length, number, "salt"),
        PromptMaker(book(), tokens).traced(request(length, tuple(blocks)), "seed"),
    ):
        words = SPLIT.findall(prompt.removeprefix("Notes"))
        assert reckoned == length
        assert overhead + sum(tokens.of(word) for word in words) == length


def request(length: int, blocks: tuple[int, ...] = (), *, number: int = 0, scope: str = "") -> TracedRequest:
    return TracedRequest(number, 0.0, length, 10, blocks, 64 if blocks else 0, scope)


def shared(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def test_equal_ids_give_equal_beginnings() -> None:
    """Two prompts share exactly the blocks whose ids they share at the begin."""
    prompts = PromptMaker(book(), PromptTokens())
    one, _ = prompts.traced(request(256, (7, 8, 9, 10), number=0), "seed")
    other, _ = prompts.traced(request(256, (7, 8, 99, 10), number=1), "seed")
    whole = [
        len(SPLIT.findall(prompts.text(64 * count, 64, iter(["seed/:7", "seed/:8"]))[0])) for count in (1, 2)
    ]
    same = shared(SPLIT.findall(one), SPLIT.findall(other))
    assert whole[1] == 128
    assert 128 <= same < 132
    assert one.endswith(other[-40:])
