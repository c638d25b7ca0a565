"""Prompts that share their beginnings: made of blocks whose text depends on nothing but a key.

Equal keys give equal text, hence equal tokens, so that a server's prefix cache finds the same blocks that it
would have found in recorded traffic. A prompt without ids of its own is made of blocks, too: those of its
conversation, so that the next turn's prompt begins with it, or blocks that no other request has.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

from sparktop.sweep.generator.prompts.prompts import OPENING_WORD, Book, PromptMaker, PromptTokens
from sparktop.sweep.generator.prompts.word_list import ADJECTIVES, NOUNS
from sparktop.sweep.plan.traces.request import TracedRequest

_OWN_BLOCK = 512
"""Tokens of a block of a prompt that has no block ids."""
_NAMES = [f" {word}" for word in (*NOUNS, *ADJECTIVES)]
_DISTINCT = 4
"""Random words at the begin of a block; together with its sentences they distinguish 10^12 blocks."""
_LEAST = 1e-6


class BlockPrompts:
    """Makes prompts of blocks, for one server and seed."""

    def __init__(self, book: Book, tokens: PromptTokens, seed: str) -> None:
        """Make prompts of the text `book`, whose words have `tokens`; equal seeds give equal text."""
        self._book = book
        self._made: PromptMaker | None = None
        self._tokens = tokens
        self._seed = seed

    def prompt(self, request: TracedRequest) -> tuple[str, int | None]:
        """Return (text of the request's prompt, its expected length in tokens; None if unknown)."""
        if request.text is not None:
            return request.text, None
        return self.text(request.prompt_tokens or 1, request.block_tokens or _OWN_BLOCK, _keys(request))

    def text(self, length: int, block_tokens: int, keys: Iterator[str]) -> tuple[str, int]:
        """Return (text, its expected length in tokens) of blocks with these keys.

        The text has `length` tokens including the chat template; its last block is cut. If the keys end
        before, it is shorter.
        """
        text, used = self._joined(length - self._tokens.overhead, block_tokens, keys)
        return text, round(self._tokens.overhead + used)

    def bare(self, length: int, block_tokens: int, keys: Iterator[str]) -> tuple[str, int]:
        """Return (text, its length in tokens) like `text`, but of `length` tokens without chat template."""
        text, used = self._joined(length - 1, block_tokens, keys)  # the first word is a token
        return text, round(1 + used)

    def _joined(self, most: float, block_tokens: int, keys: Iterator[str]) -> tuple[str, float]:
        """Return (text of blocks, its tokens without the first word), of at most `most` tokens."""
        left = most
        parts = [OPENING_WORD]
        for key in keys:
            if left < _LEAST:
                break
            text, used = self._block(key, min(left, float(block_tokens)))
            if not text:
                break  # not even one word fits
            parts.append(text)
            left -= used
        return "".join(parts), most - left

    def _block(self, key: str, most: float) -> tuple[str, float]:
        """Return (text, tokens) of a block, cut to `most` tokens."""
        random = Random(f"{self._seed}/{key}")  # noqa: S311 - text, no secret
        begin = random.choice(self._book.starts)
        parts, left = [], most
        for _ in range(_DISTINCT):
            word = random.choice(_NAMES)
            cost = self._tokens.of(word)
            if cost > left:
                break
            parts.append(word)
            left -= cost
        if self._made is None:
            self._made = PromptMaker(self._book, self._tokens)  # 20 ms
        text, used = self._made.words(begin, left)
        return "".join(parts) + text, most - left + used


def _keys(request: TracedRequest) -> Iterator[str]:
    """Yield the keys of the request's blocks: its ids, and then keys of its own without end."""
    for block in request.blocks:
        yield f"{request.scope}:{block}"
    own = request.scope if request.scope and not request.blocks else f"#{request.number}"
    for place in count():
        yield f"{own}#{place}"
