"""Recorded traffic (traces): files of other projects, read one request at a time, and what they hold."""

from __future__ import annotations

import csv
import math
import os
import stat
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from sparktop.errors import UsageError
from sparktop.model.load import LoadKind, LoadPoint
from sparktop.model.text import clean, reason_of
from sparktop.sweep.terms.definitions import MOST_TOKENS
from sparktop.typed import seconds, split_range


class FaultError(Exception):
    """A line of a trace cannot be used; the message says why, without file and line number."""


class TracedRequest(Struct, frozen=True):
    """A request of a trace, as its line states it; `Trace` gives it its place in the replay."""

    number: int
    """Position in the replay, from 0; 0 as long as it has none."""
    due_s: float | None
    """Seconds after the begin of the replay at which it is due; as its line states it, the time on the file's
    clock in seconds. None if only its predecessor decides, or if the line states none."""
    prompt_tokens: int | None
    """None if the file holds the text instead."""
    output_tokens: int
    """0 for a request that failed when it was recorded."""
    blocks: tuple[int, ...] = ()
    """Ids of the prompt's blocks, in order; equal ids of one scope stand for equal tokens."""
    block_tokens: int = 0
    """Tokens of each block; the last one may be incomplete."""
    scope: str = ""
    """What the ids are valid for, such as a conversation; "" for the whole file. Requests of a scope without
    ids share their beginnings: the prompt of a longer one begins with that of a shorter one."""
    after: int | None = None
    """Number of the request of the same conversation that has to end first; None for the first one."""
    delay_s: float = 0.0
    """Seconds from the end of its predecessor to this request, if it has no time of its own."""
    text: str | None = None
    """The prompt, if the file holds it."""
    session: str | None = None
    """Its conversation, whose latest request has to end first; None if it belongs to none."""


MOST_TIME_S = 1e11
"""Largest time that is accepted, in seconds: Unix time in milliseconds is above it."""
_MS_PER_S = 1000.0
"""Milliseconds are the unit of Mooncake's times."""
TraceRow = TypeVar("TraceRow")
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - times without a zone are compared with each other only
"""Begin of the file's clock where it has dates."""
_SHOWN_CHARACTERS = 40
"""Characters of a wrong value that a message quotes."""
_LONGEST_NUMBER = len(str(MOST_TOKENS))
"""Digits from which on a number of tokens is too large."""


class _TraceLine(Struct, frozen=True):
    """A line of Mooncake or aiperf, with times in milliseconds."""

    output_length: Annotated[int, Meta(ge=0, le=MOST_TOKENS)]
    timestamp: Annotated[float, Meta(ge=-MOST_TIME_S * _MS_PER_S, le=MOST_TIME_S * _MS_PER_S)] | None = None
    delay: Annotated[float, Meta(ge=0, le=MOST_TIME_S * _MS_PER_S)] | None = None
    session_id: str | int | None = None
    input_length: Annotated[int, Meta(ge=0, le=MOST_TOKENS)] | None = None
    text_input: str | None = None
    hash_ids: tuple[int, ...] | None = None
    messages: Any = None
    payload: Any = None


def decode_line(text: str, kind: type[TraceRow]) -> TraceRow:
    """Decode a line of JSON as a value of this type.

    Raises:
        FaultError: it is not one.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise FaultError(clean(error, 200)) from None
    except (msgspec.DecodeError, RecursionError):
        raise FaultError(f"not JSON: '{clean(text, _SHOWN_CHARACTERS)}'") from None


def iso_seconds(text: str) -> float:
    """Return a date and time as in ISO 8601 in seconds; without a zone it counts as UTC.

    Raises:
        FaultError: it is not one.
    """
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
        return (moment - _EPOCH).total_seconds()
    except (ValueError, OverflowError):
        raise FaultError(f"'{clean(text, _SHOWN_CHARACTERS)}' is not a date and time") from None


def cells(text: str) -> Sequence[str]:
    """Split a line of a CSV file into its fields."""
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text], strict=True))
    except (csv.Error, StopIteration):
        raise FaultError(f"not a row of a CSV file: '{clean(text, _SHOWN_CHARACTERS)}'") from None


class TraceFormat(StrEnum):
    """The formats of traces, by the names that `--trace-format` accepts."""

    MOONCAKE = "mooncake"
    """JSON Lines of Mooncake's serving traces."""
    AIPERF = "aiperf"
    """The same with aiperf's fields: sessions, pauses, prompts as text."""
    AZURE = "azure"
    """CSV files of Azure's LLM inference traces."""


