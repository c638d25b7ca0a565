"""Conversations of people and agents with a model: presets of their shape, and what is drawn from them.

The load generator, the simulation and the forecast follow the same course of an agent. It knows lengths and
pauses; the texts are the generator's.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.resources import files
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

from sparktop.errors import UsageError, did_you_mean
from sparktop.files import read_bounded
from sparktop.model.load import CallStart, ConversationCall, Turn
from sparktop.model.text import clean, reason_of


class Draw(Struct, frozen=True):
    """Distribution of a length, a count or a pause: log-normal, with an optional fixed value beside it."""

    median: float
    """Of the log-normal part; with `sigma` 0, its only value."""
    sigma: float = 0.0
    """Standard deviation of the logarithm: the 90th percentile is median × e^(1.28 sigma)."""
    most: float | None = None
    """Larger values are drawn as this one; None for no limit."""
    fixed: float | None = None
    """A value that is drawn instead with the chance `fixed_share`; None for none."""
    fixed_share: float = 0.0
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

        Of a cut one: the mean of the values below `most`, which is the whole mean × Φ(at - sigma), and `most`
        itself with the chance of all above it, 1 - Φ(at).
        """
        median, sigma, most = self.median, self.sigma, self.most
        if not sigma or median <= 0:
            return median if most is None else min(median, most)
        mean = median * math.exp(sigma * sigma / 2)
        if most is None:
            return mean
        at = math.log(most / median) / sigma
        return mean * _normal_cdf(at - sigma) + most * (1 - _normal_cdf(at))

    @property
    def largest(self) -> float:
        """The largest value that can be drawn; infinite for a log-normal without limit."""
        free = math.inf if self.sigma and self.median > 0 else self.median
        largest = free if self.most is None else min(free, self.most)
        return largest if self.fixed is None else max(largest, self.fixed)


def _normal_cdf(at: float) -> float:
    """Return the probability that a standard normal value is below `at`."""
    return 0.5 * (1 + math.erf(at / math.sqrt(2)))


class ConversationPreset(Struct, frozen=True):
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
    max_context_tokens: int
    """Most tokens of prompt and answer together; before a call beyond it, the context is compacted."""
    description: str = ""
    shared_tokens: int = 0
    """Tokens at the beginning of every conversation, the same text for all: system prompt and tools."""
    own_tokens: Draw = Draw(0.0)
    """Tokens of the conversation's own context, sent with its first call."""
    tool_steps: Draw = Draw(0.0)
    """Model calls after a tool within one human request."""
    tool_pause_s: Draw = Draw(0.0)
    """Seconds from an answer that calls a tool to the call with the tool's output."""
    human_pause_s: Draw = Draw(0.0)
    """Seconds from the last answer of a human request to the next request."""
    summary_tokens: int = 2000
    """Tokens to which a compacted context shrinks, in addition to the shared start."""
    duration_s: float = 180.0
    """Seconds that a level of such conversations is measured, unless the user gives another duration."""

    @property
    def start_tokens(self) -> int:
        """Usual tokens of a conversation's first call, prompt and answer together."""
        new = self.new_tokens.typical + self.output_tokens.typical
        return round(self.shared_tokens + self.own_tokens.typical + new)

    @property
    def least_context_tokens(self) -> int:
        """Tokens of context that a server needs for the first call, and for one after a compaction."""
        new = self.new_tokens.typical + self.output_tokens.typical
        return max(self.start_tokens, round(self.shared_tokens + self.summary_tokens + new))

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
    """The course of one conversation: lengths and pauses, no texts.

    It depends on the preset, the seed and the number of the conversation alone, so that every server and
    every level gets the same conversations.
    """

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
    own_tokens = preset.own_tokens.count(random)
    calls = tuple(islice(_calls(preset, random), MOST_CALLS))
    pause_after_s = preset.human_pause_s.value(random)
    return Script(number, own_tokens, calls, pause_after_s, random.uniform(_LIFE_FROM, _LIFE_TO))


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


class Prompt(Struct, frozen=True):
    """The prompt of the next call of a conversation."""

    tokens: int
    """Its length, as far as known before it is sent."""
    known_tokens: int
    """Tokens at its beginning that the server has computed before; see `ConversationCall.known_tokens`."""
    compacted: bool
    fits: bool
    """False if it is too long together with its answer, although the context was compacted."""


