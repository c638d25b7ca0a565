"""Events are the same however the bytes of their stream were split."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.sweep.generator import stream as sse
from sparktop.sweep.generator.stream import EventSplitter, EventTooLargeError

LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [b"", b"", b":", b": comment", b"data", b"data:", b"data: ", b"data:x", b"event: ping", b"id: 4"]
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
            if data is not None and data.strip() and kind != b"ping":
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
@settings(max_examples=100, deadline=None)
def test_any_split_gives_the_events_of_the_standard(
    parts: list[tuple[list[bytes], bytes]], cuts: list[int], mark: bytes
) -> None:
    """Whatever the line ends, comments and places of the cuts: the events are those of the whole stream."""
    stream = mark + b"".join(line + end for lines, end in parts for line in lines)
    assert events_of(*pieces_of(stream, cuts)) == by_the_standard(stream)


def test_an_event_is_given_with_the_read_that_ends_it() -> None:
    """With CR alone as line end, an event does not wait for anything after its empty line."""
    splitter = EventSplitter()
    assert splitter.feed(b": hello\n\n") == []
    assert splitter.feed(b"data: a\r\r") == [b"a"]
    assert splitter.feed(b"\ndata: b\n\n") == [b"b"]


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
