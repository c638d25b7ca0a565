"""A streamed answer: from received bytes to tokens with arrival times."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections import Counter
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from sparktop.model.load import TokenSource
from sparktop.model.text import clean

# Split a byte stream, received in pieces of any size, into server-sent events (SSE).
#
# Follows the WHATWG HTML standard, 9.2: lines end in LF, CR or CRLF; an empty line ends an event; the data
# lines of an event are joined by LF; a line that begins with a colon is a comment. Only data fields and
# errors are used. Bytes are not decoded before an event is complete, so a piece may end within a UTF-8
# character.


LARGEST_EVENT_BYTES = 8 << 20
"""Maximum size of an event. vLLM sends the token ids of the prompt in its first event: 7 MB for a million
tokens."""
_BOM = b"\xef\xbb\xbf"
"""Byte order mark of UTF-8, which may begin a stream."""
_KEEP_ALIVE = frozenset({b"ping", b"keepalive", b"heartbeat"})
"""Names, without hyphens, of events that keep a connection alive and are no part of an answer."""


class EventTooLargeError(Exception):
    """An event of the stream is larger than `LARGEST_EVENT_BYTES`."""


class EventSplitter:
    """Accepts a stream in pieces, and returns the data of each SSE event once the event is complete."""

    __slots__ = ("_buffer", "_last_was_cr", "_searched", "_started")

    def __init__(self) -> None:
        """Start at the beginning of a stream."""
        self._buffer = bytearray()
        self._searched = 0
        """Number of bytes at the start of the buffer that are known to contain no end of an event."""
        self._last_was_cr = False
        self._started = False

    def feed(self, data: bytes) -> list[bytes]:
        """Add a piece of the stream; return the data of the events that it completes.

        Raises:
            EventTooLargeError: an event is larger than `LARGEST_EVENT_BYTES`.
        """
        buffer = self._buffer
        if not self._started:
            buffer += data
            if len(buffer) < len(_BOM) and _BOM.startswith(buffer):
                return []
            self._started = True
            data = bytes(buffer).removeprefix(_BOM)
            buffer.clear()
        if self._last_was_cr and data:
            # The CR has already ended its line; an LF after it belongs to the same line end.
            data = data.removeprefix(b"\n")
            self._last_was_cr = False
        if b"\r" in data:
            self._last_was_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        buffer += data
        end = buffer.rfind(b"\n\n", self._searched)
        whole_events = bytes(buffer[:end]) if end >= 0 else b""
        if end >= 0:
            del buffer[: end + 2]
        # The end of an event may begin with the last byte.
        self._searched = max(0, len(buffer) - 1)
        if len(buffer) > LARGEST_EVENT_BYTES:
            raise EventTooLargeError
        return _split_events(whole_events)

    @property
    def is_between_events(self) -> bool:
        """True if the stream so far ends with a complete event, and the next piece begins with another."""
        return self._started and not self._buffer and not self._last_was_cr

    def rest(self) -> list[bytes]:
        """Return the data of a last event whose empty line is missing; empty if there is none."""
        return _split_events(bytes(self._buffer).strip(b"\n"))


def _split_events(text: bytes) -> list[bytes]:
    """Return the data of each event in `text`, which uses LF only and ends with a complete event."""
    events = map(_event_data, text.split(b"\n\n"))
    return [data for data in events if data is not None]


def _event_data(block: bytes) -> bytes | None:
    """Return the data of the event `block`; None for an event without data, or one that keeps alive.

    llama.cpp sends an error in a field named "error", some servers in an event named "error". Both are
    converted to what other servers send: a JSON object with the key "error".
    """
    lines: list[bytes] = []
    is_error = False
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            lines.append(value)
        elif name == b"error":
            lines, is_error = [value], True
        elif name == b"event" and value == b"error":
            is_error = True
        elif name == b"event" and value.strip().lower().translate(None, b"-_") in _KEEP_ALIVE:
            return None
    data = b"\n".join(lines)
    if not data.strip():
        return None
    if is_error and b'"error"' not in data:
        is_json = data.lstrip()[:1] in {b"{", b"[", b'"'}
        return b'{"error":%b}' % (data if is_json else json.dumps(data.decode("utf-8", "replace")).encode())
    return data


# Parse the events of a completion stream.


DONE = b"[DONE]"
"""Beginning of the data of the event that ends a stream."""
_PROMPT_IDS = b'"prompt_token_ids":'
_MOST_TOKENS = 100_000_000
"""Larger counts of tokens in one request are damaged values."""
_WORDS_LIMIT = 4000
"""Maximum characters kept of an error message: more than are shown, because a key that the server repeats is
masked before it is cut."""


class BadEventError(Exception):
    """An event that is not a JSON object."""


class Usage(Struct, frozen=True):
    """The server's own token counts of a request; None for a count that the server does not send."""

    prompt_tokens: int | None
    cached_tokens: int | None
    generated_tokens: int | None