class ContextLength:
    """Counts the tokens of one conversation's context, and decides when it is compacted."""

    def __init__(self, preset: ConversationPreset, script: Script, max_model_len: int | None = None) -> None:
        """Start before the first call of `script`; `max_model_len` is the server's limit, None if unknown."""
        limit = preset.max_context_tokens
        self._limit = limit if max_model_len is None else min(limit, max_model_len)
        self._shared = preset.shared_tokens
        self._summary = preset.summary_tokens
        self._tokens = preset.shared_tokens + script.own_tokens
        """Tokens that the next prompt has before its new text."""
        self._known = preset.shared_tokens
        self.compactions = 0

    def prompt(self, call: Call) -> Prompt:
        """Return the prompt of `call`, the next one; compact the context first where it does not fit."""
        room = self._limit - call.output_tokens
        compacted = self._tokens + call.new_tokens > room
        if compacted:
            self.compactions += 1
            self._tokens, self._known = self._shared + self._summary, self._shared
        tokens = self._tokens + call.new_tokens
        return Prompt(tokens, min(self._known, tokens), compacted, tokens <= room)

    def record_answer(self, prompt_tokens: int, output_tokens: int) -> None:
        """Record the answer of the last call; both counts are the server's, where it reports them."""
        self._tokens = self._known = prompt_tokens + output_tokens


