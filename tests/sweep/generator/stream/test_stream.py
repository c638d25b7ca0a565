"""Only the tokens that an event reports are counted, whatever its text holds.

Events are the same however the bytes of their stream were split.

How many tokens each read brought: by ids, by running totals, by the total at the end, or by chunks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.model.load import TokenSource
from sparktop.sweep.generator import stream as sse
from sparktop.sweep.generator.stream import (
    BadEventError,
    CountedTokens,
    EventSplitter,
    EventTooLargeError,
    TokenStream,
    Usage,
    read_event,
)

TEXTS = st.one_of(
    st.sampled_from(
        ["", '"', "\\", '"token_ids":[1,2]', '"error"', '"usage":{', '"reasoning":"x"', "é😀", "}"]
    ),
    st.text(max_size=12),
)


def chunk(
    text: str | None, ids: list[int] | None, finish: str | None, *, chat: bool, total: int | None = None
) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "logprobs": None}
    if finish != "absent":
        choice["finish_reason"] = finish
    if chat:
        choice["delta"] = {"content": text}
    else:
        choice["text"] = text
    if ids is not None:
        choice["token_ids"] = ids
    found: dict[str, Any] = {"id": "x", "model": "m", "choices": [choice], "prompt_token_ids": None}
    if total is not None:
        found["usage"] = {"prompt_tokens": 9, "total_tokens": 9 + total, "completion_tokens": total}
    return found


@given(
    TEXTS,
    st.one_of(st.none(), st.lists(st.integers(0, 200_000), max_size=80)),
    st.sampled_from([None, "length", "absent"]),
    st.one_of(st.none(), st.integers(0, 10_000)),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_what_a_text_holds_counts_for_nothing(
    text: str,
    ids: list[int] | None,
    finish: str | None,
    total: int | None,
    chat: bool,  # noqa: FBT001 - drawn
    tight: bool,  # noqa: FBT001 - as above
    escaped: bool,  # noqa: FBT001 - as above
) -> None:
    """JSON keys, quotes and halves of characters in a token's text: tokens, end and total are as reported."""
    separators = (",", ":") if tight else None
    found = chunk(text, ids, finish, chat=chat, total=total)
    raw = json.dumps(found, separators=separators, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    event = read_event(raw)
    assert event.tokens == (len(ids) if ids else int(bool(text)))
    assert (event.has_ids, event.reasoning, event.error) == (bool(ids), False, None)
    assert event.finish_reason == (finish if finish == "length" else None)
    assert event.total == total
    assert event.usage == (Usage(9, None, total) if total is not None and finish == "length" else None)


@pytest.mark.parametrize(
    ("delta", "tokens", "reasoning"),
    [
        ({"role": "assistant", "content": ""}, 0, False),
        ({"content": None, "reasoning_content": "hm"}, 1, True),
        ({"reasoning": "hm"}, 1, True),
        ({"content": "yes", "reasoning_content": "hm"}, 1, False),
        ({"content": "yes", "reasoning_content": None}, 1, False),
        ({"thinking": "hm"}, 1, True),
        ({"refusal": "no"}, 1, False),
        ({"content": [{"type": "text", "text": "yes"}]}, 1, False),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}, 1, True),
        ({"content": None, "tool_calls": [{"index": 0, "function": {"arguments": '{"'}}]}, 1, False),
    ],
)
def test_reasoning_is_told_apart(delta: dict[str, Any], tokens: int, reasoning: bool) -> None:  # noqa: FBT001 - a table
    """Reasoning under any name, words of refusal, parts of a content or a call are tokens, a role is none."""
    found: dict[str, Any] = {"choices": [{"delta": delta, "finish_reason": None}]}
    event = read_event(json.dumps(found, separators=(",", ":")).encode())
    assert (event.tokens, event.reasoning) == (tokens, reasoning)
    if tokens:
        found["choices"][0]["token_ids"] = [7, 8]
        event = read_event(json.dumps(found, separators=(",", ":")).encode())
        assert (event.tokens, event.reasoning) == (2, reasoning)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"error": {"message": "no \x1b[31mmemory"}}, "no [31mmemory"),
        ({"error": "gone"}, "gone"),
        ({"object": "error", "message": "old style"}, "old style"),
        ({"error": {"code": 500}}, ""),
        ({"detail": "upstream gone"}, "upstream gone"),
        ({"errors": {"message": "out of memory"}, "choices": []}, "out of memory"),
        ({"message": "overloaded", "code": 429}, "overloaded"),
    ],
)
def test_errors_are_told_in_the_servers_words(found: dict[str, Any], words: str) -> None:
    """The forms of errors that servers put into a stream all give their words, clean."""
    assert read_event(json.dumps(found).encode()).error == words


