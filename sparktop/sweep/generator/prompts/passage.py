"""Prompts of an exact length for a server that counts whole prompts only.

What a single word costs is unknown there. So one passage is cut and filled up until the server counts the
length asked for, and every prompt is the same words in another order: nouns change places with nouns, verbs
with verbs. The sum stays what it was, whatever a word costs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import factorial
from random import Random

from sparktop.sweep.generator.prompts.prompts import OPENING_WORD, Book, Kind, Part
from sparktop.sweep.generator.prompts.word_list import NOUNS

MOST_REQUESTS = 16
"""That a search takes at most; a tokenizer for which a word is a token takes four."""
FILLERS = (" so", " a", " I", " to", " in", " it", " of", " up")
"""Short words: one of them is a single token nearly everywhere."""
_NAMES = (12, 8, 5, 3, 0)
"""Words of the first line: 12 have 479 million orders. Fewer where the prompt is short."""
_NAMES_SHARE = 0.5
"""Of a prompt that the first line may take."""
_NEAR = 4
"""Tokens that are filled up rather than looked for."""
_MOST_STEP = 7
_FEWEST_A_PIECE, _MOST_A_PIECE = 0.2, 10.0
"""Tokens; a server that tells anything beyond them does not count."""
_CHECKS = 2
"""Orders that must agree before a length counts as exact."""


class Passage:
    """Words of a known sum; `prompt` gives them in an order that no other prompt has."""

    def __init__(self, names: Sequence[str], body: Sequence[Part], tail: str, tokens: int) -> None:
        """Take the words of the first line, the text, what fills it up, and what all of it costs."""
        self._names = tuple(names)
        # What stands last may melt into the template behind it: it is the same in every order.
        parts = [*body[:-1], *((Kind.FIXED, piece) for _, piece in body[-1:])]
        self._kinds = [kind for kind, _ in parts]
        self._pools = {kind: [piece for one, piece in parts if one is kind] for kind in Kind}
        self._tail = tail
        self.tokens = tokens

    def prompt(self, number: int, salt: str) -> tuple[str, int]:
        """Give prompt `number` with that salt, and its length.

        The numbers of one salt differ within the first two words, as long as there are orders left.
        """
        random = Random(f"{salt}/{number}")  # noqa: S311 - text, no secret
        text = [OPENING_WORD]
        if self._names:
            start = Random(salt).getrandbits(64)  # noqa: S311 - as above
            text += [*_ordered(self._names, (start + number) % factorial(len(self._names))), ":"]
        pools = {
            kind: iter(words if kind is Kind.FIXED else _turned(words, random))
            for kind, words in self._pools.items()
        }
        # A chain of maps: 50 ns a word, and a steady run writes its prompts while it measures.
        text.extend(map(next, map(pools.__getitem__, self._kinds)))
        text.append(self._tail)
        return "".join(text), self.tokens


def _ordered(words: Sequence[str], index: int) -> Iterator[str]:
    """Give the words in one of their orders; neighbouring ones differ in the first word."""
    left = list(words)
    while left:
        index, at = divmod(index, len(left))
        yield left.pop(at)


def _turned(words: list[str], random: Random) -> list[str]:
    """Give the words from another beginning, and so many apart."""
    if not words:
        return words
    begin, step = random.randrange(len(words)), random.randint(1, _MOST_STEP)
    turned = words[begin:] + words[:begin]
    return list(chain.from_iterable(turned[first::step] for first in range(step)))


Count = Callable[[str], Awaitable[int | None]]
"""Sends a prompt and gives its length as the server says; None where it says nothing."""


@dataclass(slots=True)
class _Found:
    """A passage that was counted."""

    pieces: int
    tail: str
    tokens: int


class PassageSearch:
    """Looks for a passage of a length; `find` does all of it."""

    def __init__(self, book: Book, length: int, count: Count, known: tuple[int, int]) -> None:
        """Take the length, how to count, and one prompt that was counted: its pieces and its tokens."""
        self._length = length
        self._count_prompt = count
        self._known = known
        self._each = known[1] / max(1, known[0])
        """Tokens of a piece, as far as known."""
        most = int(length / _FEWEST_A_PIECE)
        self._parts = list(zip(book.kinds[:most], book.pieces[:most], strict=True))
        self._names: tuple[str, ...] = ()
        self._counted = 0
        self._fillers: dict[str, int] = {}
        """What each filler costs, as far as known."""

    async def find(self) -> tuple[Passage | None, int | None, bool]:
        """Give the passage nearest to the length, the length that was counted, and whether it is exact.

        Without a passage the server does not count.
        """
        best: _Found | None = None
        random = Random(str(self._parts[:1]))  # noqa: S311 - text, no secret
        for names in _NAMES:
            if names and names * self._each > _NAMES_SHARE * self._length:
                continue
            self._names = tuple(f" {word}" for word in random.sample(NOUNS, names))
            best = await self._fit()
            if best is not None:
                break
        if best is None or not _FEWEST_A_PIECE <= self._each <= _MOST_A_PIECE:
            return None, None, False
        passage = self._passage(best.pieces, best.tail, best.tokens)
        exact = best.tokens == self._length
        for _ in range(_CHECKS - 1):
            exact = exact and await self._count(best.pieces, best.tail) == self._length
        return passage, best.tokens, exact

    async def _fit(self) -> _Found | None:
        """Bring the number of pieces as near as it goes and fill up; None: the first line is too long."""
        low: _Found | None = None
        high: _Found | None = None
        pieces = self._guess(low, high)
        while self._counted < MOST_REQUESTS:
            tokens = await self._count(pieces)
            if tokens is None:
                break
            self._learn(pieces, tokens)
            found = _Found(pieces, "", tokens)
            missing = self._length - tokens
            if missing == 0 or pieces == len(self._parts):
                return found
            low, high = (found, high) if missing > 0 else (low, found)
            if low is None and pieces == 0:
                return None if self._names else found
            if low is not None and (self._length - low.tokens <= _NEAR or _neighbours(low, high)):
                return await self._filled(low)
            pieces = self._guess(low, high)
        return low

    def _learn(self, pieces: int, tokens: int) -> None:
        """Learn what a piece costs from two prompts that were counted."""
        whole = pieces + len(self._names) + bool(self._names)
        before, self._known = self._known, (whole, tokens)
        if whole != before[0] and tokens != before[1]:
            each = (tokens - before[1]) / (whole - before[0])
            self._each = min(_MOST_A_PIECE, max(_FEWEST_A_PIECE, each))

    def _guess(self, low: _Found | None, high: _Found | None) -> int:
        """Give the number of pieces to try next."""
        if low is not None and high is not None:
            share = (self._length - low.tokens) / (high.tokens - low.tokens)
            guess = low.pieces + round(share * (high.pieces - low.pieces))
        else:
            whole, tokens = self._known
            guess = whole - len(self._names) - 1 + int((self._length - tokens) / self._each)
        least = 0 if low is None else low.pieces + 1
        most = len(self._parts) if high is None else high.pieces - 1
        return min(most, max(least, guess))

    async def _filled(self, low: _Found) -> _Found:
        """Fill up what is missing with short words, or leave out a piece or two and fill up more."""
        best, pieces = low, low.pieces
        while self._counted < MOST_REQUESTS and pieces >= 0:
            tokens = low.tokens if pieces == low.pieces else await self._count(pieces)
            if tokens is None:
                break
            missing = self._length - tokens
            for filler in FILLERS:
                tail = self._tail(missing)
                if self._counted >= MOST_REQUESTS or (not tail and filler in self._fillers):
                    continue
                got = await self._count(pieces, tail or filler * missing)
                if got == self._length:
                    return _Found(pieces, tail or filler * missing, got)
                if tail or got is None:
                    return best  # costs do not add up here
                if abs(self._length - got) < abs(self._length - best.tokens):
                    best = _Found(pieces, filler * missing, got)
                self._fillers[filler] = max(1, round((got - tokens) / missing))
            pieces -= 1
        return best

    def _tail(self, missing: int) -> str:
        """Give fillers whose known costs add up to what is missing; "" where none do."""
        costs = list(self._fillers.items())
        for first, cost in costs:
            for second, other in costs:
                for times in range(missing // cost, -1, -1):
                    rest = missing - times * cost
                    if rest % other == 0:
                        return first * times + second * (rest // other)
        return ""

    async def _count(self, pieces: int, tail: str = "") -> int | None:
        """Count a passage, each time in another order."""
        self._counted += 1
        prompt, _ = self._passage(pieces, tail, 0).prompt(self._counted, "length")
        return await self._count_prompt(prompt)

    def _passage(self, pieces: int, tail: str, tokens: int) -> Passage:
        return Passage(self._names, self._parts[:pieces], tail, tokens)


def _neighbours(low: _Found, high: _Found | None) -> bool:
    return high is not None and high.pieces - low.pieces == 1
