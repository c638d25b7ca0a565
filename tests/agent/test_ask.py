"""Parameters of a request for samples, in a query or as a JSON line: both are read alike, and checked."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.agent.reader import Ask, AskError, from_line, from_query


def test_query_and_line_say_the_same() -> None:
    """A query and a JSON line with the same parameters give the same request."""
    query = {"since": "5120.25", "processes": "1", "interval_s": "2", "later": "unknown"}
    line = b'{"since": 5120.25, "processes": true, "interval_s": 2, "later": {"unknown": []}}'
    assert from_query(query) == from_line(line) == Ask(5120.25, processes=True, interval_s=2.0)


@pytest.mark.parametrize(
    "query",
    [
        {"since": "abc"},
        {"since": "nan"},
        {"interval_s": "-inf"},
        {"processes": "perhaps"},
        {"since": "\x1b[31m" + "9" * 5000},
    ],
    ids=str,
)
def test_what_is_no_wish_is_refused_in_one_clean_line(query: dict[str, str]) -> None:
    """A value that is not a finite number, or not a boolean, is refused in one printable line."""
    with pytest.raises(AskError) as refused:
        from_query(query)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 120


@given(
    st.binary(max_size=200)
    | st.from_type(dict[str, float | str | None]).map(lambda d: json.dumps(d).encode())
)
@settings(max_examples=200)
def test_any_line_is_a_request_or_refused(line: bytes) -> None:
    """Any bytes are either a request with finite numbers or refused."""
    try:
        ask = from_line(line)
    except AskError:
        return
    assert ask.since is None or math.isfinite(ask.since)
    assert ask.interval_s is None or 0.25 <= ask.interval_s <= 60.0
