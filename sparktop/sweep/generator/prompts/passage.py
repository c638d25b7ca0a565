"""Prompts of an exact length for a server that only counts the tokens of complete prompts.

For such a server the token count of a single word is unknown. So a text (passage) is shortened or filled up
until the server counts the requested length. Every prompt then has the same words in another order: nouns
change places with nouns, verbs with verbs. This does not change the total, however many tokens a word has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain
from math import factorial
from random import Random

from msgspec import Struct

from sparktop.sweep.generator.prompts.prompts import OPENING_WORD, Book, Kind, Part
from sparktop.sweep.generator.prompts.word_list import NOUNS
from sparktop.sweep.terms.request_errors import RequestFailure

MOST_REQUESTS = 16
"""Maximum trial requests of a search; with a tokenizer that has one token per word, four are enough."""
FILLERS = (" so", " a", " I", " to", " in", " it", " of", " up")
"""Short words, each a single token in nearly every tokenizer."""
_NAMES = (12, 8, 5, 3, 0)
"""Numbers of words of the first line, tried in this order: 12 words have 479 million orders, but a short
prompt has room for fewer."""
_NAMES_SHARE = 0.5
"""Maximum part of the prompt that the first line may take."""
_NEAR = 4
"""If at most this number of tokens is missing, short filler words are appended instead of searching on."""
_CUT_GROWTH = 1.1
"""A text that is longer by this factor has more tokens, unless the server cuts it."""
_MOST_STEP = 7
_FEWEST_A_PIECE, _MOST_A_PIECE = 0.2, 10.0
"""Plausible range of tokens per word; a server that reports fewer or more does not really count tokens."""
_CHECKS = 2
"""Number of prompts with different word orders that must have the same length before it counts as exact."""


class Passage:
    """Words with a known total of tokens; `prompt` makes prompts of them that differ in word order."""

    def __init__(self, names: Sequence[str], body: Sequence[Part], tail: str, tokens: int) -> None:
        """Create a passage from the words `names` of its first line, the text `body`, and the filler `tail`.

        `tokens` is the number of tokens of the complete prompt, chat template included.
        """
        self._names = tuple(names)
        # The tokenizer may merge the last piece with the template after it, so every order has the same one.
        parts = [*body[:-1], *((Kind.FIXED, piece) for _, piece in body[-1:])]
        self._kinds = [kind for kind, _ in parts]
        self._pools = {kind: [piece for one, piece in parts if one is kind] for kind in Kind}
        self._tail = tail
        self.tokens = tokens

    def prompt(self, number: int, salt: str) -> tuple[str, int]:
        """Return (text of a prompt, its length in tokens); `number` and `salt` determine its word order.

        Prompts with the same salt and different numbers differ within the first two words, until all orders
        of the first line are used. The same arguments always return the same prompt.
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
        # A chain of maps takes 50 ns per word, and a steady run writes prompts while it measures.
        text.extend(map(next, map(pools.__getitem__, self._kinds)))
        text.append(self._tail)
        return "".join(text), self.tokens


def _ordered(words: Sequence[str], index: int) -> Iterator[str]:
    """Yield the words in permutation number `index`; consecutive permutations begin with different words."""
    left = list(words)
    while left:
        index, at = divmod(index, len(left))
        yield left.pop(at)


def _turned(words: list[str], random: Random) -> list[str]:
    """Return the words in a random order that is fast to make.

    The list is rotated by a random number of words. Then every n-th word is selected, beginning with the
    first word, then with the second, up to the n-th; n is random too.
    """
    if not words:
        return words
    begin, step = random.randrange(len(words)), random.randint(1, _MOST_STEP)
    turned = words[begin:] + words[:begin]
    return list(chain.from_iterable(turned[first::step] for first in range(step)))


Count = Callable[[str], Awaitable[int | None]]
"""Sends a prompt and returns its length in tokens as the server reports it; None if the server reports
none. Raises `PromptRefusedError` if the server refuses it as too long."""


class PromptRefusedError(Exception):
    """The server refuses a prompt because it is too long for its context; `failure` has its words."""

    def __init__(self, failure: RequestFailure) -> None:
        """Keep `failure`."""
        super().__init__(failure.message)
        self.failure = failure


class _Found(Struct):
    """A passage whose tokens the server has counted.

    It has the first `pieces` words and punctuation marks of the text, and the filler words `tail` at its end.
    """

    pieces: int
    tail: str
    tokens: int


