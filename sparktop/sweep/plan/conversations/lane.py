"""The course of one user or agent: one conversation after the other, call by call.

The load generator, the simulation and the forecast follow the same course. It knows lengths and pauses; the
texts are the generator's.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from sparktop.model.conversation import ConversationCall, Turn
from sparktop.sweep.plan.conversations.context import ContextLength, Prompt
from sparktop.sweep.plan.conversations.preset import ConversationPreset
from sparktop.sweep.plan.conversations.script import Call, Script, number_of, script

_MOST_UNFIT = 100
"""Conversations that end one after the other without a call until a lane has no further turn."""


class Step(Struct, frozen=True):
    """The next call of a lane."""

    place: ConversationCall
    call: Call
    prompt: Prompt
    pause_s: float
    """Seconds from the end of the answer before, also of an earlier conversation; 0 for the first call."""


class Lane:
    """One user or agent: call `step`, then `answered` or `give_up`, and so on."""

    def __init__(
        self,
        preset: ConversationPreset,
        seed: int | str,
        number: int,
        max_model_len: int | None = None,
    ) -> None:
        """Start before the first call of lane `number`; `max_model_len` is the server's limit."""
        self.number = number
        self.shared_tokens = preset.shared_tokens
        self._preset = preset
        self._seed = seed
        self._max_model_len = max_model_len
        self._conversation = 0
        self._turn = 0
        self.pause_s = 0.0
        """Seconds from the end of the last answer to the next call, also to that of a new conversation."""
        self.script, self.context = self._begin()

    def past(self) -> Iterator[Step]:
        """Yield the calls that a conversation under way has behind it; the last one is the warm-up.

        The context is then as if these calls had been answered with the lengths of the script.
        """
        for _ in range(self.script.resumes_at):
            step = self.step(measured=False)
            yield step
            self.answered(step.prompt.tokens, step.call.output_tokens)

    def step(self, *, measured: bool = True) -> Step:
        """Return the next call; `measured` is False for the past of a conversation."""
        call = self.script.calls[self._turn]
        prompt = self.context.prompt(call)
        following = self.script.calls[self._turn + 1 : self._turn + 2]
        place = ConversationCall(
            lane=self.number,
            conversation=self._conversation,
            turn=self._turn,
            request=call.request,
            start=call.start,
            then=following[0].start if following else None,
            known_tokens=prompt.known_tokens,
            new_tokens=prompt.tokens - prompt.known_tokens,
            compacted=prompt.compacted,
            measured=measured,
        )
        return Step(place, call, prompt, self.pause_s)

    def answered(self, prompt_tokens: int, output_tokens: int) -> None:
        """Record the answer of the last step: the server's counts of tokens, or the script's."""
        self.context.answered(prompt_tokens, output_tokens)
        self._turn += 1
        if self._turn == len(self.script.calls):
            self.give_up()
        else:
            self.pause_s = self.script.calls[self._turn].pause_s

    def give_up(self) -> None:
        """End the conversation; the next step is the first call of a new one, after a human pause."""
        self.pause_s = self.script.pause_after_s
        self._conversation += 1
        self._turn = 0
        self.script, self.context = self._begin()

    def _begin(self) -> tuple[Script, ContextLength]:
        one = script(self._preset, self._seed, number_of(self.number, self._conversation))
        return one, ContextLength(self._preset, one, self._max_model_len)


def planned_turns(
    preset: ConversationPreset, seed: int | str, number: int, max_model_len: int | None = None
) -> Iterator[Turn]:
    """Yield the turns of lane `number` without end, as if each answer had the length of its script.

    The first conversation is under way: its first turn, if it has a past, is the warm-up call. A call that
    does not fit into the server's context ends its conversation and is left out; where none fits any more,
    the turns end.
    """
    lane = Lane(preset, seed, number, max_model_len)
    past = list(lane.past())
    if past:
        yield _turn(preset, past[-1], lane.context.compactions)
    unfit = 0
    while unfit < _MOST_UNFIT:
        step = lane.step()
        if not step.prompt.fits:
            unfit += 1
            lane.give_up()
            continue
        unfit = 0
        yield _turn(preset, step, lane.context.compactions)
        lane.answered(step.prompt.tokens, step.call.output_tokens)


def _turn(preset: ConversationPreset, step: Step, compactions: int) -> Turn:
    return Turn(
        step.place,
        step.pause_s,
        step.prompt.tokens,
        step.call.output_tokens,
        min(preset.shared_tokens, step.prompt.tokens),
        compactions,
    )