class StreamEvent(Struct, frozen=True):
    """What one event of the stream says about the answer: its tokens, and how it ends."""

    tokens: int = 0
    """Number of token ids; without ids, 1 if there is text, reasoning or part of a tool call, else 0."""
    has_ids: bool = False
    """True if the event has token ids."""
    total: int | None = None
    """Running total of the request's generated tokens, sent because of `continuous_usage_stats`."""
    is_empty: bool = False
    """True for an empty text without a role: it may stand for a token that has no text."""
    reasoning: bool = False
    """True if the event has reasoning, but no text and no tool call."""
    finish_reason: str | None = None
    usage: Usage | None = None
    """The counts at the end of the stream; None for a running total, and where the event has none."""
    error: str | None = None
    """Error message of the server, cleaned; "" for an error without a message, None for no error."""
    text: str = ""
    """Text of the answer, exactly as the server sent it; reasoning is no part of it."""


class _Delta(Struct, gc=False):
    """What a chunk of a chat adds to the answer; each value may have any type.

    Reasoning has the first key at vLLM and DeepSeek, the second at OpenRouter and newer versions of vLLM, the
    third at servers that keep Ollama's own name; of Mistral's models it is a content that is a list of parts
    of the type "thinking".
    """

    role: Any = UNSET
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    thinking: Any = None
    tool_calls: Any = None
    function_call: Any = None
    refusal: Any = None


class _Choice(Struct, gc=False):
    """A choice of a chunk; only the first one is read."""

    delta: _Delta | None = None
    text: Any = None
    token_ids: Any = None
    finish_reason: Any = None


class _Chunk(Struct, gc=False):
    """The data of an event, with all keys of which a completion stream may have one that is read."""

    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    object: Any = None
    errors: Any = None
    detail: Any = None
    message: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode
_NO_DELTA, _NO_CHOICE = _Delta(), _Choice()


def read_event(data: bytes) -> StreamEvent:
    """Parse the data of an event, which must not begin with `DONE`.

    Raises:
        BadEventError: the data is not a JSON object.
    """
    data = without_prompt_ids(data)
    try:
        chunk = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        chunk = _odd_chunk(data)
    error = chunk.error
    if not (error or chunk.choices or chunk.usage):  # where there is no answer, an error has other names, too
        error = chunk.errors or chunk.detail or (chunk.message if isinstance(chunk.message, str) else None)
    if error or chunk.object == "error":
        if isinstance(error, dict):
            error = error.get("message") or error.get("detail") or error.get("type") or ""
        return StreamEvent(error=clean(error, _WORDS_LIMIT))
    choice = chunk.choices[0] if chunk.choices else _NO_CHOICE
    delta = choice.delta or _NO_DELTA
    ids = choice.token_ids
    id_count = len(ids) if isinstance(ids, list) else 0
    text = choice.text or delta.content
    thoughts = isinstance(text, list) and all(
        isinstance(part, dict) and part.get("type") == "thinking" for part in text
    )
    answers = bool((text and not thoughts) or delta.tool_calls or delta.function_call or delta.refusal)
    reasons = bool((text and thoughts) or delta.reasoning_content or delta.reasoning or delta.thinking)
    finish = choice.finish_reason
    if isinstance(finish, dict):  # as SGLang's own interface has it
        finish = finish.get("type")
    visible = id_count or int(answers or reasons)
    is_empty = not visible and "" in (choice.text, delta.content)
    usage = None if chunk.usage is None else _read_usage(chunk.usage)
    # A usage without a choice, or beside an empty one, closes the stream and is not a running total.
    total = usage.generated_tokens if usage is not None and (visible or finish or is_empty) else None
    return StreamEvent(
        tokens=visible,
        has_ids=id_count > 0,
        total=total,
        is_empty=is_empty and not finish and delta.role is UNSET,
        reasoning=reasons and not answers,
        finish_reason=clean(finish, 40) if finish else None,
        usage=usage if finish or total is None else None,
        text=text if isinstance(text, str) else "",
    )