FORMAT_NAMES = tuple(form.value for form in TraceFormat)
"""The formats as words."""


Memory = dict[str, int]
"""What a reader keeps of a file's earlier lines: of Azure's the column of each field, of the others the
tokens of each session so far."""

_BLOCK = 512
"""Tokens of each block of a Mooncake prompt."""
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
"""Columns of Azure's files."""
_PROMPTS = ("input_length", "text_input", "messages", "payload")
"""Fields that hold a prompt or its length; the last two are not supported."""
_AIPERF = {"session_id", "delay", "text_input", "messages", "payload"}
"""Fields of a first line, one of which tells aiperf from Mooncake."""
_FORMATS = ", ".join(TraceFormat)
"""The formats in a message."""


def read_line(form: TraceFormat, text: str, memory: Memory) -> TracedRequest | None:
    """Return the request of a line of a file; None for a header.

    `memory` is empty at the first line of a file, and belongs to the file until its end.

    Raises:
        FaultError: the line is not one of such a file.
    """
    return _read_azure(text, memory) if form is TraceFormat.AZURE else _read_mooncake(text, memory)


def _read_mooncake(text: str, lengths: Memory) -> TracedRequest:
    """Read a line of Mooncake or aiperf.

    The turns of a session hold new text only, so each prompt begins with the one before. In place of the
    server's answer it holds made-up text of the same length. `lengths` has the tokens of the latest prompt
    and answer of each session without block ids.
    """
    row = decode_line(text, _TraceLine)
    given_prompts = [name for name in _PROMPTS if getattr(row, name) is not None]
    if len(given_prompts) != 1:
        raise FaultError(f"exactly one of {', '.join(_PROMPTS[:2])} is needed, not {len(given_prompts)}")
    if given_prompts[0] in _PROMPTS[2:]:
        raise FaultError(f"'{given_prompts[0]}' is not supported: write input_length or text_input")
    session = None if row.session_id is None else str(row.session_id)
    if row.timestamp is None and session is None:
        raise FaultError("neither timestamp nor session_id")
    at_s = None if row.timestamp is None else row.timestamp / _MS_PER_S
    length, blocks, scope = row.input_length, row.hash_ids or (), ""
    if length is not None and session is not None and not blocks:
        scope = f"session {session}"
        length += lengths.get(session, 0)
        lengths[session] = length + row.output_length
    return TracedRequest(
        0,
        at_s,
        length,
        row.output_length,
        blocks if length is not None else (),
        _BLOCK if blocks and length is not None else 0,
        scope,
        session=session,
        delay_s=(row.delay or 0.0) / _MS_PER_S,
        text=row.text_input,
    )


def _begins_with_digit(text: str) -> bool:
    return text[:1].isdecimal()


def _read_azure(text: str, columns: Memory) -> TracedRequest | None:
    """Read a row of Azure's LLM inference traces of 2023 and 2024; `columns` are the positions by name."""
    row = [cell.strip() for cell in cells(text)]
    if not columns:
        is_header = not _begins_with_digit(row[0])  # else with a date
        titles = [title.lower() for title in row] if is_header else [name.lower() for name in _AZURE]
        for name in _AZURE:
            if name.lower() not in titles:
                raise FaultError(f"no column '{name}'")
            columns[name] = titles.index(name.lower())
        if is_header:
            return None
    if len(row) <= max(columns.values()):
        raise FaultError(f"only {len(row)} columns: {', '.join(_AZURE)} are needed")
    when, *tokens = (row[column] for column in columns.values())
    for name, count in zip(_AZURE[1:], tokens, strict=True):
        if not (count.isdecimal() and count.isascii() and len(count) < _LONGEST_NUMBER):
            raise FaultError(f"'{name}' must be a number of tokens, not '{clean(count, _SHOWN_CHARACTERS)}'")
    prompt, output = map(int, tokens)
    return TracedRequest(0, iso_seconds(when), prompt, output)


