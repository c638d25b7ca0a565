"""Conversations of people and agents with a model: presets of their shape, and what is drawn from them.

The load generator, the simulation and the forecast follow the same course of an agent. It knows lengths and
pauses; the texts are the generator's.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from itertools import islice
from pathlib import Path
from random import Random
from statistics import NormalDist
from typing import Annotated

from msgspec import Meta, Struct, ValidationError, convert, field

from sparktop.errors import UsageError, did_you_mean
from sparktop.files import read_bounded
from sparktop.model.load import CallStart, ConversationCall, Turn
from sparktop.model.text import clean, reason_of

_MOST_TOKENS = 10_000_000
"""Largest number of tokens in a preset."""
_DAY_S = 86_400.0
"""Longest pause and duration in a preset."""
_MOST_SIGMA = 4.0
"""At 4, one value in ten is more than 170 times the median: no conversation is drawn so."""
Tokens = Annotated[int, Meta(ge=0, le=_MOST_TOKENS)]
"""A number of tokens in a preset."""


class Draw(Struct, frozen=True, forbid_unknown_fields=True):
    """Distribution of a length, a count or a pause: log-normal, with an optional fixed value beside it."""

    median: float
    """Of the log-normal part; with `sigma` 0, its only value."""
    sigma: Annotated[float, Meta(ge=0, le=_MOST_SIGMA)] = 0.0
    """Standard deviation of the logarithm: the 90th percentile is median × e^(1.28 sigma)."""
    most: float | None = field(default=None, name="max")
    """Larger values are drawn as this one; None for no limit."""
    fixed: float | None = None
    """A value that is drawn instead with the chance `fixed_share`; None for none."""
    fixed_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """From 0 to 1."""

    def value(self, random: Random) -> float:
        """Return a random value of the distribution."""
        if self.fixed is not None and random.random() < self.fixed_share:
            return self.fixed
        value = self.median
        if self.sigma and value > 0:
            value = random.lognormvariate(math.log(value), self.sigma)
        return value if self.most is None else min(value, self.most)

    def count(self, random: Random, least: int = 0) -> int:
        """Return a random value as an integer, at least `least`."""
        return max(least, round(self.value(random)))

    @property
    def typical(self) -> float:
        """The mean of the distribution, with values above `most` cut to it."""
        mean = self._log_normal_mean()
        if self.fixed is None:
            return mean
        return self.fixed_share * self.fixed + (1 - self.fixed_share) * mean

    def _log_normal_mean(self) -> float:
        """Return the mean of the log-normal part, median × e^(sigma² / 2); values above `most` are cut to it.

        Of a cut one: the mean of the values below `most`, which is the whole mean × Φ(at - sigma), and
        `most` itself with the chance of all above it, 1 - Φ(at).
        """
        median, sigma, most = self.median, self.sigma, self.most
        if not sigma or median <= 0:
            return median if most is None else min(median, most)
        mean = median * math.exp(sigma * sigma / 2)
        if most is None:
            return mean
        most_sigmas = math.log(most / median) / sigma
        cdf = NormalDist().cdf
        return mean * cdf(most_sigmas - sigma) + most * (1 - cdf(most_sigmas))


class ConversationPreset(Struct, frozen=True, forbid_unknown_fields=True):
    """How conversations go: a shared start, a context of their own, human requests and tool steps.

    A conversation has `human_requests` requests of a person. Each takes a model call, and one more for each
    of its `tool_steps`. A call appends `new_tokens` to the prompt, and its answer stays in the context.
    """

    name: str
    new_tokens: Draw
    """Tokens that a call appends to the prompt: a question, or the output of a tool."""
    output_tokens: Draw
    """Tokens of an answer, at least 1."""
    human_requests: Draw
    """Requests of a person in a conversation, at least 1."""
    max_context_tokens: Annotated[int, Meta(ge=64, le=_MOST_TOKENS)]
    """Most tokens of prompt and answer together; before a call beyond it, the context is compacted."""
    description: str = ""
    shared_tokens: Tokens = 0
    """Tokens at the beginning of every conversation, the same text for all: system prompt and tools."""
    own_tokens: Draw = Draw(0.0)
    """Tokens of the conversation's own context, sent with its first call."""
    tool_steps: Draw = Draw(0.0)
    """Model calls after a tool within one human request."""
    tool_pause_s: Draw = Draw(0.0)
    """Seconds from an answer that calls a tool to the call with the tool's output."""
    human_pause_s: Draw = Draw(0.0)
    """Seconds from the last answer of a human request to the next request."""
    summary_tokens: Annotated[int, Meta(ge=1, le=_MOST_TOKENS)] = 2000
    """Tokens to which a compacted context shrinks, in addition to the shared start."""
    duration_s: Annotated[float, Meta(ge=1, le=_DAY_S)] = 180.0
    """Seconds that a level of such conversations is measured, unless the user gives another duration."""

    @property
    def start_tokens(self) -> int:
        """Usual tokens of a conversation's first call, prompt and answer together."""
        tokens_per_call = self.new_tokens.typical + self.output_tokens.typical
        return round(self.shared_tokens + self.own_tokens.typical + tokens_per_call)

    @property
    def least_context_tokens(self) -> int:
        """Tokens of context that a server needs for the first call, and for one after a compaction."""
        tokens_per_call = self.new_tokens.typical + self.output_tokens.typical
        return max(self.start_tokens, round(self.shared_tokens + self.summary_tokens + tokens_per_call))

    @property
    def calls(self) -> float:
        """Mean number of model calls of a conversation, roughly."""
        return max(1.0, self.human_requests.typical) * (1.0 + self.tool_steps.typical)

    @property
    def pause_s(self) -> float:
        """Mean seconds between the answer to a call and the next call, roughly."""
        steps = self.tool_steps.typical
        return (self.human_pause_s.typical + steps * self.tool_pause_s.typical) / (1.0 + steps)


