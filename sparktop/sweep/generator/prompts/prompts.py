"""Prompts of natural-looking English with an exact number of tokens, no two of them equal.

Random tokens would distort speculative decoding and expert routing, and a prompt that was sent before would
be found in the prefix cache. So a long text of plain sentences, the book, is generated from a word list. Each
prompt is a slice of the book from a random sentence on, after a first line that no other prompt has. Prompts
are made of pieces: a piece is a word with the space before it, or a punctuation mark.
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
from sparktop.sweep.plan.prompt_file import Prompt

OPENING_WORD = "Notes"
"""First word of every prompt."""
_SMALL_WORDS = ("the", "The", "a", "and", "but", "Nobody", "knew", "why")
_LEAST_PIECES = 60_000
"""Minimum number of pieces (words and punctuation marks) in the book, which then has about 5,000
sentences."""
_NAMES = (*NOUNS, *ADJECTIVES)
_ROUNDING = 1e-9
_NUMBER_WORDS = 3
"""Number of words of the first line that encode the request's number: enough for millions of requests."""
_RANDOM_WORDS = 3
"""Number of further words of the first line, chosen at random from the run's salt."""
FILLER = " so"
"""Word appended to fill a prompt up: a single token for every tokenizer trained on English."""


NewPrompt = Callable[[int, str], tuple[Prompt, int | None]]
"""Returns (prompt, its expected length in tokens; None if unknown) for a request number and a salt."""


class Kind(StrEnum):
    """The grammatical role of a word: words of equal role may change places in a sentence."""

    FIXED = ""
    """Pieces that must stay where they are: articles, phrases of place and time, punctuation."""
    NOUN = "n"
    ADJECTIVE = "a"
    VERB = "v"
    ADVERB = "d"


Part = tuple[Kind, str]
"""A piece of a sentence (word or punctuation mark) with its grammatical role."""
_COMMA: Part = (Kind.FIXED, ",")


class PromptTokens:
    """The number of tokens of each piece of a prompt, for one model and API.

    A piece is a word with the space before it, or a punctuation mark.
    """

    def __init__(
        self, overhead: float = 0.0, costs: Mapping[str, float] | None = None, otherwise: float = 1.0
    ) -> None:
        """Store `overhead`, the extra tokens of each prompt, and `costs`, the number of tokens of each piece.

        A piece is a word with the space before it, or a punctuation mark; one that is not in `costs` has
        `otherwise` tokens. The overhead is the chat template and the first word of a prompt.
        """
        self.overhead = overhead
        """Tokens of the chat template and the first word of a prompt."""
        self.costs: Mapping[str, float] = costs or {}
        self._otherwise = otherwise

    def with_overhead(self, overhead: float) -> PromptTokens:
        """Return the same counts of words with another overhead of each prompt."""
        return PromptTokens(overhead, self.costs, self._otherwise)

    def of(self, piece: str) -> float:
        """Return the tokens of a piece: a word with the space before it, or a punctuation mark."""
        return self.costs.get(piece, self._otherwise)


class Book:
    """A generated English text of which prompts are slices, as a list of words and punctuation marks.

    The text is contained twice in a row, so that a slice of full length may begin at any sentence.
    """

    def __init__(self, seed: int, least_pieces: int = _LEAST_PIECES) -> None:
        """Generate a text of at least `least_pieces` words and punctuation marks.

        The same `seed` always gives the same text.
        """
        random = Random(f"sparktop book {seed}")  # noqa: S311 - text, no secret
        pieces: list[str] = []
        self.starts: list[int] = []
        """Index in `pieces` of the first piece of each sentence, in the first copy of the text."""
        kinds: list[Kind] = []
        while len(pieces) < least_pieces:
            self.starts.append(len(pieces))
            for kind, piece in _sentence(random):
                kinds.append(kind)
                pieces.append(piece)
        self.pieces = pieces * 2
        self.kinds = kinds * 2
        """Grammatical role of each piece."""
        self.distinct = frozenset(pieces)
        self.text = "".join(self.pieces)
        self.offsets = array("q", accumulate(map(len, self.pieces), initial=0))
        """Character offset in `text` at which each piece begins, and the offset of the text's end."""


@lru_cache(maxsize=2)
def book_of(seed: int, least_pieces: int) -> Book:
    """Return `Book(seed, least_pieces)` from a cache, because generating a book takes 60 ms."""
    return Book(seed, least_pieces)


class PromptMaker:
    """Makes prompts with a given number of tokens out of a generated text (the book)."""

    def __init__(self, book: Book, tokens: PromptTokens) -> None:
        """Make prompts of the text `book`; `tokens` has the token count of each word and punctuation mark."""
        self._book = book
        self._tokens = tokens
        cost = {piece: tokens.of(piece) for piece in book.distinct}
        self._upto = array("d", accumulate(map(cost.__getitem__, book.pieces), initial=0.0))
        """For each piece of the book, the number of tokens of all pieces before it."""

    def prompt(self, length: int, number: int, salt: str) -> tuple[str, int]:
        """Return (text of a prompt, its expected length in tokens). `number` and `salt` determine the text.

        The prompt has `length` tokens including the chat template. If the shortest possible prompt is longer
        than that, it is returned. Prompts of different numbers have different first lines, if `length` leaves
        room for a first line.
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
        words, used = self.words(random.choice(self._book.starts), left)
        text.append(words)
        left -= used
        return "".join(text), round(length - left)

    def words(self, begin: int, most: float) -> tuple[str, float]:
        """Return (text of the book from piece `begin` on, its tokens): at most `most` tokens, as a rule all.

        Filler words stand for the tokens that the next piece of the book is too long for.
        """
        book, upto = self._book, self._upto
        end = max(begin, bisect_right(upto, upto[begin] + most, lo=begin) - 1)
        used = upto[end] - upto[begin]
        filler = self._tokens.of(FILLER)
        fillers = int((most - used) / filler + _ROUNDING) if filler > 0 and most > used else 0
        text = book.text[book.offsets[begin] : book.offsets[end]] + FILLER * fillers
        return text, used + fillers * filler


def pieces() -> list[str]:
    """Return every word and punctuation mark that a prompt can contain, except its first word, sorted.

    Words include the space before them.
    """
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
    """Return a random sentence of one of three forms, as a list of (grammatical role, text).

    Each text is a word with the space before it, or a punctuation mark.
    """
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