@pytest.mark.parametrize("raw", [b"", b"<html>", b"[1]", b"3", b"{", b"[" * 100_000])
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    """HTML, arrays and half an object are not events."""
    with pytest.raises(BadEventError):
        read_event(raw)


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *(b"", b"", b":", b": comment", b"data", b"data:", b"data: ", b"data:x", b"id: 4"),
                *(b"event: ping", b"event: keep-alive"),
            ]
        ),
        st.text(alphabet="aé€😀 :", max_size=6).map(lambda text: b"data: " + text.encode()),
    ),
    max_size=12,
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def events_of(*reads: bytes) -> list[bytes]:
    splitter = EventSplitter()
    return [event for read in reads for event in splitter.feed(read)]


def by_the_standard(stream: bytes) -> list[bytes]:
    """Split a whole stream line by line, as the standard defines it, and leave out what keeps it alive."""
    text = stream.removeprefix(b"\xef\xbb\xbf")
    found, data, kind = [], None, b""
    for line in re.split(rb"\r\n|\n|\r", text)[:-1]:
        name, _, value = line.partition(b":")
        if not line:
            if data is not None and data.strip() and kind not in {b"ping", b"keep-alive"}:
                found.append(data)
            data, kind = None, b""
        elif name == b"event":
            kind = value.strip()
        elif name == b"data":
            value = value.removeprefix(b" ")
            data = value if data is None else data + b"\n" + value
    return found


def pieces_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(stream) + 1) for cut in cuts})
    return [stream[begin:end] for begin, end in zip([0, *places], [*places, len(stream)], strict=True)]


@given(
    st.lists(st.tuples(LINES, ENDS), max_size=6),
    st.lists(st.integers(0, 10_000), max_size=12),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
)
def test_any_split_gives_the_events_of_the_standard(
    parts: list[tuple[list[bytes], bytes]], cuts: list[int], mark: bytes
) -> None:
    """Whatever the line ends, comments and places of the cuts: the events are those of the whole stream."""
    stream = mark + b"".join(line + end for lines, end in parts for line in lines)
    assert events_of(*pieces_of(stream, cuts)) == by_the_standard(stream)


@pytest.mark.parametrize(
    "stream", [b'event: error\ndata: {"message":"no"}\n\n', b'error: {"message":"no"}\n\n']
)
def test_errors_by_field_or_name_become_error_objects(stream: bytes) -> None:
    """An error named by the event or in llama.cpp's own field reads like an error object."""
    assert events_of(stream) == [b'{"error":{"message":"no"}}']