MOST_CALLS = 20_000
"""Calls after which a conversation ends, however many its preset draws."""
MOST_LANES = 1_000_000
"""Agents at most; see `number_of`."""
_LIFE_FROM, _LIFE_TO = 0.25, 0.75
"""Share (0 to 1) of its calls that a conversation has behind it when the load starts: least and most."""


class ScriptedCall(Struct, frozen=True):
    """One model call of a conversation."""

    start: CallStart
    request: int
    """Number of the human request, from 0."""
    new_tokens: int
    output_tokens: int
    pause_s: float
    """Seconds from the end of the answer before to this call; 0 for the first call."""


class Script(Struct, frozen=True):
    """The course of one conversation: lengths and pauses, no texts.

    It depends on the preset, the seed and the number of the conversation alone, so that every server and
    every level gets the same conversations.
    """

    own_tokens: int
    """Tokens of its own context, sent with the first call in addition to the call's own."""
    calls: tuple[ScriptedCall, ...]
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
    own_tokens = preset.own_tokens.count(random)
    calls = tuple(islice(_calls(preset, random), MOST_CALLS))
    pause_after_s = preset.human_pause_s.value(random)
    return Script(own_tokens, calls, pause_after_s, random.uniform(_LIFE_FROM, _LIFE_TO))


def _calls(preset: ConversationPreset, random: Random) -> Iterator[ScriptedCall]:
    for request in range(preset.human_requests.count(random, 1)):
        for step in range(1 + preset.tool_steps.count(random)):
            pause = preset.tool_pause_s if step else preset.human_pause_s
            pause_s = pause.value(random) if request or step else 0.0
            new_tokens = preset.new_tokens.count(random, 1)
            output = preset.output_tokens.count(random, 1)
            yield ScriptedCall(
                CallStart.TOOL if step else CallStart.HUMAN, request, new_tokens, output, pause_s
            )


def number_of(lane: int, conversation: int) -> int:
    """Return the number, over all agents, of the conversation `conversation` of the lane `lane`."""
    return conversation * MOST_LANES + lane


class Lane:
    """One user or agent: call `next_turn`, then `record_answer` or `give_up`, and so on.

    It counts the tokens of the conversation's context, and decides when it is compacted.
    """

    def __init__(
        self,
        preset: ConversationPreset,
        seed: int | str,
        number: int,
        max_model_len: int | None = None,
    ) -> None:
        """Start before the first call of lane `number`; `max_model_len` is the server's limit, if known."""
        limit = preset.max_context_tokens
        self.number = number
        self.shared_tokens = preset.shared_tokens
        self._preset = preset
        self._seed = seed
        self._limit = limit if max_model_len is None else min(limit, max_model_len)
        self._conversation = 0
        self.pause_s = 0.0
        """Seconds from the end of the last answer to the next call, also to that of a new conversation."""
        self._begin()

    def _begin(self) -> None:
        self.script = script(self._preset, self._seed, number_of(self.number, self._conversation))
        self._turn = 0
        self._tokens = self.shared_tokens + self.script.own_tokens
        """Tokens that the next prompt has before its new text."""
        self._known = self.shared_tokens
        """Tokens at its beginning that the server has computed before."""
        self._compactions = 0

    def past(self) -> Iterator[Turn]:
        """Yield the calls that a conversation under way has behind it; the last one is the warm-up.

        The context is then as if these calls had been answered with the lengths of the script.
        """
        for _ in range(self.script.resumes_at):
            turn = self.next_turn(measured=False)
            yield turn
            self.record_answer(turn.prompt_tokens, turn.output_tokens)

    def next_turn(self, *, measured: bool = True) -> Turn:
        """Return the next call, after compacting the context where it does not fit.

        `measured` is False for the past of a conversation.
        """
        call = self.script.calls[self._turn]
        is_last = self._turn + 1 == len(self.script.calls)
        room = self._limit - call.output_tokens
        compacted = self._tokens + call.new_tokens > room
        if compacted:
            self._compactions += 1
            self._tokens, self._known = self.shared_tokens + self._preset.summary_tokens, self.shared_tokens
        tokens = self._tokens + call.new_tokens
        known_tokens = min(self._known, tokens)
        place_in_conversation = ConversationCall(
            lane=self.number,
            conversation=self._conversation,
            turn=self._turn,
            request=call.request,
            start=call.start,
            then=None if is_last else self.script.calls[self._turn + 1].start,
            known_tokens=known_tokens,
            new_tokens=tokens - known_tokens,
            compacted=compacted,
            measured=measured,
        )
        shared = min(self.shared_tokens, tokens)
        return Turn(
            place_in_conversation,
            self.pause_s,
            tokens,
            call.output_tokens,
            shared,
            self._compactions,
            fits=tokens <= room,
        )

    def record_answer(self, prompt_tokens: int, output_tokens: int) -> None:
        """Record the answer of the last call: the server's counts of tokens, or the script's."""
        self.count_answer(prompt_tokens, output_tokens)
        self._turn += 1
        if self._turn == len(self.script.calls):
            self.give_up()
        else:
            self.pause_s = self.script.calls[self._turn].pause_s

    def count_answer(self, prompt_tokens: int, output_tokens: int) -> None:
        """Count the answer of a call that is recorded already, by the server's counts of tokens."""
        self._tokens = self._known = prompt_tokens + output_tokens

    def give_up(self) -> None:
        """End the conversation; the next call is the first one of a new one, after a human pause."""
        self.pause_s = self.script.pause_after_s
        self._conversation += 1
        self._begin()


