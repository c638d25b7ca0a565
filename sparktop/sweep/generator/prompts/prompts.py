"""Prompts of natural-looking English with an exact number of tokens, no two alike.

Random tokens would mislead speculative decoding and expert routing, and a prompt that was sent before would
be answered from the prefix cache. So a book of plain sentences is generated from a word list. Each prompt is
a slice of it from a random place, after a first line that no other prompt has.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate
from random import Random

from sparktop.sweep.generator.prompts.word_list import ADJECTIVES, ADVERBS, NOUNS, OPENINGS, PLACES, VERBS

OPENING_WORD = "Notes"
"""First word of every prompt."""
_SMALL_WORDS = ("the", "The", "a", "and", "but", "Nobody", "knew", "why")
_LEAST_PIECES = 60_000
"""Minimum number of pieces in the book: slices then begin at one of about 5,000 sentences."""
_NAMES = (*NOUNS, *ADJECTIVES)
_ROUNDING = 1e-9
_NUMBER_WORDS = 3
"""Words of the first line that encode the request's number: enough for millions of requests."""
_RANDOM_WORDS = 3
"""Random words of the first line, which depend on the run's salt."""
FILLER = " so"
"""A short word that is a single token for every tokenizer trained on English; fills a prompt up."""


NewPrompt = Callable[[int, str], tuple[str, int]]
"""Returns the prompt for a request number and a salt, with its expected length in tokens."""


class Kind(StrEnum):
    """The grammatical role of a word: words of the same kind may be exchanged for one another."""

    FIXED = ""
    """Words that hold the sentence together: articles, phrases of place and time, punctuation."""
    NOUN = "n"
    ADJECTIVE = "a"
    VERB = "v"
    ADVERB = "d"


Part = tuple[Kind, str]
"""A piece of a sentence with its kind."""
_COMMA: Part = (Kind.FIXED, ",")


class PromptTokens:
    """The cost in tokens of the pieces of a prompt, for one model and API."""

    def __init__(
        self, overhead: float = 0.0, costs: Mapping[str, float] | None = None, otherwise: float = 1.0
    ) -> None:
        """Keep the fixed cost of every prompt and the cost of each piece; unknown pieces cost `otherwise`."""
        self.overhead = overhead
        """Tokens of the chat template and the first word."""
        self.costs: Mapping[str, float] = costs or {}
        self._otherwise = otherwise

    def of(self, piece: str) -> float:
        """Return the cost of a piece in tokens: a word with the space before it, or a punctuation mark."""
        return self.costs.get(piece, self._otherwise)


class Book:
    """A generated text in pieces, repeated once so that a slice may begin at any sentence."""

    def __init__(self, seed: int, least_pieces: int = _LEAST_PIECES) -> None:
        """Generate a book of at least `least_pieces` pieces; the same seed gives the same book."""
        random = Random(f"sparktop book {seed}")  # noqa: S311 - text, no secret
        pieces: list[str] = []
        self.starts: list[int] = []
        """Index of the first piece of each sentence, in the first copy."""
        kinds: list[Kind] = []
        while len(pieces) < least_pieces:
            self.starts.append(len(pieces))
            for kind, piece in _sentence(random):
                kinds.append(kind)
                pieces.append(piece)
        self.pieces = pieces * 2
        self.kinds = kinds * 2
        """Kind of each piece."""
        self.distinct = frozenset(pieces)
        self.text = "".join(self.pieces)
        self.offsets = array("q", accumulate(map(len, self.pieces), initial=0))
        """Character offset at which each piece begins, and the offset of the text's end."""


@lru_cache(maxsize=2)
def book_of(seed: int, least_pieces: int) -> Book:
    """Return the book of a seed, cached: generating it takes 60 ms, and every prompt length needs it."""
    return Book(seed, least_pieces)


class PromptMaker:
    """Make prompts of a given length out of a book."""

    def __init__(self, book: Book, tokens: PromptTokens) -> None:
        """Use `book`; `tokens` holds the cost of its pieces."""
        self._book = book
        self._tokens = tokens
        cost = {piece: tokens.of(piece) for piece in book.distinct}
        self._upto = array("d", accumulate(map(cost.__getitem__, book.pieces), initial=0.0))
        """Cumulative cost of the pieces in front of each."""

    def prompt(self, length: int, number: int, salt: str) -> tuple[str, int]:
        """Return prompt `number` for a salt, `length` tokens long, and its expected length in tokens.

        `length` includes the tokens of the chat template; below those the result is the shortest prompt
        possible.
        """
        random = Random(f"{salt}/{number}")  # noqa: S311 - text, no secret
        left = length - self._tokens.overhead
        text = [OPENING_WORD]
        for piece in _first_line(number, random):
            cost = self._tokens.of(piece)
            if cost > left:
                break
            text.append(piece)
            left -= cost
        book, upto = self._book, self._upto
        begin = random.choice(book.starts)
        end = max(begin, bisect_right(upto, upto[begin] + left, lo=begin) - 1)
        text.append(book.text[book.offsets[begin] : book.offsets[end]])
        left -= upto[end] - upto[begin]
        filler = self._tokens.of(FILLER)
        fillers = int(left / filler + _ROUNDING) if filler > 0 and left > 0 else 0
        text.append(FILLER * fillers)
        left -= fillers * filler
        return "".join(text), round(length - left)


def pieces() -> list[str]:
    """Return every piece that a prompt can contain, except the first word."""
    words = {piece for part in (OPENINGS, PLACES) for phrase in part for piece in _split(phrase)}
    words |= {f" {word}" for word in (*_NAMES, *VERBS, *ADVERBS, *_SMALL_WORDS)}
    return sorted(words | {FILLER, ".", ",", ":"})


def _first_line(number: int, random: Random) -> list[str]:
    line = []
    for _ in range(_NUMBER_WORDS):
        number, digit = divmod(number, len(_NAMES))
        line.append(f" {_NAMES[digit]}")
    line += [f" {random.choice(_NAMES)}" for _ in range(_RANDOM_WORDS)]
    return [*line, ":"]


def _sentence(random: Random) -> list[Part]:
    """Return a random sentence of one of three forms."""
    noun, adjective = _picker(random, Kind.NOUN, NOUNS), _picker(random, Kind.ADJECTIVE, ADJECTIVES)
    verb, adverb = _picker(random, Kind.VERB, VERBS), _picker(random, Kind.ADVERB, ADVERBS)
    subject = [(Kind.FIXED, " the"), adjective(), noun()]
    place = _fixed(random.choice(PLACES))
    match random.randrange(3):
        case 0:
            body = [(Kind.FIXED, " The"), *subject[1:], verb(), adverb(), *place]
        case 1:
            other = [(Kind.FIXED, " a"), noun(), verb()]
            opening = _fixed(random.choice(OPENINGS))
            body = [*opening, _COMMA, *subject, verb(), _COMMA, (Kind.FIXED, " and"), *other, *place]
        case _:
            other = [*_fixed("but the"), noun(), verb(), adverb()]
            body = [*_fixed("Nobody knew why"), *subject, verb(), *place, _COMMA, *other]
    return [*body, (Kind.FIXED, ".")]


def _picker(random: Random, kind: Kind, words: Sequence[str]) -> Callable[[], Part]:
    return lambda: (kind, f" {random.choice(words)}")


def _fixed(phrase: str) -> list[Part]:
    return [(Kind.FIXED, piece) for piece in _split(phrase)]


def _split(phrase: str) -> list[str]:
    return [f" {word}" for word in phrase.split()]
