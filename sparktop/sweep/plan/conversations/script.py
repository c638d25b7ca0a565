"""Scripts of conversations: what is asked, how long the answers are, and the pauses, drawn from a seed.

A script has no texts. All its random values depend on the preset, the seed and the number of the conversation
alone, so that every server and every level gets the same conversations.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random

from msgspec import Struct

from sparktop.model.conversation import CallStart
from sparktop.sweep.plan.conversations.preset import ConversationPreset

MOST_CALLS = 20_000
"""Calls after which a conversation ends, however many its preset draws."""
MOST_LANES = 1_000_000
_LIFE_FROM, _LIFE_TO = 0.25, 0.75


class Call(Struct, frozen=True):
    """One model call of a conversation."""

    start: CallStart
    request: int
    """Number of the human request, from 0."""
    new_tokens: int
    output_tokens: int
    pause_s: float
    """Seconds from the end of the answer before to this call; 0 for the first call."""


class Script(Struct, frozen=True):
    """The course of one conversation."""

    number: int
    own_tokens: int
    """Tokens of its own context, sent with the first call in addition to the call's own."""
    calls: tuple[Call, ...]
    pause_after_s: float
    """Seconds from the last answer to the user's next conversation."""
    life_share: float
    """Share of the calls after which a conversation begins that is under way when the load starts."""

    @property
    def resumes_at(self) -> int:
        """Number of the call with which a conversation under way goes on, from 0.

        It is 0 for a conversation of a single call, which has no past.
        """
        return int(self.life_share * len(self.calls))


def script(preset: ConversationPreset, seed: int | str, number: int) -> Script:
    """Draw the conversation `number` of a preset; equal arguments return equal scripts."""
    random = Random(f"conversation {seed}/{number}")  # noqa: S311 - load, no secret
    own = preset.own_tokens.count(random)
    calls = tuple(islice(_calls(preset, random), MOST_CALLS))
    pause_after_s = preset.human_pause_s.value(random)
    return Script(number, own, calls, pause_after_s, random.uniform(_LIFE_FROM, _LIFE_TO))


def _calls(preset: ConversationPreset, random: Random) -> Iterator[Call]:
    for request in range(preset.human_requests.count(random, 1)):
        for step in range(1 + preset.tool_steps.count(random)):
            pause = preset.tool_pause_s if step else preset.human_pause_s
            pause_s = pause.value(random) if request or step else 0.0
            new = preset.new_tokens.count(random, 1)
            output = preset.output_tokens.count(random, 1)
            yield Call(CallStart.TOOL if step else CallStart.HUMAN, request, new, output, pause_s)


def number_of(lane: int, conversation: int) -> int:
    """Return the number, over all agents, of the conversation `conversation` of the lane `lane`."""
    return conversation * MOST_LANES + lane