DEFAULT = "coder-quick"
"""The preset of conversations, if none is named."""
BUILT_IN = ("chat", "coder", "coder-quick", "rag")
"""The presets of the package."""
_SUFFIX = ".toml"
"""End of the name of a preset's file."""
_MOST_BYTES = 64 << 10
"""Bytes of a preset's file."""
_RANGES = {
    "new_tokens": (1, _MOST_TOKENS),
    "own_tokens": (0, _MOST_TOKENS),
    "output_tokens": (1, _MOST_TOKENS),
    "human_requests": (1, 100_000),
    "tool_steps": (0, 100_000),
    "tool_pause_s": (0, _DAY_S),
    "human_pause_s": (0, _DAY_S),
}
"""Smallest and largest value of each random quantity: each call has new text, and an answer has a token."""


def find_conversations(name: str) -> ConversationPreset:
    """Return the preset `name` of the package, or the one in the TOML file at the path `name`.

    Raises:
        UsageError: there is no such preset or file, or the file's content cannot be used.
    """
    if name in BUILT_IN:
        text = files(__package__).joinpath("workloads", name + _SUFFIX).read_text(encoding="utf-8")
        return parse_conversations(text, name, name)
    shown_name = clean(name, 200)
    if not name.endswith(_SUFFIX):
        near = did_you_mean(name, BUILT_IN) or f" (known: {', '.join(BUILT_IN)}, or the path of a TOML file)"
        raise UsageError(f"there is no workload '{shown_name}'{near}")
    try:
        content, _ = read_bounded(Path(name), _MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{shown_name}: cannot be read: {reason_of(error)}") from None
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{shown_name} has more than {_MOST_BYTES >> 10} kB: this is not a workload preset")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{shown_name} is not text in UTF-8: this is not a workload preset") from None
    return parse_conversations(text, clean(Path(name).stem, 40), shown_name)


def parse_conversations(text: str, name: str, where: str) -> ConversationPreset:
    """Parse the TOML text of a preset that gets the name `name`; `where` is its file, for error messages.

    Raises:
        UsageError: the text is not TOML, or a key is missing, unknown or out of range.
    """
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{where} is not valid TOML: {clean(error, 120)}") from None
    for key in _RANGES.keys() & table.keys():
        table[key] = table[key] if isinstance(table[key], dict) else {"median": table[key]}
    table |= {"name": name, "description": clean(table.get("description", ""), 200)}
    try:
        preset = convert(table, ConversationPreset)
    except ValidationError as error:
        raise UsageError(f"{where}: {clean(error, 200)}") from None
    for key, (minimum, maximum) in _RANGES.items():
        draw: Draw = getattr(preset, key)
        for value in (draw.median, draw.most, draw.fixed):
            if value is not None and not minimum <= value <= maximum:  # which nan never is
                raise UsageError(f"{where}: {key} must be from {minimum} to {maximum:.10g}, not {value:g}")
        has_fixed, has_share = draw.fixed is not None, draw.fixed_share != 0
        if has_fixed is not has_share:
            raise UsageError(f"{where}: {key}: fixed and fixed_share belong together")
    fixed = preset.shared_tokens + preset.summary_tokens
    context = fixed + preset.new_tokens.median + preset.output_tokens.median
    if context > preset.max_context_tokens:
        raise UsageError(
            f"{where}: max_context_tokens must be at least {context:.0f}, the compacted context of {fixed} "
            f"tokens with a call, not {preset.max_context_tokens}"
        )
    return preset