class Lane:
    """One user or agent: call `next_turn`, then `record_answer` or `give_up`, and so on."""

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

    def past(self) -> Iterator[Turn]:
        """Yield the calls that a conversation under way has behind it; the last one is the warm-up.

        The context is then as if these calls had been answered with the lengths of the script.
        """
        for _ in range(self.script.resumes_at):
            turn = self.next_turn(measured=False)
            yield turn
            self.record_answer(turn.prompt_tokens, turn.output_tokens)

    def next_turn(self, *, measured: bool = True) -> Turn:
        """Return the next call; `measured` is False for the past of a conversation."""
        call = self.script.calls[self._turn]
        prompt = self.context.prompt(call)
        following = self.script.calls[self._turn + 1 : self._turn + 2]
        place_in_conversation = ConversationCall(
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
        return Turn(
            place_in_conversation,
            self.pause_s,
            prompt.tokens,
            call.output_tokens,
            min(self.shared_tokens, prompt.tokens),
            self.context.compactions,
            prompt.fits,
        )

    def record_answer(self, prompt_tokens: int, output_tokens: int) -> None:
        """Record the answer of the last call: the server's counts of tokens, or the script's."""
        self.context.record_answer(prompt_tokens, output_tokens)
        self._turn += 1
        if self._turn == len(self.script.calls):
            self.give_up()
        else:
            self.pause_s = self.script.calls[self._turn].pause_s

    def give_up(self) -> None:
        """End the conversation; the next call is the first one of a new one, after a human pause."""
        self.pause_s = self.script.pause_after_s
        self._conversation += 1
        self._turn = 0
        self.script, self.context = self._begin()

    def _begin(self) -> tuple[Script, ContextLength]:
        course = script(self._preset, self._seed, number_of(self.number, self._conversation))
        return course, ContextLength(self._preset, course, self._max_model_len)


DEFAULT = "coder-quick"
"""The preset of conversations, if none is named."""
BUILT_IN = ("chat", "coder", "coder-quick", "rag")
"""The presets of the package."""
_SUFFIX = ".toml"
"""End of the name of a preset's file."""
_MOST_BYTES = 64 << 10
"""Bytes of a preset's file."""
_MOST_TOKENS = 10_000_000
"""Largest number of tokens in a preset."""
_MOST_CALLS = 100_000
"""Largest number of requests or tool steps in a preset."""
_LONGEST_PAUSE_S = 86_400.0
"""Longest pause and duration in a preset: a day."""
_MOST_SIGMA = 4.0
"""At 4, one value in ten is more than 170 times the median: no conversation is drawn so."""
_TABLE = ("median", "sigma", "max", "fixed", "fixed_share")
"""Keys of a random quantity's table."""
_MOST_OF = {
    "new_tokens": _MOST_TOKENS,
    "own_tokens": _MOST_TOKENS,
    "output_tokens": _MOST_TOKENS,
    "human_requests": _MOST_CALLS,
    "tool_steps": _MOST_CALLS,
    "tool_pause_s": _LONGEST_PAUSE_S,
    "human_pause_s": _LONGEST_PAUSE_S,
}
"""Largest value of each random quantity."""
_NUMBERS = {
    "shared_tokens": (0, _MOST_TOKENS),
    "max_context_tokens": (64, _MOST_TOKENS),
    "summary_tokens": (1, _MOST_TOKENS),
    "duration_s": (1, _LONGEST_PAUSE_S),
}
"""Smallest and largest value of each plain number."""
_KEYS = ("description", *_MOST_OF, *_NUMBERS)
"""All keys of a preset's file; the next are those that it must have."""
_NEEDED = ("new_tokens", "output_tokens", "human_requests", "max_context_tokens")
_AT_LEAST_ONE = {
    "human_requests": "a conversation without requests has no load",
    "new_tokens": "each call brings new text",
    "output_tokens": "an answer has a token",
}
"""Quantities whose median is 1 or more, with the reason."""


def find_conversations(name: str) -> ConversationPreset:
    """Return the preset `name` of the package, or the one in the TOML file at the path `name`.

    Raises:
        UsageError: there is no such preset or file, or the file's content cannot be used.
    """
    if name in BUILT_IN:
        text = files(__package__).joinpath("workloads", name + _SUFFIX).read_text(encoding="utf-8")
        return parse_conversations(text, name, name)
    shown = clean(name, 200)
    if not name.endswith(_SUFFIX):
        near = did_you_mean(name, BUILT_IN) or f" (known: {', '.join(BUILT_IN)}, or the path of a TOML file)"
        raise UsageError(f"there is no workload '{shown}'{near}")
    try:
        content, _ = read_bounded(Path(name), _MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{shown}: cannot be read: {reason_of(error)}") from None
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{shown} has more than {_MOST_BYTES >> 10} kB: this is not a workload preset")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{shown} is not text in UTF-8: this is not a workload preset") from None
    return parse_conversations(text, clean(Path(name).stem, 40), shown)


def parse_conversations(text: str, name: str, where: str) -> ConversationPreset:
    """Parse the TOML text of a preset that gets the name `name`; `where` is its file, for error messages.

    Raises:
        UsageError: the text is not TOML, or a key is missing, unknown or out of range.
    """
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{where} is not valid TOML: {clean(error, 120)}") from None
    for key in table:
        if key not in _KEYS:
            near = did_you_mean(key, _KEYS) or f" (known: {', '.join(_KEYS)})"
            raise UsageError(f"{where}: unknown key '{clean(key, 40)}'{near}")
    for key in _NEEDED:
        if key not in table:
            raise UsageError(f"{where}: {key} is missing: a preset needs {', '.join(_NEEDED)}")
    description = table.pop("description", "")
    if not isinstance(description, str):
        raise UsageError(f"{where}: description must be text")
    values: dict[str, Any] = {}
    for key, value in table.items():
        where_key = f"{where}: {key}"
        if key in _MOST_OF:
            values[key] = _parse_draw(value, where_key, _MOST_OF[key], _AT_LEAST_ONE.get(key))
        else:
            parse = _number if key == "duration_s" else _whole
            values[key] = parse(value, where_key, *_NUMBERS[key])
    preset = ConversationPreset(name=name, description=clean(description, 200), **values)
    _check_room(preset, where)
    return preset


def _check_room(preset: ConversationPreset, where: str) -> None:
    rest = preset.shared_tokens + preset.summary_tokens
    least = rest + preset.new_tokens.median + preset.output_tokens.median
    if least > preset.max_context_tokens:
        raise UsageError(
            f"{where}: max_context_tokens must be at least {least:.0f}, the compacted context of {rest} "
            f"tokens with a call, not {preset.max_context_tokens}"
        )


def _parse_draw(value: object, where: str, most: float, least_reason: str | None) -> Draw:
    """Parse a number or a table with the keys of `_TABLE`, whose values are at most `most`.

    With `least_reason`, the median and the fixed value are at least 1 for this reason.
    """
    table: Mapping[str, object] = value if isinstance(value, dict) else {"median": value}
    for key in table:
        if key not in _TABLE:
            raise UsageError(f"{where}: unknown key '{clean(key, 40)}' (known: {', '.join(_TABLE)})")
    if "median" not in table:
        raise UsageError(f"{where}: must be a number of 0 or more, or a table with median")
    if ("fixed" in table) != ("fixed_share" in table):
        raise UsageError(f"{where}: fixed and fixed_share belong together")
    read = partial(_table_entry, table, where, least_reason)
    return Draw(
        read("median", most, key_reason=True) or 0.0,
        read("sigma", _MOST_SIGMA) or 0.0,
        read("max", most, key_reason=True),
        read("fixed", most, key_reason=True),
        read("fixed_share", 1.0) or 0.0,
    )


def _table_entry(
    table: Mapping[str, object],
    quantity: str,
    least_reason: str | None,
    key: str,
    most: float,
    *,
    key_reason: bool = False,
) -> float | None:
    """Return the number at `key` of a random quantity, None if it is not there; see `_parse_draw`."""
    if key not in table:
        return None
    where = quantity if set(table) == {"median"} else f"{quantity}: {key}"
    least = 1.0 if key_reason and least_reason else 0.0
    reason = f": {least_reason}" if least else ""
    return _number(table[key], where, least, most, reason=reason)


def _number(value: object, where: str, least: float, most: float, *, reason: str = "") -> float:
    if (
        not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most
    ):  # which nan never is
        shown = clean(value, 40)
        raise UsageError(f"{where} must be a number from {least:g} to {most:.10g}, not {shown}{reason}")
    return float(value)


def _whole(value: object, where: str, least: float, most: float) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        shown = clean(value, 40)
        raise UsageError(f"{where} must be a whole number from {least:g} to {most:.10g}, not {shown}")
    return value
