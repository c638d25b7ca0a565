"""Prompts of natural-looking English with an exact number of tokens, no two of them equal."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate, chain, count
from math import factorial
from random import Random

from msgspec import Struct

from sparktop.model.failure import RequestFailure
from sparktop.sweep.plan.own_requests import Prompt
from sparktop.sweep.plan.traces import TracedRequest
from sparktop.sweep.terms.request_errors import RequestFailedError

# Words that prompts are made of: common English, each a single token in most tokenizers.


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NOUNS = _words(
    """
    river road house garden teacher doctor farmer child village bridge window table letter story
    market station mountain forest island ship train engine wheel field horse bird dog cat fish tree
    flower stone wall door room kitchen school church hospital office factory machine clock lamp
    book page word song dance game team player captain king queen soldier sailor painter writer
    singer student neighbor friend brother sister father mother uncle baker driver pilot guard judge
    lawyer nurse worker engineer scientist professor artist cook street city town country valley
    lake ocean beach storm wind rain snow cloud sun moon star night morning winter summer spring
    voice question answer idea plan problem picture map box bag coat hat shoe ring chair
    """
)
ADJECTIVES = _words(
    """
    old young small large quiet loud bright dark warm cold early late strong weak green red blue
    white black golden silver heavy light narrow wide long short deep high low new famous simple
    strange happy sad angry calm careful brave clever honest lazy busy empty full open hidden
    distant local ancient modern rich poor soft hard dry wet clean broken perfect rare common sharp
    round flat
    """
)
VERBS = _words(
    """
    waited walked worked stood turned moved slept listened laughed smiled arrived returned stopped
    started changed appeared disappeared remained waved danced played sang spoke wrote studied
    traveled rested watched looked learned helped failed succeeded agreed continued finished paused
    jumped ran fell rose grew
    """
)
ADVERBS = _words(
    """
    slowly quickly quietly often again never always later together alone carefully suddenly finally
    still today
    """
)
PLACES = (
    "near the river",
    "behind the old wall",
    "under a wide bridge",
    "across the field",
    "at the station",
    "in the small kitchen",
    "on the far side of the lake",
    "beside the road to the village",
    "above the market",
    "before the storm",
    "after the long winter",
    "during the night",
    "without a word",
    "with great care",
    "between two houses",
    "along the beach",
)


# Prompts of natural-looking English with an exact number of tokens, no two of them equal.
#
# Random tokens would distort speculative decoding and expert routing, and a prompt that was sent before
# would be found in the prefix cache. So a long text of plain sentences, the book, is generated from a word
# list. Each prompt is a slice of the book from a random sentence on, after a first line that no other
# prompt has. Prompts are made of pieces: a piece is a word with the space before it, or a punctuation mark.


OPENING_WORD = "Notes"
"""First word of every prompt."""
_SMALL_WORDS = ("the", "The", "but", "Nobody", "knew", "why")
"""Words of the sentences that are not drawn."""
_LEAST_PIECES = 60_000
"""Minimum number of pieces (words and punctuation marks) in the book, which then has about 5,000
sentences."""
_NAMES = (*NOUNS, *ADJECTIVES)
"""Words that the beginnings of blocks are drawn from."""
_ROUNDING = 1e-9
"""Part of a filler word that rounding may lose."""
_OWN_BLOCK = 512
"""Tokens of a block of a prompt that has no block ids."""
_DISTINCT = 4
"""Random words at the begin of a block; together with its sentences they distinguish 10^12 blocks."""
_LEAST = 1e-6
"""Tokens below which nothing is left to fill."""
FILLER = " so"
"""Word appended to fill a prompt up: a single token for every tokenizer trained on English."""


NewPrompt = Callable[[int, str], tuple[Prompt, int | None]]
"""Returns (prompt, its expected length in tokens; None if unknown) for a request number and a salt."""


class WordKind(StrEnum):
    """The grammatical role of a word: words of equal role may change places in a sentence."""

    FIXED = ""
    """Pieces that must stay where they are: articles, phrases of place and time, punctuation."""
    NOUN = "n"
    ADJECTIVE = "a"
    VERB = "v"
    ADVERB = "d"


PromptPart = tuple[WordKind, str]
"""A piece of a sentence (word or punctuation mark) with its grammatical role."""


class PromptTokens(Struct, frozen=True):
    """The number of tokens of each piece of a prompt, for one model and API.

    A piece is a word with the space before it, or a punctuation mark.
    """

    overhead: float = 0.0
    """Tokens of the chat template and the first word of a prompt."""
    costs: Mapping[str, float] = {}
    """The number of tokens of each piece."""
    otherwise: float = 1.0
    """Tokens of a piece that is not in `costs`."""

    def of(self, piece: str) -> float:
        """Return the tokens of a piece: a word with the space before it, or a punctuation mark."""
        return self.costs.get(piece, self.otherwise)


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
        kinds: list[WordKind] = []
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
    """Makes prompts with a given number of tokens out of a generated text (the book).

    A prompt is made of blocks, each of a few random words and a slice of the book, which depend on nothing
    but a key. Equal keys give equal text, hence equal tokens, so that a server's prefix cache finds the same
    blocks that it would have found in recorded traffic.
    """

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
        than that, it is returned.
        """
        return self.text(length, length, iter([f"{salt}/{number}"]))

    def traced(self, request: TracedRequest, salt: str) -> tuple[str, int | None]:
        """Return (prompt of a recorded request, its expected length in tokens; None if unknown)."""
        if request.text is not None:
            return request.text, None
        keys = (f"{salt}/{key}" for key in _block_keys(request))
        return self.text(request.prompt_tokens or 1, request.block_tokens or _OWN_BLOCK, keys)

    def text(
        self, length: int, block_tokens: int, keys: Iterator[str], *, is_bare: bool = False
    ) -> tuple[str, int]:
        """Return (text, its expected length in tokens) of blocks with these keys.

        The text has `length` tokens including the chat template, or without it if `is_bare`; its last block
        is cut. If the keys end before, it is shorter.
        """
        overhead = 1.0 if is_bare else self._tokens.overhead  # the first word is a token
        tokens_left = length - overhead
        parts = [OPENING_WORD]
        for key in keys:
            if tokens_left < _LEAST:
                break
            text, used_tokens = self._block(key, min(tokens_left, float(block_tokens)))
            if not text:
                break  # not even one word fits
            parts.append(text)
            tokens_left -= used_tokens
        return "".join(parts), round(length - tokens_left)

    def _block(self, key: str, limit: float) -> tuple[str, float]:
        """Return (text, tokens) of a block, cut to `limit` tokens.

        Filler words stand for the tokens that the next piece of the book is too long for.
        """
        random, book, tokens_upto = Random(key), self._book, self._upto  # noqa: S311 - text, no secret
        begin, tokens_left = random.choice(book.starts), limit
        parts = []
        for _ in range(_DISTINCT):
            word = f" {random.choice(_NAMES)}"
            cost = self._tokens.of(word)
            if cost > tokens_left:
                break
            parts.append(word)
            tokens_left -= cost
        end = max(begin, bisect_right(tokens_upto, tokens_upto[begin] + tokens_left, lo=begin) - 1)
        tokens_left -= tokens_upto[end] - tokens_upto[begin]
        filler = self._tokens.of(FILLER)
        fillers = int(tokens_left / filler + _ROUNDING) if filler > 0 and tokens_left > 0 else 0
        parts += [book.text[book.offsets[begin] : book.offsets[end]], FILLER * fillers]
        return "".join(parts), limit - tokens_left + fillers * filler