class PassageSearch:
    """Search for a passage with a given number of tokens; `find` executes the search."""

    def __init__(self, book: Book, length: int, count: Count, known: tuple[int, int]) -> None:
        """Prepare to search for a passage of `length` tokens made of words of `book`.

        `count` asks the server for the tokens of a prompt. `known` is (number of words, of tokens)
        of an earlier prompt.
        """
        self._length = length
        self._count_prompt = count
        self._known = known
        self._each = known[1] / max(1, known[0])
        """Estimate of the tokens per word."""
        most = int(length / _FEWEST_A_PIECE)
        self._parts = list(zip(book.kinds[:most], book.pieces[:most], strict=True))
        self._names: tuple[str, ...] = ()
        self._counted = 0
        self.refusal: RequestFailure | None = None
        """The refusal of a prompt that was tried; None if none was refused."""
        self._fillers: dict[str, int] = {}
        """Tokens of each filler word that was tried."""

    @property
    def tokens_per_piece(self) -> float:
        """Tokens of a further word or punctuation mark, the chat template not included."""
        return self._each

    async def find(self) -> tuple[Passage | None, int | None, bool]:
        """Return (passage nearest to `length` tokens, its number of tokens, whether it is exactly `length`).

        The server counts the tokens in complete prompts. Return (None, None, False) if the server reports no
        counts, or numbers that cannot be token counts because they are far too low or too high per word.
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
        """Vary the number of words until the length is met or nearly met, then append filler words.

        Return the best passage; None if the first line alone is too long or the server does not count tokens.
        """
        low: _Found | None = None
        high: _Found | None = None
        pieces = self._guess(low, high)
        while self._counted < MOST_REQUESTS:
            tokens = await self._count(pieces)
            if tokens is None:
                break
            if low is not None and tokens == low.tokens and pieces > _CUT_GROWTH * low.pieces:
                # The server cuts what is longer: of prompts of the length asked for it would count as much.
                return _Found(self._wanted_pieces(), "", tokens)
            if tokens <= self._length or self.refusal is None:  # else it may be an estimate
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
        """Update the estimate of tokens per word by comparing the newest prompt with the previous one.

        The newest prompt has `pieces` words and punctuation marks beside its first line, and `tokens` tokens.
        """
        whole = pieces + len(self._names) + bool(self._names)
        before, self._known = self._known, (whole, tokens)
        if whole != before[0] and tokens != before[1]:
            each = (tokens - before[1]) / (whole - before[0])
            self._each = min(_MOST_A_PIECE, max(_FEWEST_A_PIECE, each))

    def _wanted_pieces(self) -> int:
        """Return the pieces of a text of the wanted length, by the estimate of tokens per word."""
        return min(len(self._parts), max(0, round(self._length / self._each) - len(self._names) - 1))

    def _guess(self, low: _Found | None, high: _Found | None) -> int:
        """Return the number of pieces (words and punctuation marks) to try next.

        If both `low` (too few tokens) and `high` (too many tokens) are known, interpolate between them;
        otherwise use the estimate of tokens per word.
        """
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
        """Append filler words to `low`, which has too few tokens, and return the best passage found.

        If no filler gives exactly the requested length, remove the last word of the text and try again with
        more filler words, until the length is exact or the limit of trial requests is reached.
        """
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
                    return best  # the costs of fillers do not add up here
                if abs(self._length - got) < abs(self._length - best.tokens):
                    best = _Found(pieces, filler * missing, got)
                self._fillers[filler] = max(1, round((got - tokens) / missing))
            pieces -= 1
        return best

    def _tail(self, missing: int) -> str:
        """Return filler words of one or two kinds with `missing` tokens in total.

        Only filler words with a known token count are used. Return "" if no combination of them fits.
        """
        costs = list(self._fillers.items())
        for first, cost in costs:
            for second, other in costs:
                for times in range(missing // cost, -1, -1):
                    rest = missing - times * cost
                    if rest % other == 0:
                        return first * times + second * (rest // other)
        return ""

    async def _count(self, pieces: int, tail: str = "") -> int | None:
        """Ask the server for the number of tokens of a passage; None if the server reports none.

        Of a prompt that it refuses return an estimate, which is more than the length that is searched for.
        The passage has the first `pieces` words and punctuation marks of the text, in a new order at each
        call, and the filler `tail`.
        """
        self._counted += 1
        prompt, _ = self._passage(pieces, tail, 0).prompt(self._counted, "length")
        try:
            return await self._count_prompt(prompt)
        except PromptRefusedError as error:
            self.refusal = error.failure
            whole, tokens = self._known
            more = pieces + len(self._names) + bool(self._names) - whole
            return max(self._length + 1, tokens + round(more * self._each))

    def _passage(self, pieces: int, tail: str, tokens: int) -> Passage:
        return Passage(self._names, self._parts[:pieces], tail, tokens)


def _neighbours(low: _Found, high: _Found | None) -> bool:
    return high is not None and high.pieces - low.pieces == 1
