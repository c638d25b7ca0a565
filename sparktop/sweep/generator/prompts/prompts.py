"""Prompts of natural-looking English with an exact number of tokens, each of them new.

A random-token prompt misleads speculative decoding and the routing of experts; a prompt that was sent before
is answered from the prefix cache. So a book of plain sentences is written from a word list, and each prompt
is a slice of it from a random place, behind a first line that no other prompt has.
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
"""Every prompt begins with it."""
_SMALL_WORDS = ("the", "The", "a", "and", "but", "Nobody", "knew", "why")
_LEAST_PIECES = 60_000
"""Of the book: a slice begins at one of 5,000 sentences."""
_NAMES = (*NOUNS, *ADJECTIVES)
_ROUNDING = 1e-9
_NUMBER_WORDS = 3
"""Words of the first line that tell the request's number: millions of them."""
_RANDOM_WORDS = 3
"""And as many that depend on the run."""
FILLER = " so"
"""A short word that is one token for every tokenizer that was trained on English."""


NewPrompt = Callable[[int, str], tuple[str, int]]
"""Gives the prompt of a number and a salt, and how many tokens it should have."""


class Kind(StrEnum):
    """What a word is in its sentence: words of one kind may change places."""

    FIXED = ""
    """Holds the sentence together: articles, phrases of place and time, marks."""
    NOUN = "n"
    ADJECTIVE = "a"
    VERB = "v"
    ADVERB = "d"


Part = tuple[Kind, str]
"""A piece of a sentence and its kind."""
_COMMA: Part = (Kind.FIXED, ",")


class PromptTokens:
    """What the pieces of a prompt cost in tokens, for one model and interface."""

    def __init__(
        self, overhead: float = 0.0, costs: Mapping[str, float] | None = None, otherwise: float = 1.0
    ) -> None:
        """Take what every prompt costs and the cost of pieces; those not among them cost `otherwise`."""
        self.overhead = overhead
        """Of template and opening word."""
        self.costs: Mapping[str, float] = costs or {}
        self._otherwise = otherwise

    def of(self, piece: str) -> float:
        """Give the cost of a piece: a word with the space in front of it, or a mark behind a word."""
        return self.costs.get(piece, self._otherwise)


class Book:
    """A text in pieces, twice over so that a slice may begin anywhere."""

    def __init__(self, seed: int, least_pieces: int = _LEAST_PIECES) -> None:
        """Write a book of at least so many pieces; the same seed gives the same book."""
        random = Random(f"sparktop book {seed}")  # noqa: S311 - text, no secret
        pieces: list[str] = []
        self.starts: list[int] = []
        """Index of each sentence's first piece, of the first copy."""
        kinds: list[Kind] = []
        while len(pieces) < least_pieces:
            self.starts.append(len(pieces))
            for kind, piece in _sentence(random):
                kinds.append(kind)
                pieces.append(piece)
        self.pieces = pieces * 2
        self.kinds = kinds * 2
        """What kind of word each piece is."""
        self.distinct = frozenset(pieces)
        self.text = "".join(self.pieces)
        self.offsets = array("q", accumulate(map(len, self.pieces), initial=0))
        """Where each piece begins in the text, and where the last one ends."""


@lru_cache(maxsize=2)
def book_of(seed: int, least_pieces: int) -> Book:
    """Give the book of a seed, written once: 60 ms that each length of each target would cost again."""
    return Book(seed, least_pieces)


class PromptMaker:
    """Makes prompts of one length out of a book."""

    def __init__(self, book: Book, tokens: PromptTokens) -> None:
        """Take a book and what its pieces cost."""
        self._book = book
        self._tokens = tokens
        cost = {piece: tokens.of(piece) for piece in book.distinct}
        self._upto = array("d", accumulate(map(cost.__getitem__, book.pieces), initial=0.0))
        """Cost of all pieces before each."""

    def prompt(self, length: int, number: int, salt: str) -> tuple[str, int]:
        """Give prompt `number` with that salt, `length` tokens long, and how long it should come out.

        The chat template's tokens count; a length below those gives the shortest prompt there is.
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
    """Give every piece that a prompt can hold, the opening word apart."""
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
    """Write one of three kinds of sentence."""
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