def _odd_chunk(data: bytes) -> _Chunk:
    """Return what is read of an event whose parts have other types, or whose text is not UTF-8.

    A server that cuts a character in two sends such text.

    Raises:
        BadEventError: it is not a JSON object.
    """
    try:
        body = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise BadEventError from error
    if body is None:  # keeps the connection alive
        return _Chunk()
    if not isinstance(body, dict):
        raise BadEventError
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    choice_read = dict(choice) if isinstance(choice, dict) else {}
    if not isinstance(choice_read.get("delta"), dict):
        choice_read["delta"] = None
    return msgspec.convert(body | {"choices": [choice_read]}, _Chunk)


def without_prompt_ids(data: bytes) -> bytes:
    """Return an event's data with the token ids of the prompt replaced by null.

    With long prompts they are most of the first event, and are not needed.
    """
    key = data.find(_PROMPT_IDS)
    if key < 0:
        return data
    begin = key + len(_PROMPT_IDS)
    while data[begin : begin + 1] == b" ":
        begin += 1
    end = data.find(b"]", begin)
    if data[begin : begin + 1] != b"[" or end < 0:
        return data
    return data[:begin] + b"null" + data[end + 1 :]


def _read_usage(usage: object) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    return Usage(
        # No prompt is empty: some servers do not count them.
        prompt_tokens=_count(usage.get("prompt_tokens")) or None,
        cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else None,
        generated_tokens=_count(usage.get("completion_tokens")),
    )