def _block_keys(request: TracedRequest) -> Iterator[str]:
    """Yield the keys of the request's blocks: its ids, and then keys of its own without end."""
    for block in request.blocks:
        yield f"{request.scope}:{block}"
    scope = request.scope if request.scope and not request.blocks else f"#{request.number}"
    for number in count():
        yield f"{scope}#{number}"


def pieces() -> list[str]:
    """Return every word and punctuation mark that a prompt can contain, except its first word, sorted.

    Words include the space before them.
    """
    words = {piece for phrase in PLACES for piece in _pieces_of(phrase)}
    words |= {f" {word}" for word in (*_NAMES, *VERBS, *ADVERBS, *_SMALL_WORDS)}
    return sorted(words | {FILLER, ".", ",", ":"})


def _sentence(random: Random) -> list[PromptPart]:
    """Return a random sentence of one of two forms, as a list of (grammatical role, text).

    Each text is a word with the space before it, or a punctuation mark.
    """
    noun, adjective = _picker(random, WordKind.NOUN, NOUNS), _picker(random, WordKind.ADJECTIVE, ADJECTIVES)
    verb, adverb = _picker(random, WordKind.VERB, VERBS), _picker(random, WordKind.ADVERB, ADVERBS)
    subject = [(WordKind.FIXED, " the"), adjective(), noun()]
    location = _fixed_pieces(random.choice(PLACES))
    if random.randrange(2):
        body = [(WordKind.FIXED, " The"), *subject[1:], verb(), adverb(), *location]
    else:
        other = [*_fixed_pieces("but the"), noun(), verb(), adverb()]
        comma = (WordKind.FIXED, ",")
        body = [*_fixed_pieces("Nobody knew why"), *subject, verb(), *location, comma, *other]
    return [*body, (WordKind.FIXED, ".")]