def test_an_event_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that grows beyond any sense ends the stream instead of the memory."""
    monkeypatch.setattr(sse, "LARGEST_EVENT_BYTES", 1000)
    splitter = EventSplitter()
    for _ in range(10):
        assert splitter.feed(b"data: " + b"x" * 94) == []
    with pytest.raises(EventTooLargeError):
        splitter.feed(b"x")


WORD = {"content": " word"}
ROLE = {"role": "assistant", "content": ""}
CALL = {"tool_calls": [{"index": 0, "function": {"arguments": '{"content":"x"}'}}]}


def event(
    delta: Mapping[str, Any] | None, *, total: int | None = None, finish: str | None = None, ids: int = 0
) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    if ids:
        choices[0]["token_ids"] = list(range(ids))
    usage = None if total is None else {"prompt_tokens": 9, "completion_tokens": total}
    return {"choices": choices, "usage": usage}


def raw(found: object) -> bytes:
    return f"data: {json.dumps(found, separators=(',', ':'))}\n\n".encode()


def counted(*reads: Sequence[Mapping[str, Any]], first_event_is_token: bool = False) -> CountedTokens:
    """Feed one read a second from second 1 on; return the count."""
    stream = TokenStream()
    for at, events in enumerate(reads, 1):
        stream.feed(float(at), b"".join(map(raw, events)))
    return stream.count_tokens(first_event_is_token=first_event_is_token)


def parts(found: CountedTokens) -> tuple[list[float], list[int], TokenSource | None, int | None]:
    return list(found.times), found.counts, found.source, found.generated


def test_a_finish_event_is_the_end_token_if_it_comes_a_step_later() -> None:
    """The token that ends a text has no text of its own; its step took as long as any other."""
    ending = [event({}, finish="stop"), event(None, total=4)]
    late = counted([event(WORD)], [event(WORD)], [event(WORD)], ending)
    assert parts(late) == ([1.0, 2.0, 3.0, 4.0], [1, 1, 1, 1], TokenSource.USAGE, 4)
    at_once = counted([event(WORD)], [event(WORD)], [event(WORD), *ending])
    assert parts(at_once) == ([1.0, 2.0, 3.0], [1, 1, 1], TokenSource.USAGE, 4)


def test_running_totals_count_whatever_a_chunk_shows() -> None:
    """Several tokens in a chunk, a part of a call, an empty text, a finish event: all count what they add."""
    found = counted(
        [event(ROLE, total=0)],
        [event(WORD, total=1)],
        [event(WORD, total=4), event(CALL, total=5)],
        [event({"content": ""}, total=6)],
        [event({}, total=9, finish="length"), event(None, total=9)],
    )
    assert parts(found) == ([2.0, 3.0, 4.0, 5.0], [1, 4, 1, 3], TokenSource.CHUNK_USAGE, 9)
    assert found.hidden_before == 0


@pytest.mark.parametrize(
    ("totals", "hidden"),
    [
        ((1, 2, 3, 4), 0),
        ((2, 3, 4, 5), 1),
        ((41, 42, 43, 44), 40),
        ((8, 16, 24, 31), 0),
        ((9,), 8),
        ((1,), 0),
    ],
)
def test_a_first_chunk_larger_than_the_others_hides_what_came_before(
    totals: tuple[int, ...], hidden: int
) -> None:
    """Forty tokens of hidden reasoning, or an unsent first token, are hidden; eight in each chunk are not."""
    found = counted(*([event(WORD, total=total)] for total in totals), [event(None, total=totals[-1])])
    assert found.hidden_before == hidden
    assert sum(found.counts) + hidden == totals[-1]


def test_a_total_without_a_chunk_before_it_is_no_running_total() -> None:
    """Totals only in the finish event, all 0 until then, or missing in a chunk: the chunks count one each."""
    for middle in (None, 0):
        found = counted(
            [event(WORD, total=middle)], [event(WORD, total=middle)], [event({}, total=40, finish="stop")]
        )
        assert parts(found) == ([1.0, 2.0], [1, 1], TokenSource.USAGE, 40)
    found = counted([event(WORD, total=1)], [event(WORD)], [event(WORD, total=9)], [event(None, total=9)])
    assert parts(found) == ([1.0, 2.0, 3.0], [1, 1, 1], TokenSource.USAGE, 9)


def test_ids_that_hold_back_a_part_are_not_the_whole() -> None:
    """Ids of what is shown do not add up to the total where reasoning is hidden."""
    found = counted([event(WORD, ids=1)], [event(WORD, ids=2)], [event(None, total=9)])
    assert parts(found) == ([1.0, 2.0], [1, 2], TokenSource.USAGE, 9)
    whole = counted([event({}, ids=1)], [event(WORD, ids=2)], [event(None, total=3)])
    assert parts(whole) == ([1.0, 2.0], [1, 2], TokenSource.TOKEN_IDS, 3)
    both = counted([event(WORD, ids=1, total=7)], [event(WORD, ids=1, total=8)], [event(None, total=8)])
    assert parts(both) == ([1.0, 2.0], [1, 1], TokenSource.CHUNK_USAGE, 8)
    assert both.hidden_before == 6


COMPARED = ("has_begun", "tokens", "done", "error", "fault", "finish_reason", "usage", "text", "times")


@given(
    st.lists(
        st.builds(
            chunk,
            TEXTS,
            st.one_of(st.none(), st.lists(st.integers(0, 9), max_size=3)),
            st.sampled_from([None, "stop", "absent"]),
            chat=st.booleans(),
            total=st.one_of(st.none(), st.integers(0, 20)),
        ),
        max_size=8,
    ),
    st.sampled_from([{}, {"reasoning": "r"}, {"tool_calls": [{}]}, {"role": "assistant"}, {"content": None}]),
    st.integers(0, 8),
)
def test_whole_events_count_as_events_in_two_reads_do(
    chunks: list[dict[str, Any]], beside: dict[str, Any], fails_at: int
) -> None:
    """The short way for a read of one plain event gives what any way of reading it does, after errors too."""
    streams = TokenStream(keep_text=True), TokenStream(keep_text=True)
    for at, event in enumerate(chunks):
        event.update({"error": {"code": 500}} if at == fails_at else {})
        event["choices"][0].get("delta", {}).update(beside)
        data = b"data: " + json.dumps(event).encode() + b"\n\n"
        streams[0].feed(float(at), data)
        streams[1].feed(float(at), data[:-1])
        streams[1].feed(float(at), data[-1:])
    whole, split = ({name: getattr(stream, name) for name in COMPARED} for stream in streams)
    assert whole == split
    assert streams[0].count_tokens() == streams[1].count_tokens()