def _count(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # as Lua and JavaScript may write it
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _MOST_TOKENS else None


_DATA, _CR = b"data: ", 0x0D
_NOTHING_ELSE = (None,) * 7
"""What a plain event has of an error, another kind of answer or its end."""


def _read_plain(body: bytes) -> tuple[str | None, list[Any] | None, int | None] | None:
    """Return (text, token ids, running total) of a read that is one plain event; None for any other read.

    Nearly all events are plain: text or reasoning, token ids and a running total. The text is None or empty
    where the event has reasoning. This takes half of the time of reading any event.
    """
    line, _, rest = body.partition(b"\n")
    if rest != b"\n" or _CR in line or not line.startswith(_DATA):
        return None
    try:
        chunk = _decode(line[len(_DATA) :])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    choice = chunk.choices[0] if chunk.choices else _NO_CHOICE
    delta, usage, total = choice.delta or _NO_DELTA, chunk.usage, None
    tools = (delta.thinking, delta.tool_calls, delta.function_call, delta.refusal)
    if (chunk.error, choice.text, choice.finish_reason, *tools) != _NOTHING_ELSE or chunk.object == "error":
        return None
    if usage is not None:
        total = _count(usage.get("completion_tokens")) if isinstance(usage, dict) else None
    text, ids = delta.content, choice.token_ids
    is_text = isinstance(text or delta.reasoning_content or delta.reasoning, str)
    if not is_text or (usage is not None and total is None):
        return None
    return text, ids if isinstance(ids, list) else None, total


# Find out how many tokens each read of a streamed answer brought, once the answer is complete.
#
# A chunk is not a token: with speculative decoding or batched output, a chunk has several tokens; a parser
# delays some tokens, and hidden reasoning is never sent. Exact counts come from token ids, or from a
# running total in each chunk. Without these, the server's total at the end decides which chunks count as
# one token each. If no interpretation of the chunks adds up to that total, some tokens have no known time,
# and the metrics that need the times of single tokens are not computed.


_SLACK = 1.5
"""Maximum ratio of the time of the tokens before the first chunk to their time at the answer's mean rate."""
_FINISH_SHARE = 0.5
"""A finish event counts as a token if it arrives after the last chunk by more than this fraction of the mean
time between two chunks. A finish event that is not a token arrives together with the last chunk."""


class CountedTokens(Struct, frozen=True):
    """The tokens of a complete answer, by the read that brought them."""

    times: array[float]
    """Time in seconds of each read that brought tokens."""
    counts: list[int]
    """Tokens of each of those reads."""
    source: TokenSource | None
    """Where the counts come from; None if no token arrived."""
    generated: int | None
    """Total of generated tokens as counted by the server; None if the server sends no count."""
    hidden_before: int = 0
    """Number of tokens that were generated before the first visible chunk, and are not in `counts`."""
    answer_from: int = 0
    """Index of the first read with more than reasoning; `len(times)` if there is none."""
    spans_all: bool = False
    """True if the first and the last of `times` are those of the first and the last token, although `counts`
    may lack tokens in between."""


# Parse one streamed answer: when its tokens arrived, how many, and what the server reported about them.


ENDLESS_EVENT, NO_JSON = "sends an event without an end", "sent an event that is not a JSON object"
"""Violations of the stream's format, as text that follows the server's name."""


class TokenStream:
    """Parses the body of a streamed answer, one read after the other."""

    __slots__ = (
        "_all_ids",
        "_all_totals",
        "_answer_at",
        "_counts",
        "_empty_at",
        "_ended_at",
        "_finish_at",
        "_is_between",
        "_role_at",
        "_sizes",
        "_splitter",
        "_total",
        "done",
        "error",
        "fault",
        "finish_reason",
        "has_begun",
        "text",
        "times",
        "tokens",
        "usage",
    )

    def __init__(self, *, keep_text: bool = False) -> None:
        """Start at the beginning of an answer; with `keep_text`, its text is collected."""
        self.has_begun = False
        """True after the first event, with or without tokens."""
        self.tokens = 0
        """Number of tokens received; an estimate until the answer is complete, see `count_tokens`."""
        self.done = False
        """True after the event `[DONE]`."""
        self.error: str | None = None
        """Message of an error event; events after it are ignored."""
        self.fault: str | None = None
        """Violation of the format; events after it are ignored."""
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.text: list[str] | None = [] if keep_text else None
        """The text of the answer in pieces; None where it is not collected."""
        self.times = array("d")
        """Time in seconds of each read so far that certainly brought tokens, in order."""
        self._counts: list[int] = []
        """Tokens of each of those reads, as far as known while the answer arrives."""
        self._splitter = EventSplitter()
        self._is_between = False
        """True if the stream has begun and goes on, and its next read begins with an event."""
        self._answer_at: float | None = None
        """Time of the first read with more than reasoning; None if there is none."""
        self._all_ids = self._all_totals = True
        self._total = 0
        """Latest running total that the server sent."""
        self._sizes: list[int] = []
        """Tokens of each chunk, from differences of the running total."""
        self._empty_at: list[float] = []
        """Time of each chunk with an empty text."""
        self._finish_at: float | None = None
        """Time of a finish event that shows no token."""
        self._role_at: float | None = None
        """Time of a first event that shows no token (the role alone)."""
        self._ended_at: float | None = None
        """Time of the event with the finish reason, which arrives with the last token."""

    @property
    def is_reasoning(self) -> bool:
        """True as long as no token other than reasoning has arrived, also before the first token."""
        return self._answer_at is None

    def feed(self, at: float, body: bytes) -> int:
        """Parse the data of a read at the time `at`; return the number of its tokens for live display.

        For the first read with tokens, return only the number of visible tokens: the running total in this
        read may include tokens that the server generated earlier and did not send.
        """
        plain = _read_plain(body) if self._is_between else None
        if plain is None:
            return self._feed_any(at, body)
        text, ids, total = plain
        tokens = len(ids) if ids else 1
        if text and self.text is not None:
            self.text.append(text)
        count = self._count_chunk(tokens, total, has_ids=bool(ids))
        return self._add_read(at, count, tokens if count else 0, is_reasoning=not text)

    def _feed_any(self, at: float, body: bytes) -> int:
        """Parse the data of a read as `feed` does, whatever its events."""
        try:
            events = self._splitter.feed(body)
        except EventTooLargeError:
            self.fault = ENDLESS_EVENT
            events = []
        is_first, self.has_begun = not self.has_begun, self.has_begun or bool(events)
        count, visible, is_reasoning = 0, 0, True
        for data in events:
            event = self._read(data)
            if event is None:
                break
            if event.text and self.text is not None:
                self.text.append(event.text)
            stands_for = self._count_chunk(event.tokens, event.total, has_ids=event.has_ids)
            if is_first and not stands_for:
                self._role_at = at
            is_first = False
            if stands_for:
                count += stands_for
                visible += event.tokens or 1
                is_reasoning &= event.reasoning
            self._apply_event(at, event, shows_token=stands_for > 0)
        goes_on = self.has_begun and self.error is None and not (self.done or self.fault)
        self._is_between = goes_on and self._splitter.is_between_events
        return self._add_read(at, count, visible, is_reasoning=is_reasoning)

    def _add_read(self, at: float, count: int, visible: int, *, is_reasoning: bool) -> int:
        """Record a read with `count` tokens, `visible` of them visible; return those for live display."""
        live = count if self.times else visible
        if count:
            self.tokens += count
            self.times.append(at)
            self._counts.append(count)
            if self._answer_at is None and not is_reasoning:
                self._answer_at = at
        return live

    def close(self) -> None:
        """Note that the body is complete: an event `[DONE]` at its end may lack its empty line."""
        self.done = self.done or any(data.startswith(DONE) for data in self._splitter.rest())

    @property
    def prelude_s(self) -> float | None:
        """Seconds from the first event of the stream to its finish event.

        None if either is missing, or if the first event has more than the role "assistant".
        """
        begun_at, ended_at = self._role_at, self._ended_at
        return None if begun_at is None or ended_at is None else ended_at - begun_at

    def count_tokens(self, *, first_event_is_token: bool = False) -> CountedTokens:
        """Return the tokens of the complete answer, with the best counts that its chunks allow.

        `first_event_is_token` is True for a server whose first event, with only the role "assistant", comes
        with its first token.
        """
        reported = None if self.usage is None else self.usage.generated_tokens
        times, counts, hidden = self.times, self._counts, 0
        placed = sum(counts)
        if times and self._all_ids and reported in {None, placed}:
            source, reported = TokenSource.TOKEN_IDS, placed
        elif self._all_totals and self._total:
            source = TokenSource.CHUNK_USAGE
            # A stream that broke off has no total at its end, and a total of 0 in the first event is not a
            # count.
            reported = max(reported or 0, self._total)
            # The first total includes tokens that were generated and not sent. If it is at most the mean of a
            # later chunk, none was; else one belongs to the first chunk. The last one may be smaller.
            first_size, *later_sizes = [size for size in self._sizes if size]
            usual_sizes = later_sizes[:-1] or later_sizes or [1]
            hidden = 0 if first_size <= max(1, round(sum(usual_sizes) / len(usual_sizes))) else first_size - 1
            begin = self._role_at
            if hidden and first_event_is_token and begin is not None and begin < times[0]:
                times, counts, hidden = array("d", [begin, *times]), [1, counts[0] - 1, *counts[1:]], 0
            counts = [counts[0] - hidden, *counts[1:]]
        else:
            source = TokenSource.CHUNKS if reported is None else TokenSource.USAGE
        if reported is not None and reported > placed:
            times, counts = self._add_silent_events(times, counts, reported - placed)
        spans_all = False
        if source is TokenSource.USAGE and first_event_is_token and (reported or 0) > sum(counts):
            spanned = self._add_both_ends(times, counts, reported or 0)
            spans_all = spanned is not None
            times, counts = spanned or (times, counts)
        answer_from = len(times) if self._answer_at is None else bisect_left(times, self._answer_at)
        known_source = source if times or reported else None
        return CountedTokens(times, counts, known_source, reported, hidden, answer_from, spans_all)

    def _add_silent_events(
        self, times: array[float], counts: list[int], missing: int
    ) -> tuple[array[float], list[int]]:
        """Return (times, counts) of the reads with one token added for each event without text.

        Three groups of events are possible: all chunks with empty text, these chunks and a late finish event,
        or a late finish event alone. The group that has exactly `missing` events is added. If no group does,
        return the arguments unchanged.
        """
        silent = list(self._empty_at)
        if len(silent) != missing and self._finish_at is not None and self._is_late_finish(self._finish_at):
            silent = [*silent, self._finish_at] if len(silent) + 1 == missing else [self._finish_at]
        if len(silent) != missing:
            return times, counts
        reads = Counter(dict(zip(times, counts, strict=True)))
        reads.update(silent)
        ordered = sorted(reads)
        return array("d", ordered), [reads[index] for index in ordered]

    def _add_both_ends(
        self, times: array[float], counts: list[int], reported: int
    ) -> tuple[array[float], list[int]] | None:
        """Return (times, counts) of the reads with a token added for the first and for the finish event.

        Neither event shows a token, but a token may have come with it. Return None if no token can have come
        with the first event: the next read came later than `missing` tokens take at the mean token rate.
        Here, `missing` is `reported` minus the sum of `counts`.
        """
        begin, end = self._role_at, self._ended_at
        if begin is None or end is None or not times or not begin <= times[0] <= end:
            return None
        reads = dict(zip(times, counts, strict=True))
        for index in (begin, end):
            if index not in reads and sum(reads.values()) < reported:
                reads[index] = 1
        missing_tokens = reported - sum(counts)
        pace_s = (end - begin) / max(1, reported - reads[begin]) if begin in reads else 0.0
        if times[0] - begin > _SLACK * (missing_tokens + 1) * pace_s:
            return None
        ordered = sorted(reads)
        return array("d", ordered), [reads[index] for index in ordered]

    def _is_late_finish(self, finish: float) -> bool:
        """Return whether a finish event at the time `finish` came late enough to count as a token."""
        times = [*self.times, *self._empty_at]
        if len(times) < 2:  # noqa: PLR2004 - a gap has two ends
            return not times or finish > max(times)
        gap = (max(times) - min(times)) / (len(times) - 1)
        return finish - max(times) > _FINISH_SHARE * gap

    def _count_chunk(self, tokens: int, total: int | None, *, has_ids: bool) -> int:
        """Record a chunk that shows `tokens` tokens, and return how many tokens to count for it.

        `total` is the running total of tokens in this chunk; None if the server does not send one. Return how
        much it grew since the previous chunk, or `tokens` if there is no usable total.
        """
        is_usable = self._all_totals and total is not None and (total or not tokens)
        if is_usable and total is not None and total >= self._total:
            count, self._total = total - self._total, total
            self._sizes.append(count)
            self._all_ids &= count == tokens and (has_ids or not tokens)
            return count
        if tokens:
            self._all_totals = False
            self._all_ids &= has_ids
        return tokens

    def _read(self, data: bytes) -> StreamEvent | None:
        """Parse an event; return None at or after the end of the stream, after an error, and for bad data."""
        if data.startswith(DONE):
            self.done = True
        if self.done or self.error is not None:
            return None
        try:
            return read_event(data)
        except BadEventError:
            self.fault = NO_JSON
            return None

    def _apply_event(self, at: float, event: StreamEvent, *, shows_token: bool) -> None:
        if event.finish_reason is not None:
            self._ended_at = at
            if not shows_token:
                self._finish_at = at
        elif event.is_empty and not shows_token:
            self._empty_at.append(at)
        self.error = event.error
        self.finish_reason = event.finish_reason or self.finish_reason
        self.usage = event.usage or self.usage