def _picker(random: Random, kind: WordKind, words: Sequence[str]) -> Callable[[], PromptPart]:
    return lambda: (kind, f" {random.choice(words)}")


def _fixed_pieces(phrase: str) -> list[PromptPart]:
    return [(WordKind.FIXED, piece) for piece in _pieces_of(phrase)]


def _pieces_of(phrase: str) -> list[str]:
    return [f" {word}" for word in phrase.split()]


# Prompts of an exact length for a server that only counts the tokens of complete prompts.
#
# For such a server the token count of a single word is unknown. So a text (passage) is shortened or filled
# up until the server counts the requested length. Every prompt then has the same words in another order:
# nouns change places with nouns, verbs with verbs. This does not change the total, however many tokens a
# word has.


MOST_REQUESTS = 16
"""Maximum trial requests of a search; with a tokenizer that has one token per word, four are enough."""
FILLERS = (" so", " a", " I", " to", " in", " it", " of", " up")
"""Short words, each a single token in nearly every tokenizer."""
_PASSAGE_NAMES = (12, 8, 5, 3, 0)
"""Numbers of words of the first line, tried in this order: 12 words have 479 million orders, but a short
prompt has room for fewer."""
_NAMES_SHARE = 0.5
"""Maximum part of the prompt that the first line may take."""
_NEAR = 4
"""If at most this number of tokens is missing, short filler words are appended instead of searching on."""
_CUT_GROWTH = 1.1
"""A text that is longer by this factor has more tokens, unless the server cuts it."""
_MOST_STEP = 7
"""Most words that are passed over when a list of words is reordered."""
_FEWEST_A_PIECE, _MOST_A_PIECE = 0.2, 10.0
"""Plausible range of tokens per word; a server that reports fewer or more does not really count tokens."""


class Passage:
    """Words with a known total of tokens; `prompt` makes prompts of them that differ in word order."""

    def __init__(self, names: Sequence[str], body: Sequence[PromptPart], tail: str = "") -> None:
        """Create a passage of the words `names` of its first line, the text `body`, and the filler `tail`."""
        self._names = tuple(names)
        self.pieces = len(body)
        """Words and punctuation marks of the text."""
        # The tokenizer may merge the last piece with the template after it, so every order has the same one.
        parts = [*body[:-1], *((WordKind.FIXED, piece) for _, piece in body[-1:])]
        self._kinds = [kind for kind, _ in parts]
        self._pools = {kind: [piece for role, piece in parts if role is kind] for kind in WordKind}
        self.tail = tail
        self.tokens = 0
        """Tokens of the complete prompt, chat template included; 0 until they are counted."""

    def prompt(self, number: int, salt: str) -> tuple[str, int]:
        """Return (text of a prompt, its length in tokens); `number` and `salt` determine its word order.

        Prompts with the same salt and different numbers differ within the first two words, until all orders
        of the first line are used. The same arguments always return the same prompt.
        """
        random = Random(f"{salt}/{number}")  # noqa: S311 - text, no secret
        text = [OPENING_WORD]
        if self._names:
            start = Random(salt).getrandbits(64)  # noqa: S311 - as above
            text += [*_permute(self._names, (start + number) % factorial(len(self._names))), ":"]
        pools = {
            kind: iter(words if kind is WordKind.FIXED else _shuffle_quickly(words, random))
            for kind, words in self._pools.items()
        }
        # A chain of maps takes 50 ns per word, and a steady run writes prompts while it measures.
        text.extend(map(next, map(pools.__getitem__, self._kinds)))
        text.append(self.tail)
        return "".join(text), self.tokens