def recognise(text: str) -> TraceFormat:
    """Return the format of a file whose first line that is not blank is `text`.

    Raises:
        FaultError: it belongs to none of the formats.
    """
    if text.startswith("["):
        raise FaultError("a JSON list: write one object per line")
    if text.startswith("{"):
        row = decode_line(text, dict[str, Any])
        # The fields of a Qwen-Bailian line have Mooncake's names with other units.
        if "chat_id" in row or not (_AIPERF | {"input_length", "hash_ids"}) & row.keys():
            raise FaultError(f"a JSON object of none of the known formats: {_FORMATS}")
        return TraceFormat.AIPERF if _AIPERF & row.keys() else TraceFormat.MOONCAKE
    row_cells = [title.strip().lower() for title in cells(text)]
    has_header = sum(name.lower() in row_cells for name in _AZURE) > 1
    begins_with_date = "-" in row_cells[0] and _begins_with_digit(row_cells[0])
    if has_header or (len(row_cells) == len(_AZURE) and begins_with_date):
        return TraceFormat.AZURE
    raise FaultError(f"none of the known formats: {_FORMATS}; name one, as in FILE,format=azure")


LONGEST_LINE = 64 << 20
"""Maximum bytes of a line; a conversation of a thousand long requests takes 20 MB."""


class TraceError(UsageError):
    """A trace file cannot be used; the message names the file, the line and the fault."""

    def __init__(self, path: str, words: str, line: int | None = None) -> None:
        """Describe the fault `words` in line number `line` (from 1) of the file `path`."""
        line_words = f", line {line:,}" if line is not None else ""
        super().__init__(f"{clean(path, 300)}{line_words}: {words}")


def numbered_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without white space around it) of each line that is not blank.

    Only one line is held in memory at a time.

    Raises:
        TraceError: the file cannot be read, or is not a text file.
    """
    try:
        # Without O_NONBLOCK, opening a named pipe waits for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise TraceError(path, "is not a regular file")
            number = 0
            while raw := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(raw) > LONGEST_LINE:
                    raise TraceError(path, f"longer than {LONGEST_LINE >> 20} MiB: not a trace", number)
                if b"\0" in raw:
                    raise TraceError(path, "NUL bytes: not a text file", number)
                try:
                    text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                except UnicodeDecodeError:
                    raise TraceError(path, "not UTF-8: not a text file", number) from None
                if text:
                    yield number, text
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        raise TraceError(path, f"cannot be read: {reason_of(error)}") from error


MOST_REQUESTS = 1_000_000
"""Maximum number of requests of a replay."""
LONGEST_PAUSE_S = 300.0
"""Longer pauses of a conversation without a clock are shortened to this."""
CONVERSATION_GAP_S = 30.0
"""Seconds between the begins of two conversations, in files that state no time for them."""
_REMEMBERED = 200_000
"""Number of sessions after which the oldest is forgotten; so long files take a bounded memory."""


class TraceChoice(Struct, frozen=True):
    """Which part of which file is replayed, and how fast."""

    path: str
    form: TraceFormat | None = None
    """None to recognise it from the first line."""
    speed: float = 1.0
    """2 replays twice as fast: all times are halved."""
    from_s: float = 0.0
    """Seconds after the file's first request from which on requests are replayed."""
    to_s: float | None = None
    """Seconds after the file's first request at which the part ends; None for its end."""


