"""Prompts of natural-looking English with an exact number of tokens, each of them new.

A random-token prompt misleads speculative decoding and the routing of experts; a prompt that was sent before
is answered from the prefix cache. So a book of plain sentences is written from a word list, and each prompt
is a slice of it from a random place, behind a first line that no other prompt has.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping
from random import Random

from sparktop.sweep.word_list import ADJECTIVES, ADVERBS, NOUNS, OPENINGS, PLACES, VERBS

_OPENING_WORD = "Notes"
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
        while len(pieces) < least_pieces:
            self.starts.append(len(pieces))
            pieces += _sentence(random)
        self.pieces = pieces * 2
        self.text = "".join(self.pieces)
        self.offsets = array("q", [0])
        """Where each piece begins in the text, and where the last one ends."""
        for piece in self.pieces:
            self.offsets.append(self.offsets[-1] + len(piece))


class PromptMaker:
    """Makes prompts of one length out of a book."""

    def __init__(self, book: Book, tokens: PromptTokens) -> None:
        """Take a book and what its pieces cost."""
        self._book = book
        self._tokens = tokens
        self._upto = array("d", [0.0])
        """Cost of all pieces before each."""
        of = tokens.of
        for piece in book.pieces:
            self._upto.append(self._upto[-1] + of(piece))

    def prompt(self, length: int, number: int, salt: str) -> tuple[str, int]:
        """Give prompt `number` with that salt, `length` tokens long, and how long it should come out.

        The chat template's tokens count; a length below those gives the shortest prompt there is.
        """
        random = Random(f"{salt}/{number}")  # noqa: S311 - text, no secret
        left = length - self._tokens.overhead
        text = [_OPENING_WORD]
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


def _sentence(random: Random) -> list[str]:
    """Write one of three kinds of sentence."""
    pick = random.choice
    subject = [" the", f" {pick(ADJECTIVES)}", f" {pick(NOUNS)}"]
    place = _split(pick(PLACES))
    match random.randrange(3):
        case 0:
            body = [" The", *subject[1:], f" {pick(VERBS)}", f" {pick(ADVERBS)}", *place]
        case 1:
            other = [" a", f" {pick(NOUNS)}", f" {pick(VERBS)}"]
            body = [*_split(pick(OPENINGS)), ",", *subject, f" {pick(VERBS)}", ",", " and", *other, *place]
        case _:
            other = [" but", " the", f" {pick(NOUNS)}", f" {pick(VERBS)}", f" {pick(ADVERBS)}"]
            body = [" Nobody", " knew", " why", *subject, f" {pick(VERBS)}", *place, ",", *other]
    return [*body, "."]


def _split(phrase: str) -> list[str]:
    return [f" {word}" for word in phrase.split()]
