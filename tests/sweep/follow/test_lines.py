"""Lines of a progress stream: what is read of them, and what is passed over."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.sweep.follow.lines import (
    MOST_LINE,
    SCHEMA,
    Ended,
    GaveTokens,
    LineReader,
    Started,
    passed_words,
)
from tests.sweep.follow.progress_stream import RECORDED, Stream, line


def read(data: bytes, *, step: int | None = None) -> tuple[list[object], LineReader]:
    """Return the lines of data that arrives in parts of `step` bytes, and their reader."""
    reader = LineReader()
    size = step or max(1, len(data))
    return [one for at in range(0, len(data), size) for one in reader.feed(data[at : at + size])], reader


def test_a_recorded_stream_is_read_whole() -> None:
    """Of what llama-benchy 0.4.0 wrote no line is passed over."""
    found, reader = read(RECORDED.read_bytes())
    assert len(found) == len(RECORDED.read_bytes().splitlines()) - 1  # its probe's latency is of no use
    assert passed_words(reader.passed_over) is None


@given(step=st.integers(1, 400))
@settings(max_examples=30, deadline=None)
def test_lines_may_come_in_any_parts(step: int) -> None:
    """Where a read ends makes no difference."""
    stream = Stream()
    stream.level(2)
    data = b"".join(stream.lines)
    assert read(data, step=step)[0] == read(data)[0]


def test_a_line_without_its_end_is_not_read_yet() -> None:
    """It may be half of what will stand there."""
    data = Stream().end(1, 0.0)
    assert read(data[:-1])[0] == []
    assert len(read(data)[0]) == 1


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (b"{not json\n", "no JSON"),
        (b"\xff\xfe\xfd\n", "no JSON"),
        (b"[" * 100_000 + b"\n", "no JSON"),
        (b"[1]\n", "of another schema"),
        (b'{"schema":"llama-benchy-progress.v2","type":"tokens","ts":1}\n', "of another schema"),
        (line("temperature", 0.0), "of an unknown type"),
        (line("tokens", 0.0, request_id="x", count=1), "tokens without what it needs"),
        (line("tokens", 0.0, request_id=True, count=1), "tokens without what it needs"),
        (line("tokens", 0.0, request_id=1, count=-1), "tokens without what it needs"),
        (line("request_first_token", 0.0, request_id=1, ttft_s=None), "request_first_token without what it"),
        (line("tokens", 1e12, request_id=1, count=1), "without a time"),
        (b'{"schema":"%s","type":"tokens","ts":NaN}\n' % SCHEMA.encode(), "without a time"),
        (b'{"schema":"%s","type":["tokens"],"ts":1}\n' % SCHEMA.encode(), "of an unknown type"),
        (Stream().start(1, 0.0, 0, 1), "request_start without what it needs"),
        (Stream().start(1, 0.0, 1, 1, response_size=10**9), "request_start without what it needs"),
    ],
)
def test_what_cannot_be_read_is_counted_with_its_reason(told: bytes, why: str) -> None:
    """One such line costs nothing else, and what comes after it is read."""
    found, reader = read(told + Stream().end(7, 0.0))
    assert [type(one) for one in found] == [Ended]
    assert why in (passed_words(reader.passed_over) or "")
    assert reader.passed_over.total() == 1


@pytest.mark.parametrize("step", [None, 1 << 16])
def test_a_huge_line_is_passed_over_and_not_kept(step: int | None) -> None:
    """It counts once, however it comes, and the next line is read."""
    data = b'{"error":"' + b"x" * (2 * MOST_LINE) + b'"}\n' + Stream().end(7, 0.0)
    found, reader = read(data, step=step)
    assert [type(one) for one in found] == [Ended]
    assert dict(reader.passed_over) == {"too long": 1}


def test_what_comes_from_outside_is_clean() -> None:
    """Control characters, markup and a password get no further than here."""
    stream = Stream(base_url="http://me:secret@h\x1b:8000/v1", model="a\x1b[31mb", label="l\u202e\nb" * 50)
    (found,) = read(stream.start(1, 0.0, 4, 1))[0]
    assert isinstance(found, Started)
    assert "\x1b" not in found.asked.model
    assert "secret" not in repr(found)
    assert len(found.asked.label) <= 40
    assert "\u202e" not in found.asked.label
    (plain,) = read(Stream(base_url="http://me:secret@host:8000/v1/").start(1, 0.0, 4, 1))[0]
    assert isinstance(plain, Started)
    assert plain.asked.url == "http://host:8000"
    (ended,) = read(stream.end(1, 0.0, error="\x1b]0;x\x07"))[0]
    assert isinstance(ended, Ended)
    assert ended.error == "]0;x"
    (silent,) = read(stream.end(1, 0.0, error="\x07"))[0]
    assert isinstance(silent, Ended)
    assert silent.error  # it failed, whatever it said


def test_a_count_without_token_ids_is_a_guess() -> None:
    """llama-benchy marks it as estimated."""
    told = line("tokens", 0.0, request_id=1, count=1, snippet="x", estimated=True)
    (found,) = read(told)[0]
    assert isinstance(found, GaveTokens)
    assert found.is_guess


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    "request_id",
    "ts",
    "count",
    "concurrency",
    "run_index",
    "prompt_size",
    "response_size",
    "context_size",
    "base_url",
    "model",
    "target_label",
    "ttfr_s",
    "ttft_s",
    "total_tokens",
    "prompt_tokens",
    "error",
    "status",
    "estimated",
    "llama_benchy_version",
)
KINDS = (
    "header",
    "request_start",
    "request_first_response",
    "request_first_token",
    "tokens",
    "request_end",
    "bench_complete",
)


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), JSON))
@settings(max_examples=200, deadline=None)
def test_odd_values_cost_their_line_at_most(kind: str, odd: dict[str, object]) -> None:
    """Whatever stands in a field, reading goes on."""
    told = json.loads(Stream().start(1, 0.0, 2, 1)) | {"type": kind, "count": 1, "ttfr_s": 0.1, "ttft_s": 0.1}
    data = json.dumps(told | odd).encode() + b"\n"
    found, reader = read(data)
    assert len(found) + reader.passed_over.total() == 1