class Trace:
    """Iterates over the requests of a chosen part of a trace; use it once."""

    def __init__(self, choice: TraceChoice) -> None:
        """Prepare to read the file; nothing is read before the first iteration."""
        self.choice = choice
        self.form = choice.form
        """The format of the file; None until it is recognised."""
        self.skipped = 0
        """Requests left out because they had no prompt or no answer when they were recorded."""
        self.shortened = 0
        """Pauses that were shortened to `LONGEST_PAUSE_S`."""
        self.conversations = 0
        """Requests that do not wait for another one."""
        self._end_s = math.inf if choice.to_s is None else choice.to_s
        self._origin_s: float | None = None
        self._newest_s: float | None = None
        self._number = 0
        self._latest: OrderedDict[str | None, int | None] = OrderedDict()
        """Number of the latest request of each session, None if it is not replayed."""

    def __iter__(self) -> Iterator[TracedRequest]:
        """Yield the requests in the order of the file.

        Raises:
            TraceError: the file cannot be used from some line on, or holds no request in the chosen part.
        """
        memory: Memory = {}
        line = 0
        path = self.choice.path
        for line, text in numbered_lines(path):
            try:
                self.form = self.form or recognise(text)
                stated = read_line(self.form, text, memory)
                request = None if stated is None else self._place_in_replay(stated)
                if request is not None:
                    yield request
            except FaultError as error:
                raise TraceError(path, str(error), line) from None
            if (self._newest_s or 0.0) >= self._end_s:
                break
        if self._number == 0:
            raise TraceError(path, self._why_empty(has_lines=line > 0))

    def _place_in_replay(self, stated: TracedRequest) -> TracedRequest | None:
        """Return a request, as its line states it, with its place in the replay; None if it has none."""
        session, choice = stated.session, self.choice
        previous_request = self._latest.get(session)
        at_s = self._time_s(stated, follows=session in self._latest)
        in_part = previous_request is not None if at_s is None else choice.from_s <= at_s < self._end_s
        if in_part and (stated.output_tokens == 0 or stated.prompt_tokens == 0):
            self.skipped += 1
            return None
        number = self._number if in_part else None
        if session is not None:
            self._latest[session] = number
            self._latest.move_to_end(session)
            if len(self._latest) > _REMEMBERED:
                self._latest.popitem(last=False)
        if number is None:
            return None
        if number == MOST_REQUESTS:
            raise TraceError(
                choice.path, f"more than {MOST_REQUESTS:,} requests: choose a part with --trace-range"
            )
        self._number += 1
        self.conversations += previous_request is None
        # A request that has its own time in the file has no pause before it.
        pause_s = 0.0 if previous_request is None or stated.due_s is not None else stated.delay_s
        self.shortened += pause_s > LONGEST_PAUSE_S
        return replace(
            stated,
            number=number,
            due_s=None if at_s is None else (at_s - choice.from_s) / choice.speed,
            after=previous_request,
            delay_s=min(pause_s, LONGEST_PAUSE_S) / choice.speed,
        )

    def _time_s(self, stated: TracedRequest, *, follows: bool) -> float | None:
        """Return the seconds from the file's first request to this one; None if its predecessor decides."""
        if stated.due_s is None:
            if follows:
                return None
            at_s = 0.0 if self._newest_s is None else self._newest_s + CONVERSATION_GAP_S
        else:
            if self._origin_s is None:
                self._origin_s = stated.due_s
            at_s = stated.due_s - self._origin_s
        back_s = (self._newest_s or 0.0) - at_s
        if back_s > 0:
            raise FaultError(f"the clock steps back by {back_s:.3g} s: sort the file by time")
        self._newest_s = at_s
        return at_s

    def _why_empty(self, *, has_lines: bool) -> str:
        """Return why the replay has no request."""
        if not has_lines:
            return "is empty"
        if self.skipped:
            return f"no request with a prompt and an answer; {self.skipped:,} failed when they were recorded"
        if self._newest_s is None:
            return "no request, only a header"
        return f"no request in the chosen part: the last request is at {self._newest_s:,.0f} s"


_MOST_BLOCKS = 2_000_000
"""Maximum number of distinct blocks of which the repetitions are counted."""
PATTERN = "trace"
"""Name of the arrivals in place of a pattern."""
SPEEDS = (0.001, 1000.0)
"""Smallest and largest speed."""
_LEAST_PER_S = 0.001
"""Smallest rate of the level, in requests per second: of a single request it is not known."""
_DIGITS = 3
"""Digits of that rate."""
_LONGEST_NAME = 40
"""Characters of a file's name that are shown."""
_SHORTEST_S = 1.0
"""Least seconds of the measured time."""
_TEXT_TOKENS = 128
"""Length of the trial prompts for a trace that holds texts, whose lengths are unknown."""
_LEAST_TAIL_S, _LONGEST_TAIL_S = 30.0, 120.0
"""Seconds after the last request at which the run ends, whatever is not answered: least and most."""
_TURNS_TAIL_S = 600.0
"""The same where turns wait for the answers before them."""
_LONGEST_S = 1e12
"""Largest begin or end of a part, in seconds."""