def _permute(words: Sequence[str], index: int) -> Iterator[str]:
    """Yield the words in permutation number `index`; consecutive permutations begin with different words."""
    words_left = list(words)
    while words_left:
        index, position = divmod(index, len(words_left))
        yield words_left.pop(position)


def _shuffle_quickly(words: list[str], random: Random) -> list[str]:
    """Return the words in a random order that is fast to make.

    The list is rotated by a random number of words. Then every n-th word is selected, beginning with the
    first word, then with the second, up to the n-th; n is random too.
    """
    if not words:
        return words
    begin, step = random.randrange(len(words)), random.randint(1, _MOST_STEP)
    turned = words[begin:] + words[:begin]
    return list(chain.from_iterable(turned[start::step] for start in range(step)))


Count = Callable[[str], Awaitable[int | None]]
"""Sends a prompt and returns its length in tokens as the server reports it; None if the server reports
none. Raises `RequestFailedError` if the server refuses it as too long."""


class PassageSearch:
    """Search for a passage with a given number of tokens; `find` executes the search."""

    def __init__(self, book: Book, length: int, count: Count, counted: tuple[int, int]) -> None:
        """Prepare to search for a passage of `length` tokens made of words of `book`.

        `count` asks the server for the tokens of a prompt. `counted` is (number of words, of tokens)
        of an earlier prompt.
        """
        self._length = length
        self._count_prompt = count
        self._known = counted
        self.tokens_per_piece = counted[1] / max(1, counted[0])
        """Estimate of the tokens of a further word or punctuation mark, the chat template not included."""
        longest = int(length / _FEWEST_A_PIECE)
        self._parts = list(zip(book.kinds[:longest], book.pieces[:longest], strict=True))
        self._names: tuple[str, ...] = ()
        self._counted = 0
        self.refusal: RequestFailure | None = None
        """The refusal of a prompt that was tried; None if none was refused."""
        self._fillers: dict[str, int] = {}
        """Tokens of each filler word that was tried."""

    async def find(self) -> tuple[Passage | None, int | None, bool]:
        """Return (passage nearest to `length` tokens, its number of tokens, whether it is exactly `length`).

        The server counts the tokens in complete prompts. Return (None, None, False) if the server reports no
        counts, or numbers that cannot be token counts because they are far too low or too high per word.
        """
        best: Passage | None = None
        random = Random(str(self._parts[:1]))  # noqa: S311 - text, no secret
        for names in _PASSAGE_NAMES:
            if names and names * self.tokens_per_piece > _NAMES_SHARE * self._length:
                continue
            self._names = tuple(f" {word}" for word in random.sample(NOUNS, names))
            best = await self._search_length()
            if best is not None:
                break
        if best is None or not _FEWEST_A_PIECE <= self.tokens_per_piece <= _MOST_A_PIECE:
            return None, None, False
        exact = best.tokens == self._length
        if exact:  # prompts of another order must have the same length before it counts as exact
            again = await self._counted_passage(best.pieces, best.tail)
            exact = again is not None and again.tokens == self._length
        return best, best.tokens, exact

    async def _search_length(self) -> Passage | None:
        """Vary the number of words until the length is met or nearly met, then append filler words.

        Return the best passage; None if the first line alone is too long or the server does not count tokens.
        """
        shorter: Passage | None = None
        longer: Passage | None = None
        pieces = self._next_pieces(shorter, longer)
        while self._counted < MOST_REQUESTS:
            tried = await self._counted_passage(pieces)
            if tried is None:
                break
            tokens = tried.tokens
            if shorter is not None and tokens == shorter.tokens and pieces > _CUT_GROWTH * shorter.pieces:
                # The server cuts what is longer: of prompts of the length asked for it would count as much.
                wanted_pieces = round(self._length / self.tokens_per_piece) - len(self._names) - 1
                cut = Passage(self._names, self._parts[: max(0, wanted_pieces)])
                cut.tokens = tokens
                return cut
            if tokens <= self._length or self.refusal is None:  # else it may be an estimate
                self._update_estimate(pieces, tokens)
            missing_tokens = self._length - tokens
            if missing_tokens == 0 or pieces == len(self._parts):
                return tried
            shorter, longer = (tried, longer) if missing_tokens > 0 else (shorter, tried)
            if shorter is None and pieces == 0:
                return None if self._names else tried
            is_between = shorter is not None and longer is not None and longer.pieces - shorter.pieces == 1
            if shorter is not None and (is_between or self._length - shorter.tokens <= _NEAR):
                return await self._fill_up(shorter)
            pieces = self._next_pieces(shorter, longer)
        return shorter

    def _update_estimate(self, pieces: int, tokens: int) -> None:
        """Update the estimate of tokens per word by comparing the newest prompt with the previous one.

        The newest prompt has `pieces` words and punctuation marks beside its first line, and `tokens` tokens.
        """
        all_pieces = self._with_names(pieces)
        (pieces_before, tokens_before), self._known = self._known, (all_pieces, tokens)
        if all_pieces != pieces_before and tokens != tokens_before:
            tokens_each = (tokens - tokens_before) / (all_pieces - pieces_before)
            self.tokens_per_piece = min(_MOST_A_PIECE, max(_FEWEST_A_PIECE, tokens_each))

    def _with_names(self, pieces: int) -> int:
        """Return the number of pieces with those of the first line: the names and a mark behind them."""
        return pieces + len(self._names) + (1 if self._names else 0)

    def _next_pieces(self, low: Passage | None, high: Passage | None) -> int:
        """Return the number of pieces (words and punctuation marks) to try next.

        If both `low` (too few tokens) and `high` (too many tokens) are known, interpolate between them;
        otherwise use the estimate of tokens per word.
        """
        if low is not None and high is not None:
            share = (self._length - low.tokens) / (high.tokens - low.tokens)
            guess = low.pieces + round(share * (high.pieces - low.pieces))
        else:
            whole_pieces, tokens = self._known
            guess = whole_pieces - len(self._names) - 1 + int((self._length - tokens) / self.tokens_per_piece)
        lowest = 0 if low is None else low.pieces + 1
        highest = len(self._parts) if high is None else high.pieces - 1
        return min(highest, max(lowest, guess))

    async def _fill_up(self, low: Passage) -> Passage:
        """Append filler words to `low`, which has too few tokens, and return the best passage found.

        If no filler gives exactly the requested length, remove the last word of the text and try again with
        more filler words, until the length is exact or the limit of trial requests is reached.
        """
        best, piece_count = low, low.pieces
        while self._counted < MOST_REQUESTS and piece_count >= 0:
            cut = low if piece_count == low.pieces else await self._counted_passage(piece_count)
            if cut is None:
                break
            missing_tokens = self._length - cut.tokens
            for filler in FILLERS:
                tail = self._tail(missing_tokens)
                if self._counted >= MOST_REQUESTS or (not tail and filler in self._fillers):
                    continue
                filled = await self._counted_passage(piece_count, tail or filler * missing_tokens)
                if filled is not None and filled.tokens == self._length:
                    return filled
                if tail or filled is None:
                    return best  # the costs of fillers do not add up here
                if abs(self._length - filled.tokens) < abs(self._length - best.tokens):
                    best = filled
                self._fillers[filler] = max(1, round((filled.tokens - cut.tokens) / missing_tokens))
            piece_count -= 1
        return best

    def _tail(self, missing: int) -> str:
        """Return filler words of one or two kinds with `missing` tokens in total.

        Only filler words with a known token count are used. Return "" if no combination of them fits.
        """
        costs = list(self._fillers.items())
        for word, cost in costs:
            for other_word, other_cost in costs:
                for times in range(missing // cost, -1, -1):
                    tokens_left = missing - times * cost
                    if tokens_left % other_cost == 0:
                        return word * times + other_word * (tokens_left // other_cost)
        return ""

    async def _counted_passage(self, pieces: int, tail: str = "") -> Passage | None:
        """Return a passage whose tokens the server has counted; None if the server reports none.

        Of one that it refuses they are estimated, as more than the length that is searched for. The passage
        has the first `pieces` words and punctuation marks of the text, in a new order at each call, and the
        filler `tail`.
        """
        self._counted += 1
        passage = Passage(self._names, self._parts[:pieces], tail)
        prompt, _ = passage.prompt(self._counted, "length")
        try:
            tokens = await self._count_prompt(prompt)
        except RequestFailedError as error:
            self.refusal = error.failure
            known_pieces, known_tokens = self._known
            new_pieces = self._with_names(pieces) - known_pieces
            tokens = max(self._length + 1, known_tokens + round(new_pieces * self.tokens_per_piece))
        if tokens is None:
            return None
        passage.tokens = tokens
        return passage
