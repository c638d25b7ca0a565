"""Words that prompts are made of: common English, each a single token in most tokenizers."""

from __future__ import annotations


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
OPENINGS = (
    "In the morning",
    "Late at night",
    "One day",
    "Many years ago",
    "Before the war",
    "After the rain",
    "In those days",
    "At first",
    "For a while",
    "Some time later",
    "On the other hand",
    "To everyone's surprise",
    "In the end",
    "As usual",
)