class TraceReplay(Struct, frozen=True):
    """The recorded traffic of a sweep: which part of which file, and what a replay of it will send.

    Times are at the chosen speed.
    """

    choice: TraceChoice
    form: TraceFormat
    """Format of the file."""
    requests: int
    conversations: int
    """Requests that wait for no other one."""
    skipped: int
    """Requests left out because they failed when they were recorded."""
    shortened: int
    """Pauses that were shortened."""
    duration_s: float
    """Seconds from the first request to the last one, if no answer takes any time."""
    waits: bool
    """Whether requests wait for answers, so that the replay lasts longer than `duration_s`."""
    prompt_tokens: int
    """Sum; of prompts that the file holds as text the tokens are not known."""
    output_tokens: int
    longest_answer: int
    repeated_share: float | None = None
    """Share (0 to 1) of the prompt tokens that an endless prefix cache would have; None if unknown."""
    lengths: tuple[tuple[int, int], ...] = ()
    """(tokens of prompt and answer, number of requests of that length), ascending by length."""
    texts: int = 0
    """Requests whose prompt the file holds as text."""
    begin_s: float = 0.0
    """Seconds from the begin of the part to its first request."""

    @property
    def per_s(self) -> float:
        """Mean rate in requests per second; 0 for a single request or requests at one time."""
        return (self.requests - 1) / self.duration_s if self.duration_s > 0 else 0.0

    def beyond(self, context_tokens: int) -> int:
        """Return how many requests are longer than a context, prompt and answer together."""
        return sum(count for tokens, count in self.lengths if tokens > context_tokens)

    @property
    def name(self) -> str:
        """Name of the file, for display."""
        return clean(Path(self.choice.path).name, _LONGEST_NAME)

    @property
    def point(self) -> LoadPoint:
        """The point of the level: the mean rate of the trace at the chosen speed."""
        rate = float(f"{self.per_s:.{_DIGITS}g}")
        return LoadPoint(LoadKind.RATE, max(_LEAST_PER_S, rate), trace=self.name)

    @property
    def measured_s(self) -> float:
        """Seconds from the first request to the mean gap after the last one, if answers take no time."""
        if self.requests < 2:  # noqa: PLR2004 - a gap needs two
            return _SHORTEST_S
        return max(_SHORTEST_S, self.duration_s * self.requests / (self.requests - 1))

    @property
    def tail_s(self) -> float:
        """Seconds after the last request at which requests without an answer are given up.

        Where turns wait for answers, a slow answer must not end the conversations that wait for it.
        """
        if self.waits:
            return _TURNS_TAIL_S
        return min(_LONGEST_TAIL_S, max(_LEAST_TAIL_S, self.duration_s))

    def too_long(self, context_tokens: int | None) -> str | None:
        """Return how many requests are longer than a server's context, as text; None if none is."""
        if context_tokens is None or not (count := self.beyond(context_tokens)):
            return None
        return (
            f"{count:,} of {self.requests:,} requests of {self.name} are longer than its context of "
            f"{context_tokens:,} tokens, prompt and answer together: it will refuse them"
        )

    def settings(self) -> dict[str, Any]:
        """Return the settings of a plan of this replay, by field name; lengths are the means, if known."""
        sized_requests = self.requests - self.texts
        mean_prompt = round(self.prompt_tokens / sized_requests) if sized_requests else 0
        return {
            "points": (self.point,),
            "arrivals": PATTERN,
            "depths": (),
            "whole": False,
            "prompt_lengths": (mean_prompt or _TEXT_TOKENS,),
            "tg": max(1, round(self.output_tokens / self.requests)),
            "duration_s": self.measured_s,
        }


