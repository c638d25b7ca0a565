"""A made-up tokenizer: reproducible token ids for any text, and words that are one token each.

A real tokenizer takes megabytes and would add nothing to the demo. Only three properties matter: equal texts
have equal tokens, texts with a common beginning share the tokens of this beginning, and a client can count
the tokens of an answer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from zlib import crc32

VOCABULARY = 200_000
_SPECIAL = VOCABULARY
START, END, MESSAGE, STOP = _SPECIAL, _SPECIAL + 1, _SPECIAL + 2, _SPECIAL + 3
"""Special tokens that occur in no text: three around
the parts of a chat's messages, one at the end of an answer."""
_ASSISTANT = "assistant"
_PIECE = re.compile(r" ?[^\W\d_]{1,7}| ?\d{1,3}| ?[^\w\s]|\s|_")
_KNOWN_PIECES = 50_000

_WORDS = (
    "about above across after again along always among answer any around ask back batch be because before"
    " begin below best better block both bring build by cache call can change city clear clock close come"
    " cool count day deep desk door down draw each early earth easy eight engine even every face fact far"
    " fast few field find fire first five floor follow form four from full game garden give glass go good"
    " grass great green ground grow half hand hard head hear heat help here high hill hold home house how"
    " idea in just keep kind know land large last late learn leave left less let light line list little"
    " long look low machine make many map mean memory mind model month moon more morning most"
    " move much must name near need never new next night nine no north note now number of off often old"
    " on once one only open order other our out over own page paper part pass path people place plain"
    " plan point power prompt queue quick quiet rain read ready real rest right river road rock roof room"
    " round run same sand say sea second see send seven shape ship short side simple six sky slow small"
    " snow so some song soon sound south space spark speak stand star start stay step still stone stop"
    " story street strong such summer sun table take talk tell ten than that then there these thing think"
    " this three through time to token town tree true turn two under until up use very voice wait walk"
    " wall warm watch water way week well west what wheel when where which while white wide wind window"
    " winter with wood word work world write year yes young"
)
WORDS = tuple(_WORDS.split())
"""Words for answers; each word with a space before it is a single token."""


@lru_cache(_KNOWN_PIECES)
def _id(piece: str) -> int:
    return crc32(piece.encode("utf-8", "replace")) % VOCABULARY


def tokenize(text: str) -> list[int]:
    """Return the token ids of a text."""
    return [_id(piece) for piece in _PIECE.findall(text)]


def tokenize_chat(messages: Iterable[tuple[str, str]]) -> list[int]:
    """Return the token ids of a chat, up to the start of the answer; `messages` has (role, text) pairs.

    An earlier answer has the tokens with which it was generated, so that a prefix cache finds it again.
    """
    found: list[int] = []
    for role, text in messages:
        between = () if role == _ASSISTANT else (MESSAGE,)
        found += (START, _id(role), *between, *tokenize(text), END)
    return [*found, START, _id(_ASSISTANT)]


def answer_words(seed: int | str, count: int) -> list[str]:
    """Return `count` random words, each with a space before it; equal seeds return equal words.

    Two successive words are never equal, so that no client suspects a model that repeats itself.
    """
    # Meaningless text needs no cryptographic randomness.
    dice = random.Random(seed)  # noqa: S311
    place, words = dice.randrange(len(WORDS)), []
    for _ in range(count):
        place = (place + dice.randrange(1, len(WORDS))) % len(WORDS)
        words.append(f" {WORDS[place]}")
    return words


def word_id(word: str) -> int:
    """Return the token id of a word that `answer_words` returned."""
    return _id(word)


def block_hashes(tokens: Sequence[int], block_tokens: int, salt: str | None = None) -> tuple[int, ...]:
    """Return a hash for each full block of `block_tokens` tokens, as vLLM's prefix cache uses them.

    A hash covers `salt` and all tokens from the first one to the end of the block. So prompts with different
    salts have no hash in common.
    """
    # Tuples of integers have the same hash in every process, unlike text.
    before = crc32(salt.encode("utf-8", "replace")) if salt else 0
    hashes: list[int] = []
    for end in range(block_tokens, len(tokens) + 1, block_tokens):
        before = hash((before, *tokens[end - block_tokens : end]))
        hashes.append(before)
    return tuple(hashes)
