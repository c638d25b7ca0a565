"""Facts about a request: the same words in a query and in a line, and nothing else gets through."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.agent.ask import Ask, AskError, from_line, from_query


def test_query_and_line_say_the_same() -> None:
    """A query and a line with the same wishes give the same request."""
    query = {"since": "5120.25", "processes": "1", "interval_s": "2", "later": "unknown"}
    line = b'{"since": 5120.25, "processes": true, "interval_s": 2, "later": {"unknown": []}}'
    assert from_query(query) == from_line(line) == Ask(5120.25, processes=True, interval_s=2.0)


def test_nothing_asked_is_the_newest_sample() -> None:
    """An empty query and an empty object ask for the newest sample without the table, at any interval."""
    assert from_query({}) == from_line(b"{}") == Ask()


@pytest.mark.parametrize(("wished", "given"), [("0", 0.25), ("-5", 0.25), ("0.5", 0.5), ("1e9", 60.0)])
def test_an_interval_is_kept_within_bounds(wished: str, given: float) -> None:
    """No asker makes the agent sample more often than every 0.25 s, or wait longer than a minute."""
    assert from_query({"interval_s": wished}).interval_s == given


@pytest.mark.parametrize(
    "query",
    [
        {"since": "abc"},
        {"since": ""},
        {"since": "nan"},
        {"since": "inf"},
        {"interval_s": "-inf"},
        {"interval_s": "1e999"},
        {"processes": "perhaps"},
        {"since": "\x1b[31m" + "9" * 5000},
    ],
    ids=str,
)
def test_what_is_no_wish_is_refused_in_one_clean_line(query: dict[str, str]) -> None:
    """A value that is no finite number, or no yes or no, is refused, and the refusal is printable."""
    with pytest.raises(AskError) as refused:
        from_query(query)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 120


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b'{"processes": []}',
        b'{"processes": 1}',
        b"[]",
        b"null",
        b"1",
        b'{"since": true}',
        b'{"since": [1]}',
        b'{"since": NaN}',
        b'{"interval_s": Infinity}',
        b'{"processes": "yes"}',
        b'{"processes": 2}',
        b"\xff\xfe",
        b"[" * 4000,
        b'{"since": 1' + b"0" * 3900 + b"}",
    ],
    ids=lambda line: repr(line[:20]),
)
def test_a_line_that_is_no_request_is_refused(line: bytes) -> None:
    """Broken JSON, JSON that is no object and values of a wrong kind are refused."""
    with pytest.raises(AskError):
        from_line(line)


@given(
    st.binary(max_size=200)
    | st.from_type(dict[str, float | str | None]).map(lambda d: json.dumps(d).encode())
)
@settings(max_examples=200)
def test_any_line_is_a_request_or_refused(line: bytes) -> None:
    """Whatever bytes come, they are a request with finite numbers, or refused."""
    try:
        ask = from_line(line)
    except AskError:
        return
    assert ask.since is None or math.isfinite(ask.since)
    assert ask.interval_s is None or 0.25 <= ask.interval_s <= 60.0