def read_replay(choice: TraceChoice) -> TraceReplay:
    """Read the chosen part of a trace once and return what a replay of it will send.

    Raises:
        TraceError: the file cannot be used.
    """
    trace = Trace(choice)
    lengths: Counter[int] = Counter()
    count, prompts, outputs, most_output = 0, 0, 0, 0
    waits, texts = False, 0
    earliest = array("d")  # seconds at which each request can begin, if answers take no time
    repeated = _Repeated()
    begin_s, last_s = None, 0.0
    for request in trace:
        count += 1
        length = request.prompt_tokens or 0
        prompts += length
        outputs += request.output_tokens
        lengths[length + request.output_tokens] += 1
        texts += request.prompt_tokens is None
        most_output = max(most_output, request.output_tokens)
        at_s = request.due_s or 0.0
        if request.after is not None:
            waits = True
            at_s = max(at_s, earliest[request.after] + request.delay_s)
        begin_s = at_s if begin_s is None else begin_s
        last_s = max(last_s, at_s)
        earliest.append(at_s)
        repeated.add(request, length)
    assert trace.form is not None  # noqa: S101 - a trace without a format raises
    return TraceReplay(
        choice=choice,
        form=trace.form,
        requests=count,
        conversations=trace.conversations,
        skipped=trace.skipped,
        shortened=trace.shortened,
        duration_s=last_s - (begin_s or 0.0),
        waits=waits,
        prompt_tokens=prompts,
        output_tokens=outputs,
        longest_answer=most_output,
        repeated_share=repeated.share(prompts),
        lengths=tuple(sorted(lengths.items())),
        texts=texts,
        begin_s=begin_s or 0.0,
    )


class _Repeated:
    """Counts the prompt tokens that an earlier prompt has at its begin, too."""

    def __init__(self) -> None:
        self._tokens = 0
        self._blocks: dict[tuple[str, int], int] = {}
        """Tokens of each block, of the longest prompt that it ends."""
        self._lengths: dict[str, int] = {}
        self._is_known = True

    def add(self, request: TracedRequest, length: int) -> None:
        """Count what the prompt of a request, of `length` tokens, repeats of earlier ones."""
        if not self._is_known:
            return
        if request.blocks:
            self._tokens += self._add_blocks(request, length)
        elif request.scope:
            self._tokens += min(self._lengths.get(request.scope, 0), length)
            self._lengths[request.scope] = max(self._lengths.get(request.scope, 0), length)
        if len(self._blocks) + len(self._lengths) > _MOST_BLOCKS:
            self._is_known = False
            self._blocks.clear()
            self._lengths.clear()

    def _add_blocks(self, request: TracedRequest, length: int) -> int:
        """Return how many of a prompt's first tokens are in blocks of earlier prompts, and add its blocks."""
        size, repeated, is_begin = request.block_tokens, 0, True
        for number, block in enumerate(request.blocks):
            needed = min(size, length - number * size)
            if needed <= 0:
                break
            repeats = self._blocks.get((request.scope, block), 0)
            if is_begin:
                repeated += min(repeats, needed)
                is_begin = repeats >= needed
            if repeats < needed:
                self._blocks[request.scope, block] = needed
        return repeated

    def share(self, prompts: int) -> float | None:
        """Return the repeated share (0 to 1) of all `prompts` tokens; None if nothing shows it."""
        has_any = bool(self._blocks or self._lengths)
        return self._tokens / prompts if self._is_known and has_any and prompts else None


def parse_range(text: str) -> tuple[float, float | None]:
    """Return (begin, end) in seconds of a part such as "600..1200", "10m..1h", "..90" or "1h..".

    The end of the last one is None.

    Raises:
        UsageError: the text is not a part, or the part is empty.
    """
    first, last = split_range(text)
    if last is None:
        raise UsageError(f"{_quote_text(text)} is no part: write it as in 600..1200, 10m..1h or 1h..")
    begin = _seconds(first) if first else 0.0
    end = _seconds(last) if last else None
    if end is not None and end <= begin:
        raise UsageError(f"{_quote_text(text)} is empty: it ends before it begins")
    return begin, end


def _seconds(text: str) -> float:
    try:
        return seconds(text, 0.0, _LONGEST_S)
    except UsageError:
        raise UsageError(f"{_quote_text(text)} is no time: write seconds, or 10m, 2h, 1d") from None


def _quote_text(text: str) -> str:
    return f"'{clean(text, _LONGEST_NAME)}'"
